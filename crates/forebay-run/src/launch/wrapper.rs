//! Commands that become another one which they name: `env A=1 nice ./app` is `./app`. A shell's script is not
//! looked into.

use std::ffi::OsString;

/// How one is written before the command that it becomes.
struct Wrapper {
    name: &'static str,
    /// The word that must come next.
    verb: Option<&'static str>,
    /// Its options that have a value in a word of its own: letters, and long ones.
    letters: &'static str,
    long: &'static [&'static str],
    /// So many words of its own come after its options.
    words: usize,
    /// `NAME=VALUE` may come before the command.
    assigns: bool,
}

const fn wrapper(name: &'static str, letters: &'static str, long: &'static [&'static str]) -> Wrapper {
    Wrapper { name, verb: None, letters, long, words: 0, assigns: false }
}

const WRAPPERS: &[Wrapper] = &[
    Wrapper { assigns: true, ..wrapper("env", "uC", &["unset", "chdir"]) },
    Wrapper { words: 1, ..wrapper("timeout", "ks", &["kill-after", "signal"]) },
    Wrapper { words: 1, ..wrapper("taskset", "", &[]) },
    wrapper("nice", "n", &["adjustment"]),
    wrapper("nohup", "", &[]),
    wrapper("setsid", "", &[]),
    wrapper("stdbuf", "ioe", &["input", "output", "error"]),
    wrapper("ionice", "cn", &["class", "classdata"]),
    wrapper("numactl", "iwmpCN", &["interleave", "membind", "preferred", "cpunodebind", "physcpubind"]),
    wrapper("time", "fo", &["format", "output"]),
    Wrapper { verb: Some("join"), ..wrapper("forebay", "", &["secret-file"]) },
];

/// How many wrappers within each other are looked through.
const DEEPEST: usize = 8;

/// Where in `command` the program stands that runs in the end. What is not understood is taken for the program.
pub(super) fn behind(command: &[OsString]) -> usize {
    wrapped(command).last().map_or(0, |(_, end)| end)
}

/// Where the launcher stands, if it is one: a rank (`forebay join`) starts none.
pub(super) fn before(command: &[OsString]) -> usize {
    wrapped(command).take_while(|(wrapper, _)| wrapper.verb.is_none()).last().map_or(0, |(_, end)| end)
}

/// Where the command stands that `forebay join` runs; 0 if that is not among what the program is wrapped in.
pub(super) fn behind_join(command: &[OsString]) -> usize {
    wrapped(command).find(|(wrapper, _)| wrapper.verb.is_some()).map_or(0, |(_, end)| end)
}

/// The wrappers that a command begins with, and where each ends.
fn wrapped(command: &[OsString]) -> impl Iterator<Item = (&'static Wrapper, usize)> {
    let mut at = 0;
    let next = move || {
        let (wrapper, words) = skip(command.get(at..)?)?;
        at += words;
        Some((wrapper, at))
    };
    std::iter::from_fn(next).take(DEEPEST)
}

/// The wrapper that `command` begins with, and how many words it has.
fn skip(command: &[OsString]) -> Option<(&'static Wrapper, usize)> {
    let name = crate::name(command);
    let word = |at: usize| command.get(at).and_then(|w| w.to_str());
    let wrapper = WRAPPERS.iter().find(|w| w.name == name && w.verb.is_none_or(|v| word(1) == Some(v)))?;
    let mut at = 1 + usize::from(wrapper.verb.is_some());
    while let Some(option) = word(at)?.strip_prefix('-').filter(|o| !o.is_empty()) {
        at += match option.strip_prefix('-') {
            Some("") => {
                at += 1;
                break;
            }
            // One string that is several words.
            Some(long) if long.starts_with("split-string") => return None,
            Some(long) if wrapper.long.contains(&long) => 2,
            Some(_) => 1,
            None if wrapper.assigns && option.contains('S') => return None,
            None => {
                // The last letter of a word may have its value in the next.
                let valued = option.find(|c| wrapper.letters.contains(c));
                if valued == Some(option.len() - 1) { 2 } else { 1 }
            }
        };
    }
    at += wrapper.words;
    while wrapper.assigns && word(at)?.contains('=') {
        at += 1;
    }
    (at < command.len()).then_some((wrapper, at))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(line: &str) -> String {
        let command: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        let at = behind(&command);
        command[at..].iter().map(|w| w.to_string_lossy()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn what_runs_in_the_end() {
        for (line, program) in [
            ("./app -n 3", "./app -n 3"),
            ("env A=1 B=2 ./app C=3", "./app C=3"),
            ("/usr/bin/env -i -u HOME --chdir /tmp A=1 ./app", "./app"),
            ("env -u HOME -- A=1 ./app", "./app"),
            ("nice -n 5 ./app", "./app"),
            ("nice -n5 timeout -k 5 10 env A= ./app x", "./app x"),
            ("timeout --signal=TERM 10 ./app", "./app"),
            ("numactl --cpunodebind=0 -m 0 ./app", "./app"),
            ("taskset -c 0-3 ./app", "./app"),
            ("env A=1 /opt/forebay join --secret-file /s -- nice ./app --x", "./app --x"),
            ("forebay join --secret-file=/s ./app", "./app"),
            ("forebay bench path", "forebay bench path"),
            // Not to be known, or nothing there.
            ("sh -c ./app", "sh -c ./app"),
            ("env -S ./app", "env -S ./app"),
            ("env A=1", "env A=1"),
            ("env", "env"),
            ("timeout 10", "timeout 10"),
            ("nice -n", "nice -n"),
        ] {
            assert_eq!(runs(line), program, "{line}");
        }
    }

    #[test]
    fn what_joins_a_job() {
        for (line, end) in
            [("env A=1 forebay join --secret-file s -- nice ./app", 7), ("nice ./app", 0), ("env", 0)]
        {
            let command: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            assert_eq!(behind_join(&command), end, "{line}");
        }
    }
}
