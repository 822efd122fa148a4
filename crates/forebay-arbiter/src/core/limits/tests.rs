//! Limits through moves and restarts, and guarantees.

use super::super::tests::{hello, report, request};
use super::super::{ConnectionId, CoreConfig};
use super::*;
use crate::curves::Curves;
use crate::store::Kept;
use forebay_control::node::{NodeReport, Term, ToArbiter};
use forebay_types::FlowId;

fn secs(s: u64) -> Nanos {
    Nanos::from_secs(1_000_000 + s)
}

fn core(kept: &Kept) -> Core {
    Core::new(CoreConfig::default(), Curves::default(), Term(1), kept, 1, secs(0)).unwrap()
}

fn limit(subject: Subject, bandwidth: f64) -> Limit {
    let most = Rates { bandwidth: Some(bandwidth), ..Rates::default() };
    Limit { subject, most, at_least: None, until_unix_ms: None }
}

/// What each node was told last.
fn told(c: &mut Core, last: &mut BTreeMap<u32, Vec<JobShare>>) {
    for action in c.actions() {
        if let Action::Send { to, message: ToNode::Shares { jobs, .. } } = action {
            // What they would have where they are not is no part.
            last.insert(to.0, jobs.into_iter().filter(|s| !s.standby).collect());
        }
    }
}

fn sum(last: &BTreeMap<u32, Vec<JobShare>>) -> f64 {
    last.values().flatten().filter_map(|s| s.limit.bandwidth).sum()
}

#[test]
fn the_parts_of_a_limit_are_the_whole_wherever_its_jobs_go() {
    let mut c = core(&Kept::default());
    let mut last = BTreeMap::new();
    for n in 0..3 {
        c.node_hello(secs(0), ConnectionId(n.into()), hello(n)).unwrap();
    }
    for job in ["a", "b"] {
        c.register(secs(0), request(job, None), &"0".repeat(64)).unwrap();
    }
    c.pin(secs(0), "a", vec![NodeId(0), NodeId(1)]).unwrap();
    c.pin(secs(0), "b", vec![NodeId(1)]).unwrap();
    told(&mut c, &mut last);
    assert!(last.is_empty(), "nothing is limited");
    let view = c.set_limit(secs(1), limit(Subject::User("me".into()), 90.0)).unwrap();
    assert_eq!(view.shares.len(), 3);
    told(&mut c, &mut last);
    assert!((sum(&last) - 90.0).abs() < 1e-6 && last[&1].len() == 2, "{last:?}");
    c.set_limit(secs(1), limit(Subject::Job("b".into()), 10.0)).unwrap();
    told(&mut c, &mut last);
    assert!((sum(&last) - 90.0).abs() < 1e-6, "what b may not have is a's: {last:?}");
    let of_b = last[&1].iter().find(|s| s.job == "b").and_then(|s| s.limit.bandwidth).unwrap();
    assert!((of_b - 10.0).abs() < 1e-6, "the stricter one counts: {last:?}");
    // `a` is all on one node now.
    c.pin(secs(2), "a", vec![NodeId(2)]).unwrap();
    c.tick(secs(10));
    told(&mut c, &mut last);
    assert!((sum(&last) - 90.0).abs() < 1e-6 && last[&0].is_empty(), "{last:?}");
    let most = last[&2][0].limit.bandwidth.unwrap();
    assert!(most > 80.0, "b does nothing: {last:?}");
    // The next arbiter knows them, and so does a node that comes back.
    let mut next = core(&c.kept());
    assert_eq!(next.limits().len(), 2);
    last.clear();
    next.node_hello(secs(1), ConnectionId(9), hello(1)).unwrap();
    told(&mut next, &mut last);
    assert_eq!(last[&1].len(), 1, "{last:?}");
    next.remove_limit(secs(2), "job=b").unwrap();
    next.remove_limit(secs(2), "user=me").unwrap();
    told(&mut next, &mut last);
    assert!(last[&1].is_empty() && next.remove_limit(secs(2), "user=me").is_err());
}

