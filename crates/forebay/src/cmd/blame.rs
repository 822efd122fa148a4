//! `forebay blame`: who slowed a job, for a person.

use crate::arbiter::Where;
use crate::output::complain;
use anyhow::{Result, bail};
use clap::Args;
use forebay_node::blame::BlameText;
use forebay_sched::SchedulerConfig;
use std::process::ExitCode;

/// Say where the time of a job's I/O goes: at the storage, behind which other jobs, held back by limits.
///
/// Every I/O node remembers its last 8,192 requests; this is about those of the job since it began, on whichever
/// I/O nodes it was; of a job that has ended, about all of its name. An I/O node knows its own jobs: of time at a slow
/// storage it is said who was there through other I/O nodes meanwhile, and in the better times. With `--what-if` they go through another
/// scheduler again, in virtual time, with programs that wait for their answers and a storage as it was seen; what a
/// limit holds back is left out.
#[derive(Args)]
#[command(after_long_help = "\
Examples:
  forebay blame lammps-17 --secret-file secret
  forebay blame lammps-17 --what-if sfq-d-plus --secret-file secret")]
pub(crate) struct BlameArgs {
    /// The job.
    #[arg(value_parser = clap::builder::NonEmptyStringValueParser::new())]
    job: String,
    /// Another scheduler and its parameters.
    #[arg(long, value_name = "SPEC")]
    what_if: Option<SchedulerConfig>,
    /// Print it as JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    at: Where,
}

impl BlameArgs {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let what_if = self.what_if.as_ref().map(ToString::to_string);
        let all = self.at.client()?.blame(&self.job, what_if.as_deref())?;
        all.unheard.iter().for_each(|why| complain(why));
        let (running, all) = (all.running, all.blame);
        if !running && all.requests == 0 {
            bail!("there is no job {:?}, and no I/O node remembers one that has ended", self.job);
        }
        if self.json {
            println!("{}", serde_json::to_string_pretty(&all)?);
            return Ok(ExitCode::SUCCESS);
        }
        if all.requests == 0 {
            println!("no I/O node remembers a request of job {}", self.job);
            return Ok(ExitCode::SUCCESS);
        }
        print!("{}", BlameText { job: &self.job, blame: &all, what_if: self.what_if.as_ref() });
        Ok(ExitCode::SUCCESS)
    }
}
