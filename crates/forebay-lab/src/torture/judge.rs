//! What all workers were told, held against what can be.

use super::history::{Act, End, Entry, Kind};
use super::linear::{Call, Model, Verdict, judge, shrink};
use super::models::{Counter, Names, NamesOp, Register, RegisterOp};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::Debug;
use std::path::Path;

/// Lines of a timeline that are shown.
const SHOWN: usize = 24;
/// So many syncs in a row may say that something is lost though no host has crashed since the one before.
const UNEXPLAINED: u32 = 3;
/// One that waited for so long found none of a host's nodes.
const WAITED: u64 = 2_900_000_000;

/// A promise that was broken.
#[derive(Debug)]
pub struct Violation {
    /// On what.
    pub object: String,
    /// What cannot be.
    pub what: String,
    /// What was done, one line each, in order.
    pub timeline: Vec<String>,
}

/// What was found.
#[derive(Debug, Default)]
pub struct Found {
    /// Operations that were judged.
    pub judged: u64,
    /// Objects.
    pub objects: u64,
    /// Blocks that are linearizable only if a write was carried out twice of which its client said that it
    /// may have been.
    pub repeated: u64,
    /// Objects with too many possibilities.
    pub unjudged: u64,
    /// Promises that were broken.
    pub violations: Vec<Violation>,
}

fn seconds(at: u64, start: u64) -> f64 {
    at.saturating_sub(start) as f64 / 1e9
}

/// A worker's process and thread.
fn who(worker: u32) -> String {
    format!("process {}.{} thread {}", worker >> 20, worker >> 4 & 0xffff, worker & 15)
}

fn line(e: &Entry, start: u64) -> String {
    let end = match e.end {
        End::Done => "done".to_owned(),
        End::Refused(n) => format!("refused: {}", std::io::Error::from_raw_os_error(n)),
        End::Open(n) => format!("open: {}", std::io::Error::from_raw_os_error(n)),
    };
    let (from, to) = (seconds(e.begun, start), seconds(e.ended, start));
    format!("{from:>11.6} – {to:>11.6} s  {:<24} {:?}: {end}", who(e.worker), e.act)
}

/// Judges everything. `export`: where the files are, past the layer; `crashes`: when hosts were down whose
/// storage forgot.
pub(super) fn judge_all(entries: &[Entry], export: &Path, crashes: &[(u64, u64)], start: u64) -> Found {
    let mut objects: BTreeMap<(Kind, u64), Vec<Entry>> = BTreeMap::new();
    let mut found = Found::default();
    for e in entries {
        // All blocks of a file that one thread writes are judged together: a sync is for all of them.
        let object = if e.kind == Kind::Durable { e.object >> 16 } else { e.object };
        objects.entry((e.kind, object)).or_default().push(*e);
        // The two words of a large block are one operation.
        found.judged += u64::from(e.kind != Kind::Block || e.object & 1 == 0);
    }
    for ((kind, number), mut of) in objects {
        found.objects += 1;
        of.sort_by_key(|e| (e.begun, e.ended));
        let name = format!("{kind:?} {number}");
        let broken = match kind {
            Kind::Block | Kind::Length => {
                let strictly = linear::<Register>(&name, &0, &of, start, registers, &mut found.unjudged);
                strictly.and_then(|_| {
                    found.repeated += 1;
                    let broken = linear::<Register>(&name, &0, &of, start, repeated, &mut found.unjudged);
                    found.repeated -= u64::from(broken.is_some());
                    broken
                })
            }
            Kind::Links | Kind::Dirs | Kind::Files => {
                linear::<Names>(&name, &[None, None], &of, start, names, &mut found.unjudged)
            }
            Kind::Counter => linear::<Counter>(&name, &0, &of, start, counters, &mut found.unjudged),
            Kind::Log => log(&name, &of, &export.join(format!("log{number}")), start),
            Kind::Durable => durable(&name, &of, crashes, start),
            Kind::Replaced => replaced(&name, &of, number, start),
        };
        found.violations.extend(broken);
    }
    found
}

