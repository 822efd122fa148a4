//! What a new user stumbles over when something ends, is stopped, or lives on.

mod user;

use forebay_testkit::{ArbiterSpec, Site, ends_within_a_second, free_address, skipped};
use rustix::process::{Pid, Signal};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};
use user::{asked_to_end, ended, forebay, outcome, refused, run, run_directories, secret, signal, until};

fn text(path: &Path) -> String {
    path.display().to_string()
}

/// The children of a process whose command line has this word.
fn children(pid: u32, word: &str) -> Vec<u32> {
    let list = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    let line = |p: &u32| std::fs::read_to_string(format!("/proc/{p}/cmdline")).unwrap_or_default();
    let with = |p: &u32| line(p).split('\0').any(|w| w == word);
    list.split_whitespace().filter_map(|p| p.parse().ok()).filter(with).collect()
}

/// What a process that outlives the run starts is not forwarded any more, and does not write elsewhere instead.
#[test]
fn who_is_left_behind_writes_nowhere_else() {
    let dir = tempfile::tempdir().unwrap();
    let (seen, export, said) = (dir.path().join("seen"), dir.path().join("export"), dir.path().join("said"));
    std::fs::create_dir(&seen).unwrap();
    std::fs::create_dir(&export).unwrap();
    let go = dir.path().join("go");
    let script = format!(
        "(until [ -e {go} ]; do sleep 0.05; done; /bin/cp /etc/hostname {seen}/late; echo $? > {said}) \
         </dev/null >/dev/null 2>&1 & echo y > {seen}/early",
        go = go.display(),
        seen = seen.display(),
        said = said.display()
    );
    let at = format!("{}={}", seen.display(), export.display());
    let child = forebay(&[
        "run",
        "--quiet",
        "--via",
        "preload",
        "--deadline",
        "2",
        "--at",
        &at,
        "--",
        "sh",
        "-c",
        &script,
    ]);
    let child = { child }.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let pid = child.id();
    assert_eq!(ended(child).code(), Some(0));
    std::fs::write(&go, "").unwrap();
    until("it has tried", || std::fs::read_to_string(&said).is_ok_and(|s| s.ends_with('\n')));
    assert_ne!(std::fs::read_to_string(&said).unwrap(), "0\n", "it was told that all is well");
    assert!(!seen.join("late").exists() && !export.join("late").exists());
    assert!(export.join("early").exists());
    until("what was kept for it goes with it", || run_directories(pid).is_empty());
}

/// An I/O node that answers nobody does not keep whoever wants the program to end.
#[test]
fn a_run_ends_though_its_node_is_stopped() {
    let dir = tempfile::tempdir().unwrap();
    let file = text(&dir.path().join("f"));
    let vias: &[&str] = match run(&["doctor"]).1.contains("no  namespaces") {
        true => &["preload"],
        false => &["preload", "mount"],
    };
    for via in vias {
        ends_within_a_second(via, || {
            let script = format!("while :; do echo x >> {file}; done");
            let args = ["run", "--quiet", "--via", via, "--at", &text(dir.path()), "--", "sh", "-c", &script];
            let child = forebay(&args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
            let pid = child.id();
            until("it writes", || std::fs::metadata(&file).is_ok_and(|m| m.len() > 100));
            let node = children(pid, "node")[0];
            rustix::process::kill_process(Pid::from_raw(node as i32).unwrap(), Signal::STOP).unwrap();
            let length = || std::fs::metadata(&file).unwrap().len();
            until("it waits", || {
                let before = length();
                std::thread::sleep(std::time::Duration::from_millis(100));
                length() == before
            });
            let (status, took) = asked_to_end(child, Signal::TERM);
            assert_eq!(status.code(), Some(143), "{via}");
            assert!(run_directories(pid).is_empty(), "{via} left its directory behind");
            std::fs::remove_file(&file).unwrap();
            took
        });
    }
}

#[test]
fn signals_that_have_only_a_number_are_the_programs_too() {
    let dir = tempfile::tempdir().unwrap();
    let (at, ready) = (text(dir.path()), dir.path().join("ready"));
    for (name, number) in [("RTMIN+6", 40), ("IO", 29), ("PWR", 30), ("XFSZ", 25)] {
        let script =
            format!("trap 'exit 77' {name}; touch {}; while :; do sleep 0.05; done", ready.display());
        let child = forebay(&["run", "--quiet", "--at", &at, "--", "bash", "-c", &script]);
        let child = { child }.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let pid = child.id();
        until("it runs", || ready.exists());
        // SAFETY: kill(2) of our own child.
        assert_eq!(unsafe { libc::kill(pid as i32, number) }, 0);
        assert_eq!(ended(child).code(), Some(77), "{name}");
        assert!(run_directories(pid).is_empty(), "{name} left its directory behind");
        std::fs::remove_file(&ready).unwrap();
    }
    // A run that may write no file says so, and leaves none.
    let script = "ulimit -f 0; exec \"$0\" run --quiet --at \"$1\" -- true";
    let mut child = Command::new("sh");
    child.args(["-c", script, env!("CARGO_BIN_EXE_forebay"), &at]);
    let child = child.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let pid = child.id();
    let (status, _, said) = outcome(&child.wait_with_output().unwrap());
    assert!(status == Some(125) && said.contains("File too large"), "{status:?}: {said}");
    assert!(run_directories(pid).is_empty());
}

#[test]
fn top_ends_though_its_arbiter_is_stopped() {
    let site = Site::new();
    let arbiter = site.arbiter(&ArbiterSpec::default());
    let url = arbiter.url().to_owned();
    ends_within_a_second("top", || {
        let log = site.path().join("top.log");
        let out = std::fs::File::create(&log).unwrap();
        let child = forebay(&["top", "--interval", "0.1", "--arbiter", &url]).stdout(out).spawn().unwrap();
        until("it looks", || std::fs::read_to_string(&log).is_ok_and(|s| s.lines().count() > 2));
        arbiter.process.freeze().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(300));
        let (status, took) = asked_to_end(child, Signal::TERM);
        arbiter.process.thaw().unwrap();
        assert_eq!(status.code(), Some(143));
        took
    });
}

