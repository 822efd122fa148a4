//! What would have been under another scheduler: what the queue saw goes through it again, in virtual time.
//!
//! Programs wait for their I/O: a request that came after so many of its flow's were answered comes after as
//! many here, and as long after the last of them as it did; of a flow with several processes that have their own
//! files, after so many of its file's. Programs that were at it to the end of what was seen
//! would have gone on: whoever has nothing left to send goes on with the second half of what it sent (a program
//! starts only once), until all have sent what they did. Each data server serves one request after the other, as fast
//! as it was seen to after the same file or after another; a request over several is done when all of them are done
//! with it, and back when it has come the way that was seen.

use crate::blame::{Costs, Traced};
use crate::{DispatchQueue, Request, SchedulerConfig, Site};
use forebay_types::{FileId, FlowId, Nanos, RequestId};
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
    /// When each server has done what it was given, and of which file that is.
    free: [Nanos; 64],
    last: [Option<FileId>; 64],
}

impl Storage<'_> {
    /// When requests that go there together now are done.
    fn serve(&mut self, now: Nanos, requests: &[Request]) -> Nanos {
        let mut done = now + Nanos(1);
        for r in requests {
            let i = r.id.0 as usize % self.seen.len();
            let (s, file) = (&self.seen[i], Some(r.file));
            let follows = s.servers.each().all(|n| self.last[n] == file);
            let cost = self.costs.after(i, s, follows);
            for n in s.servers.each() {
                self.free[n] = self.free[n].max(now) + cost;
                self.last[n] = file;
                done = done.max(self.free[n] + self.costs.way);
            }
        }
        done
    }
}

