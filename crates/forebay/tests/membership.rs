//! All processes of a job, whenever they start, know the job's I/O nodes as they are now; and a job lives
//! as long as its processes do, whoever leads and whatever becomes of `forebay run`.

mod steps;

use forebay_client::{Client, Config, ExportId, Meta, Path as Name, Target};
use forebay_control::view::NodeState;
use forebay_testkit::{ArbiterSpec, Cluster, NodeProcess, Site, free_address, program, skipped, until};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};
use steps::*;

#[test]
fn new_processes_find_nodes_that_restarted_elsewhere() {
    let site = Site::new();
    let arbiter = site.arbiter(&arbiter(LONG_LEASE));
    let mut nodes: Vec<NodeProcess> = (0..2).map(|n| site.node(n, arbiter.url())).collect();
    until(PATIENCE, "the nodes do not come", || site.nodes(arbiter.url()).filter(|n| n.len() == 2));
    let mut run = run(&site, arbiter.url(), STEPS);
    steps(&site, &mut run, 3);
    for round in 0..2 {
        for n in 0..2 {
            let old = addresses(&nodes[n..=n]);
            drop(nodes.remove(n));
            nodes.insert(n, site.node(n, arbiter.url()));
            assert_ne!(addresses(&nodes[n..=n]), old, "round {round}");
            let new = addresses(&nodes[n..=n]);
            until(PATIENCE, "the restarted node is not known to new processes", || {
                let known = site.mapping(arbiter.url())?.jobs;
                let mapped = known.iter().all(|j| !j.addresses.contains(&old[0]));
                let told = configured(&site);
                (mapped && !told.contains(&old[0]) && !told.is_empty()).then_some(())
            });
            assert!(configured(&site).iter().all(|a| addresses(&nodes).contains(a)), "{new:?}");
            steps(&site, &mut run, 2);
        }
    }
    println!("new processes, the first three before any restart: {:?} ms", took(&site));
    std::fs::write(site.path().join("enough"), "").unwrap();
    ends_well(run, &site);
}

/// The same as whoever runs the job sees it: nobody looks at what its processes are told.
#[test]
fn nodes_restart_one_by_one_on_new_ports_and_no_new_process_fails() {
    let site = Site::new();
    let arbiter = site.arbiter(&arbiter(LONG_LEASE));
    let mut nodes: Vec<NodeProcess> = (0..2).map(|n| site.node(n, arbiter.url())).collect();
    until(PATIENCE, "the nodes do not come", || site.nodes(arbiter.url()).filter(|n| n.len() == 2));
    let mut run = run(&site, arbiter.url(), STEPS);
    steps(&site, &mut run, 2);
    for n in [0, 1, 0, 1] {
        drop(nodes.remove(n));
        nodes.insert(n, site.node(n, arbiter.url()));
        let now = addresses(&nodes);
        until(PATIENCE, "the job is not on the nodes that there are", || {
            let jobs = site.mapping(arbiter.url())?.jobs;
            let up = |j: &forebay_control::view::JobPlace| {
                !j.addresses.is_empty() && j.addresses.iter().all(|a| now.contains(a))
            };
            (!jobs.is_empty() && jobs.iter().all(up)).then_some(())
        });
        // Once the arbiter knows, new processes do within 100 ms; a busy machine is given more.
        std::thread::sleep(Duration::from_millis(500));
        steps(&site, &mut run, 2);
    }
    std::fs::write(site.path().join("enough"), "").unwrap();
    ends_well(run, &site);
}

/// A program that was started when there was one I/O node only goes on when that dies and the job is given one that came
/// later: nobody is left who could have told it.
#[test]
fn running_processes_find_a_node_that_came_later() {
    finds_a_node_that_came_later("preload");
    match Path::new("/dev/fuse").exists() {
        true => finds_a_node_that_came_later("mount"),
        false => skipped("a node that came later, through the mount", "there is no /dev/fuse"),
    }
}

