//! `forebay simulate month`: months of jobs on a large machine.

use crate::cmd::args;
use clap::Args;
use forebay_policy::dfra::DfraConfig;
use forebay_sim::fluid::behaviour::Population;
use forebay_sim::fluid::{self, LargeMachine, Mapping, Month};
use forebay_sim::text;
use serde_json::json;
use std::process::ExitCode;
use std::time::Instant;

/// Months of jobs on a machine like TaihuLight, under three mappings
///
/// Draws jobs from distributions of sizes, run times, volumes and modes that know nothing of any policy,
/// and runs them on 40,960 compute nodes and 240 I/O nodes: with the fixed map of 512 compute nodes to an
/// I/O node (80 of them), round robin over all 240, and DFRA with 160 in reserve. Prints what the DFRA
/// paper counted, beside its counts. Which of the distributions are published and which are assumed
/// stands in the source (`fluid/behaviour.rs`).
#[derive(Args)]
pub(crate) struct Simulated {
    /// How long
    #[arg(long, value_name = "DAYS", default_value_t = 30.0, value_parser = args::number(0.01..=2000.0))]
    days: f64,

    /// Which jobs are drawn
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// Print JSON instead of tables
    #[arg(long)]
    json: bool,
}

impl Simulated {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let began = Instant::now();
        let jobs = Population::default().draw(self.days, self.seed);
        let machine = LargeMachine::taihulight();
        let mappings = [Mapping::Fixed, Mapping::RoundRobin(32), Mapping::Dfra(DfraConfig::default())];
        let mut months = Vec::new();
        for mapping in &mappings {
            months.push(fluid::run(&machine, mapping, &jobs)?);
        }
        let [ffm, rr, dfra] = &months[..] else { unreachable!("three mappings") };
        let speedups = |m: &Month, of: fn(&fluid::Fared) -> bool| fluid::speedup(ffm, m, of);
        let scaled = |f: &fluid::Fared| f.dedicated;
        let took = began.elapsed().as_secs_f64();
        if self.json {
            let summary = json!({
                "jobs": jobs.len(), "days": self.days, "seed": self.seed, "seconds": took,
                "ffm": ffm, "round_robin": rr, "dfra": dfra,
                "dfra_speedup_of_dedicated": speedups(dfra, scaled),
                "dfra_speedup_of_all": speedups(dfra, |_| true),
                "round_robin_speedup_of_all": speedups(rr, |_| true),
            });
            println!("{}", serde_json::to_string_pretty(&summary)?);
            return Ok(ExitCode::SUCCESS);
        }
        print!("{}", text::month(&jobs, &months, self.days));
        let (own, all, round) = (speedups(dfra, scaled), speedups(dfra, |_| true), speedups(rr, |_| true));
        println!("I/O time against the fixed map, job by job (median, mean of logarithms, most):");
        for (name, (s, mean)) in [
            ("DFRA, jobs with I/O nodes of their own", own),
            ("DFRA, all jobs", all),
            ("round robin 32:1, all jobs", round),
        ] {
            println!("  {name}: {:.2}×, {mean:.2}×, {:.1}×", s.median, s.max);
        }
        println!("\nsimulated in {took:.1} s");
        Ok(ExitCode::SUCCESS)
    }
}
