//! Commands that start processes on other hosts and are no launchers of parallel programs: `ssh`, GNU parallel and the
//! like. They pass no variables on by themselves, and nobody counts what they start.

use super::wrapper;
use std::ffi::OsString;

/// By which program, if the command is one that starts something on other hosts.
pub(crate) fn elsewhere(command: &[OsString]) -> Option<&'static str> {
    let command = command.get(wrapper::behind(command)..)?;
    let name = crate::name(command);
    match name.as_str() {
        "ssh" => Some("ssh"),
        "pdsh" => Some("pdsh"),
        "clush" => Some("clush"),
        "parallel" if command.iter().any(remote) => Some("parallel"),
        _ => None,
    }
}

/// Options of GNU parallel that name other hosts.
fn remote(word: &OsString) -> bool {
    let word = word.to_string_lossy();
    let long = word.split('=').next().unwrap_or_default();
    word.starts_with("-S") || matches!(long, "--sshlogin" | "--sshloginfile" | "--slf")
}

/// The command, told to pass these on where it can be told.
pub(super) fn passing(command: &[OsString], variables: &[&str]) -> Vec<OsString> {
    let mut all = command.to_vec();
    if elsewhere(command) == Some("parallel") {
        let at = wrapper::behind(command) + 1;
        all.splice(at..at, variables.iter().flat_map(|v| ["--env".into(), OsString::from(v)]));
    }
    all
}

/// What a person should know if there is no directory that those hosts see.
pub(crate) fn unshared(tool: &str) -> String {
    format!(
        "what {tool} starts on other hosts is not forwarded: name a directory that they see with --share, and have \
         LD_PRELOAD and FOREBAY_CONFIG passed on (docs/CLUSTER.md)"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn who_goes_elsewhere_and_what_is_passed_on() {
        for (line, tool) in [
            ("parallel -j 2 echo ::: 1", None),
            ("parallel -S c1,c2 echo ::: 1", Some("parallel")),
            ("/usr/bin/parallel --sshlogin=c1 echo ::: 1", Some("parallel")),
            ("parallel --slf hosts echo ::: 1", Some("parallel")),
            ("ssh c1 ./app", Some("ssh")),
            ("timeout 9 ssh c1 ./app", Some("ssh")),
            ("./ssh-keygen", None),
        ] {
            assert_eq!(elsewhere(&words(line)), tool, "{line}");
        }
        let passed = passing(&words("nice parallel -S c1 echo"), &["A", "B"]);
        assert_eq!(passed, words("nice parallel --env A --env B -S c1 echo"));
        assert_eq!(passing(&words("parallel echo"), &["A"]), words("parallel echo"));
        assert_eq!(passing(&words("ssh c1 x"), &["A"]), words("ssh c1 x"));
    }
}
