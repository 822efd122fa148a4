//! `forebay blame`: who slowed a job, for a person.

use crate::arbiter::{SecretFile, Where};
use anyhow::{Result, bail};
use clap::Args;
use forebay_control::client::in_path;
use forebay_control::view::JobView;
use forebay_control::view::NodeView;
use forebay_node::blame::{JobBlame, ask};
use forebay_sched::SchedulerConfig;
use std::process::ExitCode;

/// Say where the time of a job's I/O goes: at the storage, behind which other jobs, held back by limits.
///
/// Every I/O node remembers its last 8,192 requests; this is about those of the job. With `--what-if` they go
/// through another scheduler again, in virtual time: when they came and how long they took at the storage is
/// as it was.
#[derive(Args)]
#[command(after_long_help = "\
Examples:
  forebay blame lammps-17 --secret-file secret
  forebay blame lammps-17 --what-if sfq-d-plus --secret-file secret")]
pub(crate) struct BlameArgs {
    /// The job.
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
            all.add(&ask(&address.parse()?, &secret, &self.job, self.what_if.as_ref())?);
        }
        if self.json {
            println!("{}", serde_json::to_string_pretty(&all)?);
            return Ok(ExitCode::SUCCESS);
        }
        if all.requests == 0 {
            bail!("the I/O nodes of job {} remember no request of it", self.job);
        }
        print(&self.job, &all, self.what_if.as_ref());
        Ok(ExitCode::SUCCESS)
    }
}

fn print(job: &str, b: &JobBlame, what_if: Option<&SchedulerConfig>) {
    println!(
        "job {job}: {} requests in {:.1} s, {:.3} ms each",
        b.requests,
        b.span,
        b.total / b.requests as f64 * 1e3
    );
    let mut parts: Vec<(f64, String)> = vec![
        (b.service, "at the storage".to_owned()),
        (b.throttled, "held back by a limit".to_owned()),
        (b.idle, "waiting while nothing was at the storage: its scheduler lets it wait".to_owned()),
    ];
    for (other, seconds) in &b.behind {
        let who = if other == job { "its own requests".to_owned() } else { format!("job {other}") };
        parts.push((*seconds, format!("behind {who}")));
    }
    parts.sort_by(|a, b| b.0.total_cmp(&a.0));
    for (seconds, what) in parts.iter().filter(|(s, _)| *s > 0.0) {
        println!("{:5.1} %  {what}", seconds / b.total.max(1e-12) * 100.0);
    }
    if let (Some((now, then)), Some(spec)) = (b.what_if, what_if) {
        let each = |s: f64| s / b.requests as f64 * 1e3;
        let change = if now > 0.0 { (then / now - 1.0) * 100.0 } else { 0.0 };
        println!("under {spec}: {:.3} ms instead of {:.3} ms ({change:+.0} %)", each(then), each(now));
    }
}
