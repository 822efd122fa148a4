//! Scenarios that are derived from what a program did: as a file, and what to expect of them.

mod predict;

use crate::darshan::DarshanError;
use crate::scenario::{Fsync, Job, MAX_REQUEST, Scenario, SizeShare, Step};
use forebay_types::trace::TraceError;
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// Of requests in order so many begin behind the one before; of those at random half do.
pub(crate) const ONWARD: f64 = 0.75;

/// What such jobs make; all else is as it is when nobody has said anything.
pub(crate) fn scenario(name: &str, jobs: Vec<Job>) -> Scenario {
    Scenario {
        name: name.to_owned(),
        jobs,
        io_nodes: Vec::new(),
        repetitions: None,
        shuffle: true,
        seed: 0,
        scheduler: None,
        dispatchers: None,
    }
}

/// A scenario, and where it comes from.
pub struct Derived {
    pub(crate) file: PathBuf,
    /// What the program did, as far as scenarios have words for it.
    pub scenario: Scenario,
    pub(crate) comment: String,
    /// What was found in the file, for people; empty where the scenario says it all.
    pub found: String,
}

impl Derived {
    /// As a scenario file with a comment that says where it comes from.
    pub fn to_toml(&self) -> String {
        to_toml(&self.scenario, &self.comment)
    }

    /// What it would get of each number of I/O nodes, by the curves in a file, for people.
    pub fn predict(&self, curves: &Path) -> Result<String, NoScenario> {
        let table = forebay_types::input::read(curves).map_err(NoScenario::of(curves))?;
        let table = forebay_policy::CurveTable::from_csv(&table[..]).map_err(NoScenario::of(curves))?;
        self.scenario.check().map_err(|why| NoScenario::of(&self.file)(Problem::Derive(why)))?;
        Ok(predict::predict(&self.scenario, &table))
    }
}

/// Why a file gives no scenario, or not what was asked of it.
#[derive(Debug, thiserror::Error)]
#[error("{}: {why}", file.display())]
pub struct NoScenario {
    /// Of which file.
    pub file: PathBuf,
    /// Why.
    pub why: Problem,
}

impl NoScenario {
    pub(crate) fn of<W: Into<Problem>>(file: &Path) -> impl FnOnce(W) -> NoScenario {
        let file = file.to_owned();
        move |why| NoScenario { file, why: why.into() }
    }
}

/// What is wrong with a file.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// It cannot be read.
    #[error("cannot read it: {0}")]
    Read(#[from] std::io::Error),
    /// It is no log.
    #[error(transparent)]
    Log(#[from] DarshanError),
    /// It is no trace.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// Nothing can be derived from it.
    #[error("{0}")]
    Derive(String),
    /// It is no table of curves.
    #[error("not a table of curves: {0}")]
    Curves(#[from] forebay_policy::TableError),
}

/// What a scenario from this file is called.
pub(crate) fn stem(path: &Path) -> String {
    path.file_stem().map_or_else(|| "derived".into(), |s| s.to_string_lossy().into_owned())
}

/// The phases in which `processes` move so many bytes by requests of these sizes and numbers: bytes, and sizes with their
/// weights. A size that makes up a good part of the bytes but of which a process sees less than two requests is a phase
/// of its own, split evenly: in a mix, chance would decide whether it occurs.
pub(crate) fn parts(bytes: u64, counts: Vec<(u64, u64)>, processes: u64) -> Vec<(u64, Vec<SizeShare>)> {
    let cut = |size: u64, share: u64| size.min(share).clamp(1, MAX_REQUEST);
    let (rare, common): (Vec<_>, Vec<_>) =
        counts.into_iter().partition(|(size, n)| *n < 2 * processes && size.saturating_mul(*n) >= processes);
    let mut left = bytes;
    let mut out = Vec::new();
    for (size, n) in rare {
        let bytes = size.saturating_mul(n).min(left);
        left -= bytes;
        if bytes >= processes {
            out.push((bytes, vec![SizeShare { size: cut(size, bytes / processes), weight: 1.0 }]));
        }
    }
    if left >= processes && !common.is_empty() {
        // A size larger than a process' share cannot occur, and its bytes are too few to matter.
        let fits: Vec<_> = common.iter().filter(|(size, _)| *size <= left / processes).copied().collect();
        let common = if fits.is_empty() { common } else { fits };
        let sizes = common
            .iter()
            .map(|(size, n)| SizeShare { size: cut(*size, left / processes), weight: *n as f64 });
        out.push((left, sizes.collect()));
    }
    out
}

/// The scenario as a TOML file that [`crate::scenario::native`] reads.
pub fn to_toml(scenario: &Scenario, comment: &str) -> String {
    let mut out = String::new();
    for line in comment.lines() {
        // Nothing in it ends the comment, or is a control character, which TOML has not.
        let line: String = line.chars().filter(|c| !c.is_control()).collect();
        let _ = writeln!(out, "{}", format!("# {line}").trim_end());
    }
    let text = |s: &str| toml::Value::String(s.to_owned()).to_string();
    let _ = writeln!(out, "name = {}", text(&scenario.name));
    for job in &scenario.jobs {
        let _ = writeln!(out, "\n[[job]]\nname = {}\ncompute_nodes = {}", text(&job.name), job.compute_nodes);
        if job.processes_per_node != 1 {
            let _ = writeln!(out, "processes_per_node = {}", job.processes_per_node);
        }
        if !job.delay.is_zero() {
            let _ = writeln!(out, "delay = {:?}", job.delay.as_secs_f64());
        }
        for step in &job.steps {
            match step {
                Step::Think(span) => {
                    let _ = writeln!(
                        out,
                        "\n[[job.phase]]\noperation = \"think\"\nthink = {:?}",
                        span.as_secs_f64()
                    );
                }
                Step::Data(d) => {
                    let _ = writeln!(
                        out,
                        "\n[[job.phase]]\noperation = \"{}\"\npath = {}\nlayout = \"{}\"\nspatiality = \"{}\"\ntotal_size = {}",
                        d.operation(),
                        text(&d.target.path),
                        d.target.layout,
                        d.spatiality,
                        d.total_size
                    );
                    let size = |s: &SizeShare| format!("{{ size = {}, weight = {:?} }}", s.size, s.weight);
                    let sizes = match &d.sizes[..] {
                        [only] if only.weight == 1.0 => only.size.to_string(),
                        mix => format!("[{}]", mix.iter().map(size).collect::<Vec<_>>().join(", ")),
                    };
                    let _ = writeln!(out, "request_size = {sizes}");
                    if d.read_share > 0.0 && d.read_share < 1.0 {
                        let _ = writeln!(out, "read_share = {:?}", d.read_share);
                    }
                    if d.fsync != Fsync::Never {
                        let how = if d.fsync == Fsync::End { "end" } else { "each" };
                        let _ = writeln!(out, "fsync = \"{how}\"");
                    }
                }
                _ => {}
            }
        }
    }
    out
}
