//! Limits and guarantees: what somebody's jobs may have on all I/O nodes together, at most or at least.

use crate::node::JobShare;
pub use forebay_types::rates::Rates;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Where limits are set (`POST`), listed (`GET`) and, below it, removed (`DELETE …/ID`).
pub const LIMITS_PATH: &str = "/v1/limits";

/// Whose jobs. Those of a user or of an application share what they may have.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Subject {
    /// The job of this name, now or whenever there is one.
    Job(String),
    /// All jobs of this user.
    User(String),
    /// All jobs of this application.
    App(String),
}

impl Subject {
    /// What it is called.
    pub fn name(&self) -> &str {
        match self {
            Subject::Job(name) | Subject::User(name) | Subject::App(name) => name,
        }
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self {
            Subject::Job(_) => "job",
            Subject::User(_) => "user",
            Subject::App(_) => "app",
        };
        write!(f, "{kind}={}", self.name())
    }
}

/// `POST /v1/limits`: from now on. It takes the place of an earlier one for the same subject.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limit {
    /// Whose.
    pub subject: Subject,
    /// At most so much a second, on all I/O nodes together.
    #[serde(default)]
    pub most: Rates,
    /// At least so many bytes a second, as far as it asks for them and the schedulers know weights.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_least: Option<f64>,
    /// Until then, in milliseconds since 1970; else until it is removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until_unix_ms: Option<u64>,
}

impl Limit {
    /// What such a part of it leaves.
    pub fn leaves(&self, share: &[f64]) -> Rates {
        let most = self.most.all();
        Rates::of(std::array::from_fn(|i| most[i].and_then(|_| share.get(i).copied())))
    }
}

/// `GET /v1/limits`: a list of these.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LimitView {
    /// To remove it by: `job=NAME`, `user=NAME` or `app=NAME`.
    pub id: String,
    /// The limit.
    pub limit: Limit,
    /// What each of its jobs may have on each I/O node at present.
    pub shares: Vec<PlaceView>,
    /// What is not as whoever set it may think.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// What a limit leaves to one job on one I/O node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlaceView {
    /// The I/O node.
    pub node: forebay_types::NodeId,
    /// The job, and what it may have there.
    #[serde(flatten)]
    pub share: JobShare,
}

/// What is no time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UntilError {
    /// Neither a span nor a moment.
    #[error(
        "{0:?} is no time: write for how long, as in `90min` or `12h`, or until when in UTC, as in `2026-11-30T18:00`"
    )]
    Time(String),
    /// A number that is no span.
    #[error("{0:?}: write for how long with its unit, as in `90min` or `12h`, and at most 500 years")]
    Span(String),
}

fn short(text: &str) -> String {
    text.chars().take(60).collect()
}

/// A time, as people write it: for how long from now, or until when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// For so many milliseconds.
    For(u64),
    /// Milliseconds since 1970.
    At(u64),
}

impl Until {
    /// In milliseconds since 1970.
    pub fn unix_ms(self, now_unix_ms: u64) -> u64 {
        match self {
            Until::For(ms) => now_unix_ms.saturating_add(ms),
            Until::At(ms) => ms,
        }
    }
}

impl FromStr for Until {
    type Err = UntilError;

    fn from_str(text: &str) -> Result<Until, UntilError> {
        match forebay_types::span::parse(text) {
            Ok(span) => return Ok(Until::For(span.0 / 1_000_000)),
            Err(_) if text.starts_with(|c: char| c.is_ascii_digit()) && !text.contains(['-', ':']) => {
                return Err(UntilError::Span(short(text)));
            }
            Err(_) => {}
        }
        instant(text).map(Until::At).ok_or_else(|| UntilError::Time(short(text)))
    }
}

/// `YYYY-MM-DD`, then perhaps `T` or a blank and `HH:MM[:SS]`, then perhaps `Z`.
fn instant(text: &str) -> Option<u64> {
    let text = text.strip_suffix(['Z', 'z']).unwrap_or(text);
    let (day, time) = text.split_once(['T', 't', ' ']).unwrap_or((text, "00:00"));
    let numbers = |text: &str, by: char| -> Option<Vec<u64>> {
        text.split(by).map(|part| (part.len() <= 4).then(|| part.parse().ok())?).collect()
    };
    let (date, clock) = (numbers(day, '-')?, numbers(time, ':')?);
    let [year @ 1970..=9999, month @ 1..=12, day @ 1..=31] = date[..] else { return None };
    let (hour, minute, second) = match clock[..] {
        [h @ 0..=23, m @ 0..=59] => (h, m, 0),
        [h @ 0..=23, m @ 0..=59, s @ 0..=59] => (h, m, s),
        _ => return None,
    };
    // Years begin in March, so that a leap day is their last.
    let (y, m) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = y * 365 + y / 4 - y / 100 + y / 400 + (m * 153 + 2) / 5 + day - 1 - 719_468;
    let ms = (((days * 24 + hour) * 60 + minute) * 60 + second) * 1000;
    // There is no 30th of February.
    utc(ms).starts_with(&format!("{year:04}-{month:02}-{day:02}")).then_some(ms)
}

/// The inverse, for a person: `YYYY-MM-DD HH:MM:SS`.
pub fn utc(unix_ms: u64) -> String {
    let seconds = unix_ms / 1000;
    let (days, clock) = (seconds / 86_400 + 719_468, seconds % 86_400);
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    let year = year + era * 400 + next;
    let (h, m, s) = (clock / 3600, clock / 60 % 60, clock % 60);
    format!("{year:04}-{month:02}-{day:02} {h:02}:{m:02}:{s:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_as_people_write_them() {
        assert_eq!("90min".parse(), Ok(Until::For(5_400_000)));
        assert_eq!("1970-01-01".parse(), Ok(Until::At(0)));
        assert_eq!("2000-02-29T12:30".parse(), Ok(Until::At(951_827_400_000)));
        assert_eq!("2026-11-16 11:11:21Z".parse(), Ok(Until::At(1_794_827_481_000)));
        for wrong in [
            "",
            "tomorrow",
            "2026-13-01",
            "2027-02-30",
            "2027-02-29",
            "2026-11-16T24:00",
            "16.11.2026",
            "-1-1-1",
        ] {
            assert!(wrong.parse::<Until>().is_err(), "{wrong}");
        }
        assert_eq!(Until::For(5).unix_ms(10), 15);
        for text in
            ["1970-01-01 00:00:00", "2000-02-29 12:30:00", "2026-12-31 23:59:59", "2100-03-01 00:00:00"]
        {
            let Ok(Until::At(ms)) = text.parse() else { panic!("{text}") };
            assert_eq!(utc(ms), text);
        }
    }
}
