//! Processes that share an open file: under what one of them has locked another one writes, and what that wrote the
//! first one syncs.

use super::history::{Act, Kind, now};
use super::loads::{COUNTER_FOR, fill, word};
use super::work::{Called, Hand};
use super::{DURABLE_BLOCKS, SMALL};
use crate::machine::program;
use anyhow::Result;
use rand::Rng;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

/// Their counters are apart from those of [`super::loads::counters`].
const APART: u64 = 1 << 40;
/// What is heard of one that was killed.
const GONE: [io::ErrorKind; 2] = [io::ErrorKind::UnexpectedEof, io::ErrorKind::ConnectionReset];
const READ: u8 = 0;
const WRITE: u8 = 1;
const BLOCK: u8 = 2;
const SYNC: u8 = 3;

/// A process that has an open file of ours as its standard input, and does to it what it is asked. Its standard output is
/// where it is asked.
struct Kid {
    child: Child,
    way: UnixStream,
}

impl Kid {
    fn start(file: &File) -> io::Result<Kid> {
        let (way, theirs) = UnixStream::pair()?;
        let mut command = Command::new(program().map_err(io::Error::other)?);
        command.args(["torture-worker", "--work", "kid", "--dir", "/", "--history", "/"]);
        command.args(["--deadline", "0", "--seed", "0"]).stderr(Stdio::null());
        command.stdin(file.try_clone()?).stdout(OwnedFd::from(theirs));
        forebay_embed::end_with_parent(&mut command);
        let child = command.spawn()?;
        Ok(Kid { child, way })
    }

    fn begin(&mut self, what: u8, value: u64, at: u64) -> io::Result<()> {
        let mut asked = [what; 17];
        asked[1..9].copy_from_slice(&value.to_le_bytes());
        asked[9..].copy_from_slice(&at.to_le_bytes());
        self.way.write_all(&asked)
    }

    fn end(&mut self) -> io::Result<u64> {
        let mut said = [0; 16];
        self.way.read_exact(&mut said)?;
        match word(&said, 0) {
            0 => Ok(word(&said, 8)),
            errno => Err(io::Error::from_raw_os_error(errno as i32)),
        }
    }

    fn ask(&mut self, what: u8, value: u64, at: u64) -> io::Result<u64> {
        self.begin(what, value, at)?;
        self.end()
    }

    fn kill(&mut self) {
        let _ = (self.child.kill(), self.child.wait());
    }
}

impl Drop for Kid {
    fn drop(&mut self) {
        // It ends by that, and has nothing to say any more.
        let _ = (self.way.shutdown(std::net::Shutdown::Both), self.child.wait());
    }
}

/// What such a process does.
pub(super) fn serve() -> Result<()> {
    let file = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    let mut way = UnixStream::from(io::stdout().as_fd().try_clone_to_owned()?);
    let mut asked = [0; 17];
    while way.read_exact(&mut asked).is_ok() {
        let (value, at) = (word(&asked, 1), word(&asked, 9));
        let did = match asked[0] {
            READ => {
                let mut number = [0; 8];
                file.read_at(&mut number, at).map(|n| if n == 8 { u64::from_le_bytes(number) } else { 0 })
            }
            WRITE => file.write_all_at(&value.to_le_bytes(), at).map(|()| 0),
            BLOCK => {
                let mut block = [0; SMALL];
                fill(&mut block, value);
                file.write_all_at(&block, at).map(|()| 0)
            }
            _ => file.sync_data().map(|()| 0),
        };
        let (errno, value) = match did {
            Ok(value) => (0, value),
            Err(e) => (e.raw_os_error().unwrap_or(i32::MAX), 0),
        };
        way.write_all(&[(errno as u64).to_le_bytes(), value.to_le_bytes()].concat())?;
    }
    Ok(())
}

fn errno<T>(called: &Called<T>) -> Option<i32> {
    called.got.as_ref().err().map(|e| e.raw_os_error().unwrap_or(0))
}

