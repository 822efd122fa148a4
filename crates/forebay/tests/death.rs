//! I/O nodes that die, freeze, drain or lose their connections while programs run through them:
//! every program ends well, every acknowledged byte is there, nothing is done twice, nothing hangs.
//!
//! `FOREBAY_ROUNDS` sets how many deaths the long test sees (the full test has 20), `FOREBAY_SEED`
//! repeats a run's random choices.

use forebay_testkit::{AT, ClientOptions, Layer, Proxy, Talker, Workers, seed, setting};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::time::Duration;

const LEASE_MS: u64 = 500;

fn pause(rng: &mut ChaCha8Rng, ms: std::ops::Range<u64>) {
    std::thread::sleep(Duration::from_millis(rng.random_range(ms)));
}

/// Kills and freezes, in turn, at random moments, at most one node at a time.
#[test]
fn nodes_die_and_freeze_under_load() {
    let seed = seed();
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut layer = Layer::start(2, LEASE_MS, &ClientOptions::default());
    let load = Workers::start(&layer, seed);
    for round in 0..setting("FOREBAY_ROUNDS", 8) {
        pause(&mut rng, 100..700);
        let n = rng.random_range(0..2);
        if round % 2 == 0 {
            layer.kill(n);
            pause(&mut rng, 1..800);
            layer.restart(n);
        } else {
            // Short ones are sat out, long ones are left: both, and the moment between.
            layer.freeze(n);
            pause(&mut rng, 50..3500);
            layer.thaw(n);
        }
    }
    pause(&mut rng, 300..600);
    load.finish(&layer);
}

#[test]
fn drains_are_not_noticed() {
    let seed = seed();
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut layer = Layer::start(2, LEASE_MS, &ClientOptions::default());
    let load = Workers::start(&layer, seed);
    for round in 0..4 {
        pause(&mut rng, 200..600);
        layer.drain(round % 2);
        pause(&mut rng, 1..300);
        layer.restart(round % 2);
    }
    pause(&mut rng, 200..400);
    load.finish(&layer);
}

/// A call on every way in: all must fail alike, or work alike.
const CALLS: [&str; 14] = [
    "write 0 10 5",
    "pread 0 10 0",
    "fstat 0",
    "fsync 0",
    "ftruncate 0 50",
    "lseek 0 0 2",
    "open 1 new 66",
    "stat old",
    "mkdir dir2",
    "rename old older",
    "unlink old",
    "truncate old 5",
    "readlink old",
    "list .",
];

/// A driver with a file open in slot 0, and the deadline its calls have.
fn driver(layer: &Layer, turn: usize) -> Talker {
    let mut driver = Talker::start(layer.command(&layer.compile("driver"), turn));
    assert_eq!(driver.ask(&format!("case {AT} 0")), "0 0");
    driver
}

#[test]
fn without_any_node_calls_fail_in_time() {
    let deadline = Duration::from_secs(2);
    let mut layer = Layer::start(2, LEASE_MS, &ClientOptions { deadline, ..Default::default() });
    std::fs::write(layer.export().join("old"), "12345678").expect("a file");
    let mut driver = driver(&layer, 0);
    assert_eq!(driver.ask("open 0 file 66"), "0 0");
    assert_eq!(driver.ask("write 0 10 5"), "10 0");
    for frozen in [false, true] {
        for n in 0..2 {
            if frozen { layer.freeze(n) } else { layer.kill(n) }
        }
        for call in CALLS {
            let since = std::time::Instant::now();
            assert_eq!(driver.ask(call), "-1 5", "{call}: EIO");
            // The deadline is a promise; the rest is for a machine that is busy otherwise.
            assert!(
                since.elapsed() < deadline + Duration::from_secs(10),
                "{call} took {:?}",
                since.elapsed()
            );
        }
        for n in 0..2 {
            if frozen { layer.thaw(n) } else { layer.restart(n) }
        }
        assert_eq!(driver.ask("pwrite 0 10 0 5"), "10 0", "the open file goes on where it was");
        assert_eq!(driver.ask("open 1 old 0"), "0 0");
        assert_eq!(driver.ask("fstat 0"), "0 0 f 10 1");
    }
    driver.finish();
}

