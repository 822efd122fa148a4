//! The I/O node: what its threads share, and its life from start to drain.

use crate::areas::Areas;
use crate::blame::Replays;
use crate::buffer::Pool;
use crate::config::NodeConfig;
use crate::connection;
use crate::directories::Directories;
use crate::engine::Engine;
use crate::file::OpenFile;
use crate::identity::{ActAs, Identities};
use crate::job::Job;
use crate::jobs::Jobs;
use crate::later::Rings;
use crate::layout::LayoutSource;
use crate::ledger::{Ledgers, SIZE};
use crate::link::Link;
use crate::metrics::JobSeries;
use crate::path::{self, Export};
use crate::peers::Peers;
use crate::room::{self, Room};
use crate::session::{Holdings, Sessions};
use crate::space::Space;
use crate::spinners::Spinners;
use crate::stats::{JobStatistics, NodeStatistics, NodeStats, counting, flow_reports};
use crate::storage::{Delayed, Emulated, Forgetful, Posix, Storage};
use crate::sys;
use forebay_control::node::{JobMapping, JobShare, Term};
use forebay_sched::{SchedulerConfig, Site};
use forebay_types::{Address, Epoch, FlowId, Interval, Load, Nanos};
use forebay_wire::frame::Opcode;
use forebay_wire::hello::{HostBoot, Incarnation};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

/// Requests that can be remembered for `forebay blame`, at most.
const MOST_REMEMBERED: usize = 1 << 20;

/// A connection's thread needs little stack.
const STACK: usize = 256 << 10;
/// How often sessions and memory are looked after.
const TICK: Duration = Duration::from_millis(100);
/// How long somebody who comes waits for those who give way to him to be gone.
const GIVING_WAY: Nanos = Nanos::from_millis(500);
/// A request that has taken so long is reported to its client as being worked on.
const LONG: Nanos = Nanos::from_millis(300);

/// Why a node cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Nothing to listen on.
    #[error("no address to listen on: give at least one, as tcp:HOST:PORT or unix:PATH")]
    NoListen,
    /// Nothing to export.
    #[error("no directory to export")]
    NoExport,
    /// Nobody could ever connect.
    #[error("no secret: clients could not prove who they are")]
    NoSecret,
    /// It cannot be whom it should be.
    #[error("{0}")]
    Identity(String),
    /// A setting that no node can work with.
    #[error("{0}")]
    Setting(String),
    /// A directory cannot be exported.
    #[error("cannot export {path}: {reason}")]
    Export {
        /// The directory.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// An address cannot be listened on.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address.
        address: String,
        /// What the system says.
        source: std::io::Error,
    },
    /// The emulated data servers cannot be shared.
    #[error("emulated-storage-socket: {0}")]
    Emulated(std::io::Error),
    /// What storage is to forget cannot be noted.
    #[error("forgetful-storage: {0}")]
    Journal(std::io::Error),
    /// The ledger is longer than a file may be.
    #[error(
        "an I/O node keeps a file of {needs} KiB (its ledger), and files may have at most {limit} KiB here (ulimit -f): \
         allow them that much, or leave that limit to the program (forebay run … -- sh -c 'ulimit -f {blocks}; …')",
        needs = SIZE / 1024, limit = .most / 1024, blocks = .most / 512
    )]
    Limited {
        /// How long a file may be.
        most: u64,
    },
    /// The ledger cannot be kept.
    #[error(
        "cannot keep a ledger in {path} ({errno}): it must be a directory of this user that no other can write to, best in memory"
    )]
    Ledger {
        /// Its directory.
        path: PathBuf,
        /// What is wrong.
        errno: Errno,
    },
    /// The other nodes cannot be talked to.
    #[error("peers: {0}")]
    Peers(String),
    /// The system has no random numbers.
    #[error("cannot name this I/O node's process: {0}")]
    Random(Errno),
    /// A thread cannot be started.
    #[error("cannot start a thread: {0}")]
    Thread(std::io::Error),
}

