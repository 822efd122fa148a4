//! What was acknowledged is true for calls that are made less often: mixed offsets, files without a name, copies,
//! directories that are being read, locks that change their kind, programs and nodes that stand still or come back as
//! something else. From the promises alone, in the words of `kin.c`; each in both front ends where that makes a difference.

use forebay_testkit::{AT, ClientOptions, Layer, Talker, compile, program, skipped, until};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const LEASE_MS: u64 = 500;
const TOLD: &str = "-1 5";
const STALE: &str = "-1 116";
const BUSY: &str = "-1 11";
/// `O_TMPFILE | O_RDWR`.
const NAMELESS: &str = "4259842";

fn kin(layer: &Layer, turn: usize) -> Talker {
    let mut command = layer.command(&layer.compile("kin"), turn);
    command.arg(AT);
    Talker::start(command)
}

fn layer(nodes: usize) -> Layer {
    Layer::start(nodes, LEASE_MS, &ClientOptions::default())
}

/// Each line has its answer.
fn talk(who: &mut Talker, lines: &[(&str, &str)]) {
    for (line, answer) in lines {
        assert_eq!(who.ask(line), *answer, "{line}");
    }
}

#[test]
fn offsets_and_appends_go_on_where_they_were() {
    let mut layer = layer(2);
    let mut a = kin(&layer, 0);
    talk(&mut a, &[("open 0 file 1090", "0 0"), ("write 0 10 65", "10 0"), ("lseek 0 3 0", "3 0")]);
    layer.kill(0);
    talk(&mut a, &[("write 0 10 66", "10 0"), ("lseek 0 0 1", "20 0"), ("append 0 0", "0 0")]);
    talk(&mut a, &[("lseek 0 5 0", "5 0"), ("write 0 2 67", "2 0")]);
    layer.restart(0);
    layer.kill(1);
    talk(&mut a, &[("write 0 2 68", "2 0"), ("append 0 1", "0 0"), ("write 0 3 69", "3 0")]);
    talk(&mut a, &[("lseek 0 0 1", "23 0"), ("size 0", "23 0")]);
    let text = std::fs::read_to_string(layer.export().join("file")).expect("the file");
    assert_eq!(text, "AAAAACCDDABBBBBBBBBBEEE");
    a.finish();
}

/// The name of an open file is given to another one, or the file another name, while its node dies.
#[test]
fn an_open_file_that_was_renamed_is_never_another_one() {
    for replaced in [true, false] {
        let mut layer = layer(2);
        let mut a = kin(&layer, 0);
        talk(&mut a, &[("open 0 file 66", "0 0"), ("write 0 4 65", "4 0")]);
        let here = layer.export();
        std::fs::write(here.join("other"), "other").expect("a file");
        layer.kill(0);
        if replaced {
            std::fs::rename(here.join("other"), here.join("file")).expect("a name");
        } else {
            std::fs::rename(here.join("file"), here.join("moved")).expect("a name");
        }
        talk(&mut a, &[("pwrite 0 4 0 66", STALE), ("fsync 0", STALE), ("pread 0 4 0", STALE)]);
        let kept = std::fs::read_to_string(here.join(if replaced { "file" } else { "moved" }));
        assert_eq!(kept.expect("the file"), if replaced { "other" } else { "AAAA" });
        // Renamed by the process itself it is followed.
        talk(&mut a, &[("open 1 mine 66", "0 0"), ("rename mine yours", "0 0")]);
        layer.restart(0);
        layer.kill(1);
        talk(&mut a, &[("pwrite 1 4 0 67", "4 0")]);
        assert_eq!(std::fs::read_to_string(here.join("yours")).expect("the file"), "CCCC");
        a.finish();
    }
}

/// A file without a name is given one, or is gone with its node; never half of both.
#[test]
fn a_file_without_a_name_is_linked_or_gone() {
    let mut layer = layer(2);
    let mut a = kin(&layer, 0);
    let open = format!("open 0 . {NAMELESS}");
    talk(&mut a, &[(&open, "0 0"), ("write 0 4 65", "4 0"), ("linkat 0 first", "0 0")]);
    assert_eq!(std::fs::read_to_string(layer.export().join("first")).expect("the file"), "AAAA");
    talk(&mut a, &[(&open, "0 0"), ("write 0 4 66", "4 0")]);
    layer.kill(0);
    assert!(a.ask("linkat 0 second").starts_with("-1 "), "it is gone");
    assert!(!layer.export().join("second").exists());
    talk(&mut a, &[("write 0 4 66", STALE)]);
    a.finish();
}

