//! What is misspelt, or has a name that cannot be used: what is meant is named, and what is said says which.

mod user;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Command, Stdio};
use user::{forebay, outcome, refused, run, secret, signal, until};

fn text(path: &Path) -> String {
    path.display().to_string()
}

#[test]
fn a_slip_is_answered_with_what_is_meant_and_not_with_what_is_hidden() {
    let (status, _, says) = run(&["rn"]);
    assert_eq!(status, Some(2));
    assert!(says.contains("'run'") && !says.contains("run-rest"), "{says}");
    for slip in [&["mount-insid"][..], &["torture-workr"], &["reproduce", "--brek", "x"]] {
        let (status, _, says) = run(slip);
        let hidden = ["'mount-inside'", "'torture-worker'", "'--break'"];
        assert!(status == Some(2) && !hidden.iter().any(|h| says.contains(h)), "{slip:?}: {says}");
    }
}

/// Once, and not by the I/O nodes again; a site's own variables are its own.
#[test]
fn a_variable_that_nobody_reads_is_told_of_if_another_is_meant() {
    let dir = tempfile::tempdir().unwrap();
    let run = ["run", "--quiet", "--io-nodes", "2", "--at", &text(dir.path()), "--", "true"];
    let with = |name: &str| {
        let (status, _, says) = outcome(&forebay(&run).env(name, "x").output().unwrap());
        assert_eq!(status, Some(0), "{says}");
        says
    };
    let slip = "forebay: warning: nothing reads FOREBAY_SECRETFILE: is FOREBAY_SECRET_FILE meant?\n";
    assert_eq!(with("FOREBAY_SECRETFILE"), slip);
    assert_eq!((with("FOREBAY_ROOT"), with("FOREBAY_MUNGE_SOCKET")), (String::new(), String::new()));
}

#[test]
fn a_path_that_no_socket_can_have_is_refused_or_not_used() {
    let dir = tempfile::tempdir().unwrap();
    let secret = secret(dir.path());
    let long = dir.path().join("n".repeat(120));
    std::fs::create_dir(&long).unwrap();
    let listen = format!("unix:{}/socket", text(&long));
    let why = ["at most 107 bytes", "take a shorter one"];
    refused(&["node", "--listen", &listen, "--secret-file", &secret, "--export", "/tmp"], 2, &why);
    refused(&["node", "stats", &listen, "--secret-file", &secret], 2, &why);
    // A run has its sockets elsewhere then.
    let (at, file) = (dir.path().join("at"), dir.path().join("at/file"));
    std::fs::create_dir(&at).unwrap();
    let script = format!("echo x > {}", text(&file));
    for via in ["preload", "mount"] {
        let args = ["run", "--quiet", "--via", via, "--at", &text(&at), "--", "sh", "-c", &script];
        let (status, _, says) = outcome(&forebay(&args).env("TMPDIR", &long).output().unwrap());
        let no_mount = via == "mount" && says.contains("/dev/fuse") || says.contains("namespace");
        assert!((status, says.as_str()) == (Some(0), "") || no_mount, "{via}: {status:?} {says}");
    }
    assert!(file.exists());
}

/// In one sentence, that says which.
#[test]
fn names_that_are_no_text_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let odd = dir.path().join(OsStr::from_bytes(b"b\xff"));
    std::fs::create_dir(&odd).unwrap();
    let at = text(dir.path());
    let refuses = |args: &[&OsStr], at: &Path, code: i32| {
        let (status, _, says) = outcome(&forebay(args).current_dir(at).output().unwrap());
        assert_eq!(status, Some(code), "{args:?}: {says}");
        let named = says.contains(r"b\xFF") && says.contains("UTF-8");
        assert!(named && says.lines().count() == 1 && says.starts_with("forebay: "), "{args:?}: {says}");
    };
    let word = OsStr::new;
    let run = [word("run"), word("--at")];
    let cmd = [word("--"), word("touch"), word(&at)];
    refuses(&[&run[..], &[odd.as_os_str()], &cmd].concat(), dir.path(), 125);
    refuses(&[&run[..], &[word(".")], &cmd].concat(), &odd, 125);
    let elsewhere = format!("x={at}");
    refuses(&[&run[..], &[word(&elsewhere)], &cmd].concat(), &odd, 125);
    refuses(&[word("mount"), word("--at"), odd.as_os_str()], dir.path(), 2);
    // The program and its files may be called as they like.
    let file = odd.join(OsStr::from_bytes(b"\xfe"));
    let touch = [&run[..], &[word(&at)], &[word("--"), word("touch"), file.as_os_str()]].concat();
    let (status, _, says) = outcome(&forebay(&touch).output().unwrap());
    assert!(status == Some(0) && file.exists(), "{says}");
}

