//! What workers do.

use super::history::{Act, Kind, now};
use super::work::{Called, Hand};
use super::{BIG, BIG_SLOTS, DURABLE_BLOCKS, ROW_SLOTS, SMALL, SMALL_SLOTS};
use rand::Rng;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

/// How long all work on the same names, log, counter.
const NAMES_FOR: u64 = 400_000_000;
const LOG_FOR: u64 = 2_000_000_000;
pub(super) const COUNTER_FOR: u64 = 3_000_000_000;
/// No file is longer.
const LONGEST: u64 = 1 << 42;
const ESTALE: i32 = 116;
/// Large enough to be placed in memory that the node has too.
const LARGE: usize = 40 << 10;

pub(super) fn fill(block: &mut [u8], value: u64) {
    block.chunks_exact_mut(8).for_each(|word| word.copy_from_slice(&value.to_le_bytes()));
}

pub(super) fn word(block: &[u8], at: usize) -> u64 {
    block.get(at..at + 8).and_then(|w| w.try_into().ok()).map_or(u64::MAX, u64::from_le_bytes)
}

/// Words of two shared files are registers: of one with small blocks, of one with blocks that no
/// socket's buffer takes at once.
pub(super) fn blocks(hand: &mut Hand) {
    let mut buffer = vec![0; BIG];
    while !hand.over() {
        let big = hand.rng.random_bool(0.06);
        let (name, size, slots) = if big { ("big", BIG, BIG_SLOTS) } else { ("small", SMALL, SMALL_SLOTS) };
        let path = hand.path(name);
        let open = || OpenOptions::new().read(true).write(true).open(&path);
        let Some(Called { got: Ok(file), .. }) = hand.sure(&format!("open {name}"), open) else { continue };
        for _ in 0..if big { 4 } else { 60 } {
            if hand.over() {
                break;
            }
            let slot = hand.rng.random_range(0..slots);
            let block = &mut buffer[..size];
            let writes = hand.rng.random_bool(0.45);
            let value = hand.value();
            let called = if writes {
                fill(block, value);
                hand.call(&format!("write {name} {slot}"), || file.write_all_at(block, slot * size as u64))
            } else {
                hand.call(&format!("read {name} {slot}"), || file.read_exact_at(block, slot * size as u64))
            };
            hand.failed(&format!("{} {name} {slot}", if writes { "write" } else { "read" }), &called);
            if !writes && called.got.is_err() {
                continue;
            }
            for last in [false, true] {
                if last && !big {
                    continue;
                }
                let act = match writes {
                    true => Act::Write(value),
                    false => Act::Read(word(block, if last { size - 8 } else { 0 })),
                };
                let object = u64::from(big) << 32 | slot << 1 | u64::from(last);
                hand.note(Kind::Block, object, &called, act, &[]);
            }
        }
    }
}

/// Names that all make, remove, rename and look at.
pub(super) fn names(hand: &mut Hand) {
    while !hand.over() {
        let number = now() / NAMES_FOR;
        let (kind, word) =
            [(Kind::Links, "links"), (Kind::Dirs, "dirs"), (Kind::Files, "files")][(number % 3) as usize];
        let name = hand.rng.random_range(0..2usize);
        let paths = [0, 1].map(|n| hand.path(&format!("{word}{number}.{n}")));
        let path = &paths[name];
        let missing = |e: &io::Error| e.kind() == io::ErrorKind::NotFound;
        let what = |act: &str| format!("{act} {word}{number}.{name}");
        let (eexist, enoent) = ([17], [2]);
        match hand.rng.random_range(0..10) {
            0..3 => {
                let value = if kind == Kind::Links { hand.value() } else { 1 };
                let called = hand.call(&what("make"), || match kind {
                    Kind::Links => std::os::unix::fs::symlink(format!("v{value}"), path),
                    Kind::Dirs => std::fs::create_dir(path),
                    // What was made by a node that is gone, and removed or replaced by others since.
                    _ => match File::create_new(path) {
                        Err(e) if e.raw_os_error() == Some(ESTALE) => Ok(()),
                        made => made.map(drop),
                    },
                });
                hand.note(kind, number, &called, Act::Make(name, value), &eexist);
            }
            3..5 => {
                let called = hand.call(&what("remove"), || match kind {
                    Kind::Dirs => std::fs::remove_dir(path),
                    _ => std::fs::remove_file(path),
                });
                hand.note(kind, number, &called, Act::Remove(name), &enoent);
            }
            5 => {
                let called = hand.call(&what("rename"), || std::fs::rename(path, &paths[1 - name]));
                hand.note(kind, number, &called, Act::Rename(name), &enoent);
            }
            _ => {
                let look = || -> io::Result<Option<u64>> {
                    let found = match kind {
                        Kind::Links => std::fs::read_link(path)
                            .map(|to| to.to_string_lossy().trim_start_matches('v').parse().unwrap_or(0)),
                        _ => std::fs::symlink_metadata(path).map(|_| 1),
                    };
                    match found {
                        Ok(value) => Ok(Some(value)),
                        Err(e) if missing(&e) => Ok(None),
                        Err(e) => Err(e),
                    }
                };
                if let Some(called) = hand.sure(&what("look at"), look)
                    && let Ok(value) = called.got
                {
                    hand.note(kind, number, &called, Act::Look(name, value), &[]);
                }
            }
        }
    }
}

