//! Programs and libraries that live in forwarded directories. The kernel and the dynamic linker read
//! files themselves, so they are given copies in the run's own directory, laid out as the originals
//! are: a library beside its program is found beside the copy.

use crate::path::{self, Remote, Resolved};
use crate::state::state;
use crate::sys::{self, sys};
use forebay_client::{Answer, Attr, Client, Error, Meta, OpenFlags, Target};
use forebay_program::Elf;
use std::ffi::{c_char, c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};

const MAX_FILE: u64 = 1 << 30;
/// Libraries of libraries are looked for to this depth.
const MAX_DEPTH: usize = 16;

/// A copy of a forwarded program, and where the linker must look for copies of its libraries
/// besides the places the program names relative to itself.
pub(crate) struct Copied {
    pub(crate) path: Vec<u8>,
    pub(crate) search: Vec<Vec<u8>>,
}

/// The file's content.
pub(crate) fn fetch(client: &Client, r: &Remote) -> Result<(Vec<u8>, Attr), Error> {
    let attr = client.meta(Meta::Stat { target: Target::Path(r.wire()) }, |a| match a {
        Answer::Attr(a) => Some(a),
        _ => None,
    })?;
    if attr.mode & libc::S_IFMT != libc::S_IFREG {
        return Err(Error::local(libc::EACCES));
    }
    if attr.size > MAX_FILE {
        return Err(Error::local(libc::ENOMEM));
    }
    let (file, _) = client.open(r.wire(), OpenFlags::READ, 0)?;
    let mut content = vec![0u8; attr.size as usize];
    let n = client.pread(&file, &mut content, 0);
    // Only read: there is no outcome to a close.
    let _ = client.close(&file);
    content.truncate(n?);
    Ok((content, attr))
}

/// Copies the program or library `r` and the forwarded libraries it asks for.
pub(crate) fn copy(
    client: &Client,
    r: &Remote,
    content: &[u8],
    attr: &Attr,
    search: &[u8],
) -> Option<Copied> {
    let mut found = Found::default();
    found.gather(client, &r.full, content, search, 0);
    let root = found.root(Some(attr));
    let path = [&root[..], &r.full].concat();
    if !exists(&path) && !write(&path, content) {
        return None;
    }
    Some(Copied { search: found.copy_to(&root), path })
}

/// Copies of the forwarded libraries that a program of this machine finds through `search`
/// (`LD_LIBRARY_PATH`): the directories they are in.
pub(crate) fn copies_for(client: &Client, program: &[u8], content: &[u8], search: &[u8]) -> Vec<Vec<u8>> {
    let mut found = Found::default();
    found.gather(client, program, content, search, 0);
    found.copy_to(&found.root(None))
}

/// Whether a search path names a forwarded directory.
pub(crate) fn concerns_us(search: &[u8]) -> bool {
    directories(search, b"").any(|dir| matches!(path::place(libc::AT_FDCWD, &dir), Resolved::Remote(_)))
}

fn directories<'a>(search: &'a [u8], origin: &'a [u8]) -> impl Iterator<Item = Vec<u8>> + 'a {
    search.split(|&b| b == b':' || b == b';').filter(|d| !d.is_empty()).map(move |dir| {
        for name in [&b"$ORIGIN"[..], b"${ORIGIN}"] {
            if let Some(rest) = dir.strip_prefix(name) {
                return [origin, rest].concat();
            }
        }
        dir.to_vec()
    })
}

/// Forwarded libraries that a program needs, directly or not.
#[derive(Default)]
struct Found(Vec<Library>);

struct Library {
    /// Its path as the program sees it.
    full: Vec<u8>,
    content: Vec<u8>,
    attr: Attr,
    /// It is found relative to the file that needs it.
    relative: bool,
}

impl Found {
    /// What `content`, the file at `file`, asks for, and what that asks for.
    fn gather(&mut self, client: &Client, file: &[u8], content: &[u8], search: &[u8], depth: usize) {
        let Some(elf) = Elf::new(content) else { return };
        if depth > MAX_DEPTH {
            return;
        }
        let wants = elf.wants();
        let origin = &file[..file.iter().rposition(|&b| b == b'/').unwrap_or(0)];
        let mut places: Vec<(Vec<u8>, bool)> = Vec::new();
        for paths in &wants.paths {
            places.extend(paths.split(|&b| b == b':').flat_map(|one| {
                let relative = one.starts_with(b"$ORIGIN") || one.starts_with(b"${ORIGIN}");
                directories(one, origin).map(move |d| (d, relative))
            }));
        }
        places.extend(directories(search, origin).map(|d| (d, false)));
        for name in wants.needed.iter().filter(|n| !n.contains(&b'/')) {
            for (dir, relative) in &places {
                let Resolved::Remote(r) = path::place(libc::AT_FDCWD, &path::join(dir, name)) else {
                    continue;
                };
                if self.0.iter().any(|l| l.full == r.full) {
                    break;
                }
                let Ok((library, attr)) = fetch(client, &r) else { continue };
                let at = self.0.len();
                self.0.push(Library { full: r.full, content: library, attr, relative: *relative });
                let (full, content) = (self.0[at].full.clone(), std::mem::take(&mut self.0[at].content));
                self.gather(client, &full, &content, search, depth + 1);
                self.0[at].content = content;
                break;
            }
        }
    }

