//! The arbiter's jobs, I/O nodes, decisions and limits as tables.

use forebay_control::limit::{LimitView, PlaceView, utc};
use forebay_control::node::JobShare;
use forebay_control::view::{DecisionView, JobView, NodeState, NodeView, RefusedView};
use forebay_plot::{say, table};
use forebay_types::NodeId;

/// The jobs that run; with where their curves come from.
pub fn jobs(jobs: &[JobView], why: bool) -> String {
    let mut out = String::new();
    let mut header = vec![
        "job",
        "application",
        "user",
        "compute\nnodes",
        "processes",
        "I/O nodes",
        "MB/s",
        "predicted",
        "age",
        "pattern",
    ];
    if why {
        header.extend(["hosts", "why", "curve"]);
    }
    let text = ["application", "user", "I/O nodes", "pattern", "hosts", "why", "curve"];
    let mut t = table::new(&header, &text);
    for j in jobs {
        let shared = if j.shared { " (shared)" } else { "" };
        let mut row = vec![
            j.id.clone(),
            j.app.clone(),
            if j.account.is_empty() { j.user.clone() } else { format!("{} ({})", j.user, j.account) },
            j.compute_nodes.to_string(),
            j.processes.to_string(),
            format!("{}{shared}", list(&j.nodes)),
            format!("{:.1}", j.bandwidth_mbs),
            j.predicted_mbs.map_or("?".into(), |b| format!("{b:.1}")),
            age(j.age_ms),
            j.pattern.clone().unwrap_or_default(),
        ];
        if why {
            row.push(some_of(&j.hosts));
            row.extend([j.reason.clone(), j.curve.clone().unwrap_or_else(|| "none: the default".into())]);
        }
        t.add_row(row);
    }
    say!(out, "{t}");
    // From 0.0, since the sum of nothing is -0.0.
    let total = jobs.iter().fold(0.0, |sum, j| sum + j.bandwidth_mbs);
    say!(out, "{} jobs, {total:.1} MB/s in all", jobs.len());
    out
}

/// So many hosts of a job are named.
const HOSTS: usize = 8;

fn some_of(hosts: &[String]) -> String {
    let shown = hosts.iter().take(HOSTS).cloned().collect::<Vec<_>>().join(", ");
    let more = hosts.len().saturating_sub(HOSTS);
    if more > 0 { format!("{shown} and {more} more") } else { shown }
}

/// The I/O nodes there are.
pub fn nodes(nodes: &[NodeView], refused: &[RefusedView]) -> String {
    let mut out = String::new();
    let header =
        ["node", "host", "state", "jobs", "MB/s", "waiting", "p50", "p99", "errors", "scheduler", "address"];
    let mut t = table::new(&header, &["host", "state", "jobs", "scheduler", "address"]);
    for n in nodes {
        let state = match n.state {
            NodeState::Admitted => "admitted",
            NodeState::Screened => "screened out",
            NodeState::Draining => "draining",
            NodeState::Awaited => "awaited",
            NodeState::Drained => "drained",
            NodeState::Lost => "lost",
        };
        let state = n.reason.as_ref().map_or(state.to_owned(), |r| format!("{state}: {r}"));
        t.add_row([
            n.id.to_string(),
            n.host.clone(),
            state,
            n.jobs.join(" "),
            format!("{:.1}", n.bandwidth_mbs),
            n.waiting.to_string(),
            time(n.latency_p50.as_secs_f64()),
            time(n.latency_p99.as_secs_f64()),
            n.errors.to_string(),
            n.scheduler.clone().unwrap_or_default(),
            n.addresses.first().cloned().unwrap_or_default(),
        ]);
    }
    say!(out, "{t}");
    for r in refused {
        let who = r.node.map_or("somebody".to_owned(), |n| format!("I/O node {n}"));
        let at = r.host.as_ref().map_or(String::new(), |h| format!(" on {h}"));
        say!(out, "refused: {who}{at}: {}", r.reason);
    }
    out
}

