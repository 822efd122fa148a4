//! Limits: what a flow may have a second, at most, in front of whichever scheduler is in force. A request
//! of a limited flow waits at the [`Gate`] until what went before it is paid for; the scheduler sees it
//! only then, so others get all that a limited flow may not use.
//!
//! A gate limits a flow on one I/O node. What it may have on all of them together is divided among them
//! by [`divide`], and what is not used on one is given to the others by a [`Lender`].

mod bucket;
mod divide;
mod lend;

pub use divide::{Bound, Demand, divide, least};
pub use forebay_types::rates::{KINDS, Rates};
pub use lend::{Lender, TICK, Word};

use crate::Request;
use bucket::Bucket;
use forebay_types::{FlowId, Nanos, OpKind, RequestId};
use std::collections::{BTreeMap, VecDeque};

/// What a flow may have.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Part {
    /// Here.
    pub here: Rates,
    /// On all I/O nodes together.
    pub whole: Rates,
    /// Nothing of the whole was set aside for this: it is for clients that come unexpectedly.
    pub standby: bool,
}

#[derive(Debug)]
struct Limited {
    rates: Rates,
    standby: bool,
    buckets: [Option<Bucket>; KINDS],
    waiting: VecDeque<(Nanos, Request)>,
    used: Used,
    /// What has held it back since somebody asked.
    wants: [bool; KINDS],
}

/// What a limited flow has used since it was last asked, and whether it had to wait.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Used {
    /// Bytes, operations, metadata operations.
    pub amounts: [f64; KINDS],
    /// Which of these some of it had to wait for.
    pub held: [bool; KINDS],
}

/// What a request takes from.
fn kinds(r: &Request) -> &'static [usize] {
    if r.op == OpKind::Metadata { &[2] } else { &[0, 1] }
}

impl Limited {
    /// When the first that waits may go, as far as this flow is concerned.
    fn ready(&self, r: &Request) -> Nanos {
        let paid = kinds(r).iter().filter_map(|k| self.buckets[*k]).map(|b| b.ready());
        paid.max().unwrap_or(Nanos::ZERO)
    }

    /// What a request waits for: of several, what it gets last.
    fn awaits(&self, r: &Request) -> Option<usize> {
        let limited = kinds(r).iter().filter_map(|k| Some((self.buckets[*k]?.ready(), *k)));
        limited.max().map(|(_, kind)| kind)
    }

    /// A request has to wait.
    fn wants_for(&mut self, r: &Request) {
        if let Some(kind) = self.awaits(r) {
            self.used.held[kind] = true;
            self.wants[kind] |= self.buckets[kind].is_some_and(|b| b.owes());
        }
    }

    fn take(&mut self, now: Nanos, r: &Request) {
        let amounts = match r.op {
            OpKind::Metadata => [0.0, 0.0, 1.0],
            OpKind::Read | OpKind::Write => [r.len as f64, 1.0, 0.0],
        };
        self.used.amounts.iter_mut().zip(amounts).for_each(|(sum, amount)| *sum += amount);
        for (bucket, amount) in self.buckets.iter_mut().zip(amounts) {
            if let Some(bucket) = bucket.as_mut().filter(|_| amount > 0.0) {
                bucket.take(now, amount);
            }
        }
    }
}

/// What the gate has held back so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Throttled {
    /// Requests that had to wait.
    pub requests: u64,
    /// How long, all together, those that have gone through.
    pub waited: Nanos,
}

/// Holds requests of limited flows back. Empty, it costs a comparison.
#[derive(Debug, Default)]
pub struct Gate {
    flows: BTreeMap<FlowId, Limited>,
    len: usize,
    throttled: Throttled,
}

impl Gate {
    /// From now on the flow has this at most.
    pub fn set(&mut self, now: Nanos, flow: FlowId, part: Part) -> Vec<Request> {
        let Part { here: rates, whole, standby } = part;
        if rates.is_none() {
            return self.open(now, flow);
        }
        let limited = self.flows.entry(flow).or_insert_with(|| Limited {
            rates,
            standby,
            buckets: [None; KINDS],
            waiting: VecDeque::new(),
            used: Used::default(),
            wants: [false; KINDS],
        });
        limited.rates = rates;
        // What was saved of a standby was taken from nobody.
        let fresh = std::mem::replace(&mut limited.standby, standby) != standby;
        for ((bucket, rate), whole) in limited.buckets.iter_mut().zip(rates.all()).zip(whole.all()) {
            let Some(rate) = rate else {
                *bucket = None;
                continue;
            };
            let whole = whole.unwrap_or(rate);
            let bucket = bucket.get_or_insert_with(|| Bucket::new(rate, whole, now));
            bucket.set(rate, whole, now);
            if fresh {
                bucket.empty();
            }
        }
        Vec::new()
    }

