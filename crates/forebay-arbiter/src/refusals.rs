//! I/O nodes that are not let in: they try again every second, and their admin reads it once.

use forebay_types::NodeId;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// Of more nodes than this nothing is remembered.
const MOST: usize = 4096;

/// Who was refused last, and why. `None` is whoever did not know the secret.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    said: Mutex<BTreeMap<Option<NodeId>, String>>,
}

impl Refusals {
    /// A node was refused: says so, unless it was refused for the same reason before.
    pub(crate) fn refused(&self, node: Option<NodeId>, reason: &str) {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        if said.get(&node).is_some_and(|before| before == reason) {
            return;
        }
        if said.len() >= MOST {
            said.clear();
        }
        said.insert(node, reason.to_owned());
        match node {
            Some(node) => tracing::warn!("I/O node {node} is refused, and will be: {reason}"),
            None => {
                tracing::warn!("somebody who wants to be an I/O node here is refused, and will be: {reason}")
            }
        }
    }

    /// A node was let in: what it is refused for next is news.
    pub(crate) fn admitted(&self, node: NodeId) {
        self.said.lock().unwrap_or_else(PoisonError::into_inner).remove(&Some(node));
    }
}
