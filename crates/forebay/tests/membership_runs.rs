//! A job is its runs: it lives as long as the last of them, or its processes, and ends when somebody ends it.

mod steps;

use forebay_control::client::Client as Api;
use forebay_testkit::{NodeProcess, Process, Site, program, until};
use forebay_types::{NodeId, Secret};
use std::process::{Command, Stdio};
use std::time::Duration;
use steps::*;

/// Runs of one name are one job: the end of one, also of one that failed or was killed, is none of the others'.
#[test]
fn a_job_lasts_as_long_as_the_last_of_its_runs() {
    let site = Site::new();
    let arbiter = site.arbiter(&arbiter(LONG_LEASE));
    let nodes: Vec<NodeProcess> = (0..3).map(|n| site.node(n, arbiter.url())).collect();
    until(PATIENCE, "the nodes do not come", || site.nodes(arbiter.url()).filter(|n| n.len() == 3));
    let mut long = run(&site, arbiter.url(), STEPS);
    steps(&site, &mut long, 1);
    let mut pin = Command::new(program());
    pin.args(["jobs", "pin", "steps", "2", "--arbiter", arbiter.url()]);
    assert!(pin.arg("--secret-file").arg(site.secret_file()).status().unwrap().success());
    let own = addresses(&nodes[2..]);
    until(PATIENCE, "new processes do not hear of it", || (configured(&site) == own).then_some(()));
    // Whoever could say at once that the job goes on, cannot.
    long.freeze().expect("it runs");
    for (via, script, good) in
        [("preload", "true", true), ("mount", "cat /seen/file", true), ("preload", "exit 3", false)]
    {
        let mut short = run_via(via, &site, arbiter.url(), script);
        let status = short.wait_for(PATIENCE).expect("it is our child").expect("it ends");
        assert_eq!(status.success(), good, "{via}, {script}: {status}");
        let jobs = site.mapping(arbiter.url()).expect("the mapping").jobs;
        let nodes = jobs.iter().find(|j| j.job == "steps").map(|j| j.nodes.clone());
        assert_eq!(nodes, Some(vec![NodeId(2)]), "after {via}, {script}: {jobs:?}");
    }
    long.thaw().expect("it is stopped");
    steps(&site, &mut long, 1);
    std::fs::write(site.path().join("enough"), "").unwrap();
    ends_well(long, &site);
    until(PATIENCE, "a job that has ended stays", || {
        site.mapping(arbiter.url())?.jobs.is_empty().then_some(())
    });
}

/// Whoever ends a job at the arbiter ends it: its run does not begin it again, and says so in its report.
#[test]
fn a_job_that_an_admin_ends_stays_ended() {
    let site = Site::new();
    let arbiter = site.arbiter(&arbiter(LONG_LEASE));
    let _node = site.node(0, arbiter.url());
    until(PATIENCE, "the node does not come", || site.nodes(arbiter.url()).filter(|n| n.len() == 1));
    let report = site.path().join("report");
    let mut command = Command::new(program());
    command.args([
        "run",
        "--job",
        "over",
        "--at",
        "/seen=data",
        "--via",
        "preload",
        "--arbiter",
        arbiter.url(),
    ]);
    command.arg("--secret-file").arg(site.secret_file()).arg("--report").arg(&report);
    command.args(["--", "sh", "-c", "echo x > /seen/x; while [ ! -e $HERE/enough ]; do sleep 0.05; done"]);
    command.env("HERE", site.path()).stdin(Stdio::null()).stderr(Stdio::null());
    let run = Process::start(&mut command).expect("forebay starts");
    let jobs = || site.mapping(arbiter.url()).map(|m| m.jobs);
    until(PATIENCE, "the job does not begin", || {
        jobs().filter(|j| j.len() == 1 && site.data().join("x").exists())
    });
    let admin = Api::new(arbiter.url(), Secret::from_hex(site.secret())).expect("an address");
    admin.end("over").expect("it ends");
    for _ in 0..15 {
        std::thread::sleep(Duration::from_millis(100));
        assert_eq!(jobs().expect("the mapping").len(), 0, "it has begun again");
    }
    std::fs::write(site.path().join("enough"), "").unwrap();
    ends_well(run, &site);
    let said = std::fs::read_to_string(report).unwrap();
    assert!(said.contains("was ended at the arbiter"), "{said}");
}

