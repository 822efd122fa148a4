//! Detectors trained with the thesis' five features, on what I/O nodes here have seen of runs whose
//! pattern is known. Runs, not rows, are divided into those to train with and those to test with.

use super::{Break, Figures, Measured, Setup, put};
use anyhow::{Context, Result};
use flate2::read::GzDecoder;
use forebay_pattern::Feature;
use forebay_pattern::data::{Row, read_csv};
use forebay_pattern::train::{Trainer, judge};
use forebay_types::Pattern;
use std::time::Instant;

const RECORDED: &[u8] = include_bytes!("../../../../data/detection.csv.gz");

/// The sizes the thesis trains on; others are unseen.
const KNOWN: [u64; 2] = [32 << 10, 256 << 10];

pub(super) fn figures(setup: &Setup<'_>) -> Result<Figures> {
    let rows = read_csv(GzDecoder::new(RECORDED)).context("the recorded intervals")?;
    let mut figures = Figures::new();
    let three = [Pattern::FppContiguous, Pattern::SharedContiguous, Pattern::SharedStrided];
    let published: Vec<Row> = rows.iter().filter(|r| three.contains(&r.label.class)).cloned().collect();
    let thesis: &[Feature] =
        if setup.breaks(Break::Features) { &[Feature::SizeMin, Feature::SizeMax] } else { &Feature::THESIS };
    let ours: &[Feature] = if setup.breaks(Break::Features) {
        &[Feature::SizeMin, Feature::SizeMax]
    } else {
        &Feature::SCALE_FREE
    };
    let trainers = [("tree", Trainer::Tree), ("forest", Trainer::Forest), ("net", Trainer::Net)];
    for (name, trainer) in trainers {
        // Training a forest or a net takes minutes without optimisation; the tree says as much.
        if name != "tree" && !setup.full {
            continue;
        }
        for (set, rows, features) in
            [("thesis-three", &published, thesis), ("thesis-five", &rows, thesis), ("ours-five", &rows, ours)]
        {
            let known = |r: &&Row| KNOWN.contains(&r.label.request_size);
            let even = |r: &&Row| r.label.run % 10 < 7;
            let train: Vec<Row> = rows.iter().filter(known).filter(even).cloned().collect();
            let test = rows.iter().filter(known).filter(|r| !even(r));
            let unseen = rows.iter().filter(|r| !known(r));
            let model = trainer.train(&train, features, "reproduce", 1, &mut |_| {})?;
            let percent = |accuracy: f64| Measured::exact(100.0 * accuracy);
            put(&mut figures, &format!("{name}-{set}-test"), percent(judge(&model, test).accuracy()));
            put(&mut figures, &format!("{name}-{set}-unseen"), percent(judge(&model, unseen).accuracy()));
            if set == "thesis-three" {
                let began = Instant::now();
                let count = rows.len().min(2000);
                for row in rows.iter().take(count) {
                    std::hint::black_box(model.detect(&row.metrics));
                }
                let ms = began.elapsed().as_secs_f64() * 1e3 / count.max(1) as f64;
                put(&mut figures, &format!("{name}-prediction-ms"), Measured::exact(ms));
            }
        }
    }
    Ok(figures)
}
