//! Processes that a program leaves behind: they outlive the run, perhaps its I/O nodes too, and are to be named. And who
//! goes on for them, if the run itself is killed.

use crate::program::place;
use crate::registration::Registered;
use crate::sys::own_session;
use forebay_client::{Address, Config};
use forebay_control::job::{JobGrant, JobRequest};
use forebay_embed::{Layer, Note, RunDir, User, tidy_when_interrupted, using, write_config};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
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

/// What a process needs to go on with a job that another one has registered.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Charge {
    pub(crate) arbiters: String,
    pub(crate) secret: Option<String>,
    pub(crate) request: JobRequest,
    pub(crate) grant: JobGrant,
}

/// A charge is not longer.
const LONGEST_CHARGE: usize = 4 << 20;

/// A run says so often that it lives, and is taken for stopped when it has not for so long.
const BEAT: Duration = Duration::from_millis(500);
const SILENCE: Duration = Duration::from_secs(3);

/// A process that waits for the end of this one, however it ends, and goes on with its job then.
pub(crate) struct Successor {
    process: Child,
    /// It is to hear nothing more.
    quiet: Arc<AtomicBool>,
    left: bool,
}

impl Successor {
    pub(crate) fn start(file: &Path, charge: &Charge) -> std::io::Result<Successor> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("run-rest").arg("--stand-by").arg(file);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        own_session(&mut command);
        let mut successor = Successor { process: command.spawn()?, quiet: Arc::default(), left: false };
        let mut text = serde_json::to_vec(charge)?;
        text.push(b'\n');
        let Some(mut to) = successor.process.stdin.take() else { return Ok(successor) };
        to.write_all(&text)?;
        let quiet = Arc::clone(&successor.quiet);
        // Its input ends with this process, or when that leaves the rest to it.
        std::thread::spawn(move || {
            while !quiet.load(Ordering::SeqCst) && to.write_all(b".").is_ok() {
                std::thread::sleep(BEAT);
            }
        });
        Ok(successor)
    }

    /// It goes on, while this process still lives. Whether it is there.
    pub(crate) fn take_over(mut self) -> bool {
        self.quiet.store(true, Ordering::SeqCst);
        self.left = matches!(self.process.try_wait(), Ok(None));
        self.left
    }
}

impl Drop for Successor {
    fn drop(&mut self) {
        if !self.left {
            // Nothing is left to it, and it is our own child.
            let _ = self.process.kill();
            let _ = self.process.wait();
        }
    }
}

/// What the other end of a pipe does.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Heard {
    Beat,
    Silence,
    End,
}

fn listen(input: &std::io::Stdin) -> Heard {
    let timeout = Timespec { tv_sec: SILENCE.as_secs() as i64, tv_nsec: 0 };
    let mut polled = [PollFd::new(input, PollFlags::IN)];
    match poll(&mut polled, Some(&timeout)) {
        Ok(0) => Heard::Silence,
        Err(Errno::INTR) => Heard::Beat,
        _ => match rustix::io::read(input, &mut [0; 64]) {
            Ok(0) | Err(_) => Heard::End,
            Ok(_) => Heard::Beat,
        },
    }
}

/// That process. It also goes on while the run is stopped. Processes on other hosts need the run's directory, too: if there
/// are any, it stays.
pub fn stand_by(file: &Path) -> anyhow::Result<()> {
    let input = std::io::stdin();
    let mut text = Vec::new();
    // Not a byte more than the line: what follows are signs of life.
    while text.last() != Some(&b'\n') && text.len() < LONGEST_CHARGE {
        let mut byte = [0];
        match rustix::io::read(&input, &mut byte)? {
            0 => break,
            _ => text.push(byte[0]),
        }
    }
    let charge: Charge = serde_json::from_slice(&text)?;
    let go_on = || -> anyhow::Result<Registered> {
        let config = Config::from_json(&std::fs::read(file)?)?;
        let (registered, to) = (Registered::resume(charge.clone())?, file.to_owned());
        registered.when_changed(move |grant, down| tell(&to, &config, grant, down));
        Ok(registered)
    };
    let mut acting = None;
    loop {
        match listen(&input) {
            Heard::Beat => {
                acting.take().map(Registered::leave);
            }
            Heard::Silence if acting.is_none() => acting = Some(go_on()?),
            Heard::Silence => {}
            Heard::End => break,
        }
    }
    let several = Config::from_json(&std::fs::read(file)?)?.origin.is_some();
    if !using(file).is_empty() && acting.is_none() {
        acting = Some(go_on()?);
    }
    if several {
        wait_for_the_last(file);
    } else {
        rest(file)?;
    }
    acting.map(Registered::leave);
    Ok(())
}

/// Later processes of a job, and those that find no I/O node, are told where it is.
pub(crate) fn tell(file: &Path, config: &Config, grant: &JobGrant, down: &[Address]) {
    let mut config = Config { down: down.to_vec(), ..config.clone() };
    // A process that starts with an old mapping is told on its first connection.
    if place(&mut config, grant).is_ok() {
        let _ = write_config(file, &config);
    }
    mark_direct(file, grant.direct);
}

/// Processes look whether this is there, a few times a second: then they open files themselves.
fn mark_direct(config: &Path, direct: bool) {
    let mark = config.with_extension(forebay_client::DIRECT_MARK);
    // What cannot be written leaves the job on its stand-by I/O node; what is not there need not go.
    let _ = if direct { std::fs::write(mark, "") } else { std::fs::remove_file(mark) };
}

fn wait_for_the_last(file: &Path) {
    while !using(file).is_empty() {
        std::thread::sleep(LOOK_AGAIN);
    }
}

/// What is left of a run without a job at an arbiter: it ends with the last process, and the run's directory with it.
pub fn rest(file: &Path) -> std::io::Result<()> {
    let Some(dir) = file.parent() else { return Ok(()) };
    tidy_when_interrupted()?;
    let dir = RunDir::adopt(dir.to_owned());
    wait_for_the_last(file);
    drop(dir);
    Ok(())
}
