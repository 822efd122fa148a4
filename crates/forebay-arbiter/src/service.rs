//! The arbiter at work: the thread in which the [`Core`] lives, and the way to it.
//!
//! Whatever is asked of the core is answered only after everything that follows from it was stored.
//! While no core leads here (another arbiter does), questions are answered with [`NotLeading`].

use crate::api::{JobSeries, Viewers};
use crate::config::Config;
use crate::core::{Action, ConnectionId, Core, Refusal};
use crate::curves::Curves;
use crate::health;
use crate::history::{HistoryWriter, Note};
use crate::model_file::ModelFile;
use crate::questions::Questions;
use crate::refusals::Refusals;
use crate::store::{Change, ControlStore, StoreError, private_file};
use forebay_control::job::JobRequest;
use forebay_control::node::{NodeHello, ToNode};
use forebay_types::{Epoch, Nanos, NodeId};
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, PoisonError, RwLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::sync::{Semaphore, mpsc, oneshot, watch};

/// Requests to the core that may wait.
const WAITING: usize = 4096;

/// Those who only look are served so many at a time.
const LOOKING: usize = 4;

/// Those of them that nodes may take up with what they tell.
const TELLING: usize = 1024;

/// How long a node waits for its turn; it must hear pings meanwhile.
const TURN: Duration = Duration::from_secs(1);

/// Requests that are served before their results are stored together.
const BATCH: usize = 256;

/// Messages that may wait for one node. A node that lets more pile up is cut off, and hears everything
/// afresh when it is back.
const LINK: usize = 1024;

/// How long a node is waited for that does not say that it has heard.
const SETTLE: Duration = Duration::from_secs(2);

/// A core that does not come round for so long hangs, and its nodes had better look for another one.
const HANGS: Nanos = Nanos::from_secs(20);

/// How often time passes for the core.
const TICK: Duration = Duration::from_millis(50);
/// Who waits a tick and finds that so much has passed did not run.
const STOOD_STILL: Nanos = Nanos::from_secs(1);

/// Why a question did not reach the core.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotLeading {
    /// No core leads here: who does, where that is known.
    #[error("{why}")]
    Elsewhere {
        /// What to do.
        why: String,
        /// The leader's URL.
        leader: Option<String>,
    },
    /// It cannot take more.
    #[error("the arbiter is overloaded: try again")]
    Busy,
}

/// What goes to a node's connection.
#[derive(Debug)]
pub enum Outgoing {
    /// A message, as text: what is said to all nodes is written down once.
    Say(Arc<str>),
    /// Tell when the node has taken in everything before this.
    Settled(oneshot::Sender<()>),
}

type Reply = Box<dyn FnOnce() + Send>;
type Question = Box<dyn FnOnce(&mut Core, Nanos) -> Reply + Send>;

enum Input {
    /// Run this; then, once the results are stored, the reply it returned.
    Ask(Question),
    /// A node says hello on a new connection.
    Hello {
        connection: ConnectionId,
        hello: Box<NodeHello>,
        link: mpsc::Sender<Outgoing>,
        reply: oneshot::Sender<Result<(), Refusal>>,
    },
    /// Tell when these nodes have taken in all they were told so far.
    Settle(Vec<(NodeId, oneshot::Sender<()>)>),
    /// Say this to nodes, whatever the core thinks.
    Say(Vec<(NodeId, Arc<str>)>),
    Stop,
}

/// The way to the core, for everyone who serves requests.
pub struct Shared {
    /// What the arbiter was told.
    pub config: Config,
    core: RwLock<Option<SyncSender<Input>>>,
    /// What is said while no core leads here.
    standby: RwLock<NotLeading>,
    history: HistoryWriter,
    turns: Arc<Semaphore>,
    /// Turns of those who only look.
    pub(crate) looking: Semaphore,
    /// The version of each job's mapping, as it was stored and told.
    epochs: RwLock<HashMap<String, Epoch>>,
    /// Changes with them.
    remapped: watch::Sender<()>,
    next_decision: AtomicU64,
    next_connection: AtomicU64,
    /// Which I/O nodes were refused, and why.
    pub(crate) refusals: Refusals,
    /// Questions that reached the core.
    pub(crate) asked: AtomicU64,
    /// When the core last came round.
    alive: AtomicU64,
    /// What nodes are asked that the core does not need to know.
    pub(crate) questions: Questions,
    /// People who look at the dashboard.
    pub(crate) viewers: Viewers,
    pub(crate) job_series: JobSeries,
    clock: Clock,
}