/// What the threads of a node share.
pub struct Node {
    pub(crate) config: NodeConfig,
    pub(crate) exports: Vec<Export>,
    pub(crate) directories: Directories,
    pub(crate) jobs: Jobs,
    pub(crate) sessions: Sessions,
    pub(crate) engine: Arc<Engine>,
    pub(crate) pool: Arc<Pool>,
    /// Room for open files, and for connections of those who have shown who they are.
    pub(crate) files: Arc<Room>,
    pub(crate) places: Arc<Room>,
    pub(crate) storage: Box<dyn Storage>,
    pub(crate) stats: NodeStats,
    pub(crate) job_series: JobSeries,
    pub(crate) replays: Replays,
    pub(crate) peers: Peers,
    /// A thread gives other nodes what limits leave here.
    pub(crate) lends: AtomicBool,
    /// Limited jobs that have no part here.
    pub(crate) standby: Mutex<BTreeSet<String>>,
    /// What the arbiter has said last of limits, and of the nodes that share them.
    pub(crate) told: Mutex<Option<(Vec<JobShare>, Vec<String>)>>,
    pub(crate) host_boot: HostBoot,
    pub(crate) incarnation: Incarnation,
    pub(crate) ledgers: Ledgers,
    pub(crate) spinners: Spinners,
    pub(crate) areas: Areas,
    pub(crate) rings: Rings,
    pub(crate) space: Space,
    pub(crate) started: Nanos,
    /// A probe of the storage is under way.
    pub(crate) probing: AtomicBool,
    /// An arbiter's question about the last requests is being answered.
    pub(crate) recalling: AtomicBool,
    /// When the scheduler was last changed, by the wall clock.
    rescheduled: AtomicU64,
    draining: AtomicBool,
    /// The drain is over: nobody is let in any more.
    pub(crate) closing: AtomicBool,
    pub(crate) drain_begun: (Mutex<()>, Condvar),
    connections: Mutex<Vec<Arc<Link>>>,
    connection_count: AtomicUsize,
}

impl Node {
    /// Opens the exports and sets everything up, without listening. The process's umask becomes 0
    /// (clients apply their own), its limit of open files as high as it may be.
    pub fn new(mut config: NodeConfig) -> Result<Arc<Node>, StartError> {
        if config.exports.is_empty() {
            return Err(StartError::NoExport);
        }
        if config.secret.is_none() && config.jobs.is_empty() && config.act_as != ActAs::Munge {
            return Err(StartError::NoSecret);
        }
        config.check().map_err(StartError::Setting)?;
        let identities = Identities::new(&config).map_err(StartError::Identity)?;
        rustix::process::umask(rustix::fs::Mode::empty());
        let descriptors = raise_descriptor_limit();
        let apart = identities.tell_apart();
        let (places, files) = room::divide(descriptors, config.max_connections, apart);
        if places < config.max_connections {
            tracing::info!("at most {places} connections: the limit of open files is {descriptors}");
        }
        sys::ignore_file_size_signal();
        let mut exports = Vec::new();
        for e in &config.exports {
            let fail = |reason: String| StartError::Export { path: e.path.clone(), reason };
            forebay_types::kernel::says_sizes(&e.path).map_err(fail)?;
            let protect = config.protect.max(e.protect);
            let export = Export::open(e.name.clone(), &e.path, protect).map_err(|errno| {
                fail(match errno {
                    Errno::NOSYS => {
                        "this kernel has no openat2 system call (Linux 5.6 has); without it paths \
                                     cannot be kept inside the directory"
                            .into()
                    }
                    other => other.to_string(),
                })
            })?;
            if !path::has_proc(export.root.as_fd()) {
                return Err(fail("/proc is not mounted here, and the I/O node needs it".into()));
            }
            exports.push(export);
        }
        let storage: Box<dyn Storage> = match &config.emulated {
            Some(servers) => {
                servers.find().map_err(StartError::Emulated)?;
                config.layout = LayoutSource::Stripe(servers.layout());
                Box::new(Emulated::new(servers.clone(), config.id))
            }
            None => match &config.forgetful {
                Some(journal) => Box::new(Forgetful::new(journal).map_err(StartError::Journal)?),
                None => Box::new(Posix),
            },
        };
        let storage = match &config.slow {
            Some(file) => Box::new(Delayed { inner: storage, file: file.clone() }),
            None => storage,
        };
        let site = site(&config);
        let mut incarnation = Incarnation::default();
        sys::getrandom(&mut incarnation.0).map_err(StartError::Random)?;
        let ledger_dir = match (&config.ledger_dir, &config.host) {
            (Some(dir), Some(host)) => Some(dir.with_extension(host)),
            (dir, _) => dir.clone(),
        };
        let ledgers =
            Ledgers::open(ledger_dir.as_deref(), incarnation).map_err(|(path, errno)| match errno {
                Errno::FBIG => StartError::Limited { most: sys::longest_file() },
                errno => StartError::Ledger { path, errno },
            })?;
        let node = Arc::new_cyclic(|node: &Weak<Node>| Node {
            jobs: Jobs::new(&config, identities),
            sessions: Sessions::default(),
            engine: Arc::new(Engine::new(
                config.scheduler.clone(),
                site,
                config.dispatchers,
                Weak::<Node>::clone(node),
            )),
            pool: Arc::new(Pool::new(config.memory)),
            files: Room::new("open files", files, apart),
            places: Room::new("connections", places, apart),
            storage,
            stats: NodeStats::default(),
            job_series: JobSeries::default(),
            replays: Replays::default(),
            peers: Peers::new(config.id, config.share_threshold),
            lends: AtomicBool::new(false),
            standby: Mutex::default(),
            told: Mutex::default(),
            host_boot: HostBoot(config.host.as_deref().map_or_else(boot_id, named_boot)),
            incarnation,
            ledgers,
            spinners: Spinners::default(),
            areas: Areas::default(),
            rings: Rings::default(),
            space: Space::default(),
            started: sys::now(),
            probing: AtomicBool::new(false),
            recalling: AtomicBool::new(false),
            rescheduled: AtomicU64::new(0),
            draining: AtomicBool::new(false),
            closing: AtomicBool::new(false),
            drain_begun: (Mutex::new(()), Condvar::new()),
            connections: Mutex::default(),
            connection_count: AtomicUsize::new(0),
            directories: Directories::new(&exports, config.keep_directories),
            exports,
            config,
        });
        let told = || std::env::var("FOREBAY_REMEMBER").ok().and_then(|n| n.parse().ok());
        if let Some(most) = if counting() { told() } else { Some(0) } {
            node.engine.with_queue(|q| q.remember(usize::min(most, MOST_REMEMBERED)));
        }
        for job in &node.config.jobs {
            if let Some(flow) = node.jobs.flow(&job.name) {
                node.engine.with_queue(|q| q.set_weight(flow, job.weight));
            }
        }
        Ok(node)
    }

