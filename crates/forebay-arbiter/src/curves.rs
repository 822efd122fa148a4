//! Which bandwidth a job has with how many I/O nodes: the explorer's table, corrected by what jobs
//! really got. This is the one place that answers that question.
//!
//! In this order: the scenario of the table that the job names; the nearest scenario to the pattern
//! that was detected (in this run, or in the latest run of the same application at the same scale);
//! nothing. Over that lies what runs of the same application, user, scale and pattern got: a count
//! that was measured moves towards its measurement with every second, the others move along by the
//! same factor on average. Measurements alone make a curve once they cover two counts.
//!
//! Every measurement also counts for its pattern at its scale, whoever the application is: what one
//! job's pattern taught serves the next job of another application with that pattern, as long as that
//! one has no measurements of its own.

use crate::runs::Scale;
use crate::store::Change;
use forebay_policy::{BandwidthCurve, CurveTable, Facts, Scenario, TableError};
use forebay_types::{AccessPattern, Bandwidth, Layout};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Patterns of applications that are remembered.
const MOST: usize = 10_000;

/// What stands before the name of a correction among the learned entries.
const PREFIX: &str = "curve/";

/// The same for a pattern, whatever the application.
const PATTERN_PREFIX: &str = "pattern-curve/";

/// Seconds of measurement that weigh as much as the table.
const PRIOR: f64 = 3.0;

/// The newest second counts at least this much in the mean of a measured count.
const NEWEST: f64 = 0.1;

/// A measurement that moves a curve by less than this is no news.
const NEWS: f64 = 0.1;

/// What a curve is asked for.
#[derive(Clone, Copy, Debug)]
pub struct CurveQuery<'a> {
    /// Application, user, compute nodes.
    pub scale: &'a Scale,
    /// Processes.
    pub processes: u32,
    /// The scenario that the job named.
    pub scenario: Option<&'a str>,
    /// How it uses its files, as seen or as predicted.
    pub shape: Option<&'a AccessPattern>,
}

/// A curve, and where it comes from.
#[derive(Clone, Debug, PartialEq)]
pub struct SourcedCurve {
    /// The curve.
    pub curve: BandwidthCurve,
    /// In a few words.
    pub source: String,
}

/// What was measured at one count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Measured {
    mbs: f64,
    seconds: u32,
}

/// The measured counts of one application, user, scale and pattern.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Correction {
    counts: BTreeMap<u32, Measured>,
    unix_ms: u64,
    #[serde(skip)]
    unsaved: bool,
}

/// The table and its corrections.
#[derive(Clone, Debug, Default)]
pub struct Curves {
    table: CurveTable,
    corrections: BTreeMap<(Scale, String), Correction>,
    /// By pattern and compute nodes.
    patterns: BTreeMap<(String, u32), Correction>,
    news: u64,
}

impl Curves {
    /// With the curves of an explorer's file (`forebay analyze --curves`).
    pub fn from_csv(input: impl std::io::Read) -> Result<Curves, TableError> {
        Ok(Curves { table: CurveTable::from_csv(input)?, ..Curves::default() })
    }

    /// Adds the corrections among what was learned. One that cannot be read is left out.
    pub fn restore(&mut self, learned: &BTreeMap<String, serde_json::Value>) {
        for (key, value) in learned {
            let name = key.strip_prefix(PREFIX).and_then(|k| serde_json::from_str(k).ok());
            if let (Some(name), Ok(correction)) = (name, serde_json::from_value(value.clone())) {
                self.corrections.insert(name, correction);
            }
            let name = key.strip_prefix(PATTERN_PREFIX).and_then(|k| serde_json::from_str(k).ok());
            if let (Some(name), Ok(correction)) = (name, serde_json::from_value(value.clone())) {
                self.patterns.insert(name, correction);
            }
        }
    }

    /// Grows whenever a measurement changed a curve enough to decide again.
    pub fn news(&self) -> u64 {
        self.news
    }

