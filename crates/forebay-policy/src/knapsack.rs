//! The multiple-choice knapsack, exactly: one item from each class, total weight within the
//! capacity, largest total value. Dynamic programming over capacities, O(capacity · items), one pass
//! for every capacity up to the largest.
//!
//! Fast enough for 10,000 classes at capacity 1,000 because it is two rolling rows of `f64` and two
//! bytes of pick a cell, in loops without a branch or a bounds check, over classes freed of
//! dominated items (a heavier item that is worth no more).

/// One choice within a class.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Item {
    /// What it takes of the capacity.
    pub weight: u32,
    /// What it is worth.
    pub value: f64,
}

/// Why an instance cannot be solved.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KnapsackError {
    /// A class has nothing to choose from.
    #[error("class {0} has no items")]
    EmptyClass(usize),
    /// The table of picks would not fit in memory.
    #[error(
        "{classes} classes at capacity {capacity} are too many to solve exactly: at most {} cells",
        Knapsack::MAX_CELLS
    )]
    TooLarge {
        /// How many classes.
        classes: usize,
        /// At which capacity.
        capacity: u32,
    },
    /// A class has more undominated items than a pick can name.
    #[error("class {0} has more than 65536 useful items")]
    TooManyItems(usize),
    /// A value is infinite or not a number.
    #[error("class {0} has an item whose value is not finite")]
    NotFinite(usize),
}

/// An instance being put together: classes of items.
#[derive(Clone, Debug, Default)]
pub struct Knapsack {
    /// Undominated items of all classes, one after the other; ascending weight and value in a class.
    items: Vec<Useful>,
    /// Where each class ends in `items`.
    ends: Vec<usize>,
}

#[derive(Clone, Copy, Debug)]
struct Useful {
    weight: u32,
    value: f64,
    /// The caller's number of this item within its class.
    original: u32,
}

impl Knapsack {
    /// The largest table of picks, in cells of two bytes.
    pub const MAX_CELLS: u64 = 1 << 30;

    /// Adds a class. Among items of equal worth the lightest, then the first, is preferred.
    pub fn class(&mut self, items: impl IntoIterator<Item = Item>) -> Result<(), KnapsackError> {
        let start = self.items.len();
        let added = self.add(start, items);
        if added.is_err() {
            self.items.truncate(start);
        }
        added
    }

    fn add(&mut self, start: usize, items: impl IntoIterator<Item = Item>) -> Result<(), KnapsackError> {
        let class = self.ends.len();
        for (i, item) in items.into_iter().enumerate() {
            if !item.value.is_finite() {
                return Err(KnapsackError::NotFinite(class));
            }
            let original = u32::try_from(i).map_err(|_| KnapsackError::TooManyItems(class))?;
            self.items.push(Useful { weight: item.weight, value: item.value, original });
        }
        let new = &mut self.items[start..];
        if new.is_empty() {
            return Err(KnapsackError::EmptyClass(class));
        }
        new.sort_by(|a, b| a.weight.cmp(&b.weight).then(b.value.total_cmp(&a.value)));
        let mut kept = start;
        for i in start..self.items.len() {
            if kept == start || self.items[i].value > self.items[kept - 1].value {
                self.items[kept] = self.items[i];
                kept += 1;
            }
        }
        self.items.truncate(kept);
        if kept - start > usize::from(u16::MAX) {
            return Err(KnapsackError::TooManyItems(class));
        }
        self.ends.push(kept);
        Ok(())
    }

    /// The smallest capacity at which one item of each class fits.
    pub fn least(&self) -> u64 {
        self.classes().map(|c| u64::from(c[0].weight)).sum()
    }

    fn classes(&self) -> impl Iterator<Item = &[Useful]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, &end)| &self.items[start..end])
    }

    /// Solves for every capacity from 0 to `capacity`.
    pub fn solve(&self, capacity: u32) -> Result<Solved<'_>, KnapsackError> {
        // Beyond everyone's heaviest item more capacity changes nothing.
        let most: u64 = self.classes().map(|c| u64::from(c[c.len() - 1].weight)).sum();
        let capacity = u32::try_from(most).map_or(capacity, |m| m.min(capacity));
        let width = capacity as usize + 1;
        if (width as u64).saturating_mul(self.ends.len() as u64) > Self::MAX_CELLS {
            return Err(KnapsackError::TooLarge { classes: self.ends.len(), capacity });
        }
        let mut picks = vec![0u16; width * self.ends.len()];
        let mut before = vec![0.0f64; width];
        let mut row = vec![f64::NEG_INFINITY; width];
        for (class, picks) in self.classes().zip(picks.chunks_exact_mut(width)) {
            row.fill(f64::NEG_INFINITY);
            for (i, item) in class.iter().enumerate() {
                let weight = item.weight as usize;
                if weight >= width {
                    break;
                }
                let number = i as u16;
                let cells = row[weight..].iter_mut().zip(&mut picks[weight..]);
                for ((best, pick), &rest) in cells.zip(&before[..width - weight]) {
                    let value = rest + item.value;
                    let better = value > *best;
                    *best = if better { value } else { *best };
                    *pick = if better { number } else { *pick };
                }
            }
            std::mem::swap(&mut before, &mut row);
        }
        Ok(Solved { instance: self, picks, best: before })
    }
}

