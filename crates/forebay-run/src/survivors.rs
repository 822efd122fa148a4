//! Processes that a program leaves behind: they outlive the run, perhaps its I/O nodes too, and are to be named.

use crate::sys::own_session;
use forebay_embed::{Layer, Note, RunDir, User, tidy_when_interrupted, using};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Those that end with the program may take so long, in so many looks.
const ENDING: Duration = Duration::from_millis(50);
const LOOKS: u32 = 5;

/// How often it is looked whether the last has ended.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

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
    let mut left = using(file);
    for _ in 1..LOOKS {
        if left.is_empty() {
            break;
        }
        std::thread::sleep(ENDING);
        left = using(file);
    }
    left.into_iter().map(note).collect()
}

/// What processes go on with is kept as long as they do, by a process of its own: without the library and its
/// configuration, what they start would not be forwarded, and would not know.
pub(crate) fn keep(layer: &mut Layer) {
    let Ok(program) = std::env::current_exe() else { return };
    let mut keeper = Command::new(program);
    keeper.arg("run-rest").arg(layer.client_config());
    keeper.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    own_session(&mut keeper);
    if keeper.spawn().is_ok() {
        layer.leave_dir();
    }
}

/// That process: it ends with the last of them, and the run's directory with it.
pub fn rest(file: &Path) -> std::io::Result<()> {
    let Some(dir) = file.parent() else { return Ok(()) };
    tidy_when_interrupted()?;
    let dir = RunDir::adopt(dir.to_owned());
    while !using(file).is_empty() {
        std::thread::sleep(LOOK_AGAIN);
    }
    drop(dir);
    Ok(())
}
