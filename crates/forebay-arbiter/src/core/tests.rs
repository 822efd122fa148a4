//! Laws that hold whatever happens: no job is lost, epochs only grow, every job is on an admitted
//! node whenever there is one, dead leases end jobs, and what was stored is the whole state.

mod dfra;
mod ended;
mod pinned;
mod restart;

use super::*;
use forebay_control::CONTROL_VERSION;
use forebay_control::job::JobRequest;
use forebay_control::node::ToArbiter;
use forebay_pattern::{FlowMetrics, Interval};
use forebay_types::FlowId;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

const SECRET: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";
const CSV: &str = "scenario,compute_nodes,processes,layout,spatiality,request_kb,io_nodes,bandwidth_mbs,operation,low_mbs,high_mbs,std_dev_mbs,samples
wide,8,8,0,0,1024,1,100,write,90,110,1,3
wide,8,8,0,0,1024,2,200,write,190,210,1,3
wide,8,8,0,0,1024,4,400,write,390,410,1,3
narrow,8,8,1,1,32,1,50,write,49,51,1,3
narrow,8,8,1,1,32,2,40,write,39,41,1,3
";

pub(super) fn hello(node: u32) -> NodeHello {
    NodeHello {
        version: CONTROL_VERSION,
        node: NodeId(node),
        host: "here".into(),
        addresses: vec![format!("tcp:127.0.0.1:{}", 9000 + node)],
        exports: vec!["/scratch".into()],
        dispatchers: 16,
        memory: 1 << 28,
        scheduler: "fifo".parse().unwrap(),
        interval: Nanos::from_secs(1),
        term: Term(0),
        shares: Vec::new(),
    }
}

pub(super) fn request(id: &str, pattern: Option<&str>) -> JobRequest {
    JobRequest {
        id: id.into(),
        app: "app".into(),
        user: "me".into(),
        compute_nodes: 8,
        processes: 8,
        pattern: pattern.map(Into::into),
        ..JobRequest::default()
    }
}

/// Of the second that ends then.
pub(super) fn report(s: u64, flows: Vec<FlowMetrics>) -> NodeReport {
    NodeReport {
        interval: Interval { start: secs(s - 1), end: secs(s), load: Default::default(), flows },
        jobs: BTreeMap::new(),
        present: Vec::new(),
        waiting: 0,
        connections: 0,
        latency_p50: Nanos(0),
        latency_p99: Nanos(0),
        job_latencies: BTreeMap::new(),
        job_hosts: BTreeMap::new(),
        errors: 0,
        scheduler: None,
    }
}

fn core(policy: PolicyKind, kept: &Kept, term: u64, now: Nanos) -> Core {
    let config = CoreConfig { policy, ..CoreConfig::default() };
    let curves = Curves::from_csv(CSV.as_bytes()).unwrap();
    Core::new(config, curves, Term(term), kept, 1, now).unwrap()
}

fn secs(s: u64) -> Nanos {
    Nanos::from_secs(1_000_000 + s)
}

fn nodes_of(core: &Core, id: &str) -> Vec<u32> {
    core.jobs[id].nodes().iter().map(|n| n.0).collect()
}

fn mappings(actions: &[Action], to: u32) -> Vec<(String, Vec<String>)> {
    let of = |a: &Action| match a {
        Action::Send { to: n, message: ToNode::Mapping { jobs, .. } } if n.0 == to => jobs.clone(),
        _ => Vec::new(),
    };
    actions.iter().flat_map(of).map(|j| (j.job, j.nodes)).collect()
}