/// Files that all append records to.
pub(super) fn logs(hand: &mut Hand) {
    while !hand.over() {
        let number = now() / LOG_FOR;
        let path = hand.path(&format!("log{number}"));
        let open = || OpenOptions::new().append(true).create(true).open(&path);
        let Some(Called { got: Ok(mut file), .. }) = hand.sure(&format!("open log{number}"), open) else {
            continue;
        };
        for _ in 0..50 {
            if hand.over() || now() / LOG_FOR != number {
                break;
            }
            let value = hand.value();
            let mut record = [0; 16];
            fill(&mut record[..8], value);
            fill(&mut record[8..], !value);
            let called =
                hand.call(&format!("append {value} to log{number}"), || match file.write(&record)? {
                    16 => Ok(()),
                    n => Err(io::Error::other(format!("{n} of 16 bytes"))),
                });
            let at = if called.got.is_ok() { file.stream_position().unwrap_or(0) } else { 0 };
            hand.note(Kind::Log, number, &called, Act::Append(value, at), &[]);
        }
    }
}

/// Numbers to which all add one, under a lock.
pub(super) fn counters(hand: &mut Hand) {
    while !hand.over() {
        let number = now() / COUNTER_FOR;
        let path = hand.path(&format!("counter{number}"));
        let open = || OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
        let Some(Called { got: Ok(mut file), .. }) = hand.sure(&format!("open counter{number}"), open) else {
            continue;
        };
        for _ in 0..30 {
            if hand.over() || now() / COUNTER_FOR != number {
                break;
            }
            step(hand, &mut file, number);
        }
    }
}

/// One step: lock, read, write one more, unlock. Whoever is told that the lock was lost begins anew.
fn step(hand: &mut Hand, file: &mut File, number: u64) {
    let locked = hand.call(&format!("lock counter{number}"), || match file.try_lock() {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(e)) => Err(e),
    });
    let errno = |e: &io::Error| e.raw_os_error().unwrap_or(0);
    match &locked.got {
        Ok(true) => {}
        Ok(false) => return std::thread::sleep(Duration::from_micros(hand.rng.random_range(100..3000))),
        Err(e) => return hand.told("lock", locked.begun, locked.ended, errno(e)),
    }
    let mut bytes = [0; 8];
    let read = hand.call(&format!("read counter{number}"), || file.read_at(&mut bytes, 0));
    match &read.got {
        Ok(n) => {
            let was = if *n == 8 { u64::from_le_bytes(bytes) } else { 0 };
            // Long enough for its node to be killed, and another to take the lock.
            if hand.rng.random_bool(0.2) {
                std::thread::sleep(Duration::from_millis(hand.rng.random_range(1..12)));
            }
            let more = (was + 1).to_le_bytes();
            let wrote =
                hand.call(&format!("write {} to counter{number}", was + 1), || file.write_all_at(&more, 0));
            let whole = Called { begun: locked.begun, ..wrote };
            hand.note(Kind::Counter, number, &whole, Act::Add(was), &[]);
        }
        Err(e) => hand.told("read a counter", read.begun, read.ended, errno(e)),
    }
    let unlocked = hand.call(&format!("unlock counter{number}"), || file.unlock());
    if let Err(e) = &unlocked.got {
        hand.told("unlock", unlocked.begun, unlocked.ended, errno(e));
    }
}

