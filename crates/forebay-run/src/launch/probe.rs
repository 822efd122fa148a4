//! Looking before the program runs: the launcher starts a shell in place of every rank, which says where it
//! is and what it finds there; and asking the I/O nodes whom they have seen.

use super::account::{Complaints, Missing};
use super::earlier::subtract;
use super::plan::Plan;
use forebay_client::{Address, Client, Config};
use forebay_embed::{NodeOutcome, Note};
use forebay_types::{ClientReport, JobBlame, Nanos, Starter, same_host};
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;

/// How long an I/O node may take to say whom it has seen.
const ASK_MS: u64 = 5000;

/// The line that every rank says.
const MARK: &str = "forebay-rank";
/// What the library has noted where only the rank sees it.
const NOTED: &str = "forebay-noted";

/// A rank, as it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Started {
    /// Where.
    pub host: String,
    /// Which.
    pub rank: u32,
    /// The library and the configuration can be read there.
    pub library: bool,
    /// The configuration can be read there.
    pub config: bool,
}

/// What a look brought.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Probed {
    /// The ranks that the launcher started.
    pub started: Vec<Started>,
    /// What the library has said to them alone.
    pub noted: Vec<Note>,
}

/// The command that looks, in place of the plan's own: a shell at every rank. Where each rank joins the job by itself,
/// so do the shells, and look at what they have been given.
pub fn preflight(plan: &Plan, library: &Path, config: &Path) -> Vec<OsString> {
    let (launch, joining) = (&plan.launch, plan.joining());
    let rank = match launch.starter {
        Some(Starter::OpenMpi) => "${OMPI_COMM_WORLD_RANK:-${PMIX_RANK:-0}}",
        Some(Starter::Hydra) => "${PMI_RANK:-0}",
        Some(Starter::Slurm) => "${SLURM_PROCID:-0}",
        None => "0",
    };
    let quoted = |p: &Path| format!("'{}'", p.to_string_lossy().replace('\'', "'\\''"));
    let (library, config) = match joining {
        0 => (quoted(library), quoted(config)),
        _ => ("\"${LD_PRELOAD%%:*}\"".to_owned(), "\"$FOREBAY_CONFIG\"".to_owned()),
    };
    // Who joins has a directory of their own, which is not seen from here.
    let noted = match joining {
        0 => String::new(),
        _ => format!(
            "; while read -r n; do printf '{NOTED} %s\\n' \"$n\"; done < \"${{FOREBAY_CONFIG%/*}}/notes\""
        ),
    };
    let script = format!(
        "l=no; c=no; [ -r {library} ] && l=yes; [ -r {config} ] && c=yes; echo {MARK} \"$(uname -n)\" {rank} $l $c{noted}"
    );
    let joined =
        plan.command.get(launch.program..).and_then(|words| words.get(..joining)).unwrap_or_default();
    let shell: [OsString; 3] = ["/bin/sh".into(), "-c".into(), script.into()];
    launch.with_program(&plan.command, &[joined, &shell].concat())
}

/// What the shells said.
pub fn read_probe(said: &str) -> Probed {
    let started = said.lines().filter_map(|line| {
        // Some launchers write the rank in front.
        let words = line.split_once(MARK)?.1.split_whitespace().collect::<Vec<_>>();
        let [host, rank, library, config] = words.as_slice() else { return None };
        Some(Started {
            host: (*host).to_owned(),
            rank: rank.parse().ok()?,
            library: *library == "yes",
            config: *config == "yes",
        })
    });
    let noted = |line: &str| serde_json::from_str::<Note>(line.split_once(NOTED)?.1.trim()).ok();
    Probed { started: started.collect(), noted: said.lines().filter_map(noted).collect() }
}

impl Probed {
    /// Who was started but did not come to an I/O node, by host, and why: what the rank has `told` itself, if it has.
    pub fn missing(
        &self,
        seen: &[(String, Vec<ClientReport>)],
        told: &Complaints,
        (library, config): (&Path, &Path),
    ) -> Vec<Missing> {
        let came = |s: &Started, alone: bool| {
            let all = || seen.iter().flat_map(|(_, clients)| clients);
            all().any(|c| c.host == s.host && (c.rank == Some(s.rank) || alone))
        };
        let alone = self.started.len() == 1;
        let mut by_host: BTreeMap<(&str, String), Vec<u32>> = BTreeMap::new();
        for s in self.started.iter().filter(|s| !(s.library && s.config && came(s, alone))) {
            let why = match (s.library, s.config) {
                (false, _) => format!("{} cannot be read there", library.display()),
                (_, false) => format!("{} cannot be read there", config.display()),
                _ => match told.get(&s.rank).filter(|(host, _)| same_host(host, &s.host)) {
                    Some((_, why)) => why.clone(),
                    None => "no process there came to an I/O node, and the library has not said why: it was not loaded, \
                             or could not leave a word where it is"
                        .to_owned(),
                },
            };
            by_host.entry((&s.host, why)).or_default().push(s.rank);
        }
        let missing = |((host, why), mut ranks): ((&str, String), Vec<u32>)| {
            ranks.sort_unstable();
            Missing { hosts: vec![host.to_owned()], ranks, why }
        };
        by_host.into_iter().map(missing).collect()
    }
}

