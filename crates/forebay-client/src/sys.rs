//! Clock, randomness and sockets: the only place of this crate that makes system calls.

use crate::sleep;
use forebay_types::Address;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SocketFlags, SocketType, sockopt};
use std::io::{IoSlice, IoSliceMut};
use std::path::Path;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::time::Duration;

use forebay_types::Nanos;
use forebay_wire::hello::BoardAt;
use forebay_wire::session::board::{self, Board};
use forebay_wire::session::gate::Gates;
use forebay_wire::session::stream::{CELLS, Cells};

/// The monotonic clock, which also stamps requests.
pub(crate) fn now() -> Nanos {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    Nanos(t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64)
}

/// Whom this process acts for.
pub(crate) fn user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Sixteen random bytes.
pub(crate) fn random16() -> [u8; 16] {
    let mut out = [0u8; 16];
    let mut done = 0;
    while done < out.len() {
        match rustix::rand::getrandom(&mut out[done..], rustix::rand::GetRandomFlags::empty()) {
            Ok(n) => done += n,
            Err(Errno::INTR) => {}
            Err(_) => {
                // No entropy call: the clock, the process and a stack address make it unique enough
                // for a name; the secret is not made here.
                let seed = now().0 ^ (u64::from(pid()) << 40) ^ (&raw const done as u64);
                out[..8].copy_from_slice(&seed.to_le_bytes());
                return out;
            }
        }
    }
    out
}

/// This process.
pub(crate) fn pid() -> u32 {
    rustix::process::getpid().as_raw_nonzero().get() as u32
}

/// Whether there is a process of that number, whoever's it is.
pub(crate) fn is_alive(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
    pid.is_some_and(|pid| rustix::process::test_kill_process(pid) != Err(Errno::SRCH))
}

/// What the numbers of processes that this one sees are unique in.
pub(crate) fn process_namespace() -> u32 {
    rustix::fs::stat("/proc/self/ns/pid").map_or(0, |s| s.st_ino as u32)
}

/// Maps a file that the processes of a run share, and makes it if none has yet.
///
/// # Safety
/// `T` is made of atomics.
pub(crate) unsafe fn map_file<T>(path: &Path) -> std::io::Result<&'static T> {
    use rustix::fs::{Mode, OFlags};
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC;
    let fd = rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR)?;
    // Whoever else does it at the same time makes it as long as this.
    lengthen(&fd, size_of::<T>() as u64)?;
    // SAFETY: as the caller promises, and the file is as long.
    unsafe { map_shared(&fd) }
}

/// Makes a file as long as that, if it is not yet and this process may: where it may not, the kernel would end the
/// program (`SIGXFSZ`). It never becomes shorter, whoever else does this at the same time.
pub(crate) fn lengthen(fd: impl AsFd, len: u64) -> Result<(), Errno> {
    if rustix::fs::fstat(&fd)?.st_size as u64 >= len {
        return Ok(());
    }
    if longest_file() < len {
        return Err(Errno::FBIG);
    }
    rustix::io::pwrite(fd, &[0], len - 1).map(drop)
}

/// How long this process may make a file.
fn longest_file() -> u64 {
    rustix::process::getrlimit(rustix::process::Resource::Fsize).current.unwrap_or(u64::MAX)
}

/// Makes an empty file, if that is possible.
pub(crate) fn touch(path: &Path) {
    use rustix::fs::{Mode, OFlags};
    let _ =
        rustix::fs::open(path, OFlags::WRONLY | OFlags::CREATE | OFlags::CLOEXEC, Mode::RUSR | Mode::WUSR);
}

/// The words of a file that the processes of a run share, of which the first page is there; if none has made it yet, it
/// becomes `len` bytes long, or as long as this process may make it.
pub(crate) fn map_words(path: &Path, len: u64) -> std::io::Result<&'static [AtomicU64]> {
    use rustix::fs::{FallocateFlags, Mode, OFlags};
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC;
    let fd = rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR)?;
    if rustix::fs::fstat(&fd)?.st_size == 0 {
        lengthen(&fd, len.min(longest_file()).max(1))?;
    }
    let len = rustix::fs::fstat(&fd)?.st_size as usize;
    match rustix::fs::fallocate(&fd, FallocateFlags::empty(), 0, len.min(4096) as u64) {
        Ok(()) | Err(Errno::OPNOTSUPP) => {}
        Err(e) => return Err(e.into()),
    }
    // SAFETY: page-aligned and as long as the file, which never becomes shorter; every bit pattern is a value of an
    // atomic.
    unsafe { Ok(std::slice::from_raw_parts(map_bytes(&fd, len)?.cast(), len / size_of::<AtomicU64>())) }
}

