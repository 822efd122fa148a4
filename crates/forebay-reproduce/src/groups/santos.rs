//! The FORGE study's second machine, Santos Dumont; and what was made for the first machine, on it.

use super::forge::{agreeing, read};
use super::{Break, Figures, Measured, Setup, put};
use anyhow::Result;
use forebay_explore::analysis::{Rule, assess};
use forebay_explore::curves;
use forebay_policy::CurveTable;
use forebay_policy::{Job, Mckp, PolicyKind, Pool, Settings};

const SANTOS: &[u8] = include_bytes!("../../../../data/santosdumont.csv");

pub(super) fn figures(setup: &Setup<'_>) -> Result<Figures> {
    let report = assess(&read(SANTOS, setup.breaks(Break::Labels))?, Rule::Described);
    let mut figures = Figures::new();
    let one = report.best.max.get(&1).copied().unwrap_or(0);
    put(&mut figures, "one-is-best", Measured::exact(one as f64));
    put(
        &mut figures,
        "direct-is-best",
        Measured::exact(agreeing(&report, setup.table("letters-santosdumont")?)),
    );
    // The curve estimator: each scenario from all others, its weights as chosen on the first machine.
    if let Some(error) = curves::of(&report)?.leave_one_out() {
        put(&mut figures, "estimator-error", Measured::exact(100.0 * error.median_error));
        put(&mut figures, "estimator-best", Measured::exact(100.0 * error.right_choice));
    }
    let table = CurveTable::from_csv(SANTOS)?;
    let jobs: Vec<Job> = table
        .scenarios
        .iter()
        .map(|s| Job::new(&s.name, s.facts.compute_nodes, s.facts.processes).with_curve(s.curve.clone()))
        .collect();
    let pool = Pool::of(jobs.len() as u32 * 2);
    let fixed = PolicyKind::Static.build(&Settings::default())?.decide(&jobs, &pool)?.total.0;
    let totals = Mckp::totals(&jobs, pool.available())?;
    let mckp = totals.last().copied().unwrap_or(0.0);
    put(&mut figures, "mckp-over-static", Measured::exact(mckp / fixed));
    Ok(figures)
}
