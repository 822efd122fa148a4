//! What was acknowledged is true where storage is slow, forgets, or its host is gone, and where many locks
//! are lost at once; see `acknowledged`.

use forebay_node::config::forget;
use forebay_testkit::{AT, ClientOptions, Layer, Proxy, Talker};
use std::path::PathBuf;
use std::time::{Duration, Instant};

const LEASE_MS: u64 = 500;

fn driver(layer: &Layer, turn: usize) -> Talker {
    let mut driver = Talker::start(layer.command(&layer.compile("driver"), turn));
    assert_eq!(driver.ask(&format!("case {AT} 0")), "0 0");
    driver
}

/// Two nodes, the first of which has slow storage and is reached by way of a proxy.
fn behind_a_proxy() -> (Layer, Proxy) {
    let mut layer = Layer::start(2, LEASE_MS, &ClientOptions::default());
    layer.configure(0, "slow-storage = \"slow\"\n");
    let proxy = Proxy::steady(layer.address(0));
    let through = Some(vec![format!("tcp:{}", proxy.address), format!("tcp:{}", layer.address(1))]);
    layer.reconfigure(&ClientOptions { through, ..ClientOptions::default() });
    (layer, proxy)
}

/// A node drains while a write is at slow storage, and cannot be reached any more: that nobody listens there
/// is no proof that the write will not land.
#[test]
fn a_node_that_cannot_be_reached_is_not_dead() {
    let (layer, proxy) = behind_a_proxy();
    let mut a = driver(&layer, 0);
    assert_eq!(a.ask("open 0 file 66"), "0 0");
    assert_eq!(a.ask("pwrite 0 16 0 1"), "16 0");
    layer.slow("slow", 1500);
    a.send("pwrite 0 16 0 2");
    // It is at the storage by then; if it is not, there is less to see.
    std::thread::sleep(Duration::from_millis(400));
    layer.begin_drain(0);
    proxy.cut();
    assert_eq!(a.receive(), "16 0");
    assert_eq!(a.ask("pwrite 0 16 0 3"), "16 0");
    assert_eq!(a.ask("fsync 0"), "0 0");
    let newest = std::fs::read(layer.export().join("file")).expect("the file");
    std::thread::sleep(Duration::from_millis(2000));
    let later = std::fs::read(layer.export().join("file")).expect("the file");
    assert_eq!(newest, later, "nothing landed later");
    a.finish();
}

/// A storage call that takes longer than any limit but the deadline, on a connection that breaks.
#[test]
fn no_call_fails_while_somebody_works_on_it() {
    let (layer, proxy) = behind_a_proxy();
    let mut a = driver(&layer, 0);
    assert_eq!(a.ask("open 0 file 66"), "0 0");
    assert_eq!(a.ask("open 1 log 1090"), "0 0");
    layer.slow("slow", 8000);
    let begun = Instant::now();
    a.send("say 1 once");
    std::thread::sleep(Duration::from_millis(400));
    proxy.cut();
    assert_eq!(a.receive(), "4 0");
    assert!(begun.elapsed() >= Duration::from_secs(7), "its storage was slow");
    assert_eq!(std::fs::read_to_string(layer.export().join("log")).expect("the log"), "once");
    a.finish();
}

/// The same with a single node, to which the client comes back: it has the call still.
#[test]
fn no_call_fails_that_its_node_works_on() {
    let mut layer = Layer::start(1, LEASE_MS, &ClientOptions::default());
    layer.configure(0, "slow-storage = \"slow\"\n");
    let proxy = Proxy::steady(layer.address(0));
    let through = Some(vec![format!("tcp:{}", proxy.address)]);
    layer.reconfigure(&ClientOptions { through, ..ClientOptions::default() });
    let mut a = driver(&layer, 0);
    assert_eq!(a.ask("open 0 log 1090"), "0 0");
    layer.slow("slow", 8000);
    a.send("say 0 once");
    std::thread::sleep(Duration::from_millis(400));
    proxy.cut();
    proxy.refuse(false);
    assert_eq!(a.receive(), "4 0");
    assert_eq!(std::fs::read_to_string(layer.export().join("log")).expect("the log"), "once");
    a.finish();
}

