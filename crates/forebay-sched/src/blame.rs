//! Who slowed whom: what the queue of an I/O node saw, and how long each job waited behind which other.

use crate::Request;
use crate::layout::Servers;
use forebay_types::{ClientId, FlowId, MOMENT, Moment, Nanos, Neighbour, OpKind};
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;
use std::collections::{BTreeMap, HashMap, VecDeque};

/// One request on its way through the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Traced {
    /// As it arrived.
    pub request: Request,
    /// The process that sent it.
    pub client: ClientId,
    /// Where its bytes lie.
    pub servers: Servers,
    /// When no limit held it back any more.
    pub admitted: Nanos,
    /// When it went to the storage.
    pub issued: Nanos,
    /// When that was done.
    pub done: Nanos,
}

/// What is remembered of a request, though no scheduler asks for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The process that sent it.
    pub client: ClientId,
    /// The data servers that its bytes lie on.
    pub servers: Servers,
}

impl Origin {
    /// Of a request of which nobody said more: one process sends all of them.
    pub fn unknown(r: &Request) -> Origin {
        Origin { client: ClientId(0), servers: r.server.into() }
    }
}

/// The last requests that were served, oldest first.
#[derive(Debug)]
pub struct Trace {
    seen: VecDeque<Traced>,
    most: usize,
}

impl Trace {
    /// Of so many requests.
    pub fn new(most: usize) -> Trace {
        Trace { seen: VecDeque::new(), most }
    }

    /// From now on of so many; 0 is none.
    pub fn keep(&mut self, most: usize) {
        self.seen.drain(..self.seen.len().saturating_sub(most));
        self.most = most;
    }

    /// Whether any is remembered.
    pub fn keeps(&self) -> bool {
        self.most > 0
    }

    /// One more was served.
    pub fn push(&mut self, seen: Traced) {
        if self.most == 0 {
            return;
        }
        if self.seen.len() == self.most {
            self.seen.pop_front();
        }
        self.seen.push_back(seen);
    }

    /// Whether earlier ones are remembered no longer.
    pub fn is_full(&self) -> bool {
        self.seen.len() == self.most
    }

    /// All of them.
    pub fn all(&self) -> Vec<Traced> {
        self.seen.iter().copied().collect()
    }
}

/// Requests of a kind, of about this size (in quarters of a doubling), over so many servers.
type Class = (OpKind, u32, u32);

fn class(s: &Traced) -> Class {
    let len = s.request.len.max(1);
    let doubled = len.ilog2();
    let quarter = if doubled < 2 { 0 } else { (len >> (doubled - 2)) as u32 & 3 };
    (s.request.op, doubled * 4 + quarter, s.servers.count())
}

/// How often a thing must have been seen to be no accident.
const OFTEN: usize = 5;

/// Fewer than this part of those behind others say nothing of being alone.
const FEW: usize = 8;

/// And how often to say what is usual.
const ENOUGH: usize = 8;

/// A request that takes so many times what is usual does not keep others waiting by itself: whatever holds
/// it up does.
const STALLED: u64 = 10;

/// What requests cost the storage, if each data server serves one after the other.
#[derive(Debug)]
pub struct Costs {
    /// By their place among those seen: each one's servers did nothing else for this long.
    pub cost: Vec<Nanos>,
    /// And which of them began with it when.
    began: Vec<SmallVec<[(usize, Nanos); 2]>>,
    /// Of those whose servers had nothing else to do: what they took at least, and mostly if there were many.
    floor: HashMap<Class, (Nanos, Option<Nanos>)>,
    usual: HashMap<Class, Nanos>,
}

