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

/// A number as it was written, to the last digit.
struct Number {
    whole: u128,
    /// Behind the point: so many of which `of` are one.
    part: u128,
    of: u128,
    /// There were more digits, not all 0.
    cut: bool,
}

/// Digits behind the point that are looked at.
const PLACES: usize = 20;
/// The largest quantity, in bytes or nanoseconds.
const LARGEST: u128 = 1_000_000_000_000_000_000;

impl Number {
    fn parse(text: &str) -> Option<Number> {
        let digits = text.replace('_', "");
        let (whole, part) = digits.split_once('.').unwrap_or((&digits, ""));
        let number = |digits: &str| if digits.is_empty() { Some(0) } else { digits.parse::<u128>().ok() };
        if whole.is_empty() && part.is_empty() || !part.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
        let (part, rest) = part.split_at(part.len().min(PLACES));
        let cut = rest.bytes().any(|b| b != b'0');
        Some(Number { whole: number(whole)?, part: number(part)?, of: 10u128.pow(part.len() as u32), cut })
    }

    /// So many times it: the whole part, and what is left of `of`.
    fn times(&self, scale: u64) -> Option<(u128, u128)> {
        let scale = u128::from(scale);
        let part = self.part * scale;
        let whole = self.whole.checked_mul(scale)?.checked_add(part / self.of)?;
        (whole <= LARGEST).then_some((whole, part % self.of))
    }
}

/// The number and the unit behind it; numbers may have `_` between digits.
fn split(text: &str) -> Option<(Number, &str)> {
    let text = text.trim();
    let digit = |c: char| c.is_ascii_digit() || c == '.' || c == '_';
    let at = text.find(|c| !digit(c)).unwrap_or(text.len());
    Some((Number::parse(&text[..at])?, text[at..].trim()))
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
        match number.times(scale) {
            Some((bytes, 0)) if !number.cut => Ok(bytes as u64),
            _ => Err(wrong()),
        }
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
        let (nanos, rest) = number.times(scale).ok_or_else(wrong)?;
        Ok(Nanos(nanos as u64 + u64::from(2 * rest >= number.of)))
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
            // No such number is a binary fraction.
            ("1.1MB", 1_100_000),
            ("33.3MB", 33_300_000),
            ("16.1MB", 16_100_000),
            ("4.35GB", 4_350_000_000),
            ("0.000001MB", 1),
            (".5K", 512),
            ("1.5000000000000000000000000K", 1536),
            ("1000000TB", 1_000_000_000_000_000_000),
        ] {
            assert_eq!(size::parse(text), Ok(bytes), "{text}");
        }
        for wrong in [
            "",
            "K",
            "-1",
            "1.3",
            "1 XB",
            "1e99",
            "9999999 TB",
            "0x10",
            "64Ki",
            "NaN",
            "inf",
            "1.2.3",
            ".",
            "_",
            "1.0000000000000000000000001K",
            "1000000000000000001",
            "340282366920938463463374607431768211456",
        ] {
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
            ("0.3333333333333333333333333333333333s", 333_333_333),
            ("1.5ns", 2),
        ] {
            assert_eq!(span::parse(text), Ok(Nanos(nanos)), "{text}");
        }
        for wrong in ["", "s", "-1s", "1 fortnight", "1e300", "9999999999999h", "nan"] {
            assert!(span::parse(wrong).is_err(), "{wrong}");
        }
        assert_eq!(rate::parse("500MB/s"), Ok(500_000_000));
        assert_eq!(rate::parse("500MB"), Ok(500_000_000));
        assert!(rate::parse("500MB/min").is_err());
        assert_eq!(rate::parse("33.3MB/s"), Ok(33_300_000));
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
