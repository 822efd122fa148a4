//! DFRA on real I/O nodes under a live arbiter: pairs of jobs that share an I/O node, are kept apart, or are
//! scheduled fairly; and a job that is given more I/O nodes.

mod jobs;

use super::{Experiment, storage};
use crate::fleet::{Arbiter, Fleet};
use crate::machine::load;
use crate::outcome::{Outcome, Table, csv};
use crate::{Progress, Size};
use anyhow::{Context, Result, bail};
use forebay_control::client::Client as Api;
use forebay_control::job::{JobGrant, JobRequest};
use forebay_embed::{RunDir, Transport};
use forebay_node::control::Command as Order;
use forebay_plot::{Axis, BarSeries, Bars};
use forebay_types::NodeId;
use jobs::{Does, Kind, Running};
use std::time::Duration;

/// One I/O node is everybody's default, the others are in reserve.
const NODES: usize = 5;

/// An I/O node has four threads, and the servers answer after 20 ms however busy they are: what jobs share is the
/// pool of threads, and each request is carried out by itself, as on the paper's machine.
const SETTINGS: &str = "\
dispatchers = 4
interval-ms = 500
scheduler = \"fifo:merge=1\"
emulated-storage-socket = \"{dir}/servers\"
";
const MODEL: &str = "far-away";

/// The paper's thresholds in proportion: an I/O node carries out 200 requests a second, and 200 MB/s of the largest.
fn policy(remap: bool) -> String {
    format!(
        "policy = \"dfra\"\n[map]\n\"cn[0-31]\" = 0\n[dfra]\nmin_bytes = 10000000\n\
         io_node_peak_mbs = 200.0\ncompute_node_peak_mbs = 50.0\nhigh_iops = 150.0\nhigh_metadata_rate = 100.0\n\
         compute_per_io_node = 32\ndefault_io_nodes = 1\nremap = {remap}\n"
    )
}

const NONE: Duration = Duration::ZERO;
const CALM: Duration = Duration::from_millis(20);
const KIB: usize = 1 << 10;
const KINDS: [Kind; 5] = [
    Kind { name: "awp", processes: 32, compute_nodes: 2, does: Does::Shared(64 * KIB), pause: NONE },
    Kind { name: "mpi-io", processes: 24, compute_nodes: 2, does: Does::Own(KIB * KIB), pause: NONE },
    Kind { name: "dndc", processes: 16, compute_nodes: 2, does: Does::Names, pause: NONE },
    Kind { name: "apt", processes: 4, compute_nodes: 2, does: Does::Own(4 * KIB), pause: NONE },
    Kind { name: "cam", processes: 1, compute_nodes: 2, does: Does::Own(256 * KIB), pause: CALM },
];

/// Whose slowdown by whom was chosen before anything was measured.
const PLANTED: [(&str, &str); 2] = [("apt", "awp"), ("apt", "mpi-io")];

/// Enough compute nodes for four I/O nodes.
const WIDE: Kind =
    Kind { name: "shentu", processes: 16, compute_nodes: 16, does: Does::Own(256 * KIB), pause: NONE };

/// How the jobs of a pair meet.
const WAYS: [&str; 4] = ["dfra", "shared", MERGING, "sfq-d-plus"];
/// Shared, but with requests merged, which the paper says nothing of: for the planted pairs.
const MERGING: &str = "merging";

/// Pairs of jobs on one I/O node, under DFRA and under SFQ(D)+, on a live arbiter.
///
/// Starts an arbiter and five I/O nodes (one by default for all, four in reserve) as processes on emulated
/// storage that nobody can saturate. Five kinds of jobs run alone (which is the history that DFRA goes by), then
/// two at a time: on the default I/O node in arrival order (planted pairs also with merging), as DFRA places them,
/// and on the default one under SFQ(D)+. Shows how
/// many times as long a request takes as alone. Then a job of sixteen compute nodes runs twice: by default, and
/// with the I/O nodes that DFRA gives it.
#[derive(Clone, Debug, Default)]
pub struct DfraPairs {
    /// How much to do.
    pub size: Size,
}

