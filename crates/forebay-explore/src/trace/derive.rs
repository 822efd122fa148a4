//! From the phases of a trace to a scenario that does the like.

use super::Phase;
use super::groups::Group;
use crate::derived::{parts, scenario};
use crate::scenario::{
    Data, Fsync, Job, Layout, MAX_PROCESSES, Operation, Scenario, SizeShare, Step, Target,
};
use std::collections::BTreeSet;
use std::time::Duration;

/// A pause in which nobody does I/O is not measured: of a longer one so much is kept.
pub(super) const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// The files of a group that others may use again: by whom, and under which name in the scenario.
struct Named {
    layout: Layout,
    processes: u32,
    files: BTreeSet<u32>,
    path: String,
}

/// A scenario with the phases' processes, bytes, sizes and order, and the pauses between them. Phases of other numbers
/// of processes are other jobs, each of which waits for its time. `hosts`: on how many the processes ran.
pub(super) fn derive(phases: &[Phase], name: &str, hosts: u32) -> Result<Scenario, String> {
    let mut jobs: Vec<(Job, Duration)> = Vec::new();
    let mut named: Vec<Named> = Vec::new();
    let mut at = Duration::ZERO;
    for (i, phase) in phases.iter().enumerate() {
        if let Some(before) = i.checked_sub(1).map(|b| &phases[b]) {
            at += pause(before, phase).min(LONGEST_PAUSE);
        }
        let end = at + Duration::from_nanos(phase.ended.saturating_sub(phase.began));
        for group in &phase.groups {
            let processes = processes(group);
            let path = path_of(&mut named, group, processes, name);
            let found = jobs.iter().position(|(job, _)| job.processes() == processes);
            let which = found.unwrap_or_else(|| {
                jobs.push((new_job(processes, hosts, at), at));
                jobs.len() - 1
            });
            let (job, until) = &mut jobs[which];
            if at > *until {
                job.steps.push(Step::Think(at - *until));
            }
            job.steps.extend(steps(group, processes, &path));
            *until = end;
        }
        at = end;
    }
    let jobs: Vec<Job> = jobs.into_iter().map(|(job, _)| job).filter(|job| !job.steps.is_empty()).collect();
    if jobs.is_empty() {
        return Err("the trace has no reads or writes in it".into());
    }
    let scenario = scenario(name, jobs);
    scenario.check().map(|()| scenario)
}

/// The time between two phases.
pub(super) fn pause(before: &Phase, after: &Phase) -> Duration {
    Duration::from_nanos(after.began.saturating_sub(before.ended))
}

/// No more processes than requests: each must have one.
pub(super) fn processes(group: &Group) -> u32 {
    let all = (group.by.len() as u64).min(group.requests).min(group.bytes);
    u32::try_from(all).unwrap_or(u32::MAX).clamp(1, MAX_PROCESSES)
}

fn new_job(processes: u32, hosts: u32, delay: Duration) -> Job {
    // On one host nothing is told of which process would have which I/O node: each is let have its own.
    let even = hosts > 1 && processes.is_multiple_of(hosts);
    Job {
        name: format!("processes{processes}"),
        compute_nodes: if even { hosts } else { processes },
        processes_per_node: if even { processes / hosts } else { 1 },
        delay,
        steps: Vec::new(),
    }
}

/// What is read again is what was written, where the same processes use the same files.
fn path_of(named: &mut Vec<Named>, group: &Group, processes: u32, name: &str) -> String {
    let same = |n: &&mut Named| {
        n.layout == group.layout && n.processes == processes && !n.files.is_disjoint(&group.files)
    };
    if let Some(known) = named.iter_mut().find(same) {
        known.files.extend(&group.files);
        return known.path.clone();
    }
    let label = if group.layout == Layout::Shared { "shared" } else { "own" };
    let path = format!("{name}-{label}{}", named.iter().filter(|n| n.layout == group.layout).count() + 1);
    let files = group.files.clone();
    named.push(Named { layout: group.layout, processes, files, path: path.clone() });
    path
}

fn steps(group: &Group, processes: u32, path: &str) -> Vec<Step> {
    let step = |(total_size, mut sizes): (u64, Vec<SizeShare>)| {
        if let [only] = &mut sizes[..] {
            only.weight = 1.0;
        }
        Step::Data(Data {
            target: Target { path: path.to_owned(), layout: group.layout, direct_io: false },
            read_share: match group.operation {
                Operation::Read => 1.0,
                Operation::Mixed => group.read_share,
                _ => 0.0,
            },
            spatiality: group.spatiality,
            total_size,
            sizes,
            think: Duration::ZERO,
            stone_wall: Duration::ZERO,
            validation: false,
            fsync: fsync(group),
        })
    };
    parts(group.bytes, group.sizes.clone(), processes.into()).into_iter().map(step).collect()
}

/// After every write, or once for each process and file.
pub(super) fn fsync(group: &Group) -> Fsync {
    let writes = group.requests as f64 * (1.0 - group.read_share);
    match group.syncs as f64 {
        0.0 => Fsync::Never,
        n if n >= 0.5 * writes && group.syncs > group.by.len() as u64 => Fsync::Each,
        _ => Fsync::End,
    }
}
