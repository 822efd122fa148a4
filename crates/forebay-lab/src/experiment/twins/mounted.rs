//! Time windows on a real parallel file system: every window, arrival order, round robin, and without forwarding; one
//! application, and two at a time.

use super::super::blocks::{Order, Pattern, Work};
use super::super::gluster::{Caches, Open};
use super::super::testbed::Testbed;
use super::{NODES, REQUEST, SCHEDULERS, short};
use crate::machine::load;
use crate::outcome::{Judgement, Outcome, Table, csv};
use crate::{Progress, Size};
use anyhow::{Context, Result, bail};
use forebay_embed::RunDir;
use forebay_explore::stats::{mean, t_interval};
use forebay_plot::{Axis, BarSeries, Bars};
use forebay_types::OpKind;
use forebay_types::stats::median;
use std::path::PathBuf;

/// A mounted parallel file system.
#[derive(Clone, Debug)]
pub struct Mounted {
    /// A directory on it, as compute nodes see it.
    pub mount: PathBuf,
    /// The same directory on a mount of the I/O nodes' own.
    pub node_mount: Option<PathBuf>,
    /// The same directory on a mount through which is written what is to be read.
    pub other_mount: Option<PathBuf>,
    /// Where its servers store, if they are on this machine: their caches are dropped, too.
    pub bricks: Option<PathBuf>,
    /// Lines of the I/O nodes' configuration: who is asked where a file's parts are.
    pub layout: String,
}

/// Without I/O nodes, and then by scheduler.
const WAYS: usize = SCHEDULERS.len() + 1;

fn way_name(way: usize) -> &'static str {
    if way == 0 { "direct" } else { SCHEDULERS[way - 1] }
}

/// One application of all processes, or of half of them: alone, and beside another one.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Apps {
    One,
    Alone,
    Two,
}

const fn of(shared: bool, order: Order) -> Pattern {
    Pattern { shared, order }
}
/// The paper's three patterns; and its two applications, which are both 1D-strided.
const PATTERNS: [(&str, Apps, Pattern); 5] = [
    ("shared contiguous", Apps::One, of(true, Order::Contiguous)),
    ("shared 1D-strided", Apps::One, of(true, Order::Strided)),
    ("file per process", Apps::One, of(false, Order::Contiguous)),
    ("half, alone", Apps::Alone, of(true, Order::Strided)),
    ("half, beside another", Apps::Two, of(true, Order::Strided)),
];
const OPS: [(&str, OpKind); 2] = [("read", OpKind::Read), ("write", OpKind::Write)];
const CASES: usize = PATTERNS.len() * OPS.len();

fn case(c: usize) -> (String, Apps, Pattern, OpKind) {
    let ((name, apps, pattern), (verb, op)) = (PATTERNS[c % PATTERNS.len()], OPS[c / PATTERNS.len()]);
    (format!("{name}, {verb}"), apps, pattern, op)
}

/// What was measured: MB/s of an application (of two, the mean), and the mean size of what left the I/O nodes.
#[derive(Clone, Copy)]
struct Seen {
    rate: f64,
    kib: f64,
}

/// What an application does with a file.
struct Blocks {
    pattern: Pattern,
    processes: usize,
    steps: usize,
}

impl Blocks {
    fn on<'a>(&self, file: &'a str) -> Work<'a> {
        let Blocks { pattern, processes, steps } = *self;
        Work { pattern, processes, request: REQUEST, steps, file }
    }
}

/// The I/O nodes and the mounts.
struct Ground {
    testbed: Testbed,
    mount: PathBuf,
    other: PathBuf,
    caches: Caches,
    _dir: RunDir,
}

impl Ground {
    fn start(on: &Mounted) -> Result<Ground> {
        let dir = RunDir::create(&on.mount)?;
        let name = dir.path().file_name().context("a temporary directory has a name")?.to_owned();
        let below = |mount: &Option<PathBuf>| mount.as_ref().unwrap_or(&on.mount).join(&name);
        let (nodes, other) = (below(&on.node_mount), below(&on.other_mount));
        let mut dirs = vec![dir.path().to_owned(), nodes.clone(), other.clone()];
        dirs.dedup();
        Ok(Ground {
            testbed: Testbed::on(&nodes, NODES, &on.layout)?,
            mount: dir.path().to_owned(),
            other,
            caches: Caches { dirs, bricks: on.bricks.clone() },
            _dir: dir,
        })
    }

