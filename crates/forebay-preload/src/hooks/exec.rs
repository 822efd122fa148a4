//! Starting programs: those that live in a forwarded directory, and passing the library on to those
//! that do not. And the end of this one.

use super::{fail, fail_errno, hooks, library};
use crate::cwd::{self, Kernel};
use crate::notes;
use crate::path::{self, Remote, Resolved};
use crate::state::state;
use crate::sys::{self, sys};
use forebay_client::{Attr, Client, Error, Meta};
use forebay_program::{HEAD, Uncovered, script, uncovered};
use std::cell::OnceCell;
use std::ffi::{CStr, c_char, c_int};
use std::time::Duration;

hooks! {
    c"posix_spawnattr_init" => attributes_init, c"posix_spawn_file_actions_init" => actions_init,
    c"execve" => execve, c"execveat" => execveat, c"fexecve" => fexecve, c"_exit" => exit_now,
    c"_Exit" => exit_now, c"vfork" => vfork,
}

/// What `/proc/self/exe` is for a program that was started from a forwarded directory.
pub(crate) const EXE: &[u8] = b"FOREBAY_EXE";
/// Where the dynamic linker looks, and what that was before we put more into it.
const SEARCH: &[u8] = b"LD_LIBRARY_PATH";
pub(crate) const SEARCH_BEFORE: &[u8] = b"FOREBAY_LD_LIBRARY_PATH";
const PRELOAD: &[u8] = b"LD_PRELOAD";
/// The process, and the files that it has locks on: its next program must hear that it has them no more.
pub(crate) const LOCKED: &[u8] = b"FOREBAY_LOCKED";
/// The process, and the files of which it was not told that a write had failed: its next program must hear of that.
pub(crate) const LATE: &[u8] = b"FOREBAY_LATE";

type Strings = *const *const c_char;

pub(crate) unsafe extern "C" fn exit_now(code: c_int) -> ! {
    if let Some(client) = state().client_if_any()
        && !state().is_passing_child()
    {
        super::lock::on_exit(client);
        client.leave();
    }
    loop {
        sys!(exit_group, code);
    }
}

/// A fork is about to happen: the child may use open files after this process has closed them.
pub(crate) extern "C" fn before_fork() {
    let Some(client) = state().client_if_any() else { return };
    client.note_fork();
    crate::place::settle_all();
    for (_, open) in crate::table::all() {
        if let Some(file) = open.remote() {
            client.settle_later(file);
            file.set_shared(true);
        }
    }
}

/// How long a child may take to hold its parent's locks before it goes on.
const ADOPT_LIMIT: Duration = Duration::from_secs(5);

/// In a forked child: it shares what its parent has open, and holds its locks, even if it never uses them.
pub(crate) extern "C" fn after_fork() {
    for (_, open) in crate::table::all() {
        let Some(file) = open.remote() else { continue };
        file.enter_common();
        if file.holds_locks() {
            // If it cannot be reached now, the first use says so: nobody would hear it here.
            let _ = state().client().adopt_early(file, ADOPT_LIMIT);
        }
    }
}

/// What `system` calls before it spawns, by ways of libc's own that pass our `posix_spawn` by.
unsafe extern "C" fn attributes_init(attributes: *mut libc::posix_spawnattr_t) -> c_int {
    before_fork();
    // SAFETY: the program's own object, which libc too sets to zero.
    unsafe { attributes.write_bytes(0, 1) };
    0
}

/// What `popen` calls before it spawns.
unsafe extern "C" fn actions_init(actions: *mut libc::posix_spawn_file_actions_t) -> c_int {
    before_fork();
    // SAFETY: the program's own object, which libc too sets to zero.
    unsafe { actions.write_bytes(0, 1) };
    0
}

/// A child that shares its parent's memory would undo the parent's bookkeeping: it gets a copy.
unsafe extern "C" fn vfork() -> c_int {
    // SAFETY: `fork` is what POSIX lets `vfork` be.
    unsafe { libc::fork() }
}