impl Costs {
    /// As it was seen.
    pub fn of(seen: &[Traced]) -> Costs {
        let mut cost = vec![Nanos::ZERO; seen.len()];
        let mut began = vec![SmallVec::new(); seen.len()];
        // What they took alone, and what behind others.
        let mut samples: HashMap<Class, (Vec<Nanos>, Vec<Nanos>)> = HashMap::new();
        let mut free = [Nanos::ZERO; 64];
        for i in served(seen) {
            let s = &seen[i];
            let begin = s.servers.each().map(|n| free[n]).fold(s.issued, Nanos::max);
            cost[i] = s.done.since(begin);
            let (alone, behind) = samples.entry(class(s)).or_default();
            // Others in front of it say nothing of what it takes.
            if begin == s.issued {
                alone.push(cost[i]);
            } else if cost[i] > Nanos::ZERO {
                behind.push(cost[i]);
            }
            for n in s.servers.each() {
                let from = s.issued.max(free[n]);
                began[i].push((n, from));
                free[n] = from + cost[i];
            }
        }
        let (mut floor, mut usual) = (HashMap::new(), HashMap::new());
        for (class, (mut alone, mut behind)) in samples {
            let least = alone.iter().min().copied();
            // A few among very many are those of which something was not seen, such as how late somebody woke up.
            let often = alone.len() >= OFTEN && alone.len() * FEW >= behind.len();
            let mostly = often.then(|| part(&mut alone, 2));
            floor.extend(least.map(|least| (class, (least, mostly))));
            // The best eighth: most of them may have been held up.
            let typical = if alone.len() >= ENOUGH {
                Some(part(&mut alone, 8))
            } else {
                let enough = behind.len() >= ENOUGH;
                enough.then(|| part(&mut behind, 8).max(least.unwrap_or_default()))
            };
            usual.extend(typical.map(|typical| (class, typical)));
        }
        Costs { cost, began, floor, usual }
    }

    /// What one takes from the moment it goes to the storage, though its servers have nothing else to do: those
    /// behind others hide the way there and back. Known if it was seen often enough: the first request to a storage
    /// that was at rest may have taken far longer than any later one.
    pub fn at_rest(&self, i: usize, s: &Traced) -> Nanos {
        let alone = self.cost[i] == s.done.since(s.issued);
        let mostly = self.floor.get(&class(s)).and_then(|(_, mostly)| *mostly);
        mostly.filter(|_| !alone).unwrap_or_default()
    }

    /// What this one takes by itself: as much as those like it do at their better times. As long as there are
    /// not enough of them to tell, what it did.
    fn itself(&self, i: usize, s: &Traced) -> Nanos {
        let least = || self.floor.get(&class(s)).map_or(Nanos::ZERO, |(least, _)| *least);
        let own = self.usual.get(&class(s)).copied().unwrap_or_else(|| self.cost[i].max(least()));
        own.min(s.done.since(s.issued))
    }

    /// From when to when the servers of `me` were at this one before.
    fn before(&self, me: usize, i: usize, s: &Traced) -> impl Iterator<Item = (Nanos, Nanos)> {
        let usual = self.usual.get(&class(s)).map_or(u64::MAX, |usual| usual.0.saturating_mul(STALLED));
        let span = self.cost[i].min(Nanos(usual));
        let sooner = move |(n, from): &&(usize, Nanos)| {
            self.began[me].iter().any(|(mine, began)| mine == n && from < began)
        };
        self.began[i].iter().filter(sooner).map(move |(_, from)| (*from, *from + span))
    }
}

/// One that is above so small a part of them; there is at least one.
fn part(samples: &mut [Nanos], part: usize) -> Nanos {
    let at = samples.len() / part;
    *samples.select_nth_unstable(at).1
}

/// In which order the storage served them: as they went there, but those of the same servers as they were done.
fn served(seen: &[Traced]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..seen.len()).collect();
    order.sort_by_key(|i| (seen[*i].done, seen[*i].issued));
    let mut went = vec![Nanos::ZERO; seen.len()];
    let mut latest: HashMap<Servers, Nanos> = HashMap::new();
    for i in &order {
        // Whoever is done after one that went there after it was overtaken.
        let last = latest.entry(seen[*i].servers).or_default();
        *last = seen[*i].issued.max(*last);
        went[*i] = *last;
    }
    order.sort_by_key(|i| went[*i]);
    order
}

