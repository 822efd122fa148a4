//! Directory streams. Every `DIR` of the process is ours, of this machine's directories too, so
//! that the functions that take one never meet libc's.

use super::{fail, fail_errno, hooks};
use crate::path;
use crate::state::state;
use crate::sys::{self, sys};
use crate::table::{self, Kind, Open};
use crate::user;
use forebay_client::{Answer, Error, Meta};
use std::ffi::{c_char, c_int, c_long, c_void};
use std::sync::Mutex;

hooks! {
    c"opendir" => opendir, c"fdopendir" => fdopendir, c"closedir" => closedir, c"readdir" => readdir,
    c"readdir64" => readdir, c"readdir_r" => readdir_r, c"readdir64_r" => readdir_r, c"rewinddir" => rewinddir,
    c"scandirat" => scandirat, c"scandirat64" => scandirat, c"seekdir" => seekdir, c"telldir" => telldir, c"dirfd" => dirfd, c"getdents64" => getdents64,
}

/// Bytes of entries asked for at once.
const PAGE: usize = 32 << 10;
const NAME_OFFSET: usize = std::mem::offset_of!(libc::dirent64, d_name);

/// libc's own `fts` looks for the descriptor at the start of a stream.
#[repr(C)]
struct Stream {
    fd: c_int,
    inner: Mutex<Inner>,
}

struct Inner {
    /// Entries as the kernel packs them.
    page: Vec<u64>,
    filled: usize,
    next: usize,
    /// Where the last entry returned says the next one starts.
    tell: i64,
    ended: bool,
    current: libc::dirent64,
}

/// The entries of a `getdents64` buffer: inode number and name.
pub(crate) fn raw_entries(page: &[u64], filled: usize) -> impl Iterator<Item = (u64, &[u8])> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let (entry, next) = entry_at(page, filled, at)?;
        at = next;
        Some((entry.ino, entry.name))
    })
}

struct RawEntry<'a> {
    ino: u64,
    off: i64,
    kind: u8,
    name: &'a [u8],
}

fn entry_at(page: &[u64], filled: usize, at: usize) -> Option<(RawEntry<'_>, usize)> {
    // SAFETY: the bytes of a slice of integers.
    let bytes = unsafe { std::slice::from_raw_parts(page.as_ptr().cast::<u8>(), filled.min(page.len() * 8)) };
    let rest = bytes.get(at..).filter(|r| r.len() > NAME_OFFSET)?;
    let word = |i: usize| rest[i..i + 8].try_into().map(u64::from_ne_bytes).unwrap_or(0);
    let len = usize::from(u16::from_ne_bytes([rest[16], rest[17]]));
    if len <= NAME_OFFSET || len > rest.len() {
        return None;
    }
    let name = &rest[NAME_OFFSET..len];
    let end = name.iter().position(|&b| b == 0).unwrap_or(name.len());
    Some((RawEntry { ino: word(0), off: word(8) as i64, kind: rest[18], name: &name[..end] }, at + len))
}

/// Adds an entry in the kernel's packing; false if there is no room.
fn pack(page: &mut [u8], filled: &mut usize, ino: u64, off: u64, kind: u8, name: &[u8]) -> bool {
    let len = (NAME_OFFSET + name.len() + 1 + 7) & !7;
    let Some(room) = page.get_mut(*filled..*filled + len) else { return false };
    room.fill(0);
    room[..8].copy_from_slice(&ino.to_ne_bytes());
    room[8..16].copy_from_slice(&off.to_ne_bytes());
    room[16..18].copy_from_slice(&(len as u16).to_ne_bytes());
    room[18] = kind;
    room[NAME_OFFSET..NAME_OFFSET + name.len()].copy_from_slice(name);
    *filled += len;
    true
}

/// Entries of a forwarded directory from the descriptor's offset on, which moves.
fn read_remote(fd: c_int, open: &Open, page: &mut [u8]) -> Result<usize, Error> {
    let at = sys!(lseek, fd, 0, libc::SEEK_CUR);
    if at < 0 {
        return Err(Error::local(-at as i32));
    }
    let file = match &open.kind {
        Kind::Remote(f) => f,
        Kind::Above(p) | Kind::LocalAbove(p) => return Ok(above_entries(fd, at as u64, p, page)),
    };
    if !file.is_dir() {
        return Err(Error::local(libc::ENOTDIR));
    }
    let max = page.len().min(PAGE) as u32 * 3 / 4;
    let mut filled = 0;
    let mut next = at as u64;
    let mut too_small = false;
    state().client().meta_on(
        file,
        |handle| Meta::Readdir { handle, cookie: at as u64, max },
        |a| match a {
            Answer::Entries { entries, .. } => {
                for e in entries {
                    if !pack(page, &mut filled, e.ino, e.next, e.kind, e.name) {
                        too_small = true;
                        break;
                    }
                    next = e.next;
                }
                Some(())
            }
            _ => None,
        },
    )?;
    // Not even one entry fits.
    if filled == 0 && too_small {
        return Err(Error::local(libc::EINVAL));
    }
    sys!(lseek, fd, next, libc::SEEK_SET);
    Ok(filled)
}

