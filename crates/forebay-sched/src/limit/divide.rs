//! One limit, several I/O nodes: each gets what it uses, and those that would use more share the rest.

/// What a limited flow does at one I/O node.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Demand {
    /// What it uses a second, of late.
    pub used: f64,
    /// What it was allowed meanwhile; 0 if it is new.
    pub share: f64,
    /// Whether it would have used more; unknown is told by how much of its share it used.
    pub held: Option<bool>,
    /// What another limit leaves to it there: more is of no use.
    pub most: f64,
}

/// Who uses this part of his share would use more.
const HUNGRY: f64 = 0.95;
/// What others may grow by until they are seen to.
const HEADROOM: f64 = 1.1;
/// Of an equal part of the whole: everybody can begin with something.
const LEAST: f64 = 0.01;

/// Divides `total` among the I/O nodes: all of it, whatever they use, or as much as other limits allow.
pub fn divide(total: f64, demands: &[Demand]) -> Vec<f64> {
    let n = demands.len();
    if n == 0 {
        return Vec::new();
    }
    let equal = total / n as f64;
    let least = equal * LEAST;
    let new = demands.iter().all(|p| p.share <= 0.0);
    let wants: Vec<f64> = demands
        .iter()
        .map(|p| match p.held.unwrap_or(p.used >= p.share * HUNGRY) || new {
            true => p.most,
            false => (least + p.used * HEADROOM).min(p.most),
        })
        .collect();
    let mut shares = fill(total, &wants, least);
    // What nobody asks for goes to all who may have it, in equal parts.
    let rest = (total - shares.iter().sum::<f64>()).max(0.0);
    let room: Vec<f64> = demands.iter().zip(&shares).map(|(p, s)| (p.most - s).max(0.0)).collect();
    for (share, more) in shares.iter_mut().zip(fill(rest, &room, 0.0)) {
        *share += more;
    }
    shares
}

/// Divides `total` while some who have a part of it are not there to say so: who has one keeps it, and who has
/// none can begin.
pub fn keep(total: f64, parts: &[Option<f64>]) -> Vec<f64> {
    let least = total / parts.len().max(1) as f64 * LEAST;
    parts.iter().map(|p| p.unwrap_or(least)).collect()
}

/// Everybody gets what he wants, those who want much the same: nobody more than he wants, nobody less than
/// `least`, all together `total` at most.
fn fill(total: f64, wants: &[f64], least: f64) -> Vec<f64> {
    let mut shares = vec![0.0; wants.len()];
    let mut order: Vec<usize> = (0..wants.len()).collect();
    order.sort_by(|a, b| wants[*a].total_cmp(&wants[*b]));
    let mut left = total;
    for (done, i) in order.iter().enumerate() {
        let part = left / (order.len() - done) as f64;
        shares[*i] = wants[*i].max(least).min(part);
        left -= shares[*i];
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn settle(total: f64, demands: &[f64], rounds: usize) -> Vec<f64> {
        let mut places =
            vec![Demand { used: 0.0, share: 0.0, held: None, most: f64::INFINITY }; demands.len()];
        for _ in 0..rounds {
            let shares = divide(total, &places);
            for ((place, share), demand) in places.iter_mut().zip(shares).zip(demands) {
                *place = Demand { used: demand.min(share), share, held: None, most: f64::INFINITY };
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
    }

    #[test]
    fn what_another_limit_keeps_from_one_is_left_to_the_others() {
        let hungry = |most| Demand { used: 1.0, share: 1.0, held: Some(true), most };
        let shares = divide(6.0, &[hungry(1.0), hungry(f64::INFINITY)]);
        assert!((shares[0] - 1.0).abs() < 0.1 && (shares[1] - 5.0).abs() < 0.1, "{shares:?}");
        let rests = Demand { used: 0.0, share: 3.0, held: Some(false), most: 1.0 };
        let shares = divide(6.0, &[rests, rests]);
        assert!(shares.iter().all(|s| (s - 1.0).abs() < 1e-9), "more is of no use: {shares:?}");
    }

    #[test]
    fn who_has_a_part_keeps_it_while_others_are_missing() {
        assert_eq!(keep(100.0, &[Some(60.0), None]), [60.0, 0.5]);
        assert!(keep(100.0, &[]).is_empty());
    }

    proptest! {
        #[test]
        fn the_whole_is_given_out_and_no_more(
            total in 1.0f64..1e10,
            places in proptest::collection::vec((0.0f64..1e9, 0.0f64..1e9), 1..40)
        ) {
            let places: Vec<Demand> = places.into_iter().map(|(used, share)| Demand { used, share, held: None, most: f64::INFINITY }).collect();
            let shares = divide(total, &places);
            let sum: f64 = shares.iter().sum();
            prop_assert!((sum / total - 1.0).abs() < 1e-9, "{sum} of {total}");
            let least = total / places.len() as f64 * LEAST;
            prop_assert!(shares.iter().all(|s| *s >= least * 0.999));
        }

        /// Whatever the places want, after a few rounds they use the limit or all they want.
        #[test]
        fn little_is_left_unused(demands in proptest::collection::vec(0.0f64..200.0, 1..12)) {
            let used: f64 = settle(100.0, &demands, 12).iter().sum();
            let possible = demands.iter().sum::<f64>().min(100.0);
            prop_assert!(used >= possible * 0.85, "{used} of {possible}");
        }
    }
}