#[derive(Deserialize)]
struct Answer {
    #[serde(default)]
    clients: Vec<ClientReport>,
    #[serde(default)]
    blame: Option<Box<JobBlame>>,
    /// As an I/O node counts it: see [`NodeOutcome`].
    #[serde(default)]
    job: Option<Value>,
}

/// What the I/O nodes of an arbiter have served of the job; of one that does not answer, why. `before`: what
/// they had counted when the run began, of an earlier one of the same name; `began`: when that was.
pub fn served(config: &Config, nodes: &[Address], before: &[NodeOutcome], began: Nanos) -> Vec<NodeOutcome> {
    let of = |(n, address): (usize, &Address)| {
        let (node, address) = (n, address.to_string());
        match ask(config, &nodes[n], br#"{"cmd":"job"}"#).map(|answer| answer.job) {
            Ok(Some(mut stats)) => {
                let node = stats["node"].as_u64().and_then(|n| usize::try_from(n).ok()).unwrap_or(node);
                let old = before.iter().find(|o| o.address == address).and_then(|o| o.stats.as_ref());
                old.into_iter().for_each(|old| subtract(&mut stats, old));
                if let Some(intervals) = stats.get_mut("intervals").and_then(Value::as_array_mut) {
                    intervals.retain(|i| i["end"].as_u64().is_some_and(|end| end > began.0));
                }
                NodeOutcome { node, address, problem: None, stats: Some(stats) }
            }
            Ok(None) => NodeOutcome { node, address, problem: Some("it does not say".into()), stats: None },
            Err(e) => {
                let problem = Some(format!("it could not be asked what it has served: {e}"));
                NodeOutcome { node, address, problem, stats: None }
            }
        }
    };
    nodes.iter().enumerate().map(of).collect()
}

/// By I/O node, whom it has seen.
pub type ClientsByNode = Vec<(String, Vec<ClientReport>)>;

/// Leaves of what was seen who came since `before`.
pub fn since(seen: &mut ClientsByNode, before: &ClientsByNode) {
    for (node, clients) in seen {
        let old = before.iter().find(|(n, _)| n == node).map_or(&[][..], |(_, clients)| clients);
        for client in clients.iter_mut() {
            let same = old.iter().find(|o| (&o.host, o.rank) == (&client.host, client.rank));
            same.into_iter().for_each(|same| client.subtract(same));
        }
        clients.retain(|c| c.processes > 0);
    }
}

/// Whom each of the job's I/O nodes has seen; and what those said that could not be asked.
pub fn clients(config: &Config, nodes: &[Address]) -> (ClientsByNode, Vec<String>) {
    let (mut seen, mut failed) = (Vec::new(), Vec::new());
    for node in nodes {
        match ask(config, node, br#"{"cmd":"clients"}"#) {
            Ok(answer) => seen.push((node.to_string(), answer.clients)),
            Err(e) => failed.push(format!("{node} could not be asked whom it has seen: {e}")),
        }
    }
    (seen, failed)
}

/// Asks each of these I/O nodes where the time of the job's last requests went; those that do not answer are
/// left out. `before` and `began` as in [`served`].
pub fn blamed(config: &Config, nodes: &[Address], before: &[NodeOutcome], began: Nanos) -> JobBlame {
    let mut all = JobBlame::default();
    let answers = nodes.iter().filter_map(|node| {
        let since = began_there(before, node, began);
        let command = serde_json::json!({ "cmd": "blame", "job": config.job, "since": since }).to_string();
        ask(config, node, command.as_bytes()).ok()
    });
    answers.filter_map(|answer| answer.blame).for_each(|blame| all.add(&blame));
    all
}

/// When the run began by the clock of an I/O node, if that was asked then; without an earlier run of the name
/// all is its own.
fn began_there(before: &[NodeOutcome], node: &Address, began: Nanos) -> Nanos {
    if before.is_empty() {
        return Nanos::ZERO;
    }
    let then = before.iter().find(|o| o.address == node.to_string()).and_then(|o| o.stats.as_ref());
    then.and_then(|stats| stats["time"].as_u64()).map_or(began, Nanos)
}

