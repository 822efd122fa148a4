//! `forebay jobs`, `forebay nodes`, `forebay decisions`: what the arbiter shows, for a person.

use super::table;
use crate::arbiter::{SecretFile, Where};
use anyhow::Result;
use clap::{Args, Subcommand};
use forebay_control::client::in_path;
use forebay_control::view::{DecisionView, JobView, NodeState, NodeView};
use forebay_types::NodeId;
use std::process::ExitCode;

/// Show the jobs that run under an arbiter and which I/O nodes they have, or pin one to I/O nodes.
#[derive(Args)]
#[command(after_long_help = "\
Examples:
  forebay jobs --why
  forebay jobs pin lammps-17 0,2 --secret-file secret    on these I/O nodes, whatever the policy says
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
        #[arg(value_delimiter = ',')]
        nodes: Vec<u32>,
        #[command(flatten)]
        at: Where,
        #[command(flatten)]
        secret: SecretFile,
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
        id: u32,
        #[command(flatten)]
        at: Where,
        #[command(flatten)]
        secret: SecretFile,
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
    #[arg(long, short = 'n', value_name = "N", default_value_t = 20)]
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
        if let Some(JobAction::Pin { id, nodes, at, secret }) = self.action {
            let grant = at.client_with(&secret)?.pin(&id, nodes.into_iter().map(NodeId).collect())?;
            println!("job {id}: I/O nodes {} ({})", list(&grant.nodes), grant.reason);
            return Ok(ExitCode::SUCCESS);
        }
        let arbiter = self.at.client()?;
        if self.json {
            return print_json(&arbiter.get("/v1/jobs")?);
        }
        let jobs: Vec<JobView> = arbiter.get("/v1/jobs")?;
        let mut header = vec![
            "job",
            "application",
            "user",
            "compute\nnodes",
            "processes",
            "I/O nodes",
            "MB/s",
            "predicted",
            "age",
            "pattern",
        ];
        if self.why {
            header.extend(["why", "curve"]);
        }
        let mut t = table::new(&header, &["application", "user", "I/O nodes", "pattern", "why", "curve"]);
        for j in &jobs {
            let shared = if j.shared { " (shared)" } else { "" };
            let mut row = vec![
                j.id.clone(),
                j.app.clone(),
                j.user.clone(),
                j.compute_nodes.to_string(),
                j.processes.to_string(),
                format!("{}{shared}", list(&j.nodes)),
                format!("{:.1}", j.bandwidth_mbs),
                j.predicted_mbs.map_or("?".into(), |b| format!("{b:.1}")),
                age(j.age_ms),
                j.pattern.clone().unwrap_or_default(),
            ];
            if self.why {
                row.extend([j.reason.clone(), j.curve.clone().unwrap_or_else(|| "none: the default".into())]);
            }
            t.add_row(row);
        }
        println!("{t}");
        // From 0.0, since the sum of nothing is -0.0.
        let total = jobs.iter().fold(0.0, |sum, j| sum + j.bandwidth_mbs);
        println!("{} jobs, {total:.1} MB/s in all", jobs.len());
        Ok(ExitCode::SUCCESS)
    }
}

impl Nodes {
    pub(crate) fn run(self) -> Result<ExitCode> {
        if let Some(NodeAction::Drain { id, at, secret }) = self.action {
            at.client_with(&secret)?.drain(NodeId(id))?;
            println!("I/O node {id} drains: its jobs have been moved, and it ends when they have left");
            return Ok(ExitCode::SUCCESS);
        }
        let arbiter = self.at.client()?;
        if self.json {
            return print_json(&arbiter.get("/v1/nodes")?);
        }
        let nodes: Vec<NodeView> = arbiter.get("/v1/nodes")?;
        let header = [
            "node",
            "host",
            "state",
            "jobs",
            "MB/s",
            "waiting",
            "p50",
            "p99",
            "errors",
            "scheduler",
            "address",
        ];
        let mut t = table::new(&header, &["host", "state", "jobs", "scheduler", "address"]);
        for n in &nodes {
            let state = match n.state {
                NodeState::Admitted => "admitted",
                NodeState::Screened => "screened out",
                NodeState::Draining => "draining",
                NodeState::Awaited => "awaited",
                NodeState::Lost => "lost",
            };
            let state = n.reason.as_ref().map_or(state.to_owned(), |r| format!("{state}: {r}"));
            t.add_row([
                n.id.to_string(),
                n.host.clone(),
                state,
                n.jobs.join(" "),
                format!("{:.1}", n.bandwidth_mbs),
                n.waiting.to_string(),
                time(n.latency_p50.as_secs_f64()),
                time(n.latency_p99.as_secs_f64()),
                n.errors.to_string(),
                n.scheduler.clone().unwrap_or_default(),
                n.addresses.first().cloned().unwrap_or_default(),
            ]);
        }
        println!("{t}");
        Ok(ExitCode::SUCCESS)
    }
}

