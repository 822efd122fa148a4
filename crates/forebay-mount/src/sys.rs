//! The system calls of this crate that have no safe form elsewhere.

use rustix::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
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

fn checked(done: i32) -> io::Result<()> {
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// `mount(2)`; what is not given is not used by the kind of mount.
pub(crate) fn mount(
    what: Option<&CStr>,
    at: &CStr,
    kind: Option<&CStr>,
    flags: u64,
    options: Option<&CStr>,
) -> io::Result<()> {
    let pointer = |text: Option<&CStr>| text.map_or(std::ptr::null(), CStr::as_ptr);
    // SAFETY: every pointer is null or a string that lives through the call.
    checked(unsafe { libc::mount(pointer(what), at.as_ptr(), pointer(kind), flags, pointer(options).cast()) })
}

/// `fsopen(2)`: a file system that is to be mounted, and is not yet.
pub(crate) fn open_file_system(kind: &CStr) -> io::Result<OwnedFd> {
    const CLOEXEC: libc::c_uint = 1;
    // SAFETY: the string lives through the call.
    let fd = unsafe { libc::syscall(libc::SYS_fsopen, kind.as_ptr(), CLOEXEC) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made this descriptor, and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// `umount2(2)` of what lies on top at `at`, used or not; `by_force` fails what waits for an answer.
pub(crate) fn unmount(at: &CStr, by_force: bool) -> io::Result<()> {
    let force = if by_force { libc::MNT_FORCE } else { 0 };
    // SAFETY: the string lives through the call.
    checked(unsafe { libc::umount2(at.as_ptr(), libc::MNT_DETACH | libc::UMOUNT_NOFOLLOW | force) })
}

/// Makes the working directory, a mount, the root; the old root lies on top of it.
pub(crate) fn pivot_root_here() -> io::Result<()> {
    // SAFETY: both are static strings.
    let done = unsafe { libc::syscall(libc::SYS_pivot_root, c".".as_ptr(), c".".as_ptr()) };
    checked(done as i32)
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
    checked(unsafe { libc::unshare(flags) })
}

/// Whether the kernel lets this process do `mask` (`R_OK`…) with a path, by its effective ids.
pub(crate) fn may(path: &std::path::Path, wanted: rustix::fs::Access) -> bool {
    rustix::fs::accessat(rustix::fs::CWD, path, wanted, rustix::fs::AtFlags::EACCESS).is_ok()
}

/// The number of a descriptor, for the option that names it.
pub(crate) fn number(fd: &OwnedFd) -> i32 {
    fd.as_raw_fd()
}