fn linear<M: Model>(
    name: &str,
    initial: &M::State,
    of: &[Entry],
    start: u64,
    calls: fn(&[Entry]) -> Vec<Call<M::Op>>,
    unjudged: &mut u64,
) -> Option<Violation>
where
    M::Op: Clone + Debug,
{
    let calls = calls(of);
    match judge::<M>(initial, &calls) {
        Verdict::Linearizable => None,
        Verdict::Unjudged => {
            *unjudged += 1;
            None
        }
        Verdict::Broken(at) => {
            let small = shrink::<M>(initial, &calls, at);
            let mut timeline = timeline(&small, of, start);
            // Who wrote what was read, however long ago.
            let read = of.iter().find(|e| e.begun == calls[at].begun && calls[at].ended == Some(e.ended));
            if let Some(Act::Read(value)) = read.map(|e| e.act) {
                let writer = of.iter().find(|e| e.act == Act::Write(value)).map(|e| line(e, start));
                timeline.splice(0..0, writer);
            }
            let what = format!("no order of these explains what {:?} returned", calls[at].op);
            Some(Violation { object: name.to_owned(), what, timeline })
        }
    }
}

/// The entries behind calls, the last of them.
fn timeline<O>(calls: &[Call<O>], of: &[Entry], start: u64) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let skip = calls.len().saturating_sub(SHOWN);
    if skip > 0 {
        lines.push(format!("({skip} earlier ones)"));
    }
    let mut kept: Vec<&Call<O>> = calls.iter().collect();
    kept.sort_by_key(|c| c.begun);
    for call in &kept[skip..] {
        let same = |e: &&Entry| e.begun == call.begun && call.ended.is_none_or(|at| e.ended <= at);
        lines.extend(of.iter().find(same).map(|e| line(e, start)));
    }
    lines
}

/// A write of which nobody knows, and which nobody has read, may be left out: where it took effect nothing
/// was read. One that was read has taken effect by the end of the first such read.
fn registers(of: &[Entry]) -> Vec<Call<RegisterOp>> {
    let mut first_read: HashMap<u64, u64> = HashMap::new();
    for e in of {
        if let Act::Read(value) = e.act {
            let at = first_read.entry(value).or_insert(u64::MAX);
            *at = (*at).min(e.ended);
        }
    }
    of.iter()
        .filter_map(|e| match (e.act, e.end) {
            (Act::Read(value), End::Done) => Some(Call {
                begun: e.begun,
                ended: Some(e.ended),
                optional: false,
                op: RegisterOp::Read(value),
            }),
            (Act::Write(value), End::Done) => Some(Call {
                begun: e.begun,
                ended: Some(e.ended),
                optional: false,
                op: RegisterOp::Write(value),
            }),
            (Act::Write(value), _) => first_read.get(&value).map(|&read| Call {
                begun: e.begun,
                optional: false,
                ended: Some(read),
                op: RegisterOp::Write(value),
            }),
            _ => None,
        })
        .collect()
}

/// The same, but a write of which its client says so may have been carried out once more before it was
/// answered: its node was gone, and nobody could tell.
fn repeated(of: &[Entry]) -> Vec<Call<RegisterOp>> {
    let told: HashSet<u64> = of
        .iter()
        .filter_map(|e| match e.act {
            Act::Write(value) if e.repeated => Some(value),
            _ => None,
        })
        .collect();
    let mut calls = registers(of);
    let again = |c: &&Call<RegisterOp>| matches!(c.op, RegisterOp::Write(value) if told.contains(&value));
    let again: Vec<_> = calls.iter().filter(again).map(|c| Call { optional: true, ..c.clone() }).collect();
    calls.extend(again);
    calls
}

fn names(of: &[Entry]) -> Vec<Call<NamesOp>> {
    of.iter()
        .filter_map(|e| {
            let done = !matches!(e.end, End::Refused(_));
            let op = match e.act {
                Act::Make(name, value) => NamesOp::Make { name, value, made: done },
                Act::Remove(name) => NamesOp::Remove { name, removed: done },
                Act::Rename(from) => NamesOp::Rename { from, moved: done },
                Act::Look(name, value) => NamesOp::Look { name, value },
                _ => return None,
            };
            let open = matches!(e.end, End::Open(_));
            Some(Call { begun: e.begun, ended: (!open).then_some(e.ended), optional: false, op })
        })
        .collect()
}

