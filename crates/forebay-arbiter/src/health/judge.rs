//! One node against its peers and its past, at one moment.

use super::ScreenConfig;
use super::robust::{deviation, median};
use super::watch::{BREAKS_WITHIN, Kind, Measure, View, Watch};
use forebay_types::NodeId;

/// A node is out of line.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Evidence {
    /// How, with the numbers.
    pub(super) sentence: String,
    /// How many times as bad as the reference.
    pub(super) excess: f64,
    /// Only its own past says so: the storage may be slow for everybody.
    pub(super) past_only: bool,
}

/// The nodes that one may be compared with. There may be very many, so each question is answered
/// from the node's own figures where these suffice.
#[derive(Clone, Copy)]
pub(super) struct Peers<'a> {
    /// The node in question, which is not its own peer.
    pub(super) but: NodeId,
    pub(super) all: &'a [(NodeId, &'a View)],
}

/// Very many peers say no more than so many of them.
const MOST_PEERS: usize = 64;

impl<'a> Peers<'a> {
    fn iter(self) -> impl Iterator<Item = &'a View> {
        let step = self.all.len().div_ceil(MOST_PEERS).max(1);
        self.all.iter().step_by(step).filter(move |(n, _)| *n != self.but).map(|(_, v)| *v)
    }
}

/// What is wrong with the node, worst first; `None` if it is in line.
pub(super) fn judge(config: &ScreenConfig, own: &View, watch: &Watch, peers: Peers<'_>) -> Option<Evidence> {
    let mut found: Vec<Evidence> = Vec::new();
    found.extend(failing(own, watch, peers, config));
    found.extend(flapping(own, peers));
    found.extend(stall(config, own, watch, peers));
    found.extend(storage(config, own, watch, peers));
    found.extend(own.service.keys().filter_map(|kind| service(config, *kind, own, watch, peers)));
    found.into_iter().max_by(|a, b| {
        (!a.past_only, a.excess).partial_cmp(&(!b.past_only, b.excess)).unwrap_or(std::cmp::Ordering::Equal)
    })
}

fn failing(own: &View, watch: &Watch, peers: Peers<'_>, config: &ScreenConfig) -> Option<Evidence> {
    let fails = |v: &View| v.probes >= config.least_probes && v.failed * 2 >= v.probes;
    // If it fails for most, the storage is gone for everybody and no other node would do better.
    if !fails(own) || peers.iter().filter(|p| fails(p)).count() * 2 >= peers.iter().count() {
        return None;
    }
    let why = watch.failure.as_deref().unwrap_or("no reason given");
    Some(Evidence {
        sentence: format!("its storage failed {} of the last {} probes ({why})", own.failed, own.probes),
        excess: 1e6,
        past_only: false,
    })
}

/// One that cannot keep its connection, while others do.
fn flapping(own: &View, peers: Peers<'_>) -> Option<Evidence> {
    if own.breaks < LEAST_BREAKS {
        return None;
    }
    let others = median(peers.iter().map(|p| p.breaks as f64).collect())?;
    (own.breaks as f64 > 3.0 * others).then(|| Evidence {
        sentence: format!(
            "its connection broke {} times in {} (the median of {} others: {others:.0})",
            own.breaks,
            ms(BREAKS_WITHIN.as_secs_f64()),
            peers.iter().count()
        ),
        excess: 1e5,
        past_only: false,
    })
}

/// So often is no accident.
const LEAST_BREAKS: usize = 4;

fn stall(config: &ScreenConfig, own: &View, watch: &Watch, peers: Peers<'_>) -> Option<Evidence> {
    let value = own.stall.filter(|v| *v > config.stall_floor)?;
    let others: Vec<f64> = peers.iter().filter_map(|p| p.stall).collect();
    let past = watch.past(Measure::Stall);
    let far = Far::above(config, value, &others, past)?;
    Some(far.evidence(format!("it lets probes wait {}", ms(value)), ms))
}

