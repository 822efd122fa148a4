//! The file system the node has mounted, through blocking `pread` and `pwrite`.

use super::{Storage, Target};
use crate::lent::Pipe;
use rustix::io::{Errno, ReadWriteFlags, retry_on_intr};
use std::io::{IoSlice, IoSliceMut};

/// Plain system calls.
#[derive(Debug)]
pub(crate) struct Posix;

impl Storage for Posix {
    fn read(&self, at: Target<'_>, into: &mut [IoSliceMut<'_>]) -> Result<usize, Errno> {
        match into {
            [one] => retry_on_intr(|| rustix::io::pread(at.fd, &mut **one, at.offset)),
            many => retry_on_intr(|| rustix::io::preadv(at.fd, many, at.offset)),
        }
    }

    fn lend(&self, at: Target<'_>, len: usize, to: &Pipe) -> Option<Result<usize, Errno>> {
        match to.fill(at, len) {
            Err(Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS | Errno::AGAIN) => None,
            other => Some(other),
        }
    }

    fn write(&self, at: Target<'_>, from: &[IoSlice<'_>]) -> Result<usize, Errno> {
        match from {
            [one] => retry_on_intr(|| rustix::io::pwrite(at.fd, one, at.offset)),
            many => retry_on_intr(|| rustix::io::pwritev(at.fd, many, at.offset)),
        }
    }

    fn append(&self, at: Target<'_>, from: &[u8]) -> Result<(usize, u64), Errno> {
        // Offset −1: use and move the descriptor's own position, which then tells where it went.
        let here = u64::MAX;
        let n = retry_on_intr(|| {
            rustix::io::pwritev2(at.fd, &[IoSlice::new(from)], here, ReadWriteFlags::APPEND)
        })?;
        Ok((n, rustix::fs::tell(at.fd)?))
    }
}
