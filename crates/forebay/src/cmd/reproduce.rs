//! `forebay reproduce`: the sources' results, tested.

use super::lab::watched;
use anyhow::{Result, bail};
use clap::{Args, ValueHint};
use forebay_lab::experiment::{Experiment, Isolation, Metadata, Overhead, Twins};
use forebay_lab::{Progress, Size};
use forebay_plot::table;
use forebay_reproduce::trial::{self, Choice};
use forebay_reproduce::{Break, Entry, Index, Laboratory, Setup, Tried};
use serde_json::json;
use std::path::PathBuf;
use std::process::ExitCode;

/// Test the results of the sources
///
/// Every claim in the index (`--list`) has a published value and a tolerance in a data file, and a figure that
/// is made here: from published data, in the simulator, or on real I/O nodes. The verdict is *reproduced*,
/// *refuted*, *differs* for a known reason, or *not possible here*. Figures are kept in `--out` as soon as they
/// are made, so that a session that was interrupted goes on where it was; the report is written there as
/// `index.html` and `verdicts.json`.
#[derive(Args)]
#[command(after_long_help = "\
Examples:
  forebay reproduce --list
  forebay reproduce mckp-over-static
  forebay reproduce --all --out results")]
pub(crate) struct Reproduce {
    /// Which claims
    #[arg(value_name = "ID", required_unless_present_any = ["all", "list"])]
    ids: Vec<String>,

    /// All claims
    #[arg(long, conflicts_with = "ids")]
    all: bool,

    /// The papers' sizes instead of the small setting
    #[arg(long)]
    full: bool,

    /// Only those that need no real I/O nodes
    #[arg(long)]
    offline: bool,

    /// List the claims, with the last verdict on each
    #[arg(long)]
    list: bool,

    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,

    /// Keep figures and the report here
    #[arg(long, value_name = "DIR", default_value = "reproduced", value_hint = ValueHint::DirPath)]
    out: PathBuf,

    /// Make figures anew that were kept
    #[arg(long)]
    anew: bool,

    /// Break something on purpose: the verdicts must change
    #[arg(long = "break", value_name = "WHAT", hide = true)]
    broken: Option<Break>,
}

/// The laboratory of this machine.
struct Here<'a>(&'a dyn Progress);

impl Laboratory for Here<'_> {
    fn run(&self, experiment: &str, full: bool) -> Result<Vec<(String, String)>> {
        let size = if full { Size::Full } else { Size::Small };
        let experiment: Box<dyn Experiment> = match experiment {
            "twins" => Box::new(Twins { size, ..Twins::default() }),
            "isolation" => Box::new(Isolation { size, ..Isolation::default() }),
            "metadata" => Box::new(Metadata { size, ..Metadata::default() }),
            "overhead" => Box::new(Overhead { size, ..Overhead::default() }),
            other => bail!("there is no experiment {other:?}"),
        };
        Ok(experiment.run(self.0)?.files)
    }
}

impl Reproduce {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let index = Index::built_in()?;
        if self.list {
            return self.list(&index);
        }
        let ids = if self.all { &[] } else { &self.ids[..] };
        let entries = Choice { ids, offline: self.offline }.of(&index)?;
        // What is broken on purpose is nobody's result: it is not kept.
        let kept = self.broken.is_none().then_some(self.out.as_path());
        let tried = watched(|progress| {
            let here = Here(progress);
            let (full, broken, tables) = (self.full, self.broken, &index.table);
            let setup = Setup { full, broken, tables, laboratory: Some(&here) };
            trial::try_all(&entries, &setup, kept, self.anew, &|done, of, group| {
                progress.begin(of);
                progress.advance(done);
                progress.doing(group);
            })
        })?;
        if let Some(out) = kept {
            trial::write_report(&index, out, self.full)?;
        }
        self.print(&index, &tried)?;
        Ok(ExitCode::SUCCESS)
    }

    fn list(&self, index: &Index) -> Result<ExitCode> {
        let all = trial::kept(index, &self.out, self.full)?;
        let last = |e: &Entry| all.iter().find(|t| t.id == e.id).map(|t| &t.verdict);
        if self.json {
            let entry = |e: &Entry| {
                json!({
                    "id": e.id, "source": e.source, "figure": e.figure, "claim": e.claim,
                    "setting": e.setting, "command": e.command(), "published": e.published, "unit": e.unit,
                    "tolerance": e.tolerance, "last_verdict": last(e).map(|v| v.name()),
                    "because": last(e).and_then(|v| v.because()),
                })
            };
            let all: Vec<_> = index.entry.iter().map(entry).collect();
            println!("{}", serde_json::to_string_pretty(&all)?);
            return Ok(ExitCode::SUCCESS);
        }
        let mut t =
            table::new(&["id", "claim", "setting", "last verdict"], &["claim", "setting", "last verdict"]);
        for e in &index.entry {
            let verdict = last(e).map_or("not tried", |v| v.name());
            t.add_row([e.id.as_str(), e.claim.as_str(), e.setting.name(), verdict]);
        }
        println!("{t}\n{} claims", index.entry.len());
        Ok(ExitCode::SUCCESS)
    }

    fn print(&self, index: &Index, tried: &[Tried]) -> Result<()> {
        if self.json {
            println!("{}", serde_json::to_string_pretty(tried)?);
            return Ok(());
        }
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
        println!("{t}\n");
        for x in tried {
            if let Some(why) = x.verdict.because() {
                println!("{}: {why}", x.id);
            }
        }
        let count = |name: &str| tried.iter().filter(|t| t.verdict.name() == name).count();
        let names = ["reproduced", "refuted", "differs", "not possible here"];
        println!("\n{}", names.map(|n| format!("{} {n}", count(n))).join(", "));
        Ok(())
    }
}