#[test]
fn nodes_go_to_whoever_gains() {
    let mut c = core(PolicyKind::Mckp, &Kept::default(), 1, secs(0));
    for n in 0..4 {
        c.node_hello(secs(0), ConnectionId(n.into()), hello(n)).unwrap();
    }
    let grant = c.register(secs(1), request("n", Some("narrow")), SECRET).unwrap();
    assert_eq!(grant.nodes.len(), 1);
    assert_eq!(grant.secret.as_deref(), Some(SECRET));
    c.actions();
    assert_eq!(c.register(secs(1), request("w", Some("wide")), SECRET).unwrap().nodes.len(), 2);
    let actions = c.actions();
    for n in 0..4 {
        let told = mappings(&actions, n);
        assert_eq!(told.len(), 1, "only what changed");
        assert_eq!((told[0].0.as_str(), told[0].1.len()), ("w", 2));
    }
    c.end(secs(2), "n", true).unwrap();
    assert_eq!(nodes_of(&c, "w").len(), 4);
    let why = &c.job(secs(2), "w").unwrap();
    assert!(why.curve.as_ref().unwrap().contains("wide") && why.predicted_mbs == Some(400.0), "{why:?}");
}

#[test]
fn a_lost_node_is_left_after_its_grace_and_a_drained_one_at_once() {
    let mut c = core(PolicyKind::Mckp, &Kept::default(), 1, secs(0));
    for n in 0..2 {
        c.node_hello(secs(0), ConnectionId(n.into()), hello(n)).unwrap();
    }
    c.register(secs(0), request("w", Some("wide")), SECRET).unwrap();
    assert_eq!(nodes_of(&c, "w"), [0, 1]);
    c.node_lost(secs(1), NodeId(0), ConnectionId(0));
    c.tick(secs(2));
    assert_eq!(nodes_of(&c, "w"), [0, 1], "it may be back");
    c.tick(secs(4));
    assert_eq!(nodes_of(&c, "w"), [1]);
    c.node_hello(secs(5), ConnectionId(2), hello(0)).unwrap();
    assert_eq!(nodes_of(&c, "w").len(), 2);
    c.actions();
    c.drain(secs(6), NodeId(1)).unwrap();
    assert_eq!(nodes_of(&c, "w"), [0]);
    let actions = c.actions();
    let told = |a: &Action| matches!(a, Action::Send { to: NodeId(1), message: ToNode::Drain { .. } });
    let moved = |a: &Action| matches!(a, Action::Send { to: NodeId(1), message: ToNode::Mapping { .. } });
    let (told, moved) = (actions.iter().position(told).unwrap(), actions.iter().position(moved).unwrap());
    assert!(moved < told, "its jobs are moved before it is told to end");
    assert!(c.drain(secs(6), NodeId(9)).is_err());
}

#[test]
fn screening_moves_jobs_and_silence_ends_a_connection() {
    let mut c = core(PolicyKind::One, &Kept::default(), 1, secs(0));
    for n in 0..2 {
        c.node_hello(secs(0), ConnectionId(n.into()), hello(n)).unwrap();
    }
    c.register(secs(0), request("a", None), SECRET).unwrap();
    assert_eq!(nodes_of(&c, "a"), [0]);
    c.screen(secs(1), NodeId(0), Some("slow".into()));
    assert_eq!(nodes_of(&c, "a"), [1]);
    let report = || ToArbiter::Report(Box::new(report(1, Vec::new())));
    c.screen(secs(1), NodeId(0), None);
    for s in 1..8 {
        c.node_said(secs(s), NodeId(0), ConnectionId(0), report());
        c.renew(secs(s), "a", 0).unwrap();
        c.tick(secs(s));
    }
    assert_eq!(nodes_of(&c, "a"), [0], "node 1 has been silent");
    assert!(c.actions().iter().any(|a| matches!(a, Action::HangUp(ConnectionId(1)))));
}