#[test]
fn what_is_mistyped_is_said_before_anything_is_done() {
    let dir = tempfile::tempdir().unwrap();
    let at = text(dir.path());
    refused(
        &["doctor", "--nod", "tcp:127.0.0.1:1", "--", "/bin/true"],
        2,
        &["unexpected argument '--nod'", "'--node'"],
    );
    let (status, said, _) = run(&["doctor", "--", "/etc/passwd"]);
    assert!(status == Some(1) && said.contains("may not be executed"), "{said}");
    let none = text(&dir.path().join("none/deep"));
    refused(&["run", "--share", &none, "--at", &at, "--", "true"], 125, &["--share", "no such directory"]);
    assert!(!dir.path().join("none").exists());
}

/// A node with few descriptors takes no more connections than those allow, and whoever has shown no secret gives way.
#[test]
fn idle_connections_keep_nobody_out_of_a_node_with_few_descriptors() {
    let dir = tempfile::tempdir().unwrap();
    let (secret, ready, log) = (secret(dir.path()), dir.path().join("ready"), dir.path().join("log"));
    let script = "ulimit -n 64; exec \"$0\" node --listen tcp:127.0.0.1:0 --export \"$1\" --secret-file \"$2\" --ready-file \"$3\" --as self";
    let mut node = Command::new("sh");
    node.args(["-c", script, env!("CARGO_BIN_EXE_forebay"), &text(dir.path()), &secret, &text(&ready)]);
    let node = node.stdout(Stdio::null()).stderr(std::fs::File::create(&log).unwrap()).spawn().unwrap();
    until("it listens", || ready.exists());
    let told: serde_json::Value = serde_json::from_slice(&std::fs::read(&ready).unwrap()).unwrap();
    let address = told["addresses"][0].as_str().unwrap().trim_start_matches("tcp:").to_owned();
    let idle: Vec<_> = (0..80).map(|_| std::net::TcpStream::connect(&address)).collect();
    let stats = ["node", "stats", &format!("tcp:{address}"), "--secret-file", &secret];
    let (status, _, says) = run(&stats);
    assert_eq!(status, Some(0), "{says}");
    drop(idle);
    signal(&node, Signal::TERM);
    ended(node);
    let log = std::fs::read_to_string(&log).unwrap();
    assert!(log.contains("the limit of open files is 64") && !log.contains("cannot accept"), "{log}");
}

/// Whoever reads what a mount in the background says is not kept waiting by it.
#[test]
fn a_mount_in_the_background_lets_go_of_its_output() {
    if !rustix::process::geteuid().is_root() || run(&["doctor"]).1.contains("no  FUSE") {
        return skipped("a_mount_in_the_background_lets_go_of_its_output", "needs root and FUSE");
    }
    let dir = tempfile::tempdir().unwrap();
    let (at, export) = (dir.path().join("at"), dir.path().join("export"));
    std::fs::create_dir(&at).unwrap();
    std::fs::create_dir(&export).unwrap();
    let place = format!("{}={}", at.display(), export.display());
    // Its output ends when nobody has it any more.
    let out = forebay(&["mount", "--background", "--at", &place]).output().unwrap();
    let (status, _, said) = outcome(&out);
    assert!(status == Some(0) && said.contains("mounted on"), "{said}");
    let pid = said.split("process ").nth(1).and_then(|s| s.split(' ').next()).unwrap().parse().unwrap();
    std::fs::write(at.join("f"), "through").unwrap();
    assert_eq!(std::fs::read_to_string(export.join("f")).unwrap(), "through");
    rustix::process::kill_process(Pid::from_raw(pid).unwrap(), Signal::TERM).unwrap();
    until("it is unmounted", || !std::fs::read_to_string("/proc/self/mounts").unwrap().contains(&text(&at)));
    // What fails is told.
    let (status, _, said) = run(&["mount", "--background", "--at", "/nonexist/x=/nonexist/y"]);
    assert!(status != Some(0) && said.contains("nonexist"), "{status:?} {said}");
}

