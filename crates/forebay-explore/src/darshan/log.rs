//! Reading a Darshan log (format 3.x, little-endian): the header, the job and the POSIX records.

use flate2::bufread::ZlibDecoder;
use std::io::Read;

/// Why a log cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DarshanError {
    /// It is something else.
    #[error("not a Darshan log (or one of a big-endian machine)")]
    NotALog,
    /// It is cut off, or its parts point outside it.
    #[error("the log is damaged: {0}")]
    Damaged(&'static str),
    /// It is of a kind that is not read.
    #[error("{0}")]
    Unsupported(String),
}

/// What a log says, as far as it is needed.
#[derive(Clone, Debug, PartialEq)]
pub struct Log {
    /// Processes of the job.
    pub processes: u64,
    /// Files accessed by POSIX calls.
    pub posix: Vec<PosixRecord>,
}

/// One file as one process, or all of them, used it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)] // Darshan's names
pub struct PosixRecord {
    pub id: u64,
    /// −1: all processes together.
    pub rank: i64,
    pub reads: u64,
    pub writes: u64,
    pub bytes_read: u64,
    pub bytes_written: u64,
    pub consec_reads: u64,
    pub consec_writes: u64,
    pub seq_reads: u64,
    pub seq_writes: u64,
    /// Ten classes: up to 100 B, 1 kB, 10 kB, 100 kB, 1 MB, 4 MB, 10 MB, 100 MB, 1 GB, more.
    pub size_read: [u64; 10],
    pub size_write: [u64; 10],
    /// The four commonest sizes, of reads and writes together, and how often they occur.
    pub access: [(u64, u64); 4],
}

const MAGIC: i64 = 6_567_223;
const POSIX_MODULE: usize = 1;
/// No part of a log may be larger than this when unpacked.
const MAX_PART: u64 = 4 << 30;

/// Reads a log.
pub fn read(bytes: &[u8]) -> Result<Log, DarshanError> {
    let head = bytes.get(..16).ok_or(DarshanError::NotALog)?;
    if i64_at(head, 8) != Some(MAGIC) {
        return Err(DarshanError::NotALog);
    }
    let version: String = head[..8].iter().take_while(|b| **b != 0).map(|b| char::from(*b)).collect();
    let (major, minor) = version
        .split_once('.')
        .and_then(|(a, b)| Some((a.parse::<u32>().ok()?, b.parse::<u32>().ok()?)))
        .ok_or(DarshanError::NotALog)?;
    if major != 3 || minor < 10 {
        return Err(DarshanError::Unsupported(format!(
            "a log of format {version}; 3.10 and later 3.x are read"
        )));
    }
    // With 3.41 the header got room for 64 modules, and times got nanoseconds.
    let new = minor >= 41;
    let (maps, modules) = if new { (32, 64) } else { (24, 16) };
    let versions = maps + 16 + modules * 16;
    let header_len = versions + modules * 4;
    let damaged = || DarshanError::Damaged("it ends within the header");
    if bytes.len() < header_len {
        return Err(damaged());
    }
    match bytes[16] {
        0 | 2 => {}
        1 => {
            return Err(DarshanError::Unsupported(
                "the log is compressed with bzip2: convert it with darshan-convert first".into(),
            ));
        }
        _ => return Err(DarshanError::Damaged("an unknown compression")),
    }
    let packed = bytes[16] == 0;
    let map = |at: usize| Some((u64_at(bytes, at)?, u64_at(bytes, at + 8)?));
    let (names_at, _) = map(maps).ok_or_else(damaged)?;

    let job = part(bytes, header_len as u64, names_at.saturating_sub(header_len as u64), packed)?;
    let processes = i64_at(&job, if new { 40 } else { 24 });
    let processes = processes.and_then(|n| u64::try_from(n).ok()).filter(|n| *n > 0);
    let processes = processes.ok_or(DarshanError::Damaged("the job record has no number of processes"))?;

    let (at, len) = map(maps + 16 + POSIX_MODULE * 16).ok_or_else(damaged)?;
    if len == 0 {
        return Ok(Log { processes, posix: Vec::new() });
    }
    let version = u32_at(bytes, versions + POSIX_MODULE * 4).ok_or_else(damaged)?;
    // Version 4 put two counters after OPENS and three after FDSYNCS.
    let layout = match version {
        3 => Layout { counters: 64, reads: 1, bytes: 9 },
        4 => Layout { counters: 69, reads: 3, bytes: 14 },
        other => {
            return Err(DarshanError::Unsupported(format!(
                "POSIX records of version {other} (3 and 4 are read): convert the log with darshan-convert first"
            )));
        }
    };
    let records = part(bytes, at, len, packed)?;
    let posix = records.chunks_exact(layout.len()).map(|r| layout.record(r)).collect::<Option<Vec<_>>>();
    let posix = posix.ok_or(DarshanError::Damaged("a negative count in a POSIX record"))?;
    if records.len() % layout.len() != 0 {
        return Err(DarshanError::Damaged("the POSIX records end in the middle of one"));
    }
    Ok(Log { processes, posix })
}

