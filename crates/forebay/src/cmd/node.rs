//! `forebay node`: runs an I/O node until it is told to end, or talks to one that runs.

mod control;

use super::args;
use anyhow::{Result, bail};
use clap::{Args, ValueHint};
use forebay_node::config::{
    ActAs, ExportConfig, LEASE_MS, MOST_DISPATCHERS, NodeConfig, Protection, metrics_at,
};
use forebay_node::daemon::{self, DaemonOutputs};
use forebay_sched::SchedulerConfig;
use forebay_types::{Address, NodeId};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Run an I/O node: export directories to the clients of a job.
///
/// The node listens on the given addresses, lets in clients that prove to know the secret, and
/// carries out their file operations below the exported directories, as the user it runs as. It
/// keeps no dirty data: when a write is answered, the file system has it.
///
/// SIGTERM or SIGINT drains the node: it tells its clients to go to another I/O node, listens on until
/// what it has accepted is answered, and ends with status 0, at the latest after the drain time-out.
/// A second signal, not within a quarter of a second, ends it at once.
#[derive(Args)]
#[command(after_long_help = "\
Examples:
  (umask 077; openssl rand -hex 32 > secret)
  forebay node --listen tcp:0.0.0.0:7411 --secret-file secret \\
      --export /mnt/pfs/scratch=scratch
  forebay node --listen tcp:0.0.0.0:0 --secret-file secret \\
      --export /mnt/pfs/scratch=scratch --arbiter https://arb:7410
  forebay node --config /etc/forebay/node.toml
  forebay node --example-config > node.toml
  forebay node stats tcp:127.0.0.1:7411 --secret-file secret")]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct NodeArgs {
    #[command(subcommand)]
    action: Option<control::Action>,
    /// Listen here: `tcp:HOST:PORT` (port 0: any free one) or `unix:PATH`. May be repeated.
    #[arg(long, value_name = "ADDRESS")]
    listen: Vec<Address>,
    /// Export this directory, under a name of its own if given. May be repeated.
    #[arg(long, value_name = "DIR[=NAME]", value_hint = ValueHint::DirPath)]
    export: Vec<ExportConfig>,
    /// The secret, 64 hexadecimal digits in a file, that clients must know.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    secret_file: Option<PathBuf>,
    /// Serve everybody as this user: a name, a number, UID:GID:GROUP,GROUP, or `self`, as whom it runs. A node
    /// of root must be told this, or `--identities`.
    #[arg(long = "as", value_name = "USER", conflicts_with = "identities")]
    act_as: Option<ActAs>,
    /// Serve each job as the user whom the `arbiter` names, or who proves with `munge` to be one.
    #[arg(long, value_name = "BY", value_parser = ActAs::told_by)]
    identities: Option<ActAs>,
    /// Root on a compute node is root here; else it is nobody.
    #[arg(long)]
    allow_root: bool,
    /// Protect what goes to and from other hosts: `integrity` notices what was changed on the way, `privacy`
    /// encrypts it, too. `EXPORT=HOW` asks for more for one export. Unix sockets do not leave the host, and stay as
    /// they are. May be repeated [default: none].
    #[arg(long, value_name = "[EXPORT=]HOW")]
    protect: Vec<Protection>,
    /// Let in only this job. Without it, any job that knows the secret, each a flow of its own.
    #[arg(long, value_name = "NAME", value_parser = args::job)]
    job: Option<String>,
    /// Read settings from this file; the command line goes before it.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    config: Option<PathBuf>,
    /// Print a configuration file with every setting and its default, and end.
    #[arg(long, exclusive = true)]
    example_config: bool,
    /// This node's number among the I/O nodes.
    #[arg(long, value_name = "N", value_parser = args::node_id)]
    id: Option<u32>,
    /// The request scheduler and its parameters, for example `fifo`, `twins:window=1ms`.
    #[arg(long, value_name = "SPEC")]
    scheduler: Option<SchedulerConfig>,
    /// How many requests are at the storage at the same time [default: 16].
    #[arg(long, value_name = "N", value_parser = args::count::<u16>(1..=MOST_DISPATCHERS))]
    dispatchers: Option<u16>,
    /// Follow the arbiter at this address, `https://HOST:PORT`. May be repeated, or several separated
    /// by commas: the node follows whichever of them leads.
    #[arg(long, value_name = "URL", value_delimiter = ',')]
    arbiter: Vec<String>,
    /// Serve metrics for Prometheus at `http://HOST:PORT/metrics` (port 0: any free one). They need no
    /// secret, and name jobs: choose an address that only those reach who may see them.
    #[arg(long, value_name = "HOST:PORT", value_parser = metrics_at)]
    metrics: Option<SocketAddr>,
    /// Where the nodes of this host keep their ledgers [default: /run/forebay or /dev/shm/forebay-UID].
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    ledger_dir: Option<PathBuf>,
    /// How long a request stays valid after its client's last sign of life [default: 2000].
    #[arg(long, value_name = "MS", value_parser = args::count::<u64>(LEASE_MS))]
    lease_ms: Option<u64>,
    /// How long to wait for clients to leave when the node is to end [default: 5].
    #[arg(long, value_name = "SECONDS", value_parser = args::seconds(0.0))]
    drain_timeout: Option<Duration>,
    /// Once it listens, write the addresses as a line of JSON to this file, which appears whole.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    ready_file: Option<PathBuf>,
    /// The same to an inherited file descriptor, which is then closed.
    #[arg(long, value_name = "N", value_parser = args::count::<i32>(0..=i32::MAX))]
    ready_fd: Option<i32>,
    /// Write the statistics as JSON to this file at the end.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    stats_file: Option<PathBuf>,
    /// End when the process that started this one ends.
    #[arg(long)]
    die_with_parent: bool,
    /// End when standard input does: for a node that is started on another host.
    #[arg(long)]
    end_with_input: bool,
}

