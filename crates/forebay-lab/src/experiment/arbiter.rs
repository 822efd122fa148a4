//! The arbiter: a queue of jobs on four I/O nodes under an arbiter, STATIC against MCKP.

mod kinds;
mod queue;

use super::{Experiment, storage};
use crate::fleet::Fleet;
use crate::machine::load;
use crate::outcome::{Outcome, Table, csv};
use crate::{Progress, Size};
use anyhow::Result;
use forebay_embed::RunDir;
use forebay_plot::{Axis, Gantt, Hold};
use forebay_policy::{CurveTable, Point, PolicyKind};
use forebay_types::Bandwidth;
use kinds::{KINDS, Kind, MACHINE, NODES, QUEUE};
use queue::{JobResult, Played};
use std::path::Path;

/// The I/O nodes carry out one request at a time on servers that answer after 20 ms: an I/O node moves
/// 35 to 50 MB/s in requests of 1 MiB whatever the machine, and the servers never limit anyone.
const MODEL: &str = "far-away";
const SETTINGS: &str = "dispatchers = 1\ninterval-ms = 500\nemulated-storage-socket = \"{dir}/servers\"\n";

/// The counts that are calibrated: those that divide the jobs' compute nodes.
const COUNTS: [u32; 4] = [1, 2, 3, 4];

/// A queue of jobs under the policies STATIC and MCKP, on a live arbiter.
///
/// Starts an arbiter and four I/O nodes as processes on one emulated storage system, and runs a queue of
/// twelve jobs of five kinds through `forebay run --arbiter`: unmodified programs (dd, sh, python3). A job starts
/// when the compute nodes it asks for are free, first come, first served. The curves that MCKP needs
/// are measured first, each kind alone on 1 to 4 I/O nodes.
///
/// What bounds what: an I/O node carries out one request at a time, and the emulated servers answer
/// after 20 ms. Jobs whose many processes do I/O at once gain with every I/O node; jobs in which one
/// process does all the I/O, that mostly compute, or that make many small files do not, however many compute nodes
/// they have. STATIC gives I/O nodes by compute nodes, MCKP by what the jobs gain.
#[derive(Clone, Debug)]
pub struct ArbiterQueue {
    /// How much to do.
    pub size: Size,
    /// The policies to compare with the first one.
    pub policies: Vec<PolicyKind>,
}

impl Default for ArbiterQueue {
    fn default() -> ArbiterQueue {
        ArbiterQueue { size: Size::Small, policies: vec![PolicyKind::Static, PolicyKind::Mckp] }
    }
}

impl Experiment for ArbiterQueue {
    fn run(&self, progress: &dyn Progress) -> Result<Outcome> {
        let scale = self.size.full_or(4, 1);
        progress.begin(KINDS.len() * COUNTS.len() + self.policies.len() * QUEUE.len());
        let work = RunDir::in_memory()?;
        let settings = format!("{SETTINGS}{}", storage::emulated(MODEL)?);
        let curves = calibrate(work.path(), &settings, scale, progress)?;
        let mut played = Vec::new();
        for policy in &self.policies {
            let state = work.path().join(policy.name());
            std::fs::create_dir(&state)?;
            played.push(queue::run(&state, *policy, &curves, &settings, scale, progress)?);
        }
        let mut found = Outcome::default();
        found.line(format!(
            "{} jobs of {} kinds, {MACHINE} compute nodes, {NODES} I/O nodes, emulated storage ({})",
            QUEUE.len(),
            KINDS.len(),
            load()
        ));
        show_curves(&mut found, &curves);
        show_jobs(&mut found, &played);
        compare(&mut found, &played);
        let header =
            ["policy", "job", "kind", "compute_nodes", "start_s", "end_s", "bytes", "mb_per_s", "io_nodes"];
        let lines: Vec<_> = played.iter().flat_map(|o| o.jobs.iter().map(|j| line(o, j))).collect();
        found.figures("arbiter", csv(header, &lines), chart(&played));
        let mut table = Vec::new();
        curves.to_csv(&mut table)?;
        found.file("arbiter-curves.csv", String::from_utf8(table)?);
        found.file("arbiter-timeline.csv", timeline(&played));
        Ok(found)
    }
}

fn compare(found: &mut Outcome, played: &[Played]) {
    let Some((first, others)) = played.split_first() else { return };
    for o in others {
        let (sum, whole) = (o.aggregate() / first.aggregate(), o.throughput() / first.throughput());
        found.line(format!(
            "{}: {:.2}× the aggregate bandwidth of {}, {whole:.2}× its total throughput",
            o.policy, sum, first.policy
        ));
        if (first.policy, o.policy) == (PolicyKind::Static, PolicyKind::Mckp) {
            found.judge(format!("MCKP ≥1.5× STATIC in aggregate bandwidth: {sum:.2}×"), sum >= 1.5);
        }
    }
}

/// Who held what when.
fn timeline(played: &[Played]) -> String {
    let header = ["policy", "io_node", "job", "from_s", "to_s"];
    let lines: Vec<_> = played
        .iter()
        .flat_map(|o| o.held.iter().map(move |h| (o, h)))
        .map(|(o, h)| {
            let time = |t: f64| format!("{t:.2}");
            [o.policy.name().into(), h.node.to_string(), h.job.clone(), time(h.from), time(h.to)]
        })
        .collect();
    csv(header, &lines)
}

