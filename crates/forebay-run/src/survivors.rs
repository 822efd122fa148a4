//! Processes that a program leaves behind: they outlive the run's I/O nodes, and are to be named.

use forebay_embed::Note;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The largest environment that is looked at.
const ENVIRONMENT: u64 = 1 << 20;

/// Those of this user's processes on this machine that were started with the configuration `file`.
pub(crate) fn survivors(file: &Path) -> Vec<Note> {
    let wanted = [b"FOREBAY_CONFIG=", file.as_os_str().as_bytes()].concat();
    let Ok(processes) = std::fs::read_dir("/proc") else { return Vec::new() };
    let started_with = |dir: &Path| {
        let mut environment = Vec::new();
        let read = std::fs::File::open(dir.join("environ"))
            .and_then(|f| f.take(ENVIRONMENT).read_to_end(&mut environment));
        read.is_ok() && environment.split(|b| *b == 0).any(|v| v == wanted)
    };
    let name = |dir: &Path| std::fs::read_to_string(dir.join("comm")).unwrap_or_default().trim().to_owned();
    let numbered = |e: &std::fs::DirEntry| e.file_name().as_bytes().iter().all(u8::is_ascii_digit);
    let found = processes.flatten().filter(numbered).filter(|e| started_with(&e.path()));
    found
        .map(|e| Note {
            kind: "survivor".into(),
            path: name(&e.path()),
            why: format!(
                "process {} still ran when the program had ended, and the I/O nodes with it: what it does there fails",
                e.file_name().display()
            ),
            program: String::new(),
            count: 1,
        })
        .collect()
}
