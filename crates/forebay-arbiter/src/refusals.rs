//! I/O nodes that are not let in: they try again every second. Their admin reads it once in the log, and in
//! `forebay nodes` for as long as it goes on.

use forebay_control::view::RefusedView;
use forebay_types::NodeId;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Of more nodes than this nothing is remembered.
const MOST: usize = 4096;

/// Who did not try for this long has given up.
const GIVEN_UP: Duration = Duration::from_secs(30);

/// Who was refused.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Who {
    /// A node that said who it is, and on which machine.
    Node(NodeId, String),
    /// Whoever did not know the secret, from where.
    Somebody(Option<IpAddr>),
}

/// Who is refused, why, and when that was last said to him.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    said: Mutex<BTreeMap<Who, (String, Instant)>>,
}

impl Refusals {
    /// A node was refused: says so, unless it was refused for the same reason before.
    pub(crate) fn refused(&self, who: Who, reason: &str) {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        if let Some((before, last)) = said.get_mut(&who)
            && before == reason
        {
            *last = now;
            return;
        }
        if said.len() >= MOST {
            said.clear();
        }
        said.insert(who.clone(), (reason.to_owned(), now));
        match who {
            Who::Node(node, host) => {
                tracing::warn!("I/O node {node} on {host} is refused, and will be: {reason}");
            }
            Who::Somebody(from) => {
                let from = from.map_or(String::new(), |ip| format!(" at {ip}"));
                tracing::warn!(
                    "somebody{from} who wants to be an I/O node here is refused, and will be: {reason}"
                );
            }
        }
    }

    /// A node was let in: what it is refused for next is news.
    pub(crate) fn admitted(&self, node: NodeId, host: &str) {
        let who = Who::Node(node, host.to_owned());
        self.said.lock().unwrap_or_else(PoisonError::into_inner).remove(&who);
    }

    /// Who is refused these days.
    pub(crate) fn list(&self) -> Vec<RefusedView> {
        let said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        let lately = said.iter().filter(|(_, (_, last))| last.elapsed() < GIVEN_UP);
        lately
            .map(|(who, (reason, last))| {
                let (node, host) = match who {
                    Who::Node(node, host) => (Some(*node), Some(host.clone())),
                    Who::Somebody(from) => (None, from.map(|ip| ip.to_string())),
                };
                let ago_ms = last.elapsed().as_millis() as u64;
                RefusedView { node, host, reason: reason.clone(), ago_ms }
            })
            .collect()
    }
}
