//! One of several arbiters: stands by, leads when it is elected, and stands by again.

use super::LEADER;
use super::etcd::Etcd;
use super::store::EtcdStore;
use super::tenure::{Campaign, Candidate, Tenure};
use crate::service::Shared;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Before somebody who stands by looks again whether the leader is gone, where that cannot be watched.
const LOOK: Duration = Duration::from_millis(200);
/// How long the leader is watched before one looks again.
const WATCH: Duration = Duration::from_secs(10);
/// How often a leader looks whether its core still runs.
const CHECK: Duration = Duration::from_millis(50);
/// How long an arbiter that ends waits for what it is asking etcd.
const PATIENCE: Duration = Duration::from_millis(300);
/// Before an arbiter that was elected and could not lead tries again.
const PENALTY: Duration = Duration::from_secs(1);

/// What the attending thread hears.
enum News {
    /// The arbiter ends.
    Stop,
    /// The tenure is over, and why.
    Over(String),
    /// It is time to look who leads.
    Look,
}

/// An arbiter that takes part in elections. Dropping it gives up the lead.
pub struct Attending {
    say: Sender<News>,
    thread: Option<JoinHandle<()>>,
    leads: Arc<AtomicBool>,
}

impl Attending {
    /// Takes part from now on, as the arbiter that others reach at `url`.
    pub fn start(shared: Arc<Shared>, etcd: Etcd, url: String) -> std::io::Result<Attending> {
        let (say, hear) = channel();
        let (etcd, leads) = (Arc::new(etcd), Arc::new(AtomicBool::new(false)));
        let attendant =
            Attendant { shared, etcd, url, say: say.clone(), leads: leads.clone(), last: String::new() };
        let thread =
            std::thread::Builder::new().name("attendant".into()).spawn(move || attendant.run(&hear))?;
        Ok(Attending { say, thread: Some(thread), leads })
    }
}

impl Drop for Attending {
    fn drop(&mut self) {
        let _ = self.say.send(News::Stop);
        let Some(thread) = self.thread.take() else { return };
        // What is asked of an etcd that does not answer takes longer than anybody waits for an arbiter that only
        // stands by. One that leads takes leave, which is bounded in time.
        let until = Instant::now() + PATIENCE;
        while !thread.is_finished() && (self.leads.load(SeqCst) || Instant::now() < until) {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

struct Attendant {
    leads: Arc<AtomicBool>,
    shared: Arc<Shared>,
    etcd: Arc<Etcd>,
    url: String,
    say: Sender<News>,
    /// What was logged last, to say it once.
    last: String,
}

impl Attendant {
    fn run(mut self, hear: &Receiver<News>) {
        let candidate = Candidate::new(self.etcd.clone(), self.url.clone());
        loop {
            let say = self.say.clone();
            let nap = match candidate.campaign(move |why| drop(say.send(News::Over(why)))) {
                Ok(Campaign::Won(tenure)) => {
                    self.leads.store(true, SeqCst);
                    let nap = self.lead(Arc::new(tenure), hear);
                    self.leads.store(false, SeqCst);
                    match nap {
                        Some(nap) => nap,
                        None => return,
                    }
                }
                Ok(Campaign::Lost(leader, revision)) => {
                    self.note(&format!("standing by: {leader} leads"));
                    let why = format!("this arbiter stands by: the one at {leader} leads");
                    self.shared.stand_by(&why, Some(leader));
                    revision.and_then(|r| self.watch(r)).unwrap_or(LOOK)
                }
                Err(e) => {
                    self.note(&format!("standing by, and nobody can be elected: {e}"));
                    let why = format!("this arbiter stands by, and cannot learn who leads: {e}");
                    self.shared.stand_by(&why, None);
                    LOOK
                }
            };
            loop {
                match hear.recv_timeout(nap) {
                    Ok(News::Look) => break,
                    // News of a tenure that is over already.
                    Ok(News::Over(_)) => {}
                    Ok(News::Stop) | Err(RecvTimeoutError::Disconnected) => return,
                    Err(RecvTimeoutError::Timeout) => break,
                }
            }
        }
    }

    /// Has a thread watch the leader of this revision: how long to wait for its news; `None` if there is no thread.
    fn watch(&self, revision: u64) -> Option<Duration> {
        let (etcd, say) = (self.etcd.clone(), self.say.clone());
        let watcher = move || {
            if let Err(e) = etcd.await_deletion(LEADER, revision, WATCH) {
                tracing::debug!("the leader cannot be watched: {e}");
                std::thread::sleep(LOOK);
            }
            let _ = say.send(News::Look);
        };
        std::thread::Builder::new().name("watcher".into()).spawn(watcher).ok().map(|_| 2 * WATCH)
    }

    /// Leads until that is over: how long to wait before the next try, or `None` if the arbiter ends.
    fn lead(&mut self, tenure: Arc<Tenure>, hear: &Receiver<News>) -> Option<Duration> {
        let term = tenure.term();
        let store = EtcdStore::new(self.etcd.clone(), tenure);
        let curves = self.shared.config.read_curves().map_err(|e| e.to_string());
        let leading = curves.and_then(|c| self.shared.lead(Box::new(store), c).map_err(|e| e.to_string()));
        let leading = match leading {
            Ok(leading) => leading,
            Err(e) => {
                self.note(&format!("elected with term {term}, but cannot lead: {e}"));
                return Some(PENALTY);
            }
        };
        self.note(&format!("leading with term {term}"));
        let (why, stop) = loop {
            match hear.recv_timeout(CHECK) {
                Ok(News::Over(why)) => break (why, false),
                Ok(News::Stop) | Err(RecvTimeoutError::Disconnected) => {
                    break ("the arbiter ends".into(), true);
                }
                // Of somebody who led before.
                Ok(News::Look) => {}
                Err(RecvTimeoutError::Timeout) if leading.is_over() => break (String::new(), false),
                Err(RecvTimeoutError::Timeout) => {}
            }
        };
        // The store, and with it the lease, goes with the core.
        let why = match leading.stop() {
            Err(e) if !stop => e.to_string(),
            _ => why,
        };
        self.note(&format!("stepped down from term {term}: {why}"));
        self.shared.stand_by("this arbiter has just stepped down: try again soon", None);
        (!stop).then_some(LOOK)
    }

    fn note(&mut self, line: &str) {
        if self.last != line {
            self.last = line.to_owned();
            tracing::warn!("{line}");
        }
    }
}
