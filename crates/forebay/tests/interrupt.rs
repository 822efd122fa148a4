//! Commands of the laboratory that are interrupted in the middle end at once, and leave neither
//! processes nor directories behind.

mod user;

use forebay_testkit::{Process, Signal, ends_within_a_second, until};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// What is waited for comes much sooner, but for a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);
/// Marks the processes of one test.
const MARK: &str = "FOREBAY_TEST_MARK";

/// Processes that carry the mark, whoever started them.
fn marked(mark: &str) -> Vec<u32> {
    let wanted = format!("{MARK}={mark}");
    let pids = std::fs::read_dir("/proc").expect("/proc").flatten();
    pids.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
        .filter(|pid| {
            let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            environment.split(|b| *b == 0).any(|v| v == wanted.as_bytes())
        })
        .collect()
}

/// Directories that the process `pid` made below `bases`.
fn made_by(pid: u32, bases: &[PathBuf]) -> Vec<PathBuf> {
    let entries = bases.iter().filter_map(|b| std::fs::read_dir(b).ok()).flatten().flatten();
    let name = format!("forebay-{pid}-");
    entries.filter(|e| e.file_name().to_string_lossy().starts_with(&name)).map(|e| e.path()).collect()
}

/// A command that has `processes` of its own ends within a second of `signal`.
fn interrupt(args: &[&str], processes: usize, signal: Signal) {
    ends_within_a_second(&format!("{args:?}"), || interrupt_once(args, processes, signal));
}

/// Starts a command, waits until it has `processes` of its own, sends it `signal`, and looks around. How long it
/// took to end.
fn interrupt_once(args: &[&str], processes: usize, signal: Signal) -> Duration {
    let home = tempfile::tempdir().expect("a directory");
    let mark = format!("{}-{}", args.join("-"), std::process::id());
    let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
    command.args(args).current_dir(home.path()).env(MARK, &mark).env("TMPDIR", home.path());
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    user::heeding(&mut command);
    let mut child = Process::start(&mut command).expect("forebay starts");
    let bases = [home.path().to_owned(), PathBuf::from("/dev/shm")];
    until(PATIENCE * 2, &format!("{args:?} does not get going"), || {
        assert!(child.try_wait().expect("a child of ours").is_none(), "{args:?} ended by itself");
        let going = marked(&mark).len() > processes && !made_by(child.id(), &bases).is_empty();
        going.then_some(())
    });
    let since = Instant::now();
    child.signal(signal).expect("it runs");
    let status = child.wait_for(PATIENCE).expect("a child of ours");
    let took = since.elapsed();
    assert_eq!(status.and_then(|s| s.code()), Some(128 + signal.as_raw()), "{args:?}: {status:?}");
    until(PATIENCE, &format!("{args:?} leaves processes behind"), || marked(&mark).is_empty().then_some(()));
    assert_eq!(made_by(child.id(), &bases), Vec::<PathBuf>::new(), "{args:?}");
    let left = |dir: &Path| std::fs::read_dir(dir).expect("a directory").flatten().count();
    assert_eq!(left(home.path()), 0, "{args:?}");
    took
}

#[test]
fn experiments_with_nodes() {
    interrupt(&["experiment", "twins"], 4, Signal::INT);
}

#[test]
fn experiments_with_an_arbiter_and_workers() {
    interrupt(&["experiment", "remap"], 13, Signal::TERM);
}

#[test]
fn experiments_with_jobs() {
    interrupt(&["experiment", "arbiter"], 6, Signal::INT);
}

#[test]
fn benches() {
    interrupt(&["bench", "path"], 3, Signal::TERM);
}

#[test]
fn benches_with_runs_and_their_mounts() {
    interrupt(&["bench", "path", "--front-ends"], 3, Signal::TERM);
    interrupt(&["bench", "path", "--front-ends", "--only", "start-up"], 2, Signal::INT);
}

#[test]
fn benches_with_shells() {
    interrupt(&["bench", "everyday", "--quick"], 2, Signal::TERM);
}

#[test]
fn torture() {
    interrupt(&["torture"], 24, Signal::TERM);
}

