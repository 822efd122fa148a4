//! Fits a storage model to published results: a search over the model's parameters for those with
//! which the simulator comes closest to what was measured. Results marked as held out are not looked
//! at by the search; how far the fitted model is from those is its error.

use crate::scenarios::{Broken, Streams, WINDOWS, twins_window};
use forebay_sched::SchedulerConfig;
use forebay_sched::emulate::{AccessModel, StorageModel};
use forebay_types::{Nanos, OpKind, Pattern};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rayon::prelude::*;
use serde::Deserialize;
use std::collections::BTreeMap;

/// A file of published results.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Published {
    /// Where they are from and what was measured.
    pub note: String,
    /// The results.
    pub result: Vec<Target>,
}

/// One published result: the time of one way over the time of another.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Target {
    /// Its name.
    pub id: String,
    /// What is claimed.
    pub what: String,
    /// How the processes lie in files.
    pub pattern: Pattern,
    /// `read` or `write`.
    pub op: OpKind,
    /// Whose time: `direct`, `fifo`, `hbrr`, `baseline` (the better of the two), `best-window`, or a window.
    pub of: String,
    /// Over whose.
    pub over: String,
    /// The ratio.
    pub ratio: f64,
    /// The ratio is only known to be at least, or at most, that.
    #[serde(default)]
    pub bound: Bound,
    /// How much it counts.
    #[serde(default = "one")]
    pub weight: f64,
    /// Applications at once.
    #[serde(default = "single")]
    pub applications: u32,
    /// I/O nodes, where not four.
    #[serde(default = "four")]
    pub io_nodes: u32,
    /// Not used to fit.
    #[serde(default)]
    pub held_out: bool,
}

/// What is known of a ratio.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Bound {
    /// Its value.
    #[default]
    Equal,
    /// That it is not less.
    AtLeast,
    /// That it is not more.
    AtMost,
}

fn one() -> f64 {
    1.0
}

fn single() -> u32 {
    1
}

fn four() -> u32 {
    4
}

/// Why nothing can be fitted.
#[derive(Debug, thiserror::Error)]
pub enum FitError {
    /// Not a file of results.
    #[error("not a file of published results: {0}")]
    Toml(#[from] toml::de::Error),
    /// A result that cannot be simulated.
    #[error("result {what:?}: {problem}")]
    Target {
        /// Which.
        what: String,
        /// Why.
        problem: String,
    },
}

/// What the model says of a target.
#[derive(Clone, Debug, PartialEq)]
pub struct Predicted {
    /// The published result.
    pub target: Target,
    /// The simulated ratio.
    pub ratio: f64,
}

impl Predicted {
    /// How far off, as a part: 0.1 is 10 %; nothing where a bound is kept.
    pub fn error(&self) -> f64 {
        let off = self.ratio / self.target.ratio - 1.0;
        match self.target.bound {
            Bound::AtLeast => off.min(0.0),
            Bound::AtMost => off.max(0.0),
            Bound::Equal => off,
        }
    }
}

/// A case that is simulated once for all targets that need it.
type Case = (Pattern, OpKind, String, u32, u32);

/// The ways whose times a name needs.
fn ways(name: &str) -> Vec<String> {
    match name {
        "baseline" => vec!["fifo".into(), "hbrr".into()],
        "best-window" => WINDOWS.iter().map(|w| (*w).to_owned()).collect(),
        other => vec![other.to_owned()],
    }
}

fn scheduler(way: &str) -> Option<SchedulerConfig> {
    match way {
        "direct" | "fifo" => "fifo".parse().ok(),
        "hbrr" => "hbrr".parse().ok(),
        window if WINDOWS.contains(&window) => Some(twins_window(window)),
        _ => None,
    }
}

/// Published results, ready to be simulated with so many requests a process.
#[derive(Clone, Debug)]
pub struct Fit {
    targets: Vec<Target>,
    requests: u64,
}

impl Fit {
    /// Reads and checks a file of results.
    pub fn parse(text: &str, requests: u64) -> Result<Fit, FitError> {
        let Published { result: targets, .. } = toml::from_str(text)?;
        for t in &targets {
            let fail = |problem: &str| FitError::Target { what: t.what.clone(), problem: problem.to_owned() };
            for way in ways(&t.of).into_iter().chain(ways(&t.over)) {
                if scheduler(&way).is_none() {
                    return Err(fail(&format!("{way:?} is no way to do I/O")));
                }
            }
            if !(t.ratio.is_finite() && t.ratio > 0.0 && t.weight.is_finite() && t.weight >= 0.0) {
                return Err(fail("the ratio must be above 0 and the weight not below"));
            }
            if !(1..=64).contains(&t.applications) || !(1..=1024).contains(&t.io_nodes) {
                return Err(fail("1 to 64 applications on 1 to 1024 I/O nodes"));
            }
        }
        Ok(Fit { targets, requests })
    }

