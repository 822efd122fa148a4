//! The control state in a SQLite file on a local disk: for one arbiter. A lock on the file keeps a
//! second one out.

use super::{Change, ControlStore, Kept, StoreError};
use forebay_control::node::Term;
use forebay_types::Epoch;
use rusqlite::{Connection, OptionalExtension, params};
use std::fs::{DirBuilder, File, Permissions};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

/// The file.
#[derive(Debug)]
pub struct SqliteStore {
    db: Connection,
    /// Held for as long as the store lives.
    _lock: File,
    /// What the counters of a new file begin with.
    first: u64,
}

impl From<rusqlite::Error> for StoreError {
    fn from(e: rusqlite::Error) -> StoreError {
        StoreError::Failed(e.to_string())
    }
}

/// Opens a file in a state directory, or makes both, so that only this user may read it: jobs' secrets are in there,
/// and what every user does. SQLite gives its other files the mode of the first.
pub(crate) fn private_file(dir: &Path, name: &str) -> std::io::Result<File> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    let path = dir.join(name);
    let file = File::options().create(true).truncate(false).write(true).mode(0o600).open(path)?;
    file.set_permissions(Permissions::from_mode(0o600))?;
    Ok(file)
}

impl SqliteStore {
    /// Opens `control.db` in the directory, or makes it. The counters of a new file start at
    /// `unix_seconds`: nodes and clients that knew an arbiter whose files were deleted then take the
    /// new one's orders for newer, not for older.
    pub fn open(dir: &Path, unix_seconds: u64) -> Result<SqliteStore, StoreError> {
        let failed = |what: &str, e: &dyn std::fmt::Display| {
            StoreError::Failed(format!("{what} {}: {e}", dir.display()))
        };
        let private = |name| private_file(dir, name);
        let lock = private("lock").map_err(|e| failed("cannot open the lock file in", &e))?;
        if let Err(e) = lock.try_lock() {
            let why = match e {
                std::fs::TryLockError::WouldBlock => {
                    "give this one a --state of its own, or end the other".to_owned()
                }
                std::fs::TryLockError::Error(e) => e.to_string(),
            };
            return Err(StoreError::Begin(format!("another arbiter uses {}: {why}", dir.display())));
        }
        private("control.db").map_err(|e| failed("cannot open the state in", &e))?;
        let db = Connection::open(dir.join("control.db"))?;
        db.busy_timeout(std::time::Duration::from_secs(5))?;
        db.pragma_update(None, "journal_mode", "WAL")?;
        // The state must outlive the machine, too; it changes a few times a second at most.
        db.pragma_update(None, "synchronous", "FULL")?;
        db.execute_batch(
            "CREATE TABLE IF NOT EXISTS control (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
        )?;
        Ok(SqliteStore { db, _lock: lock, first: unix_seconds })
    }
}

impl ControlStore for SqliteStore {
    fn lead(&mut self) -> Result<(Term, Kept), StoreError> {
        let tx = self.db.transaction()?;
        let stored: Option<String> =
            tx.query_row("SELECT value FROM control WHERE key = 'term'", [], |r| r.get(0)).optional()?;
        let term = match stored {
            None => self.first,
            Some(text) => text
                .parse::<u64>()
                .map_err(|e| StoreError::Damaged { key: "term".into(), why: e.to_string() })?,
        };
        let term = term.saturating_add(1);
        tx.execute("INSERT OR REPLACE INTO control VALUES ('term', ?1)", [term.to_string()])?;
        let mut kept = Kept { epoch: Epoch(self.first), ..Kept::default() };
        {
            let mut rows = tx.prepare("SELECT key, value FROM control")?;
            let mut rows = rows.query([])?;
            while let Some(row) = rows.next()? {
                let (key, value): (String, String) = (row.get(0)?, row.get(1)?);
                kept.add(&key, &value)?;
            }
        }
        tx.commit()?;
        Ok((Term(term), kept))
    }

    fn apply(&mut self, changes: &[Change]) -> Result<(), StoreError> {
        let tx = self.db.transaction()?;
        for change in changes {
            match change.entry() {
                (key, Some(value)) => {
                    tx.prepare_cached("INSERT OR REPLACE INTO control VALUES (?1, ?2)")?
                        .execute(params![key, value])?;
                }
                (key, None) => {
                    tx.prepare_cached("DELETE FROM control WHERE key = ?1")?.execute([key])?;
                }
            }
        }
        tx.commit()?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Secrets of jobs are in there.
    #[test]
    fn only_its_user_may_read_it() {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("state");
        std::fs::create_dir(&state).unwrap();
        std::fs::write(state.join("control.db"), "").unwrap();
        for made in [&state, &dir.path().join("new/state")] {
            let mut store = SqliteStore::open(made, 1).unwrap();
            store.lead().unwrap();
            let files: Vec<_> = std::fs::read_dir(made).unwrap().map(Result::unwrap).collect();
            assert!(files.len() >= 3, "{files:?}");
            for file in files {
                assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{file:?}");
            }
        }
        let made = std::fs::metadata(dir.path().join("new/state")).unwrap();
        assert_eq!(made.permissions().mode() & 0o777, 0o700);
    }

    #[test]
    fn terms_grow_and_changes_stay() {
        let dir = tempfile::tempdir().unwrap();
        let learned = |v: i32| Change::Learned { key: "x/y".into(), value: Some(v.into()) };
        let mut store = SqliteStore::open(dir.path(), 100).unwrap();
        let (term, kept) = store.lead().unwrap();
        assert_eq!((term, kept.epoch), (Term(101), Epoch(100)));
        assert!(SqliteStore::open(dir.path(), 0).unwrap_err().to_string().contains("another arbiter"));
        store.apply(&[learned(1), Change::Epoch(Epoch(107)), learned(2)]).unwrap();
        drop(store);
        let (term, kept) = SqliteStore::open(dir.path(), 5).unwrap().lead().unwrap();
        assert_eq!((term, kept.epoch), (Term(102), Epoch(107)));
        assert_eq!(kept.learned["x/y"], 2);
    }

    #[test]
    fn damage_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let mut store = SqliteStore::open(dir.path(), 1).unwrap();
        store.db.execute("INSERT INTO control VALUES ('job/a', '{')", []).unwrap();
        assert!(store.lead().unwrap_err().to_string().contains("job/a"));
    }
}