/// Copies and changes of space that were on their way to a node that dies are made once, or told.
#[test]
fn copies_and_allocations_are_what_they_were_to_be() {
    let calls =
        [("copy 0 1 0 4096 65536", "65536 0"), ("falloc 1 0 0 200000", "0 0"), ("truncate 1 777", "0 0")];
    for (call, answer) in calls.into_iter().chain([("falloc 1 3 0 4096", "0 0")]) {
        let mut layer = layer(2);
        let mut a = kin(&layer, 0);
        talk(&mut a, &[("open 0 from 66", "0 0"), ("pwrite 0 65536 0 65", "65536 0")]);
        talk(&mut a, &[("open 1 to 66", "0 0"), ("pwrite 1 8192 0 66", "8192 0")]);
        layer.freeze(0);
        a.send(call);
        std::thread::sleep(Duration::from_millis(200));
        layer.kill(0);
        assert_eq!(a.receive(), answer, "{call}");
        let to = std::fs::read(layer.export().join("to")).expect("the file");
        let (size, first, second) = match call.split(' ').next().unwrap() {
            "copy" => (4096 + 65536, 66, 65),
            "truncate" => (777, 66, 66),
            _ if call.contains("200000") => (200_000, 66, 66),
            _ => (8192, 0, 66),
        };
        let at = 4096.min(to.len() - 1);
        assert_eq!(
            (to.len(), to[0], to[at]),
            (size, first, if at < 4096 { first } else { second }),
            "{call}"
        );
        a.finish();
    }
}

/// A directory that is being read when its node dies: every name once, and a place in it is that place still.
#[test]
fn a_directory_is_read_on_where_it_was() {
    let mut layer = layer(2);
    std::fs::create_dir(layer.export().join("many")).expect("a directory");
    for i in 0..3000 {
        std::fs::write(layer.export().join(format!("many/n{i}")), "").expect("a file");
    }
    let mut a = kin(&layer, 0);
    talk(&mut a, &[("opendir many", "0 0")]);
    let count = |said: String| said.split(' ').next().and_then(|n| n.parse::<u64>().ok()).expect("a number");
    let first = count(a.ask("list 1000"));
    talk(&mut a, &[("tell", "0 0")]);
    let second = count(a.ask("list 500"));
    layer.kill(0);
    let third = count(a.ask("list 5000"));
    assert_eq!(first + second + third, 3000);
    talk(&mut a, &[("back", "0 0")]);
    assert_eq!(count(a.ask("list 5000")), second + third, "from the mark on");
    a.finish();
}

/// A lock that goes with a descriptor that `exec` closes is free; another one of the open file goes on.
#[test]
fn locks_at_exec_are_kept_or_free_as_they_should_be() {
    let layer = layer(2);
    let (mut a, mut b) = (kin(&layer, 0), kin(&layer, 1));
    talk(&mut b, &[("open 0 file 66", "0 0")]);
    for take in ["flock 0 6", "ofd 0 1 0 10"] {
        talk(&mut a, &[("open 0 file 66", "0 0"), (take, "0 0"), ("cloexec 0 1", "0 0"), ("become", "0 0")]);
        until(Duration::from_secs(20), "it stays locked", || (b.ask(take) == "0 0").then_some(()));
        talk(&mut b, &[(&take.replace("0 6", "0 8").replace("0 1", "0 2"), "0 0")]);
        talk(&mut a, &[("open 0 file 66", "0 0"), (take, "0 0"), ("become", "0 0")]);
        // Longer than any session outlives its process.
        std::thread::sleep(Duration::from_millis(2500));
        talk(&mut b, &[(take, BUSY)]);
        talk(&mut a, &[("pwrite 0 1 0 65", "1 0"), ("close 0", "0 0")]);
        until(Duration::from_secs(20), "it stays locked", || (b.ask(take) == "0 0").then_some(()));
        talk(&mut b, &[(&take.replace("0 6", "0 8").replace("0 1", "0 2"), "0 0")]);
    }
    a.finish();
    b.finish();
}

