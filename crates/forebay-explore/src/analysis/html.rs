//! The report as one self-contained HTML page.

use super::measurements::describe;
use super::verdict::{Rule, ScenarioVerdict, StudyReport};
use forebay_plot::{Axis, BarSeries, Bars, Line, Series, Size, Spread};
use std::fmt::Write;

const STYLE: &str = "
body{font:15px/1.5 system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',Arial,sans-serif;color:#1f2933;background:#f5f7fa;margin:0}
main{max-width:1240px;margin:0 auto;padding:28px 20px 60px}
h1{font-size:26px;margin:0 0 2px} h2{font-size:19px;margin:34px 0 8px} p{margin:6px 0;max-width:75ch} .muted{color:#616e7c}
.cards{display:flex;flex-wrap:wrap;gap:12px;margin:18px 0}
.card{background:#fff;border:1px solid #e4e7eb;border-radius:8px;padding:10px 16px;min-width:120px}
.card b{display:block;font-size:24px;line-height:1.2} .card span{color:#616e7c;font-size:13px}
.row{display:flex;flex-wrap:wrap;gap:14px} .row>svg,.panels figure{background:#fff;border:1px solid #e4e7eb;border-radius:8px}
.panels{display:grid;grid-template-columns:repeat(auto-fill,minmax(232px,1fr));gap:10px}
.panels figure{margin:0;padding:2px 0 6px} .panels svg{display:block;width:100%;height:auto}
figcaption{font-size:11.5px;color:#616e7c;padding:0 10px} figcaption b{color:#1f2933}
table{border-collapse:collapse;background:#fff;border:1px solid #e4e7eb;font-size:13px;width:100%}
th,td{padding:4px 9px;text-align:right;border-bottom:1px solid #eef1f4;white-space:nowrap} th{background:#f0f3f6;position:sticky;top:0}
td:first-child,th:first-child,.l{text-align:left} tr:hover td{background:#f7f9fb} td.best{font-weight:600;color:#0072b2}
input{font:inherit;padding:6px 10px;border:1px solid #cbd2d9;border-radius:6px;width:340px;max-width:100%}
.wide{overflow-x:auto}";

const SCRIPT: &str = "
document.getElementById('f').addEventListener('input',e=>{const w=e.target.value.toLowerCase().split(/\\s+/);
document.querySelectorAll('[data-k]').forEach(x=>{x.style.display=w.every(y=>x.dataset.k.includes(y))?'':'none'})})";

/// The page: summary, the two histograms, a small plot for each scenario, and the numbers.
pub fn html(report: &StudyReport, title: &str) -> String {
    let mut out = String::with_capacity(64 * 1024);
    let title = escape(title);
    let _ = write!(
        out,
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" \
         content=\"width=device-width\"><title>{title}</title><style>{STYLE}</style></head><body><main>\
         <h1>{title}</h1><p class=\"muted\">{} scenarios, {} measurements</p>",
        report.scenarios, report.rows
    );
    cards(&mut out, report);
    histograms(&mut out, report);
    let _ = write!(
        out,
        "<h2>Bandwidth by number of I/O nodes</h2><p class=\"muted\">MB/s at the clients. Marks: \
         median; bars: quartiles; faint dots: single repetitions. Direct access (0) stands apart: it is no number of \
         I/O nodes. Colours mean the same in every panel; the y axes differ.</p>\
         <p><input id=\"f\" placeholder=\"filter: shared strided 512 …\" aria-label=\"filter scenarios\"></p>\
         <div class=\"panels\">"
    );
    for v in &report.verdicts {
        panel(&mut out, v);
    }
    out.push_str("</div>");
    table(&mut out, report);
    warnings(&mut out, report);
    let _ = write!(
        out,
        "<h2>How this was decided</h2><p>Kruskal-Wallis says first whether the number of I/O nodes matters at all \
         (p ≤ 0.05); only then pairs are compared. {} A number of I/O nodes is a distinct choice if it differs from every smaller \
         number. “Enough” is the smallest number that does not differ from the best one (by median). \
         Kruskal-Wallis and Dunn are corrected for ties. The study compared every pair without asking first, which is how \
         figure (a) counts; its bars are Wilson's 95 % intervals, as if the scenarios were drawn from all \
         there could be.</p></main>\
         <script>{SCRIPT}</script></body></html>",
        match report.rule {
            Rule::Described =>
                "Two numbers differ if Dunn's one-sided p is at most α/2 = 0.025, as the FORGE study describes.",
            Rule::Published =>
                "Two numbers differ if Dunn's Z of the smaller against the larger is at most 0.05, which is how the \
                 FORGE study's published figure was made (Z where its text says p).",
        }
    );
    out
}

fn cards(out: &mut String, r: &StudyReport) {
    let most = |tally: &std::collections::BTreeMap<u32, usize>| {
        tally.iter().max_by_key(|(_, n)| **n).map_or(String::from("–"), |(c, _)| c.to_string())
    };
    let share = r.forwarding.median;
    let both = share.forwarding + share.direct;
    let one = r.distinct_gated.get(&1).copied().unwrap_or(0);
    let forwarding = match both {
        0 => String::from("–"),
        of => forebay_plot::percent(share.forwarding as f64 / of as f64),
    };
    out.push_str("<div class=\"cards\">");
    for (value, label) in [
        (most(&r.best.median), "I/O nodes: most often best (median)".to_owned()),
        (forwarding, "of scenarios best with forwarding".to_owned()),
        (format!("{one} of {}", r.scenarios), "scenarios with one distinct choice only".to_owned()),
        (r.warnings.to_string(), "warnings".to_owned()),
    ] {
        let _ = write!(out, "<div class=\"card\"><b>{value}</b><span>{label}</span></div>");
    }
    out.push_str("</div>");
}

fn histograms(out: &mut String, r: &StudyReport) {
    let size = Size::new(590.0, 330.0);
    let choices = Bars {
        title: "(a) Statistically distinct choices".into(),
        size,
        x_label: "choices a scenario has".into(),
        categories: r.distinct.keys().map(usize::to_string).collect(),
        y: Axis::linear("scenarios"),
        series: vec![tally("scenarios", r.distinct.values())],
        labels: true,
        ..Bars::default()
    };
    let best = Bars {
        title: "(b) Best number of I/O nodes".into(),
        size,
        x_label: "I/O nodes".into(),
        categories: r.best.max.keys().map(u32::to_string).collect(),
        y: Axis::linear("scenarios"),
        series: vec![
            tally("by the fastest repetition", r.best.max.values()),
            tally("by the mean", r.best.mean.values()),
            tally("by the median", r.best.median.values()),
        ],
        labels: true,
        ..Bars::default()
    };
    let _ = write!(out, "<h2>All scenarios</h2><div class=\"row\">{}{}</div>", choices.svg(), best.svg());
}

/// Bars of counts, each with Wilson's interval of its share of all.
fn tally<'a>(name: &str, counts: impl Iterator<Item = &'a usize> + Clone) -> BarSeries {
    let all: usize = counts.clone().sum();
    let mut series = BarSeries::new(name, counts.clone().map(|n| *n as f64));
    series.ranges = counts.map(|n| wilson(*n, all)).collect();
    series
}

/// The 95 % interval of a count out of `of`.
fn wilson(count: usize, of: usize) -> (f64, f64) {
    const Z: f64 = 1.959_964;
    let (k, n) = (count as f64, of.max(1) as f64);
    let p = k / n;
    let middle = (p + Z * Z / (2.0 * n)) / (1.0 + Z * Z / n);
    let half = Z / (1.0 + Z * Z / n) * (p * (1.0 - p) / n + Z * Z / (4.0 * n * n)).sqrt();
    (((middle - half) * n).max(0.0), ((middle + half) * n).min(n))
}

fn panel(out: &mut String, v: &ScenarioVerdict) {
    // Always both, in this order, so that each has its colour in every panel.
    let part = |name: &str, wanted: fn(u32) -> bool| {
        let of = v.counts.iter().enumerate().filter(|(_, c)| wanted(c.io_nodes));
        let mut series = Series::with_range(
            name,
            of.clone().map(|(i, c)| (i as f64, c.median, c.quartiles.0, c.quartiles.1)),
        );
        for (i, c) in of {
            let runs = v.runs.get(&c.io_nodes).into_iter().flatten();
            series.samples.extend(runs.map(|mbs| (i as f64, *mbs)));
        }
        series
    };
    let series = vec![part("forwarded", |n| n > 0), part("direct", |n| n == 0)];
    let svg = Line {
        title: v.scenario.clone(),
        size: Size::SMALL,
        x: Axis::categories("", v.counts.iter().map(|c| c.io_nodes.to_string())),
        y: Axis::linear(""),
        series,
        no_legend: true,
        spread: Spread::Bars,
        ..Line::default()
    }
    .svg();
    let words = describe(&v.facts);
    let key = escape(&format!("{} {words}", v.scenario).to_lowercase());
    let _ = write!(
        out,
        "<figure data-k=\"{key}\">{svg}<figcaption>{}<br>best <b>{}</b>, enough <b>{}</b>, n = {}, p {}</figcaption></figure>",
        escape(&words),
        v.best.median,
        v.enough(),
        v.repetitions(),
        escape(&v.p())
    );
}

fn table(out: &mut String, r: &StudyReport) {
    out.push_str("<h2>The numbers</h2><div class=\"wide\"><table><thead><tr><th>scenario</th><th class=\"l\">pattern</th>");
    let counts: Vec<u32> = r.best.max.keys().copied().collect();
    for c in &counts {
        let _ = write!(out, "<th>{c}</th>");
    }
    out.push_str(
        "<th>n</th><th title=\"Kruskal-Wallis\">p</th><th>best</th><th>enough</th><th>choices</th></tr></thead><tbody>",
    );
    for v in &r.verdicts {
        let words = describe(&v.facts);
        let key = escape(&format!("{} {words}", v.scenario).to_lowercase());
        let _ = write!(
            out,
            "<tr data-k=\"{key}\"><td>{}</td><td class=\"l\">{}</td>",
            escape(&v.scenario),
            escape(&words)
        );
        for c in &counts {
            match v.counts.iter().find(|k| k.io_nodes == *c) {
                None => out.push_str("<td>–</td>"),
                Some(k) => {
                    let class = if v.best.median == *c { " class=\"best\"" } else { "" };
                    let hover = format!(
                        "{} repetitions, mean {:.1}, {:.1} to {:.1}",
                        k.samples, k.mean, k.min, k.max
                    );
                    let range = match (k.samples, k.quartiles) {
                        (1, _) => String::new(),
                        (_, (low, high)) => format!(" [{low:.1}–{high:.1}]"),
                    };
                    let _ = write!(out, "<td{class} title=\"{hover}\">{:.1}{range}</td>", k.median);
                }
            }
        }
        let _ = write!(
            out,
            "<td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            v.repetitions(),
            escape(&v.p()),
            v.best.median,
            v.enough(),
            v.choices_shown()
        );
    }
    out.push_str("</tbody></table></div>");
}

fn warnings(out: &mut String, r: &StudyReport) {
    if r.warnings == 0 {
        return;
    }
    let _ = write!(out, "<h2>Warnings</h2><details><summary>{} warnings</summary><ul>", r.warnings);
    for v in &r.verdicts {
        for w in &v.warnings {
            let _ = write!(out, "<li>{}: {}</li>", escape(&v.scenario), escape(&w.to_string()));
        }
    }
    out.push_str("</ul></details>");
}

fn escape(s: &str) -> String {
    s.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
