//! The report for a terminal.

use super::verdict::{Rule, ScenarioVerdict, StudyReport};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Room for a median and its quartiles.
const CELL: usize = 20;

/// The report as plain text, one line a scenario.
pub fn text(report: &StudyReport) -> String {
    let mut out = String::new();
    let counts: Vec<u32> = report.best.max.keys().copied().collect();
    let many = |n: usize, what: &str| if n == 1 { format!("1 {what}") } else { format!("{n} {what}s") };
    let of = [many(report.scenarios, "scenario"), many(report.rows, "measurement")];
    let _ = writeln!(out, "{}\n", of.join(", "));

    let width = report.verdicts.iter().map(|v| v.scenario.chars().count()).max().unwrap_or(8).clamp(8, 40);
    let _ = write!(
        out,
        "{:width$}  {:>5}  {:<10}  {:<10}  {:>8}  {:<6}",
        "scenario", "procs", "layout", "order", "request", "op"
    );
    for c in &counts {
        let head = match c {
            0 => "direct".to_owned(),
            1 => "1 ION".to_owned(),
            n => format!("{n} IONs"),
        };
        let _ = write!(out, "  {head:>CELL$}");
    }
    let _ = writeln!(out, "  {:<9}  {:>6}  {:>4}  {:>6}  choices", "n", "p", "best", "enough");
    for v in &report.verdicts {
        line(&mut out, v, &counts, width);
    }
    let _ = writeln!(
        out,
        "\nMB/s (create, stat, unlink: operations/s): median [lower–upper quartile]; * highest median.\n\
         n: repetitions, of each column where they differ. p: Kruskal-Wallis, that all numbers of I/O nodes \
         are alike; – where each was measured once.\n\
         best: by median. enough: the smallest number that does not really differ from it.\n\
         choices: the numbers that differ from every smaller one ({}); – where p > 0.05.\n",
        match report.rule {
            Rule::Described => "Dunn's one-sided p ≤ 0.025",
            Rule::Published => "as published: Dunn's Z ≤ 0.05",
        }
    );

    let _ = write!(out, "{:32}", "scenarios by best I/O nodes");
    for c in &counts {
        let _ = write!(out, "{c:>6}");
    }
    // Only where some scenario was measured with both.
    let both = report.forwarding.median.forwarding + report.forwarding.median.direct > 0;
    let _ = if both { writeln!(out, "{:>13}{:>8}", "forwarding", "direct") } else { writeln!(out) };
    for (name, tally, share) in [
        ("  by the fastest repetition", &report.best.max, report.forwarding.max),
        ("  by the mean", &report.best.mean, report.forwarding.mean),
        ("  by the median", &report.best.median, report.forwarding.median),
    ] {
        row(&mut out, name, tally, &counts);
        let of = (share.forwarding + share.direct) as f64 / 100.0;
        let (forwarding, direct) = (share.forwarding as f64 / of, share.direct as f64 / of);
        let _ = if both { writeln!(out, "{forwarding:>11.1} %{direct:>6.1} %") } else { writeln!(out) };
    }
    row(&mut out, "  smallest as good as the best", &report.smallest_equivalent, &counts);
    let _ = writeln!(out, "\n");
    let _ = write!(out, "{:32}", "distinct choices");
    for n in report.distinct.keys() {
        let _ = write!(out, "{n:>6}");
    }
    let mut tallies = vec![("  scenarios, by every pair", &report.distinct)];
    if report.rule == Rule::Described {
        tallies.push(("  scenarios, if p ≤ 0.05 first", &report.distinct_gated));
    }
    for (name, tally) in tallies {
        let _ = write!(out, "\n{name:32}");
        for n in tally.values() {
            let _ = write!(out, "{n:>6}");
        }
    }
    out.push('\n');
    if report.warnings > 0 {
        let _ = writeln!(out, "\n{} warnings", report.warnings);
        let mut shown = 0;
        for v in &report.verdicts {
            for w in &v.warnings {
                if shown == 10 {
                    let _ = writeln!(
                        out,
                        "  … and {} more (--json or --html has them all)",
                        report.warnings - shown
                    );
                    return out;
                }
                let _ = writeln!(out, "  {}: {w}", v.scenario);
                shown += 1;
            }
        }
    }
    out
}

fn line(out: &mut String, v: &ScenarioVerdict, counts: &[u32], width: usize) {
    let f = &v.facts;
    let name: String = v.scenario.chars().take(width).collect();
    let layout = if f.shared { "shared" } else { "per proc." };
    let size = forebay_plot::bytes(f.request_kb * 1024.0);
    let _ = write!(
        out,
        "{name:width$}  {:>5}  {layout:<10}  {:<10}  {size:>8}  {:<6}",
        f.processes, f.spatiality, f.operation
    );
    for c in counts {
        let cell = v.counts.iter().find(|k| k.io_nodes == *c).map_or("–".to_owned(), |k| {
            let star = if v.best.median == *c { "*" } else { "" };
            match (k.samples, k.quartiles) {
                (1, _) => format!("{star}{}", short(k.median)),
                (_, (low, high)) => format!("{star}{} [{}–{}]", short(k.median), short(low), short(high)),
            }
        });
        let _ = write!(out, "  {cell:>CELL$}");
    }
    let (best, enough) = (v.best.median, v.enough());
    let _ = writeln!(
        out,
        "  {:<9}  {:>6}  {best:>4}  {enough:>6}  {}",
        v.repetitions(),
        v.p(),
        v.choices_shown()
    );
}

fn row(out: &mut String, name: &str, tally: &BTreeMap<u32, usize>, counts: &[u32]) {
    let _ = write!(out, "{name:32}");
    for c in counts {
        let _ = write!(out, "{:>6}", tally.get(c).copied().unwrap_or(0));
    }
}

/// Four characters or so.
fn short(v: f64) -> String {
    if v >= 1e12 {
        format!("{v:.2e}")
    } else if v >= 100.0 {
        format!("{v:.0}")
    } else if v >= 10.0 {
        format!("{v:.1}")
    } else {
        format!("{v:.2}")
    }
}
