//! Learning in a running system: an arbiter and I/O nodes as processes, what was learned over HTTP and
//! over restarts, and nodes whose arbiter is gone.

use forebay_client::{Client, Config};
use forebay_control::council::CouncilView;
use forebay_node::control::{Command as Order, Reply};
use forebay_pattern::Model;
use forebay_testkit::{ArbiterProcess, ArbiterSpec, NodeProcess, Site, free_address};
use forebay_tune::{Arms, Context, Council, CouncilConfig, Learned, LoadClass, Observation, SizeClass};
use forebay_types::{NodeId, OpKind, Pattern};
use std::path::{Path, PathBuf};
use std::process::Output;
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

    fn arbiter(&self, settings: &str) -> ArbiterProcess {
        let (listen, settings) = (self.address.clone(), settings.to_owned());
        self.site.arbiter(&ArbiterSpec { listen, settings, ..ArbiterSpec::default() })
    }

    fn node(&self) -> NodeProcess {
        std::fs::write(self.path("node.toml"), "interval-ms = 100\n").unwrap();
        let config = self.path("node.toml").display().to_string();
        self.site.node_with(0, &["--config", &config, "--scheduler", "fifo", "--arbiter", &self.url()])
    }

    /// The scheduler in force on the node.
    fn scheduler(&self, node: &NodeProcess) -> String {
        let config = Config::new("test", self.site.secret(), node.addresses().to_vec());
        let client = Client::new(config, None).unwrap();
        let answer =
            client.control(0, &serde_json::to_vec(&Order::Scheduler { set: None }).unwrap()).unwrap();
        client.leave();
        let reply: Reply = serde_json::from_slice(&answer).unwrap();
        reply.scheduler.unwrap().to_string()
    }

    fn learned(&self, args: &[&str]) -> Output {
        let url = self.url();
        let args = [&["learned"], args, &["--arbiter", &url]].concat();
        self.site.command(&args).env_remove("FOREBAY_SECRET_FILE").output().unwrap()
    }

    fn council(&self) -> Option<CouncilView> {
        serde_json::from_slice(&self.learned(&["decisions", "--json"]).stdout).ok()
    }
}

fn until(what: &str, done: impl Fn() -> bool) {
    forebay_testkit::until(Duration::from_secs(60), what, || done().then_some(()));
}

const ON: &str = "[tune]\nmode = \"on\"\n[tune.choices]\ndefault = \"twins:window=2ms\"\n\
                  arms = [\"twins:window=2ms\", \"twins:window=4ms\"]\n";

#[test]
fn without_an_arbiter_nodes_keep_what_it_last_said() {
    let site = World::new();
    let arbiter = site.arbiter(ON);
    let node = site.node();
    until("the arbiter's scheduler", || site.scheduler(&node).contains("window=2ms"));
    until("reports", || site.council().is_some_and(|c| c.round > 2));
    drop(arbiter);
    assert!(site.council().is_none(), "the arbiter is gone");
    std::thread::sleep(Duration::from_millis(500));
    assert!(site.scheduler(&node).contains("window=2ms"), "{}", site.scheduler(&node));
    // The node was not restarted; it reports again, and what is in force stays though the default is
    // another one now.
    let _arbiter =
        site.arbiter(&ON.replace("default = \"twins:window=2ms\"", "default = \"twins:window=4ms\""));
    until("reports again", || site.council().is_some_and(|c| c.round > 2));
    assert!(site.scheduler(&node).contains("window=2ms"), "{}", site.scheduler(&node));
}

#[test]
fn a_shadow_leaves_nodes_alone() {
    let site = World::new();
    let _arbiter = site.arbiter(&ON.replace("\"on\"", "\"shadow\""));
    let node = site.node();
    until("reports", || site.council().is_some_and(|c| c.round > 5));
    assert_eq!(site.scheduler(&node), "fifo".parse::<forebay_sched::SchedulerConfig>().unwrap().to_string());
    let says = |args: &[&str]| String::from_utf8(site.learned(args).stdout).unwrap();
    let first = says(&["decisions"]);
    let told = |text: &str| {
        let line = text.lines().next().unwrap_or_default().to_owned();
        line.starts_with("council shadow: fifo:")
            && line.contains(" in force, twins:")
            && line.contains("window=2ms if it were on; detector: ")
    };
    assert!(told(&first), "{first}");
    let none = says(&["decisions", "-n", "0"]);
    assert!(told(&none) && !none.contains("not decided"), "{none}");
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
    let site = World::new();
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
    let site = World::new();
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