/// Where the time of a flow's requests went, in seconds summed over its requests.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Blame {
    /// How many requests this is about.
    pub requests: u64,
    /// From arrival to the end.
    pub total: f64,
    /// At the storage, as long as such requests take there by themselves.
    pub service: f64,
    /// At the storage beyond that, while its servers served nobody else that is known here: slow, or at work for
    /// others than this I/O node.
    pub storage: f64,
    /// Held back by a limit.
    pub throttled: f64,
    /// Waiting while requests of this flow were at the storage, before or at the same server; its own among
    /// them.
    pub behind: BTreeMap<FlowId, f64>,
    /// Waiting while nothing was: the scheduler wanted it so.
    pub idle: f64,
    /// From when to when each was at the storage, and how many seconds of that a slow one is to blame for.
    #[serde(skip)]
    pub spells: Vec<(Nanos, Nanos, f64)>,
}

impl Blame {
    /// So long was waited, and whose requests were served when meanwhile: they are blamed in proportion, for
    /// as long as any was. What is left.
    fn divide(&mut self, waited: Nanos, mut served: Vec<(Nanos, Nanos, FlowId)>) -> Nanos {
        served.sort_unstable();
        let (mut busy, mut all, mut until) = (Nanos::ZERO, Nanos::ZERO, Nanos::ZERO);
        for (begin, end, _) in &served {
            busy = busy + end.since(until.max(*begin));
            all = all + end.since(*begin);
            until = until.max(*end);
        }
        let blamed = busy.min(waited);
        for (begin, end, flow) in served.iter().filter(|_| all > Nanos::ZERO) {
            let part = end.since(*begin).as_secs_f64() / all.as_secs_f64();
            *self.behind.entry(*flow).or_default() += blamed.as_secs_f64() * part;
        }
        waited.since(blamed)
    }
}

/// Where a flow's time went.
pub fn blame(seen: &[Traced], flow: FlowId) -> Blame {
    let costs = Costs::of(seen);
    // By when they were issued, so that those that matter to a wait are next to each other.
    let mut order: Vec<usize> = (0..seen.len()).collect();
    order.sort_by_key(|i| seen[*i].issued);
    // The latest end of all up to here: before the first that reaches into a wait nothing matters.
    let mut latest = Vec::with_capacity(order.len());
    let mut end = Nanos::ZERO;
    for i in &order {
        end = end.max(seen[*i].done);
        latest.push(end);
    }
    // Those that were at the storage between two moments.
    let meanwhile = |from: Nanos, to: Nanos| {
        let first = latest.partition_point(|end| *end <= from);
        order[first..].iter().copied().take_while(move |i| seen[*i].issued < to)
    };
    let within = |from: Nanos, to: Nanos, (begin, end): (Nanos, Nanos), flow: FlowId| {
        let (begin, end) = (begin.max(from), end.min(to));
        (begin < end).then_some((begin, end, flow))
    };
    let mut blame = Blame::default();
    for (me, s) in seen.iter().enumerate().filter(|(_, s)| s.request.flow == flow) {
        blame.requests += 1;
        blame.total += s.done.since(s.request.arrival).as_secs_f64();
        blame.throttled += s.admitted.since(s.request.arrival).as_secs_f64();
        let own = costs.itself(me, s);
        blame.service += own.as_secs_f64();
        let beyond = s.done.since(s.issued).since(own);
        let mut slow = 0.0;
        if beyond > Nanos::ZERO {
            let others = meanwhile(s.issued, s.done).filter(|i| *i != me);
            let beside = others.flat_map(|i| {
                let whose = seen[i].request.flow;
                costs.before(me, i, &seen[i]).map(move |at| (at, whose))
            });
            let beside = beside.filter_map(|(at, whose)| within(s.issued, s.done, at, whose));
            slow = blame.divide(beyond, beside.collect()).as_secs_f64();
            blame.storage += slow;
        }
        blame.spells.push((s.issued, s.done, slow));
        let waited = s.issued.since(s.admitted);
        if waited > Nanos::ZERO {
            let there = meanwhile(s.admitted, s.issued).filter_map(|i| {
                within(s.admitted, s.issued, (seen[i].issued, seen[i].done), seen[i].request.flow)
            });
            blame.idle += blame.divide(waited, there.collect()).as_secs_f64();
        }
    }
    blame
}

