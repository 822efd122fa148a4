//! Metrics as Prometheus reads them: its text format, written at each scrape from values that others
//! keep; and what bounds the number of series that jobs make.

use crate::histogram::Counts;
use std::collections::BTreeMap;
use std::fmt::Write;

/// What an answer in this format calls itself.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The job under which those are added up that have no series of their own. No job can have this name.
pub const OTHERS: &str = "(others)";

type Labels<'a> = &'a [(&'a str, &'a str)];

/// The text, family by family.
#[derive(Debug, Default)]
pub struct Exposition {
    text: String,
}

/// One metric. Its head is written with its first sample: a metric without samples is not there.
pub struct Family<'a> {
    text: &'a mut String,
    name: &'a str,
    help: &'a str,
    kind: &'static str,
}

impl Exposition {
    /// What goes up and down.
    pub fn gauges<'a>(&'a mut self, name: &'a str, help: &'a str) -> Family<'a> {
        Family { text: &mut self.text, name, help, kind: "gauge" }
    }

    /// What only grows: its name ends in `_total`.
    pub fn counters<'a>(&'a mut self, name: &'a str, help: &'a str) -> Family<'a> {
        debug_assert!(name.ends_with("_total"), "{name}");
        Family { text: &mut self.text, name, help, kind: "counter" }
    }

    /// Distributions.
    pub fn histograms<'a>(&'a mut self, name: &'a str, help: &'a str) -> Family<'a> {
        Family { text: &mut self.text, name, help, kind: "histogram" }
    }

    /// A gauge without labels.
    pub fn gauge(&mut self, name: &str, help: &str, value: f64) {
        self.gauges(name, help).sample(&[], value);
    }

    /// A counter without labels.
    pub fn counter(&mut self, name: &str, help: &str, value: u64) {
        self.counters(name, help).sample(&[], value as f64);
    }

    /// All of it.
    pub fn into_text(self) -> String {
        self.text
    }
}

impl Family<'_> {
    /// One value.
    pub fn sample(&mut self, labels: Labels<'_>, value: f64) {
        self.head();
        self.line("", labels, value);
    }

    /// One distribution, whose values are in units of 1/`scale` (nanoseconds: 1e9): how many are below the
    /// powers of two from 2^`powers.0` in steps of `powers.2` up to 2^`powers.1`. Since values are whole
    /// numbers, those are the ones that are not above the bound less 1, which is what Prometheus wants.
    pub fn distribution(
        &mut self,
        labels: Labels<'_>,
        counts: &Counts,
        powers: (u32, u32, usize),
        scale: f64,
    ) {
        self.head();
        let count = counts.count();
        for power in (powers.0..=powers.1).step_by(powers.2) {
            let bound = 1u64 << power;
            let le = number((bound - 1) as f64 / scale);
            let bucket: Vec<_> = labels.iter().copied().chain([("le", le.as_str())]).collect();
            self.line("_bucket", &bucket, counts.below(bound) as f64);
        }
        let rest: Vec<_> = labels.iter().copied().chain([("le", "+Inf")]).collect();
        self.line("_bucket", &rest, count as f64);
        self.line("_sum", labels, counts.sum() as f64 / scale);
        self.line("_count", labels, count as f64);
    }

    fn head(&mut self) {
        if !self.help.is_empty() {
            let _ = writeln!(self.text, "# HELP {} {}", self.name, escaped(self.help, false));
            let _ = writeln!(self.text, "# TYPE {} {}", self.name, self.kind);
            self.help = "";
        }
    }

    fn line(&mut self, suffix: &str, labels: Labels<'_>, value: f64) {
        self.text.push_str(self.name);
        self.text.push_str(suffix);
        for (i, (label, value)) in labels.iter().enumerate() {
            self.text.push(if i == 0 { '{' } else { ',' });
            let _ = write!(self.text, "{label}=\"{}\"", escaped(value, true));
        }
        self.text.push_str(if labels.is_empty() { " " } else { "} " });
        self.text.push_str(&number(value));
        self.text.push('\n');
    }
}

fn number(value: f64) -> String {
    match value {
        v if v.is_nan() => "NaN".to_owned(),
        v if v.is_infinite() => if v > 0.0 { "+Inf" } else { "-Inf" }.to_owned(),
        v => v.to_string(),
    }
}

fn escaped(text: &str, quoted: bool) -> String {
    let plain = text.replace('\\', "\\\\").replace('\n', "\\n");
    if quoted { plain.replace('"', "\\\"") } else { plain }
}

/// Counters of jobs in a bounded number of series. The busiest have their own, from when they get it until
/// they end; the others are added up. No series ever goes back, whoever comes and goes.
#[derive(Debug)]
pub struct Bounded<const N: usize> {
    most: usize,
    jobs: BTreeMap<String, JobSeries<N>>,
    /// Of jobs that ended without series of their own, or got them later.
    others: [u64; N],
}

/// A job as it was last seen.
#[derive(Debug)]
struct JobSeries<const N: usize> {
    counted: [u64; N],
    series: Series<N>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Series<const N: usize> {
    New,
    /// Among the others.
    Others,
    /// It has series of its own, which began when so much had been counted.
    Own([u64; N]),
}

impl<const N: usize> Bounded<N> {
    /// At most so many jobs have series of their own.
    pub fn new(most: usize) -> Bounded<N> {
        Bounded { most, jobs: BTreeMap::new(), others: [0; N] }
    }

