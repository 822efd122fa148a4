//! A limited job stays within its limit on all its I/O nodes together: while it is moved, while its arbiter
//! is dead, and under the next one.

use forebay_client::{Client, Config, ExportId, ExportMap, OpenFlags, Path};
use forebay_control::client::Client as Arbiter;
use forebay_control::job::JobGrant;
use forebay_testkit::{ArbiterSpec, NodeProcess, Site, program, strict_times, until};
use forebay_types::{NodeId, Secret};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);
/// Bytes a second.
const LIMIT: f64 = 50e6;
/// Any two seconds of these count.
const SPAN: Duration = Duration::from_secs(2);
const REQUEST: usize = 64 << 10;
const CLIENTS: usize = 4;
/// Much less than some requests are held back.
const DEADLINE_MS: u64 = 2000;

/// Clients that write as much as they can.
struct Load {
    end: Arc<AtomicBool>,
    written: Arc<AtomicU64>,
    clients: Vec<std::thread::JoinHandle<()>>,
}

impl Load {
    fn start(site: &Site, grant: &JobGrant, secret: &str) -> Load {
        let (end, written) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let client = |rank: usize| {
            let mut nodes: Vec<_> = grant.addresses.iter().map(|a| a.parse().expect("an address")).collect();
            // They take turns by the order of their nodes.
            let turn = rank % nodes.len();
            nodes.rotate_left(turn);
            let config = Config {
                spare: grant.spare.iter().map(|a| a.parse().expect("an address")).collect(),
                epoch: grant.epoch,
                exports: vec![ExportMap { dir: site.data(), export: "data".into(), local: None }],
                deadline_ms: DEADLINE_MS,
                ..Config::new(&grant.id, secret, nodes)
            };
            let client = Client::new(config, None).expect("a client");
            let (end, written) = (Arc::clone(&end), Arc::clone(&written));
            std::thread::spawn(move || write(&client, rank, &end, &written))
        };
        let clients = (0..CLIENTS).map(client).collect();
        Load { clients, end, written }
    }

    /// Bytes a second over so long by this test's own clock.
    fn rate(&self, span: Duration) -> f64 {
        let (begin, before) = (Instant::now(), self.written.load(Relaxed));
        std::thread::sleep(span);
        (self.written.load(Relaxed) - before) as f64 / begin.elapsed().as_secs_f64()
    }

    /// What was written by when, until told to end.
    fn watch(&self, end: &AtomicBool) -> Vec<(Instant, u64)> {
        let mut seen = Vec::new();
        while !end.load(Relaxed) {
            seen.push((Instant::now(), self.written.load(Relaxed)));
            std::thread::sleep(Duration::from_millis(10));
        }
        seen
    }

    fn finish(self) {
        self.end.store(true, Relaxed);
        for client in self.clients {
            client.join().expect("every write succeeds");
        }
    }
}

/// The lowest and the highest rate of any two seconds that end between two moments.
fn extremes(seen: &[(Instant, u64)], from: Instant, to: Instant) -> (f64, f64) {
    let (mut low, mut high, mut first) = (f64::MAX, 0.0f64, 0);
    for (at, written) in seen {
        while seen[first].0 + SPAN < *at {
            first += 1;
        }
        // One before it is two seconds and a bit away.
        let (began, before) = seen[first.saturating_sub(1)];
        if (from..to).contains(at) && *at - began >= SPAN {
            let rate = (written - before) as f64 / (*at - began).as_secs_f64();
            (low, high) = (low.min(rate), high.max(rate));
        }
    }
    (low, high)
}

fn write(client: &Client, rank: usize, end: &AtomicBool, written: &AtomicU64) {
    let name = format!("file-{rank}");
    let path = Path { export: ExportId(0), rel: name.as_bytes() };
    let (file, _) = client.open(path, OpenFlags::WRITE | OpenFlags::CREATE, 0o600).expect("it opens");
    let data = vec![7; REQUEST];
    for step in 0u64.. {
        if end.load(Relaxed) {
            break;
        }
        let n = client.pwrite(&file, &data, step % 64 * REQUEST as u64).expect("a write");
        written.fetch_add(n as u64, Relaxed);
    }
    client.leave();
}

fn limit(site: &Site, url: &str, args: &[&str]) -> String {
    let mut command = Command::new(program());
    command.arg("limit").args(args).args(["--arbiter", url]);
    if args.first() != Some(&"list") {
        command.arg("--secret-file").arg(site.secret_file());
    }
    let out = command.output().expect("forebay runs");
    assert!(out.status.success(), "{args:?}: {out:?}");
    String::from_utf8(out.stdout).expect("UTF-8")
}

