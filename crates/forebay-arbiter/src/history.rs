//! What jobs did on I/O nodes, and what was decided, in a SQLite file of bounded size.
//!
//! Rows of one second are rolled up into minutes and those into hours, each kept for longer than the
//! one before. When the file reaches its bound, the oldest tenth of the finest rows goes first.

mod writer;

pub use writer::{HistoryWriter, Note};

use forebay_control::view::{DecisionView, HistoryRow, PastJob};
use forebay_types::NodeId;
use rusqlite::{Connection, OpenFlags, OptionalExtension, Row, params};
use std::collections::BTreeMap;
use std::path::Path;

/// How long rows are kept, and how large the file may get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keep {
    /// Rows of a second, for this many seconds.
    pub seconds: u64,
    /// Rows of a minute.
    pub minutes: u64,
    /// Rows of an hour.
    pub hours: u64,
    /// Bytes of the file; at least 1 MiB. The log beside it may add 8 MiB.
    pub bytes: u64,
    /// Decisions.
    pub decisions: u64,
}

impl Default for Keep {
    fn default() -> Keep {
        Keep {
            seconds: 6 * 3600,
            minutes: 14 * 86_400,
            hours: 2 * 366 * 86_400,
            bytes: 512 << 20,
            decisions: 10_000,
        }
    }
}

/// The levels: the table, the seconds a row stands for.
const LEVELS: [(&str, u32); 3] = [("second", 1), ("minute", 60), ("hour", 3600)];

/// What a question is about. All limits are inclusive.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Query {
    /// Only this job.
    pub job: Option<String>,
    /// Only this node.
    pub node: Option<NodeId>,
    /// From this second since 1970.
    pub from: u64,
    /// To this one.
    pub to: Option<u64>,
    /// 1, 60 or 3600 seconds a row.
    pub step: u32,
    /// Rows at most, the newest ones.
    pub limit: u32,
}

/// The open file.
pub struct History {
    db: Connection,
    keep: Keep,
}

const COLUMNS: &str = "time, job, node, bytes_read, bytes_written, reads, writes, metadata, queue, \
     size_min, size_mean, size_max, files, mode";

