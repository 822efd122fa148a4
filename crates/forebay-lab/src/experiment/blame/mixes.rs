//! Mixes of jobs, what was foreseen for them under other schedulers, and what a rerun under each brings.

use super::super::testbed::{Testbed, open, processes};
use anyhow::{Context, Result};
use forebay_sim::models;
use forebay_types::{JobBlame, Nanos, size};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

const PLAN: &str = include_str!("../../../../../data/what-if.toml");

/// Which mixes are run under which schedulers, and how far off a prediction may be.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Plan {
    pub(super) tolerance: f64,
    dispatchers: usize,
    /// From which scheduler to which.
    pairs: Vec<[String; 2]>,
    pub(super) mix: Vec<Mix>,
}

/// Jobs beside each other.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Mix {
    pub(super) name: String,
    /// The model of it, by name.
    storage: String,
    processes: Vec<Kind>,
}

/// Processes of a job that are alike.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kind {
    job: String,
    count: usize,
    /// What each writes, one after the other and from the beginning again.
    sizes: Vec<String>,
    /// Between an answer and the next request.
    #[serde(with = "forebay_types::span")]
    pause: Nanos,
}

/// What was foreseen for a job under another scheduler, and what was so.
pub(super) struct Foreseen {
    pub(super) was: String,
    pub(super) other: String,
    pub(super) job: String,
    /// Milliseconds a request.
    pub(super) predicted: f64,
    pub(super) truth: f64,
}

impl Foreseen {
    /// By which part it is off.
    pub(super) fn off(&self) -> f64 {
        self.predicted / self.truth - 1.0
    }
}

/// What the I/O node says of each job: as it was, and under each scheduler that it was asked about.
type Said = BTreeMap<String, (JobBlame, BTreeMap<String, JobBlame>)>;

impl Plan {
    pub(super) fn new() -> Result<Plan> {
        toml::from_str(PLAN).context("data/what-if.toml")
    }

    /// All of them, each once.
    fn schedulers(&self) -> Vec<&String> {
        let mut all: Vec<&String> = self.pairs.iter().flatten().collect();
        all.sort();
        all.dedup();
        all
    }

    /// How many runs a mix takes.
    pub(super) fn runs(&self) -> usize {
        self.schedulers().len()
    }

    /// Runs a mix under every scheduler for `span`; `step` is told which before each.
    pub(super) fn run(&self, mix: &Mix, span: Duration, step: impl Fn(&str)) -> Result<Vec<Foreseen>> {
        let mut said: BTreeMap<&String, Said> = BTreeMap::new();
        for was in self.schedulers() {
            step(&format!("{}: {was}", mix.name));
            let asked = self.pairs.iter().filter(|[from, _]| from == was).map(|[_, to]| to);
            said.insert(was, mix.run(was, self.dispatchers, span, &asked.collect::<Vec<_>>())?);
        }
        let mut all = Vec::new();
        for [was, other] in &self.pairs {
            for (job, (_, foreseen)) in said.get(was).into_iter().flatten() {
                let rerun = said.get(other).and_then(|s| s.get(job)).context("a job is missing")?;
                let (_, then) =
                    foreseen.get(other).and_then(|b| b.what_if).context("nothing was predicted")?;
                let each = |seconds: f64, b: &JobBlame| seconds / b.requests.max(1) as f64 * 1e3;
                let predicted = foreseen.get(other).map_or(f64::NAN, |b| each(then, b));
                let truth = each(rerun.0.total, &rerun.0);
                let (was, other, job) = (was.clone(), other.clone(), job.clone());
                all.push(Foreseen { was, other, job, predicted, truth });
            }
        }
        Ok(all)
    }
}

impl Mix {
    /// All of it for `span` on fresh servers; then the I/O node is asked about each job and these schedulers.
    fn run(&self, was: &str, dispatchers: usize, span: Duration, ask: &[&String]) -> Result<Said> {
        let testbed = Testbed::start(1, Some(&models::named(&self.storage)?.storage), dispatchers)?;
        testbed.schedule(was)?;
        let kinds: Vec<(&Kind, Vec<u64>)> = self
            .processes
            .iter()
            .map(|kind| Ok((kind, kind.sizes.iter().map(|s| size::parse(s)).collect::<Result<_, _>>()?)))
            .collect::<Result<_>>()?;
        let ranks: Vec<&(&Kind, Vec<u64>)> =
            kinds.iter().flat_map(|kind| std::iter::repeat_n(kind, kind.0.count)).collect();
        let begin = Instant::now() + Duration::from_millis(300);
        processes(ranks.len(), |rank| {
            let (kind, sizes) = ranks[rank];
            let client = testbed.client(&kind.job, 0)?;
            let file = open(&client, &format!("{}-{rank}", kind.job))?;
            let data = vec![1u8; sizes.iter().copied().max().unwrap_or(0) as usize];
            std::thread::sleep(begin.saturating_duration_since(Instant::now()));
            let mut offset = 0;
            for len in sizes.iter().cycle() {
                if begin.elapsed() > span {
                    break;
                }
                client.pwrite(&file, &data[..*len as usize], offset % (8 << 20))?;
                offset += len;
                std::thread::sleep(kind.pause.into());
            }
            client.leave();
            Ok(())
        })?;
        let mut said = Said::new();
        for kind in &self.processes {
            let foreseen = ask.iter().map(|to| Ok(((*to).clone(), testbed.blame(&kind.job, Some(to))?)));
            let foreseen = foreseen.collect::<Result<_>>()?;
            said.insert(kind.job.clone(), (testbed.blame(&kind.job, None)?, foreseen));
        }
        Ok(said)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_plan_can_be_carried_out() {
        let plan = Plan::new().unwrap();
        assert!(plan.tolerance <= 0.15 && plan.pairs.len() >= 4 && plan.mix.len() >= 4);
        for mix in &plan.mix {
            assert!(models::named(&mix.storage).is_ok(), "{}", mix.name);
            let sizes = mix.processes.iter().flat_map(|k| &k.sizes);
            assert!(sizes.clone().all(|s| size::parse(s).is_ok_and(|s| s > 0)), "{}", mix.name);
        }
        for spec in plan.schedulers() {
            assert!(spec.parse::<forebay_sched::SchedulerConfig>().is_ok(), "{spec}");
        }
    }
}
