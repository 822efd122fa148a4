//! Options with a range: what is outside is refused with the range it must be in, before anything
//! starts.

use crate::{size, span};
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

/// A directory that is there, by its whole path.
pub fn directory(text: &str) -> Result<std::path::PathBuf, String> {
    let path = std::path::Path::new(text).canonicalize().map_err(|e| e.to_string())?;
    if path.is_dir() { Ok(path) } else { Err("it is no directory".to_owned()) }
}

/// The two parts of `DIR[=EXPORT]` or `DIR[=NAME]`. A `=` that belongs to a name is written `\=`.
pub fn parts(text: &str) -> (String, Option<String>) {
    let (mut dir, mut export) = (String::new(), None);
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        let named = c == '\\' && rest.next_if_eq(&'=').is_some();
        match (&mut export, c) {
            (None, '=') => export = Some(String::new()),
            (None, c) => dir.push(if named { '=' } else { c }),
            (Some(export), c) => export.push(if named { '=' } else { c }),
        }
    }
    (dir, export)
}

/// The longest time any option takes: a day.
const DAY: f64 = 86_400.0;

/// A number within `range`.
pub fn number(
    range: RangeInclusive<f64>,
) -> impl Fn(&str) -> Result<f64, String> + Clone + Send + Sync + 'static {
    move |text| {
        let allowed = || format!("give a number from {} to {}", range.start(), range.end());
        text.trim().parse().ok().filter(|n| range.contains(n)).ok_or_else(allowed)
    }
}

/// A time, from `least` seconds to a day; a plain number counts seconds.
pub fn seconds(least: f64) -> impl Fn(&str) -> Result<Duration, String> + Clone + Send + Sync + 'static {
    move |text| {
        let plain = || text.trim().parse().ok();
        let with_unit = || span::parse(text).ok().map(|s| s.0 as f64 / 1e9);
        let given = plain().or_else(with_unit).filter(|s| (least..=DAY).contains(s));
        given.map(Duration::from_secs_f64).ok_or_else(|| {
            format!(
                "give a number from {least} to {DAY} seconds, or a time in that range, as in 500ms or 2min"
            )
        })
    }
}

/// The same, but whole seconds.
pub fn whole_seconds(
    range: RangeInclusive<u64>,
) -> impl Fn(&str) -> Result<u64, String> + Clone + Send + Sync + 'static {
    move |text| {
        let given = seconds(0.0)(text).ok().filter(|d| d.subsec_nanos() == 0).map(|d| d.as_secs());
        given.filter(|s| range.contains(s)).ok_or_else(|| {
            format!("give whole seconds from {} to {}, or as in 2min", range.start(), range.end())
        })
    }
}

/// A whole number within `range`.
pub fn count<T>(
    range: RangeInclusive<T>,
) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static
where
    T: FromStr + PartialOrd + Display + Clone + Send + Sync + 'static,
{
    move |text| {
        let allowed = || format!("give a whole number from {} to {}", range.start(), range.end());
        text.trim().parse().ok().filter(|n| range.contains(n)).ok_or_else(allowed)
    }
}

/// What random choices begin with.
pub fn seed(text: &str) -> Result<u64, String> {
    count(0..=u64::MAX)(text)
}

/// The number of an I/O node.
pub fn node_id(text: &str) -> Result<u32, String> {
    count(0..=u32::MAX)(text)
}

/// How often something is measured.
pub fn repetitions(text: &str) -> Result<usize, String> {
    count(1..=1000)(text)
}

/// KiB: a plain number counts them, any other size must be some. From 1 KiB to 1 GiB.
pub fn kib(text: &str) -> Result<u64, String> {
    let with_unit = || size::parse(text).ok().filter(|b| b.is_multiple_of(1024)).map(|b| b / 1024);
    let given = text.trim().parse().ok().or_else(with_unit).filter(|k| (1..=1 << 20).contains(k));
    given.ok_or_else(|| "give KiB from 1 to 1048576, or a size of whole KiB, as in 64K or 1MiB".to_owned())
}

/// A share of a whole.
pub fn share(text: &str) -> Result<f64, String> {
    number(0.0..=1.0)(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_outside_is_refused_with_the_range() {
        assert_eq!(share("0.5"), Ok(0.5));
        for bad in ["nan", "-0.1", "1.5", "inf", "", "much"] {
            assert_eq!(share(bad), Err("give a number from 0 to 1".to_owned()), "{bad}");
        }
        assert_eq!(seconds(0.1)("30"), Ok(Duration::from_secs(30)));
        assert_eq!(seconds(0.1)("500ms"), Ok(Duration::from_millis(500)));
        for bad in ["0", "nan", "1e300", "-1", "1ms", "25h"] {
            assert!(seconds(0.1)(bad).unwrap_err().contains("0.1 to 86400 seconds"), "{bad}");
        }
        assert_eq!((whole_seconds(1..=600)("30"), whole_seconds(1..=600)("2min")), (Ok(30), Ok(120)));
        assert!(whole_seconds(1..=600)("500ms").is_err() && whole_seconds(1..=600)("0").is_err());
        assert_eq!((kib("64"), kib("64K"), kib("1MiB")), (Ok(64), Ok(64), Ok(1024)));
        for bad in ["0", "100B", "2G", "-1", ""] {
            assert!(kib(bad).unwrap_err().contains("64K"), "{bad}");
        }
        assert!(repetitions("0").unwrap_err().contains("from 1 to 1000"));
    }

    #[test]
    fn names_may_have_an_equals_sign() {
        let of = |dir: &str, export: Option<&str>| (dir.to_owned(), export.map(str::to_owned));
        assert_eq!(parts("/a"), of("/a", None));
        assert_eq!(parts("/a=b"), of("/a", Some("b")));
        assert_eq!(parts(r"/a\=b"), of("/a=b", None));
        assert_eq!(parts(r"/a\=b=c\=d=e"), of("/a=b", Some("c=d=e")));
        assert_eq!(parts(r"/a\b\"), of(r"/a\b\", None));
        assert_eq!(parts("="), of("", Some("")));
    }
}
