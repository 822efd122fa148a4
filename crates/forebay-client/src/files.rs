//! What the processes of a job did with each file, counted together in one shared file per host, for whoever
//! asks for a profile of the run (`forebay run --darshan`). Otherwise nothing is counted.

use crate::sys;
use crate::{Client, File};
use forebay_types::Nanos;
use forebay_wire::message::{Meta, Path as WirePath};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

/// Files, each by every process of a parallel program, that are counted; of others it is only known that
/// there were some.
const FILES: usize = 4096;
/// Places for them: twice as many, so that a free one is never far.
const SLOTS: usize = 2 * FILES;
/// The longest name; of longer ones the end is kept.
const NAME: usize = 256;
/// How the name of a host's file begins.
const PREFIX: &str = "files-";

/// Upper ends of the classes of sizes, as Darshan has them; the tenth is what is larger.
const CLASSES: [u64; 9] = [100, 1 << 10, 10 << 10, 100 << 10, 1 << 20, 4 << 20, 10 << 20, 100 << 20, 1 << 30];

/// Reads or writes of one file. Times are nanoseconds since 1970.
#[derive(Debug)]
#[repr(C)]
struct Direction {
    count: AtomicU64,
    bytes: AtomicU64,
    /// The last byte.
    most: AtomicU64,
    /// Those that began where the last one ended, and those that began there or further on.
    consecutive: AtomicU64,
    sequential: AtomicU64,
    /// Where the last one ended.
    end: AtomicU64,
    first: AtomicU64,
    last: AtomicU64,
    nanos: AtomicU64,
    longest: AtomicU64,
    longest_size: AtomicU64,
    classes: [AtomicU64; 10],
}

#[derive(Debug)]
#[repr(C)]
struct Slot {
    /// Which file and process; 0 is none.
    key: AtomicU64,
    /// Whether the name is there.
    named: AtomicU64,
    name: [AtomicU64; NAME / 8],
    rank: AtomicU64,
    opens: AtomicU64,
    opened: AtomicU64,
    opened_last: AtomicU64,
    closed: AtomicU64,
    closed_last: AtomicU64,
    /// Of opening and closing.
    meta_nanos: AtomicU64,
    /// With its attributes, and without.
    syncs: [AtomicU64; 2],
    /// How often it was renamed, how often another one to it, and the first of those.
    renamed: [AtomicU64; 2],
    renamed_from: AtomicU64,
    switches: AtomicU64,
    /// 1 after a read, 2 after a write.
    latest: AtomicU64,
    read: Direction,
    written: Direction,
    /// Sizes, the first four that were seen, and how often.
    sizes: [AtomicU64; 4],
    size_counts: [AtomicU64; 4],
}

/// The files of a job on this host, in memory shared by its processes.
#[derive(Debug)]
#[repr(C)]
pub struct FileCounters {
    /// What found no place.
    lost: AtomicU64,
    /// Places that are taken.
    taken: AtomicU64,
    slots: [Slot; SLOTS],
}

/// Reads or writes of one file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)] // as counted
pub struct DirectionTotals {
    pub count: u64,
    pub bytes: u64,
    pub most: u64,
    pub consecutive: u64,
    pub sequential: u64,
    /// Nanoseconds since 1970; 0 if there was none.
    pub first: u64,
    pub last: u64,
    pub nanos: u64,
    pub longest: u64,
    pub longest_size: u64,
    pub classes: [u64; 10],
}

/// What one process of a parallel program, or all of another's, did with a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)] // as counted
pub struct FileTotals {
    pub name: Vec<u8>,
    pub rank: u64,
    pub opens: u64,
    /// When it was first and last opened; nanoseconds since 1970.
    pub opened: (u64, u64),
    /// When a close of it began first, and ended last.
    pub closed: (u64, u64),
    /// Of opening and closing.
    pub meta_nanos: u64,
    /// With its attributes (`fsync`), and without (`fdatasync`). Their time is in that of the writes.
    pub syncs: [u64; 2],
    /// How often it was renamed, and how often another that was opened before to it.
    pub renamed: [u64; 2],
    /// The first of those, by its [`name_id`]; 0 if there was none.
    pub renamed_from: u64,
    /// From reading to writing and back.
    pub switches: u64,
    pub read: DirectionTotals,
    pub written: DirectionTotals,
    pub sizes: [(u64, u64); 4],
}

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Done {
    Opened,
    Closed,
    Synced { data_only: bool },
    Read { offset: u64, bytes: u64 },
    Written { offset: u64, bytes: u64 },
}

