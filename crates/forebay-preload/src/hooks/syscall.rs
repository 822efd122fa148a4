//! libc's `syscall()`: programs use it for calls their libc has no function for.

use super::{dir, fail_errno, fd, hooks, io, map, meta, names, stat};
use crate::notes;
use crate::sys;
use crate::table;
use std::ffi::{c_char, c_int, c_long, c_uint, c_void};

hooks! {
    c"syscall" => syscall,
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
    let text = |p: usize| p as *const c_char;
    match n {
        libc::SYS_openat => fd::open_at(a as c_int, text(b), c as c_int, d as c_uint) as c_long,
        libc::SYS_close => fd::close_fd(a as c_int) as c_long,
        libc::SYS_fcntl => fd::control(a as c_int, b as c_int, c) as c_long,
        libc::SYS_lseek => io::seek(a as c_int, b as i64, c as c_int) as c_long,
        libc::SYS_renameat2 => {
            names::rename_at(a as c_int, text(b), c as c_int, text(d), e as c_uint) as c_long
        }
        // SAFETY: the program's own arguments to the same system call.
        libc::SYS_statx => unsafe {
            stat::statx(a as c_int, text(b), c as c_int, d as c_uint, e as *mut libc::statx) as c_long
        },
        libc::SYS_faccessat2 => stat::access_at(a as c_int, text(b), c as c_int, d as c_int) as c_long,
        libc::SYS_readlinkat => meta::read_link(a as c_int, text(b), c as *mut c_char, d) as c_long,
        // SAFETY: the program's own arguments to the same system call.
        libc::SYS_getdents64 => unsafe { dir::getdents64(a as c_int, b as *mut c_void, c) as c_long },
        libc::SYS_mmap => {
            map::map(a as *mut c_void, b, c as c_int, d as c_int, e as c_int, f as i64) as c_long
        }
        libc::SYS_read | libc::SYS_write if table::is_forwarded(a as c_int) => {
            let Some(open) = table::get(a as c_int) else { return -1 };
            // SAFETY: the program's own buffer of `c` bytes.
            unsafe {
                if n == libc::SYS_read {
                    io::read_open(a as c_int, &open, std::slice::from_raw_parts_mut(b as *mut u8, c), None)
                        as c_long
                } else {
                    io::write_open(a as c_int, &open, std::slice::from_raw_parts(b as *const u8, c), None)
                        as c_long
                }
            }
        }
        // A ring takes its orders through shared memory, past this library, and would find only
        // placeholders. Programs have another way for kernels without it.
        libc::SYS_io_uring_setup => {
            notes::note("io_uring", b"", "io_uring passes the library by: refused with ENOSYS");
            fail_errno(libc::ENOSYS) as c_long
        }
        // SAFETY: the program's own arguments to its own system call.
        _ => sys::ret(unsafe { sys::raw(n, a, b, c, d, e, f) }) as c_long,
    }
}

/// libaio's `io_submit`, replaced by its name: the library makes the system call itself. Requests on
/// forwarded files are refused as on a file system without asynchronous I/O.
#[unsafe(no_mangle)]
unsafe extern "C" fn io_submit(context: usize, count: c_long, requests: *const *const Iocb) -> c_int {
    if crate::state::get().is_some() {
        for i in 0..usize::try_from(count).unwrap_or(0) {
            // SAFETY: the program's own array of `count` requests.
            let fd = unsafe { (**requests.add(i)).fd };
            if let Some(open) = table::get(fd as c_int) {
                notes::note(
                    "aio",
                    &open.path,
                    "asynchronous I/O of the kernel (libaio) is refused with EINVAL",
                );
                return if i == 0 { -libc::EINVAL } else { submit(context, i as c_long, requests) };
            }
        }
    }
    submit(context, count, requests)
}

/// The start of libaio's `struct iocb`.
#[repr(C)]
struct Iocb {
    data: u64,
    key: u64,
    opcode: i16,
    priority: i16,
    fd: u32,
}

/// libaio returns the error.
fn submit(context: usize, count: c_long, requests: *const *const Iocb) -> c_int {
    // SAFETY: the program's own arguments to the same system call.
    unsafe { sys::raw(libc::SYS_io_submit, context, count as usize, requests as usize, 0, 0, 0) as c_int }
}
