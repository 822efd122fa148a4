//! Tuning: phases whose best time windows differ, under every window as it is and
//! under an arbiter that learns.

use super::Experiment;
use super::storage;
use super::workload::Workload;
use crate::fleet::{Arbiter, Fleet};
use crate::machine::{load, wall_clock};
use crate::outcome::{Outcome, Table, csv};
use crate::{Progress, Size};
use anyhow::{Context, Result};
use forebay_control::council::{COUNCIL_PATH, CouncilDecision, CouncilView};
use forebay_embed::RunDir;
use forebay_plot::{Axis, StepSeries, Steps};
use forebay_sched::SchedulerConfig;
use forebay_tune::Arms;
use forebay_types::stats::median;
use forebay_types::{Nanos, OpKind, Pattern, SchedulerSpec};
use std::collections::BTreeMap;
use std::time::Duration;

const NODES: usize = 4;
const PROCESSES: usize = 16;
const INTERVAL_MS: u64 = 100;

/// Learn the time windows (TWINS) while an application runs.
///
/// 16 processes write one shared file contiguously and read a file each, in turns, in requests of
/// 32 KiB, through four I/O node processes on emulated storage whose best windows for the two differ.
/// First under each window as it is; then under an arbiter that learns from the nodes' reports,
/// beginning with the default of 1 ms; then after a restart of the arbiter; then under each window as it
/// is again. Shows what each
/// phase got, and the windows over time. Intervals are 0.1 s here, so that minutes are enough; --full
/// has intervals of 1 s.
#[derive(Clone, Debug, Default)]
pub struct Tuning {
    /// How much to do.
    pub size: Size,
}

const PHASES: [(&str, Pattern, OpKind); 2] =
    [("write", Pattern::SharedContiguous, OpKind::Write), ("read", Pattern::FppContiguous, OpKind::Read)];

/// How long everything takes.
struct Scale {
    interval_ms: u64,
    /// One phase.
    phase: Duration,
    /// Phases of each kind under each window before and as many after, while learning, then judged, and
    /// after the restart.
    fixed: usize,
    learning: usize,
    judged: usize,
    restarted: usize,
}

/// A phase under an arbiter.
struct Played {
    phase: usize,
    from: Nanos,
    to: Nanos,
    rate: f64,
}

struct Bench {
    fleet: Fleet,
    works: Vec<Workload>,
    span: Duration,
}

impl Bench {
    /// MB/s of one phase.
    fn play(&self, phase: usize) -> Result<Played> {
        let connect = |rank: usize| self.fleet.client("tuning", rank * NODES / PROCESSES);
        let from = wall_clock();
        let bytes = self.works[phase].run_for(connect, self.span)?;
        let to = wall_clock();
        Ok(Played { phase, from, to, rate: bytes as f64 / 1e6 / to.since(from).as_secs_f64() })
    }
}

