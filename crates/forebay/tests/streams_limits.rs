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
import os, resource
os.chdir(os.environ["D"])
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