    /// Where the copies go. Another version of any of the files is another place: a copy that is in
    /// use is never changed.
    fn root(&self, program: Option<&Attr>) -> Vec<u8> {
        let mut hash = 0xcbf2_9ce4_8422_2325u64;
        for a in program.into_iter().chain(self.0.iter().map(|l| &l.attr)) {
            for part in
                [a.dev, a.ino, a.size, a.mtime.0 as u64, a.mtime.1.into(), a.ctime.0 as u64, a.ctime.1.into()]
            {
                hash = (hash ^ part).wrapping_mul(0x100_0000_01b3).rotate_left(23);
            }
        }
        [&state().copies[..], format!("/{hash:016x}").as_bytes()].concat()
    }

    /// Copies the libraries; the directories the linker must be told of.
    fn copy_to(&self, root: &[u8]) -> Vec<Vec<u8>> {
        let mut told = Vec::new();
        for library in &self.0 {
            let copy = [root, &library.full].concat();
            if !exists(&copy) && !write(&copy, &library.content) {
                continue;
            }
            let at = copy[..copy.iter().rposition(|&b| b == b'/').unwrap_or(0)].to_vec();
            if !library.relative && !told.contains(&at) {
                told.push(at);
            }
        }
        told
    }
}

fn exists(path: &[u8]) -> bool {
    let path = sys::cstring(path);
    sys!(faccessat, libc::AT_FDCWD, path.as_ptr(), libc::F_OK) == 0
}

/// Writes a file so that others see it whole or not at all.
fn write(path: &[u8], content: &[u8]) -> bool {
    let Some(cut) = path.iter().rposition(|&b| b == b'/').filter(|_| super::limit::fits(content.len()))
    else {
        return false;
    };
    sys::mkdirs(&path[..cut]);
    let temporary = [path, format!(".{}", sys::getpid()).as_bytes()].concat();
    let fd = sys::open(&temporary, libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL | libc::O_CLOEXEC, 0o700);
    if fd < 0 {
        return false;
    }
    let mut done = 0;
    while done < content.len() {
        let n = sys!(write, fd, content[done..].as_ptr(), content.len() - done);
        if n <= 0 {
            break;
        }
        done += n as usize;
    }
    sys::close(fd as c_int);
    let (from, to) = (sys::cstring(&temporary), sys::cstring(path));
    if done == content.len()
        && sys!(renameat2, libc::AT_FDCWD, from.as_ptr(), libc::AT_FDCWD, to.as_ptr(), 0) == 0
    {
        return true;
    }
    sys!(unlinkat, libc::AT_FDCWD, from.as_ptr(), 0);
    false
}

/// libc's own `dlopen`.
static REAL: AtomicUsize = AtomicUsize::new(0);

/// The name to give to libc's `dlopen` instead of `name`: that of a copy, where the library is
/// forwarded.
extern "C" fn library_to_open(name: *const c_char) -> *const c_char {
    if REAL.load(Ordering::Relaxed) == 0 {
        REAL.store(sys::dlsym(libc::RTLD_NEXT, c"dlopen") as usize, Ordering::Relaxed);
    }
    if crate::state::get().is_none() {
        return name;
    }
    // SAFETY: the program's own argument to a function that takes a C string.
    let Some(given) = (unsafe { crate::user::text(name) }) else { return name };
    let search = sys::env(b"LD_LIBRARY_PATH").unwrap_or_default();
    let candidates = if given.contains(&b'/') {
        vec![given.to_vec()]
    } else if search.is_empty() {
        return name;
    } else {
        directories(search, b"").map(|d| path::join(&d, given)).collect()
    };
    for candidate in candidates {
        let Resolved::Remote(mut r) = path::place(libc::AT_FDCWD, &candidate) else { continue };
        for _ in 0..40 {
            match path::unshadowed(&r, true).and_then(|()| fetch(state().client(), &r)) {
                Ok((content, attr)) => {
                    // The name is kept for good: libc may hold on to it, and libraries are few.
                    return match copy(state().client(), &r, &content, &attr, search) {
                        Some(copied) => Vec::leak(sys::cstring(&copied.path)).as_ptr().cast(),
                        None => name,
                    };
                }
                Err(Error::Escapes) => {
                    match path::follow_out(&r, true).map(|p| path::place_of_absolute(&p)) {
                        Ok(Resolved::Remote(next)) => r = next,
                        Ok(Resolved::LocalAt(p)) => return Vec::leak(sys::cstring(&p)).as_ptr().cast(),
                        _ => break,
                    }
                }
                Err(_) => break,
            }
        }
    }
    name
}

/// Takes the place of libc's by its name alone, since libc's is still needed. It must be left by a
/// jump: libc tells by the return address whose search path applies.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
unsafe extern "C" fn dlopen(name: *const c_char, flags: c_int) -> *mut c_void {
    std::arch::naked_asm!(
        "push rsi", "call {translate}", "pop rsi", "mov rdi, rax", "jmp qword ptr [rip + {real}]",
        translate = sym library_to_open, real = sym REAL,
    )
}

/// As on x86-64.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
unsafe extern "C" fn dlopen(name: *const c_char, flags: c_int) -> *mut c_void {
    std::arch::naked_asm!(
        "stp x1, x30, [sp, #-16]!", "bl {translate}", "ldp x1, x30, [sp], #16",
        "adrp x16, {real}", "ldr x16, [x16, :lo12:{real}]", "br x16",
        translate = sym library_to_open, real = sym REAL,
    )
}
