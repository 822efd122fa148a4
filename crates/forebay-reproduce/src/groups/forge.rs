//! The FORGE study: the published measurements counted again.

use super::{Break, Figures, Measured, Setup, put};
use anyhow::{Context, Result};
use forebay_explore::analysis::{Measurements, Rule, StudyReport, assess};

const PUBLISHED: &[u8] = include_bytes!("../../../../data/marenostrum4.csv");
const CORRECTED: &[u8] = include_bytes!("../../../../data/marenostrum4_corrected.csv");

/// Reads measurements; broken, each is labelled with the next larger number of I/O nodes.
pub(super) fn read(csv: &[u8], broken: bool) -> Result<Measurements> {
    let mut measurements = Measurements::default();
    if !broken {
        measurements.add_csv("measurements", csv)?;
        return Ok(measurements);
    }
    let text = std::str::from_utf8(csv).context("the measurements are not text")?;
    let mut wrong = String::new();
    for line in text.lines() {
        let mut cells: Vec<&str> = line.split(',').collect();
        if let Some(count) = cells.get_mut(6) {
            *count = match *count {
                "0" => "1",
                "1" => "2",
                "2" => "4",
                "4" => "8",
                "8" => "0",
                other => other,
            };
        }
        wrong += &cells.join(",");
        wrong.push('\n');
    }
    measurements.add_csv("measurements", wrong.as_bytes())?;
    Ok(measurements)
}

/// How many scenarios of a published table have the best number of I/O nodes that it says.
pub(super) fn agreeing(report: &StudyReport, table: &toml::Table) -> f64 {
    let best =
        |name: &str| report.verdicts.iter().find(|v| v.scenario == name).map(|v| i64::from(v.best.median));
    table.iter().filter(|(name, count)| best(name) == count.as_integer()).count() as f64
}

pub(super) fn figures(setup: &Setup<'_>) -> Result<Figures> {
    let measurements = read(PUBLISHED, setup.breaks(Break::Labels))?;
    let published = assess(&measurements, Rule::Published);
    let described = assess(&measurements, Rule::Described);
    let corrected = assess(&read(CORRECTED, setup.breaks(Break::Labels))?, Rule::Described);
    let mut figures = Figures::new();
    let exact = |n: usize| Measured::exact(n as f64);
    let count =
        |map: &std::collections::BTreeMap<u32, usize>, key: u32| exact(map.get(&key).copied().unwrap_or(0));
    for n in [0, 1, 2, 4, 8] {
        put(&mut figures, &format!("best-{n}"), count(&published.best.max, n));
        put(&mut figures, &format!("best-by-mean-{n}"), count(&published.best.mean, n));
    }
    let distinct = |report: &StudyReport, n: usize| exact(report.distinct.get(&n).copied().unwrap_or(0));
    put(&mut figures, "three-choices-as-drawn", distinct(&published, 3));
    put(&mut figures, "three-choices-as-described", distinct(&described, 3));
    put(&mut figures, "forwarding-better", exact(published.forwarding.mean.forwarding));
    put(&mut figures, "forwarding-better-corrected", exact(corrected.forwarding.mean.forwarding));
    put(&mut figures, "letters", Measured::exact(agreeing(&published, setup.table("letters-marenostrum")?)));
    put(&mut figures, "scenarios", exact(published.scenarios));
    Ok(figures)
}
