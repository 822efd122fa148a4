//! One call: whether it may go past the mount, and how it goes.

use crate::look::{self, Seen};
use crate::state::{self, State};
use crate::table::{self, Open};
use forebay_client::gate::{ASK, Told};
use forebay_client::{Client, Error, ExportId, File, OpenFlags, Path};
use forebay_hook::sys::{self, sys};
use forebay_hook::vector::MAX_RW;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Calls on a descriptor that is no file of the mount until it is looked at again, and on one that the mount gave no pass for.
const ELSEWHERE: u32 = 64;
const REFUSED: u32 = 1024;

/// What makes a descriptor another one, though the file is the same.
const TOLD: i32 = libc::O_ACCMODE | libc::O_APPEND | libc::O_DIRECT | libc::O_SYNC | libc::O_PATH;
/// With these the kernel is asked.
const UNFIT: i32 = libc::O_APPEND | libc::O_DIRECT | libc::O_SYNC | libc::O_PATH;

/// Where a call happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum At {
    /// At the descriptor's offset, which moves.
    Here,
    /// At this one.
    Offset(u64),
}

/// What it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    Read,
    Write,
}

/// One call on a descriptor, past the mount, if that may be: what it returns, as from libc. `None`: it is the kernel's.
pub(crate) fn past(
    fd: i32,
    what: What,
    n: usize,
    at: At,
    ready: impl FnOnce() -> bool,
    go: impl FnOnce(&Client, &File, u64) -> Result<usize, Error>,
) -> Option<isize> {
    let state = state::get()?;
    if n == 0 || n > MAX_RW {
        return None;
    }
    if !table::is_known(fd) && table::is_skipped(fd) {
        return None;
    }
    if !state.is_home() || !look::has_room() {
        return None;
    }
    let shuts = state.gates.shuts();
    if shuts != state.shuts.load(Ordering::Relaxed) {
        state.shuts.store(shuts, Ordering::Relaxed);
        table::sweep(state.gates);
    }
    let flags = look::flags_of(fd);
    let seen = look::at(fd)?;
    // Not before: of what was known before a fork, or a gate was shut, nothing is in the table any more.
    let open = match table::get(fd) {
        Some(open) if open.flags == flags & TOLD && open.is(&seen) && state.gates.is_good(open.pass) => open,
        _ => find(state, fd, flags, &seen, n)?,
    };
    // Before the gate: a page of the buffer may be of a file that is mapped, and the mount waits for who is inside.
    if !ready() {
        return None;
    }
    let client = state.client()?;
    let call = Call { state, client, fd, open: &open, what, seen: &seen, n };
    let outcome = match at {
        At::Offset(offset) => call.carry(offset, go)?,
        At::Here => open.offset.with(|| {
            // The offset moves first, so that nobody who shares it gets the same bytes.
            let end = sys!(lseek, fd, n, libc::SEEK_CUR);
            let offset = usize::try_from(end).ok()?.checked_sub(n)? as u64;
            let back = |missing: usize| match missing {
                0 => 0,
                _ => sys!(lseek, fd, -(missing as isize), libc::SEEK_CUR),
            };
            // Whose offset it was: another thread may have put another file there.
            if !sys::is_single_threaded() && look::at(fd).is_none_or(|now| !open.is(&now)) {
                back(n);
                return None;
            }
            let outcome = call.carry(offset, go);
            match &outcome {
                Some(Ok(done)) => back(n - done),
                _ => back(n),
            };
            outcome
        })?,
    };
    state.count();
    match outcome {
        Ok(done) => Some(done as isize),
        Err(errno) => {
            sys::set_errno(errno);
            Some(-1)
        }
    }
}

/// A call on a file that is known.
struct Call<'a> {
    state: &'static State,
    client: &'static Client,
    fd: i32,
    open: &'a Open,
    what: What,
    seen: &'a Seen,
    n: usize,
}