/// The system calls `fork` and `vfork`, by number.
pub(crate) fn fork_call(_: usize) -> c_int {
    // SAFETY: libc's own.
    unsafe { libc::fork() }
}

pub(crate) unsafe extern "C" fn execve(path: *const c_char, argv: Strings, envp: Strings) -> c_int {
    run(libc::AT_FDCWD, path, argv, envp, 0)
}

pub(crate) unsafe extern "C" fn execveat(
    dirfd: c_int,
    path: *const c_char,
    argv: Strings,
    envp: Strings,
    flags: c_int,
) -> c_int {
    run(dirfd, path, argv, envp, flags)
}

unsafe extern "C" fn fexecve(fd: c_int, argv: Strings, envp: Strings) -> c_int {
    run(fd, c"".as_ptr(), argv, envp, libc::AT_EMPTY_PATH)
}

/// A program's arguments or environment, owned.
fn strings(p: Strings) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    if p.is_null() {
        return all;
    }
    let mut p = p;
    // SAFETY: the program's own null-terminated array of C strings.
    unsafe {
        while !(*p).is_null() {
            all.push(CStr::from_ptr(*p).to_bytes_with_nul().to_vec());
            p = p.add(1);
        }
    }
    all
}

fn pointers(all: &[Vec<u8>]) -> Vec<*const c_char> {
    all.iter().map(|s| s.as_ptr().cast()).chain([std::ptr::null()]).collect()
}

fn has(env: &[Vec<u8>], name: &[u8]) -> bool {
    env.iter().any(|e| e.starts_with(name) && e.get(name.len()) == Some(&b'='))
}

fn value_of(env: &[Vec<u8>], name: &[u8]) -> Option<Vec<u8>> {
    env.iter().find_map(|e| e.strip_prefix(name)?.strip_prefix(b"=")?.strip_suffix(b"\0").map(<[u8]>::to_vec))
}

fn remove(env: &mut Vec<Vec<u8>>, name: &[u8]) {
    env.retain(|e| !(e.starts_with(name) && e.get(name.len()) == Some(&b'=')));
}

fn variable(name: &[u8], value: &[u8]) -> Vec<u8> {
    [name, b"=", value, b"\0"].concat()
}

