//! What researchers run: everything that measures, analyses, simulates or trains.

use super::{
    allocate, analyze, bench, experiment, explore, learned, profile, reproduce, simulate, torture, train,
};
use std::process::ExitCode;

#[derive(clap::Subcommand)]
pub(crate) enum Research {
    Bench(bench::Bench),
    Allocate(allocate::Allocate),
    Simulate(simulate::Simulate),
    Analyze(analyze::Analyze),
    Train(train::Train),
    Learned(learned::LearnedArgs),
    Explore(explore::Explore),
    Profile(profile::Profile),
    Experiment(experiment::Experiment),
    Reproduce(reproduce::Reproduce),
    Torture(torture::Torture),
    #[command(hide = true)]
    TortureWorker(torture::TortureWorker),
    #[command(hide = true)]
    ExploreWorker(explore::ExploreWorker),
}

impl Research {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        match self {
            Research::Bench(c) => c.run(),
            Research::Allocate(c) => c.run(),
            Research::Simulate(c) => c.run(),
            Research::Analyze(c) => c.run(),
            Research::Train(c) => c.run(),
            Research::Learned(c) => c.run(),
            Research::Explore(c) => c.run(),
            Research::Profile(c) => c.run(),
            Research::Experiment(c) => c.run(),
            Research::Reproduce(c) => c.run(),
            Research::Torture(c) => c.run(),
            Research::TortureWorker(c) => c.run(),
            Research::ExploreWorker(c) => c.run(),
        }
    }
}
