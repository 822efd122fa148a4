//! Who came: the ranks of a job, or its hosts where processes have no rank, and what each did here.

use forebay_types::{ClientReport, Nanos, host_number};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// More of one job than this are not told apart.
const MOST: usize = 1 << 16;
/// A host's name is not longer than this.
const MOST_NAME: usize = 255;

/// One rank, or the processes of a host that have none. Lives as long as its job.
#[derive(Debug, Default)]
pub(crate) struct Client {
    ranks: AtomicU32,
    pid: AtomicU32,
    processes: AtomicU64,
    requests: AtomicU64,
    errors: AtomicU64,
    read: AtomicU64,
    written: AtomicU64,
    busy: AtomicU64,
}

impl Client {
    /// A request of it was answered.
    pub(crate) fn record(&self, read: u64, written: u64, latency: Nanos, failed: bool) {
        self.requests.fetch_add(1, Relaxed);
        self.busy.fetch_add(latency.0, Relaxed);
        // Most requests have nothing to add to most of these.
        for (count, more) in [(&self.errors, u64::from(failed)), (&self.read, read), (&self.written, written)]
        {
            if more > 0 {
                count.fetch_add(more, Relaxed);
            }
        }
    }

    fn report(&self, host: &str, rank: Option<u32>) -> ClientReport {
        let of = |count: &AtomicU64| count.load(Relaxed);
        ClientReport {
            host: host.to_owned(),
            rank,
            ranks: self.ranks.load(Relaxed),
            pid: self.pid.load(Relaxed),
            processes: of(&self.processes),
            requests: of(&self.requests),
            errors: of(&self.errors),
            read: of(&self.read),
            written: of(&self.written),
            busy_ns: of(&self.busy),
        }
    }
}

/// By host, rank and run of the job.
type ByPlace = BTreeMap<(String, Option<u32>, u32), Arc<Client>>;

/// Those of one job.
#[derive(Debug, Default)]
pub(crate) struct Clients(Mutex<ClientTable>);

#[derive(Debug, Default)]
struct ClientTable {
    by_place: ByPlace,
    /// The run for which there was made room last.
    room_for: Option<u32>,
}

impl ClientTable {
    /// Whether there is room for one more of this run. What earlier ones have left goes first.
    fn has_room(&mut self, run: u32) -> bool {
        if self.by_place.len() >= MOST && self.room_for != Some(run) {
            self.room_for = Some(run);
            self.by_place.retain(|place, client| place.2 == run || Arc::strong_count(client) > 1);
        }
        self.by_place.len() < MOST
    }
}

impl Clients {
    fn lock(&self) -> MutexGuard<'_, ClientTable> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A process came, and says of which run of the job it is, where it runs and which rank of how many it is.
    pub(crate) fn arrive(&self, run: u32, host: &str, rank: Option<(u32, u32)>, pid: u32) -> Arc<Client> {
        let mut all = self.lock();
        let end = host.char_indices().map(|(i, c)| i + c.len_utf8()).take_while(|e| *e <= MOST_NAME).last();
        let mut key = (host[..end.unwrap_or(0)].to_owned(), rank.map(|r| r.0), run);
        if !all.by_place.contains_key(&key) && !all.has_room(run) {
            key = ("others".into(), None, 0);
        }
        let client = all.by_place.entry(key).or_default();
        client.pid.store(pid, Relaxed);
        client.ranks.fetch_max(rank.map_or(0, |r| r.1), Relaxed);
        Arc::clone(client)
    }

    /// The hosts that have moved data, by their numbers.
    pub(crate) fn hosts(&self) -> BTreeSet<u64> {
        let moved = |c: &Client| c.read.load(Relaxed) + c.written.load(Relaxed) > 0;
        let all = self.lock();
        all.by_place.iter().filter(|(_, c)| moved(c)).map(|((host, ..), _)| host_number(host)).collect()
    }

    /// Those of one run; without one those of all together.
    pub(crate) fn report(&self, run: Option<u32>) -> Vec<ClientReport> {
        let mut rows: Vec<ClientReport> = Vec::new();
        for ((host, rank, of), client) in &self.lock().by_place {
            if run.is_some_and(|run| run != *of) {
                continue;
            }
            let row = client.report(host, *rank);
            match rows.last_mut().filter(|last| last.rank == row.rank && last.host == row.host) {
                Some(last) => last.add(&row),
                None => rows.push(row),
            }
        }
        rows
    }
}

impl Client {
    /// A session of it began.
    pub(crate) fn began(&self) {
        self.processes.fetch_add(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_told_apart_up_to_a_limit() {
        let clients = Clients::default();
        for (rank, pid) in [(0, 10), (1, 11), (1, 12)] {
            let client = clients.arrive(0, "c1", Some((rank, 2)), pid);
            client.began();
            client.record(0, 100, Nanos(5), false);
        }
        clients.arrive(0, "c1", None, 9).record(7, 0, Nanos(1), true);
        clients.arrive(0, "idle", Some((5, 6)), 13);
        assert_eq!(clients.hosts(), [host_number("C1.cluster")].into(), "compute nodes, not processes");
        let all: Vec<_> = clients.report(None).into_iter().filter(|c| c.host == "c1").collect();
        let summary =
            |c: &ClientReport| (c.rank, c.ranks, c.pid, c.processes, c.requests, c.written, c.busy_ns);
        assert_eq!(
            all.iter().map(summary).collect::<Vec<_>>(),
            [(None, 0, 9, 0, 1, 0, 1), (Some(0), 2, 10, 1, 1, 100, 5), (Some(1), 2, 12, 2, 2, 200, 10),]
        );
        for rank in 0..2 * MOST as u32 {
            clients.arrive(0, &"é".repeat(400), Some((rank, 0)), 1);
        }
        let all = clients.report(None);
        assert_eq!(all.len(), MOST + 1);
        assert!(all.iter().all(|c| c.host.len() <= MOST_NAME));
    }

    #[test]
    fn runs_of_one_name_are_told_apart_and_the_old_ones_make_room() {
        let clients = Clients::default();
        let came = |run, host: &str, rank| {
            let client = clients.arrive(run, host, Some((rank, 2)), 1);
            client.began();
            client.record(0, 100, Nanos(5), false);
            client
        };
        let lives = came(7, "c1", 0);
        came(7, "c2", 1);
        came(8, "c1", 0);
        let of = |run| {
            let rows = clients.report(run).into_iter();
            rows.map(|c| (c.host, c.processes, c.written)).collect::<Vec<_>>()
        };
        assert_eq!(of(Some(7)), [("c1".to_owned(), 1, 100), ("c2".to_owned(), 1, 100)]);
        assert_eq!(of(Some(8)), [("c1".to_owned(), 1, 100)]);
        assert_eq!(of(None), [("c1".to_owned(), 2, 200), ("c2".to_owned(), 1, 100)]);
        assert!(of(Some(9)).is_empty());
        for rank in 0..MOST as u32 {
            clients.arrive(8, "c3", Some((rank, 0)), 1);
        }
        came(9, "c1", 1);
        assert_eq!(of(Some(9)), [("c1".to_owned(), 1, 100)], "not among others, for which there is no room");
        assert_eq!(of(Some(7)), [("c1".to_owned(), 1, 100)], "whoever still lives stays");
        assert!(of(Some(8)).is_empty());
        drop(lives);
    }
}
