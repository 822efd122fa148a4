//! An arbiter, I/O nodes and programs as real processes: jobs come and go, I/O nodes are drained, the
//! arbiter is killed again and again, and no program notices.

use forebay_testkit::{ArbiterProcess, ArbiterSpec, NodeProcess, Process, Site, free_address};
use serde_json::Value;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

/// A site, and where its arbiter listens whenever there is one.
struct World {
    site: Site,
    address: String,
}

impl World {
    fn new() -> World {
        World { site: Site::new(), address: free_address() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.site.path().join(name)
    }

    fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Starts an arbiter on a state directory.
    fn arbiter(&self, state: &str, policy: &str, settings: &str) -> ArbiterProcess {
        self.site.arbiter(&ArbiterSpec {
            name: state.into(),
            listen: self.address.clone(),
            settings: settings.into(),
            more: vec!["--policy".into(), policy.into()],
            ..ArbiterSpec::default()
        })
    }

    fn node(&self, id: usize) -> NodeProcess {
        self.site.node(id, &self.url())
    }

    /// Starts a program below `/seen`, which is the export.
    fn run(&self, job: &str, more: &[&str], script: &str) -> Process {
        let url = self.url();
        let mut run =
            self.site.command(&["run", "--quiet", "--arbiter", &url, "--job", job, "--at", "/seen=data"]);
        run.args(more).args(["--", "sh", "-c", script]);
        let errors = std::fs::File::create(self.path(&format!("{job}.errors"))).unwrap();
        Process::start(run.stdout(Stdio::piped()).stderr(errors)).unwrap()
    }

    /// Waits for a program, which must succeed.
    fn finish(&self, job: &str, mut run: Process) -> String {
        let mut text = String::new();
        run.output().unwrap().read_to_string(&mut text).unwrap();
        let status = run.wait().unwrap();
        assert!(status.success(), "{status}: {text}{}", read(&self.path(&format!("{job}.errors"))));
        text
    }

    /// What a command prints.
    fn tool(&self, args: &[&str]) -> Output {
        self.site.command(args).env("FOREBAY_ARBITER", self.url()).output().unwrap()
    }

    /// The JSON that a command prints; `None` while the arbiter is away.
    fn json(&self, args: &[&str]) -> Option<Value> {
        let out = self.tool(&[args, &["--json"]].concat());
        out.status.success().then(|| serde_json::from_slice(&out.stdout).unwrap())
    }

    fn admitted(&self) -> usize {
        let nodes = self.json(&["nodes"]).unwrap_or_default();
        nodes.as_array().map_or(0, |n| n.iter().filter(|n| n["state"] == "admitted").count())
    }

    fn job(&self, id: &str) -> Option<Value> {
        self.json(&["jobs"])?.as_array()?.iter().find(|j| j["id"] == id).cloned()
    }
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    forebay_testkit::until(Duration::from_secs(60), what, || holds().then_some(()));
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap()
}

/// Writes and reads back a file again and again, each time with other bytes, until a file appears.
const VERIFY: &str = "i=0; while [ ! -e $STOP ]; do i=$((i + 1)); \
    seq $i $((i + 2000)) > /seen/f$J || exit 1; seq $i $((i + 2000)) | cmp - /seen/f$J || exit 2; done; echo $i rounds";

fn verify(site: &World, job: &str, stop: &Path) -> Process {
    let script = format!("J={job}; STOP={}; {VERIFY}", stop.display());
    site.run(job, &["--compute-nodes", "4"], &script)
}

#[test]
fn a_program_gets_io_nodes_and_its_run_is_remembered() {
    let site = World::new();
    let _arbiter = site.arbiter("state", "static", "");
    // The job waits until there is an I/O node.
    let run = site.run(
        "j",
        &["--compute-nodes", "2", "--app", "sums"],
        "head -c 3000000 /dev/zero > /seen/a && sleep 2.5 && sum /seen/a",
    );
    until("the job waits", || site.job("j").is_some_and(|j| j["nodes"].as_array().unwrap().is_empty()));
    let _nodes = [site.node(0), site.node(1)];
    until("it has an I/O node", || site.job("j").is_some_and(|j| j["nodes"] != serde_json::json!([])));
    until("its bytes are seen", || site.job("j").is_some_and(|j| j["bytes"].as_u64().unwrap() >= 3_000_000));
    site.finish("j", run);
    assert_eq!(std::fs::metadata(site.path("data/a")).unwrap().len(), 3_000_000);
    assert_eq!(site.json(&["jobs"]).unwrap(), serde_json::json!([]), "it has ended");
    let decisions = site.json(&["decisions", "--job", "j"]).unwrap();
    let causes: Vec<_> = decisions.as_array().unwrap().iter().filter_map(|d| d["cause"].as_str()).collect();
    assert!(causes.iter().any(|c| c.contains("came")), "{causes:?}");
    for (args, expect) in [
        (vec!["jobs"], "0 jobs"),
        (vec!["nodes"], "admitted"),
        (vec!["decisions"], "came"),
        (vec!["decisions", "--why"], "compute nodes are worth"),
    ] {
        let out = site.tool(&args);
        let text = String::from_utf8_lossy(&out.stdout);
        assert!(out.status.success() && text.contains(expect), "{args:?}: {text}");
    }
    // A program's failure is its own, and its job ends as well.
    let mut failed = site.run("k", &[], "exit 7");
    assert_eq!(failed.wait().unwrap().code(), Some(7));
    assert_eq!(site.json(&["jobs"]).unwrap(), serde_json::json!([]));
}

/// The report has the arbiter's I/O nodes and the access pattern, of this run alone.
#[test]
fn the_report_says_what_the_io_nodes_served() {
    let site = World::new();
    let _arbiter = site.arbiter("state", "static", "");
    let _nodes = [site.node(0), site.node(1)];
    let report = site.path("report.json");
    let report_to = report.display().to_string();
    for _ in 0..2 {
        // Longer than an interval of the nodes' metrics, in calls of 8 MiB.
        let script =
            "for n in 1 2 3 4 5 6; do dd if=/dev/zero of=/seen/f bs=8M count=1 status=none; sleep 0.4; done";
        site.finish("same", site.run("same", &["--report", &report_to], script));
        let told: Value = serde_json::from_str(&read(&report)).unwrap();
        let nodes = told["io_nodes"].as_array().unwrap();
        let flows = nodes.iter().flat_map(|n| n["stats"]["flows"].as_array().unwrap());
        let written: u64 = flows.filter_map(|f| f["operations"]["write"]["bytes"].as_u64()).sum();
        assert_eq!(written, 6 * (8 << 20), "{told:#}");
        // All that a node counts is of this run, and the same.
        let mut answered = 0;
        for flow in nodes.iter().flat_map(|n| n["stats"]["flows"].as_array().unwrap()) {
            let operations = flow["operations"].as_object().unwrap();
            assert!(operations.values().all(|o| o["count"] == o["latency_ns"]["count"]), "{told:#}");
            let count: u64 = operations.values().filter_map(|o| o["count"].as_u64()).sum();
            let clients = flow["clients"].as_array().unwrap().iter();
            assert_eq!(clients.filter_map(|c| c["requests"].as_u64()).sum::<u64>(), count, "{told:#}");
            answered += operations.get("write").and_then(|o| o["count"].as_u64()).unwrap_or(0);
        }
        let timed = told["time"]["requests"].as_u64().unwrap();
        assert!((1..=answered).contains(&timed), "{timed} of {answered} requests: {told:#}");
        let patterns = told["patterns"].as_array().unwrap();
        assert!(!patterns.is_empty(), "{told:#}");
        // Calls, not the frames that they are sent in; and what nobody asked for is one line.
        let operation =
            |name: &str| told["operations"].as_array().unwrap().iter().find(|o| o["name"] == name).cloned();
        assert_eq!(operation("write").map(|o| o["count"].clone()), Some(6.into()), "{told:#}");
        assert!(["adopt", "setflags", "share"].iter().all(|own| operation(own).is_none()), "{told:#}");
    }
}

#[test]
fn an_arbiter_that_is_not_there_is_named() {
    let site = World::new();
    let out = site.tool(&["jobs"]);
    let error = String::from_utf8_lossy(&out.stderr);
    assert!(!out.status.success() && error.contains(&site.url()), "{error}");
    let mut run = site.run("j", &["--wait", "0.2"], "true");
    assert_eq!(run.wait().unwrap().code(), Some(125));
    // By hand: this is about what it says without the secret that the launcher would give it.
    let out =
        site.site.command(&["arbiter", "--state", "s"]).env_remove("FOREBAY_SECRET_FILE").output().unwrap();
    assert!(String::from_utf8_lossy(&out.stderr).contains("--secret-file"));
}

#[test]
fn a_drained_io_node_ends_and_the_program_goes_on() {
    let site = World::new();
    let _arbiter = site.arbiter("state", "static", "");
    let mut nodes = [site.node(0), site.node(1)];
    until("both came", || site.admitted() == 2);
    let stop = site.path("stop");
    let run = verify(&site, "j", &stop);
    until("it is on both", || site.job("j").is_some_and(|j| j["nodes"].as_array().unwrap().len() == 2));
    std::thread::sleep(Duration::from_millis(500));
    assert!(site.tool(&["nodes", "drain", "0"]).status.success());
    until("the node ends", || nodes[0].process.try_wait().unwrap().is_some_and(|s| s.success()));
    assert_eq!(site.job("j").unwrap()["nodes"], serde_json::json!([1]));
    // It was asked to end: nobody has lost it.
    let listed = || String::from_utf8_lossy(&site.tool(&["nodes"]).stdout).into_owned();
    until("it is called drained", || listed().contains("drained"));
    assert!(!listed().contains("lost"), "{}", listed());
    std::thread::sleep(Duration::from_millis(500));
    std::fs::write(&stop, "").unwrap();
    assert!(site.finish("j", run).contains("rounds"));
    assert!(!site.tool(&["nodes", "drain", "7"]).status.success());
}

#[test]
fn processes_that_start_after_a_move_start_where_the_job_is() {
    let site = World::new();
    let _arbiter = site.arbiter("state", "static", "lease-ms = 1500\n");
    let nodes = [site.node(0), site.node(1)];
    let [first, second] = nodes.each_ref().map(|n| n.addresses()[0].to_string());
    until("both came", || site.admitted() == 2);
    // What a process that starts now would read.
    let script = format!(
        r#"for i in $(seq 300); do
        tr -d '\n ' < "$FOREBAY_CONFIG" | grep -qF '"nodes":["{second}"],"spare":["{first}"]' && exit 0
        sleep 0.1
    done; exit 9"#
    );
    let run = site.run("j", &["--compute-nodes", "2"], &script);
    until("it is on both", || site.job("j").is_some_and(|j| j["nodes"].as_array().unwrap().len() == 2));
    assert!(site.tool(&["jobs", "pin", "j", "1"]).status.success());
    site.finish("j", run);
}

#[test]
fn killed_twenty_times_the_arbiter_knows_everything_and_no_program_notices() {
    let site = World::new();
    let mut arbiter = Some(site.arbiter("state", "static", ""));
    let _nodes = [site.node(0), site.node(1), site.node(2)];
    until("all came", || site.admitted() == 3);
    let stop = site.path("stop");
    let runs = ["a", "b", "c"].map(|j| (j, verify(&site, j, &stop)));
    let mapping = || site.json(&["jobs"]).filter(|j| j.as_array().is_some_and(|j| j.len() == 3));
    until("all run", || mapping().is_some());
    let places = |jobs: &Value| -> Vec<Value> {
        jobs.as_array()
            .unwrap()
            .iter()
            .map(|j| serde_json::json!([j["id"], j["epoch"], j["nodes"]]))
            .collect()
    };
    let before = places(&mapping().unwrap());
    for kill in 0..20u64 {
        // At any moment: also while nodes and jobs are coming back.
        std::thread::sleep(Duration::from_millis(kill * 37 % 400));
        drop(arbiter.take());
        arbiter = Some(site.arbiter("state", "static", ""));
        let jobs = mapping().expect("all jobs are known at once");
        assert_eq!(places(&jobs), before, "after kill {kill}");
    }
    until("the nodes are back", || site.admitted() == 3);
    assert_eq!(places(&mapping().unwrap()), before);
    std::fs::write(&stop, "").unwrap();
    for (job, run) in runs {
        assert!(site.finish(job, run).contains("rounds"));
    }
    until("the jobs have ended", || site.json(&["jobs"]) == Some(serde_json::json!([])));
    let decisions = site.json(&["decisions", "-n", "1000"]).unwrap();
    let terms: Vec<u64> = decisions.as_array().unwrap().iter().filter_map(|d| d["term"].as_u64()).collect();
    assert!(terms.windows(2).all(|w| w[0] >= w[1]) && terms.len() > 4, "{terms:?}");
    assert!(read(&site.path("data/fa")).lines().count() == 2001);
}

#[test]
fn a_job_registers_again_with_an_arbiter_that_has_forgotten_it() {
    let site = World::new();
    let arbiter = site.arbiter("state", "static", "");
    let _nodes = [site.node(0), site.node(1)];
    until("both came", || site.admitted() == 2);
    let stop = site.path("stop");
    let run = verify(&site, "j", &stop);
    until("it runs", || site.job("j").is_some());
    let before = site.job("j").unwrap()["epoch"].as_u64();
    drop(arbiter);
    std::thread::sleep(Duration::from_millis(1100));
    let _arbiter = site.arbiter("another", "one", "");
    until("it is back", || site.job("j").is_some_and(|j| j["nodes"].as_array().unwrap().len() == 1));
    assert!(site.job("j").unwrap()["epoch"].as_u64() > before, "its clients take this for newer");
    std::thread::sleep(Duration::from_millis(500));
    std::fs::write(&stop, "").unwrap();
    assert!(site.finish("j", run).contains("rounds"));
}
