//! The switches in the environment (`FOREBAY_…`), and what they may be set to: a word that switches nothing is a mistake.

use std::ffi::{OsStr, OsString};

/// A variable, the words that it takes, and those words for a person.
type Switch = (&'static str, fn(&str) -> bool, &'static str);

const SWITCHES: [Switch; 5] = [
    ("FOREBAY_SPIN", |v| matches!(v, "on" | "off" | "0" | "always"), "on, off or always"),
    ("FOREBAY_STREAMS", |v| matches!(v, "on" | "off" | "reads"), "on, off or reads"),
    // A program of an accelerated run finds a path there.
    ("FOREBAY_ACCELERATOR", |v| matches!(v, "on" | "off" | "always") || v.contains('/'), "on, off or always"),
    ("FOREBAY_COUNT", |v| matches!(v, "0" | "1"), "0 or 1"),
    ("FOREBAY_REMEMBER", |v| v.parse::<u32>().is_ok(), "a number of requests"),
];

/// Looks at all switches. One that is empty is not set.
pub fn check(get: impl Fn(&OsStr) -> Option<OsString>) -> Result<(), String> {
    for (name, known, words) in SWITCHES {
        match get(OsStr::new(name)) {
            Some(value) if !value.is_empty() && !value.to_str().is_some_and(known) => {
                return Err(format!("{name}={}: it takes {words}", value.display()));
            }
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::check;

    fn one(name: &'static str, value: &'static str) -> Result<(), String> {
        check(move |asked| (asked == name).then(|| value.into()))
    }

    #[test]
    fn words_that_switch_nothing_are_named() {
        assert_eq!(check(|_| None), Ok(()));
        assert_eq!(one("FOREBAY_SPIN", "off"), Ok(()));
        assert_eq!(one("FOREBAY_SPIN", ""), Ok(()));
        assert_eq!(one("FOREBAY_ACCELERATOR", "!/tmp/run/client"), Ok(()));
        assert_eq!(one("FOREBAY_SPIN", "of"), Err("FOREBAY_SPIN=of: it takes on, off or always".into()));
        assert!(one("FOREBAY_STREAMS", "no").is_err());
        assert!(one("FOREBAY_REMEMBER", "-1").is_err());
        assert!(one("FOREBAY_COUNT", "yes").is_err());
    }
}
