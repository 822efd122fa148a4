//! Storage profiles: how many requests a storage system takes at once, and what large ones cost.

mod model;
mod rate;

use crate::Progress;
use crate::experiment::Experiment;
use crate::outcome::{Outcome, Table};
use anyhow::{Context, Result};
use forebay_embed::RunDir;
use forebay_plot::{Axis, Line, Series, bytes, seconds};
use forebay_sched::SchedulerConfig;
use forebay_sched::slots::SlotCosts;
use forebay_types::stats::median;
use std::fmt::Write as _;
use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Enough for every file system's and device's direct I/O.
const ALIGN: usize = 4096;
const SMALL: usize = 4 << 10;
const OUTSTANDING: [usize; 7] = [1, 2, 4, 8, 16, 32, 64];
const SIZES: [usize; 9] =
    [4 << 10, 16 << 10, 64 << 10, 128 << 10, 256 << 10, 512 << 10, 1 << 20, 2 << 20, 4 << 20];
/// Passes over all depths, and over all sizes: a hiccup spoils one of them, not the median.
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
/// next smaller ones it could be cut into. Figures are medians of five passes; what was
/// unsteady or out of line is told. Past the page cache where the file system can (O_DIRECT); it says so if
/// not. The outcome's files are the parameters, the figures and both curves.
#[derive(Clone, Debug)]
pub struct Profile {
    /// A directory on the storage system.
    pub dir: PathBuf,
    /// A few seconds instead of most of a minute: rough figures.
    pub quick: bool,
    /// Also fit a storage model, and hold it against scenarios that it was not fitted to.
    pub model: bool,
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

/// One point of a curve: what all passes found, lowest first.
#[derive(Clone, Debug)]
struct Point {
    x: usize,
    passes: Vec<f64>,
}

/// A curve for reads and one for writes.
type Both = [Vec<Point>; 2];

/// What was found: small requests a second by requests outstanding, and seconds by size.
struct Curves {
    throughput: Both,
    latency: Both,
}

impl Point {
    fn y(&self) -> f64 {
        median(&self.passes)
    }

    fn range(&self) -> (f64, f64) {
        (self.passes[0], self.passes[PASSES - 1])
    }

    fn is_unsteady(&self) -> bool {
        let (low, high) = self.range();
        (high - low) / self.y().max(1e-9) > UNSTEADY
    }
}

/// Goes over all of `xs` again and again, so that what lasts for a while touches no point more than the others.
fn measured(xs: &[usize], mut one: impl FnMut(usize) -> Result<f64>) -> Result<Vec<Point>> {
    let mut points: Vec<Point> = xs.iter().map(|&x| Point { x, passes: Vec::new() }).collect();
    for _ in 0..PASSES {
        for p in &mut points {
            p.passes.push(one(p.x)?);
        }
    }
    points.iter_mut().for_each(|p| p.passes.sort_by(f64::total_cmp));
    Ok(points)
}

impl Experiment for Profile {
    fn run(&self, progress: &dyn Progress) -> Result<Outcome> {
        let (span, size) = match self.quick {
            true => (Duration::from_millis(100), 64 << 20),
            false => (Duration::from_secs(1), 256 << 20),
        };
        progress.begin(OPS.len() * (OUTSTANDING.len() + SIZES.len()) * PASSES);
        progress.doing("writing the file");
        let dir = RunDir::create(&self.dir)?;
        let target = Target::create(&dir.path().join("file"), size)?;
        let mut curves = Curves { throughput: Both::default(), latency: Both::default() };
        for (o, (name, op)) in OPS.into_iter().enumerate() {
            curves.throughput[o] = measured(&OUTSTANDING, |k| {
                progress.doing(&format!("4 KiB {name}, {k} outstanding"));
                progress.advance(1);
                target.rate(op, k, SMALL, span / 3)
            })?;
            curves.latency[o] = measured(&SIZES, |len| {
                progress.doing(&format!("{name} of {}", bytes(len as f64)));
                progress.advance(1);
                target.latency(op, len, span / PASSES as u32)
            })?;
        }
        let mut found = Outcome::default();
        if let Some(why) = no_storage(&self.dir)? {
            found.line(format!("warning: {} is {why}, not a storage system", self.dir.display()));
        } else if !target.direct {
            found.line(
                "warning: no O_DIRECT here; reads may come from the page cache, writes are synchronous",
            );
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
        if self.model {
            model::model(&mut found, &target, &curves, dir.path(), progress)?;
        }
        Ok(found)
    }
}

/// What is measured where the files are in memory.
fn no_storage(dir: &Path) -> Result<Option<&'static str>> {
    const TMPFS: u32 = 0x0102_1994;
    const RAMFS: u32 = 0x8584_58f6;
    let kind = rustix::fs::statfs(dir).with_context(|| dir.display().to_string())?.f_type as u32;
    let memory = "memory: what is measured are the processors of this machine";
    Ok([TMPFS, RAMFS].contains(&kind).then_some(memory))
}

impl Curves {
    /// The parameters, as a line that a node's configuration takes.
    fn scheduler(&self) -> Result<String> {
        let depth = self.throughput.iter().map(|c| depth(c)).max().unwrap_or(1);
        let [(reads, _), (writes, _)] = [self.slots(0)?, self.slots(1)?];
        let line = format!("sfq-d-plus:depth={depth},reads={reads},writes={writes}");
        line.parse::<SchedulerConfig>()?;
        Ok(line)
    }