    /// The curve of such a job; `None` if nothing is known.
    pub fn of(&self, asked: CurveQuery<'_>) -> Option<SourcedCurve> {
        let (base, source) = self.table(asked).unzip();
        let measured = self.correction(asked);
        let points: BTreeMap<u32, f64> = match (base, measured) {
            (None, None) => return None,
            (Some(base), None) => base,
            (None, Some(m)) if m.counts.len() < 2 => return None,
            (None, Some(m)) => m.counts.iter().map(|(&n, m)| (n, m.mbs)).collect(),
            (Some(base), Some(m)) => corrected(base, m),
        };
        let curve = BandwidthCurve::from_pairs(points).ok()?;
        let seconds: u32 = measured.map_or(0, |m| m.counts.values().map(|c| c.seconds).sum());
        let source = match (source, seconds) {
            (Some(source), 0) => source,
            (Some(source), s) => format!("{source}, corrected by {s} s of measurements"),
            (None, s) => format!("{s} s of measurements"),
        };
        Some(SourcedCurve { curve, source })
    }

    /// A job got so much in a second with that many I/O nodes to itself.
    pub fn measured(&mut self, asked: CurveQuery<'_>, unix_ms: u64, io_nodes: u32, bandwidth: Bandwidth) {
        if !(bandwidth.0.is_finite() && bandwidth.0 > 0.0) || io_nodes == 0 {
            return;
        }
        let before = self.of(asked).and_then(|k| k.curve.at(io_nodes));
        let add = |measured: &mut Correction| {
            measured.unix_ms = unix_ms;
            measured.unsaved = true;
            let at = measured.counts.entry(io_nodes).or_default();
            at.seconds = at.seconds.saturating_add(1);
            at.mbs += (bandwidth.0 - at.mbs) * (1.0 / f64::from(at.seconds)).max(NEWEST);
        };
        add(entry(&mut self.corrections, (asked.scale.clone(), class(asked))));
        if let Some(shape) = asked.shape {
            add(entry(&mut self.patterns, (shape.class(), asked.scale.2)));
        }
        let after = self.of(asked).and_then(|k| k.curve.at(io_nodes));
        let differs = match (before, after) {
            (Some(b), Some(a)) => (a.0 - b.0).abs() > NEWS * b.0,
            (b, a) => b.is_some() != a.is_some(),
        };
        self.news += u64::from(differs);
    }

    /// The corrections that are to be kept and were not yet.
    pub fn unsaved(&mut self) -> Vec<Change> {
        let mut changes = unsaved(PREFIX, &mut self.corrections);
        changes.extend(unsaved(PATTERN_PREFIX, &mut self.patterns));
        changes
    }

    /// What is to be said to whoever names a scenario that the table does not have.
    pub fn misses(&self, name: &str) -> Option<String> {
        let all = &self.table.scenarios;
        (!all.iter().any(|c| c.name == name)).then(|| match all.is_empty() {
            true => format!("the arbiter has no table of curves, so the pattern {name:?} tells it nothing"),
            false => format!(
                "none of the {} patterns in the arbiter's table of curves is called {name:?}: it tells it nothing",
                all.len()
            ),
        })
    }

    /// What the table says.
    fn table(&self, asked: CurveQuery<'_>) -> Option<(BTreeMap<u32, f64>, String)> {
        if let Some(name) = asked.scenario
            && let Some(curve) = self.table.scenarios.iter().find(|c| c.name == name)
        {
            return Some((levels(curve), format!("scenario {name}")));
        }
        let shape = asked.shape?;
        let facts = Facts {
            compute_nodes: asked.scale.2,
            processes: asked.processes,
            shared: shape.layout == Layout::Shared,
            spatiality: shape.spatiality,
            request_kb: shape.request_kb,
            operation: shape.operation,
        };
        let estimate: BTreeMap<u32, f64> =
            self.table.estimate(&facts).into_iter().filter(|(_, b)| b.is_finite()).collect();
        (!estimate.is_empty()).then(|| (estimate, format!("nearest to {shape}")))
    }

    /// What runs like this one got: with this pattern, or else with the one seen the most.
    fn correction(&self, asked: CurveQuery<'_>) -> Option<&Correction> {
        let of_app = |class: String| (asked.scale.clone(), class);
        if asked.shape.is_some() || asked.scenario.is_some() {
            let of_others = || self.patterns.get(&(asked.shape?.class(), asked.scale.2));
            return self.corrections.get(&of_app(class(asked))).or_else(of_others);
        }
        let all = self.corrections.range(of_app(String::new())..);
        let own = all.take_while(|((scale, _), _)| scale == asked.scale);
        own.map(|(_, c)| c).max_by_key(|c| c.counts.values().map(|m| m.seconds).sum::<u32>())
    }
}