fn counters(of: &[Entry]) -> Vec<Call<u64>> {
    of.iter()
        .filter_map(|e| match e.act {
            Act::Add(was) => {
                let open = matches!(e.end, End::Open(_));
                Some(Call { begun: e.begun, ended: (!open).then_some(e.ended), optional: false, op: was })
            }
            _ => None,
        })
        .collect()
}

/// The file itself says in which order the records came: it must be one that explains the history.
fn log(name: &str, of: &[Entry], path: &Path, start: u64) -> Option<Violation> {
    let bytes = std::fs::read(path).unwrap_or_default();
    let word =
        |at: usize| bytes.get(at..at + 8).and_then(|w| w.try_into().ok()).map_or(0, u64::from_le_bytes);
    let by_value: HashMap<u64, &Entry> = of
        .iter()
        .filter_map(|e| match e.act {
            Act::Append(value, _) => Some((value, e)),
            _ => None,
        })
        .collect();
    let broken = |what: String, lines: &[&Entry]| {
        let timeline = lines.iter().map(|e| line(e, start)).collect();
        Some(Violation { object: name.to_owned(), what, timeline })
    };
    let mut seen: HashMap<u64, u64> = HashMap::new();
    // The latest beginning so far: nothing that ended before it may follow.
    let mut latest: Option<&Entry> = None;
    for at in (0..bytes.len()).step_by(16) {
        let value = word(at);
        let Some(&e) = by_value.get(&value).filter(|_| word(at + 8) == !value) else {
            return broken(
                format!("the {} bytes at {at} are nobody's record", bytes.len().min(at + 16) - at),
                &[],
            );
        };
        if seen.insert(value, at as u64 + 16).is_some() {
            return broken(format!("the record {value} is there twice"), &[e]);
        }
        if let Some(before) = latest.filter(|before| e.ended < before.begun) {
            return broken("the second record was appended before the first one began".into(), &[before, e]);
        }
        if latest.is_none_or(|l| e.begun > l.begun) {
            latest = Some(e);
        }
    }
    for (value, e) in by_value {
        let (Act::Append(_, told), End::Done) = (e.act, e.end) else { continue };
        match seen.get(&value) {
            None => return broken(format!("the record {value} was answered and is not there"), &[e]),
            Some(&at) if at != told && told != 0 => {
                return broken(format!("the record ends at {at}, and its writer was told {told}"), &[e]);
            }
            Some(_) => {}
        }
    }
    None
}

/// What was read through an open file is that file's own.
fn replaced(name: &str, of: &[Entry], own: u64, start: u64) -> Option<Violation> {
    let other = of.iter().position(|e| e.act != Act::Read(own))?;
    let timeline = of[..=other].iter().rev().take(SHOWN).rev().map(|e| line(e, start)).collect();
    Some(Violation { object: name.to_owned(), what: "another file was read".into(), timeline })
}

/// What is promised of a block.
#[derive(Default)]
struct Block {
    /// What may be there: what was synced last, and all that was written since.
    may: Vec<u64>,
    /// When the last of it was begun to be written.
    written: u64,
    /// Which of them is the last that surely was written; those behind it may be.
    sure: usize,
    /// Written since the last sync, by the process that will sync it.
    owed: bool,
}

