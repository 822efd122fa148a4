//! The thread that reads a request from the kernel carries it out and answers it. While it waits for an
//! I/O node another one reads ([`crate::turn`]), so that the kernel is always heard.

use crate::abi::{self, InHeader, InitIn, InitOut, Opcode, OutHeader, init};
use crate::fs::{Asked, Contract, Fs, Outcome, Reply, Rest};
use crate::sys;
use crate::turn::{self, Turn};
use forebay_client::Watch;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use std::io::IoSlice;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use zerocopy::{FromBytes, IntoBytes};

/// The largest read or write of one request.
const MAX_TRANSFER: usize = 1 << 20;
/// A request's header and arguments before its data.
const HEAD: usize = 4096;
/// As many requests as can be under way at once; those that wait for locks are not counted.
const MOST_THREADS: usize = 64;
/// What moves as much as this takes a while: another thread reads meanwhile.
const LARGE: usize = 128 << 10;
const STACK: usize = 512 << 10;

/// A connection to the kernel and what serves it.
pub(crate) struct Server {
    device: OwnedFd,
    fs: Fs,
    pub(crate) turn: Turn,
    threads: AtomicUsize,
    ready: AtomicBool,
    ended: Mutex<bool>,
    end: Condvar,
    /// Requests that are being carried out, and whose they are.
    under_way: Mutex<Vec<(u64, u32)>>,
}

impl Server {
    /// Serves `device` until it is unmounted.
    pub(crate) fn start(device: OwnedFd, fs: Fs) -> std::io::Result<Arc<Server>> {
        forebay_client::before_sleep(turn::before_sleep);
        rustix::io::ioctl_fionbio(&device, true)?;
        fs.heard_at(device.try_clone()?);
        let server = Arc::new(Server {
            device,
            fs,
            turn: Turn::default(),
            threads: AtomicUsize::new(0),
            ready: AtomicBool::new(false),
            ended: Mutex::new(false),
            end: Condvar::new(),
            under_way: Mutex::new(Vec::with_capacity(MOST_THREADS)),
        });
        server.one_more()?;
        Ok(server)
    }

