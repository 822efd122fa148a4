//! `forebay explore` starts no more than a machine can bear, and ends when it is asked to.

mod user;

use rustix::process::Signal;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use user::{asked_to_end, forebay, refused, until};

struct Study {
    dir: tempfile::TempDir,
}

impl Study {
    fn new(scenario: &str) -> Study {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("scenario.toml"), scenario).unwrap();
        Study { dir }
    }

    fn args(&self, more: &[&str]) -> Vec<String> {
        let path = |name: &str| self.dir.path().join(name).display().to_string();
        let (scenario, out, at) = (path("scenario.toml"), path("out"), path(""));
        let all = [&["explore", &scenario, "--out", &out, "--at", &at][..], more].concat();
        all.iter().map(|a| (*a).to_owned()).collect()
    }

    fn out(&self) -> PathBuf {
        self.dir.path().join("out")
    }
}

const THINKS: &str = "phase = [{ operation = \"think\", think = \"600 s\" }]\n";

#[test]
fn what_no_machine_can_bear_is_refused_before_anything_starts() {
    let create = |files: u64| format!("phase = [{{ operation = \"create\", files = {files} }}]\n");
    let with = |key: &str| format!("{key}\n{THINKS}");
    for (scenario, options, says) in [
        (with("io_nodes = [1000000]"), &[][..], "io_nodes: 1000000, and 0 to 1024 are possible"),
        (with(""), &["--io-nodes", "0,1000000"], "io_nodes: 1000000, and 0 to 1024 are possible"),
        (with("io_nodes = [1024]"), &[], "at most 1024 together are possible"),
        (with("compute_nodes = 5000"), &["--io-nodes", "0"], "at most 1024 together are possible"),
        (with("compute_nodes = 4000000"), &["--io-nodes", "0"], "processes"),
        (with("repetitions = 4000000"), &[], "repetitions: 4000000, and 1 to 10000 are possible"),
        (with("repetitions = 0"), &[], "repetitions: 0, and 1 to 10000 are possible"),
        (with("dispatchers = 1000000"), &[], "dispatchers: 1000000, and 1 to 1024 are possible"),
        (create(4_000_000_000), &["--io-nodes", "0"], "files: 4000000000 in all, and 1 to 100000000"),
        (
            format!("{THINKS}[matrix]\nseed = [1,2,3,4,5,6,7,8,9,10,11,12]\n"),
            &["--repeat", "10000", "--io-nodes", "0,1,2,3,4,5,6,7,8,9"],
            "at most 1000000",
        ),
    ] {
        let study = Study::new(&scenario);
        refused(&study.args(options), 1, &[says]);
        let results = std::fs::read_to_string(study.out().join("results.csv")).unwrap_or_default();
        assert!(results.lines().count() <= 1, "{scenario}: {results}");
    }
    let write = |path: &str| {
        format!(
            "phase = [{{ operation = \"write\", path = \"{path}\", total_size = 65536, request_size = 4096 }}]\n"
        )
    };
    let look = |operation: &str| format!("phase = [{{ operation = \"{operation}\", files = 3 }}]\n");
    for (scenario, says) in [
        (write("a/"), "\"a/\" names no file"),
        (write(""), "\"\" names no file"),
        (write("sub/."), "names no file"),
        (write("a\\u0000b"), "names no file"),
        (write(&"x".repeat(250)), "path: names of at most"),
        (write("sub/x"), "sub: the directory for the scenario's files (see --at): No such file"),
        (write("scenario.toml/x"), "the directory for the scenario's files (see --at): not a directory"),
        (look("stat"), "job job1: stat of 3 files \"job1\" of each process, of which there are 0 then"),
        (look("unlink"), "job job1: unlink of 3 files"),
        (write("a").replace("65536", "\"9000 TiB\""), "there is room for"),
        ("repetitions = 70000000000\n".to_owned() + THINKS, "expected a whole number from 1 to 10000"),
        (
            look("create").replace('3', "-3"),
            "job 1 phase 1 files: invalid value: integer `-3`, expected a whole number from 1 to 100000000",
        ),
    ] {
        let study = Study::new(&scenario);
        refused(&study.args(&["--io-nodes", "1", "--repeat", "1"]), 1, &[says]);
        let left: Vec<_> =
            std::fs::read_dir(study.dir.path()).unwrap().flatten().map(|e| e.file_name()).collect();
        assert!(left.iter().all(|n| n == "scenario.toml" || n == "out"), "{scenario}: {left:?}");
        assert!(!study.out().join("results.csv").exists(), "{scenario}");
    }
    let study = Study::new(THINKS);
    refused(&study.args(&["--repeat", "4000000"]), 2, &["from 1 to 10000"]);
    refused(&study.args(&["--processes", "4000000000"]), 2, &["from 1 to 1048576"]);
}

