//! Real programs through `forebay run`: every script of `tests/programs` gives the same exit status,
//! the same output and the same files directly and through two I/O nodes, whether the directory has
//! the same path on both sides or does not exist on the client at all.
//!
//! A script finds its directory in `$D`, a directory that is not forwarded in `$W`, its own sources in
//! `$S` and what was built of them in `$B`. Its head says what it `needs` and how to `build` that.

mod user;

use forebay_testkit::{installed, skipped};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// A script that runs longer than this hangs.
const LIMIT_S: &str = "300";

macro_rules! scenarios {
    ($($name:ident),* $(,)?) => {
        $(#[test] fn $name() { compare(stringify!($name)); })*

        #[test]
        fn every_script_is_a_test() {
            let named = [$(stringify!($name)),*];
            for entry in std::fs::read_dir(sources()).unwrap() {
                let path = entry.unwrap().path();
                if path.extension().is_some_and(|e| e == "sh") {
                    let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
                    assert!(named.contains(&name.as_str()), "{name}.sh is not in the list");
                }
            }
        }
    };
}

scenarios! {
    coreutils, dd, tail, shell_dash, shell_bash, tar, find, rsync, git, sqlite, python, perl, make, fio,
    mpi_openmpi, mpi_mpich, hdf5, pnetcdf, netcdf, stdio, fork, dirs, files, links, locks, environment, libraries,
    pipes, syscalls, arguments, signals, passing, shared, limits, memory, moving, preloads, preloads_mpi, node,
    open_files, rare_names, rare_files, any_calls, java, static_musl, container,
}

/// Those that run through the mount without its accelerator, too.
const ALONE: [&str; 8] =
    ["coreutils", "dd", "stdio", "files", "fork", "open_files", "any_calls", "arguments"];

fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs")
}

#[derive(Clone, Copy, PartialEq)]
enum Mode {
    Direct,
    /// Through I/O nodes, by the directory's own path.
    Same,
    /// Through I/O nodes, by a path that this machine does not have.
    Nowhere,
    /// Through I/O nodes and the mount, by the directory's own path; data goes past the mount wherever it may.
    Mount,
    /// The same, and all goes through the mount.
    MountAlone,
}

/// What a run left.
struct Outcome {
    status: Option<i32>,
    output: String,
    errors: String,
    tree: BTreeMap<String, String>,
}

fn compare(name: &str) {
    let file = sources().join(format!("{name}.sh"));
    let script = std::fs::read_to_string(&file).unwrap();
    let home = tempfile::tempdir().unwrap();
    let header = |key: &str| -> Vec<String> {
        let key = format!("# {key}: ");
        script.lines().filter_map(|l| l.strip_prefix(&key)).map(str::to_owned).collect()
    };
    if let Some(missing) = header("needs").iter().flat_map(|l| l.split(' ')).find(|tool| !installed(tool)) {
        return skipped(name, &format!("{missing} is not installed (see scripts/test-packages)"));
    }
    build(home.path(), &header("build"));
    let shell = if script.starts_with("#!/bin/dash") { "dash" } else { "bash" };
    let direct = run(home.path(), name, shell, &file, Mode::Direct);
    let alone = ALONE.contains(&name).then_some(Mode::MountAlone);
    for mode in [Mode::Same, Mode::Nowhere, Mode::Mount].into_iter().chain(alone) {
        if matches!(mode, Mode::Mount | Mode::MountAlone) && !can_mount(name) {
            continue;
        }
        let through = run(home.path(), name, shell, &file, mode);
        let how = match mode {
            Mode::Nowhere => "a path not on the client",
            Mode::Mount => "the mount and its accelerator",
            Mode::MountAlone => "the mount",
            _ => "the same path",
        };
        let differences = differences(&direct, &through);
        assert!(
            differences.is_empty(),
            "{name} differs through the I/O nodes ({how}); - directly, + through them\n{differences}\n\
             its errors, directly:\n{}\nthrough the I/O nodes:\n{}",
            direct.errors,
            through.errors
        );
    }
}

/// Builds what a script needs.
fn build(home: &Path, commands: &[String]) {
    let dir = home.join("B");
    std::fs::create_dir(&dir).unwrap();
    for command in commands {
        let done =
            Command::new("sh").arg("-c").arg(command).env("S", sources()).current_dir(&dir).output().unwrap();
        assert!(done.status.success(), "{command}: {}", String::from_utf8_lossy(&done.stderr));
    }
}

