//! Phases: an application whose access pattern changes, and what the shipped
//! detector makes of every second of it.

use super::Experiment;
use super::workload::Workload;
use crate::fleet::Fleet;
use crate::machine::{load, wall_clock};
use crate::outcome::{Outcome, Table, csv};
use crate::{Progress, Size};
use anyhow::Result;
use forebay_embed::RunDir;
use forebay_pattern::{Detection, Model};
use forebay_plot::{Axis, Gantt, Hold};
use forebay_types::{Nanos, OpKind, Pattern};
use std::time::Duration;

const NODES: usize = 2;
const PROCESSES: usize = 16;
/// The application computes between its phases.
const PAUSE: Duration = Duration::from_millis(1300);
/// A second in which a node moved less has no load.
const LOADED: u64 = 1 << 20;

/// Label every second of an application whose access pattern changes.
///
/// 16 processes go through phases of I/O (a file each, one shared file contiguously, 1D-strided and at
/// random; reads and writes of several sizes) with pauses between them, through two I/O node processes
/// with intervals of 1 s. The model that ships with the program labels each I/O node's every second
/// that has load; shows how many labels are right, and a timeline.
#[derive(Clone, Debug, Default)]
pub struct Phases {
    /// How much to do.
    pub size: Size,
}

const PHASES: [(Pattern, OpKind, usize); 8] = [
    (Pattern::FppContiguous, OpKind::Write, 128 << 10),
    (Pattern::SharedStrided, OpKind::Read, 32 << 10),
    (Pattern::SharedContiguous, OpKind::Read, 64 << 10),
    (Pattern::Random, OpKind::Read, 64 << 10),
    (Pattern::SharedContiguous, OpKind::Write, 512 << 10),
    (Pattern::SharedStrided, OpKind::Write, 48 << 10),
    (Pattern::FppContiguous, OpKind::Read, 256 << 10),
    (Pattern::Random, OpKind::Write, 8 << 10),
];

/// A phase as it was played.
struct Phase {
    what: Workload,
    from: Nanos,
    to: Nanos,
}

/// A node's second under load.
struct Second {
    node: usize,
    phase: usize,
    from: Nanos,
    to: Nanos,
    bytes: u64,
    detected: Detection,
}

impl Experiment for Phases {
    fn run(&self, progress: &dyn Progress) -> Result<Outcome> {
        let span = Duration::from_secs(self.size.full_or(30, 6));
        let dir = RunDir::in_memory()?;
        let fleet = Fleet::start(dir.path(), NODES, "interval-ms = 1000")?;
        let model = Model::builtin();
        progress.begin(PHASES.len());
        let (mut phases, mut seconds) = (Vec::new(), Vec::new());
        let began = wall_clock();
        for (number, (pattern, op, request)) in PHASES.into_iter().enumerate() {
            let what =
                Workload { pattern, op, request, processes: PROCESSES, pause: Duration::from_millis(2) };
            progress.doing(&what.name());
            what.prepare(dir.path())?;
            let from = wall_clock();
            what.run_for(|rank| fleet.client("phases", rank * NODES / PROCESSES), span)?;
            phases.push(Phase { what, from, to: wall_clock() });
            // Long enough that no second has two phases in it, and that the last one has ended.
            std::thread::sleep(PAUSE);
            seconds.extend(label(&fleet, &model, number, from)?);
            progress.advance(1);
        }
        let mut found = Outcome::default();
        found.line(format!(
            "{PROCESSES} processes, {NODES} I/O nodes, {} phases of {} s; model: {} ({})",
            PHASES.len(),
            span.as_secs(),
            model.trained_on,
            load()
        ));
        judge(&mut found, &phases, &seconds);
        let rows: Vec<[String; 8]> = seconds.iter().map(|s| row(&phases, s, began)).collect();
        let header =
            ["second", "node", "phase", "operation", "pattern", "detected", "probability", "mb_per_s"];
        found.figures("phases", csv(header, &rows), timeline(&phases, &seconds, began));
        Ok(found)
    }
}

/// The nodes' loaded seconds of the phase that began at `from` and is over.
fn label(fleet: &Fleet, model: &Model, phase: usize, from: Nanos) -> Result<Vec<Second>> {
    let mut seconds = Vec::new();
    // The interval in which the phase began counts too; what was before it is silence.
    let since = Nanos(from.0.saturating_sub(Nanos::from(PAUSE).0));
    for node in 0..fleet.len() {
        for interval in fleet.intervals(node, since)?.iter().filter(|i| i.end > from) {
            for flow in interval.flows.iter().filter(|f| f.bytes() >= LOADED) {
                let (from, to) = (interval.start, interval.end);
                let detected = model.detect(flow);
                seconds.push(Second { node, phase, from, to, bytes: flow.bytes(), detected });
            }
        }
    }
    Ok(seconds)
}

fn judge(found: &mut Outcome, phases: &[Phase], seconds: &[Second]) {
    let mut t = Table::new(["phase", "loaded seconds", "labelled right", "MB/s"]);
    for (i, phase) in phases.iter().enumerate() {
        let mine: Vec<&Second> = seconds.iter().filter(|s| s.phase == i).collect();
        let right = mine.iter().filter(|s| s.detected.pattern == phase.what.pattern).count();
        let bytes: u64 = mine.iter().map(|s| s.bytes).sum();
        let rate = bytes as f64 / 1e6 / phase.to.since(phase.from).as_secs_f64();
        t.row([phase.what.name(), mine.len().to_string(), right.to_string(), format!("{rate:.0}")]);
    }
    found.table(t);
    let right = seconds.iter().filter(|s| s.detected.pattern == phases[s.phase].what.pattern).count();
    let share = right as f64 / seconds.len().max(1) as f64;
    let line = format!(
        "≥95 % of the loaded seconds labelled right: {right} of {}, {:.1} %",
        seconds.len(),
        share * 100.0
    );
    found.judge(line, share >= 0.95);
}

fn row(phases: &[Phase], s: &Second, began: Nanos) -> [String; 8] {
    let what = phases[s.phase].what;
    [
        format!("{:.3}", s.from.since(began).as_secs_f64()),
        s.node.to_string(),
        s.phase.to_string(),
        what.operation().into(),
        what.pattern.to_string(),
        s.detected.pattern.to_string(),
        format!("{:.4}", s.detected.probability),
        format!("{:.1}", s.bytes as f64 / 1e6 / s.to.since(s.from).as_secs_f64()),
    ]
}

fn timeline(phases: &[Phase], seconds: &[Second], began: Nanos) -> String {
    let at = |t: Nanos| t.since(began).as_secs_f64();
    let played = phases.iter().map(|p| Hold {
        row: 0,
        from: at(p.from),
        to: at(p.to),
        holder: p.what.pattern.index(),
        label: p.what.operation().into(),
    });
    let detected = seconds.iter().map(|s| Hold {
        row: 1 + s.node,
        from: at(s.from),
        to: at(s.to),
        holder: s.detected.pattern.index(),
        label: String::new(),
    });
    let mut rows = vec!["played".to_owned()];
    rows.extend((0..NODES).map(|n| format!("I/O node {n} detected")));
    Gantt {
        title: "What was played and what each I/O node's seconds were taken for".into(),
        size: forebay_plot::Size::new(960.0, 240.0),
        x: Axis::linear("seconds"),
        rows,
        holders: Pattern::ALL.iter().map(|p| p.name().to_owned()).collect(),
        holds: played.chain(detected).collect(),
    }
    .svg()
}