    /// What the model says of every target.
    pub fn predict(&self, model: &StorageModel, broken: Broken) -> Vec<Predicted> {
        let mut cases: BTreeMap<Case, f64> = BTreeMap::new();
        let key =
            |t: &Target, way: &str| -> Case { (t.pattern, t.op, way.to_owned(), t.applications, t.io_nodes) };
        for t in &self.targets {
            for way in ways(&t.of).into_iter().chain(ways(&t.over)) {
                cases.insert(key(t, &way), 0.0);
            }
        }
        let simulated: Vec<(Case, f64)> = cases
            .into_keys()
            .collect::<Vec<_>>()
            .into_par_iter()
            .map(|case| {
                let time = self.time(model, &case, broken);
                (case, time)
            })
            .collect();
        let cases: BTreeMap<Case, f64> = simulated.into_iter().collect();
        let fastest = |t: &Target, name: &str| {
            ways(name).iter().filter_map(|w| cases.get(&key(t, w)).copied()).fold(f64::INFINITY, f64::min)
        };
        let predicted =
            |t: &Target| Predicted { ratio: fastest(t, &t.of) / fastest(t, &t.over), target: t.clone() };
        self.targets.iter().map(predicted).collect()
    }

    /// Seconds until the first application is done.
    fn time(
        &self,
        model: &StorageModel,
        (pattern, op, way, applications, io_nodes): &Case,
        broken: Broken,
    ) -> f64 {
        let streams = Streams {
            requests: self.requests,
            applications: *applications,
            processes: 128 / applications,
            io_nodes: if way == "direct" { 0 } else { *io_nodes },
            ..Streams::paper(*pattern, *op)
        };
        let scheduler = scheduler(way).unwrap_or_else(|| twins_window(WINDOWS[0]));
        streams.run(model, &scheduler, 1, broken).flow(0).makespan().as_secs_f64()
    }

    /// How far the model is from what may be used to fit: the weighted mean square of the logarithms.
    pub fn loss(&self, predicted: &[Predicted]) -> f64 {
        let used = predicted.iter().filter(|p| !p.target.held_out);
        let (sum, weights) = used.fold((0.0, 0.0), |(sum, weights), p| {
            let off = (1.0 + p.error()).max(1e-9).ln();
            (sum + p.target.weight * off * off, weights + p.target.weight)
        });
        sum / weights.max(1e-9)
    }

    /// Searches from `start`: steps in all parameters at once, narrower as they cease to help. `tried`
    /// is told of every step with the best loss so far.
    pub fn search(
        &self,
        start: &StorageModel,
        steps: u32,
        seed: u64,
        mut tried: impl FnMut(u32, f64),
    ) -> StorageModel {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut best = start.clone();
        let mut least = self.loss(&self.predict(&best, Broken::default()));
        let mut width = 0.7;
        let mut failed = 0;
        for step in 0..steps {
            let candidate = vary(&best, width, &mut rng);
            let loss = self.loss(&self.predict(&candidate, Broken::default()));
            if loss < least {
                (best, least, failed) = (candidate, loss, 0);
            } else {
                failed += 1;
                if failed % 12 == 0 {
                    width = (width * 0.7f64).max(0.05);
                }
            }
            tried(step, least);
        }
        best
    }
}

/// The model with a few of its parameters changed by a random factor.
fn vary(model: &StorageModel, width: f64, rng: &mut ChaCha8Rng) -> StorageModel {
    let mut factor = || if rng.random_bool(0.5) { 1.0 } else { rng.random_range(-width..width).exp() };
    let mut m = model.clone();
    let s = &mut m.server;
    let mut w = s.write.unwrap_or(AccessModel {
        bandwidth: s.bandwidth,
        per_request: s.per_request,
        seek: s.seek,
        penalty: s.penalty,
    });
    let nanos = |n: Nanos, f: f64| Nanos(((n.0.max(1000)) as f64 * f).round() as u64);
    s.bandwidth = (s.bandwidth as f64 * factor()).clamp(1e6, 1e10) as u64;
    s.per_request = nanos(s.per_request, factor());
    s.latency = nanos(s.latency, factor());
    s.seek = nanos(s.seek, factor());
    s.seek_half = ((s.seek_half as f64) * factor()).clamp(1e4, 1e12) as u64;
    s.penalty = (s.penalty.max(1e-3) * factor()).min(10.0);
    s.penalty_limit = Some((s.penalty_limit.unwrap_or(1.0) * factor()).min(100.0));
    w.bandwidth = (w.bandwidth as f64 * factor()).clamp(1e6, 1e10) as u64;
    w.per_request = nanos(w.per_request, factor());
    w.seek = nanos(w.seek, factor());
    w.penalty = (w.penalty.max(1e-3) * factor()).min(10.0);
    s.write = Some(w);
    m
}
