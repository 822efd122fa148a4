//! How a worker reaches files: the one seam between direct and forwarded access.

use std::io;

/// A file system, as far as a scenario needs it. Paths are absolute.
pub(super) trait Files {
    /// Opens for reading and writing, creating what is not there.
    fn open(&self, path: &str, direct_io: bool) -> io::Result<Box<dyn OpenFile + '_>>;
    /// Makes an empty file.
    fn create(&self, path: &str) -> io::Result<()>;
    /// Looks at a file.
    fn stat(&self, path: &str) -> io::Result<()>;
    /// Removes a file.
    fn unlink(&self, path: &str) -> io::Result<()>;
}

/// An open file.
pub(super) trait OpenFile {
    /// Reads at an offset; fewer bytes than asked for mean the end of the file.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize>;
    /// Writes at an offset.
    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<usize>;
    /// Makes what was written durable.
    fn sync(&self) -> io::Result<()>;
    /// Closes it, with whatever error that brings.
    fn close(self: Box<Self>) -> io::Result<()>;
}
