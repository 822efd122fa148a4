//! Which paths are forwarded, and which file a path names.

use crate::state::{State, state};
use crate::sys;
use crate::table::{self, Kind};
use forebay_client::{Answer, Error, ExportId, File, Meta, Path, Target};
use std::sync::atomic::Ordering;

/// Where a path leads.
pub(crate) enum Resolved {
    /// To this machine; the call goes to the kernel unchanged.
    Local,
    /// To another path of this machine than was given (out of a forwarded directory by a link).
    LocalAt(Vec<u8>),
    /// Into a forwarded directory.
    Remote(Remote),
    /// To a directory above a forwarded one, by its absolute path.
    Above(Vec<u8>),
}

/// A path in a forwarded directory.
pub(crate) struct Remote {
    pub(crate) export: usize,
    /// Below the export.
    pub(crate) rel: Vec<u8>,
    /// As the program would write it.
    pub(crate) full: Vec<u8>,
}

impl Remote {
    pub(crate) fn wire(&self) -> Path<'_> {
        Path { export: ExportId(self.export as u16), rel: &self.rel }
    }

    /// The same file as this machine sees it itself, if it does.
    pub(crate) fn local(&self) -> Option<Vec<u8>> {
        let base = state().exports[self.export].local.as_ref()?;
        Some(under(base, &self.rel))
    }

    /// The same, where the job goes direct: only of a directory that has the same path here, so that links lead
    /// where they would without this library.
    pub(crate) fn direct(&self) -> Option<Vec<u8>> {
        let export = &state().exports[self.export];
        let here = export.local.as_ref() == Some(&export.dir) && state().goes_direct();
        if here { self.local() } else { None }
    }
}

impl Resolved {
    /// What this machine is to open itself.
    pub(crate) fn direct(&self) -> Option<Vec<u8>> {
        if let Resolved::Remote(r) = self { r.direct() } else { None }
    }
}

/// Where `path` leads, relative to `dirfd`.
pub(crate) fn place(dirfd: i32, path: &[u8]) -> Resolved {
    let state = state();
    if path.first() == Some(&b'/') {
        // The common case, a path of this machine, must cost next to nothing.
        if !state.may_concern(path) {
            return Resolved::Local;
        }
        if let Some(p) = through_proc(path) {
            return p;
        }
        return absolute(state, path);
    }
    if path.is_empty() {
        return Resolved::Local;
    }
    if dirfd == libc::AT_FDCWD {
        return match state.cwd.for_relative(path) {
            Some(cwd) => settle(state, &cwd.path, path, cwd.shadowed()),
            None => Resolved::Local,
        };
    }
    match table::get_any(dirfd) {
        // Nothing is below a file, whatever has its name by now: the kernel says so of what stands for it.
        Some(open) if open.remote().is_some_and(|f| !f.is_dir()) => Resolved::Local,
        // It has no path any more, and nothing is found or made in it.
        Some(open) if open.gone.load(Ordering::Relaxed) => {
            Resolved::LocalAt([&state.shadow[..], b"/.removed/", path].concat())
        }
        Some(open) => {
            let shadowed = !matches!(open.kind, Kind::LocalAbove(_));
            settle(state, &open_path(&open), path, shadowed)
        }
        None => Resolved::Local,
    }
}

/// A relative path; below a directory that is not what the kernel takes it for, a path of this
/// machine must be given in full.
fn settle(state: &State, dir: &[u8], path: &[u8], shadowed: bool) -> Resolved {
    let full = join(dir, path);
    match absolute(state, &full) {
        Resolved::Local if shadowed => Resolved::LocalAt(normalise(&full)),
        other => other,
    }
}

/// An absolute path, not yet normal.
pub(crate) fn absolute(state: &State, path: &[u8]) -> Resolved {
    if state.has_left() {
        return Resolved::Local;
    }
    let normal = normalise(path);
    // Of directories within each other the innermost counts, in whatever order they were given.
    let within = state.exports.iter().enumerate().filter_map(|(i, e)| Some((i, e, below(&normal, &e.dir)?)));
    if let Some((i, export, rest)) = within.max_by_key(|(_, e, _)| e.dir.len()) {
        // What follows the directory goes to the node as it was written, since only there `..` after
        // a symbolic link can be told; a path that wanders before that goes normalised.
        let rel = match below(path, &export.dir) {
            Some(written) if !leaves(written) && !crosses(state, path, &export.dir) => squeeze(written),
            _ => {
                let mut rel = rest.to_vec();
                if path.ends_with(b"/") && !rel.is_empty() {
                    rel.push(b'/');
                }
                rel
            }
        };
        return Resolved::Remote(Remote { export: i, rel, full: normal.clone() });
    }
    if state.exports.iter().any(|e| below(&e.dir, &normal).is_some()) {
        return Resolved::Above(normal);
    }
    Resolved::Local
}