impl FileCounters {
    /// This host's, in a directory for them.
    pub(crate) fn open(dir: &Path) -> std::io::Result<&'static FileCounters> {
        let path = dir.join(format!("{PREFIX}{}", sys::hostname()));
        FileCounters::map(&path, true)
    }

    fn map(path: &Path, create: bool) -> std::io::Result<&'static FileCounters> {
        let file =
            std::fs::File::options().read(true).write(true).create(create).truncate(false).open(path)?;
        // Whoever else does it at the same time makes it as long as this.
        sys::lengthen(&file, size_of::<FileCounters>() as u64)?;
        // SAFETY: it is made of atomics, and the file is as long.
        unsafe { sys::map_shared(&file) }
    }

    /// What was counted by the processes of all hosts, and how often a file found no place.
    pub fn totals(dir: &Path) -> std::io::Result<(Vec<FileTotals>, u64)> {
        let (mut all, mut lost) = (Vec::new(), 0);
        for entry in std::fs::read_dir(dir)?.flatten() {
            if !entry.file_name().to_string_lossy().starts_with(PREFIX) {
                continue;
            }
            let files = FileCounters::map(&entry.path(), false)?;
            lost += files.lost.load(Relaxed);
            all.extend(files.slots.iter().filter_map(Slot::totals));
        }
        all.sort_by(|a, b| (&a.name, a.rank).cmp(&(&b.name, b.rank)));
        Ok((all, lost))
    }

    /// Something was done with a file in so many nanoseconds.
    pub(crate) fn add(&self, name: &[u8], rank: u64, done: Done, nanos: u64) {
        let Some(slot) = self.slot(name, rank) else {
            self.lost.fetch_add(1, Relaxed);
            return;
        };
        let now = std::time::UNIX_EPOCH.elapsed().map_or(1, |t| t.as_nanos() as u64);
        let begun = now.saturating_sub(nanos).max(1);
        let (direction, offset, bytes, code) = match done {
            Done::Opened => {
                slot.opens.fetch_add(1, Relaxed);
                slot.meta_nanos.fetch_add(nanos, Relaxed);
                let _ = slot.opened.compare_exchange(0, begun, Relaxed, Relaxed);
                slot.opened_last.fetch_max(now, Relaxed);
                return;
            }
            Done::Closed => {
                slot.meta_nanos.fetch_add(nanos, Relaxed);
                let _ = slot.closed.compare_exchange(0, begun, Relaxed, Relaxed);
                slot.closed_last.fetch_max(now, Relaxed);
                return;
            }
            Done::Synced { data_only } => {
                slot.syncs[usize::from(data_only)].fetch_add(1, Relaxed);
                slot.written.nanos.fetch_add(nanos, Relaxed);
                return;
            }
            Done::Read { offset, bytes } => (&slot.read, offset, bytes, 1),
            Done::Written { offset, bytes } => (&slot.written, offset, bytes, 2),
        };
        direction.add(offset, bytes, begun, now, nanos);
        let before = slot.latest.swap(code, Relaxed);
        if before != 0 && before != code {
            slot.switches.fetch_add(1, Relaxed);
        }
        if bytes == 0 {
            // No size: 0 stands for a place that is free.
            return;
        }
        for (size, count) in slot.sizes.iter().zip(&slot.size_counts) {
            let known = size.compare_exchange(0, bytes, Relaxed, Relaxed).unwrap_or_else(|known| known);
            if known == bytes || known == 0 {
                count.fetch_add(1, Relaxed);
                break;
            }
        }
    }

    /// A file was renamed in so many nanoseconds. As Darshan does it, that is counted of files that had been opened,
    /// and what is done with one that is open goes on under the name by which it was opened.
    fn rename(&self, from: &[u8], to: &[u8], rank: u64, nanos: u64) {
        let Some(old) = self.find(from, rank, false) else { return };
        old.renamed[0].fetch_add(1, Relaxed);
        old.meta_nanos.fetch_add(nanos, Relaxed);
        let Some(new) = self.slot(to, rank) else {
            self.lost.fetch_add(1, Relaxed);
            return;
        };
        new.renamed[1].fetch_add(1, Relaxed);
        let _ = new.renamed_from.compare_exchange(0, name_id(kept(from)), Relaxed, Relaxed);
    }

    fn slot(&self, name: &[u8], rank: u64) -> Option<&Slot> {
        self.find(name, rank, true)
    }

    /// Its place, which it takes if it has none and is to have one.
    fn find(&self, name: &[u8], rank: u64, take: bool) -> Option<&Slot> {
        let all = name.iter().copied().chain(rank.to_le_bytes());
        let hash = |h: u64, b: u8| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3);
        let key = all.fold(0xcbf2_9ce4_8422_2325, hash).max(1);
        for probe in 0..SLOTS {
            let slot = &self.slots[(key as usize % SLOTS + probe) % SLOTS];
            let mut known = slot.key.load(Relaxed);
            if known == 0 && take && self.taken.load(Acquire) < FILES as u64 {
                known = slot.key.compare_exchange(0, key, Relaxed, Relaxed).unwrap_or_else(|known| known);
                if known == 0 {
                    slot.name(kept(name), rank);
                    self.taken.fetch_add(1, Release);
                    return Some(slot);
                }
            } else if known == 0 {
                // The last may have been taken by another process meanwhile, for this.
                known = slot.key.load(Relaxed);
            }
            if known == key {
                return Some(slot);
            }
            if known == 0 {
                return None;
            }
        }
        None
    }
}

