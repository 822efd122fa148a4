//! DFRA on a running arbiter: the fixed map, who gets I/O nodes of the reserve, and what predicts.

use super::*;
use forebay_control::job::JobGrant;
use forebay_policy::dfra::DfraConfig;

/// Eight compute nodes, four to an I/O node; I/O nodes 0 and 1 are the default, four are the reserve.
fn machine(kept: &Kept, now: Nanos) -> Core {
    let dfra = DfraConfig {
        min_bytes: 1000,
        compute_per_io_node: Some(4),
        default_io_nodes: Some(2),
        // Two compute nodes saturate an I/O node.
        io_node_peak_mbs: 100.0,
        compute_node_peak_mbs: 50.0,
        ..DfraConfig::default()
    };
    let config = CoreConfig {
        policy: PolicyKind::Dfra,
        settings: Settings { dfra, ..Settings::default() },
        map: (0..8).map(|n| (format!("cn{n}"), NodeId(n / 4))).collect(),
        ..CoreConfig::default()
    };
    let mut core = Core::new(config, Curves::default(), Term(1), kept, 1, now).unwrap();
    for n in 0..6 {
        core.node_hello(now, ConnectionId(n.into()), hello(n)).unwrap();
    }
    core
}

/// A job of this application on these compute nodes.
fn begin(core: &mut Core, s: u64, id: &str, app: &str, hosts: std::ops::Range<u32>) -> JobGrant {
    let request = JobRequest {
        id: id.into(),
        app: app.into(),
        compute_nodes: hosts.len() as u32,
        hosts: hosts.map(|n| format!("cn{n}.site")).collect(),
        ..JobRequest::default()
    };
    core.register(secs(s), request, SECRET).unwrap()
}

/// All nodes report; a job writes so much on some of them, from these compute nodes.
fn works(core: &mut Core, s: u64, id: &str, flow: &FlowMetrics, hosts: std::ops::Range<u64>) {
    let on: Vec<u32> = core.jobs.get(id).map_or(Vec::new(), |_| nodes_of(core, id));
    for n in 0..6 {
        let flows = if on.contains(&n) { vec![flow.clone()] } else { Vec::new() };
        let report = NodeReport {
            jobs: BTreeMap::from([(flow.flow, id.to_owned())]),
            job_hosts: BTreeMap::from([(id.to_owned(), hosts.clone().collect())]),
            ..report(s, flows)
        };
        core.node_said(secs(s), NodeId(n), ConnectionId(n.into()), ToArbiter::Report(Box::new(report)));
    }
    core.tick(secs(s + 2));
}

/// Sixteen processes that share one file.
fn shared_file(bytes: u64) -> FlowMetrics {
    FlowMetrics {
        flow: FlowId(1),
        clients: 16,
        files: 1,
        streams: 16,
        writes: 10,
        bytes_written: bytes,
        served: bytes,
        ..Default::default()
    }
}

fn small_files() -> FlowMetrics {
    FlowMetrics { files: 16, ..shared_file(100) }
}

/// A run of an application on one compute node that is known for its shared file from then on.
fn known(core: &mut Core, s: u64, app: &str) {
    begin(core, s, "first", app, 7..8);
    works(core, s + 1, "first", &shared_file(500), 0..1);
    core.end(secs(s + 3), "first", true).unwrap();
}

#[test]
fn compute_nodes_belong_to_io_nodes_and_come_back_to_them() {
    let mut c = machine(&Kept::default(), secs(0));
    let a = begin(&mut c, 1, "a", "a", 0..4);
    assert_eq!(a.nodes, [NodeId(0)]);
    let b = begin(&mut c, 1, "b", "b", 3..5);
    assert_eq!(b.nodes, [NodeId(0), NodeId(1)], "its compute nodes belong to two");
    let place = |n: u32| {
        let address = &b.fixed[&format!("cn{n}.site")];
        b.nodes[b.addresses.iter().position(|a| a == address).unwrap()]
    };
    assert_eq!((place(3), place(4)), (NodeId(0), NodeId(1)));
    c.end(secs(1), "b", true).unwrap();
    known(&mut c, 2, "one file");
    let own = begin(&mut c, 7, "own", "one file", 7..8);
    assert_eq!(own.nodes, [NodeId(1)], "nobody is there to be disturbed");
    let other = begin(&mut c, 7, "other", "one file", 7..8);
    assert_eq!(other.nodes, [NodeId(2)], "isolated on one of the reserve");
    assert!(other.fixed.is_empty() && other.reason.contains("isolated"), "{}", other.reason);
    c.end(secs(8), "other", true).unwrap();
    c.end(secs(8), "own", true).unwrap();
    assert_eq!(begin(&mut c, 9, "last", "unknown", 7..8).nodes, [NodeId(1)], "as by default");
}

