//! `forebay blame`: who slowed a job, for a person.

use crate::arbiter::{SecretFile, Where};
use crate::output::complain;
use anyhow::{Result, bail};
use clap::Args;
use forebay_control::client::in_path;
use forebay_control::status::Unanswered;
use forebay_control::view::{JobView, NodeView};
use forebay_node::blame::{BlameQuery, BlameText};
use forebay_sched::SchedulerConfig;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// More than any I/O node remembers.
const EVER: Duration = Duration::from_secs(10 * 365 * 86_400);

/// Say where the time of a job's I/O goes: at the storage, behind which other jobs, held back by limits.
///
/// Every I/O node remembers its last 8,192 requests; this is about those of the job since it began, on whichever
/// I/O nodes it was; of a job that has ended, about all of its name. An I/O node knows its own jobs:
/// what others do to the storage elsewhere is time at a slow storage. With `--what-if` they go through another
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
    #[command(flatten)]
    secret: SecretFile,
}

impl BlameArgs {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let (arbiter, secret) = (self.at.client()?, self.secret.read()?);
        let at = Instant::now();
        let job = match arbiter.get::<JobView>(&format!("/v1/jobs/{}", in_path(&self.job))) {
            // One that has ended may be remembered, with earlier ones of its name.
            Err(Unanswered::NotFound(_)) => None,
            known => Some(known?),
        };
        let nodes: Vec<NodeView> = arbiter.get("/v1/nodes")?;
        // An age of 7 ms may be nearly eight.
        let age = job.as_ref().map_or(EVER, |job| Duration::from_millis(job.age_ms.saturating_add(1)));
        let asked = BlameQuery { job: &self.job, age, at, what_if: self.what_if.as_ref() };
        let on = job.as_ref().map_or(&[][..], |job| &job.nodes[..]);
        let all = asked.of_all(&nodes, on, &secret, complain)?;
        if job.is_none() && all.requests == 0 {
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
