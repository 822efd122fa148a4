//! Every rank accounted for: what a launcher started against what the I/O nodes saw.

use forebay_embed::Note;
use forebay_types::stats::median;
use forebay_types::{ClientReport, same_host};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// The ranks and hosts of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Account {
    /// How many ranks there were, if anybody knows.
    pub ranks: Option<u32>,
    /// How many of them the I/O nodes saw.
    pub forwarded: usize,
    /// By host, in the job's order.
    pub hosts: Vec<HostRow>,
    /// How long the ranks' requests were at the I/O nodes.
    pub per_rank: Option<Spread>,
    /// The same of all ranks of a host together.
    pub per_host: Option<Spread>,
    /// Who was not seen.
    pub missing: Vec<Missing>,
}

/// A compute node.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct HostRow {
    /// Its name.
    pub host: String,
    /// The ranks that ran there, as far as they were seen.
    pub ranks: BTreeSet<u32>,
    /// Processes that were seen.
    pub processes: u64,
    /// The I/O nodes that served it.
    pub nodes: BTreeSet<String>,
    /// Requests, and bytes read and written.
    pub requests: u64,
    /// Bytes read.
    pub read: u64,
    /// Bytes written.
    pub written: u64,
    /// Seconds for which its requests were at the I/O nodes, together.
    pub seconds: f64,
}

/// How something is spread.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// Seconds of the one that had least.
    pub min: f64,
    /// Of the one in the middle.
    pub median: f64,
    /// Of the one that had most.
    pub max: f64,
    /// Who that was.
    pub slowest: String,
}

/// Ranks that were not forwarded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Missing {
    /// Where they ran, as far as that is known.
    pub hosts: Vec<String>,
    /// Which.
    pub ranks: Vec<u32>,
    /// Why not, as far as that is known.
    pub why: String,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let many = |n: usize| if n == 1 { "" } else { "s" };
        write!(f, "rank{} {} ", many(self.ranks.len()), numbers(self.ranks.iter().copied()))?;
        match self.hosts.len() {
            0 => write!(f, "of an unknown host")?,
            n => write!(f, "of host{} {}", many(n), self.hosts.join(", "))?,
        }
        write!(f, " not forwarded: {}", self.why)
    }
}

/// Numbers as people write them: `0-3, 7`.
pub(super) fn numbers(all: impl IntoIterator<Item = u32>) -> String {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for n in all {
        match runs.last_mut() {
            Some((_, last)) if n == last.wrapping_add(1) => *last = n,
            _ => runs.push((n, n)),
        }
    }
    let text = |(a, b): &(u32, u32)| if a == b { a.to_string() } else { format!("{a}-{b}") };
    runs.iter().map(text).collect::<Vec<_>>().join(", ")
}

impl HostRow {
    /// Its ranks, as people write them.
    pub fn ranks_text(&self) -> String {
        numbers(self.ranks.iter().copied())
    }
}

/// What ranks that reached no I/O node say of that themselves: by rank where they ran, and why.
pub(crate) type Complaints = BTreeMap<u32, (String, String)>;

/// What the library has noted of ranks (`rank 3 of host c2`).
pub fn complaints(notes: &[Note]) -> Complaints {
    let of = |n: &Note| {
        let (rank, host) = n.path.strip_prefix("rank ")?.split_once(" of host ")?;
        (n.kind == "rank").then_some((rank.parse().ok()?, (host.to_owned(), n.why.clone())))
    };
    notes.iter().filter_map(of).collect()
}

/// Compares. `ranks` and `hosts` are what the launcher was told; `seen` is by I/O node what it saw, `why`
/// the reason to give for what was not and says nothing itself.
pub fn account(
    ranks: Option<u32>,
    hosts: &[String],
    seen: &[(String, Vec<ClientReport>)],
    complaints: &Complaints,
    why: &str,
) -> Account {
    let all = || seen.iter().flat_map(|(node, clients)| clients.iter().map(move |c| (node, c)));
    // A process without a rank is the launcher itself, where others have one.
    let ranked = all().any(|(_, c)| c.rank.is_some());
    let (mut rows, mut by_rank) = (Vec::<HostRow>::new(), BTreeMap::<u32, (String, f64)>::new());
    for (node, client) in all().filter(|(_, c)| c.rank.is_some() || !ranked) {
        let at = rows.iter().position(|r| r.host == client.host).unwrap_or_else(|| {
            rows.push(HostRow { host: client.host.clone(), ..HostRow::default() });
            rows.len() - 1
        });
        let row = &mut rows[at];
        let seconds = client.busy_ns as f64 / 1e9;
        row.ranks.extend(client.rank);
        row.nodes.insert(node.clone());
        row.processes += client.processes;
        row.requests += client.requests;
        row.read += client.read;
        row.written += client.written;
        row.seconds += seconds;
        if let Some(rank) = client.rank {
            by_rank.entry(rank).or_insert_with(|| (client.host.clone(), 0.0)).1 += seconds;
        }
    }
    let order = |r: &HostRow| hosts.iter().position(|h| same_host(h, &r.host)).unwrap_or(usize::MAX);
    rows.sort_by(|a, b| (order(a), &a.host).cmp(&(order(b), &b.host)));
    let told = all().map(|(_, c)| c.ranks).max().filter(|n| *n > 0);
    let ranks = told.or(ranks);
    let absent = (0..ranks.unwrap_or(0)).filter(|r| !by_rank.contains_key(r));
    let (told, silent): (Vec<u32>, Vec<u32>) = absent.partition(|r| complaints.contains_key(r));
    let mut missing: Vec<Missing> = Vec::new();
    for (rank, (host, why)) in told.iter().filter_map(|r| Some((*r, complaints.get(r)?))) {
        match missing.iter_mut().find(|m| m.hosts[0] == *host && m.why == *why) {
            Some(same) => same.ranks.push(rank),
            None => missing.push(Missing { hosts: vec![host.clone()], ranks: vec![rank], why: why.clone() }),
        }
    }
    if !silent.is_empty() {
        // What was seen of a host may have been the launcher alone.
        let ranked = |h: &&String| rows.iter().any(|r| same_host(h, &r.host) && !r.ranks.is_empty());
        let unseen: Vec<String> = hosts.iter().filter(|h| !ranked(h)).cloned().collect();
        // Of a host whose ranks have said why, the others have most likely, too.
        let says = |h: &&String| complaints.values().any(|(host, _)| same_host(h, host));
        let quiet: Vec<String> = unseen.iter().filter(|h| !says(h)).cloned().collect();
        let hosts = if quiet.is_empty() { unseen } else { quiet };
        missing.push(Missing { hosts, ranks: silent, why: why.to_owned() });
    }
    let per_rank = spread(by_rank.iter().map(|(rank, (host, s))| (*s, format!("rank {rank} on {host}"))));
    let per_host = spread(rows.iter().map(|r| (r.seconds, r.host.clone())));
    Account { ranks, forwarded: by_rank.len(), per_rank, per_host, hosts: rows, missing }
}

