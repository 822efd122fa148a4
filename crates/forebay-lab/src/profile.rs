//! Storage profiles: how many requests a storage system takes at once, and what large ones cost.

use crate::Progress;
use crate::experiment::Experiment;
use crate::outcome::{Outcome, Table};
use anyhow::{Context, Result, bail};
use forebay_embed::RunDir;
use forebay_plot::{Axis, Line, Series, bytes, seconds};
use forebay_sched::SchedulerConfig;
use forebay_sched::slots::SlotCosts;
use forebay_types::stats::median;
use std::fmt::Write as _;
use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Enough for every file system's and device's direct I/O.
const ALIGN: usize = 4096;
const SMALL: usize = 4 << 10;
const OUTSTANDING: [usize; 7] = [1, 2, 4, 8, 16, 32, 64];
const SIZES: [usize; 9] =
    [4 << 10, 16 << 10, 64 << 10, 128 << 10, 256 << 10, 512 << 10, 1 << 20, 2 << 20, 4 << 20];
/// Passes over all sizes: a hiccup of the storage spoils one of them, not the median.
const PASSES: usize = 5;
/// A spread of the passes around their median above this is worth a warning.
const UNSTEADY: f64 = 0.5;
/// A request that takes more than this many times what the next smaller ones do that it could be cut into was
/// not measured well.
const OUT_OF_LINE: f64 = 2.0;
/// Where the curve counts as flat: this part of the most that was seen.
const FLAT: f64 = 0.9;

/// Measures a storage system for the parameters of the `sfq-d-plus` scheduler.
///
/// Writes a file below the directory and measures, reads and writes apart: the throughput of small requests by
/// how many are outstanding, and the latency of a lone request by its size. The depth is where the
/// first curve flattens (90 % of the most); a request costs as many slots as its latency is times the
/// smallest one's, never more than the small requests it could be cut into, and never more than twice the
/// next smaller ones it could be cut into. Latencies are medians of five passes over all sizes; what was
/// unsteady or out of line is told. Past the page cache where the file system can (O_DIRECT); it says so if
/// not. The outcome's files are the parameters, the figures and both curves.
#[derive(Clone, Debug)]
pub struct Profile {
    /// A directory on the storage system.
    pub dir: PathBuf,
    /// A few seconds instead of most of a minute: rough figures.
    pub quick: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Op {
    Read,
    Write,
}

const OPS: [(&str, Op); 2] = [("reads", Op::Read), ("writes", Op::Write)];

/// The file that is read and written.
struct Target {
    file: File,
    size: u64,
    direct: bool,
}

/// What was found: small requests a second by requests outstanding, and seconds by size.
struct Curves {
    throughput: [Vec<(usize, f64)>; 2],
    latency: [Vec<(usize, f64)>; 2],
    /// The latencies of each pass, fastest first.
    passes: [Vec<Vec<f64>>; 2],
}

impl Experiment for Profile {
    fn run(&self, progress: &dyn Progress) -> Result<Outcome> {
        let (span, size) = match self.quick {
            true => (Duration::from_millis(100), 64 << 20),
            false => (Duration::from_secs(1), 256 << 20),
        };
        progress.begin(OPS.len() * (OUTSTANDING.len() + SIZES.len() * PASSES));
        progress.doing("writing the file");
        let dir = RunDir::create(&self.dir)?;
        let target = Target::create(&dir.path().join("file"), size)?;
        let mut curves = Curves {
            throughput: Default::default(),
            latency: Default::default(),
            passes: [(); 2].map(|()| vec![Vec::new(); SIZES.len()]),
        };
        for (o, (name, op)) in OPS.into_iter().enumerate() {
            for k in OUTSTANDING {
                progress.doing(&format!("4 KiB {name}, {k} outstanding"));
                curves.throughput[o].push((k, target.rate(op, k, span)?));
                progress.advance(1);
            }
            for _ in 0..PASSES {
                for (i, len) in SIZES.into_iter().enumerate() {
                    progress.doing(&format!("{name} of {}", bytes(len as f64)));
                    curves.passes[o][i].push(target.latency(op, len, span / PASSES as u32)?);
                    progress.advance(1);
                }
            }
        }
        curves.settle();
        let mut found = Outcome::default();
        if !target.direct {
            found.line("note: no O_DIRECT here; reads may come from the page cache, writes are synchronous");
        }
        curves.show(&mut found);
        curves.warn(&mut found);
        let line = curves.scheduler()?;
        found.line(format!("scheduler = \"{line}\""));
        let toml = format!(
            "# Measured on {} by `forebay profile`. For `forebay node --config`.\nscheduler = \"{line}\"\n",
            self.dir.display()
        );
        let [throughput, latency] = curves.charts();
        found.file("profile.toml", toml);
        found.file("profile.csv", curves.csv());
        found.file("throughput.svg", throughput);
        found.file("latency.svg", latency);
        Ok(found)
    }
}

impl Curves {
    /// The latencies are the medians of their passes.
    fn settle(&mut self) {
        for (latency, passes) in self.latency.iter_mut().zip(&mut self.passes) {
            passes.iter_mut().for_each(|times| times.sort_by(f64::total_cmp));
            *latency = SIZES.into_iter().zip(passes.iter().map(|times| median(times))).collect();
        }
    }