#[test]
fn a_limit_holds_through_moves_and_the_arbiters_death() {
    let site = Site::new();
    let settings = "policy = \"static\"\nlease-ms = 600000\n";
    let mut spec = ArbiterSpec { settings: settings.into(), ..ArbiterSpec::default() };
    let arbiter = site.arbiter(&spec);
    let url = arbiter.url().to_owned();
    let nodes: Vec<NodeProcess> = (0..4).map(|n| site.node(n, &url)).collect();
    until(PATIENCE, "the nodes do not come", || site.nodes(&url).filter(|n| n.len() == nodes.len()));
    let granted = site.register(&url, "limited", None).expect("an answer").expect("a grant");
    let secret = granted.secret.clone().expect("a new job's secret");
    let admin = Arbiter::new(&url, Secret::from_hex(site.secret())).expect("an address");
    let pin =
        |on: &[u32]| admin.pin("limited", on.iter().copied().map(NodeId).collect()).expect("it is pinned");
    let load = Load::start(&site, &pin(&[0]), &secret);

    let said = limit(&site, &url, &["--job", "limited", "--bandwidth", "50MB"]);
    assert!(said.contains("job=limited") && said.contains("50.0 MB/s"), "{said}");
    let end = AtomicBool::new(false);
    let watched = std::thread::scope(|s| {
        // From a second after the command.
        std::thread::sleep(Duration::from_secs(1));
        let watching = s.spawn(|| load.watch(&end));
        let mut phases = vec![("on one I/O node", Instant::now())];
        let mut phase = |what: &'static str| phases.push((what, Instant::now()));
        std::thread::sleep(Duration::from_secs(3));
        phase("moved to four");
        assert_eq!(pin(&[0, 1, 2, 3]).nodes.len(), 4);
        std::thread::sleep(Duration::from_millis(2500));
        phase("on four");
        std::thread::sleep(Duration::from_millis(2500));
        let shares = &admin.limits().expect("the limits")[0].shares;
        let sum: f64 = shares.iter().filter_map(|s| s.share.limit.bandwidth).sum();
        assert!(shares.len() == 4 && (sum / LIMIT - 1.0).abs() < 1e-6, "{shares:?}");
        phase("moved to two");
        pin(&[1, 2]);
        std::thread::sleep(Duration::from_secs(3));
        phase("without an arbiter");
        drop(arbiter);
        std::thread::sleep(Duration::from_secs(3));
        phase("under the next arbiter");
        spec.listen = url.trim_start_matches("http://").to_owned();
        let arbiter = site.arbiter(&spec);
        until(PATIENCE, "the nodes do not come back", || {
            let back = |n: &[forebay_control::view::NodeView]| {
                n.iter().all(|n| n.connections > 0 || n.heard_ms < 900)
            };
            site.nodes(arbiter.url()).filter(|n| n.len() == nodes.len() && back(n))
        });
        assert!(limit(&site, &url, &["list"]).contains("50.0 MB/s"));
        std::thread::sleep(Duration::from_secs(3));
        phase("the end");
        end.store(true, Relaxed);
        (watching.join().expect("a clock"), phases, arbiter)
    });
    let (seen, phases, _arbiter) = watched;
    for pair in phases.windows(2) {
        let (low, high) = extremes(&seen, pair[0].1, pair[1].1);
        let part = |rate: f64| (rate / LIMIT - 1.0) * 100.0;
        println!("{}: any 2 s {:+.1} % to {:+.1} % of the limit", pair[0].0, part(low), part(high));
        // Three per cent on a machine that does nothing else (and in virtual time: the arbiter's own test); on one
        // that does, who is to send may not get to it: there it is only not to stand still.
        let (least, most) = if strict_times() { (0.97, 1.03) } else { (0.02, 1.1) };
        assert!(high <= LIMIT * most && low >= LIMIT * least, "{}: {low} to {high}", pair[0].0);
    }
    limit(&site, &url, &["remove", "--job", "limited"]);
    assert!(!limit(&site, &url, &["list"]).contains("50.0 MB/s"));
    until(PATIENCE, "it is still limited", || {
        (load.rate(Duration::from_millis(500)) > LIMIT * 1.2).then_some(())
    });
    load.finish();
}

/// What it takes to share storage fairly: one request at a time there, so that the others wait where their order is
/// decided. Of what is at the storage already nobody is put back.
const ONE_AT_A_TIME: &str = "dispatchers = 4\nscheduler = \"sfq-d:depth=1,merge=1\"\n";
/// Or two, in turns.
const IN_TURNS: &str = "dispatchers = 2\nscheduler = \"wfq:merge=1\"\n";