/// Byte ranges of a process are not kept for the program that it becomes: that one is told.
#[test]
fn a_process_lock_does_not_outlive_exec_in_silence() {
    let layer = layer(2);
    let (mut a, mut b) = (kin(&layer, 0), kin(&layer, 1));
    talk(&mut b, &[("open 0 file 66", "0 0")]);
    talk(&mut a, &[("open 0 file 66", "0 0"), ("open 1 other 66", "0 0"), ("lock 0 1 0 10", "0 0")]);
    talk(&mut a, &[("become", "0 0")]);
    until(Duration::from_secs(20), "it stays locked", || (b.ask("lock 0 1 0 10") == "0 0").then_some(()));
    talk(&mut a, &[("pwrite 1 1 0 65", "1 0"), ("pwrite 0 1 0 65", TOLD), ("pwrite 0 1 0 65", "1 0")]);
    talk(&mut a, &[("become", "0 0"), ("pwrite 0 1 0 65", "1 0")]);
    a.finish();
    b.finish();
}

/// An `flock` that becomes another kind on a node that dies.
#[test]
fn a_lock_that_changes_its_kind_is_had_or_told() {
    let mut layer = layer(2);
    let (mut a, mut b) = (kin(&layer, 0), kin(&layer, 1));
    talk(&mut a, &[("open 0 file 66", "0 0"), ("flock 0 5", "0 0")]);
    talk(&mut b, &[("open 0 file 66", "0 0"), ("flock 0 5", "0 0")]);
    // As the kernel: what could not become another kind is released.
    talk(&mut a, &[("flock 0 6", BUSY)]);
    talk(&mut b, &[("flock 0 6", "0 0"), ("flock 0 5", "0 0")]);
    talk(&mut a, &[("flock 0 5", "0 0")]);
    layer.kill(0);
    talk(&mut a, &[("flock 0 6", TOLD), ("flock 0 6", BUSY)]);
    talk(&mut b, &[("flock 0 8", "0 0")]);
    talk(&mut a, &[("flock 0 6", "0 0")]);
    talk(&mut b, &[("flock 0 5", BUSY)]);
    layer.restart(0);
    layer.kill(1);
    talk(&mut a, &[("flock 0 5", TOLD), ("flock 0 5", "0 0")]);
    // The other one held nothing: it is told nothing.
    talk(&mut b, &[("flock 0 5", "0 0")]);
    a.finish();
    b.finish();
}

#[test]
fn a_lock_is_the_open_files_by_whichever_descriptor() {
    let mut layer = layer(2);
    let (mut a, mut b) = (kin(&layer, 0), kin(&layer, 1));
    talk(&mut b, &[("open 0 file 66", "0 0")]);
    talk(
        &mut a,
        &[("open 0 file 66", "0 0"), ("ofd 0 1 0 10", "0 0"), ("dup 0 1", "0 0"), ("close 0", "0 0")],
    );
    talk(&mut b, &[("ofd 0 1 5 1", BUSY)]);
    layer.kill(0);
    talk(&mut a, &[("pread 1 1 0", TOLD), ("pwrite 1 1 0 65", "1 0"), ("ofd 1 1 0 10", "0 0")]);
    talk(&mut b, &[("ofd 0 1 5 1", BUSY)]);
    a.finish();
    b.finish();
}

/// What was written through a shared mapping is there, whatever becomes of the node.
#[test]
fn a_mapping_and_a_dead_node() {
    let mut layer = layer(2);
    let mut a = kin(&layer, 0);
    talk(&mut a, &[("open 0 file 66", "0 0"), ("truncate 0 4096", "0 0"), ("map 0 4096 65", "0 0")]);
    layer.kill(0);
    talk(&mut a, &[("vectors 0 4096 65", "0 0"), ("map 0 4096 66", "0 0"), ("vectors 0 4096 66", "0 0")]);
    a.finish();
}

/// A large read into many pieces of memory, through nodes that die and come back meanwhile.
#[test]
fn a_large_read_is_whole_whoever_dies() {
    let mut layer = layer(3);
    std::fs::write(layer.export().join("large"), vec![65; 64 << 20]).expect("a file");
    let mut a = kin(&layer, 0);
    talk(&mut a, &[("open 0 large 2", "0 0")]);
    for round in 0..6 {
        a.send(&format!("vectors 0 {} 65", 64 << 20));
        std::thread::sleep(Duration::from_millis(5 * round));
        let n = round as usize % 3;
        layer.kill(n);
        assert_eq!(a.receive(), "0 0", "round {round}");
        layer.restart(n);
    }
    a.finish();
}