/// Time since 1970 that does not jump when the system's clock is set.
#[derive(Clone, Copy, Debug)]
struct Clock {
    start: Instant,
    unix: Nanos,
}

impl Clock {
    fn now(&self) -> Nanos {
        self.unix + Nanos::from(self.start.elapsed())
    }
}

fn elsewhere(why: &str, leader: Option<String>) -> NotLeading {
    NotLeading::Elsewhere { why: why.to_owned(), leader }
}

/// Seconds since 1970.
pub fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs())
}

/// The core at work. Dropping it stops it.
pub struct Leading {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<Result<(), StoreError>>>,
}

impl Shared {
    /// Opens the history; no core leads yet.
    pub fn new(config: Config) -> Result<Arc<Shared>, StoreError> {
        let failed = |e: &dyn std::fmt::Display| {
            StoreError::Failed(format!("history in {}: {e}", config.state.display()))
        };
        private_file(&config.state, "history.db").map_err(|e| failed(&e))?;
        let (history, next) = HistoryWriter::start(&config.state, config.keep).map_err(|e| failed(&e))?;
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Ok(Arc::new(Shared {
            job_series: JobSeries::new(config.max_job_metrics),
            config,
            core: RwLock::new(None),
            standby: RwLock::new(elsewhere("this arbiter does not lead: ask the one that does", None)),
            history,
            turns: Arc::new(Semaphore::new(TELLING)),
            looking: Semaphore::new(LOOKING),
            epochs: RwLock::default(),
            remapped: watch::Sender::new(()),
            next_decision: AtomicU64::new(next),
            next_connection: AtomicU64::new(1),
            refusals: Refusals::default(),
            asked: AtomicU64::new(0),
            alive: AtomicU64::new(0),
            questions: Questions::default(),
            viewers: Viewers::default(),
            clock: Clock { start: Instant::now(), unix: Nanos::from(unix) },
        }))
    }

    /// Takes the lead with this store: from now on there is a core.
    pub fn lead(
        self: &Arc<Shared>,
        mut store: Box<dyn ControlStore>,
        curves: Curves,
    ) -> Result<Leading, StoreError> {
        let (term, kept) = store.lead()?;
        let next = self.next_decision.load(Ordering::Relaxed);
        let failed = |e: &dyn std::fmt::Display| StoreError::Failed(e.to_string());
        let mut core = Core::new(self.config.core.clone(), curves, term, &kept, next, self.clock.now())
            .map_err(|e| failed(&e))?;
        let model = match &self.config.model {
            None => None,
            Some(path) => {
                let (file, model) = ModelFile::open(path).map_err(|e| StoreError::Begin(e.to_string()))?;
                core.set_model(model);
                Some(file)
            }
        };
        let epochs = kept.jobs.iter().map(|(id, job)| (id.clone(), job.epoch)).collect();
        *self.epochs.write().unwrap_or_else(PoisonError::into_inner) = epochs;
        let (to, from) = sync_channel(WAITING);
        *self.core.write().unwrap_or_else(PoisonError::into_inner) = Some(to);
        let shared = Arc::clone(self);
        let thread = std::thread::spawn(move || {
            let links = BTreeMap::new();
            let worker = Worker { shared: &shared, core, store, links, model, took: Duration::ZERO };
            let done = worker.run(&from);
            *shared.core.write().unwrap_or_else(PoisonError::into_inner) = None;
            // Whoever waits for a mapping asks again, and hears that another one leads.
            shared.epochs.write().unwrap_or_else(PoisonError::into_inner).clear();
            shared.remapped.send_replace(());
            done
        });
        Ok(Leading { shared: Arc::clone(self), thread: Some(thread) })
    }