#[test]
fn a_job_lives_as_long_as_its_processes() {
    let mut c = core(PolicyKind::One, &Kept::default(), 1, secs(0));
    c.node_hello(secs(0), ConnectionId(0), hello(0)).unwrap();
    c.register(secs(0), request("a", None), SECRET).unwrap();
    c.register(secs(0), request("b", None), SECRET).unwrap();
    let lease = c.config.lease.0 / 1_000_000_000;
    let report = |jobs: &[&str]| {
        let present = jobs.iter().map(|j| (*j).to_owned()).collect();
        ToArbiter::Report(Box::new(NodeReport { present, ..report(1, Vec::new()) }))
    };
    // Nobody renews the leases; processes of one of the two are seen, also of a job nobody knows.
    for s in 1..3 * lease {
        c.node_said(secs(s), NodeId(0), ConnectionId(0), report(&["a", "unheard of"]));
        c.tick(secs(s));
    }
    let jobs: Vec<&String> = c.jobs.keys().collect();
    assert_eq!(jobs, ["a"], "the one without processes has ended");
    for s in 3 * lease..4 * lease + 1 {
        c.node_said(secs(s), NodeId(0), ConnectionId(0), report(&[]));
        c.tick(secs(s));
    }
    assert!(c.jobs.is_empty(), "its processes have ended, and nobody renews its lease");
}

#[test]
fn hosts_and_account_of_a_job_are_shown() {
    let mut c = core(PolicyKind::One, &Kept::default(), 1, secs(0));
    let names: Vec<String> = ["c1", "c2"].map(str::to_owned).into();
    let of =
        |id: &str, hosts: Vec<String>| JobRequest { hosts, account: "engines".into(), ..request(id, None) };
    c.register(secs(0), of("a", names.clone()), SECRET).unwrap();
    let view = c.job(secs(0), "a").unwrap();
    assert_eq!((view.hosts, view.account.as_str()), (names.clone(), "engines"));
    assert_eq!(c.mapping().jobs[0].hosts, names);
    let many = (0..5000).map(|n| n.to_string()).collect();
    for bad in [many, vec!["c\n".to_owned()], vec!["c".repeat(300)], vec!["c".repeat(200); 200]] {
        assert!(c.register(secs(0), of("b", bad), SECRET).is_err());
    }
}

#[test]
fn a_sites_map_goes_before_the_policy_for_jobs_that_are_all_in_it() {
    let mut c = core(PolicyKind::One, &Kept::default(), 1, secs(0));
    c.config.map = [("c1", 2), ("c2", 2), ("c3", 0)].map(|(h, n)| (h.to_owned(), NodeId(n))).into();
    let job = |id: &str, hosts: &[&str]| {
        let hosts: Vec<String> = hosts.iter().map(|h| (*h).to_owned()).collect();
        JobRequest { compute_nodes: hosts.len() as u32, hosts, ..request(id, None) }
    };
    for n in 0..3 {
        c.node_hello(secs(0), ConnectionId(n.into()), hello(n)).unwrap();
    }
    let grant = c.register(secs(1), job("a", &["c1", "c2.site", "c3"]), SECRET).unwrap();
    assert_eq!(grant.nodes, [NodeId(2), NodeId(0)]);
    assert!(grant.reason.contains("map"), "{}", grant.reason);
    let by = |host: &str| grant.fixed[host].clone();
    assert_eq!((by("c1"), by("c3")), ("tcp:127.0.0.1:9002".into(), "tcp:127.0.0.1:9000".into()));
    assert_eq!((by("c2.site"), c.mapping().jobs[0].fixed["c3"]), (by("c1"), NodeId(0)));
    // One host that is not in it, and it is the policy's; so is one whose I/O node is gone.
    let other = c.register(secs(1), job("b", &["c1", "c9"]), SECRET).unwrap();
    assert_eq!((other.nodes.len(), other.fixed.len()), (1, 0));
    c.drain(secs(2), NodeId(0)).unwrap();
    let left = c.register(secs(2), job("d", &["c3"]), SECRET).unwrap();
    assert!(left.nodes.len() == 1 && left.nodes[0] != NodeId(0) && left.fixed.is_empty(), "{left:?}");
}