/// A directory that this machine does not have holds the way to the forwarded one.
fn above_entries(fd: c_int, at: u64, dir: &[u8], page: &mut [u8]) -> usize {
    let mut names: Vec<Vec<u8>> = vec![b".".to_vec(), b"..".to_vec()];
    names.extend(state().next_name(dir));
    let mut filled = 0;
    let mut next = at;
    for (i, name) in names.iter().enumerate().skip(at as usize) {
        let ino = crate::attr::above(&path::join(dir, name)).ino;
        if !pack(page, &mut filled, ino, i as u64 + 1, libc::DT_DIR, name) {
            break;
        }
        next = i as u64 + 1;
    }
    sys!(lseek, fd, next, libc::SEEK_SET);
    filled
}

/// `getdents64` on a forwarded descriptor or any other.
pub(crate) unsafe extern "C" fn getdents64(fd: c_int, buf: *mut c_void, n: usize) -> isize {
    let Some(open) = table::get(fd) else { return sys::ret(sys!(getdents64, fd, buf, n)) };
    // SAFETY: the program's own buffer of `n` bytes.
    let page = match unsafe { user::bytes_mut(buf, n.min(PAGE)) } {
        Ok(page) => page,
        Err(e) => return fail_errno(e),
    };
    match open.with_offset(|| read_remote(fd, &open, page)) {
        Ok(filled) => filled as isize,
        Err(e) => fail(&e, &open.path),
    }
}

/// The older call, whose entries have their type at the end.
#[cfg(target_arch = "x86_64")]
pub(crate) unsafe extern "C" fn getdents(fd: c_int, buf: *mut c_void, n: usize) -> isize {
    if !table::is_forwarded(fd) {
        return sys::ret(sys!(getdents, fd, buf, n));
    }
    // SAFETY: the same buffer.
    let filled = unsafe { getdents64(fd, buf, n) };
    let mut at = 0;
    while at < filled {
        // SAFETY: entries that were just packed: a type, then a name that is ended by at least one NUL;
        // without the type there is room for it at the end.
        unsafe {
            let entry = buf.cast::<u8>().offset(at);
            let len = usize::from(entry.add(16).cast::<u16>().read_unaligned());
            let kind = entry.add(18).read();
            std::ptr::copy(entry.add(NAME_OFFSET), entry.add(18), len - NAME_OFFSET);
            entry.add(len - 1).write(kind);
            at += len as isize;
        }
    }
    filled
}

unsafe extern "C" fn opendir(path: *const c_char) -> *mut Stream {
    let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC;
    let fd = super::fd::open_at(libc::AT_FDCWD, path, flags, 0);
    if fd < 0 { std::ptr::null_mut() } else { stream(fd as c_int) }
}

unsafe extern "C" fn fdopendir(fd: c_int) -> *mut Stream {
    // SAFETY: a plain struct of integers.
    let mut s: libc::stat = unsafe { std::mem::zeroed() };
    let is_dir = match table::get(fd) {
        Some(open) => open.remote().is_none_or(forebay_client::File::is_dir),
        None => {
            let r = sys!(fstat, fd, &raw mut s);
            if r < 0 {
                sys::ret(r);
                return std::ptr::null_mut();
            }
            s.st_mode & libc::S_IFMT == libc::S_IFDIR
        }
    };
    if !is_dir {
        fail_errno(libc::ENOTDIR);
        return std::ptr::null_mut();
    }
    stream(fd)
}

fn stream(fd: c_int) -> *mut Stream {
    let inner = Inner {
        page: vec![0; PAGE / 8],
        filled: 0,
        next: 0,
        tell: 0,
        ended: false,
        // SAFETY: a plain struct of integers.
        current: unsafe { std::mem::zeroed() },
    };
    Box::into_raw(Box::new(Stream { fd, inner: Mutex::new(inner) }))
}

/// Runs `f` on the stream's state.
unsafe fn with<T>(s: *mut Stream, f: impl FnOnce(c_int, &mut Inner) -> T) -> T {
    // SAFETY: a pointer that `opendir` or `fdopendir` gave and `closedir` has not taken.
    let s = unsafe { &*s };
    f(s.fd, &mut s.inner.lock().unwrap_or_else(std::sync::PoisonError::into_inner))
}

unsafe extern "C" fn closedir(s: *mut Stream) -> c_int {
    if s.is_null() {
        return fail_errno(libc::EBADF) as c_int;
    }
    // SAFETY: the program gives the stream back.
    let s = unsafe { Box::from_raw(s) };
    super::fd::close_fd(s.fd) as c_int
}

