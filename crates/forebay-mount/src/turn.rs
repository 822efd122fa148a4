//! One thread at a time reads the kernel's requests, and carries out what it reads. Only when it is
//! about to sleep, for an answer or for a lock, is it another one's turn: a program that asks one thing
//! after the other is served by one thread, which spins while it waits for the next request, and nobody
//! has to be woken.

use crate::server::Server;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::BorrowedFd;
use std::cell::RefCell;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::sync::{LockResult, RwLock, RwLockReadGuard, RwLockWriteGuard, TryLockError, TryLockResult};

/// Threads that wait for their turn; further ones end when they have nothing to do.
const WAITING: usize = 4;
/// How long both the answer and the next request are waited for: an answer that takes longer is waited for alone.
const BOTH: Timespec = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };

thread_local! {
    /// Whose requests this thread reads: it is its turn.
    static READS: RefCell<Option<Arc<Server>>> = const { RefCell::new(None) };
}

/// Whose turn it is, as far as that is known here: somebody's, or nobody's.
#[derive(Debug, Default)]
pub(crate) struct Turn {
    state: Mutex<State>,
    free: Condvar,
}

#[derive(Debug, Default)]
struct State {
    taken: bool,
    waiting: usize,
    over: bool,
}

impl Turn {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until it is this thread's turn. False: enough others wait, or it is over.
    fn take(&self) -> bool {
        let mut state = self.state();
        if state.taken && state.waiting >= WAITING {
            return false;
        }
        while state.taken && !state.over {
            state.waiting += 1;
            state = self.free.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.waiting -= 1;
        }
        state.taken = true;
        !state.over
    }

    /// It is another one's turn. False: nobody waits for it.
    fn give(&self) -> bool {
        let mut state = self.state();
        state.taken = false;
        self.free.notify_one();
        state.waiting > 0
    }

    /// There is nothing to be read any more.
    pub(crate) fn is_over(&self) {
        self.state().over = true;
        self.free.notify_all();
    }
}

/// Makes it this thread's turn to read for `server`, if it is not. False: it is not needed.
pub(crate) fn mine(server: &Arc<Server>) -> bool {
    READS.with_borrow_mut(|reads| {
        if reads.is_none() && server.turn.take() {
            *reads = Some(Arc::clone(server));
        }
        reads.is_some()
    })
}

/// If it was this thread's turn to read, it is another one's from now on.
pub(crate) fn pass_on() {
    if let Some(server) = READS.take()
        && !server.turn.give()
    {
        server.one_more_if_it_may();
    }
}

/// The client is about to sleep: until `answer` can be read, or for a while.
pub(crate) fn before_sleep(answer: Option<BorrowedFd<'_>>) {
    let first = |server: &Arc<Server>| answer.is_some_and(|answer| comes_first(answer, server.device()));
    if READS.with_borrow(|reads| reads.as_ref().is_none_or(first)) {
        return;
    }
    pass_on();
}

/// Whether there is something to read at `answer`, soon, and before there is something at `device`.
fn comes_first(answer: BorrowedFd<'_>, device: BorrowedFd<'_>) -> bool {
    let mut both =
        [PollFd::from_borrowed_fd(answer, PollFlags::IN), PollFd::from_borrowed_fd(device, PollFlags::IN)];
    let found = poll(&mut both, Some(&BOTH));
    found.is_ok() && !both[0].revents().is_empty()
}

/// What was tried, or waited for after it became another one's turn.
fn patient<G>(tried: TryLockResult<G>, wait: impl FnOnce() -> LockResult<G>) -> G {
    match tried {
        Ok(guard) => guard,
        Err(TryLockError::Poisoned(e)) => e.into_inner(),
        Err(TryLockError::WouldBlock) => {
            pass_on();
            wait().unwrap_or_else(PoisonError::into_inner)
        }
    }
}

/// Locks what another thread may hold for as long as a call takes.
pub(crate) fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    patient(of.try_lock(), || of.lock())
}

/// The same, shared with others.
pub(crate) fn read<T>(of: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    patient(of.try_read(), || of.read())
}

/// The same, to change it.
pub(crate) fn write<T>(of: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    patient(of.try_write(), || of.write())
}
