//! What was acknowledged is true for all processes that share an open file, by `fork`, by `exec` or as a shell's
//! descriptor: each is told that a lock was lost, whoever took it, and `fsync` covers what any of them has written.

use forebay_node::config::forget;
use forebay_testkit::{AT, ClientOptions, Layer, Talker, needs, until};
use std::path::{Path, PathBuf};
use std::time::Duration;

const LEASE_MS: u64 = 500;
const TOLD: &str = "-1 5";

fn kin(layer: &Layer, turn: usize) -> Talker {
    let mut command = layer.command(&layer.compile("kin"), turn);
    command.arg(AT);
    Talker::start(command)
}

/// All is answered with 0.
fn done(who: &mut Talker, lines: &[&str]) {
    for line in lines {
        assert_eq!(who.ask(line), "0 0", "{line}");
    }
}

fn two() -> Layer {
    Layer::start(2, LEASE_MS, &ClientOptions::default())
}

/// Each of both is told once, whoever comes first.
fn both_are_told(before: &[&str], ways: &[[&str; 2]]) {
    for [first, second] in ways {
        let mut layer = two();
        let mut a = kin(&layer, 0);
        done(&mut a, before);
        layer.kill(0);
        for who in [first, second] {
            let write = format!("{who}pwrite 0 10 0 8");
            assert_eq!(a.ask(&write), TOLD, "{before:?}: {write}");
            assert_eq!(a.ask(&write), "10 0", "{before:?}: {write}, once");
        }
        a.finish();
    }
}

const EITHER: [[&str; 2]; 2] = [["", "child "], ["child ", ""]];

#[test]
fn a_child_and_its_parent_are_told_of_the_loss_of_a_lock_that_it_inherited() {
    for take in ["flock 0 6", "ofd 0 1 0 10"] {
        both_are_told(&["open 0 file 66", take, "fork"], &EITHER);
    }
}

#[test]
fn a_parent_is_told_of_the_loss_of_a_lock_that_its_child_took() {
    for take in ["child flock 0 6", "child ofd 0 1 0 10"] {
        both_are_told(&["open 0 file 66", "fork", take], &EITHER);
    }
}

#[test]
fn a_program_is_told_of_the_loss_of_a_lock_that_it_inherited() {
    for take in ["flock 0 6", "ofd 0 1 0 10"] {
        // It answers when it has begun: who begins after another one was told is not told again.
        let before = ["open 0 file 66", take, "fork", "child become", "child lseek 0 0 1"];
        both_are_told(&before, &EITHER);
        let mut layer = two();
        let mut a = kin(&layer, 0);
        done(&mut a, &["open 0 file 66", take, "become"]);
        layer.kill(0);
        assert_eq!(a.ask("pwrite 0 10 0 8"), TOLD, "{take}, then another program");
        assert_eq!(a.ask("pwrite 0 10 0 8"), "10 0", "once");
        a.finish();
    }
}

/// What was released by whomever is not lost, and what nobody took neither.
#[test]
fn nobody_is_told_of_a_lock_that_was_released() {
    let released = [
        &["flock 0 6", "fork", "child flock 0 8"][..],
        &["fork", "child flock 0 6", "flock 0 8"],
        &["fork", "child ofd 0 1 0 10", "child ofd 0 2 0 10"],
        &["ofd 0 1 0 10", "fork", "child ofd 0 2 0 0"],
        &["fork", "child become", "child flock 0 6", "child flock 0 8"],
        &["fork"],
    ];
    for before in released {
        let mut layer = two();
        let mut a = kin(&layer, 0);
        done(&mut a, &["open 0 file 66"]);
        done(&mut a, before);
        layer.kill(0);
        for write in ["pwrite 0 10 0 8", "child pwrite 0 10 0 8"] {
            assert_eq!(a.ask(write), "10 0", "{before:?}: {write}");
        }
        a.finish();
    }
}

/// One who does not hear of it by anything else hears of it when he closes the file.
#[test]
fn a_close_says_that_a_lock_was_lost() {
    for take in ["flock 0 6", "ofd 0 1 0 10", "lock 0 1 0 10"] {
        let mut layer = two();
        let mut a = kin(&layer, 0);
        done(&mut a, &["open 0 file 66", take]);
        layer.kill(0);
        assert_eq!(a.ask("close 0"), TOLD, "{take}");
        a.finish();
    }
}

