//! Election and control state on a real etcd cluster of three members.

use forebay_arbiter::ha::{Campaign, Candidate, Etcd, EtcdStore, EtcdTls, Guarded, Tenure};
use forebay_arbiter::store::{Change, ControlStore, Kept, StoreError, StoredJob, StoredNode};
use forebay_control::job::JobRequest;
use forebay_testkit::{Cluster, Process, RunDir, certificates, needs, until};
use forebay_types::{Epoch, NodeId};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

fn client(cluster: &Cluster) -> Arc<Etcd> {
    Arc::new(Etcd::new(&cluster.url().parse().expect("a URL"), &EtcdTls::default()).expect("a client"))
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(5)
}

/// Campaigns until it is elected; and hears when that is over.
fn elect(etcd: &Arc<Etcd>, url: &str) -> (Tenure, Receiver<String>) {
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        let (say, over) = channel();
        let candidate = Candidate::new(etcd.clone(), url.to_owned());
        match candidate.campaign(move |why| say.send(why).unwrap_or_default()) {
            Ok(Campaign::Won(tenure)) => return (tenure, over),
            other => {
                let why = match other {
                    Ok(Campaign::Lost(who, _)) => format!("{who} leads"),
                    Ok(Campaign::Won(_)) => unreachable!(),
                    Err(e) => e.to_string(),
                };
                assert!(Instant::now() < end, "{url} is not elected: {why}");
            }
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn job(id: &str, epoch: u64) -> Change {
    Change::Job(Box::new(StoredJob {
        request: JobRequest {
            id: id.to_owned(),
            app: "app".into(),
            user: "user".into(),
            compute_nodes: 4,
            processes: 16,
            secret: Some("ab".repeat(32)),
            ..JobRequest::default()
        },
        order: epoch,
        since_unix_ms: 1,
        epoch: Epoch(epoch),
        held: None,
        addresses: vec!["tcp:127.0.0.1:1".into()],
        direct: false,
        pinned: Vec::new(),
        owner: None,
        runs: Vec::new(),
    }))
}

#[test]
fn one_leads_and_the_next_has_a_larger_term_and_the_same_state() {
    let Some(cluster) = Cluster::start("one_leads_and_the_next_has_a_larger_term_and_the_same_state") else {
        return;
    };
    let etcd = client(&cluster);
    let (first, _over) = elect(&etcd, "http://first");
    let other = Candidate::new(etcd.clone(), "http://second".into());
    assert!(matches!(other.campaign(|_| ()), Ok(Campaign::Lost(url, _)) if url == "http://first"));
    assert_eq!(other.leader().unwrap().as_deref(), Some("http://first"));

    let term = first.term();
    let mut store = EtcdStore::new(etcd.clone(), Arc::new(first));
    assert_eq!(store.lead().unwrap(), (term, Kept::default()));
    // More than one transaction, in several strokes, with words taken back.
    let mut changes: Vec<Change> = (0..450).map(|n| job(&format!("job-{n}"), n)).collect();
    changes.push(Change::Epoch(Epoch(450)));
    changes.push(job("job-7", 1007));
    changes.push(Change::JobEnded("job-8".into()));
    let node = StoredNode {
        id: NodeId(3),
        host: "h".into(),
        addresses: vec!["tcp:h:1".into()],
        leaving: true,
        gone: false,
    };
    changes.push(Change::Node(node));
    changes.push(Change::Learned { key: "a/b".into(), value: Some(serde_json::json!({ "x": [1, 2.5] })) });
    let mut expected = Kept::default();
    for part in changes.chunks(200) {
        store.apply(part).unwrap();
        part.iter().for_each(|c| expected.apply(c));
    }
    drop(store);

    // It was given up, so the next one need not wait for the lease to end.
    let (second, _over) = elect(&etcd, "http://second");
    assert!(second.term() > term);
    let (_, kept) = EtcdStore::new(etcd, Arc::new(second)).lead().unwrap();
    assert_eq!(kept.jobs.len(), 449);
    assert_eq!(kept, expected);
}

#[test]
fn who_stands_by_is_told_when_the_leader_is_gone() {
    let Some(cluster) = Cluster::start("who_stands_by_is_told_when_the_leader_is_gone") else { return };
    let etcd = client(&cluster);
    let (leader, _over) = elect(&etcd, "http://leader");
    let (found, revision) = etcd.get("forebay/leader", soon()).unwrap();
    assert!(found.is_some());
    // While it leads nothing is seen.
    assert_eq!(etcd.await_deletion("forebay/leader", revision, Duration::from_millis(300)), Ok(false));
    let watched = std::thread::scope(|s| {
        let watcher = s.spawn(|| etcd.await_deletion("forebay/leader", revision, Duration::from_secs(60)));
        std::thread::sleep(Duration::from_millis(300));
        drop(leader);
        watcher.join().unwrap()
    });
    assert_eq!(watched, Ok(true));
    // What happened before one began to watch is seen all the same.
    assert_eq!(etcd.await_deletion("forebay/leader", revision, Duration::from_secs(60)), Ok(true));
    // Nobody there: an error, at once.
    drop(cluster);
    assert!(etcd.await_deletion("forebay/leader", revision, Duration::from_secs(60)).is_err());
}

#[test]
fn what_an_old_leader_writes_is_refused() {
    let Some(cluster) = Cluster::start("what_an_old_leader_writes_is_refused") else { return };
    let etcd = client(&cluster);
    let (old, over) = elect(&etcd, "http://old");
    let term = old.term();
    let mut store = EtcdStore::new(etcd.clone(), Arc::new(old));
    store.apply(&[Change::Epoch(Epoch(1))]).unwrap();
    // Its lease is taken away behind its back, as if it had stood still for too long.
    let lease = etcd.get("forebay/leader", soon()).unwrap().0.unwrap().lease;
    etcd.revoke(lease, soon()).unwrap();
    let (new, _over) = elect(&etcd, "http://new");
    assert!(matches!(store.apply(&[Change::Epoch(Epoch(99))]), Err(StoreError::Replaced(_))));
    over.recv_timeout(Duration::from_secs(10)).expect("it hears that it was replaced");
    assert!(matches!(store.apply(&[Change::Epoch(Epoch(98))]), Err(StoreError::Replaced(_))));
    // Also one that does not look at its lease at all.
    let late = etcd.write(
        "forebay/leader",
        term.0,
        &[("forebay/state/epoch".into(), Some("97".into()))],
        None,
        soon(),
    );
    assert!(matches!(late, Ok(Guarded::Not(Some(leader))) if leader.created == new.term().0));
    let (_, kept) = EtcdStore::new(etcd, Arc::new(new)).lead().unwrap();
    assert_eq!(kept.epoch, Epoch(1));
}

#[test]
fn a_member_dies_and_the_leader_goes_on() {
    let Some(mut cluster) = Cluster::start("a_member_dies_and_the_leader_goes_on") else { return };
    let etcd = client(&cluster);
    let (tenure, _over) = elect(&etcd, "http://a");
    let mut store = EtcdStore::new(etcd.clone(), Arc::new(tenure));
    let mut count = 0;
    for n in 0..3 {
        // Each in turn, so one of them was etcd's own leader.
        cluster.kill(n);
        let end = Instant::now() + Duration::from_secs(3);
        while Instant::now() < end {
            match store.apply(&[Change::Epoch(Epoch(count + 1))]) {
                Ok(()) => count += 1,
                // The lease may run out while etcd elects; then it must have stepped down. What it
                // was writing may or may not have been written.
                Err(StoreError::Replaced(_) | StoreError::Failed(_)) => {
                    // Whoever cannot store gives up the lead.
                    drop(store);
                    let (tenure, _over) = elect(&etcd, "http://a");
                    store = EtcdStore::new(etcd.clone(), Arc::new(tenure));
                    let kept = store.lead().unwrap().1.epoch.0;
                    assert!(kept == count || kept == count + 1, "{kept} after {count}");
                    count = kept;
                }
                Err(e) => panic!("{e}"),
            }
        }
        cluster.launch(n);
        std::thread::sleep(Duration::from_secs(2));
    }
    assert!(count > 0);
    assert_eq!(store.lead().unwrap().1.epoch.0, count);
}

#[test]
fn a_leader_without_etcd_steps_down_before_its_lease_can_have_ended() {
    let Some(cluster) = Cluster::start("a_leader_without_etcd_steps_down_before_its_lease_can_have_ended")
    else {
        return;
    };
    let etcd = client(&cluster);
    let (tenure, over) = elect(&etcd, "http://a");
    let begin = Instant::now();
    for n in 0..3 {
        cluster.freeze(n);
    }
    let stopped = begin.elapsed();
    let why = over.recv_timeout(Duration::from_secs(20)).expect("it steps down");
    let took = begin.elapsed();
    // The lease is of three seconds: its last renewal was asked for before all were stopped.
    assert!(took < stopped + Duration::from_secs(3), "{took:?}: {why}");
    assert!(tenure.holds().is_err());
    for n in 0..3 {
        cluster.thaw(n);
    }
    let (next, _over) = elect(&etcd, "http://b");
    assert!(next.term() > tenure.term());
}

/// etcd with certificates, which wants one of its clients too.
#[test]
fn by_tls_with_an_authority_and_a_certificate_of_its_own() {
    let test = "by_tls_with_an_authority_and_a_certificate_of_its_own";
    if !needs(test, &["etcd", "openssl"]) {
        return;
    }
    let dir = RunDir::in_memory().expect("a directory");
    let [own, other] = ["own", "other"].map(|name| dir.path().join(name));
    for dir in [&own, &other] {
        std::fs::create_dir(dir).expect("a directory");
        certificates(dir, "127.0.0.1");
    }
    let held = [0, 1].map(|_| std::net::TcpListener::bind("127.0.0.1:0").expect("a port"));
    let [client_port, peer] = held.map(|l| l.local_addr().expect("bound").port());
    let (listen, peer) = (format!("https://127.0.0.1:{client_port}"), format!("http://127.0.0.1:{peer}"));
    let mut command = Command::new("etcd");
    command.current_dir(&own).args(["--name", "m", "--data-dir", "data", "--initial-cluster-state", "new"]);
    command.args(["--cert-file", "arb.pem", "--key-file", "arb.key", "--trusted-ca-file", "ca.pem"]);
    command.args(["--client-cert-auth", "--listen-client-urls", &listen, "--advertise-client-urls", &listen]);
    command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
    command.arg("--initial-cluster").arg(format!("m={peer}"));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let _etcd = Process::start(&mut command).expect("etcd starts");
    let url = format!("etcds://127.0.0.1:{client_port}").parse().expect("a URL");
    let tls = |ca: &Path, shown: Option<&Path>| EtcdTls {
        ca: Some(ca.join("ca.pem")),
        certificate: shown.map(|dir| dir.join("arb.pem")),
        key: shown.map(|dir| dir.join("arb.key")),
    };
    let etcd = |tls: &EtcdTls| Arc::new(Etcd::new(&url, tls).expect("a client"));
    let right = etcd(&tls(&own, Some(&own)));
    until(Duration::from_secs(60), "etcd answers by TLS", || right.get("x", soon()).ok().map(drop));
    let (tenure, _over) = elect(&right, "https://first");
    assert!(tenure.term().0 > 0);
    // Whom it does not know it does not serve, and whom we do not know is not asked.
    for wrong in [tls(&own, None), tls(&own, Some(&other)), tls(&other, Some(&own))] {
        let said = etcd(&wrong).get("forebay/leader", Instant::now() + Duration::from_secs(2));
        assert!(said.is_err(), "{wrong:?} is served");
    }
    let open = own.join("arb.key");
    std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o644)).expect("our own file");
    let said = Etcd::new(&url, &tls(&own, Some(&own))).err().expect("others may read the key");
    assert!(said.contains("chmod 600"), "{said}");
}
