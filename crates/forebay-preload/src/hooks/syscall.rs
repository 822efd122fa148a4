//! libc's `syscall()`: programs use it for calls their libc has no function for, and for others too.
//! Whatever this library replaces by name is replaced here by number.

use super::{
    aio, copy, dir, exec, fail_errno, fd, hooks, io, ioctl, limit, lock, map, meta, names, size, socket,
};
use super::{stat, vector, wd, xattr};
use crate::sys;
use std::ffi::{c_int, c_long, c_uint};

hooks! {
    c"syscall" => syscall,
}

/// `fchmodat2`, which older headers do not know.
const SYS_FCHMODAT2: c_long = 452;

/// An argument as the type that a function wants.
trait Argument {
    fn from(word: usize) -> Self;
}

macro_rules! argument {
    ($($t:ty),*) => { $(impl Argument for $t { fn from(word: usize) -> $t { word as $t } })* };
}
argument!(c_int, c_uint, i64, u64, usize);

impl<T> Argument for *const T {
    fn from(word: usize) -> *const T {
        word as *const T
    }
}

impl<T> Argument for *mut T {
    fn from(word: usize) -> *mut T {
        word as *mut T
    }
}

/// `call!(f; a, b)`: calls a replacement with the program's words as its arguments.
macro_rules! call {
    ($f:expr; $($word:expr),*) => {{
        // Some of them are safe functions.
        #[allow(unused_unsafe)]
        // SAFETY: the program's own arguments to the same system call.
        let result = unsafe { $f($(Argument::from($word)),*) as c_long };
        result
    }};
}

