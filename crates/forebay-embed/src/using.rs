//! The processes of this machine that belong to a run.

use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The largest environment that is looked at.
const ENVIRONMENT: u64 = 1 << 20;

/// A process of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// Its number.
    pub pid: String,
    /// Its name.
    pub name: String,
}

/// Those of this user's processes on this machine that were started with the configuration `file`.
pub fn using(file: &Path) -> Vec<User> {
    let here = std::fs::metadata(file).map(|m| (m.dev(), m.ino())).ok();
    // A directory may have another name, through a link.
    let is_it = |name: &Path| {
        name == file
            || name.file_name() == file.file_name()
                && here.is_some_and(|here| name.metadata().is_ok_and(|m| (m.dev(), m.ino()) == here))
    };
    let wanted = |variable: &[u8]| {
        let name = variable.strip_prefix(b"FOREBAY_CONFIG=");
        name.is_some_and(|name| is_it(Path::new(OsStr::from_bytes(name))))
    };
    let Ok(processes) = std::fs::read_dir("/proc") else { return Vec::new() };
    let started_with = |dir: &Path| {
        let mut environment = Vec::new();
        let read = std::fs::File::open(dir.join("environ"))
            .and_then(|f| f.take(ENVIRONMENT).read_to_end(&mut environment));
        read.is_ok() && environment.split(|b| *b == 0).any(wanted)
    };
    let name = |dir: &Path| std::fs::read_to_string(dir.join("comm")).unwrap_or_default().trim().to_owned();
    let numbered = |e: &std::fs::DirEntry| e.file_name().as_bytes().iter().all(u8::is_ascii_digit);
    let found = processes.flatten().filter(numbered).filter(|e| started_with(&e.path()));
    found.map(|e| User { pid: e.file_name().display().to_string(), name: name(&e.path()) }).collect()
}
