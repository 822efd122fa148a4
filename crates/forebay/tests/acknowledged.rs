//! What was acknowledged is true: programs through I/O nodes that die, stop and come back, at the
//! moments at which a client could be led to believe something that is not so. The schedules that
//! cannot be had from outside are in `forebay-wire`'s `schedules`.

use forebay_testkit::{AT, ClientOptions, Layer, Proxy, Talker, setting, skipped, until};
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

const LEASE_MS: u64 = 500;

fn driver(layer: &Layer, turn: usize) -> Talker {
    let mut driver = Talker::start(layer.command(&layer.compile("driver"), turn));
    assert_eq!(driver.ask(&format!("case {AT} 0")), "0 0");
    driver
}

/// A program of `acknowledged.c`, called so.
fn program(layer: &Layer, turn: usize, arguments: &[&str]) -> Talker {
    let mut command = layer.command(&layer.compile("acknowledged"), turn);
    command.args(arguments);
    Talker::start(command)
}

/// A write too large for a Unix socket's buffer, to a node that is stopped for less than its lease:
/// what is written after it stays.
#[test]
fn a_stopped_node_writes_nothing_over_what_came_later() {
    for size in [210_000, 214_000, 1_000_000] {
        let layer = Layer::start_on(2, 2000, &ClientOptions::default(), true);
        let mut a = driver(&layer, 0);
        assert_eq!(a.ask("open 0 file 66"), "0 0");
        assert_eq!(a.ask(&format!("pwrite 0 {size} 0 1")), format!("{size} 0"));
        layer.freeze(0);
        // As soon as the first one is answered, by whomever, the newer one is written.
        let writer = std::thread::spawn(move || {
            assert_eq!(a.ask(&format!("pwrite 0 {size} 0 2")), format!("{size} 0"));
            assert_eq!(a.ask("pwrite 0 16 0 3"), "16 0");
            a
        });
        std::thread::sleep(Duration::from_millis(1600));
        layer.thaw(0);
        let a = writer.join().expect("both are answered");
        std::thread::sleep(Duration::from_millis(1500));
        let file = std::fs::read(layer.export().join("file")).expect("the file");
        let newest: Vec<u8> = (0..16).map(|i| 3 + i * 7).collect();
        assert_eq!(file[..16], newest, "{size}: nothing landed later");
        a.finish();
    }
}

/// A process is idle while its node dies, and another process does the same as it: each does its own.
fn after_somebody_else(call: &str, first: &str, second: &str) -> Layer {
    let mut layer = Layer::start(2, LEASE_MS, &ClientOptions::default());
    for name in ["gone", "from"] {
        std::fs::write(layer.export().join(name), "").expect("a file");
    }
    std::fs::create_dir(layer.export().join("empty")).expect("a directory");
    let (mut a, mut b) = (driver(&layer, 0), driver(&layer, 1));
    for d in [&mut a, &mut b] {
        // Create, append.
        assert_eq!(d.ask("open 0 log 1090"), "0 0");
    }
    layer.kill(0);
    assert_eq!(b.ask(call), first, "{call}");
    assert_eq!(a.ask(call), second, "{call}, by the one whose node died");
    layer
}

#[test]
fn nobody_elses_append_is_taken_for_ones_own() {
    let layer = after_somebody_else("say 0 record-12345", "12 0", "12 0");
    let log = std::fs::read_to_string(layer.export().join("log")).expect("the log");
    assert_eq!(log, "record-12345".repeat(2), "both appended");
}

#[test]
fn nobody_elses_mkdir_is_taken_for_ones_own() {
    after_somebody_else("mkdir dir", "0 0", "-1 17");
}

#[test]
fn nobody_elses_exclusive_create_is_taken_for_ones_own() {
    after_somebody_else("open 2 made 194", "0 0", "-1 17");
}

#[test]
fn nobody_elses_unlink_is_taken_for_ones_own() {
    after_somebody_else("unlink gone", "0 0", "-1 2");
}

#[test]
fn nobody_elses_rename_is_taken_for_ones_own() {
    after_somebody_else("rename from to", "0 0", "-1 2");
}

#[test]
fn nobody_elses_rmdir_is_taken_for_ones_own() {
    after_somebody_else("rmdir empty", "0 0", "-1 2");
}

