//! What was learned, as a file: versioned JSON that can be kept over restarts, carried to another
//! machine, looked at and thrown away. Reading one never panics, whatever the bytes are.

use crate::arms::Arms;
use crate::context::Context;
use crate::council::MAX_CONTEXTS;
use crate::values::Values;
use serde::{Deserialize, Serialize};

/// The version this program writes and reads.
pub const LEARNED_VERSION: u32 = 1;
/// A file of what was learned is not larger than this.
pub const LEARNED_MAX_BYTES: usize = 64 << 20;

/// What can be wrong with such a file.
#[derive(Debug, thiserror::Error)]
pub enum LearnedError {
    /// It is no such file.
    #[error("not a file of what Forebay learned: {0}")]
    Syntax(String),
    /// It was written by another version.
    #[error("the file has version {found}, this program reads version {LEARNED_VERSION}")]
    Version {
        /// The version in the file.
        found: u32,
    },
    /// It contradicts itself.
    #[error("the file is damaged: {0}")]
    Damaged(String),
    /// It is larger than any such file is.
    #[error("the file is larger than {} MiB", LEARNED_MAX_BYTES >> 20)]
    TooLarge,
}

impl From<serde_json::Error> for LearnedError {
    fn from(e: serde_json::Error) -> LearnedError {
        LearnedError::Syntax(e.to_string())
    }
}

/// What was learned in one context.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LearnedContext {
    /// The situation.
    pub context: Context,
    /// The arms' estimates.
    pub values: Values,
}

/// Everything learned about one set of arms.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Learned {
    version: u32,
    arms: Arms,
    round: u64,
    contexts: Vec<LearnedContext>,
}

impl Learned {
    pub(crate) fn new(arms: Arms, round: u64, contexts: Vec<LearnedContext>) -> Learned {
        Learned { version: LEARNED_VERSION, arms, round, contexts }
    }

    /// The arms.
    pub fn arms(&self) -> &Arms {
        &self.arms
    }

    /// How many decisions were made.
    pub fn round(&self) -> u64 {
        self.round
    }

    /// The contexts in which something was learned, in order.
    pub fn contexts(&self) -> &[LearnedContext] {
        &self.contexts
    }

    /// Reads a file.
    pub fn from_json(bytes: &[u8]) -> Result<Learned, LearnedError> {
        #[derive(Deserialize)]
        struct Versioned {
            version: u32,
        }
        if bytes.len() > LEARNED_MAX_BYTES {
            return Err(LearnedError::TooLarge);
        }
        let Versioned { version } = serde_json::from_slice(bytes)?;
        if version != LEARNED_VERSION {
            return Err(LearnedError::Version { found: version });
        }
        let learned: Learned = serde_json::from_slice(bytes)?;
        learned.check()?;
        Ok(learned)
    }

    /// Writes a file.
    pub fn to_json(&self) -> Vec<u8> {
        // Plain structs of finite numbers and strings: serialising them cannot fail.
        serde_json::to_vec_pretty(self).expect("what was learned is representable as JSON")
    }

    pub(crate) fn check(&self) -> Result<(), LearnedError> {
        if self.contexts.len() > MAX_CONTEXTS {
            return Err(LearnedError::Damaged(format!("it has {} contexts", self.contexts.len())));
        }
        for c in &self.contexts {
            let sound = c.values.check(self.arms.all().len());
            sound.map_err(|e| LearnedError::Damaged(format!("{}: {e}", c.context)))?;
        }
        let mut contexts: Vec<Context> = self.contexts.iter().map(|c| c.context).collect();
        contexts.sort_unstable();
        match contexts.windows(2).find(|w| w[0] == w[1]) {
            Some(twice) => Err(LearnedError::Damaged(format!("{} occurs twice", twice[0]))),
            None => Ok(()),
        }
    }
}