/// A file of this thread's own, written and synced, on storage that forgets what was not.
pub(super) fn durable(hand: &mut Hand) {
    let name = format!("durable{}", hand.place);
    let base = u64::from(hand.place) << 16;
    let path = hand.path(&name);
    let mut block = [0; SMALL];
    while !hand.over() {
        let open = || OpenOptions::new().read(true).write(true).open(&path);
        let Some(Called { got: Ok(file), .. }) = hand.sure(&format!("open {name}"), open) else { continue };
        let mut left = hand.rng.random_range(50..400);
        while left > 0 {
            left -= 1;
            let at = hand.rng.random_range(0..DURABLE_BLOCKS);
            let choice = if left == 0 || hand.over() { 9 } else { hand.rng.random_range(0..10) };
            match choice {
                0..5 => {
                    let value = hand.value();
                    fill(&mut block, value);
                    let called = hand
                        .call(&format!("write {name} {at}"), || file.write_all_at(&block, at * SMALL as u64));
                    hand.note(Kind::Durable, base | at, &called, Act::Write(value), &[]);
                }
                5..8 => {
                    let read = |block: &mut [u8]| file.read_exact_at(block, at * SMALL as u64);
                    if let Some(called) = hand.sure(&format!("read {name} {at}"), || read(&mut block)) {
                        hand.note(Kind::Durable, base | at, &called, Act::Read(word(&block, 0)), &[]);
                    }
                }
                _ => {
                    let called = hand.call(&format!("sync {name}"), || file.sync_data());
                    hand.note(Kind::Durable, base, &called, Act::Sync, &[]);
                    if hand.over() {
                        break;
                    }
                }
            }
        }
    }
}

/// The length of a file is a register, too: it is cut, and looked at.
pub(super) fn lengths(hand: &mut Hand) {
    while !hand.over() {
        let path = hand.path("length");
        let open = || OpenOptions::new().read(true).write(true).open(&path);
        let Some(Called { got: Ok(file), .. }) = hand.sure("open length", open) else { continue };
        for _ in 0..40 {
            if hand.over() {
                break;
            }
            if hand.rng.random_bool(0.4) {
                let to = hand.rng.random_range(1..LONGEST);
                let called = hand.call(&format!("cut to {to}"), || file.set_len(to));
                hand.note(Kind::Length, 0, &called, Act::Write(to), &[]);
            } else if let Some(called) = hand.sure("look at the length", || file.metadata())
                && let Ok(found) = &called.got
            {
                let act = Act::Read(found.len());
                hand.note(Kind::Length, 0, &called, act, &[]);
            }
        }
    }
}

/// An open file stays itself while others take its name: or it is gone, and that is told.
pub(super) fn replaced(hand: &mut Hand) {
    let (path, fresh) = (hand.path(&format!("own{}", hand.place)), hand.path(&format!("new{}", hand.place)));
    while !hand.over() {
        let value = hand.value();
        if !put(hand, &fresh, &path, value) {
            continue;
        }
        let Some(Called { got: Ok(file), .. }) = hand.sure("open own", || File::open(&path)) else {
            continue;
        };
        // What it is, its first read says: a rename of which nobody knows may have been later.
        let (mut own, mut nameless) = (None, false);
        for round in 0..hand.rng.random_range(4..20) {
            if hand.over() {
                break;
            }
            // Once it has no name, whatever is made may have its inode number as soon as its node is gone.
            if round == 2 || hand.rng.random_bool(if nameless { 0.8 } else { 0.4 }) {
                for _ in 0..hand.rng.random_range(1..4) {
                    let other = hand.value();
                    put(hand, &fresh, &path, other);
                }
                nameless = true;
            }
            let mut bytes = [0; 8];
            let called = hand.call("read own", || file.read_exact_at(&mut bytes, 0));
            match &called.got {
                Ok(()) => {
                    let read = u64::from_le_bytes(bytes);
                    let own = *own.get_or_insert(read);
                    hand.note(Kind::Replaced, own, &called, Act::Read(read), &[]);
                }
                Err(e) if nameless && e.raw_os_error() == Some(ESTALE) => break,
                Err(_) => hand.failed("read own", &called),
            }
            std::thread::sleep(Duration::from_millis(hand.rng.random_range(0..30)));
        }
    }
}

/// A new file with that content gets the name; whether it surely has.
fn put(hand: &mut Hand, fresh: &Path, path: &Path, value: u64) -> bool {
    // Where nobody knows whether it is there, it may be missing.
    if hand.sure("write new", || std::fs::write(fresh, value.to_le_bytes())).is_none() {
        return false;
    }
    let called = hand.call("rename new", || std::fs::rename(fresh, path));
    if let Err(e) = &called.got {
        hand.told("rename new", called.begun, called.ended, e.raw_os_error().unwrap_or(0));
    }
    called.got.is_ok()
}

/// Small requests one after the other: with a single node on this host they make no trip each. Every block is
/// a register all the same. What was acknowledged and lies with a node that is killed may be lost: the next write, or the
/// sync, says so.
pub(super) fn rows(hand: &mut Hand) {
    while !hand.over() {
        let row = hand.rng.random_range(0..2u64);
        let path = hand.path(&format!("row{row}"));
        let open = || OpenOptions::new().read(true).write(true).open(&path);
        let Some(Called { got: Ok(mut file), .. }) = hand.sure("open a row", open) else { continue };
        let mut written = Vec::new();
        let told = (0..6).any(|_| !go_along(hand, &mut file, row, &mut written)) || {
            let synced = hand.call("sync a row", || file.sync_data());
            hand.lost("sync a row", &written, &synced)
        };
        for (object, called, value) in &written {
            hand.note_told(Kind::Block, *object, called, Act::Write(*value), told);
        }
    }
}