    /// Asks the core, and waits until what follows from it is stored.
    pub async fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&mut Core, Nanos) -> T + Send + 'static,
    ) -> Result<T, NotLeading> {
        let (to, from) = oneshot::channel();
        self.send(Input::Ask(Box::new(move |core, now| {
            let answer = question(core, now);
            Box::new(move || drop(to.send(answer)))
        })))?;
        from.await.map_err(|_| elsewhere("the arbiter has just stopped leading: try again", None))
    }

    /// Tells the core something, without waiting for what comes of it; only for its turn, while very
    /// many have something to tell.
    pub async fn tell(&self, what: impl FnOnce(&mut Core, Nanos) + Send + 'static) -> Result<(), NotLeading> {
        let turn = Arc::clone(&self.turns).acquire_owned();
        let Ok(Ok(turn)) = tokio::time::timeout(TURN, turn).await else { return Err(NotLeading::Busy) };
        self.send(Input::Ask(Box::new(move |core, now| {
            what(core, now);
            drop(turn);
            Box::new(|| {})
        })))
    }

    /// Whether the core does its work, however slowly its store answers.
    pub(crate) fn is_alive(&self) -> bool {
        let heard = Nanos(self.alive.load(Ordering::Relaxed));
        self.clock.now().since(heard) < HANGS
    }

    /// A node says hello: its connection's number, and what it is to be told.
    pub async fn hello(
        &self,
        hello: NodeHello,
    ) -> Result<Result<(ConnectionId, mpsc::Receiver<Outgoing>), Refusal>, NotLeading> {
        let connection = ConnectionId(self.next_connection.fetch_add(1, Ordering::Relaxed));
        let (link, messages) = mpsc::channel(LINK);
        let (reply, answer) = oneshot::channel();
        self.send(Input::Hello { connection, hello: Box::new(hello), link, reply })?;
        let answer =
            answer.await.map_err(|_| elsewhere("the arbiter has just stopped leading: try again", None))?;
        Ok(answer.map(|()| (connection, messages)))
    }

    /// Waits until the nodes have taken in what they were told so far, as those do that are well. A job
    /// that is sent to a node must be known there.
    pub async fn settle(&self, nodes: Vec<NodeId>) {
        let (senders, waiting): (Vec<_>, Vec<_>) = nodes
            .into_iter()
            .map(|n| {
                let (to, from) = oneshot::channel();
                ((n, to), from)
            })
            .unzip();
        if self.send(Input::Settle(senders)).is_ok() {
            let all = async {
                for one in waiting {
                    let _ = one.await;
                }
            };
            let _ = tokio::time::timeout(SETTLE, all).await;
        }
    }

    /// Says something to nodes that changes nothing there; what comes of it is not waited for.
    pub(crate) fn say(&self, all: Vec<(NodeId, Arc<str>)>) -> Result<(), NotLeading> {
        self.send(Input::Say(all))
    }

    /// Waits until a job's mapping is no longer of this epoch; whether that came before `until`.
    pub async fn moved(&self, job: &str, from: Epoch, until: tokio::time::Instant) -> bool {
        let mut changes = self.remapped.subscribe();
        loop {
            let now = self.epochs.read().unwrap_or_else(PoisonError::into_inner).get(job).copied();
            if now != Some(from) {
                return true;
            }
            let Ok(Ok(())) = tokio::time::timeout_at(until, changes.changed()).await else { return false };
        }
    }

    /// Whether a job of this name was stored before.
    fn knows(&self, job: &str) -> bool {
        self.epochs.read().unwrap_or_else(PoisonError::into_inner).contains_key(job)
    }

    /// Takes in what was stored, for those who wait for it.
    fn stored(&self, changes: &[Change]) {
        let mut epochs = self.epochs.write().unwrap_or_else(PoisonError::into_inner);
        let mut moved = false;
        for change in changes {
            moved |= match change {
                Change::Job(job) => epochs.insert(job.request.id.clone(), job.epoch) != Some(job.epoch),
                Change::JobEnded(id) => epochs.remove(id).is_some(),
                _ => false,
            };
        }
        drop(epochs);
        if moved {
            self.remapped.send_replace(());
        }
    }

    /// The number of the next decision.
    pub(crate) fn next_decision(&self) -> u64 {
        self.next_decision.load(Ordering::Relaxed)
    }

    /// Rows of history that were dropped.
    pub fn history_dropped(&self) -> u64 {
        self.history.dropped()
    }

    fn send(&self, input: Input) -> Result<(), NotLeading> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let core = self.core.read().unwrap_or_else(PoisonError::into_inner);
        let Some(to) = core.as_ref() else { return Err(self.standing_by()) };
        to.try_send(input).map_err(|_| NotLeading::Busy)
    }

    /// Whether a core leads here; if not, who does.
    pub fn leads(&self) -> Result<(), NotLeading> {
        let core = self.core.read().unwrap_or_else(PoisonError::into_inner);
        if core.is_some() { Ok(()) } else { Err(self.standing_by()) }
    }

    /// What to say from now on, while no core leads here.
    pub fn stand_by(&self, why: &str, leader: Option<String>) {
        *self.standby.write().unwrap_or_else(PoisonError::into_inner) = elsewhere(why, leader);
    }

    fn standing_by(&self) -> NotLeading {
        self.standby.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Leading {
    /// Whether the core has stopped by itself.
    pub fn is_over(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Stops leading, and says why it did if it did so before.
    pub fn stop(mut self) -> Result<(), StoreError> {
        self.finish()
    }

    fn finish(&mut self) -> Result<(), StoreError> {
        let core = self.shared.core.read().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(to) = core {
            let _ = to.send(Input::Stop);
        }
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(done)) => done,
            Some(Err(_)) => Err(StoreError::Failed("the arbiter's core has failed".to_owned())),
            None => Ok(()),
        }
    }
}