fn run(dirfd: c_int, path: *const c_char, argv: Strings, envp: Strings, flags: c_int) -> c_int {
    let (mut locked, mut late) = (Vec::new(), Vec::new());
    let passing = state().is_passing_child();
    if !passing {
        crate::place::settle_all();
        if let Some(client) = state().client_if_any() {
            for (_, open) in crate::table::all() {
                let Some(file) = open.remote() else { continue };
                if let Err(e) = client.rescue(file) {
                    return fail_errno(e.errno()) as c_int;
                }
                if file.has_process_locks() {
                    locked.push(file.identity);
                }
            }
        }
    }
    for (fd, open) in crate::table::all() {
        let Some(file) = open.remote() else { continue };
        let stays = || sys!(fcntl, fd, libc::F_GETFD) & libc::FD_CLOEXEC as isize == 0;
        match file.hand_down(stays, passing) {
            Ok(key) => late.extend(key),
            Err(e) => return fail_errno(e.errno()) as c_int,
        }
    }
    let mut args = strings(argv);
    let mut env = strings(envp);
    for (name, files) in [(LOCKED, locked), (LATE, late)] {
        remove(&mut env, name);
        if !files.is_empty() {
            let all: Vec<String> = files.iter().map(u64::to_string).collect();
            env.push(variable(name, format!("{} {}", sys::getpid(), all.join(" ")).as_bytes()));
        }
    }
    let state = state();
    // A cleaned environment would leave the child's I/O behind.
    if !has(&env, b"FOREBAY_CONFIG") {
        env.push(variable(b"FOREBAY_CONFIG", &state.config_path));
    }
    preload(&mut env, !state.has_left());
    remove(&mut env, EXE);
    remove(&mut env, cwd::VARIABLE);
    if let Some(Kernel::Elsewhere(export)) = state.cwd.get().map(|c| c.kernel) {
        env.push(variable(cwd::VARIABLE, export.to_string().as_bytes()));
    }
    // SAFETY: the program's own argument to a function that takes a C string.
    let Some(given) = (unsafe { crate::user::text(path) }) else {
        return local(dirfd, path, &args, &env, flags);
    };
    let mut place = if given.is_empty() && flags & libc::AT_EMPTY_PATH != 0 {
        match crate::table::get(dirfd) {
            Some(open) => path::place_of_absolute(&path::open_path(&open)),
            None => Resolved::Local,
        }
    } else {
        path::place(dirfd, given)
    };
    let passing = OnceCell::new();
    // Made only when it is needed: a child that shares its parent's memory runs on a small stack.
    let client = || -> &Client {
        if state.is_passing_child() { passing.get_or_init(|| state.passing_client()) } else { state.client() }
    };
    let search = value_of(&env, SEARCH).unwrap_or_default();
    // How a script is told its own name: as the caller wrote it.
    let mut name = given.to_vec();
    // A script may name an interpreter that is a script; the kernel allows four.
    for _ in 0..8 {
        match place {
            Resolved::Local | Resolved::Above(_) => {
                if let Err(e) = look_at(&client, dirfd, path, &search, &mut env) {
                    return fail_errno(e) as c_int;
                }
                let code = local(dirfd, path, &args, &env, flags);
                if sys::errno() == libc::ENOENT
                    && let Some(next) = path::through_link(dirfd, given, true)
                {
                    place = next;
                    continue;
                }
                return code;
            }
            Resolved::LocalAt(p) => {
                let p = sys::cstring(&p);
                if let Err(e) = look_at(&client, libc::AT_FDCWD, p.as_ptr().cast(), &search, &mut env) {
                    return fail_errno(e) as c_int;
                }
                return local(libc::AT_FDCWD, p.as_ptr().cast(), &args, &env, 0);
            }
            Resolved::Remote(r) => match path::unshadowed(&r, true).and_then(|()| fetch(client(), &r)) {
                Ok((program, attr)) => match script(&program) {
                    Some((interpreter, argument)) => {
                        let mut new = vec![sys::cstring(interpreter)];
                        new.extend(argument.map(sys::cstring));
                        new.push(sys::cstring(if name.is_empty() { &r.full } else { &name }));
                        new.extend(args.drain(..).skip(1));
                        args = new;
                        let Some(cwd) = state.cwd.get() else { return fail_errno(libc::ENOENT) as c_int };
                        place = path::place_of_absolute(&path::join(&cwd.path, interpreter));
                        name = interpreter.to_vec();
                    }
                    None => {
                        env.push(variable(EXE, &r.full));
                        return from_copy(client(), &r, &program, &attr, &search, &args, env);
                    }
                },
                Err(Error::Escapes) => match path::follow_out(&r, true) {
                    Ok(p) => place = path::place_of_absolute(&p),
                    Err(e) => return fail(&e, &r.full) as c_int,
                },
                Err(e) => return fail(&e, &r.full) as c_int,
            },
        }
    }
    fail_errno(libc::ELOOP) as c_int
}

fn local(dirfd: c_int, path: *const c_char, args: &[Vec<u8>], env: &[Vec<u8>], flags: c_int) -> c_int {
    let (args, env) = (pointers(args), pointers(env));
    let r = if dirfd == libc::AT_FDCWD && flags == 0 {
        sys!(execve, path, args.as_ptr(), env.as_ptr())
    } else {
        sys!(execveat, dirfd, path, args.as_ptr(), env.as_ptr(), flags)
    };
    sys::ret(r) as c_int
}

/// The program's file, whole, if it may be executed.
fn fetch(client: &Client, r: &Remote) -> Result<(Vec<u8>, Attr), Error> {
    client.meta(Meta::Access { path: r.wire(), mode: libc::X_OK as u32, follow: true }, |_| Some(()))?;
    library::fetch(client, r)
}

