//! What the library knows: the forwarded directories, the working directory, the client.

use crate::cwd::Current;
use crate::place::spare;
use crate::shared::publish;
use crate::sys::{self, sys};
use crate::table;
use forebay_client::{Client, Config, Counters, DIRECT_MARK, Fallback, UMASK_SHIFT};
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};

/// How often it is looked whether the job goes direct, in nanoseconds.
const LOOK_EVERY: u64 = 200_000_000;

/// A forwarded directory.
pub(crate) struct Export {
    /// As programs name it: absolute, normal, no slash at the end.
    pub(crate) dir: Vec<u8>,
    /// The same directory as this machine sees it itself, if it does.
    pub(crate) local: Option<Vec<u8>>,
    /// This machine has nothing at `dir`.
    pub(crate) hidden: bool,
}

pub(crate) struct State {
    config: Config,
    pub(crate) exports: Vec<Export>,
    /// Directories that stand for forwarded ones as the kernel's working directory.
    pub(crate) shadow: Vec<u8>,
    pub(crate) notes: Vec<u8>,
    /// The memory file to open for placeholders, as a C string.
    pub(crate) placeholder: Option<Vec<u8>>,
    /// Copies of programs and libraries of forwarded directories.
    pub(crate) copies: Vec<u8>,
    /// Pipes that stand for named pipes in forwarded directories.
    pub(crate) pipes: Vec<u8>,
    /// Sockets that stand for those with a name in a forwarded directory.
    pub(crate) sockets: Vec<u8>,
    /// This library's own file and the file with the configuration, for children.
    pub(crate) library: Vec<u8>,
    pub(crate) config_path: Vec<u8>,
    pub(crate) counters: Option<&'static Counters>,
    /// The working directory.
    pub(crate) cwd: Current,
    /// The process has another root directory than its paths were written for.
    left: AtomicBool,
    /// It began as root.
    root: bool,
    pub(crate) umask: AtomicU32,
    /// The file that says that the job goes direct, as a C string; when it was looked for, and what was found.
    mark: Vec<u8>,
    looked: AtomicU64,
    direct: AtomicBool,
    client: AtomicPtr<Client>,
    pid: AtomicU32,
    /// In a page that a forked child finds zeroed.
    alive: &'static AtomicU64,
}

static STATE: AtomicPtr<State> = AtomicPtr::new(std::ptr::null_mut());

/// The state, once [`crate::init`] has made it.
pub(crate) fn get() -> Option<&'static State> {
    let p = STATE.load(Ordering::Acquire);
    // SAFETY: set once to a leaked box.
    if p.is_null() { None } else { Some(unsafe { &*p }) }
}

/// The state; the hooks are installed only after it was made.
pub(crate) fn state() -> &'static State {
    get().expect("hooks run after start-up")
}

impl State {
    /// The mode of what is made here, with the umask: whether that counts, the directory says.
    pub(crate) fn making(&self, mode: u32) -> u32 {
        mode & 0o7777 | self.umask.load(Ordering::Relaxed) << UMASK_SHIFT
    }

