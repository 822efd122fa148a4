//! Sizes and times as people write them: `4096`, `"32 KiB"`, `"1.5s"`.

use serde::{Deserialize, Deserializer};
use std::time::Duration;

/// A number of bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Size(pub(super) u64);

/// A span of time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Span(pub(super) Duration);

#[derive(Deserialize)]
#[serde(untagged)]
enum Raw {
    Whole(i64),
    Float(f64),
    Text(String),
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Size, D::Error> {
        let parsed = match Raw::deserialize(d)? {
            Raw::Whole(n) => u64::try_from(n).map_err(|_| format!("{n} is not a size")),
            Raw::Float(f) => Err(format!("{f} is not a whole number of bytes")),
            Raw::Text(s) => size(&s),
        };
        parsed.map(Size).map_err(serde::de::Error::custom)
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Span, D::Error> {
        let parsed = match Raw::deserialize(d)? {
            Raw::Whole(n) => seconds(n as f64),
            Raw::Float(f) => seconds(f),
            Raw::Text(s) => span(&s),
        };
        parsed.map(Span).map_err(serde::de::Error::custom)
    }
}

/// `4096`, `32 KiB`, `1G` (binary), `1 GB` (decimal).
pub(super) fn size(s: &str) -> Result<u64, String> {
    let (number, unit) = split(s);
    let factor: u64 = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        "t" | "tib" => 1 << 40,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "tb" => 1_000_000_000_000,
        _ => return Err(format!("{s:?} is not a size: write 4096, \"32 KiB\" or \"1 GB\"")),
    };
    let value: f64 =
        number.parse().map_err(|_| format!("{s:?} is not a size: write 4096, \"32 KiB\" or \"1 GB\""))?;
    let bytes = value * factor as f64;
    if !(0.0..=1e18).contains(&bytes) || bytes.fract() != 0.0 {
        return Err(format!("{s:?} is not a whole number of bytes"));
    }
    Ok(bytes as u64)
}

fn span(s: &str) -> Result<Duration, String> {
    let (number, unit) = split(s);
    let factor = match unit {
        "" | "s" => 1.0,
        "ms" => 1e-3,
        "us" | "µs" => 1e-6,
        "min" => 60.0,
        _ => return Err(format!("{s:?} is not a time: write \"250 ms\" or \"1.5s\"")),
    };
    let value: f64 =
        number.parse().map_err(|_| format!("{s:?} is not a time: write \"250 ms\" or \"1.5s\""))?;
    seconds(value * factor)
}

pub(super) fn seconds(s: f64) -> Result<Duration, String> {
    if (0.0..=1e9).contains(&s) {
        Ok(Duration::from_secs_f64(s))
    } else {
        Err(format!("{s} is not a number of seconds"))
    }
}

fn split(s: &str) -> (&str, &str) {
    let s = s.trim();
    let at = s.find(|c: char| !(c.is_ascii_digit() || c == '.' || c == '_')).unwrap_or(s.len());
    (&s[..at], s[at..].trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_times_read_as_written() {
        for (s, n) in
            [("4096", 4096), ("32 KiB", 32768), ("1.5MiB", 1_572_864), ("2 GB", 2_000_000_000), ("1k", 1024)]
        {
            assert_eq!(size(s), Ok(n), "{s}");
        }
        for bad in ["", "KiB", "-1", "1.3", "1 XB", "1e99", "9999999 TB", "0x10"] {
            assert!(size(bad).is_err(), "{bad}");
        }
        assert_eq!(span("250 ms"), Ok(Duration::from_millis(250)));
        assert_eq!(span("1.5"), Ok(Duration::from_millis(1500)));
        assert!(span("1 fortnight").is_err() && span("1e300").is_err());
    }
}