fn finds_a_node_that_came_later(via: &str) {
    let site = Site::new();
    let arbiter = site.arbiter(&arbiter("policy = \"static\"\n"));
    let first = site.node(0, arbiter.url());
    until(PATIENCE, "the node does not come", || site.nodes(arbiter.url()).filter(|n| n.len() == 1));
    let script = "exec 7> /seen/file; i=0
        while [ ! -e $HERE/enough ]; do echo $i >&7 || exit 3; echo $i > $HERE/at; i=$((i + 1)); sleep 0.02; done
        echo end >&7 && tail -n 1 /seen/file > $HERE/last";
    let run = run_via(via, &site, arbiter.url(), script);
    let at = || std::fs::read_to_string(site.path().join("at")).ok()?.trim().parse::<u64>().ok();
    until(PATIENCE, "nothing is written", || at().filter(|n| *n > 3));
    let _second = site.node(1, arbiter.url());
    until(PATIENCE, "the other node does not come", || site.nodes(arbiter.url()).filter(|n| n.len() == 2));
    drop(first);
    let then = at().expect("it has written");
    until(PATIENCE, "it does not go on", || at().filter(|n| *n > then + 5));
    std::fs::write(site.path().join("enough"), "").unwrap();
    ends_well(run, &site);
    assert_eq!(std::fs::read_to_string(site.path().join("last")).unwrap(), "end\n");
}

/// `forebay run` is killed, or stopped, and then the only I/O node killed: what the program goes on with is told of one
/// that comes later all the same.
#[test]
fn who_outlives_a_killed_run_finds_a_node_that_comes_later() {
    finds_a_node_without_the_run(true);
}

#[test]
fn who_outlives_a_stopped_run_finds_a_node_that_comes_later() {
    finds_a_node_without_the_run(false);
}

fn finds_a_node_without_the_run(killed: bool) {
    let site = Site::new();
    let arbiter = site.arbiter(&arbiter("policy = \"static\"\nlease-ms = 2000\n"));
    let first = site.node(0, arbiter.url());
    until(PATIENCE, "the node does not come", || site.nodes(arbiter.url()).filter(|n| n.len() == 1));
    let script = "exec 7> /seen/file; i=0; echo $FOREBAY_CONFIG > $HERE/config
        while [ ! -e $HERE/enough ] && [ -d $HERE ]; do
            echo $i >&7 2>> $HERE/said && echo $i > $HERE/at; i=$((i + 1)); sleep 0.02
        done
        echo end >&7 && tail -n 1 /seen/file > $HERE/last";
    let mut run = run(&site, arbiter.url(), script);
    let read = |name: &str| std::fs::read_to_string(site.path().join(name)).ok();
    let at = || read("at")?.trim().parse::<u64>().ok();
    until(PATIENCE, "nothing is written", || at().filter(|n| *n > 3));
    if killed {
        run.signal(forebay_testkit::Signal::KILL).expect("it runs");
        run.wait_for(PATIENCE).expect("our child").expect("it ends");
    } else {
        run.freeze().expect("it runs");
    }
    drop(first);
    let then = at().expect("it has written");
    let _second = site.node(1, arbiter.url());
    until(PATIENCE, "it does not go on", || at().filter(|n| *n > then + 5));
    std::fs::write(site.path().join("enough"), "").unwrap();
    until(PATIENCE, "it does not end", || read("last").filter(|last| last == "end\n"));
    if !killed {
        run.thaw().expect("it is stopped");
        return ends_well(run, &site);
    }
    let config = std::path::PathBuf::from(read("config").expect("its name").trim());
    until(PATIENCE, "what the run needed stays", || (!config.exists()).then_some(()));
}

/// One that has nothing to do ends at once, and the arbiter hears of it all the same.
#[test]
fn an_idle_node_that_is_ended_is_drained_and_not_lost() {
    let site = Site::new();
    let arbiter = site.arbiter(&arbiter("policy = \"static\"\n"));
    for _ in 0..3 {
        let mut node = site.node(0, arbiter.url());
        let state = || site.nodes(arbiter.url()).and_then(|n| n.first().map(|n| n.state));
        until(PATIENCE, "the node does not come", || state().filter(|s| *s == NodeState::Admitted));
        node.process.signal(forebay_testkit::Signal::TERM).expect("it runs");
        assert!(node.process.wait_for(PATIENCE).expect("our child").expect("it ends").success());
        until(PATIENCE, "it is not drained", || {
            let now = state();
            assert_ne!(now, Some(NodeState::Lost));
            now.filter(|s| *s == NodeState::Drained)
        });
    }
}

