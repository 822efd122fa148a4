//! Charts of what was simulated.

use crate::queue::{Outcome, QueueFile};
use crate::study::{Cell, Study};
use forebay_plot::{Axis, BarSeries, Bars, Gantt, Hold, Line, Series, Size};
use forebay_policy::PolicyKind;

/// A set study: the totals, and how far the sets lie apart in what the better policies gain.
pub fn study(study: &Study) -> String {
    let size = Size::new(860.0, 440.0);
    let x = || Axis::linear("I/O nodes");
    let cells = |kind| study.cells.iter().filter(move |c: &&Cell| c.policy == kind);
    let total = |c: &Cell| (f64::from(c.io_nodes), c.total_mbs.median / 1000.0);
    // ORACLE does not depend on the pool; without it the colours suffice.
    let oracle = cells(PolicyKind::Oracle).next().map_or(0.0, |c| total(c).1);
    let kinds = PolicyKind::ALL.into_iter().filter(|&k| k != PolicyKind::Oracle);
    let totals = Line {
        title: format!(
            "Total bandwidth, median of {} sets of {} jobs (ORACLE: {oracle:.1} GB/s)",
            study.sets, study.set_size
        ),
        size,
        x: x(),
        y: Axis::linear("GB/s"),
        series: kinds.map(|k| Series::new(k.name(), cells(k).map(total))).collect(),
        ..Line::default()
    };
    let gain = |c: &Cell| {
        let g = c.over_static;
        (f64::from(c.io_nodes), 1.0 + g.median, 1.0 + g.q1, 1.0 + g.q3)
    };
    let better = [PolicyKind::Dfra, PolicyKind::Mckp, PolicyKind::Fair];
    let gains = Line {
        title: "Against STATIC, set by set: median and quartiles".into(),
        size,
        x: x(),
        y: Axis::linear("× STATIC"),
        series: better.map(|k| Series::with_range(k.name(), cells(k).map(gain))).into(),
        ..Line::default()
    };
    stack(&[totals.svg(), gains.svg()], size)
}

/// A queue: each job's bandwidth under these policies, and who held which I/O node under each.
pub fn queue(file: &QueueFile, outcomes: &[&Outcome]) -> String {
    let size = Size::new(1000.0, 420.0);
    let mut charts = vec![bars(outcomes, size)];
    charts.extend(outcomes.iter().map(|o| gantt(file, o, size)));
    stack(&charts, size)
}

fn bars(outcomes: &[&Outcome], size: Size) -> String {
    let series = |o: &&Outcome| BarSeries::new(o.policy.name(), o.jobs.iter().map(|j| j.bandwidth_mbs));
    let jobs = outcomes.first().map(|o| o.jobs.iter().map(|j| j.id.clone()).collect());
    Bars {
        title: "Bandwidth of each job".into(),
        size,
        x_label: "job".into(),
        categories: jobs.unwrap_or_default(),
        y: Axis::linear("MB/s"),
        series: outcomes.iter().map(series).collect(),
        ..Bars::default()
    }
    .svg()
}

fn gantt(file: &QueueFile, outcome: &Outcome, size: Size) -> String {
    let holds = outcome.jobs.iter().enumerate().flat_map(|(holder, job)| {
        job.holds.iter().flat_map(move |hold| {
            hold.io_nodes.iter().map(move |node| Hold {
                row: node.0 as usize,
                from: hold.from,
                to: hold.until,
                holder,
                label: job.id.clone(),
            })
        })
    });
    Gantt {
        title: format!("{}: who held which I/O node", outcome.policy),
        size,
        x: Axis::linear("seconds"),
        rows: (0..file.io_nodes).map(|n| format!("I/O node {n}")).collect(),
        holders: outcome.jobs.iter().map(|j| j.id.clone()).collect(),
        holds: holds.collect(),
    }
    .svg()
}

/// Charts of one size one below the other.
fn stack(charts: &[String], Size { width, height }: Size) -> String {
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{all}\" viewBox=\"0 0 {width} {all}\">\n",
        all = height * charts.len() as f64
    );
    for (i, chart) in charts.iter().enumerate() {
        let y = height * i as f64;
        svg.push_str(&chart.replacen("<svg ", &format!("<svg y=\"{y}\" "), 1));
        svg.push('\n');
    }
    svg + "</svg>\n"
}
