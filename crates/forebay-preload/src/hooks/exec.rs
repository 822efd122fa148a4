//! Starting programs: those that live in a forwarded directory, and passing the library on to those
//! that do not. And the end of this one.

use super::{fail, fail_errno, hooks};
use crate::notes;
use crate::path::{self, Place, Remote};
use crate::state::state;
use crate::sys::{self, sys};
use forebay_client::{Answer, Client, Error, Meta, OpenFlags, Target};
use std::ffi::{CStr, c_char, c_int};

hooks! {
    c"execve" => execve, c"execveat" => execveat, c"fexecve" => fexecve, c"_exit" => exit_now,
    c"_Exit" => exit_now, c"vfork" => vfork,
}

/// What `/proc/self/exe` is for a program that was started from a forwarded directory.
pub(crate) const EXE: &[u8] = b"FOREBAY_EXE";
const MAX_PROGRAM: u64 = 1 << 30;

type Strings = *const *const c_char;

unsafe extern "C" fn exit_now(code: c_int) -> ! {
    if let Some(client) = state().client_if_any()
        && !state().is_passing_child()
    {
        client.leave();
    }
    loop {
        sys!(exit_group, code);
    }
}

/// A child that shares its parent's memory would undo the parent's bookkeeping: it gets a copy.
unsafe extern "C" fn vfork() -> c_int {
    // SAFETY: `fork` is what POSIX lets `vfork` be.
    unsafe { libc::fork() }
}

unsafe extern "C" fn execve(path: *const c_char, argv: Strings, envp: Strings) -> c_int {
    run(libc::AT_FDCWD, path, argv, envp, 0)
}