struct DfraTestbed {
    fleet: Fleet,
    arbiter: Option<Arbiter>,
    port: u16,
    span: Duration,
    next: u32,
    /// Jobs that were served by an I/O node that was not theirs.
    strays: u32,
    _data: RunDir,
}

/// A job that runs, and what it is called.
struct Job {
    grant: JobGrant,
    running: Running,
}

impl DfraTestbed {
    fn start(span: Duration) -> Result<DfraTestbed> {
        let data = RunDir::in_memory()?;
        let port = Arbiter::free_port()?;
        let storage = storage::emulated(MODEL)?;
        let settings = format!("arbiters = [\"http://127.0.0.1:{port}\"]\n{SETTINGS}{storage}");
        let fleet = Fleet::listening(Transport::Tcp, data.path(), NODES, &settings)?;
        let arbiter = Some(Arbiter::start(&fleet, port, &policy(true))?);
        Ok(DfraTestbed { fleet, arbiter, port, span, next: 0, strays: 0, _data: data })
    }

    fn api(&self) -> Result<Api> {
        self.arbiter.as_ref().context("there is no arbiter")?.api()
    }

    /// From now on nobody is remapped.
    fn fix(&mut self) -> Result<()> {
        drop(self.arbiter.take());
        self.arbiter = Some(Arbiter::start(&self.fleet, self.port, &policy(false))?);
        Ok(())
    }

    /// A job begins on compute nodes from `first` on, and works for as long as its nodes need to report it.
    fn begin(&mut self, kind: Kind, first: usize) -> Result<Job> {
        self.next += 1;
        let hosts: Vec<String> = (first..first + kind.compute_nodes).map(|n| format!("cn{n}")).collect();
        let request = JobRequest {
            id: format!("{}-{}", kind.name, self.next),
            app: kind.name.into(),
            user: "experiment".into(),
            compute_nodes: kind.compute_nodes as u32,
            hosts: hosts.clone(),
            processes: kind.processes as u32,
            explore: false,
            ..JobRequest::default()
        };
        let grant = self.api()?.register(&request)?;
        if grant.nodes.is_empty() {
            bail!("{}: no I/O node: {}", grant.id, grant.reason);
        }
        let running = Running::start(kind, &grant.id, &self.fleet.granted(&grant)?, &hosts);
        std::thread::sleep(Duration::from_millis(1500));
        Ok(Job { grant, running })
    }

    /// Measures jobs that run, and ends them: requests and what one takes in milliseconds, by job.
    fn measure(&mut self, jobs: Vec<Job>) -> Result<Vec<(u64, f64)>> {
        jobs.iter().for_each(|j| j.running.count(true));
        std::thread::sleep(self.span);
        jobs.iter().for_each(|j| j.running.count(false));
        self.strays += self.strays_of(&jobs)?;
        let api = self.api()?;
        let end = |job: Job| {
            let (requests, mean) = job.running.end()?;
            api.end(&job.grant.id)?;
            anyhow::Ok((requests, mean.as_secs_f64() * 1e3))
        };
        jobs.into_iter().map(end).collect()
    }

    /// How many of the jobs were served by an I/O node that the arbiter did not give them.
    fn strays_of(&self, jobs: &[Job]) -> Result<u32> {
        let mut strays = 0;
        for node in 0..self.fleet.len() {
            let stats =
                self.fleet.tell(node, &Order::Stats)?.stats.context("an I/O node gave no statistics")?;
            let elsewhere = |j: &&Job| !j.grant.nodes.contains(&NodeId(node as u32));
            let worked = |j: &&Job| {
                let data = ["write", "mkdir", "stat", "rmdir"];
                let flows = stats.flows.iter().filter(|f| f.job == j.grant.id);
                flows
                    .flat_map(|f| &f.operations)
                    .any(|(name, o)| data.contains(&name.as_str()) && o.count > 0)
            };
            strays += jobs.iter().filter(elsewhere).filter(worked).count() as u32;
        }
        Ok(strays)
    }
}

