//! Policies over the published curves: many random sets of jobs.

use super::{Break, Figures, Measured, Setup, put};
use anyhow::{Context, Result};
use forebay_policy::{CurveTable, PolicyKind, Settings};
use forebay_sim::stats::Summary;
use forebay_sim::study::{self, Cell, StudyConfig};

const PUBLISHED: &[u8] = include_bytes!("../../../../data/marenostrum4.csv");
const CORRECTED: &[u8] = include_bytes!("../../../../data/marenostrum4_corrected.csv");

/// The pools that are tried.
const POOLS: [u32; 8] = [8, 16, 24, 32, 48, 56, 64, 128];
/// The one that the thesis looks at most.
const AT: u32 = 56;

pub(super) fn figures(setup: &Setup<'_>) -> Result<Figures> {
    let mut figures = Figures::new();
    let sets = if setup.full { 10_000 } else { 2_000 };
    let mckp = if setup.breaks(Break::Knapsack) { PolicyKind::Size } else { PolicyKind::Mckp };
    for (prefix, csv) in [("", PUBLISHED), ("corrected-", CORRECTED)] {
        let table = CurveTable::from_csv(csv)?;
        let io_nodes = POOLS.to_vec();
        let config = StudyConfig { sets, set_size: 16, io_nodes, seed: 1, settings: Settings::default() };
        let study = study::run(&table, &config, || {})?;
        let cell = |kind, pool| study.cell(kind, pool).with_context(|| format!("no {kind} at {pool}"));
        let percent = |s: Summary| {
            Measured::between(
                100.0 * s.median,
                100.0 * s.q1,
                100.0 * s.q3,
                &format!("quartiles of {sets} sets"),
            )
        };
        let mut named = |name: &str, value| put(&mut figures, &format!("{prefix}{name}"), value);
        named("one-over-zero", percent(cell(PolicyKind::One, AT)?.over_zero));
        let oracle = cell(PolicyKind::Oracle, AT)?.over_zero;
        named("oracle-over-zero", percent(oracle));
        named("oracle-over-zero-least", Measured::exact(100.0 * oracle.min));
        named("oracle-over-zero-most", Measured::exact(100.0 * oracle.max));
        let best = cell(mckp, AT)?.over_static;
        named("mckp-over-static", percent(best));
        named("mckp-over-static-least", Measured::exact(100.0 * best.min));
        named("mckp-over-static-most", Measured::exact(100.0 * best.max));
        let cells = || study.cells.iter().filter(|c: &&Cell| c.policy == mckp);
        let times = cells().map(|c| 1.0 + c.over_static.max).fold(0.0, f64::max);
        named("mckp-over-static-times", Measured::exact(times));
        let reaches = if mckp == PolicyKind::Mckp {
            study.mckp_reaches_oracle
        } else {
            Summary { median: f64::from(POOLS[POOLS.len() - 1]), ..Summary::default() }
        };
        let range = format!("quartiles of {sets} sets");
        named("mckp-reaches-oracle", Measured::between(reaches.median, reaches.q1, reaches.q3, &range));
    }
    Ok(figures)
}
