//! The subcommands. To add one: a file here with a clap `Args` struct that has
//! `run(self) -> anyhow::Result<ExitCode>`, a `mod` line, a variant, and an arm.

#[cfg(feature = "lab")]
mod allocate;
#[cfg(feature = "lab")]
mod analyze;
#[cfg(feature = "arbiter")]
mod arbiter;
#[cfg_attr(not(feature = "lab"), allow(dead_code))] // some are options of its commands only
mod args;
#[cfg(feature = "lab")]
mod bench;
mod blame;
mod doctor;
#[cfg(feature = "lab")]
mod experiment;
#[cfg(feature = "lab")]
mod explore;
mod jobs;
mod join;
#[cfg(feature = "lab")]
mod lab;
#[cfg(feature = "lab")]
mod learned;
mod limit;
#[cfg(feature = "manual")]
mod manual;
mod mount;
mod node;
#[cfg(feature = "lab")]
mod profile;
#[cfg(feature = "lab")]
mod reproduce;
#[cfg(feature = "lab")]
mod research;
mod run;
mod service;
#[cfg(feature = "lab")]
mod simulate;
#[cfg(feature = "top")]
mod top;
#[cfg(feature = "lab")]
mod torture;
#[cfg(feature = "lab")]
mod train;

use std::process::ExitCode;

/// What the user asked for.
#[derive(clap::Subcommand)]
pub(crate) enum Command {
    Run(Box<run::Run>),
    Join(join::Join),
    Mount(mount::Mount),
    Doctor(doctor::Doctor),
    #[command(hide = true)]
    MountWatch(mount::MountWatch),
    #[command(hide = true)]
    MountInside(run::Inside),
    #[command(hide = true)]
    RunRest(run::Rest),
    Node(Box<node::NodeArgs>),
    #[cfg(feature = "arbiter")]
    Arbiter(Box<arbiter::ArbiterArgs>),
    Jobs(jobs::Jobs),
    Nodes(jobs::Nodes),
    Decisions(jobs::Decisions),
    #[cfg(feature = "top")]
    Top(top::Top),
    Limit(Box<limit::LimitArgs>),
    Blame(blame::BlameArgs),
    #[cfg(feature = "lab")]
    #[command(flatten)]
    Research(research::Research),
    #[cfg(feature = "manual")]
    Completions(manual::Completions),
    #[cfg(feature = "manual")]
    Man(manual::Man),
}

impl Command {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        match self {
            Command::Run(c) => c.run(),
            Command::Join(c) => c.run(),
            Command::Mount(c) => c.run(),
            Command::Doctor(c) => c.run(),
            Command::MountWatch(c) => c.run(),
            Command::MountInside(c) => c.run(),
            Command::RunRest(c) => c.run(),
            Command::Node(c) => c.run(),
            #[cfg(feature = "arbiter")]
            Command::Arbiter(c) => c.run(),
            Command::Jobs(c) => c.run(),
            Command::Nodes(c) => c.run(),
            Command::Decisions(c) => c.run(),
            #[cfg(feature = "top")]
            Command::Top(c) => c.run(),
            Command::Limit(c) => c.run(),
            Command::Blame(c) => c.run(),
            #[cfg(feature = "lab")]
            Command::Research(c) => c.run(),
            #[cfg(feature = "manual")]
            Command::Completions(c) => c.run(),
            #[cfg(feature = "manual")]
            Command::Man(c) => c.run(),
        }
    }
}
