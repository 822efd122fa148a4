//! `posix_spawn` with actions on forwarded paths. libc's child opens files and changes directory by
//! ways of its own that cannot be replaced; such a child is made here, by `fork`.

use super::exec;
use crate::path::{self, Resolved};
use crate::state;
use crate::sys::{self, sys};
use crate::table;
use std::ffi::{c_char, c_int, c_short, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};

/// glibc's file actions: how many there are room for, how many there are, and where.
#[repr(C)]
struct Actions {
    _allocated: c_int,
    used: c_int,
    list: *const Action,
}

/// One of them. Its layout is private to glibc, but code of other versions reads what one version
/// wrote, so it only ever grew new tags.
#[repr(C)]
struct Action {
    tag: c_int,
    arguments: Arguments,
}

#[repr(C)]
#[derive(Clone, Copy)]
union Arguments {
    numbers: [c_int; 2],
    path: *const c_char,
    open: Open,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Open {
    fd: c_int,
    path: *const c_char,
    flags: c_int,
    mode: libc::mode_t,
}

enum Step {
    Close(c_int),
    Dup2(c_int, c_int),
    Open(Open),
    Chdir(*const c_char),
    Fchdir(c_int),
    CloseFrom(c_int),
    Foreground(c_int),
}

type Strings = *const *const c_char;
type Spawn = unsafe extern "C" fn(
    *mut libc::pid_t,
    *const c_char,
    *const c_void,
    *const libc::posix_spawnattr_t,
    Strings,
    Strings,
) -> c_int;

/// The actions; `None` if there are some this code does not know.
unsafe fn steps(actions: *const c_void) -> Option<Vec<Step>> {
    if actions.is_null() {
        return Some(Vec::new());
    }
    // SAFETY: the program's own actions, made by libc's functions.
    let actions = unsafe { &*actions.cast::<Actions>() };
    (0..usize::try_from(actions.used).ok()?)
        .map(|i| {
            // SAFETY: `used` entries, and the tag says which arguments are set.
            unsafe {
                let a = &*actions.list.add(i);
                let [x, y] = a.arguments.numbers;
                Some(match a.tag {
                    0 => Step::Close(x),
                    1 => Step::Dup2(x, y),
                    2 => Step::Open(a.arguments.open),
                    3 => Step::Chdir(a.arguments.path),
                    4 => Step::Fchdir(x),
                    5 => Step::CloseFrom(x),
                    6 => Step::Foreground(x),
                    _ => return None,
                })
            }
        })
        .collect()
}

/// Whether libc's child would go wrong.
fn concerns_us(steps: &[Step]) -> bool {
    let forwarded = |p: *const c_char| {
        // SAFETY: libc's own copy of the program's path.
        unsafe { crate::user::text(p) }
            .is_some_and(|p| !matches!(path::place(libc::AT_FDCWD, p), Resolved::Local))
    };
    let moves = steps.iter().any(|s| matches!(s, Step::Chdir(_) | Step::Fchdir(_)));
    steps.iter().any(|s| match s {
        // After a change of directory, a relative path is another one.
        Step::Open(o) => moves || forwarded(o.path),
        Step::Chdir(p) => forwarded(*p),
        Step::Fchdir(fd) => table::is_forwarded(*fd),
        _ => false,
    })
}

/// Whether the program to start may be in a forwarded directory: libc's child has too small a stack to
/// fetch it.
fn starts_ours(search: bool, file: &[u8]) -> bool {
    let ours = |p: &[u8]| !matches!(path::place(libc::AT_FDCWD, p), Resolved::Local);
    if !search || file.contains(&b'/') {
        return ours(file);
    }
    sys::env(b"PATH")
        .unwrap_or_default()
        .split(|&b| b == b':')
        .any(|dir| ours(&path::join(if dir.is_empty() { b"." } else { dir }, file)))
}

static REAL: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];