/// A program that stands still for longer than its lease has what it had.
#[test]
fn a_program_that_stands_still_keeps_its_locks() {
    let layer = layer(2);
    let (mut a, mut b) = (kin(&layer, 0), kin(&layer, 1));
    talk(
        &mut a,
        &[
            ("open 0 file 66", "0 0"),
            ("flock 0 6", "0 0"),
            ("open 1 other 66", "0 0"),
            ("lock 1 1 0 1", "0 0"),
        ],
    );
    talk(&mut b, &[("open 0 file 66", "0 0"), ("open 1 other 66", "0 0")]);
    a.freeze();
    std::thread::sleep(Duration::from_millis(4 * LEASE_MS));
    talk(&mut b, &[("flock 0 6", BUSY), ("lock 1 1 0 1", BUSY)]);
    a.thaw();
    talk(&mut a, &[("pwrite 0 4 0 65", "4 0"), ("pwrite 1 4 0 65", "4 0"), ("fsync 0", "0 0")]);
    talk(&mut b, &[("flock 0 6", BUSY), ("lock 1 1 0 1", BUSY)]);
    a.finish();
    b.finish();
}

/// A node comes back as one of something else: others are asked.
#[test]
fn a_node_that_comes_back_with_another_export_is_not_used() {
    let mut layer = layer(2);
    let mut a = kin(&layer, 0);
    talk(&mut a, &[("open 0 file 66", "0 0"), ("pwrite 0 4 0 65", "4 0")]);
    let other = layer.scratch().join("elsewhere");
    std::fs::create_dir(&other).expect("a directory");
    layer.restart_exporting(0, &other);
    talk(&mut a, &[("pwrite 0 4 0 66", "4 0"), ("open 1 new 66", "0 0"), ("fsync 0", "0 0")]);
    assert_eq!(std::fs::read_to_string(layer.export().join("file")).expect("the file"), "BBBB");
    assert!(std::fs::read_dir(&other).expect("a directory").next().is_none(), "nothing went there");
    // Nor by a program that starts now.
    let mut b = kin(&layer, 0);
    talk(&mut b, &[("open 0 file 2", "0 0"), ("pread 0 4 0", "4 0")]);
    b.finish();
    a.finish();
}

/// Whoever is killed while he shares a file leaves its locks to the others, and his own to nobody.
#[test]
fn what_a_killed_process_held_is_free_and_what_it_shared_is_not() {
    let layer = layer(2);
    let (mut a, mut b) = (kin(&layer, 0), kin(&layer, 1));
    talk(&mut b, &[("open 0 file 66", "0 0"), ("open 1 other 66", "0 0")]);
    talk(&mut a, &[("open 0 file 66", "0 0"), ("fork", "0 0"), ("child flock 0 6", "0 0")]);
    talk(&mut a, &[("child open 1 other 66", "0 0"), ("child lock 1 1 0 0", "0 0")]);
    talk(&mut b, &[("flock 0 6", BUSY), ("lock 1 1 0 0", BUSY)]);
    assert_eq!(a.ask("child end"), "gone");
    until(Duration::from_secs(20), "its own lock stays", || (b.ask("lock 1 1 0 0") == "0 0").then_some(()));
    std::thread::sleep(Duration::from_millis(2500));
    talk(&mut b, &[("flock 0 6", BUSY)]);
    talk(&mut a, &[("flock 0 8", "0 0")]);
    talk(&mut b, &[("flock 0 6", "0 0")]);
    a.finish();
    b.finish();
}

/// `kin.c` in a run of its own, one of whose nodes can be killed.
struct Run {
    dir: tempfile::TempDir,
    kin: Talker,
}

impl Run {
    fn start(via: &str) -> Run {
        let dir = tempfile::tempdir().expect("a directory");
        let (data, kin) = (dir.path().join("data"), compile(dir.path(), "kin"));
        std::fs::create_dir(&data).expect("a directory");
        let mut command = Command::new(program());
        command.args(["run", "--quiet", "--io-nodes", "2", "--transport", "tcp", "--via", via, "--at"]);
        command.arg(&data).arg("--").arg(kin).arg(&data);
        Run { dir, kin: Talker::start(command) }
    }

