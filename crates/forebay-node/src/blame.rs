//! Who slowed a job on this node, for whoever asks; and asking.

use crate::control::{CONTROL_JOB, Command, Reply};
use crate::node::Node;
use crate::sys;
use forebay_client::{Address, Client, Config};
use forebay_control::node::{Answer, Question, ToArbiter};
use forebay_sched::blame::{Traced, beside, blame};
use forebay_sched::whatif::{Fared, replay};
use forebay_sched::{Request, SchedulerConfig};
pub use forebay_types::JobBlame;
use forebay_types::SLOW_STORAGE;
use forebay_types::{Beside, ClientReport, FlowId, Moment, Nanos, Neighbour, Secret};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, PoisonError};

/// So many requests that were sent again are remembered.
const REPLAYS: usize = 1024;

/// So many jobs are named that were at the storage while it was slow elsewhere.
const NEIGHBOURS: usize = 16;

/// How inexact the age of a request that is sent again is: it is told in milliseconds.
const INEXACT: Nanos = Nanos::from_millis(2);

/// A request that was sent before: as it came here, and how long ago the first try was.
#[derive(Clone, Copy, Debug)]
struct Replay {
    request: Request,
    lost: Nanos,
}

impl Replay {
    fn first(&self) -> Nanos {
        self.request.arrival.since(self.lost)
    }

    /// Whether that may be the same request.
    fn is(&self, r: &Request) -> bool {
        let same = |r: &Request| (r.flow, r.file, r.offset, r.len, r.op);
        same(r) == same(&self.request)
    }

    /// Whether this was a try of the same call, before this one.
    fn replaces(&self, other: &Replay) -> bool {
        let between = self.first().max(other.first()).since(self.first().min(other.first()));
        self.is(&other.request) && other.request.arrival <= self.request.arrival && between <= INEXACT
    }
}

/// What requests had lost before they were sent here again.
#[derive(Debug, Default)]
pub(crate) struct Replays(Mutex<VecDeque<Replay>>);

impl Replays {
    /// A request comes that was sent `lost` ago for the first time.
    pub(crate) fn note(&self, request: Request, lost: Nanos) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() == REPLAYS {
            all.pop_front();
        }
        all.push_back(Replay { request, lost });
    }

    /// What a flow has lost since then. What became of earlier tries is within that: it is no longer among those seen.
    fn lost(&self, flow: FlowId, since: Nanos, seen: &mut Vec<Traced>) -> Nanos {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let own = all.iter().filter(|r| r.request.flow == flow && r.request.arrival >= since);
        once(&own.copied().collect::<Vec<_>>(), seen)
    }
}

/// The time that calls had lost before their last try, each once: their earlier tries are taken out of what was seen.
fn once(replays: &[Replay], seen: &mut Vec<Traced>) -> Nanos {
    let mut lost = Nanos::ZERO;
    for (i, replay) in replays.iter().enumerate() {
        let from = replay.first().since(INEXACT);
        let this = |s: &Traced| replay.is(&s.request) && s.request.arrival == replay.request.arrival;
        // One that comes over another connection may be taken later than what was sent after it.
        let until = seen.iter().find(|s| this(s)).map_or(replay.request.arrival, |s| s.done);
        let earlier = |s: &Traced| {
            let meanwhile = (from..until).contains(&s.request.arrival) && s.done > replay.first();
            replay.is(&s.request) && meanwhile && !this(s)
        };
        let tries = (0..seen.len()).filter(|i| earlier(&seen[*i]));
        if let Some(first) = tries.min_by_key(|i| seen[*i].request.arrival) {
            seen.remove(first);
        }
        if !replays[i + 1..].iter().any(|later| later.replaces(replay)) {
            lost = lost + replay.lost;
        }
    }
    lost
}

/// For a person: the largest part first.
pub struct BlameText<'a> {
    /// Of which job.
    pub job: &'a str,
    /// What was found.
    pub blame: &'a JobBlame,
    /// The scheduler that was asked about.
    pub what_if: Option<&'a SchedulerConfig>,
}

impl fmt::Display for BlameText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let BlameText { job, blame: b, what_if } = self;
        let (requests, span) = (b.requests, b.span);
        let mean = b.total / requests.max(1) as f64 * 1e3;
        writeln!(f, "job {job}: {requests} requests in {span:.1} s, {mean:.3} ms each")?;
        for (share, what) in b.parts(job) {
            writeln!(f, "{:5.1} %  {what}", share * 100.0)?;
            if what.starts_with(SLOW_STORAGE) {
                b.meanwhile(job).iter().try_for_each(|said| writeln!(f, "         {said}"))?;
            }
        }
        match what_if.and_then(|spec| b.foreseen(spec)) {
            Some(said) => writeln!(f, "{said}"),
            None => Ok(()),
        }
    }
}

