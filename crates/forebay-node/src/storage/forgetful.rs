//! Storage for tests that forgets. A killed node loses nothing: what it has taken lies in its host's page
//! cache. A host that crashes loses what was not made durable; to see what clients make of that, this
//! storage notes in a journal what stood there before each write, and [`forget`] puts it back after the
//! node was killed, but for what was synced since. Names are remembered as they were when the file was
//! written: a test that renames files does not lose them. Nodes of one host share a journal; all nodes
//! whose journals are in one directory, and [`forget`], take turns, so that the journals have the order in
//! which things happened.

use super::{Posix, Storage, Target};
use rustix::fd::{AsFd, BorrowedFd};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::fs::File;
use std::io::{IoSlice, IoSliceMut, Result, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A line of the journal.
#[derive(Debug, Serialize, Deserialize)]
enum Line {
    /// Bytes were written over others. `grown`: the file's size before and after.
    Wrote { path: PathBuf, offset: u64, before: Vec<u8>, after: Vec<u8>, grown: (u64, u64) },
    /// All written so far is durable.
    Synced { path: PathBuf },
}

/// What a [`Line`] is about: most were synced since, and need not be read as a whole.
#[derive(Deserialize)]
enum About {
    Wrote { path: PathBuf },
    Synced { path: PathBuf },
}

/// The directory, with a journal of what is not durable yet.
pub(crate) struct Forgetful {
    journal: Mutex<Journal>,
}

struct Journal {
    file: File,
    turns: File,
}

/// Whoever holds it may write, or forget.
struct Turn<'a>(&'a File);

impl Turn<'_> {
    fn take(turns: &File) -> Result<Turn<'_>> {
        turns.lock()?;
        Ok(Turn(turns))
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        // It is ours, and goes with the descriptor at the latest.
        let _ = self.0.unlock();
    }
}

fn turns(journal: &Path) -> Result<File> {
    File::options().create(true).append(true).open(journal.with_file_name("turns"))
}

fn path_of(fd: BorrowedFd<'_>) -> std::result::Result<PathBuf, Errno> {
    use std::os::unix::ffi::OsStrExt;
    let name = rustix::fs::readlink(crate::path::proc_name(fd), Vec::new())?;
    Ok(Path::new(std::ffi::OsStr::from_bytes(name.to_bytes())).to_owned())
}

fn size_of(fd: BorrowedFd<'_>) -> std::result::Result<u64, Errno> {
    Ok(rustix::fs::fstat(fd)?.st_size.unsigned_abs())
}

impl Forgetful {
    pub(crate) fn new(journal: &Path) -> Result<Forgetful> {
        let file = File::options().create(true).append(true).open(journal)?;
        Ok(Forgetful { journal: Mutex::new(Journal { file, turns: turns(journal)? }) })
    }

    fn lock(&self) -> MutexGuard<'_, Journal> {
        self.journal.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes by `write`, one after the other: the journal has their order.
    fn write_noted(
        &self,
        fd: BorrowedFd<'_>,
        offset: Option<u64>,
        data: &[u8],
        write: impl FnOnce() -> std::result::Result<(usize, u64), Errno>,
    ) -> std::result::Result<(usize, u64), Errno> {
        let mut journal = self.lock();
        let Journal { file: journal, turns } = &mut *journal;
        let _turn = Turn::take(turns).map_err(|_| Errno::IO)?;
        let path = path_of(fd)?;
        let old = size_of(fd)?;
        let offset = offset.unwrap_or(old);
        let mut before = vec![0; (old.saturating_sub(offset)).min(data.len() as u64) as usize];
        // The handle may be open for writing only.
        let reader = File::from(crate::path::reopen(fd, rustix::fs::OFlags::RDONLY)?);
        reader.read_exact_at(&mut before, offset).map_err(|_| Errno::IO)?;
        let done = write()?;
        let after = data[..done.0].to_vec();
        before.truncate(after.len());
        let line = Line::Wrote { path, offset, before, after, grown: (old, size_of(fd)?) };
        note(journal, &line).map_err(|_| Errno::IO)?;
        Ok(done)
    }
}

fn note(journal: &mut File, line: &Line) -> Result<()> {
    let mut text = serde_json::to_vec(line)?;
    text.push(b'\n');
    journal.write_all(&text)
}

