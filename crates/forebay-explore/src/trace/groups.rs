//! What the processes do in one phase, in the words of access patterns: for each layout and operation, which files,
//! in which order, by which sizes.

use crate::derived::ONWARD;
use crate::scenario::{Layout, Operation, Spatiality};
use forebay_types::trace::{Call, Record};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// So many sizes are taken, the ones with the most bytes first, until they make up so much of the bytes.
const MOST_SIZES: usize = 8;
const ENOUGH: f64 = 0.99;
/// What scenario files can say.
const MOST_BYTES: u64 = 1_000_000_000_000_000_000;
/// What is read and written of a file in a phase is a mix where both go on at once for so much of the shorter one's time.
const AT_ONCE: f64 = 0.5;

/// A call, and who made it: a rank, or a process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ActorsCall {
    pub(crate) by: u32,
    pub(crate) record: Record,
}

/// What processes do at once, in one phase.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    pub(crate) layout: Layout,
    pub(crate) operation: Operation,
    pub(crate) spatiality: Spatiality,
    /// The share of the requests of which that is true.
    pub(crate) ordered: f64,
    /// Who takes part.
    pub(crate) by: BTreeSet<u32>,
    pub(crate) files: BTreeSet<u32>,
    pub(crate) bytes: u64,
    pub(crate) requests: u64,
    /// Of a mix: how many read.
    pub(crate) read_share: f64,
    /// Sizes and numbers of requests, and the share of the bytes that they make up.
    pub(crate) sizes: Vec<(u64, u64)>,
    pub(crate) covered: f64,
    pub(crate) syncs: u64,
    /// Of shared files: some are shared by fewer processes than take part.
    pub(crate) partly_shared: bool,
    pub(crate) began: u64,
    pub(crate) ended: u64,
}

/// The groups of a phase, in the order in which they begin. Calls are in the order in which they began.
pub(crate) fn groups(calls: &[ActorsCall]) -> Vec<Group> {
    let mut by_file: BTreeMap<u32, OfFile> = BTreeMap::new();
    for made in calls {
        by_file.entry(made.record.file).or_default().add(made);
    }
    let mut members: HashMap<(Layout, Operation), Vec<u32>> = HashMap::new();
    for (file, seen) in &by_file {
        for operation in seen.operations() {
            let layout = if seen.users(operation) > 1 { Layout::Shared } else { Layout::FilePerProcess };
            members.entry((layout, operation)).or_default().push(*file);
        }
    }
    let mut found: Vec<Group> = members
        .into_iter()
        .filter_map(|((layout, operation), files)| {
            let files: BTreeSet<u32> = files.into_iter().collect();
            let fits = |made: &&ActorsCall| {
                files.contains(&made.record.file)
                    && match made.record.call {
                        Call::Read => operation != Operation::Write,
                        _ => operation != Operation::Read,
                    }
            };
            let calls: Vec<&ActorsCall> = calls.iter().filter(fits).collect();
            let mut group = group(&calls, layout, operation)?;
            group.partly_shared = layout == Layout::Shared
                && group.files.iter().any(|file| by_file[file].users(operation) < group.by.len());
            Some(group)
        })
        .collect();
    found.sort_by_key(|g| (g.began, g.layout, g.operation));
    found
}

/// What is done with one file.
#[derive(Default)]
struct OfFile {
    read: Use,
    written: Use,
}

/// Who reads or writes it, and from when to when.
#[derive(Default)]
struct Use {
    by: BTreeSet<u32>,
    span: Option<(u64, u64)>,
}

impl OfFile {
    fn add(&mut self, made: &ActorsCall) {
        let r = &made.record;
        if r.bytes > 0 {
            let used = if r.call == Call::Read { &mut self.read } else { &mut self.written };
            used.by.insert(made.by);
            let ended = r.began.saturating_add(r.nanos);
            let (from, to) = used.span.unwrap_or((r.began, ended));
            used.span = Some((from.min(r.began), to.max(ended)));
        }
    }

