//! What the next arbiter knows of nodes that were drained or died, and where jobs are until the others are back.

use super::*;
use forebay_control::limit::{Limit, Rates, Subject};
use forebay_control::view::NodeState;

/// An arbiter that can be killed: everything that it stored is there for the next one.
struct Reign {
    core: Core,
    kept: Kept,
    /// What was last said of a job's weight to a node, by a mapping or by shares.
    weights: BTreeMap<(u32, String), u32>,
    /// All weights that the one job was ever given there.
    said: Vec<(u32, String, u32)>,
}

impl Reign {
    fn begin(kept: Kept, now: Nanos) -> Reign {
        let core = core(PolicyKind::One, &kept, 1, now);
        Reign { core, kept, weights: BTreeMap::new(), said: Vec::new() }
    }

    fn carry_out(&mut self) {
        for action in self.core.actions() {
            let weights: Vec<(u32, String, u32)> = match action {
                Action::Persist(change) => {
                    self.kept.apply(&change);
                    continue;
                }
                Action::Send { to, message: ToNode::Mapping { jobs, .. } } => {
                    jobs.into_iter().map(|j| (to.0, j.job, j.weight)).collect()
                }
                Action::Send { to, message: ToNode::Shares { jobs, .. } } => {
                    jobs.into_iter().filter_map(|s| Some((to.0, s.job, s.weight?))).collect()
                }
                _ => continue,
            };
            for (node, job, weight) in weights {
                self.weights.insert((node, job.clone()), weight);
                self.said.push((node, job, weight));
            }
        }
    }

    /// Only through text, as in any store.
    fn next(mut self, now: Nanos) -> Reign {
        self.carry_out();
        let mut kept = Kept { epoch: self.kept.epoch, ..Kept::default() };
        let jobs = self.kept.jobs.values().map(|j| Change::Job(Box::new(j.clone())));
        let nodes = self.kept.nodes.values().map(|n| Change::Node(n.clone()));
        let limits = self.kept.limits.values().map(|l| Change::Limit(Box::new(l.clone())));
        let learned = self.kept.learned.iter();
        let learned = learned.map(|(k, v)| Change::Learned { key: k.clone(), value: Some(v.clone()) });
        for change in jobs.chain(nodes).chain(limits).chain(learned) {
            let (key, value) = change.entry();
            kept.add(&key, &value.unwrap()).unwrap();
        }
        Reign::begin(kept, now)
    }

    fn hello(&mut self, now: Nanos, node: u32) {
        self.core.node_hello(now, ConnectionId(node.into()), hello(node)).unwrap();
    }

    fn state(&self, now: Nanos, node: u32) -> NodeState {
        self.core.nodes(now).into_iter().find(|n| n.id.0 == node).unwrap().state
    }

    fn report(&mut self, s: u64, node: u32, served: u64) {
        let mut report = report(s, Vec::new());
        report.interval.load.served = served;
        let said = ToArbiter::Report(Box::new(report));
        self.core.node_said(secs(s), NodeId(node), ConnectionId(node.into()), said);
    }
}

fn two_nodes() -> Reign {
    let mut r = Reign::begin(Kept::default(), secs(0));
    r.hello(secs(0), 0);
    r.hello(secs(0), 1);
    r
}

#[test]
fn a_drained_node_is_not_lost_to_the_next_arbiter_and_gets_no_job() {
    let mut r = two_nodes();
    r.core.drain(secs(1), NodeId(0)).unwrap();
    r.core.node_said(secs(1), NodeId(0), ConnectionId(0), ToArbiter::Leaving);
    // Killed while the node is still being emptied, the next one knows that it is.
    r.carry_out();
    let early = Reign::begin(r.kept.clone(), secs(2));
    assert_eq!(early.state(secs(2), 0), NodeState::Draining);
    r.core.node_lost(secs(2), NodeId(0), ConnectionId(0));
    r.core.tick(secs(3));
    assert_eq!(r.state(secs(3), 0), NodeState::Drained);
    let mut r = r.next(secs(5));
    for s in [5, 8, 16] {
        r.core.tick(secs(s));
        assert_eq!(r.state(secs(s), 0), NodeState::Drained, "after {s} s");
        if s == 5 {
            r.hello(secs(6), 1);
            r.core.register(secs(7), request("new", None), SECRET).unwrap();
            assert_eq!(nodes_of(&r.core, "new"), [1]);
        }
        r.report(s + 1, 1, 0);
        r.core.renew(secs(s), "new", 0).unwrap();
    }
    // Started again, it is a node like any other, also to the arbiter after that.
    r.hello(secs(17), 0);
    assert_eq!(r.state(secs(17), 0), NodeState::Admitted);
    let mut r = r.next(secs(18));
    assert_eq!(r.state(secs(18), 0), NodeState::Awaited);
    r.core.tick(secs(30));
    assert_eq!(r.state(secs(30), 0), NodeState::Lost);
}