impl NodeArgs {
    pub(crate) fn run(mut self) -> Result<ExitCode> {
        if let Some(action) = self.action.take() {
            return action.run();
        }
        if self.example_config {
            print!("{}", forebay_node::config::EXAMPLE);
            return Ok(ExitCode::SUCCESS);
        }
        super::service::begin(self.die_with_parent, self.end_with_input)?;
        let config = self.configure()?;
        let told = DaemonOutputs {
            ready_file: self.ready_file,
            ready_fd: self.ready_fd,
            stats_file: self.stats_file,
            until_input_ends: self.end_with_input,
        };
        let (nobody_told, stands_alone) = (
            told.ready_file.is_none() && told.ready_fd.is_none(),
            !self.die_with_parent && !self.end_with_input,
        );
        daemon::run(config, &told, |ready| {
            if nobody_told {
                let (at, metrics) = (ready.addresses.join(", "), ready.metrics.as_deref());
                let metrics = metrics.map_or(String::new(), |at| format!(", metrics on http://{at}/metrics"));
                crate::output::announce(std::io::stderr(), &format!("listening on {at}{metrics}"));
            }
            if stands_alone {
                super::service::ready();
            }
        })?;
        Ok(ExitCode::SUCCESS)
    }

    fn configure(&self) -> Result<NodeConfig> {
        let mut c = match &self.config {
            Some(path) => NodeConfig::from_file(path)?,
            None => NodeConfig::default(),
        };
        if !self.listen.is_empty() {
            c.listen = self.listen.clone();
        }
        if !self.export.is_empty() {
            c.export(&self.export);
        }
        if let Some(path) = &self.secret_file {
            c.secret = Some(c.read_secret(path)?);
        }
        if let Some(whom) = self.act_as.as_ref().or(self.identities.as_ref()) {
            c.act_as = whom.clone();
        }
        c.allow_root |= self.allow_root;
        c.ask(&self.protect).map_err(anyhow::Error::msg)?;
        if c.secret.is_none() && c.jobs.is_empty() && c.act_as != ActAs::Munge {
            bail!("no secret: give --secret-file, or jobs with secrets in the configuration file");
        }
        if self.job.is_some() {
            c.job = self.job.clone();
        }
        if let Some(id) = self.id {
            c.id = NodeId(id);
        }
        if let Some(scheduler) = &self.scheduler {
            c.scheduler = scheduler.clone();
        }
        if !self.arbiter.is_empty() {
            c.arbiters = self.arbiter.clone();
        }
        if let Some(bad) = c.arbiters.iter().find(|url| forebay_control::private::authority(url).is_none()) {
            bail!("`{bad}` is no arbiter's address: write https://HOST:PORT or http://HOST:PORT");
        }
        if !c.arbiters.is_empty() && c.secret.is_none() {
            bail!("an I/O node talks to its arbiter under their common secret: give --secret-file");
        }
        c.metrics = self.metrics.or(c.metrics);
        if self.ledger_dir.is_some() {
            c.ledger_dir = self.ledger_dir.clone();
        }
        c.dispatchers = self.dispatchers.map_or(c.dispatchers, usize::from);
        c.lease = self.lease_ms.map_or(c.lease, Duration::from_millis);
        c.drain_timeout = self.drain_timeout.unwrap_or(c.drain_timeout);
        Ok(c)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_holds_together() {
        NodeArgs::augment_args(clap::Command::new("node")).debug_assert();
    }
}