/// As much of a name as is kept.
fn kept(name: &[u8]) -> &[u8] {
    &name[name.len().saturating_sub(NAME - 1)..]
}

/// What tells one name in a log from others.
pub fn name_id(name: &[u8]) -> u64 {
    let hash = |h: u64, b: &u8| (h ^ u64::from(*b)).wrapping_mul(0x0100_0000_01b3);
    name.iter().fold(0xcbf2_9ce4_8422_2325, hash).max(1)
}

impl Client {
    pub(crate) fn name_of(&self, export: u16, rel: &[u8]) -> Option<Vec<u8>> {
        let map = self.config.exports.get(usize::from(export))?;
        Some([map.dir.as_os_str().as_encoded_bytes(), b"/", rel].concat())
    }

    fn rank(&self) -> u64 {
        self.task.map_or(0, |t| t.rank.into())
    }

    /// Something was done with a file since `begun`; counts and records it, if that is wanted.
    pub(crate) fn did(&self, file: &File, begun: Option<Nanos>, done: Done) {
        let Some(nanos) = begun.map(|begun| sys::now().since(begun).0) else { return };
        self.trace(file, done, nanos);
        let Some(files) = self.files else { return };
        let Some(name) = self.name_of(file.export, &file.opened_as()) else { return };
        files.add(&name, self.rank(), done, nanos);
    }

    /// The same of an operation on names.
    pub(crate) fn did_rename(&self, op: &Meta<'_>, begun: Option<Nanos>) {
        let (Some(files), Some(begun), Meta::Rename { from, to, flags }) = (self.files, begun, op) else {
            return;
        };
        let name = |path: &WirePath<'_>| self.name_of(path.export.0, path.rel);
        if let (Some(from), Some(to), 0) = (name(from), name(to), flags & libc::RENAME_EXCHANGE) {
            files.rename(&from, &to, self.rank(), sys::now().since(begun).0);
        }
    }
}

impl Slot {
    fn name(&self, name: &[u8], rank: u64) {
        for (word, bytes) in self.name.iter().zip(name.chunks(8)) {
            let mut whole = [0; 8];
            whole[..bytes.len()].copy_from_slice(bytes);
            word.store(u64::from_le_bytes(whole), Relaxed);
        }
        self.rank.store(rank, Relaxed);
        self.named.store(1, Release);
    }

    fn totals(&self) -> Option<FileTotals> {
        let get = |n: &AtomicU64| n.load(Relaxed);
        (self.named.load(Acquire) == 1).then(|| {
            let name = self.name.iter().flat_map(|w| get(w).to_le_bytes());
            FileTotals {
                name: name.take_while(|b| *b != 0).collect(),
                rank: get(&self.rank),
                opens: get(&self.opens),
                opened: (get(&self.opened), get(&self.opened_last)),
                closed: (get(&self.closed), get(&self.closed_last)),
                meta_nanos: get(&self.meta_nanos),
                syncs: [get(&self.syncs[0]), get(&self.syncs[1])],
                renamed: [get(&self.renamed[0]), get(&self.renamed[1])],
                renamed_from: get(&self.renamed_from),
                switches: get(&self.switches),
                read: self.read.totals(),
                written: self.written.totals(),
                sizes: std::array::from_fn(|i| (get(&self.sizes[i]), get(&self.size_counts[i]))),
            }
        })
    }
}

