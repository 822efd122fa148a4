//! Start-up, before the program's `main`, and what the library knows.

use crate::names::Names;
use crate::{hooks, look, memory, stat, table};
use forebay_client::gate::Gates;
use forebay_client::{Client, Config, Counters, LONGEST_CONFIG, Reread, gates_at};
use forebay_hook::shared::publish;
use forebay_hook::{patch, sys};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};

/// The file with the configuration of the run; `FOREBAY_ACCELERATOR`.
const VARIABLE: &[u8] = b"FOREBAY_ACCELERATOR";
/// After so many calls on a descriptor, or as many bytes, it is worth the two trips of opening it here, too.
const CALLS: u32 = 4;
const BYTES: usize = 256 << 10;

pub(crate) struct State {
    config: Config,
    counters: Option<&'static Counters>,
    pub(crate) gates: &'static Gates,
    /// Of the mounts.
    devices: Vec<(u32, u32)>,
    /// What names are is asked past them, too.
    pub(crate) names: Option<Names>,
    /// Every descriptor is worth it from its first call on.
    eager: bool,
    client: AtomicPtr<Client>,
    pid: AtomicU32,
    /// In a page that a forked child finds zeroed.
    alive: &'static AtomicU64,
    counted: AtomicBool,
    /// How often gates had been shut when passes were last looked at.
    pub(crate) shuts: AtomicU64,
}

static STATE: AtomicPtr<State> = AtomicPtr::new(std::ptr::null_mut());

/// The state, where there is something to do.
#[inline]
pub(crate) fn get() -> Option<&'static State> {
    let p = STATE.load(Ordering::Acquire);
    // SAFETY: set once to a leaked box.
    if p.is_null() { None } else { Some(unsafe { &*p }) }
}

#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = start;

extern "C" fn start() {
    // Whatever is missing: the program runs as it would without this library.
    let _ = set_up();
}

#[used]
#[unsafe(link_section = ".fini_array")]
static END: extern "C" fn() = end;

extern "C" fn end() {
    if let Some(client) = get().and_then(State::client_if_any) {
        client.leave();
    }
}

fn set_up() -> Option<()> {
    let (config_path, eager) = match sys::env(VARIABLE)? {
        path if path.first() == Some(&b'!') => (&path[1..], true),
        path => (path, false),
    };
    let mut config = Config::from_json(&sys::read_file(config_path, LONGEST_CONFIG + 1)?).ok()?;
    let path = config_path.to_vec();
    let again = move || Config::from_json(&sys::read_file(&path, LONGEST_CONFIG + 1)?).ok();
    config.reread = Some(Reread(Arc::new(again)));
    // Writes are with the node when they return: whoever else has the file open can sync and close it.
    config.stage = false;
    let devices: Vec<_> =
        config.exports.iter().filter_map(|e| look::device_of(e.dir.as_os_str().as_bytes())).collect();
    let dir = Path::new(std::ffi::OsStr::from_bytes(config_path)).parent()?;
    let gates = gates_at(&dir.join("gates")).ok()?;
    let counters = Counters::open(&dir.join("counters")).ok();
    let names = Names::find(&config, dir);
    memory::at_start();
    let state = State {
        config,
        counters,
        gates,
        devices,
        names,
        eager,
        client: AtomicPtr::new(std::ptr::null_mut()),
        pid: AtomicU32::new(sys::getpid() as u32),
        alive: sys::wiped_on_fork()?,
        counted: AtomicBool::new(false),
        shuts: AtomicU64::new(gates.shuts()),
    };
    STATE.store(Box::into_raw(Box::new(state)), Ordering::Release);
    if patch::install(&patch::all_of(&[hooks::HOOKS, memory::HOOKS, stat::HOOKS])).is_err() {
        // Some may be in place: they find nothing to do.
        STATE.store(std::ptr::null_mut(), Ordering::Release);
    }
    Some(())
}

impl State {
    /// Whether files of this device are the mounts'.
    pub(crate) fn is_ours(&self, device: (u32, u32)) -> bool {
        self.devices.contains(&device)
    }

    /// Whether it is worth it.
    pub(crate) fn is_worth_it(&self, calls: u32, bytes: usize) -> bool {
        self.eager || calls >= CALLS || bytes >= BYTES
    }

    /// Whether this code runs in the process that the library was loaded into, or one forked from it: then with nothing that
    /// was the parent's. Not so in a child that shares its parent's memory (`vfork`): its descriptors are not those of the
    /// connections that the memory tells of.
    #[inline]
    pub(crate) fn is_home(&'static self) -> bool {
        let pid = sys::getpid() as u32;
        if self.pid.load(Ordering::Relaxed) == pid && self.alive.load(Ordering::Relaxed) != 0 {
            return true;
        }
        if self.alive.load(Ordering::Relaxed) != 0 {
            return false;
        }
        self.after_fork(pid);
        true
    }

    #[cold]
    #[inline(never)]
    fn after_fork(&self, pid: u32) {
        let old = self.client.load(Ordering::Relaxed);
        if !old.is_null() {
            // SAFETY: a forked child starts with one thread, and it is here before it starts others that use files; the old
            // client is leaked, its memory is the child's own copy.
            let new = unsafe {
                (*old).check_fds();
                (*old).after_fork()
            };
            self.client.store(Box::into_raw(Box::new(new)), Ordering::Release);
        }
        table::after_fork();
        if let Some(names) = &self.names {
            names.after_fork();
        }
        self.counted.store(false, Ordering::Relaxed);
        self.pid.store(pid, Ordering::Relaxed);
        self.alive.store(1, Ordering::Relaxed);
    }

    /// The client of this process, in which [`State::is_home`].
    pub(crate) fn client(&'static self) -> Option<&'static Client> {
        match self.client_if_any() {
            Some(client) => {
                client.check_fds();
                Some(client)
            }
            None => self.first_client(),
        }
    }

    pub(crate) fn client_if_any(&self) -> Option<&'static Client> {
        let p = self.client.load(Ordering::Acquire);
        // SAFETY: set to leaked boxes only.
        if p.is_null() { None } else { Some(unsafe { &*p }) }
    }

    /// Apart, so that its stack is not that of every call.
    #[cold]
    #[inline(never)]
    fn first_client(&'static self) -> Option<&'static Client> {
        Some(publish(&self.client, Client::new(self.config.clone(), self.counters).ok()?))
    }

    /// A call went past the mount.
    pub(crate) fn count(&self) {
        if !self.counted.load(Ordering::Relaxed) && !self.counted.swap(true, Ordering::Relaxed) {
            self.gates.processes.fetch_add(1, Ordering::Relaxed);
        }
        self.gates.calls.fetch_add(1, Ordering::Relaxed);
    }
}
