//! The workers: processes whose files are forwarded, and who note everything that they were told.

use super::history::{Act, End, Entry, Kind, Line, now};
use super::{BIG, BIG_SLOTS, DURABLE_BLOCKS, SMALL, SMALL_SLOTS};
use crate::machine::program;
use anyhow::{Context, Result};
use forebay_client::Counters;
use forebay_embed::Process;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, BufWriter, Read, Seek, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How much later than its deadline a call may be seen to end on a busy machine before it counts as hung.
const HUNG_AFTER: Duration = Duration::from_secs(20);
/// How long all work on the same names, log, counter.
const NAMES_FOR: u64 = 400_000_000;
const LOG_FOR: u64 = 2_000_000_000;
const COUNTER_FOR: u64 = 3_000_000_000;
const EIO: i32 = 5;

/// What `forebay torture-worker` runs: one worker, or a herd of them.
#[derive(Clone, Debug)]
pub struct Worker {
    /// The forwarded directory.
    pub dir: PathBuf,
    /// Where what was done is written, a file for each worker and life.
    pub history: PathBuf,
    /// Which one it is.
    pub number: u32,
    /// Which of its lives this is.
    pub life: u32,
    /// So many workers, one life after the other, until standard input ends.
    pub herd: u32,
    /// Whether it writes and syncs files of its own instead of sharing all.
    pub durable: bool,
    /// The deadline of a call, in seconds.
    pub deadline: u64,
    /// Of the random choices.
    pub seed: u64,
}

impl Worker {
    /// Works until its standard input ends.
    pub fn run(&self) -> Result<()> {
        let over = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&over);
        std::thread::spawn(move || {
            let _ = io::copy(&mut io::stdin(), &mut io::sink());
            told.store(true, Ordering::Relaxed);
        });
        if self.herd > 0 { self.lead(&over) } else { self.work(&over) }
    }

    fn lead(&self, over: &AtomicBool) -> Result<()> {
        std::thread::scope(|s| {
            let each = (0..self.herd).map(|number| s.spawn(move || self.lives(number, over)));
            each.collect::<Vec<_>>().into_iter().try_for_each(|t| t.join().unwrap_or(Ok(())))
        })
    }

    fn lives(&self, number: u32, over: &AtomicBool) -> Result<()> {
        let mut rng = ChaCha8Rng::seed_from_u64(self.seed ^ u64::from(number) << 32);
        for life in 0.. {
            let mut command = Command::new(program()?);
            command.args(["torture-worker", "--number", &number.to_string(), "--life", &life.to_string()]);
            command.arg("--dir").arg(&self.dir).arg("--history").arg(&self.history);
            command.args(["--deadline", &self.deadline.to_string(), "--seed", &self.seed.to_string()]);
            if self.durable {
                command.arg("--durable");
            }
            command.env("OMPI_COMM_WORLD_RANK", (number + life).to_string());
            let mut process = Process::start(command.stdin(Stdio::piped()))?;
            let input = process.input();
            let until = Instant::now() + Duration::from_millis(rng.random_range(1500..6000));
            while Instant::now() < until && !over.load(Ordering::Relaxed) && process.try_wait()?.is_none() {
                std::thread::sleep(Duration::from_millis(10));
            }
            drop(input);
            // It ends by itself, also when a call hangs.
            process.wait_for(Duration::from_secs(self.deadline) + 2 * HUNG_AFTER)?;
            if over.load(Ordering::Relaxed) {
                break;
            }
        }
        Ok(())
    }

    fn work(&self, over: &AtomicBool) -> Result<()> {
        let name = self.history.join(format!(
            "{}{}.{}",
            if self.durable { "d" } else { "m" },
            self.number,
            self.life
        ));
        let notes = Arc::new(Notes {
            file: Mutex::new(BufWriter::new(
                File::create(&name).with_context(|| name.display().to_string())?,
            )),
            calls: AtomicU64::new(0),
            told: AtomicU64::new(0),
            longest: Mutex::new((0, String::new())),
            counters: counters_of_the_job(),
        });
        let jobs: &[fn(&mut Hand)] =
            if self.durable { &[durable, durable] } else { &[blocks, blocks, names, logs, counters] };
        std::thread::scope(|s| {
            for (i, job) in jobs.iter().enumerate() {
                let seed = self.seed ^ u64::from(self.number) << 40 ^ u64::from(self.life) << 16 ^ i as u64;
                let mut hand = Hand {
                    who: self.number << 20 | self.life << 4 | i as u32,
                    place: self.number * 16 + i as u32,
                    dir: self.dir.clone(),
                    deadline: self.deadline * 1_000_000_000,
                    notes: Arc::clone(&notes),
                    doing: Arc::default(),
                    over,
                    rng: ChaCha8Rng::seed_from_u64(seed),
                    serial: 0,
                };
                let (doing, patience) = (Arc::clone(&hand.doing), self.deadline);
                let watched = Arc::clone(&notes);
                let done = Arc::new(AtomicBool::new(false));
                let finished = Arc::clone(&done);
                s.spawn(move || {
                    job(&mut hand);
                    finished.store(true, Ordering::Relaxed);
                });
                s.spawn(move || watch(&done, &doing, &watched, Duration::from_secs(patience) + HUNG_AFTER));
            }
        });
        notes.close();
        Ok(())
    }
}

