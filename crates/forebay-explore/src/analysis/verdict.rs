//! What the numbers say of each scenario and of all of them.

use super::measurements::{Measurements, Scenario};
use super::wary::{Warning, warnings};
use crate::stats::{self, Interval, KruskalWallis};
use forebay_policy::Facts;
use serde::Serialize;
use std::collections::BTreeMap;

/// When two numbers of I/O nodes count as really different.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rule {
    /// As the study's text says: Dunn's one-sided p ≤ α/2, with α = 0.05.
    #[default]
    Described,
    /// As the study's figure was made: Dunn's Z (not p) of the smaller against the larger number,
    /// compared with 0.05.
    Published,
}

impl Rule {
    const ALPHA: f64 = 0.05;

    fn differs(self, c: &stats::Comparison) -> bool {
        match self {
            // One-sided p against α/2 is two-sided p against α.
            Rule::Described => c.p <= Rule::ALPHA,
            Rule::Published => c.z <= Rule::ALPHA,
        }
    }
}

/// One number of I/O nodes of one scenario.
#[derive(Clone, Debug, Serialize)]
pub struct Count {
    /// I/O nodes; 0 is direct access.
    pub io_nodes: u32,
    /// Repetitions.
    pub samples: usize,
    /// MB/s.
    pub mean: f64,
    /// 95 % confidence interval of the mean (Student's t); absent for a single repetition.
    pub interval: Option<Interval>,
    /// MB/s.
    pub median: f64,
    /// The lower and upper quartile, MB/s.
    pub quartiles: (f64, f64),
    /// The slowest, MB/s.
    pub min: f64,
    /// The fastest, MB/s.
    pub max: f64,
    /// Standard deviation, MB/s.
    pub std_dev: f64,
}

/// The best number of I/O nodes by three measures; of equal ones the smallest.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Best {
    /// By the single fastest repetition.
    pub max: u32,
    /// By the mean.
    pub mean: u32,
    /// By the median.
    pub median: u32,
}

/// Dunn's comparison of two numbers of I/O nodes.
#[derive(Clone, Debug, Serialize)]
pub struct Pair {
    /// The smaller number.
    pub a: u32,
    /// The larger number.
    pub b: u32,
    /// Negative where `b` is faster.
    pub z: f64,
    /// Two-sided.
    pub p: f64,
    /// Bonferroni's adjustment of `p`.
    pub bonferroni: f64,
    /// Holm's adjustment of `p`.
    pub holm: f64,
    /// Whether the two really differ, by the report's rule.
    pub differs: bool,
}

/// What the numbers say of one scenario.
#[derive(Clone, Debug, Serialize)]
pub struct ScenarioVerdict {
    /// As the file calls it.
    pub scenario: String,
    /// What it does.
    #[serde(flatten)]
    pub facts: Facts,
    /// By number of I/O nodes, ascending.
    pub counts: Vec<Count>,
    /// The best numbers.
    pub best: Best,
    /// Whether the number of I/O nodes matters at all; nobody knows where each was measured once.
    pub kruskal_wallis: Option<KruskalWallis>,
    /// Every pair of numbers; none where Kruskal-Wallis finds no difference, since then there is nothing
    /// that pairs could say. (As published, the study had no such gate.)
    pub dunn: Vec<Pair>,
    /// The numbers worth choosing between: those that differ from every smaller one; only the smallest
    /// where Kruskal-Wallis finds no difference.
    pub choices: Vec<u32>,
    /// The smallest number that does not differ from the best one (by median); nobody knows without a test.
    pub smallest_equivalent: Option<u32>,
    /// What to be wary of.
    pub warnings: Vec<Warning>,
    /// The single measurements, for plots.
    #[serde(skip)]
    pub runs: BTreeMap<u32, Vec<f64>>,
}

impl ScenarioVerdict {
    /// Repetitions: one number, or one for each number of I/O nodes where they differ.
    pub(super) fn repetitions(&self) -> String {
        let mut all: Vec<String> = self.counts.iter().map(|c| c.samples.to_string()).collect();
        if all.iter().all(|n| *n == all[0]) {
            all.truncate(1);
        }
        all.join("/")
    }