fn real(search: bool) -> Spawn {
    let slot = &REAL[usize::from(search)];
    if slot.load(Ordering::Relaxed) == 0 {
        let name = if search { c"posix_spawnp" } else { c"posix_spawn" };
        slot.store(sys::dlsym(libc::RTLD_NEXT, name) as usize, Ordering::Relaxed);
    }
    // SAFETY: libc has both, with this signature.
    unsafe { std::mem::transmute::<usize, Spawn>(slot.load(Ordering::Relaxed)) }
}

/// Takes the place of libc's by its name.
#[unsafe(no_mangle)]
unsafe extern "C" fn posix_spawn(
    pid: *mut libc::pid_t,
    path: *const c_char,
    actions: *const c_void,
    attr: *const libc::posix_spawnattr_t,
    argv: Strings,
    envp: Strings,
) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe { spawn(false, pid, path, actions, attr, argv, envp) }
}

/// Takes the place of libc's by its name.
#[unsafe(no_mangle)]
unsafe extern "C" fn posix_spawnp(
    pid: *mut libc::pid_t,
    file: *const c_char,
    actions: *const c_void,
    attr: *const libc::posix_spawnattr_t,
    argv: Strings,
    envp: Strings,
) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe { spawn(true, pid, file, actions, attr, argv, envp) }
}

unsafe fn spawn(
    search: bool,
    pid: *mut libc::pid_t,
    file: *const c_char,
    actions: *const c_void,
    attr: *const libc::posix_spawnattr_t,
    argv: Strings,
    envp: Strings,
) -> c_int {
    if state::get().is_some() {
        exec::before_fork();
        // SAFETY: the program's own arguments.
        let (steps, program) = unsafe { (steps(actions), crate::user::text(file).unwrap_or_default()) };
        if let Some(steps) = steps
            && (concerns_us(&steps) || starts_ours(search, program))
        {
            // SAFETY: as above.
            return unsafe { by_fork(search, pid, file, &steps, attr, argv, envp) };
        }
    }
    // SAFETY: the program's own arguments.
    unsafe { real(search)(pid, file, actions, attr, argv, envp) }
}

/// A child of our own; what fails in it is reported through a pipe that closes when it succeeds.
unsafe fn by_fork(
    search: bool,
    pid: *mut libc::pid_t,
    file: *const c_char,
    steps: &[Step],
    attr: *const libc::posix_spawnattr_t,
    argv: Strings,
    envp: Strings,
) -> c_int {
    let mut pipe = [0; 2];
    // SAFETY: libc's own functions with our own arguments and the program's.
    unsafe {
        if libc::pipe2(pipe.as_mut_ptr(), libc::O_CLOEXEC) < 0 {
            return sys::errno();
        }
        let child = libc::fork();
        if child < 0 {
            let e = sys::errno();
            sys::close(pipe[0]);
            sys::close(pipe[1]);
            return e;
        }
        if child == 0 {
            let mut report = pipe[1];
            if prepare(attr) && steps.iter().all(|s| take(s, &mut report)) {
                if search {
                    libc::execvpe(file, argv, envp);
                } else {
                    libc::execve(file, argv, envp);
                }
            }
            let e = sys::errno();
            sys!(write, report, &raw const e, size_of::<c_int>());
            libc::_exit(127);
        }
        sys::close(pipe[1]);
        let mut failed: c_int = 0;
        let n = loop {
            match sys!(read, pipe[0], &raw mut failed, size_of::<c_int>()) {
                n if n == -(libc::EINTR as isize) => {}
                n => break n,
            }
        };
        sys::close(pipe[0]);
        if n > 0 {
            libc::waitpid(child, std::ptr::null_mut(), 0);
            return failed;
        }
        if !pid.is_null() {
            *pid = child;
        }
        0
    }
}