/// Has the disk keep room for a part of a file, all of which is within its length: so that no limit is passed. A file
/// system that knows of no such thing is let have it.
pub(crate) fn reserve(path: &Path, part: std::ops::Range<u64>) -> bool {
    use rustix::fs::{FallocateFlags, Mode, OFlags};
    let Ok(fd) = rustix::fs::open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()) else { return false };
    let made = rustix::fs::fallocate(&fd, FallocateFlags::empty(), part.start, part.end - part.start);
    matches!(made, Ok(()) | Err(Errno::OPNOTSUPP))
}

/// The gates of a run's mounts, in a file that its processes share.
pub fn gates_at(path: &Path) -> std::io::Result<&'static Gates> {
    // SAFETY: they are made of atomics.
    unsafe { map_file(path) }
}

/// This machine's name.
pub fn hostname() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Sleeps, as long as no signal comes.
pub(crate) fn nap(d: Duration) -> Result<(), Errno> {
    sleep::begins(None);
    let t = rustix::time::Timespec { tv_sec: d.as_secs() as i64, tv_nsec: i64::from(d.subsec_nanos()) };
    match rustix::thread::nanosleep(&t) {
        rustix::thread::NanosleepRelativeResult::Ok => Ok(()),
        rustix::thread::NanosleepRelativeResult::Interrupted(_) => Err(Errno::INTR),
        rustix::thread::NanosleepRelativeResult::Err(e) => Err(e),
    }
}

/// The mount that the run's directory is on, as it was when this process was started; 0 is unknown.
static MOUNT: AtomicU64 = AtomicU64::new(0);

fn mount_of(dir: &Path) -> Option<u64> {
    use rustix::fs::{AtFlags, CWD, StatxFlags};
    rustix::fs::statx(CWD, dir, AtFlags::empty(), StatxFlags::MNT_ID).ok().map(|s| s.stx_mnt_id)
}

/// Notes which mount the run's directory is on.
pub fn remember_mount(dir: &Path) {
    MOUNT.store(dir.parent().and_then(mount_of).unwrap_or(0), Ordering::Relaxed);
}

/// Whether something was mounted over the directory that `socket` is in: a program makes a tree of its own for
/// another one. No waiting uncovers it.
pub(crate) fn is_covered(socket: &Path) -> bool {
    let before = MOUNT.load(Ordering::Relaxed);
    let above = socket.ancestors().skip(1).find_map(mount_of);
    before != 0 && socket.parent().is_some_and(|dir| mount_of(dir).is_none()) && above != Some(before)
}

/// Connects within `limit`. The descriptor is close-on-exec and above the numbers programs use.
pub(crate) fn connect(address: &Address, limit: Duration) -> Result<OwnedFd, Errno> {
    sleep::begins(None);
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let fd = match address {
        Address::Tcp(a) => {
            let family = if a.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
            let fd = net::socket_with(family, SocketType::STREAM, flags, None)?;
            sockopt::set_tcp_nodelay(&fd, true)?;
            finish_connect(&fd, net::connect(&fd, a), limit)?;
            fd
        }
        Address::Unix(path) => {
            let fd = net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
            let a = net::SocketAddrUnix::new(path.as_path())?;
            let until = now() + limit.into();
            loop {
                match net::connect(&fd, &a) {
                    // Here this means that the node's queue of new connections is full.
                    Err(Errno::AGAIN) if now() < until => {
                        let _ = nap(Duration::from_millis(1));
                    }
                    Err(Errno::AGAIN) => return Err(Errno::TIMEDOUT),
                    Err(Errno::INTR) => {}
                    Ok(()) | Err(Errno::ISCONN) => break,
                    Err(e) => return Err(e),
                }
            }
            fd
        }
    };
    rustix::io::ioctl_fionbio(&fd, false)?;
    Ok(out_of_the_way(fd))
}

