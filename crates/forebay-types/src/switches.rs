//! The variables of the environment (`FOREBAY_…`): which there are, and what those that switch something may be set to. A
//! word that switches nothing is a mistake, and so is a name that is nearly one of them.

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

/// What a person or a site may set.
pub const SETTINGS: [&str; 16] = [
    "FOREBAY_ARBITER",
    "FOREBAY_SECRET_FILE",
    "FOREBAY_CA",
    "FOREBAY_ARBITER_USER",
    "FOREBAY_MUNGE_SOCKET",
    "FOREBAY_LOG",
    "FOREBAY_ACCELERATOR",
    "FOREBAY_SPIN",
    "FOREBAY_STREAMS",
    "FOREBAY_COUNT",
    "FOREBAY_REMEMBER",
    "FOREBAY_SLURM",
    "FOREBAY_PROGRAM",
    "FOREBAY_SHARE",
    "FOREBAY_SLURM_WAIT",
    "FOREBAY_SLURM_WATCH",
];

/// What Forebay's programs and scripts set for each other.
pub const HANDED_ON: [&str; 11] = [
    "FOREBAY_CONFIG",
    "FOREBAY_WITHIN",
    "FOREBAY_JOIN",
    "FOREBAY_EXE",
    "FOREBAY_CWD",
    "FOREBAY_LD_LIBRARY_PATH",
    "FOREBAY_ANNOUNCED",
    "FOREBAY_LATE",
    "FOREBAY_LOCKED",
    "FOREBAY_EXPLORE_TOKEN",
    "FOREBAY_SLURM_EPILOG",
];

/// The setting that a name is likely to be a misspelling of. Other names are whoever's they are: a site may well have
/// a `FOREBAY_ROOT` of its own.
pub fn meant(name: &str) -> Option<&'static str> {
    let upper = name.to_ascii_uppercase();
    let known = SETTINGS.iter().chain(&HANDED_ON).any(|k| *k == name);
    if known || !upper.starts_with("FOR") || name.len() > 64 {
        return None;
    }
    // One that goes on, or stops early, at the end of a word: FOREBAY_ARBITER_URL, FOREBAY_SECRET.
    let part = |long: &str, short: &str| long.strip_prefix(short).is_some_and(|rest| rest.starts_with('_'));
    let whole = |k: &&&str| part(&upper, k) || (upper != "FOREBAY" && part(k, &upper));
    let slips = |k: &str| if k.len() > "FOREBAY".len() + 5 { 2 } else { 1 };
    let near = SETTINGS.iter().map(|k| (slips_between(&upper, k), k)).filter(|(n, k)| *n <= slips(k));
    let near = near.min_by_key(|(n, _)| *n).map(|(_, k)| k);
    near.or_else(|| SETTINGS.iter().filter(whole).max_by_key(|k| k.len())).copied()
}

/// How many letters are missing, too many, wrong, or in each other's place.
pub fn slips_between(a: &str, b: &str) -> usize {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let mut rows: Vec<Vec<usize>> = vec![(0..=b.len()).collect()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let wrong = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut least = wrong.min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                least = least.min(rows[i - 2][j - 2] + 1);
            }
            row.push(least);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::{HANDED_ON, SETTINGS, check, meant};

    #[test]
    fn slips_are_noticed_and_names_of_others_are_not() {
        for (name, known) in [
            ("FOREBAY_SECRETFILE", "FOREBAY_SECRET_FILE"),
            ("FOREBAY_SECRET", "FOREBAY_SECRET_FILE"),
            ("FOREBAY_ARBITER_URL", "FOREBAY_ARBITER"),
            ("FOREBAY_ABRITER", "FOREBAY_ARBITER"),
            ("FOREBAY_ARBITERS", "FOREBAY_ARBITER"),
            ("FORBAY_ARBITER", "FOREBAY_ARBITER"),
            ("forebay_log", "FOREBAY_LOG"),
            ("FOREBAY_LGO", "FOREBAY_LOG"),
            ("FOREBAY_STREAM", "FOREBAY_STREAMS"),
        ] {
            assert_eq!(meant(name), Some(known), "{name}");
        }
        let tests =
            ["SEED", "SKIPS", "LIBRARY", "SCHEDULES", "KILLS", "MOVES", "OPERATIONS", "SCRAPE", "CASES"];
        let sites = ["ROOT", "HOME", "DIR", "BIN", "LIB", "VERSION", "PATH", "INC"];
        for word in tests.iter().chain(&sites) {
            assert_eq!(meant(&format!("FOREBAY_{word}")), None, "{word}");
        }
        let others = ["FOREBAY", "FOREBAY_", "FOR", "HOME", "", "FORTRAN_LOG", "FORCE_COLOR"];
        let all = others.iter().chain(&SETTINGS).chain(&HANDED_ON);
        all.for_each(|name| assert_eq!(meant(name), None, "{name}"));
    }

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
