//! Directories that go with this program, also when it is interrupted.

use crate::EmbedError;
use crate::interrupt::{remove, started};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long to try to remove one.
const REMOVAL: Duration = Duration::from_millis(100);

/// A private directory that is removed when this value is dropped.
#[derive(Debug)]
pub struct RunDir {
    path: PathBuf,
    /// Somebody else removes it.
    left: bool,
}

impl RunDir {
    /// Makes one below `base`. Names are short: a Unix socket's path may have 107 bytes.
    pub fn create(base: &Path) -> Result<RunDir, EmbedError> {
        for attempt in 0..10_000u32 {
            let path = base.join(format!("forebay-{}-{attempt}", std::process::id()));
            let mut all = started();
            match std::fs::DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => {
                    all.directories.insert(path.clone());
                    return Ok(RunDir { path, left: false });
                }
                Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(e) => return Err(EmbedError::io("cannot make the directory", path)(e)),
            }
        }
        Err(EmbedError::Argument(format!(
            "{}: too many directories of earlier runs; remove forebay-*",
            base.display()
        )))
    }

    /// Removes what programs that were killed have left below `base`, where whoever asks is alone.
    pub fn sweep(base: &Path) {
        let made = |name: &str| {
            let numbers = name.strip_prefix("forebay-").and_then(|rest| rest.split_once('-'));
            numbers.is_some_and(|(pid, n)| [pid, n].iter().all(|n| n.parse::<u32>().is_ok()))
        };
        for entry in std::fs::read_dir(base).into_iter().flatten().flatten() {
            let directory = entry.file_type().is_ok_and(|t| t.is_dir());
            if directory && entry.file_name().to_str().is_some_and(made) {
                remove(&entry.path(), Instant::now() + REMOVAL);
            }
        }
    }

    /// One in memory if there is a memory file system, so that nothing but what is measured takes time.
    pub fn in_memory() -> Result<RunDir, EmbedError> {
        RunDir::create(&memory())
    }

    /// One for the temporary files (`TMPDIR`) of programs that this one starts, and may have to kill before they have
    /// removed them.
    pub fn for_others() -> Result<RunDir, EmbedError> {
        RunDir::create(&std::env::temp_dir())
    }

    /// One that another program made and left to this one.
    pub fn adopt(path: PathBuf) -> RunDir {
        started().directories.insert(path.clone());
        RunDir { path, left: false }
    }

    /// From now on it is somebody else's.
    pub(crate) fn leave(&mut self) {
        self.left = true;
        started().directories.remove(&self.path);
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for RunDir {
    fn drop(&mut self) {
        if self.left {
            return;
        }
        // A process of the job that lives on may still write here; what cannot be removed now stays.
        remove(&self.path, Instant::now() + REMOVAL);
        started().directories.remove(&self.path);
    }
}

/// Whether the loader finds a library below there that `LD_PRELOAD` names: it cuts names apart at some
/// characters, and puts something else in for `$`.
pub fn can_preload(path: &Path) -> bool {
    !path.as_os_str().as_bytes().iter().any(|b| b" :$".contains(b))
}

/// A memory file system if there is one, or else where temporary files go.
pub fn memory() -> PathBuf {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() }
}
