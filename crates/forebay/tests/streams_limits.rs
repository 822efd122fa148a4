//! Limits on files' sizes, and disks that are full, where small requests make no trip each: as they are without Forebay.

use std::path::Path;
use std::process::{Command, Output};

/// Runs this in a shell with one I/O node, which has its files in `export`, by the preload library or a mount; `before`
/// is done in the shell that starts it.
fn run(via: &str, before: &str, export: &Path, script: &str) -> Output {
    let forebay = env!("CARGO_BIN_EXE_forebay");
    let begin = format!("{before}exec timeout -k 5 120 \"$@\"");
    let mut command = Command::new("bash");
    command.args(["-c", &begin, "bash", forebay, "run", "--via", via, "--at"]).arg(export);
    command.args(["--", "bash", "-c", script]).env("D", export).output().unwrap()
}

fn say(out: &Output) -> String {
    format!(
        "{}\n{}{}",
        out.status,
        String::from_utf8_lossy(&out.stdout),
        String::from_utf8_lossy(&out.stderr)
    )
}

/// A program that may only make short files makes such: memory that is shared with the I/O node is a file, too.
#[test]
fn a_program_that_may_only_make_short_files_makes_them() {
    let small = r#"exec python3 -c '
import os, resource, signal
os.chdir(os.environ["D"])
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
fd = os.open("rows", os.O_RDWR | os.O_CREAT, 0o644)
for i in range(100): assert os.write(fd, b"%04d\n" % i) == 5
os.close(fd)
for i in range(20):
    fd = os.open("file%d" % i, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    assert os.write(fd, b"words") == 5
    os.close(fd)
for i in range(20): assert open("file%d" % i).read() == "words"
assert os.stat("rows").st_size == 500
'"#;
    let large = r#"ulimit -f 1024; exec dd if=/dev/zero of=$D/large bs=64K count=10 status=none"#;
    for (name, script) in [("small", small), ("large", large)] {
        let home = tempfile::tempdir().unwrap();
        let out = run("preload", "", home.path(), script);
        assert!(out.status.success(), "{name}: {}", say(&out));
    }
}

/// What somebody is limited to who starts `forebay run` is the program's limit, not an I/O node's; where that may not have
/// what it needs, this is what is said.
#[test]
fn an_io_node_may_make_longer_files_than_whoever_starts_it() {
    let home = tempfile::tempdir().unwrap();
    let write = "(head -c 5000000 /dev/zero > $D/f) 2> /dev/null; (exit $?) && exit 3; ulimit -S -f hard; head -c 5000000 /dev/zero > $D/f";
    let out = run("preload", "ulimit -S -f 4096; ", home.path(), write);
    assert!(out.status.success(), "{}", say(&out));
    assert_eq!(std::fs::metadata(home.path().join("f")).unwrap().len(), 5_000_000);
    let out = run("preload", "ulimit -f 4096; ", home.path(), "true");
    let said = say(&out);
    assert_eq!(out.status.code(), Some(125), "{said}");
    assert!(said.contains("files may have at most 4096 KiB here (ulimit -f)"), "{said}");
}

/// A file system in memory, as long as this.
struct Disk(tempfile::TempDir);

impl Disk {
    fn new(test: &str, size: &str) -> Option<Disk> {
        let disk = Disk(tempfile::tempdir().unwrap());
        let size = format!("size={size}");
        let made =
            Command::new("mount").args(["-t", "tmpfs", "-o", &size, "none"]).arg(disk.0.path()).output();
        match made {
            Ok(out) if out.status.success() => Some(disk),
            _ => {
                forebay_testkit::skipped(test, "nothing can be mounted here");
                None
            }
        }
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).output();
    }
}

/// A shell ends its redirections without a `close` that could say anything: it must be told by the write.
#[test]
fn a_shell_is_told_of_a_full_disk() {
    let script = r#"cd $D
for i in {1..40}; do
  if printf '%03000d\n' $i > f$i; then [ "$(wc -c < f$i)" = 3001 ] || exit 3; else told=yes; fi
done 2> /dev/null
[ "$told" = yes ] || exit 4"#;
    for via in ["preload", "mount"] {
        let Some(disk) = Disk::new("a_shell_is_told_of_a_full_disk", "64k") else { return };
        let out = run(via, "", disk.0.path(), script);
        assert!(out.status.success(), "{via}: {}", say(&out));
    }
}

/// What is put off while a disk becomes full fits, and what comes after it is told at once.
#[test]
fn a_disk_that_becomes_full_is_noticed() {
    let script = r#"exec python3 -c '
import ctypes, errno, os, time
os.chdir(os.environ["D"])
fd, done = os.open("rows", os.O_WRONLY | os.O_CREAT, 0o644), 0
for i in range(100): done += os.write(fd, b"x" * 100)
assert ctypes.CDLL(None).mount(b"none", os.environ["D"].encode(), b"tmpfs", 32, b"size=128k") == 0
time.sleep(2)
try:
    for i in range(100): done += os.write(fd, b"x" * 4000)
except OSError as e: assert e.errno == errno.ENOSPC, e
else: assert False, "nobody was told"
assert os.stat("rows").st_size == done, (os.stat("rows").st_size, done)
os.close(fd)
'"#;
    let Some(disk) = Disk::new("a_disk_that_becomes_full_is_noticed", "4g") else { return };
    let out = run("preload", "", disk.0.path(), script);
    assert!(out.status.success(), "{}", say(&out));
}
