//! Is a history linearizable? The question of Wing and Gong, answered as Lowe does: the history is gone
//! through in the order of its events, with the set of all states in which the object may be and of the
//! operations under way that have taken effect in them; when an operation returns, the states in which it
//! cannot have taken effect yet are dropped. When none is left, there is no order that explains what was
//! seen.

use std::collections::HashSet;
use std::hash::Hash;

/// More configurations than this are not looked at.
const MOST: usize = 200_000;
/// More operations are not under way at the same time.
const WIDEST: usize = 128;

/// An object, one operation after the other.
pub(super) trait Model {
    /// What it is in.
    type State: Clone + Eq + Hash;
    /// An operation, with what it returned.
    type Op;
    /// The state after `op`, if that can return in `state` what it did.
    fn step(state: &Self::State, op: &Self::Op) -> Option<Self::State>;
    /// Whether it changes nothing, whatever it returned.
    fn only_looks(op: &Self::Op) -> bool;
}

/// An operation in a history.
#[derive(Clone, Debug)]
pub(super) struct Call<O> {
    /// When it was called.
    pub(super) begun: u64,
    /// When it returned; `None` if nobody knows whether it took effect, or will.
    pub(super) ended: Option<u64>,
    /// It may as well have had no effect by then.
    pub(super) optional: bool,
    /// What it was.
    pub(super) op: O,
}

/// What was found.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// There is an order that explains everything.
    Linearizable,
    /// There is none; as soon as the call of this index returned.
    Broken(usize),
    /// Too many possibilities.
    Unjudged,
}

/// A configuration: a state, and which of the calls under way (by their places) have taken effect in it.
type Config<S> = (S, u128);

/// Judges a history that begins in `start`.
pub(super) fn judge<M: Model>(start: &M::State, calls: &[Call<M::Op>]) -> Verdict {
    // A return at the same moment as a call comes after it: they overlap.
    let mut events: Vec<(u64, bool, usize)> = Vec::with_capacity(2 * calls.len());
    for (i, c) in calls.iter().enumerate() {
        events.push((c.begun, false, i));
        events.extend(c.ended.map(|at| (at, true, i)));
    }
    events.sort_unstable();
    let mut places: Vec<Option<usize>> = Vec::new();
    let mut configs: HashSet<Config<M::State>> = HashSet::from([(start.clone(), 0)]);
    for (_, returns, i) in events {
        if !returns {
            match places.iter().position(Option::is_none) {
                Some(free) => places[free] = Some(i),
                None if places.len() < WIDEST => places.push(Some(i)),
                None => return Verdict::Unjudged,
            }
            continue;
        }
        let Some(place) = places.iter().position(|p| *p == Some(i)) else { continue };
        if calls[i].optional {
            let Some(with) = effective::<M>(&configs, calls, &places, place) else {
                return Verdict::Unjudged;
            };
            configs.retain(|(_, effect)| effect & 1 << place == 0);
            configs.extend(with);
            places[place] = None;
            continue;
        }
        let Some(next) = effective::<M>(&configs, calls, &places, place) else { return Verdict::Unjudged };
        if next.is_empty() {
            return Verdict::Broken(i);
        }
        configs = next;
        places[place] = None;
    }
    Verdict::Linearizable
}

/// All configurations in which the call at `place` has taken effect, and is under way no more.
fn effective<M: Model>(
    configs: &HashSet<Config<M::State>>,
    calls: &[Call<M::Op>],
    places: &[Option<usize>],
    place: usize,
) -> Option<HashSet<Config<M::State>>> {
    let mut found = HashSet::new();
    let mut seen: HashSet<Config<M::State>> = configs.clone();
    let mut open: Vec<Config<M::State>> = configs.iter().cloned().collect();
    while let Some((state, effect)) = open.pop() {
        if effect & 1 << place != 0 {
            found.insert((state, effect & !(1 << place)));
            continue;
        }
        for (other, call) in places.iter().enumerate() {
            let Some(call) = call.filter(|_| effect & 1 << other == 0) else { continue };
            if let Some(after) = M::step(&state, &calls[call].op) {
                let config = (after, effect | 1 << other);
                if seen.insert(config.clone()) {
                    open.push(config);
                }
            }
        }
        if seen.len() > MOST {
            return None;
        }
    }
    Some(found)
}