    pub(crate) fn device(&self) -> BorrowedFd<'_> {
        self.device.as_fd()
    }

    /// Waits until the kernel has let go, at most for `limit`: whether it has.
    pub(crate) fn wait(&self, limit: Duration) -> bool {
        let until = Instant::now() + limit;
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        while !*ended {
            let Some(left) = until.checked_duration_since(Instant::now()) else { return false };
            ended = self.end.wait_timeout(ended, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    /// The files that were changed, though the contract is immutable.
    pub(crate) fn changed_files(&self) -> Vec<Vec<u8>> {
        self.fs.changed_files()
    }

    /// Closes what is open on the I/O nodes.
    pub(crate) fn leave(&self) {
        self.fs.end();
    }

    fn one_more(self: &Arc<Server>) -> std::io::Result<()> {
        self.threads.fetch_add(1, Ordering::Relaxed);
        let server = Arc::clone(self);
        let started = std::thread::Builder::new()
            .name("forebay-mount".into())
            .stack_size(STACK)
            .spawn(move || server.serve());
        if started.is_err() {
            self.threads.fetch_sub(1, Ordering::Relaxed);
        }
        started.map(drop)
    }

    /// Nobody reads, and nobody waits to.
    pub(crate) fn one_more_if_it_may(self: &Arc<Server>) {
        if self.ready.load(Ordering::Relaxed)
            && self.threads.load(Ordering::Relaxed) < MOST_THREADS
            && let Err(e) = self.one_more()
        {
            tracing::debug!("no further thread: {e}");
        }
    }

    fn serve(self: Arc<Server>) {
        let (Some(mut request), Some(mut answer)) =
            (sys::Buffer::new(HEAD + MAX_TRANSFER), sys::Buffer::new(MAX_TRANSFER))
        else {
            self.finished();
            return tracing::error!("no memory for a thread of the mount");
        };
        let mut watch = Watch::default();
        while turn::mine(&self) {
            let n = match self.next(&mut watch, &mut request) {
                Ok(n) => n,
                Err(e) => {
                    if e != Errno::NODEV {
                        tracing::error!("reading from the kernel: {e}");
                    }
                    self.turn.is_over();
                    break;
                }
            };
            self.handle(&request[..n], &mut answer[..]);
        }
        self.finished();
    }

    /// The kernel's next request.
    fn next(&self, watch: &mut Watch, into: &mut [u8]) -> Result<usize, Errno> {
        let mut look = || match rustix::io::read(self.device(), &mut *into) {
            // Or the request was taken back before it was read.
            Err(Errno::AGAIN | Errno::NOENT | Errno::INTR) => None,
            found => Some(found),
        };
        if let Some(found) = watch.spin(&mut look) {
            return found;
        }
        loop {
            let mut device = [PollFd::from_borrowed_fd(self.device(), PollFlags::IN)];
            match poll(&mut device, None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(e) => return Err(e),
            }
            if let Some(found) = look() {
                return found;
            }
        }
    }

    /// A thread ends. The last one means that the kernel is gone.
    fn finished(&self) {
        if self.threads.fetch_sub(1, Ordering::AcqRel) == 1 {
            *self.ended.lock().unwrap_or_else(PoisonError::into_inner) = true;
            self.end.notify_all();
        }
    }

    fn handle(self: &Arc<Server>, request: &[u8], lent: &mut [u8]) {
        let Ok((header, body)) = InHeader::read_from_prefix(request) else {
            return tracing::error!("a request of {} bytes", request.len());
        };
        self.under_way().push((header.unique, header.pid));
        if request.len() > LARGE {
            turn::pass_on();
        }
        let outcome = std::panic::catch_unwind(AssertUnwindSafe(|| self.dispatch(&header, body, lent)));
        self.under_way().retain(|(unique, _)| *unique != header.unique);
        let outcome = outcome.unwrap_or_else(|_| {
            tracing::error!("request {} failed inside", header.opcode);
            Err(libc::EIO)
        });
        match outcome {
            Ok(Reply::Later(rest)) => self.finish_later(header.unique, rest),
            Ok(Reply::Lent(n)) => self.answer(header.unique, Ok(&lent[..n])),
            other => self.answer_with(header.unique, other),
        }
    }

    fn under_way(&self) -> MutexGuard<'_, Vec<(u64, u32)>> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The kernel takes a request back. Whoever is being killed is not kept: nobody will see the answer. Others wait for what
    /// becomes of it, within its deadline, unless it is a lock.
    fn interrupt(&self, unique: u64) {
        let whose = self.under_way().iter().find(|(one, _)| *one == unique).map(|(_, pid)| *pid);
        if whose.is_some_and(is_being_killed) {
            self.answer(unique, Err(libc::EINTR));
        }
        self.fs.interrupt(unique);
    }

    fn finish_later(self: &Arc<Server>, unique: u64, rest: Rest) {
        let server = Arc::clone(self);
        let started =
            std::thread::Builder::new().name("forebay-wait".into()).stack_size(STACK).spawn(move || {
                let outcome = rest(&server.fs);
                server.answer_with(unique, outcome);
            });
        if started.is_err() {
            self.answer(unique, Err(libc::ENOLCK));
        }
    }

    fn answer_with(&self, unique: u64, outcome: Outcome<Reply>) {
        match outcome {
            Ok(Reply::Done | Reply::Lent(_) | Reply::Later(_)) => self.answer(unique, Ok(&[])),
            Ok(Reply::Bytes(bytes)) => self.answer(unique, Ok(&bytes)),
            Ok(Reply::Silent) => {}
            Err(e) => self.answer(unique, Err(e)),
        }
    }

    fn answer(&self, unique: u64, outcome: Result<&[u8], i32>) {
        let (error, body) = match outcome {
            Ok(body) => (0, body),
            Err(e) => (-e, &[][..]),
        };
        let header = OutHeader { len: (size_of::<OutHeader>() + body.len()) as u32, error, unique };
        let pieces = [IoSlice::new(header.as_bytes()), IoSlice::new(body)];
        loop {
            match rustix::io::writev(self.device(), &pieces) {
                Err(Errno::INTR) => {}
                // The request was taken back, or the mount is gone.
                Ok(_) | Err(Errno::NOENT | Errno::NODEV) => return,
                Err(e) => return tracing::error!("answering the kernel: {e}"),
            }
        }
    }

    fn dispatch(&self, header: &InHeader, body: &[u8], lent: &mut [u8]) -> Outcome<Reply> {
        let opcode = Opcode::of(header.opcode).ok_or(libc::ENOSYS)?;
        let fs = &self.fs;
        let InHeader { unique, nodeid: node, uid, gid, pid, .. } = *header;
        let who = &Asked { unique, node, uid, gid, pid };
        let args = Args(body);
        let open_flags = match opcode {
            Opcode::Open => args.head::<abi::OpenIn>()?.0.flags,
            _ => 0,
        };
        if fs.refuses(opcode, open_flags) {
            return Err(libc::EROFS);
        }
        fs.something_else(who, opcode);
        match opcode {
            Opcode::Init => self.init(&args.head()?.0),
            Opcode::Lookup => fs.lookup(who, args.name()?),
            Opcode::Forget => {
                fs.forget(node, args.head::<abi::ForgetIn>()?.0.nlookup);
                Ok(Reply::Silent)
            }
            Opcode::BatchForget => {
                let (_, rest) = args.head::<abi::BatchForgetIn>()?;
                let mut rest = rest.0;
                while let Ok((one, more)) = abi::ForgetOne::read_from_prefix(rest) {
                    fs.forget(one.nodeid, one.nlookup);
                    rest = more;
                }
                Ok(Reply::Silent)
            }
            Opcode::Getattr => {
                let (get, _) = args.head::<abi::GetattrIn>()?;
                fs.getattr(who, (get.flags & abi::GETATTR_FH != 0).then_some(get.fh))
            }
            Opcode::Setattr => fs.setattr(who, &args.head()?.0),
            Opcode::Readlink => fs.readlink(who),
            Opcode::Symlink => {
                let (name, rest) = args.string()?;
                fs.symlink(who, name, rest.name()?)
            }
            Opcode::Mknod => {
                let (make, rest) = args.head::<abi::MknodIn>()?;
                fs.mknod(who, rest.name()?, make.mode, make.umask, make.rdev)
            }
            Opcode::Mkdir => {
                let (make, rest) = args.head::<abi::MkdirIn>()?;
                fs.mkdir(who, rest.name()?, make.mode, make.umask)
            }
            Opcode::Unlink => fs.unlink(who, args.name()?),
            Opcode::Rmdir => fs.rmdir(who, args.name()?),
            Opcode::Rename => {
                let (to, rest) = args.head::<abi::RenameIn>()?;
                let (name, rest) = rest.string()?;
                fs.rename(who, name, to.newdir, rest.name()?, 0)
            }
            Opcode::Rename2 => {
                let (to, rest) = args.head::<abi::Rename2In>()?;
                let (name, rest) = rest.string()?;
                fs.rename(who, name, to.newdir, rest.name()?, to.flags)
            }
            Opcode::Link => {
                let (link, rest) = args.head::<abi::LinkIn>()?;
                fs.link(who, link.oldnodeid, rest.name()?)
            }
            Opcode::Open => fs.open(who, &args.head()?.0),
            Opcode::Create => {
                let (create, rest) = args.head()?;
                fs.create(who, rest.name()?, &create)
            }
            Opcode::Tmpfile => fs.tmpfile(who, &args.head()?.0),
            Opcode::Read => {
                let (read, _) = args.head::<abi::TransferIn>()?;
                if read.size as usize >= LARGE {
                    turn::pass_on();
                }
                fs.read(who, &read, lent)
            }
            Opcode::Write => {
                let (write, rest) = args.head()?;
                fs.write(who, &write, rest.0)
            }
            Opcode::Statfs => fs.statfs(who),
            Opcode::Fsync | Opcode::Fsyncdir => {
                let (sync, _) = args.head::<abi::FsyncIn>()?;
                fs.fsync(who, sync.fh, sync.flags & abi::FSYNC_FDATASYNC != 0)
            }
            Opcode::Flush => {
                let (flush, _) = args.head::<abi::FlushIn>()?;
                fs.flush(who, flush.fh, flush.lock_owner)
            }
            Opcode::Release | Opcode::Releasedir => fs.release(args.head::<abi::ReleaseIn>()?.0.fh),
            Opcode::Opendir => fs.opendir(who),
            Opcode::Readdir => {
                let (read, _) = args.head::<abi::TransferIn>()?;
                fs.readdir(read.fh, read.offset, read.size)
            }
            Opcode::Setxattr => {
                let (set, rest) = args.head::<abi::SetxattrIn>()?;
                let (name, rest) = rest.string()?;
                let value = rest.0.get(..set.size as usize).ok_or(libc::EINVAL)?;
                fs.setxattr(who, name, value, set.flags)
            }
            Opcode::Getxattr => {
                let (get, rest) = args.head::<abi::GetxattrIn>()?;
                fs.getxattr(who, rest.name()?, get.size)
            }
            Opcode::Listxattr => fs.listxattr(who, args.head::<abi::GetxattrIn>()?.0.size),
            Opcode::Removexattr => fs.removexattr(who, args.name()?),
            Opcode::Getlk => fs.getlk(who, &args.head()?.0),
            Opcode::Setlk => fs.setlk(who, &args.head()?.0, false),
            Opcode::Setlkw => fs.setlk(who, &args.head()?.0, true),
            Opcode::Access => fs.access(who, args.head::<abi::AccessIn>()?.0.mask),
            Opcode::Interrupt => {
                self.interrupt(args.head::<abi::InterruptIn>()?.0.unique);
                Ok(Reply::Silent)
            }
            Opcode::Fallocate => {
                let (f, _) = args.head::<abi::FallocateIn>()?;
                fs.fallocate(who, &f)
            }
            Opcode::Lseek => {
                let (seek, _) = args.head::<abi::LseekIn>()?;
                fs.lseek(who, seek.fh, seek.offset, seek.whence)
            }
            Opcode::CopyFileRange => fs.copy(who, &args.head()?.0),
            // No file system below has ioctls that could be carried there.
            Opcode::Ioctl => fs.ask(who, &args.head()?.0),
            Opcode::Destroy => Ok(Reply::Done),
        }
    }

    fn init(&self, theirs: &InitIn) -> Outcome<Reply> {
        if theirs.major != abi::MAJOR || theirs.minor < abi::MINOR_MIN {
            tracing::error!("the kernel speaks FUSE {}.{}: 7.28 is needed", theirs.major, theirs.minor);
            return Err(libc::EPROTO);
        }
        let offered = u64::from(theirs.flags);
        let mut wanted = init::ASYNC_READ
            | init::POSIX_LOCKS
            | init::ATOMIC_O_TRUNC
            | init::BIG_WRITES
            | init::DONT_MASK
            | init::FLOCK_LOCKS
            | init::ASYNC_DIO
            | init::PARALLEL_DIROPS
            | init::MAX_PAGES
            | init::HANDLE_KILLPRIV_V2
            | init::INIT_EXT;
        match self.fs.contract() {
            Contract::CloseToOpen => wanted |= init::AUTO_INVAL_DATA,
            Contract::Exclusive => wanted |= init::WRITEBACK_CACHE,
            Contract::Strict | Contract::Immutable => {}
        }
        if self.fs.ids.kernel_checks() {
            wanted |= init::POSIX_ACL;
        }
        // What the second word offers is only granted where the kernel knows it, too.
        let flags = (wanted & offered) | init::DIRECT_IO_ALLOW_MMAP;
        self.ready.store(true, Ordering::Relaxed);
        Ok(Reply::of(&InitOut {
            major: abi::MAJOR,
            minor: abi::MINOR.min(theirs.minor),
            max_readahead: theirs.max_readahead,
            flags: flags as u32,
            max_background: 64,
            congestion: 48,
            max_write: MAX_TRANSFER as u32,
            time_gran: 1,
            max_pages: (MAX_TRANSFER / 4096) as u16,
            map_alignment: 0,
            flags2: (flags >> 32) as u32,
            unused: [0; 7],
        }))
    }
}

/// Whether SIGKILL waits for this thread: what ends a process becomes that for all its threads.
fn is_being_killed(thread: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{thread}/status")).unwrap_or_default();
    let pending = |line: &str| {
        let set = line.strip_prefix("SigPnd:").or(line.strip_prefix("ShdPnd:"));
        set.and_then(|set| u64::from_str_radix(set.trim(), 16).ok()).unwrap_or(0)
    };
    status.lines().any(|line| pending(line) & (1 << (libc::SIGKILL - 1)) != 0)
}

/// A request's arguments.
#[derive(Clone, Copy)]
struct Args<'a>(&'a [u8]);

impl<'a> Args<'a> {
    /// The structure in front, and the rest.
    fn head<T: FromBytes>(self) -> Outcome<(T, Args<'a>)> {
        T::read_from_prefix(self.0).map(|(head, rest)| (head, Args(rest))).map_err(|_| libc::EINVAL)
    }

    /// The string in front, and the rest.
    fn string(self) -> Outcome<(&'a [u8], Args<'a>)> {
        let end = self.0.iter().position(|&b| b == 0).ok_or(libc::EINVAL)?;
        Ok((&self.0[..end], Args(&self.0[end + 1..])))
    }

    fn name(self) -> Outcome<&'a [u8]> {
        self.string().map(|(name, _)| name)
    }
}
