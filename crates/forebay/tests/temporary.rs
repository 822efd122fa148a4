//! Where runs have their own files: a file system that fills up, or from which nothing can be loaded.

mod user;

use forebay_testkit::skipped;
use std::path::Path;
use std::process::Command;
use user::outcome;

/// What a shell says that has a small file system of memory at `t`, mounted so, in a name space of its own; its status.
fn with_mounted(how: &str, script: &str, dir: &Path) -> Option<(Option<i32>, String, String)> {
    if !rustix::process::geteuid().is_root() {
        return None;
    }
    for name in ["t", "at"] {
        std::fs::create_dir(dir.join(name)).unwrap();
    }
    let script = format!("mount -t tmpfs -o {how} none t || exit 77; export TMPDIR=$PWD/t; {script}");
    let mut shell = Command::new("unshare");
    shell.args(["-m", "bash", "-c", &script]).current_dir(dir);
    let found = outcome(&shell.env("forebay", env!("CARGO_BIN_EXE_forebay")).output().ok()?);
    (found.0 != Some(77)).then_some(found)
}

#[test]
fn a_full_file_system_ends_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let inner = "for size in 64k 4k 512; do dd if=/dev/zero of=t/fill$size bs=$size 2>/dev/null; done; \
                 mkdir at/d; echo \"mkdir $?\"; cat at/d/none 2>/dev/null; echo \"cat $?\"; exit 5";
    for option in ["", "--darshan log", "--record trace"] {
        let place = tempfile::tempdir_in(&dir).unwrap();
        let script = format!(
            "$forebay run -q {option} --at at -- bash -c '{inner}'; r=$?; ls t | grep forebay; exit $r"
        );
        let Some((status, out, said)) = with_mounted("size=32m", &script, place.path()) else {
            return skipped("a_full_file_system_ends_nobody", "needs root, to mount one");
        };
        assert_eq!((status, out.as_str()), (Some(5), "mkdir 0\ncat 1\n"), "{option}: {said}");
        assert!(place.path().join("at/d").is_dir(), "{option}: {said}");
    }
}

#[test]
fn a_directory_from_which_nothing_is_loaded_is_not_taken_for_the_library() {
    let dir = tempfile::tempdir().unwrap();
    let script =
        "$forebay run --strict --at at -- sh -c 'echo hi > at/f'; r=$?; $forebay doctor -- cat; exit $r";
    let Some((status, out, said)) = with_mounted("noexec", script, dir.path()) else {
        return skipped(
            "a_directory_from_which_nothing_is_loaded_is_not_taken_for_the_library",
            "needs root",
        );
    };
    assert_eq!(status, Some(0), "{said}");
    assert!(said.contains("written 3 B") && !said.contains("cannot be preloaded"), "{said}");
    assert!(!out.contains(&format!("loaded from {}", dir.path().join("t").display())), "{out}");
}