fn storage(config: &ScreenConfig, own: &View, watch: &Watch, peers: Peers<'_>) -> Option<Evidence> {
    let value = own.storage.filter(|v| *v > config.storage_floor)?;
    let past = watch.past(Measure::Storage(own.busy));
    let alike: Vec<f64> = peers.iter().filter(|p| p.busy == own.busy).filter_map(|p| p.storage).collect();
    let far = if alike.is_empty() {
        // A busy storage is slower than an idle one: then its own past under such load must agree.
        let others: Vec<f64> = peers.iter().filter_map(|p| p.storage).collect();
        past?;
        Far::above(config, value, &others, past)?
    } else {
        Far::above(config, value, &alike, past)?
    };
    Some(far.evidence(format!("its storage takes {} for a probe", ms(value)), ms))
}

/// Long responses alone may be a long queue, and a low rate alone a single slow client; both
/// together are neither.
fn service(
    config: &ScreenConfig,
    kind: Kind,
    own: &View,
    watch: &Watch,
    peers: Peers<'_>,
) -> Option<Evidence> {
    let value = own.service.get(&kind).filter(|s| s.response > config.response_floor)?;
    let others: Vec<_> = peers.iter().filter_map(|p| p.service.get(&kind)).collect();
    let responses: Vec<f64> = others.iter().map(|s| s.response).collect();
    let far = Far::above(config, value.response, &responses, watch.past(Measure::Response(kind)))?;
    // Seconds for a MB (or an operation), so that more is worse here too.
    let cost = |rate: f64| 1.0 / rate.max(1e-9);
    let costs: Vec<f64> = others.iter().map(|s| cost(s.rate)).collect();
    let rate = Far::above(config, cost(value.rate), &costs, watch.past(Measure::Rate(kind)).map(cost))?;
    let unit = if kind == Kind::Metadata { "operations/s" } else { "MB/s" };
    let sentence = format!(
        "{} take {} and are served at {:.1} {unit} ({:.1} {})",
        kind.describe(),
        ms(value.response),
        value.rate,
        1.0 / rate.reference,
        if rate.peers == 0 { "in its own past" } else { "on the others" }
    );
    Some(far.evidence(sentence, ms))
}

/// A value far above where it should be.
struct Far {
    times: f64,
    reference: f64,
    peers: usize,
    past: Option<f64>,
}

impl Far {
    fn above(config: &ScreenConfig, value: f64, peers: &[f64], past: Option<f64>) -> Option<Far> {
        if value.is_nan() {
            return None;
        }
        let reference = match median(peers.to_vec()) {
            Some(middle) => {
                let limit =
                    (config.factor * middle).max(middle + config.deviations * deviation(peers, middle));
                let usual = past.is_some_and(|p| value <= config.factor * p);
                // It has always been so, unless that is far too much.
                if value <= limit || (usual && value <= 2.0 * limit) {
                    return None;
                }
                middle
            }
            None => past.filter(|p| value > config.factor * p)?,
        };
        Some(Far { times: value / reference.max(1e-9), reference, peers: peers.len(), past })
    }

    fn evidence(self, what: String, show: fn(f64) -> String) -> Evidence {
        let times = format!("{:.0} times", self.times.min(1e6));
        let sentence = match (self.peers, self.past) {
            (0, _) => format!("{what}, {times} its own past ({})", show(self.reference)),
            (1, None) => format!("{what}, {times} the other node's ({})", show(self.reference)),
            (n, None) => format!("{what}, {times} the median of {n} others ({})", show(self.reference)),
            (1, Some(p)) => {
                format!(
                    "{what}, {times} the other node's ({}); its own past: {}",
                    show(self.reference),
                    show(p)
                )
            }
            (n, Some(p)) => format!(
                "{what}, {times} the median of {n} others ({}); its own past: {}",
                show(self.reference),
                show(p)
            ),
        };
        Evidence { sentence, excess: self.times, past_only: self.peers == 0 }
    }
}

/// Seconds, for people.
pub(super) fn ms(seconds: f64) -> String {
    match seconds {
        s if s >= 10.0 => format!("{s:.0} s"),
        s if s >= 1.0 => format!("{s:.1} s"),
        s if s >= 0.01 => format!("{:.0} ms", s * 1e3),
        s => format!("{:.2} ms", s * 1e3),
    }
}