/// What the threads of a worker write down.
struct Notes {
    file: Mutex<BufWriter<File>>,
    calls: AtomicU64,
    told: AtomicU64,
    longest: Mutex<(u64, String)>,
    counters: Option<&'static Counters>,
}

/// Where the processes of the job count.
fn counters_of_the_job() -> Option<&'static Counters> {
    let config = std::env::var_os("FOREBAY_CONFIG")?;
    Counters::open(&Path::new(&config).parent()?.join("counters")).ok()
}

impl Notes {
    fn repeated(&self) -> u64 {
        self.counters.map_or(0, Counters::repeated)
    }

    fn add(&self, line: &Line) {
        let mut text = serde_json::to_vec(line).unwrap_or_default();
        text.push(b'\n');
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(e) = file.write_all(&text) {
            eprintln!("torture: a worker cannot write its history: {e}");
            std::process::exit(1);
        }
    }

    fn close(&self) {
        let (longest, what) = self.longest.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let (count, told) = (self.calls.load(Ordering::Relaxed), self.told.load(Ordering::Relaxed));
        self.add(&Line::Calls { count, longest, what, told });
        let _ = self.file.lock().unwrap_or_else(PoisonError::into_inner).flush();
    }
}

/// Ends the process if a call does not return.
fn watch(done: &AtomicBool, doing: &Mutex<Option<(u64, String)>>, notes: &Notes, patience: Duration) {
    while !done.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(20));
        let current = doing.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some((begun, what)) = current
            && now().saturating_sub(begun) > patience.as_nanos() as u64
        {
            notes.add(&Line::Hung { what, begun });
            notes.close();
            std::process::exit(3);
        }
    }
}

/// One thread of a worker.
struct Hand<'a> {
    who: u32,
    /// The same in all lives.
    place: u32,
    dir: PathBuf,
    deadline: u64,
    notes: Arc<Notes>,
    doing: Arc<Mutex<Option<(u64, String)>>>,
    over: &'a AtomicBool,
    rng: ChaCha8Rng,
    serial: u64,
}

/// A call's times, and what it returned.
struct Called<T> {
    begun: u64,
    ended: u64,
    /// A write of the job was repeated meanwhile.
    repeated: bool,
    got: io::Result<T>,
}

