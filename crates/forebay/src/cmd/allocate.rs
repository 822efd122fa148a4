//! `forebay allocate`: one decision for a given set of jobs.

use crate::cmd::{args, table};
use anyhow::{Context, bail};
use clap::Args;
use forebay_policy::dfra::IoProfile;
use forebay_policy::{
    BandwidthCurve, Current, Decision, Explanation, FairConfig, Job, Policy, PolicyKind, Pool, Settings,
    SharingRule,
};
use forebay_types::Bandwidth;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::HashSet;
use std::io::Read;
use std::path::PathBuf;
use std::process::ExitCode;

/// Decide who gets how many I/O nodes: the admin's what-if
///
/// Reads a set of jobs, runs one policy on them and prints what each job gets, what that should
/// yield, and why. Nothing is changed anywhere.
///
/// Policies: ZERO (direct access), ONE (one I/O node each), STATIC (in proportion to compute nodes,
/// fixed at start), SIZE and PROCESS (in proportion to compute nodes or processes of the running
/// jobs), ORACLE (each job's best, whatever the pool), MCKP (the largest total bandwidth), FAIR (the
/// largest weighted total that leaves every job its share of STATIC), DFRA (scale, isolate or skip by
/// history).
#[derive(Args)]
#[command(after_long_help = AFTER)]
pub(crate) struct Allocate {
    /// The policy to decide by
    #[arg(long, value_name = "NAME")]
    policy: PolicyKind,

    /// I/O nodes there are to give
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    io_nodes: u32,

    /// The jobs; - is standard input
    #[arg(value_name = "JOBS.json")]
    jobs: PathBuf,

    /// Jobs may not go to the file system directly
    #[arg(long)]
    no_direct: bool,

    /// Compute nodes of the whole machine, over which STATIC divides the I/O nodes [default: those of
    /// the jobs given]
    #[arg(long, value_name = "N")]
    compute_nodes: Option<u32>,

    /// When one I/O node may be set aside to be shared
    #[arg(long, value_name = "WHEN", default_value = "needed", value_parser = ["needed", "better"])]
    sharing: String,

    /// FAIR: no job below this part of what STATIC would give it
    #[arg(long, value_name = "0..1", default_value_t = FairConfig::default().share, value_parser = args::share)]
    share: f64,

    /// FAIR: the part of its bandwidth that moving a running job costs
    #[arg(long, value_name = "0..1", default_value_t = FairConfig::default().move_cost, value_parser = args::share)]
    move_cost: f64,

    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
}

const AFTER: &str = r#"JOBS.json:
  [{"id": "ior", "compute_nodes": 16, "processes": 128,
    "curve": {"0": 500.0, "1": 268.4, "8": 5089.9}}, ...]

  curve     MB/s by I/O nodes ("0" is direct access); a job without one gets STATIC's default.
            Only counts that divide the job's compute nodes are offered to it.
  Optional: "app", "user" (text), "weight" (FAIR; 1), "current" (I/O nodes it holds now),
            "history" (DFRA: bytes, io_compute_nodes, mode "N-N"|"N-1"|"1-1", bandwidth_mbs,
            iops, metadata_rate, metadata_waiting).

With --json: {"policy", "io_nodes", "used", "total", "static_total", "share", "unpredicted",
"jobs": [{"id", "io_nodes", "shared", "bandwidth", "static_io_nodes", "static_bandwidth", "gain",
"alternatives", "why", ...}]}; bandwidths in MB/s, null where the curve does not say.

Example:
  forebay allocate --policy mckp --io-nodes 12 jobs.json"#;

/// A job's id as it was written, so that it comes back the same.
#[derive(Clone, Deserialize)]
#[serde(untagged, expecting = "an id must be text or a whole number")]
enum Id {
    Text(String),
    Number(i64),
}

#[derive(Deserialize)]
struct Entry {
    id: Id,
    compute_nodes: u32,
    processes: u32,
    curve: Option<BandwidthCurve>,
    #[serde(default)]
    app: String,
    #[serde(default)]
    user: String,
    #[serde(default = "one")]
    weight: f64,
    current: Option<u32>,
    history: Option<IoProfile>,
}

const FIELDS: [&str; 9] =
    ["id", "compute_nodes", "processes", "curve", "app", "user", "weight", "current", "history"];

fn one() -> f64 {
    1.0
}

