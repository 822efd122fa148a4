//! One process of a run: does its part of each step when the conductor says go.

use super::files::{Files, OpenFile};
use super::forwarded::Forwarded;
use super::posix::Posix;
use super::protocol::{Access, Channel, Cue, Hello, Outcome, Reply, Role, Task};
use crate::scenario::{Data, Fsync, MetaOperation, Metadata, Spatiality, Step, Target};
use crate::workload::{Payload, Request, Requests};
use forebay_types::{FineHistogram, OpKind, Operation};
use std::collections::HashMap;
use std::io;
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Plays process `slot` of run `run` for the conductor at `address`.
pub fn work(address: impl ToSocketAddrs, token: &str, run: u64, slot: u32) -> io::Result<()> {
    let mut channel = Channel::new(TcpStream::connect(address)?)?;
    channel.send(&Hello { token: token.to_owned(), role: Role::Worker { run, slot } })?;
    let task: Task = channel.receive()?;
    let outcome = play(&task, &mut channel);
    if let Err(e) = &outcome {
        channel.send(&Reply::Failed(e.to_string()))?;
    }
    Ok(())
}

fn play(task: &Task, channel: &mut Channel) -> io::Result<()> {
    let files: Box<dyn Files> = match &task.access {
        Access::Posix => Box::new(Posix),
        Access::Client(config) => Box::new(Forwarded::new(config)?),
    };
    let mut player =
        Player { task, files: &*files, open: HashMap::new(), walled: HashMap::new(), buffer: Vec::new() };
    for (index, step) in task.job.steps.iter().enumerate() {
        // What is prepared is in the way of processes that still work on the step before.
        if index > 0 {
            let Cue::Go = channel.receive()?;
        }
        player.prepare(index, step)?;
        channel.send(&Reply::Ready(index))?;
        let Cue::Go = channel.receive()?;
        let outcome = player.step(step)?;
        channel.send(&Reply::Done(outcome))?;
    }
    player.close_all()
}

/// A page: O_DIRECT wants buffers that begin at one.
#[derive(Clone, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(4096))]
struct Page([u8; 4096]);

struct Player<'a> {
    task: &'a Task,
    files: &'a dyn Files,
    open: HashMap<String, Box<dyn OpenFile + 'a>>,
    /// Requests that a stone wall let a step on a file make: what lies beyond was never written.
    walled: HashMap<String, (Option<Data>, u64)>,
    buffer: Vec<Page>,
}

impl<'a> Player<'a> {
    fn path(&self, name: &str) -> String {
        std::path::Path::new(&self.task.root).join(name).to_string_lossy().into_owned()
    }

    /// What must be so before the clock starts: buffers, open files, and data where the step reads
    /// what no step has written.
    fn prepare(&mut self, index: usize, step: &Step) -> io::Result<()> {
        let Step::Data(d) = step else { return Ok(()) };
        let pages = d.largest().div_ceil(4096) as usize;
        if self.buffer.len() < pages {
            self.buffer = vec![Page([0; 4096]); pages];
        }
        if d.read_share > 0.0 && !self.covered(index, d) {
            self.fill_file(d)?;
        }
        self.open_target(&d.target)
    }

    /// Whether earlier steps have written all that step `index` reads, with the bytes that validation
    /// expects.
    fn covered(&self, index: usize, d: &Data) -> bool {
        let walled = self.walled.contains_key(&d.target.file(self.task.rank));
        // The last to write the file decides what is in it.
        let writer = self.task.job.steps[..index].iter().rev().find_map(|s| match s {
            Step::Data(w) if w.read_share <= 0.0 && w.target.file(0) == d.target.file(0) => Some(w),
            _ => None,
        });
        writer.is_some_and(|w| {
            (w.validation || !d.validation)
                && (same_requests(w, d)
                    || (!walled && is_dense(w) && is_dense(d) && w.total_size >= d.total_size))
        })
    }

    /// Writes this process' part of the file past any I/O node.
    fn fill_file(&mut self, d: &Data) -> io::Result<()> {
        let name = d.target.file(self.task.rank);
        let path = self.path(&name);
        let payload = Payload::of(&name);
        let file = Posix.open(&path, false).map_err(|e| at(e, "cannot prepare", &path))?;
        for request in Requests::new(d, self.task.rank, self.task.job.processes(), self.task.seed) {
            let buf = &mut self.buffer.as_mut_bytes()[..request.len as usize];
            payload.fill(buf, request.offset);
            write_all(&*file, buf, request.offset).map_err(|e| at(e, "cannot prepare", &path))?;
        }
        Ok(())
    }

