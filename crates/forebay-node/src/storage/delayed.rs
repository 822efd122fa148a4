//! Storage for tests that does as it is told, while the node runs: a file says how many milliseconds each call
//! waits before it is made, and behind that, if anything, the errno with which what was written turns out not
//! to have been, at `fsync` and `close`. No file, no delay.

use super::{Storage, Target};
use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::io::Errno;
use std::io::{IoSlice, IoSliceMut};
use std::path::PathBuf;
use std::time::Duration;

/// No call is delayed for longer.
const LONGEST_MS: u64 = 60_000;

/// Another storage, later.
pub(crate) struct Delayed {
    pub(crate) inner: Box<dyn Storage>,
    pub(crate) file: PathBuf,
}

impl Delayed {
    /// What the file says behind the delay.
    fn wait(&self) -> Option<Errno> {
        let text = std::fs::read_to_string(&self.file).unwrap_or_default();
        let mut words = text.split_whitespace();
        if let Some(ms) = words.next().and_then(|ms| ms.parse::<u64>().ok()) {
            std::thread::sleep(Duration::from_millis(ms.min(LONGEST_MS)));
        }
        words.next().and_then(|errno| errno.parse().ok()).map(Errno::from_raw_os_error)
    }
}

impl Storage for Delayed {
    fn read(&self, at: Target<'_>, into: &mut [IoSliceMut<'_>]) -> Result<usize, Errno> {
        self.wait();
        self.inner.read(at, into)
    }

    fn write(&self, at: Target<'_>, from: &[IoSlice<'_>]) -> Result<usize, Errno> {
        self.wait();
        self.inner.write(at, from)
    }

    fn append(&self, at: Target<'_>, from: &[u8]) -> Result<(usize, u64), Errno> {
        self.wait();
        self.inner.append(at, from)
    }

    fn sync(&self, fd: BorrowedFd<'_>, data_only: bool) -> Result<(), Errno> {
        self.wait().map_or_else(|| self.inner.sync(fd, data_only), Err)
    }

    fn close(&self, fd: OwnedFd) -> Result<(), Errno> {
        self.wait().map_or_else(|| self.inner.close(fd), Err)
    }

    fn metadata(&self) {
        self.inner.metadata();
    }
}
