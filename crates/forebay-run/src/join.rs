//! A process of a job on a host that sees nothing of the directory in which the job was started: what it
//! needs comes with the environment, but for the secret, which both ends make from one that they have.

use crate::Signals;
use crate::not_run::{NotRun, not_executed};
use crate::program::exit_code;
use anyhow::{Context, Result, anyhow};
use forebay_client::Config;
use forebay_embed::{Layer, Note};
use forebay_types::Secret;
use forebay_wire::hello::derive;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The variable by which a job tells its processes on other hosts all but the secret.
pub(crate) const VARIABLE: &str = "FOREBAY_JOIN";

/// A variable's value may not be longer than this.
const MOST: usize = 64 << 10;

/// The job's secret, which whoever knows `secret` can make.
pub fn job_secret(secret: &Secret, job: &str) -> Secret {
    derive(secret, job)
}

/// What goes into the environment: the configuration without its secret.
pub(crate) fn ticket(config: &Config) -> Option<String> {
    let public = Config { secret: String::new(), placeholder: None, origin: None, ..config.clone() };
    let json = |config: &Config| serde_json::to_string(config).ok().filter(|j| j.len() < MOST);
    // Of very many hosts each is left to its rank.
    json(&public).or_else(|| json(&Config { hosts: Vec::new(), ..public.clone() }))
}

/// Runs a command as part of the job that its environment tells of. Its exit status, and what was not
/// forwarded.
pub fn join(
    command: &[OsString],
    secret: impl FnOnce() -> Result<Secret>,
    signals: &Signals,
) -> Result<(u8, Vec<Note>), NotRun> {
    let variable = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty());
    let program = command.first().ok_or_else(|| anyhow!("no program is named"))?;
    let cannot = |e: anyhow::Error| NotRun {
        code: not_executed(&e),
        why: e.context(format!("cannot run {}", program.display())),
    };
    let config_file = variable("FOREBAY_CONFIG").map(PathBuf::from);
    if config_file.as_deref().is_some_and(sees_everything) {
        // All is there: the program is what this process becomes.
        let mut becomes = Command::new(program);
        crate::sys::as_given(&mut becomes);
        return Err(cannot(anyhow!(becomes.args(&command[1..]).exec())));
    }
    let ticket = variable(VARIABLE).and_then(|t| t.into_string().ok());
    let ticket =
        ticket.context("there is no job to join: FOREBAY_JOIN is not set; start this below `forebay run`")?;
    let mut config: Config = serde_json::from_str(&ticket).context("FOREBAY_JOIN cannot be read")?;
    let secret = secret().context(
        "the directory of the job is not seen here, so its secret is made from the one in --secret-file, which \
         `forebay run` must have been given too",
    )?;
    config.secret = job_secret(&secret, &config.job).to_hex();
    for map in &mut config.exports {
        map.local = None;
    }
    let layer = Layer::attach(config, None).map_err(anyhow::Error::from)?;
    layer.write_preload().map_err(anyhow::Error::from)?;
    let start = || {
        let mut started = Command::new(program);
        started.args(&command[1..]).env("LD_PRELOAD", layer.dir().join("libforebay.so"));
        Ok(started.env("FOREBAY_CONFIG", layer.client_config()).spawn()?)
    };
    let mut child = signals.start(start).map_err(cannot)?;
    let status = signals.wait(&mut child)?;
    Ok((exit_code(status), layer.notes()))
}

/// Whether library and configuration can be read here.
fn sees_everything(config: &Path) -> bool {
    let readable = |p: &Path| std::fs::File::open(p).is_ok();
    readable(config) && readable(&config.with_file_name("libforebay.so"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_holds_no_secret_and_both_ends_make_the_same() {
        let secret = job_secret(&Secret::new([7; 32]), "12.34");
        assert_eq!(secret.to_hex(), job_secret(&Secret::new([7; 32]), "12.34").to_hex());
        assert_ne!(secret.to_hex(), job_secret(&Secret::new([7; 32]), "12.35").to_hex());
        let node = "tcp:10.0.0.1:7411".parse().unwrap();
        let mut config = Config::new("12.34", secret.to_hex(), vec![node]);
        config.hosts = (0..20_000).map(|i| format!("host{i}")).collect();
        let text = ticket(&config).unwrap();
        assert!(!text.contains(&secret.to_hex()) && text.len() < MOST);
        let read: Config = serde_json::from_str(&text).unwrap();
        assert_eq!((read.job, read.nodes.len(), read.hosts.len()), ("12.34".into(), 1, 0));
    }
}
