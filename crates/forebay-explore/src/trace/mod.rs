//! Scenarios from traces (`forebay run --record`): phases, what the processes do in each, and the pauses between them.
//!
//! | module | what lives there |
//! |---|---|
//! | `phases` | when there is I/O and when not |
//! | `groups` | what is done in a phase, as access patterns |
//! | `derive` | the scenario |
//! | `text` | the phases, for people |

mod derive;
mod groups;
mod phases;
mod text;

use crate::derived::{Derived, NoScenario, Problem, stem};
use forebay_types::trace::{Call, Process, Trace};
use groups::{ActorsCall, Group, groups};
use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::io::BufReader;
use std::path::Path;

/// More phases than these are no scenario that anybody would run.
const MOST_PHASES: usize = 10_000;
/// Nor are those of a run that took a year.
const LONGEST_RUN: u64 = 365 * 24 * 3600 * 1_000_000_000;

/// A time in which processes do I/O, and what they do. Nanoseconds since 1970.
struct Phase {
    began: u64,
    ended: u64,
    groups: Vec<Group>,
}

/// The scenario of a trace, and its phases for people.
pub fn derived(path: &Path) -> Result<Derived, NoScenario> {
    let file = File::open(path).map_err(NoScenario::of(path))?;
    let trace = Trace::read(BufReader::new(file)).map_err(NoScenario::of(path))?;
    of(&trace, path).map_err(|why| NoScenario::of(path)(Problem::Derive(why)))
}

/// The same of one that was read.
fn of(trace: &Trace, path: &Path) -> Result<Derived, String> {
    let name = stem(path);
    let phases = find(trace);
    if phases.len() > MOST_PHASES {
        return Err(format!("{} phases, and {MOST_PHASES} are the most that a scenario has", phases.len()));
    }
    let began = phases.first().map_or(0, |p| p.began);
    if phases.iter().any(|p| p.ended - began > LONGEST_RUN) {
        return Err("its calls are more than a year apart".into());
    }
    let scenario =
        derive::derive(&phases, &name, hosts(trace)).map_err(|why| match trace.header.missing() {
            Some(missing) => format!("{why} ({missing})"),
            None => why,
        })?;
    let found = text::found(trace, &phases);
    let comment = format!("Derived from the trace {name} of a run of\n  {}\n{found}", trace.header.command);
    Ok(Derived { file: path.to_owned(), scenario, comment, found })
}

/// On how many hosts the processes ran.
fn hosts(trace: &Trace) -> u32 {
    let named = trace.header.processes.iter().map(|p| &p.host).filter(|host| !host.is_empty());
    named.collect::<BTreeSet<_>>().len() as u32
}

/// Whoever acts as one: a rank of a parallel program with all that it starts, or else a process of a host, whatever
/// programs it becomes.
fn actors(processes: &[Process]) -> Vec<u32> {
    let mut known = HashMap::new();
    let who = |p: &Process| match p.rank {
        Some(rank) => (String::new(), rank, true),
        None => (p.host.clone(), p.pid, false),
    };
    let mut number = |p| {
        let next = known.len() as u32;
        *known.entry(who(p)).or_insert(next)
    };
    processes.iter().map(&mut number).collect()
}

fn find(trace: &Trace) -> Vec<Phase> {
    let actors = actors(&trace.header.processes);
    let moves = |call: Call| matches!(call, Call::Read | Call::Write | Call::Sync);
    let mut calls: Vec<ActorsCall> = trace
        .records
        .iter()
        .filter(|r| moves(r.call))
        .filter_map(|r| Some(ActorsCall { by: *actors.get(r.process as usize)?, record: *r }))
        .collect();
    calls.sort_by_key(|made| (made.record.began, made.record.process));
    let times: Vec<_> =
        calls.iter().map(|m| (m.record.began, m.record.began.saturating_add(m.record.nanos))).collect();
    let phase = |range: std::ops::Range<usize>| {
        let began = times[range.start].0;
        let ended = times[range.clone()].iter().map(|t| t.1).max().unwrap_or(began);
        Phase { began, ended, groups: groups(&calls[range]) }
    };
    let mut found: Vec<Phase> = phases::phases(&times).into_iter().map(phase).collect();
    found.retain(|phase| !phase.groups.is_empty());
    found
}