/// A path of this machine that came from one not its own (`AT_FDCWD` and the argument do not say).
pub(crate) fn place_of_absolute(path: &[u8]) -> Resolved {
    match absolute(state(), path) {
        Resolved::Local | Resolved::Above(_) => Resolved::LocalAt(path.to_vec()),
        other => other,
    }
}

/// Where a path of this machine leads that the kernel did not find: perhaps through one of this
/// machine's links into a forwarded directory that this machine does not have.
pub(crate) fn through_link(dirfd: i32, path: &[u8], follow: bool) -> Option<Resolved> {
    let state = state();
    if !state.exports.iter().any(|e| e.hidden) || path.is_empty() {
        return None;
    }
    let mut full = match dirfd {
        _ if path.first() == Some(&b'/') => path.to_vec(),
        libc::AT_FDCWD => join(&state.cwd.get()?.path, path),
        _ => join(&sys::readlink(format!("/proc/self/fd/{dirfd}").as_bytes())?, path),
    };
    for _ in 0..40 {
        full = expand_first_link(&full, follow)?;
        match absolute(state, &full) {
            Resolved::Local => {}
            found => return Some(found),
        }
    }
    None
}

/// What a path ends with that asks for a directory.
fn directory_end(path: &[u8]) -> &[u8] {
    [&b"/."[..], b"/"].into_iter().find(|end| path.ends_with(end)).unwrap_or_default()
}

/// The path with its first link of this machine replaced by what it points to.
fn expand_first_link(full: &[u8], follow: bool) -> Option<Vec<u8>> {
    let mut done: Vec<u8> = Vec::new();
    let parts: Vec<&[u8]> = full.split(|&b| b == b'/').filter(|p| !p.is_empty() && *p != b".").collect();
    for (i, part) in parts.iter().enumerate() {
        if *part == b".." {
            let cut = done.iter().rposition(|&b| b == b'/').unwrap_or(0);
            done.truncate(cut);
            continue;
        }
        let parent = done.len();
        done.push(b'/');
        done.extend_from_slice(part);
        if i + 1 == parts.len() && !follow && directory_end(full).is_empty() {
            return None;
        }
        if let Some(target) = sys::readlink(&done) {
            let rest = parts[i + 1..].join(&b"/"[..]);
            let path = join(&done[..parent], &target);
            let path = if rest.is_empty() { path } else { join(&path, &rest) };
            return Some([&path, directory_end(full)].concat());
        }
    }
    None
}

/// What of `path` follows `dir`; `None` if it is not below (or at) it.
pub(crate) fn below<'a>(path: &'a [u8], dir: &[u8]) -> Option<&'a [u8]> {
    if dir == b"/" {
        return path.strip_prefix(b"/");
    }
    let rest = path.strip_prefix(dir)?;
    match rest.first() {
        None => Some(rest),
        Some(b'/') => Some(&rest[1..]),
        Some(_) => None,
    }
}

/// Whether a relative path climbs above its start, by its words alone.
fn leaves(rel: &[u8]) -> bool {
    let mut depth = 0i32;
    for part in rel.split(|&b| b == b'/') {
        match part {
            b"" | b"." => {}
            b".." => depth -= 1,
            _ => depth += 1,
        }
        if depth < 0 {
            return true;
        }
    }
    false
}

/// Whether an absolute path climbs out of a forwarded directory into `dir`, which lies around it: what serves that knows
/// nothing of the other.
fn crosses(state: &State, path: &[u8], dir: &[u8]) -> bool {
    let climbs = || path.split(|&b| b == b'/').any(|part| part == b"..");
    if state.exports.len() == 1 || !climbs() {
        return false;
    }
    let mut ends = path.iter().enumerate().filter(|(_, b)| **b == b'/').map(|(at, _)| at);
    let inner = |at: usize| {
        let so_far = normalise(&path[..at]);
        state.exports.iter().any(|e| e.dir.len() > dir.len() && e.dir == so_far)
    };
    ends.any(inner)
}

