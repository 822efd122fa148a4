//! The report: every claim with its verdict, and our value drawn beside the published one.

use crate::index::{Index, PublishedClaim, Tolerance};
use crate::state::Tried;
use crate::verdict::ClaimVerdict;
use forebay_plot::{Axis, BarSeries, Bars, Size};
use std::fmt::Write as _;

/// What a page about the verdicts says of where they are from.
const STYLE: &str = "body{font:15px/1.45 system-ui,sans-serif;margin:2rem auto;max-width:1060px;padding:0 1rem}\
h2{margin-top:2.2rem}article{border-top:1px solid #ccc;padding:.8rem 0;display:grid;grid-template-columns:1fr 330px;gap:1rem}\
.v{font-weight:600;padding:.1rem .5rem;border-radius:.3rem}.reproduced{background:#d7f0dc}.refuted{background:#f6d3d3}\
.differs{background:#fbeccb}.not{background:#e4e4ea}table{border-collapse:collapse}td,th{padding:.15rem .7rem;text-align:left}\
code{background:#f2f2f2;padding:0 .25rem}p{margin:.3rem 0}small{color:#555}";

/// The report as one HTML page. `about` says when, with which program and on which machine.
pub fn html(index: &Index, tried: &[Tried], about: &[String]) -> String {
    let mut page = format!(
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content=\"width=device-width\">\
         <title>Reproduction of the sources' results</title><style>{STYLE}</style><h1>Reproduction of the sources' results</h1>"
    );
    for line in about {
        let _ = write!(page, "<p><small>{}</small></p>", escape(line));
    }
    let count = |name: &str| tried.iter().filter(|t| t.verdict.name() == name).count();
    page += "<table><tr><th>verdict<th>claims</tr>";
    for name in ClaimVerdict::NAMES {
        let _ = write!(page, "<tr><td>{name}<td>{}</tr>", count(name));
    }
    page += "</table>";
    let mut source = "";
    for entry in &index.entry {
        let Some(t) = tried.iter().find(|t| t.id == entry.id) else { continue };
        if entry.source != source {
            source = &entry.source;
            let _ = write!(page, "<h2>{}</h2>", escape(source));
        }
        page += &article(entry, t);
    }
    page + "</html>\n"
}

fn article(entry: &PublishedClaim, t: &Tried) -> String {
    let class = t.verdict.name().split(' ').next().unwrap_or_default();
    let mut text = format!(
        "<article id=\"{id}\"><div><p><span class=\"v {class}\">{}</span> <b>{id}</b> <small>{}, {}</small></p><p>{}</p>",
        t.verdict.name(),
        escape(&entry.figure),
        entry.setting.name(),
        escape(&entry.claim),
        id = escape(&entry.id),
    );
    let unit = escape(&entry.unit);
    let _ = write!(text, "<p>published {} {unit} ({})", show(entry.published), tolerance(entry.tolerance));
    if let Some(m) = &t.measured {
        let _ = write!(text, "; ours <b>{}</b> {unit}", show(m.value));
        if m.low != m.high {
            let _ = write!(text, " ({} to {}, {})", show(m.low), show(m.high), escape(&m.range));
        }
    }
    text += "</p>";
    if let Some(why) = t.verdict.because() {
        let _ = write!(text, "<p>because: {}</p>", escape(why));
    }
    let _ = write!(text, "<p><code>{}</code></p></div><div>", escape(&entry.command()));
    if let Some(m) = &t.measured {
        text += &chart(entry, m.value);
    }
    text + "</div></article>"
}

fn chart(entry: &PublishedClaim, ours: f64) -> String {
    Bars {
        size: Size::new(320.0, 190.0),
        categories: vec!["published".into(), "here".into()],
        y: Axis::linear(&entry.unit),
        series: vec![BarSeries::new("value", [entry.published, ours])],
        labels: true,
        ..Bars::default()
    }
    .svg()
}

fn tolerance(t: Tolerance) -> String {
    match t {
        Tolerance::Relative(part) => format!("± {:.0} %", 100.0 * part),
        Tolerance::Absolute(most) => format!("± {}", show(most)),
        Tolerance::AtLeast => "or more".into(),
        Tolerance::AtMost => "or less".into(),
        Tolerance::AtLeastPart(part) => format!("at least {:.0} % of it", 100.0 * part),
    }
}

/// As many digits as say something.
pub(crate) fn show(value: f64) -> String {
    match value.abs() {
        v if v >= 100.0 => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        v if v >= 0.1 || v == 0.0 => format!("{value:.2}"),
        _ => format!("{value:.5}"),
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