#[test]
fn a_pin_reaches_processes_that_start_later() {
    let site = Site::new();
    let arbiter = site.arbiter(&arbiter(LONG_LEASE));
    let nodes: Vec<NodeProcess> = (0..3).map(|n| site.node(n, arbiter.url())).collect();
    until(PATIENCE, "the nodes do not come", || site.nodes(arbiter.url()).filter(|n| n.len() == 3));
    let mut run = run(&site, arbiter.url(), STEPS);
    steps(&site, &mut run, 1);
    for n in [2, 0, 1] {
        let mut pin = Command::new(program());
        pin.args(["jobs", "pin", "steps", &n.to_string(), "--arbiter", arbiter.url()]);
        let pinned = pin.arg("--secret-file").arg(site.secret_file()).output().unwrap();
        assert!(pinned.status.success(), "{pinned:?}");
        let want = addresses(&nodes[n..=n]);
        until(PATIENCE, "new processes do not hear of it", || (configured(&site) == want).then_some(()));
        steps(&site, &mut run, 1);
    }
    std::fs::write(site.path().join("enough"), "").unwrap();
    ends_well(run, &site);
}

/// A node behind a dead link: what is sent there is not answered, not even refused.
#[test]
fn nodes_that_cannot_be_reached_are_not_tried_first() {
    let site = Site::new();
    let arbiter = site.arbiter(&arbiter(LONG_LEASE));
    let _node = site.node(0, arbiter.url());
    let grant = until(PATIENCE, "no I/O node", || {
        let grant = site.register(arbiter.url(), "link", Some(site.secret()))?.ok()?;
        (!grant.addresses.is_empty()).then_some(grant)
    });
    let secret = grant.secret.clone().expect("a secret");
    let good = site.client(&grant, &secret).config().clone();
    let trap = TcpListener::bind("127.0.0.1:0").unwrap();
    trap.set_nonblocking(true).unwrap();
    let dead: forebay_types::Address = trap.local_addr().unwrap().to_string().parse().unwrap();
    std::fs::write(site.data().join("file"), "x").unwrap();
    let mut took = Vec::new();
    // Whichever of the two is the process' own.
    for nodes in [vec![dead.clone(), good.nodes[0].clone()], vec![good.nodes[0].clone(), dead.clone()]] {
        for _ in 0..4 {
            let config = Config { nodes: nodes.clone(), down: vec![dead.clone()], ..good.clone() };
            let begun = Instant::now();
            let client = Client::new(config, None).unwrap();
            let target = Target::Path(Name { export: ExportId(0), rel: b"file" });
            client.meta(Meta::Stat { target }, |_| Some(())).unwrap();
            took.push(begun.elapsed().as_micros());
        }
    }
    println!("first calls of new processes with a dead link: {took:?} µs");
    let came = trap.accept();
    assert!(came.is_err(), "a process tried the node that cannot be reached: {came:?}");
}

/// The same from outside: a node that takes connections and says nothing, and whose absence the arbiter has noticed.
#[test]
fn new_processes_do_not_wait_for_a_node_that_stands_still() {
    let site = Site::new();
    let arbiter = site.arbiter(&arbiter(LONG_LEASE));
    let nodes: Vec<NodeProcess> = (0..2).map(|n| site.node(n, arbiter.url())).collect();
    until(PATIENCE, "the nodes do not come", || site.nodes(arbiter.url()).filter(|n| n.len() == 2));
    // All processes would go to the same node first.
    let mut run = run(&site, arbiter.url(), &format!("export OMPI_COMM_WORLD_RANK=0; {STEPS}"));
    steps(&site, &mut run, 1);
    let first = configured(&site).swap_remove(0);
    let still = nodes.iter().find(|n| n.addresses()[0].to_string() == first).expect("one of them");
    still.process.freeze().expect("it runs");
    until(PATIENCE, "the arbiter does not notice", || {
        let admitted = |n: &forebay_control::view::NodeView| n.state == NodeState::Admitted;
        (site.nodes(arbiter.url())?.iter().filter(|n| admitted(n)).count() == 1).then_some(())
    });
    std::thread::sleep(Duration::from_millis(500));
    let before = took(&site).len();
    forebay_testkit::ends_within_a_second("a new process", || {
        steps(&site, &mut run, 1);
        Duration::from_millis(*took(&site).last().expect("a step"))
    });
    println!("new processes beside a node that stands still: {:?} ms", &took(&site)[before..]);
    still.process.thaw().expect("it is stopped");
    std::fs::write(site.path().join("enough"), "").unwrap();
    ends_well(run, &site);
}

