//! Raw system calls and libc's few non-file functions that the libraries need. Everything that could
//! reach a replaced function goes through here instead.

use std::arch::asm;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::{AtomicU64, Ordering};

/// A system call's result as the kernel gives it: negative errno, or a value.
pub type Raw = isize;

/// Any system call.
///
/// # Safety
/// The arguments must be what the system call `n` expects.
#[cfg(target_arch = "x86_64")]
#[inline]
pub unsafe fn raw(n: i64, a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> Raw {
    let ret: isize;
    // SAFETY: the kernel's calling convention; memory is touched as the caller's arguments say.
    unsafe {
        asm!("syscall", inlateout("rax") n as isize => ret, in("rdi") a, in("rsi") b, in("rdx") c,
             in("r10") d, in("r8") e, in("r9") f, lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    ret
}

/// Any system call.
///
/// # Safety
/// The arguments must be what the system call `n` expects.
#[cfg(target_arch = "aarch64")]
#[inline]
pub unsafe fn raw(n: i64, a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> Raw {
    let ret: isize;
    // SAFETY: the kernel's calling convention; memory is touched as the caller's arguments say.
    unsafe {
        asm!("svc 0", in("x8") n, inlateout("x0") a as isize => ret, in("x1") b, in("x2") c,
             in("x3") d, in("x4") e, in("x5") f, options(nostack));
    }
    ret
}

/// `sys!(openat, fd, path, …)`: a raw system call by name, missing arguments are 0.
#[doc(hidden)]
#[macro_export]
macro_rules! __sys {
    ($name:ident $(, $arg:expr)*) => {
        $crate::sys::call($crate::sys::nr::$name, &[$($arg as usize),*])
    };
}
/// System call numbers by name, for [`sys!`].
#[allow(non_upper_case_globals, missing_docs)]
pub mod nr {
    pub const openat: i64 = libc::SYS_openat;
    pub const close: i64 = libc::SYS_close;
    pub const read: i64 = libc::SYS_read;
    pub const write: i64 = libc::SYS_write;
    pub const pread64: i64 = libc::SYS_pread64;
    pub const pwrite64: i64 = libc::SYS_pwrite64;
    pub const readv: i64 = libc::SYS_readv;
    pub const writev: i64 = libc::SYS_writev;
    pub const preadv: i64 = libc::SYS_preadv;
    pub const pwritev: i64 = libc::SYS_pwritev;
    pub const preadv2: i64 = libc::SYS_preadv2;
    pub const pwritev2: i64 = libc::SYS_pwritev2;
    pub const lseek: i64 = libc::SYS_lseek;
    pub const dup: i64 = libc::SYS_dup;
    pub const dup3: i64 = libc::SYS_dup3;
    pub const fcntl: i64 = libc::SYS_fcntl;
    pub const fsync: i64 = libc::SYS_fsync;
    pub const fdatasync: i64 = libc::SYS_fdatasync;
    pub const syncfs: i64 = libc::SYS_syncfs;
    pub const sync_file_range: i64 = libc::SYS_sync_file_range;
    pub const ftruncate: i64 = libc::SYS_ftruncate;
    pub const truncate: i64 = libc::SYS_truncate;
    pub const fallocate: i64 = libc::SYS_fallocate;
    pub const fadvise64: i64 = libc::SYS_fadvise64;
    pub const waitid: i64 = libc::SYS_waitid;
    pub const rt_sigprocmask: i64 = libc::SYS_rt_sigprocmask;
    pub const rt_sigpending: i64 = libc::SYS_rt_sigpending;
    pub const readahead: i64 = libc::SYS_readahead;
    pub const newfstatat: i64 = libc::SYS_newfstatat;
    pub const fstat: i64 = libc::SYS_fstat;
    pub const statx: i64 = libc::SYS_statx;
    pub const faccessat: i64 = libc::SYS_faccessat;
    pub const faccessat2: i64 = libc::SYS_faccessat2;
    pub const mkdirat: i64 = libc::SYS_mkdirat;
    pub const mknodat: i64 = libc::SYS_mknodat;
    pub const unlinkat: i64 = libc::SYS_unlinkat;
    pub const renameat2: i64 = libc::SYS_renameat2;
    pub const linkat: i64 = libc::SYS_linkat;
    pub const symlinkat: i64 = libc::SYS_symlinkat;
    pub const readlinkat: i64 = libc::SYS_readlinkat;
    pub const fchmod: i64 = libc::SYS_fchmod;
    pub const fchmodat: i64 = libc::SYS_fchmodat;
    pub const fchown: i64 = libc::SYS_fchown;
    pub const fchownat: i64 = libc::SYS_fchownat;
    pub const utimensat: i64 = libc::SYS_utimensat;
    pub const getdents64: i64 = libc::SYS_getdents64;
    pub const chdir: i64 = libc::SYS_chdir;
    pub const fchdir: i64 = libc::SYS_fchdir;
    pub const getcwd: i64 = libc::SYS_getcwd;
    pub const statfs: i64 = libc::SYS_statfs;
    pub const fstatfs: i64 = libc::SYS_fstatfs;
    pub const getxattr: i64 = libc::SYS_getxattr;
    pub const lgetxattr: i64 = libc::SYS_lgetxattr;
    pub const fgetxattr: i64 = libc::SYS_fgetxattr;
    pub const setxattr: i64 = libc::SYS_setxattr;
    pub const lsetxattr: i64 = libc::SYS_lsetxattr;
    pub const fsetxattr: i64 = libc::SYS_fsetxattr;
    pub const listxattr: i64 = libc::SYS_listxattr;
    pub const llistxattr: i64 = libc::SYS_llistxattr;
    pub const flistxattr: i64 = libc::SYS_flistxattr;
    pub const removexattr: i64 = libc::SYS_removexattr;
    pub const lremovexattr: i64 = libc::SYS_lremovexattr;
    pub const fremovexattr: i64 = libc::SYS_fremovexattr;
    pub const flock: i64 = libc::SYS_flock;
    pub const mmap: i64 = libc::SYS_mmap;
    pub const munmap: i64 = libc::SYS_munmap;
    pub const mprotect: i64 = libc::SYS_mprotect;
    pub const madvise: i64 = libc::SYS_madvise;
    pub const sendfile: i64 = libc::SYS_sendfile;
    pub const copy_file_range: i64 = libc::SYS_copy_file_range;
    pub const splice: i64 = libc::SYS_splice;
    pub const execve: i64 = libc::SYS_execve;
    pub const execveat: i64 = libc::SYS_execveat;
    pub const exit_group: i64 = libc::SYS_exit_group;
    pub const getpid: i64 = libc::SYS_getpid;
    pub const geteuid: i64 = libc::SYS_geteuid;
    pub const umask: i64 = libc::SYS_umask;
    pub const memfd_create: i64 = libc::SYS_memfd_create;
    pub const close_range: i64 = libc::SYS_close_range;
    pub const inotify_add_watch: i64 = libc::SYS_inotify_add_watch;
    pub const nanosleep: i64 = libc::SYS_nanosleep;
    pub const ppoll: i64 = libc::SYS_ppoll;
    pub const name_to_handle_at: i64 = libc::SYS_name_to_handle_at;
    pub const futex: i64 = libc::SYS_futex;
    pub const chroot: i64 = libc::SYS_chroot;
    pub const bind: i64 = libc::SYS_bind;
    pub const connect: i64 = libc::SYS_connect;
    pub const sendto: i64 = libc::SYS_sendto;
    pub const sendmsg: i64 = libc::SYS_sendmsg;
    pub const recvmsg: i64 = libc::SYS_recvmsg;
    pub const sendmmsg: i64 = libc::SYS_sendmmsg;
    pub const recvmmsg: i64 = libc::SYS_recvmmsg;
    pub const getsockname: i64 = libc::SYS_getsockname;
    pub const getpeername: i64 = libc::SYS_getpeername;
    pub const accept4: i64 = libc::SYS_accept4;
    pub const prlimit64: i64 = libc::SYS_prlimit64;
    pub const getrlimit: i64 = libc::SYS_getrlimit;
    pub const tgkill: i64 = libc::SYS_tgkill;
    pub const gettid: i64 = libc::SYS_gettid;
    pub const ioctl: i64 = libc::SYS_ioctl;
    pub const unshare: i64 = libc::SYS_unshare;
    pub const open_by_handle_at: i64 = libc::SYS_open_by_handle_at;
    pub const fchmodat2: i64 = 452;
    pub const openat2: i64 = libc::SYS_openat2;
    pub const recvfrom: i64 = libc::SYS_recvfrom;
    #[cfg(target_arch = "x86_64")]
    pub const getdents: i64 = libc::SYS_getdents;
    pub const sched_yield: i64 = libc::SYS_sched_yield;
    pub const sigaltstack: i64 = libc::SYS_sigaltstack;
    pub const mremap: i64 = libc::SYS_mremap;
    pub const pkey_mprotect: i64 = libc::SYS_pkey_mprotect;
    pub const shmdt: i64 = libc::SYS_shmdt;
    pub const setns: i64 = libc::SYS_setns;
    pub const capget: i64 = libc::SYS_capget;
    pub const listmount: i64 = 458;
}
pub use crate::__sys as sys;

/// A raw system call with up to six arguments.
#[inline]
pub fn call(n: i64, args: &[usize]) -> Raw {
    let at = |i: usize| args.get(i).copied().unwrap_or(0);
    // SAFETY: a libc function's arguments are handed to its own system call unchanged, or they are
    // this library's own buffers; the kernel checks pointers itself (EFAULT).
    unsafe { raw(n, at(0), at(1), at(2), at(3), at(4), at(5)) }
}

/// libc's convention: −1 and `errno`, or the value.
#[inline]
pub fn ret(r: Raw) -> isize {
    if (-4095..0).contains(&r) {
        set_errno(-r as i32);
        -1
    } else {
        r
    }
}

/// What the program finds in `errno`.
pub fn set_errno(e: i32) {
    // SAFETY: libc's own per-thread location.
    unsafe { *libc::__errno_location() = e };
}

/// What is in `errno`.
pub fn errno() -> i32 {
    // SAFETY: libc's own per-thread location.
    unsafe { *libc::__errno_location() }
}

/// This process.
#[inline]
pub fn getpid() -> i32 {
    sys!(getpid) as i32
}

/// A function of a loaded library, or null.
#[expect(clippy::not_unsafe_ptr_arg_deref, reason = "a handle is the loader's, which looks it up")]
pub fn dlsym(handle: *mut c_void, name: &CStr) -> *mut c_void {
    // SAFETY: a valid handle and a C string.
    unsafe { libc::dlsym(handle, name.as_ptr()) }
}

/// A library that is loaded already.
pub fn loaded(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: a C string; nothing is loaded anew.
    let h = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOLOAD | libc::RTLD_LAZY) };
    (!h.is_null()).then_some(h)
}

/// The file this library was loaded from.
pub fn own_file() -> Option<Vec<u8>> {
    // SAFETY: a plain struct, filled by libc for an address of this library; the name it points to is
    // the dynamic linker's own and stays.
    unsafe {
        let mut found: libc::Dl_info = std::mem::zeroed();
        let here = own_file as *const c_void;
        if libc::dladdr(here, &mut found) == 0 || found.dli_fname.is_null() {
            return None;
        }
        Some(CStr::from_ptr(found.dli_fname).to_bytes().to_vec())
    }
}

/// Nanoseconds of the monotonic clock.
pub fn monotonic() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call fills the structure it is given, and nothing else.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// With a terminating NUL, for raw calls.
pub fn cstring(path: &[u8]) -> Vec<u8> {
    let mut v = Vec::with_capacity(path.len() + 1);
    v.extend_from_slice(path);
    v.push(0);
    v
}

/// Opens a local file.
pub fn open(path: &[u8], flags: c_int, mode: u32) -> Raw {
    let path = cstring(path);
    sys!(openat, libc::AT_FDCWD, path.as_ptr(), flags, mode)
}

/// Closes a descriptor of the library's own.
pub fn close(fd: c_int) {
    sys!(close, fd);
}

/// The whole of a small local file.
pub fn read_file(path: &[u8], limit: usize) -> Option<Vec<u8>> {
    let fd = open(path, libc::O_RDONLY | libc::O_CLOEXEC, 0);
    if fd < 0 {
        return None;
    }
    let out = read_all(fd as c_int, limit);
    close(fd as c_int);
    out
}

/// All that can be read from the start of `fd`, up to `limit` bytes.
pub fn read_all(fd: c_int, limit: usize) -> Option<Vec<u8>> {
    let mut out = vec![0u8; 4096];
    let mut have = 0;
    while have < limit {
        if have == out.len() {
            out.resize((out.len() * 2).min(limit), 0);
        }
        let n = sys!(pread64, fd, out[have..].as_mut_ptr(), out.len() - have, have);
        if n < 0 {
            return None;
        }
        if n == 0 {
            break;
        }
        have += n as usize;
    }
    out.truncate(have);
    Some(out)
}

/// The target of a local symbolic link.
pub fn readlink(path: &[u8]) -> Option<Vec<u8>> {
    let path = cstring(path);
    let mut buf = vec![0u8; libc::PATH_MAX as usize];
    let n = sys!(readlinkat, libc::AT_FDCWD, path.as_ptr(), buf.as_mut_ptr(), buf.len());
    if n < 0 {
        return None;
    }
    buf.truncate(n as usize);
    Some(buf)
}

/// The kernel's idea of the working directory; `None` if it was removed.
pub fn getcwd_into(buf: &mut [u8; libc::PATH_MAX as usize]) -> Option<&[u8]> {
    let n = sys!(getcwd, buf.as_mut_ptr(), buf.len());
    // One that cannot be reached from the root has another beginning.
    (n > 0 && buf[0] == b'/').then(|| &buf[..n as usize - 1])
}

/// A number that is this thread's own while it lives.
#[inline]
pub fn thread() -> usize {
    let id: usize;
    // SAFETY: reads the thread pointer, which libc sets up for every thread.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        asm!("mov {}, qword ptr fs:[0]", out(reg) id, options(nostack, readonly, preserves_flags));
        #[cfg(target_arch = "aarch64")]
        asm!("mrs {}, tpidr_el0", out(reg) id, options(nostack, nomem, preserves_flags));
    }
    id
}

/// A variable of the environment, without libc's locks.
pub fn env(name: &[u8]) -> Option<&'static [u8]> {
    unsafe extern "C" {
        static environ: *const *const c_char;
    }
    // SAFETY: libc's environment: a null-terminated array of C strings. It is read at start-up and
    // before exec, where a program that changes it at the same time would be broken without us too.
    unsafe {
        let mut p = environ;
        if p.is_null() {
            return None;
        }
        while !(*p).is_null() {
            let entry = CStr::from_ptr(*p).to_bytes();
            if entry.len() > name.len() && entry.starts_with(name) && entry[name.len()] == b'=' {
                return Some(&entry[name.len() + 1..]);
            }
            p = p.add(1);
        }
    }
    None
}

