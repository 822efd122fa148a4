//! Running kinds of jobs: one alone on given I/O nodes, and the whole queue under an arbiter.

use super::kinds::{KINDS, Kind, MACHINE, NODES, QUEUE};
use crate::Progress;
use crate::fleet::{Arbiter, Fleet};
use crate::machine::program;
use anyhow::{Context, Result, bail};
use forebay_control::client::Client as Api;
use forebay_control::view::MappingView;
use forebay_embed::{Layer, Process, RunDir};
use forebay_policy::{CurveTable, PolicyKind};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Where programs see the I/O nodes' directory. It need not exist.
const SEEN: &str = "/forebay-experiment";

/// How often it is looked who is done and who holds what.
const LOOK: Duration = Duration::from_millis(50);

/// A single job takes no longer than this.
const PATIENCE: Duration = Duration::from_secs(600);

/// One job of a queue that has run. Times are seconds since the first job's start.
pub(super) struct JobResult {
    pub(super) name: String,
    pub(super) kind: usize,
    pub(super) start: f64,
    pub(super) end: f64,
    /// What its program ran for.
    pub(super) seconds: f64,
    pub(super) bytes: u64,
}

impl JobResult {
    /// Bytes by the time that the program ran, MB/s.
    pub(super) fn bandwidth(&self) -> f64 {
        self.bytes as f64 / self.seconds.max(1e-9) / 1e6
    }
}

/// A job was on an I/O node for a while.
pub(super) struct NodeStay {
    pub(super) node: u32,
    pub(super) job: String,
    pub(super) from: f64,
    pub(super) to: f64,
}

/// A queue that has run.
pub(super) struct Played {
    pub(super) policy: PolicyKind,
    /// In the order of the queue.
    pub(super) jobs: Vec<JobResult>,
    pub(super) held: Vec<NodeStay>,
}

impl Played {
    /// The sum of the jobs' bandwidths, as the thesis counts, MB/s.
    pub(super) fn aggregate(&self) -> f64 {
        self.jobs.iter().map(JobResult::bandwidth).sum()
    }

    pub(super) fn seconds(&self) -> f64 {
        self.jobs.iter().map(|j| j.end).fold(0.0, f64::max)
    }

    /// All bytes by the time from the first job's start to the last one's end, MB/s.
    pub(super) fn throughput(&self) -> f64 {
        self.jobs.iter().map(|j| j.bytes).sum::<u64>() as f64 / self.seconds().max(1e-9) / 1e6
    }

    /// How many I/O nodes a job had, in the mean of its time; a shared one counts as a whole.
    pub(super) fn mean_nodes(&self, job: &JobResult) -> f64 {
        let held = self.held.iter().filter(|h| h.job == job.name).map(|h| h.to - h.from);
        held.fold(0.0, |sum, t| sum + t) / (job.end - job.start).max(1e-9)
    }
}

/// The bandwidth of a kind alone on so many of the I/O nodes, MB/s.
pub(super) fn alone(fleet: &Fleet, kind: &Kind, count: u32, scale: u64) -> Result<f64> {
    let dir = format!("{}-{count}", kind.name);
    prepare(fleet.data(), &dir, kind, scale)?;
    let mut config = fleet.config(kind.name, Path::new(SEEN));
    config.nodes.truncate(count as usize);
    let mut layer = Layer::attach(config, None)?;
    let library = layer.write_preload()?;
    let started = Instant::now();
    let mut command = Command::new("sh");
    script(&mut command, kind, &dir, scale).env("LD_PRELOAD", library);
    let status = Process::start(command.env("FOREBAY_CONFIG", layer.client_config()))?.wait()?;
    let seconds = started.elapsed().as_secs_f64();
    let data = ["read", "write", "append"];
    let bytes: u64 = layer.operations().iter().filter(|o| data.contains(&o.name)).map(|o| o.bytes).sum();
    layer.stop();
    std::fs::remove_dir_all(fleet.data().join(&dir))?;
    if !status.success() {
        bail!("{} on {count} I/O nodes failed: {status}", kind.name);
    }
    Ok(bytes as f64 / seconds / 1e6)
}

/// Makes a job's directory and what it reads.
fn prepare(data: &Path, dir: &str, kind: &Kind, scale: u64) -> Result<()> {
    let dir = data.join(dir);
    std::fs::create_dir(&dir)?;
    if kind.input_mib > 0 {
        let mut file = std::fs::File::create(dir.join("in"))?;
        let block = vec![7u8; 1 << 20];
        for _ in 0..kind.input_mib * scale {
            std::io::Write::write_all(&mut file, &block)?;
        }
    }
    Ok(())
}

fn script<'a>(command: &'a mut Command, kind: &Kind, dir: &str, scale: u64) -> &'a mut Command {
    command
        .args(["-c", kind.script])
        .env("D", format!("{SEEN}/{dir}"))
        .env("N", scale.to_string())
        .stdin(Stdio::null())
}

/// A job of the queue at work.
struct Running {
    index: usize,
    process: Process,
    start: f64,
    report: PathBuf,
}

