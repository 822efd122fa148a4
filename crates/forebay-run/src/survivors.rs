//! Processes that a program leaves behind: they outlive the run, perhaps its I/O nodes too, and are to be named.

use forebay_embed::{Note, User, using};
use std::path::Path;

/// Those of this user's processes on this machine that were started with the configuration `file`.
/// `lasting`: the I/O nodes are not the run's own.
pub(crate) fn survivors(file: &Path, lasting: bool) -> Vec<Note> {
    let so = match lasting {
        true => ": the job lives on at the arbiter until it has ended, too, and its limits with it",
        false => ", and the I/O nodes with it: what it does there fails",
    };
    let note = |User { pid, name }| Note {
        kind: "survivor".into(),
        path: name,
        why: format!("process {pid} still ran when the program had ended{so}"),
        program: String::new(),
        count: 1,
    };
    using(file).into_iter().map(note).collect()
}