#[test]
fn the_wrong_secret_does_not_take_over_a_job() {
    let mut c = core(PolicyKind::One, &Kept::default(), 1, secs(0));
    let grant = c.register(secs(0), request("a", None), SECRET).unwrap();
    assert!(grant.nodes.is_empty() && grant.reason.contains("no I/O node"));
    assert!(matches!(c.register(secs(1), request("a", None), SECRET), Err(Refusal::Conflict(_))));
    let other = JobRequest { secret: Some("f".repeat(64)), ..request("a", None) };
    assert!(matches!(c.register(secs(1), other, SECRET), Err(Refusal::Conflict(_))));
    let same = JobRequest { secret: Some(SECRET.into()), ..request("a", None) };
    assert!(c.register(secs(1), same, SECRET).is_ok());
    for bad in [JobRequest { compute_nodes: 0, ..request("x", None) }, request("x/y", None)] {
        assert!(matches!(c.register(secs(1), bad, SECRET), Err(Refusal::Invalid(_))));
    }
    let a = c.register(secs(1), request("", None), SECRET).unwrap().id;
    let b = c.register(secs(1), request("", None), SECRET).unwrap().id;
    assert!(a != b && a.starts_with("app-"));
}

#[test]
fn measurements_correct_a_curve_and_move_a_running_job() {
    let mut c = core(PolicyKind::Mckp, &Kept::default(), 1, secs(0));
    for n in 0..4 {
        c.node_hello(secs(0), ConnectionId(n.into()), hello(n)).unwrap();
    }
    // Two jobs of which the table thinks the same; "slow" really gains nothing from its two nodes.
    let of = |id: &str, app: &str| JobRequest { app: app.into(), ..request(id, Some("wide")) };
    c.register(secs(0), of("fast", "fast"), SECRET).unwrap();
    c.register(secs(0), of("slow", "slow"), SECRET).unwrap();
    assert_eq!((nodes_of(&c, "fast").len(), nodes_of(&c, "slow").len()), (2, 2));
    for s in 1..40 {
        for (job, mbs) in [("fast", 200), ("slow", 20)] {
            for node in nodes_of(&c, job) {
                let flow = FlowMetrics {
                    flow: FlowId(1),
                    writes: 10,
                    bytes_written: mbs * 500_000,
                    served: mbs * 500_000,
                    busy: Nanos::from_secs(1),
                    clients: 1,
                    ..Default::default()
                };
                let report = NodeReport {
                    jobs: BTreeMap::from([(FlowId(1), job.to_owned())]),
                    ..report(s, vec![flow])
                };
                c.node_said(
                    secs(s),
                    NodeId(node),
                    ConnectionId(node.into()),
                    ToArbiter::Report(Box::new(report)),
                );
            }
        }
        c.renew(secs(s), "fast", 0).unwrap();
        c.renew(secs(s), "slow", 0).unwrap();
        c.tick(secs(s));
    }
    // 4 and 1 would not divide 4 nodes better: with 3 left, "fast" still has 2, but "slow" gives up one
    // only where someone gains by it; so a third job is not made to share.
    let third = c.register(secs(40), of("third", "fast"), SECRET).unwrap();
    assert_eq!(third.nodes.len(), 1);
    assert_eq!((nodes_of(&c, "fast").len(), nodes_of(&c, "slow").len()), (2, 1));
    let rows = c.actions().iter().filter(|a| matches!(a, Action::Record(..))).count();
    assert!(rows >= 39 * 4, "{rows}");
}

#[test]
fn nodes_keep_unknown_jobs_until_these_had_time_to_register_again() {
    let mut c = core(PolicyKind::One, &Kept::default(), 1, secs(0));
    let complete = |actions: &[Action]| -> Vec<bool> {
        let of = |a: &Action| match a {
            Action::Send { message: ToNode::Mapping { complete, .. }, .. } => Some(*complete),
            _ => None,
        };
        actions.iter().filter_map(of).collect()
    };
    c.node_hello(secs(1), ConnectionId(1), hello(0)).unwrap();
    assert_eq!(complete(&c.actions()), [false]);
    c.node_said(secs(14), NodeId(0), ConnectionId(1), ToArbiter::Refused { term: Term(1), newest: Term(1) });
    c.tick(secs(14));
    assert!(complete(&c.actions()).is_empty());
    c.tick(secs(15));
    assert_eq!(complete(&c.actions()), [true]);
    c.node_hello(secs(16), ConnectionId(2), hello(0)).unwrap();
    assert_eq!(complete(&c.actions()), [true]);
}

