//! What a process that runs for long owes its admin: a log, and word to systemd (`Type=notify`) that it is ready and alive.

use anyhow::Context;
use sd_notify::NotifyState;
use std::io::IsTerminal;
use tracing::Level;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt;
use tracing_subscriber::prelude::*;

/// What every long-running process of Forebay does first. `owned`: it belongs to a command, which ends it.
pub(super) fn begin(die_with_parent: bool, owned: bool) -> anyhow::Result<()> {
    if die_with_parent {
        forebay_node::die_with_parent().context("cannot ask to end with the parent process")?;
    }
    // A service of its own tells its admin what happens; one that belongs to a command, what goes wrong.
    let level = if die_with_parent || owned { Level::WARN } else { Level::INFO };
    let asked = std::env::var("FOREBAY_LOG").unwrap_or_default();
    let filter = match asked.trim() {
        "" => Targets::new().with_default(level),
        text => filter(text).with_context(|| format!("FOREBAY_LOG={text}"))?,
    };
    let log = fmt::layer().with_writer(std::io::stderr).with_ansi(std::io::stderr().is_terminal());
    // Only the first one counts, and there is no other.
    let _ = tracing_subscriber::registry().with(log.with_filter(filter)).try_init();
    Ok(())
}

/// What is logged. The parser itself takes every word for a module's name, of which then nothing is heard.
fn filter(text: &str) -> anyhow::Result<Targets> {
    for part in text.split(',') {
        let (target, level) = part.split_once('=').unwrap_or(("forebay", part));
        let nothing = [target, level].iter().any(|word| word.trim().is_empty());
        if nothing || level.trim().parse::<LevelFilter>().is_err() {
            anyhow::bail!("{part:?} is not off, error, warn, info, debug or trace, nor MODULE=LEVEL");
        }
    }
    text.parse().context("it cannot be read")
}

/// Tells systemd, if it started this process, that it is ready; and, if it asked for that (`WatchdogSec=`), twice in every
/// such span that it is alive. The thread ends with the process.
pub(super) fn ready() {
    if let Err(e) = sd_notify::notify(&[NotifyState::Ready]) {
        tracing::warn!("systemd cannot be told that this process is ready: {e}");
    }
    let Some(every) = sd_notify::watchdog_enabled() else { return };
    let told = std::thread::Builder::new().name("watchdog".into()).stack_size(64 << 10).spawn(move || {
        while sd_notify::notify(&[NotifyState::Watchdog]).is_ok() {
            std::thread::sleep(every / 2);
        }
    });
    if let Err(e) = told {
        tracing::warn!("systemd's watchdog cannot be served: {e}");
    }
}