    fn open_target(&mut self, target: &Target) -> io::Result<()> {
        let path = self.path(&target.file(self.task.rank));
        if !self.open.contains_key(&path) {
            let file = self.files.open(&path, target.direct_io).map_err(|e| at(e, "cannot open", &path))?;
            self.open.insert(path, file);
        }
        Ok(())
    }

    fn close_all(&mut self) -> io::Result<()> {
        for (path, file) in self.open.drain() {
            file.close().map_err(|e| at(e, "cannot close", &path))?;
        }
        Ok(())
    }

    fn step(&mut self, step: &Step) -> io::Result<Outcome> {
        let started = Instant::now();
        match step {
            Step::Open(target) => self.open_target(target)?,
            Step::Close(target) => {
                let path = self.path(&target.file(self.task.rank));
                if let Some(file) = self.open.remove(&path) {
                    file.close().map_err(|e| at(e, "cannot close", &path))?;
                }
            }
            Step::Think(span) => std::thread::sleep(*span),
            Step::Data(d) => return self.data(d),
            Step::Metadata(m) => return self.metadata(m),
        }
        Ok(Outcome { seconds: started.elapsed().as_secs_f64(), ..Outcome::default() })
    }

    fn data(&mut self, d: &Data) -> io::Result<Outcome> {
        let name = d.target.file(self.task.rank);
        let path = self.path(&name);
        let payload = Payload::of(&name);
        let file = self.open.get(&path).ok_or_else(|| io::Error::other(format!("{path} is not open")))?;
        let buffer = self.buffer.as_mut_bytes();
        let writes_only = d.read_share <= 0.0;
        let limit = match self.walled.get(&name) {
            Some((Some(w), made)) if !writes_only && same_requests(w, d) => *made,
            _ => u64::MAX,
        };
        let mut meter = Meter::start(d.stone_wall);
        for request in Requests::new(d, self.task.rank, self.task.job.processes(), self.task.seed) {
            if meter.outcome.requests == limit {
                meter.outcome.hit_wall = true;
                break;
            }
            let buf = &mut buffer[..request.len as usize];
            transfer(&**file, d, payload, buf, request, &mut meter)
                .map_err(|e| at(e, d.operation().name(), &path))?;
            if !d.think.is_zero() {
                std::thread::sleep(d.think);
            }
            if meter.at_wall() {
                break;
            }
        }
        if d.fsync == Fsync::End {
            file.sync().map_err(|e| at(e, "fsync", &path))?;
        }
        let outcome = meter.stop();
        if writes_only && outcome.hit_wall {
            self.walled.insert(name, (Some(d.clone()), outcome.requests));
        } else if writes_only {
            self.walled.remove(&name);
        }
        Ok(outcome)
    }

    fn metadata(&mut self, m: &Metadata) -> io::Result<Outcome> {
        let stem = self.path(&format!("{}-{:03}", m.path, self.task.rank));
        // Looking at or removing files that a stone wall kept from being made would fail.
        let made = self.walled.get(&stem).map_or(u64::MAX, |(_, made)| *made);
        let mut meter = Meter::start(m.stone_wall);
        for i in 0..u64::from(m.files).min(made) {
            let path = format!("{stem}-{i:06}");
            let began = Instant::now();
            match m.operation {
                MetaOperation::Create => self.files.create(&path),
                MetaOperation::Stat => self.files.stat(&path),
                MetaOperation::Unlink => self.files.unlink(&path),
            }
            .map_err(|e| at(e, Operation::from(m.operation).name(), &path))?;
            meter.count(began.elapsed());
            if meter.at_wall() {
                break;
            }
        }
        let outcome = meter.stop();
        if m.operation == MetaOperation::Create {
            self.walled.insert(stem, (None, outcome.requests));
        }
        Ok(outcome)
    }
}

fn transfer(
    file: &dyn OpenFile,
    d: &Data,
    payload: Payload,
    buf: &mut [u8],
    request: Request,
    meter: &mut Meter,
) -> io::Result<()> {
    if request.op == OpKind::Write {
        // Without validation nobody looks at the bytes, and making them would be part of the time.
        if d.validation || d.read_share > 0.0 {
            payload.fill(buf, request.offset);
        }
        let began = Instant::now();
        write_all(file, buf, request.offset)?;
        if d.fsync == Fsync::Each {
            file.sync()?;
        }
        meter.count(began.elapsed());
        meter.outcome.bytes_written += request.len;
    } else {
        let began = Instant::now();
        read_all(file, buf, request.offset)?;
        meter.count(began.elapsed());
        meter.outcome.bytes_read += request.len;
        if d.validation {
            payload
                .check(buf, request.offset)
                .map_err(|m| io::Error::other(format!("validation failed: {m}")))?;
        }
    }
    Ok(())
}