/// `#!/bin/sh`-free `mkdir -p` of a local directory.
pub fn mkdirs(path: &[u8]) {
    for end in (1..=path.len()).filter(|&i| i == path.len() || path[i] == b'/') {
        let part = cstring(&path[..end]);
        sys!(mkdirat, libc::AT_FDCWD, part.as_ptr(), 0o700);
    }
}

/// Turns asynchronous cancellation on for a call that may block, as libc's own wrappers do.
pub struct CancelPoint(Option<c_int>);

impl CancelPoint {
    /// From here on.
    pub fn enter() -> CancelPoint {
        unsafe extern "C" {
            static __libc_single_threaded: c_char;
            fn pthread_setcanceltype(kind: c_int, old: *mut c_int) -> c_int;
        }
        // SAFETY: libc's own variable and function.
        unsafe {
            if __libc_single_threaded != 0 {
                return CancelPoint(None);
            }
            let mut old = 0;
            pthread_setcanceltype(1, &mut old);
            CancelPoint(Some(old))
        }
    }

    /// As it was before.
    pub fn leave(self) {
        unsafe extern "C" {
            fn pthread_setcanceltype(kind: c_int, old: *mut c_int) -> c_int;
        }
        if let Some(old) = self.0 {
            // SAFETY: libc's own function; restores what `enter` found.
            unsafe { pthread_setcanceltype(old, std::ptr::null_mut()) };
        }
    }
}

