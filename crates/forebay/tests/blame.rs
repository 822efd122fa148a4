//! `forebay blame`: a job that is slowed by another hears by which, how much, and what another scheduler
//! would have done for it. `forebay experiment blame` measures how well.

use forebay_client::{Client, ExportId, File, OpenFlags, Path};
use forebay_control::client::Client as Arbiter;
use forebay_testkit::{ArbiterSpec, NodeProcess, Site, program, until};
use forebay_types::{JobBlame, NodeId, Secret};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);

/// A server that takes a millisecond for a request, whoever sends it.
const STORAGE: &str = "dispatchers = 1\n[emulated-storage]\nservers = 1\n[emulated-storage.server]\n\
                       per-request = \"1ms\"\nlatency = \"0s\"\nseek = \"0s\"\nbandwidth = \"1GB\"\n";

fn node(site: &Site, id: usize, url: &str, scheduler: &str) -> NodeProcess {
    let config = site.path().join(format!("node{id}.toml"));
    std::fs::write(&config, STORAGE).expect("a configuration");
    let config = config.display().to_string();
    site.node_with(id, &["--arbiter", url, "--config", &config, "--scheduler", scheduler])
}

fn open(client: &Client, name: &str) -> File {
    let path = Path { export: ExportId(0), rel: name.as_bytes() };
    client.open(path, OpenFlags::WRITE | OpenFlags::CREATE, 0o600).expect("it opens").0
}

/// Seconds that so many writes took by the writer's own clock.
fn write(client: &Client, file: &File, count: u64) -> f64 {
    let begin = Instant::now();
    for step in 0..count {
        client.pwrite(file, &[2; 4096], step % 64 * 4096).expect("a write");
    }
    begin.elapsed().as_secs_f64()
}

fn blame(site: &Site, url: &str, args: &[&str]) -> String {
    let mut command = Command::new(program());
    command.arg("blame").args(args).args(["--arbiter", url, "--secret-file"]).arg(site.secret_file());
    let out = command.output().expect("forebay runs");
    assert!(out.status.success(), "{args:?}: {out:?}");
    String::from_utf8(out.stdout).expect("UTF-8")
}

fn found(site: &Site, url: &str, args: &[&str]) -> JobBlame {
    serde_json::from_str(&blame(site, url, args)).expect("JSON")
}

