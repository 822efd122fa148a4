//! What would have been under another scheduler: what the queue saw goes through it again, in virtual time.
//!
//! Processes wait for their I/O: a request that came after so many of its process' were answered comes after as
//! many here, and as long after the last of them as it did. So each keeps as many under way as it did, and is
//! answered as soon as the other scheduler lets it be. Processes that were at it to the end of what was seen
//! would have gone on: whoever has nothing left to send goes on with the second half of what it sent (a program
//! starts only once), until all have sent what they did. Each data server serves one request after the other, as fast
//! as it was seen to, and with the way there and back as it was seen without others; a request over several is done
//! when all of them are done with it.

use crate::blame::{Costs, Traced};
use crate::{DispatchQueue, Request, SchedulerConfig, Site};
use forebay_types::{ClientId, FlowId, Nanos, RequestId};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};

/// How often what was seen may be sent again, in all.
const MOST_ROUNDS: usize = 50;

/// How a flow fared.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Fared {
    /// Its requests, while all were there that were there in truth.
    pub requests: u64,
    /// From when no limit held them back to the end, in seconds, summed up.
    pub time: f64,
}

impl Fared {
    /// A request's time, in seconds.
    pub fn mean(&self) -> f64 {
        if self.requests == 0 { 0.0 } else { self.time / self.requests as f64 }
    }
}

/// The storage as it was seen.
struct Storage<'a> {
    seen: &'a [Traced],
    costs: Costs,
    /// When each server has done what it was given.
    free: [Nanos; 64],
}

impl Storage<'_> {
    /// When requests that go there together now are done.
    fn serve(&mut self, now: Nanos, requests: &[Request]) -> Nanos {
        let mut done = now + Nanos(1);
        for r in requests {
            let i = r.id.0 as usize % self.seen.len();
            for n in self.seen[i].servers.each() {
                self.free[n] = self.free[n].max(now) + self.costs.cost[i];
                done = done.max(self.free[n]);
            }
            done = done.max(now + self.costs.at_rest(i, &self.seen[i]));
        }
        done
    }
}

/// One process' requests, as they come.
#[derive(Default)]
struct Process {
    flow: FlowId,
    /// After how many answers each came, how long after the last of them, and which it is; in that order.
    came: Vec<(usize, Nanos, Request)>,
    /// Which comes after the last: in the second half, the first with as many under way as there mostly were.
    again: usize,
    /// How many have come, and how many of them are answered, here.
    sent: usize,
    answered: usize,
    /// When its last request was done, in truth and here.
    last: (Nanos, Nanos),
    /// Whether it was at it to the end.
    lasting: bool,
    /// When each was done and what it took, the first time.
    fared: Vec<(Nanos, f64)>,
}

impl Process {
    /// What comes now that so many are answered, and when. Requests have the numbers of what was seen the first
    /// time, and the same and so many times `seen` later.
    fn next(&mut self, now: Nanos, seen: usize) -> Vec<(Nanos, Request)> {
        let total = self.came.len();
        let mut out = Vec::new();
        while self.lasting || self.sent < total {
            let over = self.sent.saturating_sub(total) / (total - self.again);
            let round = if self.sent < total { 0 } else { 1 + over };
            // How many had come before when these had, the first time, are as many more by now.
            let more = round * (total - self.again);
            let (before, after, request) = self.came[self.sent - more];
            if before + more > self.answered {
                break;
            }
            let id = RequestId((round * seen) as u64 + request.id.0);
            out.push((now + after, Request { id, ..request }));
            self.sent += 1;
        }
        out
    }

    /// Whether all that was seen of it is done here.
    fn over(&self) -> bool {
        self.answered >= self.came.len()
    }
}

/// The processes of what was seen, whose each request is, and the first moment.
fn processes(seen: &[Traced]) -> (Vec<Process>, Vec<usize>, Nanos) {
    let mut known: HashMap<(FlowId, ClientId), usize> = HashMap::new();
    let mut all: Vec<Process> = Vec::new();
    let mut done: Vec<Vec<Nanos>> = Vec::new();
    let mut whose = Vec::with_capacity(seen.len());
    for s in seen {
        let flow = s.request.flow;
        let at = *known.entry((flow, s.client)).or_insert_with(|| {
            all.push(Process { flow, ..Process::default() });
            done.push(Vec::new());
            all.len() - 1
        });
        done[at].push(s.done);
        whose.push(at);
    }
    done.iter_mut().for_each(|d| d.sort_unstable());
    let begin = seen.iter().map(|s| s.admitted).min().unwrap_or_default();
    let end = seen.iter().map(|s| s.done).max().unwrap_or_default();
    for (id, s) in seen.iter().enumerate() {
        let (process, answers) = (&mut all[whose[id]], &done[whose[id]]);
        let before = answers.partition_point(|d| *d <= s.admitted);
        let since = before.checked_sub(1).map_or(begin, |last| answers[last]);
        let request = Request { id: RequestId(id as u64), ..s.request };
        process.came.push((before, s.admitted.since(since), request));
        process.last.0 = process.last.0.max(s.done);
    }
    for (process, answers) in all.iter_mut().zip(&done) {
        process.came.sort_by_key(|(before, after, r)| (*before, *after, r.id));
        let under_way = |(i, (before, ..)): (usize, &(usize, Nanos, Request))| i + 1 - (*before).min(i);
        let mut mostly: Vec<usize> = process.came.iter().enumerate().map(under_way).collect();
        mostly.sort_unstable();
        let mostly = mostly[mostly.len() / 2];
        let half = process.came.len() / 2;
        let full = process.came.iter().enumerate().skip(half).position(|one| under_way(one) >= mostly);
        process.again = half + full.unwrap_or(0);
        // One that was seen a single time may be as slow as that.
        let first = answers.first().map(|d| d.since(begin));
        let pauses = answers.windows(2).map(|d| d[1].since(d[0])).chain(first);
        process.lasting = process.last.0 + pauses.max().unwrap_or_default() >= end;
    }
    (all, whose, begin)
}

