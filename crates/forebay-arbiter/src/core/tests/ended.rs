//! What is said of a job after its end.

use super::*;

#[test]
fn what_a_job_did_last_is_kept_though_it_has_ended() {
    let mut c = core(PolicyKind::One, &Kept::default(), 1, secs(0));
    c.node_hello(secs(0), ConnectionId(0), hello(0)).unwrap();
    c.register(secs(0), request("short", None), SECRET).unwrap();
    c.end(secs(1), "short", true).unwrap();
    c.actions();
    let mut rows = |s: u64, job: &str| {
        let flow = FlowMetrics { flow: FlowId(1), writes: 10, bytes_written: 500, ..Default::default() };
        let jobs = BTreeMap::from([(FlowId(1), job.to_owned())]);
        let report = Box::new(NodeReport { jobs, ..report(s, vec![flow]) });
        c.tick(secs(s));
        c.node_said(secs(s), NodeId(0), ConnectionId(0), ToArbiter::Report(report));
        c.actions().iter().filter(|a| matches!(a, Action::Record(row, _) if row.job == job)).count()
    };
    assert_eq!((rows(2, "short"), rows(2, "nobody")), (1, 0));
    assert_eq!(rows(20, "short"), 0, "by then all has been said");
}

#[test]
fn a_job_ends_with_the_last_of_its_runs() {
    let mut kept = Kept::default();
    let mut c = core(PolicyKind::One, &kept, 1, secs(0));
    c.node_hello(secs(0), ConnectionId(0), hello(0)).unwrap();
    let run = |run| JobRequest { run, secret: Some(SECRET.into()), ..request("j", None) };
    c.register(secs(0), run(1), SECRET).unwrap();
    c.register(secs(1), run(2), SECRET).unwrap();
    c.end_run(secs(2), "j", 2, true).unwrap();
    assert!(c.renew(secs(2), "j", 1).is_ok(), "the first goes on");
    // Whichever ends first, and also at an arbiter that has only read of them.
    c.register(secs(3), run(3), SECRET).unwrap();
    let mut persist = |c: &mut Core| {
        for action in c.actions() {
            if let Action::Persist(change) = action {
                kept.apply(&change);
            }
        }
        kept.clone()
    };
    let mut c = core(PolicyKind::One, &persist(&mut c), 2, secs(4));
    c.end_run(secs(4), "j", 1, true).unwrap();
    assert!(c.job(secs(4), "j").is_some(), "the third goes on");
    c.end_run(secs(5), "j", 3, true).unwrap();
    assert!(c.job(secs(5), "j").is_none());
    assert!(persist(&mut c).jobs.is_empty());
    // One that says nothing any more keeps nobody; whoever ends the job ends it for all.
    c.register(secs(6), run(4), SECRET).unwrap();
    c.tick(secs(12));
    c.register(secs(12), run(5), SECRET).unwrap();
    c.tick(secs(25));
    c.end_run(secs(25), "j", 5, true).unwrap();
    assert!(c.job(secs(25), "j").is_some(), "the fourth is long silent, and may be stopped");
    c.tick(secs(28));
    assert!(c.job(secs(28), "j").is_none(), "nobody has seen anything of it");
    c.register(secs(29), run(6), SECRET).unwrap();
    c.register(secs(29), run(7), SECRET).unwrap();
    c.end(secs(29), "j", true).unwrap();
    assert!(c.job(secs(29), "j").is_none() && c.end_run(secs(29), "j", 6, true).is_err());
    // Nor do they begin it again, however long they ask; whoever comes now may.
    for s in [30, 3000, 6000] {
        assert!(matches!(c.register(secs(s), run(7), SECRET), Err(Refusal::Conflict(_))));
    }
    assert!(c.register(secs(6001), run(8), SECRET).is_ok());
}
