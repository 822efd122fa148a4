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

/// By host and rank.
type ByPlace = BTreeMap<(String, Option<u32>), Arc<Client>>;

/// Those of one job.
#[derive(Debug, Default)]
pub(crate) struct Clients(Mutex<ByPlace>);

impl Clients {
    fn lock(&self) -> MutexGuard<'_, ByPlace> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A process came, and says where it runs and which rank of how many it is.
    pub(crate) fn arrive(&self, host: &str, rank: Option<(u32, u32)>, pid: u32) -> Arc<Client> {
        let mut all = self.lock();
        let end = host.char_indices().map(|(i, c)| i + c.len_utf8()).take_while(|e| *e <= MOST_NAME).last();
        let mut key = (host[..end.unwrap_or(0)].to_owned(), rank.map(|r| r.0));
        if all.len() >= MOST && !all.contains_key(&key) {
            key = ("others".into(), None);
        }
        let client = all.entry(key).or_default();
        client.pid.store(pid, Relaxed);
        client.ranks.fetch_max(rank.map_or(0, |r| r.1), Relaxed);
        Arc::clone(client)
    }

    /// The hosts that have moved data, by their numbers.
    pub(crate) fn hosts(&self) -> BTreeSet<u64> {
        let moved = |c: &Client| c.read.load(Relaxed) + c.written.load(Relaxed) > 0;
        self.lock().iter().filter(|(_, c)| moved(c)).map(|((host, _), _)| host_number(host)).collect()
    }

    pub(crate) fn report(&self) -> Vec<ClientReport> {
        self.lock().iter().map(|((host, rank), client)| client.report(host, *rank)).collect()
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
            let client = clients.arrive("c1", Some((rank, 2)), pid);
            client.began();
            client.record(0, 100, Nanos(5), false);
        }
        clients.arrive("c1", None, 9).record(7, 0, Nanos(1), true);
        clients.arrive("idle", Some((5, 6)), 13);
        assert_eq!(clients.hosts(), [host_number("C1.cluster")].into(), "compute nodes, not processes");
        let all: Vec<_> = clients.report().into_iter().filter(|c| c.host == "c1").collect();
        let summary =
            |c: &ClientReport| (c.rank, c.ranks, c.pid, c.processes, c.requests, c.written, c.busy_ns);
        assert_eq!(
            all.iter().map(summary).collect::<Vec<_>>(),
            [(None, 0, 9, 0, 1, 0, 1), (Some(0), 2, 10, 1, 1, 100, 5), (Some(1), 2, 12, 2, 2, 200, 10),]
        );
        for rank in 0..2 * MOST as u32 {
            clients.arrive(&"é".repeat(400), Some((rank, 0)), 1);
        }
        let all = clients.report();
        assert_eq!(all.len(), MOST + 1);
        assert!(all.iter().all(|c| c.host.len() <= MOST_NAME));
    }
}
