//! Experiments on real I/O nodes, by the laboratory. Their figures come as CSV.

use super::validate::{self, QueuedJob};
use super::{Figures, Measured, Setup, put};
use anyhow::{Context, Result};
use forebay_sim::failslow;
use std::collections::BTreeMap;

pub(super) type Row = BTreeMap<String, String>;

/// The files of an experiment.
fn files(setup: &Setup<'_>, experiment: &str) -> Result<Vec<(String, String)>> {
    let laboratory = setup.laboratory.context("this needs real I/O nodes: run it by `forebay reproduce`")?;
    laboratory.run(experiment, setup.full)
}

/// The rows of one of them.
fn table(files: &[(String, String)], name: &str) -> Result<Vec<Row>> {
    let csv = files.iter().find(|(n, _)| n == name);
    let (_, csv) = csv.with_context(|| format!("the experiment wrote no figures {name}"))?;
    Ok(records(csv))
}

/// The rows of figures.
pub(super) fn records(csv: &str) -> Vec<Row> {
    let mut lines = csv.lines();
    let header: Vec<String> = cells(lines.next().unwrap_or_default());
    lines.map(|l| header.iter().cloned().zip(cells(l)).collect()).collect()
}

/// The rows of an experiment's figures.
fn rows(setup: &Setup<'_>, experiment: &str) -> Result<Vec<Row>> {
    table(&files(setup, experiment)?, &format!("{experiment}.csv"))
}

/// Cells may be quoted, and then hold commas.
fn cells(line: &str) -> Vec<String> {
    let mut cells = vec![String::new()];
    let mut quoted = false;
    for c in line.chars() {
        match c {
            '"' => quoted = !quoted,
            ',' if !quoted => cells.push(String::new()),
            c => cells.last_mut().expect("there is always one").push(c),
        }
    }
    cells
}

pub(super) fn number(row: &Row, column: &str) -> Result<f64> {
    let text = row.get(column).with_context(|| format!("no column {column:?}"))?;
    text.parse().with_context(|| format!("{column}: {text:?} is no number"))
}

/// Medians of the repetitions, by pattern and scheduler.
pub(super) fn twins(setup: &Setup<'_>) -> Result<Figures> {
    let mut by: BTreeMap<(String, String), Vec<f64>> = BTreeMap::new();
    for row in rows(setup, "twins")? {
        let key = (row["pattern"].clone(), row["scheduler"].clone());
        by.entry(key).or_default().push(number(&row, "mb_per_s")?);
    }
    let medians: BTreeMap<_, f64> = by.into_iter().map(|(k, v)| (k, Measured::of(v, "").value)).collect();
    let mut figures = Figures::new();
    let patterns: std::collections::BTreeSet<&String> = medians.keys().map(|(p, _)| p).collect();
    for pattern in patterns {
        let of = |windows: bool| {
            let chosen =
                medians.iter().filter(|((p, s), _)| p == pattern && s.starts_with("twins") == windows);
            chosen.map(|(_, v)| *v).fold(0.0, f64::max)
        };
        let name = pattern.replace(' ', "-");
        // Time saved by the best window, in percent.
        put(&mut figures, &name, Measured::exact(100.0 * (1.0 - of(false) / of(true))));
    }
    validate::twins(&mut figures, setup.full, &medians)?;
    Ok(figures)
}

/// A small job beside large writers.
pub(super) fn isolation(setup: &Setup<'_>) -> Result<Figures> {
    let rows = rows(setup, "isolation")?;
    let of = |scheduler: &str, column: &str| {
        let row = rows.iter().find(|r| r.get("scheduler").is_some_and(|s| s.starts_with(scheduler)));
        number(row.with_context(|| format!("no row of {scheduler}"))?, column)
    };
    let mut figures = Figures::new();
    let wait = |s: &str| of(s, "small_ms");
    let total = |s: &str| anyhow::Ok(of(s, "small_mb_per_s")? + of(s, "large_mb_per_s")?);
    put(&mut figures, "plus-over-sfq-d", Measured::exact(wait("sfq-d")? / wait("sfq-d-plus")?));
    put(&mut figures, "plus-over-native", Measured::exact(wait("fifo")? / wait("sfq-d-plus")?));
    let loss = 100.0 * (1.0 - total("sfq-d-plus")? / total("sfq-d")?);
    put(&mut figures, "plus-total-loss", Measured::exact(loss));
    put(&mut figures, "plus-over-capped-total", Measured::exact(total("sfq-d-plus")? / total("capped")?));
    validate::isolation(&mut figures, setup.full, of)?;
    Ok(figures)
}