/// Without doubled or leading slashes and `.` parts; a slash or a `.` at the end stays, since it asks for a
/// directory and some calls refuse it.
fn squeeze(rel: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(rel.len());
    let mut last_dot = false;
    for part in rel.split(|&b| b == b'/') {
        match part {
            b"" => continue,
            b"." => {
                last_dot = true;
                continue;
            }
            _ => {}
        }
        last_dot = false;
        if !out.is_empty() {
            out.push(b'/');
        }
        out.extend_from_slice(part);
    }
    if !out.is_empty() && (rel.ends_with(b"/") || last_dot) {
        out.extend_from_slice(if last_dot { b"/." } else { b"/" });
    }
    out
}

/// An absolute path without `.`, `..`, doubled slashes and a slash at the end, by its words alone.
pub(crate) fn normalise(path: &[u8]) -> Vec<u8> {
    let mut out: Vec<u8> = Vec::with_capacity(path.len());
    for part in path.split(|&b| b == b'/') {
        match part {
            b"" | b"." => {}
            b".." => {
                let cut = out.iter().rposition(|&b| b == b'/').unwrap_or(0);
                out.truncate(cut);
            }
            name => {
                out.push(b'/');
                out.extend_from_slice(name);
            }
        }
    }
    if out.is_empty() {
        out.push(b'/');
    }
    out
}

/// `rest`, which [`below`] left, below another directory.
pub(crate) fn under(dir: &[u8], rest: &[u8]) -> Vec<u8> {
    if rest.is_empty() { dir.to_vec() } else { [dir, b"/", rest].concat() }
}

pub(crate) fn join(dir: &[u8], rel: &[u8]) -> Vec<u8> {
    if rel.first() == Some(&b'/') {
        return rel.to_vec();
    }
    [dir, b"/", rel].concat()
}

/// `/proc/self/fd/N`, `/dev/fd/N`, `/proc/self/cwd` and the like, where they mean something of ours.
fn through_proc(path: &[u8]) -> Option<Resolved> {
    let state = state();
    if let Some(rest) = proc_self(path, b"cwd") {
        let cwd = state.cwd.get()?;
        return Some(settle(state, &cwd.path, rest, cwd.shadowed()));
    }
    let (fd, rest) = proc_fd(path)?;
    let open = table::get(fd)?;
    if rest.is_empty() && open.remote().is_some_and(|file| !has_its_name(file)) {
        return Some(Resolved::LocalAt([&state.shadow[..], b"/.removed/file"].concat()));
    }
    let path = open_path(&open);
    // A slash at the end would ask for a directory.
    Some(absolute(state, &if rest.is_empty() { path } else { join(&path, rest) }))
}

/// Whether an open file is what is found by its name: one that was removed or replaced is not, and nothing else is to be
/// taken for it, or made in its place.
fn has_its_name(file: &File) -> bool {
    let rel = file.rel();
    let target = Target::Link(Path { export: ExportId(file.export), rel: &rel });
    let found = state().client().meta(Meta::Stat { target }, |a| match a {
        Answer::Attr(a) => Some(a.ino),
        _ => None,
    });
    // Where nobody can tell, the call itself finds out.
    found.map_or_else(|e| e.errno() != libc::ENOENT, |ino| ino == file.ino)
}

/// The current path of an open forwarded file.
pub(crate) fn open_path(open: &table::Open) -> Vec<u8> {
    match &open.kind {
        Kind::Remote(f) => {
            let dir = &state().exports[usize::from(f.export)].dir;
            let rel = f.rel();
            if rel.is_empty() { dir.clone() } else { normalise(&[dir, &b"/"[..], &rel].concat()) }
        }
        Kind::Above(p) | Kind::LocalAbove(p) => p.clone(),
    }
}

/// What follows `/proc/self/WHAT` (or this process's number), if `path` is that.
fn proc_self<'a>(path: &'a [u8], what: &[u8]) -> Option<&'a [u8]> {
    let rest = path.strip_prefix(b"/proc/")?;
    let rest = rest.strip_prefix(b"self/").or_else(|| rest.strip_prefix(b"thread-self/")).or_else(|| {
        let pid = sys::getpid().to_string();
        rest.strip_prefix(pid.as_bytes())?.strip_prefix(b"/")
    })?;
    let rest = rest.strip_prefix(what)?;
    match rest.first() {
        None => Some(rest),
        Some(b'/') => Some(&rest[1..]),
        _ => None,
    }
}