/// Asks one I/O node, as the job.
fn ask(config: &Config, node: &Address, command: &[u8]) -> Result<Answer, String> {
    let deadline_ms = config.deadline_ms.min(ASK_MS);
    let one =
        Config { nodes: vec![node.clone()], spare: Vec::new(), deadline_ms, outside: true, ..config.clone() };
    let client = Client::new(one, None).map_err(|e| e.to_string())?;
    let answer = client.control(0, command).map_err(|e| e.to_string());
    client.leave();
    serde_json::from_slice(&answer?).map_err(|e| e.to_string())
}

#[cfg(test)]
mod tests {
    use super::super::{BatchJob, Launch};
    use super::*;

    #[test]
    fn a_run_begins_by_the_clock_of_each_node() {
        let node = |n: usize| format!("tcp:127.0.0.1:{n}").parse::<Address>().unwrap();
        let outcome =
            |n: usize, stats| NodeOutcome { node: n, address: node(n).to_string(), problem: None, stats };
        let before = [outcome(1, Some(serde_json::json!({ "time": 5 }))), outcome(2, None)];
        let began = |n| began_there(&before, &node(n), Nanos(77)).0;
        assert_eq!([began(1), began(2), began(3)], [5, 77, 77]);
        assert_eq!(began_there(&[], &node(1), Nanos(77)), Nanos::ZERO);
    }

    #[test]
    fn ranks_that_join_look_as_they_would_run() {
        let script = |line: &str| {
            let command: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            let plan = Plan {
                launch: Launch::read(&command, 0, Some(Starter::OpenMpi)),
                command,
                batch: BatchJob::default(),
                hosts: Vec::new(),
                ranks: None,
                here: "c1".into(),
            };
            let words = preflight(&plan, Path::new("/l.so"), Path::new("/c"));
            words.iter().map(|w| w.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
        };
        let plain = script("mpirun -n 2 env A=1 ./app");
        assert!(plain.starts_with("mpirun -n 2 /bin/sh -c l=no; c=no; [ -r '/l.so' ]"), "{plain}");
        let joined = script("mpirun -n 2 env A=1 forebay join --secret-file /s -- ./app");
        let begin = "mpirun -n 2 env A=1 forebay join --secret-file /s -- /bin/sh -c l=no; c=no; [ -r \"${LD_PRELOAD%%:*}\" ]";
        assert!(joined.starts_with(begin), "{joined}");
    }

    #[test]
    fn a_look_itself_is_not_counted() {
        let client = |rank, processes, written| ClientReport {
            host: "c1".into(),
            rank: Some(rank),
            processes,
            written,
            requests: processes,
            ..ClientReport::default()
        };
        let before = vec![("n".to_owned(), vec![client(0, 1, 5), client(1, 1, 5)])];
        let mut seen = vec![("n".to_owned(), vec![client(0, 3, 25), client(1, 1, 5)])];
        since(&mut seen, &before);
        assert_eq!(seen[0].1, [client(0, 2, 20)]);
    }

    #[test]
    fn a_look_says_who_and_why() {
        let note = r#"forebay-noted {"kind":"rank","path":"rank 4 of host c3","why":"not let in","program":"sh","pid":7}"#;
        let told = super::super::complaints(&read_probe(&format!("3: {note}\nforebay-noted {{")).noted);
        assert_eq!(told, Complaints::from([(4, ("c3".to_owned(), "not let in".to_owned()))]));
        let said = "noise\nforebay-rank c1 0 yes yes\n3: forebay-rank c2 3 no yes\nforebay-rank c2 2 no yes\nforebay-rank c3 4 yes yes\nforebay-rank x";
        let probed = read_probe(said);
        assert_eq!(probed.started.len(), 4);
        let client = ClientReport { host: "c1".into(), rank: Some(0), ..ClientReport::default() };
        let refused = "reached no I/O node when it started: tcp:10.0.0.4:7411: wrong credentials";
        let told =
            Complaints::from([(4, ("c3".to_owned(), refused.to_owned())), (0, ("c1".into(), "x".into()))]);
        let files = (Path::new("/l.so"), Path::new("/c"));
        let missing = probed.missing(&[("n".into(), vec![client])], &told, files);
        let said: Vec<String> = missing.iter().map(ToString::to_string).collect();
        assert_eq!(
            said,
            [
                "ranks 2-3 of host c2 not forwarded: /l.so cannot be read there",
                &format!("rank 4 of host c3 not forwarded: {refused}")
            ]
        );
    }
}
