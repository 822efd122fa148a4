//! Which claims are tried, and the report about all that were.

use crate::{ClaimVerdict, Index, PublishedClaim, Session, Setup, Tried, html, judge};
use anyhow::{Context, Result, bail};
use forebay_types::output;
use std::collections::BTreeSet;
use std::path::Path;

/// Which claims.
pub struct Choice<'a> {
    /// These, by id; none: all.
    pub ids: &'a [String],
    /// Only those that need no real I/O nodes.
    pub offline: bool,
}

impl Choice<'_> {
    /// The claims in the order of the index.
    pub fn of<'i>(&self, index: &'i Index) -> Result<Vec<&'i PublishedClaim>> {
        for id in self.ids {
            if index.find(id).is_none() {
                bail!("there is no claim {id:?}; `forebay reproduce --list` shows all");
            }
        }
        let live = |e: &&PublishedClaim| e.group().is_some_and(|g| g.starts_with("live-"));
        let wanted = |e: &&PublishedClaim| self.ids.is_empty() || self.ids.contains(&e.id);
        Ok(index.entry.iter().filter(wanted).filter(|e| !(self.offline && live(e))).collect())
    }
}

/// Makes the figures of these claims, kept in `out` if anywhere, and judges them. `step` is told how many
/// groups are done of how many, and which is next. With `anew`, what was kept is made again.
pub fn try_all(
    entries: &[&PublishedClaim],
    setup: &Setup<'_>,
    out: Option<&Path>,
    anew: bool,
    step: &dyn Fn(usize, usize, &str),
) -> Result<Vec<Tried>> {
    let groups: BTreeSet<&str> = entries.iter().filter_map(|e| e.group()).collect();
    if let Some(out) = out.filter(|_| anew) {
        for group in &groups {
            // What is not there need not go.
            let _ = std::fs::remove_file(out.join(format!("{group}.json")));
        }
    }
    let mut session = Session::open(out)?;
    for (done, group) in groups.iter().enumerate() {
        step(done, groups.len(), group);
        session.make(group, setup)?;
    }
    Ok(entries.iter().filter_map(|e| session.verdict(e)).collect())
}

/// The figures of the last published run (`docs/results` says when and where it was).
const PUBLISHED_RUN: &str = include_str!("../../../data/reproduced.json");

/// The verdicts of the last published run. Its figures are judged by today's index: what was said then of a tolerance
/// that has changed since counts for nothing.
pub fn published(index: &Index) -> Result<Vec<Tried>> {
    let run: Vec<Tried> = serde_json::from_str(PUBLISHED_RUN).context("data/reproduced.json")?;
    let again = |t: Tried| {
        let entry = index.find(&t.id)?;
        let verdict = match (&entry.not_possible, &t.measured) {
            (Some(why), _) => ClaimVerdict::NotPossible(why.clone()),
            (None, Some(measured)) => judge(entry, measured),
            // It was tried and failed: nothing is known.
            (None, None) => return None,
        };
        Some(Tried { verdict, ..t })
    };
    Ok(run.into_iter().filter_map(again).collect())
}

/// The last verdict on each claim: those whose figures are kept in a directory, then those of the published run.
pub fn last(index: &Index, out: &Path, full: bool) -> Result<Vec<Tried>> {
    let mut all = kept(index, out, full)?;
    // What cannot be tested is known without a run.
    all.retain(|t| t.measured.is_some() || index.find(&t.id).is_some_and(|e| e.not_possible.is_some()));
    let earlier = published(index)?.into_iter().filter(|p| all.iter().all(|t| t.id != p.id));
    let earlier: Vec<Tried> = earlier.collect();
    all.extend(earlier);
    Ok(all)
}

/// The verdicts on all claims whose figures are kept in a directory.
pub fn kept(index: &Index, out: &Path, full: bool) -> Result<Vec<Tried>> {
    let mut session = Session::open(out.is_dir().then_some(out))?;
    for group in index.entry.iter().filter_map(|e| e.group()) {
        session.has(group, full);
    }
    Ok(session.verdicts(index))
}

/// Writes the report on all claims whose figures are kept in a directory into it.
pub fn write_report(index: &Index, out: &Path, full: bool) -> Result<()> {
    let all = kept(index, out, full)?;
    let page = html(index, &all, &about(full));
    let verdicts = serde_json::to_vec_pretty(&all)?;
    output::write(&out.join("index.html"), page)
        .and_then(|()| output::write(&out.join("verdicts.json"), verdicts))
        .with_context(|| format!("cannot write to {}", out.display()))
}

/// When, with what, and on which machine.
fn about(full: bool) -> Vec<String> {
    let now = std::process::Command::new("date").arg("-u").arg("+%Y-%m-%d %H:%M UTC").output();
    let date = now.map_or(String::new(), |o| String::from_utf8_lossy(&o.stdout).trim().to_owned());
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    vec![
        format!(
            "{date}, forebay {}, {} setting",
            env!("CARGO_PKG_VERSION"),
            if full { "full" } else { "small" }
        ),
        format!("{cores} cores, Linux {}", kernel.trim()),
    ]
}
