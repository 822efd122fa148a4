//! A cluster: three compute hosts, two I/O hosts and an arbiter's host in namespaces of one machine, with
//! parallel programs under each launcher. Every rank is forwarded or named.

#[path = "cluster/site.rs"]
mod site;

use forebay_testkit::SSH;
use serde_json::Value;
use site::{Mpi, RANKS, Site, said};

/// The ranks of each host, and who served it.
fn rows(report: &Value) -> Vec<(String, Vec<u64>, Vec<String>)> {
    let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
    let row = |h: &Value| {
        let ranks = h["ranks"].as_array().unwrap().iter().filter_map(Value::as_u64).collect();
        (text(&h["host"]), ranks, h["nodes"].as_array().unwrap().iter().map(text).collect())
    };
    report["ranks"]["hosts"].as_array().map_or(Vec::new(), |all| all.iter().map(row).collect())
}

fn all_forwarded(report: &Value, said: &str) {
    assert_eq!(report["ranks"]["ranks"], RANKS, "{said}");
    assert_eq!(report["ranks"]["forwarded"], RANKS, "{said}");
    assert_eq!(report["ranks"]["missing"].as_array().map(Vec::len), Some(0), "{said}");
    let hosts: Vec<(String, Vec<u64>)> = rows(report).into_iter().map(|(h, r, _)| (h, r)).collect();
    let expected = [("c1", [0, 1]), ("c2", [2, 3]), ("c3", [4, 5])].map(|(h, r)| (h.to_owned(), r.to_vec()));
    assert_eq!(hosts, expected, "{said}");
    assert!(said.contains("6 of 6 forwarded"), "{said}");
    assert!(report["ranks"]["per_rank"]["slowest"].as_str().unwrap().starts_with("rank "), "{said}");
}

fn through_the_arbiter(test: &str, mpi: Mpi) {
    let Some(mut site) = Site::up(test, &mpi.tools()) else { return };
    site.compile(mpi);
    site.serve();
    let (out, report) = site.through_arbiter("--strict", &format!("{} /mnt/ranks /fwd 4", mpi.line()));
    let said = said(&out);
    assert!(out.status.success(), "{said}");
    assert!(said.contains("6 ranks, every byte verified"), "{said}");
    site.check_bytes(4);
    all_forwarded(&report, &said);
    // The arbiter gave it one.
    let nodes: Vec<Vec<String>> = rows(&report).into_iter().map(|(_, _, nodes)| nodes).collect();
    assert!(
        nodes.iter().all(|n| n.len() == 1 && *n == nodes[0] && n[0].starts_with("tcp:10.77.0.")),
        "{said}"
    );
    let left: Vec<_> = std::fs::read_dir(site.hosts.shared().join("home/.forebay")).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
    // What that node has served of it.
    assert_eq!(report["application"], "ranks", "{said}");
    assert_eq!(report["io_nodes"][0]["address"], nodes[0][0].as_str(), "{report:#}");
    let flow = &report["io_nodes"][0]["stats"]["flows"][0];
    let written: u64 =
        ["write", "append"].iter().filter_map(|op| flow["operations"][op]["bytes"].as_u64()).sum();
    // OpenMPI writes a few bytes of its own.
    let least = 2 * 4 * RANKS as u64 * (1 << 16);
    assert!((least..least + 4096).contains(&written), "{flow:#}");
    assert!(said.contains("  I/O node "), "{said}");
}

#[test]
fn openmpi_on_three_hosts() {
    through_the_arbiter("openmpi_on_three_hosts", Mpi::Open);
}

#[test]
fn mpich_on_three_hosts() {
    through_the_arbiter("mpich_on_three_hosts", Mpi::Mpich);
}

