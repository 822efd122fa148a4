//! The program's buffers of `readv`, `writev` and their relatives. Large ones are moved where they are, small ones
//! together, through a piece of memory no larger than one frame.

use crate::user;
use std::ffi::c_int;

/// Linux moves at most this much in one call.
pub const MAX_RW: usize = 0x7fff_f000;
/// What small buffers are gathered in: one frame.
const FRAME: usize = 4 << 20;
/// A buffer of this size is worth a request of its own.
const LARGE: usize = 1 << 20;

/// The program's buffers, checked as the kernel checks them.
pub struct Vector<'a> {
    buffers: &'a [libc::iovec],
    /// Bytes in all of them.
    pub total: usize,
}

/// A run of the buffers' bytes that is moved by one request.
enum Run {
    /// Of one buffer, where it is.
    One(*mut u8, usize),
    /// Of several, this many bytes.
    Many(usize),
}

impl<'a> Vector<'a> {
    /// `write`: what is in them is to be written; otherwise they are to be filled.
    ///
    /// # Safety
    /// The program's own vector, which it leaves alone during the call.
    pub unsafe fn new(vector: *const libc::iovec, count: c_int, write: bool) -> Result<Vector<'a>, i32> {
        let count = usize::try_from(count).ok().filter(|n| *n <= 1024).ok_or(libc::EINVAL)?;
        // SAFETY: as the caller promises.
        let bytes = unsafe { user::bytes(vector, count * size_of::<libc::iovec>()) }?;
        let buffers = if bytes.is_empty() {
            &[]
        } else {
            // SAFETY: readable, as was just seen; the kernel's own layout.
            unsafe { std::slice::from_raw_parts(bytes.as_ptr().cast::<libc::iovec>(), count) }
        };
        let (mut total, mut bad) = (0usize, false);
        for b in buffers {
            if b.iov_len > isize::MAX as usize {
                return Err(libc::EINVAL);
            }
            if !user::in_range(b.iov_base, b.iov_len) {
                return Err(libc::EFAULT);
            }
        }
        for b in buffers {
            let n = b.iov_len.min(MAX_RW - total);
            let there =
                if write { user::readable(b.iov_base, n) } else { n == 0 || user::writable(b.iov_base, 1) };
            if !there {
                // As much as is there, as the kernel would.
                bad = true;
                break;
            }
            total += n;
        }
        if bad && total == 0 {
            return Err(libc::EFAULT);
        }
        Ok(Vector { buffers, total })
    }

    /// Whether all of the buffers are there.
    pub fn is_whole(&self, write: bool) -> bool {
        let there = |b: &libc::iovec| match write {
            true => user::readable(b.iov_base, b.iov_len),
            false => user::writable(b.iov_base, b.iov_len),
        };
        self.total == self.buffers.iter().map(|b| b.iov_len).sum::<usize>() && self.buffers.iter().all(there)
    }

    /// The run that begins at `from`, of at most `left` bytes.
    fn run(&self, from: usize, left: usize) -> Run {
        let mut begin = 0;
        let mut many = 0;
        for b in self.buffers {
            let end = begin + b.iov_len;
            let skip = from.saturating_sub(begin);
            begin = end;
            if end <= from || skip >= b.iov_len {
                continue;
            }
            let here = b.iov_len - skip;
            if many == 0 && (here >= LARGE || here >= left) {
                // SAFETY: inside the program's buffer.
                return Run::One(unsafe { b.iov_base.cast::<u8>().add(skip) }, here.min(left));
            }
            if here >= LARGE || many + here > FRAME {
                break;
            }
            many += here;
        }
        Run::Many(many.min(left))
    }

    /// Copies between `piece` and the buffers' bytes from `from` on.
    fn copy(&self, from: usize, piece: &mut [u8], out: bool) {
        let (mut begin, mut done) = (0, 0);
        for b in self.buffers {
            let skip = (from + done).saturating_sub(begin);
            begin += b.iov_len;
            if skip >= b.iov_len || done == piece.len() {
                continue;
            }
            let n = (b.iov_len - skip).min(piece.len() - done);
            // SAFETY: inside the program's buffer and inside `piece`.
            unsafe {
                let theirs = b.iov_base.cast::<u8>().add(skip);
                let ours = piece.as_mut_ptr().add(done);
                if out {
                    std::ptr::copy_nonoverlapping(ours, theirs, n);
                } else {
                    std::ptr::copy_nonoverlapping(theirs, ours, n);
                }
            }
            done += n;
        }
    }

    /// Moves `total` bytes run by run: `step` is given each run's memory and how much came before it.
    pub fn each(&self, total: usize, out: bool, mut step: impl FnMut(&mut [u8], usize) -> isize) -> isize {
        let mut gathered = Vec::new();
        let mut done = 0;
        loop {
            let (n, want) = match self.run(done, total - done) {
                Run::One(p, n) => {
                    // SAFETY: a buffer of the program's, seen to be there.
                    (step(unsafe { std::slice::from_raw_parts_mut(p, n) }, done), n)
                }
                Run::Many(n) => {
                    gathered.resize(n, 0);
                    if !out {
                        self.copy(done, &mut gathered, false);
                    }
                    let moved = step(&mut gathered, done);
                    if out && moved > 0 {
                        self.copy(done, &mut gathered[..moved as usize], true);
                    }
                    (moved, n)
                }
            };
            if n < 0 {
                return if done > 0 { done as isize } else { n };
            }
            done += n as usize;
            if (n as usize) < want || done == total {
                return done as isize;
            }
        }
    }
}
