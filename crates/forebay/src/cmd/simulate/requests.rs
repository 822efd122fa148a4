//! `forebay simulate requests`: every request through simulated I/O nodes.

use super::dfra::cpu_time;
use crate::cmd::args;
use anyhow::bail;
use clap::Args;
use forebay_sched::SchedulerConfig;
use forebay_sim::models;
use forebay_sim::scenarios::{Broken, Streams};
use forebay_sim::text;
use forebay_types::{OpKind, Pattern};
use std::process::ExitCode;

/// Every request through simulated I/O nodes and data servers
///
/// Processes read or write through simulated links and I/O nodes onto the data servers of a storage
/// model. The I/O nodes schedule, merge and observe with the production code; only time is simulated.
/// Shows the bandwidth under every scheduler given, and how many requests were simulated in a second of
/// processor time.
#[derive(Args)]
pub(crate) struct Requests {
    /// The schedulers, and `direct` for no I/O nodes
    #[arg(value_name = "SCHEDULER", default_values = ["direct", "fifo", "hbrr", "twins:window=1ms"])]
    schedulers: Vec<String>,

    /// The storage model, by name
    #[arg(long, value_name = "NAME", default_value = "pvfs-paper")]
    model: String,

    /// Data servers, instead of the model's
    #[arg(long, value_name = "N", value_parser = args::count::<u32>(1..=100_000))]
    servers: Option<u32>,

    /// I/O nodes
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = args::count::<u32>(1..=100_000))]
    io_nodes: u32,

    /// Compute nodes
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = args::count::<u32>(1..=1_000_000))]
    compute_nodes: u32,

    /// Processes
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = args::count::<u32>(1..=1_000_000))]
    processes: u32,

    /// Requests of each process
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = args::count::<u64>(1..=1_000_000_000))]
    requests: u64,

    /// Size of a request; a plain number counts KiB
    #[arg(long, value_name = "KIB", default_value_t = 32, value_parser = args::kib)]
    size: u64,

    /// How the processes lie in files
    #[arg(long, value_name = "PATTERN", default_value = "shared-strided", value_parser = pattern)]
    pattern: Pattern,

    /// Writes instead of reads
    #[arg(long)]
    write: bool,

    /// The same seed gives the same result
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = args::seed)]
    seed: u64,

    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
}

impl Requests {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let mut model = models::named(&self.model)?.storage;
        model.servers = self.servers.unwrap_or(model.servers);
        if u64::from(self.processes).saturating_mul(self.requests) > 10_000_000_000 {
            bail!("more than ten billion requests: fewer processes or requests, please");
        }
        let op = if self.write { OpKind::Write } else { OpKind::Read };
        let mut rows = Vec::new();
        for name in &self.schedulers {
            let direct = name == "direct";
            let scheduler: SchedulerConfig = if direct { "fifo" } else { name.as_str() }.parse()?;
            let streams = Streams {
                processes: self.processes,
                requests: self.requests,
                size: self.size << 10,
                compute_nodes: self.compute_nodes,
                io_nodes: if direct { 0 } else { self.io_nodes },
                ..Streams::paper(self.pattern, op)
            };
            let before = cpu_time();
            let outcome = streams.run(&model, &scheduler, self.seed, Broken::default());
            let speed = outcome.requests as f64 / cpu_time().since(before).as_secs_f64().max(1e-9);
            rows.push((name.clone(), outcome, speed));
        }
        if self.json {
            println!("{}", serde_json::to_string_pretty(&text::requests_json(&rows))?);
            return Ok(ExitCode::SUCCESS);
        }
        println!(
            "{} processes on {} compute nodes, {} requests of {} KiB each, {} I/O nodes, {} data servers ({})\n",
            self.processes,
            self.compute_nodes,
            self.requests,
            self.size,
            self.io_nodes,
            model.servers,
            self.model
        );
        print!("{}", text::requests(&rows));
        Ok(ExitCode::SUCCESS)
    }
}

fn pattern(name: &str) -> Result<Pattern, String> {
    let known = || Pattern::ALL.into_iter().filter(|p| *p != Pattern::Unknown);
    let names = || known().map(Pattern::name).collect::<Vec<_>>().join(", ");
    known().find(|p| p.name() == name).ok_or_else(|| format!("the patterns are {}", names()))
}