#[test]
fn it_ends_when_it_is_asked_to() {
    for how in [Signal::TERM, Signal::INT, Signal::HUP] {
        for io_nodes in ["0", "3"] {
            forebay_testkit::ends_within_a_second("a study", || {
                let study = Study::new(&format!("compute_nodes = 3\n{THINKS}"));
                let args = study.args(&["--io-nodes", io_nodes, "--repeat", "1"]);
                let child = forebay(&args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
                let pid = child.id();
                until("its clients run", || descendants(pid).iter().filter(|p| is_worker(**p)).count() == 3);
                let started = descendants(pid);
                let (status, took) = asked_to_end(child, how);
                assert_eq!(status.code(), Some(128 + how.as_raw()), "{status:?}");
                until("what it started has ended", || started.iter().all(|p| !is_ours(*p)));
                took
            });
        }
    }
}

/// With many processes too nothing of it remains but its results, and it says how to go on.
#[test]
fn an_interrupted_study_leaves_only_results() {
    let scenario = "compute_nodes = 64\n[[phase]]\noperation = \"write\"\ntotal_size = \"4MiB\"\nrequest_size = \"4KiB\"\n\
                    [[phase]]\noperation = \"think\"\nthink = \"600 s\"\n";
    for how in [Signal::TERM, Signal::HUP] {
        let study = Study::new(scenario);
        let args = study.args(&["--io-nodes", "1", "--repeat", "1"]);
        let child = forebay(&args).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let [file, other] = ["job1", "job1-000"].map(|name| study.dir.path().join(name));
        until("its clients write", || file.metadata().is_ok_and(|m| m.len() == 4 << 20));
        std::fs::write(&other, "mine").unwrap();
        user::signal(&child, how);
        let output = child.wait_with_output().unwrap();
        let says = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(128 + how.as_raw()), "{says}");
        assert!(says.contains("--resume"), "{says}");
        assert!(!file.exists(), "the study's file is left");
        assert_eq!(std::fs::read_to_string(other).unwrap(), "mine");
        let hidden = |e: &std::fs::DirEntry| e.file_name().to_string_lossy().starts_with("forebay-");
        for dir in [study.out(), study.out().join("runs")] {
            assert_eq!(std::fs::read_dir(dir).unwrap().flatten().filter(hidden).count(), 0);
        }
    }
}

/// What is there before a study is somebody else's: it is neither used nor removed, wherever it is.
/// A scenario that writes so much at once.
fn writes(name: &str, request: &str) -> String {
    format!(
        "name = \"{name}\"\nio_nodes = [0]\nrepetitions = 1\nphase = [{{ operation = \"write\", path = \"f\", \
         total_size = \"256 KiB\", request_size = \"{request}\" }}]\n"
    )
}

#[test]
fn scenarios_are_not_taken_for_each_other() {
    let study = Study::new(&writes("a b", "64 KiB"));
    let other = study.dir.path().join("other.toml").display().to_string();
    std::fs::write(&other, writes("a b", "32 KiB")).unwrap();
    refused(&study.args(&[&other]), 1, &["two scenarios are called \"a b\""]);
    refused(&study.args(&["--io-nodes", "1,1"]), 1, &["1 I/O nodes are named twice"]);
    assert_eq!(std::fs::read_dir(study.out().join("runs")).map_or(0, Iterator::count), 0);
    // Names that are alike once they are names of files.
    std::fs::write(&other, writes("a/b", "32 KiB")).unwrap();
    let (status, _, says) = user::run(&study.args(&[&other]));
    assert_eq!(status, Some(0), "{says}");
    assert_eq!(std::fs::read_dir(study.out().join("runs")).unwrap().count(), 2);
    // Another one of that name is not what was measured.
    std::fs::write(study.dir.path().join("scenario.toml"), writes("a b", "16 KiB")).unwrap();
    refused(&study.args(&["--resume"]), 1, &["scenario \"a b\" was another one", "--out"]);
    std::fs::write(study.dir.path().join("scenario.toml"), writes("a b", "64 KiB")).unwrap();
    assert_eq!(user::run(&study.args(&["--resume", "--repeat", "2"])).0, Some(0));
}