impl Decisions {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let arbiter = self.at.client()?;
        let job = self.job.as_ref().map_or(String::new(), |j| format!("&job={}", in_path(j)));
        let path = format!("/v1/decisions?limit={}{job}", self.limit);
        if self.json {
            return print_json(&arbiter.get(&path)?);
        }
        let decisions: Vec<DecisionView> = arbiter.get(&path)?;
        if self.why {
            decisions.iter().rev().for_each(explain);
            return Ok(ExitCode::SUCCESS);
        }
        let mut t = table::new(
            &["decision", "ago", "policy", "I/O nodes", "predicted MB/s", "took", "moved", "because"],
            &["policy", "moved", "because"],
        );
        for d in &decisions {
            let moves = d.jobs.iter().filter(|j| j.nodes != j.before);
            let moved: Vec<String> = moves.map(|j| format!("{} → {}", j.id, list(&j.nodes))).collect();
            t.add_row([
                d.id.to_string(),
                ago(d.unix_ms),
                d.policy.clone(),
                d.io_nodes.to_string(),
                format!("{:.1}", d.total_mbs),
                time(d.took_us as f64 / 1e6),
                if moved.is_empty() { "nobody".into() } else { moved.join("\n") },
                d.cause.clone(),
            ]);
        }
        println!("{t}");
        Ok(ExitCode::SUCCESS)
    }
}

fn explain(d: &DecisionView) {
    println!(
        "decision {}, {} ago, {} on {} I/O nodes, because {}",
        d.id,
        ago(d.unix_ms),
        d.policy,
        d.io_nodes,
        d.cause
    );
    let header = ["job", "I/O nodes", "before", "MB/s", "gain", "could have had", "why", "curve"];
    let mut t = table::new(&header, &["I/O nodes", "before", "could have had", "why", "curve"]);
    for j in &d.jobs {
        let others: Vec<String> = j.alternatives.iter().map(|(n, b)| format!("{n}: {b:.1}")).collect();
        t.add_row([
            j.id.clone(),
            format!("{}{}", list(&j.nodes), if j.shared { " (shared)" } else { "" }),
            list(&j.before),
            j.predicted_mbs.map_or("?".into(), |b| format!("{b:.1}")),
            j.gain_mbs.map_or(String::new(), |g| format!("{g:+.1}")),
            others.join(", "),
            j.why.clone(),
            j.curve.clone().unwrap_or_else(|| "none: the default".into()),
        ]);
    }
    println!("{t}");
    println!("{:.1} MB/s predicted in all; decided in {}\n", d.total_mbs, time(d.took_us as f64 / 1e6));
}

fn print_json(value: &serde_json::Value) -> Result<ExitCode> {
    println!("{}", serde_json::to_string_pretty(value)?);
    Ok(ExitCode::SUCCESS)
}

fn list(nodes: &[NodeId]) -> String {
    if nodes.is_empty() {
        return "–".to_owned();
    }
    nodes.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}

fn ago(unix_ms: u64) -> String {
    let now = std::time::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_millis() as u64);
    age(now.saturating_sub(unix_ms))
}

fn age(ms: u64) -> String {
    match ms / 1000 {
        s @ 0..120 => format!("{s} s"),
        s @ 120..7200 => format!("{} min", s / 60),
        s @ 7200..172_800 => format!("{} h", s / 3600),
        s => format!("{} d", s / 86_400),
    }
}

fn time(seconds: f64) -> String {
    match seconds {
        s if s <= 0.0 => "–".to_owned(),
        s if s < 0.001 => format!("{:.0} µs", s * 1e6),
        s if s < 1.0 => format!("{:.1} ms", s * 1e3),
        s => format!("{s:.2} s"),
    }
}