/// One job beside another.
struct Row {
    way: &'static str,
    job: &'static str,
    beside: &'static str,
    slowdown: f64,
    io_nodes: Vec<NodeId>,
}

impl Experiment for DfraPairs {
    fn run(&self, progress: &dyn Progress) -> Result<Outcome> {
        let span = Duration::from_secs(self.size.choose(1, 3, 10));
        let planted =
            |a: &Kind, b: &Kind| PLANTED.iter().any(|p| *p == (a.name, b.name) || *p == (b.name, a.name));
        let few = self.size == Size::Quick;
        let pairs: Vec<(usize, usize)> = (0..KINDS.len())
            .flat_map(|a| (a + 1..KINDS.len()).map(move |b| (a, b)))
            .filter(|&(a, b)| !few || planted(&KINDS[a], &KINDS[b]))
            .collect();
        progress.begin(KINDS.len() + WAYS.len() * pairs.len() + 2);
        let mut ground = DfraTestbed::start(span)?;
        let mut alone = Vec::new();
        for kind in KINDS {
            progress.doing(&format!("{} alone", kind.name));
            let job = ground.begin(kind, 0)?;
            if job.grant.nodes != [NodeId(0)] {
                bail!("{}: not on the default I/O node, but {}", job.grant.id, job.grant.reason);
            }
            alone.push(ground.measure(vec![job])?[0].1);
            progress.advance(1);
        }
        let (mut rows, mut wide) = (Vec::new(), Vec::new());
        for way in WAYS {
            match way {
                "shared" => ground.fix()?,
                MERGING => ground.fleet.schedule(&"fifo".parse()?)?,
                "sfq-d-plus" => ground.fleet.schedule(&"sfq-d-plus".parse()?)?,
                _ => {}
            }
            let all = way != MERGING;
            for &(a, b) in pairs.iter().filter(|(a, b)| all || planted(&KINDS[*a], &KINDS[*b])) {
                progress.doing(&format!("{} beside {}, {way}", KINDS[a].name, KINDS[b].name));
                // Whoever disturbs is there first.
                let jobs = vec![ground.begin(KINDS[a], 0)?, ground.begin(KINDS[b], 2)?];
                let nodes: Vec<Vec<NodeId>> = jobs.iter().map(|j| j.grant.nodes.clone()).collect();
                let took = ground.measure(jobs)?;
                for (i, [job, beside]) in [[a, b], [b, a]].into_iter().enumerate() {
                    let slowdown = took[i].1 / alone[job];
                    let (job, beside) = (KINDS[job].name, KINDS[beside].name);
                    rows.push(Row { way, job, beside, slowdown, io_nodes: nodes[i].clone() });
                }
                progress.advance(1);
            }
            if way == "dfra" {
                wide = scaled(&mut ground, progress)?;
            }
        }
        Ok(outcome(&alone, &rows, &wide, ground.strays, span))
    }
}

/// A wide job by default and as DFRA scales it; what came of it: I/O nodes, requests a second.
fn scaled(ground: &mut DfraTestbed, progress: &dyn Progress) -> Result<Vec<(Vec<NodeId>, f64)>> {
    let mut runs = Vec::new();
    for n in ["first", "second"] {
        progress.doing(&format!("{}, {n} run", WIDE.name));
        let job = ground.begin(WIDE, 0)?;
        let nodes = job.grant.nodes.clone();
        let (requests, _) = ground.measure(vec![job])?[0];
        runs.push((nodes, requests as f64 / ground.span.as_secs_f64()));
        progress.advance(1);
    }
    // One of which nothing is known finds everything as it was.
    let kind = Kind { name: "unknown", ..KINDS[4] };
    let job = ground.begin(kind, 0)?;
    runs.push((job.grant.nodes.clone(), 0.0));
    ground.measure(vec![job])?;
    let nodes: Vec<forebay_control::view::NodeView> = ground.api()?.get("/v1/nodes")?;
    let held = nodes.iter().filter(|n| !n.jobs.is_empty()).map(|n| n.id).collect();
    runs.push((held, 0.0));
    Ok(runs)
}

