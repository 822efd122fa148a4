//! The report at the end of a run: for a person, and as JSON.

use crate::launch::{Account, Plan};
use crate::route::Accelerated;
use forebay_client::{Config, HOUSEKEEPING, OpTotals};
use forebay_embed::{Imbalance, NodeOutcome, Note, imbalance};
use forebay_pattern::{Interval, Model};
use forebay_types::{JobBlame, Pattern, names};
use serde::Serialize;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

/// What a run did.
#[derive(Serialize)]
pub struct RunReport {
    /// The program: not its launcher, nor what only sets something up for it.
    application: String,
    command: Vec<String>,
    /// The exit status; absent if a signal ended it.
    status: Option<i32>,
    /// The signal that ended it.
    signal: Option<i32>,
    seconds: f64,
    /// By which front end the calls were caught, and why that one.
    front_end: &'static str,
    because: String,
    /// What went past the mount, straight to an I/O node; nothing where that was not possible, or not wanted.
    accelerator: Option<Accelerated>,
    forwarded: Vec<Forwarded>,
    bytes_read: u64,
    bytes_written: u64,
    operations: Vec<Operation>,
    /// How the files were accessed, as the I/O nodes saw it; the most bytes first.
    patterns: Vec<PatternShare>,
    io_nodes: Vec<NodeOutcome>,
    /// How many of the bytes that were written the I/O nodes that were asked know of, if that is less.
    #[serde(skip_serializing_if = "Option::is_none")]
    incomplete: Option<u64>,
    /// One of them moved more than twice what another did, and why.
    imbalance: Option<Imbalance>,
    not_forwarded: Vec<Note>,
    /// Ranks and hosts of a parallel program.
    ranks: Option<Account>,
    /// Where the time of its last requests went at the I/O nodes.
    time: Option<JobBlame>,
    job: String,
}

/// An access pattern, and how much was read and written in it.
#[derive(Serialize)]
struct PatternShare {
    pattern: Pattern,
    bytes: u64,
    /// Of all bytes.
    share: f64,
    /// Mean size of a request.
    request: f64,
}

#[derive(Serialize)]
struct Forwarded {
    dir: String,
    export: String,
}

#[derive(Serialize)]
struct Operation {
    name: &'static str,
    count: u64,
    errors: u64,
    bytes: u64,
    p50_us: f64,
    p95_us: f64,
    p99_us: f64,
    max_us: f64,
}

impl RunReport {
    /// What was counted, of which program, and how it ended.
    pub(crate) fn new(
        plan: &Plan,
        status: ExitStatus,
        seconds: f64,
        config: &Config,
        operations: Vec<OpTotals>,
        io_nodes: Vec<NodeOutcome>,
        not_forwarded: Vec<Note>,
    ) -> RunReport {
        let bytes =
            |names: &[&str]| operations.iter().filter(|o| names.contains(&o.name)).map(|o| o.bytes).sum();
        let us = |ns: u64| ns as f64 / 1000.0;
        RunReport {
            application: plan.app(),
            command: plan.command.iter().map(|c| c.to_string_lossy().into_owned()).collect(),
            status: status.code(),
            signal: status.signal(),
            seconds,
            front_end: "preload",
            because: String::new(),
            accelerator: None,
            forwarded: config
                .exports
                .iter()
                .map(|e| Forwarded { dir: e.dir.display().to_string(), export: e.export.clone() })
                .collect(),
            bytes_read: bytes(&["read"]),
            bytes_written: bytes(&["write", "append"]),
            operations: operations
                .iter()
                .map(|o| Operation {
                    name: o.name,
                    count: o.count,
                    errors: o.errors,
                    bytes: o.bytes,
                    p50_us: us(o.latency_ns[0]),
                    p95_us: us(o.latency_ns[1]),
                    p99_us: us(o.latency_ns[2]),
                    max_us: us(o.latency_ns[3]),
                })
                .collect(),
            patterns: patterns(&io_nodes),
            imbalance: imbalance(&io_nodes),
            incomplete: None,
            io_nodes,
            not_forwarded,
            ranks: None,
            time: None,
            job: config.job.clone(),
        }
    }
}