    /// How many processes do so.
    fn users(&self, operation: Operation) -> usize {
        match operation {
            Operation::Read => self.read.by.len(),
            Operation::Mixed => self.read.by.union(&self.written.by).count(),
            _ => self.written.by.len(),
        }
    }

    fn operations(&self) -> Vec<Operation> {
        match (self.read.span, self.written.span) {
            (Some(read), Some(written)) => {
                let both = read.1.min(written.1).saturating_sub(read.0.max(written.0));
                let shorter = (read.1 - read.0).min(written.1 - written.0);
                match both as f64 >= AT_ONCE * shorter as f64 && both > 0 {
                    true => vec![Operation::Mixed],
                    false => vec![Operation::Write, Operation::Read],
                }
            }
            (Some(_), None) => vec![Operation::Read],
            (None, Some(_)) => vec![Operation::Write],
            (None, None) => Vec::new(),
        }
    }
}

fn group(calls: &[&ActorsCall], layout: Layout, operation: Operation) -> Option<Group> {
    let mut counts: HashMap<u64, u64> = HashMap::new();
    let mut ends: HashMap<(u32, u32), u64> = HashMap::new();
    let (mut bytes, mut requests, mut reads, mut syncs) = (0u64, 0u64, 0u64, 0u64);
    let (mut consecutive, mut further) = (0u64, 0u64);
    let (mut by, mut files) = (BTreeSet::new(), BTreeSet::new());
    let (mut began, mut ended) = (u64::MAX, 0);
    for ActorsCall { by: who, record: r } in calls {
        syncs += u64::from(r.call == Call::Sync);
        if r.bytes == 0 {
            continue;
        }
        (bytes, requests) = (bytes.saturating_add(r.bytes).min(MOST_BYTES), requests + 1);
        reads += u64::from(r.call == Call::Read);
        *counts.entry(r.bytes).or_default() += 1;
        (began, ended) = (began.min(r.began), ended.max(r.began.saturating_add(r.nanos)));
        by.insert(*who);
        files.insert(r.file);
        if let Some(end) = ends.insert((*who, r.file), r.offset.saturating_add(r.bytes)) {
            consecutive += u64::from(r.offset == end);
            further += u64::from(r.offset > end);
        }
    }
    if bytes == 0 {
        return None;
    }
    // The first of each process in a file comes after none.
    let judged = requests - ends.len() as u64;
    let share = |n: u64| if judged == 0 { 1.0 } else { n as f64 / judged as f64 };
    let (spatiality, ordered) = if share(consecutive) >= 0.5 {
        (Spatiality::Contiguous, share(consecutive))
    } else if share(consecutive + further) < ONWARD {
        // Half of those at random begin further on. Any order is one of theirs.
        (Spatiality::Random, 1.0)
    } else if layout == Layout::Shared {
        (Spatiality::Strided, share(further))
    } else {
        // Patterns know no gaps in a file of one's own: plain order is nearest.
        (Spatiality::Contiguous, share(consecutive))
    };
    let mut sizes: Vec<(u64, u64)> = counts.into_iter().collect();
    let weight = |(size, n): &(u64, u64)| u128::from(*size) * u128::from(*n);
    sizes.sort_by_key(|s| (std::cmp::Reverse(weight(s)), s.0));
    let (mut taken, mut sum) = (0, 0);
    while taken < sizes.len().min(MOST_SIZES) && (sum as f64) < ENOUGH * bytes as f64 {
        sum += weight(&sizes[taken]);
        taken += 1;
    }
    sizes.truncate(taken);
    let (read_share, covered) = (reads as f64 / requests as f64, sum as f64 / bytes as f64);
    Some(Group {
        layout,
        operation,
        spatiality,
        ordered,
        by,
        files,
        bytes,
        requests,
        read_share,
        sizes,
        covered,
        syncs,
        partly_shared: false,
        began,
        ended,
    })
}