/// Which flows were at the storage in these moments, of a wall clock that is so much later than the clock of what was
/// `seen` (which is `known` from some time on), and in how many seconds of a slow storage something is known.
pub fn beside(
    seen: &[Traced],
    moments: &[Moment],
    later: Nanos,
    known: Nanos,
) -> (f64, BTreeMap<FlowId, Neighbour>) {
    let at = |m: &Moment| {
        let (from, until) = m.span();
        (from.since(later), until.since(later))
    };
    let remembered: Vec<&Moment> = moments.iter().filter(|m| at(m).0 >= known).collect();
    let good = remembered.iter().filter(|m| m.is_good()).count().max(1) as f64;
    // When each flow was there, without overlaps, and its bytes a second.
    let mut there: BTreeMap<FlowId, Vec<&Traced>> = BTreeMap::new();
    for s in seen {
        there.entry(s.request.flow).or_default().push(s);
    }
    let mut jobs = BTreeMap::new();
    for (flow, mut all) in there {
        all.sort_by_key(|s| s.issued);
        // Before the first that reaches into a moment nothing matters.
        let mut ends = Vec::with_capacity(all.len());
        all.iter().fold(Nanos::ZERO, |end, s| {
            ends.push(end.max(s.done));
            end.max(s.done)
        });
        let mut found = Neighbour::default();
        for moment in &remembered {
            let (from, until) = at(moment);
            let first = ends.partition_point(|end| *end <= from);
            let (mut busy, mut upto, mut bytes) = (Nanos::ZERO, from, 0.0);
            for s in all[first..].iter().take_while(|s| s.issued < until) {
                let (begin, end) = (s.issued.max(from), s.done.min(until));
                busy = busy + end.since(begin.max(upto));
                upto = upto.max(end);
                if s.request.op != OpKind::Metadata {
                    let whole = s.done.since(s.issued).as_secs_f64().max(1e-9);
                    bytes += s.request.len as f64 * end.since(begin).as_secs_f64() / whole;
                }
            }
            let part = busy.as_secs_f64() / MOMENT.as_secs_f64();
            if moment.is_good() {
                found.good += part / good;
            } else {
                found.slow += moment.slow * part;
                found.bytes += bytes;
            }
        }
        jobs.insert(flow, found);
    }
    (remembered.iter().map(|m| m.slow).sum(), jobs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_types::{FileId, RequestId, ServerId};

    fn seen(flow: u32, arrival: u64, admitted: u64, issued: u64, done: u64) -> Traced {
        let ms = Nanos::from_millis;
        let request = Request {
            id: RequestId(arrival),
            arrival: ms(arrival),
            file: FileId(1),
            offset: 0,
            len: 4096,
            flow: FlowId(flow),
            server: ServerId(0),
            op: OpKind::Write,
        };
        let servers = request.server.into();
        let (client, admitted, issued, done) = (ClientId(0), ms(admitted), ms(issued), ms(done));
        Traced { request, client, servers, admitted, issued, done }
    }

    #[test]
    fn whoever_was_at_the_storage_is_to_blame() {
        let near = |a: f64, b: f64| (a - b).abs() < 1e-9;
        let all = [
            seen(2, 0, 0, 0, 30),
            seen(3, 0, 0, 30, 40),
            // Waits 10 to 40: 20 ms behind flow 2, 10 ms behind flow 3; held back before.
            seen(1, 5, 10, 40, 45),
            // Waits while nobody is served.
            seen(1, 50, 50, 60, 61),
            // And behind its own.
            seen(1, 60, 60, 61, 62),
        ];
        let b = blame(&all, FlowId(1));
        assert_eq!(b.requests, 3);
        assert!(near(b.throttled, 0.005) && near(b.service, 0.007) && near(b.idle, 0.010), "{b:?}");
        assert!(near(b.behind[&FlowId(2)], 0.020) && near(b.behind[&FlowId(3)], 0.010), "{b:?}");
        assert!(near(b.behind[&FlowId(1)], 0.001), "{b:?}");
        let parts = b.service + b.throttled + b.idle + b.behind.values().sum::<f64>();
        assert!(near(parts, b.total), "nothing is left unexplained: {b:?}");
        assert_eq!(blame(&all, FlowId(9)), Blame::default());
    }

    #[test]
    fn who_was_there_while_it_was_slow_elsewhere() {
        let near = |a: f64, b: f64| (a - b).abs() < 1e-9;
        let moment = |at, slow| Moment { at, total: 0.1, slow };
        // The wall clock is a second ahead: moments 10 to 14 are 0 to 500 ms here.
        let later = Nanos::from_secs(1);
        let moments =
            [moment(10, 0.0), moment(11, 0.08), moment(12, 0.08), moment(13, 0.001), moment(14, 0.02)];
        // One there all the time, one in the slow moments alone, two requests at a time.
        let all = [
            seen(2, 0, 0, 0, 500),
            seen(3, 90, 100, 100, 250),
            seen(3, 90, 100, 150, 300),
            seen(4, 390, 400, 400, 410),
        ];
        let (known, jobs) = beside(&all, &moments, later, Nanos::ZERO);
        assert!(near(known, 0.181), "{known}");
        let (always, loud, late) = (jobs[&FlowId(2)], jobs[&FlowId(3)], jobs[&FlowId(4)]);
        assert!(near(always.slow, 0.18) && near(always.good, 1.0), "{always:?}");
        assert!(near(loud.slow, 0.16) && near(loud.good, 0.0) && near(loud.bytes, 8192.0), "{loud:?}");
        assert!(near(late.slow, 0.002) && near(late.bytes, 4096.0), "{late:?}");
        // What is not remembered is not known.
        let (known, jobs) = beside(&all, &moments, later, Nanos::from_millis(150));
        assert!(near(known, 0.101) && near(jobs[&FlowId(3)].slow, 0.08), "{known} {jobs:?}");
    }

    #[test]
    fn who_is_before_it_at_the_same_server_is_to_blame_too() {
        let near = |a: f64, b: f64| (a - b).abs() < 1e-9;
        // All go to the storage at once, which takes 10 ms for each, one after the other.
        let all =
            [seen(2, 0, 0, 0, 10), seen(3, 0, 0, 0, 20), seen(1, 0, 0, 0, 30), seen(1, 90, 90, 90, 115)];
        let b = blame(&all, FlowId(1));
        assert!(near(b.behind[&FlowId(2)], 0.010) && near(b.behind[&FlowId(3)], 0.010), "{b:?}");
        // The last was alone: the storage took its time.
        assert!(near(b.service, 0.035) && near(b.storage, 0.0), "{b:?}");
        // Storage that does many at once: nobody waits for anybody.
        let all = [seen(2, 0, 0, 0, 10), seen(3, 0, 0, 0, 10), seen(1, 0, 0, 0, 10)];
        let b = blame(&all, FlowId(1));
        assert!(near(b.service, 0.010) && b.behind.is_empty(), "{b:?}");
    }

    #[test]
    fn a_few_that_seem_alone_do_not_say_what_it_takes_at_rest() {
        // One after the other, a millisecond each; and so many with nothing known in front of them that take 20.
        let rest = |alone: u64| {
            let crowd = (0..100).map(|n| seen(2, 0, 0, 0, 1 + n));
            let all: Vec<Traced> =
                crowd.chain((0..alone).map(|n| seen(1, 0, 0, 1000 + n * 50, 1020 + n * 50))).collect();
            Costs::of(&all).at_rest(50, &all[50])
        };
        assert_eq!((rest(8), rest(40)), (Nanos::ZERO, Nanos::from_millis(20)));
    }

    #[test]
    fn what_is_longer_than_usual_is_the_storages_doing() {
        let near = |a: f64, b: f64| (a - b).abs() < 1e-9;
        // Alone; 1 ms, and every fourth time 15 ms.
        let took = |n: u64| if n % 4 == 3 { 15 } else { 1 };
        let all: Vec<Traced> = (0..40).map(|n| seen(1, n * 20, n * 20, n * 20, n * 20 + took(n))).collect();
        let b = blame(&all, FlowId(1));
        assert!(near(b.service, 0.040) && near(b.storage, 0.140) && b.behind.is_empty(), "{b:?}");
        // Behind somebody whom this I/O node does not see, of whom sometimes more and sometimes less is left to do.
        let took = |n: u64| 1 + n * 7 % 6;
        let held_up: Vec<Traced> =
            (0..60).map(|n| seen(1, n * 20, n * 20, n * 20, n * 20 + took(n))).collect();
        let b = blame(&held_up, FlowId(1));
        assert!(near(b.service, 0.060) && near(b.storage, 0.150) && b.behind.is_empty(), "{b:?}");
        // Two at a time, which wait side by side.
        let twice: Vec<Traced> = all.iter().flat_map(|s| [*s, *s]).collect();
        let b = blame(&twice, FlowId(1));
        assert!(b.service < 0.1 && b.storage > 0.15, "{b:?}");
        assert!(near(b.service + b.storage + b.behind.values().sum::<f64>(), b.total), "{b:?}");
    }

    #[test]
    fn nobody_is_to_blame_for_more_than_its_own_time() {
        let near = |a: f64, b: f64| (a - b).abs() < 1e-9;
        let usual = (0..20).map(|n| seen(1, 1000 + n * 10, 1000 + n * 10, 1000 + n * 10, 1001 + n * 10));
        let mut all: Vec<Traced> = usual.collect();
        // Waits 70 ms in the queue, of which another is at the storage for two.
        all.extend([seen(2, 0, 0, 10, 12), seen(1, 0, 0, 70, 71)]);
        // Is at the storage for 70 ms, of which another is for two.
        all.extend([seen(2, 500, 500, 500, 502), seen(1, 500, 500, 500, 570)]);
        let b = blame(&all, FlowId(1));
        assert!(near(b.behind[&FlowId(2)], 0.004), "{b:?}");
        assert!(near(b.idle, 0.068) && near(b.storage, 0.067), "{b:?}");
        assert!(near(b.service, 0.022) && near(b.total, 0.161), "{b:?}");
    }

    #[test]
    fn who_spans_several_servers_is_before_others_at_each() {
        let near = |a: f64, b: f64| (a - b).abs() < 1e-9;
        let over = |servers: &[u32], s: Traced| {
            let all = servers.iter().map(|n| ServerId(*n).into()).reduce(Servers::and).unwrap();
            let request =
                Request { server: ServerId(servers[0]), len: 4096 << s.request.flow.0, ..s.request };
            Traced { request, servers: all, ..s }
        };
        // Server 0 is at work to 10; the next begins at server 1 at once, and the last comes after it there.
        let all = [
            over(&[0], seen(3, 0, 0, 0, 10)),
            over(&[0, 1], seen(2, 0, 0, 1, 13)),
            over(&[1], seen(1, 2, 2, 2, 5)),
        ];
        let b = blame(&all, FlowId(1));
        assert!(near(b.behind[&FlowId(2)], 0.002) && near(b.service, 0.001), "{b:?}");
        let b = blame(&all, FlowId(2));
        assert!(near(b.behind[&FlowId(3)], 0.010) && near(b.service, 0.003), "{b:?}");
    }

    #[test]
    fn the_trace_is_bounded() {
        let mut trace = Trace::new(3);
        for n in 0..10 {
            trace.push(seen(n, 0, 0, 0, 0));
        }
        assert_eq!(trace.all().iter().map(|s| s.request.flow.0).collect::<Vec<_>>(), [7, 8, 9]);
        trace.keep(2);
        assert_eq!(trace.all().iter().map(|s| s.request.flow.0).collect::<Vec<_>>(), [8, 9]);
        trace.keep(0);
        trace.push(seen(1, 0, 0, 0, 0));
        assert!(trace.all().is_empty());
    }
}