    /// Opens a file in this way; neighbours share an I/O node.
    fn open(&self, way: usize, name: &str, rank: usize, processes: usize) -> Result<Open> {
        match way {
            0 => Open::directly(&self.mount, name),
            _ => Open::through(self.testbed.client("twins", rank * NODES / processes)?, name),
        }
    }

    /// One measurement, of files of its own. Every block is checked: what is written is read past the I/O nodes.
    fn measure(&self, way: usize, c: usize, round: usize, scale: (usize, usize)) -> Result<Seen> {
        let (_, apps, pattern, op) = case(c);
        let (count, processes) = match apps {
            Apps::One => (1, scale.0),
            Apps::Alone => (1, scale.0 / 2),
            Apps::Two => (2, scale.0 / 2),
        };
        let files: Vec<String> = (0..count).map(|app| format!("{c}-{round}-{way}-{app}")).collect();
        let work = Blocks { pattern, processes, steps: scale.1 };
        let past = |name: &str, _| Open::directly(&self.other, name);
        if op == OpKind::Read {
            for file in &files {
                work.on(file).go(&past, OpKind::Write)?;
                work.on(file).drop_pages(&self.caches)?;
            }
        }
        let before = self.testbed.issued(op)?;
        let go = |file: &String| {
            let work = work.on(file);
            let took = work.go(&|name: &str, rank| self.open(way, name, rank, processes), op)?;
            anyhow::Ok(work.rate(took))
        };
        let rates: Vec<Result<f64>> = std::thread::scope(|s| {
            let go = &go;
            let apps: Vec<_> = files.iter().map(|f| s.spawn(move || go(f))).collect();
            apps.into_iter().map(|a| a.join().unwrap_or_else(|_| bail!("an application failed"))).collect()
        });
        let rates = rates.into_iter().collect::<Result<Vec<_>>>()?;
        let after = self.testbed.issued(op)?;
        for file in &files {
            if op == OpKind::Write {
                work.on(file).go(&past, OpKind::Read)?;
            }
            work.on(file).remove(&self.mount)?;
        }
        let calls = (after.0 - before.0).max(1) as f64;
        Ok(Seen { rate: mean(&rates), kib: (after.1 - before.1) / calls / 1024.0 })
    }
}

/// All repetitions of all cases in all ways.
pub(super) fn run(on: &Mounted, size: Size, repeat: usize, progress: &dyn Progress) -> Result<Outcome> {
    let scale = size.choose((4, 8), (16, 32), (128, 1024));
    let repeat = size.choose(1, repeat.max(1), repeat.max(1));
    let ground = Ground::start(on)?;
    progress.begin(repeat * CASES * WAYS);
    let mut seen = vec![[const { Vec::new() }; WAYS]; CASES];
    let mut rows = Vec::new();
    for round in 0..repeat {
        for (c, of_case) in seen.iter_mut().enumerate() {
            // Each repetition begins with another way, so that none always follows the same one.
            for i in 0..WAYS {
                let way = (i + round * 3) % WAYS;
                progress.doing(&format!("{}, {}", case(c).0, way_name(way)));
                if way > 0 {
                    ground.testbed.schedule(way_name(way))?;
                }
                let found = ground.measure(way, c, round, scale)?;
                rows.push([
                    case(c).0.replace(',', ""),
                    way_name(way).into(),
                    round.to_string(),
                    format!("{:.3}", found.rate),
                    if way == 0 { String::new() } else { format!("{:.1}", found.kib) },
                ]);
                of_case[way].push(found);
                progress.advance(1);
            }
        }
    }
    let mut found = Outcome::default();
    found.line(format!(
        "MB/s of an application, medians of {repeat}: {} processes (two applications: half of them each), {} requests of 32 KiB \
         each, every block checked, {NODES} I/O nodes ({})",
        scale.0,
        scale.1,
        load()
    ));
    tell(&mut found, &seen);
    let header = ["pattern", "scheduler", "repetition", "mb_per_s", "kib_leaving"];
    found.figures("twins", csv(header, &rows), chart(&seen));
    Ok(found)
}

fn rates(seen: &[Seen]) -> Vec<f64> {
    seen.iter().map(|s| s.rate).collect()
}

/// How many times as much as another way, repetition by repetition, with an interval of this level.
fn times(of: &[Seen], than: &[Seen], level: f64) -> (f64, f64, f64) {
    let logs: Vec<f64> = of.iter().zip(than).map(|(a, b)| (a.rate / b.rate).ln()).collect();
    let interval = t_interval(&logs, level);
    let (low, high) = interval.map_or((0.0, f64::INFINITY), |i| (i.low.exp(), i.high.exp()));
    (mean(&logs).exp(), low, high)
}

