//! `GET /v1/live`: the arbiter's state as it changes, pushed as server-sent events. First everything,
//! then whatever is different from what this viewer heard last, and a sign of life while nothing is: each
//! time the state was taken, so that whoever hears none knows that what he has is old. The state is taken
//! once for all viewers, and not at all while there is none.

use super::{App, Rejection, read};
use crate::service::{Shared, unix_seconds};
use axum::extract::State;
use axum::response::sse::{Event, Sse};
use forebay_control::status::Status;
use forebay_control::view::{JobView, NodeView};
use futures_util::stream::{self, Stream};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

/// How often the state is looked at.
const TICK: Duration = Duration::from_millis(400);

/// A viewer hears something at least this often.
const BEAT: Duration = Duration::from_secs(1);

/// People who look at once.
const VIEWERS: usize = 64;

/// Decisions a new viewer is shown.
const DECISIONS: u32 = 60;

/// A node that was heard of within this is as good as now.
const QUIET_MS: u64 = 5000;

/// The state at one moment, each part as it is sent.
#[derive(Clone, Debug, Default)]
struct Snapshot {
    about: Value,
    jobs: BTreeMap<String, Value>,
    nodes: BTreeMap<String, Value>,
    limits: BTreeMap<String, Value>,
    decisions: BTreeMap<u64, Value>,
    council: Value,
}

/// Everyone who looks.
pub(crate) struct Viewers {
    places: Arc<Semaphore>,
    newest: watch::Sender<Option<Arc<Snapshot>>>,
    /// Whether the state is being looked at.
    looking: Mutex<bool>,
}

type Newest = watch::Receiver<Option<Arc<Snapshot>>>;

impl Default for Viewers {
    fn default() -> Viewers {
        let places = Arc::new(Semaphore::new(VIEWERS));
        Viewers { places, newest: watch::Sender::new(None), looking: Mutex::new(false) }
    }
}

impl Viewers {
    /// From now on somebody looks; the first one sets the looking in motion.
    fn join(&self, shared: &Arc<Shared>) -> Option<(OwnedSemaphorePermit, Newest)> {
        let place = Arc::clone(&self.places).try_acquire_owned().ok()?;
        let mut looking = self.looking.lock().unwrap_or_else(PoisonError::into_inner);
        let mut newest = self.newest.subscribe();
        newest.mark_changed();
        if !std::mem::replace(&mut *looking, true) {
            self.newest.send_replace(None);
            tokio::spawn(look(Arc::clone(shared)));
        }
        Some((place, newest))
    }

    /// Nobody looks any more: the looking ends.
    fn is_over(&self) -> bool {
        let mut looking = self.looking.lock().unwrap_or_else(PoisonError::into_inner);
        *looking = self.newest.receiver_count() > 0;
        !*looking
    }
}