/// The next entry; `Ok(false)` at the end.
fn advance(fd: c_int, inner: &mut Inner) -> Result<bool, i32> {
    loop {
        if let Some((entry, next)) = entry_at(&inner.page, inner.filled, inner.next) {
            inner.tell = entry.off;
            let d = &mut inner.current;
            d.d_ino = entry.ino;
            d.d_off = entry.off;
            d.d_reclen = size_of::<libc::dirent64>() as u16;
            d.d_type = entry.kind;
            for (to, &from) in d.d_name.iter_mut().zip(entry.name.iter().chain(&[0])) {
                *to = from as c_char;
            }
            inner.next = next;
            return Ok(true);
        }
        if inner.ended {
            return Ok(false);
        }
        inner.next = 0;
        inner.filled = 0;
        let n = match table::get(fd) {
            Some(open) => {
                // SAFETY: the bytes of our own page.
                let page = unsafe {
                    std::slice::from_raw_parts_mut(inner.page.as_mut_ptr().cast::<u8>(), inner.page.len() * 8)
                };
                open.with_offset(|| read_remote(fd, &open, page)).map_err(|e| e.errno())
            }
            None => match sys!(getdents64, fd, inner.page.as_mut_ptr(), PAGE) {
                n if n < 0 => Err(-n as i32),
                n => Ok(n as usize),
            },
        };
        let n = match n {
            // The directory was removed: POSIX wants an end, and no error.
            Err(libc::ENOENT) => 0,
            other => other?,
        };
        inner.filled = n;
        if n == 0 {
            inner.ended = true;
            return Ok(false);
        }
    }
}

unsafe extern "C" fn readdir(s: *mut Stream) -> *mut libc::dirent64 {
    // SAFETY: the program's own stream.
    unsafe {
        with(s, |fd, inner| match advance(fd, inner) {
            Ok(true) => &raw mut inner.current,
            Ok(false) => std::ptr::null_mut(),
            Err(e) => {
                fail_errno(e);
                std::ptr::null_mut()
            }
        })
    }
}

unsafe extern "C" fn readdir_r(
    s: *mut Stream,
    entry: *mut libc::dirent64,
    result: *mut *mut libc::dirent64,
) -> c_int {
    // SAFETY: the program's own stream and buffers.
    unsafe {
        with(s, |fd, inner| match advance(fd, inner) {
            Ok(true) => {
                entry.write(inner.current);
                *result = entry;
                0
            }
            Ok(false) => {
                *result = std::ptr::null_mut();
                0
            }
            Err(e) => {
                *result = std::ptr::null_mut();
                e
            }
        })
    }
}

unsafe extern "C" fn rewinddir(s: *mut Stream) {
    // SAFETY: the program's own stream.
    unsafe { seekdir(s, 0) }
}

unsafe extern "C" fn seekdir(s: *mut Stream, at: c_long) {
    // SAFETY: the program's own stream.
    unsafe {
        with(s, |fd, inner| {
            sys!(lseek, fd, at, libc::SEEK_SET);
            inner.filled = 0;
            inner.next = 0;
            inner.tell = at;
            inner.ended = false;
        });
    }
}

unsafe extern "C" fn telldir(s: *mut Stream) -> c_long {
    // SAFETY: the program's own stream.
    unsafe { with(s, |_, inner| inner.tell) }
}

unsafe extern "C" fn dirfd(s: *mut Stream) -> c_int {
    // SAFETY: the program's own stream.
    unsafe { &*s }.fd
}

type Selects = unsafe extern "C" fn(*const libc::dirent64) -> c_int;
type Compares = unsafe extern "C" fn(*const c_void, *const c_void) -> c_int;

/// libc's opens the directory by a way of its own.
unsafe extern "C" fn scandirat(
    dirfd: c_int,
    path: *const c_char,
    list: *mut *mut *mut libc::dirent64,
    selects: Option<Selects>,
    compares: Option<Compares>,
) -> c_int {
    let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC;
    let fd = super::fd::open_at(dirfd, path, flags, 0);
    if fd < 0 {
        return -1;
    }
    let s = stream(fd as c_int);
    let mut found: Vec<*mut libc::dirent64> = Vec::new();
    let outcome = loop {
        // SAFETY: our own stream; what is found is copied into memory that the program frees.
        unsafe {
            match with(s, advance) {
                Ok(true) => {
                    let entry = with(s, |_, inner| inner.current);
                    if selects.is_some_and(|select| select(&raw const entry) == 0) {
                        continue;
                    }
                    let copy = libc::malloc(size_of::<libc::dirent64>()).cast::<libc::dirent64>();
                    if copy.is_null() {
                        break Err(libc::ENOMEM);
                    }
                    copy.write(entry);
                    found.push(copy);
                }
                Ok(false) => break Ok(()),
                Err(e) => break Err(e),
            }
        }
    };
    // SAFETY: our own stream; memory of `malloc`, which the program frees from here on.
    unsafe {
        closedir(s);
        let outcome = outcome.and_then(|()| {
            let all = libc::malloc(found.len().max(1) * size_of::<*mut libc::dirent64>());
            let all = all.cast::<*mut libc::dirent64>();
            if all.is_null() {
                return Err(libc::ENOMEM);
            }
            std::ptr::copy_nonoverlapping(found.as_ptr(), all, found.len());
            if let Some(compare) = compares {
                libc::qsort(all.cast(), found.len(), size_of::<*mut libc::dirent64>(), Some(compare));
            }
            *list = all;
            Ok(found.len() as c_int)
        });
        outcome.unwrap_or_else(|e| {
            found.iter().for_each(|entry| libc::free(entry.cast()));
            fail_errno(e) as c_int
        })
    }
}