    /// The flow has no limit any more, or has ended: what it had waiting.
    pub fn open(&mut self, now: Nanos, flow: FlowId) -> Vec<Request> {
        let Some(limited) = self.flows.remove(&flow) else { return Vec::new() };
        self.len -= limited.waiting.len();
        limited
            .waiting
            .into_iter()
            .map(|(since, r)| {
                self.throttled.waited = self.throttled.waited + now.since(since);
                r
            })
            .collect()
    }

    /// The flows that are limited.
    pub fn limits(&self) -> impl Iterator<Item = (FlowId, Rates)> {
        self.flows.iter().map(|(flow, limited)| (*flow, limited.rates))
    }

    /// What they have used since this was last asked.
    pub fn take_used(&mut self) -> Vec<(FlowId, Used)> {
        let used = |(flow, limited): (&FlowId, &mut Limited)| {
            if let Some((_, r)) = limited.waiting.front().copied() {
                limited.wants_for(&r);
            }
            (*flow, std::mem::take(&mut limited.used))
        };
        self.flows.iter_mut().map(used).collect()
    }

    /// What has held the flow back since this was last asked; `None` if it has no limit.
    pub fn take_wants(&mut self, flow: FlowId) -> Option<[bool; KINDS]> {
        let limited = self.flows.get_mut(&flow)?;
        if let Some((_, r)) = limited.waiting.front().copied() {
            limited.wants_for(&r);
        }
        Some(std::mem::take(&mut limited.wants))
    }

    /// Another I/O node leaves the flow so much of what it may have there.
    pub fn put(&mut self, now: Nanos, flow: FlowId, amounts: [f64; KINDS]) {
        let Some(limited) = self.flows.get_mut(&flow) else { return };
        for (bucket, amount) in limited.buckets.iter_mut().zip(amounts) {
            if let Some(bucket) = bucket.as_mut().filter(|_| amount.is_finite() && amount > 0.0) {
                bucket.put(now, amount);
            }
        }
    }

    /// What the flow has saved here and does not need at once, for another I/O node.
    pub fn take_spare(&mut self, now: Nanos, flow: FlowId, kind: usize) -> f64 {
        let limited = self.flows.get_mut(&flow);
        let Some(bucket) = limited.and_then(|l| l.buckets[kind].as_mut()) else { return 0.0 };
        let spare = bucket.spare(now);
        bucket.take(now, spare);
        spare
    }

    /// What the flow has waiting.
    pub fn waiting(&self, flow: FlowId) -> impl Iterator<Item = RequestId> {
        self.flows.get(&flow).into_iter().flat_map(|l| l.waiting.iter().map(|(_, r)| r.id))
    }

    /// Those of them that have been held back since then.
    pub fn held(&self) -> impl Iterator<Item = FlowId> {
        let held = |l: &Limited| l.used.held.contains(&true) || !l.waiting.is_empty();
        self.flows.iter().filter(move |(_, l)| held(l)).map(|(flow, _)| *flow)
    }

    /// Whether nobody is limited.
    pub fn is_open(&self) -> bool {
        self.flows.is_empty()
    }

    /// Whether anybody's metadata is.
    pub fn limits_metadata(&self) -> bool {
        self.flows.values().any(|l| l.rates.metadata.is_some())
    }

    /// A request comes: it is given back if it may go on at once.
    pub fn enter(&mut self, now: Nanos, r: Request) -> Option<Request> {
        let Some(limited) = self.flows.get_mut(&r.flow) else { return Some(r) };
        if limited.waiting.is_empty() && limited.ready(&r) <= now {
            limited.take(now, &r);
            return Some(r);
        }
        if limited.waiting.is_empty() {
            limited.wants_for(&r);
        }
        limited.waiting.push_back((now, r));
        self.len += 1;
        self.throttled.requests += 1;
        None
    }

