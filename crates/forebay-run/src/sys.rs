//! What needs the system directly.

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// What this process was given and its runtime changes before `main`: bits 0 to 2 for standard descriptors that are
/// closed, further ones for signals (by number, from bit 3) that are ignored.
static GIVEN: AtomicU64 = AtomicU64::new(0);
const FIRST_SIGNAL: i32 = 3;
/// Numbered ones beyond it are left alone.
const LAST_SIGNAL: i32 = 60;

extern "C" fn look() {
    let mut given = 0;
    for fd in 0..3 {
        // SAFETY: asks about a number.
        if unsafe { libc::fcntl(fd, libc::F_GETFD) } == -1 {
            given |= 1 << fd;
        }
    }
    if given & 1 << libc::STDOUT_FILENO != 0 {
        // The runtime would put there what takes everything, and a command whose output is lost would say that all
        // went well. Programs that this one starts do not get it.
        // SAFETY: a name that ends in a zero; the numbers are this process's own, and nobody else has any yet.
        unsafe {
            let full = libc::open(c"/dev/full".as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
            if full != -1 && full != libc::STDOUT_FILENO {
                libc::dup3(full, libc::STDOUT_FILENO, libc::O_CLOEXEC);
                libc::close(full);
            }
        }
    }
    for signal in 1..=LAST_SIGNAL {
        // SAFETY: sigaction is plain data, for which zeros are a value; without a new action, only asks.
        let ignored = unsafe {
            let mut now: libc::sigaction = std::mem::zeroed();
            libc::sigaction(signal, std::ptr::null(), &mut now) == 0 && now.sa_sigaction == libc::SIG_IGN
        };
        if ignored {
            given |= 1 << (FIRST_SIGNAL + signal);
        }
    }
    GIVEN.store(given, Relaxed);
}

// SAFETY: the loader calls it once, before main and before other threads; it only asks the kernel, and fills a
// descriptor that nobody has.
#[used]
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn() = look;

/// Whoever started this process wanted its signal to be ignored, as `nohup` does.
pub(crate) fn was_ignored(signal: i32) -> bool {
    signal <= LAST_SIGNAL && GIVEN.load(Relaxed) & (1 << (FIRST_SIGNAL + signal)) != 0
}

/// Whoever started this process closed its standard output.
pub fn output_was_closed() -> bool {
    GIVEN.load(Relaxed) & (1 << libc::STDOUT_FILENO) != 0
}

/// Sends a signal to a process, also one that has only a number.
pub(crate) fn send(to: rustix::process::Pid, signal: i32) {
    // SAFETY: kill(2) of one process that this one started and has not reaped.
    unsafe { libc::kill(to.as_raw_nonzero().get(), signal) };
}

/// The program begins with the standard descriptors and the broken pipes that this process was given.
pub(crate) fn as_given(command: &mut Command) {
    let given = GIVEN.load(Relaxed);
    // SAFETY: close(2) and signal(2) are all that happens between fork and exec, and they are safe there; nothing of
    // the runtime uses these descriptors from then on.
    unsafe {
        command.pre_exec(move || {
            for fd in (0..3).filter(|fd| given & (1 << fd) != 0) {
                libc::close(fd);
            }
            if was_ignored(libc::SIGPIPE) {
                libc::signal(libc::SIGPIPE, libc::SIG_IGN);
            }
            Ok(())
        });
    }
}

/// A terminal's signals are not for this process.
pub(crate) fn own_session(command: &mut Command) {
    // SAFETY: setsid(2) is all that happens between fork and exec, and it is safe there.
    unsafe {
        command.pre_exec(|| {
            rustix::process::setsid()?;
            Ok(())
        });
    }
}

/// The C library's version.
pub(crate) fn glibc_version() -> String {
    // SAFETY: returns a static string.
    unsafe { std::ffi::CStr::from_ptr(libc::gnu_get_libc_version()) }.to_string_lossy().into_owned()
}