/// Executes a copy of the program.
fn from_copy(
    client: &Client,
    r: &Remote,
    program: &[u8],
    attr: &Attr,
    search: &[u8],
    args: &[Vec<u8>],
    mut env: Vec<Vec<u8>>,
) -> c_int {
    if !program.starts_with(b"\x7fELF") {
        return fail_errno(libc::ENOEXEC) as c_int;
    }
    if let Some(reason) = uncovered(program).or_else(other_user)
        && let Err(e) = without_us(&r.full, reason, &mut env)
    {
        return fail_errno(e) as c_int;
    }
    if let Some(copied) = library::copy(client, r, program, attr, search) {
        also_search(&mut env, &copied.search);
        let path = sys::cstring(&copied.path);
        for _ in 0..50 {
            // Another thread's child, between fork and exec, may still hold the copy open for writing.
            if local(libc::AT_FDCWD, path.as_ptr().cast(), args, &env, 0) == 0
                || sys::errno() != libc::ETXTBSY
            {
                break;
            }
            let t = libc::timespec { tv_sec: 0, tv_nsec: 2_000_000 };
            sys!(nanosleep, &raw const t, 0);
        }
        // Where nothing may be executed (noexec), there is still memory.
        if sys::errno() != libc::EACCES {
            return -1;
        }
    }
    from_memory(r, program, args, &env)
}

/// Executes the program from a memory file.
fn from_memory(r: &Remote, program: &[u8], args: &[Vec<u8>], env: &[Vec<u8>]) -> c_int {
    if !super::limit::fits(program.len()) {
        return fail_errno(libc::ENOMEM) as c_int;
    }
    let name = r.full.rsplit(|&b| b == b'/').next().unwrap_or(b"program");
    let name = sys::cstring(&name[..name.len().min(200)]);
    let fd = sys!(memfd_create, name.as_ptr(), libc::MFD_CLOEXEC);
    if fd < 0 {
        return sys::ret(fd) as c_int;
    }
    let mut done = 0;
    while done < program.len() {
        let n = sys!(write, fd, program[done..].as_ptr(), program.len() - done);
        if n <= 0 {
            sys::close(fd as c_int);
            return fail_errno(libc::ENOMEM) as c_int;
        }
        done += n as usize;
    }
    let code = local(fd as c_int, c"".as_ptr(), args, env, libc::AT_EMPTY_PATH);
    sys::close(fd as c_int);
    code
}

/// Puts directories in front of the linker's search path, and what it was before aside: start-up
/// restores it before the program sees it.
fn also_search(env: &mut Vec<Vec<u8>>, dirs: &[Vec<u8>]) {
    if dirs.is_empty() {
        return;
    }
    let before = value_of(env, SEARCH).unwrap_or_default();
    let mut all = dirs.join(&b':');
    if !before.is_empty() {
        all.push(b':');
        all.extend_from_slice(&before);
    }
    remove(env, SEARCH);
    remove(env, SEARCH_BEFORE);
    env.push(variable(SEARCH, &all));
    env.push(variable(SEARCH_BEFORE, &before));
}

