//! Quantities as people write them, read in one place for every command and every configuration file.
//! Each module has `parse` and `show`, and is one for serde's `with`.
//!
//! | module | examples |
//! |---|---|
//! | [`size`] | `4096`, `64K` = `64KiB`, `1.5 MiB`, `500MB` |
//! | [`span`] | `10ms`, `500us`, `2s`, `5min`; a bare number counts seconds |
//! | [`rate`] | `500MB/s`, `1GiB/s`; `/s` may be left out |

/// Text that is no such quantity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no {what}")]
pub struct UnitError {
    text: String,
    what: &'static str,
}

impl UnitError {
    fn new(text: &str, what: &'static str) -> UnitError {
        UnitError { text: text.chars().take(100).collect(), what }
    }
}

/// A number in a configuration file: bare, or text with its unit.
#[derive(serde::Deserialize)]
#[serde(untagged, expecting = "a number is expected, or a text with its unit, as in \"64K\" or \"10ms\"")]
enum Raw {
    Whole(u64),
    Float(f64),
    Text(String),
}

impl Raw {
    fn into_text(self) -> String {
        match self {
            Raw::Whole(n) => n.to_string(),
            Raw::Float(f) => f.to_string(),
            Raw::Text(t) => t,
        }
    }
}

/// The number and the unit behind it; numbers may have `_` between digits.
fn split(text: &str) -> Option<(f64, &str)> {
    let text = text.trim();
    let digit = |c: char| c.is_ascii_digit() || c == '.' || c == '_';
    let at = text.find(|c| !digit(c)).unwrap_or(text.len());
    let number: f64 = text[..at].replace('_', "").parse().ok()?;
    Some((number, text[at..].trim()))
}

/// A number of bytes. `K`, `M`, `G`, `T` count by 1024 as `KiB` and so on do; `KB` and so on by 1000.
pub mod size {
    use super::{Raw, UnitError, split};
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    const UNITS: [(&str, u64); 14] = [
        ("", 1),
        ("B", 1),
        ("K", 1 << 10),
        ("KiB", 1 << 10),
        ("KB", 1_000),
        ("M", 1 << 20),
        ("MiB", 1 << 20),
        ("MB", 1_000_000),
        ("G", 1 << 30),
        ("GiB", 1 << 30),
        ("GB", 1_000_000_000),
        ("T", 1 << 40),
        ("TiB", 1 << 40),
        ("TB", 1_000_000_000_000),
    ];
    const WHAT: &str =
        "size: write bytes, or a number and K (KiB), KB, M (MiB), MB, G, GB, T or TB, as in `64K`";

    /// Reads a size, which must be a whole number of bytes.
    pub fn parse(text: &str) -> Result<u64, UnitError> {
        let wrong = || UnitError::new(text, WHAT);
        let (number, unit) = split(text).ok_or_else(wrong)?;
        let scale = UNITS.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit)).ok_or_else(wrong)?.1;
        let bytes = number * scale as f64;
        if !(0.0..=1e18).contains(&bytes) || bytes.fract() != 0.0 {
            return Err(wrong());
        }
        Ok(bytes as u64)
    }

    /// As [`parse`] reads it, in the largest unit that needs no fraction.
    pub fn show(bytes: u64) -> String {
        let named = UNITS.iter().filter(|(name, _)| name.ends_with('B'));
        let whole = named.filter(|(_, scale)| bytes >= *scale && bytes.is_multiple_of(*scale));
        match whole.max_by_key(|(_, scale)| *scale) {
            Some((name, scale)) => format!("{}{name}", bytes / scale),
            None => format!("{bytes}B"),
        }
    }

    /// For serde.
    pub fn serialize<S: Serializer>(bytes: &u64, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(&show(*bytes))
    }

    /// For serde.
    pub fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<u64, D::Error> {
        parse(&Raw::deserialize(d)?.into_text()).map_err(D::Error::custom)
    }
}

/// A span of time.
pub mod span {
    use super::{Raw, UnitError, split};
    use crate::Nanos;
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    const UNITS: [(&str, u64); 8] = [
        ("", 1_000_000_000),
        ("ns", 1),
        ("us", 1_000),
        ("µs", 1_000),
        ("ms", 1_000_000),
        ("s", 1_000_000_000),
        ("min", 60_000_000_000),
        ("h", 3_600_000_000_000),
    ];
    const WHAT: &str = "span of time: write seconds, or a number and ns, us, ms, s, min or h, as in `500us`";

    /// Reads a span, to the nanosecond.
    pub fn parse(text: &str) -> Result<Nanos, UnitError> {
        let wrong = || UnitError::new(text, WHAT);
        let (number, unit) = split(text).ok_or_else(wrong)?;
        let scale = UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(wrong)?.1;
        let nanos = (number * scale as f64).round();
        if !(0.0..=1e18).contains(&nanos) {
            return Err(wrong());
        }
        Ok(Nanos(nanos as u64))
    }

