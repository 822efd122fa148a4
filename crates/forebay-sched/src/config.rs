//! Which scheduler, with which parameters: as a table in TOML or JSON (`name = "twins"`,
//! `window = "500us"`) or as one line (`twins:window=500us`). Merging is a parameter of all.

use crate::Scheduler;
use crate::aggregate::Limits;
use crate::aioli::{Aioli, AioliConfig};
use crate::capped::{Capped, CappedConfig};
use crate::fifo::Fifo;
use crate::hbrr::{Hbrr, HbrrConfig};
use crate::mlf::{Mlf, MlfConfig};
use crate::sfq::{Sfq, SfqConfig, SfqDConfig};
use crate::sfq_plus::{SfqPlus, SfqPlusConfig};
use crate::sjf::{Sjf, SjfConfig};
use crate::sw::{Sw, SwConfig};
use crate::twins::{Twins, TwinsConfig};
use crate::wfq::{Wfq, WfqConfig};
use forebay_types::{Nanos, SchedulerSpec, size, span};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};
use std::fmt;
use std::str::FromStr;

/// A scheduler by name, its parameters, and how far it merges.
#[derive(Clone, Debug, PartialEq)]
pub struct SchedulerConfig {
    /// The scheduler and what is its own.
    pub algorithm: Algorithm,
    /// How requests are merged once it has chosen.
    pub merge: Limits,
}

/// The schedulers, with their parameters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "name", rename_all = "kebab-case")]
pub enum Algorithm {
    /// Arrival order, never merged.
    Noop(Plain),
    /// Arrival order.
    Fifo(Plain),
    /// Files and operations in turn.
    Hbrr(HbrrConfig),
    /// Files in turn, in offset order, waiting for likely neighbours.
    Aioli(AioliConfig),
    /// The shortest file queue first.
    Sjf(SjfConfig),
    /// Multilevel feedback: small requests sooner.
    Mlf(MlfConfig),
    /// By time window, then by application.
    Sw(SwConfig),
    /// Byte credits by weight.
    Wfq(WfqConfig),
    /// One data server per time window.
    Twins(TwinsConfig),
    /// Start-time fair queueing, one request at a time.
    Sfq(SfqConfig),
    /// Start-time fair queueing, so many requests at a time.
    SfqD(SfqDConfig),
    /// Start-time fair queueing by slots, with backfill.
    SfqDPlus(SfqPlusConfig),
    /// A bandwidth of its own for every flow.
    Capped(CappedConfig),
}

impl Algorithm {
    /// Refuses parameters that make no scheduler.
    fn check(&self) -> Result<(), String> {
        const TIB: u64 = 1 << 40;
        const HOUR: u64 = 3_600_000_000_000;
        let count = |key, n: u32, max| within(key, n.into(), max, |n| n.to_string());
        let size = |key, n| within(key, n, TIB, size::show);
        let span = |key, n: Nanos| within(key, n.0, HOUR, |n| span::show(Nanos(n)));
        match self {
            Algorithm::Noop(_) | Algorithm::Fifo(_) | Algorithm::Sfq(_) => Ok(()),
            Algorithm::Hbrr(c) => count("quantum", c.quantum, MOST),
            Algorithm::Aioli(c) => size("quantum", c.quantum),
            Algorithm::Sjf(c) => count("patience", c.patience, MOST),
            Algorithm::Mlf(c) => size("quantum", c.quantum),
            Algorithm::Sw(c) => span("window", c.window),
            Algorithm::Wfq(c) => size("quantum", c.quantum),
            Algorithm::Twins(c) => span("window", c.window),
            Algorithm::SfqD(c) => count("depth", c.depth, MOST),
            Algorithm::SfqDPlus(c) => count("depth", c.depth, MOST),
            Algorithm::Capped(c) => size("rate", c.rate),
        }
    }
}

fn within(key: &str, value: u64, max: u64, show: impl Fn(u64) -> String) -> Result<(), String> {
    if (1..=max).contains(&value) {
        return Ok(());
    }
    Err(format!("`{key}={}` is out of range: {} to {}", show(value), show(1), show(max)))
}

/// No parameters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plain {}

/// Where this I/O node stands; what a scheduler must know of the rest of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Site {
    /// Its place among the I/O nodes, from 0.
    pub node: u32,
    /// How many data servers the file system has.
    pub servers: u32,
}