    /// Serves one connected socket in a thread of its own.
    pub fn serve(self: &Arc<Node>, socket: OwnedFd) {
        let link = Arc::new(Link::new(socket, self.config.stall_timeout));
        let before = self.connection_count.fetch_add(1, Relaxed);
        if before >= self.places.most && !self.make_room(before) {
            self.connection_count.fetch_sub(1, Relaxed);
            self.stats.refused.fetch_add(1, Relaxed);
            let why = "this I/O node has as many connections as it takes";
            let header = self.reply(Epoch(0), Opcode::Goodbye, 0, libc::EUSERS as u32, why.len() as u32);
            let _ = link.send(&[&header.as_bytes()[..], why.as_bytes()].concat());
            return;
        }
        self.stats.accepted.fetch_add(1, Relaxed);
        self.connections().push(Arc::clone(&link));
        // Whatever becomes of the thread, even if it is never started: the connection is taken off.
        let entered = Entered { node: Arc::clone(self), link };
        let spawned = spawn("connection", move || {
            sys::precise_timers();
            connection::serve(Arc::clone(&entered.node), Arc::clone(&entered.link));
        });
        if let Err(e) = spawned {
            tracing::warn!("cannot start a connection's thread: {e}");
        }
    }

    /// There are as many connections as can be: the oldest of those who have not shown who they are gives way to one
    /// more. Whether there is one, and those before it are gone or about to be: threads that end take a moment on a
    /// busy machine, for which whoever came waits.
    fn make_room(&self, now: usize) -> bool {
        let room = self.places.most + self.places.most / 8;
        let until = sys::now() + GIVING_WAY;
        let mut now = now;
        loop {
            let all = self.connections();
            let unknown = all.iter().filter(|c| c.session.get().is_none());
            let oldest = unknown.clone().filter(|c| !c.is_cut()).min_by_key(|c| c.heard.load(Relaxed));
            let ending = unknown.count() > 0;
            match oldest {
                Some(link) if now <= room => {
                    link.cut();
                    return true;
                }
                _ if !ending || sys::now() >= until => return false,
                _ => drop(all),
            }
            std::thread::sleep(Duration::from_millis(1));
            now = self.connection_count.load(Relaxed).saturating_sub(1);
            if now < self.places.most {
                return true;
            }
        }
    }

    fn closed(&self, link: &Arc<Link>) {
        link.cut();
        let mut all = self.connections();
        if let Some(at) = all.iter().position(|c| Arc::ptr_eq(c, link)) {
            all.swap_remove(at);
        }
        self.connection_count.fetch_sub(1, Relaxed);
    }