unsafe extern "C" fn syscall(
    n: c_long,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
) -> c_long {
    let raw = || {
        // SAFETY: the program's own arguments to its own system call.
        sys::ret(unsafe { sys::raw(n, a, b, c, d, e, f) }) as c_long
    };
    match n {
        libc::SYS_read => call!(io::read; a, b, c),
        libc::SYS_write => call!(io::write; a, b, c),
        libc::SYS_pread64 => call!(io::pread; a, b, c, d),
        libc::SYS_pwrite64 => call!(io::pwrite; a, b, c, d),
        libc::SYS_readv => call!(vector::readv; a, b, c),
        libc::SYS_writev => call!(vector::writev; a, b, c),
        libc::SYS_preadv => call!(vector::preadv; a, b, c, d),
        libc::SYS_pwritev => call!(vector::pwritev; a, b, c, d),
        libc::SYS_preadv2 => call!(vector::preadv2; a, b, c, d, f),
        libc::SYS_pwritev2 => call!(vector::pwritev2; a, b, c, d, f),
        libc::SYS_sendfile => call!(copy::sendfile; a, b, c, d),
        libc::SYS_copy_file_range => call!(copy::copy_file_range; a, b, c, d, e, f),
        libc::SYS_splice => call!(copy::splice; a, b, c, d, e, f),

        libc::SYS_openat => call!(fd::open_at; a, b, c, d),
        libc::SYS_openat2 => call!(fd::openat2; a, b, c, d),
        libc::SYS_open_by_handle_at => call!(meta::open_by_handle_at; a, b, c),
        libc::SYS_name_to_handle_at => call!(meta::name_to_handle_at; a, b, c, d, e),
        libc::SYS_close => call!(fd::close_fd; a),
        libc::SYS_close_range => call!(fd::close_range; a, b, c),
        libc::SYS_dup => call!(fd::dup; a),
        libc::SYS_dup3 => call!(fd::dup3; a, b, c),
        libc::SYS_fcntl => call!(fd::control; a, b, c),
        libc::SYS_ioctl => call!(ioctl::ioctl; a, b, c),
        libc::SYS_umask => call!(fd::umask; a),
        libc::SYS_flock => call!(lock::flock; a, b),
        libc::SYS_mmap => call!(map::map; a, b, c, d, e, f),

        libc::SYS_lseek => call!(size::seek; a, b, c),
        libc::SYS_fsync => call!(size::fsync; a),
        libc::SYS_fdatasync => call!(size::fdatasync; a),
        libc::SYS_syncfs => call!(size::fsync_fs; a),
        libc::SYS_sync_file_range => call!(size::sync_file_range; a, b, c, d),
        libc::SYS_ftruncate => call!(size::ftruncate; a, b),
        libc::SYS_truncate => call!(size::truncate; a, b),
        libc::SYS_fallocate => call!(size::fallocate; a, b, c, d),
        libc::SYS_fadvise64 => sys::ret(size::advise(a as c_int, b as i64, c as i64, d as c_int)) as c_long,
        libc::SYS_readahead => call!(size::readahead; a, b, c),

        libc::SYS_fstat => call!(stat::fstat; a, b),
        libc::SYS_newfstatat => call!(stat::fstatat; a, b, c, d),
        libc::SYS_statx => call!(stat::statx; a, b, c, d, e),
        libc::SYS_faccessat => call!(stat::access_at; a, b, c, 0),
        libc::SYS_faccessat2 => call!(stat::access_at; a, b, c, d),
        libc::SYS_statfs => call!(meta::statfs; a, b),
        libc::SYS_fstatfs => call!(meta::fstatfs; a, b),
        libc::SYS_readlinkat => call!(meta::read_link; a, b, c, d),
        libc::SYS_getdents64 => call!(dir::getdents64; a, b, c),
        libc::SYS_inotify_add_watch => call!(meta::inotify_add_watch; a, b, c),

        libc::SYS_mkdirat => call!(names::make_dir; a, b, c),
        libc::SYS_mknodat => call!(names::make_node; a, b, c, d),
        libc::SYS_unlinkat => call!(names::remove_at; a, b, c),
        libc::SYS_renameat => call!(names::rename_at; a, b, c, d, 0),
        libc::SYS_renameat2 => call!(names::rename_at; a, b, c, d, e),
        libc::SYS_linkat => call!(names::link_at; a, b, c, d, e),
        libc::SYS_symlinkat => call!(names::symlink_at; a, b, c),
        libc::SYS_fchmod => call!(meta::fchmod; a, b),
        libc::SYS_fchmodat => call!(meta::fchmodat; a, b, c, 0),
        SYS_FCHMODAT2 => call!(meta::fchmodat; a, b, c, d),
        libc::SYS_fchown => call!(meta::fchown; a, b, c),
        libc::SYS_fchownat => call!(meta::fchownat; a, b, c, d, e),
        libc::SYS_utimensat => call!(meta::set_times_at; a, b, c, d),

        libc::SYS_getxattr => call!(xattr::getxattr; a, b, c, d),
        libc::SYS_lgetxattr => call!(xattr::lgetxattr; a, b, c, d),
        libc::SYS_fgetxattr => call!(xattr::fgetxattr; a, b, c, d),
        libc::SYS_setxattr => call!(xattr::setxattr; a, b, c, d, e),
        libc::SYS_lsetxattr => call!(xattr::lsetxattr; a, b, c, d, e),
        libc::SYS_fsetxattr => call!(xattr::fsetxattr; a, b, c, d, e),
        libc::SYS_listxattr => call!(xattr::listxattr; a, b, c),
        libc::SYS_llistxattr => call!(xattr::llistxattr; a, b, c),
        libc::SYS_flistxattr => call!(xattr::flistxattr; a, b, c),
        libc::SYS_removexattr => call!(xattr::removexattr; a, b),
        libc::SYS_lremovexattr => call!(xattr::lremovexattr; a, b),
        libc::SYS_fremovexattr => call!(xattr::fremovexattr; a, b),

        libc::SYS_chdir => call!(wd::chdir; a),
        libc::SYS_fchdir => call!(wd::fchdir; a),
        libc::SYS_getcwd => call!(wd::getcwd_call; a, b),
        libc::SYS_chroot => call!(wd::chroot; a),
        libc::SYS_prlimit64 => call!(limit::prlimit; a, b, c, d),
        libc::SYS_setrlimit => call!(limit::setrlimit; a, b),
        libc::SYS_execve => call!(exec::execve; a, b, c),
        libc::SYS_execveat => call!(exec::execveat; a, b, c, d, e),
        // SAFETY: libc's `_exit`.
        libc::SYS_exit_group => unsafe { exec::exit_now(a as c_int) },
        libc::SYS_clone | libc::SYS_clone3 => {
            exec::before_fork();
            raw()
        }

        libc::SYS_bind => call!(socket::bind; a, b, c),
        libc::SYS_connect => call!(socket::connect; a, b, c),
        libc::SYS_accept => call!(socket::accept; a, b, c),
        libc::SYS_accept4 => call!(socket::accept4; a, b, c, d),
        libc::SYS_getsockname => call!(socket::getsockname; a, b, c),
        libc::SYS_getpeername => call!(socket::getpeername; a, b, c),
        libc::SYS_sendto => call!(socket::sendto; a, b, c, d, e, f),
        libc::SYS_recvfrom => call!(socket::recvfrom; a, b, c, d, e, f),
        libc::SYS_sendmsg => call!(socket::sendmsg; a, b, c),
        libc::SYS_recvmsg => call!(socket::recvmsg; a, b, c),
        libc::SYS_sendmmsg => call!(socket::sendmmsg; a, b, c, d),
        libc::SYS_recvmmsg => call!(socket::recvmmsg; a, b, c, d, e),

        libc::SYS_io_uring_setup => aio::refuse_ring() as c_long,
        libc::SYS_io_submit => match call!(aio::io_submit; a, b, c) {
            error if error < 0 => fail_errno(-error as c_int) as c_long,
            done => done,
        },
        _ => old(n, [a, b, c, d]).unwrap_or_else(raw),
    }
}