impl Default for Site {
    fn default() -> Site {
        Site { node: 0, servers: 1 }
    }
}

/// What is wrong with a scheduler's configuration.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("scheduler `{given}`: {reason}")]
pub struct ConfigError {
    given: String,
    reason: String,
}

impl SchedulerConfig {
    /// Every scheduler's name.
    pub const NAMES: [&str; 13] = [
        "noop",
        "fifo",
        "hbrr",
        "aioli",
        "sjf",
        "mlf",
        "sw",
        "wfq",
        "twins",
        "sfq",
        "sfq-d",
        "sfq-d-plus",
        "capped",
    ];

    /// Whether a flow with twice the weight gets twice as much.
    pub fn knows_weights(&self) -> bool {
        matches!(
            self.algorithm,
            Algorithm::Wfq(_) | Algorithm::Sfq(_) | Algorithm::SfqD(_) | Algorithm::SfqDPlus(_)
        )
    }

    /// The scheduler's name.
    pub fn name(&self) -> &'static str {
        match self.algorithm {
            Algorithm::Noop(_) => "noop",
            Algorithm::Fifo(_) => "fifo",
            Algorithm::Hbrr(_) => "hbrr",
            Algorithm::Aioli(_) => "aioli",
            Algorithm::Sjf(_) => "sjf",
            Algorithm::Mlf(_) => "mlf",
            Algorithm::Sw(_) => "sw",
            Algorithm::Wfq(_) => "wfq",
            Algorithm::Twins(_) => "twins",
            Algorithm::Sfq(_) => "sfq",
            Algorithm::SfqD(_) => "sfq-d",
            Algorithm::SfqDPlus(_) => "sfq-d-plus",
            Algorithm::Capped(_) => "capped",
        }
    }

    fn from_map(mut map: Map<String, Value>) -> Result<SchedulerConfig, ConfigError> {
        let name = map.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
        let fail = |reason: String| ConfigError { given: name.clone(), reason };
        if !Self::NAMES.contains(&name.as_str()) {
            return Err(fail(format!("there is none of this name; there are {}", Self::NAMES.join(", "))));
        }
        let defaults = if name == "noop" { Limits::OFF } else { Limits::default() };
        let merge = MergeKeys {
            merge: map.remove("merge").unwrap_or(defaults.count.into()),
            merge_bytes: map.remove("merge-bytes").unwrap_or(defaults.bytes.into()),
            sieve: map.remove("sieve").unwrap_or(defaults.sieve.into()),
        };
        let merge = merge.limits().map_err(&fail)?;
        if name == "noop" && merge.count > 1 {
            return Err(fail("it never merges; `fifo` is arrival order with merging".to_owned()));
        }
        let algorithm: Algorithm =
            serde_json::from_value(Value::Object(map.clone())).map_err(|e| fail(unfit(&map, &e)))?;
        algorithm.check().map_err(fail)?;
        Ok(SchedulerConfig { algorithm, merge })
    }

    fn to_map(&self) -> Map<String, Value> {
        let mut map = match serde_json::to_value(&self.algorithm) {
            Ok(Value::Object(map)) => map,
            _ => Map::new(),
        };
        if self.name() != "noop" {
            map.insert("merge".into(), self.merge.count.into());
            map.insert("merge-bytes".into(), size::show(self.merge.bytes).into());
            map.insert("sieve".into(), size::show(self.merge.sieve).into());
        }
        map
    }
}

/// The most that a parameter which counts may be.
const MOST: u64 = 1 << 20;

/// Which parameter does not fit, and what it should be.
fn unfit(map: &Map<String, Value>, error: &serde_json::Error) -> String {
    let fits = |key: &str, value: &Value| {
        let alone = [("name", map.get("name").cloned().unwrap_or_default()), (key, value.clone())];
        let alone = alone.into_iter().map(|(k, v)| (k.to_owned(), v)).collect();
        serde_json::from_value::<Algorithm>(Value::Object(alone)).map(drop)
    };
    let wrong =
        map.iter().filter(|(key, _)| *key != "name").find_map(|(k, v)| Some((k, v, fits(k, v).err()?)));
    let Some((key, value, why)) = wrong else { return error.to_string() };
    let why = why.to_string();
    let wanted = why.rsplit_once("expected ").map_or("", |(_, wanted)| wanted);
    let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    match wanted {
        _ if why.starts_with("invalid value: integer") => {
            format!("`{key}={value}` is out of range: 1 to {MOST}")
        }
        "u8" | "u16" | "u32" | "u64" | "usize" => {
            format!("`{key}={value}`: give a whole number from 1 to {MOST}")
        }
        "f32" | "f64" => format!("`{key}={value}`: this is a number"),
        "a boolean" => format!("`{key}={value}`: this is `true` or `false`"),
        _ if why.starts_with("unknown field") => why,
        _ => format!("`{key}={value}`: {why}"),
    }
}

