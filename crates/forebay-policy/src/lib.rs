//! Who gets how many I/O nodes. A [`Policy`] is handed the running [`Job`]s and the [`Pool`] of I/O
//! nodes and answers with a [`Decision`] that explains itself. No clock, no thread, no file: the
//! arbiter, the simulator and `forebay allocate` call the same code.
//!
//! | module | what lives there |
//! |---|---|
//! | [`policy`] | the trait, and the policies by name |
//! | [`job`], [`decision`] | what goes in, what comes out |
//! | [`curve`], [`table`] | bandwidth by number of I/O nodes; measured tables of such curves |
//! | `estimate` | curves of patterns nobody measured, from those that were |
//! | [`knapsack`] | the exact multiple-choice knapsack |
//! | [`dfra`] | DFRA: history, eligibility, interference |
//! | `what_if` | a set of jobs as JSON, and what a policy would decide |
//! | [`placement`] | from counts to concrete I/O nodes, moving as little as possible |

pub mod curve;
pub mod decision;
pub mod dfra;
pub mod job;
pub mod knapsack;
pub mod placement;
pub mod policy;
pub mod table;
mod what_if;

mod arbitrate;
mod estimate;
mod fair;
mod fixed;
mod mckp;
mod one;
mod oracle;
mod proportional;
mod zero;

pub use curve::{BandwidthCurve, CurveError, Point, Spread};
pub use decision::{Alternative, Decision, Explanation, JobDecision, Reason};
pub use dfra::Dfra;
pub use estimate::LeaveOneOut;
pub use fair::{Fair, FairConfig};
pub use fixed::Static;
pub use job::{Current, IoNode, Job, Pool, Progress, SharingRule};
pub use mckp::Mckp;
pub use one::One;
pub use oracle::Oracle;
pub use policy::{Policy, PolicyError, PolicyKind, Settings};
pub use proportional::{By, Proportional};
pub use table::{CurveTable, Facts, Scenario, TableError, TableRow, scenario_name, table_rows};
pub use what_if::{JobSet, JobSetError, WhatIf};
pub use zero::Zero;