#[test]
fn training() {
    interrupt(&["train", "--small", "--at", "."], 3, Signal::INT);
}

#[test]
fn profiles() {
    interrupt(&["profile", "."], 0, Signal::HUP);
    interrupt(&["profile", "."], 0, Signal::QUIT);
}

/// The signals of `kind` (`SigIgn`, `SigCgt`) of a process, by number.
fn signals(pid: u32, kind: &str) -> Vec<i32> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix(kind)?.strip_prefix(':'));
    let set = line.and_then(|l| u64::from_str_radix(l.trim(), 16).ok()).unwrap_or(0);
    (1..=64).filter(|n| set >> (n - 1) & 1 == 1).collect()
}

/// What whoever starts a command has it ignore, as `nohup` does, it goes on ignoring.
#[test]
fn what_is_ignored_stays_so() {
    let ignored = [Signal::HUP, Signal::INT];
    // Who listens and does not answer.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", silent.local_addr().expect("an address"));
    for args in [
        &["profile", "."][..],
        &["bench", "sched"],
        &["experiment", "twins"],
        &["train", "--small", "--at", "."],
        &["explore", "scenario.toml", "--io-nodes", "1", "--repeat", "1"],
        &["top", "--lines", "--arbiter", &url],
    ] {
        let home = tempfile::tempdir().expect("a directory");
        let thinks = "phase = [{ operation = \"think\", think = \"600 s\" }]\n";
        std::fs::write(home.path().join("scenario.toml"), thinks).expect("a file");
        let mut command = Command::new("sh");
        command.args(["-c", "trap '' HUP INT; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_forebay")]).args(args);
        command.current_dir(home.path()).env("TMPDIR", home.path());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = Process::start(&mut command).expect("a shell starts");
        until(PATIENCE, &format!("{args:?} watches for no signal"), || {
            signals(child.id(), "SigCgt").contains(&Signal::TERM.as_raw()).then_some(())
        });
        let still = signals(child.id(), "SigIgn");
        assert!(ignored.iter().all(|s| still.contains(&s.as_raw())), "{args:?} ignores {still:?} only");
        ignored.iter().for_each(|s| child.signal(*s).expect("it runs"));
        child.signal(Signal::TERM).expect("it runs");
        let status = child.wait_for(PATIENCE).expect("a child of ours").and_then(|s| s.code());
        assert!(matches!(status, Some(143 | 0)), "{args:?}: {status:?}");
    }
}

/// A shell's background jobs do not end by an interrupt that is meant for others, daemons neither.
#[test]
fn daemons_in_the_background_are_not_interrupted() {
    for args in [
        &["node", "--export", "data", "--as", "self", "--listen", "tcp:127.0.0.1:0"][..],
        &["arbiter", "--listen", "127.0.0.1:0"],
    ] {
        let home = tempfile::tempdir().expect("a directory");
        std::fs::create_dir(home.path().join("data")).expect("a directory");
        let mut command = Command::new("sh");
        let script = "umask 077; printf %064d 7 > secret; trap '' INT; exec \"$@\" --secret-file secret";
        command.args(["-c", script, "sh", env!("CARGO_BIN_EXE_forebay")]).args(args);
        command.current_dir(home.path()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = Process::start(&mut command).expect("a shell starts");
        until(PATIENCE, &format!("{args:?} watches for no signal"), || {
            assert!(child.try_wait().expect("a child of ours").is_none(), "{args:?} ended by itself");
            let watched = ["SigCgt", "SigBlk"].map(|kind| signals(child.id(), kind));
            watched.iter().flatten().any(|s| *s == Signal::TERM.as_raw()).then_some(())
        });
        child.signal(Signal::INT).expect("it runs");
        let early = child.wait_for(Duration::from_millis(300)).expect("a child of ours");
        assert!(early.is_none(), "{args:?}: {early:?}");
        child.signal(Signal::TERM).expect("it runs");
        let status = child.wait_for(PATIENCE).expect("a child of ours").and_then(|s| s.code());
        assert_eq!(status, Some(0), "{args:?}");
    }
}
