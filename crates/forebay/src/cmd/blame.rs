//! `forebay blame`: who slowed a job, for a person.

use crate::arbiter::{SecretFile, Where};
use crate::output::complain;
use anyhow::Result;
use clap::Args;
use forebay_control::client::in_path;
use forebay_control::view::{JobView, NodeView};
use forebay_node::blame::{JobBlame, Told, ask};
use forebay_sched::SchedulerConfig;
use std::process::ExitCode;

/// Say where the time of a job's I/O goes: at the storage, behind which other jobs, held back by limits.
///
/// Every I/O node remembers its last 8,192 requests; this is about those of the job. An I/O node knows its own jobs:
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
        let job: JobView = arbiter.get(&format!("/v1/jobs/{}", in_path(&self.job)))?;
        let nodes: Vec<NodeView> = arbiter.get("/v1/nodes")?;
        let mut all = JobBlame::default();
        for node in nodes.iter().filter(|n| job.nodes.contains(&n.id)) {
            let Some(address) = node.addresses.first() else { continue };
            match ask(&address.parse()?, &secret, &self.job, self.what_if.as_ref()) {
                Ok(found) => all.add(&found),
                // What the others remember is worth as much without it.
                Err(e) => complain(&e.to_string()),
            }
        }
        if self.json {
            println!("{}", serde_json::to_string_pretty(&all)?);
            return Ok(ExitCode::SUCCESS);
        }
        if all.requests == 0 {
            println!("the I/O nodes of job {} remember no request of it", self.job);
            return Ok(ExitCode::SUCCESS);
        }
        print!("{}", Told { job: &self.job, blame: &all, what_if: self.what_if.as_ref() });
        Ok(ExitCode::SUCCESS)
    }
}
