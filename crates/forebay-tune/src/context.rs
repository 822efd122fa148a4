//! In which situation something was learned: operation, pattern, request size, load.

use forebay_pattern::FlowMetrics;
use forebay_types::{OpKind, Pattern};
use serde::{Deserialize, Serialize};
use std::fmt;

/// A situation. What is learned in one says nothing about another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Context {
    /// Mostly reads or mostly writes.
    pub operation: OpKind,
    /// Layout and spatiality.
    pub pattern: Pattern,
    /// How large the requests are.
    pub size: SizeClass,
    /// How many requests are waiting.
    pub load: LoadClass,
}

impl Context {
    /// The situation of a flow that a detector took for `pattern`; `None` if it moves no data or
    /// the pattern is not known, for then nothing can be learned for the next one like it.
    pub fn of(m: &FlowMetrics, pattern: Pattern) -> Option<Context> {
        if m.data_requests() == 0 || pattern == Pattern::Unknown {
            return None;
        }
        Some(Context {
            operation: if m.read_share() >= 0.5 { OpKind::Read } else { OpKind::Write },
            pattern,
            size: SizeClass::of(m.size_p50),
            load: LoadClass::of(m.outstanding),
        })
    }
}

impl fmt::Display for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {} {}", self.operation, self.pattern, self.size, self.load)
    }
}

/// Request sizes that behave alike: below and above a stripe, and so on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum SizeClass {
    /// Below 16 KiB.
    #[serde(rename = "<16K")]
    Tiny,
    /// 16 KiB to below 64 KiB.
    #[serde(rename = "16K-64K")]
    Small,
    /// 64 KiB to below 256 KiB.
    #[serde(rename = "64K-256K")]
    Medium,
    /// 256 KiB to below 1 MiB.
    #[serde(rename = "256K-1M")]
    Large,
    /// 1 MiB to below 4 MiB.
    #[serde(rename = "1M-4M")]
    Huge,
    /// 4 MiB and above.
    #[serde(rename = ">=4M")]
    Giant,
}

impl SizeClass {
    /// The class of a request of `bytes`.
    pub fn of(bytes: u64) -> SizeClass {
        match bytes >> 10 {
            0..16 => SizeClass::Tiny,
            16..64 => SizeClass::Small,
            64..256 => SizeClass::Medium,
            256..1024 => SizeClass::Large,
            1024..4096 => SizeClass::Huge,
            _ => SizeClass::Giant,
        }
    }
}

impl fmt::Display for SizeClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            SizeClass::Tiny => "<16K",
            SizeClass::Small => "16K-64K",
            SizeClass::Medium => "64K-256K",
            SizeClass::Large => "256K-1M",
            SizeClass::Huge => "1M-4M",
            SizeClass::Giant => ">=4M",
        })
    }
}

/// How many requests are outstanding at a node on average while there are any.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LoadClass {
    /// Fewer than 4.
    Light,
    /// 4 to 32.
    Medium,
    /// More than 32.
    Heavy,
}

impl LoadClass {
    /// The class of `outstanding` requests.
    pub fn of(outstanding: f64) -> LoadClass {
        if outstanding < 4.0 {
            LoadClass::Light
        } else if outstanding <= 32.0 {
            LoadClass::Medium
        } else {
            LoadClass::Heavy
        }
    }
}

impl fmt::Display for LoadClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            LoadClass::Light => "light",
            LoadClass::Medium => "medium",
            LoadClass::Heavy => "heavy",
        })
    }
}
