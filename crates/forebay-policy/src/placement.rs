//! From counts to concrete I/O nodes: which ones a job gets, moving as few as possible.

use crate::decision::Decision;
use crate::job::{Job, Pool};
use forebay_types::NodeId;
use std::collections::BTreeMap;

/// The I/O nodes of each job, in the order of `jobs`; none for direct access.
///
/// A job keeps those it holds as far as they are admitted and its count allows. Jobs get I/O nodes
/// of their own as long as there are any; a decision that hands out more than there are (ONE or
/// STATIC on a small pool) makes the later jobs share the least used ones.
pub fn place(decision: &Decision, jobs: &[Job], pool: &Pool) -> Vec<Vec<NodeId>> {
    let mut users: BTreeMap<NodeId, u32> = pool.admitted().map(|n| (n, 0)).collect();
    let mut placed: Vec<Vec<NodeId>> = vec![Vec::new(); jobs.len()];

    // First who is named or stays, so that nobody is moved from a node that a newcomer then takes.
    for ((job, chosen), nodes) in jobs.iter().zip(&decision.jobs).zip(&mut placed) {
        let held = job.current.as_ref().filter(|c| c.shared == chosen.shared).map_or(&[][..], |c| &c.nodes);
        let wanted = chosen.nodes.as_deref().unwrap_or(held);
        for &node in wanted.iter().take(chosen.io_nodes as usize) {
            if let Some(count) = users.get_mut(&node)
                && (*count == 0 || chosen.nodes.is_some())
                && !nodes.contains(&node)
            {
                *count += 1;
                nodes.push(node);
            }
        }
    }
    // The I/O node set aside: where sharing jobs already are, else the first free one.
    if decision.jobs.iter().any(|j| j.shared) {
        let held =
            jobs.iter().filter_map(|j| j.current.as_ref()).filter(|c| c.shared).find_map(|c| c.nodes.first());
        let free = |n: &NodeId| users.get(n) == Some(&0);
        let first = users.iter().find(|&(_, &count)| count == 0).map(|(&n, _)| n);
        let set_aside = held.copied().filter(free).or(first).or_else(|| users.keys().next().copied());
        for (chosen, nodes) in decision.jobs.iter().zip(&mut placed) {
            if let Some(node) = set_aside.filter(|_| chosen.shared) {
                *users.entry(node).or_default() += 1;
                nodes.push(node);
            }
        }
    }
    // Then the rest, from the least used; each job's nodes are different ones.
    let mut by_use: std::collections::BTreeSet<(u32, NodeId)> = users.iter().map(|(&n, &c)| (c, n)).collect();
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
