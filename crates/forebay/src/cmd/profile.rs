//! `forebay profile`: how many requests a storage system takes at once, and what large ones cost.

use super::lab::carry_out;
use anyhow::Result;
use clap::{Args, ValueHint};
use std::path::PathBuf;
use std::process::ExitCode;

/// Measure a storage system and write the parameters of the `sfq-d-plus` scheduler for it.
///
/// Writes a file below DIR and measures, reads and writes apart: the throughput of small requests by
/// how many are outstanding, and the latency of a lone request by its size. The depth is where the
/// first curve flattens (90 % of the most); a request costs as many slots as its latency is times the
/// smallest one's, and never more than the small requests it could be cut into. Figures are medians of five
/// passes, shown with their range; what was unsteady is told. Past the page cache where the file system can (O_DIRECT);
/// it says so if not. The parameters, the figures and both curves are written to `--out`; the file below DIR is removed.
#[derive(Args)]
#[command(after_long_help = "\
Examples:
  forebay profile /mnt/pfs/scratch
  forebay profile --quick --out /tmp/profile /mnt/pfs/scratch
  forebay node --config profile/profile.toml --listen tcp:0.0.0.0:7411 ...")]
pub(crate) struct Profile {
    /// A directory on the storage system.
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath, value_parser = crate::cmd::args::directory)]
    dir: PathBuf,
    /// Write profile.toml, profile.csv, throughput.svg and latency.svg here.
    #[arg(long, value_name = "DIR", default_value = "profile", value_hint = ValueHint::DirPath)]
    out: PathBuf,
    /// A few seconds instead of most of a minute: rough figures.
    #[arg(long)]
    quick: bool,
    /// Also fit a storage model (model.toml), and say how far it is off where it was not fitted.
    #[arg(long)]
    model: bool,
}

impl Profile {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let profile = forebay_lab::profile::Profile { dir: self.dir, quick: self.quick, model: self.model };
        carry_out(&profile, Some(&self.out))
    }
}
