//! `forebay arbiter`: runs the arbiter until it is told to end.

use anyhow::{Result, bail};
use clap::{Args, ValueHint};
use forebay_arbiter::config::{Config, EXAMPLE};
use forebay_arbiter::ha::EtcdUrl;
use forebay_policy::PolicyKind;
use forebay_types::{Address, Secret};
use std::path::PathBuf;
use std::process::ExitCode;

/// Run the arbiter: give I/O nodes to jobs by what they gain, and move them while the jobs run.
///
/// I/O nodes (`forebay node --arbiter URL`) connect to it and report what they do; jobs (`forebay run
/// --arbiter URL`) register, and are given I/O nodes by the policy. The policy decides again whenever a
/// job begins or ends, an I/O node comes or goes, or measurements change what a job is worth; running
/// programs move to their new I/O nodes between two requests. Every decision is kept with its reasons
/// (`forebay decisions --why`).
///
/// No I/O waits for the arbiter: while it is gone, nodes and programs go on with what it said last. Its
/// state survives its death at any moment; started again on the same state directory it goes on.
///
/// SIGTERM or SIGINT ends it with status 0; jobs and nodes are not touched.
#[derive(Args)]
#[command(after_long_help = "\
Examples:
  (umask 077; openssl rand -hex 32 > secret)
  forebay arbiter --secret-file secret --state /var/lib/forebay
  forebay arbiter --secret-file secret --policy mckp --curves curves.csv
  forebay arbiter --secret-file secret --listen 0.0.0.0:7410 \\
      --ha etcds://a:2379,b:2379,c:2379
  forebay arbiter --config /etc/forebay/arbiter.toml
  forebay arbiter --example-config > arbiter.toml

When it is ready it prints `listening on http://HOST:PORT` and, under systemd (Type=notify), says so.")]
pub(crate) struct ArbiterArgs {
    /// Listen here; port 0: any free one [default: 127.0.0.1:7410].
    #[arg(long, value_name = "HOST:PORT")]
    listen: Option<Address>,
    /// The secret, 64 hexadecimal digits in a file, that the arbiter, its I/O nodes and its users share.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    secret_file: Option<PathBuf>,
    /// Keep jobs, mapping, what was learned, decisions and history in this directory
    /// [default: forebay-arbiter].
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    state: Option<PathBuf>,
    /// Who decides: one, static, size, process, dfra, mckp, fair or oracle [default: fair].
    #[arg(long, value_name = "NAME")]
    policy: Option<PolicyKind>,
    /// Bandwidth by number of I/O nodes for known access patterns (`forebay analyze --curves`).
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    curves: Option<PathBuf>,
    /// Read settings from this file; the command line goes before it.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    config: Option<PathBuf>,
    /// Print a configuration file with every setting and its default, and end.
    #[arg(long, exclusive = true)]
    example_config: bool,
    /// Be one of several arbiters: keep jobs, mapping and what was learned in this etcd cluster,
    /// `etcds://HOST:PORT,HOST:PORT,…`, and lead while elected. History stays in the state directory.
    #[arg(long, value_name = "URL")]
    ha: Option<EtcdUrl>,
    /// End when the process that started this one ends.
    #[arg(long)]
    die_with_parent: bool,
}

impl ArbiterArgs {
    pub(crate) fn run(self) -> Result<ExitCode> {
        if self.example_config {
            print!("{EXAMPLE}");
            return Ok(ExitCode::SUCCESS);
        }
        super::service::begin(self.die_with_parent, false)?;
        let config = self.configure()?;
        let stands_alone = !self.die_with_parent;
        forebay_arbiter::daemon::run(config, self.ha, |url| {
            crate::output::announce(std::io::stdout(), &format!("listening on {url}"));
            if stands_alone {
                super::service::ready();
            }
        })?;
        Ok(ExitCode::SUCCESS)
    }

    fn configure(&self) -> Result<Config> {
        let mut c = match &self.config {
            Some(path) => Config::from_file(path)?,
            None => Config::default(),
        };
        if let Some(listen) = &self.listen {
            c.listen = forebay_arbiter::config::tcp(listen).map_err(anyhow::Error::msg)?;
        }
        if let Some(path) = &self.secret_file {
            c.secret = Some(Secret::read(path)?);
        }
        if c.secret.is_none() {
            bail!("no secret: give --secret-file (`openssl rand -hex 32` makes one)");
        }
        if let Some(dir) = &self.state {
            c.state = dir.clone();
        }
        if let Some(policy) = self.policy {
            if policy == PolicyKind::Zero {
                bail!("--policy zero means direct access, which an arbiter does not give");
            }
            c.core.policy = policy;
        }
        if let Some(path) = &self.curves {
            c.curves = Some(path.clone());
        }
        Ok(c)
    }
}