impl Direction {
    fn add(&self, offset: u64, bytes: u64, begun: u64, now: u64, nanos: u64) {
        let before = self.end.swap(offset.saturating_add(bytes), Relaxed);
        if self.count.fetch_add(1, Relaxed) > 0 {
            self.sequential.fetch_add(u64::from(offset >= before), Relaxed);
            self.consecutive.fetch_add(u64::from(offset == before), Relaxed);
        }
        self.bytes.fetch_add(bytes, Relaxed);
        if bytes > 0 {
            self.most.fetch_max(offset.saturating_add(bytes) - 1, Relaxed);
        }
        let _ = self.first.compare_exchange(0, begun, Relaxed, Relaxed);
        self.last.fetch_max(now, Relaxed);
        self.nanos.fetch_add(nanos, Relaxed);
        if self.longest.fetch_max(nanos, Relaxed) < nanos {
            self.longest_size.store(bytes, Relaxed);
        }
        self.classes[CLASSES.partition_point(|most| *most < bytes)].fetch_add(1, Relaxed);
    }

    fn totals(&self) -> DirectionTotals {
        let get = |n: &AtomicU64| n.load(Relaxed);
        DirectionTotals {
            count: get(&self.count),
            bytes: get(&self.bytes),
            most: get(&self.most),
            consecutive: get(&self.consecutive),
            sequential: get(&self.sequential),
            first: get(&self.first),
            last: get(&self.last),
            nanos: get(&self.nanos),
            longest: get(&self.longest),
            longest_size: get(&self.longest_size),
            classes: std::array::from_fn(|i| get(&self.classes[i])),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_done_with_a_file_is_counted_by_process() {
        let dir = tempfile::tempdir().unwrap();
        let files = FileCounters::open(dir.path()).unwrap();
        for (rank, step) in [(0, 0), (0, 1), (1, 0), (0, 3)] {
            files.add(b"/data/x", rank, Done::Written { offset: step * 100, bytes: 100 }, 10);
        }
        files.add(b"/data/x", 0, Done::Opened, 5);
        files.add(b"/data/x", 0, Done::Closed, 2);
        files.add(b"/data/x", 0, Done::Synced { data_only: true }, 4);
        files.add(b"/data/x", 0, Done::Read { offset: 0, bytes: 2000 }, 7);
        for _ in 0..9 {
            files.add(b"/data/x", 1, Done::Read { offset: 100, bytes: 0 }, 1);
        }
        files.add(b"/data/x", 1, Done::Written { offset: 0, bytes: 8192 }, 1);
        let (all, lost) = FileCounters::totals(dir.path()).unwrap();
        assert_eq!((all.len(), lost), (2, 0));
        assert_eq!(
            all[1].sizes[..3],
            [(100, 1), (8192, 1), (0, 0)],
            "at the end of the file there is nothing"
        );
        let w = &all[0].written;
        assert_eq!((w.count, w.bytes, w.most, w.consecutive, w.sequential), (3, 300, 399, 1, 2));
        assert_eq!((w.classes[0], w.nanos, all[0].opens, all[0].switches), (3, 34, 1, 1));
        assert_eq!((all[0].syncs, all[0].meta_nanos), ([0, 1], 7));
        assert!(all[0].closed.0 > 0 && all[0].closed.1 >= all[0].closed.0);
        assert_eq!((all[0].read.classes[2], all[1].rank, all[1].written.count), (1, 1, 2));
        assert_eq!(all[0].name, b"/data/x");
        assert_eq!(all[0].sizes[..2], [(100, 3), (2000, 1)]);
        // What was never opened is none of a log's business; of what was, it is told where it came from.
        for _ in 0..2 {
            files.rename(b"/data/never", b"/data/z", 0, 3);
            files.rename(b"/data/x", b"/data/y", 0, 3);
        }
        let (all, _) = FileCounters::totals(dir.path()).unwrap();
        assert_eq!((all.len(), all[0].renamed, all[0].meta_nanos), (3, [2, 0], 13));
        assert_eq!((&all[2].name[..], all[2].renamed, all[2].opens), (&b"/data/y"[..], [0, 2], 0));
        assert_eq!(all[2].renamed_from, name_id(b"/data/x"));
        // As many as are promised have a place, however they fall.
        let many = |n: usize| format!("/many/{n}").into_bytes();
        for n in 0..FILES - 3 {
            files.add(&many(n), 0, Done::Opened, 1);
        }
        let (all, lost) = FileCounters::totals(dir.path()).unwrap();
        assert_eq!((all.len(), lost), (FILES, 0));
        for n in 0..FILES {
            files.add(&many(n), 0, Done::Opened, 1);
        }
        let (all, lost) = FileCounters::totals(dir.path()).unwrap();
        assert_eq!((all.len(), lost), (FILES, 3), "and no more");
        assert_eq!(all[3].opens, 2);
    }
}