#[test]
fn without_any_node_calls_go_direct_if_allowed() {
    let options = ClientOptions { deadline: Duration::from_secs(1), direct: true, through: None };
    let mut layer = Layer::start(2, LEASE_MS, &options);
    let mut driver = driver(&layer, 0);
    assert_eq!(driver.ask("open 0 file 66"), "0 0");
    assert_eq!(driver.ask("write 0 10 5"), "10 0");
    layer.kill(0);
    layer.kill(1);
    assert_eq!(driver.ask("write 0 10 6"), "10 0");
    assert_eq!(driver.ask("pread 0 20 0").split(' ').next(), Some("20"));
    assert_eq!(driver.ask("open 1 second 66"), "0 0");
    assert_eq!(driver.ask("write 1 7 6"), "7 0");
    assert_eq!(driver.ask("stat second"), "0 0 f 7 1");
    assert_eq!(driver.ask("mkdir dir"), "0 0");
    assert_eq!(driver.ask("rmdir dir"), "0 0");
    // The file that was open, and what takes two names.
    assert_eq!(driver.ask("fstat 0"), "0 0 f 20 1");
    assert_eq!(driver.ask("fsync 0"), "0 0");
    assert_eq!(driver.ask("lseek 0 0 2"), "20 0");
    assert_eq!(driver.ask("ftruncate 0 15"), "0 0");
    assert_eq!(driver.ask("rename second third"), "0 0");
    assert_eq!(driver.ask("stat third"), "0 0 f 7 1");
    driver.finish();
    assert_eq!(std::fs::metadata(layer.export().join("file")).expect("the file").len(), 15);
}

/// What must not be done twice, again and again, over connections that break at any point. `moves`:
/// now and then the node seems to be gone, and another one has to find out what was done.
fn once_each(count: usize, moves: bool) {
    let seed = seed();
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let layer = Layer::start(count, LEASE_MS, &ClientOptions::default());
    let proxies: Vec<Proxy> = (0..count).map(|n| Proxy::start(layer.address(n), seed + n as u64)).collect();
    let through = Some(proxies.iter().map(|p| format!("tcp:{}", p.address)).collect());
    layer.reconfigure(&ClientOptions { through, ..Default::default() });
    let mut driver = driver(&layer, 0);
    assert_eq!(driver.ask("open 0 log 1089"), "0 0", "write-only, created, for appending");
    let mut log = String::new();
    for i in 0..if moves { 60 } else { 250 } {
        if moves && i % 5 == 0 {
            let away = rng.random_range(0..count);
            (0..count).for_each(|n| proxies[n].refuse(n == away));
        }
        log += &format!("record.{i}.");
        for (call, want) in [
            (format!("say 0 record.{i}."), format!("{} 0", format!("record.{i}.").len())),
            (format!("mkdir d{i}"), "0 0".into()),
            (format!("open 1 f{i} 193"), "0 0".into()),
            (format!("rename f{i} d{i}/g"), "0 0".into()),
            (format!("link d{i}/g h{i}"), "0 0".into()),
            (format!("symlink t{i} s{i}"), "0 0".into()),
            (format!("rename h{i} k{i} 1"), "0 0".into()),
            (format!("unlink s{i}"), "0 0".into()),
            (format!("mkdir e{i}"), "0 0".into()),
            (format!("rmdir e{i}"), "0 0".into()),
            (format!("truncate k{i} 10"), "0 0".into()),
        ] {
            assert_eq!(driver.ask(&call), want, "{call}");
        }
    }
    driver.finish();
    assert_eq!(
        std::fs::read_to_string(layer.export().join("log")).expect("the log"),
        log,
        "each record once"
    );
    let cuts: u64 = proxies.iter().map(Proxy::cuts).sum();
    println!("{cuts} connections cut");
    assert!(cuts > 20, "connections were cut: {cuts}");
}

#[test]
fn cut_connections_do_nothing_twice() {
    once_each(1, false);
}

#[test]
fn another_node_finds_out_what_was_done() {
    once_each(2, true);
}