#[test]
fn srun_on_three_hosts_and_io_nodes_on_two_of_their_own() {
    let tools = ["mpicc.openmpi", "srun", "slurmctld", "slurmd", "munged"];
    let Some(mut site) = Site::up("srun_on_three_hosts", &tools) else { return };
    site.compile(Mpi::Open);
    site.serve();
    site.slurm();
    let srun = "srun --mpi=pmix -N 3 -n 6 --ntasks-per-node=2 /mnt/ranks /fwd 4";
    let (out, report) = site.through_arbiter("--strict", srun);
    let text = said(&out);
    assert!(out.status.success(), "{text}");
    site.check_bytes(4);
    all_forwarded(&report, &text);
    // In an allocation of five hosts, of which the last two serve.
    std::fs::remove_dir_all(site.data()).unwrap();
    std::fs::create_dir(site.data()).unwrap();
    let run =
        "run --report /mnt/report.json --io-nodes 2 --io-hosts dedicated --at /fwd=/mnt/data --strict --";
    let line = format!("salloc -Q -N 5 --ntasks-per-node=2 -p all {} {run} {srun}", site::FOREBAY);
    let (out, report) = site.shell(&line);
    let text = said(&out);
    assert!(out.status.success(), "{text}");
    site.check_bytes(4);
    all_forwarded(&report, &text);
    let nodes: Vec<Vec<String>> = rows(&report).into_iter().map(|(_, _, nodes)| nodes).collect();
    assert!(
        nodes.iter().flatten().all(|n| n.starts_with("tcp:10.77.0.4:") || n.starts_with("tcp:10.77.0.5:")),
        "{text}"
    );
    assert_eq!((nodes[0] == nodes[1], nodes[1] == nodes[2]), (true, false), "{text}");
}

#[test]
fn a_host_without_the_library_is_named() {
    let mpi = Mpi::Mpich;
    let Some(mut site) = Site::up("a_host_without_the_library_is_named", &mpi.tools()) else { return };
    site.compile(mpi);
    site.serve();
    // The program finds the directory there, so that it runs all the same.
    site.hosts.ok("c1", "mkdir -p /mnt/home/.forebay /mnt/hidden");
    site.hosts.ok("c3", "mount --bind /mnt/hidden /mnt/home/.forebay");
    let line = format!("{} sh -c 'echo x > /mnt/data/by-$PMI_RANK'", mpi.line());
    let forward = "--arbiter https://10.77.0.6:7410 --secret-file /mnt/secret --at /mnt/data=data";
    let (out, _) = site.run(&format!("{forward} --strict"), &line);
    let text = said(&out);
    assert_eq!(out.status.code(), Some(125), "{text}");
    assert!(
        text.contains("ranks 4-5 of host c3 not forwarded") && text.contains("cannot be read there"),
        "{text}"
    );
    assert!(!site.data().join("by-0").exists(), "the program ran: {text}");
    // What stands before the launcher hides nothing.
    let (out, report) = site.run(forward, &format!("env A=1 nice {line}"));
    let text = said(&out);
    assert!(out.status.success(), "{text}");
    assert!(text.contains("4 of 6 forwarded"), "{text}");
    assert!(
        text.contains("ranks 4-5 of host c3 not forwarded: no process there reached an I/O node"),
        "{text}"
    );
    assert_eq!(report["ranks"]["missing"][0]["hosts"], serde_json::json!(["c3"]), "{text}");
    assert!((0..RANKS).all(|r| site.data().join(format!("by-{r}")).exists()), "{text}");
    // A launcher in a script is known by the ranks that came.
    let (out, report) = site.run(forward, &format!("sh -c '{}'", line.replace('\'', "'\\''")));
    let text = said(&out);
    assert!(out.status.success(), "{text}");
    assert!(text.contains("of an unknown host not forwarded: sh started them where"), "{text}");
    assert_eq!(report["ranks"]["forwarded"], 2, "{text}");
    // What the library has to say at another host, from which no I/O node is reached, is the reason.
    site.hosts.ok("c2", "for n in 4 5; do ip route add unreachable 10.77.0.$n/32; done");
    let (out, report) = site.run(forward, &line);
    let text = said(&out);
    assert!(!out.status.success(), "ranks 2 and 3 can write nothing: {text}");
    assert!(text.contains("2 of 6 forwarded"), "{text}");
    let why = "ranks 2-3 of host c2 not forwarded: reached no I/O node when it started: tcp:10.77.0.";
    assert!(text.contains(why), "{text}");
    let missing = &report["ranks"]["missing"];
    assert_eq!((&missing[0]["hosts"][0], &missing[1]["hosts"][0]), (&"c2".into(), &"c3".into()), "{text}");
}

