//! Which runs, in which order.

use crate::scenario::Scenario;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use std::collections::HashSet;

/// One run: a scenario with so many I/O nodes, once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Run {
    /// Index of the scenario.
    pub scenario: usize,
    /// I/O nodes; 0 is direct access.
    pub io_nodes: u32,
    /// From 1.
    pub repetition: u32,
}

/// How many runs [`plan`] would make, were none done.
pub fn runs(scenarios: &[Scenario], io_nodes: Option<&[u32]>, repetitions: Option<u32>) -> u64 {
    let of = |s: &Scenario| counts(s, io_nodes).len() as u64 * u64::from(times(s, repetitions));
    scenarios.iter().map(of).sum()
}

fn counts<'a>(s: &'a Scenario, io_nodes: Option<&'a [u32]>) -> &'a [u32] {
    match io_nodes {
        Some(counts) => counts,
        None if s.io_nodes.is_empty() => &DEFAULT_IO_NODES,
        None => &s.io_nodes,
    }
}

fn times(s: &Scenario, repetitions: Option<u32>) -> u32 {
    repetitions.or(s.repetitions).unwrap_or(DEFAULT_REPETITIONS)
}

/// All runs of the scenarios that are not `done` (by scenario name, I/O nodes and repetition). What
/// a scenario says of its I/O nodes and repetitions gives way to the command line's `io_nodes` and
/// `repetitions`. Scenarios that want a random order are mixed with each other.
pub fn plan(
    scenarios: &[Scenario],
    io_nodes: Option<&[u32]>,
    repetitions: Option<u32>,
    seed: u64,
    done: &HashSet<(String, u32, u32)>,
) -> Vec<Run> {
    let (mut mixed, mut given) = (Vec::new(), Vec::new());
    for (index, s) in scenarios.iter().enumerate() {
        let into = if s.shuffle { &mut mixed } else { &mut given };
        for repetition in 1..=times(s, repetitions) {
            for &n in counts(s, io_nodes) {
                if !done.contains(&(s.name.clone(), n, repetition)) {
                    into.push(Run { scenario: index, io_nodes: n, repetition });
                }
            }
        }
    }
    mixed.shuffle(&mut rand_chacha::ChaCha8Rng::seed_from_u64(seed));
    mixed.extend(given);
    mixed
}

/// The numbers of I/O nodes of the FORGE study.
const DEFAULT_IO_NODES: [u32; 5] = [0, 1, 2, 4, 8];
const DEFAULT_REPETITIONS: u32 = 5;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::native;

    #[test]
    fn every_run_once_but_not_what_is_done() {
        let text = "phase = [{ operation = \"think\" }]\nio_nodes = [0, 2]\nrepetitions = 3";
        let scenarios = native::parse(text, "a").unwrap();
        let runs = plan(&scenarios, None, None, 1, &HashSet::new());
        assert_eq!(runs.len(), 6);
        assert_eq!(runs.iter().collect::<HashSet<_>>().len(), 6);
        assert_ne!(runs, plan(&scenarios, None, None, 2, &HashSet::new()));
        let done = HashSet::from([("a".to_owned(), 2, 1)]);
        let rest = plan(&scenarios, None, None, 1, &done);
        assert_eq!(rest.len(), 5);
        assert!(!rest.contains(&Run { scenario: 0, io_nodes: 2, repetition: 1 }));
        assert_eq!(plan(&scenarios, Some(&[0, 1, 4]), Some(2), 1, &done).len(), 6);
        let given = native::parse(&format!("order = \"given\"\n{text}"), "a").unwrap();
        let runs = plan(&given, None, None, 1, &HashSet::new());
        assert!(runs.is_sorted_by_key(|r| (r.repetition, r.io_nodes)));
    }
}
