//! What can be chosen: a declared set of scheduler configurations, one of which is the default.

use forebay_sched::SchedulerConfig;
use serde::{Deserialize, Serialize};

/// More arms than can be learned in any sensible time.
pub const MAX_ARMS: usize = 64;

/// What is wrong with a set of arms.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ArmsError {
    /// Nothing to choose between, or too much.
    #[error("{0} arms are declared; there must be 2 to {MAX_ARMS}")]
    Number(usize),
    /// The same configuration twice.
    #[error("the arm `{0}` is declared twice")]
    Twice(String),
    /// The default is none of the arms.
    #[error("the default `{0}` is none of the arms")]
    Default(String),
}

/// Scheduler configurations to choose between. They may differ in a parameter (TWINS windows, HBRR
/// quanta, SFQ depths) or in the scheduler itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Declared", into = "Declared")]
pub struct Arms {
    arms: Vec<SchedulerConfig>,
    default: usize,
}

#[derive(Serialize, Deserialize)]
struct Declared {
    default: SchedulerConfig,
    arms: Vec<SchedulerConfig>,
}

impl Arms {
    /// The declared `arms`, of which `default` is in force when nothing is known.
    pub fn new(arms: Vec<SchedulerConfig>, default: &SchedulerConfig) -> Result<Arms, ArmsError> {
        if arms.len() < 2 || arms.len() > MAX_ARMS {
            return Err(ArmsError::Number(arms.len()));
        }
        for (i, arm) in arms.iter().enumerate() {
            if arms[..i].contains(arm) {
                return Err(ArmsError::Twice(arm.to_string()));
            }
        }
        let position = arms.iter().position(|a| a == default);
        let default = position.ok_or_else(|| ArmsError::Default(default.to_string()))?;
        Ok(Arms { arms, default })
    }

    /// The seven TWINS windows of the literature; 1 ms, which harms the fewest patterns, is the
    /// default.
    pub fn twins_windows() -> Arms {
        let window =
            |w: &str| format!("twins:window={w}").parse().expect("a window in the notation of forebay-sched");
        let arms: Vec<SchedulerConfig> =
            ["125us", "250us", "500us", "1ms", "2ms", "4ms", "8ms"].map(window).into();
        Arms { arms, default: 3 }
    }

    /// The configurations, by index.
    pub fn all(&self) -> &[SchedulerConfig] {
        &self.arms
    }

    /// The arms' names for people: the scheduler and the parameters in which the arms differ.
    pub fn names(&self) -> Vec<String> {
        let parts: Vec<(String, Vec<String>)> = self.arms.iter().map(|a| parts(&a.to_string())).collect();
        let common = |parameter: &String| parts.iter().all(|(_, all)| all.contains(parameter));
        let name = |(scheduler, all): &(String, Vec<String>)| {
            let own: Vec<&str> = all.iter().filter(|p| !common(p)).map(String::as_str).collect();
            if own.is_empty() { scheduler.clone() } else { format!("{scheduler}:{}", own.join(",")) }
        };
        parts.iter().map(name).collect()
    }

    /// The names in two parts, for narrow tables: what all of them begin with, and the rest of each.
    pub fn short_names(&self) -> (String, Vec<String>) {
        let names = self.names();
        let mut prefix = names[0].clone();
        for name in &names {
            let same = prefix.chars().zip(name.chars()).take_while(|(a, b)| a == b);
            prefix = same.map(|(a, _)| a).collect();
        }
        // Cut where a word ends, not in the middle of a number.
        prefix.truncate(prefix.rfind([':', '=', ',']).map_or(0, |i| i + 1));
        let rest = names.iter().map(|n| n[prefix.len()..].to_string()).collect();
        (prefix, rest)
    }

    /// The index of the default.
    pub fn default_arm(&self) -> usize {
        self.default
    }

    /// The index of `config`, if it is among them.
    pub fn find(&self, config: &SchedulerConfig) -> Option<usize> {
        self.arms.iter().position(|a| a == config)
    }
}

/// A scheduler's name and its parameters, from its one-line form.
fn parts(line: &str) -> (String, Vec<String>) {
    let (scheduler, parameters) = line.split_once(':').unwrap_or((line, ""));
    (scheduler.to_string(), parameters.split(',').filter(|p| !p.is_empty()).map(String::from).collect())
}

impl TryFrom<Declared> for Arms {
    type Error = ArmsError;
    fn try_from(d: Declared) -> Result<Arms, ArmsError> {
        Arms::new(d.arms, &d.default)
    }
}

impl From<Arms> for Declared {
    fn from(a: Arms) -> Declared {
        Declared { default: a.arms[a.default].clone(), arms: a.arms }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_what_differs() {
        let arms = Arms::twins_windows();
        assert_eq!(arms.names()[..2], ["twins:window=125us", "twins:window=250us"]);
        let (prefix, rest) = arms.short_names();
        assert_eq!((prefix.as_str(), rest[6].as_str()), ("twins:window=", "8ms"));
        let parse = |s: &str| s.parse::<SchedulerConfig>().unwrap();
        let mixed =
            Arms::new(vec![parse("fifo"), parse("hbrr"), parse("twins:window=2ms")], &parse("fifo")).unwrap();
        assert_eq!(mixed.names()[0], "fifo");
        assert!(mixed.names()[2].starts_with("twins:") && mixed.names()[2].contains("window=2ms"));
        assert_eq!(mixed.short_names().0, "");
    }

    #[test]
    fn a_declared_set_is_checked() {
        let arms = Arms::twins_windows();
        let json = serde_json::to_string(&arms).unwrap();
        assert_eq!(serde_json::from_str::<Arms>(&json).unwrap(), arms);
        let fifo: SchedulerConfig = "fifo".parse().unwrap();
        assert!(matches!(Arms::new(vec![fifo.clone()], &fifo), Err(ArmsError::Number(1))));
        assert!(matches!(Arms::new(vec![fifo.clone(), fifo.clone()], &fifo), Err(ArmsError::Twice(_))));
        assert!(matches!(Arms::new(arms.all().to_vec(), &fifo), Err(ArmsError::Default(_))));
    }
}
