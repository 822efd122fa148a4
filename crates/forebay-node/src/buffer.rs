//! Memory for payloads: page-aligned buffers of a few sizes, all together within a budget.
//!
//! Every buffer has a page in front of its payload, so that a frame's header stands right before the
//! page-aligned payload and both go through one system call. Who wants a buffer while the budget is
//! used up waits: the client's socket fills, and that is the back-pressure. A part of the budget is for
//! jobs that hold little: whatever others do, each gets on.

use crate::sys::{Map, PAGE};
use forebay_wire::MAX_DATA;
use forebay_wire::frame::HEADER_LEN;
use rustix::io::Errno;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

const CLASSES: [usize; 5] = [16 << 10, 64 << 10, 256 << 10, 1 << 20, MAX_DATA as usize];
/// From here on a payload is large.
const LARGE: usize = 1 << 20;
/// Free buffers that are kept mapped, so that a stream of large requests does not fault its pages in
/// again and again.
const KEEP: usize = 32 << 20;

/// The node's payload memory.
#[derive(Debug)]
pub(crate) struct Pool {
    budget: usize,
    /// So much of it anybody may have; the rest is for those who hold little, and for small payloads.
    common: usize,
    state: Mutex<State>,
    freed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    used: usize,
    /// How many accounts hold something.
    holders: usize,
    kept: usize,
    waiting: usize,
    free: [Vec<Map>; CLASSES.len()],
    /// The fewest free buffers of each class since the last trim: so many were not needed.
    unused: [usize; CLASSES.len()],
}

/// What one job holds of the memory. Changed only under the pool's lock.
#[derive(Debug, Default)]
pub(crate) struct Account {
    used: AtomicUsize,
    /// Small payloads beyond the common part.
    small: AtomicUsize,
}

/// One buffer; dropping it gives it back.
#[derive(Debug)]
pub(crate) struct Buffer {
    map: Option<Map>,
    class: usize,
    pool: Arc<Pool>,
    account: Arc<Account>,
    /// It counts in [`Account::small`].
    small: bool,
}

/// From which part of the memory a buffer may be had.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Common,
    Share,
    Small,
}

impl Pool {
    /// A pool that gives out at most `budget` bytes at a time, but always one of the largest.
    pub(crate) fn new(budget: usize) -> Pool {
        let largest = MAX_DATA as usize;
        let budget = budget.max(largest);
        let rest = (budget / 4).max(2 * largest).min(budget - largest);
        Pool { budget, common: budget - rest, state: Mutex::default(), freed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A buffer for `len` bytes of payload (at most [`MAX_DATA`]), waiting for memory up to `patience`.
    pub(crate) fn take(
        self: &Arc<Pool>,
        account: &Arc<Account>,
        len: usize,
        patience: Duration,
    ) -> Result<Buffer, Errno> {
        let class = CLASSES.iter().position(|&c| len <= c).ok_or(Errno::NOMEM)?;
        let mut state = self.lock();
        let mut part = self.part(&state, account, CLASSES[class]);
        if part.is_none() {
            let deadline = Instant::now() + patience;
            state.waiting += 1;
            while part.is_none() {
                let left = deadline.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    break;
                }
                state = self.freed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
                part = self.part(&state, account, CLASSES[class]);
            }
            state.waiting -= 1;
        }
        self.give(state, account, class, part.ok_or(Errno::NOBUFS)?)
    }

    /// Who holds little gets his share of the rest; who holds much, only small payloads: large answers
    /// that nobody reads must not stop everybody, nor a job itself.
    fn part(&self, state: &State, account: &Account, size: usize) -> Option<Part> {
        let (rest, after) = (self.budget - self.common, state.used + size);
        let used = account.used.load(Relaxed);
        let share = (rest / (state.holders + usize::from(used == 0))).max(MAX_DATA as usize);
        if after <= self.common {
            Some(Part::Common)
        } else if after > self.budget {
            None
        } else if used + size <= share {
            Some(Part::Share)
        } else if size < LARGE && account.small.load(Relaxed) + size <= rest / 2 {
            Some(Part::Small)
        } else {
            None
        }
    }

    /// As [`Pool::take`], at once, though the budget be used up. For small payloads whose frame has
    /// already been accepted: there are at most as many as connections.
    pub(crate) fn take_over_budget(
        self: &Arc<Pool>,
        account: &Arc<Account>,
        len: usize,
    ) -> Result<Buffer, Errno> {
        let class = CLASSES.iter().position(|&c| len <= c).ok_or(Errno::NOMEM)?;
        self.give(self.lock(), account, class, Part::Common)
    }

    fn give(
        self: &Arc<Pool>,
        mut state: MutexGuard<'_, State>,
        account: &Arc<Account>,
        class: usize,
        part: Part,
    ) -> Result<Buffer, Errno> {
        let (size, small) = (CLASSES[class], part == Part::Small);
        state.used += size;
        state.holders += usize::from(account.used.fetch_add(size, Relaxed) == 0);
        account.small.fetch_add(if small { size } else { 0 }, Relaxed);
        let map = state.free[class].pop();
        if map.is_some() {
            state.kept -= size;
        }
        state.unused[class] = state.unused[class].min(state.free[class].len());
        drop(state);
        // From here on the buffer's drop accounts for it, also if mapping fails.
        let mut buffer = Buffer { map, class, pool: Arc::clone(self), account: Arc::clone(account), small };
        if buffer.map.is_none() {
            buffer.map = Some(Map::new(PAGE + size)?);
        }
        Ok(buffer)
    }

    /// Unmaps the free buffers that nobody wanted since the last call.
    pub(crate) fn trim(&self) {
        let mut gone = Vec::new();
        let mut state = self.lock();
        for (class, size) in CLASSES.iter().enumerate() {
            let n = state.unused[class].min(state.free[class].len());
            let rest = state.free[class].len() - n;
            gone.extend(state.free[class].drain(rest..));
            state.kept -= n * size;
            state.unused[class] = rest;
        }
        drop(state);
        drop(gone);
    }

    /// Bytes given out.
    pub(crate) fn used(&self) -> usize {
        self.lock().used
    }
}

impl Buffer {
    fn map(&self) -> &Map {
        self.map.as_ref().expect("the map is there until the drop")
    }