/// The correction of that name, new if need be; the oldest goes when there are too many.
fn entry<K: Ord + Clone>(all: &mut BTreeMap<K, Correction>, name: K) -> &mut Correction {
    if !all.contains_key(&name)
        && all.len() >= MOST
        && let Some(oldest) = all.iter().min_by_key(|(_, c)| c.unix_ms).map(|(k, _)| k.clone())
    {
        all.remove(&oldest);
    }
    all.entry(name).or_default()
}

fn unsaved<K: Serialize>(prefix: &str, all: &mut BTreeMap<K, Correction>) -> Vec<Change> {
    let mut changes = Vec::new();
    for (name, c) in all.iter_mut().filter(|(_, c)| c.unsaved) {
        c.unsaved = false;
        changes.push(Change::Learned {
            key: prefix.to_owned() + &serde_json::to_string(name).expect("strings and a number"),
            value: serde_json::to_value(&*c).ok(),
        });
    }
    changes
}

/// Which measurements belong together: those of a named scenario, else those of one pattern.
fn class(asked: CurveQuery<'_>) -> String {
    match (asked.scenario, asked.shape) {
        (Some(name), _) => format!("scenario {name}"),
        (None, Some(shape)) => shape.class(),
        (None, None) => String::new(),
    }
}

fn levels(scenario: &Scenario) -> BTreeMap<u32, f64> {
    scenario.curve.points().iter().map(|p| (p.io_nodes, p.bandwidth.0)).collect()
}

