//! From the election to the end of a leader.
//!
//! A leader counts its lease from before it asked for it, and stops a margin before it can have ended:
//! it has stepped down before another one can be elected, unless it was stopped itself, and then etcd
//! and the nodes refuse it.

use super::LEADER;
use super::etcd::{Etcd, EtcdError, Guarded};
use forebay_control::node::Term;
use serde::{Deserialize, Serialize};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A leader that is gone is replaced after this long and a little more.
const LEASE: Duration = Duration::from_secs(3);
/// A leader renews this often…
const RENEW: Duration = Duration::from_millis(700);
/// …and stops so long before its lease can have ended.
const MARGIN: Duration = Duration::from_millis(400);
/// A campaign, or giving up a lease, takes no longer.
const PATIENCE: Duration = Duration::from_secs(2);

/// The leader key's value.
#[derive(Serialize, Deserialize)]
struct Leader {
    url: String,
}

/// Somebody who wants to lead.
#[derive(Clone)]
pub struct Candidate {
    etcd: Arc<Etcd>,
    /// Where others reach this arbiter.
    url: String,
}

/// How a campaign ended.
pub enum Campaign {
    /// Elected.
    Won(Tenure),
    /// This arbiter (a URL) leads, at this revision of etcd's, if that is known.
    Lost(String, Option<u64>),
}

impl Candidate {
    /// An arbiter at `url`.
    pub fn new(etcd: Arc<Etcd>, url: String) -> Candidate {
        Candidate { etcd, url }
    }

    /// Tries to become the leader, once. `ended` is called once with the reason when the tenure is
    /// over, from another thread, unless it was given up.
    pub fn campaign(&self, ended: impl FnOnce(String) + Send + 'static) -> Result<Campaign, EtcdError> {
        let until = Instant::now() + PATIENCE;
        if let (Some(leader), revision) = self.etcd.get(LEADER, until)? {
            return Ok(Campaign::Lost(url_of(&leader.value), Some(revision)));
        }
        let asked = Instant::now();
        let (lease, span) = self.etcd.grant(LEASE, until)?;
        let value = serde_json::to_string(&Leader { url: self.url.clone() }).expect("plain strings");
        let elected = self.etcd.write(LEADER, 0, &[(LEADER.to_owned(), Some(value))], Some(lease), until);
        let term = match elected {
            Ok(Guarded::Done(revision)) => revision,
            // The first try was carried out, only its answer was lost.
            Ok(Guarded::Not(Some(leader))) if leader.lease == lease => leader.created,
            other => {
                // Otherwise it ends by itself.
                let _ = self.etcd.revoke(lease, until);
                return match other? {
                    Guarded::Not(Some(leader)) => Ok(Campaign::Lost(url_of(&leader.value), None)),
                    _ => Ok(Campaign::Lost(String::new(), None)),
                };
            }
        };
        Ok(Campaign::Won(Tenure::begin(self.etcd.clone(), lease, Term(term), asked + span, ended)))
    }

    /// Who leads, if anybody does.
    pub fn leader(&self) -> Result<Option<String>, EtcdError> {
        let (leader, _) = self.etcd.get(LEADER, Instant::now() + PATIENCE)?;
        Ok(leader.map(|l| url_of(&l.value)))
    }
}

fn url_of(value: &str) -> String {
    serde_json::from_str::<Leader>(value).map(|l| l.url).unwrap_or_default()
}

/// A time of leading. Ends by itself when the lease cannot be renewed, and when it is dropped.
pub struct Tenure {
    term: Term,
    shared: Arc<Shared>,
    keeper: Option<std::thread::JoinHandle<()>>,
}

struct Shared {
    state: Mutex<Holding>,
    change: Condvar,
}

struct Holding {
    /// The lease may have ended at this time, for all we know.
    until: Instant,
    /// Why it is over.
    over: Option<String>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Holding> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Tenure {
    fn begin(
        etcd: Arc<Etcd>,
        lease: u64,
        term: Term,
        until: Instant,
        ended: impl FnOnce(String) + Send + 'static,
    ) -> Tenure {
        let shared =
            Arc::new(Shared { state: Mutex::new(Holding { until, over: None }), change: Condvar::new() });
        let kept = shared.clone();
        let keeper = std::thread::Builder::new().name("lease".into()).spawn(move || {
            let given_up = !keep(&etcd, lease, &kept);
            let over = kept.lock().over.clone().unwrap_or_default();
            if given_up {
                let _ = etcd.revoke(lease, Instant::now() + PATIENCE);
            } else {
                ended(over);
            }
        });
        let keeper = match keeper {
            Ok(keeper) => Some(keeper),
            Err(e) => {
                shared.lock().over = Some(format!("no thread to renew the lease: {e}"));
                None
            }
        };
        Tenure { term, shared, keeper }
    }

    /// The revision that created the leader key.
    pub fn term(&self) -> Term {
        self.term
    }

    /// Until when orders may be given; `Err` says why not any more.
    pub fn holds(&self) -> Result<Instant, String> {
        let state = self.shared.lock();
        if let Some(why) = &state.over {
            return Err(why.clone());
        }
        let last = state.until.checked_sub(MARGIN).unwrap_or(state.until);
        if Instant::now() >= last { Err(LATE.to_owned()) } else { Ok(last) }
    }

    /// Something shows that another one leads.
    pub fn end(&self, why: &str) {
        let mut state = self.shared.lock();
        state.over.get_or_insert(why.to_owned());
        self.shared.change.notify_all();
    }
}

const LATE: &str = "the lease was not renewed in time";
const GIVEN_UP: &str = "given up";

impl Drop for Tenure {
    fn drop(&mut self) {
        self.end(GIVEN_UP);
        if let Some(keeper) = self.keeper.take() {
            // All it does is bounded in time.
            let _ = keeper.join();
        }
    }
}

/// Renews until it is over. `false` if it was given up.
fn keep(etcd: &Etcd, lease: u64, shared: &Shared) -> bool {
    loop {
        let state = shared.lock();
        let waits = |s: &mut Holding| s.over.is_none();
        let (mut state, _) =
            shared.change.wait_timeout_while(state, RENEW, waits).unwrap_or_else(PoisonError::into_inner);
        if let Some(why) = &state.over {
            return why != GIVEN_UP;
        }
        let last = state.until.checked_sub(MARGIN).unwrap_or(state.until);
        if Instant::now() >= last {
            state.over = Some(LATE.to_owned());
            return true;
        }
        drop(state);
        let asked = Instant::now();
        let renewed = etcd.renew(lease, last);
        let mut state = shared.lock();
        match renewed {
            Ok(Some(span)) => state.until = state.until.max(asked + span),
            Ok(None) => {
                state.over.get_or_insert("the lease has ended".to_owned());
            }
            Err(e) if Instant::now() >= last => {
                state.over.get_or_insert(format!("{LATE}: {e}"));
            }
            Err(e) => tracing::warn!("the leader's lease could not be renewed yet: {e}"),
        }
    }
}
