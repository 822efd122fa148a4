//! The control state in etcd.

use super::etcd::{Etcd, Guarded, Write};
use super::tenure::Tenure;
use super::{LEADER, STATE};
use crate::store::{Change, ControlStore, Kept, StoreError};
use forebay_control::node::Term;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Writes of one transaction; etcd's own limit is 128…
const MOST_WRITES: usize = 100;
/// …and 1.5 MiB a request, in base64.
const MOST_BYTES: usize = 768 << 10;

/// One leader's access to the control state.
pub struct EtcdStore {
    etcd: Arc<Etcd>,
    tenure: Arc<Tenure>,
}

impl EtcdStore {
    /// As long as `tenure` lasts.
    pub fn new(etcd: Arc<Etcd>, tenure: Arc<Tenure>) -> EtcdStore {
        EtcdStore { etcd, tenure }
    }

    fn write(&self, writes: &[Write]) -> Result<(), StoreError> {
        let until = self.tenure.holds().map_err(StoreError::Replaced)?;
        let Term(term) = self.tenure.term();
        match self.etcd.write(LEADER, term, writes, None, until) {
            Ok(Guarded::Done(_)) => Ok(()),
            Ok(Guarded::Not(leader)) => {
                let why = match leader {
                    Some(l) => format!("etcd refused the write: leader of term {} is {}", l.created, l.value),
                    None => "etcd refused the write: the leader key is gone".to_owned(),
                };
                self.tenure.end(&why);
                Err(StoreError::Replaced(why))
            }
            Err(e) => Err(StoreError::Failed(e.to_string())),
        }
    }
}

impl ControlStore for EtcdStore {
    /// The leader key exists since before this is read, so no older leader can write after it.
    fn lead(&mut self) -> Result<(Term, Kept), StoreError> {
        let until = self.tenure.holds().map_err(StoreError::Replaced)?;
        let pairs = self.etcd.all(STATE, until).map_err(|e| StoreError::Failed(e.to_string()))?;
        let mut kept = Kept::default();
        for pair in pairs {
            kept.add(pair.key.strip_prefix(STATE).unwrap_or(&pair.key), &pair.value)?;
        }
        Ok((self.tenure.term(), kept))
    }

    /// More changes than fit into a transaction are written by several, the epoch first: each entry
    /// is sound by itself, and no epoch is given out twice.
    fn apply(&mut self, changes: &[Change]) -> Result<(), StoreError> {
        // Only the last word on a key counts; etcd refuses two in one transaction.
        let mut last: BTreeMap<String, Option<String>> = changes.iter().map(Change::entry).collect();
        let epoch = last.remove_entry("epoch");
        let key = |(key, value): Write| (format!("{STATE}{key}"), value);
        let writes: Vec<Write> = epoch.into_iter().chain(last).map(key).collect();
        let mut rest = &writes[..];
        while !rest.is_empty() {
            let mut bytes = 0;
            let fits = |(k, v): &&Write| {
                bytes += k.len() + v.as_ref().map_or(0, String::len);
                bytes <= MOST_BYTES
            };
            let count = rest.iter().take(MOST_WRITES).take_while(fits).count().max(1);
            let (now, later) = rest.split_at(count);
            self.write(now)?;
            rest = later;
        }
        Ok(())
    }
}
