//! Files by plain POSIX calls.

use super::files::{Files, OpenFile};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};

/// The kernel's file systems.
pub(super) struct Posix;

impl Files for Posix {
    fn open(&self, path: &str, direct_io: bool) -> io::Result<Box<dyn OpenFile + '_>> {
        let flags = if direct_io { rustix::fs::OFlags::DIRECT.bits() as i32 } else { 0 };
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .custom_flags(flags)
            .open(path)?;
        Ok(Box::new(file))
    }

    fn create(&self, path: &str) -> io::Result<()> {
        OpenOptions::new().write(true).create(true).truncate(false).open(path).map(drop)
    }

    fn stat(&self, path: &str) -> io::Result<()> {
        fs::metadata(path).map(drop)
    }

    fn unlink(&self, path: &str) -> io::Result<()> {
        fs::remove_file(path)
    }
}

impl OpenFile for File {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        FileExt::read_at(self, buf, offset)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<usize> {
        FileExt::write_at(self, buf, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_all()
    }

    fn close(self: Box<Self>) -> io::Result<()> {
        // `File` closes without telling; data that could not be written shows in fsync.
        Ok(())
    }
}
