//! `forebay jobs`, `forebay nodes`, `forebay decisions`: what the arbiter shows, for a person.

use crate::arbiter::Where;
use anyhow::Result;
use clap::{Args, Subcommand};
use forebay_control::client::in_path;
use forebay_control::view::{DecisionView, HealthView, JobView, NodeView};
use forebay_top::text;
use forebay_types::NodeId;
use std::process::ExitCode;

/// Show the jobs that run under an arbiter and which I/O nodes they have, or pin one to I/O nodes.
#[derive(Args)]
#[command(after_long_help = "\
Examples:
  forebay jobs --why
  forebay jobs pin lammps-17 0,2 --secret-file secret    on these I/O nodes, whatever the policy
  forebay jobs pin lammps-17 --secret-file secret        left to the policy again")]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Jobs {
    #[command(subcommand)]
    action: Option<JobAction>,
    #[command(flatten)]
    at: Where,
    /// Say why each job has its I/O nodes, and where its bandwidth curve comes from.
    #[arg(long)]
    why: bool,
    /// Print the arbiter's JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Subcommand)]
enum JobAction {
    /// Move a running job to these I/O nodes and keep it there, or leave it to the policy again.
    Pin {
        /// The job.
        id: String,
        /// The numbers of the I/O nodes, separated by commas; none leaves the job to the policy.
        #[arg(value_delimiter = ',', value_parser = crate::cmd::args::node_id)]
        nodes: Vec<u32>,
        #[command(flatten)]
        at: Where,
    },
}

/// Show an arbiter's I/O nodes, or drain one.
#[derive(Args)]
#[command(after_long_help = "\
Examples:
  forebay nodes
  forebay nodes drain 3 --secret-file secret    for maintenance: its jobs move, then it ends")]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Nodes {
    #[command(subcommand)]
    action: Option<NodeAction>,
    #[command(flatten)]
    at: Where,
    /// Print the arbiter's JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Subcommand)]
enum NodeAction {
    /// Move an I/O node's jobs to others, then end it.
    Drain {
        /// The I/O node's number.
        #[arg(value_parser = crate::cmd::args::node_id)]
        id: u32,
        #[command(flatten)]
        at: Where,
    },
}

/// Show what an arbiter decided, and why.
#[derive(Args)]
pub(crate) struct Decisions {
    #[command(flatten)]
    at: Where,
    /// Only decisions about this job.
    #[arg(long, value_name = "ID")]
    job: Option<String>,
    /// How many, the newest.
    #[arg(long, short = 'n', value_name = "N", default_value_t = 20, value_parser = crate::cmd::args::count::<u32>(1..=1_000_000))]
    limit: u32,
    /// For each decision the jobs, what they got, what else they could have had, and why.
    #[arg(long)]
    why: bool,
    /// Print the arbiter's JSON.
    #[arg(long)]
    json: bool,
}

impl Jobs {
    pub(crate) fn run(self) -> Result<ExitCode> {
        if let Some(JobAction::Pin { id, nodes, at }) = self.action {
            let grant = at.client()?.pin(&id, nodes.into_iter().map(NodeId).collect())?;
            println!("job {id}: I/O nodes {} ({})", text::list(&grant.nodes), grant.reason);
            return Ok(ExitCode::SUCCESS);
        }
        let arbiter = self.at.looks()?;
        if self.json {
            return print_json(&arbiter.get("/v1/jobs")?);
        }
        let jobs: Vec<JobView> = arbiter.get("/v1/jobs")?;
        print!("{}", text::jobs(&jobs, self.why));
        Ok(ExitCode::SUCCESS)
    }
}

impl Nodes {
    pub(crate) fn run(self) -> Result<ExitCode> {
        if let Some(NodeAction::Drain { id, at }) = self.action {
            at.client()?.drain(NodeId(id))?;
            println!("I/O node {id} drains: its jobs have been moved, and it ends when they have left");
            return Ok(ExitCode::SUCCESS);
        }
        let arbiter = self.at.looks()?;
        if self.json {
            return print_json(&arbiter.get("/v1/nodes")?);
        }
        let nodes: Vec<NodeView> = arbiter.get("/v1/nodes")?;
        let health: HealthView = arbiter.get("/v1/health")?;
        print!("{}", text::nodes(&nodes, &health.refused));
        Ok(ExitCode::SUCCESS)
    }
}

impl Decisions {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let arbiter = self.at.looks()?;
        let job = self.job.as_ref().map_or(String::new(), |j| format!("&job={}", in_path(j)));
        let path = format!("/v1/decisions?limit={}{job}", self.limit);
        if self.json {
            return print_json(&arbiter.get(&path)?);
        }
        let decisions: Vec<DecisionView> = arbiter.get(&path)?;
        print!("{}", if self.why { text::reasons(&decisions) } else { text::decisions(&decisions) });
        Ok(ExitCode::SUCCESS)
    }
}

fn print_json(value: &serde_json::Value) -> Result<ExitCode> {
    println!("{}", serde_json::to_string_pretty(value)?);
    Ok(ExitCode::SUCCESS)
}