impl Storage for Forgetful {
    fn read(&self, at: Target<'_>, into: &mut [IoSliceMut<'_>]) -> std::result::Result<usize, Errno> {
        Posix.read(at, into)
    }

    fn write(&self, at: Target<'_>, from: &[IoSlice<'_>]) -> std::result::Result<usize, Errno> {
        let data: Vec<u8> = from.iter().flat_map(|b| b.iter().copied()).collect();
        let write = || Posix.write(at, from).map(|n| (n, 0));
        self.write_noted(at.fd, Some(at.offset), &data, write).map(|(n, _)| n)
    }

    fn append(&self, at: Target<'_>, from: &[u8]) -> std::result::Result<(usize, u64), Errno> {
        self.write_noted(at.fd, None, from, || Posix.append(at, from))
    }

    fn sync(&self, fd: BorrowedFd<'_>, data_only: bool) -> std::result::Result<(), Errno> {
        let mut journal = self.lock();
        let Journal { file: journal, turns } = &mut *journal;
        let _turn = Turn::take(turns).map_err(|_| Errno::IO)?;
        Posix.sync(fd, data_only)?;
        let path = path_of(fd)?;
        note(journal, &Line::Synced { path }).map_err(|_| Errno::IO)
    }
}

/// Undoes what a node that is gone wrote and did not make durable, and empties its journal; says how
/// many bytes are as they were before. What others have written over since stays.
///
/// # Errors
/// If the journal or a file in it cannot be read or written.
pub fn forget(journal: &Path) -> Result<u64> {
    let turns = turns(journal)?;
    let _turn = Turn::take(&turns)?;
    let text = std::fs::read(journal)?;
    let (mut synced, mut undone) = (HashSet::new(), 0);
    for line in text.rsplit(|b| *b == b'\n') {
        // One may be half: its write was not answered.
        match serde_json::from_slice(line) {
            Ok(About::Synced { path }) => drop(synced.insert(path)),
            Ok(About::Wrote { path }) if !synced.contains(&path) => {
                if let Ok(Line::Wrote { path, offset, before, after, grown }) = serde_json::from_slice(line) {
                    undone += undo(&path, offset, &before, &after, grown)?;
                }
            }
            Ok(About::Wrote { .. }) | Err(_) => {}
        }
    }
    File::create(journal)?;
    Ok(undone)
}

fn undo(path: &Path, offset: u64, before: &[u8], after: &[u8], grown: (u64, u64)) -> Result<u64> {
    // A file that was removed has nothing to lose.
    let Ok(file) = File::options().read(true).write(true).open(path) else { return Ok(0) };
    let mut now = vec![0; after.len()];
    if file.read_exact_at(&mut now, offset).is_err() || now != after {
        return Ok(0);
    }
    file.write_all_at(before, offset)?;
    if grown.1 > grown.0 && file.metadata()?.len() == grown.1 {
        rustix::fs::ftruncate(file.as_fd(), grown.0)?;
    }
    Ok(after.len() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_types::FileId;

    #[test]
    fn what_was_not_synced_is_gone_and_the_rest_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let (journal, path) = (dir.path().join("journal"), dir.path().join("f"));
        std::fs::write(&path, "0123456789").unwrap();
        let file = File::options().read(true).write(true).open(&path).unwrap();
        let at = |offset| Target { fd: file.as_fd(), offset, file: FileId(1) };
        let storage = Forgetful::new(&journal).unwrap();
        storage.write(at(0), &[IoSlice::new(b"ab")]).unwrap();
        storage.sync(file.as_fd(), true).unwrap();
        storage.write(at(2), &[IoSlice::new(b"c"), IoSlice::new(b"d")]).unwrap();
        assert_eq!(storage.append(at(0), b"tail").unwrap(), (4, 14));
        storage.write(at(12), &[IoSlice::new(b"xyz")]).unwrap();
        storage.write(at(5), &[IoSlice::new(b"!")]).unwrap();
        // Somebody else writes there meanwhile, and it is his.
        file.write_all_at(b"?", 5).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"abcd4?6789taxyz");
        drop(storage);
        assert_eq!(forget(&journal).unwrap(), 2 + 4 + 3);
        assert_eq!(std::fs::read(&path).unwrap(), b"ab234?6789");
        assert_eq!(forget(&journal).unwrap(), 0, "once");
    }
}
