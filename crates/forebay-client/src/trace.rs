//! Every call of a job's processes, one record each, in one shared file per host, for whoever asks for a trace of the
//! run (`forebay run --record`). Otherwise nothing is recorded. A process that is killed loses nothing of it but the
//! call that it was in.
//!
//! A record is a slot of six words. Whoever has something to record takes the next slot by adding one to a number that
//! all share, and writes the slot's first word last: there are no locks, so a signal handler may come here, and what was
//! begun and not finished is known by its zero.

use crate::files::Done;
use crate::{Client, File, sys};
use forebay_types::trace::{Call, Header, Process, RECORD, Record, from_bytes, to_bytes};
use std::collections::{BTreeMap, HashMap};
use std::io::{BufReader, Read, Result, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed, Ordering::Release};

/// The most records of a host: calls, and what tells of processes and of files that are opened. 96 MiB.
pub const MOST_TRACED: usize = 2 << 20;
/// So many find room on the disk at a time.
const STEP: usize = 16 << 10;
/// How the names of a host's file, and of one for each process that can record nothing, begin.
const PREFIX: &str = "trace-";
const SILENT: &str = "untraced-";
/// The longest name of a file; of longer ones the end is kept.
const NAME: usize = 1024;

/// Words of a slot; what stands before the slots has as many as two.
const WORDS: usize = 6;
const HEAD: usize = 2 * WORDS;
/// The next slot; slots that the disk has room for; calls that found none among all slots, and on the disk; processes
/// and files that have numbers.
const NEXT: usize = 0;
const ROOM: usize = 1;
const LOST: usize = 2;
const REFUSED: usize = 3;
const PROCESSES: usize = 4;
const FILES: usize = 5;

/// The first words of slots that are no calls.
const IS_PROCESS: u64 = 100;
const IS_NAME: u64 = 101;
/// Bytes of a name in a slot.
const PART: usize = 8 * (WORDS - 2);

/// The way of one process to its host's file.
pub(crate) struct Tracer {
    words: &'static [AtomicU64],
    path: PathBuf,
    /// This process's number, once it has one.
    process: AtomicU32,
    /// The disk had no room; it is asked again from this slot on, since asking takes time.
    full_until: AtomicU64,
}

/// Makes this host's file, in a directory for them, as long as it ever gets: processes of the job may have lower limits.
pub fn prepare_trace(dir: &Path) -> Result<()> {
    Tracer::map(dir).map(drop)
}

impl Tracer {
    /// This host's, in a directory for them. That there is none is noted there.
    pub(crate) fn open(dir: &Path) -> Option<Tracer> {
        Tracer::map(dir)
            .inspect_err(|_| {
                sys::touch(&dir.join(format!("{SILENT}{}-{}", sys::hostname(), sys::pid())));
            })
            .ok()
    }

    fn map(dir: &Path) -> Result<Tracer> {
        let path = dir.join(format!("{PREFIX}{}", sys::hostname()));
        let words = sys::map_words(&path, 8 * (HEAD + WORDS * MOST_TRACED) as u64)?;
        if words.len() < HEAD + WORDS {
            return Err(std::io::ErrorKind::FileTooLarge.into());
        }
        Ok(Tracer { words, path, process: AtomicU32::new(0), full_until: AtomicU64::new(0) })
    }

    /// For a forked child, which is another process.
    pub(crate) fn inherit(&self) -> Tracer {
        let (process, full_until) = (AtomicU32::new(0), AtomicU64::new(0));
        Tracer { words: self.words, path: self.path.clone(), process, full_until }
    }

    fn slots(&self) -> usize {
        (self.words.len() - HEAD) / WORDS
    }

    /// Whether the disk has room for the slot: what is not there would be this program's death.
    fn has_room(&self, slot: usize) -> bool {
        let room = self.words[ROOM].load(Relaxed) as usize;
        if slot < room {
            return true;
        }
        if (slot as u64) < self.full_until.load(Relaxed) {
            return false;
        }
        let end = ((slot + 1).div_ceil(STEP) * STEP).min(self.slots());
        let at = |slot: usize| 8 * (HEAD + WORDS * slot) as u64;
        let made = sys::reserve(&self.path, at(room)..at(end));
        match made {
            true => self.words[ROOM].fetch_max(end as u64, Relaxed),
            false => self.full_until.swap((slot + STEP) as u64, Relaxed),
        };
        made
    }