/// The smallest part of a broken history found that is broken too: without what came later, and without
/// every look that is not needed. Leaving out looks makes no history worse.
pub(super) fn shrink<M: Model>(start: &M::State, calls: &[Call<M::Op>], broken: usize) -> Vec<Call<M::Op>>
where
    M::Op: Clone,
{
    let Some(end) = calls[broken].ended else { return Vec::new() };
    let mut left: Vec<Call<M::Op>> = calls.iter().filter(|c| c.begun <= end).cloned().collect();
    let is_broken = |part: &[Call<M::Op>]| matches!(judge::<M>(start, part), Verdict::Broken(_));
    // In halves, quarters, … first: most looks have nothing to do with it.
    let mut size = left.len();
    while size > 0 {
        let mut at = 0;
        while at < left.len() {
            let until = (at + size).min(left.len());
            let kept = |(i, c): &(usize, &Call<M::Op>)| !(at..until).contains(i) || !M::only_looks(&c.op);
            let smaller: Vec<Call<M::Op>> =
                left.iter().enumerate().filter(kept).map(|(_, c)| c.clone()).collect();
            if smaller.len() < left.len() && is_broken(&smaller) {
                left = smaller;
            } else {
                at = until;
            }
        }
        size /= 2;
    }
    left
}

#[cfg(test)]
mod tests {
    use super::super::models::{Names, NamesOp, Register, RegisterOp};
    use super::*;
    use RegisterOp::{Read, Write};

    fn call<O>(begun: u64, ended: u64, op: O) -> Call<O> {
        Call { begun, ended: Some(ended), optional: false, op }
    }

    fn lost<O>(begun: u64, op: O) -> Call<O> {
        Call { begun, ended: None, optional: false, op }
    }

    fn register(calls: &[Call<RegisterOp>]) -> Verdict {
        judge::<Register>(&0, calls)
    }

    /// Every order of every subset of what may be left out, tried one by one: slow, and surely right.
    fn by_force<M: Model>(state: &M::State, calls: &[Call<M::Op>], left: u32) -> bool {
        let is = |i: usize| left & 1 << i != 0;
        if (0..calls.len()).all(|i| !is(i) || calls[i].ended.is_none()) {
            return true;
        }
        let first_end = (0..calls.len()).filter(|&i| is(i)).filter_map(|i| calls[i].ended).min();
        (0..calls.len()).filter(|&i| is(i)).any(|i| {
            first_end.is_none_or(|end| calls[i].begun <= end)
                && M::step(state, &calls[i].op)
                    .is_some_and(|after| by_force::<M>(&after, calls, left & !(1 << i)))
        })
    }

    #[test]
    fn histories_that_have_an_order() {
        assert_eq!(register(&[]), Verdict::Linearizable);
        assert_eq!(register(&[call(0, 1, Write(1)), call(2, 3, Read(1))]), Verdict::Linearizable);
        // Herlihy and Wing: a read that overlaps a write may see either.
        let both = [call(0, 10, Write(1)), call(1, 2, Read(0)), call(3, 4, Read(1))];
        assert_eq!(register(&both), Verdict::Linearizable);
        // One that failed took effect later than it was told.
        assert_eq!(
            register(&[lost(0, Write(1)), call(5, 6, Read(0)), call(7, 8, Read(1))]),
            Verdict::Linearizable
        );
        assert_eq!(register(&[lost(0, Write(1)), call(5, 6, Read(0))]), Verdict::Linearizable, "or never");
        assert_eq!(register(&[call(0, 5, Write(1)), call(5, 6, Read(0))]), Verdict::Linearizable);
    }

    #[test]
    fn histories_that_have_none() {
        assert_eq!(register(&[call(0, 1, Read(7))]), Verdict::Broken(0), "never written");
        let stale = [call(0, 1, Write(1)), call(2, 3, Write(2)), call(4, 5, Read(1))];
        assert_eq!(register(&stale), Verdict::Broken(2));
        // Two readers that see two writes in different orders.
        let torn = [
            call(0, 20, Write(1)),
            call(0, 20, Write(2)),
            call(1, 2, Read(1)),
            call(3, 4, Read(2)),
            call(5, 6, Read(1)),
        ];
        assert!(matches!(register(&torn), Verdict::Broken(_)));
        // An old write that lands over a newer one.
        let late = [call(0, 1, Write(1)), call(2, 3, Write(2)), call(4, 5, Read(2)), call(6, 7, Read(1))];
        assert_eq!(register(&late), Verdict::Broken(3));
        // Seen, and then not seen any more.
        let back = [call(0, 10, Write(1)), call(1, 2, Read(1)), call(3, 4, Read(0))];
        assert_eq!(register(&back), Verdict::Broken(2));
    }

