//! The seam: a policy turns jobs and a pool into a decision. The policies by name, too.

use crate::decision::Decision;
use crate::dfra::{Dfra, DfraConfig};
use crate::fair::{Fair, FairConfig};
use crate::job::{Job, Pool};
use crate::knapsack::KnapsackError;
use crate::{By, Mckp, One, Oracle, Proportional, Static, Zero};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Decides how many I/O nodes each job gets. Called whenever a job starts or ends, an I/O node comes
/// or goes, or a measurement changes; the same input always gives the same decision.
pub trait Policy: Send + Sync {
    /// Which policy this is.
    fn kind(&self) -> PolicyKind;

    /// One decision for all `jobs`; the answer lists them in the same order.
    fn decide(&self, jobs: &[Job], pool: &Pool) -> Result<Decision, PolicyError>;
}

/// Why there is no decision.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// Jobs, no direct access, and no I/O node that may be used.
    #[error("no I/O node is admitted and direct access is not allowed: nothing can serve the {jobs} jobs")]
    NoIoNodes {
        /// How many jobs wait.
        jobs: usize,
    },
    /// ZERO where direct access is not allowed.
    #[error("ZERO means direct access, which is not allowed here")]
    NoDirect,
    /// The exact solution is out of reach.
    #[error(transparent)]
    Knapsack(#[from] KnapsackError),
    /// A share, weight or cost that makes no sense.
    #[error("{0}")]
    Settings(String),
}

/// The policies by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PolicyKind {
    /// Direct access for everyone.
    Zero,
    /// One I/O node each.
    One,
    /// In proportion to compute nodes, fixed when the job starts.
    Static,
    /// In proportion to compute nodes among the running jobs.
    Size,
    /// In proportion to processes among the running jobs.
    Process,
    /// Each job's best count, whatever the pool has.
    Oracle,
    /// The largest total bandwidth the pool allows.
    Mckp,
    /// The largest weighted total that leaves every job its share of STATIC.
    Fair,
    /// Scale, isolate or skip by the application's history.
    Dfra,
}

impl PolicyKind {
    /// All of them, in the order they are shown.
    pub const ALL: [PolicyKind; 9] = [
        PolicyKind::Zero,
        PolicyKind::One,
        PolicyKind::Static,
        PolicyKind::Size,
        PolicyKind::Process,
        PolicyKind::Dfra,
        PolicyKind::Mckp,
        PolicyKind::Fair,
        PolicyKind::Oracle,
    ];

    /// As a person writes it.
    pub fn name(self) -> &'static str {
        match self {
            PolicyKind::Zero => "ZERO",
            PolicyKind::One => "ONE",
            PolicyKind::Static => "STATIC",
            PolicyKind::Size => "SIZE",
            PolicyKind::Process => "PROCESS",
            PolicyKind::Oracle => "ORACLE",
            PolicyKind::Mckp => "MCKP",
            PolicyKind::Fair => "FAIR",
            PolicyKind::Dfra => "DFRA",
        }
    }

    /// The policy itself.
    pub fn build(self, settings: &Settings) -> Result<Box<dyn Policy>, PolicyError> {
        Ok(match self {
            PolicyKind::Zero => Box::new(Zero),
            PolicyKind::One => Box::new(One),
            PolicyKind::Static => Box::new(Static),
            PolicyKind::Size => Box::new(Proportional(By::ComputeNodes)),
            PolicyKind::Process => Box::new(Proportional(By::Processes)),
            PolicyKind::Oracle => Box::new(Oracle),
            PolicyKind::Mckp => Box::new(Mckp),
            PolicyKind::Fair => Box::new(Fair::new(settings.fair)?),
            PolicyKind::Dfra => Box::new(Dfra::new(settings.dfra)?),
        })
    }
}

impl fmt::Display for PolicyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for PolicyKind {
    type Err = PolicyError;
    fn from_str(s: &str) -> Result<PolicyKind, PolicyError> {
        let known = PolicyKind::ALL.into_iter().find(|k| k.name().eq_ignore_ascii_case(s));
        known.ok_or_else(|| {
            let names: Vec<_> = PolicyKind::ALL.iter().map(|k| k.name()).collect();
            PolicyError::Settings(format!("there is no policy {s:?}; one of {}", names.join(", ")))
        })
    }
}

/// The settings of the policies that have some.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Of fair MCKP.
    pub fair: FairConfig,
    /// Of DFRA.
    pub dfra: DfraConfig,
}
