//! What holds a limited flow back, and what it may give to others, kind by kind.

use forebay_sched::Request;
use forebay_sched::limit::{Gate, Part, Rates};
use forebay_types::{FileId, FlowId, Nanos, OpKind, RequestId, ServerId};

const START: Nanos = Nanos::from_secs(1_000);
const FLOW: FlowId = FlowId(1);

fn request(id: u64, op: OpKind, len: u64) -> Request {
    Request {
        id: RequestId(id),
        arrival: START,
        file: FileId(1),
        offset: 0,
        len,
        flow: FLOW,
        server: ServerId(0),
        op,
    }
}

#[test]
fn what_a_flow_waits_for_is_told_by_kind() {
    let mut gate = Gate::default();
    let rates = Rates { bandwidth: Some(1e9), iops: Some(10.0), metadata: Some(5.0) };
    gate.set(START, FLOW, Part { here: rates, whole: rates, standby: false });
    for id in 0..3 {
        gate.enter(START, request(id, OpKind::Write, 4096));
    }
    let (_, used) = gate.take_used()[0];
    assert_eq!(used.held, [false, true, false], "of what both are owed it waits for the operations");
    assert_eq!(used.amounts, [4096.0, 1.0, 0.0]);
    let later = START + Nanos::from_secs(2);
    for now in [START + Nanos::from_secs(1), later] {
        while gate.leave(now).is_some() {}
    }
    assert!(gate.is_empty());
    gate.take_used();
    for id in 3..5 {
        gate.enter(later, request(id, OpKind::Metadata, 0));
    }
    assert_eq!(gate.take_used()[0].1.held, [false, false, true]);
}

#[test]
fn what_a_standby_has_saved_is_nobodys() {
    let rates = |bandwidth| Rates { bandwidth: Some(bandwidth), ..Rates::default() };
    let part = |here, standby| Part { here: rates(here), whole: rates(1e6), standby };
    let mut gate = Gate::default();
    gate.set(START, FLOW, part(1e6, true));
    let later = START + Nanos::from_secs(1);
    gate.set(later, FLOW, part(1e3, false));
    assert_eq!(gate.take_spare(later, FLOW, 0), 0.0, "it was taken from nobody");
    // What a part has saved is there when it becomes smaller.
    gate.set(later, FLOW, part(1e6, false));
    let later = later + Nanos::from_secs(1);
    gate.set(later, FLOW, part(1e3, false));
    assert!(gate.take_spare(later, FLOW, 0) > 30_000.0);
}