/// Each kind alone, on 1 to 4 I/O nodes.
fn calibrate(work: &Path, settings: &str, scale: u64, progress: &dyn Progress) -> Result<CurveTable> {
    let data = work.join("calibration");
    std::fs::create_dir(&data)?;
    let fleet = Fleet::start(&data, NODES as usize, settings)?;
    let mut curves = CurveTable::default();
    for kind in &KINDS {
        let mut points = Vec::new();
        for count in COUNTS {
            progress.doing(&format!("curve of {}: {count} I/O nodes", kind.name));
            let mbs = queue::alone(&fleet, kind, count, scale)?;
            points.push(Point { io_nodes: count, bandwidth: Bandwidth(mbs), spread: None });
            progress.advance(1);
        }
        curves.add(kind.pattern(), kind.facts(), points)?;
    }
    Ok(curves)
}

fn show_curves(found: &mut Outcome, curves: &CurveTable) {
    found.line("Bandwidth of each kind alone, MB/s, by I/O nodes:");
    let mut t = Table::new(["kind", "1", "2", "3", "4", "compute nodes", "bound by"]).words("bound by");
    for (kind, curve) in KINDS.iter().zip(&curves.scenarios) {
        let mut row = vec![kind.name.to_owned()];
        row.extend(COUNTS.iter().map(|n| curve.curve.at(*n).map_or("?".into(), |b| format!("{:.1}", b.0))));
        row.extend([kind.compute_nodes.to_string(), kind.bound.to_owned()]);
        t.row(row);
    }
    found.table(t);
}

fn show_jobs(found: &mut Outcome, played: &[Played]) {
    let mut header = vec!["job".to_owned(), "kind".into(), "compute\nnodes".into(), "MiB".into()];
    for o in played {
        header.extend([format!("{}\nMB/s", o.policy), "I/O\nnodes".into(), "from\nto".into()]);
    }
    let mut t = Table::new(header).words("kind");
    for (i, &kind) in QUEUE.iter().enumerate() {
        let kind = &KINDS[kind];
        let bytes = played.first().map_or(0, |o| o.jobs[i].bytes);
        let mut row = vec![
            (i + 1).to_string(),
            kind.name.into(),
            kind.compute_nodes.to_string(),
            format!("{:.0}", bytes as f64 / f64::from(1 << 20)),
        ];
        for o in played {
            let j = &o.jobs[i];
            row.extend([
                format!("{:.1}", j.bandwidth()),
                format!("{:.1}", o.mean_nodes(j)),
                format!("{:.0}–{:.0} s", j.start, j.end),
            ]);
        }
        t.row(row);
    }
    found.table(t);
    for o in played {
        found.line(format!(
            "{:<8} aggregate bandwidth (sum of the jobs') {:.1} MB/s; everything moved in {:.1} s, {:.1} MB/s",
            o.policy.name(),
            o.aggregate(),
            o.seconds(),
            o.throughput()
        ));
    }
}

fn line(o: &Played, j: &JobResult) -> [String; 9] {
    let kind: &Kind = &KINDS[j.kind];
    [
        o.policy.name().to_owned(),
        j.name.clone(),
        kind.name.to_owned(),
        kind.compute_nodes.to_string(),
        format!("{:.3}", j.start),
        format!("{:.3}", j.end),
        j.bytes.to_string(),
        format!("{:.3}", j.bandwidth()),
        format!("{:.3}", o.mean_nodes(j)),
    ]
}

/// A row for every I/O node under every policy, and further ones where jobs shared it.
fn chart(played: &[Played]) -> String {
    let mut gantt = Gantt {
        title: "Who held which I/O node".into(),
        x: Axis { label: "time, s".into(), ..Axis::default() },
        holders: KINDS.iter().map(|k| k.name.to_owned()).collect(),
        ..Gantt::default()
    };
    gantt.size.width = 1000.0;
    gantt.size.height = 0.0;
    for o in played {
        for node in 0..NODES {
            // Jobs that are on the node at the same time are drawn below each other.
            let mut lanes: Vec<(usize, f64)> = Vec::new();
            let mut held: Vec<_> = o.held.iter().filter(|h| h.node == node).collect();
            held.sort_by(|a, b| a.from.total_cmp(&b.from));
            for h in held {
                let lane = match lanes.iter_mut().find(|(_, until)| *until <= h.from + 1e-9) {
                    Some(lane) => lane,
                    None => {
                        gantt.rows.push(if lanes.is_empty() {
                            format!("{} node {node}", o.policy)
                        } else {
                            "shared".to_owned()
                        });
                        lanes.push((gantt.rows.len() - 1, 0.0));
                        lanes.last_mut().expect("one was just pushed")
                    }
                };
                lane.1 = h.to;
                let kind = o.jobs.iter().find(|j| j.name == h.job).map_or(0, |j| j.kind);
                gantt.holds.push(Hold {
                    row: lane.0,
                    from: h.from,
                    to: h.to,
                    holder: kind,
                    label: h.job.clone(),
                });
            }
            if lanes.is_empty() {
                gantt.rows.push(format!("{} node {node}", o.policy));
            }
        }
    }
    gantt.svg()
}
