//! Options with a range: what is outside is refused with the range it must be in, before anything
//! starts.

use std::ops::RangeInclusive;
use std::time::Duration;

/// The longest time any option takes: a day.
const DAY: f64 = 86_400.0;

/// A number within `range`.
pub(crate) fn number(
    range: RangeInclusive<f64>,
) -> impl Fn(&str) -> Result<f64, String> + Clone + Send + Sync + 'static {
    move |text| {
        let allowed = || format!("give a number from {} to {}", range.start(), range.end());
        text.trim().parse().ok().filter(|n| range.contains(n)).ok_or_else(allowed)
    }
}

/// Seconds, from `least` to a day.
pub(crate) fn seconds(
    least: f64,
) -> impl Fn(&str) -> Result<Duration, String> + Clone + Send + Sync + 'static {
    move |text| number(least..=DAY)(text).map(Duration::from_secs_f64).map_err(|e| format!("{e} seconds"))
}

/// A share of a whole.
pub(crate) fn share(text: &str) -> Result<f64, String> {
    number(0.0..=1.0)(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_outside_is_refused_with_the_range() {
        assert_eq!(share("0.5"), Ok(0.5));
        for bad in ["nan", "-0.1", "1.5", "inf", "", "much"] {
            assert_eq!(share(bad), Err("give a number from 0 to 1".to_owned()), "{bad}");
        }
        assert_eq!(seconds(0.1)("30"), Ok(Duration::from_secs(30)));
        for bad in ["0", "nan", "1e300", "-1"] {
            assert!(seconds(0.1)(bad).unwrap_err().contains("0.1 to 86400 seconds"), "{bad}");
        }
    }
}
