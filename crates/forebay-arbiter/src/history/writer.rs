//! The thread that writes the history: nobody waits for it, and it cannot fall behind without bound.

use super::{History, Keep};
use forebay_control::view::{DecisionView, HistoryRow};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Notes that may wait to be written.
const WAITING: usize = 65_536;

/// How often rows are rolled up and the bound is kept.
const TIDY: Duration = Duration::from_secs(10);

/// Something to write down.
#[derive(Clone, Debug)]
pub enum Note {
    /// A row, and when its job began, in milliseconds since 1970.
    Row(HistoryRow, u64),
    /// A decision.
    Decided(Box<DecisionView>),
}

/// The way to the thread. Dropping it writes what waits, and ends the thread.
pub struct HistoryWriter {
    to: Option<SyncSender<Note>>,
    dropped: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl HistoryWriter {
    /// Opens the history in the directory and starts to write; also the number of the next decision.
    pub fn start(dir: &Path, keep: Keep) -> rusqlite::Result<(HistoryWriter, u64)> {
        let history = History::open(dir, keep)?;
        let next = history.next_decision()?;
        let (to, from) = sync_channel(WAITING);
        let dropped = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&dropped);
        let thread = std::thread::spawn(move || write(history, &from, &count));
        Ok((HistoryWriter { to: Some(to), dropped, thread: Some(thread) }, next))
    }

    /// Writes it down, or counts it as dropped if too much is waiting.
    pub fn note(&self, note: Note) {
        if self.to.as_ref().is_none_or(|to| to.try_send(note).is_err()) {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Notes that were not written.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}

impl Drop for HistoryWriter {
    fn drop(&mut self) {
        self.to = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn write(mut history: History, from: &Receiver<Note>, dropped: &AtomicU64) {
    let mut tidied = Instant::now();
    loop {
        let first = match from.recv_timeout(Duration::from_secs(1)) {
            Ok(note) => Some(note),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => return,
        };
        let notes: Vec<Note> = first.into_iter().chain(from.try_iter().take(10_000)).collect();
        let row = |n: &Note| if let Note::Row(r, began) = n { Some((r.clone(), *began)) } else { None };
        let rows: Vec<_> = notes.iter().filter_map(row).collect();
        let mut written = if rows.is_empty() { Ok(()) } else { history.add(&rows) };
        for note in &notes {
            if let Note::Decided(decision) = note {
                written = written.and(history.decided(decision));
            }
        }
        if tidied.elapsed() >= TIDY {
            tidied = Instant::now();
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
            written = written.and(history.tidy(now.map_or(0, |d| d.as_secs())));
        }
        if let Err(e) = written {
            // History is not worth stopping for.
            dropped.fetch_add(notes.len() as u64, Ordering::Relaxed);
            tracing::warn!("the history cannot be written: {e}");
        }
    }
}
