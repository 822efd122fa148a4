//! The phases of a trace, for people: a table, and what scenarios have no words for.

use super::derive::{LONGEST_PAUSE, fsync, pause, processes};
use super::groups::Group;
use super::{Phase, actors, hosts};
use crate::scenario::{Fsync, Layout, Operation, Spatiality};
use forebay_plot::{say, table};
use forebay_types::trace::{Call, Trace};
use std::collections::BTreeSet;

/// So many phases are shown.
const SHOWN: usize = 50;
/// Less than so much of the requests or bytes covered is said.
const COVERED: f64 = 0.95;

/// All of it.
pub(super) fn found(trace: &Trace, phases: &[Phase]) -> String {
    let mut out = String::new();
    let processes: BTreeSet<u32> = {
        let actors = actors(&trace.header.processes);
        trace.records.iter().filter_map(|r| actors.get(r.process as usize).copied()).collect()
    };
    let many = |n: usize, one: &str, more: &str| format!("{n} {}", if n == 1 { one } else { more });
    say!(
        out,
        "{} on {}, {}: {}",
        many(processes.len(), "process", "processes"),
        many(hosts(trace) as usize, "host", "hosts"),
        many(trace.records.len(), "call", "calls"),
        many(phases.len(), "phase of I/O", "phases of I/O")
    );
    say!(out);
    say!(out, "{}", phase_table(phases));
    if phases.len() > SHOWN {
        say!(out, "… and {} more", phases.len() - SHOWN);
    }
    let notes = notes(trace, phases);
    if !notes.is_empty() {
        say!(out);
        notes.iter().for_each(|note| say!(out, "{note}"));
    }
    out
}

fn phase_table(phases: &[Phase]) -> String {
    let text = ["does", "to", "order"];
    let header =
        ["phase", "at s", "for s", "processes", "does", "to", "order", "requests", "of", "bytes", "covered"];
    let mut t = table::new(&header, &text);
    let first = phases.first().map_or(0, |p| p.began);
    let seconds = |nanos: u64| format!("{:.2}", nanos as f64 / 1e9);
    let blank = String::new;
    for (i, phase) in phases.iter().enumerate().take(SHOWN) {
        if let Some(before) = i.checked_sub(1).map(|b| &phases[b]) {
            let (at, long) = (before.ended.saturating_sub(first), pause(before, phase));
            let mut row = vec!["–".to_owned(), seconds(at), format!("{:.2}", long.as_secs_f64()), blank()];
            row.push("no I/O".into());
            row.resize_with(header.len(), blank);
            t.add_row(row);
        }
        for (nth, g) in phase.groups.iter().enumerate() {
            t.add_row(vec![
                if nth == 0 { (i + 1).to_string() } else { blank() },
                seconds(g.began.saturating_sub(first)),
                seconds(g.ended.saturating_sub(g.began)),
                g.by.len().to_string(),
                operation(g),
                files(g),
                g.spatiality.to_string(),
                g.requests.to_string(),
                sizes(g),
                forebay_plot::bytes(g.bytes as f64),
                format!("{:.0} %", g.covered.min(1.0) * 100.0),
            ]);
        }
    }
    t.to_string().lines().map(|line| line.trim_end().to_owned()).collect::<Vec<_>>().join("\n")
}

fn operation(g: &Group) -> String {
    let synced = match fsync(g) {
        Fsync::Never => "",
        Fsync::End => ", synced",
        Fsync::Each => ", each synced",
    };
    match g.operation {
        Operation::Mixed => format!("mixed, {:.0} % read{synced}", g.read_share * 100.0),
        operation => format!("{operation}{synced}"),
    }
}

fn files(g: &Group) -> String {
    match (g.layout, g.files.len()) {
        (Layout::Shared, 1) => "a shared file".into(),
        (Layout::Shared, n) => format!("{n} shared files"),
        (Layout::FilePerProcess, 1) => "a file of its own".into(),
        (Layout::FilePerProcess, n) if n <= g.by.len() => "a file each".into(),
        (Layout::FilePerProcess, n) => format!("files of their own ({n})"),
    }
}

fn sizes(g: &Group) -> String {
    let shown: Vec<String> =
        g.sizes.iter().take(3).map(|(size, _)| forebay_plot::bytes(*size as f64)).collect();
    format!("{}{}", shown.join(", "), if g.sizes.len() > 3 { ", …" } else { "" })
}

/// What the scenario does not say, or says otherwise.
fn notes(trace: &Trace, phases: &[Phase]) -> Vec<String> {
    let mut notes: Vec<String> = trace.header.missing().into_iter().collect();
    if trace.cut_off() > 0 {
        notes.push(format!(
            "the file is cut off: {} of its {} records are missing",
            trace.cut_off(),
            trace.header.records
        ));
    }
    for (i, g) in phases.iter().enumerate().flat_map(|(i, p)| p.groups.iter().map(move |g| (i + 1, g))) {
        let mut note = |what: String| notes.push(format!("phase {i}, {}: {what}", g.operation));
        if g.covered < COVERED {
            note(format!(
                "of its sizes the {} with the most bytes are taken, {:.0} % of the bytes",
                g.sizes.len(),
                g.covered * 100.0
            ));
        }
        if g.ordered < COVERED {
            let rest = match (g.layout, g.spatiality) {
                (Layout::FilePerProcess, Spatiality::Contiguous) => {
                    "; patterns know no gaps in a file of one's own"
                }
                _ => "",
            };
            note(format!("{:.0} % of the requests are {}{rest}", g.ordered * 100.0, g.spatiality));
        }
        if g.partly_shared {
            note("some files are shared by fewer processes; in the scenario all share one".into());
        }
        if g.layout == Layout::FilePerProcess && g.files.len() > g.by.len() {
            note(format!("{} files; in the scenario each process has one", g.files.len()));
        }
        if (processes(g) as usize) < g.by.len() {
            note(format!(
                "{} processes for {} requests: in the scenario each has one",
                processes(g),
                g.requests
            ));
        }
    }
    let counts: BTreeSet<u32> = phases.iter().flat_map(|p| &p.groups).map(processes).collect();
    if counts.len() > 1 {
        notes.push(
            "phases of other numbers of processes are jobs of their own, which begin when they did in the trace".into(),
        );
    }
    if phases.windows(2).any(|two| pause(&two[0], &two[1]) > LONGEST_PAUSE) {
        notes.push(format!(
            "pauses without I/O are {} s in the scenario where they were longer",
            LONGEST_PAUSE.as_secs()
        ));
    }
    let opens = trace.records.iter().filter(|r| r.call == Call::Open).count();
    if opens > 2 * phases.iter().flat_map(|p| &p.groups).map(|g| g.by.len()).sum::<usize>() {
        notes.push(format!("{opens} opens and what else is done with names are not in the scenario"));
    }
    notes
}
