//! The file system the node has mounted, through blocking `pread` and `pwrite`.

use super::{Storage, Target};
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
