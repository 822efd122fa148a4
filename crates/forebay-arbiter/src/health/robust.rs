//! Medians, and how far values lie from them: one outlier moves neither.

use forebay_types::stats;

/// The median of those that are numbers; `None` of nothing.
pub(super) fn median(mut values: Vec<f64>) -> Option<f64> {
    values.retain(|v| v.is_finite());
    Some(stats::median(&values)).filter(|m| m.is_finite())
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
        fn one_outlier_moves_neither(values in prop::collection::vec(1.0..2.0f64, 5..20), wild in 1e3..1e12f64) {
            let mut all = values;
            all.push(wild);
            let centre = median(all.clone()).unwrap();
            prop_assert!((1.0..=2.0).contains(&centre));
            prop_assert!(deviation(&all, centre) <= 1.4826);
        }
    }
}