    pub(crate) fn install(
        config: Config,
        exports: Vec<Export>,
        run_dir: &[u8],
        library: Vec<u8>,
        config_path: Vec<u8>,
        counters: Option<&'static Counters>,
        entered: Option<usize>,
    ) -> &'static State {
        let join = |name: &[u8]| [run_dir, b"/", name].concat();
        let mask = sys!(umask, 0);
        sys!(umask, mask);
        let placeholder = config.placeholder.as_ref().map(|p| sys::cstring(p.as_os_str().as_bytes()));
        // As `Path::with_extension` has it: what follows the last dot of the name is replaced.
        let stem =
            config_path.iter().rposition(|&b| b == b'.').filter(|i| !config_path[*i..].contains(&b'/'));
        let stem = &config_path[..stem.unwrap_or(config_path.len())];
        let mark = sys::cstring(&[stem, b".", DIRECT_MARK.as_bytes()].concat());
        let state = State {
            mark,
            looked: AtomicU64::new(0),
            direct: AtomicBool::new(false),
            placeholder,
            config,
            exports,
            shadow: join(b"cwd"),
            notes: join(b"notes"),
            copies: join(b"copies"),
            pipes: join(b"pipes"),
            sockets: join(b"s"),
            library,
            config_path,
            counters,
            cwd: Current::unknown(),
            left: AtomicBool::new(false),
            root: sys!(geteuid) == 0,
            umask: AtomicU32::new(mask as u32),
            client: AtomicPtr::new(std::ptr::null_mut()),
            pid: AtomicU32::new(sys::getpid() as u32),
            // A child would go on with its parent's connections. Not worth the risk.
            alive: sys::wiped_on_fork()
                .expect("forebay: the kernel lacks MADV_WIPEONFORK (Linux 4.14 or newer is needed)"),
        };
        let state: &'static State = Box::leak(Box::new(state));
        STATE.store(std::ptr::from_ref(state).cast_mut(), Ordering::Release);
        state.cwd.moved(entered);
        state
    }

    /// The client of this process, to whom it is told whom the process acts for. In a forked child, however it was
    /// made, a new one.
    pub(crate) fn client(&'static self) -> &'static Client {
        let client = self.client_for_data();
        if self.root {
            client.set_foreign(self.is_another_user());
        }
        client
    }

    /// Whether the process has become another user than it began as. Only root does so at will.
    pub(crate) fn is_another_user(&self) -> bool {
        self.root && sys!(geteuid) != 0
    }

    /// The same for reads and writes of what is open, which do not ask whose they are.
    pub(crate) fn client_for_data(&'static self) -> &'static Client {
        if self.alive.load(Ordering::Relaxed) == 0 {
            self.after_fork();
        }
        let p = self.client.load(Ordering::Acquire);
        // SAFETY: set to leaked boxes only.
        if p.is_null() { self.first_client() } else { unsafe { &*p } }
    }

    /// Apart, so that its stack is not that of every call.
    #[cold]
    #[inline(never)]
    fn first_client(&'static self) -> &'static Client {
        let new =
            Client::new(self.config.clone(), self.counters).expect("start-up checked the configuration");
        publish(&self.client, new)
    }

    /// The client if this process has one of its own.
    pub(crate) fn client_if_any(&self) -> Option<&'static Client> {
        if self.alive.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let p = self.client.load(Ordering::Acquire);
        // SAFETY: set to leaked boxes only.
        if p.is_null() { None } else { Some(unsafe { &*p }) }
    }

    /// A client for a child that shares its parent's memory (`vfork`, `posix_spawn`) and must not
    /// leave a trace in it.
    #[inline(never)]
    pub(crate) fn passing_client(&self) -> Box<Client> {
        // Nor what is mapped to count or to record, which would stay with every child that is started.
        let config = Config { files: None, trace: None, ..self.config.clone() };
        Box::new(Client::new(config, None).expect("start-up checked the configuration"))
    }

    #[cold]
    #[inline(never)]
    fn after_fork(&self) {
        let old = self.client.load(Ordering::Relaxed);
        if !old.is_null() {
            // SAFETY: a forked child starts with one thread, and it is here before it starts others
            // that use files; the old client is leaked, its memory is the child's own copy.
            let new = unsafe { (*old).after_fork() };
            self.client.store(Box::into_raw(Box::new(new)), Ordering::Release);
        }
        if let Some(fd) = spare::descriptor() {
            spare::forsake();
            sys::close(fd);
        }
        table::after_fork();
        self.cwd.after_fork();
        self.pid.store(sys::getpid() as u32, Ordering::Relaxed);
        self.alive.store(1, Ordering::Relaxed);
    }

    /// Whether this code runs in a child that shares its parent's memory.
    pub(crate) fn is_passing_child(&self) -> bool {
        let alive = self.alive.load(Ordering::Relaxed) != 0;
        alive && self.pid.load(Ordering::Relaxed) != sys::getpid() as u32
    }

    /// From now on no path is forwarded.
    pub(crate) fn leave(&self) {
        self.left.store(true, Ordering::Relaxed);
    }

    pub(crate) fn has_left(&self) -> bool {
        self.left.load(Ordering::Relaxed)
    }

    pub(crate) fn fallback_direct(&self) -> bool {
        self.config.fallback == Fallback::Direct
    }

    /// Whether the arbiter wants what is opened now to be opened on this machine; looked up a few times a second.
    pub(crate) fn goes_direct(&self) -> bool {
        if !self.fallback_direct() || self.config.epoch == Default::default() {
            return false;
        }
        let now = sys::monotonic();
        let looked = self.looked.load(Ordering::Relaxed);
        if now.saturating_sub(looked) >= LOOK_EVERY || looked == 0 {
            self.looked.store(now, Ordering::Relaxed);
            let there = sys!(faccessat, libc::AT_FDCWD, self.mark.as_ptr(), libc::F_OK) == 0;
            self.direct.store(there, Ordering::Relaxed);
        }
        self.direct.load(Ordering::Relaxed)
    }

    /// What tells the job's processes their ranks.
    pub(crate) fn starter(&self) -> Option<forebay_client::Starter> {
        self.config.starter
    }

    /// Whether the kernel's working directory may be a stand-in (see [`crate::cwd`]).
    pub(crate) fn has_stand_ins(&self) -> bool {
        self.exports.iter().any(|e| e.local.as_ref() != Some(&e.dir))
    }
}