fn finish_connect(fd: &OwnedFd, started: Result<(), Errno>, limit: Duration) -> Result<(), Errno> {
    match started {
        Ok(()) => return Ok(()),
        Err(Errno::INPROGRESS | Errno::INTR) => {}
        Err(e) => return Err(e),
    }
    let until = now() + limit.into();
    loop {
        let left = Duration::from(until.since(now()));
        let t =
            rustix::time::Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
        let mut fds = [rustix::event::PollFd::new(fd, rustix::event::PollFlags::OUT)];
        match rustix::event::poll(&mut fds, Some(&t)) {
            Ok(0) => return Err(Errno::TIMEDOUT),
            Ok(_) => return sockopt::socket_error(fd)?,
            // A signal says nothing about the node.
            Err(Errno::INTR) => {}
            Err(e) => return Err(e),
        }
    }
}

/// Gives a descriptor that is known by its number only another one.
pub(crate) fn move_descriptor(fd: i32) -> Option<i32> {
    // SAFETY: the caller owns the number; it is closed here once it has a successor.
    let old = unsafe { rustix::fd::BorrowedFd::borrow_raw(fd) };
    let new = rustix::io::fcntl_dupfd_cloexec(old, fd + 1).ok()?;
    close(fd);
    Some(rustix::fd::IntoRawFd::into_raw_fd(new))
}

/// The number of the inode behind a descriptor; 0 if there is none.
pub(crate) fn inode_of(fd: i32) -> u64 {
    // SAFETY: it is only asked about; whatever it is, it stays open meanwhile or the answer is an error.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    rustix::fs::fstat(fd).map_or(0, |stat| stat.st_ino)
}

/// Closes a descriptor that is known by its number only.
pub(crate) fn close(fd: i32) {
    // SAFETY: the caller owns the number and forgets it.
    unsafe { rustix::io::close(fd) };
}

/// Where descriptors begin that are not the program's: programs expect small numbers for their own
/// files, and some close or reuse the ones just above 2.
pub fn high_descriptor() -> i32 {
    let soft = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(1024);
    i32::try_from(soft.min(1 << 20)).unwrap_or(1024) * 3 / 4
}

fn out_of_the_way(fd: OwnedFd) -> OwnedFd {
    rustix::io::fcntl_dupfd_cloexec(&fd, high_descriptor()).unwrap_or(fd)
}

/// How long a single send or receive may block before it returns `EAGAIN`.
pub(crate) fn set_timeouts(fd: &OwnedFd, d: Duration) -> Result<(), Errno> {
    sockopt::set_socket_timeout(fd, sockopt::Timeout::Recv, Some(d))?;
    sockopt::set_socket_timeout(fd, sockopt::Timeout::Send, Some(d))
}