/// Answers are lost, and the sessions too, before their clients reach the node again: each is told what became
/// of its own request, and nothing is done twice.
#[test]
fn what_was_done_is_known_when_its_session_is_gone() {
    let layer = Layer::start(1, 5000, &ClientOptions::default());
    let proxy = Proxy::steady(layer.address(0));
    let through = Some(vec![format!("tcp:{}", proxy.address)]);
    layer.reconfigure(&ClientOptions { through, ..ClientOptions::default() });
    let here = layer.export();
    ["gone", "from", "cut", "emptied"]
        .iter()
        .for_each(|name| std::fs::write(here.join(name), "0123456789").expect("a file"));
    let calls = ["mkdir made", "open 0 new 194", "unlink gone", "rename from to", "truncate cut 3"];
    let calls = calls.into_iter().chain(["open 0 emptied 513", "open 0 removed 194", "open 0 replaced 194"]);
    let mut drivers: Vec<(Talker, &str)> = calls.map(|call| (driver(&layer, 0), call)).collect();
    drivers.iter_mut().for_each(|(d, _)| assert!(d.ask("stat cut").starts_with("0 0")));
    layer.freeze(0);
    drivers.iter_mut().for_each(|(d, call)| d.send(call));
    // They are in the node's sockets by then.
    std::thread::sleep(Duration::from_millis(700));
    proxy.cut();
    layer.thaw(0);
    let size = |name: &str| std::fs::metadata(here.join(name)).map_or(u64::MAX, |m| m.len());
    until(Duration::from_secs(20), "the node does not do it", || {
        let named = ["made", "new", "to", "removed", "replaced"].iter().all(|name| here.join(name).exists());
        (named && !here.join("gone").exists() && size("cut") == 3 && size("emptied") == 0).then_some(())
    });
    for name in ["cut", "emptied"] {
        std::fs::write(here.join(name), "newer").expect("a file");
    }
    std::fs::rename(here.join("replaced"), here.join("another")).expect("it is there");
    std::fs::write(here.join("replaced"), "newer").expect("a file");
    std::fs::remove_file(here.join("removed")).expect("it is there");
    // Longer than a session is kept that nobody uses.
    std::thread::sleep(Duration::from_millis(2500));
    proxy.refuse(false);
    for (mut driver, call) in drivers {
        // What was made, and is no more: the file that would be open.
        let lost = call.contains("removed") || call.contains("replaced");
        assert_eq!(driver.receive(), if lost { "-1 116" } else { "0 0" }, "{call}");
        driver.finish();
    }
    for name in ["cut", "emptied", "replaced"] {
        assert_eq!(std::fs::read_to_string(here.join(name)).expect("the file"), "newer", "{name} twice");
    }
}

/// The node of a lock's holder dies, and another process has the lock for a while: the holder is told.
fn the_loss_is_told(take: &str, release: &str) {
    let mut layer = Layer::start(2, LEASE_MS, &ClientOptions::default());
    let (mut a, mut b) = (driver(&layer, 0), driver(&layer, 1));
    for d in [&mut a, &mut b] {
        assert_eq!(d.ask("open 0 file 66"), "0 0");
    }
    assert_eq!(a.ask(take), "0 0");
    assert_eq!(b.ask(take), "-1 11");
    layer.kill(0);
    assert_eq!(b.ask(take), "0 0", "the lock went with its node");
    assert_eq!(b.ask("pwrite 0 10 0 7"), "10 0");
    assert_eq!(b.ask(release), "0 0");
    assert_eq!(a.ask("pwrite 0 10 0 8"), "-1 5", "{take}: the holder is told");
    assert_eq!(a.ask("pwrite 0 10 0 8"), "10 0", "once");
    assert_eq!(a.ask(take), "0 0");
    a.finish();
    b.finish();
}

#[test]
fn the_loss_of_a_process_lock_is_told() {
    the_loss_is_told("lock 0 1 0 10", "lock 0 2 0 10");
}

#[test]
fn the_loss_of_an_open_file_lock_is_told() {
    the_loss_is_told("ofd 0 1 0 10", "ofd 0 2 0 10");
}

#[test]
fn the_loss_of_a_flock_is_told() {
    the_loss_is_told("flock 0 6", "flock 0 8");
}

/// Locks that two threads took at the same moment are all known when their node dies.
#[test]
fn no_threads_lock_is_forgotten() {
    let mut layer = Layer::start(2, LEASE_MS, &ClientOptions::default());
    let mut lockers = program(&layer, 0, &["lockers", AT]);
    assert_eq!(lockers.receive(), "locked");
    layer.kill(0);
    assert_eq!(lockers.ask(""), "-1 5");
    lockers.finish();
}

/// Two processes on two nodes, each of which has a lock that the other one is going to wait for.
fn crossed(layer: &Layer) -> [Talker; 2] {
    let mut both = [("one", "two"), ("two", "one")]
        .map(|(mine, other)| program(layer, usize::from(mine == "two"), &["cross", AT, mine, other]));
    both.iter_mut().for_each(|p| assert_eq!(p.receive(), "ready"));
    both
}

