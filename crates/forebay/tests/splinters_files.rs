//! What belongs to somebody stays: files that are in the way, that are read, or that a full disk would cost; and nothing is
//! left of what did not come about.

mod user;

use forebay_testkit::Signal;
use std::os::unix::fs::{FileTypeExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use user::{ended, forebay, outcome, refused, repository, run, secret, signal, until};

fn text(path: &Path) -> String {
    path.display().to_string()
}

fn content(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap()
}

/// A directory with a secret, and an I/O node's arguments for it.
struct Home {
    dir: tempfile::TempDir,
    secret: String,
}

impl Home {
    fn new() -> Home {
        let dir = tempfile::tempdir().unwrap();
        let secret = secret(dir.path());
        std::fs::create_dir(dir.path().join("export")).unwrap();
        Home { dir, secret }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn node(&self, listen: &str, more: &[&str]) -> Vec<String> {
        let (at, ledgers) = (text(&self.path("export")), text(&self.path("ledgers")));
        let listen = format!("unix:{}", text(&self.path(listen)));
        let args = ["node", "--as", "self", "--listen", &listen, "--export", &at, "--ledger-dir", &ledgers];
        let args = args.into_iter().chain(["--secret-file", &self.secret]).chain(more.iter().copied());
        args.map(str::to_owned).collect()
    }
}

#[test]
fn only_a_socket_that_nobody_listens_on_is_replaced() {
    let home = Home::new();
    std::fs::write(home.path("results"), "months").unwrap();
    symlink("results", home.path("link")).unwrap();
    let user = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    let fifo = home.path("fifo");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, user, 0).unwrap();
    for taken in ["results", "link", "fifo", "export"] {
        refused(&home.node(taken, &[]), 1, &["cannot listen on unix:", taken, "no socket"]);
    }
    assert_eq!(content(&home.path("results")), "months");
    assert!(home.path("link").is_symlink() && fifo.metadata().unwrap().file_type().is_fifo());
    drop(UnixListener::bind(home.path("stale")).unwrap());
    let ready = home.path("ready");
    let node = forebay(&home.node("stale", &["--ready-file", &text(&ready)])).spawn().unwrap();
    until("it listens", || ready.exists());
    signal(&node, Signal::TERM);
    assert!(ended(node).success() && !home.path("stale").exists());
}

#[test]
fn what_is_read_is_not_written_to() {
    let home = Home::new();
    let (secret, config) = (&home.secret, text(&home.path("config")));
    let before = content(Path::new(secret));
    let settings = format!("secret-file = \"{secret}\"\n");
    std::fs::write(&config, &settings).unwrap();
    let is_read = ["is read: give another file to write to"];
    for option in ["--report", "--darshan"] {
        let job = ["run", "--arbiter", "http://127.0.0.1:1", "--at", "/xx=x", option, secret, "--", "true"];
        refused(&[&["run", "--secret-file", secret], &job[1..]].concat(), 125, &is_read);
        let named = forebay(&job).env("FOREBAY_SECRET_FILE", secret).output().unwrap();
        let (status, _, says) = outcome(&named);
        assert!(status == Some(125) && says.contains(is_read[0]), "{says}");
    }
    for option in ["--stats-file", "--ready-file"] {
        refused(&home.node("s", &[option, secret]), 1, &is_read);
        refused(&home.node("s", &["--config", &config, option, &config]), 1, &is_read);
        // The configuration names the secret.
        let (at, listen) = (text(&home.path("export")), format!("unix:{}", text(&home.path("s"))));
        let node = ["node", "--config", &config, "--listen", &listen, "--export", &at, option, secret];
        refused(&[&node[..], &["--as", "self"]].concat(), 1, &is_read);
    }
    refused(&["learned", &config, "--svg", &config], 1, &is_read);
    assert_eq!((content(Path::new(secret)), content(Path::new(&config))), (before, settings));
}

/// Nobody waits for somebody who may never come: a FIFO that is not read is refused before anything runs, and one that is read has
/// the report.
#[test]
fn a_fifo_is_not_waited_for() {
    let home = Home::new();
    let (fifo, ran) = (home.path("fifo"), home.path("ran"));
    let user = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, user, 0).unwrap();
    let at = text(&home.path("export"));
    let job = |option: &str| {
        let args = ["run", "--quiet", "--at", &at, option, &text(&fifo), "--", "touch", &text(&ran)];
        args.map(str::to_owned)
    };
    for option in ["--report", "--darshan", "--record"] {
        refused(&job(option), 125, &[option, "a FIFO that nobody reads"]);
    }
    assert!(!ran.exists(), "nothing ran");
    let reader = Command::new("cat").arg(&fifo).stdout(Stdio::piped()).spawn().unwrap();
    until("somebody reads", || {
        let flags = rustix::fs::OFlags::WRONLY | rustix::fs::OFlags::NONBLOCK;
        let run = || forebay(&job("--report")).output().unwrap();
        // The reader is there as soon as this does not fail; it ends with the last who writes.
        rustix::fs::open(&fifo, flags, rustix::fs::Mode::empty()).is_ok_and(|held| {
            let (status, _, says) = outcome(&run());
            assert!(status == Some(0) && says.is_empty(), "{says}");
            drop(held);
            true
        })
    });
    let report = reader.wait_with_output().unwrap().stdout;
    let report: serde_json::Value = serde_json::from_slice(&report).unwrap();
    assert!(report["status"] == 0 && ran.exists(), "{report}");
}