/// A node is killed with a write in its socket: how long until that is answered by another one. First with a
/// node on its host to say that it is dead, then with none.
#[test]
fn a_failover_takes_as_long_as_a_proof() {
    for alone in [false, true] {
        let mut layer = Layer::start(2, LEASE_MS, &ClientOptions::default());
        for n in (0..2).filter(|_| alone) {
            layer.configure(n, &format!("emulated-host = \"host{n}\"\n"));
        }
        let mut took: Vec<u128> = Vec::new();
        for round in 0..5 {
            let mut a = driver(&layer, 0);
            assert_eq!(a.ask("open 0 file 66"), "0 0");
            // Both nodes are known.
            assert_eq!(a.ask("pwrite 0 16 0 1"), "16 0");
            layer.freeze(0);
            let sent = Instant::now();
            a.send("pwrite 0 16 0 2");
            std::thread::sleep(Duration::from_millis(100));
            let begun = Instant::now();
            layer.kill(0);
            assert_eq!(a.receive(), "16 0", "round {round}");
            took.push(begun.elapsed().as_millis());
            // The lease must pass if nobody knows better.
            assert!(!alone || sent.elapsed() >= Duration::from_millis(LEASE_MS * 3 / 2), "round {round}");
            a.finish();
            layer.restart(0);
        }
        took.sort_unstable();
        println!("failover, {} to vouch: {took:?} ms", if alone { "nobody" } else { "a neighbour" });
    }
}

/// A close that finds its node dead ends at once; what comes after it has all its time until the node is back.
#[test]
fn a_close_takes_no_time_from_what_comes_after_it() {
    let mut layer = Layer::start(1, LEASE_MS, &ClientOptions::default());
    let mut a = driver(&layer, 0);
    assert_eq!(a.ask("open 0 file 66"), "0 0");
    assert_eq!(a.ask("pwrite 0 16 0 1"), "16 0");
    layer.kill(0);
    assert_eq!(a.ask("close 0"), "0 0");
    a.send("stat file");
    // Longer than calls are given that find all nodes gone.
    std::thread::sleep(Duration::from_millis(1500));
    layer.restart(0);
    assert!(a.receive().starts_with("0 0"));
    a.finish();
}

/// Nodes 0 and 2 are on one host, node 1 on another; both hosts' storage forgets.
fn two_hosts() -> (Layer, PathBuf) {
    let mut layer = Layer::start(3, LEASE_MS, &ClientOptions::default());
    for (n, host) in [(0, 0), (1, 1), (2, 0)] {
        let settings = format!("emulated-host = \"host{host}\"\nforgetful-storage = \"journal{host}\"\n");
        layer.configure(n, &settings);
    }
    let journal = layer.scratch().join("journal0");
    (layer, journal)
}

/// What went through a node that has left is synced by another one of its host.
#[test]
fn what_is_synced_stays_through_whichever_node_it_went() {
    for drains in [true, false] {
        let (mut layer, journal) = two_hosts();
        std::fs::write(layer.export().join("file"), [b'.'; 64]).expect("a file");
        let mut a = driver(&layer, 0);
        assert_eq!(a.ask("open 0 file 2"), "0 0");
        assert_eq!(a.ask("pwrite 0 64 0 1"), "64 0");
        let written = std::fs::read(layer.export().join("file")).expect("the file");
        if drains {
            layer.drain(0);
        } else {
            layer.kill(0);
        }
        assert_eq!(a.ask("fsync 0"), "0 0", "drains: {drains}");
        layer.kill(0);
        layer.kill(2);
        assert_eq!(forget(&journal).expect("a journal"), 0, "all was synced");
        assert_eq!(std::fs::read(layer.export().join("file")).expect("the file"), written);
        assert_eq!(a.ask("fsync 0"), "0 0");
        a.finish();
    }
}

/// What a host took that is gone cannot be synced: that is said, once.
#[test]
fn a_sync_says_that_a_host_is_gone() {
    let (mut layer, journal) = two_hosts();
    std::fs::write(layer.export().join("file"), [b'.'; 64]).expect("a file");
    let mut a = driver(&layer, 0);
    assert_eq!(a.ask("open 0 file 2"), "0 0");
    assert_eq!(a.ask("pwrite 0 64 0 1"), "64 0");
    layer.kill(0);
    layer.kill(2);
    assert_eq!(a.ask("fsync 0"), format!("-1 {}", libc::EIO));
    assert_eq!(forget(&journal).expect("a journal"), 64, "it was not synced");
    assert_eq!(a.ask("fsync 0"), "0 0", "once");
    // Its host came back as another boot: what it took before is gone all the same.
    assert_eq!(a.ask("pwrite 0 64 0 2"), "64 0");
    layer.configure(0, "emulated-host = \"again0\"\nforgetful-storage = \"journal0\"\n");
    assert_eq!(a.ask("fsync 0"), "0 0");
    a.finish();
}

