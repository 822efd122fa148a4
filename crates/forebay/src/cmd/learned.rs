//! `forebay learned`: what the council has learned, from the arbiter or from a file, and what bandits
//! would have made of recorded rewards.

mod replay;

use crate::arbiter::Where;
use anyhow::Context;
use forebay_control::client::in_path;
use forebay_control::council::{COUNCIL_PATH, CouncilView, LEARNED_PATH};
use forebay_lab::learned;
use forebay_tune::Learned;
use std::path::PathBuf;
use std::process::ExitCode;

/// Show what was learned about scheduler parameters.
///
/// Asks the arbiter, or reads FILE. Prints one row per situation (operation, pattern, request size,
/// load) and one column per choice: the mean reward in MB/s, its 95 % confidence interval, and how many
/// observations it rests on. The best known choice of each situation is marked with *.
#[derive(clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_long_help = "Examples:\n  \
    forebay learned --svg learned.svg\n  \
    forebay learned --json > learned.json          to keep it, or carry it elsewhere\n  \
    forebay learned learned.json\n  \
    forebay learned import learned.json --arbiter https://arb:7410 --secret-file secret\n  \
    forebay learned reset 'write shared-strided 16K-64K medium' --secret-file secret\n  \
    forebay learned decisions\n  \
    forebay learned replay rewards.csv --default twins:window=1ms"
)]
pub(crate) struct LearnedArgs {
    #[command(subcommand)]
    command: Option<Action>,

    /// What was learned, as the arbiter exports it, instead of asking the arbiter.
    #[arg(value_name = "FILE", conflicts_with = "arbiter")]
    file: Option<PathBuf>,

    #[command(flatten)]
    at: Where,

    /// Draw a heat map: each choice's reward as a share of the best one's in that situation.
    #[arg(long, value_name = "SVG")]
    svg: Option<PathBuf>,

    /// Print it as JSON, which is also its file.
    #[arg(long)]
    json: bool,
}

#[derive(clap::Subcommand)]
enum Action {
    /// Have the arbiter go on with what was learned elsewhere, in place of what it knows.
    Import {
        /// What was learned.
        #[arg(value_name = "FILE")]
        file: PathBuf,
        #[command(flatten)]
        at: Where,
    },
    /// Have the arbiter forget what it learned, and go back to its default.
    Reset {
        /// Only this situation, in the words of `forebay learned`; without it, everything.
        #[arg(value_name = "SITUATION")]
        context: Option<String>,
        #[command(flatten)]
        at: Where,
    },
    /// Show the council's latest decisions and why it made them.
    Decisions {
        #[command(flatten)]
        at: Where,
        /// How many.
        #[arg(long, short, value_name = "N", default_value_t = 20, value_parser = crate::cmd::args::count::<usize>(0..=1_000_000))]
        number: usize,
        /// Print the arbiter's JSON.
        #[arg(long)]
        json: bool,
    },
    Replay(replay::Replay),
}

impl LearnedArgs {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        match self.command {
            Some(Action::Replay(replay)) => return replay.run(),
            Some(Action::Import { file, at }) => {
                let learned = String::from_utf8(learned::read(&file)?.to_json())?;
                at.client()?.call("PUT", LEARNED_PATH, Some(&learned))?;
                return Ok(ExitCode::SUCCESS);
            }
            Some(Action::Reset { context, at }) => {
                let path = match context {
                    Some(c) => format!("{LEARNED_PATH}?context={}", in_path(&c)),
                    None => LEARNED_PATH.to_owned(),
                };
                at.client()?.call("DELETE", &path, None)?;
                return Ok(ExitCode::SUCCESS);
            }
            Some(Action::Decisions { at, number, json }) => {
                let mut view: CouncilView = at.looks()?.get(COUNCIL_PATH)?;
                view.decisions.drain(..view.decisions.len().saturating_sub(number));
                if json {
                    println!("{}", serde_json::to_string_pretty(&view)?)
                } else {
                    print!("{}", learned::decisions(&view))
                }
                return Ok(ExitCode::SUCCESS);
            }
            None => {}
        }
        if let Some(svg) = &self.svg {
            forebay_lab::can_write(svg, self.file.as_slice())?;
        }
        let learned = match &self.file {
            Some(path) => learned::read(path)?,
            None => {
                let text = self.at.looks()?.call("GET", LEARNED_PATH, None)?;
                Learned::from_json(text.as_bytes()).context("the arbiter's answer")?
            }
        };
        if let Some(svg) = &self.svg {
            forebay_lab::put(svg, learned::heat_map(&learned))?;
        }
        if self.json {
            println!("{}", serde_json::to_string_pretty(&learned)?);
        } else {
            print!("{}", learned::text(&learned));
            if let Some(svg) = &self.svg {
                println!("\nheat map: {}", svg.display());
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}