    /// The parameters, as a line that a node's configuration takes.
    fn scheduler(&self) -> Result<String> {
        let depth = self.throughput.iter().map(|c| depth(c)).max().unwrap_or(1);
        let [(reads, _), (writes, _)] = [slots(&self.latency[0])?, slots(&self.latency[1])?];
        let line = format!("sfq-d-plus:depth={depth},reads={reads},writes={writes}");
        line.parse::<SchedulerConfig>()?;
        Ok(line)
    }

    fn show(&self, found: &mut Outcome) {
        let mut t = Table::new(["4 KiB requests outstanding", "reads/s", "writes/s"]);
        for (i, k) in OUTSTANDING.iter().enumerate() {
            let rate = |o: usize| format!("{:.0}", self.throughput[o][i].1);
            t.row([k.to_string(), rate(0), rate(1)]);
        }
        found.table(t);
        let mut t = Table::new(["size of a request", "read", "write"]);
        for (i, size) in SIZES.iter().enumerate() {
            let time = |o: usize| {
                let (low, high) = (self.passes[o][i][0], self.passes[o][i][PASSES - 1]);
                format!("{} [{}–{}]", seconds(self.latency[o][i].1), seconds(low), seconds(high))
            };
            t.row([bytes(*size as f64), time(0), time(1)]);
        }
        found.table(t);
    }

    /// Names the sizes whose passes disagree, and those that cannot be as slow as they seem.
    fn warn(&self, found: &mut Outcome) {
        for (o, (name, _)) in OPS.iter().enumerate() {
            for (size, time) in slots(&self.latency[o]).map(|(_, doubtful)| doubtful).unwrap_or_default() {
                found.line(format!(
                    "warning: {name} of {} took {}, far more than smaller ones suggest, and count for less; \
                     measure again on a quiet system",
                    bytes(size as f64),
                    seconds(time)
                ));
            }
            for (times, size) in self.passes[o].iter().zip(SIZES) {
                let spread = (times[PASSES - 1] - times[0]) / median(times).max(1e-9);
                if spread > UNSTEADY {
                    found.line(format!(
                        "warning: {name} of {} were unsteady: {} to {} in {PASSES} passes; measure again on a \
                         quiet system",
                        bytes(size as f64),
                        seconds(times[0]),
                        seconds(times[PASSES - 1])
                    ));
                }
            }
        }
    }

    fn csv(&self) -> String {
        let mut text = "curve,operation,x,y\n".to_owned();
        for (o, (name, _)) in OPS.iter().enumerate() {
            for (k, rate) in &self.throughput[o] {
                let _ = writeln!(text, "requests_per_s_by_outstanding,{name},{k},{rate:.2}");
            }
            for (size, time) in &self.latency[o] {
                let _ = writeln!(text, "seconds_by_bytes,{name},{size},{time:.9}");
            }
        }
        text
    }

