//! What was learned, as a file: versioned JSON that can be kept over restarts, carried to another
//! machine, looked at and thrown away. Reading one never panics, whatever the bytes are.

use crate::arms::Arms;
use crate::context::Context;
use crate::council::MAX_CONTEXTS;
use crate::values::Values;
use forebay_pattern::{KeptError, KeptFile};
use serde::{Deserialize, Serialize};

/// The file of what was learned.
pub const LEARNED_FILE: KeptFile =
    KeptFile { what: "file of what was learned", version: 1, max_bytes: 64 << 20 };

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
        Learned { version: LEARNED_FILE.version, arms, round, contexts }
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
    pub fn from_json(bytes: &[u8]) -> Result<Learned, KeptError> {
        let learned: Learned = LEARNED_FILE.read(bytes)?;
        learned.check()?;
        Ok(learned)
    }

    /// Writes a file.
    pub fn to_json(&self) -> Vec<u8> {
        // Plain structs of finite numbers and strings: serialising them cannot fail.
        serde_json::to_vec_pretty(self).expect("what was learned is representable as JSON")
    }

    pub(crate) fn check(&self) -> Result<(), KeptError> {
        if self.contexts.len() > MAX_CONTEXTS {
            return Err(LEARNED_FILE.damaged(format!("it has {} contexts", self.contexts.len())));
        }
        for c in &self.contexts {
            let sound = c.values.check(self.arms.all().len());
            sound.map_err(|e| LEARNED_FILE.damaged(format!("{}: {e}", c.context)))?;
        }
        let mut contexts: Vec<Context> = self.contexts.iter().map(|c| c.context).collect();
        contexts.sort_unstable();
        match contexts.windows(2).find(|w| w[0] == w[1]) {
            Some(twice) => Err(LEARNED_FILE.damaged(format!("{} occurs twice", twice[0]))),
            None => Ok(()),
        }
    }
}