pub(super) async fn live(
    State(shared): App,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, Rejection> {
    let full = || Rejection::new(Status::Busy, format!("{VIEWERS} people look already: try later"));
    let (place, newest) = shared.viewers.join(&shared).ok_or_else(full)?;
    let seat = (place, newest, Snapshot::default(), Instant::now());
    let events = stream::unfold(seat, |(place, mut newest, known, said)| async move {
        loop {
            newest.changed().await.ok()?;
            let Some(now) = newest.borrow_and_update().clone() else { continue };
            let event = match difference(&known, &now) {
                Some(changes) => Event::default().data(changes.to_string()),
                None if said.elapsed() >= BEAT => Event::default().comment(""),
                None => continue,
            };
            return Some((Ok(event), (place, newest, Snapshot::clone(&now), Instant::now())));
        }
    });
    Ok(Sse::new(events))
}

/// Takes the state again and again for as long as somebody looks.
async fn look(shared: Arc<Shared>) {
    let mut decisions = BTreeMap::new();
    let mut heard = 0;
    loop {
        let mut next = take(&shared).await;
        // What was decided is in the history a moment later.
        if shared.next_decision() != heard
            && let Ok(found) = read(&shared, |h| h.decisions(None, DECISIONS)).await
        {
            heard = found.first().map_or(heard, |d| d.id + 1);
            decisions = found.iter().map(|d| (d.id, json!(d))).collect();
        }
        next.decisions = decisions.clone();
        shared.viewers.newest.send_replace(Some(Arc::new(next)));
        tokio::time::sleep(TICK).await;
        if shared.viewers.is_over() {
            return;
        }
    }
}

async fn take(shared: &Shared) -> Snapshot {
    let asked = shared
        .ask(|core, now| {
            (core.health(now), core.jobs(now), core.nodes(now), core.limits(), core.tuner().view())
        })
        .await;
    let now = unix_seconds() * 1000;
    match asked {
        Ok((mut health, jobs, nodes, limits, council)) => {
            // What merely grows with time is no change.
            health.up_ms = 0;
            let mut refused = shared.refusals.list();
            refused.iter_mut().for_each(|r| r.ago_ms = 0);
            health.refused = refused;
            Snapshot {
                about: json!(health),
                jobs: jobs.into_iter().map(|j| (j.id.clone(), job(j, now))).collect(),
                nodes: nodes.into_iter().map(|n| (n.id.to_string(), node(n))).collect(),
                // How they are divided at the moment is nothing to look at.
                limits: limits.into_iter().map(|l| (l.id, json!(l.limit))).collect(),
                decisions: BTreeMap::new(),
                council: json!(council),
            }
        }
        Err(e) => {
            Snapshot { about: json!({ "state": "standby", "why": e.to_string() }), ..Snapshot::default() }
        }
    }
}

/// A job, with the moment it began instead of its age.
fn job(view: JobView, now: u64) -> Value {
    let since = now.saturating_sub(view.age_ms) / 1000;
    let mut value = json!(view);
    if let Value::Object(fields) = &mut value {
        fields.remove("age_ms");
        fields.remove("lease_ms");
        fields.insert("since".into(), since.into());
    }
    value
}

/// A node; how long ago it was heard of only where that is long.
fn node(mut view: NodeView) -> Value {
    let quiet = view.heard_ms > QUIET_MS || view.state.is_gone();
    view.heard_ms = if quiet { view.heard_ms / 1000 * 1000 } else { 0 };
    if let Some(health) = &mut view.health {
        health.since_ms = health.since_ms / 10_000 * 10_000;
    }
    json!(view)
}

/// What is new in `now` for somebody who knows `known`; `None` if nothing is.
fn difference(known: &Snapshot, now: &Snapshot) -> Option<Value> {
    let mut changes = serde_json::Map::new();
    for (name, old, new) in [("about", &known.about, &now.about), ("council", &known.council, &now.council)] {
        if old != new {
            changes.insert(name.into(), new.clone());
        }
    }
    let parts = [
        ("jobs", &known.jobs, &now.jobs),
        ("nodes", &known.nodes, &now.nodes),
        ("limits", &known.limits, &now.limits),
    ];
    for (name, old, new) in parts {
        let changed: serde_json::Map<_, _> = new
            .iter()
            .filter(|(id, value)| old.get(*id) != Some(value))
            .map(|(id, value)| (id.clone(), value.clone()))
            // `null`: it is gone.
            .chain(old.keys().filter(|id| !new.contains_key(*id)).map(|id| (id.clone(), Value::Null)))
            .collect();
        if !changed.is_empty() {
            changes.insert(name.into(), changed.into());
        }
    }
    let decided: Vec<&Value> =
        now.decisions.iter().filter(|(id, _)| !known.decisions.contains_key(id)).map(|(_, d)| d).collect();
    if !decided.is_empty() {
        changes.insert("decisions".into(), json!(decided));
    }
    (!changes.is_empty()).then(|| changes.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(jobs: &[(&str, u64)]) -> Snapshot {
        let jobs = jobs.iter().map(|(id, mbs)| ((*id).to_owned(), json!({ "mbs": mbs }))).collect();
        Snapshot { about: json!({ "state": "leading" }), jobs, ..Snapshot::default() }
    }

    #[test]
    fn only_what_changed_is_told() {
        let first = snapshot(&[("a", 1), ("b", 2)]);
        let all = difference(&Snapshot::default(), &first).unwrap();
        assert_eq!(all["jobs"], json!({ "a": { "mbs": 1 }, "b": { "mbs": 2 } }));
        assert_eq!(difference(&first, &first.clone()), None);
        let second = snapshot(&[("b", 3), ("c", 4)]);
        let changes = difference(&first, &second).unwrap();
        assert_eq!(changes, json!({ "jobs": { "a": null, "b": { "mbs": 3 }, "c": { "mbs": 4 } } }));
        let limits = BTreeMap::from([("job=b".to_owned(), json!({ "at_least": 1.0 }))]);
        let limited = Snapshot { limits, ..second.clone() };
        let changes = difference(&second, &limited).unwrap();
        assert_eq!(changes, json!({ "limits": { "job=b": { "at_least": 1.0 } } }));
        assert_eq!(difference(&limited, &second).unwrap(), json!({ "limits": { "job=b": null } }));
    }
}
