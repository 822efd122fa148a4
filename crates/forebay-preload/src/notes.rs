//! What was not forwarded, and why: a line of JSON each in the run's `notes` file, for the report.

use crate::state;
use crate::sys::{self, sys};

/// Notes that `what` happened to `path`, and why. Said once per process and kind by the callers.
pub(crate) fn note(kind: &str, path: &[u8], why: &str) {
    let Some(state) = state::get() else { return };
    let line = serde_json::json!({
        "kind": kind,
        "path": String::from_utf8_lossy(path),
        "why": why,
        "pid": sys::getpid(),
    });
    let mut line = line.to_string();
    line.push('\n');
    let fd = sys::open(&state.notes, libc::O_WRONLY | libc::O_APPEND | libc::O_CLOEXEC, 0);
    if fd >= 0 {
        sys!(write, fd, line.as_ptr(), line.len());
        sys::close(fd as i32);
    }
}