    /// Kills the node that has the file open.
    fn kill_its_node(&self, name: &str) {
        let run = self.kin.id();
        let children =
            std::fs::read_to_string(format!("/proc/{run}/task/{run}/children")).unwrap_or_default();
        let file = self.dir.path().join("data").join(name);
        let has_it = |pid: &&str| {
            let open = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
            let node = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let node = node.split(|b| *b == 0).nth(1) == Some(b"node");
            node && open.flatten_links().any(|to| to == file)
        };
        let holder = until(Duration::from_secs(20), "no node has it open", || {
            children.split_whitespace().find(has_it).map(str::to_owned)
        });
        assert!(Command::new("kill").args(["-KILL", &holder]).status().expect("kill runs").success());
    }
}

trait Links {
    fn flatten_links(self) -> impl Iterator<Item = std::path::PathBuf>;
}

impl<I: Iterator<Item = std::fs::DirEntry>> Links for I {
    fn flatten_links(self) -> impl Iterator<Item = std::path::PathBuf> {
        self.filter_map(|entry| std::fs::read_link(entry.path()).ok())
    }
}

/// The same promises where the kernel is the client's program, and there without: what is said before a node dies, and after.
#[test]
fn under_the_mount() {
    let write = ("pwrite 0 4 0 66", "4 0");
    let told = &[("pwrite 0 4 0 65", TOLD), write][..];
    let childs = [("child pwrite 0 4 0 65", TOLD), ("child pwrite 0 4 0 66", "4 0")];
    let open = ("open 0 file 66", "0 0");
    type Talk<'a> = &'a [(&'a str, &'a str)];
    let cases: &[(Talk<'_>, Talk<'_>)] = &[
        (&[open, ("flock 0 6", "0 0")], told),
        (&[open, ("flock 0 6", "0 0")], &[("close 0", TOLD)]),
        (&[open, ("ofd 0 1 0 10", "0 0")], told),
        (&[open, ("lock 0 1 0 10", "0 0")], told),
        (&[open, ("fork", "0 0"), ("child flock 0 6", "0 0")], told),
        (&[open, ("flock 0 6", "0 0"), ("become", "0 0")], told),
        // Whoever comes first: each of both, once; who begins then is not.
        (&[open, ("flock 0 6", "0 0"), ("fork", "0 0")], &[childs[0], told[0], childs[1], write]),
        (&[open, ("ofd 0 1 0 10", "0 0"), ("fork", "0 0")], &[told[0], write, childs[0], childs[1]]),
        (&[open, ("flock 0 6", "0 0"), ("fork", "0 0")], &[childs[0], ("fsync 0", TOLD), ("fsync 0", "0 0")]),
        (&[open, ("flock 0 6", "0 0")], &[told[0], ("fork", "0 0"), childs[1], write]),
        (&[open, ("flock 0 6", "0 0"), ("fork", "0 0"), ("child flock 0 8", "0 0")], &[write]),
        (&[open, ("flock 0 5", "0 0"), ("flock 0 8", "0 0")], &[write, ("close 0", "0 0")]),
        (
            &[("open 0 file 1090", "0 0"), ("write 0 10 65", "10 0"), ("lseek 0 3 0", "3 0")],
            &[("write 0 10 66", "10 0"), ("lseek 0 0 1", "20 0"), ("append 0 0", "0 0"), ("size 0", "20 0")],
        ),
        (&[open, ("truncate 0 4096", "0 0")], &[("map 0 4096 65", "0 0"), ("vectors 0 4096 65", "0 0")]),
        (&[open, ("open 1 to 66", "0 0"), write], &[("copy 0 1 0 4 4", "4 0"), ("size 1", "8 0")]),
        (&[open, write], &[("fsync 0", "0 0"), ("close 0", "0 0")]),
    ];
    for via in ["preload", "mount"] {
        if via == "mount" && !Path::new("/dev/fuse").exists() {
            return skipped("under_the_mount", "there is no /dev/fuse");
        }
        for (before, after) in cases {
            let mut run = Run::start(via);
            talk(&mut run.kin, before);
            run.kill_its_node("file");
            talk(&mut run.kin, after);
            run.kin.finish();
        }
    }
}