#[test]
fn limits_end_and_nonsense_is_refused() {
    let mut c = core(&Kept::default());
    let until = |s: u64| Some(unix_ms(secs(s)));
    let ends = Limit { until_unix_ms: until(5), ..limit(Subject::App("x".into()), 5.0) };
    c.set_limit(secs(1), ends.clone()).unwrap();
    c.tick(secs(4));
    assert_eq!(c.limits().len(), 1);
    c.tick(secs(6));
    assert!(c.limits().is_empty() && c.kept().limits.is_empty());
    for wrong in [
        Limit { until_unix_ms: until(1), ..ends.clone() },
        limit(Subject::Job(String::new()), 5.0),
        limit(Subject::Job("(others)".into()), 5.0),
        limit(Subject::Job("forebay-control".into()), 5.0),
        limit(Subject::App("a/b".into()), 5.0),
        limit(Subject::Job("x".into()), f64::NAN),
        limit(Subject::Job("x".into()), 0.0),
        limit(Subject::Job("x".into()), 1e16),
        Limit { at_least: Some(6.0), ..limit(Subject::Job("x".into()), 5.0) },
        Limit { most: Rates::default(), ..ends },
    ] {
        assert!(c.set_limit(secs(2), wrong.clone()).is_err(), "{wrong:?}");
    }
    for subject in [Subject::Job("x".repeat(256)), Subject::User("x".repeat(256))] {
        let Err(Refusal::Invalid(why)) = c.set_limit(secs(2), limit(subject, 5.0)) else {
            panic!("it is long")
        };
        assert_eq!(why, "no job, user or application has this name: it is longer than 255 bytes");
    }
    // Whoever has seen something else than what holds is told so.
    let (old, new) = (limit(Subject::Job("x".into()), 5.0), limit(Subject::Job("x".into()), 6.0));
    assert_eq!(c.limit_is("job=x", None), Ok(()));
    c.set_limit(secs(2), old.clone()).unwrap();
    assert_eq!(c.limit_is("job=x", Some(&old)), Ok(()));
    c.set_limit(secs(2), new).unwrap();
    assert!(matches!(c.limit_is("job=x", Some(&old)), Err(Refusal::Conflict(_))));
    assert!(matches!(c.limit_is("job=x", None), Err(Refusal::Conflict(_))));
    c.remove_limit(secs(2), "job=x").unwrap();
    assert!(matches!(c.limit_is("job=x", Some(&old)), Err(Refusal::Conflict(_))));
    // What no job can be called, a user or an application can.
    c.set_limit(secs(2), limit(Subject::App("(others)".into()), 5.0)).unwrap();
}

#[test]
fn a_job_that_a_limit_holds_back_is_said_to_be_limited() {
    let mut c = core(&Kept::default());
    c.node_hello(secs(0), ConnectionId(0), hello(0)).unwrap();
    c.register(secs(0), request("a", None), &"0".repeat(64)).unwrap();
    c.set_limit(secs(1), limit(Subject::Job("a".into()), 5.0)).unwrap();
    let flow = FlowMetrics { flow: FlowId(1), served: 5, busy: Nanos::from_secs(1), ..Default::default() };
    for (s, held) in [(2, false), (4, true)] {
        let used = JobUse { job: "a".into(), used: [5.0, 1.0, 0.0], held: [held, false, false] };
        c.node_said(secs(s), NodeId(0), ConnectionId(0), ToArbiter::Used { jobs: vec![used] });
        let jobs = BTreeMap::from([(FlowId(1), "a".to_owned())]);
        let report = NodeReport { jobs, ..report(s, vec![flow.clone()]) };
        c.node_said(secs(s), NodeId(0), ConnectionId(0), ToArbiter::Report(Box::new(report)));
        c.tick(secs(s + 2));
        let job = c.job(secs(s + 2), "a").unwrap();
        assert_eq!((job.limited > 0.5, job.busy > 0.5), (held, !held), "{job:?}");
    }
}

#[test]
fn a_guarantee_becomes_weights() {
    let mut c = core(&Kept::default());
    let mut last = BTreeMap::new();
    c.node_hello(secs(0), ConnectionId(1), hello(0)).unwrap();
    for job in ["a", "b", "c"] {
        c.register(secs(0), request(job, None), &"0".repeat(64)).unwrap();
    }
    c.limits.peaks.worked(NodeId(0), 100.0);
    let at_least = Some(60.0);
    let subject = Subject::Job("a".into());
    c.set_limit(secs(1), Limit { subject, most: Rates::default(), at_least, until_unix_ms: None }).unwrap();
    let notes = &c.limits()[0].notes;
    assert!(notes.iter().any(|n| n.contains("fifo, which knows no weights")), "{notes:?}");
    told(&mut c, &mut last);
    let weight = |job: &str| f64::from(last[&0].iter().find(|s| s.job == job).unwrap().weight.unwrap());
    let all = weight("a") + weight("b") + weight("c");
    assert!((weight("a") / all - 0.6).abs() < 0.01, "{last:?}");
    c.remove_limit(secs(2), "job=a").unwrap();
    told(&mut c, &mut last);
    assert!(last[&0].iter().all(|s| s.weight == Some(1)), "as before: {last:?}");
}
