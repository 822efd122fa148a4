//! High availability: the control state in etcd, and one leader among several arbiters.
//!
//! An arbiter leads while it holds the key `forebay/leader`, which hangs on an etcd lease. The
//! revision that created the key is its [`Term`](forebay_control::node::Term): larger for every new
//! leader. Every write of the control state is made on condition that the key was created at that
//! revision, so that etcd refuses what an old leader writes; I/O nodes refuse what it orders by the
//! same number.
//!
//! | file | what lives there |
//! |---|---|
//! | `etcd` | etcd's JSON gateway |
//! | `tenure` | holding the lease: from the election to the end, which always comes before the lease's |
//! | `attend` | standing by, leading, standing by again |
//! | `store` | the control state in etcd |

mod attend;
mod etcd;
mod store;
mod tenure;

pub use attend::Attending;
pub use etcd::{Etcd, EtcdError, EtcdTls, EtcdUrl, Guarded, Pair, Write};
pub use store::EtcdStore;
pub use tenure::{Campaign, Candidate, Tenure};

/// The key whose holder leads.
pub(crate) const LEADER: &str = "forebay/leader";
/// Before the keys of the control state.
pub(crate) const STATE: &str = "forebay/state/";