/// Without a thread to be had, there is a sentence, and the status of what was not started.
#[test]
fn what_has_no_threads_says_so() {
    if !rustix::process::geteuid().is_root() || Command::new("setpriv").arg("--version").output().is_err() {
        return skipped("what_has_no_threads_says_so", "needs root, and setpriv to become another user");
    }
    let dir = tempfile::tempdir().unwrap();
    std::os::unix::fs::chown(dir.path(), Some(64_321), Some(64_321)).unwrap();
    let script = "cd \"$1\" && mkdir -p at && ulimit -u 1 && shift && \
                  exec setpriv --reuid 64321 --regid 64321 --clear-groups \"$@\"";
    let simulate = format!("{}/../../data/santosdumont.csv", env!("CARGO_MANIFEST_DIR"));
    let commands: [(&[&str], i32); 3] = [
        (&["run", "-q", "--at", "at", "--", "true"], 125),
        (&["jobs", "--arbiter", "http://127.0.0.1:1"], 1),
        (&["simulate", "policies", "--sets", "10", &simulate], 1),
    ];
    // Where another user reaches it.
    let program = dir.path().join("forebay");
    std::fs::copy(env!("CARGO_BIN_EXE_forebay"), &program).unwrap();
    for (args, status) in commands {
        let mut sh = Command::new("bash");
        sh.args(["-c", script, "sh"]).arg(dir.path()).arg(&program).args(args);
        let (found, _, said) = outcome(&sh.output().unwrap());
        assert_eq!(found, Some(status), "{args:?}: {said}");
        assert!(said.contains("cannot start a thread") && !said.contains("panicked"), "{args:?}: {said}");
    }
}

/// An arbiter that stands by does not wait for an etcd that nobody hears of.
#[test]
fn an_arbiter_ends_whether_etcd_answers_or_not() {
    let dir = tempfile::tempdir().unwrap();
    let (secret, state) = (secret(dir.path()), text(&dir.path().join("state")));
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let etcd = format!("etcd://{}", silent.local_addr().unwrap());
    ends_within_a_second("an arbiter without etcd", || {
        let args = [
            "arbiter",
            "--listen",
            "127.0.0.1:0",
            "--state",
            &state,
            "--secret-file",
            &secret,
            "--ha",
            &etcd,
        ];
        let mut arbiter = forebay(&args).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        let out = arbiter.stdout.take().unwrap();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(out), &mut line).unwrap();
        let since = std::time::Instant::now();
        signal(&arbiter, Signal::TERM);
        ended(arbiter);
        since.elapsed()
    });
}

/// A mount of root's whose I/O node acts for somebody else can give nothing to whoever makes it: what fails is not there.
#[test]
fn what_a_mount_may_not_give_away_is_not_made() {
    const NAME: &str = "what_a_mount_may_not_give_away_is_not_made";
    if !rustix::process::geteuid().is_root() || run(&["doctor"]).1.contains("no  FUSE") {
        return skipped(NAME, "needs root and FUSE");
    }
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let (at, export, ready) = (dir.path().join("at"), dir.path().join("export"), dir.path().join("ready"));
    std::fs::create_dir(&at).unwrap();
    std::fs::create_dir(&export).unwrap();
    std::os::unix::fs::chown(&export, Some(65_534), Some(65_534)).unwrap();
    let secret = secret(dir.path());
    let listen = ["node", "--listen", "tcp:127.0.0.1:0", "--as", "nobody", "--secret-file", &secret];
    let node = forebay(&[&listen[..], &["--export", &text(&export), "--ready-file", &text(&ready)]].concat())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    until("it listens", || ready.exists());
    let told: serde_json::Value = serde_json::from_slice(&std::fs::read(&ready).unwrap()).unwrap();
    let (address, place) =
        (told["addresses"][0].as_str().unwrap(), format!("{}={}", at.display(), export.display()));
    let mount = ["mount", "--background", "--at", &place, "--node", address, "--secret-file", &secret];
    let (status, _, said) = run(&mount);
    assert_eq!(status, Some(0), "{said}");
    for made in ["mkdir made", "echo x > made", "ln -s x made", "mkfifo made"] {
        let failed = Command::new("sh").args(["-c", made]).current_dir(&at).stderr(Stdio::null()).status();
        assert!(!failed.unwrap().success(), "{made}");
        assert_eq!(std::fs::read_dir(&export).unwrap().count(), 0, "{made}");
    }
    let pid = said.split("process ").nth(1).and_then(|s| s.split(' ').next()).unwrap().parse().unwrap();
    rustix::process::kill_process(Pid::from_raw(pid).unwrap(), Signal::TERM).unwrap();
    until("it is unmounted", || !std::fs::read_to_string("/proc/self/mounts").unwrap().contains(&text(&at)));
    signal(&node, Signal::TERM);
    ended(node);
}