fn spread(of: impl Iterator<Item = (f64, String)>) -> Option<Spread> {
    let mut all: Vec<(f64, String)> = of.collect();
    all.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (least, most) = (all.first()?, all.last()?);
    let median = median(&all.iter().map(|one| one.0).collect::<Vec<_>>());
    Some(Spread { min: least.0, median, max: most.0, slowest: most.1.clone() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(host: &str, rank: Option<u32>, seconds: u64) -> ClientReport {
        let busy_ns = seconds * 1_000_000_000;
        ClientReport {
            host: host.into(),
            rank,
            ranks: 6,
            processes: 1,
            written: 10,
            busy_ns,
            ..ClientReport::default()
        }
    }

    #[test]
    fn all_are_there() {
        let (hosts, none) = (["c1", "c2", "c3"].map(str::to_owned), Complaints::new());
        let rank = |r: u32| client(&format!("c{}", r / 2 + 1), Some(r), u64::from(r));
        let seen = vec![
            ("io1".to_owned(), vec![rank(0), rank(1), rank(2), rank(3), client("c1", None, 100)]),
            // One that moved.
            ("io2".to_owned(), vec![rank(4), rank(5), client("c2", Some(3), 9)]),
        ];
        let a = account(Some(6), &hosts, &seen, &none, "");
        assert_eq!((a.ranks, a.forwarded, a.missing.len()), (Some(6), 6, 0));
        assert_eq!(
            a.hosts.iter().map(|h| (h.host.as_str(), h.ranks_text(), h.nodes.len())).collect::<Vec<_>>(),
            [("c1", "0-1".into(), 1), ("c2", "2-3".into(), 2), ("c3", "4-5".into(), 1)]
        );
        let spread = a.per_rank.unwrap();
        assert_eq!((spread.min, spread.median, spread.max), (0.0, 3.0, 12.0));
        assert_eq!(spread.slowest, "rank 3 on c2");
        assert_eq!(a.per_host.unwrap().slowest, "c2");
    }

    #[test]
    fn who_is_missing_is_named() {
        let (hosts, none) = (["c1", "c2", "c3"].map(str::to_owned), Complaints::new());
        let seen = vec![(
            "io1".to_owned(),
            (0..4).map(|r| client(&format!("c{}", r / 2 + 1), Some(r), 1)).collect(),
        )];
        let a = account(None, &hosts, &seen, &none, "the library is not there");
        let said: Vec<String> = a.missing.iter().map(ToString::to_string).collect();
        assert_eq!(said, ["ranks 4-5 of host c3 not forwarded: the library is not there"]);
        // What they say themselves goes before, host by host.
        let note = |rank: u32, host: &str, why: &str| Note {
            kind: "rank".into(),
            path: format!("rank {rank} of host {host}"),
            why: why.into(),
            ..Note::default()
        };
        let notes = [
            note(5, "c3", "refused"),
            note(0, "c1", "late"),
            Note { kind: "vfork".into(), ..note(4, "c3", "x") },
        ];
        let a = account(Some(7), &hosts, &seen, &complaints(&notes), "who knows");
        let said: Vec<String> = a.missing.iter().map(ToString::to_string).collect();
        assert_eq!(said[0], "rank 5 of host c3 not forwarded: refused");
        assert_eq!((said[1].as_str(), said.len()), ("rank 4 of host c3 not forwarded: who knows", 2));
        // Of static ranks nobody comes but what starts them.
        let launcher = vec![("io1".to_owned(), vec![ClientReport { ranks: 0, ..client("c1", None, 1) }])];
        let a = account(Some(2), &hosts[..2], &launcher, &none, "static");
        assert_eq!(a.missing[0].to_string(), "ranks 0-1 of hosts c1, c2 not forwarded: static");
        let nobody = account(Some(2), &[], &[], &none, "nobody came");
        assert_eq!(nobody.missing[0].to_string(), "ranks 0-1 of an unknown host not forwarded: nobody came");
        assert_eq!(account(None, &[], &[], &none, ""), Account::default());
    }
}
