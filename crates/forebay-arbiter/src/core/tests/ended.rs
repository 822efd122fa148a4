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
        c.actions().iter().filter(|a| matches!(a, Action::Record(row) if row.job == job)).count()
    };
    assert_eq!((rows(2, "short"), rows(2, "nobody")), (1, 0));
    assert_eq!(rows(20, "short"), 0, "by then all has been said");
}
