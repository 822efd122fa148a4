//! Commands whose output is wanted before anything else is done: they have a time limit, and end with this
//! process, which a signal ends at once.

use forebay_embed::Process;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

/// Of what was said, so much is read.
const MOST: u64 = 16 << 20;

/// What a command said, and how it ended.
pub(crate) struct Said {
    pub(crate) out: String,
    pub(crate) err: String,
    /// None: it did not end in time, and was ended.
    pub(crate) status: Option<ExitStatus>,
}

impl Said {
    /// What it said, or how it ended, if it has said nothing.
    pub(crate) fn why(&self, status: ExitStatus) -> String {
        let said = self.err.trim();
        if said.is_empty() { format!("it has said nothing ({status})") } else { said.to_owned() }
    }
}

/// Runs a command to its end, but not for longer than `limit`; then it is killed, with all in its group.
pub(crate) fn said_within(command: &mut Command, limit: Duration) -> io::Result<Said> {
    let memory = || -> io::Result<File> {
        Ok(rustix::fs::memfd_create("said", rustix::fs::MemfdFlags::CLOEXEC)?.into())
    };
    let (out, err) = (memory()?, memory()?);
    command.stdin(Stdio::null()).stdout(out.try_clone()?).stderr(err.try_clone()?);
    let mut process = Process::start(command)?;
    let status = process.wait_for(limit)?;
    drop(process);
    Ok(Said { out: text(out)?, err: text(err)?, status })
}

fn text(mut file: File) -> io::Result<String> {
    file.rewind()?;
    let mut bytes = Vec::new();
    file.take(MOST).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn what_hangs_is_ended_with_what_it_started() {
        let dir = tempfile::tempdir().unwrap();
        let mark = dir.path().join("pid");
        let script = format!("echo here; echo there >&2; sleep 1000 & echo $! > {}; wait", mark.display());
        let began = Instant::now();
        let said = said_within(Command::new("sh").args(["-c", &script]), Duration::from_millis(700)).unwrap();
        assert!(began.elapsed() < Duration::from_secs(30));
        assert!(said.status.is_none());
        assert_eq!((said.out.as_str(), said.err.as_str()), ("here\n", "there\n"));
        let pid = std::fs::read_to_string(mark).unwrap();
        let gone = || {
            let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
            stat.is_empty() || stat.contains(") Z ")
        };
        while !gone() {
            assert!(began.elapsed() < Duration::from_secs(30), "it still runs");
            std::thread::sleep(Duration::from_millis(10));
        }
        let said = said_within(Command::new("sh").args(["-c", "exit 3"]), Duration::from_secs(30)).unwrap();
        assert_eq!(said.status.and_then(|s| s.code()), Some(3));
        assert!(said_within(&mut Command::new("/no/such/program"), Duration::from_secs(1)).is_err());
    }
}