/// The table's curve moved towards the measurements.
fn corrected(mut base: BTreeMap<u32, f64>, measured: &Correction) -> BTreeMap<u32, f64> {
    let trust = |m: &Measured| f64::from(m.seconds) / (f64::from(m.seconds) + PRIOR);
    let shift = |(n, m): (&u32, &Measured)| {
        let table = base.get(n).copied().filter(|b| *b > 0.0)?;
        Some((*n, (m.mbs / table).ln() * trust(m), trust(m)))
    };
    let shifts: Vec<(u32, f64, f64)> = measured.counts.iter().filter_map(shift).collect();
    if shifts.is_empty() {
        // Measured only where the table has nothing: those counts are known as well.
        base.extend(measured.counts.iter().map(|(&n, m)| (n, m.mbs)));
        return base;
    }
    let mean = shifts.iter().map(|(_, s, _)| s).sum::<f64>() / shifts.len() as f64;
    for (n, bandwidth) in &mut base {
        let own = shifts.iter().find(|(m, _, _)| m == n).map(|(_, s, _)| *s);
        *bandwidth *= own.unwrap_or(mean).exp();
    }
    base
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_types::{Operation, Spatiality};

    const CSV: &str = "scenario,compute_nodes,processes,layout,spatiality,request_kb,io_nodes,bandwidth_mbs,operation,low_mbs,high_mbs,std_dev_mbs,samples
a,8,8,0,0,1024,1,100,write,90,110,1,3
a,8,8,0,0,1024,2,200,write,190,210,1,3
a,8,8,0,0,1024,4,400,write,390,410,1,3
b,8,8,1,1,32,1,50,write,49,51,1,3
b,8,8,1,1,32,2,40,write,39,41,1,3
";

    fn scale() -> Scale {
        ("app".into(), "me".into(), 8)
    }

    fn shape(layout: Layout, spatiality: Spatiality, request_kb: f64) -> AccessPattern {
        AccessPattern { operation: Operation::Write, layout, spatiality, request_kb }
    }

    fn asked<'a>(
        scale: &'a Scale,
        scenario: Option<&'a str>,
        shape: Option<&'a AccessPattern>,
    ) -> CurveQuery<'a> {
        CurveQuery { scale, processes: 8, scenario, shape }
    }

    fn at(curves: &Curves, asked: CurveQuery<'_>, n: u32) -> f64 {
        curves.of(asked).unwrap().curve.at(n).unwrap().0
    }

    #[test]
    fn by_name_then_by_pattern_then_nothing() {
        let c = Curves::from_csv(CSV.as_bytes()).unwrap();
        let s = scale();
        assert_eq!(at(&c, asked(&s, Some("b"), None), 2), 40.0);
        let near = shape(Layout::Shared, Spatiality::Strided, 32.0);
        assert_eq!(at(&c, asked(&s, None, Some(&near)), 1), 50.0);
        assert_eq!(c.of(asked(&s, None, None)), None);
        assert_eq!(c.of(asked(&s, Some("no such"), None)), None);
        assert!(c.misses("no such").unwrap().contains("none of the 2 patterns"));
        assert_eq!(c.misses("a"), None);
        assert!(Curves::default().misses("a").unwrap().contains("no table"));
    }

    #[test]
    fn measurements_pull_the_curve_and_are_kept() {
        let mut c = Curves::from_csv(CSV.as_bytes()).unwrap();
        let s = scale();
        let q = asked(&s, Some("a"), None);
        for _ in 0..30 {
            c.measured(q, 1, 2, Bandwidth(100.0));
        }
        assert!((100.0..115.0).contains(&at(&c, q, 2)), "{}", at(&c, q, 2));
        assert!((200.0..230.0).contains(&at(&c, q, 4)), "an unmeasured count moves along");
        assert!(c.news() > 0);
        let kept = c.unsaved();
        assert_eq!(kept.len(), 1, "a named scenario has no detected pattern");
        assert!(c.unsaved().is_empty());
        let Change::Learned { key, value: Some(value) } = &kept[0] else { panic!() };
        let mut again = Curves::from_csv(CSV.as_bytes()).unwrap();
        again.restore(&BTreeMap::from([(key.clone(), value.clone())]));
        assert_eq!(again.of(q), c.of(q));
    }

    #[test]
    fn measurements_alone_make_a_curve_of_two_counts() {
        let mut c = Curves::default();
        let (s, p) = (scale(), shape(Layout::FilePerProcess, Spatiality::Contiguous, 1000.0));
        let q = asked(&s, None, Some(&p));
        c.measured(q, 1, 1, Bandwidth(10.0));
        assert_eq!(c.of(q), None);
        c.measured(q, 1, 2, Bandwidth(30.0));
        assert_eq!(at(&c, q, 2), 30.0);
        assert_eq!(at(&c, asked(&s, None, None), 2), 30.0, "also before its pattern is seen");
        c.measured(q, 1, 2, Bandwidth(f64::NAN));
        assert_eq!(at(&c, q, 2), 30.0);
    }

    #[test]
    fn a_pattern_learned_in_one_application_serves_another() {
        let mut c = Curves::default();
        let (first, p) = (scale(), shape(Layout::Shared, Spatiality::Strided, 32.0));
        c.measured(asked(&first, None, Some(&p)), 1, 1, Bandwidth(10.0));
        c.measured(asked(&first, None, Some(&p)), 1, 2, Bandwidth(30.0));
        let other = ("another".to_owned(), "you".to_owned(), 8);
        assert_eq!(at(&c, asked(&other, None, Some(&p)), 2), 30.0);
        let different = shape(Layout::Shared, Spatiality::Random, 32.0);
        assert_eq!(c.of(asked(&other, None, Some(&different))), None, "only the same pattern");
        let larger = ("another".to_owned(), "you".to_owned(), 64);
        assert_eq!(c.of(asked(&larger, None, Some(&p))), None, "only at the same scale");
        // Its own measurements count once there are any.
        c.measured(asked(&other, None, Some(&p)), 1, 1, Bandwidth(50.0));
        c.measured(asked(&other, None, Some(&p)), 1, 2, Bandwidth(60.0));
        assert_eq!(at(&c, asked(&other, None, Some(&p)), 2), 60.0);
        // And all of it is kept.
        let kept: BTreeMap<String, serde_json::Value> = c
            .unsaved()
            .into_iter()
            .filter_map(|change| match change {
                Change::Learned { key, value: Some(value) } => Some((key, value)),
                _ => None,
            })
            .collect();
        assert_eq!(kept.len(), 3);
        let mut again = Curves::default();
        again.restore(&kept);
        let third = ("third".to_owned(), "me".to_owned(), 8);
        assert_eq!(again.of(asked(&third, None, Some(&p))), c.of(asked(&third, None, Some(&p))));
        assert!(again.of(asked(&third, None, Some(&p))).is_some());
    }
}
