//! Torture: real processes work on shared files through real I/O nodes, which are killed, stopped, drained,
//! moved and slowed down meanwhile; and everything that the processes were told is held against what can be.

mod ground;
mod history;
mod judge;
mod kin;
mod linear;
mod link;
mod loads;
mod models;
mod nemesis;
mod net;
mod work;

pub use judge::{Found, Violation};
pub use work::Worker;

use crate::Progress;
use crate::outcome::put;
use anyhow::{Context, Result, bail};
use forebay_embed::Process;
use ground::{AT, Role, TortureCluster};
use history::{Entry, Line, Times, now};
use nemesis::Nemesis;
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

/// Small blocks, and blocks that no socket's buffer takes at once.
const SMALL: usize = 512;
const SMALL_SLOTS: u64 = 24;
const BIG: usize = 300 << 10;
const BIG_SLOTS: u64 = 3;
const DURABLE_BLOCKS: u64 = 8;
const ROW_SLOTS: u64 = 40;

/// Processes of the job, of those that sync, and of those on a node of their own.
const HERD: u32 = 4;
const DURABLE_HERD: u32 = 2;
const LONE_HERD: u32 = 2;
/// Of a call, in seconds: but for storage that hangs and a node that has left in order, no fault lasts so long.
const DEADLINE: u64 = 10;
/// A run that is shorter does not wait for storage that hangs, nor for a node that stays away.
const HANGS_FROM: u64 = 30;

/// What `--full` is not content with less than.
const FULL_FAULTS: u64 = 1000;
const FULL_BYTES: u64 = 170_000_000;
/// Nor does it take longer.
const FULL_LONGEST: Duration = Duration::from_secs(3600);

/// How to torture.
#[derive(Clone, Debug)]
pub struct Torture {
    /// So long.
    pub seconds: u64,
    /// At least so long, and until there were 1,000 faults and about a million operations.
    pub full: bool,
    /// Of the random choices; what they meet depends on the machine.
    pub seed: u64,
    /// Where logs, histories and what was done when go if a promise was broken.
    pub keep: Option<PathBuf>,
}

/// What was done and found.
#[derive(Debug, Default)]
pub struct Report {
    /// How long it took.
    pub seconds: f64,
    /// The seed.
    pub seed: u64,
    /// What was done, and how often.
    pub faults: BTreeMap<&'static str, u64>,
    /// What cannot be done on this machine, and why.
    pub skipped: Vec<String>,
    /// Calls of the workers, and their processes.
    pub calls: u64,
    /// How many processes worked.
    pub processes: u64,
    /// Calls that ended with `EIO` since something was lost, or cannot be known: by workload and kind, how many, and when
    /// the first and the last of them did, in seconds.
    pub told: BTreeMap<String, (u64, f64, f64)>,
    /// Some of each kind: when, how long they took, and what had been done before.
    pub told_when: Vec<String>,
    /// The longest call, in seconds, and which.
    pub longest: (f64, String),
    /// Calls that never returned.
    pub hung: Vec<String>,
    /// Calls that failed before their deadline, or without storage that hung, though they must not.
    pub failed: Vec<String>,
    /// What was judged.
    pub found: Found,
}

impl Report {
    /// Whether all promises were kept.
    pub fn kept(&self) -> bool {
        self.found.violations.is_empty()
            && self.hung.is_empty()
            && self.failed.is_empty()
            && self.overrun() == 0.0
    }

    /// By how many seconds the latest call missed its deadline. Half a second is the machine's.
    fn overrun(&self) -> f64 {
        let late = self.longest.0 - DEADLINE as f64;
        if late > 0.5 { late } else { 0.0 }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let faults: u64 = self.faults.values().sum();
        writeln!(
            f,
            "seed {}, {:.0} s, {} processes, {}",
            self.seed,
            self.seconds,
            self.processes,
            crate::machine::load()
        )?;
        writeln!(f, "faults              {faults:>9}")?;
        for (what, count) in &self.faults {
            writeln!(f, "  {what:<42} {count:>5}")?;
        }
        for what in &self.skipped {
            writeln!(f, "  SKIPPED: {what}")?;
        }
        let Found { judged, objects, repeated, unjudged, violations } = &self.found;
        writeln!(f, "calls               {:>9}", self.calls)?;
        writeln!(f, "operations judged   {judged:>9} on {objects} objects")?;
        if *repeated > 0 {
            writeln!(
                f,
                "writes repeated     {repeated:>9} objects (twice, as their clients said it may be)"
            )?;
        }
        if *unjudged > 0 {
            writeln!(f, "objects not judged  {unjudged:>9} (too many possibilities)")?;
        }
        writeln!(f, "told EIO            {:>9}", self.told.values().map(|told| told.0).sum::<u64>())?;
        for (what, (count, first, last)) in &self.told {
            writeln!(f, "  {what:<42} {count:>5}, {first:.1} to {last:.1} s")?;
        }
        let (longest, what) = &self.longest;
        writeln!(f, "longest call        {longest:>9.3} s of {DEADLINE} ({what})")?;
        writeln!(f, "latest overrun      {:>9.3} s", self.overrun())?;
        writeln!(f, "hung calls          {:>9}", self.hung.len())?;
        writeln!(f, "failed too early    {:>9}", self.failed.len())?;
        writeln!(f, "violations          {:>9}", violations.len())?;
        for text in self.hung.iter().chain(&self.failed).take(20) {
            writeln!(f, "\n{text}")?;
        }
        for v in violations.iter().take(5) {
            writeln!(f, "\n{}: {}", v.object, v.what)?;
            for line in &v.timeline {
                writeln!(f, "  {line}")?;
            }
        }
        Ok(())
    }
}

