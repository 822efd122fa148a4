//! What the batch system says of the job that this runs in.

use forebay_types::hostlist;
use std::path::Path;

/// The job of a batch system, as its variables tell it. What they do not tell is absent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BatchJob {
    /// Its number, with the array's index where it is one of many.
    pub id: Option<String>,
    /// On whose account it runs.
    pub account: Option<String>,
    /// The hosts it has.
    pub hosts: Vec<String>,
    /// How many tasks it was given.
    pub tasks: Option<u32>,
}

impl BatchJob {
    /// From the environment; `read` reads a file.
    pub fn of(env: impl Fn(&str) -> Option<String>, read: impl Fn(&Path) -> Option<String>) -> BatchJob {
        let first = |names: &[&str]| names.iter().find_map(|n| env(n).filter(|v| !v.is_empty()));
        let array = first(&["SLURM_ARRAY_JOB_ID"]).zip(first(&["SLURM_ARRAY_TASK_ID"]));
        let file = first(&["PBS_NODEFILE", "OAR_NODEFILE", "PE_HOSTFILE", "LSB_DJOB_HOSTFILE"]);
        let hosts = first(&["SLURM_JOB_NODELIST", "SLURM_NODELIST"]).and_then(|list| hostlist::expand(&list));
        BatchJob {
            id: match array {
                Some((job, task)) => Some(format!("{job}_{task}")),
                None => first(&["SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "OAR_JOB_ID"]),
            },
            account: first(&["SLURM_JOB_ACCOUNT", "PBS_ACCOUNT", "LSB_PROJECT_NAME"]),
            hosts: hosts.or_else(|| Some(hostlist::lines(&read(Path::new(&file?))?))).unwrap_or_default(),
            tasks: first(&["SLURM_NTASKS", "PBS_NP", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE"])
                .and_then(|n| n.parse().ok())
                .or_else(|| first(&["SLURM_TASKS_PER_NODE"]).and_then(|text| in_all(&text))),
        }
    }

    /// From this process's own environment.
    pub fn here() -> BatchJob {
        // A file of hosts is short; what is longer is something else.
        let read = |path: &Path| {
            let small = std::fs::metadata(path).is_ok_and(|m| m.len() < 16 << 20);
            std::fs::read_to_string(path).ok().filter(|_| small)
        };
        BatchJob::of(|name| std::env::var(name).ok(), read)
    }
}

/// `2(x3),1` is 7: by host, how many, and for how many hosts.
fn in_all(text: &str) -> Option<u32> {
    let of = |part: &str| match part.split_once("(x") {
        Some((tasks, hosts)) => {
            tasks.parse::<u32>().ok()?.checked_mul(hosts.strip_suffix(')')?.parse().ok()?)
        }
        None => part.parse().ok(),
    };
    text.split(',').try_fold(0_u32, |sum, part| sum.checked_add(of(part)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(given: &[(&str, &str)]) -> BatchJob {
        let env = |name: &str| given.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned());
        BatchJob::of(env, |path| (path == Path::new("/nodes")).then(|| "c1\nc1\nc2\n".to_owned()))
    }

    #[test]
    fn batch_systems() {
        let slurm = of(&[
            ("SLURM_JOB_ID", "12"),
            ("SLURM_JOB_NODELIST", "c[1-2]"),
            ("SLURM_NTASKS", "4"),
            ("SLURM_JOB_ACCOUNT", "engines"),
        ]);
        let hosts = vec!["c1".to_owned(), "c2".to_owned()];
        let [id, account] = ["12", "engines"].map(|text| Some(text.to_owned()));
        assert_eq!(slurm, BatchJob { id, account, hosts: hosts.clone(), tasks: Some(4) });
        // Without a number of tasks, as many as the hosts are given.
        let tasks = |each| of(&[("SLURM_TASKS_PER_NODE", each)]).tasks;
        assert_eq!(["2(x3),1", "1", "4(x2"].map(tasks), [Some(7), Some(1), None]);
        assert_eq!(tasks("4000000000(x2)"), None);
        let array = of(&[("SLURM_JOB_ID", "14"), ("SLURM_ARRAY_JOB_ID", "12"), ("SLURM_ARRAY_TASK_ID", "2")]);
        assert_eq!(array.id.as_deref(), Some("12_2"));
        let pbs = of(&[("PBS_JOBID", "7.server"), ("PBS_NODEFILE", "/nodes"), ("PBS_NP", "x")]);
        assert_eq!((pbs.id.as_deref(), pbs.hosts, pbs.tasks), (Some("7.server"), hosts, None));
        assert_eq!(of(&[("PBS_NODEFILE", "/gone")]), BatchJob::default());
    }
}