/// The child's attributes, in the order libc applies them.
unsafe fn prepare(attr: *const libc::posix_spawnattr_t) -> bool {
    if attr.is_null() {
        return true;
    }
    // SAFETY: the program's own attributes, read and applied by libc's functions.
    unsafe {
        let mut flags: c_short = 0;
        libc::posix_spawnattr_getflags(attr, &mut flags);
        let has = |flag: c_int| c_int::from(flags) & flag != 0;
        const SETSID: c_int = 0x80;
        if has(libc::POSIX_SPAWN_SETSIGDEF) {
            let mut set = std::mem::zeroed();
            libc::posix_spawnattr_getsigdefault(attr, &mut set);
            for signal in 1..=64 {
                if libc::sigismember(&set, signal) == 1 {
                    libc::signal(signal, libc::SIG_DFL);
                }
            }
        }
        if has(libc::POSIX_SPAWN_SETSCHEDULER) {
            let (mut policy, mut param) = (0, std::mem::zeroed());
            libc::posix_spawnattr_getschedpolicy(attr, &mut policy);
            libc::posix_spawnattr_getschedparam(attr, &mut param);
            if libc::sched_setscheduler(0, policy, &param) < 0 {
                return false;
            }
        } else if has(libc::POSIX_SPAWN_SETSCHEDPARAM) {
            let mut param = std::mem::zeroed();
            libc::posix_spawnattr_getschedparam(attr, &mut param);
            if libc::sched_setparam(0, &param) < 0 {
                return false;
            }
        }
        if has(SETSID) && libc::setsid() < 0 {
            return false;
        }
        if has(libc::POSIX_SPAWN_SETPGROUP) {
            let mut group = 0;
            libc::posix_spawnattr_getpgroup(attr, &mut group);
            if libc::setpgid(0, group) < 0 {
                return false;
            }
        }
        if has(libc::POSIX_SPAWN_RESETIDS)
            && (libc::setegid(libc::getgid()) < 0 || libc::seteuid(libc::getuid()) < 0)
        {
            return false;
        }
        if has(libc::POSIX_SPAWN_SETSIGMASK) {
            let mut set = std::mem::zeroed();
            libc::posix_spawnattr_getsigmask(attr, &mut set);
            libc::sigprocmask(libc::SIG_SETMASK, &set, std::ptr::null_mut());
        }
        true
    }
}

/// One action; the pipe's number must survive it.
fn take(step: &Step, report: &mut c_int) -> bool {
    // SAFETY: libc's own functions, ours by now, with the program's arguments.
    unsafe {
        let about = |fd: c_int, report: &mut c_int| {
            if fd == *report {
                *report = libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 3);
            }
        };
        match *step {
            Step::Close(fd) => {
                about(fd, report);
                libc::close(fd);
                true
            }
            Step::Dup2(from, to) => {
                about(to, report);
                if from == to {
                    // It is to stay open in the program.
                    let flags = libc::fcntl(from, libc::F_GETFD);
                    return flags >= 0 && libc::fcntl(from, libc::F_SETFD, flags & !libc::FD_CLOEXEC) == 0;
                }
                libc::dup2(from, to) >= 0
            }
            Step::Open(o) => {
                about(o.fd, report);
                libc::close(o.fd);
                let fd = libc::open(o.path, o.flags, o.mode);
                if fd < 0 || fd == o.fd {
                    return fd >= 0;
                }
                libc::dup2(fd, o.fd) >= 0 && libc::close(fd) == 0
            }
            Step::Chdir(path) => libc::chdir(path) == 0,
            Step::Fchdir(fd) => libc::fchdir(fd) == 0,
            Step::CloseFrom(from) => {
                if *report >= from {
                    // As the lowest number left, it is closed by its own mark.
                    let moved = libc::fcntl(*report, libc::F_DUPFD_CLOEXEC, 0);
                    if (0..from).contains(&moved) {
                        *report = moved;
                    }
                }
                super::fd::close_range(from as u32, u32::MAX, 0) == 0
            }
            Step::Foreground(fd) => libc::tcsetpgrp(fd, libc::getpgrp()) == 0,
        }
    }
}