/// One thing that may happen.
#[derive(Clone, Debug)]
enum Step {
    Hello(u32),
    Lose(u32),
    Leave(u32),
    Drain(u32),
    Screen(u32, bool),
    Register(u8, u8),
    /// A job is put on the nodes of these bits.
    Pin(u8, u32),
    Renew(u8),
    End(u8),
    Pass(u64),
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..5u32).prop_map(Step::Hello),
        2 => (0..5u32).prop_map(Step::Lose),
        1 => (0..5u32).prop_map(Step::Leave),
        1 => (0..5u32).prop_map(Step::Drain),
        2 => (0..5u32, any::<bool>()).prop_map(|(n, b)| Step::Screen(n, b)),
        5 => (0..8u8, 0..4u8).prop_map(|(j, p)| Step::Register(j, p)),
        2 => (0..8u8, 0..32u32).prop_map(|(j, n)| Step::Pin(j, n)),
        3 => (0..8u8).prop_map(Step::Renew),
        2 => (0..8u8).prop_map(Step::End),
        4 => (0..20_000u64).prop_map(Step::Pass),
        1 => Just(Step::Restart),
    ]
}

/// What must be true of the core at any time, told by a model that knows only leases.
struct Model {
    core: Core,
    kept: Kept,
    leases: BTreeMap<String, Nanos>,
    epochs: BTreeMap<String, Epoch>,
    pinned: BTreeMap<String, Vec<NodeId>>,
    /// Where jobs were after the last step.
    places: BTreeMap<String, Vec<NodeId>>,
    newest: Epoch,
    /// By node, its open connection.
    connections: BTreeMap<u32, u64>,
    next: u64,
    term: u64,
    now: Nanos,
    policy: PolicyKind,
}

impl Model {
    fn new(policy: PolicyKind) -> Model {
        let now = secs(0);
        Model {
            core: core(policy, &Kept::default(), 1, now),
            kept: Kept::default(),
            leases: BTreeMap::new(),
            epochs: BTreeMap::new(),
            pinned: BTreeMap::new(),
            places: BTreeMap::new(),
            newest: Epoch(0),
            connections: BTreeMap::new(),
            next: 0,
            term: 1,
            now,
            policy,
        }
    }