impl Experiment for Tuning {
    fn run(&self, progress: &dyn Progress) -> Result<Outcome> {
        let scale = if self.size == Size::Full {
            let phase = Duration::from_secs(30);
            Scale { interval_ms: 1000, phase, fixed: 2, learning: 20, judged: 5, restarted: 3 }
        } else {
            let phase = Duration::from_secs(5);
            Scale { interval_ms: INTERVAL_MS, phase, fixed: 1, learning: 8, judged: 3, restarted: 2 }
        };
        let arms = Arms::twins_windows();
        let default = arms.all()[arms.default_arm()].clone();
        let dir = RunDir::in_memory()?;
        let settings = storage::shared(storage::DISTINCT, &default, scale.interval_ms)?;
        let port = Arbiter::free_port()?;
        let url = format!("http://127.0.0.1:{port}");
        // The arbiter is started later: the nodes keep trying.
        let fleet = Fleet::start(dir.path(), NODES, &format!("arbiters = [\"{url}\"]\n{settings}"))?;
        let works: Vec<Workload> = PHASES
            .iter()
            .map(|&(_, pattern, op)| Workload {
                pattern,
                op,
                request: 32 << 10,
                processes: PROCESSES,
                pause: Duration::ZERO,
            })
            .collect();
        works.iter().try_for_each(|w| w.prepare(dir.path()))?;
        let bench = Bench { fleet, works, span: scale.phase };

        let tuned = scale.learning + scale.judged + scale.restarted;
        progress.begin(PHASES.len() * (2 * scale.fixed * arms.all().len() + tuned));
        let mut fixed = vec![[const { Vec::new() }; PHASES.len()]; arms.all().len()];
        let mut under_each_window = || -> Result<()> {
            for (arm, config) in arms.all().iter().enumerate() {
                for phase in 0..PHASES.len() {
                    progress.doing(&format!("{}, {}", arms.names()[arm], PHASES[phase].0));
                    bench.fleet.schedule(config)?;
                    fixed[arm][phase].push(bench.play(phase)?.rate);
                    progress.advance(1);
                }
            }
            Ok(())
        };
        for _ in 0..scale.fixed {
            under_each_window()?;
        }
        bench.fleet.schedule(&default)?;

        let tune = "[tune]\nmode = \"on\"\n";
        let mut arbiter = Arbiter::start(&bench.fleet, port, tune)?;
        let mut decisions = BTreeMap::new();
        let mut played = Vec::new();
        for cycle in 0..tuned {
            if cycle == scale.learning + scale.judged {
                arbiter = arbiter.restart(&bench.fleet, tune)?;
            }
            for (phase, what) in PHASES.iter().enumerate() {
                progress.doing(&format!("tuned, {}", what.0));
                played.push(bench.play(phase)?);
                let view: CouncilView = arbiter.api()?.get(COUNCIL_PATH)?;
                decisions.extend(view.decisions.into_iter().map(|d| (d.unix_ms, d)));
                progress.advance(1);
            }
        }
        drop(arbiter);
        // As often after the tuned run as before: what else the machine does may change meanwhile.
        for _ in 0..scale.fixed {
            under_each_window()?;
        }
        let fixed: Vec<[f64; PHASES.len()]> =
            fixed.into_iter().map(|f| f.map(|rates| median(&rates))).collect();
        let mut found = Outcome::default();
        found.line(format!(
            "{PROCESSES} processes, {NODES} I/O nodes, phases of {} s, intervals of {} ms ({})",
            scale.phase.as_secs(),
            scale.interval_ms,
            load()
        ));
        found.line(format!("emulated storage: the model {}", storage::DISTINCT));
        let judged = scale.learning * PHASES.len()..(scale.learning + scale.judged) * PHASES.len();
        let of = |range: std::ops::Range<usize>| -> [f64; PHASES.len()] {
            std::array::from_fn(|phase| {
                median(
                    &played[range.clone()]
                        .iter()
                        .filter(|p| p.phase == phase)
                        .map(|p| p.rate)
                        .collect::<Vec<_>>(),
                )
            })
        };
        let learned = of(judged.clone());
        let after = of(judged.end..played.len());
        judge(&mut found, &arms, &fixed, learned, after);
        let decisions: Vec<CouncilDecision> = decisions.into_values().collect();
        let began = played.first().context("nothing was played")?.from;
        let svg = chart(&arms, &fixed, &decisions, &played, judged.end, began);
        found.figures("tuning", figures(&arms, &fixed, &decisions, &played, began), svg);
        Ok(found)
    }
}

fn best(fixed: &[[f64; PHASES.len()]], value: impl Fn(&[f64; PHASES.len()]) -> f64) -> usize {
    (0..fixed.len()).max_by(|&a, &b| value(&fixed[a]).total_cmp(&value(&fixed[b]))).unwrap_or(0)
}

/// MB/s over a write and a read phase of the same length.
fn overall(rates: &[f64; PHASES.len()]) -> f64 {
    rates.iter().sum::<f64>() / PHASES.len() as f64
}

