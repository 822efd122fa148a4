//! One call of a client, from its first try to its end: which node, whether it may be sent there, and
//! what to do when the answer does not come. Events and `now` in, the next [`Step`] out.
//!
//! A request whose answer did not come makes its node process a *suspect*: it may have carried the
//! request out, or may yet. Until that is settled the request goes nowhere but to that same process,
//! which knows it again. It is settled by a node process of the same host that reads the suspect's
//! ledger, or, for what can be done twice, by the [`fence`]. What the ledger says was done is not done
//! again. What cannot be settled fails at the deadline: nothing is ever concluded from what the file
//! system looks like.

use super::fence::fence;
use super::nodes::Nodes;
use crate::hello::{HostBoot, Incarnation};
use crate::message::Fate;
use forebay_types::Nanos;

/// How often a suspect is looked at and asked about: at first at once, then after a part of the time that it
/// has taken, so that its end is noticed not much later than it comes.
const POLL: Nanos = Nanos::from_millis(1);
const POLL_PART: u64 = 4;
const LONGEST_POLL: Nanos = Nanos::from_millis(64);
/// A node that gave no answer so often is not asked again about what can be done twice.
const TRIES: usize = 2;
/// How long to wait when no node answers, doubled from time to time.
const NAP: Nanos = Nanos::from_millis(10);
const NAP_DOUBLINGS: u32 = 4;
/// Where nobody can be asked about a suspect, every so many polls the mapping is: who can tell may have moved.
const MAP_AFTER: u32 = 8;

/// What a request does when it is carried out a second time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It changes nothing at all.
    Look,
    /// It leaves things as the first time: harmful only when others have changed them since.
    Again,
    /// Something else: it must be done once.
    Once,
}

/// A node process, as it greeted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process {
    /// The node's index.
    pub node: usize,
    /// Which process of that node.
    pub incarnation: Incarnation,
    /// Where it runs.
    pub host: HostBoot,
}

/// An open file's place, for a call on it.
#[derive(Clone, Copy, Debug)]
pub struct FileAt {
    /// The node that has it open.
    pub node: usize,
    /// This process's session opened it there; otherwise a parent's did.
    pub ours: bool,
    /// The node does not know it any more.
    pub lost: bool,
    /// It must not move while its node lives: locks are held there, or it has no name.
    pub stays: bool,
}

/// What a request is bound to.
#[derive(Clone, Copy, Debug)]
pub enum Bound {
    /// Any node will do.
    Free,
    /// This node and no other.
    Node(usize),
    /// The file must be open there.
    File(FileAt),
}

/// What to do next. Whatever it is, its outcome is told by an event, and then the next step asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Send the request there, if [`Call::may_send`] allows it on the connection at hand.
    Send(usize),
    /// Connect to the suspect's address, to see who is there: [`Call::looked`].
    Look(usize),
    /// Ask `via` about the suspect: [`Call::verdict`].
    Ask {
        /// The node to ask.
        via: usize,
        /// About which process.
        about: Process,
        /// How long ago the request was first sent to it.
        age_ms: u32,
    },
    /// Ask that node for the job's mapping.
    Map(usize),
    /// Take over the parent's open file on that node.
    Adopt(usize),
    /// Open the file there, by its name and identity.
    Open(usize),
    /// Wait until then, or a little less.
    Nap(Nanos),
    /// It was carried out by a process that is gone, with this outcome.
    Done {
        /// By which process.
        by: Process,
        /// 0, or why it failed.
        errno: u32,
        /// As [`Fate::Done`] has them.
        values: [u64; 4],
    },
    /// It failed.
    Fail(Why),
}

/// What was learned by asking about a suspect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The node that was asked gave no answer.
    NoAnswer,
    /// It knows nothing of that process.
    Ignorant,
    /// It can read that process's ledger.
    Known {
        /// The process has ended, and no system call of it is under way.
        dead: bool,
        /// What became of the request.
        fate: Fate,
    },
}

