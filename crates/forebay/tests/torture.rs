//! A short torture: processes at work, nodes that break, and nothing that cannot be. `forebay torture --full`
//! is the long one.

use forebay_testkit::{Process, program};
use std::io::Read;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

#[test]
fn every_promise_is_kept_for_a_while() {
    let out = Command::new(program()).args(["torture", "--seconds", "15", "--seed", "3"]).output().unwrap();
    let said = String::from_utf8_lossy(&out.stdout);
    println!("{said}{}", String::from_utf8_lossy(&out.stderr));
    assert!(out.status.success(), "{}", out.status);
    let figure = |what: &str| -> u64 {
        let line = said.lines().find(|l| l.starts_with(what)).unwrap_or_default();
        line[what.len().min(line.len())..].split_whitespace().next().and_then(|n| n.parse().ok()).unwrap_or(0)
    };
    // A torture that does nothing finds nothing.
    assert!(figure("faults") > 5 && figure("operations judged") > 500, "it did next to nothing");
}

/// An etcd that is broken is told of soon, and the rest goes on without it.
#[test]
fn an_etcd_that_ends_at_once_is_noticed() {
    let dir = tempfile::tempdir().unwrap();
    let etcd = dir.path().join("etcd");
    std::fs::write(&etcd, "#!/bin/sh\necho I am broken >&2\nexit 3\n").unwrap();
    std::fs::set_permissions(&etcd, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", dir.path().display(), std::env::var("PATH").unwrap());
    let began = Instant::now();
    let out = Command::new(program()).args(["torture", "--seconds", "1"]).env("PATH", path).output().unwrap();
    let said = String::from_utf8_lossy(&out.stdout);
    let skipped = "SKIPPED: kill an etcd member: etcd ended (exit status: 3): I am broken";
    assert!(said.contains(skipped), "{said}{}", String::from_utf8_lossy(&out.stderr));
    assert!(began.elapsed() < Duration::from_secs(60), "it waited for {:?}", began.elapsed());
}

#[test]
fn a_signal_ends_it_and_nothing_is_left() {
    let mut command = Command::new(program());
    command.args(["torture", "--seconds", "600"]).stdout(Stdio::null());
    let mut torture = Process::start(&mut command).unwrap();
    let dirs = || {
        let name = format!("forebay-{}-", torture.id());
        let all = std::fs::read_dir("/dev/shm").into_iter().flatten().flatten();
        all.filter(|e| e.file_name().to_string_lossy().starts_with(&name))
            .map(|e| e.path())
            .collect::<Vec<_>>()
    };
    let until = Instant::now() + Duration::from_secs(60);
    let dir = loop {
        match dirs().into_iter().find(|d| d.join("history/all0.0").exists()) {
            Some(dir) => break dir,
            None if Instant::now() > until => panic!("no worker began"),
            None => std::thread::sleep(Duration::from_millis(20)),
        }
    };
    torture.ask_to_end();
    let status = torture.wait_for(Duration::from_secs(20)).unwrap().expect("it ends");
    assert!(!status.success());
    assert!(!dir.exists(), "its directory is gone");
    // Nobody is left who was told of that directory.
    let gone = || {
        let mine = |entry: std::fs::DirEntry| {
            let mut text = Vec::new();
            let file = std::fs::File::open(entry.path().join("cmdline"));
            file.and_then(|mut f| f.read_to_end(&mut text)).is_ok()
                && String::from_utf8_lossy(&text).contains(dir.to_string_lossy().as_ref())
        };
        !std::fs::read_dir("/proc").unwrap().flatten().any(mine)
    };
    while !gone() {
        assert!(Instant::now() < until + Duration::from_secs(30), "a process is left");
        std::thread::sleep(Duration::from_millis(20));
    }
}