/// A node whose storage does 40 MB/s.
fn slow_node(site: &Site, id: usize, url: &str, shares: &str) -> NodeProcess {
    let config = site.path().join(format!("node{id}.toml"));
    let storage = "[emulated-storage]\nservers = 1\n[emulated-storage.server]\nbandwidth = \"40MB\"\n\
                   per-request = \"0s\"\nlatency = \"0s\"\nseek = \"0s\"\n";
    std::fs::write(&config, format!("{shares}{storage}")).expect("a configuration");
    site.node_with(id, &["--arbiter", url, "--config", &config.display().to_string()])
}

/// An arbiter, nodes of 40 MB/s, and who has jobs there.
struct Shared {
    site: Site,
    arbiter: forebay_testkit::ArbiterProcess,
    nodes: Vec<NodeProcess>,
}

impl Shared {
    fn start(nodes: usize) -> Shared {
        Shared::with(nodes, ONE_AT_A_TIME)
    }

    fn with(nodes: usize, shares: &str) -> Shared {
        let site = Site::new();
        let settings = "policy = \"static\"\nlease-ms = 600000\n".into();
        let arbiter = site.arbiter(&ArbiterSpec { settings, ..ArbiterSpec::default() });
        let nodes: Vec<_> = (0..nodes).map(|n| slow_node(&site, n, arbiter.url(), shares)).collect();
        until(PATIENCE, "the nodes do not come", || {
            site.nodes(arbiter.url()).filter(|n| n.len() == nodes.len())
        });
        Shared { site, arbiter, nodes }
    }

    fn load(&self, id: &str, on: &[u32]) -> Load {
        let url = self.arbiter.url();
        let secret = self.site.register(url, id, None).expect("an answer").expect("a grant").secret;
        let admin = Arbiter::new(url, Secret::from_hex(self.site.secret())).expect("an address");
        let grant = admin.pin(id, on.iter().copied().map(NodeId).collect()).expect("it is pinned");
        Load::start(&self.site, &grant, &secret.expect("a new job's secret"))
    }

    fn user(&self, id: &str) -> String {
        let admin = Arbiter::new(self.arbiter.url(), None).expect("an address");
        let job: forebay_control::view::JobView = admin.get(&format!("/v1/jobs/{id}")).expect("the job");
        job.user
    }

    fn limit(&self, args: &[&str]) {
        limit(&self.site, self.arbiter.url(), args);
    }

    /// Both rates over the same second, once they are as they are to be.
    fn rates(a: &Load, b: &Load, why: &str, right: impl Fn(f64, f64) -> bool) -> (f64, f64) {
        let found = until(PATIENCE, why, || {
            let (begin, before) = (Instant::now(), [a, b].map(|l| l.written.load(Relaxed)));
            std::thread::sleep(Duration::from_secs(1));
            let after = [a, b].map(|l| l.written.load(Relaxed));
            let [a, b] = [0, 1].map(|i| (after[i] - before[i]) as f64 / begin.elapsed().as_secs_f64());
            right(a, b).then_some((a, b))
        });
        println!("{why}? no: {:.1} and {:.1} MB/s", found.0 / 1e6, found.1 / 1e6);
        found
    }
}

#[test]
fn others_gain_what_a_limit_leaves_and_a_guarantee_is_kept() {
    let shared = Shared::start(1);
    let (a, b) = (shared.load("one", &[0]), shared.load("other", &[0]));
    let even = |a: f64, b: f64| (0.75..1.33).contains(&(a / b));
    let (_, before) = Shared::rates(&a, &b, "equal jobs do not share evenly", even);
    shared.limit(&["--job", "one", "--bandwidth", "8MB"]);
    Shared::rates(&a, &b, "nobody gains what a limit leaves", |a, b| a < 8.8e6 && b > before * 1.3);
    shared.limit(&["remove", "--job", "one"]);
    Shared::rates(&a, &b, "a limit stays", even);
    shared.limit(&["--job", "one", "--guarantee", "30MB"]);
    Shared::rates(&a, &b, "a guarantee is not kept", |a, b| a / (a + b) > 0.68);
    shared.limit(&["remove", "--job", "one"]);
    Shared::rates(&a, &b, "a guarantee stays", even);
    a.finish();
    b.finish();
}