    fn act(&mut self, step: &Step) {
        let (now, lease) = (self.now, self.core.config.lease);
        match *step {
            Step::Hello(n) => {
                self.next += 1;
                self.core.node_hello(now, ConnectionId(self.next), hello(n)).unwrap();
                self.connections.insert(n, self.next);
            }
            Step::Lose(n) => {
                if let Some(c) = self.connections.remove(&n) {
                    self.core.node_lost(now, NodeId(n), ConnectionId(c));
                }
            }
            Step::Leave(n) => {
                if let Some(&c) = self.connections.get(&n) {
                    self.core.node_said(now, NodeId(n), ConnectionId(c), ToArbiter::Leaving);
                }
            }
            Step::Drain(n) => drop(self.core.drain(now, NodeId(n))),
            Step::Screen(n, bad) => self.core.screen(now, NodeId(n), bad.then(|| "slow".to_owned())),
            Step::Register(j, p) => {
                let pattern = [None, Some("wide"), Some("narrow"), Some("no such")][usize::from(p)];
                let id = format!("j{j}");
                let mut r = request(&id, pattern);
                r.secret = Some(SECRET.into());
                r.compute_nodes = [8, 1, 6, 4][usize::from(p)];
                self.core.register(now, r, SECRET).unwrap();
                if self.leases.insert(id.clone(), now + lease).is_none() {
                    // Another job of the same name begins anew.
                    self.epochs.remove(&id);
                }
            }
            Step::Pin(j, bits) => {
                let id = format!("j{j}");
                let wanted: Vec<NodeId> = (0..5).filter(|n| bits >> n & 1 == 1).map(NodeId).collect();
                let held = self.places.get(&id).cloned().unwrap_or_default();
                let may = self.leases.contains_key(&id) && wanted.iter().all(|n| self.core.admits(*n, &held));
                assert_eq!(self.core.pin(now, &id, wanted.clone()).is_ok(), may);
                if may {
                    self.pinned.insert(id, wanted);
                }
            }
            Step::Renew(j) => {
                let id = format!("j{j}");
                assert_eq!(self.core.renew(now, &id, 0).is_ok(), self.leases.contains_key(&id));
                self.leases.entry(id).and_modify(|l| *l = now + lease);
            }
            Step::End(j) => {
                let id = format!("j{j}");
                assert_eq!(self.core.end(now, &id, true).is_ok(), self.leases.remove(&id).is_some());
            }
            Step::Pass(ms) => {
                self.now = now + Nanos::from_millis(ms);
                self.core.tick(self.now);
                self.leases.retain(|_, l| *l > self.now);
            }
            Step::Restart => {
                self.store();
                self.term += 1;
                self.core = core(self.policy, &self.kept, self.term, now);
                self.connections.clear();
                self.leases.values_mut().for_each(|l| *l = now + lease);
            }
        }
        self.store();
    }

    /// Carries out the actions, and checks those that say something.
    fn store(&mut self) {
        for action in self.core.actions() {
            match action {
                Action::Persist(change) => self.kept.apply(&change),
                Action::Send { message: ToNode::Mapping { jobs, term, .. }, .. } => {
                    assert_eq!(term, Term(self.term));
                    for j in jobs {
                        let kept = self.kept.jobs.get(&j.job).expect("stored before it is said");
                        assert_eq!((kept.epoch, &kept.addresses), (j.epoch, &j.nodes));
                        assert!(j.epoch <= self.kept.epoch, "the counter is stored as well");
                    }
                }
                _ => {}
            }
        }
    }