/// Whoever is killed cannot tidy up; the next one does.
#[test]
fn what_a_killed_run_left_goes_with_the_next() {
    let dir = tempfile::tempdir().unwrap();
    let (temporary, at) = (dir.path().join("tmp"), dir.path().join("at"));
    std::fs::create_dir(&temporary).unwrap();
    std::fs::create_dir(&at).unwrap();
    // Not what somebody else has called so.
    let private = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    std::fs::create_dir(temporary.join("forebay-0-0")).unwrap();
    std::fs::set_permissions(temporary.join("forebay-0-0"), private).unwrap();
    let run = |cmd: &[&str]| {
        let mut command = forebay(&[&["run", "--quiet", "--at", &text(&at), "--"], cmd].concat());
        command.env("TMPDIR", &temporary);
        command
    };
    let there = || std::fs::read_dir(&temporary).unwrap().count();
    let started = text(&at.join("started"));
    let script = format!("touch {started}; exec cat");
    let mut killed = run(&["sh", "-c", &script]).stdin(Stdio::piped()).spawn().unwrap();
    until("its program runs", || Path::new(&started).exists());
    // One that runs is left alone.
    assert!(run(&["true"]).status().unwrap().success());
    assert_eq!(there(), 2);
    signal(&killed, rustix::process::Signal::KILL);
    // Its program goes by what is there until its input ends, which is now.
    killed.wait().unwrap();
    assert_eq!(there(), 2, "it could not tidy up");
    until("the next one tidies up", || {
        assert!(run(&["true"]).status().unwrap().success());
        there() == 1
    });
    assert!(temporary.join("forebay-0-0").exists());
}

/// Root of a user namespace alone may not mount for others, nor may anybody mount who cannot open /dev/fuse.
#[test]
fn doctor_does_not_promise_a_mount_that_would_fail() {
    use std::os::unix::process::CommandExt;
    let test = "doctor in a user namespace";
    if !forebay_testkit::needs(test, &["unshare"]) {
        return;
    }
    let program = env!("CARGO_BIN_EXE_forebay");
    let doctor = |mut by: Command| {
        let (status, said, says) = outcome(&by.output().unwrap());
        assert!(status.is_some_and(|s| s < 2), "{said}{says}");
        said
    };
    let mut inside = Command::new("unshare");
    inside.args(["-Ur", program, "doctor"]);
    if !Command::new("unshare").args(["-Ur", "true"]).status().unwrap().success() {
        return forebay_testkit::skipped(test, "user namespaces are switched off");
    }
    let said = doctor(inside);
    assert!(said.contains("no  mounting for all users: Operation not permitted"), "{said}");
    let open = |by: &mut Command| {
        by.args(["-c", ": <> /dev/fuse"]).stderr(Stdio::null()).status().unwrap().success()
    };
    // As nobody, who is not root.
    let user = |name: &str| {
        let mut by = Command::new(name);
        if rustix::process::geteuid().is_root() {
            by.uid(65_534).gid(65_534);
        }
        by
    };
    let mut doctor_of_user = user(program);
    doctor_of_user.arg("doctor");
    let said = doctor(doctor_of_user);
    let promised = said.contains("ok  fusermount3");
    assert!(!promised || open(&mut user("sh")), "{said}");
    assert!(said.contains("  fusermount3: "), "{said}");
}

/// As a shell, `env` and `timeout` have it.
#[test]
fn who_is_not_found_and_who_cannot_be_executed_are_told_apart() {
    let dir = tempfile::tempdir().unwrap();
    let (at, file) = (text(dir.path()), text(&dir.path().join("data")));
    std::fs::write(&file, "no program").unwrap();
    for (program, status, why) in [
        ("forebay-nowhere", 127, "No such file or directory"),
        (&file, 126, "Permission denied"),
        (&at, 126, "Permission denied"),
    ] {
        let cannot = format!("cannot run {program}: {why}");
        refused(&["run", "--via", "preload", "--at", &at, "--", program], status, &[&cannot]);
    }
}

/// Memory is no storage system, and figures of one are told as that.
#[test]
fn a_profile_of_memory_says_so() {
    let memory = Path::new("/dev/shm");
    let kind = rustix::fs::statfs(memory).map(|fs| fs.f_type as u32);
    if kind != Ok(0x0102_1994) {
        return forebay_testkit::skipped("profile of memory", "/dev/shm is none");
    }
    let (dir, out) = (tempfile::tempdir_in(memory).unwrap(), tempfile::tempdir().unwrap());
    let (status, said, says) = run(&["profile", "--quick", "--out", &text(out.path()), &text(dir.path())]);
    assert_eq!(status, Some(0), "{says}");
    let warned = format!("warning: {} is memory: ", text(dir.path()));
    assert!(said.lines().any(|l| l.starts_with(&warned)), "{said}");
    refused(&["profile", &text(&out.path().join("none"))], 2, &["none", "No such file"]);
}