    fn slots(&self, o: usize) -> Result<(SlotCosts, Vec<(usize, f64)>)> {
        slots(&self.latency[o].iter().map(|p| (p.x, p.y())).collect::<Vec<_>>())
    }

    fn show(&self, found: &mut Outcome) {
        let cell = |p: &Point, text: fn(f64) -> String| {
            let (low, high) = p.range();
            format!("{} [{}–{}]", text(p.y()), text(low), text(high))
        };
        let mut table = |header, curves: &Both, x: fn(usize) -> String, y: fn(f64) -> String| {
            let mut t = Table::new(header);
            for (read, write) in curves[0].iter().zip(&curves[1]) {
                t.row([x(read.x), cell(read, y), cell(write, y)]);
            }
            found.table(t);
        };
        let outstanding = ["4 KiB requests outstanding", "reads/s", "writes/s"];
        table(outstanding, &self.throughput, |k| k.to_string(), |rate| format!("{rate:.0}"));
        table(["size of a request", "read", "write"], &self.latency, |size| bytes(size as f64), seconds);
    }

    /// Names the points whose passes disagree, and the sizes that cannot be as slow as they seem.
    fn warn(&self, found: &mut Outcome) {
        for (o, (name, _)) in OPS.iter().enumerate() {
            for p in self.throughput[o].iter().filter(|p| p.is_unsteady()) {
                let (low, high) = p.range();
                found.line(format!(
                    "warning: {name} with {} outstanding were unsteady: {low:.0}/s to {high:.0}/s in {PASSES} \
                     passes; measure again on a quiet system",
                    p.x
                ));
            }
            for (size, time) in self.slots(o).map(|(_, doubtful)| doubtful).unwrap_or_default() {
                found.line(format!(
                    "warning: {name} of {} took {}, far more than smaller ones suggest, and count for less; \
                     measure again on a quiet system",
                    bytes(size as f64),
                    seconds(time)
                ));
            }
            for p in self.latency[o].iter().filter(|p| p.is_unsteady()) {
                let (low, high) = p.range();
                found.line(format!(
                    "warning: {name} of {} were unsteady: {} to {} in {PASSES} passes; measure again on a \
                     quiet system",
                    bytes(p.x as f64),
                    seconds(low),
                    seconds(high)
                ));
            }
        }
    }

    fn csv(&self) -> String {
        let mut text = "curve,operation,x,y,low,high\n".to_owned();
        for (o, (name, _)) in OPS.iter().enumerate() {
            for p in &self.throughput[o] {
                let (x, y, (low, high)) = (p.x, p.y(), p.range());
                let _ = writeln!(text, "requests_per_s_by_outstanding,{name},{x},{y:.2},{low:.2},{high:.2}");
            }
            for p in &self.latency[o] {
                let (x, y, (low, high)) = (p.x, p.y(), p.range());
                let _ = writeln!(text, "seconds_by_bytes,{name},{x},{y:.9},{low:.9},{high:.9}");
            }
        }
        text
    }

