//! A job's bandwidth by the number of I/O nodes it has: measured counts only, never invented ones.

use forebay_types::Bandwidth;
use serde::de::{Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;

/// How far repeated measurements lay apart.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// The slowest repetition.
    pub low: Bandwidth,
    /// The fastest repetition.
    pub high: Bandwidth,
    /// Standard deviation, MB/s.
    pub std_dev: f64,
    /// How many repetitions there were.
    pub samples: u32,
}

/// One measured count of a curve.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// I/O nodes the job had to itself; 0 is direct access.
    pub io_nodes: u32,
    /// What the job got, in the mean.
    pub bandwidth: Bandwidth,
    /// The spread around it, where it is known.
    pub spread: Option<Spread>,
}

/// Why a set of points is no curve.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum CurveError {
    /// No points at all.
    #[error("the curve is empty; leave it out if nothing is known about the job")]
    Empty,
    /// The same count twice.
    #[error("the curve has {0} I/O nodes twice")]
    Duplicate(u32),
    /// A bandwidth that is negative, infinite or not a number.
    #[error("{bandwidth} MB/s at {io_nodes} I/O nodes is not a bandwidth")]
    NotABandwidth {
        /// Where.
        io_nodes: u32,
        /// What was given.
        bandwidth: f64,
    },
}

/// Bandwidth by number of I/O nodes, at the counts that were measured. Serialised as a map,
/// `{"0": 195.7, "1": 77.6}`, in MB/s.
#[derive(Clone, Debug, PartialEq)]
pub struct BandwidthCurve {
    /// Ascending by count; never empty.
    points: Vec<Point>,
}

impl BandwidthCurve {
    /// A curve of these points, in any order.
    pub fn new(points: impl IntoIterator<Item = Point>) -> Result<BandwidthCurve, CurveError> {
        let mut points: Vec<Point> = points.into_iter().collect();
        points.sort_by_key(|p| p.io_nodes);
        if points.is_empty() {
            return Err(CurveError::Empty);
        }
        for p in &points {
            if !p.bandwidth.0.is_finite() || p.bandwidth.0 < 0.0 {
                return Err(CurveError::NotABandwidth { io_nodes: p.io_nodes, bandwidth: p.bandwidth.0 });
            }
        }
        match points.windows(2).find(|w| w[0].io_nodes == w[1].io_nodes) {
            Some(w) => Err(CurveError::Duplicate(w[0].io_nodes)),
            None => Ok(BandwidthCurve { points }),
        }
    }

    /// A curve of `(I/O nodes, MB/s)` pairs without spread.
    pub fn from_pairs(pairs: impl IntoIterator<Item = (u32, f64)>) -> Result<BandwidthCurve, CurveError> {
        BandwidthCurve::new(pairs.into_iter().map(|(io_nodes, mbs)| Point {
            io_nodes,
            bandwidth: Bandwidth(mbs),
            spread: None,
        }))
    }

    /// The points, ascending by count.
    pub fn points(&self) -> &[Point] {
        &self.points
    }

    /// The bandwidth at exactly this count, if it was measured.
    pub fn at(&self, io_nodes: u32) -> Option<Bandwidth> {
        let i = self.points.binary_search_by_key(&io_nodes, |p| p.io_nodes).ok()?;
        Some(self.points[i].bandwidth)
    }
}

impl Serialize for BandwidthCurve {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_map(self.points.iter().map(|p| (p.io_nodes, p.bandwidth)))
    }
}

impl<'de> Deserialize<'de> for BandwidthCurve {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<BandwidthCurve, D::Error> {
        struct Map;
        impl<'de> Visitor<'de> for Map {
            type Value = BandwidthCurve;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map from a number of I/O nodes to MB/s")
            }
            // By hand, because serde's own maps keep the last of two equal keys without a word.
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<BandwidthCurve, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry::<u32, f64>()? {
                    pairs.push(pair);
                }
                BandwidthCurve::from_pairs(pairs).map_err(A::Error::custom)
            }
        }
        d.deserialize_map(Map)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_a_map_and_bad_maps_are_refused() {
        let curve: BandwidthCurve = serde_json::from_str(r#"{"8": 5.5, "0": 1, "2": 3}"#).unwrap();
        assert_eq!(curve.points().iter().map(|p| p.io_nodes).collect::<Vec<_>>(), [0, 2, 8]);
        assert_eq!(serde_json::to_string(&curve).unwrap(), r#"{"0":1.0,"2":3.0,"8":5.5}"#);
        for bad in [
            "{}",
            r#"{"1": 2, "1": 3}"#,
            r#"{"-1": 2}"#,
            r#"{"1": -2}"#,
            r#"{"x": 2}"#,
            "[1]",
            r#"{"1": null}"#,
        ] {
            assert!(serde_json::from_str::<BandwidthCurve>(bad).is_err(), "{bad}");
        }
        assert!(BandwidthCurve::from_pairs([(1, f64::NAN)]).is_err());
    }

    #[test]
    fn only_measured_counts_have_a_bandwidth() {
        let curve = BandwidthCurve::from_pairs([(0, 1.0), (2, 2.0), (4, 3.0)]).unwrap();
        assert_eq!(curve.at(3), None);
        assert_eq!(curve.at(0), Some(Bandwidth(1.0)));
    }
}