impl RunReport {
    /// These were its ranks and hosts.
    pub(crate) fn by(self, ranks: Option<Account>) -> RunReport {
        let RunReport { io_nodes, bytes_written, .. } = &self;
        let of_hosts = ranks.as_ref().filter(|r| !r.hosts.is_empty());
        let known = match of_hosts {
            Some(account) => account.hosts.iter().map(|host| host.written).sum(),
            None => io_nodes.iter().filter_map(NodeOutcome::totals).map(|t| t.written).sum(),
        };
        // What is read need not come from an I/O node each time.
        let incomplete = !io_nodes.is_empty() && known < bytes_written - bytes_written / 20;
        RunReport { incomplete: incomplete.then_some(known), ranks, ..self }
    }

    /// This is where its time went.
    pub(crate) fn slowed_by(self, blame: JobBlame) -> RunReport {
        RunReport { time: (blame.requests > 0).then_some(blame), ..self }
    }

    /// So much went past the mount.
    pub(crate) fn past(self, accelerator: Option<Accelerated>) -> RunReport {
        RunReport { accelerator, ..self }
    }

    /// The run had this front end, for this reason.
    pub(crate) fn through(self, front_end: &'static str, because: String) -> RunReport {
        RunReport { front_end, because, ..self }
    }
}

/// What the detector that ships with the program says to the nodes' intervals.
fn patterns(nodes: &[NodeOutcome]) -> Vec<PatternShare> {
    let model = Model::builtin();
    // Bytes moved, bytes asked for, requests.
    let mut sums: BTreeMap<Pattern, (u64, u64, u64)> = BTreeMap::new();
    for stats in nodes.iter().filter_map(|n| n.stats.as_ref()) {
        let intervals: Vec<Interval> = serde_json::from_value(stats["intervals"].clone()).unwrap_or_default();
        let mut last = None;
        for flow in intervals.iter().flat_map(|i| &i.flows) {
            // What only ends in an interval is of the pattern it began with.
            let began = if flow.bytes() > 0 { Some(model.detect(flow).pattern) } else { last };
            let Some(pattern) = began else { continue };
            last = began;
            let ((read, written), sum) = (flow.moved(), sums.entry(pattern).or_default());
            sum.0 += read + written;
            sum.1 += flow.bytes();
            sum.2 += flow.data_requests();
        }
    }
    let all: u64 = sums.values().map(|s| s.0).sum();
    let seen = |(pattern, (bytes, asked, requests)): (Pattern, (u64, u64, u64))| PatternShare {
        pattern,
        bytes,
        share: bytes as f64 / all.max(1) as f64,
        request: asked as f64 / requests.max(1) as f64,
    };
    let mut seen: Vec<PatternShare> = sums.into_iter().map(seen).collect();
    seen.sort_by_key(|s| std::cmp::Reverse(s.bytes));
    seen
}

/// So many characters of a command are shown; all of it is in the JSON.
const COMMAND_SHOWN: usize = 120;

/// A command as one line, whatever it is: a script may be long, and have many.
pub(crate) fn one_line(command: &[impl AsRef<OsStr>]) -> String {
    let words: Vec<_> = command.iter().map(|w| w.as_ref().to_string_lossy()).collect();
    let mut line = words.join(" ").split_whitespace().collect::<Vec<_>>().join(" ");
    line.retain(|c| !names::unseen(c));
    match line.char_indices().nth(COMMAND_SHOWN) {
        Some((cut, _)) => format!("{}…", &line[..cut]),
        None => line,
    }
}

/// Bytes that were moved, as people read them: in the units that rates have.
fn amount(bytes: u64) -> String {
    let units = ["B", "kB", "MB", "GB", "TB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 999.95 && unit + 1 < units.len() {
        value /= 1000.0;
        unit += 1;
    }
    if unit == 0 { format!("{bytes} B") } else { format!("{value:.1} {}", units[unit]) }
}