#[test]
fn the_holder_of_a_lock_is_named_whichever_node_serves_it() {
    let layer = Layer::start(2, LEASE_MS, &ClientOptions::default());
    let both = crossed(&layer);
    let holder = program(&layer, 1, &["holder", AT, "one"]).finish();
    assert_eq!(holder.trim(), format!("1 {}", both[0].id()), "F_GETLK");
}

#[test]
fn processes_that_wait_for_each_others_locks_are_told() {
    let layer = Layer::start(2, LEASE_MS, &ClientOptions::default());
    let mut both = crossed(&layer);
    both.iter_mut().for_each(|p| p.send(""));
    // One of them is told, and with its end the other one has its lock.
    let mut said = both.map(Talker::finish_saying);
    said.sort();
    assert_eq!(said, [format!("-1 {}", libc::EDEADLK), "0 0".to_owned()]);
}

/// The file behind an open file is removed, and another one made that has its inode number.
#[test]
fn an_open_file_is_the_same_file_or_none() {
    let mut layer = Layer::start(2, LEASE_MS, &ClientOptions::default());
    let mut a = driver(&layer, 0);
    assert_eq!(a.ask("open 0 file 66"), "0 0");
    assert_eq!(a.ask("pwrite 0 10 0 1"), "10 0");
    let path = layer.export().join("file");
    let number = std::fs::metadata(&path).expect("the file").ino();
    layer.kill(0);
    std::fs::remove_file(&path).expect("nobody else removes it");
    for i in 0..1000 {
        let other = layer.export().join(format!("other{i}"));
        std::fs::write(&other, "somebody else's").expect("a file");
        if std::fs::metadata(&other).expect("the file").ino() == number {
            std::fs::rename(&other, &path).expect("a name");
            break;
        }
    }
    if !path.exists() {
        let why = "this file system does not use inode numbers again";
        return skipped("an_open_file_is_the_same_file_or_none", why);
    }
    assert_eq!(a.ask("pwrite 0 10 0 2"), format!("-1 {}", libc::ESTALE));
    assert_eq!(std::fs::read_to_string(&path).expect("the other file"), "somebody else's");
}

#[test]
fn a_child_keeps_what_it_inherited_however_late() {
    let layer = Layer::start(2, LEASE_MS, &ClientOptions::default());
    assert_eq!(program(&layer, 0, &["orphan", AT]).finish().trim(), "4 0 kept");
}

/// The same for a program that the child becomes: it inherits descriptors and nothing else.
#[test]
fn a_program_keeps_what_it_inherited_however_late() {
    let layer = Layer::start(2, LEASE_MS, &ClientOptions::default());
    assert_eq!(program(&layer, 0, &["spawned", AT]).finish().trim(), "4 0 kept");
}

/// Takes no memory of the client, and leaves nothing on the node. `FOREBAY_CHANGES`: how many, instead of `usual`.
fn nothing_is_left_over_by(what: &str, usual: u64) {
    let count = setting("FOREBAY_CHANGES", usual);
    let layer = Layer::start(1, LEASE_MS, &ClientOptions::default());
    // Its own memory: a ledger has one size for ever, of which more and more is used at first.
    let resident = || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", layer.pid(0))).expect("the node");
        let own = status.lines().find_map(|l| l.strip_prefix("RssAnon:")).expect("its own memory");
        own.trim().trim_end_matches(" kB").parse::<i64>().expect("a number")
    };
    // The node's own memory has settled by then.
    program(&layer, 0, &[what, AT, &(count / 20).to_string()]).finish_saying();
    let before = resident();
    let mut changer = program(&layer, 0, &[what, AT, &count.to_string()]);
    let grown: i64 = changer.receive().parse().expect("a number");
    println!("{count} {what}: {grown} KiB in the client, {} on the node", resident() - before);
    assert!(grown < 1024, "{count} {what} took {grown} KiB");
    let open = layer.open_files(0);
    assert!(what != "closes" || open <= 1, "{open} files are open on the node, all were closed");
    changer.finish();
    assert!(resident() - before < 1024, "{count} {what} took {} KiB of the node", resident() - before);
}

#[test]
fn nothing_is_left_over_by_locks() {
    nothing_is_left_over_by("changes", 100_000);
}

#[test]
fn nothing_is_left_over_by_changes_of_the_directory() {
    nothing_is_left_over_by("moves", 100_000);
}

/// Of files that one thread closes while another reads.
#[test]
fn nothing_is_left_over_by_closes() {
    nothing_is_left_over_by("closes", 2_000);
}