unsafe extern "C" fn execveat(dirfd: c_int, path: *const c_char, argv: Strings, envp: Strings, flags: c_int) -> c_int {
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

fn remove(env: &mut Vec<Vec<u8>>, name: &[u8]) {
    env.retain(|e| !(e.starts_with(name) && e.get(name.len()) == Some(&b'=')));
}

fn variable(name: &[u8], value: &[u8]) -> Vec<u8> {
    [name, b"=", value, b"\0"].concat()
}

fn run(dirfd: c_int, path: *const c_char, argv: Strings, envp: Strings, flags: c_int) -> c_int {
    let mut args = strings(argv);
    let mut env = strings(envp);
    let state = state();
    // A cleaned environment would leave the child's I/O behind.
    if !has(&env, b"FOREBAY_CONFIG") {
        env.push(variable(b"FOREBAY_CONFIG", &state.config_path));
    }
    if !has(&env, b"LD_PRELOAD") {
        env.push(variable(b"LD_PRELOAD", &state.preload));
    }
    remove(&mut env, EXE);
    // SAFETY: the program's own argument to a function that takes a C string.
    let Some(given) = (unsafe { sys::bytes(path) }) else { return fail_errno(libc::EFAULT) as c_int };
    let mut place = if given.is_empty() && flags & libc::AT_EMPTY_PATH != 0 {
        match crate::table::get(dirfd) {
            Some(open) => path::place_of_absolute(&path::open_path(&open)),
            None => Place::Local,
        }
    } else {
        path::place(dirfd, given)
    };
    // A script may name an interpreter that is a script; the kernel allows four.
    for _ in 0..8 {
        match place {
            Place::Local | Place::Above(_) => {
                if dirfd == libc::AT_FDCWD && flags == 0 {
                    warn_if_uncovered(given);
                }
                return local(dirfd, path, &args, &env, flags);
            }
            Place::LocalAt(p) => {
                warn_if_uncovered(&p);
                return local(libc::AT_FDCWD, sys::cstring(&p).as_ptr().cast(), &args, &env, 0);
            }
            Place::Remote(r) => {
                let content = {
                    let passing;
                    let client: &Client = if state.is_passing_child() {
                        match state.passing_client() {
                            Some(c) => {
                                passing = c;
                                &passing
                            }
                            None => return fail_errno(libc::EIO) as c_int,
                        }
                    } else {
                        state.client()
                    };
                    fetch(client, &r)
                };
                match content {
                    Ok(program) => match interpreter(&program) {
                        Some((interpreter, argument)) => {
                            let mut new = vec![sys::cstring(&interpreter)];
                            new.extend(argument.map(|a| sys::cstring(&a)));
                            new.push(sys::cstring(&r.full));
                            new.extend(args.drain(..).skip(1));
                            args = new;
                            place = path::place_of_absolute(&path::join(&state.cwd().path, &interpreter));
                        }
                        None => {
                            env.push(variable(EXE, &r.full));
                            return from_memory(&r, &program, &args, &env);
                        }
                    },
                    Err(Error::Escapes) => match path::follow_out(&r, true) {
                        Ok(p) => place = path::place_of_absolute(&p),
                        Err(e) => return fail(&e, &r.full) as c_int,
                    },
                    Err(e) => return fail(&e, &r.full) as c_int,
                }
            }
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
fn fetch(client: &Client, r: &Remote) -> Result<Vec<u8>, Error> {
    let attr = client.meta(Meta::Stat { target: Target::Path(r.wire()) }, |a| match a {
        Answer::Attr(a) => Some(a),
        _ => None,
    })?;
    if attr.mode & libc::S_IFMT != libc::S_IFREG {
        return Err(Error::local(libc::EACCES));
    }
    client.meta(Meta::Access { path: r.wire(), mode: libc::X_OK as u32, follow: true }, |_| Some(()))?;
    if attr.size > MAX_PROGRAM {
        return Err(Error::local(libc::ENOMEM));
    }
    let (file, _) = client.open(r.wire(), OpenFlags::READ, 0)?;
    let mut content = vec![0u8; attr.size as usize];
    let n = client.pread(&file, &mut content, 0);
    // Only read: there is no outcome to a close.
    let _ = client.close(&file);
    content.truncate(n?);
    Ok(content)
}

/// `#!` line: interpreter and its one argument.
fn interpreter(program: &[u8]) -> Option<(Vec<u8>, Option<Vec<u8>>)> {
    let line = program.strip_prefix(b"#!")?;
    let end = line.iter().take(255).position(|&b| b == b'\n').unwrap_or(line.len().min(255));
    let line = line[..end].trim_ascii();
    let cut = line.iter().position(|b| b.is_ascii_whitespace()).unwrap_or(line.len());
    let argument = line[cut..].trim_ascii();
    (cut > 0).then(|| (line[..cut].to_vec(), (!argument.is_empty()).then(|| argument.to_vec())))
}

/// Executes the program from a memory file.
fn from_memory(r: &Remote, program: &[u8], args: &[Vec<u8>], env: &[Vec<u8>]) -> c_int {
    if !program.starts_with(b"\x7fELF") {
        return fail_errno(libc::ENOEXEC) as c_int;
    }
    if is_static(program) {
        notes::note("static", &r.full, "a static binary cannot be preloaded: its I/O is not forwarded");
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

/// Says so when a program of this machine will run without us.
fn warn_if_uncovered(path: &[u8]) {
    let fd = sys::open(path, libc::O_RDONLY | libc::O_CLOEXEC, 0);
    if fd < 0 {
        return;
    }
    // SAFETY: a plain struct of integers.
    let mut s: libc::stat = unsafe { std::mem::zeroed() };
    let mut head = [0u8; 4096];
    let n = sys!(pread64, fd, head.as_mut_ptr(), head.len(), 0);
    let known = sys!(fstat, fd, &raw mut s) == 0;
    sys::close(fd as c_int);
    if known && s.st_mode & (libc::S_ISUID | libc::S_ISGID) != 0 {
        notes::note("setuid", path, "a set-user-id program cannot be preloaded: its I/O is not forwarded");
    } else if n > 64 && head.starts_with(b"\x7fELF") && is_static(&head[..n as usize]) {
        notes::note("static", path, "a static binary cannot be preloaded: its I/O is not forwarded");
    }
}

/// Whether a 64-bit ELF program has no interpreter. Unclear cases count as dynamic.
fn is_static(elf: &[u8]) -> bool {
    let word = |at: usize, n: usize| -> Option<u64> {
        let mut b = [0u8; 8];
        b[..n].copy_from_slice(elf.get(at..at + n)?);
        Some(u64::from_le_bytes(b))
    };
    let Some(2) = elf.get(4).copied() else { return false };
    let (Some(phoff), Some(size), Some(count)) = (word(32, 8), word(54, 2), word(56, 2)) else { return false };
    const PT_INTERP: u64 = 3;
    (0..count.min(64)).all(|i| {
        let at = phoff.saturating_add(i * size);
        usize::try_from(at).ok().and_then(|at| word(at, 4)).is_some_and(|kind| kind != PT_INTERP)
    })
}
