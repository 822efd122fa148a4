//! Directories: opened, listed, synchronised.

use super::handles::{Held, Open};
use super::{Asked, Fs, Outcome, Reply, errno};
use crate::abi::{self, Dirent, OpenOut};
use crate::turn;
use forebay_client::{Answer, Meta, OpenFlags};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use zerocopy::IntoBytes;

/// What the kernel is given for a directory that was removed while somebody works in it: it can be opened as anywhere, and
/// has no entries. Open files are numbered from 1.
const REMOVED: u64 = 0;

/// Entries that came from the node and were not asked for yet.
#[derive(Debug, Default)]
pub(super) struct Page {
    entries: VecDeque<Entry>,
    /// Where the first of them begins.
    at: u64,
    /// The directory ends behind the last of them.
    end: bool,
}

#[derive(Debug)]
struct Entry {
    ino: u64,
    next: u64,
    kind: u8,
    name: Vec<u8>,
}

impl Fs {
    pub(crate) fn opendir(&self, who: &Asked) -> Outcome<Reply> {
        if self.tree().is_removed_directory(who.node) {
            return Ok(Reply::of(&OpenOut { fh: REMOVED, open_flags: 0, backing: 0 }));
        }
        let held = match self.opened_before(who) {
            Some(held) => held,
            None => self.open_directory(who)?,
        };
        let page = Some(Arc::new(Mutex::new(Page::default())));
        let fh = self.handles.enter(Open { node: who.node, held, shared: false, knows_gates: false, page });
        let keeps = abi::FOPEN_KEEP_CACHE | abi::FOPEN_CACHE_DIR;
        let open_flags = if self.is_immutable() { keeps } else { 0 };
        Ok(Reply::of(&OpenOut { fh, open_flags, backing: 0 }))
    }

    fn open_directory(&self, who: &Asked) -> Outcome<Arc<Held>> {
        let _paths = self.paths_hold();
        let rel = self.tree().path(who.node).ok_or(libc::ENOENT)?;
        let flags = OpenFlags::READ | OpenFlags::DIRECTORY | OpenFlags::NOFOLLOW;
        let (file, attr) = self.client.open(self.path(&rel), flags, 0).map_err(errno)?;
        let held = Held::new(file, &self.client);
        if !self.tree_mut().update(who.node, &attr) {
            return Err(libc::ESTALE);
        }
        if self.is_immutable() {
            self.kept.keep(who.node, &held);
        }
        Ok(held)
    }

    pub(crate) fn readdir(&self, fh: u64, offset: u64, size: u32) -> Outcome<Reply> {
        if fh == REMOVED {
            return Ok(Reply::Bytes(Vec::new()));
        }
        let open = self.handles.get(fh)?;
        let page = open.page.as_ref().ok_or(libc::ENOTDIR)?;
        let mut page = turn::lock(page);
        if offset == 0 || page.at != offset {
            *page = Page { at: offset, ..Page::default() };
        }
        let room = (size as usize).min(1 << 20);
        let mut out: Vec<u8> = Vec::with_capacity(room.min(64 << 10));
        loop {
            while let Some(entry) = page.entries.front() {
                let len = (size_of::<Dirent>() + entry.name.len()).next_multiple_of(8);
                if out.len() + len > room {
                    return Ok(Reply::Bytes(out));
                }
                let namelen = entry.name.len() as u32;
                let head = Dirent { ino: entry.ino, off: entry.next, namelen, kind: entry.kind.into() };
                let end = out.len() + len;
                out.extend_from_slice(head.as_bytes());
                out.extend_from_slice(&entry.name);
                out.resize(end, 0);
                page.at = entry.next;
                page.entries.pop_front();
            }
            if page.end || !out.is_empty() {
                return Ok(Reply::Bytes(out));
            }
            self.next_page(&open.held, &mut page, size)?;
        }
    }

    fn next_page(&self, held: &Held, page: &mut Page, size: u32) -> Outcome<()> {
        let cookie = page.at;
        let taken = self.client.meta_on(
            &held.file,
            |handle| Meta::Readdir { handle, cookie, max: size },
            |answer| match answer {
                Answer::Entries { entries, end } => {
                    let own = |e: &forebay_client::Entry<'_>| Entry {
                        ino: e.ino,
                        next: e.next,
                        kind: e.kind,
                        name: e.name.to_vec(),
                    };
                    Some((entries.iter().map(own).collect::<VecDeque<_>>(), end))
                }
                _ => None,
            },
        );
        let (entries, end) = taken.map_err(errno)?;
        // A page without entries that is not the end would be asked for again and again.
        page.end = end || entries.is_empty();
        page.entries = entries;
        Ok(())
    }
}
