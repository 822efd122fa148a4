//! A command line that starts a parallel program: which launcher it is, where the program's name stands,
//! how many ranks on which hosts, and how the launcher is told to pass variables on.

use forebay_types::{Starter, hostlist};
use std::ffi::OsString;
use std::path::PathBuf;

/// What a command line starts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Launch {
    /// By which launcher, if one is recognised.
    pub starter: Option<Starter>,
    /// Where its name stands in the command: what only sets something up for it (`env A=1`) may come before.
    at: usize,
    /// Where the name of the program stands in the command: 0 without a launcher.
    pub program: usize,
    /// How many ranks it says.
    pub ranks: Option<u32>,
    /// The hosts it names, neighbours beside each other.
    pub hosts: Vec<String>,
    /// A file with their names.
    pub host_file: Option<PathBuf>,
    /// What it uses in place of `ssh`.
    pub agent: Option<String>,
    /// Whether one command starts several programs (`:`).
    contexts: Vec<usize>,
}

/// Options of OpenMPI's `mpirun` that have a value; those of two are apart.
const OPENMPI: &[&str] = &[
    "n",
    "np",
    "c",
    "N",
    "H",
    "host",
    "hostfile",
    "machinefile",
    "default-hostfile",
    "map-by",
    "bind-to",
    "rank-by",
    "x",
    "prefix",
    "wdir",
    "wd",
    "path",
    "output-filename",
    "timeout",
    "npernode",
    "npersocket",
    "am",
    "tune",
    "stdin",
    "personality",
    "slot-list",
    "cpu-set",
    "cpu-list",
    "rankfile",
    "rf",
    "report-uri",
    "app",
    "max-restarts",
    "output",
    "dvm",
];
const HYDRA: &[&str] = &[
    "n",
    "np",
    "hosts",
    "host",
    "f",
    "hostfile",
    "machinefile",
    "ppn",
    "perhost",
    "launcher",
    "bootstrap",
    "rmk",
    "launcher-exec",
    "bootstrap-exec",
    "bind-to",
    "map-by",
    "membind",
    "genvlist",
    "envlist",
    "wdir",
    "path",
    "iface",
    "outfile-pattern",
    "errfile-pattern",
    "nameserver",
    "configfile",
    "order-nodes",
    "pmi-port",
];
const SRUN: &[&str] = &[
    "ntasks",
    "nodes",
    "cpus-per-task",
    "nodelist",
    "exclude",
    "partition",
    "account",
    "job-name",
    "time",
    "output",
    "error",
    "input",
    "chdir",
    "distribution",
    "threads",
    "constraint",
    "dependency",
    "relative",
    "qos",
    "clusters",
    "licenses",
    "gpus",
    "mem",
    "mem-per-cpu",
    "ntasks-per-node",
    "ntasks-per-core",
    "ntasks-per-socket",
    "export",
    "mpi",
    "cpu-bind",
    "mem-bind",
    "reservation",
    "nodefile",
    "jobid",
    "wait",
    "cores-per-socket",
    "sockets-per-node",
    "tmp",
    "comment",
    "gres",
    "gpus-per-node",
    "gpus-per-task",
    "hint",
    "network",
    "open-mode",
    "prolog",
    "epilog",
    "task-prolog",
    "task-epilog",
    "profile",
    "slurmd-debug",
    "signal",
    "switches",
    "begin",
    "deadline",
    "uid",
    "gid",
    "container",
    "het-group",
    "threads-per-core",
    "cpu-freq",
];
/// Letters of `srun` that have a value, and the long names of those that matter here.
const SRUN_LETTERS: &str = "nNcwxpAJtoeiDmTCdrqMLGSBW";

impl Launch {
    /// Reads a command whose word `first` is the launcher `starter`.
    pub fn read(command: &[OsString], first: usize, starter: Option<Starter>) -> Launch {
        let mut launch = Launch { starter, at: first, ..Launch::default() };
        let Some(starter) = starter else { return launch };
        let text: Vec<String> = command.iter().map(|c| c.to_string_lossy().into_owned()).collect();
        let mut at = first + 1;
        while let Some((name, value, words)) = text.get(at..).and_then(|rest| option(starter, rest)) {
            launch.take(starter, &name, value.as_deref());
            at += words;
        }
        launch.program = at.min(command.len().saturating_sub(1));
        if starter != Starter::Slurm {
            let colons = text.iter().enumerate().skip(at).filter(|(_, word)| *word == ":");
            launch.contexts = colons.map(|(i, _)| i + 1).collect();
            for &from in &launch.contexts.clone() {
                launch.add_ranks(starter, text.get(from..).unwrap_or_default());
            }
        }
        launch
    }