/// Four requests under way are enough where two are at the storage at a time.
#[test]
fn a_guarantee_is_kept_where_jobs_take_turns() {
    let shared = Shared::with(1, IN_TURNS);
    let (a, b) = (shared.load("one", &[0]), shared.load("other", &[0]));
    let even = |a: f64, b: f64| (0.75..1.33).contains(&(a / b));
    Shared::rates(&a, &b, "equal jobs do not share evenly", even);
    shared.limit(&["--job", "one", "--guarantee", "30MB"]);
    Shared::rates(&a, &b, "a guarantee is not kept", |a, b| a / (a + b) > 0.68);
    a.finish();
    b.finish();
}

#[test]
fn what_a_job_gets_elsewhere_counts_without_a_list_of_peers() {
    let shared = Shared::start(2);
    // One job has a node for itself and shares the other: by nodes it would get three times as much, and if all it
    // gets elsewhere counts, as much.
    let (a, b) = (shared.load("both", &[0, 1]), shared.load("second", &[1]));
    Shared::rates(&a, &b, "what a job gets elsewhere does not count", |a, b| b > 0.0 && a / b < 1.5);
    // What the first has waiting on the second node comes after the other's.
    b.finish();
    a.finish();
}

/// Clients whose node is killed go where the job has no part, while no arbiter is there to give it one.
#[test]
fn a_limit_holds_where_clients_go_when_their_node_is_killed() {
    const STRICT: f64 = 4e6;
    let mut shared = Shared::start(2);
    let load = shared.load("limited", &[0]);
    shared.limit(&["--job", "limited", "--bandwidth", "4MB"]);
    let written = |more: u64| {
        let before = load.written.load(Relaxed);
        until(PATIENCE, "nothing is written", || (load.written.load(Relaxed) > before + more).then_some(()));
    };
    written(2 * STRICT as u64);
    shared.arbiter.process.kill();
    shared.nodes[0].process.kill();
    let (begin, before) = (Instant::now(), load.written.load(Relaxed));
    written(STRICT as u64);
    std::thread::sleep(Duration::from_secs(2));
    let more = (load.written.load(Relaxed) - before) as f64;
    // Of a bucket that was full, too.
    let most = STRICT * (begin.elapsed().as_secs_f64() * 1.1 + 0.5);
    assert!(more < most, "{more} bytes, where {most} are allowed");
    load.finish();
}

/// A limit that is so strict that requests wait for longer than they may take. They do not fail.
#[test]
fn what_is_held_back_waits() {
    let shared = Shared::start(1);
    shared.limit(&["--job", "strict", "--bandwidth", "64K", "--metadata", "1"]);
    let load = shared.load("strict", &[0]);
    // Four clients at one request a second: each waits for four, and longer than its deadline.
    until(PATIENCE, "nothing is written", || {
        (load.written.load(Relaxed) >= 2 * (CLIENTS * REQUEST) as u64).then_some(())
    });
    shared.limit(&["remove", "--job", "strict"]);
    load.finish();
}

/// So is what has to be done before a request, and what is put off until a file is closed.
#[test]
fn programs_that_are_held_back_wait() {
    let site = Site::new();
    let settings = "policy = \"static\"\nlease-ms = 600000\n";
    let arbiter = site.arbiter(&ArbiterSpec { settings: settings.into(), ..ArbiterSpec::default() });
    let _nodes: Vec<NodeProcess> = (0..3).map(|n| site.node(n, arbiter.url())).collect();
    until(PATIENCE, "the nodes do not come", || site.nodes(arbiter.url()).filter(|n| n.len() == 3));
    limit(&site, arbiter.url(), &["--job", "slow", "--metadata", "1"]);
    // Three at one operation a second: each waits for three, and longer than its deadline.
    let one = |n: u32| {
        format!(
            "(mkdir /seen/d{n} && echo {n} > /seen/d{n}/a && mv /seen/d{n}/a /seen/d{n}/b && cat /seen/d{n}/b)"
        )
    };
    let script = format!("{} & {} & {} & wait", one(1), one(2), one(3));
    let mut run = Command::new(program());
    run.args(["run", "--arbiter", arbiter.url(), "--job", "slow", "--at", "/seen=data", "--deadline", "2"]);
    run.arg("--secret-file").arg(site.secret_file());
    let out = run.args(["--", "sh", "-c", &script]).output().expect("forebay runs");
    let mut read: Vec<&str> = std::str::from_utf8(&out.stdout).expect("UTF-8").lines().collect();
    read.sort_unstable();
    assert_eq!(read, ["1", "2", "3"], "{}", String::from_utf8_lossy(&out.stderr));
}