/// Requests that come after each other.
#[derive(Default)]
struct Arrivals {
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

impl Arrivals {
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

/// What comes after each other: a flow's requests, or those to one of its files.
type Strand = (FlowId, Option<FileId>);

/// A file of fewer requests than this is not looked at by itself.
const LONG: usize = 8;

/// Which strand each belongs to. Processes of a flow wait for their own answers; who is who is told by files.
fn strands(seen: &[Traced]) -> Vec<Strand> {
    let mut flows: BTreeMap<FlowId, Vec<usize>> = BTreeMap::new();
    let mut files: HashMap<(FlowId, FileId), usize> = HashMap::new();
    for (i, s) in seen.iter().enumerate() {
        flows.entry(s.request.flow).or_default().push(i);
        *files.entry((s.request.flow, s.request.file)).or_default() += 1;
    }
    let mut strands: Vec<Strand> = seen.iter().map(|s| (s.request.flow, None)).collect();
    for (flow, mut own) in flows {
        own.sort_by_key(|i| seen[*i].admitted);
        let mut done: Vec<Nanos> = own.iter().map(|i| seen[*i].done).collect();
        done.sort_unstable();
        let under_way = |(n, i): (usize, &usize)| {
            let answered = done.partition_point(|d| *d <= seen[*i].admitted);
            n + 1 - answered.min(n)
        };
        // One process that goes from file to file waits for all of them.
        if middle(own.iter().enumerate().map(under_way)) < 2 {
            continue;
        }
        for i in own {
            let file = seen[i].request.file;
            strands[i].1 = Some(file).filter(|file| files[&(flow, *file)] >= LONG);
        }
    }
    strands
}

/// As many as mostly; there is at least one.
fn middle(all: impl Iterator<Item = usize>) -> usize {
    let mut all: Vec<usize> = all.collect();
    let half = all.len() / 2;
    *all.select_nth_unstable(half).1
}

/// What comes after each other in what was seen, which each belongs to, and the first moment.
fn arrivals(seen: &[Traced]) -> (BTreeMap<Strand, Arrivals>, Vec<Strand>, Nanos) {
    let strands = strands(seen);
    let mut all: BTreeMap<Strand, Arrivals> = BTreeMap::new();
    let mut done: BTreeMap<Strand, Vec<Nanos>> = BTreeMap::new();
    for (s, strand) in seen.iter().zip(&strands) {
        done.entry(*strand).or_default().push(s.done);
    }
    done.values_mut().for_each(|d| d.sort_unstable());
    let begin = seen.iter().map(|s| s.admitted).min().unwrap_or_default();
    let end = seen.iter().map(|s| s.done).max().unwrap_or_default();
    for (id, (s, strand)) in seen.iter().zip(&strands).enumerate() {
        let own = all.entry(*strand).or_default();
        let answers = &done[strand];
        let before = answers.partition_point(|d| *d <= s.admitted);
        let since = before.checked_sub(1).map_or(begin, |last| answers[last]);
        let request = Request { id: RequestId(id as u64), ..s.request };
        own.came.push((before, s.admitted.since(since), request));
        own.last.0 = own.last.0.max(s.done);
    }
    for (strand, own) in &mut all {
        own.came.sort_by_key(|(before, after, r)| (*before, *after, r.id));
        let under_way = |(i, (before, ..)): (usize, &(usize, Nanos, Request))| i + 1 - (*before).min(i);
        let mostly = middle(own.came.iter().enumerate().map(under_way));
        let half = own.came.len() / 2;
        let full = own.came.iter().enumerate().skip(half).position(|one| under_way(one) >= mostly);
        own.again = half + full.unwrap_or(0);
        let pause = done[strand].windows(2).map(|d| d[1].since(d[0])).max().unwrap_or_default();
        own.lasting = own.last.0 + pause >= end;
    }
    (all, strands, begin)
}

/// Serves what was seen again under `config`, so many at a time, with these weights.
pub fn replay(
    seen: &[Traced],
    config: &SchedulerConfig,
    site: Site,
    slots: usize,
    weights: &[(FlowId, u32)],
) -> BTreeMap<FlowId, Fared> {
    let (mut all, strands, mut now) = arrivals(seen);
    let mut storage = Storage { seen, costs: Costs::of(seen), free: [Nanos::ZERO; 64], last: [None; 64] };
    let mut queue = DispatchQueue::new(config.clone(), site);
    for (flow, weight) in weights {
        queue.set_weight(*flow, *weight);
    }
    let mut coming: BinaryHeap<Reverse<(Nanos, RequestId)>> = BinaryHeap::new();
    let mut requests: HashMap<RequestId, Request> = HashMap::with_capacity(seen.len());
    for own in all.values_mut() {
        for (at, request) in own.next(now, seen.len()) {
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
                let Some(own) = all.get_mut(&strands[r.id.0 as usize % seen.len()]) else { continue };
                if (r.id.0 as usize) < seen.len() {
                    own.fared.push((now, now.since(r.arrival).as_secs_f64()));
                    own.last.1 = now;
                }
                own.answered += 1;
                for (at, request) in own.next(now, seen.len()) {
                    coming.push(Reverse((at, request.id)));
                    requests.insert(request.id, request);
                }
            }
        }
        if all.values().all(Arrivals::over) || running.len() > MOST_ROUNDS * seen.len() {
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

/// How each flow fared while those were still there that had outlived it.
fn fared(all: &BTreeMap<Strand, Arrivals>) -> BTreeMap<FlowId, Fared> {
    let mut flows: BTreeMap<FlowId, (Nanos, Nanos)> = BTreeMap::new();
    for ((flow, _), own) in all {
        let last = flows.entry(*flow).or_default();
        *last = (last.0.max(own.last.0), last.1.max(own.last.1));
    }
    let one = |(id, last): (&FlowId, &(Nanos, Nanos))| {
        let outlived = |f: &Arrivals| !f.lasting && f.last.0 >= last.0;
        let others = all.iter().filter(|((other, _), f)| other != id && outlived(f));
        let until = others.map(|(_, f)| f.last.1).min().unwrap_or(last.1);
        let own = || all.iter().filter(|((flow, _), _)| flow == id).flat_map(|(_, f)| &f.fared);
        let counted = |until: Nanos| own().filter(move |(at, _)| *at <= until).map(|(_, time)| *time);
        let until = if counted(until).next().is_none() { last.1 } else { until };
        (*id, Fared { requests: counted(until).count() as u64, time: counted(until).sum() })
    };
    flows.iter().map(one).collect()
}

#[cfg(test)]
mod tests;
