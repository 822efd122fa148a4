//! Locks: byte ranges and whole files. The node only tries; waiting is done here.

use super::{fail, fail_errno, hooks};
use crate::state::state;
use crate::sys::{self, sys};
use crate::table::{self, Open};
use crate::user;
use forebay_client::{Client, Error, File, LockKind, LockOwner, LockRange, LockWait};
use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};

hooks! {
    c"flock" => flock, c"lockf" => lockf, c"lockf64" => lockf,
}

/// Whether this process ever took a byte-range lock: closing files need not look for any otherwise.
static ANY: AtomicBool = AtomicBool::new(false);

/// Tries until it works, the call fails, or a signal comes.
fn insist(
    wait: bool,
    path: &[u8],
    mut attempt: impl FnMut() -> Result<(), Error>,
    mut refused: impl FnMut() -> Result<(), Error>,
) -> isize {
    let mut held_back: Option<Signals> = None;
    let mut nap_us = 200u64;
    let outcome = loop {
        match attempt() {
            Ok(()) => break Ok(0),
            Err(e) if wait && (e.errno() == libc::EAGAIN || e.errno() == libc::EACCES) => {
                let signals = held_back.get_or_insert_with(Signals::hold_back);
                let t = libc::timespec { tv_sec: 0, tv_nsec: (nap_us * 1000) as i64 };
                sys!(nanosleep, &raw const t, 0);
                if signals.let_in() {
                    break Err(Error::local(libc::EINTR));
                }
                if let Err(e) = refused() {
                    break Err(e);
                }
                nap_us = (nap_us * 2).min(20_000);
            }
            Err(e) => break Err(e),
        }
    };
    drop(held_back);
    outcome.unwrap_or_else(|e| fail(&e, path))
}

/// Signals that wait while a lock is tried for: one that came during a try would be forgotten, and
/// the program would wait for ever.
struct Signals(u64);

impl Signals {
    /// The kernel's size of a signal set, in bytes.
    const SET: usize = 8;

    fn hold_back() -> Signals {
        // Faults cannot wait.
        let faults = [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE, libc::SIGTRAP, libc::SIGABRT];
        let all = !faults.iter().fold(0u64, |set, s| set | 1 << (s - 1));
        let mut before = 0u64;
        sys!(rt_sigprocmask, libc::SIG_SETMASK, &raw const all, &raw mut before, Signals::SET);
        Signals(before)
    }

    /// Lets the signals that have come in. Whether one of them ends a call that waits, as the kernel
    /// would have it: it has a handler, and one that does not ask for the call to go on.
    fn let_in(&mut self) -> bool {
        let mut pending = 0u64;
        sys!(rt_sigpending, &raw mut pending, Signals::SET);
        pending &= !self.0;
        if pending == 0 {
            return false;
        }
        let ends = (1..=64).filter(|s| pending & 1 << (s - 1) != 0).any(|signal| {
            // SAFETY: only asks; a plain struct.
            unsafe {
                let mut action: libc::sigaction = std::mem::zeroed();
                libc::sigaction(signal, std::ptr::null(), &mut action) == 0
                    && action.sa_sigaction != libc::SIG_DFL
                    && action.sa_sigaction != libc::SIG_IGN
                    && action.sa_flags & libc::SA_RESTART == 0
            }
        });
        let mut held = 0u64;
        sys!(rt_sigprocmask, libc::SIG_SETMASK, &raw const self.0, &raw mut held, Signals::SET);
        if !ends {
            sys!(rt_sigprocmask, libc::SIG_SETMASK, &raw const held, 0, Signals::SET);
        }
        ends
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        sys!(rt_sigprocmask, libc::SIG_SETMASK, &raw const self.0, 0, Signals::SET);
    }
}

pub(crate) fn fcntl_lock(fd: c_int, open: &Open, cmd: c_int, arg: *mut libc::flock) -> isize {
    let Some(file) = open.remote() else { return fail_errno(libc::EBADF) };
    if !user::writable(arg, size_of::<libc::flock>()) {
        return fail_errno(libc::EFAULT);
    }
    // SAFETY: the program's own argument to a lock command.
    let asked = unsafe { &mut *arg };
    let range = match range_of(fd, file, asked) {
        Ok(r) => r,
        Err(e) => return fail_errno(e),
    };
    let owner = match cmd {
        libc::F_SETLK | libc::F_SETLKW | libc::F_GETLK => LockOwner::Process,
        _ => LockOwner::Handle,
    };
    if owner == LockOwner::Handle && asked.l_pid != 0 {
        return fail_errno(libc::EINVAL);
    }
    let client = state().client();
    if cmd == libc::F_GETLK || cmd == libc::F_OFD_GETLK {
        return match client.test_lock(file, owner, range) {
            Ok(None) => {
                asked.l_type = libc::F_UNLCK as i16;
                0
            }
            Ok(Some((held, pid))) => {
                asked.l_type = if held.kind == LockKind::Read { libc::F_RDLCK } else { libc::F_WRLCK } as i16;
                asked.l_whence = libc::SEEK_SET as i16;
                asked.l_start = held.start as i64;
                asked.l_len = held.len as i64;
                asked.l_pid = pid as i32;
                0
            }
            Err(e) => fail(&e, &open.path),
        };
    }
    let wait = cmd == libc::F_SETLKW || cmd == libc::F_OFD_SETLKW;
    if owner == LockOwner::Process {
        ANY.store(true, Ordering::Relaxed);
    }
    let mut waiting = LockWait::begin();
    let refused = || match owner {
        // As the kernel: only processes are known to wait for each other.
        LockOwner::Process => {
            let all: Vec<_> = table::all().collect();
            waiting.refused(client, file, range, all.iter().filter_map(|(_, open)| open.remote()))
        }
        LockOwner::Handle => Ok(()),
    };
    let outcome = insist(wait, &open.path, || client.lock(file, owner, range, false), refused);
    waiting.end(client);
    outcome
}