/// Reads or writes a row from somewhere to its end; false if something that was written may be lost.
fn go_along(hand: &mut Hand, file: &mut File, row: u64, written: &mut Vec<(u64, Called<()>, u64)>) -> bool {
    let mut block = [0; SMALL];
    let (from, writes) = (hand.rng.random_range(0..ROW_SLOTS), hand.rng.random_bool(0.5));
    if hand.over() || file.seek(SeekFrom::Start(from * SMALL as u64)).is_err() {
        return true;
    }
    for slot in from..ROW_SLOTS {
        let (value, object) = (hand.value(), 1 << 40 | row << 32 | slot << 1);
        if writes {
            fill(&mut block, value);
            let called = hand.call(&format!("write row {slot}"), || file.write_all(&block));
            let lost = hand.lost("write a row", written, &called);
            written.push((object, called, value));
            if lost {
                return false;
            }
        } else {
            let called = hand.call(&format!("read row {slot}"), || file.read_exact(&mut block));
            hand.failed("read a row", &called);
            if called.got.is_err() {
                return true;
            }
            hand.note(Kind::Block, object, &called, Act::Read(word(&block, 0)), &[]);
        }
    }
    true
}

/// Words of a file that is written in large pieces on the clients' own host, of which some are a slot's beginning only.
pub(super) fn large(hand: &mut Hand) {
    let (mut buffer, path) = (vec![0; BIG], hand.path("large"));
    while !hand.over() {
        let open = || OpenOptions::new().read(true).write(true).open(&path);
        let Some(Called { got: Ok(file), .. }) = hand.sure("open large", open) else { continue };
        for _ in 0..24 {
            if hand.over() {
                break;
            }
            let (slot, value) = (hand.rng.random_range(0..BIG_SLOTS), hand.value());
            let (writes, whole) = (hand.rng.random_bool(0.7), hand.rng.random_bool(0.7));
            let block = &mut buffer[..if whole { BIG } else { LARGE }];
            let at = slot * BIG as u64;
            let called = if writes {
                fill(block, value);
                hand.call(&format!("write large {slot}"), || file.write_all_at(block, at))
            } else {
                hand.call(&format!("read large {slot}"), || file.read_exact_at(block, at))
            };
            hand.failed("a large block", &called);
            if !writes && called.got.is_err() {
                continue;
            }
            for last in [false, true].into_iter().take(1 + usize::from(whole)) {
                let seen = word(block, if last { BIG - 8 } else { 0 });
                let act = if writes { Act::Write(value) } else { Act::Read(seen) };
                let object = 1 << 41 | slot << 1 | u64::from(last);
                hand.note(Kind::Block, object, &called, act, &[]);
            }
        }
        std::thread::sleep(Duration::from_millis(hand.rng.random_range(0..20)));
    }
}

/// A child reads a file that has no name any more after its parent has closed it.
pub(super) fn inherited(hand: &mut Hand) {
    let path = hand.path(&format!("kid{}", hand.place));
    while !hand.over() {
        std::thread::sleep(Duration::from_millis(hand.rng.random_range(20..200)));
        let (value, since) = (hand.value(), now());
        let write = || -> io::Result<File> {
            let mut file =
                OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&path)?;
            writeln!(file, "{value}")?;
            file.seek(SeekFrom::Start(0))?;
            std::fs::remove_file(&path)?;
            Ok(file)
        };
        let Called { got: Ok(file), .. } = hand.call("write for a child", write) else { continue };
        let give = || -> io::Result<Vec<u8>> {
            let mut command = std::process::Command::new("sh");
            command
                .args(["-c", "echo; sleep 0.1; read line && echo $line"])
                .stderr(std::process::Stdio::null());
            command.stdin(file.try_clone()?).stdout(std::process::Stdio::piped());
            forebay_embed::end_with_parent(&mut command);
            let mut child = command.spawn()?;
            let mut said = child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
            // It is there, and has what it inherited.
            said.read_exact(&mut [0])?;
            drop((file, command));
            let mut text = Vec::new();
            said.read_to_end(&mut text)?;
            child.wait()?;
            Ok(text)
        };
        let called = hand.call("a child reads", give);
        match called.got.as_ref().map(|text| String::from_utf8_lossy(text).trim().parse::<u64>()) {
            Ok(Ok(read)) => hand.note(Kind::Replaced, value, &called, Act::Read(read), &[]),
            _ => hand.lost_since("a child that reads what it inherited", since, called.ended, false),
        }
    }
}
