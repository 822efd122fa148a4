//! The system calls of this crate that have no safe form elsewhere.

use rustix::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::ffi::CStr;
use std::io;
use std::ops::{Deref, DerefMut};

/// Memory of whole pages.
pub(crate) struct Buffer {
    start: *mut u8,
    len: usize,
}

// SAFETY: the mapping belongs to this value alone.
unsafe impl Send for Buffer {}

impl Buffer {
    pub(crate) fn new(len: usize) -> Option<Buffer> {
        use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a fresh private mapping, unmapped only by `drop`.
        let start = unsafe { mmap_anonymous(std::ptr::null_mut(), len, access, MapFlags::PRIVATE) }.ok()?;
        Some(Buffer { start: start.cast(), len })
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: made by `new` with this length, and nobody else knows of it.
        let _ = unsafe { rustix::mm::munmap(self.start.cast(), self.len) };
    }
}

impl Deref for Buffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: mapped, readable, initialised with zeros by the kernel.
        unsafe { std::slice::from_raw_parts(self.start, self.len) }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and writable; `self` is borrowed alone.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.len) }
    }
}

/// `mount(2)` with a file system of its own.
pub(crate) fn mount_fuse(at: &CStr, options: &CStr) -> io::Result<()> {
    let flags = libc::MS_NOSUID | libc::MS_NODEV;
    // SAFETY: all four are strings that live through the call.
    let done = unsafe {
        libc::mount(
            c"forebay".as_ptr(),
            at.as_ptr(),
            c"fuse.forebay".as_ptr(),
            flags,
            options.as_ptr().cast(),
        )
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Sends one descriptor along with a byte.
pub(crate) fn send_fd(socket: BorrowedFd<'_>, fd: BorrowedFd<'_>) -> io::Result<()> {
    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let fds = [fd];
    if !control.push(SendAncillaryMessage::ScmRights(&fds)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    sendmsg(socket, &[io::IoSlice::new(b"+")], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Receives what [`send_fd`] sent, or a message without a descriptor; nothing at the end.
pub(crate) fn receive_fd(socket: BorrowedFd<'_>) -> io::Result<Option<(Vec<u8>, Option<OwnedFd>)>> {
    use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut message = vec![0; 4096];
    let got = loop {
        match recvmsg(socket, &mut [io::IoSliceMut::new(&mut message)], &mut control, RecvFlags::CMSG_CLOEXEC)
        {
            Err(rustix::io::Errno::INTR) => {}
            other => break other?,
        }
    };
    if got.bytes == 0 {
        return Ok(None);
    }
    message.truncate(got.bytes);
    let fd = control.drain().find_map(|m| match m {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    });
    Ok(Some((message, fd)))
}

/// New namespaces for this process alone.
pub(crate) fn unshare(flags: i32) -> io::Result<()> {
    // SAFETY: the flags change what this process sees, not its memory.
    if unsafe { libc::unshare(flags) } == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Whether the kernel lets this process do `mask` (`R_OK`…) with a path, by its effective ids.
pub(crate) fn may(path: &std::path::Path, wanted: rustix::fs::Access) -> bool {
    rustix::fs::accessat(rustix::fs::CWD, path, wanted, rustix::fs::AtFlags::EACCESS).is_ok()
}

/// The number of a descriptor, for the option that names it.
pub(crate) fn number(fd: &OwnedFd) -> i32 {
    fd.as_raw_fd()
}