/// A shell's descriptor, locked by `flock -n 9`: whoever uses it next is told, and the lock can be had again.
#[test]
fn a_shell_is_told_of_the_loss_of_its_lock() {
    if !needs("a_shell_is_told_of_the_loss_of_its_lock", &["flock"]) {
        return;
    }
    let script = format!(
        "exec 9> {AT}/lock; flock -n 9 || exit 1; echo locked; read go
         $1 && echo unheard || echo told; $1 && echo again || echo twice
         flock -n 9 && echo locked || echo refused; read end; true"
    );
    for next in ["flock -n 9", "sh -c echo>&9", "eval echo here >&9"] {
        let mut layer = two();
        let mut command = layer.command(Path::new("/bin/sh"), 0);
        command.args(["-c", &script.replace("$1", &format!("{next} 2>/dev/null"))]);
        let mut shell = Talker::start(command);
        assert_eq!(shell.receive(), "locked");
        layer.kill(0);
        assert_eq!(shell.ask(""), "told", "{next}");
        assert_eq!(shell.receive(), "again", "{next}: once");
        assert_eq!(shell.receive(), "locked", "{next}");
        shell.finish();
    }
}

/// Node 0 is on one host, node 1 on another; both hosts' storage forgets.
fn two_hosts() -> (Layer, [PathBuf; 2]) {
    let mut layer = two();
    for n in 0..2 {
        layer.configure(n, &settings(n));
    }
    std::fs::write(layer.export().join("file"), [b'.'; 128]).expect("a file");
    let journals = [0, 1].map(|n| layer.scratch().join(format!("journal{n}")));
    (layer, journals)
}

fn settings(n: usize) -> String {
    format!("emulated-host = \"host{n}\"\nforgetful-storage = \"journal{n}\"\n")
}

/// One process writes through a node of another host, and its relative syncs.
#[test]
fn a_sync_covers_what_all_who_share_the_file_have_written() {
    let ways = [["child ", ""], ["", "child "]];
    for (becomes, [writer, syncer]) in [false, true].into_iter().flat_map(|b| ways.map(|w| (b, w))) {
        for gone in [false, true] {
            let (mut layer, journals) = two_hosts();
            let mut a = kin(&layer, 0);
            done(&mut a, &["open 0 file 2", "fork"]);
            if becomes {
                done(&mut a, &["child become"]);
            }
            // Both have it open at the first node.
            ["pread 0 1 0", "child pread 0 1 0"].iter().for_each(|read| assert_eq!(a.ask(read), "1 0"));
            layer.kill(0);
            assert_eq!(a.ask(&format!("{writer}pwrite 0 64 0 7")), "64 0");
            layer.configure(0, &settings(0));
            let case = format!("{writer:?} {becomes} {gone}");
            if gone {
                layer.kill(1);
            }
            let said = a.ask(&format!("{syncer}fsync 0"));
            assert_eq!(said, if gone { TOLD } else { "0 0" }, "{case}");
            layer.kill(1);
            let forgotten = forget(&journals[1]).expect("a journal");
            assert_eq!(forgotten, if gone { 64 } else { 0 }, "{case}");
            assert_eq!(a.ask(&format!("{syncer}fsync 0")), "0 0", "{case}: once");
            a.finish();
        }
    }
}

/// A drain waits for whoever holds a lock of any kind and says nothing: nobody has it meanwhile.
#[test]
fn a_drain_waits_for_idle_locks_of_every_kind() {
    for (take, release) in
        [("flock 0 6", "flock 0 8"), ("ofd 0 1 0 10", "ofd 0 2 0 10"), ("lock 0 1 0 10", "lock 0 2 0 10")]
    {
        let mut layer = two();
        layer.restart_with(0, 60);
        let (mut a, mut b) = (kin(&layer, 0), kin(&layer, 1));
        done(&mut a, &["open 0 file 66", take]);
        done(&mut b, &["open 0 file 66"]);
        layer.begin_drain(0);
        // Longer than a connection may be quiet there.
        std::thread::sleep(Duration::from_millis(1200));
        assert!(layer.is_running(0), "{take}: it has not waited");
        assert_eq!(b.ask(take), "-1 11", "{take}: it is held");
        done(&mut a, &[release]);
        assert_eq!(b.ask(take), "0 0", "{take}");
        until(Duration::from_secs(30), "the drain does not end", || (!layer.is_running(0)).then_some(()));
        a.finish();
        b.finish();
    }
}
