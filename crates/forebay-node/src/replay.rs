//! Requests that were sent before, perhaps to another node, and never answered. On the same node the
//! reply cache knows; elsewhere the file system is looked at: if it is as the request would have left
//! it, and became so since the request was first sent, the request counts as done.

use crate::fail::{Failure, Outcome};
use crate::file::OpenFile;
use crate::meta::{Call, DONE};
use crate::path;
use crate::sys;
use forebay_types::Nanos;
use forebay_wire::flags::OpenFlags;
use forebay_wire::message::{Answer, Attr, Meta, Path, Target};
use rustix::fs::{FallocateFlags, OFlags, RenameFlags};
use rustix::io::Errno;

/// Clocks and transit: a change may look this much older than the request.
const SLACK: Nanos = Nanos::from_secs(1);
/// How much of a file is searched for an append's data.
const SEARCH_LIMIT: u64 = 64 << 20;
const CHUNK: usize = 1 << 20;

const UNKNOWN: Failure = Failure {
    errno: Errno::IO,
    flags: 0,
    why: "the connection broke while this was carried out; whether it was done cannot be told",
};

/// Refuses what must not be done twice and leaves no trace of having been done once.
pub(crate) fn admit(meta: &Meta<'_>) -> Outcome<()> {
    let shifts = FallocateFlags::COLLAPSE_RANGE | FallocateFlags::INSERT_RANGE;
    match meta {
        Meta::Rename { flags, .. } if flags & RenameFlags::EXCHANGE.bits() != 0 => Err(UNKNOWN),
        Meta::Fallocate { mode, .. } if *mode as u32 & shifts.bits() != 0 => Err(UNKNOWN),
        _ => Ok(()),
    }
}

/// The outcome of a repeated request that failed with `failure` just now.
pub(crate) fn outcome(call: &Call<'_>, meta: &Meta<'_>, failure: Failure, out: &mut Vec<u8>) -> Outcome<()> {
    let age = Nanos::from_millis(call.header.age_ms.get().into()) + SLACK;
    let recent = |time: (i64, u32)| {
        let at = Nanos::from_secs(u64::try_from(time.0).unwrap_or(0)) + Nanos(time.1.into());
        sys::wall_clock().since(at) <= age
    };
    let born = |attr: &Attr| recent(attr.btime.unwrap_or(attr.ctime));
    let is = |attr: &Attr, kind: u32| attr.mode & libc::S_IFMT == kind;
    let look = |p: &Path<'_>| path::check(&call.node.exports, p).and_then(|p| p.stat(false));
    let done = match (*meta, failure.errno) {
        (Meta::Unlink { .. } | Meta::Rmdir { .. }, Errno::NOENT) => true,
        (Meta::Removexattr { .. }, Errno::NODATA) => true,
        (Meta::Mkdir { path, .. }, Errno::EXIST) => {
            look(&path).is_ok_and(|a| is(&a, libc::S_IFDIR) && born(&a))
        }
        (Meta::Mknod { path, mode, .. }, Errno::EXIST) => {
            let kind = if mode & libc::S_IFMT == 0 { libc::S_IFREG } else { mode & libc::S_IFMT };
            look(&path).is_ok_and(|a| is(&a, kind) && born(&a))
        }
        (Meta::Symlink { target, path }, Errno::EXIST) => {
            look(&path).is_ok_and(|a| path::is_link(&a) && born(&a))
                && link_target(call, &path).is_ok_and(|t| t == target)
        }
        (Meta::Link { from, to }, Errno::EXIST) => {
            let source = match from {
                Target::Handle(h) => call.file(h).and_then(|f| Ok(path::attr_of(f.fd())?)),
                Target::Path(p) => path::check(&call.node.exports, &p).and_then(|p| p.stat(true)),
                Target::Link(p) => look(&p),
            };
            matches!((source, look(&to)), (Ok(s), Ok(d)) if (s.dev, s.ino) == (d.dev, d.ino) && recent(d.ctime))
        }
        (Meta::Rename { to, .. }, Errno::NOENT) => look(&to).is_ok_and(|a| recent(a.ctime)),
        (Meta::Setxattr { target, name, value, .. }, Errno::EXIST) => {
            let mut encoded = Vec::new();
            call.getxattr(&target, name, &mut encoded).is_ok()
                && matches!(Answer::decode(&encoded), Ok(Answer::Bytes(v)) if v == value)
        }
        (Meta::Open { path, flags, .. }, Errno::EXIST) if flags.has(OpenFlags::EXCL) => {
            if look(&path).is_ok_and(|a| is(&a, libc::S_IFREG) && a.size == 0 && born(&a)) {
                let again = flags.without(OpenFlags::EXCL | OpenFlags::CREATE | OpenFlags::TRUNC)
                    | OpenFlags::NOFOLLOW;
                let fd = path::check(&call.node.exports, &path)?.open(
                    OFlags::from_bits_retain(again.to_linux() as u32) | OFlags::NONBLOCK,
                    rustix::fs::Mode::empty(),
                )?;
                let attr = path::attr_of(rustix::fd::AsFd::as_fd(&fd))?;
                call.opened(fd, attr, flags)?.append_to(out);
                return Ok(());
            }
            false
        }
        _ => false,
    };
    if !done {
        return Err(failure);
    }
    DONE.append_to(out);
    Ok(())
}

fn link_target(call: &Call<'_>, path: &Path<'_>) -> Outcome<Vec<u8>> {
    let mut encoded = Vec::new();
    call.readlink(path, &mut encoded)?;
    match Answer::decode(&encoded) {
        Ok(Answer::Bytes(target)) => Ok(target.to_vec()),
        _ => Err(Errno::IO.into()),
    }
}

/// Where a repeated append's data already stands in the file, behind `end`, the file's end as the
/// client last knew it; `None` if it has to be appended.
pub(crate) fn find_append(file: &OpenFile, end: u64, data: &[u8]) -> Outcome<Option<u64>> {
    let size = path::attr_of(file.fd())?.size;
    if size <= end || data.is_empty() || size - end < data.len() as u64 {
        return Ok(None);
    }
    if size - end > SEARCH_LIMIT {
        return Err(UNKNOWN);
    }
    // The handle may be open for writing only.
    let reader = path::reopen(file.fd(), OFlags::RDONLY).map_err(|_| UNKNOWN)?;
    let finder = memchr::memmem::Finder::new(data);
    let mut window = vec![0u8; data.len() - 1 + CHUNK];
    let (mut held, mut at) = (0, end);
    loop {
        let n = rustix::io::pread(&reader, &mut window[held..], at + held as u64)?;
        if n == 0 {
            return Ok(None);
        }
        held += n;
        if let Some(found) = finder.find(&window[..held]) {
            return Ok(Some(at + found as u64));
        }
        // Keep what could be the beginning of it.
        let keep = held.min(data.len() - 1);
        window.copy_within(held - keep..held, 0);
        at += (held - keep) as u64;
        held = keep;
    }
}