#[test]
fn a_planted_aggressor_is_named() {
    let site = Site::new();
    let settings = "policy = \"static\"\nlease-ms = 600000\n".into();
    let arbiter = site.arbiter(&ArbiterSpec { settings, ..ArbiterSpec::default() });
    let url = arbiter.url();
    let mut nodes: Vec<_> = ["fifo:merge=1", "sfq:merge=1"]
        .into_iter()
        .enumerate()
        .map(|(n, s)| node(&site, n, url, s))
        .collect();
    until(PATIENCE, "the nodes do not come", || site.nodes(url).filter(|n| n.len() == nodes.len()));
    let admin = Arbiter::new(url, Secret::from_hex(site.secret())).expect("an address");
    let job = |id: &str, on: &[u32]| {
        let secret = site.register(url, id, None).expect("an answer").expect("a grant").secret;
        let grant = admin.pin(id, on.iter().copied().map(NodeId).collect()).expect("it is pinned");
        let site = &site;
        move || site.client(&grant, secret.as_deref().expect("a new job's secret"))
    };
    let mut rerun = 0.0;
    let mut predicted = 0.0;
    for on in [0, 1] {
        let (victims, aggressors) = (format!("victim-{on}"), format!("aggressor-{on}"));
        let (victim, aggressor) = (job(&victims, &[on])(), job(&aggressors, &[on]));
        let file = open(&victim, &victims);
        let alone = write(&victim, &file, 40) / 40.0;
        let end = AtomicBool::new(false);
        std::thread::scope(|s| {
            for rank in 0..8 {
                let (client, end) = (aggressor(), &end);
                s.spawn(move || {
                    let file = open(&client, &format!("large-{rank}"));
                    while !end.load(Ordering::Relaxed) {
                        write(&client, &file, 4);
                    }
                    client.leave();
                });
            }
            let working = || admin.get::<forebay_control::view::JobView>(&format!("/v1/jobs/{aggressors}"));
            until(PATIENCE, "nobody is at work", || working().ok().filter(|j| j.bytes > 0));
            let took = write(&victim, &file, 300);
            if on == 0 {
                let caused = took - 300.0 * alone;
                let b = found(&site, url, &[&victims, "--json", "--what-if", "sfq:merge=1"]);
                println!("alone {:.2} ms, with the other {:.2} ms: {b:?}", alone * 1e3, took / 300.0 * 1e3);
                assert_eq!(b.requests, 340);
                assert!(caused > 300.0 * alone, "eight are before it");
                let named = b.behind[&aggressors];
                println!("named with {:.0} % of what it caused", named / caused * 100.0);
                assert!(named >= 0.8 * caused, "{named} of {caused}");
                let parts = b.service + b.storage + b.throttled + b.idle + b.failover;
                let parts = parts + b.behind.values().sum::<f64>();
                assert!((parts / b.total - 1.0).abs() < 1e-6, "nothing is left unexplained: {b:?}");
                let (now, then) = b.what_if.expect("it was asked for");
                assert!(then < now);
                // What the machine does meanwhile it does to both.
                predicted = then / b.service;
                let words = blame(&site, url, &[&victims, "--what-if", "sfq:merge=1"]);
                println!("{words}");
                assert!(
                    words.lines().nth(1).is_some_and(|l| l.ends_with(&format!("behind job {aggressors}")))
                );
                // A program hears it in the report of its run.
                let mut run = Command::new(program());
                run.args([
                    "run",
                    "--job",
                    "program",
                    "--at",
                    "/seen=data",
                    "--arbiter",
                    url,
                    "--secret-file",
                ]);
                run.arg(site.secret_file()).args(["--", "sh", "-c"]);
                run.arg("dd if=/dev/zero of=/seen/dd bs=4k count=100 status=none");
                let out = run.output().expect("forebay runs");
                let said = String::from_utf8_lossy(&out.stderr);
                println!("{said}");
                assert!(out.status.success() && said.contains("at I/O nodes    "), "{said}");
            } else {
                let b = found(&site, url, &[&victims, "--json"]);
                rerun = b.total / b.service;
            }
            end.store(true, Ordering::Relaxed);
        });
        victim.leave();
    }
    println!("in turns: predicted {:.2} of a request's own time, {:.2} in truth", predicted, rerun);
    assert!((0.4..2.5).contains(&(predicted / rerun)), "predicted {predicted}, {rerun} in truth");

    // A node that stands still and dies: what was sent to it is sent again to the other.
    let secret = site.register(url, "moving", None).expect("an answer").expect("a grant").secret;
    let mut grant = admin.pin("moving", vec![NodeId(0), NodeId(1)]).expect("it is pinned");
    // It begins with the first.
    grant.spare = grant.addresses.split_off(1);
    let first = grant.nodes[0].0 as usize;
    let moving = site.client(&grant, secret.as_deref().expect("a new job's secret"));
    let file = open(&moving, "moving");
    write(&moving, &file, 20);
    nodes[first].process.freeze().expect("our own child");
    let frozen = nodes.remove(first);
    std::thread::scope(|s| {
        s.spawn(move || {
            std::thread::sleep(Duration::from_millis(400));
            drop(frozen);
        });
        write(&moving, &file, 20);
    });
    let b = found(&site, url, &["moving", "--json"]);
    println!("after a failover: {b:?}");
    assert!(b.failover >= 0.25, "{b:?}");
    moving.leave();
}

/// Another job of the name is another, and a job is the same wherever it was.
#[test]
fn a_job_is_told_from_earlier_ones_and_followed_when_it_moves() {
    let site = Site::new();
    let settings = "policy = \"static\"\nlease-ms = 600000\n".into();
    let arbiter = site.arbiter(&ArbiterSpec { settings, ..ArbiterSpec::default() });
    let url = arbiter.url();
    let _nodes = [0, 1].map(|n| node(&site, n, url, "fifo:merge=1"));
    until(PATIENCE, "the nodes do not come", || site.nodes(url).filter(|n| n.len() == 2));
    let admin = Arbiter::new(url, Secret::from_hex(site.secret())).expect("an address");
    for (moves, all) in [(&[(0, 30), (1, 10)][..], 40), (&[(1, 7)], 7)] {
        let secret = site.register(url, "moved", None).expect("an answer").expect("a grant").secret;
        let secret = secret.expect("a new job's secret");
        for (on, count) in moves {
            let grant = admin.pin("moved", vec![NodeId(*on)]).expect("it is pinned");
            let client = site.client(&grant, &secret);
            let file = open(&client, "moved");
            write(&client, &file, *count);
            client.leave();
        }
        assert_eq!(found(&site, url, &["moved", "--json"]).requests, all);
        admin.end("moved").expect("it ends");
    }
}

