//! What was simulated, as a person reads it.

use crate::decision::Timed;
use crate::fit::Predicted;
use crate::fluid::Compared;
use crate::queue::{self, Outcome, QueueFile};
use crate::requests;
use crate::study::{self, Study};
use crate::taihulight::{self, Replay, TABLE_4};
use forebay_plot::{say, table};
use forebay_policy::{PolicyKind, WhatIf};

/// Every request under several schedulers: each one's name, what came out, and how many requests were simulated
/// in a second of processor time.
pub fn requests(rows: &[(String, requests::Outcome, f64)]) -> String {
    let header = ["scheduler", "MB/s", "seconds", "requests a batch", "a call, ms", "simulated requests/s"];
    let mut t = table::new(&header, &[]);
    for (name, o, speed) in rows {
        t.add_row([
            name.clone(),
            format!("{:.1}", o.bandwidth().0),
            format!("{:.3}", o.end.as_secs_f64()),
            format!("{:.2}", o.merged()),
            format!("{:.3}", o.flow(0).mean().as_secs_f64() * 1e3),
            format!("{speed:.0}"),
        ]);
    }
    format!("{t}\n")
}

/// The same for programs.
pub fn requests_json(rows: &[(String, requests::Outcome, f64)]) -> Vec<serde_json::Value> {
    let row = |(name, o, speed): &(String, requests::Outcome, f64)| {
        serde_json::json!({
            "scheduler": name,
            "bandwidth_mbs": o.bandwidth().0,
            "seconds": o.end.as_secs_f64(),
            "requests_per_batch": o.merged(),
            "mean_call_ms": o.flow(0).mean().as_secs_f64() * 1e3,
            "simulated_requests_per_s": speed,
        })
    };
    rows.iter().map(row).collect()
}

/// One decision for a given set of jobs.
pub fn what_if(WhatIf { decision, explained, fixed }: &WhatIf) -> String {
    let mbs = |b: Option<f64>| b.map_or("?".to_owned(), |b| format!("{b:.1}"));
    let header = ["job", "compute\nnodes", "I/O nodes", "MB/s", "STATIC", "gain", "why"];
    let mut table = table::new(&header, &["why"]);
    for e in explained {
        let nodes = match (e.io_nodes, e.shared) {
            (_, true) => "shared".to_owned(),
            (0, _) => "direct".to_owned(),
            (n, _) => n.to_string(),
        };
        let gain = e.gain.map_or(String::new(), |g| format!("{g:+.1}"));
        let fixed = format!("{} → {}", e.static_io_nodes, mbs(e.static_bandwidth.map(|b| b.0)));
        table.add_row([
            e.id.clone(),
            e.compute_nodes.to_string(),
            nodes,
            mbs(e.bandwidth.map(|b| b.0)),
            fixed,
            gain,
            e.why.clone(),
        ]);
    }
    let mut out = format!("{table}\n");
    let compared = fixed.filter(|f| f.0 > 0.0 && decision.policy != PolicyKind::Static);
    let compared =
        compared.map_or(String::new(), |f| format!(", {:.2}× STATIC's {f}", decision.total.0 / f.0));
    say!(
        out,
        "{}: {} in total{compared}; {} of {} I/O nodes used",
        decision.policy,
        decision.total,
        decision.used(),
        decision.io_nodes
    );
    if let Some(share) = decision.share {
        say!(out, "Every job keeps at least {:.0} % of what STATIC would give it.", share * 100.0);
    }
    if decision.used() > u64::from(decision.io_nodes) {
        say!(out, "More are handed out than there are: jobs would share I/O nodes and get less than shown.");
    }
    match decision.unpredicted() {
        0 => {}
        n => {
            say!(out, "{n} of {} jobs have no predicted bandwidth and are not in the total.", explained.len())
        }
    }
    out
}

/// The set study.
pub fn study(study: &Study, pools: &[u32]) -> String {
    let mut out = String::new();
    say!(
        out,
        "{} sets of {} jobs out of {} patterns, seed {}; {:.0} compute nodes a set in the median ({:.0} to {:.0})\n",
        study.sets,
        study.set_size,
        study.scenarios,
        study.seed,
        study.compute_nodes.median,
        study.compute_nodes.min,
        study.compute_nodes.max
    );
    let header: Vec<String> = std::iter::once("I/O nodes".to_owned())
        .chain(PolicyKind::ALL.iter().map(|k| k.to_string()))
        .collect();
    let mut show = |title: &str, value: &dyn Fn(&study::Cell) -> String| {
        let mut shown = table::new(&header, &[]);
        for &pool in pools {
            let cell = |kind: &PolicyKind| study.cell(*kind, pool).map_or(String::new(), value);
            shown.add_row(std::iter::once(pool.to_string()).chain(PolicyKind::ALL.iter().map(cell)));
        }
        say!(out, "{title}\n{shown}\n");
    };
    show("Total bandwidth of a set, median, GB/s", &|c| format!("{:.2}", c.total_mbs.median / 1000.0));
    show("Against STATIC, set by set, median", &|c| percent(c.over_static.median));
    say!(
        out,
        "Each job counts with what it gets alone on the I/O nodes that it is given. MCKP and FAIR hand out no more than there\n\
         are; the others may, where jobs would share them and get less than shown: then MCKP can be below them."
    );
    let median = |kind| study.cell(kind, pools[0]).map_or(0.0, |c| c.over_zero.median);
    say!(
        out,
        "Against ZERO, median: ONE {}, ORACLE {}",
        percent(median(PolicyKind::One)),
        percent(median(PolicyKind::Oracle))
    );
    let reaches = study.mckp_reaches_oracle;
    say!(
        out,
        "MCKP reaches ORACLE with {} I/O nodes in the median set (quartiles {} and {}, at most {})",
        reaches.median,
        reaches.q1,
        reaches.q3,
        reaches.max
    );
    out
}