/// A write that a frozen node finds in its socket after its client has written newer data elsewhere
/// is not carried out, even if another thread of the client has been heard of since.
#[test]
fn a_frozen_node_does_not_write_old_data() {
    let layer = Layer::start(2, LEASE_MS, &ClientOptions::default());
    let mut command = layer.command(&layer.compile("fence"), 0);
    command.arg(AT);
    let mut program = Talker::start(command);
    for round in 0..4 {
        assert_eq!(program.receive(), "ready");
        // It is on one of them: whichever does not answer.
        let n = round % 2;
        layer.freeze(n);
        program.send("go");
        assert_eq!(program.receive(), "moved");
        layer.thaw(n);
        std::thread::sleep(Duration::from_millis(500));
        let file = std::fs::read(layer.export().join("fenced")).expect("the file");
        let newest = file.chunks(8).all(|word| word == 3u64.to_le_bytes());
        assert!(newest, "round {round}: the last write that was acknowledged is there");
        program.send("again");
    }
    assert_eq!(program.receive(), "ready");
    program.finish();
}

/// A write that was cut off, sent again and overwritten since, and then arrives.
#[test]
fn a_late_write_is_not_carried_out() {
    let seed = seed();
    let layer = Layer::start(1, LEASE_MS, &ClientOptions::default());
    let proxy = Proxy::start(layer.address(0), seed);
    proxy.deliver_late();
    layer.reconfigure(&ClientOptions {
        through: Some(vec![format!("tcp:{}", proxy.address)]),
        ..Default::default()
    });
    let mut driver = driver(&layer, 0);
    assert_eq!(driver.ask("open 0 file 66"), "0 0");
    for i in 0..300u32 {
        assert_eq!(driver.ask(&format!("pwrite 0 16 0 {}", i % 256)), "16 0");
        if i % 15 == 14 {
            std::thread::sleep(Duration::from_millis(250));
            let file = std::fs::read(layer.export().join("file")).expect("the file");
            assert_eq!(u32::from(file[0]), i % 256, "the last write that was acknowledged");
        }
    }
    driver.finish();
    assert!(proxy.cuts() > 5, "connections were cut");
}

/// Locks go with their node, and their loss is told, once.
#[test]
fn the_loss_of_locks_is_told() {
    let mut layer = Layer::start(2, LEASE_MS, &ClientOptions::default());
    const WRITE_LOCK: &str = "1 0 10";
    let (mut a, mut b) = (driver(&layer, 0), driver(&layer, 1));
    for driver in [&mut a, &mut b] {
        assert_eq!(driver.ask("open 0 ranges 66"), "0 0");
        assert_eq!(driver.ask("open 1 whole 66"), "0 0");
    }
    assert_eq!(a.ask(&format!("lock 0 {WRITE_LOCK}")), "0 0");
    assert_eq!(a.ask("flock 1 6"), "0 0");
    assert_eq!(b.ask(&format!("lock 0 {WRITE_LOCK}")), "-1 11");
    assert_eq!(b.ask("flock 1 6"), "-1 11");
    // Its node dies, and it is the first to come back: nobody can know that nobody had them since.
    layer.kill(0);
    assert_eq!(a.ask("pread 0 1 0"), "-1 5");
    assert_eq!(a.ask("pread 1 1 0"), "-1 5");
    assert_eq!(a.ask("pread 0 1 0"), "0 0 cbf29ce484222325");
    assert_eq!(a.ask(&format!("lock 0 {WRITE_LOCK}")), "0 0");
    assert_eq!(a.ask("flock 1 6"), "0 0");
    layer.restart(0);
    // Both nodes die, and the other process is faster.
    layer.kill(0);
    layer.kill(1);
    layer.restart(0);
    layer.restart(1);
    assert_eq!(b.ask(&format!("lock 0 {WRITE_LOCK}")), "0 0");
    assert_eq!(b.ask("flock 1 6"), "0 0");
    assert_eq!(a.ask("pread 0 1 0"), "-1 5");
    assert_eq!(a.ask("pread 1 1 0"), "-1 5");
    assert_eq!(a.ask("pread 0 1 0"), "0 0 cbf29ce484222325");
    assert_eq!(a.ask(&format!("lock 0 {WRITE_LOCK}")), "-1 11");
    a.finish();
    b.finish();
}
