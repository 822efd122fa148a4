//! Our TOML form: one scenario, or a matrix of factors that expands to many.
//!
//! ```toml
//! name = "checkpoint"                  # default: the file's name
//! io_nodes = [0, 1, 2]                 # default: the command line's
//! repetitions = 5
//! order = "random"                     # or "given"
//! scheduler = "twins:window=2ms"
//!
//! [[job]]                              # several jobs run at once
//! compute_nodes = 4
//! processes_per_node = 2
//!
//! [[job.phase]]
//! operation = "write"                  # write, read, mixed, think, create, stat, unlink
//! layout = "shared"                    # or file-per-process
//! spatiality = "strided"               # contiguous, strided, random
//! total_size = "256 MiB"               # of all processes together
//! request_size = [{ size = "4 KiB", weight = 3 }, { size = "1 MiB", weight = 1 }]
//!
//! [matrix]                             # every combination; a table sets several keys at once
//! request_size = ["32 KiB", "1 MiB"]
//! pattern = [{ layout = "shared", spatiality = "strided" }, { layout = "file-per-process" }]
//! ```

use super::units::{Size, Span};
use super::{
    Data, Fsync, Job, Layout, MAX_FILES, MAX_IO_NODES, MAX_PROCESSES, MAX_REPETITIONS, MetaOperation,
    Metadata, Scenario, SizeShare, Spatiality, Step, Target,
};
use serde::Deserialize;
use toml::{Table, Value};

/// A matrix may not expand to more scenarios than this.
const MAX_SCENARIOS: usize = 10_000;
/// Keys of a matrix that belong to the scenario; those of [`JOB_KEYS`] to its jobs; all others to
/// their phases.
const SCENARIO_KEYS: [&str; 6] = ["name", "io_nodes", "scheduler", "repetitions", "dispatchers", "seed"];
const JOB_KEYS: [&str; 3] = ["compute_nodes", "processes_per_node", "delay"];
/// All that can stand at the top of a file.
const TOP_KEYS: [&str; 14] = [
    "name",
    "description",
    "io_nodes",
    "repetitions",
    "order",
    "seed",
    "scheduler",
    "dispatchers",
    "job",
    "compute_nodes",
    "processes_per_node",
    "delay",
    "phase",
    "matrix",
];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawScenario {
    name: Option<String>,
    #[serde(default, rename = "description")]
    _description: String,
    #[serde(default)]
    io_nodes: OneOrMany<u32>,
    repetitions: Option<u32>,
    #[serde(default)]
    order: Order,
    #[serde(default)]
    seed: u64,
    scheduler: Option<String>,
    dispatchers: Option<u32>,
    job: Vec<RawJob>,
}

#[derive(Deserialize, Default, PartialEq)]
#[serde(rename_all = "lowercase")]
enum Order {
    #[default]
    Random,
    Given,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "a whole number is expected, or a list of some")]
enum OneOrMany<T> {
    One(T),
    Many(Vec<T>),
}

impl<T> Default for OneOrMany<T> {
    fn default() -> Self {
        OneOrMany::Many(Vec::new())
    }
}