/// Calls of `differences.c` that are known to end otherwise than on the file system below: how through the
/// library, and how through the mount (`-`: as there). The reasons are in docs/SEMANTICS.md.
const DIFFERENCES: [(&str, &str, &str); 20] = [
    ("epoll", "-", "done"),
    ("shared mapping of an unlinked file", "ENODEV", "-"),
    ("byte-range locks of two processes on an unlinked file", "-", "ENOLCK"),
    ("byte-range lock on a directory", "EISDIR", "-"),
    ("a removed directory by its descriptor", "ENOENT", "-"),
    ("fallocate insert", "-", "EOPNOTSUPP"),
    ("fallocate collapse", "-", "EOPNOTSUPP"),
    ("RWF_NOAPPEND", "EOPNOTSUPP", "appended"),
    ("RWF_NOWAIT", "EOPNOTSUPP", "EOPNOTSUPP"),
    ("lease", "EINVAL", "-"),
    ("dnotify", "EINVAL", "-"),
    ("inotify", "ENOSPC", "-"),
    ("write hint", "EINVAL", "-"),
    ("name_to_handle_at", "EOPNOTSUPP", "-"),
    ("FS_IOC_GETFLAGS", "ENOTTY", "ENOTTY"),
    ("FIEMAP", "EOPNOTSUPP", "EOPNOTSUPP"),
    ("RESOLVE_BENEATH", "ENOSYS", "-"),
    ("io_uring", "ENOSYS", "-"),
    ("libaio", "EINVAL", "-"),
    ("writing to a running program", "done", "-"),
];

#[test]
fn what_differs_is_known() {
    let test = "what_differs_is_known";
    if !forebay_testkit::needs(test, &["gcc"]) {
        return;
    }
    let home = tempfile::tempdir().unwrap();
    build(home.path(), &["gcc -w -o differences \"$S/differences.c\"".to_owned()]);
    let script = home.path().join("differences.sh");
    std::fs::write(&script, "cd \"$D\" && exec \"$B/differences\"").unwrap();
    let outcomes = |mode: Mode| -> BTreeMap<String, String> {
        let ended = run(home.path(), test, "bash", &script, mode);
        assert_eq!(ended.status, Some(0), "{}{}", ended.output, ended.errors);
        ended.output.lines().filter_map(|l| l.split_once(": ")).map(|(a, b)| (a.into(), b.into())).collect()
    };
    let direct = outcomes(Mode::Direct);
    assert_eq!(direct.len(), DIFFERENCES.len());
    let mut modes = vec![(Mode::Same, outcomes(Mode::Same))];
    if can_mount(test) {
        modes.push((Mode::Mount, outcomes(Mode::Mount)));
    }
    for (mode, seen) in modes {
        for (call, library, mount) in DIFFERENCES {
            let (how, known) =
                if mode == Mode::Mount { ("the mount", mount) } else { ("the library", library) };
            // A file system or kernel that does not have it says so itself.
            let (was, is) = (&direct[call], &seen[call]);
            assert!(is == was || is == known, "{call}: {was} directly, {is} through {how}, known: {known}");
        }
    }
}

/// Whether a run can have a mount here; says so if not.
fn can_mount(name: &str) -> bool {
    let looked = Command::new(env!("CARGO_BIN_EXE_forebay")).arg("doctor").output().unwrap();
    let said = String::from_utf8_lossy(&looked.stdout).into_owned();
    let missing = said.lines().find(|l| l.starts_with("no  FUSE") || l.starts_with("no  namespaces"));
    if let Some(line) = missing {
        skipped(name, &format!("through the mount: {line}"));
    }
    missing.is_none()
}

