//! From a log to what its application would get of each number of I/O nodes.

use crate::scenario::{Data, Layout, Operation, Scenario, Step};
use forebay_plot::{say, table};
use forebay_policy::{CurveTable, Facts};

/// What a step of so many processes does, as a table of curves knows patterns.
fn facts(data: &Data, compute_nodes: u32, processes: u32) -> Facts {
    let weights: f64 = data.sizes.iter().map(|s| s.weight).sum();
    let bytes: f64 = data.sizes.iter().map(|s| s.weight * s.size as f64).sum();
    Facts {
        compute_nodes,
        processes,
        shared: data.target.layout == Layout::Shared,
        spatiality: data.spatiality,
        request_kb: (bytes / weights.max(f64::MIN_POSITIVE) / 1024.0).max(1.0 / 1024.0),
        operation: if data.read_share >= 0.5 { Operation::Read } else { Operation::Write },
    }
}

/// The bandwidth that each step of a scenario would have with each number of I/O nodes, by the nearest of
/// these curves, and how far such estimates are off.
pub(super) fn predict(scenario: &Scenario, curves: &CurveTable) -> String {
    let counts: std::collections::BTreeSet<u32> =
        curves.scenarios.iter().flat_map(|s| s.curve.points()).map(|p| p.io_nodes).collect();
    let mut header = vec!["step".to_owned(), "GB".into()];
    header
        .extend(counts.iter().map(|n| if *n == 0 { "direct".to_owned() } else { format!("{n} I/O nodes") }));
    header.push("best".into());
    let mut t = table::new(&header, &[]);
    for job in &scenario.jobs {
        for step in &job.steps {
            let Step::Data(data) = step else { continue };
            let facts = facts(data, job.compute_nodes, job.processes());
            let estimate = curves.estimate(&facts);
            let what = format!(
                "{} processes {} {}, {}, {:.0} KiB",
                facts.processes,
                if facts.operation == Operation::Read { "read" } else { "write" },
                if facts.shared { "a file" } else { "a file each" },
                format!("{:?}", facts.spatiality).to_lowercase(),
                facts.request_kb
            );
            let mut row = vec![what, format!("{:.2}", data.total_size as f64 / 1e9)];
            row.extend(counts.iter().map(|n| estimate.get(n).map_or("?".into(), |mbs| format!("{mbs:.0}"))));
            let best = estimate.iter().max_by(|a, b| a.1.total_cmp(b.1));
            row.push(best.map_or("?".into(), |(n, _)| n.to_string()));
            t.add_row(row);
        }
    }
    let mut out =
        format!("{t}\n\nMB/s, estimated from the nearest of {} measured patterns", curves.scenarios.len());
    if let Some(check) = curves.leave_one_out() {
        say!(
            out,
            ". Each of those, estimated from the others, is off by {:.0} % in the median and {:.0} % in nine of ten; the best \
             number of I/O nodes is found for {:.0} % of them.",
            check.median_error * 100.0,
            check.p90_error * 100.0,
            check.right_choice * 100.0
        );
    } else {
        say!(out, ".");
    }
    out
}