#[test]
fn a_job_is_scaled_by_its_compute_nodes_not_its_processes_and_gives_back() {
    let mut c = machine(&Kept::default(), secs(0));
    for (s, app, hosts, wanted) in [(1, "few", 0..1u64, 1usize), (11, "all", 0..8, 4)] {
        begin(&mut c, s, "first", app, 0..8);
        works(
            &mut c,
            s + 1,
            "first",
            &FlowMetrics { bytes_written: 1 << 20, served: 1 << 20, ..small_files() },
            hosts,
        );
        c.end(secs(s + 4), "first", true).unwrap();
        let grant = begin(&mut c, s + 5, "second", app, 0..8);
        let reserve: Vec<NodeId> = grant.nodes.iter().copied().filter(|n| n.0 >= 2).collect();
        match wanted {
            // Sixteen processes, but one compute node does the I/O.
            1 => assert_eq!(grant.nodes, [NodeId(0), NodeId(1)], "{}", grant.reason),
            _ => assert_eq!(reserve, [2, 3, 4, 5].map(NodeId), "{}", grant.reason),
        }
        c.end(secs(s + 6), "second", true).unwrap();
    }
    assert_eq!(begin(&mut c, 20, "a", "new", 0..4).nodes, [NodeId(0)]);
}

#[test]
fn only_a_complete_run_predicts() {
    let bytes = |c: &Core| {
        let scale = ("app".to_owned(), String::new(), 1);
        c.runs.predict(&scale).map(|r| r.profile.bytes)
    };
    let mut kept = Kept::default();
    let mut c = machine(&kept, secs(0));
    begin(&mut c, 1, "a", "app", 0..1);
    works(&mut c, 2, "a", &shared_file(700), 0..1);
    c.end(secs(5), "a", true).unwrap();
    assert_eq!(bytes(&c), Some(700));
    // One that failed.
    begin(&mut c, 6, "a", "app", 0..1);
    works(&mut c, 7, "a", &shared_file(10), 0..1);
    c.end(secs(10), "a", false).unwrap();
    assert_eq!(bytes(&c), Some(700));
    // One whose lease ran out.
    begin(&mut c, 11, "a", "app", 0..1);
    works(&mut c, 12, "a", &shared_file(20), 0..1);
    c.tick(secs(60));
    assert!(c.jobs.is_empty());
    assert_eq!(bytes(&c), Some(700));
    // One that another arbiter saw begin.
    for n in 0..6 {
        c.node_hello(secs(61), ConnectionId(10 + u64::from(n)), hello(n)).unwrap();
    }
    begin(&mut c, 62, "a", "app", 0..1);
    for action in c.actions() {
        if let Action::Persist(change) = action {
            kept.apply(&change);
        }
    }
    let mut c = machine(&kept, secs(63));
    works(&mut c, 64, "a", &shared_file(30), 0..1);
    c.end(secs(67), "a", true).unwrap();
    assert_eq!(bytes(&c), Some(700));
}

#[test]
fn a_silent_neighbour_disturbs_nobody() {
    let mut c = machine(&Kept::default(), secs(0));
    known(&mut c, 1, "one file");
    begin(&mut c, 10, "first", "one file", 7..8);
    known_small(&mut c, 11);
    // What it did before counts, as long as it may only be about to begin.
    let near = begin(&mut c, 20, "near", "small", 6..7);
    assert_eq!(near.nodes, [NodeId(2)], "{}", near.reason);
    c.end(secs(20), "near", true).unwrap();
    let mut s = 21;
    while s < 90 {
        works(&mut c, s, "nobody", &small_files(), 0..0);
        c.renew(secs(s), "first", 0).unwrap();
        s += 2;
    }
    let near = begin(&mut c, 95, "near", "small", 6..7);
    assert_eq!(near.nodes, [NodeId(1)], "{}", near.reason);
    c.end(secs(95), "near", true).unwrap();
    // Once it works, it does count.
    works(&mut c, 96, "first", &shared_file(10), 0..1);
    assert_eq!(begin(&mut c, 99, "near", "small", 6..7).nodes, [NodeId(2)]);
}

/// An application that disturbs nobody by itself.
fn known_small(core: &mut Core, s: u64) {
    begin(core, s, "small", "small", 0..1);
    works(core, s + 1, "small", &FlowMetrics { flow: FlowId(2), ..small_files() }, 0..1);
    core.end(secs(s + 4), "small", true).unwrap();
}

#[test]
fn nobody_is_put_on_what_is_another_jobs_own() {
    let mut c = machine(&Kept::default(), secs(0));
    known(&mut c, 1, "one file");
    begin(&mut c, 10, "default", "unknown", 7..8);
    let own = begin(&mut c, 11, "own", "one file", 7..8);
    assert_eq!(own.nodes, [NodeId(2)]);
    let spare = c.renew(secs(11), "default", 0).unwrap().spare;
    assert!(!spare.contains(&hello(2).addresses[0]) && spare.len() == 4, "{spare:?}");
    // The default I/O nodes die, and then all but what is somebody's own.
    for n in [1, 0, 3, 4] {
        c.node_lost(secs(12), NodeId(n), ConnectionId(n.into()));
    }
    for s in 13..20 {
        for n in [2, 5] {
            c.node_said(
                secs(s),
                NodeId(n),
                ConnectionId(n.into()),
                ToArbiter::Report(Box::new(report(s, vec![]))),
            );
        }
        c.tick(secs(s));
        c.renew(secs(s), "default", 0).unwrap();
        c.renew(secs(s), "own", 0).unwrap();
    }
    assert_eq!(nodes_of(&c, "default"), [5], "one of the reserve stands in");
    assert_eq!(nodes_of(&c, "own"), [2]);
    assert_eq!(begin(&mut c, 20, "third", "unknown", 0..1).nodes, [NodeId(5)]);
}