/// Small files that are read with a large buffer cost what is in them.
#[test]
fn what_is_not_there_is_not_paid_for() {
    const FILES: u64 = 40;
    let site = Site::new();
    let arbiter = site.arbiter(&ArbiterSpec::default());
    let _node = site.node(0, arbiter.url());
    until(PATIENCE, "the node does not come", || site.nodes(arbiter.url()).filter(|n| n.len() == 1));
    for n in 0..FILES {
        std::fs::write(site.data().join(format!("f{n}")), [b'x'; 4096]).expect("a file");
    }
    limit(&site, arbiter.url(), &["--job", "small", "--bandwidth", "1MB"]);
    let report = site.path().join("report.json");
    let mut run = Command::new(program());
    run.args(["run", "--arbiter", arbiter.url(), "--job", "small", "--at", "/seen=data"]);
    run.arg("--secret-file").arg(site.secret_file()).arg("--report").arg(&report);
    // I/O nodes report every second, and of jobs that are there.
    let script = "for f in /seen/f*; do dd if=$f of=/dev/null bs=128K status=none || exit 1; done; sleep 2.5";
    let out = run.args(["--", "sh", "-c", script]).output().expect("forebay runs");
    assert!(out.status.success(), "{out:?}");
    let told: serde_json::Value =
        serde_json::from_slice(&std::fs::read(&report).expect("a report")).expect("JSON");
    // What they ask for would be five seconds' worth.
    let held = told["time"]["throttled"].as_f64().expect("where its time went");
    assert!(held < 2.0, "held back for {held} s: {told:#}");
    assert_eq!(told["bytes_read"], FILES * 4096);
    let admin = Arbiter::new(arbiter.url(), Secret::from_hex(site.secret())).expect("an address");
    let past = until(PATIENCE, "history does not know it", || {
        let jobs: Vec<forebay_control::view::PastJob> = admin.get("/v1/history/jobs").ok()?;
        jobs.into_iter().find(|j| j.job == "small" && j.bytes_read >= FILES * 4096)
    });
    assert_eq!((past.bytes_read, past.bytes_written), (FILES * 4096, 0));
}

/// What a limit of its own keeps from one job is left to those with whom it shares another.
#[test]
fn overlapping_limits_waste_nothing() {
    let shared = Shared::start(1);
    let (a, b) = (shared.load("narrow", &[0]), shared.load("wide", &[0]));
    let user = shared.user("narrow");
    shared.limit(&["--user", &user, "--bandwidth", "12MB"]);
    shared.limit(&["--job", "narrow", "--bandwidth", "2MB"]);
    Shared::rates(&a, &b, "what one may not have is wasted", |a, b| a < 2.4e6 && b > 8.5e6 && a + b < 13.2e6);
    shared.limit(&["remove", "--user", &user]);
    shared.limit(&["remove", "--job", "narrow"]);
    a.finish();
    b.finish();
}

/// Who is left behind by `forebay run` is still of the job, and so are its limits.
#[test]
fn nobody_escapes_by_outliving_the_run() {
    let site = Site::new();
    let arbiter = site.arbiter(&ArbiterSpec {
        settings: "policy = \"static\"\nlease-ms = 1000\n".into(),
        ..ArbiterSpec::default()
    });
    let _node = site.node(0, arbiter.url());
    until(PATIENCE, "the node does not come", || site.nodes(arbiter.url()).filter(|n| n.len() == 1));
    let enough = site.path().join("enough");
    let script = format!(
        "exec 3> /seen/held; (until [ -e {enough} ]; do echo step >&3; sleep 0.1; done) >/dev/null 2>&1 & sleep 0.5",
        enough = enough.display()
    );
    let report = site.path().join("report.json");
    let mut run = Command::new(program());
    run.args(["run", "--arbiter", arbiter.url(), "--job", "left", "--at", "/seen=data"]);
    run.arg("--secret-file").arg(site.secret_file()).arg("--report").arg(&report);
    let out = run.args(["--", "sh", "-c", &script]).output().expect("forebay runs");
    assert!(out.status.success(), "{out:?}");
    let listed = || site.mapping(arbiter.url()).expect("the mapping").jobs.iter().any(|j| j.job == "left");
    assert!(listed(), "it is forgotten at once");
    std::thread::sleep(Duration::from_secs(4));
    assert!(listed(), "it is forgotten after some leases");
    let said = std::fs::read_to_string(&report).expect("a report");
    assert!(said.contains("lives on at the arbiter"), "{said}");
    std::fs::write(&enough, "").expect("it is told");
    until(PATIENCE, "a job that has ended stays", || (!listed()).then_some(()));
}