impl History {
    /// Opens `history.db` in the directory for writing, or makes it.
    pub fn open(dir: &Path, keep: Keep) -> rusqlite::Result<History> {
        let mut db = Connection::open(dir.join("history.db"))?;
        db.busy_timeout(std::time::Duration::from_secs(5))?;
        db.pragma_update(None, "journal_mode", "WAL")?;
        db.pragma_update(None, "journal_size_limit", 4 << 20)?;
        // The last moments of history may go with the machine; they survive the arbiter's death.
        db.pragma_update(None, "synchronous", "NORMAL")?;
        for (table, _) in LEVELS {
            db.execute_batch(&format!(
                "CREATE TABLE IF NOT EXISTS {table} (
                   time INTEGER, job TEXT, node INTEGER, bytes_read INTEGER, bytes_written INTEGER,
                   reads INTEGER, writes INTEGER, metadata INTEGER, queue REAL, size_min INTEGER,
                   size_mean REAL, size_max INTEGER, files INTEGER, mode TEXT,
                   PRIMARY KEY (time, job, node)) WITHOUT ROWID"
            ))?;
        }
        db.execute_batch(
            "CREATE TABLE IF NOT EXISTS decision (id INTEGER PRIMARY KEY, json TEXT NOT NULL);
             CREATE TABLE IF NOT EXISTS rolled (step INTEGER PRIMARY KEY, until INTEGER NOT NULL);
             CREATE TABLE IF NOT EXISTS past (
               job TEXT, began INTEGER, first INTEGER, last INTEGER, bytes_read INTEGER, bytes_written INTEGER,
               PRIMARY KEY (job, began)) WITHOUT ROWID;
             CREATE INDEX IF NOT EXISTS past_last ON past (last);",
        )?;
        adopt(&mut db)?;
        Ok(History { db, keep: Keep { bytes: keep.bytes.max(1 << 20), ..keep } })
    }

    /// Opens the file for reading beside its writer.
    pub fn read(dir: &Path) -> rusqlite::Result<History> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let db = Connection::open_with_flags(dir.join("history.db"), flags)?;
        db.busy_timeout(std::time::Duration::from_secs(2))?;
        Ok(History { db, keep: Keep::default() })
    }

    /// Adds rows of one second, each with when its job began, in milliseconds since 1970. What a node reported twice
    /// in a second is added up.
    pub fn add(&mut self, rows: &[(HistoryRow, u64)]) -> rusqlite::Result<()> {
        let tx = self.db.transaction()?;
        for (row, began) in rows {
            let same = tx
                .prepare_cached(&format!(
                    "SELECT {COLUMNS} FROM second WHERE time = ?1 AND job = ?2 AND node = ?3"
                ))?
                .query_row(params![int(row.time), row.job, row.node.0], |r| from_row(r, 1))
                .optional()?;
            let mut merged = Merged::default();
            same.iter().for_each(|old| merged.add(old));
            merged.add(row);
            put(&tx, "second", &merged.row)?;
            // Rows that were rolled up tell neither the second nor which job of the name it was.
            tx.prepare_cached(
                "INSERT INTO past VALUES (?1, ?2, ?3, ?3 + 1, ?4, ?5) ON CONFLICT DO UPDATE \
                 SET first = min(first, excluded.first), last = max(last, excluded.last), \
                 bytes_read = bytes_read + excluded.bytes_read, bytes_written = bytes_written + excluded.bytes_written",
            )?
            .execute(params![row.job, int(*began), int(row.time), int(row.bytes_read), int(row.bytes_written)])?;
        }
        tx.commit()
    }

    /// Adds a decision.
    pub fn decided(&mut self, decision: &DecisionView) -> rusqlite::Result<()> {
        let json = serde_json::to_string(decision).unwrap_or_default();
        self.db
            .execute("INSERT OR REPLACE INTO decision VALUES (?1, ?2)", params![int(decision.id), json])?;
        let oldest = decision.id.saturating_sub(self.keep.decisions);
        self.db.execute("DELETE FROM decision WHERE id <= ?1", [int(oldest)])?;
        Ok(())
    }

    /// The number of the next decision.
    pub fn next_decision(&self) -> rusqlite::Result<u64> {
        let last: Option<i64> = self.db.query_row("SELECT max(id) FROM decision", [], |r| r.get(0))?;
        Ok(last.map_or(1, |id| id.max(0) as u64 + 1))
    }

    /// Rolls up whole minutes and hours that ended before `now` (seconds since 1970), forgets what is
    /// too old, and keeps the file within its bound.
    pub fn tidy(&mut self, now: u64) -> rusqlite::Result<()> {
        for pair in LEVELS.windows(2) {
            self.roll_up(pair[0].0, pair[1], now)?;
        }
        for ((table, _), keep) in LEVELS.iter().zip([self.keep.seconds, self.keep.minutes, self.keep.hours]) {
            let oldest = int(now.saturating_sub(keep));
            self.db.execute(&format!("DELETE FROM {table} WHERE time < ?1"), [oldest])?;
        }
        self.shrink()?;
        let oldest =
            LEVELS.map(|(table, _)| format!("SELECT min(time) AS time FROM {table}")).join(" UNION ALL ");
        let sql = format!("DELETE FROM past WHERE last < coalesce((SELECT min(time) FROM ({oldest})), ?1)");
        self.db.execute(&sql, [int(now)])?;
        Ok(())
    }

    fn roll_up(&mut self, from: &str, (to, step): (&str, u32), now: u64) -> rusqlite::Result<()> {
        let step = u64::from(step);
        // A report may be a few seconds late.
        let end = now.saturating_sub(5) / step * step;
        let tx = self.db.transaction()?;
        let done: Option<i64> =
            tx.query_row("SELECT until FROM rolled WHERE step = ?1", [int(step)], |r| r.get(0)).optional()?;
        let first: Option<i64> = tx.query_row(&format!("SELECT min(time) FROM {from}"), [], |r| r.get(0))?;
        let Some(first) = first else { return Ok(()) };
        let mut start = done.unwrap_or(first).max(first).max(0) as u64 / step * step;
        while start < end {
            let mut sums: BTreeMap<(String, NodeId), Merged> = BTreeMap::new();
            {
                let sql = format!("SELECT {COLUMNS} FROM {from} WHERE time >= ?1 AND time < ?2");
                let mut rows = tx.prepare_cached(&sql)?;
                let mut rows = rows.query([int(start), int(start + step)])?;
                while let Some(row) = rows.next()? {
                    let row = from_row(row, 1)?;
                    sums.entry((row.job.clone(), row.node)).or_default().add(&row);
                }
            }
            for mut merged in sums.into_values() {
                merged.row.time = start;
                put(&tx, to, &merged.row)?;
            }
            // On to the next stretch that has rows.
            let sql = format!("SELECT min(time) FROM {from} WHERE time >= ?1");
            let next: Option<i64> = tx.query_row(&sql, [int(start + step)], |r| r.get(0))?;
            start = next.map_or(end, |n| n.max(0) as u64 / step * step).min(end);
        }
        tx.execute("INSERT OR REPLACE INTO rolled VALUES (?1, ?2)", [int(step), int(end)])?;
        tx.commit()
    }

    /// Bytes in use. Pages that became free are used again before the file grows.
    pub fn size(&self) -> rusqlite::Result<u64> {
        let pragma = |name: &str| self.db.pragma_query_value(None, name, |r| r.get::<_, i64>(0));
        let pages = pragma("page_count")? - pragma("freelist_count")?;
        Ok(pages.max(0) as u64 * pragma("page_size")?.max(0) as u64)
    }

    fn shrink(&mut self) -> rusqlite::Result<()> {
        while self.size()? > self.keep.bytes * 9 / 10 {
            let mut removed = 0;
            for (table, _) in LEVELS {
                let range: (Option<i64>, Option<i64>) =
                    self.db.query_row(&format!("SELECT min(time), max(time) FROM {table}"), [], |r| {
                        Ok((r.get(0)?, r.get(1)?))
                    })?;
                let (Some(first), Some(last)) = range else { continue };
                let cut = first + (last - first) / 10 + 1;
                removed = self.db.execute(&format!("DELETE FROM {table} WHERE time < ?1"), [cut])?;
                break;
            }
            if removed == 0 {
                self.db.execute(
                    "DELETE FROM decision WHERE id IN (SELECT id FROM decision ORDER BY id LIMIT 100)",
                    [],
                )?;
                return Ok(());
            }
        }
        Ok(())
    }

    /// The rows asked for, the oldest first.
    pub fn rows(&self, query: &Query) -> rusqlite::Result<Vec<HistoryRow>> {
        let (table, step) =
            LEVELS.iter().rev().find(|(_, step)| *step <= query.step).copied().unwrap_or(LEVELS[0]);
        let sql = format!(
            "SELECT {COLUMNS} FROM {table} WHERE time >= ?1 AND time <= ?2 \
             AND (?3 IS NULL OR job = ?3) AND (?4 IS NULL OR node = ?4) \
             ORDER BY time DESC, job, node LIMIT ?5"
        );
        let mut rows = self.db.prepare(&sql)?;
        let to = query.to.map_or(i64::MAX, int);
        let node = query.node.map(|n| n.0);
        let rows = rows
            .query_map(params![int(query.from), to, query.job, node, query.limit], |r| from_row(r, step))?;
        let mut rows = rows.collect::<rusqlite::Result<Vec<_>>>()?;
        rows.reverse();
        Ok(rows)
    }

    /// The jobs that are still known, the latest first.
    pub fn jobs(&self, limit: u32) -> rusqlite::Result<Vec<PastJob>> {
        let mut rows = self.db.prepare(
            "SELECT job, began, first, last, bytes_read, bytes_written FROM past \
             ORDER BY last DESC, began DESC LIMIT ?1",
        )?;
        let number = |r: &rusqlite::Row<'_>, at| Ok::<_, rusqlite::Error>(r.get::<_, i64>(at)?.max(0) as u64);
        let found = rows.query_map([limit], |r| {
            Ok(PastJob {
                job: r.get(0)?,
                began_unix_ms: number(r, 1)?,
                first: number(r, 2)?,
                last: number(r, 3)?,
                bytes_read: number(r, 4)?,
                bytes_written: number(r, 5)?,
            })
        })?;
        found.collect()
    }

    /// The latest decisions, the newest first; only those in which a job got something, if asked so.
    pub fn decisions(&self, job: Option<&str>, limit: u32) -> rusqlite::Result<Vec<DecisionView>> {
        let mut found = Vec::new();
        let mut rows = self.db.prepare("SELECT json FROM decision ORDER BY id DESC")?;
        let mut rows = rows.query([])?;
        while let Some(row) = rows.next()? {
            if found.len() >= limit as usize {
                break;
            }
            let json: String = row.get(0)?;
            let Ok(decision) = serde_json::from_str::<DecisionView>(&json) else { continue };
            if job.is_none_or(|id| decision.jobs.iter().any(|j| j.id == id)) {
                found.push(decision);
            }
        }
        Ok(found)
    }
}