fn percent(part: f64) -> String {
    format!("{:+.1} %", part * 100.0)
}

/// A queue under every policy, and what FAIR keeps of MCKP's gain.
pub fn queue(
    file: &QueueFile,
    outcomes: &[Outcome],
    fixed: &Outcome,
    mckp: &Outcome,
    fair: &Outcome,
    share: f64,
) -> String {
    let mut out = String::new();
    say!(
        out,
        "{} jobs on {} compute nodes and {} I/O nodes, direct access {}\n",
        file.queue.len(),
        file.compute_nodes,
        file.io_nodes,
        if file.direct { "allowed" } else { "not allowed" }
    );
    let mut all = table::new(
        &["policy", "aggregate GB/s", "× STATIC", "makespan s", "least job × STATIC", "moves"],
        &[],
    );
    for o in outcomes {
        all.add_row([
            o.policy.to_string(),
            format!("{:.2}", o.aggregate_mbs / 1000.0),
            format!("{:.2}", o.aggregate_mbs / fixed.aggregate_mbs),
            format!("{:.1}", o.makespan),
            format!("{:.2}", queue::least_share(o, fixed)),
            o.jobs.iter().map(|j| j.moves).sum::<u32>().to_string(),
        ]);
    }
    say!(out, "{all}\n");
    let mut jobs = table::new(&["job, MB/s", "STATIC", "MCKP", "FAIR", "FAIR × STATIC"], &[]);
    for ((f, m), a) in fixed.jobs.iter().zip(&mckp.jobs).zip(&fair.jobs) {
        jobs.add_row([
            f.id.clone(),
            format!("{:.1}", f.bandwidth_mbs),
            format!("{:.1}", m.bandwidth_mbs),
            format!("{:.1}", a.bandwidth_mbs),
            format!("{:.2}", a.bandwidth_mbs / f.bandwidth_mbs),
        ]);
    }
    say!(out, "{jobs}\n");
    say!(
        out,
        "FAIR reaches {:.0} % of MCKP's gain over STATIC; no job below {:.2} of STATIC (share {share})",
        100.0 * queue::part_of_gain(fair, fixed, mckp),
        queue::least_share(fair, fixed)
    );
    say!(
        out,
        "ORACLE gives every job the number of I/O nodes that is best for it alone, as if there were enough. Where \
         jobs\ntogether want more than {}, they share them and each gets less: on one pool it is no upper bound, \
         and MCKP can\nbe above it.",
        file.io_nodes
    );
    out
}

/// The same for programs.
pub fn queue_json(
    file: &QueueFile,
    outcomes: &[Outcome],
    fixed: &Outcome,
    mckp: &Outcome,
    fair: &Outcome,
    share: f64,
) -> serde_json::Value {
    serde_json::json!({
        "compute_nodes": file.compute_nodes,
        "io_nodes": file.io_nodes,
        "direct": file.direct,
        "mckp_over_static": mckp.aggregate_mbs / fixed.aggregate_mbs,
        "fair_part_of_gain": queue::part_of_gain(fair, fixed, mckp),
        "share": share,
        "fair_least_share": queue::least_share(fair, fixed),
        "policies": outcomes,
    })
}

