//! System calls that need `unsafe` or that rustix does not have: page-aligned and shared memory,
//! open-file-description locks, file handles, signals, and ([`acting`]) whom a thread acts as. Every other call goes through rustix where it is used.

pub(crate) mod acting;

use forebay_types::Nanos;
use forebay_wire::session::board::{self, Board};
use forebay_wire::session::ledger::Entry;
use forebay_wire::session::stream::{CELLS, Cells};
use rustix::fd::{AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};
use rustix::time::ClockId;
use std::ptr::NonNull;

/// The page size that buffers are aligned to.
pub(crate) const PAGE: usize = 4096;

fn clock(id: ClockId) -> Nanos {
    let t = rustix::time::clock_gettime(id);
    // Neither clock is ever negative on a machine that runs.
    Nanos(t.tv_sec.unsigned_abs() * 1_000_000_000 + t.tv_nsec.unsigned_abs())
}

/// Closes a descriptor: that alone makes file systems that keep writes back on this host (NFS, FUSE) say what
/// has become of them.
pub(crate) fn close(fd: OwnedFd) -> Result<(), Errno> {
    // SAFETY: it was owned, and is not used after this.
    match unsafe { libc::close(fd.into_raw_fd()) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error().raw_os_error().map_or(Errno::IO, Errno::from_raw_os_error)),
    }
}

/// Whether what goes over this socket stays on this host.
pub(crate) fn is_local(socket: BorrowedFd<'_>) -> bool {
    rustix::net::getsockname(socket)
        .is_ok_and(|name| name.address_family() == rustix::net::AddressFamily::UNIX)
}

/// The monotonic clock: leases, latencies, time-outs.
pub(crate) fn now() -> Nanos {
    clock(ClockId::Monotonic)
}

/// Time since the Unix epoch: what schedulers on several nodes agree on.
pub(crate) fn wall_clock() -> Nanos {
    clock(ClockId::Realtime)
}

/// From the monotonic clock to [`wall_clock`], as it is now. Of several readings the one in which the
/// least time passed counts.
pub(crate) fn epoch() -> u64 {
    let reading = |_| {
        let (before, wall, after) = (now(), wall_clock(), now());
        let span = after.since(before).0;
        (span, wall.0.saturating_sub(before.0 + span / 2))
    };
    (0..4).map(reading).min().map_or(0, |(_, epoch)| epoch)
}

/// Sleeps until the monotonic clock says `at`.
pub(crate) fn sleep_until(at: Nanos) {
    let to = rustix::time::Timespec {
        tv_sec: (at.0 / 1_000_000_000) as i64,
        tv_nsec: (at.0 % 1_000_000_000) as i64,
    };
    while now() < at {
        // A signal only wakes it early.
        let _ = rustix::thread::clock_nanosleep_absolute(ClockId::Monotonic, &to);
    }
}

/// Has this thread's timers go off when they are due, not up to 50 µs later.
pub(crate) fn precise_timers() {
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
}

/// Anonymous memory, page-aligned, zero until written; pages take room only once touched.
#[derive(Debug)]
pub(crate) struct Map {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: a `Map` owns its memory; nothing about it is tied to a thread.
unsafe impl Send for Map {}
// SAFETY: shared access only reads (`Deref`), writing takes `&mut`.
unsafe impl Sync for Map {}

impl Map {
    /// Maps `len` bytes.
    pub(crate) fn new(len: usize) -> Result<Map, Errno> {
        // SAFETY: a fresh private mapping at an address of the kernel's choice touches nobody's memory.
        let start = unsafe {
            rustix::mm::mmap_anonymous(
                std::ptr::null_mut(),
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )?
        };
        NonNull::new(start.cast()).map(|start| Map { start, len }).ok_or(Errno::NOMEM)
    }

    /// Gives the pages back to the kernel; the content becomes zeros.
    pub(crate) fn discard(&mut self) {
        // SAFETY: the range is this mapping's own, and `&mut self` says nobody looks at it.
        let _ = unsafe { rustix::mm::madvise(self.start.as_ptr().cast(), self.len, Advice::LinuxDontNeed) };
    }
}

impl std::ops::Deref for Map {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: `start` points to `len` mapped, initialised (zeroed by the kernel) bytes.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl std::ops::DerefMut for Map {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and `&mut self` makes the access exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: the mapping is owned and no borrow of it can outlive it.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.len) };
    }
}

