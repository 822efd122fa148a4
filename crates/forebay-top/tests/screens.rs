//! What is on the screen, letter by letter, as files in `tests/screens`. After a change that is meant:
//! `FOREBAY_BLESS=1 cargo test -p forebay-top`, and look at the difference.

use forebay_control::view::{DecisionView, HealthView, JobView, NodeView};
use forebay_top::draw::{Theme, draw};
use forebay_top::picture::{JobOnNode, Picture};
use forebay_top::plain;
use forebay_top::screen::{Key, Screen, View};
use forebay_types::{ClientReport, NodeId};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use serde_json::{Value, json};

fn job(id: &str, user: &str, mbs: f64, nodes: &[u32]) -> JobView {
    serde_json::from_value(json!({
        "id": id, "app": "app", "user": user, "compute_nodes": 4, "processes": 64, "weight": 1,
        "age_ms": 95_000, "lease_ms": 9000, "epoch": 3, "nodes": nodes, "shared": false,
        "bandwidth_mbs": mbs, "operations": mbs * 2.0, "latency_p50": 310_000, "latency_p99": 4_100_000, "predicted_mbs": 400.0, "curve": "its own runs",
        "pattern": "write, shared file, strided, 512 KiB", "bytes": 12_345_678_901u64,
        "reason": "gains most from 2 I/O nodes",
    }))
    .expect("a job")
}

fn node(id: u32, state: &str, verdict: &str, jobs: &[&str]) -> NodeView {
    let health: Value = json!({"state": verdict, "since_ms": 1000, "reason": "because"});
    serde_json::from_value(json!({
        "id": id, "host": format!("io{id}"), "addresses": [], "state": state, "reason": null,
        "health": health, "jobs": jobs, "bandwidth_mbs": 100.5 * f64::from(id), "waiting": id * 7,
        "latency_p50": 90_000, "latency_p99": 2_400_000 * (id + 1), "errors": 0, "connections": 4,
        "heard_ms": 200, "scheduler": "fifo",
    }))
    .expect("an I/O node")
}

fn picture() -> Picture {
    let health: HealthView = serde_json::from_value(json!({
        "state": "leading", "version": "1", "term": 7, "policy": "mckp", "jobs": 3, "admitted": 3,
        "nodes": 4, "up_ms": 1000, "history_dropped": 0,
    }))
    .expect("health");
    let decision: DecisionView = serde_json::from_value(json!({
        "id": 12, "unix_ms": 0, "term": 7, "policy": "mckp", "cause": "job climate begins", "io_nodes": 3,
        "total_mbs": 700.0, "took_us": 40, "jobs": [{
            "id": "climate", "nodes": [0, 2], "before": [], "shared": false, "predicted_mbs": 400.0,
            "static_io_nodes": 1, "gain_mbs": 200.0, "alternatives": [], "curve": null, "why": "gains most",
        }],
    }))
    .expect("a decision");
    let place = JobOnNode { node: NodeId(0), written: 155.1e6, ..JobOnNode::default() };
    Picture {
        health,
        jobs: vec![
            job("climate", "anna", 310.2, &[0, 2]),
            job("lammps-17", "bert", 0.0, &[]),
            job("viz", "anna", 501.75, &[1]),
        ],
        nodes: vec![
            node(0, "admitted", "healthy", &["climate"]),
            node(1, "admitted", "healthy", &["viz"]),
            node(2, "screened", "slow", &["climate"]),
            node(3, "lost", "lost", &[]),
        ],
        decisions: vec![decision],
        limits: Vec::new(),
        places: vec![
            JobOnNode { operations: 310.0, queue: 2.5, files: 4, ..place },
            JobOnNode { node: NodeId(2), read: 3e6, metadata: 12.0, ..place },
        ],
        ranks: Vec::new(),
    }
}

fn shown(screen: &Screen, width: u16, height: u16, colours: bool) -> (String, bool) {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a terminal");
    terminal.draw(|frame| draw(frame, screen, &Theme::new(colours))).expect("it draws");
    let buffer = terminal.backend().buffer();
    let coloured = buffer.content().iter().any(|c| c.fg != ratatui::style::Color::Reset);
    let line = |y: u16| {
        let text: String = (0..width).map(|x| buffer[(x, y)].symbol()).collect();
        format!("{}\n", text.trim_end())
    };
    ((0..height).map(line).collect(), coloured)
}