    pub(crate) fn connections(&self) -> MutexGuard<'_, Vec<Arc<Link>>> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn housekeep(self: &Arc<Node>) {
        let grace = Nanos::from(self.config.grace);
        let mut ticks = 0u32;
        while !self.stopped() {
            std::thread::sleep(TICK.min(self.config.grace.max(Duration::from_millis(5))));
            let now = sys::now();
            let left = self.sessions.expire(now, grace);
            let lingered = self.jobs.expire(now);
            self.directories.expire(now);
            for flow in self.jobs.drop_ended() {
                let now = self.engine.now();
                self.engine.with_queue(|queue| queue.forget(now, flow));
            }
            let admitted = self.jobs.admit();
            if !admitted.is_empty() {
                self.weigh(admitted);
                self.share_out_again();
            }
            if !left.is_empty() || !lingered.is_empty() || self.unsettled() {
                // Closing and writing may take their time, and others wait for a sign of life.
                let node = Arc::clone(self);
                let _ = spawn("closer", move || node.tidy(left, lingered));
            }
            self.reassure(now);
            self.engine.observe(now, self.config.interval.into());
            self.engine.follow_clock();
            ticks = ticks.wrapping_add(1);
            if ticks.is_multiple_of(16) {
                self.pool.trim();
                self.peers.catch_up();
            }
        }
    }

    /// Ends what clients held that are gone, and writes what others have not asked to be written.
    fn tidy(&self, left: Vec<Holdings>, lingered: Vec<Arc<OpenFile>>) {
        for session in left.iter().filter_map(|holdings| holdings.session.as_ref()) {
            // Nobody is there to be told.
            let _ = self.stop_sharing(session, None);
        }
        self.settle(None);
        drop((left, lingered));
    }

    /// Tells clients whose request takes long that the node lives: the connection's thread is busy
    /// with it and cannot answer their pings.
    fn reassure(&self, now: Nanos) {
        let sign = self.reply(Epoch(0), Opcode::Ping, 0, 0, 0);
        for link in self.connections().iter() {
            let since = link.busy_since.load(Relaxed);
            if since != 0 && now.since(Nanos(since)) >= LONG {
                link.send_if_free(sign.as_bytes());
            }
        }
    }

    /// Whether the drain is over.
    pub(crate) fn stopped(&self) -> bool {
        self.closing.load(Relaxed)
    }

    /// Takes in where the clients of jobs belong, from an arbiter that has not been replaced; else
    /// says what the newest one's term is.
    pub(crate) fn remap(
        &self,
        term: Term,
        complete: bool,
        jobs: &[JobMapping],
        ended: &[String],
    ) -> Result<(), Term> {
        self.jobs.obey(term)?;
        for job in jobs {
            tracing::debug!("mapping {} of job {}: I/O nodes {:?}", job.epoch, job.job, job.nodes);
        }
        for job in ended {
            tracing::debug!("the arbiter says that job {job} has ended");
        }
        self.weigh(self.jobs.remap(jobs, complete, ended));
        Ok(())
    }

    fn weigh(&self, weights: Vec<(FlowId, u32)>) {
        self.engine.with_queue(|queue| {
            for (flow, weight) in weights {
                queue.set_weight(flow, weight.max(1));
            }
        });
    }

    /// The scheduler in force.
    pub(crate) fn scheduler(&self) -> SchedulerConfig {
        self.engine.with_queue(|queue| queue.config().clone())
    }

    /// From now on this scheduler.
    pub(crate) fn set_scheduler(&self, config: SchedulerConfig) {
        self.engine.with_queue(|queue| {
            if *queue.config() != config {
                let now = self.engine.now();
                self.rescheduled.store(now.0, Relaxed);
                queue.reconfigure(now, config);
            }
        });
    }

    /// How many requests wait, and the scheduler if it has been the same since `start`.
    pub(crate) fn at_work(&self, start: Nanos) -> (u64, Option<SchedulerConfig>) {
        self.engine.with_queue(|queue| {
            let same = self.rescheduled.load(Relaxed) <= start.0;
            (queue.len() as u64, same.then(|| queue.config().clone()))
        })
    }

    pub(crate) fn connection_count(&self) -> usize {
        self.connection_count.load(Relaxed)
    }

    pub(crate) fn draining(&self) -> bool {
        self.draining.load(Relaxed)
    }

    /// Tells clients to move from now on.
    pub fn begin_drain(&self) {
        let _guard = self.drain_begun.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.draining.swap(true, Relaxed) {
            tracing::info!("node {} drains: its clients are told to move", self.config.id);
        }
        self.drain_begun.1.notify_all();
    }

    /// Where this node stands among others.
    pub(crate) fn site(&self) -> Site {
        site(&self.config)
    }

    pub(crate) fn set_peers(self: &Arc<Node>, peers: &[Address]) -> Result<(), String> {
        match &self.config.secret {
            Some(secret) => self.peers.share(self, secret, peers),
            None if peers.is_empty() => Ok(()),
            None => Err("I/O nodes talk under the node's own secret, and this one has none".into()),
        }
    }

    /// What was done for one job, and by whom in one run of it.
    pub(crate) fn report_of(&self, job: &Job, run: u32) -> JobStatistics {
        let flow = job.flow();
        let own = |i: Interval| Interval {
            load: Load::default(),
            flows: i.flows.into_iter().filter(|f| f.flow == flow).collect(),
            ..i
        };
        let intervals = self.engine.intervals(Nanos::ZERO).into_iter().map(own);
        JobStatistics {
            node: self.config.id.0,
            time: self.engine.now(),
            flows: flow_reports([(&job.stats, job.clients.report(Some(run)))], Some(run)),
            intervals: intervals.filter(|i| !i.flows.is_empty()).collect(),
        }
    }

    /// The statistics since the start.
    pub fn report(&self) -> NodeStatistics {
        let (scheduler, waiting, jain, service) = self.engine.with_queue(|q| {
            let service = q.accounts().flows().into_iter().map(|(f, s)| (f.0, s)).collect();
            (q.config().to_string(), q.len() as u64, q.accounts().jain(), service)
        });
        let s = &self.stats;
        NodeStatistics {
            node: self.config.id.0,
            uptime_ns: sys::now().since(self.started).0,
            scheduler,
            flows: self.jobs.reports(),
            jain,
            service,
            issued_read: (&s.issued_read).into(),
            issued_write: (&s.issued_write).into(),
            merged_requests: s.merged.load(Relaxed),
            inline_requests: s.inline.load(Relaxed),
            dispatched_requests: s.dispatched.load(Relaxed),
            queue_length: self.engine.queue_length().into(),
            waiting,
            connections: self.connection_count.load(Relaxed) as u64,
            sessions: self.sessions.len() as u64,
            open_files: self.jobs.open_files() as u64,
            connections_accepted: s.accepted.load(Relaxed),
            connections_refused: s.refused.load(Relaxed),
            connections_cut_off: s.cut_off.load(Relaxed),
            requests_expired: s.expired.load(Relaxed),
            requests_replayed: s.replayed.load(Relaxed),
            payload_memory: self.pool.used() as u64,
            intervals: self.engine.recent_intervals(),
        }
    }
}

