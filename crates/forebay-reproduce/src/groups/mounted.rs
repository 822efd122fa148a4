//! Time windows on real parallel file systems: what `forebay experiment twins --mount` recorded there. The recordings
//! are kept, since not everybody has such file systems at hand.

use super::live::{number, records};
use super::{Figures, Measured, Setup, put};
use anyhow::{Context, Result};
use forebay_explore::stats::{mean, t_interval};
use forebay_types::stats::median;
use std::collections::BTreeMap;

const GLUSTER: &str = include_str!("../../../../data/twins-gluster.csv");
const CEPH: &str = include_str!("../../../../data/twins-ceph.csv");

/// MB/s by repetition, and KiB of what left the I/O nodes, by case and way.
type Recorded = BTreeMap<(String, String), (Vec<f64>, Vec<f64>)>;

pub(super) fn gluster(_: &Setup<'_>) -> Result<Figures> {
    figures(GLUSTER)
}

pub(super) fn ceph(_: &Setup<'_>) -> Result<Figures> {
    figures(CEPH)
}

fn read(csv: &str) -> Result<Recorded> {
    let mut recorded = Recorded::new();
    for row in records(csv) {
        let key = (row["pattern"].clone(), row["scheduler"].clone());
        let (rates, sizes) = recorded.entry(key).or_default();
        rates.push(number(&row, "mb_per_s")?);
        if row["scheduler"] != "direct" {
            sizes.push(number(&row, "kib_leaving")?);
        }
    }
    Ok(recorded)
}

fn figures(csv: &str) -> Result<Figures> {
    let recorded = read(csv)?;
    let of = |case: &str, way: &str| {
        let found = recorded.get(&(case.to_owned(), way.to_owned()));
        found.with_context(|| format!("no record of {case} under {way}"))
    };
    let ways = |windows: bool| {
        let all: std::collections::BTreeSet<&str> = recorded.keys().map(|(_, way)| way.as_str()).collect();
        all.into_iter()
            .filter(move |w| *w != "direct" && w.starts_with("twins") == windows)
            .collect::<Vec<_>>()
    };
    // The way with the highest median.
    let best = |case: &str, ways: &[&str]| -> Result<String> {
        let mut found: Option<(f64, String)> = None;
        for way in ways {
            let rate = median(&of(case, way)?.0);
            if found.as_ref().is_none_or(|f| rate > f.0) {
                found = Some((rate, (*way).to_owned()));
            }
        }
        Ok(found.context("no way was recorded")?.1)
    };
    // By how many percent less time one takes than the other, repetition by repetition.
    let saved = |case: &str, way: &str, than: &str| -> Result<Measured> {
        let logs: Vec<f64> =
            of(case, way)?.0.iter().zip(&of(case, than)?.0).map(|(a, b)| (b / a).ln()).collect();
        let percent = |log: f64| 100.0 * (1.0 - log.exp());
        let middle = mean(&logs);
        let interval = t_interval(&logs, 0.95).map_or((middle, middle), |i| (i.low, i.high));
        let range = format!("95 % of {} repetitions", logs.len());
        Ok(Measured::between(percent(middle), percent(interval.1), percent(interval.0), &range))
    };
    let mut figures = Figures::new();
    let cases = [
        ("strided-read", "shared 1D-strided read"),
        ("contiguous-read", "shared contiguous read"),
        ("own-read", "file per process read"),
        ("strided-write", "shared 1D-strided write"),
        ("two-read", "half beside another read"),
    ];
    for (name, case) in cases {
        let (windows, without) = (best(case, &ways(true))?, best(case, &ways(false))?);
        put(&mut figures, name, saved(case, &windows, &without)?);
        put(&mut figures, &format!("{name}-direct"), saved(case, &windows, "direct")?);
        put(&mut figures, &format!("{name}-forwarding"), saved(case, &without, "direct")?);
    }
    // How much longer an application takes beside another one: less of it than under arrival order.
    let factor = |way: &str| -> Result<f64> {
        Ok(median(&of("half alone read", way)?.0) / median(&of("half beside another read", way)?.0))
    };
    let windows = best("half beside another read", &ways(true))?;
    let without = best("half beside another read", &ways(false))?;
    let less = |than: f64| anyhow::Ok(Measured::exact(100.0 * (1.0 - factor(&windows)? / than)));
    put(&mut figures, "interference", less(factor(&without)?)?);
    put(&mut figures, "interference-direct", less(factor("direct")?)?);
    let leaving = median(&of("shared 1D-strided read", "hbrr")?.1);
    put(&mut figures, "leaving-kib", Measured::exact(leaving));
    Ok(figures)
}