/// The descriptor a path like `/proc/self/fd/3/x` names, and what follows it.
pub(crate) fn proc_fd(path: &[u8]) -> Option<(i32, &[u8])> {
    match path {
        b"/dev/stdin" => return Some((0, b"")),
        b"/dev/stdout" => return Some((1, b"")),
        b"/dev/stderr" => return Some((2, b"")),
        _ => {}
    }
    let rest = path.strip_prefix(b"/dev/fd/").or_else(|| proc_self(path, b"fd"))?;
    let digits = rest.iter().take_while(|b| b.is_ascii_digit()).count();
    let fd = std::str::from_utf8(&rest[..digits]).ok()?.parse().ok()?;
    match rest.get(digits) {
        None => Some((fd, b"")),
        Some(b'/') => Some((fd, &rest[digits + 1..])),
        _ => None,
    }
}

/// Whether `path` is `/proc/self/cwd` itself.
pub(crate) fn is_proc_cwd(path: &[u8]) -> bool {
    proc_self(path, b"cwd").is_some_and(<[u8]>::is_empty)
}

impl State {
    /// Whether an absolute path can possibly lead to a forwarded file.
    fn may_concern(&self, path: &[u8]) -> bool {
        path.starts_with(b"/proc/")
            || path.starts_with(b"/dev/")
            || path.windows(2).any(|w| w == b"//" || w == b"/.")
            || self.exports.iter().any(|e| {
                let n = e.dir.len().min(path.len());
                path[..n] == e.dir[..n]
            })
    }

    /// Whether a directory is above or below a forwarded one.
    pub(crate) fn is_near(&self, dir: &[u8]) -> bool {
        self.exports.iter().any(|e| below(&e.dir, dir).is_some() || below(dir, &e.dir).is_some())
    }

    /// The name directly below `dir` that leads to a forwarded directory, if one does.
    pub(crate) fn next_name(&self, dir: &[u8]) -> Vec<Vec<u8>> {
        let mut names: Vec<Vec<u8>> = self
            .exports
            .iter()
            .filter_map(|e| below(&e.dir, dir))
            .filter_map(|rest| rest.split(|&b| b == b'/').next().map(<[u8]>::to_vec))
            .filter(|n| !n.is_empty())
            .collect();
        names.sort();
        names.dedup();
        names
    }
}

/// Whether the node can take this path as it is: it knows nothing of a directory that another forwarded one lies on, so
/// that no link in one with such a directory is left to it. `last`: whether a link at the end is followed too.
pub(crate) fn unshadowed(remote: &Remote, last: bool) -> Result<(), Error> {
    let exports = &state().exports;
    let dir = &exports[remote.export].dir;
    let outer =
        exports.len() > 1 && exports.iter().any(|e| e.dir.len() > dir.len() && below(&e.dir, dir).is_some());
    if outer && follow_out(remote, last).is_ok() { Err(Error::Escapes) } else { Ok(()) }
}

/// The path that `remote` leads to when the node says it leaves its export: walks it name by name
/// and replaces the first link that is absolute or climbs out, as a kernel would. `last`: whether
/// a link at the end is followed too.
pub(crate) fn follow_out(remote: &Remote, last: bool) -> Result<Vec<u8>, Error> {
    let state = state();
    let dir = &state.exports[remote.export].dir;
    let parts: Vec<&[u8]> =
        remote.rel.split(|&b| b == b'/').filter(|p| !p.is_empty() && *p != b".").collect();
    let mut done: Vec<u8> = Vec::new();
    let end = directory_end(&remote.rel);
    let last = last || !end.is_empty();
    for (i, part) in parts.iter().enumerate() {
        if *part == b".." {
            if done.is_empty() {
                let rest = parts[i..].join(&b"/"[..]);
                return Ok([&join(dir, &rest), end].concat());
            }
            let cut = done.iter().rposition(|&b| b == b'/').unwrap_or(0);
            done.truncate(cut);
            continue;
        }
        let parent = done.len();
        if !done.is_empty() {
            done.push(b'/');
        }
        done.extend_from_slice(part);
        if i + 1 == parts.len() && !last {
            break;
        }
        let link = state.client().meta(
            Meta::Readlink { path: Path { export: ExportId(remote.export as u16), rel: &done } },
            |a| match a {
                Answer::Bytes(b) => Some(b.to_vec()),
                _ => None,
            },
        );
        match link {
            Ok(target) => {
                let rest = parts[i + 1..].join(&b"/"[..]);
                let base = join(dir, &done[..parent]);
                let mut path = join(&base, &target);
                if !rest.is_empty() {
                    path = join(&path, &rest);
                }
                path.extend_from_slice(end);
                return Ok(path);
            }
            Err(e) if e.errno() == libc::EINVAL => {}
            Err(e) => return Err(e),
        }
    }
    Err(Error::local(libc::ELOOP))
}