#[test]
fn what_a_study_had_no_time_to_remove_goes_when_it_goes_on() {
    let study = Study::new(&writes("cut", "64 KiB"));
    std::fs::create_dir(study.out()).unwrap();
    // As one that was killed leaves it.
    std::fs::write(study.out().join("unfinished"), "").unwrap();
    std::fs::write(study.dir.path().join("f"), "left").unwrap();
    let [left, mine] = ["runs/forebay-4711-0", "runs/forebay-mine"].map(|name| study.out().join(name));
    std::fs::create_dir_all(&mine).unwrap();
    std::fs::create_dir_all(left.join("deep")).unwrap();
    // Or somebody has made it since.
    refused(&study.args(&["--resume"]), 1, &["is there already: most likely", "--resume --clean"]);
    assert_eq!(std::fs::read_to_string(study.dir.path().join("f")).unwrap(), "left");
    let (status, _, says) = user::run(&study.args(&["--resume", "--clean"]));
    assert_eq!(status, Some(0), "{says}");
    assert!(!study.dir.path().join("f").exists() && !study.out().join("unfinished").exists());
    assert!(!left.exists() && mine.exists());
    // Without that, it is somebody's.
    std::fs::write(study.dir.path().join("f"), "mine").unwrap();
    refused(&study.args(&["--resume", "--clean", "--repeat", "2"]), 1, &["is there already"]);
    assert_eq!(std::fs::read_to_string(study.dir.path().join("f")).unwrap(), "mine");
}

#[test]
fn two_do_not_work_on_one_study() {
    let study = Study::new(THINKS);
    let first = forebay(&study.args(&["--io-nodes", "0"])).stderr(Stdio::null()).spawn().unwrap();
    until("it does not begin", || study.out().join("unfinished").exists());
    refused(&study.args(&["--resume", "--io-nodes", "0"]), 1, &["another forebay explore is at work on"]);
    assert!(asked_to_end(first, Signal::TERM).0.code().is_some());
}

#[test]
fn within_a_run_it_is_refused() {
    let study = Study::new(&writes("inner", "64 KiB"));
    let at = study.dir.path().display().to_string();
    let explore = study.args(&[]);
    let explore: Vec<&str> = explore.iter().map(String::as_str).collect();
    let inner =
        [&["run", "--quiet", "--at", &at, "--", env!("CARGO_BIN_EXE_forebay")][..], &explore].concat();
    refused(&inner, 1, &["inside of `forebay run`"]);
}

#[test]
fn a_scheduler_that_is_none_is_found_before_any_run() {
    let study = Study::new(&format!("scheduler = \"bogus\"\n{}", writes("inner", "64 KiB")));
    refused(&study.args(&[]), 1, &["scenario inner: scheduler `bogus`"]);
    assert!(!study.dir.path().join("out").exists());
}

