//! Raw system calls and libc's few non-file functions the library needs. Everything that could
//! reach a replaced function goes through here instead.

use std::arch::asm;
use std::ffi::{CStr, c_char, c_int, c_void};

/// A system call's result as the kernel gives it: negative errno, or a value.
pub(crate) type Raw = isize;

/// Any system call.
///
/// # Safety
/// The arguments must be what the system call `n` expects.
#[cfg(target_arch = "x86_64")]
pub(crate) unsafe fn raw(n: i64, a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> Raw {
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
pub(crate) unsafe fn raw(n: i64, a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> Raw {
    let ret: isize;
    // SAFETY: the kernel's calling convention; memory is touched as the caller's arguments say.
    unsafe {
        asm!("svc 0", in("x8") n, inlateout("x0") a as isize => ret, in("x1") b, in("x2") c,
             in("x3") d, in("x4") e, in("x5") f, options(nostack));
    }
    ret
}

/// `sys!(openat, fd, path, …)`: a raw system call by name, missing arguments are 0.
macro_rules! sys {
    ($name:ident $(, $arg:expr)*) => {
        $crate::sys::call($crate::sys::nr::$name, &[$($arg as usize),*])
    };
}
/// System call numbers by name, for [`sys!`].
#[allow(non_upper_case_globals)]
pub(crate) mod nr {
    pub(crate) const openat: i64 = libc::SYS_openat;
    pub(crate) const close: i64 = libc::SYS_close;
    pub(crate) const read: i64 = libc::SYS_read;
    pub(crate) const write: i64 = libc::SYS_write;
    pub(crate) const pread64: i64 = libc::SYS_pread64;
    pub(crate) const pwrite64: i64 = libc::SYS_pwrite64;
    pub(crate) const readv: i64 = libc::SYS_readv;
    pub(crate) const writev: i64 = libc::SYS_writev;
    pub(crate) const preadv2: i64 = libc::SYS_preadv2;
    pub(crate) const pwritev2: i64 = libc::SYS_pwritev2;
    pub(crate) const lseek: i64 = libc::SYS_lseek;
    pub(crate) const dup: i64 = libc::SYS_dup;
    pub(crate) const dup3: i64 = libc::SYS_dup3;
    pub(crate) const fcntl: i64 = libc::SYS_fcntl;
    pub(crate) const fsync: i64 = libc::SYS_fsync;
    pub(crate) const fdatasync: i64 = libc::SYS_fdatasync;
    pub(crate) const syncfs: i64 = libc::SYS_syncfs;
    pub(crate) const sync_file_range: i64 = libc::SYS_sync_file_range;
    pub(crate) const ftruncate: i64 = libc::SYS_ftruncate;
    pub(crate) const truncate: i64 = libc::SYS_truncate;
    pub(crate) const fallocate: i64 = libc::SYS_fallocate;
    pub(crate) const fadvise64: i64 = libc::SYS_fadvise64;
    pub(crate) const waitid: i64 = libc::SYS_waitid;
    pub(crate) const rt_sigprocmask: i64 = libc::SYS_rt_sigprocmask;
    pub(crate) const rt_sigpending: i64 = libc::SYS_rt_sigpending;
    pub(crate) const readahead: i64 = libc::SYS_readahead;
    pub(crate) const newfstatat: i64 = libc::SYS_newfstatat;
    pub(crate) const fstat: i64 = libc::SYS_fstat;
    pub(crate) const statx: i64 = libc::SYS_statx;
    pub(crate) const faccessat: i64 = libc::SYS_faccessat;
    pub(crate) const faccessat2: i64 = libc::SYS_faccessat2;
    pub(crate) const mkdirat: i64 = libc::SYS_mkdirat;
    pub(crate) const mknodat: i64 = libc::SYS_mknodat;
    pub(crate) const unlinkat: i64 = libc::SYS_unlinkat;
    pub(crate) const renameat2: i64 = libc::SYS_renameat2;
    pub(crate) const linkat: i64 = libc::SYS_linkat;
    pub(crate) const symlinkat: i64 = libc::SYS_symlinkat;
    pub(crate) const readlinkat: i64 = libc::SYS_readlinkat;
    pub(crate) const fchmod: i64 = libc::SYS_fchmod;
    pub(crate) const fchmodat: i64 = libc::SYS_fchmodat;
    pub(crate) const fchown: i64 = libc::SYS_fchown;
    pub(crate) const fchownat: i64 = libc::SYS_fchownat;
    pub(crate) const utimensat: i64 = libc::SYS_utimensat;
    pub(crate) const getdents64: i64 = libc::SYS_getdents64;
    pub(crate) const chdir: i64 = libc::SYS_chdir;
    pub(crate) const fchdir: i64 = libc::SYS_fchdir;
    pub(crate) const getcwd: i64 = libc::SYS_getcwd;
    pub(crate) const statfs: i64 = libc::SYS_statfs;
    pub(crate) const fstatfs: i64 = libc::SYS_fstatfs;
    pub(crate) const getxattr: i64 = libc::SYS_getxattr;
    pub(crate) const lgetxattr: i64 = libc::SYS_lgetxattr;
    pub(crate) const fgetxattr: i64 = libc::SYS_fgetxattr;
    pub(crate) const setxattr: i64 = libc::SYS_setxattr;
    pub(crate) const lsetxattr: i64 = libc::SYS_lsetxattr;
    pub(crate) const fsetxattr: i64 = libc::SYS_fsetxattr;
    pub(crate) const listxattr: i64 = libc::SYS_listxattr;
    pub(crate) const llistxattr: i64 = libc::SYS_llistxattr;
    pub(crate) const flistxattr: i64 = libc::SYS_flistxattr;
    pub(crate) const removexattr: i64 = libc::SYS_removexattr;
    pub(crate) const lremovexattr: i64 = libc::SYS_lremovexattr;
    pub(crate) const fremovexattr: i64 = libc::SYS_fremovexattr;
    pub(crate) const flock: i64 = libc::SYS_flock;
    pub(crate) const mmap: i64 = libc::SYS_mmap;
    pub(crate) const munmap: i64 = libc::SYS_munmap;
    pub(crate) const mprotect: i64 = libc::SYS_mprotect;
    pub(crate) const madvise: i64 = libc::SYS_madvise;
    pub(crate) const sendfile: i64 = libc::SYS_sendfile;
    pub(crate) const copy_file_range: i64 = libc::SYS_copy_file_range;
    pub(crate) const splice: i64 = libc::SYS_splice;
    pub(crate) const execve: i64 = libc::SYS_execve;
    pub(crate) const execveat: i64 = libc::SYS_execveat;
    pub(crate) const exit_group: i64 = libc::SYS_exit_group;
    pub(crate) const getpid: i64 = libc::SYS_getpid;
    pub(crate) const geteuid: i64 = libc::SYS_geteuid;
    pub(crate) const umask: i64 = libc::SYS_umask;
    pub(crate) const memfd_create: i64 = libc::SYS_memfd_create;
    pub(crate) const close_range: i64 = libc::SYS_close_range;
    pub(crate) const inotify_add_watch: i64 = libc::SYS_inotify_add_watch;
    pub(crate) const nanosleep: i64 = libc::SYS_nanosleep;
    pub(crate) const ppoll: i64 = libc::SYS_ppoll;
    pub(crate) const name_to_handle_at: i64 = libc::SYS_name_to_handle_at;
    pub(crate) const futex: i64 = libc::SYS_futex;
    pub(crate) const chroot: i64 = libc::SYS_chroot;
    pub(crate) const bind: i64 = libc::SYS_bind;
    pub(crate) const connect: i64 = libc::SYS_connect;
    pub(crate) const sendto: i64 = libc::SYS_sendto;
    pub(crate) const sendmsg: i64 = libc::SYS_sendmsg;
    pub(crate) const recvmsg: i64 = libc::SYS_recvmsg;
    pub(crate) const sendmmsg: i64 = libc::SYS_sendmmsg;
    pub(crate) const recvmmsg: i64 = libc::SYS_recvmmsg;
    pub(crate) const getsockname: i64 = libc::SYS_getsockname;
    pub(crate) const getpeername: i64 = libc::SYS_getpeername;
    pub(crate) const accept4: i64 = libc::SYS_accept4;
    pub(crate) const prlimit64: i64 = libc::SYS_prlimit64;
    pub(crate) const tgkill: i64 = libc::SYS_tgkill;
    pub(crate) const gettid: i64 = libc::SYS_gettid;
    pub(crate) const ioctl: i64 = libc::SYS_ioctl;
    pub(crate) const unshare: i64 = libc::SYS_unshare;
    pub(crate) const open_by_handle_at: i64 = libc::SYS_open_by_handle_at;
    pub(crate) const fchmodat2: i64 = 452;
    pub(crate) const openat2: i64 = libc::SYS_openat2;
    pub(crate) const recvfrom: i64 = libc::SYS_recvfrom;
    #[cfg(target_arch = "x86_64")]
    pub(crate) const getdents: i64 = libc::SYS_getdents;
    pub(crate) const sched_yield: i64 = libc::SYS_sched_yield;
}
pub(crate) use sys;

/// A raw system call with up to six arguments.
pub(crate) fn call(n: i64, args: &[usize]) -> Raw {
    let at = |i: usize| args.get(i).copied().unwrap_or(0);
    // SAFETY: a libc function's arguments are handed to its own system call unchanged, or they are
    // this library's own buffers; the kernel checks pointers itself (EFAULT).
    unsafe { raw(n, at(0), at(1), at(2), at(3), at(4), at(5)) }
}

/// libc's convention: −1 and `errno`, or the value.
pub(crate) fn ret(r: Raw) -> isize {
    if (-4095..0).contains(&r) {
        set_errno(-r as i32);
        -1
    } else {
        r
    }
}

pub(crate) fn set_errno(e: i32) {
    // SAFETY: libc's own per-thread location.
    unsafe { *libc::__errno_location() = e };
}

pub(crate) fn errno() -> i32 {
    // SAFETY: libc's own per-thread location.
    unsafe { *libc::__errno_location() }
}

pub(crate) fn getpid() -> i32 {
    sys!(getpid) as i32
}

/// A function of a loaded library, or null.
pub(crate) fn dlsym(handle: *mut c_void, name: &CStr) -> *mut c_void {
    // SAFETY: a valid handle and a C string.
    unsafe { libc::dlsym(handle, name.as_ptr()) }
}

/// A library that is loaded already.
pub(crate) fn loaded(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: a C string; nothing is loaded anew.
    let h = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOLOAD | libc::RTLD_LAZY) };
    (!h.is_null()).then_some(h)
}

/// The file this library was loaded from.
pub(crate) fn own_file() -> Option<Vec<u8>> {
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
pub(crate) fn monotonic() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call fills the structure it is given, and nothing else.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// With a terminating NUL, for raw calls.
pub(crate) fn cstring(path: &[u8]) -> Vec<u8> {
    let mut v = Vec::with_capacity(path.len() + 1);
    v.extend_from_slice(path);
    v.push(0);
    v
}

/// Opens a local file.
pub(crate) fn open(path: &[u8], flags: c_int, mode: u32) -> Raw {
    let path = cstring(path);
    sys!(openat, libc::AT_FDCWD, path.as_ptr(), flags, mode)
}

pub(crate) fn close(fd: c_int) {
    sys!(close, fd);
}

/// The whole of a small local file.
pub(crate) fn read_file(path: &[u8], limit: usize) -> Option<Vec<u8>> {
    let fd = open(path, libc::O_RDONLY | libc::O_CLOEXEC, 0);
    if fd < 0 {
        return None;
    }
    let out = read_all(fd as c_int, limit);
    close(fd as c_int);
    out
}

/// All that can be read from the start of `fd`, up to `limit` bytes.
pub(crate) fn read_all(fd: c_int, limit: usize) -> Option<Vec<u8>> {
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
pub(crate) fn readlink(path: &[u8]) -> Option<Vec<u8>> {
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
pub(crate) fn getcwd_into(buf: &mut [u8; libc::PATH_MAX as usize]) -> Option<&[u8]> {
    let n = sys!(getcwd, buf.as_mut_ptr(), buf.len());
    // One that cannot be reached from the root has another beginning.
    (n > 0 && buf[0] == b'/').then(|| &buf[..n as usize - 1])
}

/// A number that is this thread's own while it lives.
pub(crate) fn thread() -> usize {
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
pub(crate) fn env(name: &[u8]) -> Option<&'static [u8]> {
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
pub(crate) fn mkdirs(path: &[u8]) {
    for end in (1..=path.len()).filter(|&i| i == path.len() || path[i] == b'/') {
        let part = cstring(&path[..end]);
        sys!(mkdirat, libc::AT_FDCWD, part.as_ptr(), 0o700);
    }
}

/// Turns asynchronous cancellation on for a call that may block, as libc's own wrappers do.
pub(crate) struct CancelPoint(Option<c_int>);

impl CancelPoint {
    pub(crate) fn enter() -> CancelPoint {
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

    pub(crate) fn leave(self) {
        unsafe extern "C" {
            fn pthread_setcanceltype(kind: c_int, old: *mut c_int) -> c_int;
        }
        if let Some(old) = self.0 {
            // SAFETY: libc's own function; restores what `enter` found.
            unsafe { pthread_setcanceltype(old, std::ptr::null_mut()) };
        }
    }
}

/// A thread that was cancelled ends here, as in libc's own wrapper. To be called before anything is held.
pub(crate) fn test_cancel() {
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
pub(crate) fn is_shared(path: &[u8]) -> bool {
    // SAFETY: plain numbers, for which zero is a value.
    let mut found: libc::statfs = unsafe { std::mem::zeroed() };
    let failed = sys!(statfs, cstring(path).as_ptr(), &raw mut found) != 0;
    !failed && SHARED.contains(&(found.f_type as u64 & 0xFFFF_FFFF))
}