/// What was decided, a row each.
pub fn decisions(decisions: &[DecisionView]) -> String {
    let mut out = String::new();
    let mut t = table::new(
        &["decision", "ago", "policy", "I/O nodes", "predicted MB/s", "took", "moved", "because"],
        &["policy", "moved", "because"],
    );
    for d in decisions {
        let moves = d.jobs.iter().filter(|j| j.nodes != j.before);
        let moved: Vec<String> = moves.map(|j| format!("{} → {}", j.id, list(&j.nodes))).collect();
        t.add_row([
            d.id.to_string(),
            ago(d.unix_ms),
            d.policy.clone(),
            d.io_nodes.to_string(),
            format!("{:.1}", d.total_mbs),
            time(d.took_us as f64 / 1e6),
            if moved.is_empty() { "nobody".into() } else { moved.join("\n") },
            d.cause.clone(),
        ]);
    }
    say!(out, "{t}");
    out
}

/// What was decided, the newest last, each with the jobs, what they got and could have had, and why.
pub fn reasons(decisions: &[DecisionView]) -> String {
    decisions.iter().rev().map(explain).collect()
}

fn explain(d: &DecisionView) -> String {
    let mut out = String::new();
    say!(
        out,
        "decision {}, {} ago, {} on {} I/O nodes, because {}",
        d.id,
        ago(d.unix_ms),
        d.policy,
        d.io_nodes,
        d.cause
    );
    let header = ["job", "I/O nodes", "before", "MB/s", "gain", "could have had", "why", "curve"];
    let mut t = table::new(&header, &["I/O nodes", "before", "could have had", "why", "curve"]);
    for j in &d.jobs {
        let others: Vec<String> = j.alternatives.iter().map(|(n, b)| format!("{n}: {b:.1}")).collect();
        t.add_row([
            j.id.clone(),
            format!("{}{}", list(&j.nodes), if j.shared { " (shared)" } else { "" }),
            list(&j.before),
            j.predicted_mbs.map_or("?".into(), |b| format!("{b:.1}")),
            j.gain_mbs.map_or(String::new(), |g| format!("{g:+.1}")),
            others.join(", "),
            j.why.clone(),
            j.curve.clone().unwrap_or_else(|| "none: the default".into()),
        ]);
    }
    say!(out, "{t}");
    let predicted = match d.jobs.iter().any(|j| j.predicted_mbs.is_some()) {
        true => format!("{:.1} MB/s predicted in all", d.total_mbs),
        false => "nothing could be predicted".to_owned(),
    };
    say!(out, "{predicted}; decided in {}\n", time(d.took_us as f64 / 1e6));
    out
}

/// Numbers of I/O nodes.
pub fn list(nodes: &[NodeId]) -> String {
    if nodes.is_empty() {
        return "–".to_owned();
    }
    nodes.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}

fn ago(unix_ms: u64) -> String {
    let now = std::time::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_millis() as u64);
    age(now.saturating_sub(unix_ms))
}

/// How long ago, in the largest unit that says something.
pub(crate) fn age(ms: u64) -> String {
    match ms / 1000 {
        s @ 0..120 => format!("{s} s"),
        s @ 120..7200 => format!("{} min", s / 60),
        s @ 7200..172_800 => format!("{} h", s / 3600),
        s => format!("{} d", s / 86_400),
    }
}

fn time(seconds: f64) -> String {
    match seconds {
        s if s <= 0.0 => "–".to_owned(),
        s if s < 0.001 => format!("{:.0} µs", s * 1e6),
        s if s < 1.0 => format!("{:.1} ms", s * 1e3),
        s => format!("{s:.2} s"),
    }
}

/// Bytes a second.
fn bandwidth(b: f64) -> String {
    match b {
        b if b < 1e3 => format!("{} B/s", (b * 10.0).round() / 10.0),
        b if b < 1e5 => format!("{:.1} KB/s", b / 1e3),
        b => format!("{:.1} MB/s", b / 1e6),
    }
}