#[test]
fn hosts_that_share_no_directory_join() {
    let mpi = Mpi::Open;
    let Some(mut site) = Site::up("hosts_that_share_no_directory_join", &mpi.tools()) else { return };
    site.compile(mpi);
    site.serve();
    // Every host has a /tmp of its own.
    for host in ["c1", "c2", "c3"] {
        site.hosts.ok(host, "install -m 600 /mnt/secret /tmp/secret");
    }
    let join = format!("{} join --secret-file /tmp/secret --", site::FOREBAY);
    let command = format!("{} {join} /mnt/ranks /fwd 4", mpi.line());
    for strict in ["", "--strict"] {
        let (out, report) = site.through_arbiter(&format!("--share /tmp --job joined {strict}"), &command);
        let text = said(&out);
        assert!(out.status.success(), "{text}");
        site.check_bytes(4);
        all_forwarded(&report, &text);
        assert_eq!(report["application"], "ranks", "{text}");
    }
    // The same job again, in which one host has another secret: what came in the runs before does not count.
    site.hosts.ok("c2", "umask 077; openssl rand -hex 32 > /tmp/secret");
    let small = "sh -c 'echo x > /fwd/again-$OMPI_COMM_WORLD_RANK; true'";
    let command = format!("{} {join} {small}", mpi.line());
    let (out, report) = site.through_arbiter("--share /tmp --job joined --deadline 5", &command);
    let text = said(&out);
    assert!(
        text.contains("4 of 6 forwarded") && text.contains("ranks 2-3 of host c2 not forwarded"),
        "{text}"
    );
    let written = report["ranks"]["hosts"].as_array().unwrap().iter().map(|h| h["written"].as_u64().unwrap());
    assert_eq!(written.sum::<u64>(), 8, "{text}");
    let (out, _) = site.through_arbiter("--share /tmp --job joined --deadline 5 --strict", &command);
    assert_eq!(out.status.code(), Some(125), "{}", said(&out));
    let text = said(&out);
    let named = text.split("ranks 2-3 of host c2 not forwarded: ").nth(1).unwrap_or_default();
    assert!(
        named.contains("tcp:10.77.0.") && named.contains("wrong credentials"),
        "address and reason: {text}"
    );
    for host in ["c1", "c2", "c3"] {
        assert_eq!(site.hosts.ok(host, "ls -d /tmp/forebay-* 2> /dev/null || true"), "", "left on {host}");
    }
    let alone = site.hosts.sh("c1", &format!("{join} true"));
    assert_eq!(alone.status.code(), Some(125));
    assert!(said(&alone).contains("there is no job to join"), "{}", said(&alone));
}

/// Neither knows ranks, nor passes variables on by itself.
#[test]
fn gnu_parallel_and_plain_ssh() {
    let Some(mut site) = Site::up("gnu_parallel_and_plain_ssh", &["parallel"]) else { return };
    site.serve();
    site.hosts.ok("c1", "mkdir -p /mnt/home/.forebay");
    let read = |name: &str| std::fs::read_to_string(site.data().join(name)).unwrap_or_default();
    let parallel = format!("parallel --will-cite --ssh {SSH} -j 1 -S c1,c2,c3");
    let line = format!("{parallel} 'echo {{}} on $(uname -n) > /fwd/by-{{}}' ::: 1 2 3 4 5 6");
    let options = "--arbiter https://10.77.0.6:7410 --secret-file /mnt/secret --at /fwd=data";
    let share = format!("{options} --share /mnt/home/.forebay");
    let (out, _) = site.shell(&format!("{} run {share} -- {line}", site::FOREBAY));
    assert!(out.status.success(), "{}", said(&out));
    let wrote: Vec<String> = (1..=6).map(|n| read(&format!("by-{n}"))).collect();
    assert!(wrote.iter().enumerate().all(|(i, w)| w.starts_with(&format!("{} on c", i + 1))), "{wrote:?}");
    for host in ["c1", "c2", "c3"] {
        assert!(wrote.iter().any(|w| w.trim_end().ends_with(host)), "nothing ran on {host}: {wrote:?}");
    }
    let inside = format!(
        "{SSH} c2 \"env LD_PRELOAD=$LD_PRELOAD FOREBAY_CONFIG=$FOREBAY_CONFIG sh -c 'uname -n > /fwd/ssh'\""
    );
    std::fs::write(site.hosts.shared().join("inside.sh"), inside).unwrap();
    let (out, _) = site.shell(&format!("{} run {share} -- sh /mnt/inside.sh", site::FOREBAY));
    assert!(out.status.success(), "{}", said(&out));
    assert_eq!(read("ssh"), "c2\n", "{}", said(&out));
    // Without a directory that they see it is said, or refused.
    let (out, _) = site.shell(&format!("{} run {options} --strict -- {line}", site::FOREBAY));
    assert_eq!(out.status.code(), Some(125), "{}", said(&out));
    assert!(said(&out).contains("what parallel starts on other hosts is not forwarded"), "{}", said(&out));
}