impl Drop for Leading {
    fn drop(&mut self) {
        let _ = self.finish();
    }
}

/// The core's thread.
struct Worker<'a> {
    shared: &'a Shared,
    core: Core,
    store: Box<dyn ControlStore>,
    links: BTreeMap<NodeId, (ConnectionId, mpsc::Sender<Outgoing>)>,
    model: Option<ModelFile>,
    /// What the core needed for the last thing it was asked.
    took: Duration,
}

impl Worker<'_> {
    fn run(mut self, from: &Receiver<Input>) -> Result<(), StoreError> {
        let mut ticked = Instant::now();
        loop {
            let ran = self.shared.clock.now();
            self.shared.alive.store(ran.0, Ordering::Relaxed);
            let first = match from.recv_timeout(TICK.saturating_sub(ticked.elapsed())) {
                Ok(input) => Some(input),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            };
            let now = self.shared.clock.now();
            if now.since(ran) >= STOOD_STILL {
                tracing::info!("the arbiter did not run for {:.1} s", now.since(ran).as_secs_f64());
                self.core.stood_still(ran, now);
            }
            let mut replies: Vec<Reply> = Vec::new();
            let mut stop = false;
            for input in first.into_iter().chain(from.try_iter().take(BATCH)) {
                let began = Instant::now();
                stop |= self.take(input, &mut replies);
                self.took = began.elapsed();
                self.carry_out()?;
            }
            if ticked.elapsed() >= TICK {
                ticked = Instant::now();
                self.reread_model();
                self.core.tick(self.shared.clock.now());
                self.took = ticked.elapsed();
                self.carry_out()?;
            }
            replies.into_iter().for_each(|reply| reply());
            if stop {
                self.core.stopping(self.shared.clock.now());
                if let Err(e) = self.carry_out() {
                    tracing::warn!("what jobs have moved is not kept to the last second: {e}");
                }
                return Ok(());
            }
        }
    }

    /// Takes in a detector that was put in place of the one in its file.
    fn reread_model(&mut self) {
        match self.model.as_mut().and_then(ModelFile::changed) {
            Some(Ok(model)) => {
                tracing::info!(trained_on = model.trained_on, "another detector is in force");
                self.core.set_model(model);
            }
            Some(Err(e)) => tracing::warn!("{e}; going on with the detector in force"),
            None => {}
        }
    }

    /// Serves one input; whether it was the last.
    fn take(&mut self, input: Input, replies: &mut Vec<Reply>) -> bool {
        let now = self.shared.clock.now();
        match input {
            Input::Ask(question) => replies.push(question(&mut self.core, now)),
            Input::Hello { connection, hello, link, reply } => {
                let node = hello.node;
                let answer = self.core.node_hello(now, connection, *hello);
                if answer.is_ok() {
                    self.links.insert(node, (connection, link));
                }
                replies.push(Box::new(move || drop(reply.send(answer))));
            }
            Input::Settle(nodes) => {
                for (node, done) in nodes {
                    if let Some((_, link)) = self.links.get(&node) {
                        let _ = link.try_send(Outgoing::Settled(done));
                    }
                }
            }
            Input::Say(all) => {
                for (node, text) in all {
                    if let Some((_, link)) = self.links.get(&node) {
                        let _ = link.try_send(Outgoing::Say(text));
                    }
                }
            }
            Input::Stop => return true,
        }
        false
    }

    /// Stores what the core wants stored, then does the rest.
    fn carry_out(&mut self) -> Result<(), StoreError> {
        let mut actions = self.core.actions();
        if actions.is_empty() {
            return Ok(());
        }
        let changes: Vec<Change> = actions
            .iter()
            .filter_map(|a| if let Action::Persist(c) = a { Some(c.clone()) } else { None })
            .collect();
        if !changes.is_empty() {
            self.store.apply(&changes)?;
        }
        let stored = changes;
        let mut said: Option<(ToNode, Arc<str>)> = None;
        for action in actions.drain(..) {
            match action {
                // Nothing may be left to decide about then.
                Action::Persist(Change::JobEnded(job)) => tracing::info!("job {job} has ended"),
                Action::Persist(Change::Job(job)) if !self.shared.knows(&job.request.id) => {
                    let JobRequest { id, app, user, .. } = &job.request;
                    tracing::info!(app, user, "job {id} has come");
                }
                Action::Persist(_) => {}
                Action::Send { to, message } => {
                    let text = match said.take() {
                        Some((same, text)) if same == message => text,
                        _ => serde_json::to_string(&message).unwrap_or_default().into(),
                    };
                    said = Some((message, Arc::clone(&text)));
                    if let Some((_, link)) = self.links.get(&to)
                        && link.try_send(Outgoing::Say(text)).is_err()
                    {
                        // Its connection's end is noticed, and told, by whoever serves it.
                        self.links.remove(&to);
                    }
                }
                Action::HangUp(connection) => self.links.retain(|_, (c, _)| *c != connection),
                Action::Judged(change) => log(&change),
                Action::Record(row, began) => self.shared.history.note(Note::Row(row, began)),
                Action::Decided(mut decision) => {
                    decision.took_us = u64::try_from(self.took.as_micros()).unwrap_or(u64::MAX);
                    self.shared.next_decision.store(decision.id + 1, Ordering::Relaxed);
                    tracing::info!(decision = decision.id, cause = %decision.cause, "decided");
                    self.shared.history.note(Note::Decided(decision));
                }
            }
        }
        // After the nodes: whoever hears of a mapping from here finds it known there.
        self.shared.stored(&stored);
        Ok(())
    }
}

fn log(change: &health::Change) {
    let (node, state, reason) = (change.node, change.diagnosis.state, &change.diagnosis.reason);
    // That a node is in use again is good news, and that it is drained was asked for; that it is lost or slow is worth a line in every log.
    if state.usable() || state == health::State::Drained {
        tracing::info!("I/O node {node} is {state}: {reason}");
    } else {
        tracing::warn!("I/O node {node} is {state}: {reason}");
    }
}