#[test]
fn files_that_are_there_stay() {
    let read = |path: &str| {
        format!(
            "[[phase]]\noperation = \"read\"\npath = \"{path}\"\ntotal_size = \"1 MiB\"\nrequest_size = \"64 KiB\"\n"
        )
    };
    let own = |path: &str| read(path) + "layout = \"file-per-process\"\n";
    let create =
        |path: &str| format!("phase = [{{ operation = \"create\", files = 5, path = \"{path}\" }}]\n");
    for (scenario, theirs) in [
        (read("in"), "in"),
        (own("in"), "in-000"),
        (create("in"), "in-000-000003"),
        (read("sub/in"), "sub/in"),
    ] {
        for io_nodes in ["0", "1"] {
            let study = Study::new(&scenario);
            std::fs::create_dir(study.dir.path().join("sub")).unwrap();
            let file = study.dir.path().join(theirs);
            std::fs::write(&file, "data").unwrap();
            let args = study.args(&["--io-nodes", io_nodes, "--repeat", "1"]);
            refused(&args, 1, &[&format!("{theirs} is there already"), "--at"]);
            assert_eq!(std::fs::read_to_string(&file).unwrap(), "data");
            // Nothing is wrong with it otherwise.
            std::fs::remove_file(&file).unwrap();
            let output = forebay(&args).output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            assert!(!file.exists(), "{theirs} is left");
        }
    }
    for scenario in [&read as &dyn Fn(&str) -> String, &own, &create] {
        let study = Study::new("");
        let precious = study.dir.path().join("precious");
        std::fs::write(&precious, "data").unwrap();
        let name = study.dir.path().file_name().unwrap().to_string_lossy().into_owned();
        let absolute = precious.display().to_string();
        for (path, says) in [
            (format!("../{name}/precious"), "leaves the directory"),
            (format!("sub/../../{name}/precious"), "leaves the directory"),
            (absolute, "is absolute"),
        ] {
            std::fs::write(study.dir.path().join("scenario.toml"), scenario(&path)).unwrap();
            refused(&study.args(&["--io-nodes", "1", "--repeat", "1"]), 1, &[says]);
            assert_eq!(std::fs::read_to_string(&precious).unwrap(), "data");
            assert!(!study.out().exists(), "results of what cannot be run");
        }
    }
}

/// Nodes leave their statistics at their end: the directory is there for as long.
#[test]
fn a_study_that_succeeds_complains_of_nothing() {
    let study =
        Study::new("[[phase]]\noperation = \"write\"\ntotal_size = \"64KiB\"\nrequest_size = \"4KiB\"\n");
    let output = forebay(&study.args(&["--io-nodes", "2", "--repeat", "3"])).output().unwrap();
    let says = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !says.contains("cannot"), "{says}");
}

/// What a phase reads is prepared when all are through with the one before: it was overwritten by them.
#[test]
fn a_phase_is_prepared_when_the_last_has_ended() {
    let phase = |operation: &str, spatiality: &str, validation: bool| {
        format!(
            "[[phase]]\noperation = \"{operation}\"\npath = \"f\"\nlayout = \"shared\"\nspatiality = \"{spatiality}\"\n\
             total_size = \"4 MiB\"\nrequest_size = \"64 KiB\"\nvalidation = {validation}\n"
        )
    };
    let phases = [phase("write", "strided", false), phase("read", "contiguous", true)].concat();
    let study = Study::new(&format!("io_nodes = [0]\nprocesses_per_node = 4\n{}", phases.repeat(4)));
    let (status, _, says) = user::run(&study.args(&["--repeat", "3"]));
    assert_eq!(status, Some(0), "{says}");
}

/// A value that makes no sense is called by its key.
#[test]
fn a_scenario_is_told_which_key_is_wrong() {
    for (wrong, words) in [
        ("repetitions = -1", &["repetitions: invalid value", "whole number"][..]),
        ("io_nodes = \"64K\"", &["io_nodes: a whole number is expected"]),
        ("compute_nodes = 1.5", &["compute_nodes: invalid type", "whole number"]),
    ] {
        let study = Study::new(&format!("{wrong}\n{THINKS}"));
        refused(&study.args(&[]), 1, words);
    }
    let study = Study::new("phase = [{ operation = \"think\", think = true }]\n");
    refused(&study.args(&[]), 1, &["phase 1 think: a number is expected"]);
}

fn descendants(pid: u32) -> Vec<u32> {
    let mut all = Vec::new();
    for task in std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten() {
        let list = std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
        all.extend(list.split_whitespace().filter_map(|p| p.parse::<u32>().ok()));
    }
    all
}

fn command_line(pid: u32) -> String {
    let bytes = std::fs::read(Path::new("/proc").join(pid.to_string()).join("cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&bytes).replace('\0', " ")
}

fn is_worker(pid: u32) -> bool {
    command_line(pid).contains(" explore-worker ")
}

fn is_ours(pid: u32) -> bool {
    is_worker(pid) || command_line(pid).contains(" node --die-with-parent")
}