/// Before a program of this machine starts: says so if it will run without us, and gives it the
/// libraries it finds in forwarded directories. An errno if it must not be started.
fn look_at<'c>(
    client: &dyn Fn() -> &'c Client,
    dirfd: c_int,
    path: *const c_char,
    search: &[u8],
    env: &mut Vec<Vec<u8>>,
) -> Result<(), c_int> {
    // SAFETY: the program's own argument, or ours; both are C strings.
    let mut name = unsafe { crate::user::text(path) }.unwrap_or_default().to_vec();
    let mut dir = dirfd;
    if name.is_empty() {
        name = format!("/proc/self/fd/{dirfd}").into_bytes();
    }
    // A script may name an interpreter that is a script; the kernel allows four.
    for _ in 0..5 {
        let c_name = sys::cstring(&name);
        // SAFETY: a plain struct of integers.
        let mut s: libc::stat = unsafe { std::mem::zeroed() };
        if sys!(newfstatat, dir, c_name.as_ptr(), &raw mut s, 0) < 0 {
            return Ok(());
        }
        let fd = sys!(openat, dir, c_name.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
        let mut head = vec![0u8; HEAD];
        let n = if fd < 0 { 0 } else { sys!(pread64, fd, head.as_mut_ptr(), head.len(), 0).max(0) as usize };
        head.truncate(n);
        let next = script(&head).map(|(interpreter, _)| interpreter.to_vec());
        let reason = if next.is_some() {
            None
        } else if s.st_mode & (libc::S_ISUID | libc::S_ISGID) != 0 || has_capabilities(fd) {
            Some(Uncovered::SetUserId)
        } else {
            uncovered(&head).or_else(other_user)
        };
        if reason.is_none()
            && !search.is_empty()
            && library::concerns_us(search)
            && let Some(program) = sys::read_all(fd as c_int, 1 << 30)
        {
            also_search(env, &library::copies_for(client(), &name, &program, search));
        }
        if fd >= 0 {
            sys::close(fd as c_int);
        }
        match (reason, next) {
            (Some(reason), _) => return without_us(&name, reason, env),
            (None, Some(interpreter)) => (dir, name) = (libc::AT_FDCWD, interpreter),
            (None, None) => return Ok(()),
        }
    }
    Ok(())
}

/// Whether the kernel gives a program rights that its user does not have, and the dynamic linker
/// therefore does not listen to that user.
fn has_capabilities(fd: sys::Raw) -> bool {
    fd >= 0 && sys!(fgetxattr, fd, c"security.capability".as_ptr(), 0, 0) > 0
}

/// Whether this process has become a user who cannot read what the library of the next program needs: the run's own
/// directory is private.
fn other_user() -> Option<Uncovered> {
    let state = state();
    let readable = |path: &[u8]| {
        let path = sys::cstring(path);
        sys!(faccessat2, libc::AT_FDCWD, path.as_ptr(), libc::R_OK, libc::AT_EACCESS)
            != -(libc::EACCES as isize)
    };
    (state.is_another_user() && !(readable(&state.library) && readable(&state.config_path)))
        .then_some(Uncovered::OtherUser)
}

/// A program starts that this library does not reach. Where its working directory is a stand-in, what it
/// writes by relative names would be lost: it is not started there.
fn without_us(program: &[u8], reason: Uncovered, env: &mut Vec<Vec<u8>>) -> Result<(), c_int> {
    if matches!(reason, Uncovered::OtherLibc | Uncovered::OtherUser) {
        // It would try to load the library, and end, or complain.
        preload(env, false);
    }
    let told = |why: &str| match state().counters {
        // Who has become another user cannot open the notes.
        Some(counters) if reason == Uncovered::OtherUser => counters.count_as_another(),
        _ => notes::note(reason.kind(), program, why),
    };
    if state().cwd.get().is_some_and(|c| c.kernel == Kernel::StandIn) {
        told(&format!(
            "{}; refused with EPERM, since its working directory is forwarded and not on this machine",
            reason.why()
        ));
        return Err(libc::EPERM);
    }
    told(reason.why());
    // It asks no I/O node for what it reads.
    if state().is_passing_child() {
        state().passing_client().settle_all();
    } else {
        state().client().settle_all();
    }
    super::handover::hand_over(program);
    Ok(())
}

/// Puts this library into a program's `LD_PRELOAD`, before others that the program has set there; or
/// takes it out.
fn preload(env: &mut Vec<Vec<u8>>, wanted: bool) {
    let given = value_of(env, PRELOAD).unwrap_or_default();
    let ours = &state().library;
    let named = |e: &&[u8]| !e.is_empty() && *e != ours.as_slice();
    let others: Vec<&[u8]> = given.split(|&b| b == b':' || b == b' ').filter(named).collect();
    let here = given.split(|&b| b == b':' || b == b' ').any(|e| e == ours.as_slice());
    if here == wanted {
        return;
    }
    let mut all = if wanted { vec![ours.as_slice()] } else { Vec::new() };
    all.extend(others);
    remove(env, PRELOAD);
    if !all.is_empty() {
        env.push(variable(PRELOAD, &all.join(&b':')));
    }
}
