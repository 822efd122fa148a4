//! `forebay reproduce`: the sources' results, tested.

use super::lab::watched;
use anyhow::{Result, bail};
use clap::{Args, ValueHint};
use forebay_lab::experiment::{
    ArbiterQueue, DfraPairs, Experiment, Failslow, Isolation, Metadata, Overhead, Twins,
};
use forebay_lab::{Progress, Size};
use forebay_reproduce::trial::{self, Choice};
use forebay_reproduce::{Break, Index, Laboratory, Setup, text};
use std::path::PathBuf;
use std::process::ExitCode;

/// Test the results of the sources
///
/// Every claim in the index (`--list`) has a published value and a tolerance in a data file, and a figure that
/// is made here: from published data, in the simulator, or on real I/O nodes. The verdict is *reproduced*,
/// *refuted*, *differs* for a known reason, or *not possible here*; a run that failed has none. Figures are kept in `--out` as soon as they
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

    /// List the claims, with the last verdict on each: that in `--out`, or of the published run
    #[arg(long, conflicts_with = "ids")]
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
            "arbiter" => Box::new(ArbiterQueue { size, ..ArbiterQueue::default() }),
            "failslow" => Box::new(Failslow { size, ..Failslow::default() }),
            "dfra" => Box::new(DfraPairs { size }),
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
        if !self.offline {
            forebay_run::not_within()?;
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
        if self.json {
            println!("{}", serde_json::to_string_pretty(&tried)?);
        } else {
            print!("{}", text::tried(&index, &tried));
        }
        Ok(ExitCode::SUCCESS)
    }

    fn list(&self, index: &Index) -> Result<ExitCode> {
        let kept = trial::last(index, &self.out, self.full)?;
        if self.json {
            println!("{}", serde_json::to_string_pretty(&text::list_json(index, &kept))?);
        } else {
            print!("{}", text::list(index, &kept));
        }
        Ok(ExitCode::SUCCESS)
    }
}