    /// Kruskal-Wallis' p.
    pub(super) fn p(&self) -> String {
        match self.kruskal_wallis {
            None => "–".to_owned(),
            Some(k) if k.p < 0.001 => "<0.001".to_owned(),
            Some(k) => format!("{:.3}", k.p),
        }
    }

    /// The smallest number that is as good as the best, where that can be said.
    pub(super) fn enough(&self) -> String {
        self.smallest_equivalent.map_or("–".to_owned(), |n| n.to_string())
    }

    /// The choices, where there is anything to choose.
    pub(super) fn choices_shown(&self) -> String {
        if self.dunn.is_empty() {
            return "–".to_owned();
        }
        self.choices.iter().map(u32::to_string).collect::<Vec<_>>().join(" ")
    }
}

/// How many scenarios are best with forwarding and how many with direct access.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Share {
    /// Best with at least one I/O node.
    pub forwarding: usize,
    /// Best without.
    pub direct: usize,
}

/// Scenarios by best number of I/O nodes.
#[derive(Clone, Debug, Default, Serialize)]
pub struct BestCounts {
    /// By the single fastest repetition.
    pub max: BTreeMap<u32, usize>,
    /// By the mean.
    pub mean: BTreeMap<u32, usize>,
    /// By the median.
    pub median: BTreeMap<u32, usize>,
}

/// Forwarding against direct access, by the three measures.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Shares {
    /// By the single fastest repetition.
    pub max: Share,
    /// By the mean.
    pub mean: Share,
    /// By the median.
    pub median: Share,
}

/// What the numbers say of all scenarios.
#[derive(Clone, Debug, Serialize)]
pub struct StudyReport {
    /// How many there are.
    pub scenarios: usize,
    /// How many measurements there are.
    pub rows: usize,
    /// Scenarios by best number of I/O nodes.
    pub best: BestCounts,
    /// Scenarios by how many statistically distinct choices they have, counted as the study does: pair
    /// by pair, also where Kruskal-Wallis finds no difference among all.
    pub distinct: BTreeMap<usize, usize>,
    /// The same by the verdicts' own `choices`, which want Kruskal-Wallis to find a difference first.
    pub distinct_gated: BTreeMap<usize, usize>,
    /// The rule for a pair.
    pub rule: Rule,
    /// Scenarios by the smallest number that is as good as the best.
    pub smallest_equivalent: BTreeMap<u32, usize>,
    /// Where forwarding is best, and where direct access is; only scenarios measured with both.
    pub forwarding: Shares,
    /// Warnings in all.
    pub warnings: usize,
    /// Scenario by scenario.
    pub verdicts: Vec<ScenarioVerdict>,
}

/// The verdicts on all that was measured.
pub fn assess(measurements: &Measurements, rule: Rule) -> StudyReport {
    let (verdicts, ungated): (Vec<ScenarioVerdict>, Vec<usize>) =
        measurements.scenarios.iter().map(|s| verdict(s, rule)).unzip();
    let counts = measurements.counts();
    let zeros = || counts.iter().map(|&c| (c, 0)).collect::<BTreeMap<u32, usize>>();
    let mut best = BestCounts { max: zeros(), mean: zeros(), median: zeros() };
    let mut smallest_equivalent = zeros();
    let mut distinct: BTreeMap<usize, usize> = (1..=counts.len()).map(|n| (n, 0)).collect();
    let mut distinct_gated = distinct.clone();
    let mut forwarding = Shares::default();
    for (v, ungated) in verdicts.iter().zip(ungated) {
        let both = v.counts.iter().any(|c| c.io_nodes == 0) && v.counts.iter().any(|c| c.io_nodes > 0);
        for (tally, share, count) in [
            (&mut best.max, &mut forwarding.max, v.best.max),
            (&mut best.mean, &mut forwarding.mean, v.best.mean),
            (&mut best.median, &mut forwarding.median, v.best.median),
        ] {
            *tally.entry(count).or_default() += 1;
            match (both, count) {
                (true, 0) => share.direct += 1,
                (true, _) => share.forwarding += 1,
                (false, _) => {}
            }
        }
        if let Some(enough) = v.smallest_equivalent {
            *distinct.entry(ungated).or_default() += 1;
            *distinct_gated.entry(v.choices.len()).or_default() += 1;
            *smallest_equivalent.entry(enough).or_default() += 1;
        }
    }
    StudyReport {
        scenarios: verdicts.len(),
        rows: measurements.rows,
        best,
        distinct,
        distinct_gated,
        rule,
        smallest_equivalent,
        forwarding,
        warnings: verdicts.iter().map(|v| v.warnings.len()).sum(),
        verdicts,
    }
}