    /// As [`parse`] reads it, in the largest unit up to a second that needs no fraction.
    pub fn show(span: Nanos) -> String {
        let units = [("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000)];
        let whole = units.iter().find(|(_, scale)| span.0 >= *scale && span.0.is_multiple_of(*scale));
        let (name, scale) = whole.unwrap_or(&("ns", 1));
        format!("{}{name}", span.0 / scale)
    }

    /// For serde.
    pub fn serialize<S: Serializer>(span: &Nanos, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(&show(*span))
    }

    /// For serde.
    pub fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Nanos, D::Error> {
        parse(&Raw::deserialize(d)?.into_text()).map_err(D::Error::custom)
    }

    /// A span that need not be given, for serde.
    pub mod option {
        use super::{Deserialize, Deserializer, Error, Nanos, Raw, Serializer, parse, show};

        /// For serde.
        pub fn serialize<S: Serializer>(span: &Option<Nanos>, s: S) -> Result<S::Ok, S::Error> {
            match span {
                Some(span) => s.serialize_some(&show(*span)),
                None => s.serialize_none(),
            }
        }

        /// For serde.
        pub fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Option<Nanos>, D::Error> {
            let raw: Option<Raw> = Option::deserialize(d)?;
            raw.map(|r| parse(&r.into_text()).map_err(D::Error::custom)).transpose()
        }
    }
}

/// Bytes a second.
pub mod rate {
    use super::{Raw, UnitError, size};
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    const WHAT: &str = "rate: write a size a second, as in `500MB/s`";

    /// Reads a rate; zero is one.
    pub fn parse(text: &str) -> Result<u64, UnitError> {
        let bytes = text.trim().strip_suffix("/s").unwrap_or(text);
        size::parse(bytes).map_err(|_| UnitError::new(text, WHAT))
    }

    /// As [`parse`] reads it.
    pub fn show(bytes: u64) -> String {
        format!("{}/s", size::show(bytes))
    }

    /// For serde.
    pub fn serialize<S: Serializer>(bytes: &u64, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(&show(*bytes))
    }

    /// For serde.
    pub fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<u64, D::Error> {
        parse(&Raw::deserialize(d)?.into_text()).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Nanos;
    use proptest::prelude::*;

    #[test]
    fn as_people_write_them() {
        for (text, bytes) in [
            ("4096", 4096),
            ("64K", 65_536),
            ("64KiB", 65_536),
            ("64 kib", 65_536),
            ("4MiB", 4 << 20),
            ("1.5MiB", 1_572_864),
            ("500MB", 500_000_000),
            ("2 GB", 2_000_000_000),
            ("1T", 1 << 40),
            ("1_000", 1000),
        ] {
            assert_eq!(size::parse(text), Ok(bytes), "{text}");
        }
        for wrong in
            ["", "K", "-1", "1.3", "1 XB", "1e99", "9999999 TB", "0x10", "64Ki", "NaN", "inf", "1.2.3"]
        {
            let said = size::parse(wrong).unwrap_err().to_string();
            assert!(said.contains("as in `64K`"), "{said}");
        }
        for (text, nanos) in [
            ("2s", 2_000_000_000),
            ("10ms", 10_000_000),
            ("500us", 500_000),
            ("1.5", 1_500_000_000),
            ("250 ms", 250_000_000),
            ("5min", 300_000_000_000),
        ] {
            assert_eq!(span::parse(text), Ok(Nanos(nanos)), "{text}");
        }
        for wrong in ["", "s", "-1s", "1 fortnight", "1e300", "9999999999999h", "nan"] {
            assert!(span::parse(wrong).is_err(), "{wrong}");
        }
        assert_eq!(rate::parse("500MB/s"), Ok(500_000_000));
        assert_eq!(rate::parse("500MB"), Ok(500_000_000));
        assert!(rate::parse("500MB/min").is_err());
    }

    #[derive(serde::Serialize, serde::Deserialize, Debug, PartialEq)]
    struct File {
        #[serde(with = "size")]
        size: u64,
        #[serde(with = "span")]
        span: Nanos,
        #[serde(with = "rate")]
        rate: u64,
    }

    #[test]
    fn in_files() {
        let read = |t: &str| serde_json::from_str::<File>(t);
        let file = read(r#"{"size": "64K", "span": "10ms", "rate": "1GiB/s"}"#).unwrap();
        assert_eq!(file, File { size: 65_536, span: Nanos::from_millis(10), rate: 1 << 30 });
        assert_eq!(read(&serde_json::to_string(&file).unwrap()).unwrap(), file);
        assert_eq!(read(r#"{"size": 4096, "span": 1.5, "rate": 1}"#).unwrap().span, Nanos::from_millis(1500));
        for wrong in [r#"{"size": -1, "span": 1, "rate": 1}"#, r#"{"size": 1.5, "span": 1, "rate": 1}"#] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn what_is_shown_is_read_again(n in 0u64..1 << 52) {
            prop_assert_eq!(size::parse(&size::show(n)), Ok(n));
            prop_assert_eq!(rate::parse(&rate::show(n)), Ok(n));
            prop_assert_eq!(span::parse(&span::show(Nanos(n))), Ok(Nanos(n)));
        }
    }
}
