//! A write that was acknowledged and fails later is told by whoever shares the open file to each who does, and is in the
//! report, whatever becomes of them.

use std::process::Command;

/// What every script begins with. The I/O node may write 8 MiB to a file and not more, the program may.
const BEGIN: &str = r#"
import errno, os, resource, subprocess, sys
os.chdir(os.environ["D"])
MOST, refused = 8 << 20, 0
for process in filter(str.isdigit, os.listdir("/proc")):
    try: words = open(f"/proc/{process}/cmdline").read().split("\0")
    except OSError: continue
    if words[1:2] == ["node"] and any(os.environ["D"] in word for word in words):
        resource.prlimit(int(process), resource.RLIMIT_FSIZE, (MOST, resource.RLIM_INFINITY))
def told(call, *arguments):
    try: call(*arguments)
    except OSError as e:
        assert e.errno == errno.EFBIG, e
        return True
    return False
# A file whose last write is acknowledged and fails when it is to be in the file.
def late():
    global refused
    for k in range(20):
        fd, done = os.open("file", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644), 0
        while done < MOST: done += os.write(fd, b"x" * 4096)
        if not told(os.write, fd, b"x" * 4096): return fd
        refused += 1
        told(os.close, fd)
    assert False, "no write is acknowledged"
"#;

/// Runs such a script: what it printed, and what the report has of an operation that failed, and how often. Nothing where
/// there is no Python.
fn run(test: &str, via: &str, script: &str, operation: &str) -> Option<(u64, u64)> {
    if Command::new("python3").arg("--version").output().is_err() {
        forebay_testkit::skipped(test, "no python3");
        return None;
    }
    let home = tempfile::tempdir().unwrap();
    let (export, report) = (home.path().join("E"), home.path().join("report.json"));
    std::fs::create_dir(&export).unwrap();
    let out = Command::new("timeout")
        .args(["-k", "5", "300", env!("CARGO_BIN_EXE_forebay"), "run", "--via", via, "--report"])
        .arg(&report)
        .arg("--at")
        .arg(&export)
        .args(["--", "python3", "-c", &format!("{BEGIN}{script}")])
        .env("D", &export)
        .env("TMPDIR", home.path())
        .output()
        .unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let printed = String::from_utf8_lossy(&out.stdout).trim().parse().unwrap();
    let report: serde_json::Value = serde_json::from_slice(&std::fs::read(report).unwrap()).unwrap();
    let all = report["operations"].as_array().unwrap();
    let of = all.iter().find(|o| o["name"] == operation).unwrap();
    assert!(of["errors"].as_u64() <= of["count"].as_u64(), "{of}");
    Some((printed, of["errors"].as_u64().unwrap()))
}

/// Whoever comes first: the other one is told, too, by whatever it does, each once.
#[test]
fn a_parent_and_its_child_are_told() {
    let script = r#"
for first in "parent", "child":
    for call in (lambda fd: os.fsync(fd)), (lambda fd: os.pwrite(fd, b"y", 0)), (lambda fd: os.close(fd)):
        fd, (go, gone), (back, there) = late(), os.pipe(), os.pipe()
        def be(who):
            if who != first: os.read(go if who == "child" else back, 1)
            assert told(call, fd), (who, first, "was not told")
            if who == first: os.write(gone if who == "parent" else there, b"x")
            try: os.fsync(fd)
            except OSError as e: assert e.errno == errno.EBADF, (who, first, e)
        child = os.fork()
        if child == 0:
            be("child")
            os._exit(0)
        be("parent")
        assert os.waitpid(child, 0)[1] == 0, (first, "the child was not told")
        for end in go, gone, back, there: os.close(end)
        try: os.close(fd)
        except OSError as e: assert e.errno == errno.EBADF
print(refused)
"#;
    run("a_parent_and_its_child_are_told", "preload", script, "write");
}

/// A program that comes by `exec` is told what the process was not that became it; what that was told, it is not.
#[test]
fn a_program_is_told() {
    let script = r#"
check = "import os, sys\nfd, told = int(sys.argv[1]), []\nfor i in 1, 2:\n  try: os.fsync(fd)\n  except OSError as e: told.append(e.errno)\nsys.exit(len(told))"
def become(fd): os.execvp("python3", ["python3", "-c", check, str(fd)])
for parent_first in True, False:
    fd, (go, gone) = late(), os.pipe()
    os.set_inheritable(fd, True)
    child = os.fork()
    if child == 0:
        os.read(go, 1)
        become(fd)
    if parent_first: assert told(os.fsync, fd)
    os.write(gone, b"x")
    assert os.waitpid(child, 0)[1] >> 8 == 1, (parent_first, "the program is to be told once")
    assert told(os.fsync, fd) != parent_first
    # It begins when all have been told.
    assert subprocess.run(["python3", "-c", check, str(fd)], close_fds=False).returncode == 0
    os.close(fd)
# Of a file that the next program does not have nobody is told in its place.
fd = late()
child = os.fork()
if child == 0: os.execvp("true", ["true"])
assert os.waitpid(child, 0)[1] == 0
assert told(os.close, fd)
print(refused)
"#;
    run("a_program_is_told", "preload", script, "write");
}

/// If nobody makes a further call, the report says it.
#[test]
fn what_nobody_was_told_is_in_the_report() {
    let script = r#"
fd = late()
print(refused, flush=True)
os.fork()
os._exit(0)
"#;
    let Some((refused, failed)) = run("what_nobody_was_told_is_in_the_report", "preload", script, "write")
    else {
        return;
    };
    assert!(failed > refused, "{failed} failed writes, of which {refused} were told");
}

/// A close that was told an error has failed, by whatever way.
#[test]
fn a_close_that_is_refused_is_counted() {
    let script = r#"
n = 0
for i in range(20):
    fd = os.open("made%d" % i, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    if not told(os.pwrite, fd, b"beyond", MOST): n += told(os.close, fd)
    else: os.close(fd)
assert n > 5, n
print(n)
"#;
    for via in ["preload", "mount"] {
        if via == "mount" && !std::path::Path::new("/dev/fuse").exists() {
            return forebay_testkit::skipped("a_close_that_is_refused_is_counted", "there is no /dev/fuse");
        }
        let Some((told, failed)) = run("a_close_that_is_refused_is_counted", via, script, "close") else {
            return;
        };
        assert_eq!(failed, told, "{via}");
    }
}
