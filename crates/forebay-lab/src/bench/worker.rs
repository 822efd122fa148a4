//! One process of the bench: does one kind of operation many times, as an ordinary program would,
//! and prints how long it took. Under the preload library its files are forwarded.

use super::limit::LimitClient;
use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::{Duration, Instant};

/// What a process of the bench does; what `forebay bench worker` runs.
#[derive(Clone, Debug)]
pub struct Worker {
    /// What it does.
    pub op: Op,
    /// With which file.
    pub file: PathBuf,
    /// Bytes of a request.
    pub size: usize,
    /// How often.
    pub count: usize,
    /// Through the smallest forwarder at this port or Unix socket instead of the file system.
    pub limit: Option<String>,
    /// Spinning before it sleeps.
    pub spin: bool,
    /// Run on this processor only.
    pub cpu: Option<usize>,
}

/// A kind of operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Op {
    /// pread.
    Read,
    /// pwrite.
    Write,
    /// stat.
    Stat,
    /// Makes a file and removes it.
    Create,
}

impl Op {
    /// On the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Op::Read => "read",
            Op::Write => "write",
            Op::Stat => "stat",
            Op::Create => "create",
        }
    }
}

impl FromStr for Op {
    type Err = String;

    fn from_str(name: &str) -> Result<Op, String> {
        let all = [Op::Read, Op::Write, Op::Stat, Op::Create];
        all.into_iter().find(|op| op.name() == name).ok_or_else(|| format!("`{name}` is no operation"))
    }
}

/// What a worker prints.
#[derive(Serialize, Deserialize, Debug)]
pub(crate) struct Timing {
    /// Start and end on the monotonic clock, nanoseconds.
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) p50_ns: u64,
}

/// Page-aligned memory.
pub(crate) struct Aligned {
    memory: Vec<u8>,
    skip: usize,
    len: usize,
}

pub(crate) fn aligned(len: usize) -> Aligned {
    let memory = vec![0u8; len + 4096];
    let skip = memory.as_ptr().align_offset(4096).min(4096);
    Aligned { memory, skip, len }
}

impl Aligned {
    pub(crate) fn as_mut_slice(&mut self) -> &mut [u8] {
        &mut self.memory[self.skip..self.skip + self.len]
    }
}

fn clock() -> u64 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// Where the operations go.
enum Way {
    Posix(Option<File>),
    Limit(LimitClient),
}

impl Worker {
    /// Says `ready`, waits for a byte, works, and prints how long it took.
    pub fn run(&self) -> Result<()> {
        if let Some(cpu) = self.cpu {
            super::path::pin(None, &[cpu])?;
        }
        let data = matches!(self.op, Op::Read | Op::Write);
        let mut way = match &self.limit {
            Some(at) => {
                let mut c = LimitClient::connect(at, self.spin)?;
                if data {
                    c.open(&self.file)?;
                }
                Way::Limit(c)
            }
            None if data => Way::Posix(Some(
                File::options().read(true).write(true).create(true).truncate(false).open(&self.file)?,
            )),
            None => Way::Posix(None),
        };
        let mut memory = aligned(self.size);
        let buf = memory.as_mut_slice();
        buf.fill(7);
        // Warm up, then wait for the word to start.
        for i in 0..(self.count / 20).clamp(1, 200) {
            self.once(&mut way, buf, i)?;
        }
        println!("ready");
        std::io::stdout().flush()?;
        if std::io::stdin().read(&mut [0u8; 1])? == 0 {
            bail!("the bench is gone");
        }
        let mut each = Vec::with_capacity(self.count);
        let start = clock();
        for i in 0..self.count {
            let t = Instant::now();
            self.once(&mut way, buf, i)?;
            each.push(t.elapsed());
        }
        let end = clock();
        each.sort_unstable();
        let p50 = each.get(each.len() / 2).copied().unwrap_or(Duration::ZERO);
        let timing = Timing { start, end, p50_ns: p50.as_nanos() as u64 };
        println!("{}", serde_json::to_string(&timing)?);
        Ok(())
    }

    fn once(&self, way: &mut Way, buf: &mut [u8], i: usize) -> Result<()> {
        // Sixteen megabytes, again and again.
        let blocks = ((16 << 20) / self.size).max(1);
        let offset = ((i % blocks) * self.size) as u64;
        let scratch: &Path = &self.file;
        match (way, self.op) {
            (Way::Posix(Some(f)), Op::Write) => f.write_all_at(buf, offset)?,
            (Way::Posix(Some(f)), Op::Read) => drop(f.read_at(buf, offset)?),
            (Way::Posix(_), Op::Stat) => {
                std::fs::metadata(scratch)?;
            }
            (Way::Posix(_), Op::Create) => {
                let new = scratch.with_extension("new");
                drop(File::options().write(true).create_new(true).open(&new)?);
                std::fs::remove_file(&new)?;
            }
            (Way::Limit(c), Op::Write) => drop(c.write(buf, offset)?),
            (Way::Limit(c), Op::Read) => drop(c.read(buf, offset)?),
            (Way::Limit(c), Op::Stat) => c.stat(scratch)?,
            (Way::Limit(c), Op::Create) => {
                let new = scratch.with_extension("new");
                c.create(&new)?;
                c.unlink(&new)?;
            }
            (Way::Posix(None), Op::Read | Op::Write) => bail!("no file"),
        }
        Ok(())
    }
}
