//! Medians, and how far values lie from them: one outlier moves neither.

/// The median; `None` of nothing.
pub(super) fn median(mut values: Vec<f64>) -> Option<f64> {
    values.retain(|v| v.is_finite());
    if values.is_empty() {
        return None;
    }
    let middle = values.len() / 2;
    let (below, &mut upper, _) = values.select_nth_unstable_by(middle, f64::total_cmp);
    if below.len() == middle && values.len() % 2 == 1 {
        return Some(upper);
    }
    let lower = values[..middle].iter().copied().max_by(f64::total_cmp).unwrap_or(upper);
    Some((lower + upper) / 2.0)
}

/// The median distance from `centre`, scaled so that it is the standard deviation of a normal
/// distribution; 0 of fewer than three values, which say nothing of their spread.
pub(super) fn deviation(values: &[f64], centre: f64) -> f64 {
    if values.len() < 3 {
        return 0.0;
    }
    1.4826 * median(values.iter().map(|v| (v - centre).abs()).collect()).unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_median_is_that_of_the_sorted_values(values in prop::collection::vec(-1e9..1e9f64, 1..40)) {
            let mut sorted = values.clone();
            sorted.sort_by(f64::total_cmp);
            let n = sorted.len();
            let expected = if n % 2 == 1 { sorted[n / 2] } else { (sorted[n / 2 - 1] + sorted[n / 2]) / 2.0 };
            prop_assert_eq!(median(values), Some(expected));
        }

        #[test]
        fn one_outlier_moves_neither(values in prop::collection::vec(1.0..2.0f64, 5..20), wild in 1e3..1e12f64) {
            let mut all = values;
            all.push(wild);
            let centre = median(all.clone()).unwrap();
            prop_assert!((1.0..=2.0).contains(&centre));
            prop_assert!(deviation(&all, centre) <= 1.4826);
        }
    }
}
