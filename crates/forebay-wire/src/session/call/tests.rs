use super::*;
use forebay_types::Epoch;

const HOST: HostBoot = HostBoot([7; 16]);
const LEASE: Nanos = Nanos::from_millis(500);

fn process(node: usize) -> Process {
    Process { node, incarnation: Incarnation([node as u8 + 1; 16]), host: HOST }
}

/// A call that node 0 did not answer, and cannot be asked about: the next question to another node.
fn question(call: &mut Call, now: &mut Nanos, nodes: &Nodes<&str>) -> Step {
    loop {
        match call.next(*now, nodes, Bound::Free, false) {
            Step::Look(0) => call.looked(None),
            Step::Nap(until) => *now = until,
            step => return step,
        }
    }
}

/// Two nodes of one host, and a call that went to the first: past the fence.
fn suspected(kind: Kind) -> (Call, Nanos, Nodes<&'static str>) {
    let nodes = Nodes::new(Epoch(0), &["a", "b"], &[], 0);
    (0..2).for_each(|n| nodes.mark_host(n, HOST));
    let sent = Nanos::from_secs(10);
    let mut call = Call::new(1, kind, sent, Nanos::from_secs(30));
    assert_eq!(call.next(sent, &nodes, Bound::Free, false), Step::Send(0));
    call.sending(sent);
    call.unanswered(process(0), sent, LEASE);
    nodes.mark_down(0, sent);
    (call, sent + fence(LEASE), nodes)
}

/// Connections to whoever can tell may break as often as they like: what must be done once is settled
/// by his word alone.
#[test]
fn who_can_tell_is_asked_until_he_answers() {
    let (mut call, mut now, nodes) = suspected(Kind::Once);
    for _ in 0..20 {
        let step = question(&mut call, &mut now, &nodes);
        assert!(matches!(step, Step::Ask { via: 1, .. }), "{step:?}");
        call.verdict(1, now, Verdict::NoAnswer);
    }
    assert!(matches!(question(&mut call, &mut now, &nodes), Step::Ask { via: 1, .. }));
    call.verdict(1, now, Verdict::Known { dead: false, fate: Fate::Absent });
    assert_eq!(call.next(now, &nodes, Bound::Free, false), Step::Send(1));
}

/// Nodes that do not answer take longer than they are left alone: still all of them get their turn.
#[test]
fn the_suspect_is_looked_at_as_often_as_the_other_is_asked() {
    let (mut call, mut now, nodes) = suspected(Kind::Once);
    let (mut looks, mut asks) = (0, 0);
    while looks + asks < 30 {
        match call.next(now, &nodes, Bound::Free, false) {
            Step::Look(0) => {
                looks += 1;
                call.looked(None);
            }
            Step::Ask { via: 1, .. } => {
                asks += 1;
                call.verdict(1, now, Verdict::NoAnswer);
            }
            step => panic!("{step:?}"),
        }
        now = now + Nanos::from_millis(500);
    }
    assert!(looks >= 10 && asks >= 10, "{looks} looks, {asks} questions");
    call.looked(Some(process(0)));
    assert_eq!(call.next(now, &nodes, Bound::Free, false), Step::Send(0));
}

/// The suspect's successor, and everybody on its host, were started elsewhere: the mapping says where.
#[test]
fn who_can_tell_is_looked_for_in_the_mapping() {
    let elsewhere = HostBoot([8; 16]);
    let (mut call, mut now, nodes) = suspected(Kind::Once);
    nodes.mark_host(1, elsewhere);
    assert_eq!(question(&mut call, &mut now, &nodes), Step::Map(1));
    let third = nodes.index(&"c");
    nodes.remap(Epoch(1), &["c"]);
    assert!(matches!(question(&mut call, &mut now, &nodes), Step::Ask { via, .. } if via == third));
    call.verdict(third, now, Verdict::Known { dead: true, fate: Fate::Done { errno: 0, values: [1; 4] } });
    assert!(matches!(call.next(now, &nodes, Bound::Free, false), Step::Done { by, .. } if by == process(0)));
}

/// The suspect was there when it was looked for, and another process is when the request is to be sent.
#[test]
fn a_successor_is_asked_and_sent_nothing() {
    let (mut call, now, nodes) = suspected(Kind::Once);
    call.looked(Some(process(0)));
    assert_eq!(call.next(now, &nodes, Bound::Free, false), Step::Send(0));
    assert!(!call.may_send(Process { incarnation: Incarnation([9; 16]), ..process(0) }));
    let step = call.next(now, &nodes, Bound::Free, false);
    assert!(matches!(step, Step::Ask { via: 0, about, .. } if about == process(0)), "{step:?}");
}

/// A process that takes its time to end is noticed soon after it has, however long that was.
#[test]
fn an_end_is_noticed_soon_after_it_came() {
    for ends in [3, 10, 30, 60, 100, 200].map(Nanos::from_millis) {
        let (mut call, fence, nodes) = suspected(Kind::Again);
        let begun = Nanos::from_secs(10);
        let (mut now, end) = (begun, begun + ends);
        assert!(end < fence);
        let noticed = loop {
            let step = question(&mut call, &mut now, &nodes);
            if step == Step::Send(1) {
                break now;
            }
            assert!(matches!(step, Step::Ask { via: 1, .. }), "{step:?}");
            call.verdict(1, now, Verdict::Known { dead: now >= end, fate: Fate::Absent });
        };
        let late = noticed.since(end);
        assert!(late <= Nanos(ends.0 / 3) + POLL, "after {ends:?}: {late:?} late");
    }
}

/// What can be done twice goes on when nobody can be reached.
#[test]
fn what_can_be_done_twice_waits_for_nobody() {
    let (mut call, mut now, nodes) = suspected(Kind::Again);
    for _ in 0..TRIES {
        let step = question(&mut call, &mut now, &nodes);
        assert!(matches!(step, Step::Ask { via: 1, .. }), "{step:?}");
        call.verdict(1, now, Verdict::NoAnswer);
    }
    let fenced = now;
    assert_eq!(question(&mut call, &mut now, &nodes), Step::Send(1));
    assert!(now.since(fenced) <= Nanos::from_millis(20), "{now:?}");
}