fn site(config: &NodeConfig) -> Site {
    Site { node: config.id.0, servers: config.layout.servers().unwrap_or(config.servers).max(1) }
}

/// A connection in the node's list, until dropped.
struct Entered {
    node: Arc<Node>,
    link: Arc<Link>,
}

impl Drop for Entered {
    fn drop(&mut self) {
        self.node.closed(&self.link);
    }
}

pub(crate) fn spawn(
    name: &str,
    f: impl FnOnce() + Send + 'static,
) -> std::io::Result<std::thread::JoinHandle<()>> {
    std::thread::Builder::new().name(name.into()).stack_size(STACK).spawn(f)
}

/// How many descriptors there can be, which is as many as this process is allowed.
fn raise_descriptor_limit() -> usize {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    let _ = setrlimit(Resource::Nofile, limit);
    getrlimit(Resource::Nofile).current.map_or(usize::MAX, |most| usize::try_from(most).unwrap_or(usize::MAX))
}

/// For tests: the boot id of a host of this name.
fn named_boot(host: &str) -> [u8; 16] {
    let mut id = [0; 16];
    id.iter_mut().zip(host.bytes()).for_each(|(to, from)| *to = from);
    id
}

/// The machine's boot id: clients that have the same are on the same machine.
fn boot_id() -> [u8; 16] {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let mut id = [0; 16];
    let digits: Vec<u8> = text.bytes().filter_map(|b| (b as char).to_digit(16)).map(|d| d as u8).collect();
    for (byte, pair) in id.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = pair[0] << 4 | pair[1];
    }
    id
}
