//! Processes that a program leaves behind: they outlive the run's I/O nodes, and are to be named.

use forebay_embed::{Note, User, using};
use std::path::Path;

/// Those of this user's processes on this machine that were started with the configuration `file`.
pub(crate) fn survivors(file: &Path) -> Vec<Note> {
    let note = |User { pid, name }| Note {
        kind: "survivor".into(),
        path: name,
        why: format!(
            "process {pid} still ran when the program had ended, and the I/O nodes with it: what it does there fails"
        ),
        program: String::new(),
        count: 1,
    };
    using(file).into_iter().map(note).collect()
}
