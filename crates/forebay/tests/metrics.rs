//! The metrics of I/O nodes and arbiters are what Prometheus expects, and so are the queries in `contrib/`.

use forebay_client::{ExportId, OpenFlags, Path};
use forebay_control::client::in_path;
use forebay_testkit::{ArbiterSpec, NodeProcess, Process, Signal, Site, Verifiers, needs, setting, until};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(60);

/// What `promtool check metrics` has to say of a text: nothing, if all is well.
fn promtool(text: &str) -> String {
    let mut tool = Command::new("promtool");
    tool.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = tool.spawn().expect("promtool runs");
    child.stdin.take().expect("piped").write_all(text.as_bytes()).expect("it reads");
    let out = child.wait_with_output().expect("our own child");
    let said = [out.stdout, out.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    assert_eq!(out.status.success(), said.is_empty(), "{}: {said}", out.status);
    said
}

/// The value of a series.
fn value(text: &str, series: &str) -> f64 {
    let line = text.lines().find_map(|l| l.strip_prefix(series)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {series}: {text}")).parse().expect("a number")
}

#[test]
fn nodes_and_arbiter_have_metrics_without_fault() {
    if !needs("metrics", &["promtool"]) {
        return;
    }
    assert!(!promtool("a_count 1\n").is_empty(), "it does find faults");
    let site = Site::new();
    let arbiter = site.arbiter(&ArbiterSpec::default());
    let nodes: Vec<NodeProcess> = (0..2)
        .map(|n| site.node_with(n, &["--arbiter", arbiter.url(), "--metrics", "127.0.0.1:0"]))
        .collect();
    until(PATIENCE, "the nodes do not come", || site.nodes(arbiter.url()).filter(|n| n.len() == 2));
    let grant = site.register(arbiter.url(), "a \"b\"", None).expect("an answer").expect("a grant");
    let client = site.client(&grant, grant.secret.as_deref().expect("a secret"));
    let path = Path { export: ExportId(0), rel: b"file" };
    let flags = OpenFlags::READ | OpenFlags::WRITE | OpenFlags::CREATE;
    let (file, _) = client.open(path, flags, 0o600).expect("it opens");
    for i in 0..10 {
        assert_eq!(client.pwrite(&file, &[7; 4096], i * 4096).expect("it writes"), 4096);
    }
    client.close(&file).expect("it closes");
    let mut written = 0.0;
    for n in 0..nodes.len() {
        let at = site.metrics(n);
        let (status, text) = site.get(&at, "/metrics").expect("an answer");
        assert_eq!((status, promtool(&text)), (200, String::new()), "{text}");
        let series = "forebay_node_job_bytes_total{job=\"a \\\"b\\\"\",kind=\"write\"}";
        let here = if text.contains(series) { value(&text, series) } else { 0.0 };
        written += here;
        if here > 0.0 {
            assert!(value(&text, "forebay_node_operation_duration_seconds_count{operation=\"write\"}") > 0.0);
        }
        assert!(!text.contains(site.secret()), "a secret is shown");
        assert_eq!(site.get(&at, "/").expect("an answer").0, 404);
    }
    assert_eq!(written, 40960.0);
    until(PATIENCE, "the arbiter has not heard of it", || {
        let (status, text) = site.get(arbiter.url(), "/metrics")?;
        assert_eq!((status, promtool(&text)), (200, String::new()), "{text}");
        let seen = value(&text, "forebay_arbiter_job_bytes_total{job=\"a \\\"b\\\"\"}");
        (seen == 40960.0).then_some(())
    });
}

/// Connections to a server that say `word` and no more.
fn silent(url: &str, count: usize, word: &[u8]) -> Vec<TcpStream> {
    let address = url.trim_start_matches("http://");
    let connect = |_| {
        let mut stream = TcpStream::connect(address).expect("it listens");
        stream.write_all(word).expect("it hears");
        stream.set_nonblocking(true).expect("a socket");
        stream
    };
    (0..count).map(connect).collect()
}

fn is_open(mut stream: &TcpStream) -> bool {
    matches!(stream.read(&mut [0]), Err(e) if e.kind() == ErrorKind::WouldBlock)
}

#[test]
fn whoever_says_nothing_keeps_nobody_from_the_metrics() {
    let site = Site::new();
    let arbiter = site.arbiter(&ArbiterSpec::default());
    let _node = site.node_with(0, &["--arbiter", arbiter.url(), "--metrics", "127.0.0.1:0"]);
    for url in [site.metrics(0), arbiter.url().to_owned()] {
        for word in [&b""[..], b"GET /metr"] {
            // On a busy machine they may have been sent away by then: once is enough.
            until(PATIENCE, "there are no metrics while others say nothing", || {
                let others = silent(&url, 4, word);
                assert_eq!(site.get(&url, "/metrics").expect("an answer").0, 200);
                others.iter().all(is_open).then_some(())
            });
        }
    }
    // However many there are.
    let others = silent(&site.metrics(0), 200, b"GET /metr");
    assert_eq!(site.get(&site.metrics(0), "/metrics").expect("an answer").0, 200);
    until(PATIENCE, "the oldest is not sent away", || (!is_open(&others[0])).then_some(()));
    // And those who take nothing of what they asked for.
    let others = silent(&site.metrics(0), 40, b"GET /metrics HTTP/1.1\r\n\r\n");
    assert_eq!(site.get(&site.metrics(0), "/metrics").expect("an answer").0, 200);
    drop(others);
}

/// A Prometheus that scrapes these every second, with our rules.
fn prometheus(site: &Site, targets: &[String]) -> (Process, String) {
    let port =
        std::net::TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("a port").port();
    let (url, config) = (format!("http://127.0.0.1:{port}"), site.path().join("prometheus.yml"));
    // Ours, with less patience.
    let (mut rules, hasty) = (String::new(), site.path().join("hasty.rules.yml"));
    for line in std::fs::read_to_string(contrib("prometheus/forebay.rules.yml")).expect("the rules").lines() {
        let (indent, rest) = line.split_at(line.len() - line.trim_start().len());
        rules += &format!("{indent}{}\n", if rest.starts_with("for: ") { "for: 2s" } else { rest });
    }
    std::fs::write(&hasty, rules).expect("the rules");
    let text = format!(
        "global:\n  scrape_interval: 1s\n  evaluation_interval: 1s\nrule_files: [{:?}]\n\
         scrape_configs:\n  - job_name: forebay\n    static_configs:\n      - targets: {targets:?}\n",
        hasty,
    );
    std::fs::write(&config, text).expect("the configuration");
    let log = std::fs::File::create(site.path().join("prometheus.log")).expect("a log");
    let mut command = Command::new("prometheus");
    command.arg(format!("--config.file={}", config.display()));
    command.arg(format!("--storage.tsdb.path={}", site.path().join("tsdb").display()));
    command.arg(format!("--web.listen-address=127.0.0.1:{port}")).stderr(log);
    let process = Process::start(command.stdin(Stdio::null()).stdout(Stdio::null())).expect("it starts");
    (process, url)
}

fn contrib(path: &str) -> PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../contrib").join(path)
}

/// How many series a query finds; `Err` if Prometheus does not take it.
fn series(site: &Site, url: &str, query: &str) -> Option<Result<usize, String>> {
    let (status, body) = site.get(url, &format!("/api/v1/query?query={}", in_path(query)))?;
    let answer: serde_json::Value = serde_json::from_str(&body).ok()?;
    if status == 503 {
        return None;
    }
    let found = answer["data"]["result"].as_array().map(Vec::len);
    Some(found.ok_or_else(|| format!("{query}: {body}")))
}

#[test]
fn every_query_of_the_dashboard_and_of_the_alerts_is_one() {
    if !needs("dashboard queries", &["prometheus", "promtool"]) {
        return;
    }
    for file in ["rules", "rules.test"] {
        let mut tool = Command::new("promtool");
        let path = contrib(&format!("prometheus/forebay.{file}.yml"));
        tool.args(if file == "rules" { ["check", "rules"] } else { ["test", "rules"] }).arg(path);
        let out = tool.output().expect("promtool runs");
        assert!(out.status.success(), "{out:?}");
    }
    let site = Site::new();
    let settings = "lease-ms = 600000\n".into();
    let arbiter = site.arbiter(&ArbiterSpec { settings, ..ArbiterSpec::default() });
    let mut nodes: Vec<NodeProcess> = (0..3)
        .map(|n| site.node_with(n, &["--arbiter", arbiter.url(), "--metrics", "127.0.0.1:0"]))
        .collect();
    until(PATIENCE, "the nodes do not come", || site.nodes(arbiter.url()).filter(|n| n.len() == nodes.len()));
    let grant = site.register(arbiter.url(), "busy", None).expect("an answer").expect("a grant");
    let secret = grant.secret.clone().expect("a secret");
    let load = Verifiers::start((0..2).map(|_| site.client(&grant, &secret)).collect());
    let mut targets: Vec<String> = (0..nodes.len()).map(|n| site.metrics(n)).collect();
    targets.push(arbiter.url().to_owned());
    let targets: Vec<String> = targets.iter().map(|t| t.trim_start_matches("http://").to_owned()).collect();
    let (_prometheus, url) = prometheus(&site, &targets);

    let text = std::fs::read_to_string(contrib("grafana/forebay.json")).expect("the dashboard");
    let board: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let panels = board["panels"].as_array().expect("panels");
    let mut queries = 0;
    for panel in panels {
        for target in panel["targets"].as_array().expect("targets") {
            let query = target["expr"].as_str().expect("a query").replace("$__rate_interval", "10s");
            until(PATIENCE, &format!("no data: {query}"), || {
                let found = series(&site, &url, &query)?.unwrap_or_else(|e| panic!("{e}"));
                (found > 0).then_some(())
            });
            queries += 1;
        }
    }
    assert!(panels.len() >= 10 && queries > panels.len(), "{queries} queries");
    // What is told by job is told by ours, not by Prometheus' own label of that name.
    let ours = "sum by (exported_job) (forebay_node_job_bytes_total{exported_job=\"busy\"})";
    assert_eq!(series(&site, &url, ours), Some(Ok(1)), "{ours}");
    assert!(!text.contains("{{job}}") && !text.contains("by (job)"), "the label of the scrape");
    // Each scrape so far was answered; with FOREBAY_SCRAPE=60 those of a minute.
    let span = setting("FOREBAY_SCRAPE", 3);
    std::thread::sleep(Duration::from_secs(span));
    let answered = format!("min_over_time(up[{span}s]) == 1 and count_over_time(up[{span}s]) > {}", span / 2);
    let found = until(PATIENCE, "not every scrape is answered", || {
        series(&site, &url, &answered)?.ok().filter(|n| *n == targets.len())
    });
    println!("{found} targets were scraped for {span} s, and answered each time");
    // The rules are loaded, each was evaluated without fault, and nothing is wrong here.
    let rules = until(PATIENCE, "the rules are not evaluated", || {
        let (_, body) = site.get(&url, "/api/v1/rules")?;
        let answer: serde_json::Value = serde_json::from_str(&body).ok()?;
        let rules = answer["data"]["groups"][0]["rules"].as_array()?.clone();
        rules.iter().all(|r| r["health"] == "ok").then_some(rules)
    });
    assert_eq!(rules.len(), 7);
    for rule in rules {
        assert_ne!(rule["state"], "firing", "{rule}");
    }
    let fires = |alert: &str| {
        let query = format!("ALERTS{{alertname=\"{alert}\",alertstate=\"firing\"}}");
        until(PATIENCE, &format!("{alert} does not fire"), || {
            let found = series(&site, &url, &query)?;
            (found.expect("a query") >= 1).then_some(())
        });
        println!("{alert} fires");
    };
    // Those that come soon: an I/O node is stopped most of the time, then one dies. The others are `promtool test rules`'.
    let slow = AtomicBool::new(true);
    std::thread::scope(|s| {
        s.spawn(|| {
            while slow.load(Relaxed) {
                nodes[2].process.signal(Signal::STOP).expect("it runs");
                std::thread::sleep(Duration::from_millis(180));
                nodes[2].process.signal(Signal::CONT).expect("it runs");
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        fires("ForebayNodeSlow");
        slow.store(false, Relaxed);
    });
    load.finish();
    drop(nodes.remove(0));
    fires("ForebayNodeLost");
    // The job is still there, and has nothing.
    drop(nodes);
    fires("ForebayJobStarved");
}
