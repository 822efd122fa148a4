//! The files that `--report` and `--darshan` name: opened before the program starts, so that a mistake costs no run,
//! and written when it has ended.

use anyhow::{Context, Result};
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

/// An open file for what is said of a run.
pub struct ReportFile {
    path: PathBuf,
    file: File,
    /// Whether it was made for this run: then it goes again if nothing is written.
    made: bool,
}

impl ReportFile {
    /// Opens or makes the file that `option` names; what is in it stays until there is something to write.
    pub fn open(option: &str, path: &Path) -> Result<ReportFile> {
        let new = File::options().write(true).create_new(true).open(path);
        let (file, made) = match new {
            Err(e) if e.kind() == ErrorKind::AlreadyExists => (File::options().write(true).open(path), false),
            other => (other, true),
        };
        let file = file.with_context(|| format!("{option}: cannot write to {}", path.display()))?;
        Ok(ReportFile { path: path.to_owned(), file, made })
    }

    /// Replaces what is in it.
    pub fn write(mut self, json: &[u8]) -> std::io::Result<()> {
        self.made = false;
        if self.file.metadata()?.is_file() {
            self.file.set_len(0)?;
        }
        self.file.write_all(json)
    }
}

impl Drop for ReportFile {
    fn drop(&mut self) {
        if self.made {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}