/// Whether two steps of a job make the same requests, but for their direction.
fn same_requests(a: &Data, b: &Data) -> bool {
    a.target.layout == b.target.layout
        && a.spatiality == b.spatiality
        && a.total_size == b.total_size
        && a.sizes == b.sizes
        && a.target.direct_io == b.target.direct_io
}

/// Whether a step's requests fill the file from its beginning without gaps.
fn is_dense(d: &Data) -> bool {
    d.spatiality == Spatiality::Contiguous || d.sizes.len() == 1
}

fn write_all(file: &dyn OpenFile, buf: &[u8], offset: u64) -> io::Result<()> {
    let mut done = 0;
    while done < buf.len() {
        match file.write_at(&buf[done..], offset + done as u64)? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            n => done += n,
        }
    }
    Ok(())
}

fn read_all(file: &dyn OpenFile, buf: &mut [u8], offset: u64) -> io::Result<()> {
    let mut done = 0;
    while done < buf.len() {
        match file.read_at(&mut buf[done..], offset + done as u64)? {
            0 => return Err(io::Error::other(format!("the file ends at byte {}", offset + done as u64))),
            n => done += n,
        }
    }
    Ok(())
}

fn at(e: io::Error, what: &str, path: &str) -> io::Error {
    io::Error::new(e.kind(), format!("{what} {path}: {e}"))
}

/// Counts what a step does while it lasts.
struct Meter {
    started: Instant,
    wall: Duration,
    outcome: Outcome,
    latencies: FineHistogram,
}

impl Meter {
    fn start(wall: Duration) -> Meter {
        let latencies = FineHistogram::default();
        Meter { started: Instant::now(), wall, outcome: Outcome::default(), latencies }
    }

    fn count(&mut self, took: Duration) {
        self.outcome.requests += 1;
        self.latencies.add(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
    }

    fn at_wall(&mut self) -> bool {
        self.outcome.hit_wall = !self.wall.is_zero() && self.started.elapsed() > self.wall;
        self.outcome.hit_wall
    }

    fn stop(mut self) -> Outcome {
        self.outcome.seconds = self.started.elapsed().as_secs_f64();
        let latencies = self.latencies.counts();
        (self.outcome.latencies, self.outcome.slowest) = (latencies.buckets().collect(), latencies.max());
        self.outcome
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::native;

    /// A file of zeros that gives and takes a little at a time.
    struct Zeros {
        len: u64,
    }

    impl OpenFile for Zeros {
        fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
            let n = usize::try_from(self.len.saturating_sub(offset)).unwrap().min(buf.len()).min(1000);
            buf[..n].fill(0);
            Ok(n)
        }

        fn write_at(&self, buf: &[u8], _: u64) -> io::Result<usize> {
            Ok(buf.len().min(7))
        }

        fn sync(&self) -> io::Result<()> {
            Ok(())
        }

        fn close(self: Box<Self>) -> io::Result<()> {
            Ok(())
        }
    }

    fn step(validation: bool) -> Data {
        let text = format!(
            "phase = [{{ operation = \"read\", total_size = 8192, request_size = 4096, validation = {validation} }}]"
        );
        let scenario = native::parse(&text, "s").unwrap().remove(0);
        match &scenario.jobs[0].steps[0] {
            Step::Data(d) => d.clone(),
            other => panic!("{other:?}"),
        }
    }

    fn read(validation: bool, len: u64) -> Result<Outcome, String> {
        let mut meter = Meter::start(Duration::ZERO);
        let request = Request { op: OpKind::Read, offset: 4096, len: 4096 };
        let mut buf = vec![0; 4096];
        transfer(&Zeros { len }, &step(validation), Payload::of("f"), &mut buf, request, &mut meter)
            .map(|()| meter.stop())
            .map_err(|e| e.to_string())
    }

    #[test]
    fn wrong_bytes_and_missing_bytes_are_found() {
        assert!(read(true, 8192).unwrap_err().starts_with("validation failed: byte 4096 is 0x00"));
        assert_eq!(read(false, 6000).unwrap_err(), "the file ends at byte 6000");
        let outcome = read(false, 8192).unwrap();
        assert_eq!((outcome.bytes_read, outcome.requests), (4096, 1));
        assert_eq!(outcome.latencies.iter().map(|l| l.1).sum::<u64>(), 1);
    }

    #[test]
    fn short_writes_go_on() {
        assert!(write_all(&Zeros { len: 0 }, &[1; 100], 0).is_ok());
    }
}
