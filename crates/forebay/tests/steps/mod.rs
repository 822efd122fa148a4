//! A job that starts one process after the other, as a test wants it.

#![allow(dead_code, reason = "each test program uses some of it")]

use forebay_client::Config;
use forebay_testkit::{ArbiterSpec, NodeProcess, Process, Site, program, until};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Everything that is waited for comes much sooner, but for a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// So rarely does a job renew its lease that whatever it learns in time was pushed.
pub(crate) const LONG_LEASE: &str = "policy = \"static\"\nlease-ms = 600000\n";

pub(crate) fn arbiter(settings: &str) -> ArbiterSpec {
    ArbiterSpec { settings: settings.into(), ..ArbiterSpec::default() }
}

/// A program below `/seen`, which is the export; a shell with its variables.
pub(crate) fn run(site: &Site, arbiters: &str, script: &str) -> Process {
    run_via("preload", site, arbiters, script)
}

pub(crate) fn run_via(via: &str, site: &Site, arbiters: &str, script: &str) -> Process {
    let mut command = Command::new(program());
    command.args([
        "run",
        "--quiet",
        "--job",
        "steps",
        "--at",
        "/seen=data",
        "--arbiter",
        arbiters,
        "--via",
        via,
    ]);
    command.arg("--secret-file").arg(site.secret_file());
    command.args(["--", "sh", "-c", script]).env("HERE", site.path()).stdin(Stdio::null());
    Process::start(&mut command).expect("forebay starts")
}

pub(crate) fn ends_well(mut run: Process, site: &Site) {
    let status = run.wait_for(PATIENCE).expect("it is our child").expect("it ends");
    assert!(status.success(), "{status}: {}", said(site));
}

pub(crate) fn said(site: &Site) -> String {
    std::fs::read_to_string(site.path().join("said")).unwrap_or_default()
}

/// Starts a process whenever the file `go` is there, until `enough` is; ends at the first that fails.
pub(crate) const STEPS: &str = "echo yes > /seen/file; echo $FOREBAY_CONFIG > $HERE/config
    while [ ! -e $HERE/enough ]; do
        [ -e $HERE/go ] || { sleep 0.05; continue; }
        rm $HERE/go
        a=$(date +%s%N)
        cat /seen/file > $HERE/got 2>> $HERE/said || exit 3
        echo $(($(date +%s%N) - a)) >> $HERE/took
        [ \"$(cat $HERE/got)\" = yes ] || exit 4
        echo . >> $HERE/steps
    done";

/// Has so many processes run, one after the other.
pub(crate) fn steps(site: &Site, run: &mut Process, more: usize) {
    let count = || std::fs::read(site.path().join("steps")).map_or(0, |s| s.len() / 2);
    for _ in 0..more {
        let now = count();
        std::fs::write(site.path().join("go"), "").unwrap();
        until(PATIENCE, "no more processes run", || {
            if let Ok(Some(status)) = run.try_wait() {
                panic!("it ended with {status}: {}", said(site));
            }
            (count() > now).then_some(())
        });
    }
}

/// Milliseconds that those processes took, each as a whole and with the next one that says so.
pub(crate) fn took(site: &Site) -> Vec<u64> {
    let text = std::fs::read_to_string(site.path().join("took")).unwrap_or_default();
    text.lines().filter_map(|ns| ns.parse::<u64>().ok()).map(|ns| ns / 1_000_000).collect()
}

/// The addresses that a process would start with now.
pub(crate) fn configured(site: &Site) -> Vec<String> {
    let path = std::fs::read_to_string(site.path().join("config")).unwrap_or_default();
    let text = std::fs::read(Path::new(path.trim())).unwrap_or_default();
    let config = Config::from_json(&text).ok();
    config.map_or(Vec::new(), |c| c.nodes.iter().map(ToString::to_string).collect())
}

pub(crate) fn addresses(nodes: &[NodeProcess]) -> Vec<String> {
    nodes.iter().flat_map(|n| n.addresses()).map(ToString::to_string).collect()
}
