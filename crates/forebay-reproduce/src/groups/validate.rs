//! The simulator against what was measured on real I/O nodes, with the same inputs: by how many percent it is off.

use super::{Figures, Measured, put};
use anyhow::{Context, Result};
use forebay_sim::models;
use forebay_sim::scenarios::{self, Broken, Streams};
use forebay_types::stats::median;
use forebay_types::{Nanos, OpKind, Pattern};
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