    /// A request is done that has moved `missing` bytes less than it asked for, and paid for.
    pub fn give_back(&mut self, now: Nanos, r: &Request, missing: u64) {
        let Some(limited) = self.flows.get_mut(&r.flow) else { return };
        limited.used.amounts[0] = (limited.used.amounts[0] - missing as f64).max(0.0);
        if let Some(bytes) = &mut limited.buckets[0] {
            bytes.give_back(now, r.arrival, missing as f64);
        }
    }

    /// The next request that may go on by now.
    pub fn leave(&mut self, now: Nanos) -> Option<Request> {
        if self.len == 0 {
            return None;
        }
        for limited in self.flows.values_mut() {
            let Some((since, r)) = limited.waiting.front().copied() else { continue };
            if limited.ready(&r) <= now {
                limited.take(now, &r);
                limited.waiting.pop_front();
                self.len -= 1;
                self.throttled.waited = self.throttled.waited + now.since(since);
                return Some(r);
            }
        }
        None
    }

    /// When the next one may go on; `None` if none waits.
    pub fn next(&self) -> Option<Nanos> {
        if self.len == 0 {
            return None;
        }
        self.flows.values().filter_map(|l| l.waiting.front().map(|(_, r)| l.ready(r))).min()
    }

    /// How many wait here.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether none does.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// What has been held back so far.
    pub fn throttled(&self) -> Throttled {
        self.throttled
    }

