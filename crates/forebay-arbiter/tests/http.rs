//! The HTTP API over real sockets: against its OpenAPI description, with and without the secret, and
//! with requests that make no sense.

mod common;

use common::{Arbiter, Node, SECRET, hello, open, until};
use forebay_arbiter::api::{OPENAPI, ROUTES};
use forebay_control::node::{ToArbiter, ToNode};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read, Write};
use std::time::Duration;

fn description() -> Value {
    serde_json::from_str(OPENAPI).unwrap()
}

/// Holds a value against a schema of the description; says where it differs.
fn check(doc: &Value, schema: &Value, value: &Value, at: &str) -> Result<(), String> {
    if let Some(name) = schema["$ref"].as_str() {
        let name = name.strip_prefix("#/components/schemas/").ok_or("an odd $ref")?;
        let target = &doc["components"]["schemas"][name];
        assert!(target.is_object(), "no schema {name}");
        return check(doc, target, value, at);
    }
    let fits = |kind: &str| match kind {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "integer" => value.is_u64() || value.is_i64(),
        "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        other => panic!("{other} is no type"),
    };
    let kinds: Vec<&str> = match &schema["type"] {
        Value::String(s) => vec![s],
        Value::Array(a) => a.iter().filter_map(Value::as_str).collect(),
        _ => vec![],
    };
    if !kinds.is_empty() && !kinds.iter().any(|k| fits(k)) {
        return Err(format!("{at}: {value} is not {kinds:?}"));
    }
    if let Some(known) = schema["enum"].as_array()
        && !known.contains(value)
    {
        return Err(format!("{at}: {value} is none of {known:?}"));
    }
    if let (Some(least), Some(is)) = (schema["minimum"].as_f64(), value.as_f64())
        && is < least
    {
        return Err(format!("{at}: {is} < {least}"));
    }
    if let Some(items) = value.as_array() {
        for (i, item) in items.iter().enumerate() {
            check(doc, &schema["items"], item, &format!("{at}[{i}]"))?;
        }
    }
    if let (Some(object), Some(properties)) = (value.as_object(), schema["properties"].as_object()) {
        for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            if !object.contains_key(name) {
                return Err(format!("{at}: no {name}"));
            }
        }
        for (name, value) in object {
            match properties.get(name) {
                Some(schema) => check(doc, schema, value, &format!("{at}.{name}"))?,
                None => return Err(format!("{at}: {name} is not described")),
            }
        }
    }
    Ok(())
}

/// The answer must be as the description says for this path, method and status.
fn as_described(doc: &Value, path: &str, method: &str, status: u16, answer: &Value) {
    let response = &doc["paths"][path][method]["responses"][status.to_string()];
    assert!(response.is_object(), "{method} {path} answers {status}, which is not described: {answer}");
    let schema = &response["content"]["application/json"]["schema"];
    if schema.is_object() {
        check(doc, schema, answer, path).unwrap_or_else(|e| panic!("{method} {path} {status}: {e}"));
    }
}

/// What has no end has a test of its own.
const ENDLESS: (&str, &str) = ("/v1/live", "get");

