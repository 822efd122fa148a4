//! The kernel's ways to do I/O without waiting. Both pass this library by and would find only
//! placeholders, so both are refused; programs have another way for kernels without them.

use super::fail_errno;
use crate::notes;
use crate::sys;
use crate::table;
use crate::user;
use std::ffi::{c_int, c_long, c_uint, c_void};

/// A ring takes its orders through shared memory.
pub(crate) fn refuse_ring() -> isize {
    notes::note("io_uring", b"", "io_uring passes the library by: refused with ENOSYS");
    fail_errno(libc::ENOSYS)
}

/// liburing makes its system calls itself and returns the error; its functions are replaced by name.
fn refuse_liburing() -> c_int {
    if crate::state::get().is_some() {
        refuse_ring();
    }
    -libc::ENOSYS
}

/// liburing's.
#[unsafe(no_mangle)]
unsafe extern "C" fn io_uring_queue_init(_entries: c_uint, _ring: *mut c_void, _flags: c_uint) -> c_int {
    refuse_liburing()
}

/// liburing's.
#[unsafe(no_mangle)]
unsafe extern "C" fn io_uring_queue_init_params(
    _entries: c_uint,
    _ring: *mut c_void,
    _parameters: *mut c_void,
) -> c_int {
    refuse_liburing()
}

/// liburing's.
#[unsafe(no_mangle)]
unsafe extern "C" fn io_uring_queue_init_mem(
    _entries: c_uint,
    _ring: *mut c_void,
    _parameters: *mut c_void,
    _buffer: *mut c_void,
    _size: usize,
) -> c_int {
    refuse_liburing()
}

/// liburing's.
#[unsafe(no_mangle)]
unsafe extern "C" fn io_uring_setup(_entries: c_uint, _parameters: *mut c_void) -> c_int {
    refuse_liburing()
}

/// libaio's `io_submit`, replaced by its name: the library makes the system call itself. Requests on
/// forwarded files are refused as on a file system without asynchronous I/O.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn io_submit(
    context: usize,
    count: c_long,
    requests: *const *const Iocb,
) -> c_int {
    if crate::state::get().is_some() {
        for i in 0..usize::try_from(count).unwrap_or(0) {
            // SAFETY: any bytes are a pointer or a request; where there are none, the kernel says so.
            let request = unsafe { user::take(requests.wrapping_add(i)).and_then(|r| user::take(r)) };
            let Ok(Iocb { fd, .. }) = request else { break };
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
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Iocb {
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