/// The merging parameters as they stand in a config.
struct MergeKeys {
    merge: Value,
    merge_bytes: Value,
    sieve: Value,
}

impl MergeKeys {
    fn limits(self) -> Result<Limits, String> {
        let count = match self.merge {
            Value::Bool(false) => Some(1),
            Value::Bool(true) => Some(Limits::default().count),
            v => v.as_u64().and_then(|n| usize::try_from(n).ok()),
        };
        let count = count.filter(|n| (1..=Limits::MAX_COUNT).contains(n)).ok_or_else(|| {
            format!("`merge` is how many requests may become one, 1 to {}", Limits::MAX_COUNT)
        })?;
        let size = |key: &str, v: Value| size::deserialize(v).map_err(|e| format!("`{key}`: {e}"));
        Ok(Limits { count, bytes: size("merge-bytes", self.merge_bytes)?, sieve: size("sieve", self.sieve)? })
    }
}

impl FromStr for SchedulerConfig {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<SchedulerConfig, ConfigError> {
        let (name, parameters) = text.split_once(':').unwrap_or((text, ""));
        let mut map = Map::new();
        map.insert("name".to_owned(), name.trim().into());
        for pair in parameters.split(',').map(str::trim).filter(|p| !p.is_empty()) {
            let fail =
                |reason: &str| ConfigError { given: text.to_owned(), reason: format!("`{pair}` {reason}") };
            let (key, value) = pair.split_once('=').ok_or_else(|| fail("is not of the form key=value"))?;
            let value = value.trim();
            let digits = !value.is_empty() && value.bytes().all(|b| b.is_ascii_digit());
            let value = value
                .parse::<u64>()
                .or_else(|e| if digits { Ok(u64::MAX) } else { Err(e) })
                .map(Value::from)
                .or_else(|_| value.parse::<bool>().map(Value::from))
                .unwrap_or_else(|_| Value::from(value));
            if map.insert(key.trim().to_owned(), value).is_some() {
                return Err(fail("is given twice"));
            }
        }
        SchedulerConfig::from_map(map)
    }
}

impl fmt::Display for SchedulerConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        let mut separator = ':';
        for (key, value) in self.to_map().iter().filter(|(k, _)| *k != "name") {
            match value {
                Value::String(s) => write!(f, "{separator}{key}={s}")?,
                other => write!(f, "{separator}{key}={other}")?,
            }
            separator = ',';
        }
        Ok(())
    }
}

impl From<&SchedulerConfig> for SchedulerSpec {
    fn from(config: &SchedulerConfig) -> SchedulerSpec {
        config.to_string().into()
    }
}

impl TryFrom<&SchedulerSpec> for SchedulerConfig {
    type Error = ConfigError;

    fn try_from(spec: &SchedulerSpec) -> Result<SchedulerConfig, ConfigError> {
        spec.as_str().parse()
    }
}

impl Serialize for SchedulerConfig {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        self.to_map().serialize(s)
    }
}

impl<'de> Deserialize<'de> for SchedulerConfig {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<SchedulerConfig, D::Error> {
        match Value::deserialize(d)? {
            Value::String(text) => text.parse().map_err(D::Error::custom),
            Value::Object(map) => SchedulerConfig::from_map(map).map_err(D::Error::custom),
            _ => Err(D::Error::custom(
                "a scheduler is a line such as \"twins:window=500us\" or a table with its `name`",
            )),
        }
    }
}

