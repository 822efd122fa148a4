//! `forebay learned`: what the council has learned, and what bandits would have made of recorded
//! rewards.

use super::table;
use anyhow::Context;
use forebay_plot::{HeatMap, Size};
use forebay_tune::policy::{EpsilonGreedy, Thompson, Ucb1};
use forebay_tune::replay::{self, BIN, Outcome, Play, Rewards, WINDOW};
use forebay_tune::{Guard, LEARNED_MAX_BYTES, Learned, Memory, PolicyConfig, Values};
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Show what was learned about scheduler parameters.
///
/// Prints one row per situation (operation, pattern, request size, load) and one column per arm: the
/// mean reward in MB/s, its 95 % confidence interval, and how many observations it rests on. The best
/// known arm of each situation is marked with *.
#[derive(clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_long_help = "Examples:\n  \
    forebay learned learned.json --svg learned.svg\n  \
    forebay learned replay rewards.csv --default twins:window=1ms"
)]
pub(crate) struct LearnedArgs {
    #[command(subcommand)]
    command: Option<Action>,

    /// What was learned, as the arbiter stores or exports it.
    #[arg(value_name = "FILE", required = true)]
    file: Option<PathBuf>,

    /// Draw a heat map: each arm's reward as a share of the best one's in that situation.
    #[arg(long, value_name = "SVG")]
    svg: Option<PathBuf>,

    /// Print it as JSON.
    #[arg(long)]
    json: bool,
}

#[derive(clap::Subcommand)]
enum Action {
    Replay(Replay),
}