fn judge(
    found: &mut Outcome,
    arms: &Arms,
    fixed: &[[f64; PHASES.len()]],
    learned: [f64; PHASES.len()],
    after: [f64; PHASES.len()],
) {
    let mut header = vec!["MB/s"];
    header.extend(PHASES.iter().map(|p| p.0));
    header.push("both");
    let mut t = Table::new(header);
    let mut add = |name: &str, rates: &[f64; PHASES.len()]| {
        let mut row = vec![name.to_owned()];
        row.extend(rates.iter().chain([&overall(rates)]).map(|r| format!("{r:.1}")));
        t.row(row);
    };
    for (name, rates) in arms.names().iter().zip(fixed) {
        add(name, rates);
    }
    add("tuned, after learning", &learned);
    add("tuned, arbiter restarted", &after);
    found.table(t);
    let single = overall(&fixed[best(fixed, overall)]);
    for (when, rates) in [("after learning", learned), ("after the restart", after)] {
        for (i, (name, ..)) in PHASES.iter().enumerate() {
            let share = rates[i] / fixed[best(fixed, |f| f[i])][i];
            let line = format!("{name}, {when}: ≥95 % of the best window: {:.1} %", share * 100.0);
            found.judge(line, share >= 0.95);
        }
        let gain = overall(&rates) / single - 1.0;
        let line = format!("{when}: better than the best single window: {:+.1} %", gain * 100.0);
        found.judge(line, gain > 0.0);
    }
}

/// The window of a scheduler in milliseconds.
fn window(spec: &SchedulerSpec) -> f64 {
    match SchedulerConfig::try_from(spec).map(|config| config.algorithm) {
        Ok(forebay_sched::Algorithm::Twins(t)) => t.window.as_secs_f64() * 1e3,
        _ => f64::NAN,
    }
}

fn figures(
    arms: &Arms,
    fixed: &[[f64; PHASES.len()]],
    decisions: &[CouncilDecision],
    played: &[Played],
    began: Nanos,
) -> String {
    let mut rows = Vec::new();
    for (name, rates) in arms.names().iter().zip(fixed) {
        for (phase, rate) in PHASES.iter().zip(rates) {
            rows.push([
                "static".into(),
                String::new(),
                phase.0.into(),
                name.clone(),
                format!("{rate:.3}"),
                String::new(),
            ]);
        }
    }
    for p in played {
        let second = format!("{:.3}", p.from.since(began).as_secs_f64());
        rows.push([
            "phase".into(),
            second,
            PHASES[p.phase].0.into(),
            String::new(),
            format!("{:.3}", p.rate),
            String::new(),
        ]);
    }
    for d in decisions {
        let second = format!("{:.3}", at(d, began));
        let why = d.why.replace('"', "'");
        rows.push(["decision".into(), second, String::new(), d.scheduler.to_string(), String::new(), why]);
    }
    csv(["what", "second", "phase", "scheduler", "mb_per_s", "why"], &rows)
}

fn at(d: &CouncilDecision, began: Nanos) -> f64 {
    d.unix_ms as f64 / 1e3 - began.as_secs_f64()
}

fn chart(
    arms: &Arms,
    fixed: &[[f64; PHASES.len()]],
    decisions: &[CouncilDecision],
    played: &[Played],
    restart: usize,
    began: Nanos,
) -> String {
    let chosen = decisions.iter().map(|d| (at(d, began).max(0.0), window(&d.scheduler)));
    let top = |phase: usize| window(&(&arms.all()[best(fixed, |f| f[phase])]).into());
    let ideal = played.iter().map(|p| (p.from.since(began).as_secs_f64(), top(p.phase)));
    let restarted = played.get(restart).map_or(0.0, |p| p.from.since(began).as_secs_f64());
    Steps {
        title: format!("Windows over time; the arbiter was restarted at {restarted:.0} s"),
        size: forebay_plot::Size::new(1100.0, 380.0),
        x: Axis::linear("seconds"),
        y: Axis::log2("window, ms"),
        series: vec![
            StepSeries { name: "best as it is, for the phase".into(), jumps: ideal.collect() },
            StepSeries { name: "in force".into(), jumps: chosen.collect() },
        ],
        end: played.last().map(|p| p.to.since(began).as_secs_f64()),
        stacked: false,
    }
    .svg()
}
