//! The subcommands. To add one: a file here with a clap `Args` struct that has
//! `run(self) -> anyhow::Result<ExitCode>`, a `mod` line, a variant, and an arm.

mod allocate;
mod analyze;
mod arbiter;
mod args;
mod bench;
mod doctor;
mod experiment;
mod explore;
mod interrupt;
mod jobs;
mod lab;
mod learned;
mod manual;
mod mount;
mod node;
mod profile;
mod run;
mod simulate;
mod table;
mod train;

use anyhow::Context;
use std::io::IsTerminal;
use std::process::ExitCode;
use tracing_subscriber::EnvFilter;

/// What the user asked for.
#[derive(clap::Subcommand)]
pub(crate) enum Command {
    Run(run::Run),
    Mount(mount::Mount),
    Doctor(doctor::Doctor),
    #[command(hide = true)]
    MountWatch(mount::MountWatch),
    #[command(hide = true)]
    MountInside(run::via::Inside),
    Bench(bench::Bench),
    Node(Box<node::NodeArgs>),
    Arbiter(Box<arbiter::ArbiterArgs>),
    Jobs(jobs::Jobs),
    Nodes(jobs::Nodes),
    Decisions(jobs::Decisions),
    Allocate(allocate::Allocate),
    Simulate(simulate::Simulate),
    Analyze(analyze::Analyze),
    Train(train::Train),
    Learned(learned::LearnedArgs),
    Explore(explore::Explore),
    Profile(profile::Profile),
    Experiment(experiment::Experiment),
    #[command(hide = true)]
    ExploreWorker(explore::ExploreWorker),
    Completions(manual::Completions),
    Man(manual::Man),
}

impl Command {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        match self {
            Command::Run(c) => c.run(),
            Command::Mount(c) => c.run(),
            Command::Doctor(c) => c.run(),
            Command::MountWatch(c) => c.run(),
            Command::MountInside(c) => c.run(),
            Command::Bench(c) => c.run(),
            Command::Node(c) => c.run(),
            Command::Arbiter(c) => c.run(),
            Command::Jobs(c) => c.run(),
            Command::Nodes(c) => c.run(),
            Command::Decisions(c) => c.run(),
            Command::Allocate(c) => c.run(),
            Command::Simulate(c) => c.run(),
            Command::Analyze(c) => c.run(),
            Command::Train(c) => c.run(),
            Command::Learned(c) => c.run(),
            Command::Explore(c) => c.run(),
            Command::Profile(c) => c.run(),
            Command::Experiment(c) => c.run(),
            Command::ExploreWorker(c) => c.run(),
            Command::Completions(c) => c.run(),
            Command::Man(c) => c.run(),
        }
    }
}

/// What every long-running process of Forebay does first.
fn begin_service(die_with_parent: bool) -> anyhow::Result<()> {
    if die_with_parent {
        forebay_node::die_with_parent().context("cannot ask to end with the parent process")?;
    }
    // A service of its own tells its admin what happens; one that belongs to a command, what goes wrong.
    let level = if die_with_parent { "warn" } else { "info" };
    let filter = EnvFilter::try_from_env("FOREBAY_LOG").unwrap_or_else(|_| EnvFilter::new(level));
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    // Only the first one counts, and there is no other.
    let _ = log.with_ansi(std::io::stderr().is_terminal()).try_init();
    Ok(())
}
