//! Traces: every call of a run that moved data, opened, closed or synced a file. `forebay run --record` writes
//! them, `forebay explore from-trace` reads them; docs/EXPLORE.md has the form of the file.

use std::io::{BufRead, ErrorKind, Read, Result as IoResult, Write};

/// What such a file begins with: its name and the version of its form.
const FIRST_LINE: &str = "forebay trace 1";
/// Bytes of a record.
pub const RECORD: usize = 48;
/// The longest line of the header.
const LINE: u64 = 64 << 10;
/// The most processes, and the most files, of which a header tells.
const MOST_NAMED: usize = 4 << 20;
/// The most records that are read: 3 GiB of them.
pub const MOST_RECORDS: usize = 64 << 20;

/// What a process did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Call {
    /// Opened a file.
    Open = 1,
    /// Closed it.
    Close = 2,
    /// Read from it.
    Read = 3,
    /// Wrote to it, or at its end.
    Write = 4,
    /// Had its data written to storage.
    Sync = 5,
}

impl Call {
    /// The one of this number.
    pub fn from_code(code: u8) -> Option<Call> {
        [Call::Open, Call::Close, Call::Read, Call::Write, Call::Sync].into_iter().find(|c| *c as u8 == code)
    }
}

/// One call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// What was done.
    pub call: Call,
    /// By which process, as the header counts them.
    pub process: u32,
    /// With which file, likewise.
    pub file: u32,
    /// Where in it.
    pub offset: u64,
    /// Bytes that were moved.
    pub bytes: u64,
    /// When the call began, in nanoseconds since 1970.
    pub began: u64,
    /// How long it took.
    pub nanos: u64,
}

impl Record {
    /// As six numbers, the first of which is never zero.
    pub fn words(&self) -> [u64; 6] {
        let first = self.call as u64 | u64::from(self.process) << 32;
        [first, self.file.into(), self.offset, self.bytes, self.began, self.nanos]
    }

    /// From those; `None` where they are no record.
    pub fn from_words(words: [u64; 6]) -> Option<Record> {
        let [first, file, offset, bytes, began, nanos] = words;
        let call = Call::from_code(first as u8).filter(|_| first as u32 <= u32::from(u8::MAX))?;
        let file = u32::try_from(file).ok()?;
        Some(Record { call, process: (first >> 32) as u32, file, offset, bytes, began, nanos })
    }
}

/// Six numbers as they stand in files.
pub fn to_bytes(words: [u64; 6]) -> [u8; RECORD] {
    let mut bytes = [0; RECORD];
    bytes.chunks_exact_mut(8).zip(words).for_each(|(b, w)| b.copy_from_slice(&w.to_le_bytes()));
    bytes
}

/// The same read again.
pub fn from_bytes(bytes: &[u8; RECORD]) -> [u64; 6] {
    let word = |i: usize| bytes[8 * i..].first_chunk().map_or(0, |b| u64::from_le_bytes(*b));
    std::array::from_fn(word)
}

/// One process of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Process {
    /// Where it ran.
    pub host: String,
    /// Its number there.
    pub pid: u32,
    /// Its rank, in a parallel program.
    pub rank: Option<u32>,
}

/// What stands before the records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// What was run.
    pub command: String,
    /// How many records there are.
    pub records: u64,
    /// Calls that found no room.
    pub lost: u64,
    /// Calls whose record was begun and not finished: the process was killed in it.
    pub unfinished: u64,
    /// Processes that could record nothing.
    pub silent: u64,
    /// The processes.
    pub processes: Vec<Process>,
    /// The names of the files.
    pub files: Vec<Vec<u8>>,
}

impl Header {
    /// What is not in the trace, as a sentence; `None` if everything is.
    pub fn missing(&self) -> Option<String> {
        let some = |n: u64, one: &str, more: &str| match n {
            0 => None,
            1 => Some(format!("1 {one}")),
            n => Some(format!("{n} {more}")),
        };
        let all = [
            some(self.lost, "call for which there was no room", "calls for which there was no room"),
            some(
                self.unfinished,
                "call in which a process was killed",
                "calls in which a process was killed",
            ),
            some(self.silent, "process that could record nothing", "processes that could record nothing"),
        ];
        let all: Vec<String> = all.into_iter().flatten().collect();
        (!all.is_empty()).then(|| format!("not in the trace: {}", all.join(", ")))
    }