    fn take(&mut self, starter: Starter, name: &str, value: Option<&str>) {
        let number = || value.and_then(|v| v.parse().ok());
        let text = || value.unwrap_or_default();
        match (starter, name) {
            (Starter::OpenMpi, "n" | "np" | "c")
            | (Starter::Hydra, "n" | "np")
            | (Starter::Slurm, "ntasks") => {
                self.ranks = number();
            }
            (Starter::OpenMpi, "H" | "host") | (Starter::Hydra, "hosts" | "host") => {
                self.hosts = hostlist::with_slots(text());
            }
            (Starter::Slurm, "nodelist") => self.hosts = hostlist::expand(text()).unwrap_or_default(),
            (Starter::OpenMpi, "hostfile" | "machinefile" | "default-hostfile")
            | (Starter::Hydra, "f" | "hostfile" | "machinefile") => self.host_file = value.map(PathBuf::from),
            (Starter::OpenMpi, "mca" | "omca") => {
                let agent = text().split_once(' ').filter(|(key, _)| key.ends_with("_rsh_agent"));
                self.agent = agent.map(|(_, agent)| agent.to_owned()).or(self.agent.take());
            }
            (Starter::Hydra, "launcher-exec" | "bootstrap-exec") => self.agent = value.map(str::to_owned),
            _ => {}
        }
    }

    /// The ranks of a further program of the same command.
    fn add_ranks(&mut self, starter: Starter, words: &[String]) {
        let mut at = 0;
        let before = self.ranks.take();
        while let Some((name, value, n)) = words.get(at..).and_then(|rest| option(starter, rest)) {
            if matches!(name.as_str(), "n" | "np" | "c") {
                self.take(starter, &name, value.as_deref());
            }
            at += n;
        }
        self.ranks = before.zip(self.ranks).map(|(a, b)| a.saturating_add(b));
    }

    /// The command, with these variables passed on to every host: OpenMPI has to be told, the other launchers do.
    pub fn passing(&self, command: &[OsString], variables: &[&str]) -> Vec<OsString> {
        if self.starter.is_none() {
            return super::elsewhere::passing(command, variables);
        }
        if self.starter != Some(Starter::OpenMpi) {
            return command.to_vec();
        }
        let options = || variables.iter().flat_map(|v| ["-x".into(), OsString::from(v)]);
        let mut all = Vec::with_capacity(command.len() + 2 * variables.len());
        for (at, word) in command.iter().enumerate() {
            if self.contexts.contains(&at) {
                all.extend(options());
            }
            all.push(word.clone());
            if at == self.at {
                all.extend(options());
            }
        }
        all
    }

    /// The same command with another program in place of its own.
    pub fn with_program(&self, command: &[OsString], program: &[OsString]) -> Vec<OsString> {
        let mut all: Vec<OsString> = match self.starter {
            Some(_) => command.get(..self.program).unwrap_or_default().to_vec(),
            None => Vec::new(),
        };
        all.extend_from_slice(program);
        all
    }

    /// The same command with further options for the launcher.
    pub fn with_options(&mut self, command: &[OsString], options: Vec<OsString>) -> Vec<OsString> {
        self.program += options.len();
        self.contexts.iter_mut().for_each(|at| *at += options.len());
        let (first, rest) = command.split_at((self.at + 1).min(command.len()));
        first.iter().cloned().chain(options).chain(rest.iter().cloned()).collect()
    }
}