impl LearnedArgs {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        if let Some(Action::Replay(replay)) = self.command {
            return replay.run();
        }
        let path = self.file.context("name the file that holds what was learned")?;
        let learned = read(&path)?;
        if let Some(svg) = &self.svg {
            std::fs::write(svg, heat_map(&learned))
                .with_context(|| format!("cannot write {}", svg.display()))?;
        }
        if self.json {
            println!("{}", serde_json::to_string_pretty(&learned)?);
        } else {
            print(&learned);
            if let Some(svg) = &self.svg {
                println!("\nheat map: {}", svg.display());
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn read(path: &Path) -> anyhow::Result<Learned> {
    let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    let mut bytes = Vec::new();
    // One byte more than is allowed, so that a file that is too large is noticed.
    file.take(LEARNED_MAX_BYTES as u64 + 1)
        .read_to_end(&mut bytes)
        .with_context(|| format!("cannot read {}", path.display()))?;
    Learned::from_json(&bytes).with_context(|| path.display().to_string())
}

fn print(learned: &Learned) {
    if learned.contexts().is_empty() {
        return println!("nothing has been learned yet ({} decisions)", learned.round());
    }
    let (prefix, names) = learned.arms().short_names();
    let mut header =
        vec![if prefix.is_empty() { "situation".into() } else { format!("situation, {prefix}") }];
    header.extend(names.iter().cloned());
    let mut table = table::new(&header, &[]);
    for c in learned.contexts() {
        let mut row = vec![c.context.to_string()];
        row.extend((0..names.len()).map(|arm| cell(&c.values, arm)));
        table.add_row(row);
    }
    println!("{table}");
    println!(
        "\nMB/s ± 95 % confidence (observations); * best known. {} decisions; default {}.",
        learned.round(),
        learned.arms().names()[learned.arms().default_arm()]
    );
}

fn cell(values: &Values, arm: usize) -> String {
    let e = values.arms()[arm];
    if e.is_blank() {
        return "–".into();
    }
    let star = if values.best() == Some(arm) { "*" } else { "" };
    let half = 1.96 * values.noise() / e.weight.sqrt();
    format!("{star}{:.1} ±{half:.1} ({})", e.mean, e.seen)
}

fn heat_map(learned: &Learned) -> String {
    let share = |values: &Values, arm: usize| {
        let best = values.best().map_or(0.0, |b| values.arms()[b].mean);
        let e = values.arms()[arm];
        if e.is_blank() || best <= 0.0 { f64::NAN } else { e.mean / best }
    };
    let (prefix, arms) = learned.arms().short_names();
    let rows = learned.contexts().len();
    HeatMap {
        title: "Reward of each arm, as a share of the best in its situation".into(),
        size: Size::new(300.0 + 70.0 * arms.len() as f64, 140.0 + 34.0 * rows.max(2) as f64),
        x_label: if prefix.is_empty() { "arm".into() } else { prefix },
        columns: arms.clone(),
        rows: learned.contexts().iter().map(|c| c.context.to_string()).collect(),
        cells: learned
            .contexts()
            .iter()
            .map(|c| (0..arms.len()).map(|a| share(&c.values, a)).collect())
            .collect(),
        format: |v| format!("{:.0} %", v * 100.0),
        ..HeatMap::default()
    }
    .svg()
}

/// Play bandits against recorded rewards.
///
/// Reads a CSV file with the columns scenario, arm and reward (one line per measurement, every arm in
/// every scenario), lets each bandit choose arms and gives it one of the recorded rewards of the arm
/// it chose. Prints how often the last choices were the best arm (precision) and what they brought
/// compared with it (performance), as in Tables 4.2 to 4.4 of the thesis; then what learning cost
/// overall, and the worst stretch compared with the default arm.
#[derive(clap::Args)]
struct Replay {
    /// Recorded rewards.
    #[arg(value_name = "CSV")]
    file: PathBuf,

    /// The arm that is in force when nothing is known; the guard compares with it [default: the
    /// first in the file].
    #[arg(long, value_name = "ARM")]
    default: Option<String>,

    /// Observations of each scenario.
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(30..1_000_000))]
    observations: u32,

    /// How often everything is played; figures are means.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..100_000))]
    repetitions: u32,

    /// ε of ε-greedy.
    #[arg(long, default_value_t = 0.1)]
    epsilon: f64,

    /// Seed of everything random.
    #[arg(long, default_value_t = 1)]
    seed: u64,

    /// Print the results as JSON.
    #[arg(long)]
    json: bool,
}

#[derive(serde::Serialize)]
struct Played {
    bandit: String,
    outcomes: Vec<Outcome>,
}

impl Replay {
    fn run(self) -> anyhow::Result<ExitCode> {
        let file = File::open(&self.file).with_context(|| format!("cannot open {}", self.file.display()))?;
        let rewards =
            Rewards::read_csv(BufReader::new(file)).with_context(|| self.file.display().to_string())?;
        anyhow::ensure!((0.0..=1.0).contains(&self.epsilon), "--epsilon must be between 0 and 1");
        let default = self.default.as_deref().map_or(Ok(0), |name| rewards.arm(name))?;
        let epsilon = PolicyConfig::EpsilonGreedy(EpsilonGreedy { epsilon: self.epsilon, half_after: None });
        let ucb1 = PolicyConfig::Ucb1(Ucb1::default());
        let thompson = PolicyConfig::Thompson(Thompson::default());
        let play = |policy, guard| Play {
            policy,
            memory: Memory::All,
            guard,
            default,
            observations: self.observations as usize,
            repetitions: self.repetitions as usize,
            seed: self.seed,
        };
        let guard = Some(Guard::default());
        let played = [
            (format!("{epsilon}"), replay::separately(&rewards, &play(epsilon, None))),
            (format!("{epsilon}, scenarios in turn"), replay::together(&rewards, &play(epsilon, None))),
            (format!("{ucb1}"), replay::separately(&rewards, &play(ucb1, None))),
            (format!("{thompson}"), replay::separately(&rewards, &play(thompson, None))),
            (format!("{ucb1}, guarded"), replay::separately(&rewards, &play(ucb1, guard))),
        ]
        .map(|(bandit, outcomes)| Played { bandit, outcomes });
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
            println!("{}\n", outcome_table(p, &rewards));
        }
        println!(
            "precision, performance: the last {BIN} observations, against the best arm; overall: all of them;\n\
             worst {WINDOW}: the worst {WINDOW} observations in a row of any repetition, against the default arm"
        );
        Ok(ExitCode::SUCCESS)
    }
}

fn outcome_table(played: &Played, rewards: &Rewards) -> String {
    let worst = format!("worst {WINDOW}");
    let header = [played.bandit.as_str(), "best arm", "precision", "performance", "overall", worst.as_str()];
    let mut table = table::new(&header, &["best arm"]);
    for (o, s) in played.outcomes.iter().zip(&rewards.scenarios) {
        let mut row = vec![o.scenario.clone(), rewards.arms[s.best()].clone()];
        row.extend([o.precision, o.performance, o.overall, o.worst_window].map(|x| format!("{x:.3}")));
        table.add_row(row);
    }
    let n = played.outcomes.len() as f64;
    let mean = |of: fn(&Outcome) -> f64| format!("{:.3}", played.outcomes.iter().map(of).sum::<f64>() / n);
    let least = played.outcomes.iter().map(|o| o.worst_window).fold(f64::INFINITY, f64::min);
    table.add_row([
        "mean (worst: least)".to_string(),
        String::new(),
        mean(|o| o.precision),
        mean(|o| o.performance),
        mean(|o| o.overall),
        format!("{least:.3}"),
    ]);
    table.to_string()
}
