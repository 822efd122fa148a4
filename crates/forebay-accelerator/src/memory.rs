//! Calls by which a program loses memory, or may not use it any more: what was seen of it before is forgotten. And those that
//! tell where its signal handlers have their stacks.

use forebay_hook::patch::hooks;
use forebay_hook::sys::{self, sys};
use forebay_hook::user;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};

hooks! {
    c"munmap" => munmap, c"mprotect" => mprotect, c"pkey_mprotect" => pkey_mprotect, c"mremap" => mremap,
    c"shmdt" => shmdt, c"sigaltstack" => sigaltstack,
}

/// So many stacks of signal handlers are remembered; if there are more, the kernel is asked every time.
const STACKS: usize = 8;

static COUNT: AtomicUsize = AtomicUsize::new(0);
/// Where they begin, and end; both zero: about to be told.
static KNOWN: [[AtomicUsize; 2]; STACKS] = [const { [const { AtomicUsize::new(0) }; 2] }; STACKS];

/// Memory is mapped where there may be some already, or so that nobody can use it.
pub(crate) fn mapped(prot: c_int, flags: c_int) {
    if prot == libc::PROT_NONE || flags & (libc::MAP_FIXED | libc::MAP_SHARED) != 0 {
        user::changed();
    }
}

unsafe extern "C" fn munmap(addr: *mut c_void, len: usize) -> c_int {
    user::changed();
    sys::ret(sys!(munmap, addr, len)) as c_int
}

unsafe extern "C" fn mprotect(addr: *mut c_void, len: usize, prot: c_int) -> c_int {
    user::changed();
    sys::ret(sys!(mprotect, addr, len, prot)) as c_int
}

unsafe extern "C" fn pkey_mprotect(addr: *mut c_void, len: usize, prot: c_int, key: c_int) -> c_int {
    user::changed();
    let none = key == -1;
    sys::ret(if none { sys!(mprotect, addr, len, prot) } else { sys!(pkey_mprotect, addr, len, prot, key) })
        as c_int
}

unsafe extern "C" fn mremap(
    addr: *mut c_void,
    old: usize,
    new: usize,
    flags: c_int,
    to: *mut c_void,
) -> *mut c_void {
    user::changed();
    // Of the last one there is something only with the flags that use it.
    let to =
        if flags & (libc::MREMAP_FIXED | libc::MREMAP_DONTUNMAP) == 0 { std::ptr::null_mut() } else { to };
    sys::ret(sys!(mremap, addr, old, new, flags, to)) as *mut c_void
}

unsafe extern "C" fn shmdt(addr: *const c_void) -> c_int {
    user::changed();
    sys::ret(sys!(shmdt, addr)) as c_int
}

/// Whether somebody who has his stack there may run in a signal handler with a stack of its own.
pub(crate) fn may_be_a_handlers(sp: usize) -> bool {
    let count = COUNT.load(Ordering::Acquire);
    count > STACKS
        || KNOWN[..count].iter().any(|[start, end]| {
            let (start, end) = (start.load(Ordering::Acquire), end.load(Ordering::Acquire));
            end == 0 || (start..=end).contains(&sp)
        })
}

/// Remembers the stack that the first thread's handlers have already.
pub(crate) fn at_start() {
    // SAFETY: plain numbers, for which zero is a value.
    let mut now: libc::stack_t = unsafe { std::mem::zeroed() };
    if sys!(sigaltstack, 0, &raw mut now) == 0 {
        remember(&now);
    }
}

/// Remembers a stack.
fn remember(new: &libc::stack_t) {
    let start = new.ss_sp as usize;
    let end = start.saturating_add(new.ss_size);
    let known =
        |[a, b]: &[AtomicUsize; 2]| (a.load(Ordering::Relaxed), b.load(Ordering::Relaxed)) == (start, end);
    let count = COUNT.load(Ordering::Relaxed).min(STACKS);
    if new.ss_flags & libc::SS_DISABLE != 0 || KNOWN[..count].iter().any(known) {
        return;
    }
    let mine = COUNT.fetch_add(1, Ordering::AcqRel);
    match KNOWN.get(mine) {
        Some([a, b]) => {
            a.store(start, Ordering::Release);
            b.store(end, Ordering::Release);
        }
        // It stays too many.
        None => COUNT.store(STACKS + 1, Ordering::Release),
    }
}

/// A program that tells the kernel without libc has its handlers use as much of the stack as there is memory below it.
unsafe extern "C" fn sigaltstack(new: *const libc::stack_t, old: *mut libc::stack_t) -> c_int {
    // SAFETY: plain integers and a pointer that is not followed.
    if let Ok(new) = unsafe { user::take(new) } {
        remember(&new);
    }
    sys::ret(sys!(sigaltstack, new, old)) as c_int
}
