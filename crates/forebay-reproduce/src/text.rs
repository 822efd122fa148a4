//! Claims and verdicts, as a person reads them.

use crate::{ClaimVerdict, Index, PublishedClaim, Tried};
use forebay_plot::{say, table};
use serde_json::json;

fn last<'t>(kept: &'t [Tried], claim: &PublishedClaim) -> Option<&'t ClaimVerdict> {
    kept.iter().find(|t| t.id == claim.id).map(|t| &t.verdict)
}

/// All claims, with the last verdict on each.
pub fn list(index: &Index, kept: &[Tried]) -> String {
    let header = ["id", "claim", "setting", "last verdict"];
    let mut t = table::new(&header, &["claim", "setting", "last verdict"]);
    for e in &index.entry {
        let verdict = last(kept, e).map_or("not tried", |v| v.name());
        t.add_row([e.id.as_str(), e.claim.as_str(), e.setting.name(), verdict]);
    }
    format!("{t}\n{} claims\n", index.entry.len())
}

/// The same for programs.
pub fn list_json(index: &Index, kept: &[Tried]) -> Vec<serde_json::Value> {
    let entry = |e: &PublishedClaim| {
        let last = last(kept, e);
        json!({
            "id": e.id, "source": e.source, "figure": e.figure, "claim": e.claim,
            "setting": e.setting, "command": e.command(), "published": e.published, "unit": e.unit,
            "tolerance": e.tolerance, "last_verdict": last.map(|v| v.name()),
            "because": last.and_then(|v| v.because()),
        })
    };
    index.entry.iter().map(entry).collect()
}

/// What was tried now.
pub fn tried(index: &Index, tried: &[Tried]) -> String {
    let header = ["id", "published", "here", "range", "verdict"];
    let mut t = table::new(&header, &["verdict"]);
    for x in tried {
        let Some(e) = index.find(&x.id) else { continue };
        let value = |v: f64| format!("{v:.3} {}", e.unit);
        let range = x.measured.as_ref().filter(|m| m.low != m.high);
        t.add_row([
            e.id.clone(),
            value(e.published),
            x.measured.as_ref().map_or(String::new(), |m| value(m.value)),
            range.map_or(String::new(), |m| format!("{:.3} to {:.3}, {}", m.low, m.high, m.range)),
            x.verdict.name().to_owned(),
        ]);
    }
    let mut out = format!("{t}\n\n");
    for x in tried {
        if let Some(why) = x.verdict.because() {
            say!(out, "{}: {why}", x.id);
        }
    }
    let count = |name: &str| tried.iter().filter(|t| t.verdict.name() == name).count();
    say!(out, "\n{}", ClaimVerdict::NAMES.map(|n| format!("{} {n}", count(n))).join(", "));
    out
}