/// Numbers to which all add one: each locks the open file (`flock`), and a process that it has started since reads and
/// writes. A new open file for each step: what has been divided between nodes has a set of locks on each.
pub(super) fn counters(hand: &mut Hand) {
    while !hand.over() {
        let number = APART | (now() / COUNTER_FOR);
        let path = hand.path(&format!("kin{number}"));
        let open = || OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
        let Some(Called { got: Ok(file), .. }) = hand.sure("open a counter of kin", open) else { continue };
        let locked = hand.call("lock for a kid", || match file.try_lock() {
            Ok(()) => Ok(true),
            Err(TryLockError::WouldBlock) => Ok(false),
            Err(TryLockError::Error(e)) => Err(e),
        });
        match locked.got {
            Ok(true) => step(hand, &file, number, &locked),
            Ok(false) => sleep(Duration::from_micros(hand.rng.random_range(500..6000))),
            Err(_) => hand.told("lock for a kid", locked.begun, locked.ended, errno(&locked).unwrap_or(0)),
        }
    }
}

fn step(hand: &mut Hand, file: &File, number: u64, locked: &Called<bool>) {
    let Ok(mut kid) = Kid::start(file) else { return };
    let read = hand.call("a kid reads a counter", || kid.ask(READ, 0, 0));
    if let Some(errno) = errno(&read) {
        hand.told("a kid reads a counter", read.begun, read.ended, errno);
    }
    if let Ok(was) = read.got {
        // Long enough for its node to be killed, and for another process to start one and have that read.
        if hand.rng.random_bool(0.5) {
            sleep(Duration::from_millis(hand.rng.random_range(30..400)));
        }
        let wrote = hand.call("a kid writes a counter", || kid.ask(WRITE, was + 1, 0));
        let whole = Called { begun: locked.begun, ..wrote };
        hand.note(Kind::Counter, number, &whole, Act::Add(was), &[]);
    }
    let unlocked = hand.call("unlock after a kid", || file.unlock());
    if let Some(errno) = errno(&unlocked) {
        hand.told("unlock after a kid", unlocked.begun, unlocked.ended, errno);
    }
}

/// A file on storage that forgets what was not synced: a process that shares it writes, this one syncs; sometimes after
/// the other was killed while it did so, too.
pub(super) fn durable(hand: &mut Hand) {
    let name = format!("durable{}", hand.place);
    let base = u64::from(hand.place) << 16;
    let path = hand.path(&name);
    while !hand.over() {
        let open = || OpenOptions::new().read(true).write(true).open(&path);
        let Some(Called { got: Ok(file), .. }) = hand.sure("open a durable file of kin", open) else {
            continue;
        };
        let Ok(mut kid) = Kid::start(&file) else { continue };
        for _ in 0..hand.rng.random_range(4..20) {
            let (at, value) = (hand.rng.random_range(0..DURABLE_BLOCKS), hand.value());
            let offset = at * SMALL as u64;
            let called = hand.call("a kid writes a block", || kid.ask(BLOCK, value, offset));
            hand.note(Kind::Durable, base | at, &called, Act::Write(value), &[]);
            let killed = hand.rng.random_bool(0.3);
            if killed {
                sync_and_be_killed(hand, &mut kid, base);
            }
            if hand.rng.random_bool(0.7) {
                sleep(Duration::from_millis(hand.rng.random_range(0..60)));
            }
            let called = hand.call("sync after a kid", || file.sync_data());
            hand.note(Kind::Durable, base, &called, Act::Sync, &[]);
            let mut block = [0; SMALL];
            let read = |block: &mut [u8]| file.read_exact_at(block, offset);
            if let Some(called) = hand.sure("read after a kid", || read(&mut block)) {
                hand.note(Kind::Durable, base | at, &called, Act::Read(word(&block, 0)), &[]);
            }
            if killed || hand.over() {
                break;
            }
        }
    }
}

/// What it was told before its end counts.
fn sync_and_be_killed(hand: &mut Hand, kid: &mut Kid, base: u64) {
    let long = Duration::from_micros(hand.rng.random_range(0..400));
    let called = hand.call("a kid syncs, and is killed", || {
        kid.begin(SYNC, 0, 0)?;
        sleep(long);
        kid.kill();
        Ok(kid.end())
    });
    let Called { begun, ended, repeated, got } = called;
    // Without a word, nobody knows: the next sync is to see to it.
    if let Ok(got) = got
        && !got.as_ref().is_err_and(|e| GONE.contains(&e.kind()))
    {
        hand.note(Kind::Durable, base, &Called { begun, ended, repeated, got }, Act::Sync, &[]);
    }
}