/// What earlier versions knew of jobs, by name alone: in a table of its own, or, before that, from the rows only.
fn adopt(db: &mut Connection) -> rusqlite::Result<()> {
    let tx = db.transaction()?;
    let old = "SELECT NOT EXISTS (SELECT * FROM past) \
               OR EXISTS (SELECT * FROM sqlite_master WHERE type = 'table' AND name = 'job')";
    if tx.query_row(old, [], |r| r.get::<_, bool>(0))? {
        // Rows that were rolled up stand in two tables for a while: the fuller one has all of them.
        let each = LEVELS.map(|(table, step)| {
            format!(
                "SELECT job, min(time) AS first, max(time) + {step} AS last, sum(bytes_read) AS r, \
                 sum(bytes_written) AS w FROM {table} GROUP BY job"
            )
        });
        tx.execute_batch(&format!(
            "CREATE TABLE IF NOT EXISTS job (job TEXT PRIMARY KEY, first INTEGER, last INTEGER) WITHOUT ROWID;
             INSERT OR IGNORE INTO past SELECT job, coalesce(job.first, min(seen.first)) * 1000, \
             coalesce(job.first, min(seen.first)), coalesce(job.last, max(seen.last)), max(r), max(w) \
             FROM ({}) AS seen LEFT JOIN job USING (job) GROUP BY job; DROP TABLE job;",
            each.join(" UNION ALL ")
        ))?;
    }
    tx.commit()
}

