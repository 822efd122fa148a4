//! Limits that hold on several I/O nodes, and for several jobs: each place gets what it uses, and those that
//! would use more share the rest. Limits overlap, so what one keeps from a place is left to the others that
//! have a part of another.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// What a limited flow does at one I/O node.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Demand {
    /// What it uses a second, of late.
    pub used: f64,
    /// What it was allowed meanwhile; 0 if it is new.
    pub share: f64,
    /// Whether it would have used more; unknown is told by how much of its share it used.
    pub held: Option<bool>,
    /// It is not to have more, whatever is left.
    pub most: f64,
}

/// One limit.
#[derive(Clone, Debug, PartialEq)]
pub struct Bound {
    /// What its places may have together.
    pub total: f64,
    /// Those, each once, as numbers of demands.
    pub of: Vec<usize>,
}

/// Who uses this part of his share would use more.
const HUNGRY: f64 = 0.95;
/// What others may grow by until they are seen to.
const HEADROOM: f64 = 1.1;
/// Of an equal part of the whole: everybody can begin with something.
const LEAST: f64 = 0.01;

/// What everybody has at least of a limit with so many places.
pub fn least(total: f64, places: usize) -> f64 {
    total / places.max(1) as f64 * LEAST
}

/// What each place may have: all that the limits allow, whatever they use. One that is in no bound has no part.
pub fn divide(bounds: &[Bound], demands: &[Demand]) -> Vec<f64> {
    let mut all = vec![Bounded { bounds: Vec::new(), least: f64::INFINITY }; demands.len()];
    for (i, bound) in bounds.iter().enumerate() {
        for place in &bound.of {
            let place = &mut all[*place];
            place.bounds.push(i);
            place.least = place.least.min(least(bound.total, bound.of.len()));
        }
    }
    let wants = demands.iter().zip(&all).map(|(p, place)| {
        match p.held.unwrap_or(p.used >= p.share * HUNGRY) {
            true => p.most,
            false => (place.least + p.used * HEADROOM).min(p.most),
        }
        .max(place.least.min(p.most))
    });
    let mut left: Vec<f64> = bounds.iter().map(|b| b.total).collect();
    let mut shares = fill(&mut left, bounds, &all, &wants.collect::<Vec<_>>());
    // What nobody asks for goes to all who may have it, in equal parts.
    let room: Vec<f64> = demands.iter().zip(&shares).map(|(p, s)| (p.most - s).max(0.0)).collect();
    for (share, more) in shares.iter_mut().zip(fill(&mut left, bounds, &all, &room)) {
        *share += more;
    }
    shares
}

#[derive(Clone)]
struct Bounded {
    bounds: Vec<usize>,
    least: f64,
}

/// Everybody gets what he wants, those who want much the same, as far as what is `left` of his bounds goes.
fn fill(left: &mut [f64], bounds: &[Bound], places: &[Bounded], wants: &[f64]) -> Vec<f64> {
    let mut filling = Filling {
        left,
        growing: bounds.iter().map(|b| b.of.len()).collect(),
        shares: places.iter().map(|p| p.bounds.is_empty().then_some(0.0)).collect(),
        places,
    };
    let mut order: Vec<usize> = (0..wants.len()).collect();
    order.sort_by(|a, b| wants[*b].total_cmp(&wants[*a]));
    // All grow together, up to what a bound has for each of those that still grow: the lowest is reached first. It
    // can only rise when somebody has enough.
    let mut next: BinaryHeap<Reverse<(u64, usize)>> = BinaryHeap::new();
    next.extend((0..bounds.len()).filter_map(|b| Some(Reverse((filling.each(b)?.to_bits(), b)))));
    while let Some(Reverse((bits, bound))) = next.pop() {
        let level = f64::from_bits(bits);
        while let Some(place) = order.pop_if(|p| wants[*p] <= level) {
            filling.give(place, wants[place]);
        }
        match filling.each(bound) {
            None => {}
            Some(each) if each > level => next.push(Reverse((each.to_bits(), bound))),
            Some(each) => bounds[bound].of.iter().for_each(|place| filling.give(*place, each)),
        }
    }
    filling.shares.into_iter().map(|s| s.unwrap_or(0.0)).collect()
}

struct Filling<'a> {
    left: &'a mut [f64],
    /// How many places of each bound have not got their share yet.
    growing: Vec<usize>,
    shares: Vec<Option<f64>>,
    places: &'a [Bounded],
}