/// Where a record's counters stand.
struct Layout {
    counters: usize,
    reads: usize,
    bytes: usize,
}

impl Layout {
    /// Id and rank, the counters, and 17 times and such.
    fn len(&self) -> usize {
        16 + (self.counters + 17) * 8
    }

    fn record(&self, r: &[u8]) -> Option<PosixRecord> {
        let counter = |i: usize| u64::try_from(i64_at(r, 16 + i * 8)?).ok();
        let sizes = self.bytes + 15;
        let access = sizes + 28;
        let mut out = PosixRecord {
            id: u64_at(r, 0)?,
            rank: i64_at(r, 8)?,
            reads: counter(self.reads)?,
            writes: counter(self.reads + 1)?,
            bytes_read: counter(self.bytes)?,
            bytes_written: counter(self.bytes + 1)?,
            consec_reads: counter(self.bytes + 4)?,
            consec_writes: counter(self.bytes + 5)?,
            seq_reads: counter(self.bytes + 6)?,
            seq_writes: counter(self.bytes + 7)?,
            ..PosixRecord::default()
        };
        for i in 0..10 {
            out.size_read[i] = counter(sizes + i)?;
            out.size_write[i] = counter(sizes + 10 + i)?;
        }
        for i in 0..4 {
            out.access[i] = (counter(access + i)?, counter(access + 4 + i)?);
        }
        Some(out)
    }
}

/// A part of the log, unpacked. Each process has packed its own, so there may be several streams.
fn part(bytes: &[u8], at: u64, len: u64, packed: bool) -> Result<Vec<u8>, DarshanError> {
    let end = at.checked_add(len).filter(|e| *e <= bytes.len() as u64);
    let end = end.ok_or(DarshanError::Damaged("a part of it lies beyond its end"))?;
    let mut rest = &bytes[at as usize..end as usize];
    if !packed {
        return Ok(rest.to_vec());
    }
    let mut out = Vec::new();
    while !rest.is_empty() {
        let mut stream = ZlibDecoder::new(rest);
        let room = MAX_PART - out.len() as u64;
        let got = (&mut stream).take(room).read_to_end(&mut out);
        got.map_err(|_| DarshanError::Damaged("a part of it cannot be unpacked"))?;
        if out.len() as u64 >= MAX_PART {
            return Err(DarshanError::Damaged("a part of it is larger than 4 GiB"));
        }
        let left = rest.len() - stream.total_in() as usize;
        if left == rest.len() {
            return Err(DarshanError::Damaged("a part of it cannot be unpacked"));
        }
        rest = &rest[rest.len() - left..];
    }
    Ok(out)
}

fn u64_at(b: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(b.get(at..at + 8)?.try_into().ok()?))
}

fn i64_at(b: &[u8], at: usize) -> Option<i64> {
    Some(i64::from_le_bytes(b.get(at..at + 8)?.try_into().ok()?))
}

fn u32_at(b: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(b.get(at..at + 4)?.try_into().ok()?))
}