impl Node {
    /// Where the time of a job's last requests went here, of those that came since then; `None` if it is not
    /// known.
    pub(crate) fn blame(&self, job: &str, since: Nanos, other: Option<&SchedulerConfig>) -> Option<JobBlame> {
        let flow = self.jobs.flow(job)?;
        let (mut seen, config, weights) = self.engine.with_queue(|queue| {
            let weights = queue.accounts().flows().into_iter().map(|(flow, s)| (flow, s.weight));
            (queue.trace().all(), queue.config().clone(), weights.collect::<Vec<_>>())
        });
        // Those of an earlier job of the name.
        seen.retain(|s| s.request.flow != flow || s.request.arrival >= since);
        let first = seen.iter().filter(|s| s.request.flow == flow).map(|s| s.request.arrival).min();
        let failover = self.replays.lost(flow, first.unwrap_or_default(), &mut seen).as_secs_f64();
        let found = blame(&seen, flow);
        let name = |flow| self.jobs.name(flow).unwrap_or_else(|| "(ended)".to_owned());
        let mut behind: BTreeMap<String, f64> = BTreeMap::new();
        for (flow, seconds) in &found.behind {
            *behind.entry(name(*flow)).or_default() += seconds;
        }
        let own = || seen.iter().filter(|s| s.request.flow == flow);
        let first = first.unwrap_or_default();
        let last = own().map(|s| s.done).max().unwrap_or_default();
        let what_if = other.map(|other| {
            let mean = |config: &SchedulerConfig| {
                let all = replay(&seen, config, self.site(), self.config.dispatchers, &weights);
                all.get(&flow).map_or(0.0, Fared::mean)
            };
            // What the replay does not know of the node it does not know under either.
            let (took, now) = (found.total - found.throttled, mean(&config));
            (took, if now > 0.0 { took * mean(other) / now } else { took })
        });
        let epoch = Nanos(sys::epoch());
        let spells: Vec<_> =
            found.spells.iter().map(|(a, b, slow)| (*a + epoch, *b + epoch, *slow)).collect();
        Some(JobBlame {
            moments: Moment::of(&spells),
            elsewhere: Vec::new(),
            forgotten: 0.0,
            requests: found.requests,
            span: last.since(first).as_secs_f64(),
            total: found.total + failover,
            failover,
            service: found.service,
            storage: found.storage,
            throttled: found.throttled,
            behind,
            idle: found.idle,
            what_if,
            servers: seen.iter().flat_map(|s| s.servers.each()).collect::<BTreeSet<_>>().len(),
        })
    }
}

/// Answers an arbiter in a thread of its own, since all that is remembered is gone through, perhaps twice; one question at
/// a time.
pub(crate) fn start(node: &Arc<Node>, id: u64, question: Question, answers: SyncSender<ToArbiter>) {
    let say = move |answers: &SyncSender<ToArbiter>, answer| {
        // The announcer may have lost its arbiter meanwhile: then nobody wants to know.
        let _ = answers.try_send(ToArbiter::Answer { id, answer });
    };
    if node.recalling.swap(true, Acquire) {
        return say(
            &answers,
            Answer::No("it is being asked something else at this moment: try again".to_owned()),
        );
    }
    let (n, to) = (Arc::clone(node), answers.clone());
    let spawned = std::thread::Builder::new().name("recall".into()).stack_size(512 << 10).spawn(move || {
        let answer = n.recall(question);
        n.recalling.store(false, Release);
        say(&to, answer);
    });
    if spawned.is_err() {
        node.recalling.store(false, Release);
        say(&answers, Answer::No("there is no thread for it".to_owned()));
    }
}

impl Node {
    fn recall(&self, question: Question) -> Answer {
        match question {
            Question::Job { job, age_ms, what_if } => {
                let other = what_if.as_ref().map(SchedulerConfig::try_from).transpose();
                let age = age_ms.map(|ms| Nanos(ms.saturating_mul(1_000_000)));
                // By the clock of schedulers.
                let since = age.map_or(Nanos::ZERO, |age| sys::wall_clock().since(age));
                match other {
                    Ok(other) => {
                        Answer::Job(self.blame(&job, since, other.as_ref()).unwrap_or_default().into())
                    }
                    Err(e) => Answer::No(e.to_string()),
                }
            }
            Question::Moments { moments } => Answer::Moments(self.beside(&moments)),
        }
    }

