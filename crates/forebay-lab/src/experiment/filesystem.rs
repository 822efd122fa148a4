//! A real parallel file system, directly and through I/O nodes: six access patterns, reads and writes, request
//! size by request size.

use super::Experiment;
use super::blocks::{Order, Pattern, Work};
use super::gluster::{Caches, Gluster, Open, PROCESSES, Way};
use crate::machine::load;
use crate::outcome::{Judgement, Outcome, Table, csv};
use crate::{Progress, Size};
use anyhow::{Context, Result};
use forebay_embed::RunDir;
use forebay_explore::stats::{mean, t_interval};
use forebay_plot::{Axis, BarSeries, Bars};
use forebay_types::OpKind;
use std::path::PathBuf;

/// Forwarded against direct on a mounted parallel file system, in six access patterns.
///
/// Eight clients write and read one shared file or a file each, contiguously, strided or at random. Every block is
/// checked, each page of it. Ways are interleaved within every repetition, each on files of its own; what is read
/// was written through another mount and dropped from all caches that can be reached. Shows the bandwidth of direct
/// access, and how many times as much the I/O nodes give, with 95 % intervals over the repetitions.
#[derive(Clone, Debug)]
pub struct RealFileSystem {
    /// How much to do.
    pub size: Size,
    /// A directory on the file system, as compute nodes see it.
    pub mount: PathBuf,
    /// The same directory on mounts of the I/O nodes' own.
    pub node_mounts: Vec<PathBuf>,
    /// The same directory on a mount through which is written what is to be read.
    pub other_mount: Option<PathBuf>,
    /// Where its servers store, if they are on this machine: their caches are dropped, too.
    pub bricks: Option<PathBuf>,
    /// Bytes of a request.
    pub requests: Vec<u64>,
    /// Ways through an I/O node: how it schedules, and how many requests it has at the file system at once.
    pub ways: Vec<(String, usize)>,
    /// Repetitions.
    pub repeat: usize,
}

impl Default for RealFileSystem {
    fn default() -> RealFileSystem {
        RealFileSystem {
            size: Size::Small,
            mount: PathBuf::from("."),
            node_mounts: Vec::new(),
            other_mount: None,
            bricks: None,
            requests: vec![32 << 10, 256 << 10, 1 << 20],
            ways: vec![("fifo".into(), 8), ("aioli:wait=3ms".into(), 1)],
            repeat: 5,
        }
    }
}

const PATTERNS: [Pattern; 6] = {
    const fn of(shared: bool, order: Order) -> Pattern {
        Pattern { shared, order }
    }
    [
        of(true, Order::Contiguous),
        of(true, Order::Strided),
        of(true, Order::Random),
        of(false, Order::Contiguous),
        of(false, Order::Strided),
        of(false, Order::Random),
    ]
};

/// One measurement.
struct Cell {
    way: usize,
    pattern: usize,
    request: u64,
    op: OpKind,
    round: usize,
    rate: f64,
}

impl RealFileSystem {
    fn names(&self) -> Vec<String> {
        let node = |(scheduler, dispatchers): &(String, usize)| format!("{scheduler} ({dispatchers})");
        std::iter::once("direct".to_owned()).chain(self.ways.iter().map(node)).collect()
    }

    fn start(&self, name: &std::ffi::OsStr) -> Result<Vec<Way>> {
        let of = |(scheduler, dispatchers): &(String, usize), nodes| {
            let args = Gluster {
                mount: self.mount.clone(),
                node_mounts: self.node_mounts.clone(),
                scheduler: scheduler.clone(),
                dispatchers: *dispatchers,
                ..Gluster::default()
            };
            Way::start(nodes, name, &args)
        };
        let direct = (String::new(), 0);
        std::iter::once((&direct, 0)).chain(self.ways.iter().map(|w| (w, 1))).map(|(w, n)| of(w, n)).collect()
    }
}