/// The queue under a policy.
pub(super) fn run(
    state: &Path,
    policy: PolicyKind,
    curves: &CurveTable,
    settings: &str,
    scale: u64,
    progress: &dyn Progress,
) -> Result<Played> {
    let data = state.join("data");
    std::fs::create_dir(&data)?;
    // The nodes must know the address before the arbiter, which needs their secret, can start.
    let port = Arbiter::free_port()?;
    let url = format!("http://127.0.0.1:{port}");
    let fleet = Fleet::start(&data, NODES as usize, &format!("arbiters = [\"{url}\"]\n{settings}"))?;
    let secret = fleet.secret_file();
    curves.to_csv(std::fs::File::create(fleet.dir().join("curves.csv"))?)?;
    let process = Arbiter::start(
        &fleet,
        port,
        &format!(
            "policy = \"{}\"\ncompute-nodes = {MACHINE}\nsharing = \"better\"\ncurves = \"curves.csv\"",
            policy.name()
        ),
    )?;
    let arbiter = process.api()?;
    let mut q = Queue {
        temporary: RunDir::for_others()?,
        url,
        secret,
        data: &data,
        arbiter: &arbiter,
        scale,
        began: Instant::now(),
        running: Vec::new(),
        open: BTreeMap::new(),
        jobs: Vec::new(),
        held: Vec::new(),
    };
    for (index, kind) in QUEUE.iter().enumerate() {
        prepare(&data, &index.to_string(), &KINDS[*kind], scale)?;
    }
    q.began = Instant::now();
    let mut next = 0;
    while next < QUEUE.len() || !q.running.is_empty() {
        while next < QUEUE.len() && q.busy() + KINDS[QUEUE[next]].compute_nodes <= MACHINE {
            progress.doing(&format!("{policy}: job {}, {}", next + 1, KINDS[QUEUE[next]].name));
            q.start(next)?;
            next += 1;
        }
        std::thread::sleep(LOOK);
        q.look()?;
        progress.advance(q.reap()?);
    }
    let mut jobs = std::mem::take(&mut q.jobs);
    jobs.sort_by_key(|(index, _)| *index);
    let jobs = jobs.into_iter().map(|(_, job)| job).collect();
    // Nodes that end before their arbiter have nothing to complain of.
    drop(fleet);
    Ok(Played { policy, jobs, held: std::mem::take(&mut q.held) })
}

struct Queue<'a> {
    temporary: RunDir,
    url: String,
    secret: PathBuf,
    data: &'a Path,
    arbiter: &'a Api,
    scale: u64,
    began: Instant,
    running: Vec<Running>,
    /// Since when a job has been on a node.
    open: BTreeMap<(String, u32), f64>,
    /// Those that have ended, by their place in the queue.
    jobs: Vec<(usize, JobResult)>,
    held: Vec<NodeStay>,
}

fn name(index: usize) -> String {
    format!("{}-{}", KINDS[QUEUE[index]].name, index + 1)
}

impl Queue<'_> {
    fn now(&self) -> f64 {
        self.began.elapsed().as_secs_f64()
    }

    /// Compute nodes in use.
    fn busy(&self) -> u32 {
        self.running.iter().map(|r| KINDS[QUEUE[r.index]].compute_nodes).sum()
    }

    fn start(&mut self, index: usize) -> Result<()> {
        let kind = &KINDS[QUEUE[index]];
        let report = self.data.with_file_name(format!("report{index}.json"));
        let mut command = Command::new(program()?);
        command.env("TMPDIR", self.temporary.path());
        command.args(["run", "--quiet", "--arbiter", &self.url, "--job", &name(index), "--app", kind.name]);
        command.args(["--pattern", &kind.pattern(), "--compute-nodes", &kind.compute_nodes.to_string()]);
        command.args(["--processes", &kind.processes.to_string(), "--at", &format!("{SEEN}=data")]);
        command.arg("--secret-file").arg(&self.secret).arg("--report").arg(&report).args(["--", "sh"]);
        let start = self.now();
        let process = Process::start(script(&mut command, kind, &index.to_string(), self.scale))?;
        self.running.push(Running { index, process, start, report });
        Ok(())
    }

    /// Who is on which node now.
    fn look(&mut self) -> Result<()> {
        let mapping: MappingView = self.arbiter.get("/v1/mapping")?;
        let now = self.now();
        let here: std::collections::BTreeSet<(String, u32)> =
            mapping.jobs.iter().flat_map(|j| j.nodes.iter().map(|n| (j.job.clone(), n.0))).collect();
        self.close(now, |key| !here.contains(key));
        for key in here {
            self.open.entry(key).or_insert(now);
        }
        Ok(())
    }

    fn close(&mut self, now: f64, which: impl Fn(&(String, u32)) -> bool) {
        let gone: Vec<_> = self.open.keys().filter(|k| which(k)).cloned().collect();
        for key in gone {
            if let Some(from) = self.open.remove(&key) {
                self.held.push(NodeStay { node: key.1, job: key.0, from, to: now });
            }
        }
    }

    /// Takes note of the jobs that have ended; how many.
    fn reap(&mut self) -> Result<usize> {
        let now = self.now();
        let mut ended = Vec::new();
        for (at, r) in self.running.iter_mut().enumerate() {
            match r.process.try_wait()? {
                Some(status) if status.success() => ended.push(at),
                Some(status) => bail!("job {} failed: {status}", name(r.index)),
                None if now - r.start > PATIENCE.as_secs_f64() => {
                    bail!("job {} is not done after {} s", name(r.index), PATIENCE.as_secs())
                }
                None => {}
            }
        }
        for at in ended.iter().rev() {
            let r = self.running.remove(*at);
            let text = std::fs::read_to_string(&r.report).context("a job wrote no report")?;
            let report: serde_json::Value = serde_json::from_str(&text)?;
            let bytes = |what: &str| report[what].as_u64().unwrap_or(0);
            let job = JobResult {
                name: name(r.index),
                kind: QUEUE[r.index],
                start: r.start,
                end: now,
                seconds: report["seconds"].as_f64().context("a report without time")?,
                bytes: bytes("bytes_read") + bytes("bytes_written"),
            };
            self.close(now, |(name, _)| *name == job.name);
            self.jobs.push((r.index, job));
        }
        Ok(ended.len())
    }
}
