//! Directories that the node keeps open for a moment, where resolving a path costs a question to the file
//! system's servers for each of its parts.
//!
//! Only directories of the export's own file system that are reached without a symbolic link; only for jobs of
//! which this is the one I/O node ([`crate::session::Session::is_here`]); which, for whom and how long says
//! [`crate::kept`].

use crate::kept::Kept;
use crate::path::Export;
use crate::sys;
use crate::sys::acting::Whom;
use forebay_types::Nanos;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// So many are kept at most.
const MOST: usize = 256;
/// For so long, where nobody has said.
const TIME: Duration = Duration::from_millis(20);

/// All that are kept, of all exports.
pub(crate) struct Directories {
    kept: Mutex<Kept<Whom, Arc<OwnedFd>>>,
    /// By export: whether any are kept.
    of: Box<[bool]>,
}

/// Whose directories, and of which export.
#[derive(Clone, Copy)]
pub(crate) struct Keeper<'a> {
    directories: &'a Directories,
    whom: &'a Whom,
    export: usize,
}

impl Directories {
    /// `told`: for how long, whatever the file system (zero: never). Unless told, where each part of a path is a
    /// question ([`Export::asks_for_each_part`]).
    pub(crate) fn new(exports: &[Export], told: Option<Duration>) -> Directories {
        let time = told.unwrap_or(TIME);
        let of =
            exports.iter().map(|e| !time.is_zero() && (told.is_some() || e.asks_for_each_part())).collect();
        Directories { kept: Mutex::new(Kept::new(MOST, time.into())), of }
    }

    fn kept(&self) -> MutexGuard<'_, Kept<Whom, Arc<OwnedFd>>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// For somebody's paths in an export, if any of its directories are kept.
    pub(crate) fn keeper<'a>(&'a self, export: usize, whom: &'a Whom) -> Option<Keeper<'a>> {
        self.of.get(export).is_some_and(|keeps| *keeps).then_some(Keeper { directories: self, whom, export })
    }

    fn any(&self) -> bool {
        self.of.contains(&true)
    }

    /// Something was changed that may have moved a directory or closed it to somebody.
    pub(crate) fn changed(&self) {
        if self.any() {
            let gone = self.kept().changed();
            drop(gone);
        }
    }

    /// Closes what has been kept for long enough.
    pub(crate) fn expire(&self, now: Nanos) {
        if self.any() {
            let gone = self.kept().expire(now);
            drop(gone);
        }
    }
}

impl Keeper<'_> {
    /// The directory, as it was found a moment ago or by `find` now.
    pub(crate) fn directory(
        &self,
        rel: &[u8],
        find: impl FnOnce() -> Result<OwnedFd, Errno>,
    ) -> Result<Arc<OwnedFd>, Errno> {
        let now = sys::now();
        let look = {
            let kept = self.directories.kept();
            if let Some(dir) = kept.find(self.whom, self.export, rel, now) {
                return Ok(dir);
            }
            kept.look(now)
        };
        let dir = Arc::new(find()?);
        let gone = self.directories.kept().keep(look, self.whom.clone(), self.export, rel, Arc::clone(&dir));
        drop(gone);
        Ok(dir)
    }
}
