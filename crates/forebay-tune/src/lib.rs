//! Learns which scheduler parameters suit which access pattern.
//!
//! In each [`Context`] (operation, pattern, request size, load) a bandit learns what each of the
//! declared [`Arms`] is worth; the [`Council`] hears all I/O nodes and decides for all. A [`Guard`]
//! bounds what learning may cost. [`replay`] plays the same bandits against recorded rewards. No
//! clock, no file, no thread: reports come in, decisions go out.

mod arms;
mod context;
mod council;
mod guard;
mod learned;
mod learner;
pub mod policy;
pub mod replay;
mod reward;
mod values;

pub use arms::{Arms, ArmsError, MAX_ARMS};
pub use context::{Context, LoadClass, SizeClass};
pub use council::{Council, CouncilConfig, CouncilError, Decision, MAX_CONTEXTS, Observation, Vote};
pub use guard::Guard;
pub use learned::{LEARNED_FILE, Learned, LearnedContext};
pub use learner::{Learner, Recommendation, Why};
pub use policy::{BanditConfig, BanditPolicy};
pub use reward::RewardRule;
pub use values::{Estimate, Memory, Values};