fn run(home: &Path, name: &str, shell: &str, script: &Path, mode: Mode) -> Outcome {
    let own = home.join(match mode {
        Mode::Direct => "direct",
        Mode::Same => "same",
        Mode::Nowhere => "nowhere",
        Mode::Mount => "mount",
        Mode::MountAlone => "alone",
    });
    let (export, work, temporary) = (own.join("E"), own.join("W"), own.join("t"));
    for dir in [&export, &work, &temporary] {
        std::fs::create_dir_all(dir).unwrap();
    }
    let dir = match mode {
        Mode::Direct | Mode::Same | Mode::Mount | Mode::MountAlone => export.clone(),
        Mode::Nowhere => PathBuf::from(format!("/forebay-nowhere-{}/{name}", std::process::id())),
    };
    let report = own.join("report.json");
    let mut command = Command::new("timeout");
    command.args(["-k", "5", LIMIT_S]);
    if mode != Mode::Direct {
        let via = if matches!(mode, Mode::Mount | Mode::MountAlone) { "mount" } else { "preload" };
        command.env("FOREBAY_ACCELERATOR", if mode == Mode::Mount { "always" } else { "off" });
        command
            .arg(env!("CARGO_BIN_EXE_forebay"))
            .args(["run", "--quiet", "--via", via, "--io-nodes", "2", "--report"])
            .arg(&report);
        command.arg("--at").arg(format!("{}={}", dir.display(), export.display())).arg("--");
    }
    command.arg(shell).arg(script).current_dir(&work).stdin(Stdio::null());
    command
        .env("D", &dir)
        .env("W", &work)
        .env("B", home.join("B"))
        .env("S", sources())
        .env("TMPDIR", &temporary);
    command.env("LC_ALL", "C").env_remove("LD_LIBRARY_PATH");
    let Output { status, stdout, stderr } = command.output().unwrap();
    let neutral = |bytes: &[u8]| {
        let text = String::from_utf8_lossy(bytes).into_owned();
        text.replace(dir.to_str().unwrap(), "@D").replace(work.to_str().unwrap(), "@W")
    };
    assert_ne!(status.code(), Some(124), "{name} hangs; so far:\n{}\n{}", neutral(&stdout), neutral(&stderr));
    if mode != Mode::Direct {
        assert!(report.exists(), "{name}: no report, {status}: {}", neutral(&stderr));
        check_report(name, &report);
        assert!(
            no_run_left(&temporary),
            "{name}: a directory of the run was left behind in {}",
            temporary.display()
        );
    }
    let mut tree = BTreeMap::new();
    walk(&export, &export, &neutral, &mut tree);
    Outcome { status: status.code(), output: neutral(&stdout), errors: neutral(&stderr), tree }
}

/// The I/O nodes did the work, and nothing failed but by the file system's own answer.
fn check_report(name: &str, report: &Path) {
    let report: serde_json::Value = serde_json::from_slice(&std::fs::read(report).unwrap()).unwrap();
    let requests = |node: &serde_json::Value| {
        let flows = node["stats"]["flows"].as_array().into_iter().flatten();
        let operations = flows.flat_map(|f| f["operations"].as_object().into_iter().flatten());
        operations.map(|(_, o)| o["count"].as_u64().unwrap_or(0)).sum::<u64>()
    };
    let nodes = report["io_nodes"].as_array().unwrap();
    assert_eq!(nodes.len(), 2, "{name}");
    assert!(nodes.iter().map(requests).sum::<u64>() > 0, "{name}: nothing went through the I/O nodes");
    for note in report["not_forwarded"].as_array().unwrap() {
        assert_ne!(note["kind"], "error", "{name}: {note}");
        assert_ne!(note["kind"], "process", "{name}: {note}");
    }
}

fn no_run_left(temporary: &Path) -> bool {
    !std::fs::read_dir(temporary)
        .unwrap()
        .any(|e| e.unwrap().file_name().to_string_lossy().starts_with("forebay-"))
}

/// Everything below `dir`: type, mode, size, content or target; the time where it was set on purpose,
/// which is told by its lying in the past.
fn walk(root: &Path, dir: &Path, neutral: &dyn Fn(&[u8]) -> String, tree: &mut BTreeMap<String, String>) {
    const LONG_AGO: i64 = 1_577_836_800;
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let meta = std::fs::symlink_metadata(&path).unwrap();
        let kind = meta.file_type();
        let mut line = format!("{:o}", meta.permissions().mode() & 0o7777);
        if kind.is_symlink() {
            let target = std::fs::read_link(&path).unwrap();
            write!(line, " -> {}", neutral(target.as_os_str().as_encoded_bytes())).unwrap();
        } else if kind.is_file() {
            let content = std::fs::read(&path).unwrap();
            write!(line, " {} bytes, hash {:016x}, {} links", content.len(), hash(&content), meta.nlink())
                .unwrap();
        } else {
            write!(
                line,
                " {}",
                if kind.is_dir() {
                    "directory"
                } else if kind.is_fifo() {
                    "pipe"
                } else {
                    "special"
                }
            )
            .unwrap();
        }
        if meta.mtime() < LONG_AGO {
            write!(line, " {}.{:09}", meta.mtime(), meta.mtime_nsec()).unwrap();
        }
        tree.insert(path.strip_prefix(root).unwrap().to_string_lossy().into_owned(), line);
        if kind.is_dir() {
            walk(root, &path, neutral, tree);
        }
    }
}

fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |h, &b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3))
}

fn differences(a: &Outcome, b: &Outcome) -> String {
    let mut out = String::new();
    if a.status != b.status {
        writeln!(out, "- exit status {:?}\n+ exit status {:?}", a.status, b.status).unwrap();
    }
    let (x, y): (Vec<_>, Vec<_>) = (a.output.lines().collect(), b.output.lines().collect());
    let same_start = x.iter().zip(&y).take_while(|(p, q)| p == q).count();
    let same_end =
        x[same_start..].iter().rev().zip(y[same_start..].iter().rev()).take_while(|(p, q)| p == q).count();
    for line in x[same_start..x.len() - same_end].iter().take(20) {
        writeln!(out, "- {line}").unwrap();
    }
    for line in y[same_start..y.len() - same_end].iter().take(20) {
        writeln!(out, "+ {line}").unwrap();
    }
    for (name, line) in &a.tree {
        match b.tree.get(name) {
            Some(other) if other == line => {}
            Some(other) => writeln!(out, "- file {name}: {line}\n+ file {name}: {other}").unwrap(),
            None => writeln!(out, "- file {name}: {line}").unwrap(),
        }
    }
    for (name, line) in b.tree.iter().filter(|(name, _)| !a.tree.contains_key(*name)) {
        writeln!(out, "+ file {name}: {line}").unwrap();
    }
    out
}

/// Ctrl-C as a terminal sends it, to the whole group; and a signal to `forebay run` alone.
#[test]
fn an_interrupted_run_leaves_nothing_behind() {
    for (signal, to_group) in [("INT", true), ("TERM", false), ("HUP", false)] {
        let home = tempfile::tempdir().unwrap();
        let (export, temporary) = (home.path().join("E"), home.path().join("t"));
        std::fs::create_dir_all(&export).unwrap();
        std::fs::create_dir_all(&temporary).unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_forebay"));
        user::heeding(&mut child);
        let mut child = child
            .args(["run", "--quiet", "--io-nodes", "2", "--at"])
            .arg(&export)
            .args(["--", "sh", "-c", "echo started > \"$D/started\"; exec sleep 300"])
            .env("TMPDIR", &temporary)
            .env("D", &export)
            .process_group(0)
            .spawn()
            .unwrap();
        wait_for(|| export.join("started").exists(), "the program to start");
        let pid = i32::try_from(child.id()).unwrap();
        let target = if to_group { format!("-{pid}") } else { pid.to_string() };
        assert!(Command::new("kill").args(["-s", signal, "--", &target]).status().unwrap().success());
        let mut status = None;
        wait_for(
            || {
                status = child.try_wait().unwrap();
                status.is_some()
            },
            "the run to end",
        );
        assert_ne!(status.unwrap().code(), Some(0));
        wait_for(|| processes_with(&temporary).is_empty(), "its processes to end");
        assert!(no_run_left(&temporary), "SIG{signal}: a directory of the run was left behind");
    }
}

fn wait_for(mut condition: impl FnMut() -> bool, what: &str) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < Duration::from_secs(60), "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Processes whose environment names `dir`.
fn processes_with(dir: &Path) -> Vec<String> {
    let needle = dir.to_str().unwrap().as_bytes();
    let all = std::fs::read_dir("/proc").unwrap().filter_map(|e| e.ok()?.file_name().into_string().ok());
    all.filter(|pid| pid.bytes().all(|b| b.is_ascii_digit()))
        .filter(|pid| {
            let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            environment.windows(needle.len()).any(|w| w == needle)
        })
        .collect()
}
