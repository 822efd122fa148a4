//! SFQ(D)+ in the simulator: a job of small requests beside writers of large ones, and metadata by weight.

use super::twins::broken;
use super::{Figures, Measured, Setup, put};
use anyhow::Result;
use forebay_sim::models;
use forebay_sim::scenarios::{Broken, Isolation, jain, metadata};
use forebay_types::Nanos;

/// The seeds that are tried.
const SEEDS: [u64; 3] = [1, 2, 3];

pub(super) fn figures(setup: &Setup<'_>) -> Result<Figures> {
    let mut figures = Figures::new();
    let model = models::named("vpfs-paper")?.storage;
    let broken = broken(setup);
    let span = Nanos::from_secs(if setup.full { 60 } else { 5 });
    let both = Isolation { span, ..Isolation::default() };
    let mut seen: [Vec<f64>; 8] = Default::default();
    for seed in SEEDS {
        // The small job's throughput and that of both.
        let of = |setting: Isolation, scheduler: &str, broken: Broken| {
            let outcome = setting.run(&model, &scheduler.parse()?, seed, broken);
            let small = outcome.flow(0).bytes as f64;
            anyhow::Ok((small, outcome.served.iter().sum::<u64>() as f64))
        };
        let (alone, _) = of(Isolation { large: 0, ..both }, "fifo", broken)?;
        let (native, _) = of(both, "fifo", broken)?;
        let (sfq, sfq_total) = of(both, "sfq-d", broken)?;
        let (plus, plus_total) = of(both, "sfq-d-plus", broken)?;
        let (_, capped_total) = of(both, "capped:rate=10MB", broken)?;
        let values = [
            100.0 * (1.0 - native / alone),
            100.0 * sfq / alone,
            plus / sfq,
            plus / native,
            100.0 * (1.0 - plus_total / sfq_total),
            plus_total / capped_total,
            100.0 * alone / plus,
            100.0 * plus / alone,
        ];
        for (all, value) in seen.iter_mut().zip(values) {
            all.push(value);
        }
    }
    let names = [
        "native-loss",
        "sfq-d-restores",
        "plus-over-sfq-d",
        "plus-over-native",
        "plus-total-loss",
        "plus-over-capped-total",
        "plus-runtime",
        "plus-restores",
    ];
    for (name, values) in names.into_iter().zip(seen) {
        put(&mut figures, name, Measured::of(values, "seeds"));
    }
    for scheduler in ["fifo", "sfq-d", "sfq-d-plus"] {
        let [two, one] = metadata(&model, &scheduler.parse()?, span, broken);
        put(&mut figures, &format!("metadata-ratio-{scheduler}"), Measured::exact(two / one));
        put(&mut figures, &format!("metadata-jain-{scheduler}"), Measured::exact(jain(&[two / 2.0, one])));
    }
    Ok(figures)
}