/// Memory that other processes can see: a file's content, or nobody else's.
#[derive(Debug)]
pub(crate) struct SharedMap {
    start: NonNull<Entry>,
    len: usize,
}

// SAFETY: a `SharedMap` owns its mapping; nothing about it is tied to a thread.
unsafe impl Send for SharedMap {}
// SAFETY: it is only ever looked at as atomics.
unsafe impl Sync for SharedMap {}

impl SharedMap {
    /// The first `len` bytes of a file, which has as many and keeps them.
    pub(crate) fn of_file(file: BorrowedFd<'_>, len: usize) -> Result<SharedMap, Errno> {
        // SAFETY: a fresh mapping at an address of the kernel's choice touches nobody's memory.
        let start = unsafe {
            let access = ProtFlags::READ | ProtFlags::WRITE;
            rustix::mm::mmap(std::ptr::null_mut(), len, access, MapFlags::SHARED, file, 0)?
        };
        NonNull::new(start.cast()).map(|start| SharedMap { start, len }).ok_or(Errno::NOMEM)
    }

    /// `len` bytes of this process's own.
    pub(crate) fn anonymous(len: usize) -> Result<SharedMap, Errno> {
        let map = std::mem::ManuallyDrop::new(Map::new(len)?);
        Ok(SharedMap { start: map.start.cast(), len })
    }
}

impl AsRef<[Entry]> for SharedMap {
    fn as_ref(&self) -> &[Entry] {
        // SAFETY: `start` is page-aligned and points to `len` mapped bytes; an entry is made of atomics,
        // for which every bit pattern is valid and which others may change meanwhile.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len / size_of::<Entry>()) }
    }
}

impl Drop for SharedMap {
    fn drop(&mut self) {
        // SAFETY: the mapping is owned and no borrow of it can outlive it.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.len) };
    }
}

/// This node's [`Board`], in memory that clients of its host may map.
#[derive(Debug)]
pub(crate) struct BoardMap {
    start: NonNull<Board>,
    /// By which others find it.
    fd: OwnedFd,
}

// SAFETY: a `BoardMap` owns its mapping; nothing about it is tied to a thread.
unsafe impl Send for BoardMap {}
// SAFETY: a board is made of atomics.
unsafe impl Sync for BoardMap {}

impl BoardMap {
    pub(crate) fn new() -> Result<BoardMap, Errno> {
        use rustix::fs::{MemfdFlags, SealFlags};
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let fd = rustix::fs::memfd_create(c"forebay-board", flags)?;
        rustix::fs::ftruncate(&fd, board::LEN as u64)?;
        rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW)?;
        // SAFETY: a fresh mapping at an address of the kernel's choice touches nobody's memory.
        let start = unsafe {
            let access = ProtFlags::READ | ProtFlags::WRITE;
            rustix::mm::mmap(std::ptr::null_mut(), board::LEN, access, MapFlags::SHARED, &fd, 0)?
        };
        Ok(BoardMap { start: NonNull::new(start.cast()).ok_or(Errno::NOMEM)?, fd })
    }

    pub(crate) fn at(&self) -> i32 {
        self.fd.as_raw_fd()
    }
}

impl std::ops::Deref for BoardMap {
    type Target = Board;
    fn deref(&self) -> &Board {
        // SAFETY: page-aligned and long enough; atomics, for which every bit pattern is valid.
        unsafe { self.start.as_ref() }
    }
}

impl Drop for BoardMap {
    fn drop(&mut self) {
        // SAFETY: the mapping is owned and no borrow of it can outlive it.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), board::LEN) };
    }
}