impl Hand<'_> {
    fn over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// A value that nobody else writes.
    fn value(&mut self) -> u64 {
        self.serial += 1;
        u64::from(self.who) << 24 | self.serial
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    fn call<T>(&mut self, what: &str, call: impl FnOnce() -> io::Result<T>) -> Called<T> {
        let begun = now();
        *self.doing.lock().unwrap_or_else(PoisonError::into_inner) = Some((begun, what.to_owned()));
        let before = self.notes.repeated();
        let got = call();
        let ended = now();
        let repeated = self.notes.repeated() != before;
        *self.doing.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.notes.calls.fetch_add(1, Ordering::Relaxed);
        let took = ended - begun;
        let mut longest = self.notes.longest.lock().unwrap_or_else(PoisonError::into_inner);
        if took > longest.0 {
            *longest = (took, what.to_owned());
        }
        drop(longest);
        Called { begun, ended, repeated, got }
    }

    /// A call that must not fail before its deadline.
    fn sure<T>(&mut self, what: &str, call: impl FnOnce() -> io::Result<T>) -> Option<Called<T>> {
        let called = self.call(what, call);
        let Err(e) = &called.got else { return Some(called) };
        let took = called.ended - called.begun;
        if took < self.deadline {
            let errno = e.raw_os_error().unwrap_or(0);
            self.notes.add(&Line::Failed { what: what.to_owned(), begun: called.begun, took, errno });
        }
        // Not faster than a person would try again.
        std::thread::sleep(Duration::from_millis(5));
        None
    }

    fn note<T>(&mut self, kind: Kind, object: u64, called: &Called<T>, act: Act, refusals: &[i32]) {
        let end = match &called.got {
            Ok(_) => End::Done,
            Err(e) => {
                let errno = e.raw_os_error().unwrap_or(0);
                if refusals.contains(&errno) {
                    End::Refused(errno)
                } else {
                    self.told(&format!("{act:?}"), called.begun, called.ended, errno);
                    End::Open(errno)
                }
            }
        };
        let Called { begun, ended, .. } = *called;
        let repeated = called.repeated;
        self.notes.add(&Line::Op(Entry { worker: self.who, kind, object, begun, ended, act, end, repeated }));
    }

    /// `EIO` is the way to be told that something cannot be known, or was lost; nothing else is.
    fn told(&self, what: &str, begun: u64, ended: u64, errno: i32) {
        if errno == EIO {
            self.notes.told.fetch_add(1, Ordering::Relaxed);
        } else {
            self.notes.add(&Line::Failed { what: what.to_owned(), begun, took: ended - begun, errno });
        }
    }
}

fn fill(block: &mut [u8], value: u64) {
    block.chunks_exact_mut(8).for_each(|word| word.copy_from_slice(&value.to_le_bytes()));
}

fn word(block: &[u8], at: usize) -> u64 {
    block.get(at..at + 8).and_then(|w| w.try_into().ok()).map_or(u64::MAX, u64::from_le_bytes)
}

/// Words of two shared files are registers: of one with small blocks, of one with blocks that no
/// socket's buffer takes at once.
fn blocks(hand: &mut Hand) {
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
            let took = called.ended - called.begun;
            if let Err(e) = &called.got
                && took < hand.deadline
            {
                let (what, errno) =
                    (format!("{} {name} {slot}", if writes { "write" } else { "read" }), e.raw_os_error());
                hand.notes.add(&Line::Failed { what, begun: called.begun, took, errno: errno.unwrap_or(0) });
            }
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
fn names(hand: &mut Hand) {
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
                    _ => File::create_new(path).map(drop),
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
fn logs(hand: &mut Hand) {
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
fn counters(hand: &mut Hand) {
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
fn durable(hand: &mut Hand) {
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

/// Reads the lines of a worker's history.
pub(super) fn read_history(path: &Path, mut each: impl FnMut(Line)) -> Result<()> {
    let mut text = Vec::new();
    File::open(path)?.read_to_end(&mut text)?;
    for line in text.split(|b| *b == b'\n').filter(|l| !l.is_empty()) {
        // The last line of a process that was ended from outside may be half.
        if let Ok(line) = serde_json::from_slice(line) {
            each(line);
        }
    }
    Ok(())
}