fn is(name: &str, screen: &Screen, width: u16, height: u16) {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/screens/{name}.txt"));
    let (text, _) = shown(screen, width, height, true);
    if std::env::var_os("FOREBAY_BLESS").is_some() {
        std::fs::write(&path, &text).expect("it can be written");
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(text, expected, "{name}:\n{text}");
}

fn screen() -> Screen {
    let mut screen = Screen::new(None);
    screen.heard(picture());
    screen
}

fn press(screen: &mut Screen, keys: &str) {
    for c in keys.chars() {
        assert!(!screen.key(if c == '\n' { Key::Enter } else { Key::Char(c) }), "{c} ends it");
    }
}

#[test]
fn every_view() {
    let mut s = screen();
    is("jobs", &s, 130, 10);
    is("jobs-narrow", &s, 40, 10);
    is("jobs-20", &s, 20, 10);
    let mut long = s.clone();
    let named = |end: &str| JobView {
        id: format!("{}-{end}", "seismic-inversion".repeat(2)),
        ..job("", "anna", 12.6, &[1])
    };
    let part = JobView { bytes_at_least: true, ..named("b") };
    long.heard(Picture { jobs: vec![named("a"), part], ..picture() });
    for width in [20, 80, 100, 200] {
        is(&format!("jobs-long-{width}"), &long, width, 6);
    }
    press(&mut long, "j\n");
    is("job-long-80", &long, 80, 10);
    press(&mut s, "2");
    is("nodes", &s, 100, 10);
    is("nodes-20", &s, 20, 10);
    is("nodes-narrow", &s, 40, 10);
    press(&mut s, "3");
    is("decisions", &s, 80, 10);
    press(&mut s, "?");
    is("help", &s, 80, 14);
    press(&mut s, "1j\n");
    assert_eq!(s.view, View::Job("climate".into()), "the second by MB/s");
    for mbs in [0.0, 100.0, 200.0, 400.0, 310.0] {
        s.trail.push(mbs);
    }
    is("job", &s, 90, 18);
    is("job-narrow", &s, 40, 12);
    let rank = |rank: u32, requests: u64| ClientReport {
        rank: Some(rank),
        host: format!("c{rank}"),
        requests,
        written: requests << 20,
        busy_ns: requests * 1_500_000,
        ..ClientReport::default()
    };
    let mut ranked = s.clone();
    ranked.heard(Picture { ranks: vec![rank(0, 40), rank(1, 3)], ..picture() });
    is("job-ranks", &ranked, 90, 20);
    is("job-ranks-narrow", &ranked, 40, 14);
    let mut dead = Screen::new(None);
    is("waiting", &dead, 80, 6);
    dead.missed("the arbiter does not answer: http://127.0.0.1:7410: refused".into());
    is("dead", &dead, 80, 6);
    s.missed("the arbiter does not answer".into());
    press(&mut s, "1");
    is("stale", &s, 80, 8);
}

#[test]
fn keys_sort_filter_and_lead_back() {
    let ids = |s: &Screen| s.jobs().iter().map(|j| j.id.clone()).collect::<Vec<_>>();
    let mut s = screen();
    assert_eq!(ids(&s), ["viz", "climate", "lammps-17"], "by MB/s");
    press(&mut s, "r");
    assert_eq!(ids(&s), ["lammps-17", "climate", "viz"]);
    press(&mut s, "rs");
    assert_eq!(ids(&s), ["climate", "lammps-17", "viz"], "by name");
    press(&mut s, "/anna\n");
    assert_eq!(ids(&s), ["climate", "viz"]);
    assert!(!s.key(Key::Escape), "first the filter goes");
    assert_eq!(ids(&s).len(), 3);
    press(&mut s, "2s");
    assert_eq!(s.nodes()[0].id, NodeId(3), "by MB/s");
    press(&mut s, "/screened");
    assert_eq!(s.nodes().len(), 1);
    assert!(!s.key(Key::Escape) && !s.key(Key::Escape), "back to the jobs");
    assert_eq!(s.view, View::Jobs);
    assert!(s.key(Key::Escape) && s.key(Key::Char('q')));
    // What is gone takes the cursor along.
    let mut s = screen();
    s.key(Key::End);
    assert_eq!(s.cursor, 2);
    s.heard(Picture { jobs: Vec::new(), ..picture() });
    assert_eq!(s.cursor, 0);
}

#[test]
fn without_colours_there_are_none() {
    let mut s = screen();
    s.missed("no".into());
    assert!(shown(&s, 80, 10, true).1 && !shown(&s, 80, 10, false).1);
}

#[test]
fn any_size_can_be_drawn() {
    let mut s = screen();
    for keys in ["1", "2", "3", "?", "1\n"] {
        press(&mut s, keys);
        for width in 1..60 {
            for height in [1, 2, 3, 5, 30] {
                shown(&s, width, height, true);
            }
        }
    }
}

/// However narrow: what looks like a number is the number, and what is cut says so.
#[test]
fn no_number_is_cut() {
    let mut s = screen();
    for keys in ["1", "2", "1\n"] {
        press(&mut s, keys);
        let whole = shown(&s, 300, 20, false).0;
        let numbers = |text: &str| -> Vec<String> {
            let number = |w: &&str| w.starts_with(|c: char| c.is_ascii_digit());
            text.split_whitespace().filter(number).map(str::to_owned).collect()
        };
        let known = numbers(&whole);
        for width in 1..100 {
            for n in numbers(&shown(&s, width, 20, false).0) {
                assert!(known.contains(&n) || n.ends_with('…'), "{n:?} at {width}");
            }
        }
    }
}

#[test]
fn a_line_says_it_all() {
    assert_eq!(
        plain::line(&picture(), None),
        "leading (term 7): 3 jobs, 3 of 4 I/O nodes admitted, 812.0 MB/s, 42 waiting; viz 501.8, climate 310.2"
    );
    assert_eq!(
        plain::line(&picture(), Some("viz")),
        "job viz: 501.8 MB/s, 12.3 GB in all, on I/O nodes 1 (write, shared file, strided, 512 KiB)"
    );
    assert_eq!(plain::line(&picture(), Some("x")), "job x does not run");
    let part = JobView { bytes_at_least: true, ..job("viz", "anna", 501.75, &[1]) };
    let line = plain::line(&Picture { jobs: vec![part], ..picture() }, Some("viz"));
    assert!(line.contains("501.8 MB/s, ≥ 12.3 GB in all"), "{line}");
}
