//! `forebay allocate` and `forebay simulate` as a user calls them.

use serde_json::{Value, json};
use std::io::Write;
use std::process::{Command, Output, Stdio};

fn forebay(args: &[&str], input: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_forebay"))
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A command that refuses its arguments does not read its input.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap()
}

fn table_5_3() -> String {
    json!([
        {"id": "BT-C", "compute_nodes": 32, "processes": 128, "curve": {"0": 195.7, "1": 77.6}},
        {"id": "BT-D", "compute_nodes": 64, "processes": 512, "curve": {"1": 597.2, "2": 594.2}},
        {"id": "IOR-MPI", "compute_nodes": 16, "processes": 128, "curve": {"1": 268.4, "8": 5089.9}},
        {"id": 4, "compute_nodes": 64, "processes": 512, "curve": {"2": 411.9, "4": 1049.9, "8": 1963.9}},
        {"id": "MAD", "compute_nodes": 32, "processes": 64, "curve": {"0": 255.9, "1": 77.8}},
        {"id": "S3D", "compute_nodes": 64, "processes": 512, "curve": {"0": 241.3, "2": 48.1}},
    ])
    .to_string()
}

#[test]
fn json_has_the_jobs_as_given_and_the_total() {
    let out = forebay(&["allocate", "--policy", "mckp", "--io-nodes", "12", "--json", "-"], &table_5_3());
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let answer: Value = serde_json::from_slice(&out.stdout).unwrap();
    let jobs: Vec<_> =
        answer["jobs"].as_array().unwrap().iter().map(|j| (j["id"].clone(), j["io_nodes"].clone())).collect();
    let expected = [
        (json!("BT-C"), 0),
        (json!("BT-D"), 1),
        (json!("IOR-MPI"), 8),
        (json!(4), 2),
        (json!("MAD"), 0),
        (json!("S3D"), 0),
    ];
    assert_eq!(jobs, expected.map(|(id, n)| (id, json!(n))));
    assert!((answer["total"].as_f64().unwrap() - 6791.9).abs() < 1e-6);
}

#[test]
fn the_table_says_why() {
    let out = forebay(&["allocate", "--policy", "MCKP", "--io-nodes", "12", "-"], &table_5_3());
    let text = String::from_utf8(out.stdout).unwrap();
    for expected in
        ["IOR-MPI", "direct access is its best", "more would give it", "6.79 GB/s in total, 4.60× STATIC"]
    {
        assert!(text.contains(expected), "{text}");
    }
}

#[test]
fn bad_jobs_are_refused_with_the_reason() {
    let job = |change: &str| format!(r#"[{{"id": "a", "compute_nodes": 4, "processes": 4, {change}}}]"#);
    for (input, reason) in [
        ("{}".to_owned(), "expected a sequence"),
        ("nonsense".to_owned(), "line 1"),
        (job(r#""curve": {}"#), "empty"),
        (job(r#""curve": {"1": 5, "1": 6}"#), "twice"),
        (job(r#""curve": {"1": -5}"#), "not a bandwidth"),
        (job(r#""curve": {"-1": 5}"#), "line 1"),
        (job(r#""weight": 0"#), "weight"),
        (job(r#""current": -1"#), "line 1"),
        (r#"[{"id": "a", "compute_nodes": 0, "processes": 4}]"#.to_owned(), "compute node"),
        (r#"[{"id": "a", "processes": 4}]"#.to_owned(), "compute_nodes"),
        (r#"[{"id": [], "compute_nodes": 1, "processes": 4}]"#.to_owned(), "id must be"),
        (
            r#"[{"id": 1, "compute_nodes": 1, "processes": 1}, {"id": "1", "compute_nodes": 1, "processes": 1}]"#.to_owned(),
            "another job with the id 1",
        ),
    ] {
        let out = forebay(&["allocate", "--policy", "mckp", "--io-nodes", "4", "-"], &input);
        let message = String::from_utf8_lossy(&out.stderr).into_owned();
        assert_eq!(out.status.code(), Some(1), "{input}");
        assert!(message.contains(reason), "{input}: {message}");
    }
    let unknown = forebay(&["allocate", "--policy", "mckp", "--io-nodes", "4", "-"], &job(r#""wieght": 3"#));
    assert!(unknown.status.success());
    assert!(String::from_utf8_lossy(&unknown.stderr).contains("wieght"));
}

#[test]
fn the_study_is_repeatable_and_draws() {
    let dir = tempfile::tempdir().unwrap();
    let svg = dir.path().join("study.svg");
    let csv = concat!(env!("CARGO_MANIFEST_DIR"), "/../../data/marenostrum4.csv");
    let args = [
        "simulate",
        "policies",
        csv,
        "--sets",
        "50",
        "--io-nodes",
        "8,56",
        "--json",
        "--plot",
        svg.to_str().unwrap(),
    ];
    let (first, second) = (forebay(&args, ""), forebay(&args, ""));
    assert!(first.status.success(), "{}", String::from_utf8_lossy(&first.stderr));
    assert_eq!(first.stdout, second.stdout);
    let study: Value = serde_json::from_slice(&first.stdout).unwrap();
    assert_eq!(study["cells"].as_array().unwrap().len(), 2 * 9);
    assert!(std::fs::read_to_string(svg).unwrap().starts_with("<svg"));
}

#[test]
fn the_queue_runs_under_every_policy() {
    let out = forebay(&["simulate", "queue", "--json"], "");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let queue: Value = serde_json::from_slice(&out.stdout).unwrap();
    // Direct access is not allowed there, so ZERO has no say.
    assert_eq!(queue["policies"].as_array().unwrap().len(), 8);
    assert!(queue["mckp_over_static"].as_f64().unwrap() >= 1.9);
}
