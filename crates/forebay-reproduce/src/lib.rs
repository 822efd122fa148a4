//! What the sources claim, and whether it holds here. The claims, their published values and the
//! tolerances stand in a data file ([`Index`]); figures are made by groups that know none of them
//! ([`groups`]); [`judge`] compares the two. Real I/O nodes are behind [`Laboratory`], so that all else
//! runs without any.

pub mod groups;
mod index;
mod report;
mod state;
pub mod text;
pub mod trial;
mod verdict;

pub use groups::{Break, Figures, Laboratory, Measured, Setup};
pub use index::{Because, Index, IndexError, PublishedClaim, Setting, Tolerance};
pub use report::html;
pub use state::{Session, Tried};
pub use verdict::{ClaimVerdict, judge};
