//! What was not forwarded, and why: a line of JSON each in the run's `notes` file, for the report.

use crate::state;
use crate::sys::{self, sys};

/// Notes that something of this kind happened to `path`, in which program, and why.
pub(crate) fn note(kind: &str, path: &[u8], why: &str) {
    if let Some(note) = Note::prepare(kind, path, why) {
        note.say();
    }
}

/// A note that is not said yet, for what makes its file unreachable.
pub(crate) struct Note {
    file: i32,
    line: String,
}

impl Note {
    pub(crate) fn prepare(kind: &str, path: &[u8], why: &str) -> Option<Note> {
        let state = state::get()?;
        let line = serde_json::json!({
            "kind": kind,
            "path": String::from_utf8_lossy(path),
            "why": why,
            "program": String::from_utf8_lossy(&program()),
            "pid": sys::getpid(),
        });
        let file = sys::open(&state.notes, libc::O_WRONLY | libc::O_APPEND | libc::O_CLOEXEC, 0);
        (file >= 0).then(|| Note { file: file as i32, line: format!("{line}\n") })
    }

    pub(crate) fn say(self) {
        sys!(write, self.file, self.line.as_ptr(), self.line.len());
    }
}

impl Drop for Note {
    fn drop(&mut self) {
        sys::close(self.file);
    }
}

/// This program's name, as a person knows it.
fn program() -> Vec<u8> {
    let path = match sys::env(crate::hooks::exec::EXE) {
        Some(original) => original.to_vec(),
        None => sys::readlink(b"/proc/self/exe").unwrap_or_default(),
    };
    path.rsplit(|&b| b == b'/').next().unwrap_or_default().to_vec()
}
