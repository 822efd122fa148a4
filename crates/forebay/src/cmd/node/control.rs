//! Talking to a running I/O node: `forebay node stats`, `scheduler`, `weight`, `drain`.

use crate::arbiter::SecretFile;
use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
use forebay_client::{Address, Client, Config, Error};
use forebay_node::control::{CONTROL_JOB, Command, Reply};
use forebay_node::stats::{Distribution, NodeStatistics};
use forebay_plot::table;
use forebay_sched::SchedulerConfig;
use forebay_types::Bandwidth;
use std::process::ExitCode;

/// What to ask or tell a running I/O node.
#[derive(Subcommand)]
pub(crate) enum Action {
    /// Show what a running node has done: operations by job, request sizes, queues.
    Stats {
        #[command(flatten)]
        node: Target,
        /// Print all of it as JSON.
        #[arg(long)]
        json: bool,
    },
    /// Show a running node's request scheduler, or change it; requests that wait move over.
    Scheduler {
        #[command(flatten)]
        node: Target,
        /// The new one, for example `twins:window=1ms`.
        spec: Option<SchedulerConfig>,
    },
    /// Give a job another share of a running node, where its scheduler knows shares.
    Weight {
        #[command(flatten)]
        node: Target,
        /// The job's name.
        job: String,
        /// Its share against others, at least 1.
        #[arg(value_parser = crate::cmd::args::count::<u32>(1..=1_000_000))]
        weight: u32,
    },
    /// Have a running node finish what it has accepted, send its clients elsewhere, and end.
    Drain {
        #[command(flatten)]
        node: Target,
    },
}

/// Which node.
#[derive(Args)]
pub(crate) struct Target {
    /// Its address: `tcp:HOST:PORT` or `unix:PATH`.
    #[arg(value_name = "ADDRESS")]
    address: Address,
    #[command(flatten)]
    secret: SecretFile,
    /// The job to come as, if the node lets in only one.
    #[arg(long, value_name = "JOB", default_value = CONTROL_JOB)]
    as_job: String,
}

impl Target {
    fn tell(&self, command: &Command) -> Result<Reply> {
        let secret = self.secret.read()?.to_hex();
        let config =
            Config { deadline_ms: 5000, ..Config::new(&self.as_job, secret, vec![self.address.clone()]) };
        let client = Client::new(config, None)?;
        let answer = match client.control(0, &serde_json::to_vec(command)?) {
            Ok(answer) => answer,
            Err(Error::Refused { message, .. }) => message.into_bytes(),
            Err(Error::Protocol(_, why)) => bail!("the I/O node at {} refuses: {why}", self.address),
            Err(Error::NoNode { last, .. }) => bail!("the I/O node does not answer: {last}"),
            Err(e) => {
                return Err(e).with_context(|| format!("the I/O node at {} does not answer", self.address));
            }
        };
        client.leave();
        let reply: Reply =
            serde_json::from_slice(&answer).context("the I/O node's answer is not understood")?;
        if let Some(error) = reply.error {
            bail!("the I/O node at {} says: {error}", self.address);
        }
        Ok(reply)
    }
}

impl Action {
    pub(crate) fn run(self) -> Result<ExitCode> {
        match self {
            Action::Stats { node, json } => {
                let report = node.tell(&Command::Stats)?.stats.context("the I/O node gave no statistics")?;
                if json { println!("{}", serde_json::to_string_pretty(&report)?) } else { show(&report) }
            }
            Action::Scheduler { node, spec } => {
                let reply = node.tell(&Command::Scheduler { set: spec })?;
                println!("{}", reply.scheduler.context("the I/O node named no scheduler")?);
            }
            Action::Weight { node, job, weight } => {
                node.tell(&Command::Weight { job: job.clone(), weight })?;
                println!("{job} now has weight {weight}");
            }
            Action::Drain { node } => {
                node.tell(&Command::Drain)?;
                println!("{} drains", node.address);
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn show(r: &NodeStatistics) {
    let seconds = r.uptime_ns as f64 / 1e9;
    println!(
        "I/O node {}, up {seconds:.0} s, scheduler {}\n{} connections, {} sessions, {} open files, {} requests waiting\n",
        r.node, r.scheduler, r.connections, r.sessions, r.open_files, r.waiting
    );
    let mut t = table::new(
        &["job", "operation", "count", "errors", "bytes", "MB/s", "p50 µs", "p99 µs"],
        &["operation"],
    );
    for flow in &r.flows {
        for (name, op) in &flow.operations {
            let us = |ns: u64| format!("{:.1}", ns as f64 / 1000.0);
            let rate = Bandwidth(op.bytes as f64 / seconds.max(1e-9) / 1e6);
            let moved = op.bytes > 0;
            t.add_row([
                flow.job.clone(),
                name.clone(),
                op.count.to_string(),
                op.errors.to_string(),
                if moved { op.bytes.to_string() } else { String::new() },
                if moved { format!("{:.1}", rate.0) } else { String::new() },
                us(op.latency_ns.p50),
                us(op.latency_ns.p99),
            ]);
        }
    }
    if t.is_empty() {
        println!("nothing was asked of it yet");
        return;
    }
    println!("{t}\n");
    let sizes = |what: &str, d: &Distribution| {
        if d.count > 0 {
            println!("{what} reached storage in {} calls, {:.1} KiB on average", d.count, d.mean / 1024.0);
        }
    };
    sizes("reads", &r.issued_read);
    sizes("writes", &r.issued_write);
    println!(
        "{} requests served where they were received, {} by dispatchers, {} merged with others; fairness {:.3}",
        r.inline_requests, r.dispatched_requests, r.merged_requests, r.jain
    );
}