#[test]
fn what_changes_is_pushed_to_whoever_looks() {
    let dir = tempfile::tempdir().unwrap();
    let arbiter = Arbiter::start(dir.path(), |_| {});
    let mut live = std::net::TcpStream::connect(arbiter.address).unwrap();
    live.set_read_timeout(Some(std::time::Duration::from_secs(20))).unwrap();
    write!(live, "GET /v1/live HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    let mut lines = BufReader::new(live).lines().map(Result::unwrap);
    let mut next = |what: &str| loop {
        let line = lines.next().expect("the stream goes on");
        if let Some(data) = line.strip_prefix("data: ")
            && let Value::Object(event) = serde_json::from_str(data).unwrap()
            && event.contains_key(what)
        {
            return Value::from(event);
        }
    };
    assert_eq!(next("about")["about"]["state"], "leading");
    arbiter.send("POST", "/v1/jobs", Some(json!({ "id": "seen", "app": "a" })));
    assert_eq!(next("jobs")["jobs"]["seen"]["app"], "a");
    arbiter.send("DELETE", "/v1/jobs/seen", None);
    assert_eq!(next("jobs")["jobs"]["seen"], Value::Null);
}

#[test]
fn the_page_brings_all_it_needs() {
    let dir = tempfile::tempdir().unwrap();
    let arbiter = Arbiter::start(dir.path(), |_| {});
    let text = |path: &str| match arbiter.call("GET", path, None, None) {
        (200, Value::String(text)) => text,
        (status, answer) => panic!("{path}: {status} {answer}"),
    };
    let page = text("/");
    let mut wanted: Vec<String> = Vec::new();
    let names = |text: &str| -> Vec<String> {
        let quoted = text.split(['"', '\'']);
        quoted.filter(|q| q.starts_with("/assets/") || q.starts_with("./")).map(str::to_owned).collect()
    };
    wanted.extend(names(&page));
    assert!(wanted.len() >= 4, "{page}");
    let mut seen = BTreeSet::new();
    while let Some(name) = wanted.pop() {
        let path = name.replacen("./", "/assets/", 1);
        if seen.insert(path.clone()) {
            wanted.extend(names(&text(&path)).into_iter().filter(|n| n.ends_with(".js")));
        }
    }
    assert!(seen.contains("/assets/views.js"), "{seen:?}");
    assert!(!page.contains("http:") || page.contains("www.w3.org"), "nothing comes from elsewhere");
}

#[test]
fn the_description_has_the_routes_and_the_routes_are_there() {
    let doc = description();
    let described: BTreeMap<&str, BTreeSet<&str>> = doc["paths"]
        .as_object()
        .unwrap()
        .iter()
        .map(|(p, ops)| (p.as_str(), ops.as_object().unwrap().keys().map(String::as_str).collect()))
        .collect();
    let routes: BTreeMap<&str, BTreeSet<&str>> =
        ROUTES.iter().map(|(p, m)| (*p, m.iter().copied().collect())).collect();
    assert_eq!(described, routes);
    let dir = tempfile::tempdir().unwrap();
    let arbiter = Arbiter::start(dir.path(), |_| {});
    for (path, ops) in &routes {
        for method in ["get", "post", "put", "delete"] {
            let real = path.replace("{id}", "7");
            if (*path, method) == ENDLESS {
                continue;
            }
            let (status, answer) = arbiter.send(&method.to_uppercase(), &real, None);
            if ops.contains(method) {
                assert!(![405].contains(&status), "{method} {path}: {status} {answer}");
                as_described(&doc, path, method, status, &answer);
            } else {
                // The job's path also stands for names below it.
                assert!([404, 405].contains(&status), "{method} {path} is not described: {status} {answer}");
            }
        }
    }
    assert_eq!(arbiter.get("/v1/openapi.json"), doc);
    assert_eq!(arbiter.call("GET", "/v1/nothing", None, None).0, 404);
}

#[test]
fn real_answers_are_as_described_and_show_no_secret() {
    let doc = description();
    let dir = tempfile::tempdir().unwrap();
    let arbiter = Arbiter::start(dir.path(), |_| {});
    let mut nodes: Vec<Node> = (0..3).map(|n| Node::connect(&arbiter, n)).collect();
    let job = json!({"id": "a b/c".replace('/', "-"), "app": "sim", "compute_nodes": 4, "processes": 8});
    let (status, grant) = arbiter.send("POST", "/v1/jobs", Some(job));
    as_described(&doc, "/v1/jobs", "post", status, &grant);
    assert_eq!((status, grant["addresses"].as_array().unwrap().len()), (200, 2), "{grant}");
    let secret = grant["secret"].as_str().unwrap().to_owned();
    assert_eq!(secret.len(), 64);
    for node in &mut nodes {
        node.report("a b-c", 1_000_000);
    }
    until("the report is in the history", || !arbiter.get("/v1/history").as_array().unwrap().is_empty());
    let mut seen = String::new();
    for (path, real) in [
        ("/v1/jobs", "/v1/jobs"),
        ("/v1/jobs/{id}", "/v1/jobs/a%20b-c"),
        ("/v1/nodes", "/v1/nodes"),
        ("/v1/nodes/{id}", "/v1/nodes/2"),
        ("/v1/mapping", "/v1/mapping"),
        ("/v1/decisions", "/v1/decisions?limit=5"),
        ("/v1/decisions", "/v1/decisions?job=a%20b-c"),
        ("/v1/history", "/v1/history?job=a%20b-c&node=1&step=1"),
        ("/v1/health", "/v1/health"),
        ("/metrics", "/metrics"),
    ] {
        let answer = arbiter.get(real);
        as_described(&doc, path, "get", 200, &answer);
        assert!(answer.as_array().is_none_or(|a| !a.is_empty()), "{real} shows nothing");
        seen += &answer.to_string();
    }
    assert!(!seen.contains(&secret) && !seen.contains(SECRET), "a secret is shown");
    let metrics = arbiter.get("/metrics");
    let metrics = metrics.as_str().unwrap();
    for line in [
        "forebay_arbiter_jobs 1",
        "forebay_arbiter_leading 1",
        "forebay_arbiter_nodes{state=\"admitted\"} 3",
        "forebay_arbiter_job_bytes_total{job=\"a b-c\"} 3000000",
    ] {
        assert!(metrics.contains(line), "{line}: {metrics}");
    }
    let (status, renewed) = arbiter.send("PUT", "/v1/jobs/a%20b-c/lease", None);
    as_described(&doc, "/v1/jobs/{id}/lease", "put", status, &renewed);
    assert!(renewed["secret"].is_null() && renewed["nodes"] == grant["nodes"]);
    assert_eq!(arbiter.send("DELETE", "/v1/jobs/a%20b-c", None).0, 204);
    assert_eq!(arbiter.send("DELETE", "/v1/jobs/a%20b-c", None).0, 404);
}

/// Method, path, body and any text for a secret, bare: our own client has no secrets that are none. The status.
fn bare(arbiter: &Arbiter, method: &str, path: &str, body: &Value, secret: Option<&str>) -> u16 {
    let config = ureq::Agent::config_builder().timeout_global(Some(Duration::from_secs(20)));
    let agent: ureq::Agent = config.http_status_as_error(false).build().into();
    let url = format!("http://{}{path}", arbiter.address);
    let mut request = ureq::http::Request::builder().method(method).uri(url);
    if let Some(secret) = secret {
        request = request.header("authorization", format!("Bearer {secret}"));
    }
    agent.run(request.body(body.to_string()).unwrap()).unwrap().status().as_u16()
}

#[test]
fn nothing_changes_without_the_secret() {
    let doc = description();
    let dir = tempfile::tempdir().unwrap();
    let arbiter = Arbiter::start(dir.path(), |_| {});
    let job = json!({"id": "j"});
    let another = "00".repeat(32);
    for secret in [None, Some(""), Some("0123"), Some(&SECRET[1..]), Some(another.as_str())] {
        for (path, ops) in doc["paths"].as_object().unwrap() {
            for (method, op) in ops.as_object().unwrap() {
                let real = path.replace("{id}", "7");
                if (path.as_str(), method.as_str()) == ENDLESS {
                    continue;
                }
                let status = bare(&arbiter, &method.to_uppercase(), &real, &job, secret);
                assert_eq!(op["security"].is_array(), status == 401, "{method} {path}: {status}");
            }
        }
        assert!(open(&arbiter, secret.unwrap_or("")).is_err());
    }
    assert_eq!(arbiter.get("/v1/jobs"), json!([]));
}

#[test]
fn nonsense_is_refused_with_words() {
    let dir = tempfile::tempdir().unwrap();
    let arbiter = Arbiter::start(dir.path(), |_| {});
    let long = "x".repeat(300);
    for (body, expect) in [
        (json!([]), "not a job"),
        (json!({"idd": "x"}), "idd"),
        (json!({"compute_nodes": 0}), "compute_nodes"),
        (json!({"compute_nodes": -1}), "not a job"),
        (json!({"id": "a/b"}), "slash"),
        (json!({"id": "a\nb"}), "control"),
        (json!({"app": long}), "app"),
        (json!({"secret": "12"}), "64"),
        (json!({"weight": 0}), "weight"),
    ] {
        let (status, answer) = arbiter.send("POST", "/v1/jobs", Some(body));
        assert_eq!(status, 400, "{answer}");
        assert!(answer["error"].as_str().unwrap().contains(expect), "{answer}");
    }
    let huge = json!({"id": "x".repeat(100_000)});
    assert_eq!(arbiter.send("POST", "/v1/jobs", Some(huge)).0, 413);
    for path in ["/v1/history?step=7", "/v1/history?node=x", "/v1/decisions?limi=3", "/v1/nodes/x"] {
        let (status, answer) = arbiter.call("GET", path, None, None);
        assert_eq!(status, 400, "{path}: {answer}");
    }
    // Bytes that are no HTTP, and a client that never finishes its request.
    let mut raw = std::net::TcpStream::connect(arbiter.address).unwrap();
    raw.write_all(b"\x00\xff\x00\xff\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    raw.read_to_end(&mut answer).unwrap();
    assert!(answer.starts_with(b"HTTP/1.1 400"));
    assert_eq!(arbiter.get("/v1/jobs"), json!([]));
}

#[test]
fn nodes_are_told_of_jobs_and_refused_with_words() {
    let dir = tempfile::tempdir().unwrap();
    let arbiter = Arbiter::start(dir.path(), |_| {});
    let mut a = Node::connect(&arbiter, 1);
    // An arbiter that has just started may not know all jobs yet.
    let ToNode::Mapping { complete: false, jobs, term, .. } = a.hear() else { panic!() };
    assert!(jobs.is_empty());
    let (_, grant) = arbiter.send("POST", "/v1/jobs", Some(json!({"id": "j", "weight": 3})));
    let ToNode::Mapping { complete: false, jobs, term: same, .. } = a.hear() else { panic!() };
    assert_eq!(term, same);
    assert_eq!((jobs[0].job.as_str(), jobs[0].weight), ("j", 3));
    assert_eq!(grant["secret"], jobs[0].secret.as_str());
    assert_eq!(grant["addresses"], json!(jobs[0].nodes));
    // Another node under the same number, a wrong version, a wrong first message, no JSON.
    let mut other = hello(1);
    other.addresses = vec!["tcp:127.0.0.1:1".into()];
    let mut old = hello(2);
    old.version = 99;
    for (first, expect) in [
        (serde_json::to_string(&ToArbiter::Hello(other)).unwrap(), "another --id"),
        (serde_json::to_string(&ToArbiter::Hello(old)).unwrap(), "version 99"),
        (serde_json::to_string(&ToArbiter::Leaving).unwrap(), "hello"),
        ("{".to_owned(), "not a message"),
    ] {
        let mut b = Node { id: 9, socket: open(&arbiter, SECRET).unwrap() };
        b.socket.send(tungstenite::Message::text(first)).unwrap();
        let ToNode::Sorry { reason } = b.hear() else { panic!() };
        assert!(reason.contains(expect), "{reason}");
    }
    // The same node again: its old connection is ended.
    let mut again = Node::connect(&arbiter, 1);
    let ToNode::Mapping { jobs, .. } = again.hear() else { panic!() };
    assert_eq!(jobs.len(), 1);
    until("the old connection ends", || a.socket.read().is_err());
    // Drained: told after its jobs were moved.
    let _other = Node::connect(&arbiter, 2);
    assert_eq!(arbiter.send("POST", "/v1/nodes/1/drain", None).0, 202);
    let drained = loop {
        match again.hear() {
            ToNode::Drain { .. } => break true,
            ToNode::Mapping { jobs, .. } => assert!(jobs.iter().all(|j| j.nodes == ["tcp:127.0.0.1:20002"])),
            other => panic!("{other:?}"),
        }
    };
    assert!(drained);
    assert_eq!(arbiter.get("/v1/nodes/1")["state"], "draining");
    assert_eq!(arbiter.send("POST", "/v1/nodes/9/drain", None).0, 404);
}

#[test]
fn a_restarted_arbiter_goes_on_where_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let arbiter = Arbiter::start(dir.path(), |_| {});
    let mut nodes: Vec<Node> = (0..2).map(|n| Node::connect(&arbiter, n)).collect();
    let (_, grant) = arbiter.send("POST", "/v1/jobs", Some(json!({"id": "j", "compute_nodes": 2})));
    nodes[0].report("j", 5_000_000);
    until("the report is in the history", || !arbiter.get("/v1/history").as_array().unwrap().is_empty());
    let before = arbiter.get("/v1/mapping");
    drop(arbiter);
    let arbiter = Arbiter::start(dir.path(), |_| {});
    let after = arbiter.get("/v1/mapping");
    assert_eq!((&after["jobs"], &after["epoch"]), (&before["jobs"], &before["epoch"]));
    assert!(after["term"].as_u64() > before["term"].as_u64());
    assert_eq!(arbiter.get("/v1/history").as_array().unwrap().len(), 1);
    assert_eq!(arbiter.get("/v1/nodes/1")["state"], "awaited");
    let (status, renewed) = arbiter.send("PUT", "/v1/jobs/j/lease", None);
    assert_eq!((status, &renewed["epoch"], &renewed["nodes"]), (200, &grant["epoch"], &grant["nodes"]));
    // The nodes come back: nothing moves.
    let mut node = Node::connect(&arbiter, 1);
    let ToNode::Mapping { jobs, .. } = node.hear() else { panic!() };
    assert_eq!(jobs[0].epoch.0, grant["epoch"].as_u64().unwrap());
    Node::connect(&arbiter, 0);
    assert_eq!(arbiter.get("/v1/mapping")["jobs"], before["jobs"]);
    // The job is known by its secret, and by no other.
    let same = json!({"id": "j", "secret": grant["secret"]});
    assert_eq!(arbiter.send("POST", "/v1/jobs", Some(same)).0, 200);
    assert_eq!(arbiter.send("POST", "/v1/jobs", Some(json!({"id": "j"}))).0, 409);
    let decisions = arbiter.get("/v1/decisions");
    let ids: Vec<u64> = decisions.as_array().unwrap().iter().filter_map(|d| d["id"].as_u64()).collect();
    assert!(ids.windows(2).all(|w| w[0] > w[1]), "decisions count on: {ids:?}");
}

#[test]
fn a_dead_job_ends_with_its_lease_and_connections_are_bounded() {
    let dir = tempfile::tempdir().unwrap();
    let arbiter = Arbiter::start(dir.path(), |c| {
        c.core.lease = forebay_types::Nanos::from_secs(3);
        c.max_connections = 8;
    });
    let _node = Node::connect(&arbiter, 0);
    arbiter.send("POST", "/v1/jobs", Some(json!({"id": "dies"})));
    assert_eq!(arbiter.get("/v1/jobs").as_array().unwrap().len(), 1);
    until("the lease runs out", || arbiter.get("/v1/jobs") == json!([]));
    // Connections that say nothing fill the bound; the oldest gives way to the next one.
    let idle: Vec<_> = (0..8).map(|_| std::net::TcpStream::connect(arbiter.address).unwrap()).collect();
    std::thread::sleep(std::time::Duration::from_millis(100));
    let late = std::net::TcpStream::connect(arbiter.address).unwrap();
    late.set_read_timeout(Some(std::time::Duration::from_secs(20))).unwrap();
    (&late).write_all(b"GET /v1/health HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
    assert!((&late).read(&mut [0; 10]).unwrap() > 0);
    idle[0].set_read_timeout(Some(std::time::Duration::from_secs(20))).unwrap();
    assert!(matches!((&idle[0]).read(&mut [0; 10]), Ok(0)), "it is closed");
}

#[test]
fn nobody_without_the_secret_keeps_others_out() {
    let dir = tempfile::tempdir().unwrap();
    let arbiter = Arbiter::start(dir.path(), |c| c.max_connections = 8);
    // Many that say nothing, and many that have begun a request.
    let idle: Vec<std::net::TcpStream> = (0..40)
        .map(|n| {
            let mut stream = std::net::TcpStream::connect(arbiter.address).unwrap();
            if n % 2 == 0 {
                stream.write_all(b"GET /v1/jobs HTTP/1.1\r\nhost: a\r\n").unwrap();
            }
            stream
        })
        .collect();
    for n in 0..3 {
        let job = json!({"id": format!("job-{n}")});
        let (status, answer) = arbiter.call("POST", "/v1/jobs", Some(&job), Some(SECRET));
        assert_eq!(status, 200, "{answer}");
        let (status, answer) = arbiter.call("PUT", &format!("/v1/jobs/job-{n}/lease"), None, Some(SECRET));
        assert_eq!(status, 200, "{answer}");
    }
    drop(idle);
}

#[test]
fn a_job_hears_at_once_when_it_is_moved() {
    let dir = tempfile::tempdir().unwrap();
    let arbiter = Arbiter::start(dir.path(), |_| {});
    let _nodes = [Node::connect(&arbiter, 0), Node::connect(&arbiter, 1)];
    let (_, grant) = arbiter.call("POST", "/v1/jobs", Some(&json!({"id": "a"})), Some(SECRET));
    let epoch = grant["epoch"].as_u64().unwrap();
    // What is known already is told after the time that was given.
    let path = format!("/v1/jobs/a/lease?known={epoch}&wait_ms=50");
    let (status, same) = arbiter.call("PUT", &path, None, Some(SECRET));
    assert_eq!((status, same["epoch"].as_u64()), (200, Some(epoch)));
    let other = if grant["nodes"] == json!([0]) { 1 } else { 0 };
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let path = format!("/v1/jobs/a/lease?known={epoch}&wait_ms=20000");
            arbiter.call("PUT", &path, None, Some(SECRET))
        });
        std::thread::sleep(std::time::Duration::from_millis(200));
        let pin = json!({"nodes": [other]});
        assert_eq!(arbiter.call("PUT", "/v1/jobs/a/nodes", Some(&pin), Some(SECRET)).0, 200);
        let (status, moved) = waiting.join().unwrap();
        assert_eq!((status, &moved["nodes"]), (200, &json!([other])), "{moved}");
    });
    // One that ends while it waits hears that, too.
    let (status, _) = arbiter.call("PUT", "/v1/jobs/a/lease?known=x", None, Some(SECRET));
    assert_eq!(status, 400);
}