/// Microseconds as people read them.
fn time(us: f64) -> String {
    if us >= 1e6 {
        format!("{:.2} s", us / 1e6)
    } else if us >= 1e3 {
        format!("{:.1} ms", us / 1e3)
    } else {
        format!("{us:.0} µs")
    }
}

impl fmt::Display for RunReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line = "─".repeat(78);
        writeln!(f, "{line}")?;
        let end = match (self.status, self.signal) {
            (Some(status), _) => format!("exit status {status}"),
            (None, Some(signal)) => format!("killed by signal {signal}"),
            (None, None) => "its end was not seen".to_owned(),
        };
        let first = self.command.first().map(std::path::Path::new).and_then(|p| p.file_name());
        let name = match first == Some(OsStr::new(&self.application)) {
            true => String::new(),
            false => format!("{}: ", self.application),
        };
        writeln!(f, "forebay: {name}{} ({end}, {:.2} s)", one_line(&self.command), self.seconds)?;
        writeln!(f, "  through    the {} ({})", self.front_end, self.because)?;
        if let Some(a) = self.accelerator.filter(|a| a.calls > 0) {
            let plural = if a.processes == 1 { "" } else { "es" };
            writeln!(
                f,
                "  past it    {} calls of {} process{plural}, by the accelerator",
                a.calls, a.processes
            )?;
        }
        for e in &self.forwarded {
            if e.dir == e.export {
                writeln!(f, "  forwarded  {}", e.dir)?;
            } else {
                writeln!(f, "  forwarded  {} (served from {})", e.dir, e.export)?;
            }
        }
        if self.operations.is_empty() {
            writeln!(f, "  nothing was done below the forwarded directory")?;
        } else {
            let rate = |b: u64| if self.seconds > 0.0 { b as f64 / self.seconds / 1e6 } else { 0.0 };
            writeln!(
                f,
                "  read {} ({:.1} MB/s), written {} ({:.1} MB/s)\n",
                amount(self.bytes_read),
                rate(self.bytes_read),
                amount(self.bytes_written),
                rate(self.bytes_written)
            )?;
            writeln!(
                f,
                "  {:<12} {:>9} {:>8} {:>10} {:>9} {:>9} {:>9} {:>9}",
                "operation", "count", "failed", "bytes", "p50", "p95", "p99", "max"
            )?;
            for o in &self.operations {
                let bytes = if o.bytes > 0 { amount(o.bytes) } else { "–".into() };
                writeln!(
                    f,
                    "  {:<12} {:>9} {:>8} {:>10} {:>9} {:>9} {:>9} {:>9}",
                    o.name,
                    o.count,
                    o.errors,
                    bytes,
                    time(o.p50_us),
                    time(o.p95_us),
                    time(o.p99_us),
                    time(o.max_us)
                )?;
            }
        }
        if self.operations.iter().any(|o| o.name == HOUSEKEEPING) {
            writeln!(f, "  ({HOUSEKEEPING}: open files made known to other processes and I/O nodes)")?;
        }
        writeln!(f)?;
        for s in self.patterns.iter().filter(|s| s.share >= 0.01) {
            let request = forebay_plot::bytes(s.request);
            writeln!(
                f,
                "  access pattern  {} ({:.0} % of the bytes, requests of {request})",
                s.pattern,
                s.share * 100.0
            )?;
        }
        if let Some(blame) = &self.time {
            let parts = blame.parts(&self.job).into_iter().filter(|(share, _)| *share >= 0.01).take(4);
            let parts: Vec<String> = parts.map(|(s, what)| format!("{:.0} % {what}", s * 100.0)).collect();
            writeln!(f, "  at I/O nodes    {} (of the last {} requests)", parts.join(", "), blame.requests)?;
        }
        if let Some(ranks) = self.ranks.as_ref().filter(|r| !r.hosts.is_empty() || !r.missing.is_empty()) {
            write_ranks(f, ranks)?;
        }
        for n in &self.io_nodes {
            // One that did not answer did not say its number either.
            match n.stats.is_none() && n.problem.is_some() {
                true => write!(f, "  I/O node at {}  ", n.address)?,
                false => write!(f, "  I/O node {}  ", n.node)?,
            }
            match n.totals() {
                Some(t) => {
                    write!(
                        f,
                        "{} requests, {} read, {} written",
                        t.requests,
                        amount(t.read),
                        amount(t.written)
                    )?;
                }
                None => write!(f, "no statistics")?,
            }
            match &n.problem {
                Some(p) => writeln!(f, " ({p})")?,
                None => writeln!(f)?,
            }
        }
        if let Some(known) = self.incomplete {
            let [known, written] = [known, self.bytes_written].map(amount);
            writeln!(
                f,
                "  incomplete  the I/O nodes that were asked know of {known} of {written} written: others took the rest, \
                 or were restarted since"
            )?;
        }
        if let Some(i) = &self.imbalance {
            let ratio = i.ratio.map_or("everything".into(), |r| format!("{r:.1} times as much"));
            writeln!(
                f,
                "  imbalance   node {} moved {ratio}, node {} the least: {}",
                i.busiest, i.idlest, i.cause
            )?;
        }
        if !self.not_forwarded.is_empty() {
            writeln!(f, "\n  not forwarded, or not as usual:")?;
            for n in self.not_forwarded.iter().take(20) {
                let times = if n.count > 1 { format!(" ({} times)", n.count) } else { String::new() };
                let what = if n.path.is_empty() { &n.kind } else { &n.path };
                let by = if n.program.is_empty() { String::new() } else { format!(" [{}]", n.program) };
                writeln!(f, "    {what}: {}{by}{times}", n.why)?;
            }
            if self.not_forwarded.len() > 20 {
                writeln!(f, "    … and {} more (see --report)", self.not_forwarded.len() - 20)?;
            }
        }
        writeln!(f, "{line}")
    }
}

