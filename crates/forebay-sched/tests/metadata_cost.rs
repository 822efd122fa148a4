//! Data beside metadata under SFQ(D)+: jobs share by what their requests are said to cost, and nobody starves. Four threads
//! of an I/O node before storage that takes 20 ms for whatever it is asked.

use forebay_sched::{DispatchQueue, Request, Site, Ticket};
use forebay_types::{FileId, FlowId, Nanos, OpKind, RequestId, ServerId};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

const THREADS: usize = 4;
const TAKES: Nanos = Nanos::from_millis(20);
const SPAN: Nanos = Nanos::from_secs(200);
const DATA: (u32, u64) = (24, 1 << 20);
const NAMES: (u32, u64) = (16, 0);

/// Processes that ask for one thing after another: how many requests of each job are served, and the longest that one waits.
fn contest(scheduler: &str) -> ([u64; 2], Nanos) {
    let mut queue = DispatchQueue::new(scheduler.parse().unwrap(), Site { node: 0, servers: 1 });
    let mut id = 0;
    let mut ask = |queue: &mut DispatchQueue, now: Nanos, flow: u32| {
        id += 1;
        let (op, len) = if flow == 0 { (OpKind::Write, DATA.1) } else { (OpKind::Metadata, NAMES.1) };
        // Far from each other: nothing merges.
        let (offset, file) = (id * (64 << 20), FileId(u64::from(flow)));
        let server = ServerId(0);
        queue.enqueue(
            now,
            Request { id: RequestId(id), arrival: now, file, offset, len, flow: FlowId(flow), server, op },
        );
    };
    (0..DATA.0).for_each(|_| ask(&mut queue, Nanos::ZERO, 0));
    (0..NAMES.0).for_each(|_| ask(&mut queue, Nanos::ZERO, 1));
    let (mut ends, mut running) = (BinaryHeap::new(), Vec::<Option<Ticket>>::new());
    let (mut now, mut served, mut longest) = (Nanos::ZERO, [0; 2], Nanos::ZERO);
    while now < SPAN {
        while ends.len() < THREADS
            && let Some(ticket) = queue.dispatch(now)
        {
            ends.push(Reverse((now + TAKES, running.len())));
            running.push(Some(ticket));
        }
        let Reverse((end, at)) = ends.pop().expect("somebody always asks");
        now = end;
        let ticket = running[at].take().unwrap();
        for r in ticket.batch.requests() {
            served[r.flow.0 as usize] += 1;
            longest = longest.max(now.since(r.arrival));
            ask(&mut queue, now, r.flow.0);
        }
        queue.complete(now, &ticket, &[]);
    }
    (served, longest)
}

/// At the published 10 KB an operation on names is a hundredth of 1 MiB, on storage that takes as long for both: the job that
/// moves data gets one request in 106, as it is to. It waits a hundred times as long as alone, and not for ever.
#[test]
fn a_job_of_large_requests_gets_its_share_beside_metadata_and_no_more() {
    let ([data, names], longest) = contest("sfq-d-plus");
    let ratio = names as f64 / data as f64;
    let said = DATA.1 as f64 / 10_000.0;
    assert!((ratio / said - 1.0).abs() < 0.05, "{names} to {data}: {ratio}, {said} by cost");
    let each = SPAN.as_secs_f64() * f64::from(DATA.0) / data as f64;
    assert!(longest.as_secs_f64() < 1.5 * each, "{longest:?}, {each} s in the mean");
}

/// Where an operation costs what it takes, both get half.
#[test]
fn with_the_cost_of_the_storage_both_get_the_same() {
    let ([data, names], longest) = contest("sfq-d-plus:metadata-cost=1MiB");
    assert!((names as f64 / data as f64 - 1.0).abs() < 0.05, "{names} to {data}");
    assert!(longest < Nanos::from_millis(400), "{longest:?}");
}