/// Why a call fails for which no node has an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// No node took it in time. What must be done once was not carried out; what can be done again may have
    /// been, by a process that is gone.
    NoNode,
    /// Whether that process carried it out cannot be told.
    Unknown(Process),
}

#[derive(Clone, Debug)]
struct Suspect {
    who: Process,
    /// When the request was first sent to it.
    sent: Nanos,
    /// It may begin the request until then.
    until: Nanos,
    /// That has passed.
    fenced: bool,
    /// It is there, and is to be sent the request again.
    back: bool,
    /// Somebody at its address can be asked about it.
    successor: bool,
    looked: Option<Nanos>,
    asked: Option<Nanos>,
    /// Since when it is polled, and how often it was.
    since: Option<Nanos>,
    polls: u32,
    map_at: u32,
    /// Nodes that know nothing of it, and those that gave no answer since the fence.
    ignorant: Vec<usize>,
    unheard: Vec<usize>,
    /// How often since the fence nobody was found at its address who could tell.
    vacant: usize,
}

/// One call's progress.
#[derive(Clone, Debug)]
pub struct Call {
    /// The request's id, the same in every try.
    pub id: u64,
    kind: Kind,
    started: Nanos,
    deadline: Nanos,
    first_sent: Option<Nanos>,
    suspect: Option<Suspect>,
    settled: Option<Step>,
    mapped: bool,
    failed: bool,
    /// A try of it has failed, whatever became of that.
    troubled: bool,
    naps: u32,
    blind: bool,
    answered: Option<Nanos>,
}

impl Call {
    /// A call that begins at `now` and may take so long.
    pub fn new(id: u64, kind: Kind, now: Nanos, limit: Nanos) -> Call {
        Call {
            id,
            kind,
            started: now,
            deadline: now + limit,
            first_sent: None,
            suspect: None,
            settled: None,
            mapped: false,
            failed: false,
            troubled: false,
            naps: 0,
            blind: false,
            answered: None,
        }
    }

    /// When it began.
    pub fn started(&self) -> Nanos {
        self.started
    }

    /// The answer that ends it came at `now`.
    pub fn answered(&mut self, now: Nanos) {
        self.answered = Some(now);
    }

    /// When that was, if there was one.
    pub fn answered_at(&self) -> Option<Nanos> {
        self.answered
    }

    /// When it ends at the latest.
    pub fn deadline(&self) -> Nanos {
        self.deadline
    }

    /// A node that was given up is there after all: it has so long, from the start.
    pub fn extend(&mut self, limit: Nanos) {
        self.deadline = self.deadline.max(self.started + limit);
    }

    /// A limit has held the program back until then: it may take so long from there on.
    pub fn held_until(&mut self, at: Nanos, limit: Nanos) {
        self.deadline = self.deadline.max(at + limit);
    }

    /// What is left of a larger one begins now and may take so long.
    pub fn restart(&mut self, now: Nanos, limit: Nanos) {
        self.started = now;
        self.deadline = now + limit;
    }

    /// When it was first sent to the process that may still carry it out.
    pub fn first_sent(&self) -> Option<Nanos> {
        self.first_sent
    }

    /// Whether a try of it has failed: it takes longer than it should.
    pub fn troubled(&self) -> bool {
        self.troubled
    }

    /// It was sent elsewhere though an earlier try may have been carried out, by a process that is gone
    /// or of which nobody knows: so it may have been carried out more than once.
    pub fn may_be_repeated(&self) -> bool {
        self.blind
    }

