//! The directory of one run.

use crate::EmbedError;
use std::path::{Path, PathBuf};

/// A private directory that is removed when this value is dropped.
#[derive(Debug)]
pub(crate) struct RunDir(PathBuf);

impl RunDir {
    /// Makes one below the system's directory for temporary files. Names are short: a Unix socket's
    /// path may have 107 bytes.
    pub(crate) fn create() -> Result<RunDir, EmbedError> {
        let base = std::env::temp_dir();
        for attempt in 0..100u32 {
            let path = base.join(format!("forebay-{}-{attempt}", std::process::id()));
            use std::os::unix::fs::DirBuilderExt;
            match std::fs::DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => return Ok(RunDir(path)),
                Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(e) => return Err(EmbedError::io("cannot make the directory", path)(e)),
            }
        }
        Err(EmbedError::Argument(format!(
            "{}: too many directories of earlier runs; remove forebay-*",
            base.display()
        )))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for RunDir {
    fn drop(&mut self) {
        // A process of the job that lives on may still write here; what cannot be removed now stays.
        for _ in 0..3 {
            if std::fs::remove_dir_all(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
}