#[test]
fn files_that_do_not_say_how_long_they_are_are_not_forwarded() {
    let home = Home::new();
    let proc = ["proc, whose files do not say how long they are"];
    for via in ["preload", "mount"] {
        let cat = ["run", "--quiet", "--via", via, "--at", "/proc", "--", "cat", "/proc/version"];
        refused(&cat, 125, &proc);
    }
    refused(&["run", "--at", "/data=/sys", "--", "true"], 125, &["sysfs, whose files"]);
    refused(&["mount", "--at", &format!("{}=/proc", text(&home.path("export")))], 1, &proc);
    refused(&home.node("s", &["--export", "/proc=p"]), 1, &proc);
    // Nor where they are mounted within what is: for root, who may.
    let at = text(&home.path("export"));
    let script = format!(
        "mkdir {at}/p && mount --bind /proc {at}/p || exit 99; exec {} run --quiet --at {at} -- cat {at}/p/version",
        env!("CARGO_BIN_EXE_forebay")
    );
    let within = Command::new("unshare").args(["-m", "sh", "-c", &script]).output();
    match within.map(|done| outcome(&done)) {
        Ok((Some(1), said, why)) if !why.contains("unshare: ") => {
            assert!(said.is_empty() && why.contains("not supported"), "{said}{why}");
        }
        Ok((Some(0), said, why)) => panic!("{said}{why}"),
        other => forebay_testkit::skipped("files of the kernel within an export", &format!("{other:?}")),
    }
}

#[test]
fn a_node_that_does_not_start_leaves_no_socket() {
    let home = Home::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let (tcp, unix) = (format!("tcp:{address}"), format!("unix:{}", text(&home.path("s"))));
    for more in [["--listen", &tcp], ["--listen", &unix], ["--metrics", &address], ["--ready-fd", "2"]] {
        refused(&home.node("s", &more), 1, &[]);
        assert!(!home.path("s").exists(), "{more:?}");
    }
}

/// As `timeout` sends it: to the process, and to its group.
#[test]
fn a_signal_that_comes_twice_at_once_is_one() {
    let home = Home::new();
    let (ready, stats) = (home.path("ready"), home.path("stats"));
    for _ in 0..3 {
        let more = ["--ready-file", &text(&ready), "--stats-file", &text(&stats)];
        let node = forebay(&home.node("s", &more)).stderr(Stdio::null()).spawn().unwrap();
        until("it listens", || ready.exists());
        signal(&node, Signal::TERM);
        signal(&node, Signal::INT);
        assert_eq!(ended(node).code(), Some(0));
        assert!(!home.path("s").exists() && stats.exists());
        std::fs::remove_file(&ready).unwrap();
        std::fs::remove_file(&stats).unwrap();
    }
}

/// The program where nothing more can be written to any file, as on a full disk.
fn on_a_full_disk(args: &[&str]) -> (Option<i32>, String, String) {
    let mut full = Command::new("sh");
    full.args(["-c", "trap '' XFSZ; ulimit -f 0; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_forebay")]);
    outcome(&full.args(args).output().unwrap())
}

/// What a command writes as several files, it writes whole, or not at all.
#[test]
fn a_full_disk_leaves_no_half_of_a_file() {
    let (args, there) = (&["reproduce", "forge-best-0", "--out"][..], "forge.json");
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join(there);
    std::fs::write(&file, "the former one").unwrap();
    let (status, said, says) = on_a_full_disk(&[args, &[&text(dir.path())]].concat());
    assert_eq!((status, said.as_str()), (Some(1), ""), "{args:?}: {says}");
    let told = says.starts_with("forebay: cannot write ") && says.contains("File too large");
    assert!(told && says.lines().count() == 1, "{args:?}: {says}");
    assert_eq!(content(&file), "the former one", "{args:?}");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "{args:?}");
}

#[test]
fn what_cannot_be_replaced_stays() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    std::fs::write(&out, "the former one").unwrap();
    let (out_text, data) = (text(&out), repository("data/santosdumont.csv"));
    for args in [
        &["train", "--synthetic", "--kind", "tree", "--out", &out_text][..],
        &["train", "--synthetic", "--save-data", &out_text],
        &["analyze", &data, "--curves", &out_text],
        &["analyze", &data, "--html", &out_text],
        &["simulate", "queue", "--plot", &out_text],
    ] {
        let (status, _, says) = on_a_full_disk(args);
        assert_eq!(status, Some(1), "{args:?}: {says}");
        assert!(says.contains("cannot write ") && says.contains("File too large"), "{args:?}: {says}");
        assert_eq!(content(&out), "the former one", "{args:?}");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "{args:?}");
    }
}