/// What the host of a node that was left could not write back is told at the next `fsync`, once.
#[test]
fn a_write_back_error_is_told_through_whichever_node() {
    let mut layer = Layer::start(3, LEASE_MS, &ClientOptions::default());
    for n in [0, 2] {
        layer.configure(n, "emulated-host = \"host0\"\nslow-storage = \"failing\"\n");
    }
    layer.configure(1, "emulated-host = \"host1\"\n");
    let mut a = driver(&layer, 0);
    assert_eq!(a.ask("open 0 file 66"), "0 0");
    assert_eq!(a.ask("pwrite 0 64 0 1"), "64 0");
    layer.fail("failing", libc::EIO);
    layer.drain(0);
    assert_eq!(a.ask("fsync 0"), format!("-1 {}", libc::EIO));
    assert_eq!(a.ask("fsync 0"), "0 0", "once");
    a.finish();
}

/// `close` returns what the file system says of it, on the node that the file is on and on one that it has left.
#[test]
fn a_close_says_what_it_learns() {
    for moves in [false, true] {
        let mut layer = Layer::start(2, LEASE_MS, &ClientOptions::default());
        layer.configure(0, "slow-storage = \"failing\"\n");
        let mut a = driver(&layer, 0);
        assert_eq!(a.ask("open 0 file 66"), "0 0");
        assert_eq!(a.ask("pwrite 0 64 0 1"), "64 0");
        layer.fail("failing", libc::EDQUOT);
        if moves {
            layer.begin_drain(0);
            // The first one is told to move, the second has.
            (0..2).for_each(|_| assert!(a.ask("pread 0 64 0").starts_with("64 0")));
        }
        assert_eq!(a.ask("close 0"), format!("-1 {}", libc::EDQUOT), "moves: {moves}");
        a.finish();
    }
}

/// A program that comes by `exec` syncs what the one before it has written, or says that it cannot.
#[test]
fn a_sync_after_exec_covers_what_was_written_before() {
    for gone in [false, true] {
        let (mut layer, journal) = two_hosts();
        std::fs::write(layer.export().join("file"), [b'.'; 64]).expect("a file");
        let mut command = layer.command(&layer.compile("acknowledged"), 0);
        command.args(["exec", AT]);
        let mut program = Talker::start(command);
        assert_eq!(program.receive(), "written");
        layer.kill(0);
        if gone {
            layer.kill(2);
        }
        let told = if gone { format!("-1 {}", libc::EIO) } else { "0 0".to_owned() };
        assert_eq!(program.ask(""), told, "gone: {gone}");
        assert_eq!(program.receive(), "0 0", "once");
        layer.kill(2);
        assert_eq!(forget(&journal).expect("a journal"), if gone { 4 } else { 0 });
        program.finish();
    }
}

/// Four programs count under a lock while three of four nodes die and come back: no step is lost.
#[test]
fn no_step_under_a_lock_is_lost() {
    let mut layer = Layer::start(4, LEASE_MS, &ClientOptions::default());
    let counter = layer.compile("acknowledged");
    let programs: Vec<Talker> = (0..4)
        .map(|turn| {
            let mut command = layer.command(&counter, turn);
            command.args(["count", AT]);
            Talker::start(command)
        })
        .collect();
    let until = Instant::now() + Duration::from_secs(60);
    let grows = |layer: &Layer, from: u64| {
        while counted(layer) < from + 50 {
            assert!(Instant::now() < until, "nobody counts any more");
            std::thread::sleep(Duration::from_millis(5));
        }
        counted(layer)
    };
    let mut at = 0;
    for round in 0..3 {
        for n in [1, 2, 3] {
            at = grows(&layer, at);
            layer.kill((n + round) % 4);
        }
        at = grows(&layer, at);
        for n in [1, 2, 3] {
            layer.restart((n + round) % 4);
        }
    }
    let (mut answered, mut open) = (0, 0);
    for program in programs {
        let said = program.finish();
        let numbers: Vec<u64> = said.split_whitespace().filter_map(|n| n.parse().ok()).collect();
        (answered, open) = (answered + numbers[0], open + numbers[1]);
    }
    let end = counted(&layer);
    assert!(
        (answered..=answered + open).contains(&end),
        "{end} after {answered} answered steps, {open} open"
    );
}

fn counted(layer: &Layer) -> u64 {
    let bytes = std::fs::read(layer.export().join("counter")).unwrap_or_default();
    bytes.try_into().map_or(0, u64::from_le_bytes)
}