/// Memory of a client on this host, for one open file: [`Cells`], and a ring where it writes.
#[derive(Debug)]
pub(crate) struct ClientMap {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: a `ClientMap` owns its mapping; nothing about it is tied to a thread.
unsafe impl Send for ClientMap {}
// SAFETY: the cells are atomics, and the ring is only given to the kernel.
unsafe impl Sync for ClientMap {}

impl ClientMap {
    /// The memory behind `fd` of the process at the other end of `socket`: of this user, on this host, `len`
    /// bytes that cannot become fewer.
    pub(crate) fn open(socket: BorrowedFd<'_>, fd: i32, len: usize) -> Result<ClientMap, Errno> {
        let mut peer = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
        let mut size = size_of::<libc::ucred>() as libc::socklen_t;
        // SAFETY: `peer` has room for what is asked for, and `size` says how much.
        let asked = unsafe {
            let (level, option) = (libc::SOL_SOCKET, libc::SO_PEERCRED);
            libc::getsockopt(socket.as_raw_fd(), level, option, (&raw mut peer).cast(), &raw mut size)
        };
        if asked != 0 || peer.pid <= 0 || peer.uid != rustix::process::geteuid().as_raw() {
            return Err(Errno::PERM);
        }
        let how = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::CLOEXEC | rustix::fs::OFlags::NONBLOCK;
        let memory = rustix::fs::open(format!("/proc/{}/fd/{fd}", peer.pid), how, rustix::fs::Mode::empty())?;
        // Otherwise looking at it could be the end of this process.
        let sealed = rustix::fs::fcntl_get_seals(&memory)?.contains(rustix::fs::SealFlags::SHRINK);
        if !sealed || rustix::fs::fstat(&memory)?.st_size != len as i64 {
            return Err(Errno::INVAL);
        }
        // SAFETY: a fresh mapping at an address of the kernel's choice touches nobody's memory.
        let start = unsafe {
            let access = ProtFlags::READ | ProtFlags::WRITE;
            rustix::mm::mmap(std::ptr::null_mut(), len, access, MapFlags::SHARED, &memory, 0)?
        };
        NonNull::new(start.cast()).map(|start| ClientMap { start, len }).ok_or(Errno::NOMEM)
    }

    pub(crate) fn cells(&self) -> &Cells {
        // SAFETY: page-aligned, at least a page long; atomics, for which every bit pattern is valid and which
        // others may change meanwhile.
        unsafe { self.start.cast::<Cells>().as_ref() }
    }