/// The optimum at every capacity.
#[derive(Clone, Debug)]
pub struct Solved<'a> {
    instance: &'a Knapsack,
    picks: Vec<u16>,
    best: Vec<f64>,
}

impl Solved<'_> {
    /// The largest total value within `capacity`; `None` where no choice fits.
    pub fn best(&self, capacity: u32) -> Option<f64> {
        let best = self.best[(capacity as usize).min(self.best.len() - 1)];
        (best > f64::NEG_INFINITY).then_some(best)
    }

    /// The item taken from each class (the caller's numbers) for that total, at the least weight
    /// that reaches it; `None` where no choice fits.
    pub fn picks(&self, capacity: u32) -> Option<Vec<usize>> {
        let best = self.best(capacity)?;
        let width = self.best.len();
        let mut left = self.best.partition_point(|&b| b < best);
        let mut chosen = vec![0; self.instance.ends.len()];
        for (class, items) in self.instance.classes().enumerate().collect::<Vec<_>>().into_iter().rev() {
            let item = items[usize::from(self.picks[class * width + left])];
            chosen[class] = item.original as usize;
            left -= item.weight as usize;
        }
        Some(chosen)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn build(classes: &[Vec<(u32, f64)>]) -> Knapsack {
        let mut k = Knapsack::default();
        for c in classes {
            k.class(c.iter().map(|&(weight, value)| Item { weight, value })).unwrap();
        }
        k
    }

    /// Every combination, one by one.
    fn brute(classes: &[Vec<(u32, f64)>], capacity: u32) -> Option<f64> {
        match classes.split_first() {
            None => Some(0.0),
            Some((first, rest)) => first
                .iter()
                .filter(|&&(w, _)| w <= capacity)
                .filter_map(|&(w, v)| brute(rest, capacity - w).map(|b| b + v))
                .max_by(f64::total_cmp),
        }
    }

    proptest! {
        #[test]
        fn equals_enumeration_at_every_capacity(
            classes in prop::collection::vec(prop::collection::vec((0u32..9, -50i32..200), 1..5), 0..6),
        ) {
            // Whole numbers, so that sums are exact whatever their order.
            let classes: Vec<Vec<(u32, f64)>> =
                classes.iter().map(|c| c.iter().map(|&(w, v)| (w, f64::from(v))).collect()).collect();
            let k = build(&classes);
            let solved = k.solve(40).unwrap();
            for capacity in 0..=45 {
                let expected = brute(&classes, capacity);
                prop_assert_eq!(solved.best(capacity), expected);
                let picks = solved.picks(capacity);
                prop_assert_eq!(picks.is_some(), expected.is_some());
                if let Some(picks) = picks {
                    let taken: Vec<_> = classes.iter().zip(&picks).map(|(c, &i)| c[i]).collect();
                    prop_assert!(taken.iter().map(|t| t.0).sum::<u32>() <= capacity);
                    prop_assert_eq!(Some(taken.iter().map(|t| t.1).sum::<f64>()), expected);
                }
            }
        }
    }

    #[test]
    fn of_equal_totals_the_lightest_is_taken() {
        let k = build(&[vec![(4, 10.0), (2, 10.0), (2, 10.0)], vec![(0, 5.0), (1, 5.0)]]);
        assert_eq!(k.solve(8).unwrap().picks(8), Some(vec![1, 0]));
    }

    #[test]
    fn hostile_instances_are_errors() {
        let mut k = Knapsack::default();
        assert_eq!(k.class([]), Err(KnapsackError::EmptyClass(0)));
        assert_eq!(k.class([Item { weight: 1, value: f64::NAN }]), Err(KnapsackError::NotFinite(0)));
        let mut k = Knapsack::default();
        for _ in 0..3 {
            k.class([Item { weight: 0, value: 0.0 }, Item { weight: u32::MAX, value: 1.0 }]).unwrap();
        }
        assert!(matches!(k.solve(u32::MAX), Err(KnapsackError::TooLarge { .. })));
    }
}