impl<T> OneOrMany<T> {
    fn into_vec(self) -> Vec<T> {
        match self {
            OneOrMany::One(t) => vec![t],
            OneOrMany::Many(v) => v,
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawJob {
    name: Option<String>,
    #[serde(default = "one")]
    compute_nodes: u32,
    #[serde(default = "one")]
    processes_per_node: u32,
    #[serde(default)]
    delay: Span,
    phase: Vec<RawPhase>,
}

fn one() -> u32 {
    1
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawPhase {
    operation: String,
    #[serde(default = "one")]
    repetitions: u32,
    path: Option<String>,
    #[serde(default)]
    layout: Layout,
    #[serde(default)]
    spatiality: Spatiality,
    total_size: Option<Size>,
    request_size: Option<Value>,
    read_share: Option<f64>,
    #[serde(default)]
    think: Span,
    #[serde(default)]
    stone_wall: Span,
    #[serde(default)]
    validation: bool,
    #[serde(default)]
    direct_io: bool,
    #[serde(default)]
    fsync: Fsync,
    files: Option<u32>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawShare {
    size: Size,
    weight: f64,
}

/// The scenarios in `text`.
pub fn parse(text: &str, stem: &str) -> Result<Vec<Scenario>, String> {
    let mut top: Table = text.parse().map_err(|e: toml::de::Error| e.to_string())?;
    if let Some(key) = top.keys().find(|key| !TOP_KEYS.contains(&key.as_str())) {
        return Err(format!(
            "unknown key `{key}`: at the top of the file there can be {}",
            TOP_KEYS.join(", ")
        ));
    }
    let matrix = match top.remove("matrix") {
        None => Table::new(),
        Some(Value::Table(t)) => t,
        Some(_) => return Err("matrix: not a table".into()),
    };
    hoist_single_job(&mut top)?;
    let mut out = Vec::new();
    for overlay in combinations(&matrix)? {
        let mut table = top.clone();
        for (key, value) in &overlay {
            place(&mut table, key, value);
        }
        let raw = RawScenario::deserialize(Value::Table(table.clone()));
        let raw = raw.map_err(|e| wrong(table, e.message()))?;
        out.push(build(raw, stem, &overlay)?);
    }
    Ok(out)
}

/// What is wrong with a scenario, and where: the message does not say it, but without that key it would be
/// another one.
fn wrong(scenario: Table, message: &str) -> String {
    let differs = |other: Option<Value>| {
        let read = other.map(RawScenario::deserialize);
        read.is_some_and(|read| read.err().is_none_or(|e| e.message() != message))
    };
    let place = culprit(&Value::Table(scenario), &differs);
    let range = match place.as_deref().and_then(|p| p.rsplit(' ').find(|w| w.parse::<usize>().is_err())) {
        // A phase's, or the scenario's.
        Some("repetitions") if place.as_deref() != Some("repetitions") => (0, MAX_STEPS as u32),
        Some("repetitions") => (1, MAX_REPETITIONS),
        Some("io_nodes") => (0, MAX_IO_NODES),
        Some("dispatchers") => (1, 1024),
        Some("compute_nodes" | "processes_per_node") => (1, MAX_PROCESSES),
        Some("files") => (1, MAX_FILES as u32),
        _ => (0, u32::MAX),
    };
    let message =
        message.replace("expected u32", &format!("expected a whole number from {} to {}", range.0, range.1));
    let message = message.replace("expected u64", "expected a whole number from 0 on");
    match place.filter(|key| !message.contains(&format!("`{key}`"))) {
        Some(place) => format!("{place}: {message}"),
        None => message,
    }
}

/// The innermost key of `value` without which `differs` is true.
fn culprit(value: &Value, differs: &dyn Fn(Option<Value>) -> bool) -> Option<String> {
    let inside = |name: String, inner: &Value, with: &dyn Fn(Option<Value>) -> bool| {
        let deeper = with(None).then(|| culprit(inner, with))?;
        Some(deeper.map_or(name.clone(), |deeper| format!("{name} {deeper}")))
    };
    match value {
        Value::Table(table) => table.iter().find_map(|(key, inner)| {
            inside(key.clone(), inner, &|new| {
                let mut table = table.clone();
                match new {
                    Some(new) => table.insert(key.clone(), new),
                    None => table.remove(key),
                };
                differs(Some(Value::Table(table)))
            })
        }),
        Value::Array(array) => array.iter().enumerate().find_map(|(i, inner)| {
            inside((i + 1).to_string(), inner, &|new| {
                let mut array = array.clone();
                match new {
                    Some(new) => array[i] = new,
                    None => drop(array.remove(i)),
                }
                differs(Some(Value::Array(array)))
            })
        }),
        _ => None,
    }
}

/// A file with one job may leave `[[job]]` out and give its keys and phases at the top.
fn hoist_single_job(top: &mut Table) -> Result<(), String> {
    let mut job = Table::new();
    for key in JOB_KEYS.into_iter().chain(["phase"]) {
        if let Some(v) = top.remove(key) {
            job.insert(key.into(), v);
        }
    }
    if job.is_empty() {
        return Ok(());
    }
    if top.contains_key("job") {
        return Err("phases at the top of the file and [[job]]s: put the phases into a job".into());
    }
    top.insert("job".into(), Value::Array(vec![Value::Table(job)]));
    Ok(())
}

/// Every combination of the factors, the last factor changing fastest.
fn combinations(matrix: &Table) -> Result<Vec<Vec<(String, Value)>>, String> {
    let mut all: Vec<Vec<(String, Value)>> = vec![Vec::new()];
    for (key, values) in matrix {
        let values = values.as_array().ok_or(format!("matrix.{key}: not a list of values"))?;
        if values.is_empty() {
            return Err(format!("matrix.{key}: no values"));
        }
        if all.len().saturating_mul(values.len()) > MAX_SCENARIOS {
            return Err(format!("matrix: more than {MAX_SCENARIOS} scenarios"));
        }
        let extend = |so_far: Vec<(String, Value)>| {
            values.iter().map(move |v| {
                let mut next = so_far.clone();
                match v {
                    Value::Table(t) => next.extend(t.iter().map(|(k, v)| (k.clone(), v.clone()))),
                    v => next.push((key.clone(), v.clone())),
                }
                next
            })
        };
        all = all.into_iter().flat_map(extend).collect();
    }
    Ok(all)
}

/// Puts a factor's value where it belongs.
fn place(scenario: &mut Table, key: &str, value: &Value) {
    if SCENARIO_KEYS.contains(&key) {
        scenario.insert(key.into(), value.clone());
        return;
    }
    let jobs = scenario.get_mut("job").and_then(Value::as_array_mut).into_iter().flatten();
    for job in jobs.filter_map(Value::as_table_mut) {
        if JOB_KEYS.contains(&key) {
            job.insert(key.into(), value.clone());
            continue;
        }
        let phases = job.get_mut("phase").and_then(Value::as_array_mut).into_iter().flatten();
        for phase in phases.filter_map(Value::as_table_mut) {
            phase.insert(key.into(), value.clone());
        }
    }
}

fn build(raw: RawScenario, stem: &str, overlay: &[(String, Value)]) -> Result<Scenario, String> {
    let mut jobs = Vec::new();
    for (i, job) in raw.job.into_iter().enumerate() {
        let mut steps = Vec::new();
        for (k, phase) in job.phase.into_iter().enumerate() {
            build_phase(phase, i, &mut steps).map_err(|e| format!("job {}, phase {}: {e}", i + 1, k + 1))?;
        }
        jobs.push(Job {
            name: job.name.unwrap_or_else(|| format!("job{}", i + 1)),
            compute_nodes: job.compute_nodes,
            processes_per_node: job.processes_per_node,
            delay: job.delay.duration(),
            steps,
        });
    }
    let template = raw.name.unwrap_or_else(|| {
        let values: Vec<String> = overlay.iter().map(|(k, v)| format!("{k}={}", plain(v))).collect();
        if values.is_empty() { stem.to_owned() } else { format!("{stem} {}", values.join(" ")) }
    });
    let name = fill(&template, &jobs)?;
    Ok(Scenario {
        name,
        jobs,
        io_nodes: raw.io_nodes.into_vec(),
        repetitions: raw.repetitions,
        shuffle: raw.order == Order::Random,
        seed: raw.seed,
        scheduler: raw.scheduler,
        dispatchers: raw.dispatchers,
    })
}

/// Phases that would unroll to more steps than this are refused.
const MAX_STEPS: usize = 100_000;

fn build_phase(p: RawPhase, job: usize, steps: &mut Vec<Step>) -> Result<(), String> {
    let path = p.path.unwrap_or_else(|| format!("job{}", job + 1));
    if path.starts_with('/') {
        return Err(format!("path: {path:?} is absolute; give one below the directory that --at names"));
    }
    let step = match p.operation.as_str() {
        "think" => Step::Think(p.think.duration()),
        "create" | "stat" | "unlink" => Step::Metadata(Metadata {
            operation: match p.operation.as_str() {
                "create" => MetaOperation::Create,
                "stat" => MetaOperation::Stat,
                _ => MetaOperation::Unlink,
            },
            path,
            files: p.files.ok_or("files is missing: how many for each process?")?,
            stone_wall: p.stone_wall.duration(),
        }),
        "write" | "read" | "mixed" => Step::Data(Data {
            read_share: match (p.operation.as_str(), p.read_share) {
                ("write", None) => 0.0,
                ("read", None) => 1.0,
                ("mixed", share) => share.ok_or("read_share is missing: the share of requests that read")?,
                _ => return Err("read_share is for operation = \"mixed\"".into()),
            },
            target: Target { path, layout: p.layout, direct_io: p.direct_io },
            spatiality: p.spatiality,
            total_size: p.total_size.ok_or("total_size is missing")?.0,
            sizes: sizes(p.request_size.ok_or("request_size is missing")?)?,
            think: p.think.duration(),
            stone_wall: p.stone_wall.duration(),
            validation: p.validation,
            fsync: p.fsync,
        }),
        other => {
            return Err(format!(
                "operation: {other:?} is not write, read, mixed, think, create, stat or unlink"
            ));
        }
    };
    if steps.len().saturating_add(p.repetitions as usize) > MAX_STEPS {
        return Err(format!("more than {MAX_STEPS} steps"));
    }
    steps.extend(std::iter::repeat_n(step, p.repetitions as usize));
    Ok(())
}

/// One size, or a list of sizes with weights.
fn sizes(value: Value) -> Result<Vec<SizeShare>, String> {
    let say = |e: toml::de::Error| format!("request_size: {}", e.message());
    if value.is_array() {
        let mix = Vec::<RawShare>::deserialize(value).map_err(say)?;
        return Ok(mix.into_iter().map(|s| SizeShare { size: s.size.0, weight: s.weight }).collect());
    }
    let Size(size) = Size::deserialize(value).map_err(say)?;
    Ok(vec![SizeShare { size, weight: 1.0 }])
}

/// `{processes}`, `{compute_nodes}`, `{layout}` (0 file per process, 1 shared), `{spatiality}`,
/// `{request_kb}`, `{direct_io}` and `{operation}` in a name, from the first job and its first data
/// phase.
fn fill(template: &str, jobs: &[Job]) -> Result<String, String> {
    if !template.contains('{') {
        return Ok(template.to_owned());
    }
    let job = jobs.first().ok_or("no job in it")?;
    let data = job.steps.iter().find_map(|s| if let Step::Data(d) = s { Some(d) } else { None });
    let mut name = template
        .replace("{processes}", &job.processes().to_string())
        .replace("{compute_nodes}", &job.compute_nodes.to_string());
    if let Some(d) = data {
        name = name
            .replace("{layout}", if d.target.layout == Layout::Shared { "1" } else { "0" })
            .replace("{spatiality}", &d.spatiality.code().to_string())
            .replace("{request_kb}", &(d.mean_size() / 1024.0).to_string())
            .replace("{direct_io}", if d.target.direct_io { "1" } else { "0" })
            .replace("{operation}", d.operation().name());
    }
    match name.find('{') {
        Some(at) => Err(format!("name: {:?} is not known", &name[at..])),
        None => Ok(name),
    }
}

fn plain(v: &Value) -> String {
    v.as_str().map_or_else(|| v.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Operation;
    use std::time::Duration;

    const FULL: &str = r#"
name = "all of it"
description = "every key"
io_nodes = [0, 2]
repetitions = 3
order = "given"
seed = 7
scheduler = "twins:window=2ms"
dispatchers = 4

[[job]]
name = "simulation"
compute_nodes = 4
processes_per_node = 2
phase = [
  { operation = "write", path = "ckpt", layout = "file-per-process", total_size = "8 MiB", request_size = "32 KiB", fsync = "end", direct_io = true, repetitions = 2 },
  { operation = "think", think = "250 ms" },
  { operation = "mixed", read_share = 0.7, path = "db", spatiality = "random", total_size = "8 MiB", request_size = [{ size = 4096, weight = 3 }, { size = "64 KiB", weight = 1 }], think = "10us", stone_wall = 2.5, validation = true },
]

[[job]]
delay = "1s"
phase = [{ operation = "create", files = 10 }, { operation = "stat", files = 10 }, { operation = "unlink", files = 10 }]
"#;

    #[test]
    fn every_key_arrives() {
        let all = parse(FULL, "f").unwrap();
        let [s] = &all[..] else { panic!() };
        s.check().unwrap();
        assert_eq!(
            (s.name.as_str(), s.repetitions, s.shuffle, s.seed, s.dispatchers),
            ("all of it", Some(3), false, 7, Some(4))
        );
        assert_eq!(s.io_nodes, [0, 2]);
        assert_eq!(s.jobs[0].processes(), 8);
        assert_eq!(s.jobs[0].steps.len(), 4);
        assert_eq!(s.jobs[0].steps[2], Step::Think(Duration::from_millis(250)));
        let Step::Data(mix) = &s.jobs[0].steps[3] else { panic!() };
        assert_eq!((mix.operation(), mix.sizes.len(), mix.validation), (Operation::Mixed, 2, true));
        assert_eq!(mix.stone_wall, Duration::from_millis(2500));
        assert_eq!(mix.mean_size(), (3.0 * 4096.0 + 65536.0) / 4.0);
        assert_eq!(s.jobs[1].delay, Duration::from_secs(1));
        assert!(
            matches!(&s.jobs[1].steps[2], Step::Metadata(m) if m.operation == MetaOperation::Unlink && m.files == 10)
        );
    }

    #[test]
    fn a_matrix_is_every_combination() {
        let text = r#"
name = "{processes}-{layout}-{spatiality}-{request_kb}"
phase = [{ operation = "write", total_size = "1 GiB" }]
[matrix]
compute_nodes = [1, 2]
pattern = [{ layout = "shared", spatiality = "strided" }, { layout = "file-per-process" }]
request_size = ["32 KiB", "1 MiB", "8 MiB"]
"#;
        let all = parse(text, "m").unwrap();
        assert_eq!(all.len(), 12);
        let mut names: Vec<&str> = all.iter().map(|s| s.name.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), 12);
        assert!(names.contains(&"2-1-1-1024") && names.contains(&"1-0-0-32"));
    }

    #[test]
    fn mistakes_are_named() {
        for (from, to, says) in [
            ("request_size = \"32 KiB\"", "request_size = \"big\"", "big"),
            ("fsync = \"end\"", "fzync = \"end\"", "fzync"),
            ("\"mixed\", read_share = 0.7", "\"mixed\"", "read_share is missing"),
            ("files = 10", "file = 10", "file"),
            ("operation = \"think\"", "operation = \"sleep\"", "phase 2: operation: \"sleep\""),
            ("all of it", "{what}", "{what}"),
            ("repetitions = 2 }", "repetitions = 4000000000 }", "more than"),
        ] {
            let e = parse(&FULL.replacen(from, to, 1), "x").unwrap_err();
            assert!(e.contains(says), "{e}");
        }
        let long: String = (0..30).map(|i| format!("k{i} = [1,2]\n")).collect();
        assert!(parse(&format!("phase = []\n[matrix]\n{long}"), "x").unwrap_err().contains("more than"));
    }

    #[test]
    fn what_cannot_run_is_refused() {
        for (from, to, says) in [
            (
                "total_size = \"8 MiB\", request_size = \"32 KiB\"",
                "total_size = 4096, request_size = \"32 KiB\"",
                "less than one request",
            ),
            ("compute_nodes = 4", "compute_nodes = 0", "0 processes"),
            ("compute_nodes = 4", "compute_nodes = 4000000000", "processes"),
            ("weight = 3", "weight = -3", "weights"),
            ("read_share = 0.7", "read_share = 1.7", "read_share"),
            (
                "layout = \"file-per-process\"",
                "layout = \"file-per-process\", spatiality = \"strided\"",
                "makes no sense",
            ),
            ("request_size = \"32 KiB\"", "request_size = 1000", "multiples of 512"),
        ] {
            let e = parse(&FULL.replacen(from, to, 1), "x").unwrap()[0].check().unwrap_err();
            assert!(e.contains(says), "{e}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_text_panics(text in "\\PC{0,200}", at in 0..FULL.len(), value in "[\"a-z0-9 ={}\\[\\],.-]{0,10}") {
            let _ = parse(&text, "x");
            let mut t = FULL.to_owned();
            if t.is_char_boundary(at) {
                t.insert_str(at, &value);
            }
            if let Ok(all) = parse(&t, "x") {
                all.iter().for_each(|s| { let _ = s.check(); });
            }
        }
    }
}
