//! Job queues and the six applications of the thesis, under its policies.

use super::{Break, Figures, Measured, Setup, put};
use anyhow::{Context, Result};
use forebay_policy::{BandwidthCurve, Job, PolicyKind, Pool, Settings};
use forebay_sim::queue::{QueueFile, simulate};

pub(super) fn figures(setup: &Setup<'_>) -> Result<Figures> {
    let mut figures = Figures::new();
    let mckp = if setup.breaks(Break::Knapsack) { PolicyKind::Size } else { PolicyKind::Mckp };
    let settings = Settings::default();
    let look = setup.table("queue-machine")?.get("look-seconds").and_then(toml::Value::as_float);
    let look_seconds = look.context("how often jobs look for their I/O nodes")?;
    for (name, text) in [("fourteen", QueueFile::BUILT_IN), ("three", QueueFile::THREE)] {
        let file = QueueFile::parse(text).with_context(|| format!("the queue {name}"))?;
        let file = QueueFile { look_seconds, ..file };
        let total = |kind| anyhow::Ok(simulate(&file, kind, &settings)?.aggregate_mbs / 1000.0);
        let (fixed, best) = (total(PolicyKind::Static)?, total(mckp)?);
        put(&mut figures, &format!("{name}-static"), Measured::exact(fixed));
        put(&mut figures, &format!("{name}-mckp"), Measured::exact(best));
        put(&mut figures, &format!("{name}-times"), Measured::exact(best / fixed));
    }
    six(setup, mckp, &mut figures)?;
    Ok(figures)
}

/// The six applications on twelve I/O nodes, from the points of their curves that were published.
fn six(setup: &Setup<'_>, mckp: PolicyKind, figures: &mut Figures) -> Result<()> {
    let curves = setup.table("six-applications")?;
    let allocated = setup.table("six-allocation")?;
    let mut jobs = Vec::new();
    for (name, points) in curves {
        let points = points.as_table().with_context(|| format!("{name} has no curve"))?;
        let pair = |(n, mbs): (&String, &toml::Value)| {
            let mbs = mbs.as_float().or_else(|| mbs.as_integer().map(|i| i as f64));
            Some((n.parse::<u32>().ok()?, mbs?))
        };
        let curve = BandwidthCurve::from_pairs(points.iter().filter_map(pair))?;
        // Powers of two that every count on the curve divides.
        jobs.push(Job::new(name, 8, 64).with_curve(curve));
    }
    let decision = mckp.build(&Settings::default())?.decide(&jobs, &Pool::of(12))?;
    let agree = |(job, chosen): &(&Job, &forebay_policy::JobDecision)| {
        allocated.get(&job.id).and_then(toml::Value::as_integer) == Some(i64::from(chosen.io_nodes))
    };
    let same = jobs.iter().zip(&decision.jobs).filter(agree).count();
    put(figures, "six-allocation", Measured::exact(same as f64));
    put(figures, "six-total", Measured::exact(decision.total.0));
    Ok(())
}