/// The range in absolute terms.
fn range_of(fd: c_int, file: &File, l: &libc::flock) -> Result<LockRange, i32> {
    let kind = match i32::from(l.l_type) {
        libc::F_RDLCK => LockKind::Read,
        libc::F_WRLCK => LockKind::Write,
        libc::F_UNLCK => LockKind::Unlock,
        _ => return Err(libc::EINVAL),
    };
    let base = match i32::from(l.l_whence) {
        libc::SEEK_SET => 0,
        libc::SEEK_CUR => sys!(lseek, fd, 0, libc::SEEK_CUR) as i64,
        libc::SEEK_END => super::size::size(file).map_err(|e| e.errno())? as i64,
        _ => return Err(libc::EINVAL),
    };
    let mut start = base.checked_add(l.l_start).ok_or(libc::EOVERFLOW)?;
    let mut len = l.l_len;
    if len < 0 {
        start = start.checked_add(len).ok_or(libc::EINVAL)?;
        len = -len;
    }
    if start < 0 {
        return Err(libc::EINVAL);
    }
    Ok(LockRange { kind, start: start as u64, len: len as u64 })
}

/// POSIX: closing any descriptor of a file releases the process's locks on it. If they were lost, that is told.
pub(crate) fn on_close(client: &Client, file: &File) -> Result<(), Error> {
    if !ANY.load(Ordering::Relaxed) {
        return Ok(());
    }
    let all = LockRange { kind: LockKind::Unlock, start: 0, len: 0 };
    let release = |f: &File| match f.ino == file.ino && f.has_process_locks() {
        true => match client.lock(f, LockOwner::Process, all, false) {
            Err(lost @ Error::LockLost(_)) => Err(lost),
            // Whoever does not answer holds no lock for long.
            _ => Ok(()),
        },
        false => Ok(()),
    };
    let others = table::all().filter_map(|(_, open)| open.remote().map(release));
    others.fold(release(file), |told, next| told.and(next))
}

/// Before the process ends: who waits for its end finds its locks released.
pub(crate) fn on_exit(client: &Client) {
    let all = LockRange { kind: LockKind::Unlock, start: 0, len: 0 };
    for (_, open) in table::all() {
        let Some(file) = open.remote() else { continue };
        // Counted as failed: there is nobody else to be told.
        let _ = client.rescue(file);
        // A node that is gone holds no lock either.
        if file.has_process_locks() {
            let _ = client.lock(file, LockOwner::Process, all, false);
        }
        if file.holds_locks() && file.took_locks() {
            if !super::fd::has_children() {
                file.set_shared(false);
            }
            let _ = client.close(file);
        }
    }
}

pub(crate) unsafe extern "C" fn flock(fd: c_int, op: c_int) -> c_int {
    let Some(open) = table::get(fd) else { return sys::ret(sys!(flock, fd, op)) as c_int };
    let Some(file) = open.remote() else { return fail_errno(libc::EBADF) as c_int };
    let kind = match op & !libc::LOCK_NB {
        libc::LOCK_SH => LockKind::Read,
        libc::LOCK_EX => LockKind::Write,
        libc::LOCK_UN => LockKind::Unlock,
        _ => return fail_errno(libc::EINVAL) as c_int,
    };
    let range = LockRange { kind, start: 0, len: 0 };
    let attempt = || state().client().lock(file, LockOwner::Handle, range, true);
    insist(op & libc::LOCK_NB == 0, &open.path, attempt, || Ok(())) as c_int
}

unsafe extern "C" fn lockf(fd: c_int, cmd: c_int, len: i64) -> c_int {
    // SAFETY: a plain struct of integers.
    let mut l: libc::flock = unsafe { std::mem::zeroed() };
    l.l_whence = libc::SEEK_CUR as i16;
    l.l_len = len;
    l.l_type = libc::F_WRLCK as i16;
    let command = match cmd {
        libc::F_ULOCK => {
            l.l_type = libc::F_UNLCK as i16;
            libc::F_SETLK
        }
        libc::F_LOCK => libc::F_SETLKW,
        libc::F_TLOCK => libc::F_SETLK,
        libc::F_TEST => libc::F_GETLK,
        _ => return fail_errno(libc::EINVAL) as c_int,
    };
    let r = super::fd::control(fd, command, &raw mut l as usize);
    if r == 0 && cmd == libc::F_TEST && i32::from(l.l_type) != libc::F_UNLCK && l.l_pid != sys::getpid() {
        return fail_errno(libc::EACCES) as c_int;
    }
    r as c_int
}