/// Who loads the same storage through another I/O node is named, and who was there all the time is said to have been.
#[test]
fn who_was_at_the_storage_through_another_node_is_named() {
    let site = Site::new();
    let settings = "policy = \"static\"\nlease-ms = 600000\n".into();
    let arbiter = site.arbiter(&ArbiterSpec { settings, ..ArbiterSpec::default() });
    let url = arbiter.url();
    let socket = site.path().join("servers");
    let shared = format!(
        "emulated-storage-socket = {socket:?}\n{}",
        STORAGE.replace("dispatchers = 1", "dispatchers = 16")
    );
    let _nodes = [0, 1].map(|id| {
        let config = site.path().join(format!("shared{id}.toml"));
        std::fs::write(&config, &shared).expect("a configuration");
        let config = config.display().to_string();
        site.node_with(id, &["--arbiter", url, "--config", &config, "--scheduler", "fifo:merge=1"])
    });
    until(PATIENCE, "the nodes do not come", || site.nodes(url).filter(|n| n.len() == 2));
    let admin = Arbiter::new(url, Secret::from_hex(site.secret())).expect("an address");
    let job = |id: &str, on: u32| {
        let secret = site.register(url, id, None).expect("an answer").expect("a grant").secret;
        let grant = admin.pin(id, vec![NodeId(on)]).expect("it is pinned");
        let site = &site;
        move || site.client(&grant, secret.as_deref().expect("a new job's secret"))
    };
    let (victim, aggressor, always) = (job("victim", 0)(), job("aggressor", 1), job("always", 1)());
    let file = open(&victim, "victim");
    let end = AtomicBool::new(false);
    std::thread::scope(|s| {
        let stop = &end;
        s.spawn(move || {
            let file = open(&always, "always");
            while !stop.load(Ordering::Relaxed) {
                write(&always, &file, 1);
                std::thread::sleep(Duration::from_millis(20));
            }
            always.leave();
        });
        // Better times first: most of what is remembered.
        let alone = write(&victim, &file, 600) / 600.0;
        let (loud, end) = (AtomicBool::new(true), &end);
        let loud = &loud;
        std::thread::scope(|s| {
            for rank in 0..8 {
                let client = aggressor();
                s.spawn(move || {
                    let file = open(&client, &format!("large-{rank}"));
                    while loud.load(Ordering::Relaxed) {
                        write(&client, &file, 4);
                    }
                    client.leave();
                });
            }
            let took = write(&victim, &file, 200);
            loud.store(false, Ordering::Relaxed);
            println!("alone {:.2} ms, beside the other {:.2} ms", alone * 1e3, took * 5.0);
        });
        end.store(true, Ordering::Relaxed);
    });
    let b = found(&site, url, &["victim", "--json"]);
    println!("{b:?}");
    assert!(b.storage > 0.3 * b.total && b.behind.keys().all(|who| who == "victim"), "{b:?}");
    assert!(b.moments.is_empty(), "what was asked for it is not said");
    let first = b.elsewhere.first().expect("somebody is named");
    assert_eq!((first.job.as_str(), first.node), ("aggressor", NodeId(1)));
    assert!(first.share > 0.8 && first.slow > 0.8 && first.good < 0.5 && !first.says_nothing(), "{first:?}");
    let words = blame(&site, url, &["victim"]);
    println!("{words}");
    assert!(words.contains("while job aggressor moved "), "{words}");
    // The one that caused it was slowed by itself alone.
    let b = found(&site, url, &["aggressor", "--json"]);
    assert!(b.elsewhere.iter().all(|e| e.job != "aggressor"), "{b:?}");
    victim.leave();
}
