//! What bandits would have made of recorded rewards.

use crate::cmd::args;
use anyhow::Context;
use forebay_lab::learned::outcomes;
use forebay_tune::policy::Ucb1;
use forebay_tune::replay::{self, BIN, Play, Rewards, WINDOW};
use forebay_tune::{BanditConfig, Memory};
use forebay_types::input;
use std::io::BufReader;
use std::path::PathBuf;
use std::process::ExitCode;

/// Play bandits against recorded rewards.
///
/// Reads a CSV file with the columns scenario, arm and reward (one line per measurement, every arm in
/// every scenario), lets each bandit choose arms and gives it one of the recorded rewards of the arm
/// it chose. Prints how often the last choices were the best arm (precision) and what they brought
/// compared with it (performance), as in Tables 4.2 to 4.4 of the thesis; then what learning cost
/// overall, and the worst stretch compared with the default arm.
#[derive(clap::Args)]
pub(super) struct Replay {
    /// Recorded rewards.
    #[arg(value_name = "CSV")]
    file: PathBuf,

    /// The arm that is in force when nothing is known; the guard compares with it [default: the
    /// first in the file].
    #[arg(long, value_name = "ARM")]
    default: Option<String>,

    /// Observations of each scenario.
    #[arg(long, default_value_t = 200, value_parser = args::count::<u32>(30..=1_000_000))]
    observations: u32,

    /// How often everything is played; figures are means.
    #[arg(long, default_value_t = 100, value_parser = args::count::<u32>(1..=100_000))]
    repetitions: u32,

    /// ε of ε-greedy.
    #[arg(long, default_value_t = 0.1, value_parser = args::share)]
    epsilon: f64,

    /// Seed of everything random.
    #[arg(long, default_value_t = 1, value_parser = args::seed)]
    seed: u64,

    /// Print the results as JSON.
    #[arg(long)]
    json: bool,
}

impl Replay {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let file = input::open(&self.file).with_context(|| format!("cannot open {}", self.file.display()))?;
        let rewards =
            Rewards::read_csv(BufReader::new(file)).with_context(|| self.file.display().to_string())?;
        let default = self.default.as_deref().map_or(Ok(0), |name| rewards.arm(name))?;
        let play = Play {
            policy: BanditConfig::Ucb1(Ucb1::default()),
            memory: Memory::All,
            guard: None,
            default,
            observations: self.observations as usize,
            repetitions: self.repetitions as usize,
            seed: self.seed,
        };
        let played = replay::compare(&rewards, &play, self.epsilon);
        if self.json {
            println!("{}", serde_json::to_string_pretty(&played)?);
            return Ok(ExitCode::SUCCESS);
        }
        println!(
            "{} scenarios, {} arms, {} observations, {} repetitions; default {}\n",
            rewards.scenarios.len(),
            rewards.arms.len(),
            self.observations,
            self.repetitions,
            rewards.arms[default]
        );
        for p in &played {
            println!("{}\n", outcomes(p, &rewards));
        }
        println!(
            "precision, performance: the last {BIN} observations, against the best arm; overall: all of them;\n\
             worst {WINDOW}: the worst {WINDOW} observations in a row of any repetition, against the default arm"
        );
        Ok(ExitCode::SUCCESS)
    }
}