    /// Writes it; the records follow.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write(&self, out: &mut impl Write) -> IoResult<()> {
        writeln!(out, "{FIRST_LINE}")?;
        put_line(out, "command ", self.command.as_bytes())?;
        let counts = [("records", self.records), ("lost", self.lost)];
        for (name, n) in counts.into_iter().chain([("unfinished", self.unfinished), ("silent", self.silent)])
        {
            writeln!(out, "{name} {n}")?;
        }
        for Process { host, pid, rank } in &self.processes {
            let rank = rank.map_or_else(|| "-".to_owned(), |r| r.to_string());
            put_line(out, &format!("process {pid} {rank} "), host.as_bytes())?;
        }
        for file in &self.files {
            put_line(out, "file ", file)?;
        }
        writeln!(out)
    }

    /// Reads it, to where the records begin.
    fn read(input: &mut impl BufRead) -> Result<Header, TraceError> {
        let mut line = Vec::new();
        let whole = next_line(input, &mut line);
        if whole.is_err() && FIRST_LINE.as_bytes().starts_with(&line) {
            whole?;
        }
        if line != FIRST_LINE.as_bytes() {
            let version = line.starts_with(b"forebay trace ");
            return Err(if version { TraceError::Version } else { TraceError::NoTrace });
        }
        let mut header = Header::default();
        loop {
            next_line(input, &mut line)?;
            if line.is_empty() {
                return Ok(header);
            }
            let space = line.iter().position(|b| *b == b' ').ok_or(TraceError::Line)?;
            let (name, value) = (&line[..space], &line[space + 1..]);
            let text = || std::str::from_utf8(value).ok();
            let number = || text().and_then(|t| t.parse::<u64>().ok()).ok_or(TraceError::Line);
            match name {
                b"command" => header.command = String::from_utf8_lossy(&plain(value)).into_owned(),
                b"records" => header.records = number()?,
                b"lost" => header.lost = number()?,
                b"unfinished" => header.unfinished = number()?,
                b"silent" => header.silent = number()?,
                b"process" => header.processes.push(process(value).ok_or(TraceError::Line)?),
                b"file" => header.files.push(plain(value)),
                _ => return Err(TraceError::Line),
            }
            if header.processes.len().max(header.files.len()) > MOST_NAMED {
                return Err(TraceError::TooMany);
            }
        }
    }
}

/// A line, with what would end it or is no text as `%` and two digits.
fn put_line(out: &mut impl Write, before: &str, value: &[u8]) -> IoResult<()> {
    let mut line = before.as_bytes().to_vec();
    for b in value {
        if b.is_ascii_control() || *b == b'%' {
            line.extend(format!("%{b:02x}").bytes());
        } else {
            line.push(*b);
        }
    }
    // No longer than is read again.
    line.truncate(LINE as usize - 1);
    line.push(b'\n');
    out.write_all(&line)
}

/// What [`put_line`] was given.
fn plain(value: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(value.len());
    let mut rest = value;
    while let [first, tail @ ..] = rest {
        let code = tail.get(..2).filter(|_| *first == b'%').and_then(|c| std::str::from_utf8(c).ok());
        match code.and_then(|c| u8::from_str_radix(c, 16).ok()) {
            Some(b) => {
                out.push(b);
                rest = &tail[2..];
            }
            None => {
                out.push(*first);
                rest = tail;
            }
        }
    }
    out
}

fn process(value: &[u8]) -> Option<Process> {
    let mut parts = value.splitn(3, |b| *b == b' ');
    let mut number = || std::str::from_utf8(parts.next()?).ok();
    let pid = number()?.parse().ok()?;
    let rank = match number()? {
        "-" => None,
        rank => Some(rank.parse().ok()?),
    };
    let host = String::from_utf8_lossy(&plain(parts.next()?)).into_owned();
    Some(Process { host, pid, rank })
}

/// The next line, without its end.
fn next_line(input: &mut impl BufRead, line: &mut Vec<u8>) -> Result<(), TraceError> {
    line.clear();
    input.take(LINE).read_until(b'\n', line)?;
    match line.pop() {
        Some(b'\n') => Ok(()),
        _ if (line.len() as u64) + 1 >= LINE => Err(TraceError::NoTrace),
        _ => Err(TraceError::Short),
    }
}

/// Why a trace cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// It is something else.
    #[error("not a trace of `forebay run --record`")]
    NoTrace,
    /// It is of another version.
    #[error("a trace of another version; this program reads \"{FIRST_LINE}\"")]
    Version,
    /// It ends too early.
    #[error("it is cut off before its first record")]
    Short,
    /// A line says nothing.
    #[error("a line of its header is none")]
    Line,
    /// A record says nothing.
    #[error("record {0} is none")]
    Record(u64),
    /// It is too large.
    #[error("more than {MOST_RECORDS} records, or {MOST_NAMED} processes or files")]
    TooMany,
    /// It cannot be read.
    #[error("cannot read it: {0}")]
    Read(#[from] std::io::Error),
}

/// All of a trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    /// What stands before the records.
    pub header: Header,
    /// As many as there are: fewer than the header says where the file was cut off.
    pub records: Vec<Record>,
}