    fn check(&mut self) {
        let mut kept = self.kept.clone();
        kept.learned.clear();
        assert_eq!(kept, self.core.kept(), "what is stored is the state");
        let names: BTreeSet<_> = self.core.jobs.keys().cloned().collect();
        assert_eq!(names, self.leases.keys().cloned().collect(), "no job is lost, dead leases end jobs");
        let admitted: BTreeSet<NodeId> =
            self.core.nodes.iter().filter(|(_, n)| n.admitted()).map(|(id, _)| *id).collect();
        for (id, job) in &self.core.jobs {
            let before = self.epochs.insert(id.clone(), job.stored.epoch).unwrap_or_default();
            assert!(job.stored.epoch >= before, "the epoch of {id} went back");
            assert_eq!(job.nodes().len(), job.stored.addresses.len());
            let held = self.places.insert(id.clone(), job.nodes().to_vec()).unwrap_or_default();
            let unheard = |n: &NodeId| self.core.nodes.get(n).is_some_and(|n| n.hello.is_none());
            let strange = job.nodes().iter().find(|n| unheard(n) && !held.contains(n));
            assert_eq!(strange, None, "{id} came to a node that has not been heard of");
            // While the arbiter has just started and nobody is back, everything stays as it was.
            if admitted.iter().any(|n| self.core.nodes[n].connection.is_some()) {
                assert!(!job.nodes().is_empty(), "{id} has no node though there is one");
                assert!(job.nodes().iter().all(|n| admitted.contains(n)), "{id} is on {:?}", job.nodes());
                let mut pinned = self.pinned.get(id).cloned().unwrap_or_default();
                pinned.retain(|n| self.core.admits(*n, &held));
                if !pinned.is_empty() {
                    assert_eq!(job.nodes(), pinned, "{id} is where it was pinned to");
                }
            }
        }
        self.pinned.retain(|id, _| self.core.jobs.contains_key(id));
        self.places.retain(|id, _| self.core.jobs.contains_key(id));
        self.epochs.retain(|id, _| self.core.jobs.contains_key(id));
        assert!(self.core.epoch >= self.newest, "epochs only grow");
        self.newest = self.core.epoch;
        let epochs: Vec<_> = self.core.jobs.values().map(|j| j.stored.epoch).filter(|e| e.0 > 0).collect();
        let distinct: BTreeSet<_> = epochs.iter().collect();
        assert_eq!(distinct.len(), epochs.len(), "no two mappings have the same epoch");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happens(policy in 0..8usize, steps in prop::collection::vec(step(), 1..60)) {
        let policies: Vec<_> = PolicyKind::ALL.into_iter().filter(|p| *p != PolicyKind::Zero).collect();
        let mut model = Model::new(policies[policy]);
        for step in &steps {
            model.act(step);
            model.check();
        }
    }
}

#[test]
fn what_a_job_moved_outlives_the_arbiter_and_is_said_to_be_a_part() {
    let mut kept = Kept::default();
    let mut c = core(PolicyKind::One, &kept, 1, secs(0));
    c.node_hello(secs(0), ConnectionId(0), hello(0)).unwrap();
    for id in ["a", "b"] {
        c.register(secs(0), request(id, None), SECRET).unwrap();
    }
    let served = |c: &mut Core, s: u64, job: &str, bytes: u64| {
        let flow = FlowMetrics { flow: FlowId(1), served: bytes, bytes_written: bytes, ..Default::default() };
        let jobs = BTreeMap::from([(FlowId(1), job.to_owned())]);
        let report = NodeReport { jobs, ..report(s, vec![flow]) };
        c.node_said(secs(s), NodeId(0), ConnectionId(0), ToArbiter::Report(Box::new(report)));
        c.tick(secs(s));
    };
    let shown = |c: &Core, id: &str| c.job(secs(20), id).map(|j| (j.bytes, j.bytes_at_least)).unwrap();
    served(&mut c, 6, "a", 7000);
    assert_eq!((shown(&c, "a"), shown(&c, "b")), ((7000, false), (0, false)));
    let keep = |c: &mut Core, kept: &mut Kept| {
        for action in c.actions() {
            if let Action::Persist(change) = action {
                kept.apply(&change);
            }
        }
    };
    keep(&mut c, &mut kept);
    // One of the same name that begins later is another.
    c.end(secs(7), "b", true).unwrap();
    c.register(secs(8), request("b", None), SECRET).unwrap();
    served(&mut c, 9, "b", 50);
    c.stopping(secs(9));
    keep(&mut c, &mut kept);
    c.end(secs(10), "b", true).unwrap();
    c.register(secs(11), request("b", None), SECRET).unwrap();
    keep(&mut c, &mut kept);
    // The next one knows, and says that nobody counted meanwhile.
    let mut c = core(PolicyKind::One, &kept, 2, secs(12));
    assert_eq!((shown(&c, "a"), shown(&c, "b")), ((7000, true), (0, true)));
    c.node_hello(secs(12), ConnectionId(0), hello(0)).unwrap();
    served(&mut c, 14, "a", 95);
    assert_eq!((shown(&c, "a"), c.counted()), ((7095, true), vec![95, 0]), "counters begin at 0");
    c.register(secs(15), request("new", None), SECRET).unwrap();
    served(&mut c, 16, "new", 1);
    assert_eq!(shown(&c, "new"), (1, false));
    c.node_lost(secs(17), NodeId(0), ConnectionId(0));
    assert_eq!(shown(&c, "new"), (1, true), "its node is not heard any more");
}