    fn charts(&self) -> [String; 2] {
        let series = |curves: &[Vec<(usize, f64)>; 2]| -> Vec<Series> {
            let line = |o: usize| Series::new(OPS[o].0, curves[o].iter().map(|(x, y)| (*x as f64, *y)));
            vec![line(0), line(1)]
        };
        let throughput = Line {
            title: "Throughput of 4 KiB requests".into(),
            x: Axis::log2("requests outstanding"),
            y: Axis::linear("requests a second"),
            series: series(&self.throughput),
            ..Line::default()
        };
        let latency = Line {
            title: "Latency of a lone request".into(),
            x: Axis::log2("size").formatted(bytes),
            y: Axis::log10("latency").formatted(seconds),
            series: series(&self.latency),
            ..Line::default()
        };
        [throughput.svg(), latency.svg()]
    }
}

/// Where the throughput flattens.
fn depth(curve: &[(usize, f64)]) -> usize {
    let most = curve.iter().map(|c| c.1).fold(0.0, f64::max);
    curve.iter().find(|c| c.1 >= FLAT * most).map_or(1, |c| c.0)
}

/// How many slots each size costs: its latency over the smallest one's, never falling, never more than the
/// smallest requests that it could be cut into, and not much more than the next smaller ones that it could be
/// cut into. The sizes that were slower than that, and their times.
fn slots(curve: &[(usize, f64)]) -> Result<(SlotCosts, Vec<(usize, f64)>)> {
    let (smallest, base) = curve.first().map_or((SMALL, 1.0), |c| (c.0.max(1), c.1.max(1e-9)));
    let (mut steps, mut doubtful): (Vec<(u64, u32)>, Vec<_>) = (Vec::new(), Vec::new());
    let mut before = (smallest, 1.0);
    for &(size, time) in curve {
        let by_next = before.1 * OUT_OF_LINE * size as f64 / before.0 as f64;
        if time / base > by_next {
            doubtful.push((size, time));
        }
        let most = by_next.min(size as f64 / smallest as f64).max(before.1);
        before = (size, (time / base).clamp(before.1, most));
        let cost = before.1.round() as u32;
        match steps.last_mut() {
            Some(last) if cost <= last.1 => last.0 = size as u64,
            _ => steps.push((size as u64, cost)),
        }
    }
    Ok((SlotCosts::new(steps).map_err(anyhow::Error::msg)?, doubtful))
}

impl Target {
    fn create(path: &Path, size: u64) -> Result<Target> {
        let mut file = File::options().create_new(true).write(true).open(path)?;
        // Not zeros: some storage does not store those.
        let block: Vec<u8> = (0..1usize << 20).map(|i| ((i * 2_654_435_761) >> 7) as u8).collect();
        for _ in 0..size >> 20 {
            std::io::Write::write_all(&mut file, &block).context("cannot write the file")?;
        }
        file.sync_all().context("cannot write the file")?;
        let open = |flags: rustix::fs::OFlags| {
            File::options().read(true).write(true).custom_flags(flags.bits() as i32).open(path)
        };
        let direct = open(rustix::fs::OFlags::DIRECT);
        let (file, direct) = match direct {
            Ok(file) => (file, true),
            Err(_) => (open(rustix::fs::OFlags::DSYNC)?, false),
        };
        Ok(Target { file, size, direct })
    }

    /// Small requests a second with `outstanding` at a time, at random places.
    fn rate(&self, op: Op, outstanding: usize, span: Duration) -> Result<f64> {
        let stop = AtomicBool::new(false);
        let began = Instant::now();
        let worker = |seed: usize| {
            let (mut buffer, mut places) = (Buffer::new(SMALL), Places::new(seed as u64));
            let mut count = 0;
            while !stop.load(Ordering::Relaxed) {
                self.once(op, buffer.bytes(), places.next(self.size, SMALL))?;
                count += 1;
            }
            Ok(count)
        };
        let counts: Vec<Result<u64>> = std::thread::scope(|s| {
            let worker = &worker;
            let threads: Vec<_> = (0..outstanding).map(|i| s.spawn(move || worker(i))).collect();
            std::thread::sleep(span);
            stop.store(true, Ordering::Relaxed);
            threads.into_iter().map(|t| t.join().unwrap_or_else(|_| bail!("a thread failed"))).collect()
        });
        let total = counts.into_iter().sum::<Result<u64>>()?;
        Ok(total as f64 / began.elapsed().as_secs_f64())
    }

    /// The median time of a lone request, in seconds.
    fn latency(&self, op: Op, len: usize, span: Duration) -> Result<f64> {
        let (mut buffer, mut places) = (Buffer::new(len), Places::new(len as u64));
        let (began, mut times) = (Instant::now(), Vec::new());
        while times.is_empty() || began.elapsed() < span {
            let sent = Instant::now();
            self.once(op, buffer.bytes(), places.next(self.size, len))?;
            times.push(sent.elapsed().as_secs_f64());
        }
        Ok(median(&times))
    }