    fn charts(&self) -> [String; 2] {
        let series = |curves: &Both| -> Vec<Series> {
            let line = |o: usize| Series::new(OPS[o].0, curves[o].iter().map(|p| (p.x as f64, p.y())));
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
fn depth(curve: &[Point]) -> usize {
    let most = curve.iter().map(Point::y).fold(0.0, f64::max);
    curve.iter().find(|p| p.y() >= FLAT * most).map_or(1, |p| p.x)
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
        let cannot = || format!("cannot write {} to {}", bytes(size as f64), path.display());
        let mut file = File::options().create_new(true).write(true).open(path).with_context(cannot)?;
        // Not zeros: some storage does not store those.
        let block: Vec<u8> = (0..1usize << 20).map(|i| ((i * 2_654_435_761) >> 7) as u8).collect();
        for _ in 0..size >> 20 {
            std::io::Write::write_all(&mut file, &block).with_context(cannot)?;
        }
        file.sync_all().with_context(cannot)?;
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

    /// Requests of `len` bytes a second with `outstanding` at a time, at random places.
    fn rate(&self, op: Op, outstanding: usize, len: usize, span: Duration) -> Result<f64> {
        rate::rate(outstanding, span, |seed| {
            let (mut buffer, mut places) = (Buffer::new(len), Places::new(seed as u64));
            move || self.once(op, buffer.bytes(), places.next(self.size, len))
        })
    }

    /// The median time of a lone request at random places, in seconds.
    fn latency(&self, op: Op, len: usize, span: Duration) -> Result<f64> {
        let mut places = Places::new(len as u64);
        self.lone(op, len, span, || places.next(self.size, len))
    }

    /// The same of requests that begin `stride` bytes apart.
    fn stepping(&self, op: Op, len: usize, stride: u64, span: Duration) -> Result<f64> {
        let mut at = 0;
        self.lone(op, len, span, || {
            at = (at + stride) % (self.size - len as u64);
            at - at % len as u64
        })
    }

    fn lone(&self, op: Op, len: usize, span: Duration, mut place: impl FnMut() -> u64) -> Result<f64> {
        let mut buffer = Buffer::new(len);
        let (began, mut times) = (Instant::now(), Vec::new());
        while times.is_empty() || began.elapsed() < span {
            let sent = Instant::now();
            self.once(op, buffer.bytes(), place())?;
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
        let curve = |points: &[(usize, f64)]| depth(&same_in_all_passes(points));
        assert_eq!(curve(&[(1, 100.0), (2, 190.0), (4, 350.0), (8, 390.0), (16, 400.0), (32, 380.0)]), 8);
        assert_eq!(curve(&[(1, 100.0), (2, 99.0)]), 1);
    }

    #[test]
    fn slots_follow_latency_and_never_fall() {
        let curve = [(4096, 1e-3), (65536, 1.2e-3), (1 << 20, 2.9e-3), (2 << 20, 2.8e-3), (4 << 20, 11e-3)];
        assert_eq!(slots(&curve).unwrap().0.to_string(), "64KiB:1/2MiB:3/4MiB:11");
        assert!(slots(&curve).unwrap().1.is_empty());
    }

    fn same_in_all_passes(points: &[(usize, f64)]) -> Vec<Point> {
        points.iter().map(|&(x, y)| Point { x, passes: vec![y; PASSES] }).collect()
    }

    /// What a storage system measures that takes 10 µs, and 5 µs more for each further 64 KiB, and eight at once.
    fn steady() -> Curves {
        let time = |size: usize| 1e-5 + 5e-6 * (size >> 16) as f64;
        let latency = same_in_all_passes(&SIZES.map(|size| (size, time(size))));
        let throughput = same_in_all_passes(&OUTSTANDING.map(|k| (k, 1e5 * k.min(8) as f64)));
        Curves { throughput: [throughput.clone(), throughput], latency: [latency.clone(), latency] }
    }

    /// One pass of a point was this instead.
    fn spoil(point: &mut Point, by: f64) {
        point.passes[1] = by;
        point.passes.sort_by(f64::total_cmp);
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
        spoil(&mut once.latency[0][8], 27.72e-3);
        assert_eq!(once.scheduler().unwrap(), wanted);
        assert_eq!(lines(&once).len(), 1, "{:?}", lines(&once));
        assert!(
            lines(&once)[0].starts_with("warning: reads of 4 MiB were unsteady: 330"),
            "{:?}",
            lines(&once)
        );
        // All were: a few times what 2 MiB cost, not 2772, and told again.
        let mut always = steady();
        always.latency[0][8].passes.fill(27.72e-3);
        let costs = always.slots(0).unwrap().0.to_string();
        assert!(costs.ends_with("2MiB:17/4MiB:68"), "{costs}");
        assert_eq!(lines(&always).len(), 1, "{:?}", lines(&always));
        assert!(lines(&always)[0].contains("reads of 4 MiB took 27.7"), "{:?}", lines(&always));
        // No time at all, and more than there is.
        assert_eq!(slots(&[(4096, 0.0), (8192, f64::MAX)]).unwrap().0.to_string(), "4KiB:1/8KiB:2");
    }

    /// Stopped for a while, or faster than can be, at any depth: the depth stays, and it is told where.
    #[test]
    fn an_outlier_does_not_move_the_depth() {
        let wanted = steady().scheduler().unwrap();
        assert!(wanted.starts_with("sfq-d-plus:depth=8,"), "{wanted}");
        for (i, k) in OUTSTANDING.into_iter().enumerate() {
            for by in [3049.0, 1e7] {
                let mut once = steady();
                spoil(&mut once.throughput[0][i], by);
                assert_eq!(once.scheduler().unwrap(), wanted, "{by}/s with {k} outstanding");
                let told = format!("warning: reads with {k} outstanding were unsteady: ");
                assert!(matches!(&lines(&once)[..], [one] if one.starts_with(&told)), "{:?}", lines(&once));
            }
        }
    }

    /// Every point is measured as often as the others, each time among them.
    #[test]
    fn passes_take_turns() {
        let mut order = Vec::new();
        let points = measured(&[1, 2], |x| {
            order.push(x);
            Ok(-(order.len() as f64))
        });
        assert_eq!(order, [1, 2, 1, 2, 1, 2, 1, 2, 1, 2]);
        assert_eq!(points.unwrap()[1].passes, [-10.0, -8.0, -6.0, -4.0, -2.0]);
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
