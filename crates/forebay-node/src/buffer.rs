//! Memory for payloads: page-aligned buffers of a few sizes, all together within a budget.
//!
//! Every buffer has a page in front of its payload, so that a frame's header stands right before the
//! page-aligned payload and both go through one system call. Who wants a buffer while the budget is
//! used up waits: the client's socket fills, and that is the back-pressure.

use crate::sys::{Map, PAGE};
use forebay_wire::MAX_DATA;
use forebay_wire::frame::HEADER_LEN;
use rustix::io::Errno;
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
    state: Mutex<State>,
    freed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    used: usize,
    kept: usize,
    waiting: usize,
    free: [Vec<Map>; CLASSES.len()],
    /// The fewest free buffers of each class since the last trim: so many were not needed.
    unused: [usize; CLASSES.len()],
}

/// One buffer; dropping it gives it back.
#[derive(Debug)]
pub(crate) struct Buffer {
    map: Option<Map>,
    class: usize,
    pool: Arc<Pool>,
}

impl Pool {
    /// A pool that gives out at most `budget` bytes at a time, but always one of the largest.
    pub(crate) fn new(budget: usize) -> Pool {
        Pool { budget: budget.max(MAX_DATA as usize), state: Mutex::default(), freed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A buffer for `len` bytes of payload (at most [`MAX_DATA`]), waiting for memory up to `patience`.
    pub(crate) fn take(self: &Arc<Pool>, len: usize, patience: Duration) -> Result<Buffer, Errno> {
        let class = CLASSES.iter().position(|&c| len <= c).ok_or(Errno::NOMEM)?;
        let size = CLASSES[class];
        let limit = self.limit(size);
        let mut state = self.lock();
        if state.used + size > limit {
            let deadline = Instant::now() + patience;
            state.waiting += 1;
            while state.used + size > limit {
                let left = deadline.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    state.waiting -= 1;
                    return Err(Errno::NOBUFS);
                }
                state = self.freed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
            }
            state.waiting -= 1;
        }
        self.give(state, class)
    }

    /// Large payloads leave the last quarter of the memory to small ones: who holds large answers and
    /// does not read them must not stop everybody.
    fn limit(&self, size: usize) -> usize {
        if size < LARGE { self.budget } else { (self.budget / 4 * 3).max(MAX_DATA as usize) }
    }

    /// As [`Pool::take`], at once, though the budget be used up. For small payloads whose frame has
    /// already been accepted: there are at most as many as connections.
    pub(crate) fn take_over_budget(self: &Arc<Pool>, len: usize) -> Result<Buffer, Errno> {
        let class = CLASSES.iter().position(|&c| len <= c).ok_or(Errno::NOMEM)?;
        self.give(self.lock(), class)
    }

    fn give(self: &Arc<Pool>, mut state: MutexGuard<'_, State>, class: usize) -> Result<Buffer, Errno> {
        let size = CLASSES[class];
        state.used += size;
        let map = state.free[class].pop();
        if map.is_some() {
            state.kept -= size;
        }
        state.unused[class] = state.unused[class].min(state.free[class].len());
        drop(state);
        // From here on the buffer's drop accounts for it, also if mapping fails.
        let mut buffer = Buffer { map, class, pool: Arc::clone(self) };
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
        let pool = Arc::new(Pool::new(16 << 20));
        let a = pool.take(4 << 20, SHORT).unwrap();
        let b = [(); 2].map(|()| pool.take((4 << 20) - 5, SHORT).unwrap());
        assert_eq!(pool.take(1 << 20, SHORT).unwrap_err(), Errno::NOBUFS);
        let small: Vec<Buffer> = (0..16).map(|_| pool.take(256 << 10, SHORT).unwrap()).collect();
        assert_eq!(pool.used(), 16 << 20);
        assert_eq!(pool.take(1, SHORT).unwrap_err(), Errno::NOBUFS);
        drop(small);
        let waiter = std::thread::spawn({
            let pool = Arc::clone(&pool);
            move || pool.take(1 << 20, Duration::from_secs(30)).map(|_| ())
        });
        drop(a);
        waiter.join().unwrap().unwrap();
        drop(b);
        assert_eq!(pool.used(), 0);
        assert!(pool.take(MAX_DATA as usize + 1, SHORT).is_err());
    }

    #[test]
    fn unused_buffers_are_unmapped_by_the_second_trim() {
        let pool = Arc::new(Pool::new(64 << 20));
        let all: Vec<_> = (0..3).map(|_| pool.take(1 << 20, SHORT).unwrap()).collect();
        drop(all);
        assert_eq!(pool.lock().kept, 3 << 20);
        pool.trim();
        let one = pool.take(1 << 20, SHORT).unwrap();
        drop(one);
        pool.trim();
        assert_eq!(pool.lock().kept, 1 << 20, "the one that was used stays");
        pool.trim();
        assert_eq!(pool.lock().kept, 0);
    }

    #[test]
    fn payloads_are_page_aligned_behind_their_header() {
        let pool = Arc::new(Pool::new(8 << 20));
        let mut b = pool.take(100, SHORT).unwrap();
        assert_eq!(b.payload(1).as_ptr() as usize % PAGE, 0);
        b.payload_mut(2).copy_from_slice(b"hi");
        b.set_header(&[9; HEADER_LEN]);
        assert_eq!(b.frame(2)[HEADER_LEN - 1..], [9, b'h', b'i']);
    }
}
