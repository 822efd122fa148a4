//! When a program does I/O: phases, and between them times in which no process does any.

use forebay_types::stats;
use std::ops::Range;

/// A phase ends where nobody does I/O for so many times as long as is usual between its calls…
const TIMES: f64 = 10.0;
/// …and at least for so long, in nanoseconds: processes that start one after the other are one phase.
pub(crate) const LEAST: u64 = 100_000_000;

/// The phases among calls that are in the order in which they began, each from when to when: which calls are one.
pub(crate) fn phases(calls: &[(u64, u64)]) -> Vec<Range<usize>> {
    let mut busy_until = calls.first().map_or(0, |c| c.0);
    // Those that overlap have no pause between them, which is usual, too.
    let pauses: Vec<u64> = calls
        .iter()
        .map(|(began, ended)| {
            let pause = began.saturating_sub(busy_until);
            busy_until = busy_until.max(*ended);
            pause
        })
        .collect();
    let lengths: Vec<f64> = pauses.iter().skip(1).map(|pause| *pause as f64).collect();
    let usual = if lengths.is_empty() { 0.0 } else { stats::median(&lengths) };
    let ends = |pause: u64| pause >= LEAST && pause as f64 >= TIMES * usual;
    let cuts = pauses.iter().enumerate().filter(|(_, pause)| ends(**pause)).map(|(at, _)| at);
    let mut found = Vec::new();
    let mut from = 0;
    for to in cuts.chain([calls.len()]) {
        if to > from {
            found.push(from..to);
            from = to;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn a_phase_ends_where_nobody_does_anything_for_long() {
        // Two processes at a time, a call each 3 ms; then two seconds of nothing; then more.
        let calls: Vec<_> = (0..100).map(|i| if i < 60 { 3 * i } else { 2000 + 3 * i }).collect();
        let calls: Vec<_> = calls.into_iter().flat_map(|at| [(at * MS, (at + 1) * MS); 2]).collect();
        assert_eq!(phases(&calls), [0..120, 120..200]);
        // One that takes long is no pause.
        let mut slow = calls.clone();
        slow[3].1 = 2_200 * MS;
        let one = |calls: &[_]| phases(calls) == [Range { start: 0, end: calls.len() }];
        assert!(one(&slow));
        // A single large one of each process is a phase.
        let single: Vec<_> = [0, 0, 0, 5000, 5000, 5000].map(|at| (at * MS, (at + 900) * MS)).to_vec();
        assert_eq!(phases(&single), [0..3, 3..6]);
        // Slow beats are no phases, however long.
        let beats: Vec<_> = (0..10).map(|i| (i * 1000 * MS, i * 1000 * MS + MS)).collect();
        assert!(one(&beats));
        assert!(phases(&[]).is_empty());
    }

    proptest! {
        #[test]
        fn every_call_is_in_one(mut calls in prop::collection::vec((any::<u64>(), any::<u64>()), 0..50)) {
            calls.sort_unstable();
            let at: Vec<usize> = phases(&calls).into_iter().flatten().collect();
            prop_assert_eq!(at, (0..calls.len()).collect::<Vec<_>>());
        }
    }
}