/// Whether a process watches for SIGTERM.
fn watches(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let caught = status.lines().find_map(|l| l.strip_prefix("SigCgt:"));
    caught.and_then(|set| u64::from_str_radix(set.trim(), 16).ok()).is_some_and(|set| set >> 14 & 1 == 1)
}

/// `forebay mount`, which waits for what does not come, is asked to end: it does so at once, says nothing, and leaves
/// nothing, in the background neither.
fn a_mount_that_waits_ends(what: &str, more: &[&str]) {
    let dir = tempfile::tempdir().unwrap();
    let (at, said) = (dir.path().join("at"), dir.path().join("said"));
    std::fs::create_dir(&at).unwrap();
    let place = format!("{}=data", at.display());
    for (how, name) in [(Signal::TERM, "SIGTERM"), (Signal::INT, "SIGINT")] {
        for background in [false, true] {
            let what = format!("mount, {what}, {name}, background: {background}");
            ends_within_a_second(&what, || {
                let args = ["mount", "--at", &place].into_iter().chain(more.iter().copied());
                let args: Vec<&str> = args.chain(background.then_some("--background")).collect();
                let file = std::fs::File::create(&said).unwrap();
                let child = forebay(&args).stdout(Stdio::null()).stderr(file).spawn().unwrap();
                let mut all = vec![child.id()];
                if background {
                    until("there is one in the background", || {
                        all.truncate(1);
                        all.extend(children(child.id(), "mount"));
                        all.len() == 2
                    });
                }
                until("it watches for signals", || all.last().is_some_and(|pid| watches(*pid)));
                std::thread::sleep(std::time::Duration::from_millis(300));
                let (status, took) = asked_to_end(child, how);
                let says = std::fs::read_to_string(&said).unwrap();
                assert_eq!((status.code(), says.as_str()), (Some(128 + how.as_raw()), ""), "{what}");
                for pid in all {
                    assert!(!Path::new(&format!("/proc/{pid}")).exists(), "{what}: {pid} is left");
                    assert!(run_directories(pid).is_empty(), "{what} left its directory behind");
                }
                took
            });
        }
    }
    assert!(!std::fs::read_to_string("/proc/self/mounts").unwrap().contains(&text(&at)));
}

#[test]
fn a_mount_ends_while_it_waits_for_an_arbiter() {
    let site = Site::new();
    let secret = text(&site.secret_file());
    let waits = |what: &str, url: &str| {
        a_mount_that_waits_ends(what, &["--arbiter", url, "--secret-file", &secret]);
    };
    waits("nobody listens", &format!("http://{}", free_address()));
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    waits("a silent arbiter", &format!("http://{}", silent.local_addr().unwrap()));
    let arbiter = site.arbiter(&ArbiterSpec::default());
    waits("no I/O nodes", arbiter.url());
    arbiter.process.freeze().unwrap();
    waits("a stopped arbiter", arbiter.url());
    arbiter.process.thaw().unwrap();
}

#[test]
fn a_mount_ends_while_it_waits_for_a_node() {
    let site = Site::new();
    let secret = text(&site.secret_file());
    let waits = |what: &str, node: &str| {
        a_mount_that_waits_ends(what, &["--node", node, "--secret-file", &secret]);
    };
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("tcp:{}", silent.local_addr().unwrap());
    waits("a silent node", &address);
    // Of which no more is known than that.
    let at = format!("{}=data", site.path().display());
    let mount = ["mount", "--node", &address, "--secret-file", &secret, "--deadline", "1", "--at", &at];
    let (status, _, says) = run(&mount);
    assert!(status == Some(1) && says.contains(" ms: are the I/O nodes running?"), "{says}");
    let node = site.node_with(0, &[]);
    node.process.freeze().unwrap();
    waits("a stopped node", &node.addresses()[0].to_string());
    node.process.thaw().unwrap();
}