/// What a limit leaves, and guarantees, to a job on an I/O node: each of its rates.
fn place(l: &LimitView, p: &PlaceView) -> String {
    let number = |n: f64| (n * 10.0).round() / 10.0;
    let JobShare { job, limit, weight, .. } = &p.share;
    let nodes = l.shares.iter().filter(|other| other.share.job == *job).count().max(1);
    let rates = [
        limit.bandwidth.map(bandwidth),
        limit.iops.map(|n| format!("{} ops/s", number(n))),
        limit.metadata.map(|n| format!("{} metadata/s", number(n))),
        l.limit.at_least.map(|b| format!("at least {}", bandwidth(b / nodes as f64))),
        weight.map(|w| format!("weight {w}")),
    ];
    let rates: Vec<String> = rates.into_iter().flatten().collect();
    format!("{}: {job} {}", p.node, rates.join(", "))
}

/// What jobs may have at most and at least.
pub fn limits(limits: &[LimitView]) -> String {
    let mut out = String::new();
    let header = ["limit", "bandwidth", "ops/s", "metadata/s", "at least", "until (UTC)", "on I/O nodes"];
    let mut t = table::new(&header, &["until (UTC)", "on I/O nodes"]);
    for l in limits {
        let n = |n: Option<f64>| n.map_or("–".to_owned(), |n| n.to_string());
        let bytes = |n: Option<f64>| n.map_or("–".to_owned(), bandwidth);
        let most = &l.limit.most;
        let places: Vec<String> = l.shares.iter().map(|p| place(l, p)).collect();
        t.add_row([
            l.id.clone(),
            bytes(most.bandwidth),
            n(most.iops),
            n(most.metadata),
            bytes(l.limit.at_least),
            l.limit.until_unix_ms.map_or("it is removed".into(), utc),
            places.join("\n"),
        ]);
    }
    say!(out, "{t}");
    for l in limits {
        for note in &l.notes {
            say!(out, "{}: {note}", l.id);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_control::limit::{Limit, Rates, Subject};

    #[test]
    fn every_rate_of_a_limit_is_shown_node_by_node() {
        let share = |node, limit, weight| PlaceView {
            node: NodeId(node),
            share: JobShare { job: "j".into(), limit, weight, ..JobShare::default() },
        };
        let shown = |most, at_least, shares| {
            let limit = Limit { subject: Subject::Job("j".into()), most, at_least, until_unix_ms: None };
            limits(&[LimitView { id: "job=j".into(), limit, shares, notes: Vec::new() }])
        };
        // One unit for one limit, whatever it was given in.
        let mebi = Rates { bandwidth: Some(3.0 * 1048576.0), ..Rates::default() };
        let mebi = shown(mebi, None, vec![share(0, mebi, None)]);
        assert_eq!(mebi.matches("3.1 MB/s").count(), 2, "{mebi}");
        let part = Rates { bandwidth: Some(2.5e6), iops: Some(100.0 / 3.0), metadata: Some(25.0) };
        let all = shown(part, None, vec![share(0, part, None)]);
        assert!(all.contains("0: j 2.5 MB/s, 33.3 ops/s, 25 metadata/s"), "{all}");
        let one = Rates { metadata: Some(25.0), ..Rates::default() };
        let metadata = shown(one, None, vec![share(0, one, None), share(1, one, None)]);
        assert!(metadata.contains("0: j 25 metadata/s") && metadata.contains("1: j 25 "), "{metadata}");
        let none = Rates::default();
        let least = shown(none, Some(1e6), vec![share(0, none, Some(310)), share(1, none, None)]);
        assert!(least.contains("0: j at least 0.5 MB/s, weight 310"), "{least}");
        assert!(least.contains("1: j at least 0.5 MB/s "), "{least}");
        let little = Rates { bandwidth: Some(2e4), ..Rates::default() };
        let little = shown(little, None, vec![share(0, little, None)]);
        assert!(little.contains("0: j 20.0 KB/s"), "{little}");
        let least = Rates { bandwidth: Some(1.0), ..Rates::default() };
        let least = shown(least, None, vec![share(0, least, None)]);
        assert!(least.contains("0: j 1 B/s"), "{least}");
    }
}
