//! What makes the figures: groups, each of which makes several at once. None of them knows a published
//! value of a figure it makes; tables they compare row by row are handed to them.

mod detect;
mod dfra;
mod forge;
mod learn;
mod live;
mod mounted;
mod policies;
mod queue;
mod santos;
mod screen;
mod twins;
mod validate;
mod vpfs;

use anyhow::{Result, bail};
use forebay_types::stats::quantile;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::str::FromStr;

/// A figure, with the range in which it lay.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// The value.
    pub value: f64,
    /// The lowest of its repetitions, or the lower end of its interval.
    pub low: f64,
    /// The highest, or the upper end.
    pub high: f64,
    /// What the range is.
    pub range: String,
}

impl Measured {
    /// A figure that does not vary.
    pub fn exact(value: f64) -> Measured {
        Measured { value, low: value, high: value, range: "exact".into() }
    }

    /// The median of several, and how far they lie apart.
    pub fn of(values: Vec<f64>, what: &str) -> Measured {
        let [low, value, high] = [0.0, 0.5, 1.0].map(|q| quantile(&values, q));
        Measured { value, low, high, range: format!("{} {what}", values.len()) }
    }

    /// With a range of another kind.
    pub fn between(value: f64, low: f64, high: f64, range: &str) -> Measured {
        Measured { value, low, high, range: range.into() }
    }
}

/// Figures by name, without the group's.
pub type Figures = BTreeMap<String, Measured>;

/// What can be broken on purpose, to see that the verdict changes. Only set-ups of simulations and
/// analyses know these; there is no such switch in a node, a policy or a scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Break {
    /// All I/O nodes walk the data servers in the same order.
    Rotation,
    /// No merging.
    Merging,
    /// SFQ(D) in place of SFQ(D)+.
    Backfill,
    /// All jobs weigh the same.
    Weights,
    /// Several I/O nodes at a data server cost nothing.
    Concurrency,
    /// Arrival order in place of windows.
    Windows,
    /// Every measurement is labelled with the next larger number of I/O nodes.
    Labels,
    /// SIZE in place of MCKP.
    Knapsack,
    /// No I/O nodes in reserve.
    Reserve,
    /// No run is remembered.
    History,
    /// Arms at random.
    Learning,
    /// Interference is not foreseen.
    Isolation,
    /// The detector sees request sizes only.
    Features,
}

impl Break {
    /// All of them, by name.
    pub const ALL: [(&str, Break); 13] = [
        ("rotation", Break::Rotation),
        ("merging", Break::Merging),
        ("backfill", Break::Backfill),
        ("weights", Break::Weights),
        ("concurrency", Break::Concurrency),
        ("windows", Break::Windows),
        ("labels", Break::Labels),
        ("knapsack", Break::Knapsack),
        ("reserve", Break::Reserve),
        ("history", Break::History),
        ("learning", Break::Learning),
        ("isolation", Break::Isolation),
        ("features", Break::Features),
    ];
}

impl FromStr for Break {
    type Err = String;

    fn from_str(name: &str) -> Result<Break, String> {
        let names = || Break::ALL.map(|(n, _)| n).join(", ");
        Break::ALL
            .iter()
            .find(|(n, _)| *n == name)
            .map(|(_, b)| *b)
            .ok_or_else(|| format!("nothing of this name can be broken; there are {}", names()))
    }
}

/// Real I/O nodes: whoever runs the experiments. Answers with the files of the experiment of this name.
pub trait Laboratory {
    /// Runs it.
    fn run(&self, experiment: &str, full: bool) -> Result<Vec<(String, String)>>;
}

/// How figures are to be made.
pub struct Setup<'a> {
    /// The papers' sizes instead of the small ones.
    pub full: bool,
    /// What is broken.
    pub broken: Option<Break>,
    /// Published tables.
    pub tables: &'a BTreeMap<String, toml::Table>,
    /// Real I/O nodes.
    pub laboratory: Option<&'a dyn Laboratory>,
}

impl Setup<'_> {
    fn breaks(&self, what: Break) -> bool {
        self.broken == Some(what)
    }

    fn table(&self, name: &str) -> Result<&toml::Table> {
        self.tables.get(name).ok_or_else(|| anyhow::anyhow!("the index has no table {name:?}"))
    }
}

type Group = fn(&Setup<'_>) -> Result<Figures>;

const GROUPS: [(&str, Group); 20] = [
    ("forge", forge::figures),
    ("santos", santos::figures),
    ("policies", policies::figures),
    ("queue", queue::figures),
    ("twins", twins::figures),
    ("vpfs", vpfs::figures),
    ("detect", detect::figures),
    ("learn", learn::figures),
    ("dfra", dfra::figures),
    ("history", dfra::history),
    ("pairs", dfra::pairs),
    ("gluster", mounted::gluster),
    ("ceph", mounted::ceph),
    ("live-twins", live::twins),
    ("live-isolation", live::isolation),
    ("live-metadata", live::metadata),
    ("live-overhead", live::overhead),
    ("live-dfra", live::dfra),
    ("live-arbiter", live::arbiter),
    ("live-failslow", live::failslow),
];

/// Makes the figures of one group.
pub fn make(group: &str, setup: &Setup<'_>) -> Result<Figures> {
    match GROUPS.iter().find(|(name, _)| *name == group) {
        Some((_, make)) => make(setup),
        None => bail!("there is no group of figures called {group:?}"),
    }
}

/// A figure that another claims to have.
fn put(figures: &mut Figures, name: &str, value: Measured) {
    figures.insert(name.to_owned(), value);
}