    fn put(&self, words: [u64; WORDS]) {
        let slot = self.words[NEXT].fetch_add(1, Relaxed) as usize;
        if slot >= self.slots() {
            self.words[LOST].fetch_add(1, Relaxed);
        } else if self.has_room(slot) {
            let at = &self.words[HEAD + WORDS * slot..][..WORDS];
            at.iter().zip(words).skip(1).for_each(|(to, word)| to.store(word, Relaxed));
            at[0].store(words[0], Release);
        } else {
            self.words[REFUSED].fetch_add(1, Relaxed);
        }
    }

    /// The number in `cell`, which whoever comes first gives it. From 1 on.
    fn number(&self, cell: &AtomicU32, from: usize, tell: impl FnOnce(u32)) -> u32 {
        let known = cell.load(Relaxed);
        if known != 0 {
            return known;
        }
        let new = (self.words[from].fetch_add(1, Relaxed) as u32).wrapping_add(1);
        match cell.compare_exchange(0, new, Relaxed, Relaxed) {
            Ok(_) => {
                tell(new);
                new
            }
            Err(known) => known,
        }
    }

    /// Something was done in so many nanoseconds.
    fn add(&self, file: &AtomicU32, name: Option<Vec<u8>>, rank: Option<u32>, done: Done, nanos: u64) {
        let now = std::time::UNIX_EPOCH.elapsed().map_or(1, |t| t.as_nanos() as u64);
        let process = self.number(&self.process, PROCESSES, |process| {
            let rank = rank.map_or(0, |rank| u64::from(rank) + 1);
            self.put([IS_PROCESS | u64::from(process) << 32, rank, sys::pid().into(), 0, 0, 0]);
        });
        let file = self.number(file, FILES, |file| self.tell_name(file, &name.unwrap_or_default()));
        let (call, offset, bytes) = match done {
            Done::Opened => (Call::Open, 0, 0),
            Done::Closed => (Call::Close, 0, 0),
            Done::Synced { .. } => (Call::Sync, 0, 0),
            Done::Read { offset, bytes } => (Call::Read, offset, bytes),
            Done::Written { offset, bytes } => (Call::Write, offset, bytes),
        };
        let began = now.saturating_sub(nanos);
        self.put(Record { call, process, file, offset, bytes, began, nanos }.words());
    }

    fn tell_name(&self, file: u32, name: &[u8]) {
        let name = &name[name.len().saturating_sub(NAME)..];
        for (part, bytes) in name.chunks(PART).enumerate() {
            let mut whole = [0; PART];
            whole[..bytes.len()].copy_from_slice(bytes);
            let word = |i: usize| whole[8 * i..].first_chunk().map_or(0, |b| u64::from_le_bytes(*b));
            let first = IS_NAME | u64::from(file) << 32;
            self.put([first, (part << 16 | bytes.len()) as u64, word(0), word(1), word(2), word(3)]);
        }
    }
}

impl Client {
    /// When a call begins that is to be counted or recorded.
    pub(crate) fn noted(&self) -> Option<forebay_types::Nanos> {
        (self.files.is_some() || self.tracer.is_some()).then(sys::now)
    }

    /// Records what was done with a file in so many nanoseconds.
    pub(crate) fn trace(&self, file: &File, done: Done, nanos: u64) {
        let Some(tracer) = &self.tracer else { return };
        let unknown = file.traced.load(Relaxed) == 0;
        let name = unknown.then(|| self.name_of(file.export, &file.opened_as())).flatten();
        tracer.add(&file.traced, name, self.task.map(|t| t.rank), done, nanos);
    }
}

/// What the processes of all hosts have recorded.
pub struct Traced {
    /// What stands before it in a trace; the command is to be said by whoever knows it.
    pub header: Header,
    hosts: Vec<OfHost>,
}