    /// The counters of the jobs there are now; where each series stands, by job. The first counter says
    /// who is busier.
    pub fn update(&mut self, now: impl IntoIterator<Item = (String, [u64; N])>) -> Vec<(String, [u64; N])> {
        let mut before = std::mem::take(&mut self.jobs);
        for (name, counted) in now {
            let series = match before.remove(&name) {
                Some(seen) if seen.counted.iter().zip(&counted).all(|(was, is)| was <= is) => seen.series,
                // It counts from the start again: another job of the same name.
                Some(seen) => {
                    self.end(&seen);
                    Series::New
                }
                None => Series::New,
            };
            self.jobs.insert(name, JobSeries { counted, series });
        }
        for seen in before.values() {
            self.end(seen);
        }
        self.place();
        let mut others = self.others;
        let mut series = Vec::with_capacity(self.jobs.len().min(self.most) + 1);
        for (name, seen) in &self.jobs {
            match seen.series {
                Series::Own(base) => {
                    let own = std::array::from_fn(|i| seen.counted[i].saturating_sub(base[i]));
                    series.push((name.clone(), own));
                }
                _ => add(&mut others, &seen.counted),
            }
        }
        series.push((OTHERS.to_owned(), others));
        series
    }

    fn end(&mut self, seen: &JobSeries<N>) {
        if seen.series == Series::Others {
            add(&mut self.others, &seen.counted);
        }
    }

    /// Gives series to the busiest that have none, as long as there are any to give.
    fn place(&mut self) {
        let own = self.jobs.values().filter(|s| matches!(s.series, Series::Own(_))).count();
        let mut rest: Vec<&mut JobSeries<N>> =
            self.jobs.values_mut().filter(|s| !matches!(s.series, Series::Own(_))).collect();
        rest.sort_by_key(|s| std::cmp::Reverse(s.counted.first().copied()));
        let free = self.most.saturating_sub(own);
        for (i, seen) in rest.into_iter().enumerate() {
            seen.series = match seen.series {
                _ if i >= free => Series::Others,
                Series::Others => {
                    // Its past remains where it was.
                    add(&mut self.others, &seen.counted);
                    Series::Own(seen.counted)
                }
                _ => Series::Own([0; N]),
            };
        }
    }
}

fn add<const N: usize>(sum: &mut [u64; N], more: &[u64; N]) {
    for (s, m) in sum.iter_mut().zip(more) {
        *s = s.saturating_add(*m);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Histogram;
    use proptest::prelude::*;

    #[test]
    fn the_text_is_what_prometheus_reads() {
        let mut e = Exposition::default();
        e.counter("a_total", "All \\ of\nit", 3);
        e.gauges("none", "Never seen");
        let mut g = e.gauges("g", "G");
        g.sample(&[("job", "a\"b\\\n"), ("op", "read")], 0.5);
        g.sample(&[("job", "c"), ("op", "read")], f64::INFINITY);
        let h = Histogram::default();
        for v in [1, 3, 4, 1000] {
            h.record(v);
        }
        e.histograms("h_seconds", "H").distribution(&[("op", "w")], &h.counts(), (1, 3, 1), 1e3);
        let text = e.into_text();
        let expected = r#"# HELP a_total All \\ of\nit
# TYPE a_total counter
a_total 3
# HELP g G
# TYPE g gauge
g{job="a\"b\\\n",op="read"} 0.5
g{job="c",op="read"} +Inf
# HELP h_seconds H
# TYPE h_seconds histogram
h_seconds_bucket{op="w",le="0.001"} 1
h_seconds_bucket{op="w",le="0.003"} 2
h_seconds_bucket{op="w",le="0.007"} 3
h_seconds_bucket{op="w",le="+Inf"} 4
h_seconds_sum{op="w"} 1.008
h_seconds_count{op="w"} 4
"#;
        assert_eq!(text, expected);
    }

    #[test]
    fn who_comes_later_starts_from_nothing() {
        let mut b = Bounded::<1>::new(1);
        let job = |name: &str, n: u64| (name.to_owned(), [n]);
        assert_eq!(b.update([job("a", 5), job("b", 3)]), [job("a", 5), job(OTHERS, 3)]);
        assert_eq!(b.update([job("a", 6), job("b", 9)]), [job("a", 6), job(OTHERS, 9)]);
        // `a` has ended: what `b` did among the others stays there.
        assert_eq!(b.update([job("b", 10)]), [job("b", 0), job(OTHERS, 10)]);
        assert_eq!(b.update([job("b", 12)]), [job("b", 2), job(OTHERS, 10)]);
        // Another of that name.
        assert_eq!(b.update([job("b", 1)]), [job("b", 1), job(OTHERS, 10)]);
    }

    proptest! {
        /// However jobs come, work and go: few series, none of which goes back while its job lives.
        #[test]
        fn series_are_few_and_never_go_back(
            rounds in proptest::collection::vec(proptest::collection::vec((0u8..12, 0u64..100), 0..12), 1..40)
        ) {
            let mut b = Bounded::<1>::new(3);
            let mut live: BTreeMap<String, u64> = BTreeMap::new();
            let mut before: BTreeMap<String, u64> = BTreeMap::new();
            for round in rounds {
                let names: Vec<String> = round.iter().map(|(n, _)| n.to_string()).collect();
                live.retain(|name, _| names.contains(name));
                for (n, more) in round {
                    *live.entry(n.to_string()).or_default() += more;
                }
                let series: BTreeMap<String, u64> = b
                    .update(live.iter().map(|(name, n)| (name.clone(), [*n])))
                    .into_iter()
                    .map(|(name, n)| (name, n[0]))
                    .collect();
                prop_assert!(series.len() <= 4);
                for (name, n) in &series {
                    prop_assert!(before.get(name).is_none_or(|was| was <= n), "{name}");
                }
                before = series;
            }
        }
    }
}