/// One send of several pieces.
pub(crate) fn send(fd: &OwnedFd, pieces: &[IoSlice<'_>]) -> Result<usize, Errno> {
    net::sendmsg(fd, pieces, &mut net::SendAncillaryBuffer::default(), net::SendFlags::NOSIGNAL)
}

/// One receive into several pieces; 0 is the end. By the call that has the kernel copy least: `recvmsg` asks who has
/// sent it, too.
pub(crate) fn receive(fd: impl AsFd, pieces: &mut [IoSliceMut<'_>]) -> Result<usize, Errno> {
    rustix::io::readv(fd, pieces)
}

/// The same, but only what is there already: otherwise `EAGAIN`.
pub(crate) fn receive_now(fd: impl AsFd, pieces: &mut [IoSliceMut<'_>]) -> Result<usize, Errno> {
    let now = net::RecvFlags::DONTWAIT;
    if let [piece] = pieces {
        return net::recv(fd, &mut piece[..], now).map(|(n, _)| n);
    }
    net::recvmsg(fd, pieces, &mut net::RecvAncillaryBuffer::default(), now).map(|r| r.bytes)
}

/// How many processors this thread may run on.
pub(crate) fn processors() -> usize {
    rustix::thread::sched_getaffinity(None).map_or(1, |set| set.count() as usize)
}

/// How many threads of the whole machine run or want to.
pub(crate) fn running() -> Option<usize> {
    use rustix::fs::{Mode, OFlags};
    let fd = rustix::fs::open(c"/proc/loadavg", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let mut text = [0u8; 64];
    let n = rustix::io::read(&fd, &mut text[..]).ok()?;
    // `0.20 0.18 0.12 1/80 11206`
    let field = text[..n].split(|b| *b == b' ').nth(3)?;
    let number = field.split(|b| *b == b'/').next()?;
    std::str::from_utf8(number).ok()?.parse().ok()
}

/// Whether the other end has closed the connection, or it broke: nothing can be sent on it any more.
pub(crate) fn is_closed(fd: &OwnedFd) -> bool {
    let mut byte = [0u8; 1];
    let how = net::RecvFlags::PEEK | net::RecvFlags::DONTWAIT;
    match net::recv(fd, &mut byte[..], how) {
        Ok((n, _)) => n == 0,
        Err(Errno::AGAIN | Errno::INTR) => false,
        Err(_) => true,
    }
}

/// Holds this thread's signals back while it lives.
pub(crate) struct HeldSignals {
    before: u64,
}

impl HeldSignals {
    pub(crate) fn new() -> HeldSignals {
        HeldSignals { before: signal_mask(u64::MAX) }
    }
}

impl Drop for HeldSignals {
    fn drop(&mut self) {
        signal_mask(self.before);
    }
}

/// Sets the thread's signal mask and returns the one before. Without the C library, whose functions may
/// be replaced by ones that end up here.
#[cfg(target_arch = "x86_64")]
fn signal_mask(mask: u64) -> u64 {
    let mut before = 0u64;
    // SAFETY: rt_sigprocmask(SIG_SETMASK) with two masks of eight bytes, which is the kernel's size.
    unsafe {
        std::arch::asm!(
            "syscall",
            inlateout("rax") libc::SYS_rt_sigprocmask => _,
            in("rdi") libc::SIG_SETMASK,
            in("rsi") &raw const mask,
            in("rdx") &raw mut before,
            in("r10") 8usize,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    before
}

#[cfg(not(target_arch = "x86_64"))]
fn signal_mask(mask: u64) -> u64 {
    let mut before = 0u64;
    // SAFETY: as above.
    unsafe {
        libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, &raw const mask, &raw mut before, 8usize);
    }
    before
}
/// What several processes share in a file, for as long as this one lives.
///
/// # Safety
/// `T` is made of atomics alone, and the file is at least as long.
pub(crate) unsafe fn map_shared<T>(fd: &impl rustix::fd::AsFd) -> std::io::Result<&'static T> {
    let len = size_of::<T>();
    // A disk that is full when a page is first used would end whoever uses it.
    if (rustix::fs::fstat(fd)?.st_blocks as u64) * 512 < len as u64 {
        match rustix::fs::fallocate(fd, rustix::fs::FallocateFlags::empty(), 0, len as u64) {
            Ok(()) | Err(Errno::OPNOTSUPP) => {}
            Err(e) => return Err(e.into()),
        }
    }
    // SAFETY: a mapping of the whole struct, page-aligned, never unmapped; every bit pattern is a value of an atomic.
    unsafe { Ok(&*map_bytes(fd, len)?.cast::<T>()) }
}

/// A fresh mapping of a file's first bytes, which is never undone.
fn map_bytes(fd: &impl AsFd, len: usize) -> std::io::Result<*const std::ffi::c_void> {
    use rustix::mm::{MapFlags, ProtFlags, mmap};
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: at an address of the kernel's choice it touches nobody's memory.
    Ok(unsafe { mmap(std::ptr::null_mut(), len, access, MapFlags::SHARED, fd, 0)? })
}

/// Memory of this process that another one may be shown: [`Cells`], and a ring behind them.
#[derive(Debug)]
pub(crate) struct Area {
    start: std::ptr::NonNull<u8>,
    len: usize,
}

// SAFETY: an `Area` owns its mapping; nothing about it is tied to a thread.
unsafe impl Send for Area {}

impl Area {
    /// `len` bytes that can become no fewer, and the descriptor by which another process finds them; none where this
    /// process may not make a file as long.
    pub(crate) fn new(len: usize) -> Result<(Area, OwnedFd), Errno> {
        use rustix::fs::{MemfdFlags, SealFlags};
        use rustix::mm::{MapFlags, ProtFlags, mmap};
        if longest_file() < len as u64 {
            return Err(Errno::FBIG);
        }
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let fd = out_of_the_way(rustix::fs::memfd_create(c"forebay", flags)?);
        rustix::fs::ftruncate(&fd, len as u64)?;
        rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW)?;
        // SAFETY: a fresh mapping at an address of the kernel's choice touches nobody's memory.
        let start = unsafe {
            let access = ProtFlags::READ | ProtFlags::WRITE;
            mmap(std::ptr::null_mut(), len, access, MapFlags::SHARED, &fd, 0)?
        };
        let start = std::ptr::NonNull::new(start.cast()).ok_or(Errno::NOMEM)?;
        Ok((Area { start, len }, fd))
    }

    pub(crate) fn cells(&self) -> &Cells {
        // SAFETY: page-aligned, at least a page long; atomics, for which every bit pattern is valid and which
        // others may change meanwhile.
        unsafe { self.start.cast::<Cells>().as_ref() }
    }

    fn within(&self, part: &std::ops::Range<usize>, len: usize) -> bool {
        part.len() == len && part.end <= self.len.saturating_sub(CELLS)
    }

    /// Puts bytes into the ring.
    pub(crate) fn put(&self, part: std::ops::Range<usize>, bytes: &[u8]) {
        assert!(self.within(&part, bytes.len()));
        // SAFETY: within the mapping, as was just checked; who else has it does not look at this part yet.
        unsafe {
            let to = self.start.as_ptr().add(CELLS + part.start);
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len());
        }
    }

    /// Puts bytes at the beginning of the ring, as the kernel sees them: whether all of them are there.
    pub(crate) fn put_by_kernel(&self, bytes: &[u8]) -> bool {
        assert!(self.within(&(0..bytes.len()), bytes.len()));
        // SAFETY: within the mapping, as was just checked; who else has it does not look at it yet. The kernel reads
        // only what this process has.
        let copied = unsafe {
            let to = libc::iovec { iov_base: self.start.as_ptr().add(CELLS).cast(), iov_len: bytes.len() };
            let from = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
            libc::process_vm_readv(pid() as i32, &raw const to, 1, &raw const from, 1, 0)
        };
        usize::try_from(copied) == Ok(bytes.len())
    }

    /// Forked processes do not have it.
    pub(crate) fn keep_from_children(&self) {
        // SAFETY: the mapping's own range; no content changes.
        let _ = unsafe {
            rustix::mm::madvise(self.start.as_ptr().cast(), self.len, rustix::mm::Advice::LinuxDontFork)
        };
    }

    /// What a part of the ring holds.
    pub(crate) fn get(&self, part: std::ops::Range<usize>) -> Vec<u8> {
        assert!(self.within(&part, part.len()));
        // SAFETY: within the mapping, as was just checked; nobody else writes there.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr().add(CELLS + part.start), part.len()) }
            .to_vec()
    }
}

/// A board, or none yet.
#[derive(Debug, Default)]
pub(crate) struct BoardCell(AtomicPtr<Board>);

impl BoardCell {
    pub(crate) fn get(&self) -> Option<&'static Board> {
        // SAFETY: null, or what `set` was given.
        unsafe { self.0.load(Ordering::Acquire).as_ref() }
    }

    pub(crate) fn set(&self, board: Option<&'static Board>) {
        let board = board.map_or(std::ptr::null_mut(), |board| std::ptr::from_ref(board).cast_mut());
        self.0.store(board, Ordering::Release);
    }
}

/// The board of the node process at the other end of `socket`, for as long as this process lives.
pub(crate) fn board(socket: BorrowedFd<'_>, at: BoardAt) -> Option<&'static Board> {
    use rustix::fs::{Mode, OFlags};
    use rustix::mm::{MapFlags, ProtFlags, mmap};
    let peer = rustix::net::sockopt::socket_peercred(socket).ok()?;
    let name = format!("/proc/{}/fd/{}", peer.pid.as_raw_nonzero(), at.fd);
    let how = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let memory = rustix::fs::open(name, how, Mode::empty()).ok()?;
    // Otherwise looking at it could be the end of this process.
    let sealed = rustix::fs::fcntl_get_seals(&memory).ok()?.contains(rustix::fs::SealFlags::SHRINK);
    if !sealed || rustix::fs::fstat(&memory).ok()?.st_size != board::LEN as i64 {
        return None;
    }
    // SAFETY: a fresh mapping at an address of the kernel's choice touches nobody's memory.
    let start = unsafe {
        mmap(std::ptr::null_mut(), board::LEN, ProtFlags::READ, MapFlags::SHARED, &memory, 0).ok()?
    };
    // SAFETY: page-aligned, long enough and never unmapped; atomics, for which every bit pattern is valid and
    // which this process only loads.
    let board = unsafe { std::ptr::NonNull::new(start.cast::<Board>())?.as_ref() };
    (board.nonce.load(Ordering::SeqCst) == at.nonce).then_some(board)
}

impl Drop for Area {
    fn drop(&mut self) {
        // SAFETY: the mapping is owned and no borrow of it can outlive it.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.len) };
    }
}