fn outcome(alone: &[f64], rows: &[Row], wide: &[(Vec<NodeId>, f64)], strays: u32, span: Duration) -> Outcome {
    let mut found = Outcome::default();
    found.line(format!(
        "five kinds of jobs, alone and in pairs, {} s each; 1 I/O node by default and {} in reserve, 4 threads each, \
         emulated storage ({})",
        span.as_secs(),
        NODES - 1,
        load()
    ));
    let alone: Vec<String> =
        KINDS.iter().zip(alone).map(|(k, ms)| format!("{} {ms:.1} ms", k.name)).collect();
    found.line(format!("a request alone: {}", alone.join(", ")));
    let header = ["job", "beside", "shared", "under DFRA", "shared, merged", "under SFQ(D)+"];
    let mut table = Table::new(header).words("beside");
    let of = |way: &str, job: &str, beside: &str| {
        rows.iter().find(|r| (r.way, r.job, r.beside) == (way, job, beside)).map_or(f64::NAN, |r| r.slowdown)
    };
    let shared: Vec<&Row> = rows.iter().filter(|r| r.way == "shared").collect();
    for r in &shared {
        let cell = |way: &str| match of(way, r.job, r.beside) {
            times if times.is_finite() => format!("{times:.2} ×"),
            _ => String::new(),
        };
        let ways = ["shared", "dfra", MERGING, "sfq-d-plus"].map(cell);
        table.row([r.job.to_owned(), r.beside.into()].into_iter().chain(ways));
    }
    found.table(table);
    for (job, beside) in PLANTED {
        let (before, after) = (of("shared", job, beside), of("dfra", job, beside));
        found.judge(
            format!("{job} beside {beside}: ≥5× slower shared, ≤1.2× under DFRA: {before:.2}×, {after:.2}×"),
            before >= 5.0 && after <= 1.2,
        );
    }
    let mut gained = 0.0;
    let mut back = false;
    if let [(before, slow), (after, fast), (next, _), (left, _)] = wide {
        gained = fast / slow;
        back = next == &[NodeId(0)] && left.is_empty();
        found.judge(
            format!(
                "a job of {} compute nodes gets 4 I/O nodes of the reserve: {} before, {} then, {gained:.2}× the bandwidth",
                WIDE.compute_nodes,
                before.len(),
                after.len()
            ),
            before == &[NodeId(0)] && after.len() == 4 && !after.contains(&NodeId(0)),
        );
        found.judge("and gives them back".to_owned(), back);
    }
    found.judge(format!("jobs on I/O nodes that are not theirs: {strays}"), strays == 0);
    let row = |way: &str, job: &str, beside: &str, value: f64, io_nodes: &[NodeId]| {
        let nodes: Vec<String> = io_nodes.iter().map(ToString::to_string).collect();
        [way.to_owned(), job.into(), beside.into(), format!("{value:.4}"), nodes.join(" ")]
    };
    let mut lines: Vec<_> =
        rows.iter().map(|r| row(r.way, r.job, r.beside, r.slowdown, &r.io_nodes)).collect();
    let granted = wide.get(1).map_or(&[][..], |w| &w.0);
    lines.push(row("scaled", WIDE.name, "", gained, granted));
    lines.push(row("back", WIDE.name, "", f64::from(u8::from(back)), &[]));
    lines.push(row("strays", "", "", f64::from(strays), &[]));
    let chart = Bars {
        title: "Slowdown of jobs beside others".into(),
        x_label: "job beside another".into(),
        categories: shared.iter().map(|r| format!("{} beside {}", r.job, r.beside)).collect(),
        y: Axis::log10("times as long as alone"),
        series: WAYS.map(|way| BarSeries::new(way, shared.iter().map(|r| of(way, r.job, r.beside)))).to_vec(),
        labels: true,
        ..Bars::default()
    };
    found.figures("dfra", csv(["way", "job", "beside", "value", "io_nodes"], &lines), chart.svg());
    found
}