impl Experiment for RealFileSystem {
    fn run(&self, progress: &dyn Progress) -> Result<Outcome> {
        let dir = RunDir::create(&self.mount)?;
        let name = dir.path().file_name().context("a temporary directory has a name")?;
        let mounts = std::iter::once(&self.mount).chain(&self.node_mounts).chain(&self.other_mount);
        let caches = Caches { dirs: mounts.map(|m| m.join(name)).collect(), bricks: self.bricks.clone() };
        let before = self.other_mount.as_ref().unwrap_or(&self.mount).join(name);
        let ways = self.start(name)?;
        let past = |name: &str, _| Open::directly(&before, name);
        let repeat = self.size.choose(1, self.repeat.max(1), self.repeat.max(1));
        progress.begin(self.requests.len() * PATTERNS.len() * repeat);
        let mut cells = Vec::new();
        for &request in &self.requests {
            // The same volume for all sizes, as far as that leaves a process eight requests.
            let volume = self.size.choose(1 << 20, 8 << 20, 128 << 20) as u64;
            let steps = (volume / request / PROCESSES as u64).next_power_of_two().max(8) as usize;
            for (p, pattern) in PATTERNS.iter().enumerate() {
                for round in 0..repeat {
                    progress.doing(&format!("{} in {} KiB", pattern.name(), request >> 10));
                    for i in 0..ways.len() {
                        let way = (i + round) % ways.len();
                        for op in [OpKind::Write, OpKind::Read] {
                            let file = format!("{request}-{p}-{round}-{way}-{op:?}");
                            let work = Work {
                                pattern: *pattern,
                                processes: PROCESSES,
                                request: request as usize,
                                steps,
                                file: &file,
                            };
                            if op == OpKind::Read {
                                work.go(&past, OpKind::Write)?;
                                work.drop_pages(&caches)?;
                            }
                            let took =
                                work.go(&|name: &str, rank| ways[way].open(dir.path(), name, rank), op)?;
                            let rate = work.rate(took);
                            cells.push(Cell { way, pattern: p, request, op, round, rate });
                            if op == OpKind::Write {
                                // What came through the I/O nodes is read past them.
                                work.go(&past, OpKind::Read)?;
                            }
                            work.remove(dir.path())?;
                        }
                    }
                    progress.advance(1);
                }
            }
        }
        Ok(self.outcome(&cells, repeat))
    }
}

impl RealFileSystem {
    fn outcome(&self, cells: &[Cell], repeat: usize) -> Outcome {
        let ways = self.names();
        let mut found = Outcome::default();
        found.line(format!(
            "{PROCESSES} clients, {repeat} repetitions, every block checked; times direct with 95 % intervals ({})",
            load()
        ));
        let mut header = vec!["pattern".to_owned(), "KiB".into(), "operation".into(), "direct MB/s".into()];
        header.extend(ways.iter().skip(1).map(|w| w.replace(' ', "\n")));
        let mut table = Table::new(header).words("operation");
        let (mut better, mut worse, mut rows) = (0, 0, Vec::new());
        let mut bars: Vec<Vec<f64>> = vec![Vec::new(); ways.len() - 1];
        let mut categories = Vec::new();
        for &request in &self.requests {
            for (p, pattern) in PATTERNS.iter().enumerate() {
                for op in [OpKind::Write, OpKind::Read] {
                    let rates = |way: usize| -> Vec<f64> {
                        let of = |c: &&Cell| (c.way, c.pattern, c.request, c.op) == (way, p, request, op);
                        cells.iter().filter(of).map(|c| c.rate).collect()
                    };
                    let (name, direct) = (format!("{op:?}").to_lowercase(), rates(0));
                    let mut row = vec![
                        pattern.name(),
                        (request >> 10).to_string(),
                        name.clone(),
                        format!("{:.1}", mean(&direct)),
                    ];
                    categories.push(format!("{} {} {name}", pattern.name(), request >> 10));
                    for way in 1..ways.len() {
                        // Ratios of what was measured side by side, in logarithms: twice and half are as far.
                        let logs: Vec<f64> =
                            rates(way).iter().zip(&direct).map(|(a, b)| (a / b).ln()).collect();
                        let times = mean(&logs).exp();
                        let interval = t_interval(&logs, 0.95);
                        let (low, high) =
                            interval.map_or((0.0, f64::INFINITY), |i| (i.low.exp(), i.high.exp()));
                        better += u32::from(low > 1.0);
                        worse += u32::from(high < 1.0);
                        row.push(format!("{times:.2} × ({low:.2}–{high:.2})"));
                        bars[way - 1].push(times);
                    }
                    table.row(row);
                }
            }
        }
        found.table(table);
        let all = categories.len() * (ways.len() - 1);
        found.line(format!(
            "forwarding is faster in {better} of {all}, slower in {worse}, for the rest it cannot be told"
        ));
        // Where nothing can be told, nothing was shown.
        let judgement = if better + worse == 0 { Judgement::Unclear } else { Judgement::of(worse == 0) };
        found.judged(format!("forwarding is slower nowhere: in {worse} of {all}"), judgement);
        for c in cells {
            rows.push([
                ways[c.way].clone(),
                PATTERNS[c.pattern].name(),
                (c.request >> 10).to_string(),
                format!("{:?}", c.op).to_lowercase(),
                c.round.to_string(),
                format!("{:.3}", c.rate),
            ]);
        }
        let chart = Bars {
            title: "Through I/O nodes against direct".into(),
            categories,
            y: Axis::log10("times the bandwidth"),
            series: ways.iter().skip(1).zip(bars).map(|(w, b)| BarSeries::new(w, b)).collect(),
            ..Bars::default()
        };
        let header = ["way", "pattern", "request_kib", "operation", "repetition", "mb_per_s"];
        found.figures("filesystem", csv(header, &rows), chart.svg());
        found
    }
}
