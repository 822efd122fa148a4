//! Large reads without a copy on this node: the pages that the file system has of a file are lent to a pipe,
//! and by that to the socket.

use crate::storage::Target;
use crate::sys::PAGE;
use forebay_wire::MAX_DATA;
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::{Errno, retry_on_intr};
use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice};

/// What every user's pipes may hold, as kernels come.
const USUAL: usize = 1 << 20;

/// Where pages are lent to, empty between two requests.
pub(crate) struct Pipe {
    out: OwnedFd,
    into: OwnedFd,
    room: usize,
}

/// A connection's pipe: nobody has one who makes no large reads.
#[derive(Default)]
pub(crate) struct Lender {
    pipe: Option<Pipe>,
    /// The storage lends nothing.
    never: bool,
}

impl Lender {
    /// Has `lend` fill a pipe with room for `len` bytes of a file from `offset` on: what it says, and the pipe, which is to be kept when it is
    /// empty again. `None`: nothing is lent.
    pub(crate) fn lend<T>(
        &mut self,
        offset: u64,
        len: usize,
        lend: impl FnOnce(&Pipe) -> Option<T>,
    ) -> Option<(T, Pipe)> {
        // It holds whole pages.
        let len = len + (offset % PAGE as u64) as usize;
        if self.never || self.pipe.as_ref().is_some_and(|pipe| len > pipe.room) {
            return None;
        }
        let pipe = self.pipe.take().or_else(Pipe::new)?;
        if len > pipe.room {
            self.pipe = Some(pipe);
            return None;
        }
        let lent = lend(&pipe);
        self.never = lent.is_none();
        Some((lent?, pipe))
    }

    /// The pipe is empty.
    pub(crate) fn keep(&mut self, pipe: Pipe) {
        self.pipe = Some(pipe);
    }
}

impl Pipe {
    /// One with as much room as this user may have.
    fn new() -> Option<Pipe> {
        let (out, into) = pipe_with(PipeFlags::CLOEXEC).ok()?;
        let sizes = [MAX_DATA as usize, USUAL];
        let room = sizes.into_iter().find_map(|size| fcntl_setpipe_size(&into, size).ok())?;
        Some(Pipe { out, into, room })
    }

    /// Lends `len` bytes of a file, fewer at its end.
    pub(crate) fn fill(&self, from: Target<'_>, len: usize) -> Result<usize, Errno> {
        let (mut at, mut filled) = (from.offset, 0);
        while filled < len {
            // It is full if its room is taken by parts of pages: that is said, and not waited for.
            let flags = SpliceFlags::MOVE | SpliceFlags::NONBLOCK;
            match retry_on_intr(|| splice(from.fd, Some(&mut at), &self.into, None, len - filled, flags))? {
                0 => break,
                n => filled += n,
            }
        }
        Ok(filled)
    }

    /// Moves what `socket` takes of `len` bytes.
    pub(crate) fn send(&self, socket: impl AsFd, len: usize) -> Result<usize, Errno> {
        splice(&self.out, None, socket, None, len, SpliceFlags::MOVE)
    }
}