impl Allocate {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let name = self.jobs.display().to_string();
        let text = if name == "-" {
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text).context("cannot read standard input")?;
            text
        } else {
            std::fs::read_to_string(&self.jobs).with_context(|| format!("cannot read {name}"))?
        };
        let (ids, jobs) = parse(&text).with_context(|| format!("{name}: not a set of jobs"))?;
        let pool = Pool {
            compute_nodes: self.compute_nodes,
            direct: !self.no_direct,
            sharing: if self.sharing == "better" { SharingRule::Better } else { SharingRule::Needed },
            ..Pool::of(self.io_nodes)
        };
        let fair = FairConfig { share: self.share, move_cost: self.move_cost, ..FairConfig::default() };
        let settings = Settings { fair, ..Settings::default() };
        let decision = self.policy.build(&settings)?.decide(&jobs, &pool)?;
        let explained = decision.explain(&jobs, &pool);
        // What STATIC would reach with the same jobs, where it has an answer that fits the pool.
        let fixed = forebay_policy::Static.decide(&jobs, &pool).ok();
        let fixed = fixed.filter(|d| d.used() <= u64::from(d.io_nodes)).map(|d| d.total);
        if self.json {
            println!("{}", serde_json::to_string_pretty(&to_json(&decision, &ids, &explained, fixed)?)?);
        } else {
            print_table(&decision, &explained, fixed);
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn parse(text: &str) -> anyhow::Result<(Vec<Id>, Vec<Job>)> {
    let entries: Vec<Entry> = serde_json::from_str(text)?;
    warn_of_unknown_fields(text)?;
    let (mut ids, mut jobs) = (Vec::new(), Vec::new());
    let mut seen = HashSet::new();
    for (i, e) in entries.into_iter().enumerate() {
        let id = match &e.id {
            Id::Text(t) => t.clone(),
            Id::Number(n) => n.to_string(),
        };
        if !seen.insert(id.clone()) {
            bail!("job {i}: there is another job with the id {id}");
        }
        if e.compute_nodes == 0 {
            bail!("job {id}: it needs at least one compute node");
        }
        if !(e.weight.is_finite() && e.weight > 0.0) {
            bail!("job {id}: weight {} is not above 0", e.weight);
        }
        let job = Job::new(id, e.compute_nodes, e.processes);
        let current = e.current.map(|io_nodes| Current { io_nodes, ..Current::default() });
        jobs.push(Job {
            app: e.app,
            user: e.user,
            curve: e.curve.map(Into::into),
            weight: e.weight,
            current,
            history: e.history,
            ..job
        });
        ids.push(e.id);
    }
    Ok((ids, jobs))
}

/// A misspelt field must not pass in silence.
fn warn_of_unknown_fields(text: &str) -> anyhow::Result<()> {
    let raw: Vec<serde_json::Map<String, Value>> = serde_json::from_str(text)?;
    let unknown: std::collections::BTreeSet<&String> =
        raw.iter().flat_map(|m| m.keys()).filter(|k| !FIELDS.contains(&k.as_str())).collect();
    for field in unknown {
        eprintln!("forebay: warning: field {field:?} of a job is not known and was ignored");
    }
    Ok(())
}

fn to_json(
    decision: &Decision,
    ids: &[Id],
    explained: &[Explanation],
    fixed: Option<Bandwidth>,
) -> anyhow::Result<Value> {
    let job = |(id, e): (&Id, &Explanation)| -> anyhow::Result<Value> {
        let mut value = serde_json::to_value(e)?;
        value["id"] = match id {
            Id::Text(t) => json!(t),
            Id::Number(n) => json!(n),
        };
        Ok(value)
    };
    let jobs = ids.iter().zip(explained).map(job).collect::<anyhow::Result<Vec<_>>>()?;
    Ok(json!({
        "policy": decision.policy,
        "io_nodes": decision.io_nodes,
        "used": decision.used(),
        "total": decision.total,
        "static_total": fixed,
        "share": decision.share,
        "unpredicted": decision.unpredicted(),
        "jobs": jobs,
    }))
}

fn print_table(decision: &Decision, explained: &[Explanation], fixed: Option<Bandwidth>) {
    let mbs = |b: Option<f64>| b.map_or("?".to_owned(), |b| format!("{b:.1}"));
    let header = ["job", "compute\nnodes", "I/O nodes", "MB/s", "STATIC", "gain", "why"];
    let mut table = table::new(&header, &["why"]);
    for e in explained {
        let nodes = match (e.io_nodes, e.shared) {
            (_, true) => "shared".to_owned(),
            (0, _) => "direct".to_owned(),
            (n, _) => n.to_string(),
        };
        let gain = e.gain.map_or(String::new(), |g| format!("{g:+.1}"));
        let fixed = format!("{} → {}", e.static_io_nodes, mbs(e.static_bandwidth.map(|b| b.0)));
        table.add_row([
            e.id.clone(),
            e.compute_nodes.to_string(),
            nodes,
            mbs(e.bandwidth.map(|b| b.0)),
            fixed,
            gain,
            e.why.clone(),
        ]);
    }
    println!("{table}");
    let compared = fixed.filter(|f| f.0 > 0.0 && decision.policy != PolicyKind::Static);
    let compared =
        compared.map_or(String::new(), |f| format!(", {:.2}× STATIC's {f}", decision.total.0 / f.0));
    println!(
        "{}: {} in total{compared}; {} of {} I/O nodes used",
        decision.policy,
        decision.total,
        decision.used(),
        decision.io_nodes
    );
    if let Some(share) = decision.share {
        println!("Every job keeps at least {:.0} % of what STATIC would give it.", share * 100.0);
    }
    if decision.used() > u64::from(decision.io_nodes) {
        println!("More are handed out than there are: jobs would share I/O nodes and get less than shown.");
    }
    match decision.unpredicted() {
        0 => {}
        n => {
            println!("{n} of {} jobs have no predicted bandwidth and are not in the total.", explained.len())
        }
    }
}