    /// What to do at `now`. `news`: a node told of a mapping that is newer than the one followed.
    pub fn next<A>(&mut self, now: Nanos, nodes: &Nodes<A>, bound: Bound, news: bool) -> Step {
        if let Some(end) = self.settled {
            return end;
        }
        if now >= self.deadline {
            return Step::Fail(self.suspect.as_ref().map_or(Why::NoNode, |s| Why::Unknown(s.who)));
        }
        if let Some(step) = self.settle(now, nodes, news) {
            return step;
        }
        if let Bound::Node(node) = bound
            && self.failed
            && nodes.is_down(node, now)
        {
            return Step::Fail(Why::NoNode);
        }
        if std::mem::take(&mut self.failed) && nodes.all_down(now) {
            let nap = Nanos(NAP.0 << self.naps.min(NAP_DOUBLINGS));
            self.naps += 1;
            return Step::Nap((now + nap).min(self.deadline));
        }
        if news && !std::mem::replace(&mut self.mapped, true) {
            return Step::Map(nodes.pick(now));
        }
        let best = nodes.pick(now);
        match bound {
            Bound::Free => Step::Send(best),
            Bound::Node(node) => Step::Send(node),
            Bound::File(file) => {
                let there = !file.lost && !nodes.is_down(file.node, now);
                if there && file.ours && (file.stays || file.node == best) {
                    Step::Send(file.node)
                } else if there && !file.ours {
                    Step::Adopt(file.node)
                } else {
                    Step::Open(best)
                }
            }
        }
    }

    /// What the suspect demands, if there is one.
    fn settle<A>(&mut self, now: Nanos, nodes: &Nodes<A>, news: bool) -> Option<Step> {
        let again = self.kind != Kind::Once;
        let s = self.suspect.as_mut()?;
        if s.back {
            return Some(Step::Send(s.who.node));
        }
        let past = now >= s.until;
        if past && !std::mem::replace(&mut s.fenced, true) {
            // What is asked now counts: there is no need to be slow about it.
            (s.polls, s.map_at, s.since) = (0, MAP_AFTER, None);
        }
        let last = s.asked.or(s.looked).unwrap_or(now);
        let taken = last.since(*s.since.get_or_insert(now));
        let poll = Nanos((taken.0 / POLL_PART).clamp(POLL.0, LONGEST_POLL.0));
        let due = |last: Option<Nanos>| last.is_none_or(|at| now >= at + poll);
        let tries = |n: usize| s.unheard.iter().filter(|&&other| other == n).count();
        // After the fence everybody on that host is asked, also who was down a while ago: only if none
        // of them can be reached is there nobody to ask. What must be done once is settled by nothing
        // else: then they are asked in turn until the deadline.
        let others = || {
            let on_host = nodes.on_host(s.who.host, now, past);
            on_host.filter(|&n| n != s.who.node && !s.ignorant.contains(&n))
        };
        let via = s.successor.then_some(s.who.node).or_else(|| match again {
            true => others().find(|&n| tries(n) < TRIES),
            false => others().min_by_key(|&n| tries(n) / TRIES),
        });
        let ask = via.filter(|_| due(s.asked));
        if past && again && via.is_none() && s.vacant >= TRIES {
            self.blind = true;
            self.clear();
            return None;
        }
        // Whoever has given no answer for a while takes turns with the suspect's address.
        let first = past && ask.is_some_and(|via| tries(via) < TRIES || s.looked > s.asked);
        if due(s.looked) && !s.successor && !first {
            s.looked = Some(now);
            s.polls += u32::from(via.is_none());
            return Some(Step::Look(s.who.node));
        }
        if let Some(via) = ask {
            s.asked = Some(now);
            s.polls += 1;
            let age_ms = u32::try_from(now.since(s.sent).0 / 1_000_000 + 1).unwrap_or(u32::MAX);
            return Some(Step::Ask { via, about: s.who, age_ms });
        }
        let wake = if past { now + poll } else { (now + poll).min(s.until) };
        if via.is_none() && !again && (news || s.polls >= s.map_at) {
            s.map_at = s.polls + MAP_AFTER;
            return Some(Step::Map(nodes.pick(now)));
        }
        Some(Step::Nap(wake.min(self.deadline)))
    }

    /// Whether the request may be sent on a connection to `process`.
    pub fn may_send(&mut self, process: Process) -> bool {
        match &mut self.suspect {
            None => true,
            Some(s) if s.who.incarnation == process.incarnation => true,
            Some(s) => {
                s.back = false;
                s.successor = s.who.node == process.node;
                false
            }
        }
    }

