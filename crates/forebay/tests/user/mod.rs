//! The built program as a user has it, for the tests of its rough edges.
#![allow(dead_code)] // each test file uses its part

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// No command of these tests may take longer: it is what "it ended" means on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);

/// `forebay ARGS`, which dies with the test.
pub(crate) fn forebay<S: AsRef<std::ffi::OsStr>>(args: &[S]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
    command.args(args).stdin(Stdio::null());
    for name in ["FOREBAY_ARBITER", "FOREBAY_SECRET_FILE", "FOREBAY_CONFIG", "FOREBAY_LOG"] {
        command.env_remove(name);
    }
    // SAFETY: prctl is async-signal-safe.
    unsafe {
        std::os::unix::process::CommandExt::pre_exec(&mut command, || {
            rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))
                .map_err(Into::into)
        });
    }
    heeding(&mut command);
    command
}

/// However the tests were started (`nohup`, in the background), what they start heeds the signals that end it.
pub(crate) fn heeding(command: &mut Command) {
    // SAFETY: signal(2) is async-signal-safe.
    unsafe {
        std::os::unix::process::CommandExt::pre_exec(command, || {
            for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT] {
                libc::signal(signal, libc::SIG_DFL);
            }
            Ok(())
        });
    }
}

/// Exit status, standard output, standard error.
pub(crate) fn outcome(output: &Output) -> (Option<i32>, String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

/// Runs `forebay ARGS` to its end.
pub(crate) fn run<S: AsRef<std::ffi::OsStr>>(args: &[S]) -> (Option<i32>, String, String) {
    outcome(&forebay(args).output().expect("forebay starts"))
}

/// Asserts that `forebay ARGS` is refused with `status`, and that what it says has all of `words`.
pub(crate) fn refused<S: AsRef<std::ffi::OsStr> + std::fmt::Debug>(args: &[S], status: i32, words: &[&str]) {
    let (code, _, says) = run(args);
    assert_eq!(code, Some(status), "{args:?}: {says}");
    for word in words {
        assert!(says.contains(word), "{args:?} does not say {word:?}: {says}");
    }
}

/// The child's exit status; if it does not end, the child is killed and the test fails.
pub(crate) fn ended(mut child: Child) -> std::process::ExitStatus {
    let since = Instant::now();
    loop {
        if let Some(status) = child.try_wait().expect("a child of ours") {
            return status;
        }
        if since.elapsed() > LIMIT {
            let _ = child.kill();
            let _ = child.wait();
            panic!("it did not end");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Sends a signal and waits for the end: how the child ended, and how long it took.
pub(crate) fn asked_to_end(
    child: Child,
    how: rustix::process::Signal,
) -> (std::process::ExitStatus, Duration) {
    let since = Instant::now();
    signal(&child, how);
    (ended(child), since.elapsed())
}

/// Waits until something is true.
pub(crate) fn until(what: &str, mut true_now: impl FnMut() -> bool) {
    let since = Instant::now();
    while !true_now() {
        assert!(since.elapsed() < LIMIT, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Sends a signal.
pub(crate) fn signal(child: &Child, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(child.id() as i32).expect("a process id");
    rustix::process::kill_process(pid, signal).expect("our own child takes signals");
}

/// The directories that runs of process `pid` have.
pub(crate) fn run_directories(pid: u32) -> Vec<PathBuf> {
    let prefix = format!("forebay-{pid}-");
    let all = std::fs::read_dir(std::env::temp_dir()).expect("the directory for temporary files");
    all.flatten().filter(|e| e.file_name().to_string_lossy().starts_with(&prefix)).map(|e| e.path()).collect()
}

/// A file of the repository.
pub(crate) fn repository(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name).display().to_string()
}

/// A file with a secret below `dir`.
pub(crate) fn secret(dir: &Path) -> String {
    let file = dir.join("secret");
    forebay_types::Secret::random().and_then(|s| s.write(&file)).expect("a secret");
    file.display().to_string()
}
