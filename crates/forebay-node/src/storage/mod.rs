//! The seam to the storage: how payload gets into and out of open files.

mod delayed;
mod emulated;
mod forgetful;
mod posix;
mod shared;

pub(crate) use delayed::Delayed;
pub(crate) use emulated::Emulated;
pub use emulated::EmulatedServers;
pub(crate) use forgetful::Forgetful;
pub use forgetful::forget;
pub(crate) use posix::Posix;

use crate::lent::Pipe;
use forebay_types::FileId;
use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::io::Errno;
use std::io::{IoSlice, IoSliceMut};

/// Where a transfer goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target<'a> {
    /// The open file.
    pub(crate) fd: BorrowedFd<'a>,
    /// Where in it.
    pub(crate) offset: u64,
    /// Which file, as schedulers tell files apart.
    pub(crate) file: FileId,
}

/// Moves data. Calls block until the file system has taken or given the bytes; several run at once.
pub(crate) trait Storage: Send + Sync {
    /// Fills the buffers one after the other; fewer bytes than asked for mean the end of the file.
    fn read(&self, at: Target<'_>, into: &mut [IoSliceMut<'_>]) -> Result<usize, Errno>;

    /// Lends `len` bytes to the pipe, which has room for them; fewer mean the end of the file. `None`: they can only be
    /// read. After an error the pipe may hold something.
    fn lend(&self, _at: Target<'_>, _len: usize, _to: &Pipe) -> Option<Result<usize, Errno>> {
        None
    }

    /// Writes the buffers one after the other; says how many bytes went.
    fn write(&self, at: Target<'_>, from: &[IoSlice<'_>]) -> Result<usize, Errno>;

    /// Writes at the end of the file, wherever others move it; says how many bytes, and the offset
    /// behind them. Nobody else uses the descriptor's position meanwhile.
    fn append(&self, at: Target<'_>, from: &[u8]) -> Result<(usize, u64), Errno>;

    /// Makes what was written durable.
    fn sync(&self, fd: BorrowedFd<'_>, data_only: bool) -> Result<(), Errno> {
        if data_only { rustix::fs::fdatasync(fd) } else { rustix::fs::fsync(fd) }
    }

    /// A client closes what it has written to: what the file system has to say of that.
    fn close(&self, fd: OwnedFd) -> Result<(), Errno> {
        crate::sys::close(fd)
    }

    /// A metadata operation was carried out on the exported directory.
    fn metadata(&self) {}
}