/// Calls that newer architectures do not have.
#[cfg(target_arch = "x86_64")]
fn old(n: c_long, [a, b, c, d]: [usize; 4]) -> Option<c_long> {
    const HERE: usize = libc::AT_FDCWD as usize;
    Some(match n {
        libc::SYS_open => call!(fd::open_at; HERE, a, b, c),
        libc::SYS_creat => call!(fd::creat; a, b),
        libc::SYS_dup2 => call!(fd::dup2; a, b),
        libc::SYS_stat => call!(stat::stat; a, b),
        libc::SYS_lstat => call!(stat::lstat; a, b),
        libc::SYS_access => call!(stat::access_at; HERE, a, b, 0),
        libc::SYS_readlink => call!(meta::read_link; HERE, a, b, c),
        libc::SYS_mkdir => call!(names::make_dir; HERE, a, b),
        libc::SYS_mknod => call!(names::make_node; HERE, a, b, c),
        libc::SYS_rmdir => call!(names::rmdir; a),
        libc::SYS_unlink => call!(names::unlink; a),
        libc::SYS_rename => call!(names::rename; a, b),
        libc::SYS_link => call!(names::link; a, b),
        libc::SYS_symlink => call!(names::symlink; a, b),
        libc::SYS_chmod => call!(meta::chmod; a, b),
        libc::SYS_chown => call!(meta::chown; a, b, c),
        libc::SYS_lchown => call!(meta::lchown; a, b, c),
        libc::SYS_utime => call!(meta::utime; a, b),
        libc::SYS_utimes => call!(meta::utimes; a, b),
        libc::SYS_futimesat => call!(meta::futimesat; a, b, c),
        libc::SYS_getdents => call!(dir::getdents; a, b, c),
        libc::SYS_fork | libc::SYS_vfork => call!(exec::fork_call; d),
        _ => return None,
    })
}

/// This architecture has none of them.
#[cfg(not(target_arch = "x86_64"))]
fn old(_: c_long, _: [usize; 4]) -> Option<c_long> {
    None
}