/// A call that may block for long and that a thread can be cancelled in.
pub fn blocking(f: impl FnOnce() -> Raw) -> isize {
    let point = CancelPoint::enter();
    let r = f();
    point.leave();
    ret(r)
}

/// Whether this is the only thread.
#[inline]
pub fn is_single_threaded() -> bool {
    unsafe extern "C" {
        static __libc_single_threaded: c_char;
    }
    // SAFETY: libc's own variable.
    unsafe { __libc_single_threaded != 0 }
}

/// A thread that was cancelled ends here, as in libc's own wrapper. To be called before anything is held.
#[inline]
pub fn test_cancel() {
    unsafe extern "C" {
        static __libc_single_threaded: c_char;
        fn pthread_testcancel();
    }
    // SAFETY: libc's own variable and function.
    unsafe {
        if __libc_single_threaded == 0 {
            pthread_testcancel();
        }
    }
}

/// File systems of which every host sees the same: NFS, Lustre, GPFS, BeeGFS, CephFS, PanFS, OrangeFS, CIFS, SMB2.
const SHARED: [u64; 9] = [
    0x6969,
    0x0BD0_0BD0,
    0x4750_4653,
    0x1983_0326,
    0x00C3_6400,
    0xAAD7_AAEA,
    0x2003_0528,
    0xFF53_4D42,
    0xFE53_4D42,
];

/// Whether what is at `path` is the same on every host, as far as the kind of its file system tells.
pub fn is_shared(path: &[u8]) -> bool {
    // SAFETY: plain numbers, for which zero is a value.
    let mut found: libc::statfs = unsafe { std::mem::zeroed() };
    let failed = sys!(statfs, cstring(path).as_ptr(), &raw mut found) != 0;
    !failed && SHARED.contains(&(found.f_type as u64 & 0xFFFF_FFFF))
}

/// A page holding 1, which a forked child finds holding 0. Nothing: the kernel is older than 4.14.
pub fn wiped_on_fork() -> Option<&'static AtomicU64> {
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let p = sys!(mmap, 0, 4096, prot, flags, -1i32 as usize, 0);
    if p < 0 || sys!(madvise, p, 4096, libc::MADV_WIPEONFORK) < 0 {
        return None;
    }
    // SAFETY: a fresh page of zeros, which is never unmapped.
    let page = unsafe { &*(p as *const AtomicU64) };
    page.store(1, Ordering::Relaxed);
    Some(page)
}
