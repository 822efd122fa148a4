//! Spans of time and sizes as people write them in a config (`500us`, `64KiB`), for serde's `with`.

/// A span: a number and `ns`, `us`, `ms` or `s`.
pub(crate) mod span {
    use forebay_types::Nanos;
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    const UNITS: [(&str, u64); 4] = [("ns", 1), ("us", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000)];

    pub(crate) fn parse(text: &str) -> Result<Nanos, String> {
        let (number, unit) = super::split(text);
        let unit = UNITS.iter().find(|(name, _)| *name == unit);
        match (number.parse::<f64>(), unit) {
            (Ok(n), Some((_, scale))) if n.is_finite() && n >= 0.0 => {
                Ok(Nanos((n * *scale as f64).round() as u64))
            }
            _ => {
                Err(format!("`{text}` is no span of time: write a number and ns, us, ms or s, as in `500us`"))
            }
        }
    }

    pub(crate) fn show(span: Nanos) -> String {
        let (name, scale) = UNITS
            .iter()
            .rev()
            .find(|(_, scale)| span.0 >= *scale && span.0.is_multiple_of(*scale))
            .unwrap_or(&UNITS[0]);
        format!("{}{name}", span.0 / scale)
    }

    pub(crate) fn serialize<S: Serializer>(span: &Nanos, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(&show(*span))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Nanos, D::Error> {
        parse(&String::deserialize(d)?).map_err(D::Error::custom)
    }
}

/// A span that need not be given.
pub(crate) mod span_option {
    use super::span;
    use forebay_types::Nanos;
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(crate) fn serialize<S: Serializer>(value: &Option<Nanos>, s: S) -> Result<S::Ok, S::Error> {
        match value {
            Some(value) => span::serialize(value, s),
            None => s.serialize_none(),
        }
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Option<Nanos>, D::Error> {
        let text: Option<String> = Option::deserialize(d)?;
        text.map(|t| span::parse(&t).map_err(D::Error::custom)).transpose()
    }
}

/// A size: a number of bytes, or a number and `B`, `KB`, `KiB`, `MB`, `MiB`, `GB` or `GiB`.
pub(crate) mod size {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    const UNITS: [(&str, u64); 7] = [
        ("B", 1),
        ("KB", 1_000),
        ("KiB", 1 << 10),
        ("MB", 1_000_000),
        ("MiB", 1 << 20),
        ("GB", 1_000_000_000),
        ("GiB", 1 << 30),
    ];

    pub(crate) fn parse(text: &str) -> Result<u64, String> {
        let (number, unit) = super::split(text);
        let scale =
            if unit.is_empty() { Some(1) } else { UNITS.iter().find(|(n, _)| *n == unit).map(|(_, s)| *s) };
        match (number.parse::<f64>(), scale) {
            (Ok(n), Some(scale)) if n.is_finite() && n >= 0.0 => Ok((n * scale as f64).round() as u64),
            _ => Err(format!(
                "`{text}` is no size: write bytes, or a number and KB, KiB, MB, MiB, GB or GiB, as in `64KiB`"
            )),
        }
    }

    pub(crate) fn show(bytes: u64) -> String {
        let whole = UNITS.iter().filter(|(_, scale)| bytes >= *scale && bytes.is_multiple_of(*scale));
        match whole.max_by_key(|(_, scale)| *scale) {
            Some((name, scale)) => format!("{}{name}", bytes / scale),
            None => format!("{bytes}B"),
        }
    }

    pub(crate) fn serialize<S: Serializer>(bytes: &u64, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(&show(*bytes))
    }

    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Either {
        Number(u64),
        Text(String),
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<u64, D::Error> {
        match Either::deserialize(d)
            .map_err(|_| D::Error::custom("a size is a number of bytes or text such as \"64KiB\""))?
        {
            Either::Number(n) => Ok(n),
            Either::Text(t) => parse(&t).map_err(D::Error::custom),
        }
    }
}

/// The number and the unit behind it.
fn split(text: &str) -> (&str, &str) {
    let text = text.trim();
    let at = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    (text[..at].trim_end(), &text[at..])
}
