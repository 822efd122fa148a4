//! Storage for tests that takes as long as it is told, while the node runs: a file says how many
//! milliseconds each call waits before it is made. No file, no delay.

use super::{Storage, Target};
use rustix::fd::BorrowedFd;
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
    fn wait(&self) {
        let text = std::fs::read_to_string(&self.file).unwrap_or_default();
        if let Ok(ms) = text.trim().parse::<u64>() {
            std::thread::sleep(Duration::from_millis(ms.min(LONGEST_MS)));
        }
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
        self.wait();
        self.inner.sync(fd, data_only)
    }

    fn metadata(&self) {
        self.inner.metadata();
    }
}