/// Rows added up.
#[derive(Default)]
struct Merged {
    row: HistoryRow,
    rows: u32,
    /// Bytes by I/O mode.
    modes: BTreeMap<String, u64>,
}

impl Merged {
    fn add(&mut self, other: &HistoryRow) {
        let bytes = |r: &HistoryRow| r.bytes_read.saturating_add(r.bytes_written);
        let requests = |r: &HistoryRow| r.reads.saturating_add(r.writes) as f64;
        *self.modes.entry(other.mode.clone()).or_default() += bytes(other);
        self.rows += 1;
        if self.rows == 1 {
            self.row = other.clone();
            return;
        }
        let (a, b) = (requests(&self.row), requests(other));
        let row = &mut self.row;
        if b > 0.0 {
            row.size_mean = (row.size_mean * a + other.size_mean * b) / (a + b);
            row.size_min = if a > 0.0 { row.size_min.min(other.size_min) } else { other.size_min };
        }
        row.size_max = row.size_max.max(other.size_max);
        row.queue += (other.queue - row.queue) / f64::from(self.rows);
        row.files = row.files.max(other.files);
        for (to, from) in [
            (&mut row.bytes_read, other.bytes_read),
            (&mut row.bytes_written, other.bytes_written),
            (&mut row.reads, other.reads),
            (&mut row.writes, other.writes),
            (&mut row.metadata, other.metadata),
        ] {
            *to = to.saturating_add(from);
        }
        if let Some((mode, _)) = self.modes.iter().max_by_key(|(mode, bytes)| (**bytes, !mode.is_empty())) {
            row.mode.clone_from(mode);
        }
    }
}

