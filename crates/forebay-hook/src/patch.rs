//! Replaces functions of libc by jumps to our own.
//!
//! Interposing symbols alone would miss the calls that libc makes to itself: `fopen` does not call
//! an interposed `open`, nor `printf` an interposed `write`. The exported function and the one libc
//! calls inside are the same code, though, so a jump written over its first bytes catches both.
//! The replaced code is never needed again: what is not forwarded goes to the kernel directly.

use crate::sys::{self, sys};
use std::ffi::{CStr, c_void};

/// A function of libc's and what takes its place.
pub struct Hook {
    /// By what libc calls it.
    pub name: &'static CStr,
    /// Ours.
    pub to: *const c_void,
}

/// Why the functions could not be replaced.
#[derive(Debug)]
pub enum PatchError {
    /// There is no glibc in this process.
    NoLibc,
    /// The errno of making code writable.
    Protect(i32),
}

impl std::fmt::Display for PatchError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            PatchError::NoLibc => f.write_str("the program does not use glibc"),
            PatchError::Protect(errno) => write!(f, "its code cannot be made writable (errno {errno})"),
        }
    }
}

/// Replaces every function of `hooks` that libc (and an old libc's libpthread) has.
pub fn install(hooks: &[Hook]) -> Result<(), PatchError> {
    let libc = sys::loaded(c"libc.so.6").ok_or(PatchError::NoLibc)?;
    let mut libraries = vec![libc];
    // One that has nothing of its own only finds libc's again.
    let own = |thread: &*mut c_void| sys::dlsym(*thread, c"read") != sys::dlsym(libc, c"read");
    libraries.extend(sys::loaded(c"libpthread.so.0").filter(own));
    let mut jumps: Vec<(usize, usize)> = Vec::with_capacity(hooks.len() * libraries.len());
    for &library in &libraries {
        for hook in hooks {
            let at = sys::dlsym(library, hook.name) as usize;
            if at != 0 {
                jumps.push((at, hook.to as usize));
            }
        }
    }
    jumps.sort_unstable();
    jumps.dedup_by_key(|j| j.0);
    // Runs of neighbouring pages are made writable together, and at once executable again.
    const PAGE: usize = 4096;
    let mut i = 0;
    while i < jumps.len() {
        let start = jumps[i].0 & !(PAGE - 1);
        let mut end = (jumps[i].0 + 32 + PAGE - 1) & !(PAGE - 1);
        let mut j = i;
        while j < jumps.len() && jumps[j].0 + 32 <= end + 64 * PAGE {
            end = end.max((jumps[j].0 + 32 + PAGE - 1) & !(PAGE - 1));
            j += 1;
        }
        let rwx = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
        let r = sys!(mprotect, start, end - start, rwx);
        if r < 0 {
            return Err(PatchError::Protect(-r as i32));
        }
        for &(at, to) in &jumps[i..j] {
            // SAFETY: `at` is the start of a function in the pages just made writable; functions of
            // libc are 16-byte aligned, so the jump stays inside it; no other thread runs yet.
            unsafe { write_jump(at, to) };
        }
        sys!(mprotect, start, end - start, libc::PROT_READ | libc::PROT_EXEC);
        i = j;
    }
    Ok(())
}

#[cfg(target_arch = "x86_64")]
unsafe fn write_jump(at: usize, to: usize) {
    const ENDBR64: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];
    // SAFETY: as the caller promises, 16 bytes at `at` may be written.
    unsafe {
        let mut p = at as *mut u8;
        if std::ptr::read_unaligned(p.cast::<[u8; 4]>()) == ENDBR64 {
            p = p.add(4);
        }
        let next = p as i64 + 5;
        if let Ok(rel) = i32::try_from(to as i64 - next) {
            p.write(0xe9);
            p.add(1).cast::<i32>().write_unaligned(rel);
        } else {
            // jmp [rip+0]; address. Fourteen bytes: without the endbr64, which nothing checks.
            let p = at as *mut u8;
            std::ptr::copy_nonoverlapping([0xffu8, 0x25, 0, 0, 0, 0].as_ptr(), p, 6);
            p.add(6).cast::<usize>().write_unaligned(to);
        }
    }
}

#[cfg(target_arch = "aarch64")]
unsafe fn write_jump(at: usize, to: usize) {
    // ldr x16, #8; br x16; address
    // SAFETY: as the caller promises, 16 bytes at `at` may be written; the instruction cache is
    // told of it.
    unsafe {
        let p = at as *mut u32;
        p.write(0x5800_0050);
        p.add(1).write(0xd61f_0200);
        p.add(2).cast::<usize>().write_unaligned(to);
        std::arch::asm!("dc cvau, {0}", "dsb ish", "ic ivau, {0}", "dsb ish", "isb", in(reg) at);
    }
}

/// A function's address in a table.
#[derive(Clone, Copy)]
pub struct To(pub *const c_void);
// SAFETY: the address of code.
unsafe impl Sync for To {}

/// `hooks! { c"read" => read, … }`: a family's table.
#[doc(hidden)]
#[macro_export]
macro_rules! __hooks {
    ($($name:literal => $to:expr),* $(,)?) => {
        pub(crate) static HOOKS: &[(&std::ffi::CStr, $crate::patch::To)] =
            &[$(($name, $crate::patch::To($to as *const std::ffi::c_void))),*];
    };
}
pub use crate::__hooks as hooks;

/// Families of functions, as [`install`] takes them.
pub fn all_of(families: &[&[(&'static CStr, To)]]) -> Vec<Hook> {
    families.iter().flat_map(|family| family.iter()).map(|&(name, to)| Hook { name, to: to.0 }).collect()
}