    /// Bytes of it are about to be sent.
    pub fn sending(&mut self, now: Nanos) {
        self.first_sent.get_or_insert(now);
    }

    /// Nothing of it left this machine in the last try.
    pub fn not_sent(&mut self) {
        (self.failed, self.troubled) = (true, true);
        self.first_sent = self.suspect.as_ref().map(|s| s.sent);
        if let Some(s) = &mut self.suspect {
            s.back = false;
        }
    }

    /// Something of it may have reached `process`, the last byte at `last`, and no answer came.
    pub fn unanswered(&mut self, process: Process, last: Nanos, lease: Nanos) {
        (self.failed, self.troubled) = (true, true);
        if self.kind == Kind::Look {
            self.first_sent = None;
            return;
        }
        let until = last + fence(lease);
        match &mut self.suspect {
            Some(s) => {
                s.back = false;
                s.fenced &= s.until >= until;
                s.until = s.until.max(until);
                (s.polls, s.since) = (0, None);
            }
            None => {
                let sent = *self.first_sent.get_or_insert(last);
                self.suspect = Some(Suspect {
                    who: process,
                    sent,
                    until,
                    fenced: false,
                    back: false,
                    successor: false,
                    looked: None,
                    asked: None,
                    since: None,
                    polls: 0,
                    map_at: MAP_AFTER,
                    ignorant: Vec::new(),
                    unheard: Vec::new(),
                    vacant: 0,
                });
            }
        }
    }

    /// The node says that it did not carry out this try.
    pub fn not_done(&mut self) {
        (self.failed, self.troubled) = (true, true);
        match &mut self.suspect {
            None => self.first_sent = None,
            Some(s) => {
                // It knows nothing of the earlier try by its session: but by its ledger.
                s.back = false;
                s.successor = true;
            }
        }
    }

    /// Who was found at the suspect's address; `None`: nobody answered.
    pub fn looked(&mut self, found: Option<Process>) {
        let Some(s) = &mut self.suspect else { return };
        match found {
            Some(p) if p.incarnation == s.who.incarnation => s.back = true,
            Some(_) if !s.ignorant.contains(&s.who.node) => s.successor = true,
            // Nobody, or one who knows nothing of it: its host was started anew.
            _ => {
                s.successor = false;
                s.vacant += usize::from(s.looked.is_some_and(|at| at >= s.until));
            }
        }
    }

    /// What `via` knows of the suspect, asked at `asked`.
    pub fn verdict(&mut self, via: usize, asked: Nanos, verdict: Verdict) {
        let Some(s) = &mut self.suspect else { return };
        let (dead, fate) = match verdict {
            Verdict::Known { dead, fate } => (dead, fate),
            Verdict::NoAnswer => {
                s.successor &= via != s.who.node;
                if asked >= s.until {
                    s.unheard.push(via);
                }
                return;
            }
            Verdict::Ignorant => {
                s.ignorant.push(via);
                s.successor &= via != s.who.node;
                return;
            }
        };
        let over = dead || asked >= s.until;
        let idle = over && fate != Fate::Begun;
        s.unheard.retain(|&other| other != via);
        match (self.kind, fate) {
            (_, Fate::Done { errno, values }) => {
                self.settled = Some(Step::Done { by: s.who, errno, values });
            }
            (Kind::Once, Fate::Absent) if over => self.clear(),
            (Kind::Once, _) if dead => self.settled = Some(Step::Fail(Why::Unknown(s.who))),
            (Kind::Again | Kind::Look, fate) if dead || idle => {
                self.blind |= matches!(fate, Fate::Begun | Fate::Forgotten);
                self.clear();
            }
            _ => {}
        }
    }

    /// Whatever was sent before can no longer be carried out.
    fn clear(&mut self) {
        self.suspect = None;
        self.first_sent = None;
        self.failed = false;
    }

    /// A step other than sending failed: with its node, not with the request.
    pub fn step_failed(&mut self) {
        (self.failed, self.troubled) = (true, true);
    }
}

#[cfg(test)]
mod tests;
