//! From counts to concrete I/O nodes: which ones a job gets, moving as few as possible.

use crate::decision::Decision;
use crate::job::{Job, Pool};
use forebay_types::NodeId;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// The I/O nodes of each job, in the order of `jobs`; none for direct access.
///
/// A job keeps those it holds as far as they are admitted and its count allows. Jobs get I/O nodes
/// of their own as long as there are any; a decision that hands out more than there are (ONE or
/// STATIC on a small pool) makes the later jobs share the least used ones. Jobs that are to share are
/// spread over all I/O nodes that nobody has for himself, as evenly as can be.
pub fn place(decision: &Decision, jobs: &[Job], pool: &Pool) -> Vec<Vec<NodeId>> {
    let mut users: BTreeMap<NodeId, u32> = pool.admitted().map(|n| (n, 0)).collect();
    let mut placed: Vec<Vec<NodeId>> = vec![Vec::new(); jobs.len()];

    // First who is named or stays, so that nobody is moved from a node that a newcomer then takes;
    // then who shares; then who has shared and is to have some of its own, where it is if that is left.
    keep(decision, jobs, &mut users, &mut placed, false);
    share(decision, jobs, &mut users, &mut placed);
    keep(decision, jobs, &mut users, &mut placed, true);
    // Then the rest, from the least used; each job's nodes are different ones.
    let mut by_use: BTreeSet<(u32, NodeId)> = users.iter().map(|(&n, &c)| (c, n)).collect();
    for (chosen, nodes) in decision.jobs.iter().zip(&mut placed) {
        let missing = (chosen.io_nodes as usize).saturating_sub(nodes.len());
        if chosen.shared || missing == 0 {
            continue;
        }
        let more: Vec<_> = by_use.iter().filter(|(_, n)| !nodes.contains(n)).take(missing).copied().collect();
        for (count, node) in more {
            by_use.remove(&(count, node));
            by_use.insert((count + 1, node));
            nodes.push(node);
        }
    }
    placed
}

/// The I/O nodes a job holds.
fn held(job: &Job) -> &[NodeId] {
    job.current.as_ref().map_or(&[][..], |c| &c.nodes)
}

/// Jobs with I/O nodes of their own keep those they hold and nobody has taken: those that have shared
/// until now, or the others and those for whom the policy has chosen.
fn keep(
    decision: &Decision,
    jobs: &[Job],
    users: &mut BTreeMap<NodeId, u32>,
    placed: &mut [Vec<NodeId>],
    have_shared: bool,
) {
    // What is named for one job is left by the others.
    for named in [true, false] {
        for ((job, chosen), nodes) in jobs.iter().zip(&decision.jobs).zip(placed.iter_mut()) {
            let did_share = chosen.nodes.is_none() && job.current.as_ref().is_some_and(|c| c.shared);
            if chosen.shared || did_share != have_shared || chosen.nodes.is_some() != named {
                continue;
            }
            let wanted = chosen.nodes.as_deref().unwrap_or(held(job));
            for &node in wanted.iter().take(chosen.io_nodes as usize) {
                if let Some(count) = users.get_mut(&node)
                    && (*count == 0 || named)
                    && !nodes.contains(&node)
                {
                    *count += 1;
                    nodes.push(node);
                }
            }
        }
    }
}

/// Spreads the jobs that share over the I/O nodes that the others do not need.
fn share(decision: &Decision, jobs: &[Job], users: &mut BTreeMap<NodeId, u32>, placed: &mut [Vec<NodeId>]) {
    let sharing: Vec<usize> = (0..jobs.len()).filter(|&i| decision.jobs[i].shared).collect();
    if sharing.is_empty() {
        return;
    }
    let own = decision.jobs.iter().zip(placed.iter()).filter(|(chosen, _)| !chosen.shared);
    let needed: usize =
        own.map(|(chosen, nodes)| (chosen.io_nodes as usize).saturating_sub(nodes.len())).sum();
    // Those where most of them are come first, those that somebody leaves for its own last.
    let mut at: BTreeMap<NodeId, (usize, usize)> = BTreeMap::new();
    for (job, chosen) in jobs.iter().zip(&decision.jobs) {
        for node in held(job) {
            let (stay, leave) = at.entry(*node).or_default();
            *(if chosen.shared { stay } else { leave }) += 1;
        }
    }
    let mut free: Vec<NodeId> = users.iter().filter(|&(_, &count)| count == 0).map(|(&n, _)| n).collect();
    free.sort_by_key(|n| at.get(n).map_or((Reverse(0), 0, *n), |&(stay, leave)| (Reverse(stay), leave, *n)));
    free.truncate(free.len().saturating_sub(needed).max(1));
    if free.is_empty() {
        free.extend(users.iter().min_by_key(|&(n, count)| (*count, *n)).map(|(&n, _)| n));
    }
    if free.is_empty() {
        return;
    }
    // How many each of them takes.
    let (each, over) = (sharing.len() / free.len(), sharing.len() % free.len());
    let mut room: Vec<(NodeId, usize)> =
        free.iter().enumerate().map(|(k, &n)| (n, each + usize::from(k < over))).collect();
    // Who can stay first, then the others.
    for stays in [true, false] {
        for &i in &sharing {
            let wanted = |n: &NodeId| !stays || held(&jobs[i]).contains(n);
            let here = room.iter_mut().find(|(n, left)| *left > 0 && wanted(n));
            if let Some((node, left)) = here.filter(|_| placed[i].is_empty()) {
                *left -= 1;
                *users.entry(*node).or_default() += 1;
                placed[i].push(*node);
            }
        }
    }
}