/// SQLite's integers are signed.
fn int(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

fn put(db: &Connection, table: &str, r: &HistoryRow) -> rusqlite::Result<()> {
    let sql = format!(
        "INSERT OR REPLACE INTO {table} ({COLUMNS}) VALUES (?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12,?13,?14)"
    );
    db.prepare_cached(&sql)?.execute(params![
        int(r.time),
        r.job,
        r.node.0,
        int(r.bytes_read),
        int(r.bytes_written),
        int(r.reads),
        int(r.writes),
        int(r.metadata),
        r.queue,
        int(r.size_min),
        r.size_mean,
        int(r.size_max),
        r.files,
        r.mode
    ])?;
    Ok(())
}

fn from_row(r: &Row<'_>, seconds: u32) -> rusqlite::Result<HistoryRow> {
    let count = |i: usize| r.get::<_, i64>(i).map(|n| n.max(0) as u64);
    Ok(HistoryRow {
        time: count(0)?,
        seconds,
        job: r.get(1)?,
        node: NodeId(r.get(2)?),
        bytes_read: count(3)?,
        bytes_written: count(4)?,
        reads: count(5)?,
        writes: count(6)?,
        metadata: count(7)?,
        // SQLite keeps no NaN: it comes back as nothing.
        queue: r.get::<_, Option<f64>>(8)?.unwrap_or(0.0),
        size_min: count(9)?,
        size_mean: r.get::<_, Option<f64>>(10)?.unwrap_or(0.0),
        size_max: count(11)?,
        files: r.get(12)?,
        mode: r.get(13)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(time: u64, job: &str, node: u32, bytes: u64) -> (HistoryRow, u64) {
        let row = HistoryRow {
            time,
            seconds: 1,
            job: job.into(),
            node: NodeId(node),
            bytes_written: bytes,
            writes: 1,
            size_min: bytes,
            size_mean: bytes as f64,
            size_max: bytes,
            queue: 2.0,
            files: 1,
            mode: if bytes > 50 { "N-N" } else { "N-1" }.into(),
            ..HistoryRow::default()
        };
        (row, 5000)
    }

    fn all(step: u32) -> Query {
        Query { step, limit: 100_000, ..Query::default() }
    }

    #[test]
    fn seconds_become_minutes_and_hours_and_nothing_is_counted_twice() {
        let dir = tempfile::tempdir().unwrap();
        let mut h = History::open(dir.path(), Keep::default()).unwrap();
        let start = 1_800_000_000 / 3600 * 3600;
        for t in 0..7200 {
            h.add(&[row(start + t, "a", 0, 100), row(start + t, "b", 1, 10)]).unwrap();
            if t % 777 == 0 {
                h.tidy(start + t).unwrap();
            }
        }
        h.tidy(start + 7205).unwrap();
        h.tidy(start + 7206).unwrap();
        let sum = |step: u32, job: &str| {
            let rows = h.rows(&Query { job: Some(job.into()), ..all(step) }).unwrap();
            (rows.len(), rows.iter().map(|r| r.bytes_written).sum::<u64>(), rows[0].clone())
        };
        for (step, rows) in [(1, 7200), (60, 120), (3600, 2)] {
            let (n, bytes, first) = sum(step, "a");
            assert_eq!((n, bytes), (rows, 720_000), "step {step}");
            assert_eq!((first.seconds, first.size_mean, first.queue), (step, 100.0, 2.0));
            assert_eq!((first.mode.as_str(), first.files), ("N-N", 1));
            assert_eq!(sum(step, "b").1, 72_000);
        }
        let newest = h.rows(&Query { limit: 2, ..all(1) }).unwrap();
        assert_eq!(newest.iter().map(|r| r.time).collect::<Vec<_>>(), [start + 7199; 2]);
        assert_eq!(
            h.rows(&Query { node: Some(NodeId(1)), from: start + 7000, ..all(1) }).unwrap().len(),
            200
        );
    }

    #[test]
    fn a_job_began_and_was_last_seen_to_the_second_after_the_roll_up_too() {
        let dir = tempfile::tempdir().unwrap();
        let keep = Keep { seconds: 600, ..Keep::default() };
        let mut h = History::open(dir.path(), keep).unwrap();
        let start = 1_800_000_000 / 3600 * 3600 + 47;
        for t in 0..20 {
            h.add(&[row(start + t, "a", 0, 100), row(start + t, "a", 1, 100)]).unwrap();
        }
        for later in [0, 100, 1000, 10_000] {
            h.tidy(start + 20 + later).unwrap();
            let jobs = h.jobs(9).unwrap();
            assert_eq!(jobs.len(), 1);
            assert_eq!((jobs[0].first, jobs[0].last), (start, start + 20), "{later} s later");
            assert_eq!(jobs[0].bytes_written, 4000);
        }
        h.tidy(start + Keep::default().hours + 7200).unwrap();
        assert!(h.jobs(9).unwrap().is_empty());
        // Of a name that was there long ago, another begins.
        h.add(&[row(start + (1 << 30), "a", 0, 100)]).unwrap();
        h.tidy(start + (1 << 30)).unwrap();
        assert_eq!(h.jobs(9).unwrap()[0].first, start + (1 << 30));
    }

    #[test]
    fn jobs_of_one_name_are_each_its_own() {
        let dir = tempfile::tempdir().unwrap();
        let mut h = History::open(dir.path(), Keep::default()).unwrap();
        let began = |began, row: (HistoryRow, u64)| (row.0, began);
        h.add(&[began(99_500, row(100, "a", 0, 10)), began(99_500, row(101, "a", 1, 20))]).unwrap();
        h.add(&[began(101_800, row(101, "a", 0, 40)), began(101_800, row(200, "a", 0, 80))]).unwrap();
        h.tidy(300).unwrap();
        let told = |h: &History| -> Vec<_> {
            let all = h.jobs(9).unwrap().into_iter();
            all.map(|j| (j.job, j.began_unix_ms, j.first, j.last, j.bytes_written)).collect()
        };
        let a = |began, first, last, bytes| ("a".to_owned(), began, first, last, bytes);
        assert_eq!(told(&h), [a(101_800, 101, 201, 120), a(99_500, 100, 102, 30)]);
        // What a version knew that told them apart by name alone is taken over, once.
        h.db.execute_batch(
            "CREATE TABLE job (job TEXT PRIMARY KEY, first INTEGER, last INTEGER) WITHOUT ROWID;
             INSERT INTO job VALUES ('a', 100, 201); DELETE FROM past",
        )
        .unwrap();
        drop(h);
        for _ in 0..2 {
            let h = History::open(dir.path(), Keep::default()).unwrap();
            assert_eq!(told(&h), [a(100_000, 100, 201, 150)]);
        }
        // One before that had no such table: what its rows tell, by the hour.
        let h = History::open(dir.path(), Keep::default()).unwrap();
        h.db.execute_batch("DELETE FROM past").unwrap();
        drop(h);
        let h = History::open(dir.path(), Keep::default()).unwrap();
        let (job, began, first, last, bytes) = told(&h).remove(0);
        assert_eq!((job.as_str(), began, bytes), ("a", first * 1000, 150));
        assert!(first <= 100 && last >= 201, "{first} {last}");
    }

    #[test]
    fn a_second_reported_twice_is_added_up() {
        let dir = tempfile::tempdir().unwrap();
        let mut h = History::open(dir.path(), Keep::default()).unwrap();
        h.add(&[row(50, "a", 0, 10), row(50, "a", 0, 100)]).unwrap();
        h.add(&[row(50, "a", 0, 1)]).unwrap();
        let rows = h.rows(&all(1)).unwrap();
        assert_eq!(rows.len(), 1);
        let r = &rows[0];
        assert_eq!((r.bytes_written, r.writes, r.size_min, r.size_max), (111, 3, 1, 100));
        assert!((r.size_mean - 37.0).abs() < 1e-9);
    }

    #[test]
    fn the_file_stays_within_its_bound() {
        let dir = tempfile::tempdir().unwrap();
        let keep = Keep { bytes: 2 << 20, ..Keep::default() };
        let mut h = History::open(dir.path(), keep).unwrap();
        let rows: Vec<_> =
            (0..50).map(|n| row(0, &format!("a job with a rather long name {n}"), n, 5)).collect();
        for t in 0..4000u64 {
            let now =
                |(r, began): &(HistoryRow, u64)| (HistoryRow { time: 1_000_000 + t, ..r.clone() }, *began);
            let now: Vec<_> = rows.iter().map(now).collect();
            h.add(&now).unwrap();
            if t % 20 == 0 {
                h.tidy(1_000_000 + t).unwrap();
                assert!(h.size().unwrap() <= keep.bytes, "{}", h.size().unwrap());
            }
        }
        drop(h);
        let size = std::fs::metadata(dir.path().join("history.db")).unwrap().len();
        assert!(size <= keep.bytes, "{size}");
        let h = History::read(dir.path()).unwrap();
        let seconds = h.rows(&all(1)).unwrap();
        assert_eq!(seconds.last().unwrap().time, 1_003_999, "the newest rows are there");
        assert!(!h.rows(&all(60)).unwrap().is_empty());
    }
}
