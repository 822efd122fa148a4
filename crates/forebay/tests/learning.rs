//! Learning in a running system: an arbiter and I/O nodes as processes, what was learned over HTTP and
//! over restarts, and nodes whose arbiter is gone.

use forebay_client::{Client, Config};
use forebay_control::council::CouncilView;
use forebay_node::control::{Command as Order, Reply};
use forebay_pattern::Model;
use forebay_tune::{Arms, Context, Council, CouncilConfig, Learned, LoadClass, Observation, SizeClass};
use forebay_types::{NodeId, OpKind, Pattern, Secret};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const SECRET: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

/// A directory with a secret, and a port for the arbiter.
struct Site {
    dir: tempfile::TempDir,
    port: u16,
}

/// Ends with the test.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Site {
    fn new() -> Site {
        let dir = tempfile::tempdir().unwrap();
        Secret::from_hex(SECRET).unwrap().write(&dir.path().join("secret")).unwrap();
        std::fs::create_dir(dir.path().join("data")).unwrap();
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        Site { dir, port }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    fn start(&self, what: &str, config: &str) -> Process {
        let file = self.path(&format!("{what}.toml"));
        std::fs::write(&file, config).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
        command.args([what, "--die-with-parent", "--config"]).arg(file);
        Process(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }

    fn arbiter(&self, more: &str) -> Process {
        let listen = format!("127.0.0.1:{}", self.port);
        let arbiter = self.start(
            "arbiter",
            &format!("listen = \"{listen}\"\nsecret-file = \"secret\"\nstate = \"state\"\n{more}"),
        );
        until("the arbiter to listen", || std::net::TcpStream::connect(&listen).is_ok());
        arbiter
    }

    fn node(&self, scheduler: &str) -> Process {
        let socket = self.path("node.sock");
        let node = self.start(
            "node",
            &format!(
                "as = \"self\"\nlisten = [\"unix:{}\"]\nexport = [\"{}=data\"]\nsecret-file = \"secret\"\n\
                 scheduler = \"{scheduler}\"\narbiters = [\"{}\"]\ninterval-ms = 100\n",
                socket.display(),
                self.path("data").display(),
                self.url()
            ),
        );
        until("the node to listen", || std::os::unix::net::UnixStream::connect(&socket).is_ok());
        node
    }

    /// The scheduler in force on the node.
    fn scheduler(&self) -> String {
        let node = format!("unix:{}", self.path("node.sock").display()).parse().unwrap();
        let config = Config::new("test", SECRET, vec![node]);
        let client = Client::new(config, None).unwrap();
        let answer =
            client.control(0, &serde_json::to_vec(&Order::Scheduler { set: None }).unwrap()).unwrap();
        client.leave();
        let reply: Reply = serde_json::from_slice(&answer).unwrap();
        reply.scheduler.unwrap().to_string()
    }

    fn learned(&self, args: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_forebay"))
            .arg("learned")
            .args(args)
            .args(["--arbiter", &self.url()])
            .current_dir(self.dir.path())
            .output()
            .unwrap()
    }

    fn council(&self) -> Option<CouncilView> {
        serde_json::from_slice(&self.learned(&["decisions", "--json"]).stdout).ok()
    }
}

fn until(what: &str, done: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !done() {
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

const ON: &str = "[tune]\nmode = \"on\"\n[tune.choices]\ndefault = \"twins:window=2ms\"\n\
                  arms = [\"twins:window=2ms\", \"twins:window=4ms\"]\n";

#[test]
fn without_an_arbiter_nodes_keep_what_it_last_said() {
    let site = Site::new();
    let arbiter = site.arbiter(ON);
    let _node = site.node("fifo");
    until("the arbiter's scheduler", || site.scheduler().contains("window=2ms"));
    until("reports", || site.council().is_some_and(|c| c.round > 2));
    drop(arbiter);
    assert!(site.council().is_none(), "the arbiter is gone");
    std::thread::sleep(Duration::from_millis(500));
    assert!(site.scheduler().contains("window=2ms"), "{}", site.scheduler());
    // The node was not restarted; it reports again, and what is in force stays though the default is
    // another one now.
    let _arbiter =
        site.arbiter(&ON.replace("default = \"twins:window=2ms\"", "default = \"twins:window=4ms\""));
    until("reports again", || site.council().is_some_and(|c| c.round > 2));
    assert!(site.scheduler().contains("window=2ms"), "{}", site.scheduler());
}

#[test]
fn a_shadow_leaves_nodes_alone() {
    let site = Site::new();
    let _arbiter = site.arbiter(&ON.replace("\"on\"", "\"shadow\""));
    let _node = site.node("fifo");
    until("reports", || site.council().is_some_and(|c| c.round > 5));
    assert_eq!(site.scheduler(), "fifo".parse::<forebay_sched::SchedulerConfig>().unwrap().to_string());
}

/// What a council learned about one situation.
fn experience() -> Learned {
    let context = Context {
        operation: OpKind::Write,
        pattern: Pattern::SharedStrided,
        size: SizeClass::Small,
        load: LoadClass::Medium,
    };
    let mut council = Council::new(Arms::twins_windows(), CouncilConfig::default()).unwrap();
    for _ in 0..20 {
        let arm = Some(council.standing());
        let reward = Some(100.0);
        council.report(Observation {
            node: NodeId(0),
            arm,
            context: Some(context),
            reward,
            may_explore: true,
        });
        council.decide();
    }
    council.learned()
}

fn text(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn write(path: &Path, bytes: &[u8]) {
    let new = path.with_extension("new");
    std::fs::write(&new, bytes).unwrap();
    std::fs::rename(new, path).unwrap();
}

#[test]
fn what_was_learned_is_carried_kept_and_forgotten() {
    let site = Site::new();
    let arbiter = site.arbiter("");
    assert!(text(&site.learned(&[])).contains("nothing has been learned yet"));
    std::fs::write(site.path("learned.json"), experience().to_json()).unwrap();
    let refused = site.learned(&["import", "learned.json"]);
    assert!(!refused.status.success() && String::from_utf8_lossy(&refused.stderr).contains("--secret-file"));
    text(&site.learned(&["import", "learned.json", "--secret-file", "secret"]));
    let situation = "write shared-strided 16K-64K medium";
    assert!(text(&site.learned(&["--svg", "map.svg"])).contains(situation));
    assert!(std::fs::read_to_string(site.path("map.svg")).unwrap().starts_with("<svg"));

    // Killed at any moment, it is there again.
    drop(arbiter);
    let _arbiter = site.arbiter("");
    let exported = text(&site.learned(&["--json"]));
    assert_eq!(Learned::from_json(exported.as_bytes()).unwrap().contexts(), experience().contexts());

    let unknown = site.learned(&["reset", "read backwards", "--secret-file", "secret"]);
    assert!(String::from_utf8_lossy(&unknown.stderr).contains("read backwards"), "{unknown:?}");
    text(&site.learned(&["reset", situation, "--secret-file", "secret"]));
    assert!(text(&site.learned(&[])).contains("nothing has been learned yet"));
    std::fs::write(site.path("learned.json"), "{}").unwrap();
    assert!(!site.learned(&["import", "learned.json", "--secret-file", "secret"]).status.success());
}

#[test]
fn the_detector_is_replaced_while_the_arbiter_runs() {
    let site = Site::new();
    let mut model = Model::builtin();
    let mut put = |name: &str| {
        model.trained_on = name.into();
        write(&site.path("model.json"), &model.to_json());
    };
    put("the first");
    let _arbiter = site.arbiter("model = \"model.json\"\n");
    until("the first model", || site.council().is_some_and(|c| c.model == "the first"));
    put("the second one");
    until("the second model", || site.council().is_some_and(|c| c.model == "the second one"));
    write(&site.path("model.json"), b"not a model");
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(site.council().unwrap().model, "the second one", "a broken one changes nothing");
}