    fn once(&self, op: Op, buffer: &mut [u8], offset: u64) -> Result<()> {
        match op {
            Op::Read => self.file.read_exact_at(buffer, offset).context("cannot read the file"),
            Op::Write => self.file.write_all_at(buffer, offset).context("cannot write the file"),
        }
    }
}

/// Memory that starts where direct I/O wants it.
struct Buffer {
    memory: Vec<u8>,
    start: usize,
    len: usize,
}

impl Buffer {
    fn new(len: usize) -> Buffer {
        let memory = vec![0x5a; len + ALIGN];
        let start = memory.as_ptr().align_offset(ALIGN).min(ALIGN);
        Buffer { memory, start, len }
    }

    fn bytes(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.len]
    }
}

/// Places in the file, the same on every run.
struct Places(u64);

impl Places {
    fn new(seed: u64) -> Places {
        Places(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn next(&mut self, size: u64, len: usize) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        let len = len as u64;
        self.0 % (size / len) * len
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Finding;

    #[test]
    fn depth_is_where_the_curve_flattens() {
        assert_eq!(depth(&[(1, 100.0), (2, 190.0), (4, 350.0), (8, 390.0), (16, 400.0), (32, 380.0)]), 8);
        assert_eq!(depth(&[(1, 100.0), (2, 99.0)]), 1);
    }

    #[test]
    fn slots_follow_latency_and_never_fall() {
        let curve = [(4096, 1e-3), (65536, 1.2e-3), (1 << 20, 2.9e-3), (2 << 20, 2.8e-3), (4 << 20, 11e-3)];
        assert_eq!(slots(&curve).unwrap().0.to_string(), "64KiB:1/2MiB:3/4MiB:11");
        assert!(slots(&curve).unwrap().1.is_empty());
    }

    /// What a storage system measures that takes 10 µs, and 5 µs more for each further 64 KiB.
    fn steady() -> Curves {
        let time = |size: usize| 1e-5 + 5e-6 * (size >> 16) as f64;
        let all = || SIZES.into_iter().map(|size| vec![time(size); PASSES]).collect();
        let throughput = [(); 2].map(|()| OUTSTANDING.into_iter().map(|k| (k, 1e5)).collect());
        let mut curves = Curves { throughput, latency: Default::default(), passes: [all(), all()] };
        curves.settle();
        curves
    }

    fn lines(curves: &Curves) -> Vec<String> {
        let mut found = Outcome::default();
        curves.warn(&mut found);
        found
            .findings
            .iter()
            .filter_map(|f| if let Finding::Line(l) = f { Some(l.clone()) } else { None })
            .collect()
    }

    #[test]
    fn an_outlier_makes_no_nonsense() {
        let plain = steady();
        assert!(lines(&plain).is_empty(), "{:?}", lines(&plain));
        let wanted = plain.scheduler().unwrap();
        assert!(wanted.ends_with("2MiB:17/4MiB:33"), "{wanted}");
        // One pass was interrupted: its median does not move, and it is told.
        let mut once = steady();
        once.passes[0][8][1] = 27.72e-3;
        once.settle();
        assert_eq!(once.scheduler().unwrap(), wanted);
        assert_eq!(lines(&once).len(), 1, "{:?}", lines(&once));
        assert!(
            lines(&once)[0].starts_with("warning: reads of 4 MiB were unsteady: 330"),
            "{:?}",
            lines(&once)
        );
        // All were: a few times what 2 MiB cost, not 2772, and told again.
        let mut always = steady();
        always.passes[0][8].fill(27.72e-3);
        always.settle();
        let costs = slots(&always.latency[0]).unwrap().0.to_string();
        assert!(costs.ends_with("2MiB:17/4MiB:68"), "{costs}");
        assert_eq!(lines(&always).len(), 1, "{:?}", lines(&always));
        assert!(lines(&always)[0].contains("reads of 4 MiB took 27.7"), "{:?}", lines(&always));
        // No time at all, and more than there is.
        assert_eq!(slots(&[(4096, 0.0), (8192, f64::MAX)]).unwrap().0.to_string(), "4KiB:1/8KiB:2");
    }

    #[test]
    fn places_are_aligned_and_inside() {
        let mut places = Places::new(3);
        for _ in 0..10_000 {
            let at = places.next(64 << 20, 4 << 20);
            assert!(at.is_multiple_of(4 << 20) && at + (4 << 20) <= 64 << 20);
        }
    }
}