/// Workers under way; they end when their input does.
struct Herd {
    process: Process,
    input: Option<ChildStdin>,
}

impl Herd {
    fn start(
        mut command: Command,
        ground: &TortureCluster,
        count: u32,
        work: &str,
        seed: u64,
    ) -> Result<Herd> {
        command.args(["torture-worker", "--herd", &count.to_string(), "--dir", AT, "--history"]);
        command.arg(ground.path().join("history")).args(["--deadline", &DEADLINE.to_string()]);
        command.args(["--seed", &seed.to_string(), "--work", work]);
        let mut process = Process::start(command.stdin(Stdio::piped()).stdout(Stdio::null()))?;
        let input = process.input();
        Ok(Herd { process, input })
    }

    fn check(&mut self) -> Result<()> {
        match self.process.try_wait()? {
            None => Ok(()),
            Some(status) => bail!("the workers ended by themselves ({status}): see above"),
        }
    }

    fn finish(mut self) -> Result<()> {
        drop(self.input.take());
        let patience = Duration::from_secs(DEADLINE + 60);
        match self.process.wait_for(patience)? {
            Some(status) if status.success() => Ok(()),
            Some(status) => bail!("the workers ended with {status}: see above"),
            None => bail!("the workers did not end within {} s", patience.as_secs()),
        }
    }
}

impl Torture {
    /// Tortures, and judges.
    ///
    /// # Errors
    /// If something could not be started, or ended by itself.
    pub fn run(&self, progress: &dyn Progress) -> Result<Report> {
        let mut ground = TortureCluster::start()?;
        prepare(&ground)?;
        let direct = |role| ground.direct_command(role, DEADLINE);
        let mut herds = [
            Herd::start(ground.run_command(DEADLINE)?, &ground, HERD, "all", self.seed)?,
            Herd::start(direct(Role::Forgetful)?, &ground, DURABLE_HERD, "durable", self.seed)?,
            Herd::start(direct(Role::Lone)?, &ground, LONE_HERD, "rows", self.seed)?,
        ];
        await_workers(&ground, &mut herds)?;
        let mut nemesis = Nemesis::new(&ground, self.seed, self.full || self.seconds >= HANGS_FROM);
        progress.begin(self.seconds.max(1) as usize);
        progress.doing("torture");
        let (began, start) = (Instant::now(), now());
        let mut told = 0;
        while self.goes_on(began.elapsed(), &nemesis, ground.path())? {
            nemesis.act(&mut ground)?;
            herds.iter_mut().try_for_each(Herd::check)?;
            let elapsed = began.elapsed().as_secs();
            progress.advance(elapsed.saturating_sub(told) as usize);
            told = elapsed;
            std::thread::sleep(Duration::from_millis(40));
        }
        nemesis.heal(&mut ground, true)?;
        progress.doing("the workers end");
        for herd in herds {
            herd.finish()?;
        }
        progress.doing("judging");
        let seconds = began.elapsed().as_secs_f64();
        let skipped = std::mem::take(&mut ground.skipped);
        let mut report =
            Report { seconds, seed: self.seed, faults: nemesis.done.clone(), skipped, ..Report::default() };
        let entries = read(&ground.path().join("history"), start, &nemesis, &mut report)?;
        if let Some(to) = &self.keep {
            std::fs::create_dir_all(to)?;
            put(&to.join("told"), report.told_when.join("\n"))?;
        }
        report.found = judge::judge_all(&entries, &ground.data(Role::Shared), &nemesis.crashes, start);
        if let Some(to) = self.keep.as_ref().filter(|_| !report.kept()) {
            keep(to, ground.path(), &nemesis, start).with_context(|| to.display().to_string())?;
        }
        Ok(report)
    }

    fn goes_on(&self, elapsed: Duration, nemesis: &Nemesis, dir: &Path) -> Result<bool> {
        if elapsed.as_secs() < self.seconds {
            return Ok(true);
        }
        if !self.full || elapsed > FULL_LONGEST {
            return Ok(false);
        }
        let mut bytes = 0;
        for file in std::fs::read_dir(dir.join("history"))? {
            bytes += file?.metadata()?.len();
        }
        Ok(nemesis.count() < FULL_FAULTS || bytes < FULL_BYTES)
    }
}