/// One thread wrote, read and synced: what was synced stays, and what was not stays but for a crash. A sync that says
/// otherwise is told once.
fn durable(name: &str, of: &[Entry], crashes: &[(u64, u64)], start: u64) -> Option<Violation> {
    let mut blocks: BTreeMap<u64, Block> = BTreeMap::new();
    let mut writer = None;
    let (mut synced, mut unexplained) = (0, 0);
    for (i, e) in of.iter().enumerate() {
        if writer.replace(e.worker) != Some(e.worker) {
            // Another process does not know what this one did not sync.
            blocks.values_mut().for_each(|b| b.owed = false);
        }
        let block = blocks.entry(e.object).or_insert_with(|| Block { may: vec![0], ..Block::default() });
        match (e.act, e.end) {
            (Act::Write(value), end) => {
                block.may.push(value);
                if end == End::Done {
                    block.sure = block.may.len() - 1;
                }
                (block.written, block.owed) = (e.begun, true);
            }
            (Act::Sync, end) => {
                for block in blocks.values_mut() {
                    if end == End::Done && block.owed {
                        block.may.drain(..std::mem::take(&mut block.sure));
                    }
                    block.owed = false;
                }
                let crashed = crashes.iter().any(|&(from, to)| from <= e.ended && synced <= to);
                let excused = crashed || e.ended - e.begun >= WAITED;
                unexplained = if end == End::Done { 0 } else { unexplained + u32::from(!excused) };
                synced = e.begun;
                if unexplained == UNEXPLAINED {
                    let what = "a sync says again and again that something is lost, and no host has crashed";
                    let syncs = of[..=i].iter().filter(|o| o.act == Act::Sync);
                    let mut timeline: Vec<String> = syncs.rev().take(SHOWN).map(|e| line(e, start)).collect();
                    timeline.reverse();
                    return Some(Violation { object: name.to_owned(), what: what.into(), timeline });
                }
            }
            (Act::Read(value), End::Done) => {
                let crashed = crashes.iter().any(|&(from, to)| from <= e.ended && block.written <= to);
                let known = block.may.contains(&value);
                if known && (crashed || block.may[block.sure..].contains(&value)) {
                    continue;
                }
                let what = match known {
                    true => {
                        format!("{value} was read, which is not the last written, and no host had crashed")
                    }
                    false => format!("{value} was read, which is older than what was synced, or nobody's"),
                };
                let mine = |o: &&Entry| o.object == e.object || o.act == Act::Sync;
                let mut timeline: Vec<String> =
                    of[..=i].iter().rev().filter(mine).take(SHOWN).map(|e| line(e, start)).collect();
                timeline.reverse();
                for (from, to) in crashes.iter().filter(|c| c.0 <= e.ended && c.1 >= block.written) {
                    let (from, to) = (seconds(*from, start), seconds(*to, start));
                    timeline.push(format!("{from:>11.6} – {to:>11.6} s  a host crashed"));
                }
                return Some(Violation { object: name.to_owned(), what, timeline });
            }
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(kind: Kind, begun: u64, act: Act, end: End) -> Entry {
        Entry { worker: 0, kind, object: 0, begun, ended: begun + 5, act, end, repeated: false }
    }

    fn found(entries: &[Entry], crashes: &[(u64, u64)]) -> Vec<Violation> {
        judge_all(entries, Path::new("/nonexistent"), crashes, 0).violations
    }

    #[test]
    fn a_loss_is_told_once() {
        let d = |begun, act, end| entry(Kind::Durable, begun, act, end);
        let lost = |begun| d(begun, Act::Sync, End::Open(5));
        let history: Vec<_> =
            (0..10).flat_map(|n| [d(20 * n, Act::Write(n), End::Done), lost(20 * n + 10)]).collect();
        let crashes: Vec<_> = (0..10).map(|n| (20 * n + 6, 20 * n + 7)).collect();
        assert!(found(&history, &crashes).is_empty(), "there is a reason for each of them");
        assert!(found(&history[..4], &[]).is_empty(), "two are the machine's");
        assert_eq!(found(&history, &crashes[..5]).len(), 1);
        let mut with_one = history;
        (with_one[1].end, with_one[5].end, with_one[9].end) = (End::Done, End::Done, End::Done);
        assert!(found(&with_one[..12], &[]).is_empty(), "they are told once each");
    }

    #[test]
    fn an_old_write_over_a_newer_one_is_found() {
        let b = |begun, act, end| entry(Kind::Block, begun, act, end);
        let mut history = vec![
            b(0, Act::Write(1), End::Done),
            b(10, Act::Write(2), End::Done),
            b(20, Act::Read(2), End::Done),
            b(30, Act::Write(3), End::Open(5)),
            b(40, Act::Read(3), End::Done),
        ];
        assert!(found(&history, &[]).is_empty());
        history.push(b(50, Act::Read(1), End::Done));
        let all = found(&history, &[]);
        assert_eq!(all.len(), 1);
        assert!(all[0].timeline.last().is_some_and(|l| l.contains("Read(1)")), "{:?}", all[0].timeline);
    }

    #[test]
    fn another_file_under_an_open_one_is_found() {
        let mut history = vec![entry(Kind::Replaced, 0, Act::Read(7), End::Done)];
        history[0].object = 7;
        assert!(found(&history, &[]).is_empty());
        history.push(Entry { act: Act::Read(8), begun: 10, ..history[0] });
        assert_eq!(found(&history, &[]).len(), 1);
    }

    #[test]
    fn a_write_is_done_twice_only_where_its_client_says_so() {
        let long = Entry { ended: 90, ..entry(Kind::Block, 0, Act::Write(1), End::Done) };
        let b = |begun, act| entry(Kind::Block, begun, act, End::Done);
        let rest = [b(10, Act::Read(1)), b(20, Act::Write(2)), b(30, Act::Read(2)), b(40, Act::Read(1))];
        let history = |repeated| [&[Entry { repeated, ..long }], &rest[..]].concat();
        assert_eq!(found(&history(false), &[]).len(), 1);
        assert!(found(&history(true), &[]).is_empty());
    }

    #[test]
    fn a_step_that_is_lost_is_found() {
        let c = |begun, was, end| entry(Kind::Counter, begun, Act::Add(was), end);
        assert!(found(&[c(0, 0, End::Done), c(10, 1, End::Open(5)), c(20, 2, End::Done)], &[]).is_empty());
        assert!(found(&[c(0, 0, End::Done), c(10, 1, End::Open(5)), c(20, 1, End::Done)], &[]).is_empty());
        assert_eq!(found(&[c(0, 0, End::Done), c(10, 0, End::Done)], &[]).len(), 1, "two added to the same");
    }

    #[test]
    fn what_was_synced_and_is_gone_is_found() {
        let d = |begun, act, end| entry(Kind::Durable, begun, act, end);
        let (done, told) = (End::Done, End::Open(5));
        let crash = [(25, 26)];
        let lost = |sync: End, read: u64, crash: &[(u64, u64)]| {
            let history = [
                d(0, Act::Write(1), done),
                d(6, Act::Sync, done),
                d(12, Act::Write(2), done),
                d(18, Act::Sync, sync),
                d(30, Act::Read(read), done),
            ];
            found(&history, crash).len()
        };
        assert_eq!(lost(done, 2, &crash), 0);
        assert_eq!(lost(done, 1, &crash), 1, "synced, and gone");
        assert_eq!(lost(told, 1, &crash), 0, "its writer was told");
        assert_eq!(lost(told, 0, &crash), 1, "older than what was synced");
        assert_eq!(lost(told, 1, &[]), 1, "nothing had crashed");
        let doubtful = |read: u64| {
            let history = [
                d(0, Act::Write(1), done),
                d(6, Act::Write(2), done),
                d(12, Act::Write(3), told),
                d(18, Act::Sync, done),
                d(30, Act::Read(read), done),
            ];
            found(&history, &[]).len()
        };
        assert_eq!([1, 2, 3].map(doubtful), [1, 0, 0], "the last was written, or it was not");
    }

    #[test]
    fn records_that_are_lost_doubled_or_out_of_order_are_found() {
        let dir = forebay_embed::RunDir::in_memory().expect("a directory");
        let a = |begun, value, end| entry(Kind::Log, begun, Act::Append(value, 0), end);
        let history = [a(0, 1, End::Done), a(10, 2, End::Open(5)), a(20, 3, End::Done), a(22, 4, End::Done)];
        let violations = |records: &[u64]| {
            let bytes: Vec<u8> =
                records.iter().flat_map(|v| [v.to_le_bytes(), (!v).to_le_bytes()].concat()).collect();
            std::fs::write(dir.path().join("log0"), bytes).expect("a log");
            judge_all(&history, dir.path(), &[], 0).violations.len()
        };
        assert_eq!(violations(&[1, 3, 4]), 0);
        assert_eq!(violations(&[1, 2, 4, 3]), 0);
        assert_eq!(violations(&[1, 4]), 1, "lost");
        assert_eq!(violations(&[1, 3, 3, 4]), 1, "doubled");
        assert_eq!(violations(&[3, 1, 4]), 1, "out of order");
        assert_eq!(violations(&[1, 3, 4, 9]), 1, "nobody's");
    }
}
