//! The data path: every read, write and append goes through the scheduler. A request that the
//! scheduler lets go at once is carried out by the connection's own thread; others wait in the queue
//! and are carried out by dispatchers, several as one system call where the scheduler merged them.

use crate::buffer::Buffer;
use crate::file::OpenFile;
use crate::link::Link;
use crate::session::Session;
use crate::stats::counting;
use crate::sys;
use forebay_pattern::{Access, Collector, Interval};
use forebay_sched::blame::Origin;
use forebay_sched::layout::Servers;
use forebay_sched::{DispatchQueue, Request, SchedulerConfig, Site, Ticket};
use forebay_types::{FileId, FlowId, Histogram, Nanos, OpKind, RequestId};
use forebay_wire::frame::{Header, Opcode};
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};

/// Several times what it costs to wake another thread, in nanoseconds.
const HAND_OVER: u64 = 30_000;

/// A clock that is so far from where it was has been set; less is the reading's own inaccuracy.
const STEP: Nanos = Nanos::from_millis(5);

/// Whoever collects the metrics may be away for so many intervals.
const KEPT_INTERVALS: usize = 64;

/// A request on its own feet: it can be carried out by any thread.
pub(crate) struct Work {
    pub(crate) link: Arc<Link>,
    pub(crate) session: Arc<Session>,
    pub(crate) header: Header,
    pub(crate) opcode: Opcode,
    /// The file of a data request.
    pub(crate) file: Option<Arc<OpenFile>>,
    /// Its payload, or room for the payload of its answer.
    pub(crate) payload: Buffer,
    pub(crate) received: Nanos,
}

impl Work {
    /// Bytes of payload, coming or going.
    pub(crate) fn len(&self) -> usize {
        match self.opcode {
            Opcode::Read => self.header.length.get() as usize,
            _ => self.header.payload_len(),
        }
    }

    /// What it writes.
    pub(crate) fn data(&self) -> &[u8] {
        self.link.placed(&self.header).unwrap_or_else(|| self.payload.payload(self.len()))
    }
}

/// Who carries a request out.
pub(crate) enum Turn {
    /// The caller, now; the ticket goes back to [`Engine::complete`].
    Inline(Ticket, Option<Box<Work>>),
    /// Somebody else.
    Queued,
}

/// Carries out what the dispatchers take from the queue, and gives the ticket back to
/// [`Engine::complete`].
pub(crate) trait Carrier: Send + Sync {
    /// Carries out what a ticket stands for.
    fn carry_out(&self, ticket: &Ticket, batch: Vec<Work>);
}

/// The queue and its dispatchers.
pub(crate) struct Engine {
    carrier: Weak<dyn Carrier>,
    state: Mutex<State>,
    wake: Condvar,
    limit: usize,
    /// The scheduler lets requests wait though nothing else is there: prepare for it.
    withholds: AtomicBool,
    busy: AtomicBool,
    /// The scheduler wants to see metadata operations too.
    metadata: AtomicBool,
    /// What a call at the storage takes of late, in nanoseconds.
    service: AtomicU64,
    /// How many waited when a request came.
    queue_length: Histogram,
    /// From the monotonic clock to the time since the Unix epoch, which is what schedulers on several
    /// nodes agree on. Fixed, so that their time never jumps unnoticed.
    epoch: AtomicU64,
}

struct State {
    queue: DispatchQueue,
    waiting: HashMap<u64, Box<Work>, foldhash::fast::RandomState>,
    ready: VecDeque<Ticket>,
    issued: u64,
    active: usize,
    threads: usize,
    idle: usize,
    /// One of the idle dispatchers sleeps no longer than until then.
    timekeeper: Option<Nanos>,
    stop: bool,
    collector: Collector,
    /// The intervals of late, oldest first.
    intervals: VecDeque<Interval>,
    interval_began: Nanos,
}