impl Trace {
    /// Reads one. What is cut off among the records is used as far as it goes.
    ///
    /// # Errors
    /// If it is none.
    pub fn read(mut input: impl BufRead) -> Result<Trace, TraceError> {
        let header = Header::read(&mut input)?;
        let mut records = Vec::new();
        let mut bytes = [0; RECORD];
        while fill(&mut input, &mut bytes)? {
            if records.len() == MOST_RECORDS {
                return Err(TraceError::TooMany);
            }
            let record = Record::from_words(from_bytes(&bytes)).filter(|r| {
                (r.process as usize) < header.processes.len() && (r.file as usize) < header.files.len()
            });
            records.push(record.ok_or(TraceError::Record(records.len() as u64 + 1))?);
        }
        Ok(Trace { header, records })
    }

    /// How many records are missing at the end.
    pub fn cut_off(&self) -> u64 {
        self.header.records.saturating_sub(self.records.len() as u64)
    }
}

/// Fills `bytes`; false at the end, also where less is left.
fn fill(input: &mut impl Read, bytes: &mut [u8]) -> IoResult<bool> {
    match input.read_exact(bytes) {
        Ok(()) => Ok(true),
        Err(e) if e.kind() == ErrorKind::UnexpectedEof => Ok(false),
        Err(e) => Err(e),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn trace() -> Trace {
        let record = |n: u32| Record {
            call: [Call::Write, Call::Read][n as usize % 2],
            process: n % 2,
            file: n % 3,
            offset: u64::from(n) << 40,
            bytes: u64::MAX - u64::from(n),
            began: 1_763_520_000_000_000_000 + u64::from(n),
            nanos: 1000,
        };
        let host = "a host".to_owned();
        let header = Header {
            command: "sh -c 'one\ntwo' 100%".into(),
            records: 20,
            lost: 1,
            unfinished: 0,
            silent: 2,
            processes: vec![
                Process { host: host.clone(), pid: 1, rank: None },
                Process { host, pid: 77, rank: Some(3) },
            ],
            files: vec![b"/a/b c".to_vec(), b"/\n%0a\xff".to_vec(), Vec::new()],
        };
        Trace { header, records: (0..20).map(record).collect() }
    }

    fn written(trace: &Trace) -> Vec<u8> {
        let mut out = Vec::new();
        trace.header.write(&mut out).unwrap();
        trace.records.iter().for_each(|r| out.extend(to_bytes(r.words())));
        out
    }

    #[test]
    fn what_is_written_is_read_again() {
        let (trace, bytes) = (trace(), written(&trace()));
        assert_eq!(Trace::read(&bytes[..]).unwrap(), trace);
        let missing = trace.header.missing().unwrap();
        assert_eq!(
            missing,
            "not in the trace: 1 call for which there was no room, 2 processes that could record nothing"
        );
        let cut = Trace::read(&bytes[..bytes.len() - 3 * RECORD - 7]).unwrap();
        assert_eq!((cut.records.len(), cut.cut_off()), (16, 4));
        assert_eq!(cut.records, trace.records[..16]);
        for (bytes, says) in [
            (&b""[..], "cut off before"),
            (b"forebay tr", "cut off before"),
            (b"garbage", "not a trace"),
            (&bytes[..60], "cut off before"),
            (b"forebay trace 2\n", "another version"),
            (b"\0\x01\n", "not a trace"),
            (b"forebay trace 1\nlost many\n\n", "a line"),
            (&[b'x'; 1 << 20], "not a trace"),
        ] {
            let e = Trace::read(bytes).unwrap_err().to_string();
            assert!(e.contains(says), "{e}");
        }
        let mut strange = bytes;
        let at = strange.len() - RECORD;
        strange[at + 4] = 9;
        assert_eq!(Trace::read(&strange[..]).unwrap_err().to_string(), "record 20 is none");
    }

    proptest! {
        #[test]
        fn damaged_traces_do_not_panic(changes in prop::collection::vec((0..1300_usize, any::<u8>()), 1..8), cut in 0..1300_usize) {
            let mut bytes = written(&trace());
            for (at, b) in changes {
                if let Some(x) = bytes.get_mut(at) {
                    *x = b;
                }
            }
            bytes.truncate(bytes.len().saturating_sub(cut / 4));
            if let Ok(read) = Trace::read(&bytes[..]) {
                prop_assert_eq!(Trace::read(&written(&read)[..]).unwrap(), read);
            }
        }

        #[test]
        fn whatever_comes_does_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = Trace::read(&bytes[..]);
            let begun = [b"forebay trace 1\nprocess 1 - x\nfile y\n\n", &bytes[..]].concat();
            let _ = Trace::read(&begun[..]);
        }
    }
}