/// The site's map, whatever the policy would do: two hosts to one I/O node, one to the other.
#[test]
fn a_sites_fixed_map() {
    let mpi = Mpi::Mpich;
    let Some(mut site) = Site::up("a_sites_fixed_map", &mpi.tools()) else { return };
    site.compile(mpi);
    site.serve_with("[map]\n\"c[1,3]\" = 1\nc2 = 0\n");
    let (out, report) = site.through_arbiter("--strict", &format!("{} /mnt/ranks /fwd 4", mpi.line()));
    let text = said(&out);
    assert!(out.status.success(), "{text}");
    site.check_bytes(4);
    all_forwarded(&report, &text);
    let by: Vec<Vec<String>> = rows(&report).into_iter().map(|(_, _, nodes)| nodes).collect();
    let one = |host: usize, at: &str| by[host].len() == 1 && by[host][0].starts_with(at);
    assert!(
        one(0, "tcp:10.77.0.5:") && one(1, "tcp:10.77.0.4:") && one(2, "tcp:10.77.0.5:"),
        "{by:?}\n{text}"
    );
}

#[test]
fn io_nodes_on_demand() {
    let mpi = Mpi::Open;
    let Some(site) = Site::up("io_nodes_on_demand", &mpi.tools()) else { return };
    site.compile(mpi);
    let options = "--io-nodes 2 --io-hosts io1,io2 --at /fwd=/mnt/data --strict";
    let (out, report) = site.run(options, &format!("{} /mnt/ranks /fwd 4", mpi.line()));
    let text = said(&out);
    assert!(out.status.success(), "{text}");
    site.check_bytes(4);
    all_forwarded(&report, &text);
    // Neighbouring hosts share an I/O node, and no host is torn apart.
    let nodes: Vec<Vec<String>> = rows(&report).into_iter().map(|(_, _, nodes)| nodes).collect();
    let by = |host: usize, node: &str| nodes[host].len() == 1 && nodes[host][0].starts_with(node);
    assert!(by(0, "tcp:10.77.0.4:") && by(1, "tcp:10.77.0.4:") && by(2, "tcp:10.77.0.5:"), "{text}");
    let served: u64 =
        (0..2).map(|n| report["io_nodes"][n]["stats"]["inline_requests"].as_u64().unwrap()).sum();
    assert!(served > 0, "their statistics came back: {text}");
    // Of ranks that the library does not reach, it is said where they may be, and why.
    std::fs::write(site.hosts.shared().join("static.c"), "int main(void) { return 0; }").unwrap();
    site.hosts.ok("c1", "gcc -static -o /mnt/static /mnt/static.c");
    let (out, _) =
        site.run("--io-nodes 1 --io-hosts io1 --at /fwd=/mnt/data", &format!("{} /mnt/static", mpi.line()));
    let text = said(&out);
    assert!(
        text.contains("ranks 0-5 of hosts c1, c2, c3 not forwarded: /mnt/static is statically linked"),
        "{text}"
    );
    for host in ["io1", "io2"] {
        let left = site.hosts.ok(host, "ps ax -o args | grep '[n]ode --id' || true");
        assert_eq!(left, "", "an I/O node is left on {host}");
    }
}