/// The option that `words` begin with: its name, its value, and how many words it is.
fn option(starter: Starter, words: &[String]) -> Option<(String, Option<String>, usize)> {
    let word = words.first()?;
    let bare = word.strip_prefix('-').filter(|w| !w.is_empty())?;
    let next = || words.get(1).cloned();
    if let (Starter::Slurm, Some(letter), false) = (starter, bare.chars().next(), bare.starts_with('-')) {
        let long = match letter {
            'n' => "ntasks",
            'N' => "nodes",
            'w' => "nodelist",
            _ => "",
        };
        if !SRUN_LETTERS.contains(letter) {
            return Some((String::new(), None, 1));
        }
        let attached = bare[letter.len_utf8()..].to_owned();
        return Some(match attached.is_empty() {
            true => (long.to_owned(), next(), 2),
            false => (long.to_owned(), Some(attached), 1),
        });
    }
    let name = bare.trim_start_matches('-');
    if name.is_empty() {
        return None;
    }
    if let Some((name, value)) = name.split_once('=') {
        return Some((name.to_owned(), Some(value.to_owned()), 1));
    }
    let pair = || words.get(1).zip(words.get(2)).map(|(a, b)| format!("{a} {b}"));
    let (table, pairs): (&[&str], &[&str]) = match starter {
        Starter::OpenMpi => (OPENMPI, &["mca", "gmca", "omca", "pmixmca", "prtemca"]),
        Starter::Hydra => (HYDRA, &["genv", "env"]),
        Starter::Slurm => (SRUN, &[]),
    };
    Some(match name {
        _ if pairs.contains(&name) => (name.to_owned(), pair(), 3),
        _ if table.contains(&name) => (name.to_owned(), next(), 2),
        _ => (name.to_owned(), None, 1),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    fn read(line: &str, starter: Starter) -> (String, Option<u32>, String, Option<String>) {
        let command = words(line);
        let l = Launch::read(&command, 0, Some(starter));
        (command[l.program].to_string_lossy().into_owned(), l.ranks, l.hosts.join(" "), l.agent)
    }

    #[test]
    fn openmpi() {
        let line = "mpirun --allow-run-as-root --mca plm_rsh_agent /x/ssh -np 6 --host c1:2,c2:2 -x A --bind-to none ./app -n 3";
        let agent = Some("/x/ssh".to_owned());
        assert_eq!(read(line, Starter::OpenMpi), ("./app".into(), Some(6), "c1 c2".into(), agent));
        let two = words("mpirun -n 2 ./a -n 9 : -n 3 ./b");
        let l = Launch::read(&two, 0, Some(Starter::OpenMpi));
        assert_eq!((l.program, l.ranks), (3, Some(5)));
        let passed = l.passing(&two, &["V"]);
        let text: Vec<_> = passed.iter().map(|w| w.to_string_lossy()).collect();
        assert_eq!(text.join(" "), "mpirun -x V -n 2 ./a -n 9 : -x V -n 3 ./b");
        let wrapped = words("env A=1 mpirun -n 2 ./a : -n 3 ./b");
        let l = Launch::read(&wrapped, 2, Some(Starter::OpenMpi));
        assert_eq!((l.program, l.ranks), (5, Some(5)));
        assert_eq!(l.passing(&wrapped, &["V"]), words("env A=1 mpirun -x V -n 2 ./a : -x V -n 3 ./b"));
    }

    #[test]
    fn hydra() {
        let line = "mpiexec -launcher ssh -launcher-exec /x/ssh -hosts c1,c2 -genv A 1 -n 6 ./app";
        let agent = Some("/x/ssh".to_owned());
        assert_eq!(read(line, Starter::Hydra), ("./app".into(), Some(6), "c1 c2".into(), agent));
        let command = words(line);
        let l = Launch::read(&command, 0, Some(Starter::Hydra));
        assert_eq!(l.passing(&command, &["V"]), command);
        let probe = l.with_program(&command, &words("sh -c x"));
        assert_eq!(probe.len(), command.len() + 2);
    }

    #[test]
    fn srun() {
        let line = "srun -n6 -N 3 --mpi=pmix --nodelist c[1-3] --label -l ./app -n 1";
        assert_eq!(read(line, Starter::Slurm), ("./app".into(), Some(6), "c1 c2 c3".into(), None));
        assert_eq!(read("srun --ntasks=4 ./app", Starter::Slurm).1, Some(4));
    }

    #[test]
    fn what_ends_too_early_is_no_reason_to_panic() {
        for line in [
            "mpirun",
            "mpirun -n",
            "mpirun --mca a",
            "mpirun -n 2 :",
            "mpirun -",
            "mpirun --",
            "mpirun : : :",
        ] {
            for starter in [Starter::OpenMpi, Starter::Hydra, Starter::Slurm] {
                let command = words(line);
                let mut l = Launch::read(&command, 0, Some(starter));
                assert!(l.program < command.len());
                let _ = (
                    l.passing(&command, &["V"]),
                    l.with_program(&command, &[]),
                    l.with_options(&command, vec![]),
                );
            }
        }
    }
}