/// Builds the scheduler for the node at `site`.
pub fn build(config: &SchedulerConfig, site: Site) -> Box<dyn Scheduler> {
    match &config.algorithm {
        Algorithm::Noop(_) => Box::new(Fifo::new(Limits::OFF)),
        Algorithm::Fifo(_) => Box::new(Fifo::new(config.merge)),
        Algorithm::Hbrr(c) => Box::new(Hbrr::new(c, config.merge)),
        Algorithm::Aioli(c) => Box::new(Aioli::new(c, config.merge)),
        Algorithm::Sjf(c) => Box::new(Sjf::new(c, config.merge)),
        Algorithm::Mlf(c) => Box::new(Mlf::new(c, config.merge)),
        Algorithm::Sw(c) => Box::new(Sw::new(c, config.merge)),
        Algorithm::Wfq(c) => Box::new(Wfq::new(c, config.merge)),
        Algorithm::Twins(c) => Box::new(Twins::new(c, config.merge, site)),
        Algorithm::Sfq(c) => Box::new(Sfq::new(c, config.merge)),
        Algorithm::SfqD(c) => Box::new(Sfq::with_depth(c, config.merge)),
        Algorithm::SfqDPlus(c) => Box::new(SfqPlus::new(c, config.merge)),
        Algorithm::Capped(c) => Box::new(Capped::new(c, config.merge)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_a_toml_table_and_a_json_object_say_the_same() {
        #[derive(Deserialize)]
        struct File {
            scheduler: SchedulerConfig,
        }
        let line: SchedulerConfig = "twins:window=500us,merge=8".parse().unwrap();
        assert!(matches!(&line.algorithm, Algorithm::Twins(t) if t.window == Nanos::from_micros(500)));
        assert_eq!(line.merge, Limits { count: 8, ..Limits::default() });
        let toml: File =
            toml::from_str("[scheduler]\nname = \"twins\"\nwindow = \"0.5ms\"\nmerge = 8\n").unwrap();
        let short: File = toml::from_str("scheduler = \"twins:window=500us,merge=8\"").unwrap();
        let json: SchedulerConfig =
            serde_json::from_str(r#"{"name":"twins","window":"500us","merge":8}"#).unwrap();
        assert_eq!([&toml.scheduler, &short.scheduler, &json], [&line; 3]);
    }

    #[test]
    fn every_scheduler_reads_back_what_it_shows() {
        for name in SchedulerConfig::NAMES {
            let config: SchedulerConfig = name.parse().unwrap();
            assert_eq!(config.name(), name);
            assert_eq!(config.to_string().parse::<SchedulerConfig>().unwrap(), config);
            let json = serde_json::to_string(&config).unwrap();
            assert_eq!(serde_json::from_str::<SchedulerConfig>(&json).unwrap(), config);
        }
    }

    #[test]
    fn mistakes_are_named() {
        for (text, hint) in [
            ("", "there are noop, fifo"),
            ("fofi", "there are noop, fifo"),
            ("twins:window", "`window` is not of the form key=value"),
            ("twins:window=5parsecs", "\"5parsecs\" is no span of time"),
            ("twins:windows=5ms", "unknown field `windows`"),
            ("fifo:merge=0", "`merge` is how many"),
            ("fifo:merge=99999999999", "`merge` is how many"),
            ("fifo:merge-bytes=lots", "`merge-bytes`: \"lots\" is no size"),
            ("fifo:depth=4", "unknown field `depth`"),
            ("noop:merge=4", "never merges"),
            ("hbrr:quantum=0", "`quantum=0` is out of range: 1 to 1048576"),
            ("aioli:quantum=0", "`quantum=0B` is out of range: 1B to 1TiB"),
            ("mlf:quantum=2000GiB", "out of range"),
            ("wfq:quantum=0", "out of range"),
            ("sjf:patience=0", "out of range"),
            ("sw:window=0ms", "`window=0ns` is out of range: 1ns to 3600s"),
            ("twins:window=2000000s", "out of range"),
            ("sfq-d:depth=0", "out of range"),
            ("sfq-d-plus:depth=0", "out of range"),
            ("capped:rate=0", "out of range"),
            ("fifo:merge=2,merge=3", "given twice"),
            ("sfq-d:depth=many", "`depth=many`: give a whole number from 1 to 1048576"),
            ("sfq-d-plus:depth=-1", "`depth=-1`: give a whole number from 1 to 1048576"),
            ("hbrr:quantum=99999999999", "`quantum=99999999999` is out of range: 1 to 1048576"),
            ("hbrr:quantum=18446744073709551616", "is out of range: 1 to 1048576"),
            ("twins:window=soon", "`window=soon`: "),
        ] {
            let error = text.parse::<SchedulerConfig>().unwrap_err().to_string();
            assert!(error.contains(hint), "{text}: {error}");
        }
    }
}
