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
    // A job that begins before there is an I/O node waits for one, and the decision is told as that node's: `has come` is its line.
    until(PATIENCE, "the node does not come", || site.nodes(arbiter.url()).filter(|n| n.len() == 1));
    let run = ["run", "--quiet", "--arbiter", arbiter.url(), "--job", "sums", "--at", "/seen=data"];
    let run = site.command(&[&run[..], &["--", "sh", "-c", "echo x > /seen/x"]].concat()).output().unwrap();
    assert!(run.status.success(), "{run:?}");
    let ends = || lines(&site.log("node0"), &["job sums has ended here"]).len();
    until(PATIENCE, "the node does not say that the job has ended", || (ends() == 1).then_some(()));
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

/// Also of a job that waits for the first I/O node.
#[test]
fn a_job_has_its_line_whenever_it_comes() {
    let site = Site::of_services();
    let arbiter = site.arbiter(&ArbiterSpec::default());
    let run = ["run", "--quiet", "--arbiter", arbiter.url(), "--job", "early", "--at", "/seen=data", "true"];
    let mut run = site.command(&run).spawn().unwrap();
    let come = || lines(&site.log("arbiter"), &["INFO", "job early has come"]).len();
    until(PATIENCE, "the arbiter does not say that the job has come", || (come() == 1).then_some(()));
    let _node = site.node(0, arbiter.url());
    assert!(run.wait().unwrap().success());
    until(PATIENCE, "its end is not told", || {
        Some(()).filter(|()| lines(&site.log("arbiter"), &["INFO", "job early has ended"]).len() == 1)
    });
    assert_eq!(come(), 1, "{}", site.log("arbiter"));
}

/// Runs of one name are told apart: each begins and ends once, with what was done for it.
#[test]
fn each_run_of_a_job_begins_and_ends_once() {
    let site = Site::of_services();
    let arbiter = site.arbiter(&ArbiterSpec::default());
    let mut node = site.node(0, arbiter.url());
    let run = ["run", "--quiet", "--arbiter", arbiter.url(), "--job", "sums", "--at", "/seen=data"];
    let run = [&run[..], &["--", "sh", "-c", "echo 123456789 > /seen/x"]].concat();
    for times in 1..=2 {
        assert!(site.command(&run).status().unwrap().success());
        let ends = || lines(&site.log("node0"), &["job sums has ended here"]).len();
        until(PATIENCE, "the node does not say that the job has ended", || (ends() == times).then_some(()));
    }
    // And one that is refused, whose client may come back for a while.
    let refused =
        ["run", "--quiet", "--arbiter", arbiter.url(), "--job", "no", "--at", "/seen=nothing", "true"];
    assert_eq!(site.command(&refused).status().unwrap().code(), Some(125));
    node.process.end(PATIENCE);
    let log = site.log("node0");
    for (job, times) in [("sums", 2), ("no", 1)] {
        let begins = lines(&log, &[&format!("job {job} begins here")]).len();
        let ends = lines(&log, &[&format!("job {job} has ended here")]);
        assert_eq!((begins, ends.len()), (times, times), "{log}");
        assert!(job == "no" || ends.iter().all(|l| l.ends_with(" 10 bytes")), "{log}");
    }
}

/// At `debug` an admin sees who comes, who is refused and why, and what the arbiter is asked.
#[test]
fn more_is_told_at_debug() {
    let site = Site::of_services();
    let dir = tempfile::tempdir().unwrap();
    let other = secret(dir.path());
    let log = |args: &[&str], meanwhile: &dyn Fn(&str)| {
        let ready = dir.path().join("ready");
        let mut command = forebay(args);
        command.arg("--ready-file").arg(&ready).env("FOREBAY_LOG", "debug");
        let child = command.stderr(std::process::Stdio::piped()).spawn().unwrap();
        user::until("the node listens", || ready.exists());
        let said: serde_json::Value = serde_json::from_slice(&std::fs::read(&ready).unwrap()).unwrap();
        meanwhile(said["addresses"][0].as_str().unwrap());
        user::signal(&child, rustix::process::Signal::TERM);
        outcome(&child.wait_with_output().unwrap()).2
    };
    let (own, at) = (site.secret_file().display().to_string(), site.data().display().to_string());
    let node =
        ["node", "--as", "self", "--listen", "tcp:127.0.0.1:0", "--export", &at, "--secret-file", &own];
    let said = log(&node, &|address| {
        assert_eq!(user::run(&["node", "stats", address, "--secret-file", &own]).0, Some(0));
        assert_eq!(user::run(&["node", "stats", address, "--secret-file", &other]).0, Some(1));
    });
    for words in ["a session begins: job forebay-control", "a connection ends: job forebay-control"] {
        assert_eq!(lines(&said, &["DEBUG", words]).len(), 1, "{words}: {said}");
    }
    assert!(lines(&said, &["job", "begins here"]).is_empty(), "whoever controls a node is no job: {said}");
    assert!(
        !lines(&said, &["DEBUG", "handshake refused: job \"forebay-control\"", "secret"]).is_empty(),
        "{said}"
    );
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
    // Also of a pool whose size is none of the curves' points.
    for io_nodes in ["3", "5", "7"] {
        assert_eq!(user::run(&["simulate", "queue", "--io-nodes", io_nodes]).0, Some(0), "{io_nodes}");
    }
    assert!(said.contains("no upper bound") && said.contains("MCKP can\nbe above it"), "{said}");
}