    fn map_mut(&mut self) -> &mut Map {
        self.map.as_mut().expect("the map is there until the drop")
    }

    /// The first `len` bytes of the payload.
    pub(crate) fn payload(&self, len: usize) -> &[u8] {
        &self.map()[PAGE..PAGE + len]
    }

    /// The first `len` bytes of the payload.
    pub(crate) fn payload_mut(&mut self, len: usize) -> &mut [u8] {
        &mut self.map_mut()[PAGE..PAGE + len]
    }

    /// Puts a header right before the payload.
    pub(crate) fn set_header(&mut self, header: &[u8; HEADER_LEN]) {
        self.map_mut()[PAGE - HEADER_LEN..PAGE].copy_from_slice(header);
    }

    /// The header and the first `len` bytes of the payload in one piece.
    pub(crate) fn frame(&self, len: usize) -> &[u8] {
        &self.map()[PAGE - HEADER_LEN..PAGE + len]
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let size = CLASSES[self.class];
        let mut state = self.pool.lock();
        state.used -= size;
        state.holders -= usize::from(self.account.used.fetch_sub(size, Relaxed) == size);
        self.account.small.fetch_sub(if self.small { size } else { 0 }, Relaxed);
        let surplus = match self.map.take() {
            Some(map) if state.kept + size <= KEEP => {
                state.kept += size;
                state.free[self.class].push(map);
                None
            }
            other => other,
        };
        if state.waiting > 0 {
            self.pool.freed.notify_all();
        }
        drop(state);
        drop(surplus);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_millis(10);

    #[test]
    fn the_budget_holds_and_a_freed_buffer_wakes_a_waiter() {
        let pool = Arc::new(Pool::new(32 << 20));
        let job = Arc::default();
        let mut large: Vec<Buffer> = (0..6).map(|_| pool.take(&job, 4 << 20, SHORT).unwrap()).collect();
        assert_eq!(pool.take(&job, 1 << 20, SHORT).unwrap_err(), Errno::NOBUFS, "the common part is used up");
        let small: Vec<Buffer> = (0..16).map(|_| pool.take(&job, 256 << 10, SHORT).unwrap()).collect();
        assert_eq!(pool.take(&job, 1, SHORT).unwrap_err(), Errno::NOBUFS);
        assert_eq!(pool.used(), 28 << 20);
        drop(small);
        let waiter = std::thread::spawn({
            let (pool, job) = (Arc::clone(&pool), Arc::clone(&job));
            move || pool.take(&job, 1 << 20, Duration::from_secs(30)).map(|_| ())
        });
        drop(large.pop());
        waiter.join().unwrap().unwrap();
        drop(large);
        assert_eq!(pool.used(), 0);
        assert!(pool.take(&job, MAX_DATA as usize + 1, SHORT).is_err());
    }

    #[test]
    fn a_job_that_takes_all_it_can_leaves_others_their_share() {
        let pool = Arc::new(Pool::new(256 << 20));
        let greedy = Arc::default();
        let mut held = Vec::new();
        for len in [4 << 20, 1 << 20, 256 << 10, 64 << 10, 1] {
            held.extend(std::iter::from_fn(|| pool.take(&greedy, len, Duration::ZERO).ok()));
        }
        let others: Vec<Buffer> = (0..8)
            .map(|n| pool.take(&Arc::default(), 4 << 20, SHORT).unwrap_or_else(|e| panic!("{n}: {e}")))
            .collect();
        assert!(pool.used() <= 256 << 20);
        drop((held, others));
        assert_eq!((pool.used(), pool.lock().holders), (0, 0));
    }

    #[test]
    fn unused_buffers_are_unmapped_by_the_second_trim() {
        let pool = Arc::new(Pool::new(64 << 20));
        let job = Arc::default();
        let all: Vec<_> = (0..3).map(|_| pool.take(&job, 1 << 20, SHORT).unwrap()).collect();
        drop(all);
        assert_eq!(pool.lock().kept, 3 << 20);
        pool.trim();
        let one = pool.take(&job, 1 << 20, SHORT).unwrap();
        drop(one);
        pool.trim();
        assert_eq!(pool.lock().kept, 1 << 20, "the one that was used stays");
        pool.trim();
        assert_eq!(pool.lock().kept, 0);
    }

    #[test]
    fn payloads_are_page_aligned_behind_their_header() {
        let pool = Arc::new(Pool::new(8 << 20));
        let mut b = pool.take(&Arc::default(), 100, SHORT).unwrap();
        assert_eq!(b.payload(1).as_ptr() as usize % PAGE, 0);
        b.payload_mut(2).copy_from_slice(b"hi");
        b.set_header(&[9; HEADER_LEN]);
        assert_eq!(b.frame(2)[HEADER_LEN - 1..], [9, b'h', b'i']);
    }
}
