//! `forebay mount --arbiter`: the mount of a machine is moved between I/O nodes while it is used, and goes on when
//! the arbiter is gone; every byte stays right.
//!
//! `FOREBAY_MOVES` sets how often it is moved, every 200 ms.

use forebay_client::{Client, Config};
use forebay_control::client::Client as Arbiter;
use forebay_control::view::JobView;
use forebay_node::control::{Command as Order, Reply};
use forebay_testkit::{
    ArbiterSpec, NodeProcess, Process, Site, needs, program, seed, setting, skipped, until,
};
use forebay_types::{NodeId, Secret};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(60);
const NODES: usize = 3;
const BLOCK: usize = 8192;
const BLOCKS: usize = 16;

/// Whether a mount can be made on this machine; says so if not.
fn can_mount(test: &str) -> bool {
    if !rustix::process::geteuid().is_root() {
        skipped(test, "mounting on the machine itself needs root");
        return false;
    }
    let looked = Command::new(program()).arg("doctor").output().expect("forebay doctor runs");
    let said = String::from_utf8_lossy(&looked.stdout).into_owned();
    let missing = said.lines().find(|l| l.starts_with("no  FUSE"));
    missing.into_iter().for_each(|line| skipped(test, line));
    missing.is_none() && needs(test, &["umount"])
}

fn is_mounted(dir: &Path) -> bool {
    let table = std::fs::read_to_string("/proc/self/mounts").expect("the table of mounts");
    table.lines().any(|l| l.split(' ').nth(1) == dir.to_str())
}

/// Writes and reads back until it is told to stop: every call succeeds, every byte is right.
fn work(dir: &Path, number: usize, stop: &AtomicBool, rounds: &AtomicU64) {
    let path = dir.join(format!("file{number}"));
    let new = std::fs::File::options().read(true).write(true).create_new(true).open(&path);
    let file = new.expect("a file");
    let mut versions = [0u8; BLOCKS];
    for round in 0u64.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let at = (round * 7 % BLOCKS as u64) as usize;
        versions[at] = (round % 250) as u8 + 1;
        file.write_all_at(&[versions[at]; BLOCK], (at * BLOCK) as u64).expect("a write");
        let other = (round * 5 % BLOCKS as u64) as usize;
        if versions[other] != 0 {
            let mut got = [0; BLOCK];
            file.read_exact_at(&mut got, (other * BLOCK) as u64).expect("a read");
            assert!(got.iter().all(|b| *b == versions[other]), "block {other} of file {number}");
        }
        let name = dir.join(format!("name{number}"));
        std::fs::create_dir(&name).expect("a directory is made");
        std::fs::rename(&name, name.with_extension("moved")).expect("and renamed");
        std::fs::remove_dir(name.with_extension("moved")).expect("and removed");
        rounds.fetch_add(1, Ordering::Relaxed);
    }
}

/// Data requests that an I/O node has answered.
fn served(site: &Site, node: &NodeProcess) -> u64 {
    let address = node.addresses().first().cloned().expect("an address");
    let client = Client::new(Config::new("asks", site.secret(), vec![address]), None).expect("a client");
    let said = client.control(0, &serde_json::to_vec(&Order::Stats).expect("JSON")).expect("an answer");
    client.leave();
    let reply: Reply = serde_json::from_slice(&said).expect("JSON");
    let flows = reply.stats.expect("statistics").flows;
    let count = |op| flows.iter().filter_map(|f| f.operations.get(op)).map(|o| o.count).sum::<u64>();
    count("read") + count("write")
}

struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_mount_is_moved_under_load_and_outlives_the_arbiter() {
    const TEST: &str = "a_mount_is_moved_under_load_and_outlives_the_arbiter";
    if !can_mount(TEST) {
        return;
    }
    let site = Site::new();
    let spec = ArbiterSpec {
        name: "arbiter".into(),
        listen: "127.0.0.1:0".into(),
        settings: "policy = \"one\"\n".into(),
        ..ArbiterSpec::default()
    };
    let arbiter = site.arbiter(&spec);
    let url = arbiter.url().to_owned();
    let mut nodes: Vec<NodeProcess> = (0..NODES).map(|n| site.node(n, &url)).collect();
    let admitted = || site.health(&url).is_some_and(|h| h.admitted == NODES).then_some(());
    until(PATIENCE, "all I/O nodes are admitted", admitted);
    let dir = site.path().join("mounted");
    std::fs::create_dir(&dir).expect("a directory");
    let mut command = Command::new(program());
    command.args(["mount", "--arbiter", &url, "--deadline", "60", "--secret-file"]).arg(site.secret_file());
    // A relative name is where the command was started.
    command.current_dir(site.path()).args(["--at", "mounted=data"]);
    let mut mount = Process::start(command.stdin(Stdio::null())).expect("forebay mount starts");
    until(PATIENCE, "it is mounted", || is_mounted(&dir).then_some(()));
    let admin = Arbiter::new(&url, Secret::from_hex(site.secret())).expect("an address");
    let jobs = || admin.get::<Vec<JobView>>("/v1/jobs").expect("the arbiter answers");
    let job = jobs().pop().expect("the mount is a job");
    assert_eq!((job.app.as_str(), job.hosts.len()), ("mount", 1), "{job:?}");

    let (stop, rounds) = (AtomicBool::new(false), AtomicU64::new(0));
    let seed = seed();
    std::thread::scope(|scope| {
        // Also when something is wrong here: the scope waits for the workers.
        let told = Stop(&stop);
        let (stop, rounds, at) = (&stop, &rounds, &dir);
        let workers: Vec<_> = (0..2).map(|n| scope.spawn(move || work(at, n, stop, rounds))).collect();
        let goes_on = |why: &str| {
            let before = rounds.load(Ordering::Relaxed);
            until(PATIENCE, why, || (rounds.load(Ordering::Relaxed) > before + 20).then_some(()));
        };
        for n in 0..setting("FOREBAY_MOVES", 12) {
            // Any of them, also where it is.
            let to = seed.wrapping_add(n).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
            admin.pin(&job.id, vec![NodeId((to % NODES as u64) as u32)]).expect("it is moved");
            std::thread::sleep(Duration::from_millis(200));
        }
        for (n, node) in nodes.iter().enumerate() {
            admin.pin(&job.id, vec![NodeId(n as u32)]).expect("it is moved");
            let before = served(&site, node);
            let busy = || (served(&site, node) > before + 20).then_some(());
            until(PATIENCE, "the node it was moved to serves it", busy);
        }
        // Without an arbiter everything stays where it is.
        arbiter.end();
        goes_on("work goes on without an arbiter");
        // Even when the node it was on is gone.
        drop(nodes.pop());
        goes_on("work goes on without arbiter and node");
        // And the arbiter is followed again when it is back.
        let again = site.arbiter(&ArbiterSpec { listen: url.trim_start_matches("http://").into(), ..spec });
        let back = || admin.get::<JobView>(&format!("/v1/jobs/{}", job.id)).ok();
        until(PATIENCE, "the arbiter knows the mount again", back);
        let to = |n: u32| admin.pin(&job.id, vec![NodeId(n)]).ok();
        until(PATIENCE, "it is moved again", || to(0));
        let before = served(&site, &nodes[0]);
        until(PATIENCE, "the first node serves it", || {
            (served(&site, &nodes[0]) > before + 20).then_some(())
        });
        drop(told);
        for worker in workers {
            worker.join().expect("every call succeeded and every byte was right");
        }
        // Nothing is asked for now, and all it knew goes: it hears of the new one from the arbiter.
        let new = site.node(NODES, &url);
        until(PATIENCE, "it is moved to a new node", || to(NODES as u32));
        std::thread::sleep(Duration::from_millis(500));
        nodes.clear();
        assert_eq!(std::fs::read(dir.join("file0")).expect("a read").len(), BLOCK * BLOCKS);
        assert!(served(&site, &new) > 0);
        assert!(mount.end(PATIENCE).is_some_and(|s| s.success()));
        assert!(!is_mounted(&dir));
        until(PATIENCE, "the job has ended", || jobs().is_empty().then_some(()));
        again.end();
    });
    let names = std::fs::read_dir(site.data()).expect("the data").flatten().map(|e| e.file_name());
    let mut names: Vec<_> = names.collect();
    names.sort();
    assert_eq!(names, ["file0", "file1"]);
}
