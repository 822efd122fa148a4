//! `forebay limit`: what jobs may have at most and at least, for a person.

use crate::arbiter::Where;
use anyhow::Result;
use clap::{Args, Subcommand};
use forebay_control::limit::{Limit, Rates, Subject, Until};
use forebay_top::text;
use forebay_types::{UnitError, rate};
use std::process::ExitCode;

/// Limit what a job, a user's jobs or an application's jobs do to all I/O nodes together.
///
/// The arbiter divides a limit among the I/O nodes by what each uses, through moves; the nodes keep to
/// it when no arbiter is there, too. Jobs of a user or an application share what they may have. A limit
/// takes the place of an earlier one for the same job, user or application, all of it: what is not
/// given is not limited any more. Requests that are held back wait, for however long; they do not fail.
#[derive(Args)]
#[command(after_long_help = "\
Examples:
  forebay limit --job lammps-17 --bandwidth 500MB --iops 2000 \\
      --secret-file secret
  forebay limit --user anna --metadata 200 --until 12h --secret-file secret
  forebay limit --app climate --guarantee 1GB --until 2026-11-30T18:00 \\
      --secret-file secret
  forebay limit list
  forebay limit remove --job lammps-17 --secret-file secret")]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct LimitArgs {
    #[command(subcommand)]
    action: Option<Action>,
    #[command(flatten)]
    whose: Option<Whose>,
    /// Bytes read and written a second, at most.
    #[arg(long, value_name = "BYTES", value_parser = bandwidth)]
    bandwidth: Option<f64>,
    /// Reads and writes a second, at most.
    #[arg(long, value_name = "N", value_parser = count)]
    iops: Option<f64>,
    /// Metadata operations a second, at most.
    #[arg(long, value_name = "N", value_parser = count)]
    metadata: Option<f64>,
    /// Bytes a second that it is to have whenever it asks for them. Needs a scheduler that knows weights
    /// (wfq, sfq and its kin), and holds as far as the I/O nodes can do so much.
    #[arg(long, value_name = "BYTES", value_parser = bandwidth)]
    guarantee: Option<f64>,
    /// For how long (`90min`), or until when in UTC (`2026-11-30T18:00`); else until it is removed.
    #[arg(long, value_name = "TIME")]
    until: Option<Until>,
    #[command(flatten)]
    at: Where,
}

#[derive(Args)]
#[group(required = true, multiple = false)]
struct Whose {
    /// The job of this name, now or whenever there is one.
    #[arg(long, value_name = "NAME")]
    job: Option<String>,
    /// All jobs of this user together.
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// All jobs of this application together.
    #[arg(long, value_name = "NAME")]
    app: Option<String>,
}

#[derive(Subcommand)]
enum Action {
    /// Show the limits, and what they leave to each job on each I/O node.
    List {
        #[command(flatten)]
        at: Where,
        /// Print the arbiter's JSON.
        #[arg(long)]
        json: bool,
    },
    /// Remove a limit.
    Remove {
        #[command(flatten)]
        whose: Whose,
        #[command(flatten)]
        at: Where,
    },
}

fn bandwidth(text: &str) -> Result<f64, UnitError> {
    rate::parse(text).map(|b| b as f64)
}

fn count(text: &str) -> Result<f64, String> {
    let n = text.parse::<f64>().ok().filter(|n| (1.0..=1e15).contains(n));
    n.ok_or_else(|| "a number of operations a second is wanted, from 1 to 1e15".to_owned())
}

impl Whose {
    fn subject(self) -> Option<Subject> {
        let user = || self.user.map(Subject::User);
        self.job.map(Subject::Job).or_else(user).or(self.app.map(Subject::App))
    }
}

impl LimitArgs {
    pub(crate) fn run(self) -> Result<ExitCode> {
        match self.action {
            Some(Action::List { at, json }) => list(&at, json)?,
            Some(Action::Remove { whose, at }) => {
                if let Some(subject) = whose.subject() {
                    at.client()?.remove_limit(&subject)?;
                    println!("{subject} is not limited any more");
                }
            }
            None => {
                let Some(subject) = self.whose.and_then(Whose::subject) else {
                    anyhow::bail!("whose? give --job, --user or --app; or `list`, or `remove`");
                };
                let now = std::time::UNIX_EPOCH.elapsed().map_or(0, |t| t.as_millis() as u64);
                let limit = Limit {
                    subject,
                    most: Rates { bandwidth: self.bandwidth, iops: self.iops, metadata: self.metadata },
                    at_least: self.guarantee,
                    until_unix_ms: self.until.map(|u| u.unix_ms(now)),
                };
                print!("{}", text::limits(&[self.at.client()?.limit(&limit)?]));
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn list(at: &Where, json: bool) -> Result<()> {
    let limits = at.looks()?.limits()?;
    if json {
        println!("{}", serde_json::to_string_pretty(&limits)?);
    } else {
        print!("{}", text::limits(&limits));
    }
    Ok(())
}