/// A whole request, and its whole answer; how long that took.
fn look(stream: &mut BufReader<TcpStream>) -> std::io::Result<Duration> {
    let begun = Instant::now();
    stream.get_mut().write_all(b"GET /v1/mapping HTTP/1.1\r\nHost: arbiter\r\n\r\n")?;
    let mut length = 0;
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line)? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().map_err(std::io::Error::other)?;
        }
        if line == "\r\n" {
            break;
        }
    }
    std::io::copy(&mut stream.take(length), &mut std::io::sink())?;
    Ok(begun.elapsed())
}

/// Whoever has no secret can only look, and waits for others who look: renewals do not.
#[test]
fn a_flood_of_looks_does_not_delay_renewals() {
    let site = Site::new();
    let arbiter = site.arbiter(&arbiter("policy = \"static\"\nlease-ms = 5000\n"));
    let _node = site.node(0, arbiter.url());
    until(PATIENCE, "the node does not come", || site.nodes(arbiter.url()).filter(|n| n.len() == 1));
    // So that there is something to look at.
    for n in 0..50 {
        let known = site.register(arbiter.url(), &format!("job{n}"), Some(site.secret()));
        assert!(matches!(known, Some(Ok(_))), "{known:?}");
    }
    let address = arbiter.url().trim_start_matches("http://").to_owned();
    let (stop, looks) = (AtomicBool::new(false), Mutex::new(Vec::new()));
    let renewals: Vec<Duration> = std::thread::scope(|s| {
        for _ in 0..64 {
            s.spawn(|| {
                let mut stream = BufReader::new(TcpStream::connect(&address).expect("the arbiter listens"));
                while !stop.load(Relaxed) {
                    match look(&mut stream) {
                        Ok(took) => looks.lock().unwrap().push(took),
                        Err(_) => stream = BufReader::new(TcpStream::connect(&address).unwrap()),
                    }
                }
            });
        }
        until(PATIENCE, "nobody is let look", || (looks.lock().unwrap().len() > 500).then_some(()));
        looks.lock().unwrap().clear();
        let renew = |_| {
            let begun = Instant::now();
            let known = site.register(arbiter.url(), "job0", Some(site.secret()));
            let took = begun.elapsed();
            known.is_some_and(|k| k.is_ok()).then_some(took)
        };
        let done: Vec<Option<Duration>> = (0..50).map(renew).collect();
        stop.store(true, Relaxed);
        done.into_iter().map(|d| d.expect("a job is renewed")).collect()
    });
    let median = |mut all: Vec<Duration>| {
        all.sort_unstable();
        all[all.len() / 2]
    };
    let (renewal, look) = (median(renewals), median(looks.into_inner().unwrap()));
    println!("median of a renewal {renewal:?}, of a look {look:?}");
    // Both wait for the processor where others want it; one that waited for looks would take as long as they do.
    assert!(renewal * 5 < look * 4, "a renewal takes {renewal:?}, as long as a look: {look:?}");
}

