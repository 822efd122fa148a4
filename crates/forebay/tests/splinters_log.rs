//! What an admin greps for: logs in files are plain text, tell when a job begins and ends and when a node is in
//! use again, and have the level that was asked for.

mod user;

use forebay_testkit::{ArbiterSpec, Site, until};
use std::time::Duration;
use user::{forebay, outcome, secret};

const PATIENCE: Duration = Duration::from_secs(60);

/// The lines of a log that have all of these words.
fn lines<'l>(log: &'l str, words: &[&str]) -> Vec<&'l str> {
    log.lines().filter(|l| words.iter().all(|w| l.contains(w))).collect()
}

#[test]
fn a_log_in_a_file_is_plain_and_tells_of_jobs() {
    let site = Site::of_services();
    let arbiter = site.arbiter(&ArbiterSpec::default());
    let _node = site.node(0, arbiter.url());
    let run = ["run", "--quiet", "--arbiter", arbiter.url(), "--job", "sums", "--at", "/seen=data"];
    let run = site.command(&[&run[..], &["--", "sh", "-c", "echo x > /seen/x"]].concat()).output().unwrap();
    assert!(run.status.success(), "{run:?}");
    until(PATIENCE, "the node does not say that the job has ended", || {
        (!lines(&site.log("node0"), &["job sums has ended here"]).is_empty()).then_some(())
    });
    let (node, arbiter) = (site.log("node0"), site.log("arbiter"));
    for (log, begin, end) in [
        (&node, "job sums begins here", "job sums has ended here"),
        (&arbiter, "job sums begins", "job sums has ended"),
    ] {
        let (begin, end) = (lines(log, &["INFO", begin]), lines(log, &["INFO", end]));
        assert_eq!((begin.len(), end.len()), (1, 1), "{log}");
        assert!(!log.contains('\u{1b}'), "colours in a file: {log:?}");
    }
}

/// A node that is gone is a warning; that it is in use again is none.
#[test]
fn that_a_node_is_back_is_no_warning() {
    let site = Site::of_services();
    let settings = "node-grace-ms = 1000\n".to_owned();
    let arbiter = site.arbiter(&ArbiterSpec { settings, ..ArbiterSpec::default() });
    let node = site.node(0, arbiter.url());
    until(PATIENCE, "the node does not come", || site.nodes(arbiter.url()).filter(|n| n.len() == 1));
    node.process.freeze().unwrap();
    let lost = || !lines(&site.log("arbiter"), &["WARN", "I/O node 0 is lost"]).is_empty();
    until(PATIENCE, "nobody misses the node", || lost().then_some(()));
    node.process.thaw().unwrap();
    let back = until(PATIENCE, "the node does not come back", || {
        let log = site.log("arbiter");
        let back =
            ["healthy", "suspect"].map(|state| lines(&log, &[&format!("I/O node 0 is {state}")]).concat());
        Some(back.concat()).filter(|b| !b.is_empty())
    });
    assert!(back.contains("INFO") && !back.contains("WARN"), "{back}");
}

/// By hand: this is about what the command itself does with the variable.
#[test]
fn a_level_that_is_none_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (at, secret) = (dir.path().display().to_string(), secret(dir.path()));
    let node =
        ["node", "--as", "self", "--listen", "tcp:127.0.0.1:0", "--export", &at, "--secret-file", &secret];
    let arbiter = ["arbiter", "--listen", "127.0.0.1:0", "--state", &at, "--secret-file", &secret];
    for command in [&node[..], &arbiter[..]] {
        for wrong in ["infoo", "loud", "info,loud", "forebay_node=loud", "=info", "info,,warn"] {
            let output = forebay(command).env("FOREBAY_LOG", wrong).output().unwrap();
            let (status, _, says) = outcome(&output);
            assert_eq!(status, Some(1), "{wrong}: {says}");
            assert!(
                says.contains(&format!("FOREBAY_LOG={wrong}")) && says.contains("debug or trace"),
                "{says}"
            );
            assert_eq!(says.lines().count(), 1, "{says}");
        }
    }
}

/// And one that there is changes something.
#[test]
fn a_level_is_heeded() {
    let dir = tempfile::tempdir().unwrap();
    let (at, secret) = (dir.path().display().to_string(), secret(dir.path()));
    for (level, listens, drains) in
        [("", true, true), ("info", true, true), ("warn", false, false), ("forebay_node=info", true, true)]
    {
        let ready = dir.path().join(format!("ready-{level}"));
        let node = [
            "node",
            "--as",
            "self",
            "--listen",
            "tcp:127.0.0.1:0",
            "--export",
            &at,
            "--secret-file",
            &secret,
        ];
        let mut command = forebay(&node);
        command.arg("--ready-file").arg(&ready).env("FOREBAY_LOG", level);
        let child = command.stderr(std::process::Stdio::piped()).spawn().unwrap();
        user::until("the node listens", || ready.exists());
        user::signal(&child, rustix::process::Signal::TERM);
        let (status, _, says) = outcome(&child.wait_with_output().unwrap());
        assert_eq!(status, Some(0), "{says}");
        let said = |words: &str| says.contains(words);
        assert_eq!(
            (said("node 0 listens on"), said("node 0 has drained")),
            (listens, drains),
            "{level}: {says}"
        );
    }
}

/// Below MCKP, though its name promises more: the table says why.
#[test]
fn the_oracle_below_mckp_is_explained() {
    let output = forebay(&["simulate", "queue"]).output().unwrap();
    let (status, said, says) = outcome(&output);
    assert_eq!(status, Some(0), "{says}");
    assert!(
        said.contains("ORACLE gives every job the number of I/O nodes that is best for it alone"),
        "{said}"
    );
    assert!(said.contains("no upper bound") && said.contains("MCKP can\nbe above it"), "{said}");
}