/// Serves what was seen again under `config`, so many at a time, with these weights.
pub fn replay(
    seen: &[Traced],
    config: &SchedulerConfig,
    site: Site,
    slots: usize,
    weights: &[(FlowId, u32)],
) -> BTreeMap<FlowId, Fared> {
    let (mut all, whose, mut now) = processes(seen);
    let mut storage = Storage { seen, costs: Costs::of(seen), free: [Nanos::ZERO; 64] };
    let mut queue = DispatchQueue::new(config.clone(), site);
    for (flow, weight) in weights {
        queue.set_weight(*flow, *weight);
    }
    let mut coming: BinaryHeap<Reverse<(Nanos, RequestId)>> = BinaryHeap::new();
    let mut requests: HashMap<RequestId, Request> = HashMap::with_capacity(seen.len());
    for process in &mut all {
        for (at, request) in process.next(now, seen.len()) {
            coming.push(Reverse((at, request.id)));
            requests.insert(request.id, request);
        }
    }
    let mut running = Vec::new();
    // When which of them is done.
    let mut ends: BinaryHeap<Reverse<(Nanos, usize)>> = BinaryHeap::new();
    let mut active = 0;
    loop {
        while let Some(Reverse((_, ticket))) = ends.peek().copied().filter(|Reverse((at, _))| *at <= now) {
            ends.pop();
            active -= 1;
            let Some(ticket) = Option::take(&mut running[ticket]) else { continue };
            queue.complete(now, &ticket, &[]);
            for r in ticket.batch.requests() {
                let process = &mut all[whose[r.id.0 as usize % seen.len()]];
                if (r.id.0 as usize) < seen.len() {
                    process.fared.push((now, now.since(r.arrival).as_secs_f64()));
                    process.last.1 = now;
                }
                process.answered += 1;
                for (at, request) in process.next(now, seen.len()) {
                    coming.push(Reverse((at, request.id)));
                    requests.insert(request.id, request);
                }
            }
        }
        if all.iter().all(Process::over) || running.len() > MOST_ROUNDS * seen.len() {
            return fared(&all);
        }
        while let Some(Reverse((at, id))) = coming.peek().copied().filter(|Reverse((at, _))| *at <= now) {
            coming.pop();
            if let Some(request) = requests.remove(&id) {
                queue.enqueue(now, Request { arrival: at, ..request });
            }
        }
        while active < slots.max(1) {
            let Some(ticket) = queue.dispatch(now) else { break };
            ends.push(Reverse((storage.serve(now, ticket.batch.requests()), running.len())));
            running.push(Some(ticket));
            active += 1;
        }
        let wakeup = queue.next_wakeup(now).filter(|at| *at > now && active < slots && !queue.is_empty());
        let next =
            [coming.peek().map(|Reverse((at, _))| *at), ends.peek().map(|Reverse((at, _))| *at), wakeup];
        match next.into_iter().flatten().min() {
            Some(at) => now = at.max(now),
            // Nothing more happens: all is served, or a scheduler waits for what will not come.
            None => return fared(&all),
        }
    }
}

/// A flow in what was seen: when its last request was done, in truth and here, and whether it was at it to the end.
#[derive(Clone, Copy, Default)]
struct Stay {
    last: (Nanos, Nanos),
    lasting: bool,
}

/// How each flow fared while those were still there that had outlived it.
fn fared(all: &[Process]) -> BTreeMap<FlowId, Fared> {
    let mut flows: BTreeMap<FlowId, Stay> = BTreeMap::new();
    for p in all {
        let flow = flows.entry(p.flow).or_default();
        flow.last = (flow.last.0.max(p.last.0), flow.last.1.max(p.last.1));
        flow.lasting |= p.lasting;
    }
    let one = |(id, flow): (&FlowId, &Stay)| {
        let outlived = |f: &Stay| !f.lasting && f.last.0 >= flow.last.0;
        let others = flows.iter().filter(|(other, f)| *other != id && outlived(f));
        let until = others.map(|(_, f)| f.last.1).min().unwrap_or(flow.last.1);
        let own = || all.iter().filter(|p| p.flow == *id).flat_map(|p| &p.fared);
        let all = if own().any(|(at, _)| *at <= until) { until } else { flow.last.1 };
        let times = own().filter(|(at, _)| *at <= all).map(|(_, time)| time);
        (*id, Fared { requests: times.clone().count() as u64, time: times.sum() })
    };
    flows.iter().map(one).collect()
}

#[cfg(test)]
mod tests;
