//! Sizes and times as scenarios have them: `4096`, `"32 KiB"`, `"1.5s"`.

use forebay_types::{Nanos, size, span};
use serde::Deserialize;
use std::time::Duration;

/// A number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
pub(super) struct Size(#[serde(with = "size")] pub(super) u64);

/// A span of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(transparent)]
pub(super) struct Span(#[serde(with = "span")] pub(super) Nanos);

impl Span {
    pub(super) fn duration(self) -> Duration {
        self.0.into()
    }
}

pub(super) fn seconds(s: f64) -> Result<Duration, String> {
    if (0.0..=1e9).contains(&s) {
        Ok(Duration::from_secs_f64(s))
    } else {
        Err(format!("{s} is not a number of seconds"))
    }
}