#[test]
fn rows_that_are_none_replace_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (bad, rows) = (dir.path().join("bad.csv"), dir.path().join("rows.csv"));
    std::fs::write(&bad, "nope\n").unwrap();
    std::fs::write(&rows, "mine").unwrap();
    let args = ["train", &text(&bad), "--save-data", &text(&rows)];
    refused(&args, 1, &["bad.csv is not a file of labelled metrics", "it has no rows"]);
    assert_eq!(content(&rows), "mine");
}

#[test]
fn what_was_measured_is_kept_though_nobody_listens() {
    let dir = tempfile::tempdir().unwrap();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let out = dir.path().join("profile");
    let args = ["profile", "--quick", "--out", &text(&out), &text(dir.path())];
    let (status, _, says) = outcome(&forebay(&args).stdout(writer).stderr(Stdio::piped()).output().unwrap());
    assert_eq!(status, Some(141), "{says}");
    assert!(content(&out.join("profile.toml")).contains("scheduler"));
}

#[test]
fn benches_measure_what_they_are_told_where_they_are_told() {
    let dir = tempfile::tempdir().unwrap();
    refused(
        &["bench", "path", "--quick", "--only", "zzz"],
        1,
        &["--only zzz: no row", "stat, free; ", "idle"],
    );
    refused(&["bench", "path", "--front-ends", "--only", "one core"], 1, &["no row", "start-up of a run"]);
    refused(&["bench", "records", "--dir", "no/such"], 2, &["--dir", "No such file"]);
    let idle = ["bench", "path", "--quick", "--repeat", "1", "--only", "I/O node, idle", "--dir", "."];
    let (status, says, why) = outcome(&forebay(&idle).current_dir(dir.path()).output().unwrap());
    assert_eq!(status, Some(0), "{why}");
    assert!(says.contains("I/O node, idle") && !says.contains("connections"), "{says}");
    assert!(!says.contains("start-up") && !says.contains("stat"), "{says}");
}

#[test]
fn nothing_is_measured_within_a_run() {
    let dir = tempfile::tempdir().unwrap();
    let (at, program) = (text(dir.path()), env!("CARGO_BIN_EXE_forebay"));
    for inner in [
        &["bench", "records", "--quick", "--dir", &at][..],
        &["bench", "path", "--quick"],
        &["profile", "--quick", &at],
        &["train", "--small"],
        &["experiment", "metadata", "--quick"],
        &["reproduce", "--all"],
        &["torture", "--seconds", "1"],
    ] {
        let args = [&["run", "--quiet", "--at", &at, "--", program], inner].concat();
        refused(&args, 1, &["inside of `forebay run`"]);
    }
    // What only computes may be anywhere.
    let (status, _, says) = run(&["run", "--quiet", "--at", &at, "--", program, "simulate", "queue"]);
    assert_eq!(status, Some(0), "{says}");
}

/// Limits of whoever starts it are errors like others: in one sentence, in time, with nothing left.
#[test]
fn limits_of_files_and_memory_end_a_command_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let (data, tmp) = (dir.path().join("data"), dir.path().join("tmp"));
    for (limit, args) in [
        ("-f 100", &["profile", "--quick", "--out", "out", "data"][..]),
        ("-f 0", &["bench", "records", "--quick"]),
        ("-v 300000", &["profile", "--quick", "--out", "out", "data"]),
    ] {
        std::fs::create_dir_all(&data).unwrap();
        std::fs::create_dir_all(&tmp).unwrap();
        let mut limited = Command::new("bash");
        limited.args(["-c", &format!("ulimit {limit}; exec timeout 60 \"$@\""), "sh"]);
        limited.arg(forebay(args).get_program()).args(args).current_dir(dir.path()).env("TMPDIR", &tmp);
        limited.env_remove("RUST_BACKTRACE");
        let (status, _, says) = outcome(&limited.stdin(Stdio::null()).output().unwrap());
        assert!(matches!(status, Some(0 | 1 | 101)), "{limit} {args:?}: {status:?} {says}");
        for place in [&data, &tmp] {
            assert_eq!(std::fs::read_dir(place).unwrap().count(), 0, "{limit} {args:?} left something");
        }
    }
}

/// A link that somebody else has put into a directory to which everybody may write leads nowhere.
#[test]
fn what_others_have_planted_is_not_written_through() {
    if !rustix::process::geteuid().is_root() {
        return forebay_testkit::skipped("links of other users", "this is not root");
    }
    let home = Home::new();
    let (open, kept) = (home.path("open"), home.path("kept"));
    std::fs::create_dir(&open).unwrap();
    std::fs::set_permissions(&open, std::os::unix::fs::PermissionsExt::from_mode(0o1777)).unwrap();
    std::fs::write(&kept, "precious").unwrap();
    symlink(&kept, open.join("link")).unwrap();
    std::os::unix::fs::lchown(open.join("link"), Some(65534), None).unwrap();
    for option in ["--ready-file", "--stats-file"] {
        let args = home.node("tcp:127.0.0.1:0", &[option, &text(&open.join("link"))]);
        refused(&args, 1, &["a link of user 65534"]);
        assert_eq!(content(&kept), "precious");
    }
}