    /// Who was at the storage in these moments.
    fn beside(&self, moments: &[Moment]) -> Beside {
        let (seen, full) = self.engine.with_queue(|queue| (queue.trace().all(), queue.trace().is_full()));
        let first = seen.iter().map(|s| s.done).min().filter(|_| full);
        let (known, found) = beside(&seen, moments, Nanos(sys::epoch()), first.unwrap_or_default());
        let mut jobs: Vec<(String, Neighbour)> =
            found.into_iter().filter_map(|(flow, n)| Some((self.jobs.name(flow)?, n))).collect();
        jobs.sort_by(|a, b| b.1.bytes.total_cmp(&a.1.bytes));
        jobs.truncate(NEIGHBOURS);
        Beside { known, jobs: jobs.into_iter().collect() }
    }
}

/// Why there is nobody to blame.
#[derive(Debug, thiserror::Error)]
#[error("the I/O node at {address}: {why}")]
pub struct AskError {
    address: Address,
    why: String,
}

/// Asks an I/O node for the ranks of a job that it has seen.
pub fn ask_ranks(address: &Address, secret: &Secret, job: &str) -> Result<Vec<ClientReport>, AskError> {
    let stats = control(address, secret, &Command::Stats)?.stats;
    let flow = stats.and_then(|s| s.flows.into_iter().find(|f| f.job == job));
    Ok(flow.map_or(Vec::new(), |f| f.clients))
}

fn control(address: &Address, secret: &Secret, command: &Command) -> Result<Reply, AskError> {
    let failed = |why: String| AskError { address: address.clone(), why };
    let config =
        Config { deadline_ms: 3000, ..Config::new(CONTROL_JOB, secret.to_hex(), vec![address.clone()]) };
    let client = Client::new(config, None).map_err(|e| failed(e.to_string()))?;
    let command = serde_json::to_vec(command).map_err(|e| failed(e.to_string()))?;
    let answer = client.control(0, &command).map_err(|e| failed(e.to_string()))?;
    client.leave();
    match serde_json::from_slice(&answer).map_err(|e| failed(e.to_string()))? {
        Reply { error: Some(error), .. } => Err(failed(error)),
        reply => Ok(reply),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_types::{ClientId, FileId, OpKind, RequestId, ServerId};

    fn request(arrival: u64, offset: u64) -> Request {
        Request {
            id: RequestId(arrival),
            arrival: Nanos::from_millis(arrival),
            file: FileId(1),
            offset,
            len: 4096,
            flow: FlowId(1),
            server: ServerId(0),
            op: OpKind::Write,
        }
    }

    fn seen(arrival: u64, offset: u64, done: u64) -> Traced {
        let (request, ms) = (request(arrival, offset), Nanos::from_millis);
        Traced {
            request,
            client: ClientId(0),
            servers: request.server.into(),
            admitted: ms(done - 1),
            issued: ms(done - 1),
            done: ms(done),
        }
    }

    #[test]
    fn a_call_that_was_sent_again_counts_once() {
        let again = |arrival, offset, lost| Replay {
            request: request(arrival, offset),
            lost: Nanos::from_millis(lost),
        };
        let total = |replays: &[Replay], mut all: Vec<Traced>| {
            let lost = once(replays, &mut all);
            let spans = all.iter().map(|s| s.done.since(s.request.arrival));
            spans.fold(lost, |sum, span| sum + span).0 / 1_000_000
        };
        // Of a node that stands still from 1000 to 3500: what a limit held back is sent again, and comes when it goes on.
        let all = || vec![seen(800, 0, 900), seen(950, 0, 3520), seen(3500, 0, 3600), seen(3620, 0, 3700)];
        assert_eq!(total(&[again(3500, 0, 2550)], all()), 100 + 2550 + 100 + 80);
        // Twice, of which both are served, or none of them again.
        let twice = [again(3500, 0, 2550), again(3510, 0, 2560)];
        let mut both = all();
        both.insert(3, seen(3510, 0, 3610));
        assert_eq!(total(&twice, both), 100 + 2560 + 100 + 80);
        assert_eq!(total(&twice, vec![seen(800, 0, 900), seen(950, 0, 3400)]), 100 + 2560);
        // The first try comes after the second.
        assert_eq!(
            total(&[again(3500, 0, 2500)], vec![seen(3501, 0, 3600), seen(3500, 0, 3600)]),
            2500 + 100
        );
        // It was never here: what others did meanwhile is theirs.
        let all = vec![seen(1200, 4096, 1300), seen(3500, 0, 3510), seen(3530, 0, 3540)];
        assert_eq!(total(&[again(3500, 0, 2500)], all), 100 + 2500 + 10 + 10);
    }
}
