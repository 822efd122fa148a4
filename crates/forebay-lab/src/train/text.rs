//! What is said about trained detectors, as a person reads it.

use super::{Score, TrainingReport};
use forebay_plot::{say, table};
use forebay_types::Pattern;

/// How good each detector is, where it errs, and what it relies on.
pub fn text(report: &TrainingReport) -> String {
    let mut out = String::new();
    let sizes: Vec<String> = report.train_sizes.iter().map(|s| format!("{} KiB", s >> 10)).collect();
    let counts: Vec<String> = report.train_processes.iter().map(u32::to_string).collect();
    say!(out, "data: {}", report.source);
    say!(
        out,
        "{} rows to train on, {} to test with (requests of {}; {} processes), {} to validate with (all others)\n",
        report.train_rows,
        report.test_rows,
        sizes.join(" and "),
        counts.join(", "),
        report.validation_rows
    );
    let header = [
        "detector",
        "train",
        "test",
        "validation",
        "Kappa",
        "unseen sizes",
        "unseen counts",
        "to train",
        "to predict",
    ];
    let mut summary = table::new(&header, &[]);
    let percent = |s: &Score| {
        if s.confusion.total() == 0 { "–".into() } else { format!("{:.2} %", s.accuracy * 100.0) }
    };
    for d in &report.detectors {
        summary.add_row([
            d.detector.to_string(),
            percent(&d.train),
            percent(&d.test),
            percent(&d.validation),
            format!("{:.4}", d.validation.kappa),
            percent(&d.unseen_sizes),
            percent(&d.unseen_processes),
            format!("{:.2} s", d.seconds_to_train),
            format!("{:.2} µs", d.microseconds_to_predict),
        ]);
    }
    say!(out, "{summary}");
    for d in &report.detectors {
        let what = format!("{}: validation", d.detector);
        let mut header = vec![what.as_str()];
        header.extend(Pattern::ALL.iter().map(|p| p.short()));
        header.extend(["sensitivity", "specificity"]);
        let mut matrix = table::new(&header, &[]);
        let c = &d.validation.confusion;
        for was in Pattern::ALL.into_iter().filter(|&p| c.was(p) > 0) {
            let mut row = vec![format!("{was} ({})", was.short())];
            row.extend(c.counts[was.index()].iter().map(u64::to_string));
            row.extend([c.sensitivity(was), c.specificity(was)].map(|x| format!("{x:.4}")));
            matrix.add_row(row);
        }
        say!(out, "\n{matrix}");
        let relied: Vec<String> = d
            .importance
            .iter()
            .filter(|(_, loss)| *loss > 0.001)
            .map(|(f, loss)| format!("{f} {:.1} %", loss * 100.0))
            .collect();
        say!(out, "relies on (accuracy lost without it): {}", relied.join(", "));
    }
    out
}