#[test]
fn a_cut_link_is_not_noticed() {
    let mpi = Mpi::Mpich;
    let Some(mut site) = Site::up("a_cut_link_is_not_noticed", &mpi.tools()) else { return };
    site.compile(mpi);
    site.serve();
    let (rounds, cut) = (60, forebay_testkit::setting("FOREBAY_CUT_SECONDS", 5));
    let line = format!("{} /mnt/ranks /fwd {rounds} 100", mpi.line());
    let (out, _) = std::thread::scope(|scope| {
        let run = scope.spawn(|| site.through_arbiter("--deadline 120", &line));
        let first = site.data().join("file-0");
        let begun = || std::fs::metadata(&first).is_ok_and(|m| m.len() > 1 << 18);
        forebay_testkit::until(site::PATIENCE, "the program writes", || begun().then_some(()));
        site.hosts.cut("io1");
        std::thread::sleep(std::time::Duration::from_secs(cut));
        site.hosts.mend("io1");
        run.join().unwrap()
    });
    let text = said(&out);
    assert!(out.status.success(), "{text}");
    site.check_bytes(rounds);
}

/// I/O nodes restarted one by one, one killed, a link cut, and the leading arbiter killed, while six ranks write.
#[test]
fn nodes_arbiter_and_link_fail_under_six_ranks() {
    let mpi = Mpi::Mpich;
    let test = "nodes_arbiter_and_link_fail_under_six_ranks";
    let Some(mut site) = Site::up(test, &[&mpi.tools()[..], &["etcd"]].concat()) else { return };
    site.compile(mpi);
    site.serve_ha();
    let rounds = 150;
    let (shared, first) = (site.hosts.shared(), site.data().join("file-0"));
    let mut run = site.hosts.on("c1", "timeout");
    run.args(["-k", "5", "150", site::FOREBAY, "run", "--report", "/mnt/report.json", "--deadline", "120"]);
    run.args(["--arbiter", site::ARBITERS, "--secret-file", "/mnt/secret", "--at", "/fwd=data", "--"]);
    run.args(format!("{} /mnt/ranks /fwd {rounds} 100", mpi.line()).split_whitespace());
    let said = |name: &str| std::fs::read_to_string(shared.join(name)).unwrap_or_default();
    let to = |name: &str| std::fs::File::create(shared.join(name)).unwrap();
    let mut run = forebay_testkit::Process::start(run.stdout(to("run.out")).stderr(to("run.err"))).unwrap();
    let begun = || std::fs::metadata(&first).is_ok_and(|m| m.len() > 1 << 18);
    forebay_testkit::until(site::PATIENCE, "the program writes", || begun().then_some(()));
    let job = site.jobs(site::ARBITERS).and_then(|mut all| all.pop()).expect("the job is known");
    assert_eq!(job["hosts"], serde_json::json!(["c1", "c2", "c3"]), "{job:#}");
    for (host, signal) in [("io1", "TERM"), ("io2", "TERM"), ("io1", "KILL")] {
        site.signal(host, "node", signal);
        site.node(host, site::ARBITERS);
    }
    site.signal("arb", "arbiter", "KILL");
    site.hosts.cut("io1");
    std::thread::sleep(std::time::Duration::from_secs(3));
    site.hosts.mend("io1");
    let second = || {
        let known = site.jobs("https://10.77.0.5:7410")?;
        known.iter().any(|j| j["id"] == job["id"]).then_some(())
    };
    forebay_testkit::until(site::PATIENCE, "the second arbiter leads and knows the job", second);
    assert!(run.try_wait().unwrap().is_none(), "it ended too early: {}", said("run.err"));
    let status = run.wait_for(std::time::Duration::from_secs(150)).unwrap();
    let text = said("run.out") + &said("run.err");
    assert!(status.is_some_and(|s| s.success()), "{text}");
    assert!(text.contains("6 ranks, every byte verified"), "{text}");
    site.check_bytes(rounds);
    let report: Value = serde_json::from_str(&said("report.json")).unwrap();
    assert!(report["patterns"].as_array().is_some_and(|p| !p.is_empty()), "{report:#}");
    assert!(report["io_nodes"].as_array().is_some_and(|n| !n.is_empty()), "{report:#}");
}
