//! The workers: processes whose files are forwarded, and who note everything that they were told.

use super::ground::Role;
use super::history::{Act, End, Entry, Kind, Line, Times, now};
use super::kin;
use super::loads::{blocks, counters, durable, inherited, large, lengths, logs, names, replaced, rows};
use crate::machine::program;
use anyhow::{Context, Result};
use forebay_client::Counters;
use forebay_embed::Process;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How much later than its deadline a call may be seen to end on a busy machine before it counts as hung.
const HUNG_AFTER: Duration = Duration::from_secs(20);
const EIO: i32 = 5;
/// So many calls of a kind that were told so are described, by each process.
const DESCRIBED: u64 = 5;
/// What is lost is told once. Who is told so often, one call after the other, is told of nothing.
const IN_A_ROW: u32 = 100;

/// A workload by its name, as it is told of.
type Job = (&'static str, fn(&mut Hand));

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
    /// What it does: `all`; `durable`, to write and sync files of its own; `rows`, requests to the node of its own
    /// host; `kid`, what the process says that has started it.
    pub work: String,
    /// The deadline of a call, in seconds.
    pub deadline: u64,
    /// Of the random choices.
    pub seed: u64,
}

impl Worker {
    /// Works until its standard input ends.
    pub fn run(&self) -> Result<()> {
        if self.work == "kid" {
            return kin::serve();
        }
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
            command.args(["--work", &self.work]);
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
        let jobs: &[Job] = match &*self.work {
            "durable" => &[("durable", durable), ("durable", durable), ("kin, durable", kin::durable)],
            "rows" => &[("rows", rows), ("rows", rows), ("large", large), ("inherited", inherited)],
            _ => &[
                ("blocks", blocks),
                ("blocks", blocks),
                ("blocks", blocks),
                ("blocks", blocks),
                ("names", names),
                ("names", names),
                ("logs", logs),
                ("counters", counters),
                ("lengths", lengths),
                ("lengths", lengths),
                ("replaced", replaced),
                ("kin", kin::counters),
            ],
        };
        let name = self.history.join(format!("{}{}.{}", self.work, self.number, self.life));
        let notes = Arc::new(Notes {
            file: Mutex::new(BufWriter::new(
                File::create(&name).with_context(|| name.display().to_string())?,
            )),
            calls: AtomicU64::new(0),
            told: Mutex::default(),
            longest: Mutex::new((0, String::new())),
            counters: counters_of_the_job(),
        });
        std::thread::scope(|s| {
            for (i, (load, job)) in jobs.iter().enumerate() {
                let seed = self.seed ^ u64::from(self.number) << 40 ^ u64::from(self.life) << 16 ^ i as u64;
                let mut hand = Hand {
                    load,
                    who: self.number << 20 | self.life << 4 | i as u32,
                    place: self.number * 16 + i as u32,
                    dir: self.dir.clone(),
                    deadline: self.deadline * 1_000_000_000,
                    notes: Arc::clone(&notes),
                    doing: Arc::default(),
                    over,
                    rng: ChaCha8Rng::seed_from_u64(seed),
                    serial: 0,
                    in_a_row: 0,
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
    /// How often `EIO` was told, of what.
    told: Mutex<BTreeMap<String, Times>>,
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

    /// Without the numbers in it, all that is told of the same kind is one.
    fn count_told(&self, load: &str, what: &str, begun: u64, ended: u64) {
        let kind = what.split(|c: char| !c.is_alphabetic()).filter(|w| !w.is_empty());
        let kind = format!("{load}: {}", kind.collect::<Vec<_>>().join(" ").to_lowercase());
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let (now, so_far) = (Times::once(ended), told.get(&kind).map_or(0, |times| times.count));
        told.entry(kind).and_modify(|times| times.add(now)).or_insert(now);
        drop(told);
        if so_far < DESCRIBED {
            self.add(&Line::Told { what: format!("{load}: {what}"), begun, ended });
        }
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
        let count = self.calls.load(Ordering::Relaxed);
        let told = self.told.lock().unwrap_or_else(PoisonError::into_inner).clone();
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
pub(super) struct Hand<'a> {
    /// What it does.
    load: &'static str,
    who: u32,
    /// The same in all lives.
    pub(super) place: u32,
    dir: PathBuf,
    deadline: u64,
    notes: Arc<Notes>,
    doing: Arc<Mutex<Option<(u64, String)>>>,
    over: &'a AtomicBool,
    pub(super) rng: ChaCha8Rng,
    serial: u64,
    /// So many calls of this thread in a row ended with `EIO`.
    in_a_row: u32,
}

/// A call's times, and what it returned.
pub(super) struct Called<T> {
    pub(super) begun: u64,
    pub(super) ended: u64,
    /// A write of the job was repeated meanwhile.
    pub(super) repeated: bool,
    pub(super) got: io::Result<T>,
}

impl Hand<'_> {
    pub(super) fn over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// A value that nobody else writes.
    pub(super) fn value(&mut self) -> u64 {
        self.serial += 1;
        u64::from(self.who) << 24 | self.serial
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    pub(super) fn call<T>(&mut self, what: &str, call: impl FnOnce() -> io::Result<T>) -> Called<T> {
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
        let called = Called { begun, ended, repeated, got };
        let is_told = called.got.as_ref().is_err_and(|e| e.raw_os_error() == Some(EIO));
        self.in_a_row = if is_told { self.in_a_row + 1 } else { 0 };
        if self.in_a_row == IN_A_ROW {
            self.failed(&format!("{what} (and {IN_A_ROW} calls before it)"), &called);
        }
        called
    }

    /// A call that must not fail before its deadline, nor then unless storage hangs.
    pub(super) fn sure<T>(&mut self, what: &str, call: impl FnOnce() -> io::Result<T>) -> Option<Called<T>> {
        let called = self.call(what, call);
        if called.got.is_ok() {
            return Some(called);
        }
        self.failed(what, &called);
        // Not faster than a person would try again.
        std::thread::sleep(Duration::from_millis(5));
        None
    }

    /// Notes that a call failed that must not.
    pub(super) fn failed<T>(&self, what: &str, called: &Called<T>) {
        let Err(e) = &called.got else { return };
        let (what, begun, took) = (what.to_owned(), called.begun, called.ended - called.begun);
        let errno = e.raw_os_error().unwrap_or(0);
        self.notes.add(&match took < self.deadline {
            true => Line::Failed { what, begun, took, errno },
            false => Line::Late { what, begun, took, errno },
        });
    }

    /// Whether a call failed, by which it may be told that what was `written` before it is lost.
    pub(super) fn lost(&self, what: &str, written: &[(u64, Called<()>, u64)], called: &Called<()>) -> bool {
        let Err(e) = &called.got else { return false };
        if e.raw_os_error() != Some(EIO) || called.ended - called.begun >= self.deadline {
            self.failed(what, called);
            return true;
        }
        self.lost_since(what, written.first().map_or(called.begun, |w| w.1.begun), called.ended, true);
        true
    }

    /// Something is lost with the lone node: if it was `killed`, or also if something else was done to it.
    pub(super) fn lost_since(&self, what: &str, since: u64, ended: u64, killed: bool) {
        self.notes.count_told(self.load, what, since, ended);
        self.notes.add(&Line::Lost { what: what.to_owned(), since, ended, killed });
    }

    /// What was acknowledged, and may be lost if that was `told` later.
    pub(super) fn note_told(&mut self, kind: Kind, object: u64, called: &Called<()>, act: Act, told: bool) {
        let Called { begun, ended, repeated, .. } = *called;
        let end = if told { End::Open(EIO) } else { End::Done };
        self.notes.add(&Line::Op(Entry { worker: self.who, kind, object, begun, ended, act, end, repeated }));
    }

    pub(super) fn note<T>(
        &mut self,
        kind: Kind,
        object: u64,
        called: &Called<T>,
        act: Act,
        refusals: &[i32],
    ) {
        let end = match &called.got {
            Ok(_) => End::Done,
            Err(e) => {
                let errno = e.raw_os_error().unwrap_or(0);
                if refusals.contains(&errno) {
                    End::Refused(errno)
                } else {
                    self.told(&format!("{act:?} {kind:?}"), called.begun, called.ended, errno);
                    End::Open(errno)
                }
            }
        };
        let Called { begun, ended, .. } = *called;
        let repeated = called.repeated;
        self.notes.add(&Line::Op(Entry { worker: self.who, kind, object, begun, ended, act, end, repeated }));
    }

    /// `EIO` is the way to be told that something cannot be known, or was lost; nothing else is. At its deadline
    /// a call is told so only if storage hangs: whoever knows is back long before. A sync may wait for several hosts.
    pub(super) fn told(&self, what: &str, begun: u64, ended: u64, errno: i32) {
        let (what, took) = (what.to_owned(), ended - begun);
        if errno != EIO {
            return self.notes.add(&Line::Failed { what, begun, took, errno });
        }
        self.notes.count_told(self.load, &what, begun, ended);
        if took >= self.deadline && !what.starts_with("Sync") {
            self.notes.add(&Line::Late { what, begun, took, errno });
        }
    }
}

/// Which nodes serve the worker with that history.
pub(super) fn role(history: &str) -> Role {
    match history.trim_end_matches(|c: char| !c.is_alphabetic()) {
        "durable" => Role::Forgetful,
        "rows" => Role::Lone,
        _ => Role::Shared,
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