/// Two jobs of metadata operations, weights 2 and 1.
pub(super) fn metadata(setup: &Setup<'_>) -> Result<Figures> {
    let mut figures = Figures::new();
    for row in rows(setup, "metadata")? {
        let (two, one) = (number(&row, "weight2_per_s")?, number(&row, "weight1_per_s")?);
        let ratio = two / one;
        let scheduler = row["scheduler"].clone();
        put(&mut figures, &format!("ratio-{scheduler}"), Measured::exact(ratio));
        put(&mut figures, &format!("jain-{scheduler}"), Measured::exact(number(&row, "jain")?));
        validate::metadata(&mut figures, &scheduler, two + one)?;
    }
    Ok(figures)
}

/// Pairs of jobs on one I/O node and as DFRA places them, under a live arbiter, and a job that is scaled.
pub(super) fn dfra(setup: &Setup<'_>) -> Result<Figures> {
    let mut figures = Figures::new();
    let mut most: BTreeMap<String, f64> = BTreeMap::new();
    for row in rows(setup, "dfra")? {
        let (way, value) = (row["way"].clone(), number(&row, "value")?);
        let name = match row["beside"].as_str() {
            "" => way,
            beside => {
                let worst = most.entry(way.clone()).or_insert(value);
                *worst = worst.max(value);
                format!("{}-by-{beside}-{way}", row["job"])
            }
        };
        put(&mut figures, &name, Measured::exact(value));
    }
    most.into_iter()
        .for_each(|(way, worst)| put(&mut figures, &format!("most-{way}"), Measured::exact(worst)));
    Ok(figures)
}

/// What SFQ(D)+ adds to an operation on emulated servers, in percent, repetition by repetition against
/// no scheduling.
pub(super) fn overhead(setup: &Setup<'_>) -> Result<Figures> {
    let mut by: BTreeMap<(String, String), BTreeMap<String, f64>> = BTreeMap::new();
    for row in rows(setup, "overhead")? {
        if row["storage"].starts_with("emulated") {
            let key = (row["operation"].clone(), row["scheduler"].clone());
            by.entry(key).or_default().insert(row["repetition"].clone(), number(&row, "us")?);
        }
    }
    let mut figures = Figures::new();
    for ((operation, scheduler), times) in &by {
        let Some(without) =
            by.get(&(operation.clone(), "noop".to_owned())).filter(|_| scheduler == "sfq-d-plus")
        else {
            continue;
        };
        let more = times.iter().filter_map(|(r, us)| Some(100.0 * (us / without.get(r)? - 1.0))).collect();
        put(&mut figures, &operation.replace(' ', "-"), Measured::of(more, "repetitions"));
    }
    Ok(figures)
}

/// A queue of jobs under STATIC and MCKP on a live arbiter.
pub(super) fn arbiter(setup: &Setup<'_>) -> Result<Figures> {
    let files = files(setup, "arbiter")?;
    let curves = files.iter().find(|(name, _)| name == "arbiter-curves.csv");
    let (_, curves) = curves.context("the experiment wrote no curves")?;
    let mut played: BTreeMap<String, Vec<QueuedJob>> = BTreeMap::new();
    for row in table(&files, "arbiter.csv")? {
        played.entry(row["policy"].to_lowercase()).or_default().push(QueuedJob {
            kind: row["kind"].clone(),
            bytes: number(&row, "bytes")?,
            mbs: number(&row, "mb_per_s")?,
            end: number(&row, "end_s")?,
        });
    }
    let mut figures = Figures::new();
    let total = |policy: &str| {
        let jobs = played.get(policy).with_context(|| format!("the queue was not run under {policy}"))?;
        anyhow::Ok(jobs.iter().map(|j| j.mbs).sum::<f64>())
    };
    put(&mut figures, "times", Measured::exact(total("mckp")? / total("static")?));
    validate::arbiter(&mut figures, curves, &played)?;
    Ok(figures)
}

/// An I/O node that becomes slow under an arbiter that screens its nodes.
pub(super) fn failslow(setup: &Setup<'_>) -> Result<Figures> {
    let files = files(setup, "failslow")?;
    let mut live = failslow::Seen::default();
    for row in table(&files, "failslow.csv")? {
        live.rate.push((number(&row, "seconds")?, number(&row, "mb_per_s")?));
    }
    let (mut from, mut to) = (f64::NAN, f64::NAN);
    for row in table(&files, "failslow-times.csv")? {
        let at = number(&row, "seconds")?;
        match row["what"].as_str() {
            "slow from" => from = at,
            "slow to" => to = at,
            "screened" => live.screened = Some(at),
            "readmitted" => live.readmitted = Some(at),
            _ => {}
        }
    }
    let mut figures = Figures::new();
    validate::failslow(&mut figures, (from, to), &live)?;
    Ok(figures)
}