impl Engine {
    pub(crate) fn new(
        scheduler: SchedulerConfig,
        site: Site,
        dispatchers: usize,
        carrier: Weak<dyn Carrier>,
    ) -> Engine {
        let epoch = sys::epoch();
        let queue = DispatchQueue::new(scheduler, site);
        Engine {
            carrier,
            epoch: AtomicU64::new(epoch),
            metadata: AtomicBool::new(queue.wants_metadata()),
            state: Mutex::new(State {
                queue,
                waiting: HashMap::default(),
                ready: VecDeque::new(),
                issued: 0,
                active: 0,
                threads: 0,
                idle: 0,
                timekeeper: None,
                stop: false,
                collector: Collector::new(Nanos(sys::now().0 + epoch)),
                intervals: VecDeque::new(),
                interval_began: sys::now(),
            }),
            wake: Condvar::new(),
            limit: dispatchers.max(1),
            withholds: AtomicBool::new(false),
            busy: AtomicBool::new(false),
            service: AtomicU64::new(0),
            queue_length: Histogram::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The schedulers' time.
    pub(crate) fn now(&self) -> Nanos {
        self.at(sys::now())
    }

    /// What it was at that moment of the monotonic clock.
    pub(crate) fn at(&self, moment: Nanos) -> Nanos {
        Nanos(moment.0 + self.epoch.load(Relaxed))
    }

    /// Whether a request that comes now will probably have to wait, and so needs memory of its own.
    pub(crate) fn contended(&self) -> bool {
        self.withholds.load(Relaxed) || self.busy.load(Relaxed)
    }

    /// Whether the storage takes so long that handing a request to another thread costs little
    /// against it.
    pub(crate) fn is_slow(&self) -> bool {
        self.service.load(Relaxed) > HAND_OVER
    }

    /// A call at the storage took so long.
    pub(crate) fn took(&self, span: Nanos) {
        let before = self.service.load(Relaxed);
        self.service.store(before - before / 8 + span.0 / 8, Relaxed);
    }

    /// Whether metadata goes through the scheduler.
    pub(crate) fn schedules_metadata(&self) -> bool {
        self.metadata.load(Relaxed)
    }

    /// Takes a request in; `inline` says whether the caller would carry it out itself. `work` makes it
    /// independent of the caller's buffers; it is called only if the request has to wait, and
    /// `prepared` was not given.
    pub(crate) fn arrive(
        self: &Arc<Engine>,
        mut request: Request,
        servers: Servers,
        access: &Access,
        inline: bool,
        prepared: Option<Box<Work>>,
        work: impl FnOnce() -> Option<Box<Work>>,
    ) -> Result<Turn, rustix::io::Errno> {
        let now = request.arrival;
        let mut s = self.lock();
        s.issued += 1;
        let id = s.issued;
        request.id = RequestId(id);
        if counting() {
            self.queue_length.record_locked(s.queue.len() as u64);
        }
        s.collector.arrive(now, access);
        s.queue.enqueue_from(now, request, Origin { client: access.client, servers });
        // With as many at the storage as may be, whoever is done first looks at the queue.
        let mut wanted = false;
        if s.active < self.limit {
            match s.queue.dispatch(now) {
                Some(ticket) => {
                    s.active += 1;
                    if inline && ticket.batch.sole().is_some_and(|r| r.id.0 == id) {
                        return Ok(Turn::Inline(ticket, prepared));
                    }
                    s.ready.push_back(ticket);
                    wanted = true;
                }
                None => {
                    self.withholds.store(true, Relaxed);
                    wanted = s.earlier_wakeup(now).is_some();
                }
            }
        }
        let work = prepared.or_else(work);
        // Without memory for it the request still has to leave the scheduler: it is dropped there.
        let lost = work.is_none();
        if let Some(work) = work {
            s.waiting.insert(id, work);
        }
        self.busy.store(true, Relaxed);
        if wanted {
            self.hand_over(s);
        } else {
            drop(s);
        }
        if lost { Err(rustix::io::Errno::NOMEM) } else { Ok(Turn::Queued) }
    }

    /// Sees to it that somebody looks at the queue.
    fn hand_over(self: &Arc<Engine>, s: MutexGuard<'_, State>) {
        if s.idle > 0 {
            drop(s);
            self.wake.notify_one();
        } else if s.threads < self.limit && !s.stop {
            // If it cannot be started, those that are there already see to it in the end.
            if let Err(e) = self.start_dispatcher(s) {
                tracing::warn!("cannot start another dispatcher: {e}");
            }
        }
    }

    /// Starts the first dispatcher: without any, a thread that cannot be started later would leave
    /// requests waiting for ever.
    pub(crate) fn start(self: &Arc<Engine>) -> std::io::Result<()> {
        self.start_dispatcher(self.lock())
    }

    fn start_dispatcher(self: &Arc<Engine>, mut s: MutexGuard<'_, State>) -> std::io::Result<()> {
        s.threads += 1;
        drop(s);
        let engine = Arc::clone(self);
        let dispatcher = std::thread::Builder::new().name("dispatcher".into()).stack_size(256 << 10);
        let started = dispatcher.spawn(move || engine.dispatcher()).map(drop);
        if started.is_err() {
            self.lock().threads -= 1;
        }
        started
    }

    /// What a ticket asked for was done at `ended`, its requests having moved so many bytes (as many as asked for, if
    /// not told); lets the next ones go.
    pub(crate) fn complete(self: &Arc<Engine>, ticket: &Ticket, moved: &[u64], ended: Nanos) {
        let now = self.at(ended);
        let mut s = self.lock();
        if self.completed(&mut s, ticket, moved, now) {
            self.hand_over(s);
        }
    }

    /// Whether there is something for a dispatcher to do afterwards.
    fn completed(&self, s: &mut State, ticket: &Ticket, moved: &[u64], now: Nanos) -> bool {
        for (i, r) in ticket.batch.requests().iter().enumerate() {
            let moved = moved.get(i).copied().unwrap_or(r.len);
            s.collector.complete(now, r.flow, r.op, moved);
            if moved < r.len && r.op == OpKind::Read {
                s.collector.ended(r.flow, r.file, r.offset.saturating_add(moved));
            }
        }
        s.queue.complete(now, ticket, moved);
        s.active -= 1;
        let waits = !s.queue.is_empty();
        self.busy.store(waits || s.active >= self.limit, Relaxed);
        waits
    }

    /// Something was done that had been acknowledged before, and could not wait.
    pub(crate) fn passed_by(&self, access: &Access) {
        let (mut s, now) = (self.lock(), self.now());
        s.collector.arrive(now, access);
        s.collector.complete(now, access.flow, access.op, access.len);
    }

    /// Whether what the flow does has a limit.
    pub(crate) fn is_limited(&self, flow: FlowId) -> bool {
        self.lock().queue.limits().any(|(limited, _)| limited == flow)
    }

    /// A metadata operation that does not go through the scheduler came at `received`.
    pub(crate) fn meta_arrives(&self, session: &Session, received: Nanos) {
        self.lock().collector.arrive(self.at(received), &meta_access(session));
    }

    /// And was done at `ended`.
    pub(crate) fn meta_done(&self, session: &Session, ended: Nanos) {
        self.lock().collector.complete(self.at(ended), session.job.flow(), OpKind::Metadata, 0);
    }

    /// Follows the machine's clock if somebody has set it: what waits for a time of the old clock is
    /// put in anew.
    pub(crate) fn follow_clock(self: &Arc<Engine>) {
        let (old, new) = (self.epoch.load(Relaxed), sys::epoch());
        if new.abs_diff(old) > STEP.0 {
            tracing::info!("the clock was set, by {} ms", new.abs_diff(old) / 1_000_000);
            self.epoch.store(new, Relaxed);
            self.with_queue(|queue| queue.restart(self.now()));
        }
    }

    /// Ends the interval of the pattern metrics if it has lasted `span`.
    pub(crate) fn observe(&self, now: Nanos, span: Nanos) {
        let mut s = self.lock();
        if now.since(s.interval_began) >= span {
            s.interval_began = now;
            let interval = s.collector.close(self.now());
            if s.intervals.len() == KEPT_INTERVALS {
                s.intervals.pop_front();
            }
            s.intervals.push_back(interval);
        }
    }

    /// The intervals that ended after `after`.
    pub(crate) fn intervals(&self, after: Nanos) -> Vec<Interval> {
        self.lock().intervals.iter().filter(|i| i.end > after).cloned().collect()
    }

    /// The intervals of late; of a node that has not lived for one yet, what there is.
    pub(crate) fn recent_intervals(&self) -> Vec<Interval> {
        if self.lock().intervals.is_empty() {
            self.observe(sys::now(), Nanos::ZERO);
        }
        self.intervals(Nanos::ZERO)
    }

    fn dispatcher(self: &Arc<Engine>) {
        sys::precise_timers();
        let mut s = self.lock();
        loop {
            let ticket = match s.ready.pop_front() {
                Some(ticket) => Some(ticket),
                None if s.active < self.limit => {
                    let ticket = s.queue.dispatch(self.now());
                    s.active += usize::from(ticket.is_some());
                    ticket
                }
                None => None,
            };
            match ticket {
                Some(ticket) => {
                    let batch: Vec<Work> = ticket
                        .batch
                        .requests()
                        .iter()
                        .filter_map(|r| s.waiting.remove(&r.id.0))
                        .map(|w| *w)
                        .collect();
                    // More may go now; somebody else can see to it.
                    if !s.ready.is_empty() || !s.queue.is_empty() && s.active < self.limit {
                        self.hand_over(s);
                    } else {
                        drop(s);
                    }
                    // Without its node nobody waits for an answer any more.
                    if let Some(carrier) = self.carrier.upgrade() {
                        carrier.carry_out(&ticket, batch);
                    }
                    s = self.lock();
                }
                None if s.stop => break,
                None => s = self.sleep(s),
            }
        }
        s.threads -= 1;
        drop(s);
        self.wake.notify_all();
    }

    fn sleep<'a>(&'a self, mut s: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        let now = self.now();
        let wakeup = s.earlier_wakeup(now);
        s.idle += 1;
        let mut s = match wakeup {
            Some(at) => {
                s.timekeeper = wakeup;
                let (mut s, _) = self
                    .wake
                    .wait_timeout(s, at.since(now).max(Nanos(1)).into())
                    .unwrap_or_else(PoisonError::into_inner);
                // Another may keep an earlier time by now.
                if s.timekeeper == wakeup {
                    s.timekeeper = None;
                }
                s
            }
            None => self.wake.wait(s).unwrap_or_else(PoisonError::into_inner),
        };
        s.idle -= 1;
        s
    }

    /// Looks at the scheduler's queue; for statistics and parameters.
    pub(crate) fn with_queue<T>(self: &Arc<Engine>, f: impl FnOnce(&mut DispatchQueue) -> T) -> T {
        let mut s = self.lock();
        let result = f(&mut s.queue);
        self.withholds.store(false, Relaxed);
        self.metadata.store(s.queue.wants_metadata(), Relaxed);
        if !s.queue.is_empty() && s.active < self.limit {
            self.hand_over(s);
        }
        result
    }

    /// Whether a limit holds back a request of this flow that came on this connection.
    pub(crate) fn holds_back(&self, flow: FlowId, link: &Arc<Link>) -> bool {
        let s = self.lock();
        let of_link = |r: RequestId| s.waiting.get(&r.0).is_some_and(|w| Arc::ptr_eq(&w.link, link));
        s.queue.held_back(flow).any(of_link)
    }

    /// How many requests waited whenever one came.
    pub(crate) fn queue_length(&self) -> &Histogram {
        &self.queue_length
    }

    /// Whether nothing waits and nothing is at the storage.
    pub(crate) fn is_idle(&self) -> bool {
        let s = self.lock();
        s.active == 0 && s.queue.is_empty() && s.waiting.is_empty()
    }

    /// Lets the dispatchers end once nothing waits.
    pub(crate) fn stop(&self) {
        self.lock().stop = true;
        self.wake.notify_all();
    }
}

impl State {
    /// When somebody has to look at the queue though nothing happens, if no idle dispatcher does by
    /// then.
    fn earlier_wakeup(&self, now: Nanos) -> Option<Nanos> {
        let wakeup = if self.queue.is_empty() { None } else { self.queue.next_wakeup(now) };
        wakeup.filter(|at| self.timekeeper.is_none_or(|kept| *at < kept))
    }
}

/// A metadata operation as the pattern metrics see it.
pub(crate) fn meta_access(session: &Session) -> Access {
    let (flow, client) = (session.job.flow(), session.client);
    Access { flow, client, file: FileId(0), op: OpKind::Metadata, offset: 0, len: 0 }
}