impl Filling<'_> {
    /// What a bound has for each that grows, not negative (so that its bits are in its order); `None` if none does.
    fn each(&self, bound: usize) -> Option<f64> {
        let n = self.growing[bound];
        (n > 0).then(|| (self.left[bound] / n as f64).max(0.0))
    }

    fn give(&mut self, place: usize, share: f64) {
        if self.shares[place].is_none() {
            self.shares[place] = Some(share);
            for b in &self.places[place].bounds {
                self.left[*b] -= share;
                self.growing[*b] -= 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NEW: Demand = Demand { used: 0.0, share: 0.0, held: None, most: f64::INFINITY };

    fn one(total: f64, demands: &[Demand]) -> Vec<f64> {
        divide(&[Bound { total, of: (0..demands.len()).collect() }], demands)
    }

    fn settle(total: f64, demands: &[f64], rounds: usize) -> Vec<f64> {
        let mut places = vec![NEW; demands.len()];
        for _ in 0..rounds {
            let shares = one(total, &places);
            for ((place, share), demand) in places.iter_mut().zip(shares).zip(demands) {
                *place = Demand { used: demand.min(share), share, ..NEW };
            }
        }
        places.iter().map(|p| p.used).collect()
    }

    #[test]
    fn one_that_sends_gets_nearly_all() {
        let used = settle(100.0, &[1e9, 0.0, 0.0, 0.0], 3);
        assert!(used[0] > 95.0, "{used:?}");
        // Those that have what they want keep others from little.
        let used: f64 = settle(100.0, &[19.6, 125.8, 27.2], 12).iter().sum();
        assert!(used > 90.0, "{used}");
        let used = settle(100.0, &[1e9, 20.0, 1e9], 4);
        assert!(used[1] > 19.9 && used[0] > 36.0 && (used[0] - used[2]).abs() < 1e-6, "{used:?}");
        // Who has a limit and begins gets as much as the others.
        let shares = one(20.0, &[Demand { used: 20.0, share: 20.0, held: Some(true), ..NEW }, NEW]);
        assert_eq!(shares, [10.0, 10.0]);
    }

    #[test]
    fn what_another_limit_keeps_from_one_is_left_to_the_others() {
        let hungry = Demand { used: 1.0, share: 1.0, held: Some(true), ..NEW };
        let bound = |total, of: &[usize]| Bound { total, of: of.to_vec() };
        // A user's limit; an application's for two of his jobs; one job's.
        let (user, app, job) = (bound(20.0, &[0, 1, 2]), bound(8.0, &[1, 2]), bound(2.0, &[2]));
        let close = |shares: Vec<f64>, to: [f64; 3]| {
            let off = shares.iter().zip(to).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
            assert!(off < 0.1, "{shares:?}, not {to:?}");
        };
        close(divide(&[user.clone(), app.clone()], &[hungry; 3]), [12.0, 4.0, 4.0]);
        close(divide(&[app.clone(), user.clone(), job.clone()], &[hungry; 3]), [12.0, 6.0, 2.0]);
        close(divide(&[job.clone(), user.clone()], &[hungry; 3]), [9.0, 9.0, 2.0]);
        // Of those that cross, each is kept, and none is left unused while somebody may have it.
        let (left, right) = (bound(6.0, &[0, 1]), bound(10.0, &[1, 2]));
        close(divide(&[left, right], &[hungry; 3]), [3.0, 3.0, 7.0]);
        // One that rests leaves its part, and has what nobody asks for.
        let rests = Demand { used: 0.0, share: 3.0, held: Some(false), ..NEW };
        close(divide(std::slice::from_ref(&user), &[hungry, rests, hungry]), [10.0, 0.0, 10.0]);
        close(divide(&[user, job], &[rests; 3]), [9.0, 9.0, 2.0]);
        let kept = Demand { most: 1.0, ..rests };
        close(divide(&[bound(6.0, &[0, 1])], &[kept, kept, kept]), [1.0, 1.0, 0.0]);
    }

    proptest! {
        #[test]
        fn the_whole_is_given_out_and_no_more(
            total in 1.0f64..1e10,
            places in proptest::collection::vec((0.0f64..1e9, 0.0f64..1e9), 1..40)
        ) {
            let places: Vec<Demand> = places.into_iter().map(|(used, share)| Demand { used, share, ..NEW }).collect();
            let shares = one(total, &places);
            let sum: f64 = shares.iter().sum();
            prop_assert!((sum / total - 1.0).abs() < 1e-9, "{sum} of {total}");
            let least = least(total, places.len());
            prop_assert!(shares.iter().all(|s| *s >= least * 0.999));
        }

        /// Whatever the places want, after a few rounds they use the limit or all they want.
        #[test]
        fn little_is_left_unused(demands in proptest::collection::vec(0.0f64..200.0, 1..12)) {
            let used: f64 = settle(100.0, &demands, 12).iter().sum();
            let possible = demands.iter().sum::<f64>().min(100.0);
            prop_assert!(used >= possible * 0.85, "{used} of {possible}");
        }

        /// However limits overlap, each is kept to, and whoever gets no more is at the end of one of his.
        #[test]
        fn overlapping_limits_hold_and_leave_nothing(
            places in proptest::collection::vec((0.0f64..100.0, 0.0f64..100.0, any::<bool>()), 1..20),
            of in proptest::collection::vec((1.0f64..500.0, proptest::collection::vec(any::<bool>(), 20)), 1..6),
        ) {
            let places: Vec<Demand> = places.into_iter().map(|(used, share, held)| Demand { used, share, held: Some(held), ..NEW }).collect();
            let bounds: Vec<Bound> = of.into_iter().map(|(total, of)| Bound {
                total, of: (0..places.len()).filter(|i| of[*i]).collect()
            }).collect();
            let shares = divide(&bounds, &places);
            let full = |b: &Bound| b.of.iter().map(|i| shares[*i]).sum::<f64>() / b.total;
            prop_assert!(bounds.iter().all(|b| full(b) < 1.0 + 1e-9));
            for i in 0..places.len() {
                let mut own = bounds.iter().filter(|b| b.of.contains(&i)).peekable();
                prop_assert!(own.peek().is_none() && shares[i] == 0.0 || own.any(|b| full(b) > 1.0 - 1e-9), "{} {:?} {:?}", i, bounds, shares);
            }
        }
    }
}