/// Until the first workers work: a job that finds no node when it is started is refused.
fn await_workers(ground: &TortureCluster, herds: &mut [Herd]) -> Result<()> {
    let until = Instant::now() + Duration::from_secs(60);
    while !["all0.0", "durable0.0", "rows0.0"]
        .iter()
        .all(|name| ground.path().join("history").join(name).exists())
    {
        anyhow::ensure!(Instant::now() < until, "the workers did not begin");
        herds.iter_mut().try_for_each(Herd::check)?;
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// What happened, for whoever wants to know how: logs of nodes and arbiters, histories, what was done when.
fn keep(to: &Path, from: &Path, nemesis: &Nemesis, start: u64) -> Result<()> {
    std::fs::create_dir_all(to)?;
    let ledgers = |e: &std::fs::DirEntry| e.file_name().to_string_lossy().starts_with("ledgers");
    let mut dirs = vec![from.to_owned(), from.join("history")];
    dirs.extend(std::fs::read_dir(from)?.flatten().filter(ledgers).map(|e| e.path()));
    for dir in dirs {
        for file in std::fs::read_dir(dir)?.flatten() {
            if file.path().is_file() && file.file_name() != "secret" {
                std::fs::copy(file.path(), to.join(file.file_name()))?;
            }
        }
    }
    let line = |(at, what, on): &(u64, &str, usize)| {
        format!("{:>11.6} s  {what} ({on})\n", at.saturating_sub(start) as f64 / 1e9)
    };
    std::fs::write(to.join("diary"), nemesis.diary.iter().map(line).collect::<String>())?;
    Ok(())
}

/// The files that are there from the beginning.
fn prepare(ground: &TortureCluster) -> Result<()> {
    let shared = ground.data(Role::Shared);
    put(&shared.join("small"), vec![0; SMALL * SMALL_SLOTS as usize])?;
    put(&shared.join("big"), vec![0; BIG * BIG_SLOTS as usize])?;
    put(&shared.join("length"), [])?;
    for row in 0..2 {
        let file = ground.data(Role::Lone).join(format!("row{row}"));
        put(&file, vec![0; SMALL * ROW_SLOTS as usize])?;
    }
    put(&ground.data(Role::Lone).join("large"), vec![0; BIG * BIG_SLOTS as usize])?;
    for place in 0..DURABLE_HERD * 16 {
        let file = ground.data(Role::Forgetful).join(format!("durable{place}"));
        put(&file, vec![0; SMALL * DURABLE_BLOCKS as usize])?;
    }
    Ok(())
}

/// All histories, and what they say besides.
fn read(dir: &Path, start: u64, nemesis: &Nemesis, report: &mut Report) -> Result<Vec<Entry>> {
    let mut entries = Vec::new();
    let (mut told, mut told_when) = (BTreeMap::<String, Times>::new(), Vec::new());
    let at = |begun: u64| begun.saturating_sub(start) as f64 / 1e9;
    for file in std::fs::read_dir(dir)? {
        let path = file?.path();
        report.processes += 1;
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        work::read_history(&path, |line| match line {
            Line::Op(entry) => entries.push(entry),
            Line::Failed { what, begun, took, errno } => {
                let why = std::io::Error::from_raw_os_error(errno);
                let took = took as f64 / 1e9;
                report.failed.push(format!(
                    "{:>11.6} s  process {name}: {what} failed after {took:.3} s: {why}",
                    at(begun)
                ));
            }
            Line::Late { what, begun, took, errno } => {
                let why = std::io::Error::from_raw_os_error(errno);
                if !nemesis.hung.iter().any(|&(from, to)| from <= begun + took && begun <= to) {
                    let text = format!("process {name}: {what} failed at its deadline, and no storage hung");
                    report.failed.push(format!("{:>11.6} s  {text}: {why}", at(begun)));
                }
            }
            Line::Lost { what, since, ended, killed } => {
                if !nemesis.harmed_the_lone(since, ended, killed) {
                    let text = format!("process {name}: {what} told of a loss, and nothing explains it");
                    report.failed.push(format!("{:>11.6} s  {text}", at(since)));
                }
            }
            Line::Hung { what, begun } => {
                report.hung.push(format!("{:>11.6} s  process {name}: {what} never returned", at(begun)));
            }
            Line::Told { what, begun, ended } => {
                let took = (ended - begun) as f64 / 1e9;
                let role = work::role(&name);
                let last = nemesis
                    .last_before(ended, role)
                    .map_or(String::new(), |(ago, what, to)| format!(", {ago:.3} s after: {what} ({to})"));
                told_when.push((ended, format!("{:>11.6} s  {name}, {what}, {took:.6} s{last}", at(ended))));
            }
            Line::Calls { count, longest, what, told: more } => {
                report.calls += count;
                for (what, more) in more {
                    told.entry(what).and_modify(|all| all.add(more)).or_insert(more);
                }
                let longest = longest as f64 / 1e9;
                if longest > report.longest.0 {
                    report.longest = (longest, what);
                }
            }
        })
        .with_context(|| path.display().to_string())?;
    }
    report.failed.sort();
    let times = |t: Times| (t.count, at(t.first), at(t.last));
    report.told = told.into_iter().map(|(what, t)| (what, times(t))).collect();
    told_when.sort();
    report.told_when = told_when.into_iter().map(|(_, line)| line).collect();
    Ok(entries)
}