/// One host's file, and the numbers in the header of what has others in the file.
#[derive(Default)]
struct OfHost {
    path: PathBuf,
    slots: u64,
    calls: u64,
    processes: HashMap<u32, u32>,
    files: HashMap<u32, u32>,
}

/// Gives `each` the slots of a host's file that were written, in their order.
fn each_slot(path: &Path, slots: u64, mut each: impl FnMut([u64; WORDS]) -> Result<()>) -> Result<()> {
    let mut input = BufReader::new(std::fs::File::open(path)?);
    let mut bytes = [0; RECORD];
    for _ in 0..HEAD / WORDS {
        input.read_exact(&mut bytes)?;
    }
    for _ in 0..slots {
        input.read_exact(&mut bytes)?;
        each(from_bytes(&bytes))?;
    }
    Ok(())
}

impl Traced {
    /// Gathers it.
    pub fn gather(dir: &Path) -> Result<Traced> {
        let mut all = Traced { header: Header::default(), hosts: Vec::new() };
        let mut names = HashMap::new();
        for entry in std::fs::read_dir(dir)?.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            all.header.silent += u64::from(name.starts_with(SILENT));
            if let Some(host) = name.strip_prefix(PREFIX) {
                all.add_host(host, entry.path(), &mut names)?;
            }
        }
        // What belongs to none of them was recorded, too.
        all.header.processes.push(Process::default());
        all.header.files.push(Vec::new());
        Ok(all)
    }

    fn add_host(&mut self, host: &str, path: PathBuf, names: &mut HashMap<Vec<u8>, u32>) -> Result<()> {
        let len = path.metadata()?.len();
        let mut head = [0; 2 * RECORD];
        if len < head.len() as u64 {
            // Those who could not make it longer have said so.
            return Ok(());
        }
        std::fs::File::open(&path)?.read_exact(&mut head)?;
        let number = |i: usize| head[8 * i..].first_chunk().map_or(0, |b| u64::from_le_bytes(*b));
        let slots = number(NEXT).min(len / RECORD as u64 - 2);
        let mut of_host = OfHost::default();
        let mut parts: BTreeMap<(u32, u64), Vec<u8>> = BTreeMap::new();
        let (mut calls, mut empty) = (0, 0_u64);
        each_slot(&path, slots, |words| {
            let (kind, number) = (words[0] as u32, (words[0] >> 32) as u32);
            match u64::from(kind) {
                0 => empty += 1,
                IS_PROCESS => {
                    let rank = u32::try_from(words[1]).ok().and_then(|rank| rank.checked_sub(1));
                    self.header.processes.push(Process { host: host.to_owned(), pid: words[2] as u32, rank });
                    of_host.processes.insert(number, self.header.processes.len() as u32 - 1);
                }
                IS_NAME => {
                    let bytes = words[2..].iter().flat_map(|w| w.to_le_bytes());
                    let len = (words[1] as usize & 0xffff).min(PART);
                    parts.insert((number, words[1] >> 16), bytes.take(len).collect());
                }
                _ => calls += u64::from(Record::from_words(words).is_some()),
            }
            Ok(())
        })?;
        let mut whole: BTreeMap<u32, Vec<u8>> = BTreeMap::new();
        parts.into_iter().for_each(|((file, _), bytes)| whole.entry(file).or_default().extend(bytes));
        for (file, name) in whole {
            let files = &mut self.header.files;
            let known = *names.entry(name).or_insert_with_key(|name| {
                files.push(name.clone());
                files.len() as u32 - 1
            });
            of_host.files.insert(file, known);
        }
        let refused = number(REFUSED);
        self.header.lost = self.header.lost.saturating_add(number(LOST)).saturating_add(refused);
        self.header.unfinished += empty.saturating_sub(refused);
        self.header.records += calls;
        self.hosts.push(OfHost { path, slots, calls, ..of_host });
        Ok(())
    }

    /// Writes the trace.
    pub fn write(&self, out: &mut impl Write) -> Result<()> {
        self.header.write(out)?;
        let nobody = (self.header.processes.len() as u32 - 1, self.header.files.len() as u32 - 1);
        for host in &self.hosts {
            let mut left = host.calls;
            each_slot(&host.path, host.slots, |words| {
                // A process that lives on may have finished one since they were counted.
                let Some(found) = Record::from_words(words).filter(|_| left > 0) else { return Ok(()) };
                left -= 1;
                let process = *host.processes.get(&found.process).unwrap_or(&nobody.0);
                let file = *host.files.get(&found.file).unwrap_or(&nobody.1);
                out.write_all(&to_bytes(Record { process, file, ..found }.words()))
            })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_types::trace::Trace;

    fn tracer(dir: &Path, slots: usize) -> Tracer {
        let path = dir.join(format!("{PREFIX}here"));
        let words = sys::map_words(&path, 8 * (HEAD + WORDS * slots) as u64).unwrap();
        Tracer { words, path, process: AtomicU32::new(0), full_until: AtomicU64::new(0) }
    }

    fn gathered(dir: &Path) -> Trace {
        let mut out = Vec::new();
        Traced::gather(dir).unwrap().write(&mut out).unwrap();
        Trace::read(&out[..]).unwrap()
    }

    #[test]
    fn what_processes_do_is_recorded_call_by_call() {
        let dir = tempfile::tempdir().unwrap();
        let first = tracer(dir.path(), 100);
        let second = first.inherit();
        let long = "x".repeat(100).into_bytes();
        let (a, b, c) = (AtomicU32::new(0), AtomicU32::new(0), AtomicU32::new(0));
        let read = Done::Read { offset: 5, bytes: 7 };
        first.add(&a, Some(long.clone()), None, Done::Opened, 1);
        first.add(&a, None, None, Done::Written { offset: 1 << 40, bytes: 9 }, 2);
        second.add(&b, Some(long.clone()), Some(4), read, 3);
        second.add(&c, Some(b"y".to_vec()), Some(4), Done::Closed, 4);
        let trace = gathered(dir.path());
        assert_eq!((trace.header.records, trace.header.missing()), (4, None));
        let at: Vec<_> =
            trace.records.iter().map(|r| (r.call, r.process, r.file, r.offset, r.bytes, r.nanos)).collect();
        assert_eq!(
            at,
            [
                (Call::Open, 0, 0, 0, 0, 1),
                (Call::Write, 0, 0, 1 << 40, 9, 2),
                (Call::Read, 1, 0, 5, 7, 3),
                (Call::Close, 1, 1, 0, 0, 4)
            ]
        );
        assert_eq!(trace.header.files[..2], [long, b"y".to_vec()]);
        let who = |i: usize| (trace.header.processes[i].host.as_str(), trace.header.processes[i].rank);
        assert_eq!((who(0), who(1)), (("here", None), ("here", Some(4))));
        assert!(trace.records[1].began > 1_700_000_000_000_000_000);
        // A process was killed within a call, and nobody knows in which; another could record nothing.
        first.words[NEXT].fetch_add(1, Relaxed);
        sys::touch(&dir.path().join(format!("{SILENT}here-7")));
        let header = gathered(dir.path()).header;
        assert_eq!((header.records, header.unfinished, header.silent, header.lost), (4, 1, 1, 0));
    }

    #[test]
    fn what_finds_no_room_is_counted() {
        let dir = tempfile::tempdir().unwrap();
        let tracer = tracer(dir.path(), 10);
        let file = AtomicU32::new(0);
        for _ in 0..20 {
            tracer.add(&file, Some(b"x".to_vec()), None, Done::Opened, 1);
        }
        let header = gathered(dir.path()).header;
        assert_eq!((header.records, header.lost, header.unfinished), (8, 12, 0));
        // Nobody can put anything on the disk any more: that is no loss of what is there.
        let gone = Tracer { path: dir.path().join("gone"), ..tracer.inherit() };
        gone.words[NEXT].store(9, Relaxed);
        gone.words[ROOM].store(0, Relaxed);
        gone.add(&file, None, None, Done::Opened, 1);
        assert_eq!(gathered(dir.path()).header.records, 8);
        std::fs::write(dir.path().join("trace-short"), "x").unwrap();
        std::fs::write(dir.path().join("trace-strange"), [0xff; 500]).unwrap();
        let header = gathered(dir.path()).header;
        assert_eq!(header.records, 8);
    }
}
