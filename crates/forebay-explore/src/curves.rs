//! The bandwidth curves that a study's report holds, as the arbiter reads them.

use crate::analysis::{ScenarioVerdict, StudyReport};
use forebay_policy::{CurveTable, Point, Spread, TableError, scenario_name};
use forebay_types::Bandwidth;

/// The curves of all scenarios of a report.
pub fn of(report: &StudyReport) -> Result<CurveTable, TableError> {
    let mut table = CurveTable::default();
    for ScenarioVerdict { scenario, facts, counts, .. } in &report.verdicts {
        let points = counts.iter().map(|c| Point {
            io_nodes: c.io_nodes,
            bandwidth: Bandwidth(c.mean),
            spread: Some(Spread {
                low: Bandwidth(c.min),
                high: Bandwidth(c.max),
                std_dev: c.std_dev,
                samples: u32::try_from(c.samples).unwrap_or(u32::MAX),
            }),
        });
        table.add(scenario_name(scenario, facts), facts.clone(), points)?;
    }
    Ok(table)
}