#[test]
fn run_follows_the_leader() {
    let Some(cluster) = Cluster::start("run_follows_the_leader") else { return };
    let site = Site::new();
    let start = |name: &str| {
        site.arbiter(&ArbiterSpec {
            name: name.into(),
            settings: "policy = \"static\"\nlease-ms = 2000\n".into(),
            more: vec!["--ha".into(), cluster.url()],
            ..ArbiterSpec::default()
        })
    };
    let arbiters = [start("first"), start("second")];
    let url = |n: usize| arbiters[n].url().to_owned();
    let leading = |n: usize| site.health(&url(n)).is_some_and(|h| h.state == "leading");
    let leader = until(PATIENCE, "nobody leads", || (0..2).find(|n| leading(*n)));
    let (standby, leader) = (1 - leader, leader);
    let urls = format!("{},{}", url(standby), url(leader));
    let _nodes: Vec<NodeProcess> = (0..2).map(|n| site.node(n, &urls)).collect();
    until(PATIENCE, "the nodes do not come", || site.nodes(&url(leader)).filter(|n| n.len() == 2));

    // The one that stands by is asked first; and it alone is enough, since it names the leader.
    let mut run = run(&site, &urls, STEPS);
    steps(&site, &mut run, 2);
    let mut alone = Command::new(program());
    alone.args(["run", "--quiet", "--at", "/seen=data", "--arbiter", &url(standby)]);
    let alone = alone.arg("--secret-file").arg(site.secret_file()).args(["--", "true"]).output().unwrap();
    assert!(alone.status.success(), "{alone:?}");

    // The leader stands still for longer than its lease, and is replaced.
    arbiters[leader].process.freeze().expect("it runs");
    until(PATIENCE, "nobody else leads", || leading(standby).then_some(()));
    steps(&site, &mut run, 2);
    // The job's lease passes several times.
    std::thread::sleep(Duration::from_secs(6));
    arbiters[leader].process.thaw().expect("it is stopped");
    let known = || Some(site.mapping(&url(standby))?.jobs.iter().any(|j| j.job == "steps"));
    until(PATIENCE, "the new leader has forgotten the job", || known().filter(|k| *k));
    steps(&site, &mut run, 2);
    std::thread::sleep(Duration::from_secs(4));
    assert_eq!(known(), Some(true), "it is forgotten later");
    steps(&site, &mut run, 2);
    std::fs::write(site.path().join("enough"), "").unwrap();
    ends_well(run, &site);
}

/// Two nodes that are not let in: `forebay nodes` says who and why, as their own logs do.
#[test]
fn a_refused_node_is_seen_with_the_reason() {
    let (site, stranger) = (Site::new(), Site::new());
    let arbiter = site.arbiter(&ArbiterSpec::default());
    let _first = site.node(0, arbiter.url());
    until(PATIENCE, "the node does not come", || site.nodes(arbiter.url()).filter(|n| n.len() == 1));
    let nodes = || {
        let out = Command::new(program()).args(["nodes", "--arbiter", arbiter.url()]).output();
        String::from_utf8(out.expect("forebay runs").stdout).expect("UTF-8")
    };
    assert!(!nodes().contains("refused"), "{}", nodes());
    // Another secret; and the same number.
    let _unknown = stranger.node(1, arbiter.url());
    let beside = site.beside();
    let _twice = beside.node(0, arbiter.url());
    let said = until(PATIENCE, "the refused nodes are not shown", || {
        let said = nodes();
        (said.matches("refused: ").count() == 2).then_some(said)
    });
    println!("{said}");
    assert!(
        said.contains("refused: somebody on 127.0.0.1: it does not know this arbiter's secret"),
        "{said}"
    );
    assert!(
        said.contains("refused: I/O node 0 on ") && said.contains("give this one another --id"),
        "{said}"
    );
    // Said once on both sides, however often they try: every second at the latest.
    let alone = beside.node_with(1, &["--arbiter", &format!("http://{}", free_address())]);
    let says = |site: &Site, node: &str, words: &str| site.log(node).matches(words).count();
    let own = [
        (&stranger, "node1", "is known to no arbiter, and tries on"),
        (&beside, "node0", "another --id"),
        (&beside, "node1", "is known to no arbiter, and tries on"),
        (&site, "arbiter", "who wants to be an I/O node here is refused, and will be"),
        (&site, "arbiter", "I/O node 0 on "),
    ];
    for (site, log, words) in own {
        until(PATIENCE, &format!("{log} does not say {words:?}"), || {
            (says(site, log, words) > 0).then_some(())
        });
    }
    std::thread::sleep(Duration::from_millis(2500));
    for (site, log, words) in own {
        assert_eq!(says(site, log, words), 1, "{words:?} is to be said once: {}", site.log(log));
    }
    for (site, log, reason) in [
        (&stranger, "node1", "secret"),
        (&beside, "node1", "refused"),
        (&site, "arbiter", "it does not know this arbiter's secret"),
        (&site, "arbiter", "give this one another --id"),
    ] {
        assert!(site.log(log).contains(reason), "{reason}: {}", site.log(log));
    }
    drop(alone);
}
