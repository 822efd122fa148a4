//! The simulator against what was measured on real I/O nodes, with the same inputs: by how many percent it is off.

use super::screen::Screened;
use super::{Figures, Measured, put};
use anyhow::{Context, Result};
use forebay_policy::{CurveTable, PolicyKind, Settings, scenario_name};
use forebay_sim::failslow::{Failslow, Seen};
use forebay_sim::models;
use forebay_sim::queue::{Application, QueueFile, Submission, simulate};
use forebay_sim::scenarios::{self, Broken, Streams};
use forebay_types::stats::median;
use forebay_types::{IoMode, Nanos, OpKind, Pattern};
use std::collections::BTreeMap;

/// By how many percent of the measured value the simulated one is off.
fn off(simulated: f64, measured: f64) -> Measured {
    Measured::exact(100.0 * (simulated / measured - 1.0).abs())
}

/// A small job beside large writers: what a small request takes and what the large ones move, by scheduler.
pub(super) fn isolation(
    figures: &mut Figures,
    full: bool,
    measured: impl Fn(&str, &str) -> Result<f64>,
) -> Result<()> {
    let model = models::named("disk-slow")?.storage;
    let seconds = if full { 36 } else { 12 };
    let setting = scenarios::Isolation { span: Nanos::from_secs(seconds), ..Default::default() };
    for (name, scheduler) in [("fifo", "fifo"), ("sfq-d", "sfq-d"), ("sfq-d-plus", "sfq-d-plus")] {
        let outcome = setting.run(&model, &scheduler.parse()?, 1, Broken::default());
        let small = outcome.flow(0).mean().as_secs_f64() * 1e3;
        let large = outcome.served.get(1).copied().unwrap_or(0) as f64 / seconds as f64 / 1e6;
        put(figures, &format!("sim-small-{name}"), off(small, measured(name, "small_ms")?));
        put(figures, &format!("sim-large-{name}"), off(large, measured(name, "large_mb_per_s")?));
    }
    Ok(())
}

/// Two jobs of metadata operations: operations a second of both together.
pub(super) fn metadata(figures: &mut Figures, scheduler: &str, measured: f64) -> Result<()> {
    let model = models::named("disk")?.storage;
    let both = scenarios::metadata(&model, &scheduler.parse()?, Nanos::from_secs(5), Broken::default());
    put(figures, &format!("sim-{scheduler}"), off(both[0] + both[1], measured));
    Ok(())
}

/// Time windows: bandwidths by pattern and scheduler; of each pattern the median over the schedulers, and the worst of
/// all.
pub(super) fn twins(
    figures: &mut Figures,
    full: bool,
    measured: &BTreeMap<(String, String), f64>,
) -> Result<()> {
    let model = models::named("disk-far")?.storage;
    let mut by_pattern: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for ((name, scheduler), rate) in measured {
        let op = if name.ends_with("read") { OpKind::Read } else { OpKind::Write };
        let pattern = match name.as_str() {
            n if n.contains("strided") => Pattern::SharedStrided,
            n if n.contains("contiguous") => Pattern::SharedContiguous,
            _ => Pattern::FppContiguous,
        };
        let streams = if full { Streams::paper(pattern, op) } else { Streams::small(pattern, op) };
        let outcome = streams.run(&model, &scheduler.parse()?, 1, Broken::default());
        by_pattern.entry(name.replace(' ', "-")).or_default().push(off(outcome.bandwidth().0, *rate).value);
    }
    let worst = by_pattern.values().flatten().copied().fold(0.0, f64::max);
    by_pattern.values().next().context("no pattern was measured")?;
    for (name, all) in by_pattern {
        put(figures, &format!("sim-{name}"), Measured::of(vec![median(&all)], "schedulers' median"));
    }
    put(figures, "sim-worst", Measured::exact(worst));
    Ok(())
}

/// A job of the live queue.
pub(super) struct QueuedJob {
    pub(super) kind: String,
    pub(super) bytes: f64,
    pub(super) mbs: f64,
    /// When it ended, in seconds from the first job's start.
    pub(super) end: f64,
}

/// A queue of jobs by policy: the sum of the jobs' bandwidths and when the last one ended, simulated from the curves
/// of the kinds alone.
pub(super) fn arbiter(
    figures: &mut Figures,
    curves: &str,
    played: &BTreeMap<String, Vec<QueuedJob>>,
) -> Result<()> {
    let curves = CurveTable::from_csv(curves.as_bytes())?;
    for (policy, jobs) in played {
        let mut applications = BTreeMap::new();
        for job in jobs {
            let known = curves.scenarios.iter().find(|s| s.name == scenario_name(&job.kind, &s.facts));
            let known = known.with_context(|| format!("no curve of {}", job.kind))?;
            applications.insert(
                job.kind.clone(),
                Application {
                    compute_nodes: known.facts.compute_nodes,
                    processes: known.facts.processes,
                    gigabytes: job.bytes / 1e9,
                    curve: known.curve.as_ref().clone(),
                    mode: if known.facts.shared { IoMode::NTo1 } else { IoMode::NToN },
                    note: String::new(),
                },
            );
        }
        let queue = jobs.iter().map(|j| Submission { app: j.kind.clone(), arrival: 0.0, weight: 1.0 });
        let file = QueueFile {
            note: String::new(),
            compute_nodes: 48,
            io_nodes: 4,
            direct: false,
            look_seconds: 0.0,
            queue: queue.collect(),
            applications,
        };
        let kind: PolicyKind = policy.parse().map_err(anyhow::Error::msg)?;
        let outcome = simulate(&file, kind, &Settings::default())?;
        let total = jobs.iter().map(|j| j.mbs).sum();
        let length = jobs.iter().map(|j| j.end).fold(0.0, f64::max);
        put(figures, &format!("sim-{policy}"), off(outcome.aggregate_mbs, total));
        put(figures, &format!("sim-{policy}-length"), off(outcome.makespan, length));
    }
    Ok(())
}

/// A fail-slow I/O node under the production screening: what the jobs move before, meanwhile and after, and when the
/// node is taken out and used again. `slow`: from when to when it was slow, in seconds.
pub(super) fn failslow(figures: &mut Figures, slow: (f64, f64), live: &Seen) -> Result<()> {
    let (from, to) = slow;
    let nanos = |seconds: f64| Nanos((seconds * 1e9) as u64);
    let setting = Failslow {
        slow: (nanos(from), nanos(to - from)),
        until: nanos(live.rate.last().map_or(to, |r| r.0)),
        ..Failslow::default()
    };
    let simulated = setting.run(&models::named("memory")?.storage, &mut Screened::default());
    let rates = |seen: &Seen| -> Result<[f64; 5]> {
        let screened = seen.screened.context("the node was never screened out")?;
        let readmitted = seen.readmitted.context("the node was never used again")?;
        // A second for what was under way.
        let rate = |from: f64, to: f64| seen.rate(from, to);
        let during = [rate(2.0, from), rate(from, screened), rate(screened + 1.0, to)];
        Ok([during[0], during[1], during[2], screened - from, readmitted - to])
    };
    let (simulated, live) = (rates(&simulated).context("simulated")?, rates(live).context("live")?);
    let names = ["before", "slow", "screened-out", "screened-after", "readmitted-after"];
    for (name, (s, l)) in names.into_iter().zip(simulated.into_iter().zip(live)) {
        put(figures, &format!("sim-{name}"), off(s, l));
    }
    Ok(())
}