impl Call<'_> {
    /// Goes through the gate.
    fn carry(
        &self,
        offset: u64,
        go: impl FnOnce(&Client, &File, u64) -> Result<usize, Error>,
    ) -> Option<Result<usize, i32>> {
        let Call { open, seen, n, .. } = *self;
        let end = offset.checked_add(n as u64).filter(|end| i64::try_from(*end).is_ok())?;
        let writes = self.what == What::Write;
        let wrong = if writes { libc::O_RDONLY } else { libc::O_WRONLY };
        // A file that gives privileges loses them by a write: the kernel sees to that.
        let special = u32::from(seen.mode) & (libc::S_ISUID | libc::S_ISGID) != 0;
        if open.flags & libc::O_ACCMODE == wrong || writes && (special || !look::is_allowed(end)) {
            return None;
        }
        let inside = self.state.gates.enter(open.pass, writes && end > seen.size)?;
        let outcome = go(self.client, &open.file, offset);
        drop(inside);
        match outcome {
            Ok(done) => Some(Ok(done.min(n))),
            // It cannot be opened again by the name that was told: the mount knows its name, or has it open.
            Err(e) if e.errno() == libc::ESTALE => {
                table::drop_open(self.fd);
                table::skip(self.fd, REFUSED);
                None
            }
            // Its memory is not what it was when it was last seen: the kernel says how far it goes.
            Err(e) if e.errno() == libc::EFAULT => None,
            Err(e) => Some(Err(e.errno())),
        }
    }
}

/// A descriptor of which nothing is known, or something else.
#[cold]
#[inline(never)]
fn find(state: &'static State, fd: i32, flags: i32, seen: &Seen, n: usize) -> Option<Arc<Open>> {
    table::drop_open(fd);
    let regular = u32::from(seen.mode) & libc::S_IFMT == libc::S_IFREG;
    if flags < 0 || flags & UNFIT != 0 || !regular || !state.is_ours(seen.device) {
        if flags & libc::O_APPEND != 0 && state.is_ours(seen.device) {
            // It may not have been so before; the kernel finds the end by itself.
            look::learn_size(fd);
        }
        table::skip(fd, ELSEWHERE);
        return None;
    }
    if !state.is_worth_it(table::count(fd), n) {
        return None;
    }
    let found = attach(state, fd, flags, seen);
    match &found {
        Some(open) => table::put(fd, Arc::clone(open)),
        None => table::skip(fd, REFUSED),
    }
    found
}

/// Asks the mount for a pass, and opens the file on the I/O node.
fn attach(state: &'static State, fd: i32, flags: i32, seen: &Seen) -> Option<Arc<Open>> {
    // SAFETY: plain numbers, for which zero is a value.
    let mut told: Box<Told> = Box::new(unsafe { std::mem::zeroed() });
    if sys!(ioctl, fd, ASK, &raw mut *told) < 0 || told.ino != seen.ino {
        return None;
    }
    let path = Path { export: ExportId(told.export), rel: told.path()? };
    let access = OpenFlags(told.flags & (OpenFlags::READ | OpenFlags::WRITE).0);
    if access.to_linux() & libc::O_ACCMODE != flags & libc::O_ACCMODE {
        return None;
    }
    let file = state.client()?.open_same(path, access | OpenFlags::NOFOLLOW, told.identity).ok()?;
    Some(Open::new(seen, flags & TOLD, told.pass(), file))
}

/// Whether nothing is to be done for a descriptor, this time.
pub(crate) fn is_nothing(fd: i32) -> bool {
    state::get().is_none() || !table::is_known(fd) && table::is_skipped(fd)
}

/// The program uses an open file in a way that trusts the kernel's idea of its size.
pub(crate) fn trusts_size(fd: i32) {
    if let Some(state) = state::get()
        && fd >= 0
        && look::at(fd).is_some_and(|seen| state.is_ours(seen.device))
    {
        look::learn_size(fd);
    }
}