    /// A part of the ring, to be given to the kernel: its client does not change it before it was taken, and
    /// harms nobody but itself if it does.
    pub(crate) fn ring(&self, part: std::ops::Range<usize>) -> &[u8] {
        let within = part.start <= part.end && part.end <= self.len - CELLS;
        let (at, len) = if within { (part.start, part.len()) } else { (0, 0) };
        // SAFETY: within the mapping, as was just checked.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr().add(CELLS + at), len) }
    }
}

impl ClientMap {
    /// A copy of a part of the ring, which is nobody else's.
    pub(crate) fn copy(&self, part: std::ops::Range<usize>) -> Vec<u8> {
        let within = part.start <= part.end && part.end <= self.len - CELLS;
        let (at, len) = if within { (part.start, part.len()) } else { (0, 0) };
        let mut own = Vec::with_capacity(len);
        // SAFETY: within the mapping, as was just checked.
        let from = unsafe { self.start.as_ptr().add(CELLS + at) };
        let words = from.align_offset(size_of::<u64>()).min(len);
        let tail = words + (len - words) / size_of::<u64>() * size_of::<u64>();
        // SAFETY: each is within the mapping. The client may write there meanwhile: every byte is read once, as it
        // is, and nothing is concluded from it before it is in memory of this process.
        unsafe {
            (0..words).for_each(|i| own.push(from.add(i).read_volatile()));
            for i in (words..tail).step_by(size_of::<u64>()) {
                own.extend_from_slice(&from.add(i).cast::<u64>().read_volatile().to_ne_bytes());
            }
            (tail..len).for_each(|i| own.push(from.add(i).read_volatile()));
        }
        own
    }
}

impl Drop for ClientMap {
    fn drop(&mut self) {
        // SAFETY: the mapping is owned and no borrow of it can outlive it.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.len) };
    }
}

/// The kernel's handle of a file: it has the inode's generation, and so no other file ever has the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(C)]
pub(crate) struct FileHandle {
    len: u32,
    kind: i32,
    bytes: [u8; 128],
}

impl FileHandle {
    /// Where the file system gives one.
    pub(crate) fn of(fd: BorrowedFd<'_>) -> Option<FileHandle> {
        let mut handle = FileHandle { len: 128, kind: 0, bytes: [0; 128] };
        let mut mount: libc::c_int = 0;
        // SAFETY: the name is a C string; `handle` says how long it is, and both are valid to write to.
        let result = unsafe {
            libc::syscall(
                libc::SYS_name_to_handle_at,
                fd.as_raw_fd(),
                c"".as_ptr(),
                &raw mut handle,
                &raw mut mount,
                libc::AT_EMPTY_PATH,
            )
        };
        (result == 0).then_some(handle)
    }
}

/// A lock as `fcntl` wants it: kind (`F_RDLCK`…), first byte, number of bytes (0: to the end).
pub(crate) type RawLock = (i32, i64, i64);

fn ofd(fd: BorrowedFd<'_>, command: i32, lock: RawLock) -> Result<libc::flock, Errno> {
    // SAFETY: `flock` is plain data, all zeros is valid.
    let mut arg: libc::flock = unsafe { std::mem::zeroed() };
    arg.l_type = lock.0 as libc::c_short;
    arg.l_whence = libc::SEEK_SET as libc::c_short;
    (arg.l_start, arg.l_len) = (lock.1, lock.2);
    // SAFETY: the descriptor is open for the call and `arg` is a valid `flock` for it to read and fill.
    let result = unsafe { libc::fcntl(fd.as_raw_fd(), command, &raw mut arg) };
    if result == -1 { Err(last_error()) } else { Ok(arg) }
}

fn last_error() -> Errno {
    std::io::Error::last_os_error().raw_os_error().map_or(Errno::IO, Errno::from_raw_os_error)
}

/// Takes or releases a lock that belongs to the open file, without waiting.
pub(crate) fn ofd_set(fd: BorrowedFd<'_>, lock: RawLock) -> Result<(), Errno> {
    ofd(fd, libc::F_OFD_SETLK, lock).map(drop)
}

/// The lock that keeps `lock` from being taken, if there is one.
pub(crate) fn ofd_get(fd: BorrowedFd<'_>, lock: RawLock) -> Result<Option<RawLock>, Errno> {
    let found = ofd(fd, libc::F_OFD_GETLK, lock)?;
    let kind = i32::from(found.l_type);
    Ok((kind != libc::F_UNLCK).then_some((kind, found.l_start, found.l_len)))
}

/// Without an interrupt that whoever started this process had it ignore: a shell's background jobs do not end by one that is
/// meant for others.
fn termination() -> libc::sigset_t {
    // SAFETY: a signal set and an action are plain data, and the calls fill in the one they are given.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGTERM);
        let mut now: libc::sigaction = std::mem::zeroed();
        libc::sigaction(libc::SIGINT, std::ptr::null(), &raw mut now);
        if now.sa_sigaction != libc::SIG_IGN {
            libc::sigaddset(&raw mut set, libc::SIGINT);
        }
        set
    }
}

/// Blocks SIGTERM and SIGINT in this thread and those it starts, so that [`wait_for_termination`]
/// gets them.
pub(crate) fn block_termination() {
    let set = termination();
    // SAFETY: `set` is a valid set; no old set is asked for.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) };
}

/// A file that would become larger than the process may write is an error to its client, not the
/// end of the node.
pub(crate) fn ignore_file_size_signal() {
    // SAFETY: ignoring a signal installs no handler.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

/// What clients write is within their own limits: this process may make files as long as it can be allowed to.
pub(crate) fn raise_file_size_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let maximum = getrlimit(Resource::Fsize).maximum;
    let _ = setrlimit(Resource::Fsize, Rlimit { current: maximum, maximum });
}

/// How long this process may make a file.
pub(crate) fn longest_file() -> u64 {
    rustix::process::getrlimit(rustix::process::Resource::Fsize).current.unwrap_or(u64::MAX)
}

