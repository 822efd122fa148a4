//! `forebay simulate fit`: a storage model from published results.

use super::progress;
use anyhow::Context;
use clap::{Args, ValueHint};
use forebay_sim::fit::Fit;
use forebay_sim::models::{self, NamedModel};
use forebay_sim::scenarios::Broken;
use forebay_sim::text;
use forebay_types::input;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;

/// Fit a storage model to published results
///
/// Searches for the parameters with which the simulator comes closest to the ratios of execution times in
/// a file such as `data/twins-paper.toml`, beginning with a model by name. Results marked `held-out` are not
/// looked at; they say how well the model predicts. Prints both, and the model for
/// `data/storage-models.toml`.
#[derive(Args)]
pub(crate) struct FitModel {
    /// Published results
    #[arg(value_name = "RESULTS.toml", value_hint = ValueHint::FilePath)]
    results: PathBuf,

    /// The model to begin with, by name
    #[arg(long, value_name = "NAME", default_value = "pvfs-paper")]
    model: String,

    /// Steps of the search; 0 only checks the model
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = crate::cmd::args::count::<u32>(0..=100_000))]
    steps: u32,

    /// Requests of each of the 128 processes; the papers' number is 1024
    #[arg(long, value_name = "N", default_value_t = 96, value_parser = crate::cmd::args::count::<u64>(1..=65_536))]
    requests: u64,

    /// Another seed, another search
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = crate::cmd::args::seed)]
    seed: u64,
}

impl FitModel {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let path = self.results.display();
        let text = std::fs::File::open(&self.results).and_then(input::text);
        let text = text.with_context(|| format!("cannot read {path}"))?;
        let fit = Fit::parse(&text, self.requests).with_context(|| path.to_string())?;
        let start = models::named(&self.model)?;
        let bar = progress(self.steps, "steps");
        let storage = fit.search(&start.storage, self.steps, self.seed, |_, loss| {
            bar.set_message(format!("off by {:.1} %", 100.0 * loss.sqrt()));
            bar.inc(1);
        });
        bar.finish_and_clear();
        let predicted = fit.predict(&storage, Broken::default());
        print!("{}", text::fit(&predicted));
        if self.steps > 0 {
            let named = NamedModel { note: start.note, storage };
            let all = BTreeMap::from([(&self.model, named)]);
            println!("\n{}", toml::to_string(&all)?);
        }
        Ok(ExitCode::SUCCESS)
    }
}
