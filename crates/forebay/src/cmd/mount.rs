//! `forebay mount`: forwarded directories as mounted file systems, until the command is told to end.

use super::args;
use crate::arbiter::{SecretFile, from_environment};
use crate::output::sentence;
use anyhow::Result;
use clap::{Args, ValueEnum, ValueHint};
use forebay_client::Address;
use forebay_mount::Contract;
use forebay_run::Forward;
use forebay_run::mount::{self, Background, By, MOUNTED, Served, Until};
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Mount a directory that I/O nodes serve.
///
/// Every program sees the export's files below DIR, whatever it is linked with and however it was
/// started; what it does there goes through the I/O nodes. Starts I/O nodes on this machine, or uses
/// running ones with `--node` or `--arbiter`.
///
/// As root the mount is for all users, and the kernel checks permissions by owner and mode. Other
/// users need `fusermount3`, and the mount is theirs alone; `forebay run --via mount` needs neither.
///
/// SIGTERM or SIGINT unmounts at once, also while programs use it (they get errors from then on). Should
/// the command be killed, a small process of its own unmounts.
#[derive(Args)]
#[command(after_long_help = "\
Examples:
  forebay mount --at /scratch=/mnt/pfs/scratch
  forebay mount --background --at /scratch \\
      --node tcp:10.0.0.7:7411 --secret-file secret
  forebay mount --at /scratch=data \\
      --arbiter https://arb:7410 --secret-file secret
  forebay mount --contract close-to-open --at /software=/mnt/pfs/software

Contracts:
  strict          what one process has written, all processes on all hosts see; nothing is kept.
                  Small requests need not make a trip each: who looks at the files past the
                  I/O node may see what was written up to 0.1 s late
  synchronous     as strict, and every request makes its trip: when a write returns, the file
                  system has it
  close-to-open   the kernel keeps pages, and attributes for a second; a file is looked at anew
                  when it is opened. What another host writes to a file that is open here may be
                  seen late. Writes are never held back.
  exclusive       for a directory that nobody else changes meanwhile: the kernel keeps what is
                  written, too, until a file is closed or synced; an error may be told then.
                  Names and attributes are believed for a second.
  immutable       for software and input data: names, missing names and contents are fetched
                  once and kept. Nothing can be written (EROFS); what was changed elsewhere is
                  refused (ESTALE) and told, never mixed.")]
pub(crate) struct Mount {
    /// Mount here what the I/O nodes export as EXPORT (by default the directory of the same name).
    /// May be repeated; of directories within each other the innermost counts, in whatever order. A `=` that belongs to a
    /// name is written `\=`.
    #[arg(long, value_name = "DIR[=EXPORT]", required = true, value_hint = ValueHint::DirPath)]
    at: Vec<Forward>,
    /// How many I/O nodes to start [default: 1].
    #[arg(long, value_name = "N", conflicts_with_all = ["node", "arbiter"], value_parser = args::count::<u16>(1..=256))]
    io_nodes: Option<u16>,
    /// Use this I/O node, `tcp:HOST:PORT` or `unix:PATH`, instead of starting some. May be repeated.
    #[arg(long, value_name = "ADDRESS")]
    node: Vec<Address>,
    /// Use the I/O nodes that this arbiter gives, and follow where it moves the mount; with several
    /// addresses, separated by commas, of whichever leads [default: $FOREBAY_ARBITER, without --io-nodes].
    #[arg(long, value_name = "URL", conflicts_with = "node", value_hint = ValueHint::Url)]
    arbiter: Option<String>,
    #[command(flatten)]
    secret: SecretFile,
    /// The job's name, as the I/O nodes know it [default: mount-UID; with an arbiter, one that it makes up].
    #[arg(long, value_name = "NAME", value_parser = args::job)]
    job: Option<String>,
    /// What the kernel may keep.
    #[arg(long, value_enum, default_value_t = Keep::Strict)]
    contract: Keep,
    /// The longest a single call may take before it fails.
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = args::seconds(0.1))]
    deadline: Duration,
    /// Go into the background once everything is mounted.
    #[arg(long)]
    background: bool,
    /// Say on standard output when everything is mounted.
    #[arg(long, hide = true)]
    announce: bool,
}

#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum Keep {
    /// Nothing.
    Strict,
    /// Nothing, and every request makes its trip.
    Synchronous,
    /// Until a file is opened again.
    CloseToOpen,
    /// What is written, too: nobody else changes anything.
    Exclusive,
    /// For ever: what is there does not change.
    Immutable,
}

impl Keep {
    /// Small requests need not make a trip each.
    pub(crate) fn joins(self) -> bool {
        !matches!(self, Keep::Synchronous)
    }
}

impl From<Keep> for Contract {
    fn from(keep: Keep) -> Contract {
        match keep {
            Keep::Strict | Keep::Synchronous => Contract::Strict,
            Keep::CloseToOpen => Contract::CloseToOpen,
            Keep::Exclusive => Contract::Exclusive,
            Keep::Immutable => Contract::Immutable,
        }
    }
}

impl Mount {
    pub(crate) fn run(self) -> Result<ExitCode> {
        if self.background {
            let same = std::env::args_os().skip(1).filter(|a| a != "--background");
            let tell = |line: &str| eprintln!("{line}");
            return Ok(match mount::in_background(same.chain(["--announce".into()]), tell)? {
                Background::Serves(pid) => {
                    eprintln!("process {pid} serves it; end it to unmount");
                    ExitCode::SUCCESS
                }
                Background::Failed(status) => {
                    let code = status.code().and_then(|c| u8::try_from(c).ok()).filter(|c| *c != 0);
                    ExitCode::from(code.unwrap_or(1))
                }
            });
        }
        super::service::begin(false, false)?;
        let announce = self.announce;
        match self.serve() {
            // Whoever started it in the background tells.
            Err(e) if announce => {
                println!("forebay: {}", sentence(&e));
                Ok(ExitCode::FAILURE)
            }
            other => other,
        }
    }

    fn serve(self) -> Result<ExitCode> {
        let until = Until::signalled()?;
        let (running, secret) = (self.io_nodes.is_none() && self.node.is_empty(), self.secret.path());
        let arbiter = self.arbiter.clone().or_else(|| from_environment().filter(|_| running));
        let by = match &arbiter {
            Some(urls) => By::Arbiter(urls, secret.as_deref()),
            None if self.node.is_empty() => By::Own(self.io_nodes.unwrap_or(1).into()),
            None => By::Nodes(&self.node, secret.as_deref()),
        };
        let served = Served::by(&by, &self.at, self.job.as_deref(), self.deadline, self.contract.joins())?;
        mount::serve(&served, self.contract.into(), until, |dirs| {
            for dir in dirs {
                let said = format!("mounted on {}", dir.display());
                if self.announce { println!("{said}") } else { eprintln!("{said}") }
            }
            if self.announce {
                println!("{MOUNTED}");
                std::io::stdout().flush()?;
            }
            Ok(())
        })?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Waits for the end of standard input and unmounts DIR, unless told that it is done.
#[derive(Args)]
pub(crate) struct MountWatch {
    /// The device number of the mount: another one on the same directory is left alone.
    #[arg(long)]
    device: String,
    /// What the mounting process has made for itself.
    #[arg(long)]
    own: PathBuf,
    dir: PathBuf,
}

impl MountWatch {
    pub(crate) fn run(self) -> Result<ExitCode> {
        mount::watch(&self.dir, &self.device, self.own)?;
        Ok(ExitCode::SUCCESS)
    }
}