    #[test]
    fn what_is_optional_has_effect_by_its_end_or_never() {
        let twice = |ended| Call { optional: true, ..call(0, ended, Write(1)) };
        let history = |ended| {
            [
                call(0, ended, Write(1)),
                twice(ended),
                call(1, 2, Read(1)),
                call(3, 4, Write(2)),
                call(5, 6, Read(2)),
                call(7, 8, Read(1)),
            ]
        };
        assert_eq!(register(&history(10)), Verdict::Linearizable, "carried out twice while under way");
        assert!(matches!(register(&history(4)), Verdict::Broken(5)), "not after it was answered");
        let none = [call(0, 1, Write(1)), twice(1), call(3, 4, Write(2)), call(5, 6, Read(2))];
        assert_eq!(register(&none), Verdict::Linearizable);
    }

    #[test]
    fn two_cannot_make_the_same_name() {
        let make = |value| NamesOp::Make { name: 0, value, made: true };
        let both = [call(0, 5, make(1)), call(1, 6, make(2))];
        assert!(matches!(judge::<Names>(&[None, None], &both), Verdict::Broken(_)));
        let removed = NamesOp::Remove { name: 0, removed: true };
        let between = [call(0, 5, make(1)), call(1, 6, make(2)), call(1, 6, removed)];
        assert_eq!(judge::<Names>(&[None, None], &between), Verdict::Linearizable);
        let moved = [
            call(0, 1, make(1)),
            call(2, 3, NamesOp::Rename { from: 0, moved: true }),
            call(4, 5, NamesOp::Look { name: 1, value: Some(1) }),
            call(4, 5, NamesOp::Look { name: 0, value: None }),
        ];
        assert_eq!(judge::<Names>(&[None, None], &moved), Verdict::Linearizable);
        let twice = [call(0, 1, make(1)), call(2, 3, removed), call(4, 5, removed)];
        assert_eq!(judge::<Names>(&[None, None], &twice), Verdict::Broken(2));
    }

    #[test]
    fn a_timeline_is_made_small() {
        let mut calls = Vec::new();
        for i in 0..200u64 {
            calls.push(call(10 * i, 10 * i + 4, Write(i + 1)));
            calls.push(call(10 * i + 5, 10 * i + 9, Read(i + 1)));
        }
        calls[301].op = Read(3);
        let Verdict::Broken(at) = register(&calls) else { panic!("it is broken") };
        assert_eq!(at, 301);
        let small = shrink::<Register>(&0, &calls, at);
        assert_eq!(small.iter().filter(|c| Register::only_looks(&c.op)).count(), 1);
        assert!(matches!(register(&small), Verdict::Broken(_)));
    }

    #[test]
    fn says_the_same_as_trying_every_order() {
        let (mut good, mut bad, mut n) = (0, 0, 1u64);
        let mut random = |below: u64| {
            n = n.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (n >> 33) % below
        };
        for _ in 0..20_000 {
            let calls: Vec<Call<RegisterOp>> = (0..2 + random(6))
                .map(|i| {
                    let begun = random(30);
                    let op = if random(2) == 0 { Write(i + 1) } else { Read(random(6)) };
                    let writes = matches!(op, Write(_));
                    let ended = (!writes || random(5) > 0).then(|| begun + 1 + random(12));
                    Call { begun, ended, optional: false, op }
                })
                .collect();
            let expected = by_force::<Register>(&0, &calls, (1 << calls.len()) - 1);
            assert_eq!(register(&calls) == Verdict::Linearizable, expected, "{calls:?}");
            if expected { good += 1 } else { bad += 1 }
        }
        assert!(good > 1000 && bad > 1000, "{good} {bad}");
    }
}
