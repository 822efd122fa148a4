//! A limited job stays within its limit on all its I/O nodes together: while it is moved, while its arbiter
//! is dead, and under the next one.

use forebay_client::{Client, Config, ExportId, ExportMap, OpenFlags, Path};
use forebay_control::client::Client as Arbiter;
use forebay_control::job::JobGrant;
use forebay_testkit::{ArbiterSpec, NodeProcess, Site, program, until};
use forebay_types::{NodeId, Secret};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);
/// Bytes a second.
const LIMIT: f64 = 20e6;
const REQUEST: usize = 64 << 10;
const CLIENTS: usize = 4;

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
                epoch: grant.epoch,
                exports: vec![ExportMap { dir: site.data(), export: "data".into(), local: None }],
                deadline_ms: 60_000,
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
        let written = self.written.load(Relaxed) - before;
        // What was allowed before and is answered now, and what is saved up.
        let slack = (CLIENTS * REQUEST) as f64 + LIMIT * 0.04;
        (written as f64 - slack).max(0.0) / begin.elapsed().as_secs_f64()
    }

    fn stays_within(&self, when: &str) {
        let rates: Vec<f64> = (0..2).map(|_| self.rate(Duration::from_secs(2))).collect();
        println!("{when}: {:.1?} MB/s", rates.iter().map(|r| r / 1e6).collect::<Vec<_>>());
        assert!(rates.iter().all(|r| *r <= LIMIT * 1.1), "{when}: {rates:?}");
        assert!(rates.iter().any(|r| *r >= LIMIT * 0.25), "{when}: {rates:?}");
    }

    fn finish(self) {
        self.end.store(true, Relaxed);
        for client in self.clients {
            client.join().expect("every write succeeds");
        }
    }
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
    let nodes: Vec<NodeProcess> = (0..2).map(|n| site.node(n, &url)).collect();
    until(PATIENCE, "the nodes do not come", || site.nodes(&url).filter(|n| n.len() == nodes.len()));
    let granted = site.register(&url, "limited", None).expect("an answer").expect("a grant");
    let secret = granted.secret.clone().expect("a new job's secret");
    let admin = Arbiter::new(&url, Secret::from_hex(site.secret())).expect("an address");
    let grant = admin.pin("limited", vec![NodeId(0), NodeId(1)]).expect("it is pinned");
    assert_eq!(grant.nodes.len(), 2);

    let said = limit(&site, &url, &["--job", "limited", "--bandwidth", "20MB"]);
    assert!(said.contains("job=limited") && said.contains("20MB"), "{said}");
    let load = Load::start(&site, &grant, &secret);
    load.stays_within("on two I/O nodes");
    let shares = &admin.limits().expect("the limits")[0].shares;
    let sum: f64 = shares.iter().filter_map(|s| s.share.limit.bandwidth).sum();
    assert!(shares.len() == 2 && (sum / LIMIT - 1.0).abs() < 1e-6, "{shares:?}");

    admin.pin("limited", vec![NodeId(1)]).expect("it is pinned");
    load.stays_within("moved to one");

    drop(arbiter);
    load.stays_within("without an arbiter");

    spec.listen = url.trim_start_matches("http://").to_owned();
    let arbiter = site.arbiter(&spec);
    until(PATIENCE, "the nodes do not come back", || {
        let back =
            |n: &[forebay_control::view::NodeView]| n.iter().all(|n| n.connections > 0 || n.heard_ms < 900);
        site.nodes(arbiter.url()).filter(|n| n.len() == nodes.len() && back(n))
    });
    assert!(limit(&site, &url, &["list"]).contains("20MB"));
    load.stays_within("under the next arbiter");

    limit(&site, &url, &["remove", "--job", "limited"]);
    assert!(!limit(&site, &url, &["list"]).contains("20MB"));
    until(PATIENCE, "it is still limited", || {
        (load.rate(Duration::from_millis(500)) > LIMIT * 1.2).then_some(())
    });
    load.finish();
}