/// So many hosts are shown; all are in the JSON.
const HOSTS_SHOWN: usize = 32;

fn write_ranks(f: &mut fmt::Formatter<'_>, account: &Account) -> fmt::Result {
    match account.ranks {
        Some(ranks) => writeln!(f, "  ranks      {} of {ranks} forwarded", account.forwarded)?,
        None => writeln!(f, "  ranks      {} seen", account.forwarded)?,
    }
    for missing in &account.missing {
        writeln!(f, "  error      {missing}")?;
    }
    let head = ["host", "ranks", "requests", "read", "written", "at I/O nodes", "by"];
    let row = |c: [&str; 7]| {
        format!("  {:<16} {:>9} {:>9} {:>10} {:>10} {:>13}  {}", c[0], c[1], c[2], c[3], c[4], c[5], c[6])
    };
    writeln!(f, "{}", row(head))?;
    for host in account.hosts.iter().take(HOSTS_SHOWN) {
        let (requests, nodes) = (host.requests.to_string(), host.nodes.iter().cloned().collect::<Vec<_>>());
        let (read, written, seconds) = (amount(host.read), amount(host.written), time(host.seconds * 1e6));
        let by = nodes.join(", ");
        writeln!(f, "{}", row([&host.host, &host.ranks_text(), &requests, &read, &written, &seconds, &by]))?;
    }
    if account.hosts.len() > HOSTS_SHOWN {
        writeln!(f, "  … and {} more hosts (see --report)", account.hosts.len() - HOSTS_SHOWN)?;
    }
    for (what, spread) in [("rank", &account.per_rank), ("host", &account.per_host)] {
        if let Some(s) = spread {
            let [min, median, max] = [s.min, s.median, s.max].map(|seconds| time(seconds * 1e6));
            writeln!(f, "  per {what}   {min} least, {median} median, {max} most ({})", s.slowest)?;
        }
    }
    writeln!(f)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_script_is_one_line() {
        assert_eq!(one_line(&["sh", "-c", "echo a\n\techo b\u{1b}[1m"]), "sh -c echo a echo b[1m");
        let long = one_line(&["sh", "-c", &"é".repeat(5000)]);
        assert_eq!((long.chars().count(), long.ends_with('…')), (COMMAND_SHOWN + 1, true));
    }
}