/// Whoever started this process, and ends it with itself.
static PARENT: std::sync::OnceLock<Option<rustix::process::Pid>> = std::sync::OnceLock::new();

/// Whether that one has ended: nobody is there any more for whom anything is to be brought to its end.
pub(crate) fn orphaned() -> bool {
    PARENT.get().is_some_and(|parent| rustix::process::getppid() != *parent)
}

/// Has the process ended by SIGTERM when the thread that started it ends.
pub fn die_with_parent() -> std::io::Result<()> {
    let parent = rustix::process::getppid();
    let _ = PARENT.set(parent);
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::TERM))?;
    // It may have ended before it was asked for.
    if rustix::process::getppid() != parent {
        return Err(std::io::Error::other("the parent process has ended"));
    }
    Ok(())
}

/// A descriptor that was passed on to this process for it to own. The standard ones are not.
pub(crate) fn own_descriptor(fd: i32) -> std::io::Result<OwnedFd> {
    if fd <= 2 {
        return Err(std::io::Error::other("give a descriptor of its own"));
    }
    // SAFETY: the caller passed this descriptor on for us to own; nothing here uses the number
    // otherwise, since descriptors opened by this process are other ones.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Whether a path is that of a socket itself.
pub(crate) fn is_socket(path: &std::path::Path) -> bool {
    use std::os::unix::fs::FileTypeExt;
    path.symlink_metadata().is_ok_and(|m| m.file_type().is_socket())
}

/// Waits until SIGTERM or SIGINT comes, and says which.
pub(crate) fn wait_for_termination() -> i32 {
    let set = termination();
    let mut signal = 0;
    // SAFETY: both pointers are to valid locals.
    while unsafe { libc::sigwait(&raw const set, &raw mut signal) } != 0 {}
    signal
}

/// Fills `out` with random numbers.
pub(crate) fn getrandom(out: &mut [u8]) -> Result<(), Errno> {
    let n = rustix::rand::getrandom(&mut *out, rustix::rand::GetRandomFlags::empty())?;
    if n == out.len() { Ok(()) } else { Err(Errno::IO) }
}

/// Those that have come, and nobody has waited for, count no more.
pub(crate) fn forget_termination() {
    let (set, at_once) = (termination(), libc::timespec { tv_sec: 0, tv_nsec: 0 });
    // SAFETY: the pointers are to valid locals; what else is known of the signal is not asked for.
    while unsafe { libc::sigtimedwait(&raw const set, std::ptr::null_mut(), &raw const at_once) } > 0 {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_clients_write_is_copied_whole() {
        use rustix::fs::{MemfdFlags, SealFlags};
        use rustix::net::{AddressFamily, SocketFlags, SocketType};
        let (ours, _theirs) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
                .unwrap();
        let memory =
            rustix::fs::memfd_create(c"test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        let bytes: Vec<u8> = (0..200).collect();
        rustix::fs::ftruncate(&memory, (CELLS + bytes.len()) as u64).unwrap();
        rustix::io::pwrite(&memory, &bytes, CELLS as u64).unwrap();
        let open =
            || ClientMap::open(std::os::fd::AsFd::as_fd(&ours), memory.as_raw_fd(), CELLS + bytes.len());
        assert!(open().is_err(), "it could become shorter");
        rustix::fs::fcntl_add_seals(&memory, SealFlags::SHRINK).unwrap();
        let map = open().unwrap();
        for from in 0..20 {
            for to in from..bytes.len() {
                assert_eq!(map.copy(from..to), bytes[from..to], "{from}..{to}");
            }
        }
        assert!(map.copy(100..201).is_empty() && map.copy(usize::MAX - 1..usize::MAX).is_empty());
    }

    #[test]
    fn maps_are_aligned_and_zero_again_after_discard() {
        let mut m = Map::new(3 * PAGE).unwrap();
        assert_eq!(m.as_ptr() as usize % PAGE, 0);
        m.fill(7);
        m.discard();
        assert!(m.iter().all(|&b| b == 0));
    }
}