/// A month under three mappings (fixed, round robin, DFRA), beside what the paper counted.
pub fn month(compared: &Compared) -> String {
    let Compared { days, jobs, fixed, dfra, .. } = compared;
    let mut out = String::new();
    say!(
        out,
        "{} jobs in {days:.0} days on 40,960 compute nodes ({:.0} % in use), 80 + 160 I/O nodes\n",
        jobs.len(),
        100.0 * dfra.utilisation
    );
    let mut t = table::new(&["eligibility (Table 4)", "jobs", "%", "published %"], &[]);
    let (s, p) = (&dfra.screening, &TABLE_4);
    for (name, a, b) in [
        ("benefits from more I/O nodes", s.benefit, p.benefit),
        ("volume < V_min (20 GB)", s.volume, p.volume),
        ("nodes doing I/O < N_min (32)", s.parallelism, p.parallelism),
        ("metadata queue ≥ W_metadata (32)", s.metadata, p.metadata),
    ] {
        let percent = |n: u32, of: u32| format!("{:.1}", 100.0 * f64::from(n) / f64::from(of.max(1)));
        t.add_row([name.to_owned(), a.to_string(), percent(a, s.jobs), percent(b, p.jobs)]);
    }
    say!(out, "{t}\n");
    say!(out, "node hours of those who benefit: {:.1} % (published 79.0 %)", 100.0 * dfra.benefit_node_hours);
    say!(
        out,
        "mode and volume predicted by the run before: {:.1} % (published 90.3 %)",
        100.0 * dfra.predicted
    );
    say!(
        out,
        "jobs on at least 512 nodes that share an I/O node under the fixed map: {:.1} % (published: over 99 %)",
        100.0 * fixed.large_shared
    );
    say!(
        out,
        "decided: {} scaled ({} cut short), {} isolated, {} found too few in reserve (published: extremely rare)",
        dfra.scaled,
        dfra.cut,
        dfra.isolated,
        dfra.short
    );
    say!(
        out,
        "I/O nodes in the mean over time: {:.1} default + {:.1} dedicated = {:.1} (published: 171.2 of 240); dedicated at most {}",
        dfra.default_mean,
        dfra.dedicated_mean,
        dfra.default_mean + dfra.dedicated_mean,
        dfra.dedicated_most
    );
    say!(out, "I/O time against the fixed map, job by job (median, mean of logarithms, most):");
    let names = ["DFRA, jobs with I/O nodes of their own", "DFRA, all jobs", "round robin 32:1, all jobs"];
    for (name, (s, mean)) in names.into_iter().zip(compared.speedups()) {
        say!(out, "  {name}: {:.2}×, {mean:.2}×, {:.1}×", s.median, s.max);
    }
    say!(out, "\nsimulated in {:.1} s", compared.took.as_secs_f64());
    out
}

/// What every policy decided once, and in what time.
pub fn decisions(timed: &[Timed]) -> String {
    let mut t = table::new(&["policy", "ms", "total GB/s", "I/O nodes used"], &[]);
    for one in timed {
        let (ms, total) = (one.took.as_secs_f64() * 1e3, one.total_gbs);
        t.add_row([one.policy.to_string(), format!("{ms:.1}"), format!("{total:.1}"), one.used.to_string()]);
    }
    format!("{t}\n")
}

/// A history through DFRA, beside what the paper counted.
pub fn dfra(replay: &Replay) -> String {
    let mut out = String::new();
    let mut screening = table::new(&["eligibility", "jobs", "%", "published", "%"], &[]);
    let (ours, theirs) = (&replay.screening, &TABLE_4);
    for (name, a, b) in [
        ("all", ours.jobs, theirs.jobs),
        ("benefits from more I/O nodes", ours.benefit, theirs.benefit),
        ("volume < V_min (20 GB)", ours.volume, theirs.volume),
        ("nodes doing I/O < N_min (32)", ours.parallelism, theirs.parallelism),
        ("metadata queue ≥ W_metadata (32)", ours.metadata, theirs.metadata),
    ] {
        let percent = |n: u32, of: u32| format!("{:.1}", 100.0 * f64::from(n) / f64::from(of));
        screening.add_row([
            name.to_owned(),
            a.to_string(),
            percent(a, ours.jobs),
            b.to_string(),
            percent(b, theirs.jobs),
        ]);
    }
    say!(out, "{screening}\n");
    say!(
        out,
        "Decided: {} scaled up, {} isolated, {} left with the default, {} wanted more than was idle",
        replay.scaled,
        replay.isolated,
        replay.default,
        replay.none_idle
    );
    say!(
        out,
        "I/O nodes in use: {:.0} in the median, {:.0} at most, of {}; {:.0} jobs at once in the median",
        replay.io_nodes_in_use.median,
        replay.io_nodes_in_use.max,
        taihulight::IO_NODES,
        replay.running.median
    );
    say!(
        out,
        "Those who benefit use {:.1} % of the node hours (published: 79.0 % of the core hours)",
        100.0 * replay.benefit_node_hours
    );
    say!(
        out,
        "A decision took {:.0} µs of processor time in the median, {:.0} µs at the 99th percentile, {:.0} µs at most",
        replay.decision_us.median,
        replay.decision_us_p99,
        replay.decision_us.max
    );
    out
}

/// What a model predicts, beside what it was fitted to and what was held out.
pub fn fit(predicted: &[Predicted]) -> String {
    let mut out = String::new();
    let mut t = table::new(&["result", "published", "model", "off", "used"], &[]);
    for p in predicted {
        t.add_row([
            p.target.what.clone(),
            format!("{:.2}", p.target.ratio),
            format!("{:.2}", p.ratio),
            format!("{:+.0} %", 100.0 * p.error()),
            if p.target.held_out { "held out" } else { "to fit" }.to_owned(),
        ]);
    }
    say!(out, "{t}\n");
    say!(
        out,
        "off in the mean: {:.1} % of what was fitted, {:.1} % of what was held out",
        100.0 * mean(predicted, false),
        100.0 * mean(predicted, true)
    );
    out
}

fn mean(predicted: &[Predicted], held_out: bool) -> f64 {
    let of: Vec<f64> =
        predicted.iter().filter(|p| p.target.held_out == held_out).map(|p| p.error().abs()).collect();
    of.iter().sum::<f64>() / of.len().max(1) as f64
}
