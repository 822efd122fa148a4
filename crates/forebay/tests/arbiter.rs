//! An arbiter, I/O nodes and programs as real processes: jobs come and go, I/O nodes are drained, the
//! arbiter is killed again and again, and no program notices.

use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const FOREBAY: &str = env!("CARGO_BIN_EXE_forebay");

/// A child that is killed with this value.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A directory with a secret, an export and an arbiter's state, and a port for the arbiter.
struct Site {
    dir: tempfile::TempDir,
    address: String,
}

impl Site {
    fn new() -> Site {
        let dir = tempfile::tempdir().unwrap();
        forebay_types::Secret::new([0x5a; 32]).write(&dir.path().join("secret")).unwrap();
        std::fs::create_dir(dir.path().join("data")).unwrap();
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = free.local_addr().unwrap().to_string();
        Site { dir, address }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Starts an arbiter on a state directory, and waits until it listens.
    fn arbiter(&self, state: &str, more: &[&str]) -> Process {
        let child = Command::new(FOREBAY)
            .args(["arbiter", "--die-with-parent", "--listen", &self.address, "--secret-file"])
            .arg(self.path("secret"))
            .arg("--state")
            .arg(self.path(state))
            .args(more)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut arbiter = Process(child);
        let mut line = String::new();
        BufReader::new(arbiter.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line.trim(), format!("listening on {}", self.url()));
        arbiter
    }

    fn node(&self, id: u32) -> Process {
        let listen = format!("unix:{}", self.path(&format!("{id}.sock")).display());
        let ready = self.path(&format!("{id}.ready"));
        let child = Command::new(FOREBAY)
            .args(["node", "--die-with-parent", "--id", &id.to_string(), "--listen", &listen])
            .args(["--as", "self", "--arbiter", &self.url(), "--export"])
            .arg(format!("{}=data", self.path("data").display()))
            .arg("--secret-file")
            .arg(self.path("secret"))
            .arg("--ready-file")
            .arg(&ready)
            .spawn()
            .unwrap();
        let node = Process(child);
        until("the I/O node listens", || ready.exists());
        node
    }

    /// Starts a program below `/seen`, which is the export.
    fn run(&self, job: &str, more: &[&str], script: &str) -> Process {
        let child = Command::new(FOREBAY)
            .args([
                "run",
                "--quiet",
                "--arbiter",
                &self.url(),
                "--job",
                job,
                "--at",
                "/seen=data",
                "--secret-file",
            ])
            .arg(self.path("secret"))
            .args(more)
            .args(["--", "sh", "-c", script])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        Process(child)
    }

    /// What a command prints.
    fn tool(&self, args: &[&str]) -> Output {
        Command::new(FOREBAY)
            .args(args)
            .env("FOREBAY_ARBITER", self.url())
            .env("FOREBAY_SECRET_FILE", self.path("secret"))
            .output()
            .unwrap()
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
    let end = Instant::now() + Duration::from_secs(30);
    while !holds() {
        assert!(Instant::now() < end, "{what}: not within 30 s");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Waits for a program, which must succeed.
fn finish(mut run: Process) -> String {
    let child = std::mem::replace(&mut run.0, Command::new("true").spawn().unwrap());
    let out = child.wait_with_output().unwrap();
    let (text, errors) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert!(out.status.success(), "{}: {text}{errors}", out.status);
    text.into_owned()
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap()
}

/// Writes and reads back a file again and again, each time with other bytes, until a file appears.
const VERIFY: &str = "i=0; while [ ! -e $STOP ]; do i=$((i + 1)); \
    seq $i $((i + 2000)) > /seen/f$J || exit 1; seq $i $((i + 2000)) | cmp - /seen/f$J || exit 2; done; echo $i rounds";

fn verify(site: &Site, job: &str, stop: &Path) -> Process {
    let script = format!("J={job}; STOP={}; {VERIFY}", stop.display());
    site.run(job, &["--compute-nodes", "4"], &script)
}

#[test]
fn a_program_gets_io_nodes_and_its_run_is_remembered() {
    let site = Site::new();
    let _arbiter = site.arbiter("state", &["--policy", "static"]);
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
    finish(run);
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
    assert_eq!(failed.0.wait().unwrap().code(), Some(7));
    assert_eq!(site.json(&["jobs"]).unwrap(), serde_json::json!([]));
}

#[test]
fn an_arbiter_that_is_not_there_is_named() {
    let site = Site::new();
    let out = site.tool(&["jobs"]);
    let error = String::from_utf8_lossy(&out.stderr);
    assert!(!out.status.success() && error.contains(&site.url()), "{error}");
    let mut run = site.run("j", &["--wait", "0.2"], "true");
    assert_eq!(run.0.wait().unwrap().code(), Some(125));
    let out = Command::new(FOREBAY).args(["arbiter", "--state"]).arg(site.path("s")).output().unwrap();
    assert!(String::from_utf8_lossy(&out.stderr).contains("--secret-file"));
}

#[test]
fn a_drained_io_node_ends_and_the_program_goes_on() {
    let site = Site::new();
    let _arbiter = site.arbiter("state", &["--policy", "static"]);
    let mut nodes = [site.node(0), site.node(1)];
    until("both came", || site.admitted() == 2);
    let stop = site.path("stop");
    let run = verify(&site, "j", &stop);
    until("it is on both", || site.job("j").is_some_and(|j| j["nodes"].as_array().unwrap().len() == 2));
    std::thread::sleep(Duration::from_millis(500));
    assert!(site.tool(&["nodes", "drain", "0"]).status.success());
    until("the node ends", || nodes[0].0.try_wait().unwrap().is_some_and(|s| s.success()));
    assert_eq!(site.job("j").unwrap()["nodes"], serde_json::json!([1]));
    std::thread::sleep(Duration::from_millis(500));
    std::fs::write(&stop, "").unwrap();
    assert!(finish(run).contains("rounds"));
    assert!(!site.tool(&["nodes", "drain", "7"]).status.success());
}

#[test]
fn processes_that_start_after_a_move_start_where_the_job_is() {
    let site = Site::new();
    let config = site.path("arbiter.toml");
    std::fs::write(&config, "lease-ms = 1500\n").unwrap();
    let _arbiter = site.arbiter("state", &["--policy", "static", "--config", config.to_str().unwrap()]);
    let _nodes = [site.node(0), site.node(1)];
    until("both came", || site.admitted() == 2);
    // What a process that starts now would read.
    let script = r#"for i in $(seq 300); do
        tr -d '\n ' < "$FOREBAY_CONFIG" | grep -q '"nodes":\["unix:[^,]*/1.sock"\],"spare":\["unix:[^,]*/0.sock"\]' && exit 0
        sleep 0.1
    done; exit 9"#;
    let run = site.run("j", &["--compute-nodes", "2"], script);
    until("it is on both", || site.job("j").is_some_and(|j| j["nodes"].as_array().unwrap().len() == 2));
    assert!(site.tool(&["jobs", "pin", "j", "1"]).status.success());
    finish(run);
}

#[test]
fn killed_twenty_times_the_arbiter_knows_everything_and_no_program_notices() {
    let site = Site::new();
    let mut arbiter = Some(site.arbiter("state", &["--policy", "static"]));
    let _nodes = [site.node(0), site.node(1), site.node(2)];
    until("all came", || site.admitted() == 3);
    let stop = site.path("stop");
    let runs: Vec<_> = ["a", "b", "c"].iter().map(|j| verify(&site, j, &stop)).collect();
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
        arbiter = Some(site.arbiter("state", &["--policy", "static"]));
        let jobs = mapping().expect("all jobs are known at once");
        assert_eq!(places(&jobs), before, "after kill {kill}");
    }
    until("the nodes are back", || site.admitted() == 3);
    assert_eq!(places(&mapping().unwrap()), before);
    std::fs::write(&stop, "").unwrap();
    for run in runs {
        assert!(finish(run).contains("rounds"));
    }
    until("the jobs have ended", || site.json(&["jobs"]) == Some(serde_json::json!([])));
    let decisions = site.json(&["decisions", "-n", "1000"]).unwrap();
    let terms: Vec<u64> = decisions.as_array().unwrap().iter().filter_map(|d| d["term"].as_u64()).collect();
    assert!(terms.windows(2).all(|w| w[0] >= w[1]) && terms.len() > 4, "{terms:?}");
    assert!(read(&site.path("data/fa")).lines().count() == 2001);
}

#[test]
fn a_job_registers_again_with_an_arbiter_that_has_forgotten_it() {
    let site = Site::new();
    let arbiter = site.arbiter("state", &["--policy", "static"]);
    let _nodes = [site.node(0), site.node(1)];
    until("both came", || site.admitted() == 2);
    let stop = site.path("stop");
    let run = verify(&site, "j", &stop);
    until("it runs", || site.job("j").is_some());
    let before = site.job("j").unwrap()["epoch"].as_u64();
    drop(arbiter);
    std::thread::sleep(Duration::from_millis(1100));
    let _arbiter = site.arbiter("another", &["--policy", "one"]);
    until("it is back", || site.job("j").is_some_and(|j| j["nodes"].as_array().unwrap().len() == 1));
    assert!(site.job("j").unwrap()["epoch"].as_u64() > before, "its clients take this for newer");
    std::thread::sleep(Duration::from_millis(500));
    std::fs::write(&stop, "").unwrap();
    assert!(finish(run).contains("rounds"));
}