    /// The clock was set: what is owed is forgiven.
    pub fn restart(&mut self, now: Nanos) {
        for limited in self.flows.values_mut() {
            for bucket in limited.buckets.iter_mut().flatten() {
                bucket.forgive(now);
            }
            for (since, _) in &mut limited.waiting {
                *since = now;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::bucket::BURST;
    use super::*;
    use forebay_types::{FileId, ServerId};
    use proptest::prelude::*;

    fn request(id: u64, flow: u32, op: OpKind, len: u64) -> Request {
        Request {
            id: RequestId(id),
            arrival: Nanos(0),
            file: FileId(1),
            offset: 0,
            len,
            flow: FlowId(flow),
            server: ServerId(0),
            op,
        }
    }

    const START: Nanos = Nanos::from_secs(1_000);

    fn whole(rates: Rates) -> Part {
        Part { here: rates, whole: rates, standby: false }
    }

    #[test]
    fn who_has_no_limit_passes() {
        let mut gate = Gate::default();
        let r = request(1, 1, OpKind::Write, 1 << 20);
        assert_eq!(gate.enter(START, r), Some(r));
        let rates = Rates { bandwidth: Some(1.0), ..Rates::default() };
        gate.set(START, FlowId(1), whole(rates));
        let other = request(2, 2, OpKind::Write, 1 << 20);
        assert_eq!(gate.enter(START, other), Some(other));
        assert_eq!(gate.enter(START, r), Some(r), "the first goes, and owes");
        assert_eq!(gate.enter(START, r), None);
        let metadata = request(3, 1, OpKind::Metadata, 0);
        assert_eq!(gate.enter(START, metadata), None, "nobody overtakes his own");
        assert_eq!(gate.set(START, FlowId(1), Part::default()), [r, metadata]);
        assert!(gate.is_open() && gate.is_empty());
    }

    #[test]
    fn what_is_owed_stays_owed_at_another_rate() {
        let mut gate = Gate::default();
        let rate = |r: f64| Rates { bandwidth: Some(r), ..Rates::default() };
        gate.set(START, FlowId(1), whole(rate(1e6)));
        gate.enter(START, request(1, 1, OpKind::Read, 2_000_000));
        assert_eq!(gate.enter(START, request(2, 1, OpKind::Read, 1)), None);
        let paid = gate.next().unwrap().since(START).as_secs_f64();
        assert!((1.97..2.01).contains(&paid), "{paid}");
        gate.set(START + Nanos::from_secs(1), FlowId(1), Part { here: rate(1e5), ..whole(rate(1e6)) });
        let paid = gate.next().unwrap().since(START).as_secs_f64();
        assert!((10.5..11.1).contains(&paid), "a million is left to pay: {paid}");
    }

    #[test]
    fn what_was_not_moved_is_not_paid_for() {
        let mut gate = Gate::default();
        let rates = Rates { bandwidth: Some(1e6), ..Rates::default() };
        let at = |id, arrival| Request { arrival, ..request(id, 1, OpKind::Read, 131_072) };
        let before = at(1, START);
        assert_eq!(gate.enter(START, before), Some(before));
        let limited = START + Nanos(1);
        gate.set(limited, FlowId(1), whole(rates));
        // A hundred reads of 4 KiB with a buffer of 128 KiB are 0.4 MB.
        let mut now = limited;
        for id in 2..102 {
            let r = at(id, now);
            let gone = gate.enter(now, r).or_else(|| {
                now = gate.next().unwrap();
                gate.leave(now)
            });
            assert_eq!(gone, Some(r));
            gate.give_back(now, &r, 131_072 - 4096);
        }
        let secs = now.since(limited).as_secs_f64();
        assert!((0.36..0.42).contains(&secs), "{secs}");
        assert_eq!(gate.take_used()[0].1.amounts[0], 409_600.0);
        // The first was not paid for, and nobody gets more back than could have been saved.
        assert_eq!(gate.enter(now, at(102, now)), None);
        let ready = gate.next();
        gate.give_back(now, &before, 131_072);
        assert_eq!(gate.next(), ready);
        let r = at(102, now);
        now = ready.unwrap();
        assert_eq!(gate.leave(now), Some(r));
        gate.give_back(now + Nanos::from_secs(9), &r, 1 << 40);
        assert!(gate.take_spare(now + Nanos::from_secs(9), FlowId(1), 0) <= 40_000.0);
    }

    proptest! {
        /// Whoever asks however much: over any span of time no more goes through than the rate allows,
        /// plus what was saved up and one request; every request goes through once, in order; and while
        /// something waits, no time is lost.
        #[test]
        fn no_more_than_the_rate_and_no_less(
            rate in 1_000.0f64..1e9,
            iops in 1.0f64..10_000.0,
            sizes in proptest::collection::vec(1u64..1 << 22, 1..200),
            late in 0u64..5_000_000,
        ) {
            let mut gate = Gate::default();
            let flow = FlowId(1);
            let rates = Rates { bandwidth: Some(rate), iops: Some(iops), metadata: None };
            gate.set(START, flow, whole(rates));
            let mut gone: Vec<(Nanos, u64, u64)> = Vec::new();
            for (id, len) in sizes.iter().enumerate() {
                if let Some(r) = gate.enter(START, request(id as u64, 1, OpKind::Write, *len)) {
                    gone.push((START, r.id.0, r.len));
                }
            }
            while let Some(at) = gate.next() {
                // Whoever is to look wakes up late.
                let now = at.max(gone.last().map_or(START, |g| g.0)) + Nanos(late);
                let before = gone.len();
                while let Some(r) = gate.leave(now) {
                    gone.push((now, r.id.0, r.len));
                }
                prop_assert!(gone.len() > before, "it may go when the gate says so");
            }
            let order: Vec<u64> = gone.iter().map(|g| g.1).collect();
            prop_assert_eq!(order, (0..sizes.len() as u64).collect::<Vec<_>>());
            let largest = *sizes.iter().max().unwrap() as f64;
            for i in (0..gone.len()).step_by(7) {
                for j in (i..gone.len()).step_by(5) {
                    let secs = gone[j].0.since(gone[i].0).as_secs_f64() + BURST.as_secs_f64();
                    let bytes: u64 = gone[i..=j].iter().map(|g| g.2).sum();
                    prop_assert!(bytes as f64 <= secs * rate * 1.001 + 2.0 * largest, "{} in {}", bytes, secs);
                    prop_assert!((j - i + 1) as f64 <= secs * iops * 1.001 + 2.0);
                }
            }
            // Late looks cost nothing but the last: at worst each limit is waited for in turn.
            let total: u64 = sizes.iter().sum();
            let due = total as f64 / rate + sizes.len() as f64 / iops;
            let took = gone.last().unwrap().0.since(START).as_secs_f64();
            prop_assert!(took <= due * 1.001 + 0.001 + late as f64 / 1e9, "{} s, due after {}", took, due);
        }
    }
}
