//! Hosts on one machine: apart from each other where they must be, together where they must be, and gone
//! with the test.

use forebay_testkit::{Hosts, SSH, until};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn hosts_are_apart_but_for_the_shared_directory() {
    let Some(hosts) = Hosts::up("hosts_are_apart", &["a", "b"]) else { return };
    for name in ["a", "b"] {
        assert_eq!(hosts.ok(name, "uname -n").trim(), name);
        hosts.ok(name, "touch /tmp/mine-$(uname -n) /run/mine-$(uname -n) /dev/shm/mine-$(uname -n) /mnt/all-$(uname -n)");
    }
    assert_eq!(hosts.ok("a", "ls /tmp /run /dev/shm | grep mine").matches("mine-a").count(), 3);
    assert_eq!(hosts.ok("b", "ls /mnt").trim(), "all-a\nall-b\nhome");
    assert!(hosts.shared().join("all-b").exists());
    let there = hosts.ok("a", &format!("{SSH} -x b 'uname -n; echo $HOME; exit 7' || echo $?"));
    assert_eq!(there, "b\n/mnt/home\n7\n");
}

#[test]
fn a_link_is_cut_and_mended_and_a_host_dies() {
    let Some(hosts) = Hosts::up("a_link_is_cut", &["a", "b"]) else { return };
    let reached = || {
        let connect = "timeout 1 bash -c 'echo > /dev/tcp/b/9' 2>&1";
        let said = String::from_utf8_lossy(&hosts.sh("a", connect).stdout).into_owned();
        // Nobody listens: a host that is there says so.
        said.contains("refused")
    };
    until(PATIENCE, "b is there", || reached().then_some(()));
    hosts.cut("b");
    assert!(!reached());
    hosts.mend("b");
    until(PATIENCE, "b is there again", || reached().then_some(()));
    hosts.kill("b");
    until(PATIENCE, "b is dead", || (!reached()).then_some(()));
}

#[test]
fn nothing_is_left_after_a_panic() {
    let Some(hosts) = Hosts::up("nothing_is_left", &["a"]) else { return };
    hosts.ok("a", "setsid sleep 86399 < /dev/null > /dev/null 2>&1 &");
    let shared = hosts.shared();
    let ours = || {
        let all = std::fs::read_dir("/proc").expect("/proc").flatten();
        all.filter(|p| std::fs::read(p.path().join("cmdline")).is_ok_and(|c| c == b"sleep\x0086399\x00"))
            .count()
    };
    let before = until(PATIENCE, "its process is there", || Some(ours()).filter(|n| *n > 0));
    let panicked = std::thread::spawn(move || {
        let _hosts = hosts;
        panic!("as a test that fails would");
    });
    assert!(panicked.join().is_err());
    assert!(!shared.exists(), "{}", shared.display());
    until(PATIENCE, "its process is gone", || (ours() < before).then_some(()));
}