/// The verdict on a scenario, and how many distinct choices it would have without the gate.
fn verdict(s: &Scenario, rule: Rule) -> (ScenarioVerdict, usize) {
    let counts: Vec<Count> = s
        .runs
        .iter()
        .map(|(&io_nodes, runs)| Count {
            io_nodes,
            samples: runs.len(),
            mean: stats::mean(runs),
            interval: stats::t_interval(runs, 0.95),
            median: stats::median(runs),
            quartiles: (stats::quantile(runs, 0.25), stats::quantile(runs, 0.75)),
            min: stats::quantile(runs, 0.0),
            max: stats::quantile(runs, 1.0),
            std_dev: stats::std_dev(runs),
        })
        .collect();
    // The first of equal ones wins: fewer I/O nodes for the same bandwidth.
    let best_by = |measure: fn(&Count) -> f64| {
        let first = counts.first().map_or(0, |c| c.io_nodes);
        let pick = counts.iter().fold((f64::NEG_INFINITY, first), |(top, at), c| {
            if measure(c) > top { (measure(c), c.io_nodes) } else { (top, at) }
        });
        pick.1
    };
    let best = Best { max: best_by(|c| c.max), mean: best_by(|c| c.mean), median: best_by(|c| c.median) };

    let groups: Vec<&[f64]> = s.runs.values().map(Vec::as_slice).collect();
    let at: Vec<u32> = s.runs.keys().copied().collect();
    let mut dunn: Vec<Pair> = stats::dunn(&groups)
        .iter()
        .map(|c| Pair {
            a: at[c.a],
            b: at[c.b],
            z: c.z,
            p: c.p,
            bonferroni: c.bonferroni,
            holm: c.holm,
            differs: rule.differs(c),
        })
        .collect();
    let choices = |dunn: &[Pair]| -> Vec<u32> {
        at.iter().copied().filter(|&k| dunn.iter().all(|p| p.b != k || p.differs)).collect()
    };
    let ungated = choices(&dunn).len();
    // One value says nothing of how far others would be from it.
    let repeated = groups.iter().any(|g| g.len() > 1);
    let kruskal_wallis = stats::kruskal_wallis(&groups).filter(|_| repeated);
    let any_differ = kruskal_wallis.is_some_and(|k| k.p <= Rule::ALPHA);
    let (choices, smallest_equivalent) = if repeated && (rule == Rule::Published || any_differ) {
        let alike = |k: u32| {
            let (a, b) = (k.min(best.median), k.max(best.median));
            a == b || dunn.iter().any(|p| p.a == a && p.b == b && !p.differs)
        };
        (choices(&dunn), at.iter().copied().find(|&k| alike(k)).unwrap_or(best.median))
    } else {
        dunn.clear();
        (at.iter().copied().take(1).collect(), at.first().copied().unwrap_or(best.median))
    };
    let verdict = ScenarioVerdict {
        scenario: s.name.clone(),
        facts: s.facts.clone(),
        counts,
        best,
        kruskal_wallis,
        dunn,
        choices,
        smallest_equivalent: repeated.then_some(smallest_equivalent),
        warnings: warnings(&s.runs),
        runs: s.runs.clone(),
    };
    (verdict, ungated)
}