#[test]
fn a_job_outlives_a_stopped_forebay_run() {
    let site = Site::new();
    let arbiter = site.arbiter(&arbiter("policy = \"static\"\nlease-ms = 1000\n"));
    let _nodes: Vec<NodeProcess> = (0..2).map(|n| site.node(n, arbiter.url())).collect();
    until(PATIENCE, "the nodes do not come", || site.nodes(arbiter.url()).filter(|n| n.len() == 2));
    // One process of the job stays; others come and go.
    let script = format!("exec 3> /seen/held; {STEPS}");
    let mut run = run(&site, arbiter.url(), &script);
    steps(&site, &mut run, 2);
    run.freeze().expect("it runs");
    // Several leases pass.
    std::thread::sleep(Duration::from_secs(5));
    steps(&site, &mut run, 3);
    let jobs = site.mapping(arbiter.url()).expect("the mapping").jobs;
    assert!(jobs.iter().any(|j| j.job == "steps"), "the job is forgotten: {jobs:?}");
    run.thaw().expect("it is stopped");
    steps(&site, &mut run, 2);
    std::fs::write(site.path().join("enough"), "").unwrap();
    ends_well(run, &site);
    until(PATIENCE, "a job that has ended stays", || {
        site.mapping(arbiter.url())?.jobs.is_empty().then_some(())
    });
}

/// What a run's report says of an I/O node is that run's, while others of its name are at work.
#[test]
fn runs_of_one_name_have_their_own_operations() {
    let site = Site::new();
    let arbiter = site.arbiter(&arbiter(LONG_LEASE));
    let _node = site.node(0, arbiter.url());
    until(PATIENCE, "the node does not come", || site.nodes(arbiter.url()).filter(|n| n.len() == 1));
    let report = |name: &str| site.path().join(format!("report-{name}"));
    let start = |name: &str, script: &str| {
        let mut command = Command::new(program());
        command.args(["run", "--quiet", "--job", "both", "--at", "/seen=data", "--arbiter", arbiter.url()]);
        command.arg("--secret-file").arg(site.secret_file()).arg("--report").arg(report(name));
        Process::start(command.args(["--", "sh", "-c", script])).expect("forebay runs")
    };
    let (begun, enough) = (site.path().join("begun"), site.path().join("enough-written"));
    let long = format!(
        "for i in 1 2 3; do echo 12345 > /seen/a$i; done; touch {}; until [ -e {} ]; do sleep 0.1; done; echo 1 > /seen/last",
        begun.display(),
        enough.display()
    );
    let mut long = start("long", &long);
    until(PATIENCE, "nothing is written", || begun.exists().then_some(()));
    let mut short = start("short", "for i in 1 2; do echo 123456789 > /seen/b$i; done");
    let ends = |run: &mut Process| run.wait_for(PATIENCE).expect("our child").expect("it ends").success();
    assert!(ends(&mut short));
    std::fs::write(enough, "").unwrap();
    assert!(ends(&mut long));
    for (name, writes, bytes) in [("long", 4, 20), ("short", 2, 20)] {
        let text = std::fs::read_to_string(report(name)).unwrap();
        let told: serde_json::Value = serde_json::from_str(&text).unwrap();
        let own = &told["io_nodes"][0]["stats"]["flows"][0]["operations"]["write"];
        assert_eq!((&own["count"], &own["bytes"]), (&writes.into(), &bytes.into()), "{name}: {own}");
    }
}