#[test]
fn a_node_as_it_was_stored_before_is_still_read() {
    let mut kept = Kept::default();
    kept.add("node/3", r#"{"id":3,"host":"h","addresses":["tcp:h:1"]}"#).unwrap();
    let node = &kept.nodes[&NodeId(3)];
    assert!(!node.leaving && !node.gone);
}

#[test]
fn a_job_that_was_moved_from_a_dead_node_stays_where_it_is() {
    for drained in [true, false] {
        let mut r = two_nodes();
        r.core.register(secs(0), request("h", None), SECRET).unwrap();
        r.core.pin(secs(0), "h", vec![NodeId(0)]).unwrap();
        assert_eq!(nodes_of(&r.core, "h"), [0]);
        if drained {
            r.core.drain(secs(1), NodeId(0)).unwrap();
        }
        r.core.node_lost(secs(1), NodeId(0), ConnectionId(0));
        r.core.tick(secs(4));
        assert_eq!(nodes_of(&r.core, "h"), [1]);
        let epoch = r.core.jobs["h"].stored.epoch;
        let mut r = r.next(secs(5));
        let gone = if drained { NodeState::Drained } else { NodeState::Lost };
        assert_eq!(r.state(secs(5), 0), gone, "nobody waits for what was given up");
        r.core.tick(secs(5));
        r.hello(secs(6), 1);
        for s in 6..25 {
            r.core.tick(secs(s));
            r.core.renew(secs(s), "h", 0).unwrap();
            r.report(s, 1, 0);
            assert_eq!((nodes_of(&r.core, "h"), r.core.jobs["h"].stored.epoch), (vec![1], epoch), "{s} s");
        }
        // Back, it is where its admin wants the job.
        r.hello(secs(25), 0);
        assert_eq!(nodes_of(&r.core, "h"), [0]);
    }
}

#[test]
fn a_node_that_was_not_heard_of_is_given_to_nobody_who_is_not_on_it() {
    let mut r = two_nodes();
    r.core.register(secs(0), request("there", None), SECRET).unwrap();
    r.core.pin(secs(0), "there", vec![NodeId(0)]).unwrap();
    let mut r = r.next(secs(1));
    // Nobody is back: who was somewhere stays, who begins waits.
    let grant = r.core.register(secs(1), request("early", None), SECRET).unwrap();
    assert!(grant.nodes.is_empty(), "{grant:?}");
    assert!(r.core.pin(secs(1), "early", vec![NodeId(0)]).is_err());
    r.hello(secs(2), 1);
    r.core.register(secs(2), request("new", None), SECRET).unwrap();
    let at = |r: &Reign| ["there", "early", "new"].map(|id| nodes_of(&r.core, id));
    assert_eq!(at(&r), [vec![0], vec![1], vec![1]]);
    r.hello(secs(3), 0);
    assert_eq!(nodes_of(&r.core, "there"), [0]);
    r.core.pin(secs(3), "new", vec![NodeId(0)]).unwrap();
    assert_eq!(nodes_of(&r.core, "new"), [0]);
}

#[test]
fn the_limit_of_a_job_that_was_moved_from_a_drained_node_stays_whole() {
    let mut r = two_nodes();
    r.core.register(secs(0), request("h", None), SECRET).unwrap();
    r.core.pin(secs(0), "h", vec![NodeId(0)]).unwrap();
    let most = Rates { bandwidth: Some(2e6), ..Rates::default() };
    let subject = Subject::Job("h".into());
    r.core.set_limit(secs(0), Limit { subject, most, at_least: None, until_unix_ms: None }).unwrap();
    r.core.drain(secs(1), NodeId(0)).unwrap();
    r.core.node_lost(secs(1), NodeId(0), ConnectionId(0));
    r.core.tick(secs(4));
    let parts = |r: &Reign| -> Vec<(u32, Option<f64>)> {
        r.core.limits()[0].shares.iter().map(|p| (p.node.0, p.share.limit.bandwidth)).collect()
    };
    assert_eq!(parts(&r), [(1, Some(2e6))]);
    let mut r = r.next(secs(5));
    r.hello(secs(6), 1);
    for s in 6..20 {
        r.core.tick(secs(s));
        r.core.renew(secs(s), "h", 0).unwrap();
        r.report(s, 1, 2_000_000);
        assert_eq!(parts(&r), [(1, Some(2e6))], "{s} s");
    }
}

#[test]
fn a_guarantee_holds_under_the_next_arbiter_from_its_first_word() {
    let mut r = Reign::begin(Kept::default(), secs(0));
    r.hello(secs(0), 0);
    for job in ["g", "x", "y", "z"] {
        r.core.register(secs(0), request(job, None), SECRET).unwrap();
    }
    r.report(1, 0, 12_000_000);
    let subject = Subject::Job("g".into());
    let guarantee = Limit { subject, most: Rates::default(), at_least: Some(6e6), until_unix_ms: None };
    r.core.set_limit(secs(1), guarantee).unwrap();
    r.core.tick(secs(2));
    r.carry_out();
    let of = |r: &Reign, job: &str| r.weights[&(0, job.to_owned())];
    let before = of(&r, "g");
    assert!(before >= 3 * of(&r, "x"), "{:?}", r.weights);
    assert_eq!(r.core.limits()[0].shares[0].share.weight, Some(before), "and it is shown");
    let mut r = r.next(secs(5));
    r.hello(secs(6), 0);
    for s in 6..30 {
        for job in ["g", "x", "y", "z"] {
            r.core.renew(secs(s), job, 0).unwrap();
        }
        // Its first reports are of little; a job comes, and nodes hear of all jobs again once all had time to register.
        r.report(s, 0, if s < 9 { 1000 } else { 12_000_000 });
        if s == 10 {
            r.core.end(secs(s), "z", true).unwrap();
            r.core.register(secs(s), request("z", None), SECRET).unwrap();
        }
        r.core.tick(secs(s));
        r.carry_out();
    }
    assert!(r.core.complete && r.said.iter().any(|(_, job, _)| job == "g"));
    // Whatever was said of it was about as much as before, from the first word on.
    let least = r.said.iter().filter(|(_, job, _)| job == "g").map(|(.., weight)| *weight).min();
    assert!(least.is_some_and(|w| w * 10 >= before * 6), "{before}: {:?}", r.said);
    assert!(of(&r, "g") >= 2 * of(&r, "x"), "{:?}", r.weights);
}

#[test]
fn names_with_a_meaning_are_refused() {
    let mut c = core(PolicyKind::One, &Kept::default(), 1, secs(0));
    for (name, why) in [("(others)", "metrics"), ("forebay-control", "controls an I/O node")] {
        let e = c.register(secs(0), request(name, None), SECRET).unwrap_err();
        assert!(matches!(&e, Refusal::Invalid(said) if said.contains(why)), "{name}: {e}");
    }
}

/// Nobody could say anything to an arbiter that did not run: nodes have to connect again, and nobody is moved for it.
#[test]
fn an_arbiter_that_stood_still_moves_nobody() {
    for paused in [3, 6, 60] {
        let mut c = core(PolicyKind::Static, &Kept::default(), 1, secs(0));
        for n in 0..3 {
            c.node_hello(secs(0), ConnectionId(n.into()), hello(n)).unwrap();
        }
        let jobs = ["a", "b", "c", "d", "e", "f"];
        for job in jobs {
            c.register(secs(1), request(job, None), SECRET).unwrap();
        }
        let before: Vec<_> = jobs.iter().map(|job| nodes_of(&c, job)).collect();
        c.tick(secs(2));
        let now = secs(2 + paused);
        c.stood_still(secs(2), now);
        c.tick(now);
        for n in 0..3 {
            c.node_lost(now, NodeId(n), ConnectionId(n.into()));
        }
        for n in 0..3 {
            let later = now + Nanos::from_millis(u64::from(n) * 1000);
            c.tick(later);
            c.node_hello(later, ConnectionId(u64::from(n) + 10), hello(n)).unwrap();
            let after: Vec<_> = jobs.iter().map(|job| nodes_of(&c, job)).collect();
            assert_eq!(before, after, "{paused} s, when node {n} came");
        }
    }
}