/// The way with the highest median of these.
fn best(row: &[Vec<Seen>; WAYS], ways: std::ops::Range<usize>) -> usize {
    let by_median = |a: &usize, b: &usize| median(&rates(&row[*a])).total_cmp(&median(&rates(&row[*b])));
    ways.max_by(by_median).unwrap_or(1)
}

/// Arrival order and round robin, and the windows, among the ways.
const WITHOUT: std::ops::Range<usize> = 1..3;
const WINDOWS: std::ops::Range<usize> = 3..WAYS;
/// Of seven windows the best is taken: an interval of 95 % for all seven together.
const LEVEL: f64 = 1.0 - 0.05 / 7.0;

fn tell(found: &mut Outcome, seen: &[[Vec<Seen>; WAYS]]) {
    let cell = |(times, low, high): (f64, f64, f64)| match high.is_finite() {
        true => format!("{times:.2} × ({low:.2}–{high:.2})"),
        false => format!("{times:.2} ×"),
    };
    let mut medians =
        Table::new(["MB/s".to_owned()].into_iter().chain((0..WAYS).map(|w| short(way_name(w)).to_owned())));
    let mut against = Table::new([
        "",
        "best window",
        "against the better of fifo and hbrr",
        "the better of those against direct",
        "KiB leaving, fifo",
        "hbrr",
        "best window",
    ])
    .words("best window");
    let (mut gains, mut losses, mut shared) = (0, 0, Vec::new());
    for (c, row) in seen.iter().enumerate() {
        let (name, apps, pattern, op) = case(c);
        let of_way = |w: usize| format!("{:.1}", median(&rates(&row[w])));
        medians.row([name.clone()].into_iter().chain((0..WAYS).map(of_way)));
        let (base, window) = (best(row, WITHOUT), best(row, WINDOWS));
        let gain = times(&row[window], &row[base], LEVEL);
        gains += u32::from(gain.1 > 1.0);
        losses += u32::from(gain.2 < 1.0);
        if op == OpKind::Read && pattern.shared && apps == Apps::One {
            shared.push(gain);
        }
        let kib = |w: usize| format!("{:.0}", median(&row[w].iter().map(|s| s.kib).collect::<Vec<_>>()));
        against.row([
            name,
            short(way_name(window)).to_owned(),
            cell(gain),
            cell(times(&row[base], &row[0], 0.95)),
            kib(1),
            kib(2),
            kib(window),
        ]);
    }
    found.table(medians);
    found.table(against);
    let mut interference = Table::new(
        ["times as long beside another".to_owned()]
            .into_iter()
            .chain((0..WAYS).map(|w| short(way_name(w)).to_owned())),
    );
    for (o, (verb, _)) in OPS.iter().enumerate() {
        let (alone, two) = (&seen[o * PATTERNS.len() + 3], &seen[o * PATTERNS.len() + 4]);
        let factor = |w: usize| format!("{:.2}", times(&alone[w], &two[w], 0.95).0);
        interference.row([(*verb).to_owned()].into_iter().chain((0..WAYS).map(factor)));
    }
    found.table(interference);
    found.line(format!(
        "the best window is faster than both others in {gains} of {CASES} cases, slower in {losses}; for the rest it cannot be told"
    ));
    let most = shared.iter().map(|g| g.0).fold(0.0, f64::max);
    let judgement = match shared.iter().all(|g| g.2.is_infinite()) {
        true => Judgement::Unclear,
        false if shared.iter().any(|g| g.1 > 1.0) => Judgement::Met,
        false if shared.iter().all(|g| g.2 < 1.15) => Judgement::NotMet,
        false => Judgement::Unclear,
    };
    found.judged(
        format!("a window beats fifo and hbrr on shared-file reads: {:+.0} % at most", (most - 1.0) * 100.0),
        judgement,
    );
}

fn chart(seen: &[[Vec<Seen>; WAYS]]) -> String {
    let series =
        (0..WAYS).map(|w| BarSeries::new(short(way_name(w)), seen.iter().map(|row| median(&rates(&row[w])))));
    Bars {
        title: "On a mounted file system, directly and through four I/O nodes".into(),
        size: forebay_plot::Size::new(1100.0, 460.0),
        categories: (0..CASES).map(|c| case(c).0).collect(),
        y: Axis::linear("MB/s of an application"),
        series: series.collect(),
        ..Bars::default()
    }
    .svg()
}
