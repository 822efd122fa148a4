//! Medians and quantiles of samples.

/// The `q` quantile with linear interpolation (type 7, as R, NumPy and GSL do it); `NaN` of nothing.
pub fn quantile(samples: &[f64], q: f64) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let Some(last) = sorted.len().checked_sub(1) else { return f64::NAN };
    let at = q.clamp(0.0, 1.0) * last as f64;
    let (i, part) = (at.floor() as usize, at.fract());
    if i == last { sorted[last] } else { sorted[i] + (sorted[i + 1] - sorted[i]) * part }
}

/// The median; `NaN` of nothing.
pub fn median(samples: &[f64]) -> f64 {
    quantile(samples, 0.5)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn as_numpy_has_them() {
        assert_eq!(quantile(&[4.0, 1.0, 3.0, 2.0], 0.25), 1.75);
        assert_eq!(quantile(&[1.0, 2.0], 1.0), 2.0);
        assert_eq!(median(&[7.0]), 7.0);
        assert!(median(&[]).is_nan());
    }

    proptest! {
        #[test]
        fn the_median_is_that_of_the_sorted_values(values in prop::collection::vec(-1e9..1e9f64, 1..40)) {
            let mut sorted = values.clone();
            sorted.sort_by(f64::total_cmp);
            let n = sorted.len();
            let expected = if n % 2 == 1 { sorted[n / 2] } else { (sorted[n / 2 - 1] + sorted[n / 2]) / 2.0 };
            prop_assert!((median(&values) - expected).abs() <= 1e-6);
        }
    }
}
