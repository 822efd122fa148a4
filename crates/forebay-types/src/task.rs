//! Which process of a parallel program one is, and which of the job's I/O nodes that makes its own.

use serde::{Deserialize, Serialize};

/// What starts the processes of a parallel program, and tells them their ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Starter {
    /// `mpirun` of OpenMPI.
    OpenMpi,
    /// `mpiexec` of MPICH and its relatives: Hydra.
    Hydra,
    /// `srun`.
    Slurm,
}

/// The names of the variables by which each tells rank, ranks, rank on the host, ranks on the host.
const VARIABLES: [(Starter, [&str; 4]); 4] = [
    (
        Starter::OpenMpi,
        [
            "OMPI_COMM_WORLD_RANK",
            "OMPI_COMM_WORLD_SIZE",
            "OMPI_COMM_WORLD_LOCAL_RANK",
            "OMPI_COMM_WORLD_LOCAL_SIZE",
        ],
    ),
    (Starter::Hydra, ["PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"]),
    (Starter::OpenMpi, ["PMIX_RANK", "", "", ""]),
    (Starter::Slurm, ["SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE"]),
];

/// One process of a parallel program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task {
    /// Its number, from 0.
    pub rank: u32,
    /// How many there are; 0 if that is not known.
    pub ranks: u32,
    /// Its number on its host, and how many are there; (0, 0) if that is not known.
    pub local: (u32, u32),
}

impl Task {
    /// As the environment tells it: that of the `starter`, if one is known, or else of any.
    pub fn find(starter: Option<Starter>, env: impl Fn(&str) -> Option<String>) -> Option<Task> {
        let number = |name: &str| {
            let text = env(name).filter(|_| !name.is_empty())?;
            // Slurm writes `2(x3)` or `2,1` where hosts differ; the first number is near enough.
            let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
            text[..digits].parse::<u32>().ok()
        };
        let mut all = VARIABLES.iter().filter(|(by, _)| starter.is_none_or(|s| s == *by));
        all.find_map(|(_, [rank, ranks, local, locals])| {
            let rank = number(rank)?;
            let ranks = number(ranks).filter(|n| *n > rank).unwrap_or(0);
            let local = number(local).zip(number(locals)).filter(|(l, of)| l < of).unwrap_or((0, 0));
            Some(Task { rank, ranks, local })
        })
    }

    /// Whether the environment is that of one of several processes that a launcher has started: by which,
    /// and which of how many. The innermost launcher that says both decides. A batch script has a number
    /// in Slurm, but no step.
    pub fn one_of_several(env: impl Fn(&str) -> Option<String>) -> Option<(Starter, Task)> {
        let told = |starter| Some((starter, Task::find(Some(starter), &env).filter(|t| t.ranks > 0)?));
        let (starter, task) =
            [Starter::OpenMpi, Starter::Hydra, Starter::Slurm].into_iter().find_map(told)?;
        (task.ranks > 1).then_some((starter, task))
    }
}

/// Where a process sits among those that share the job's I/O nodes, however many there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seat {
    /// It takes turns with others: nothing is known but that they differ in this number.
    Turn(usize),
    /// It is number `at` of `of` in a row of neighbours, of which blocks share an I/O node: their
    /// requests are neighbours too, and can be merged.
    Row {
        /// Its place.
        at: u64,
        /// How many places there are, at least one.
        of: u64,
    },
}

impl Seat {
    /// The seat of a process. Hosts that are more than the I/O nodes stay whole; the ranks of one host are
    /// spread if there are more nodes than hosts. Where the job's hosts are not known, ranks are in a row.
    pub fn of(host: &str, hosts: &[String], task: Option<Task>, nodes: usize) -> Option<Seat> {
        let at = hosts.iter().position(|h| same_host(h, host));
        let row = |at: u64, of: u64| (at < of).then_some(Seat::Row { at, of });
        match (at, task) {
            (Some(at), Some(Task { local: (local, locals), .. })) if nodes > hosts.len() && locals > 0 => {
                let (at, locals) = (at as u64, u64::from(locals));
                row(at * locals + u64::from(local), hosts.len() as u64 * locals)
            }
            (Some(at), _) if hosts.len() > 1 => row(at as u64, hosts.len() as u64),
            (_, Some(Task { rank, ranks, .. })) => match row(rank.into(), ranks.into()) {
                None => Some(Seat::Turn(rank as usize)),
                row => row,
            },
            _ => None,
        }
    }

    /// Which of so many I/O nodes is its own.
    pub fn among(self, nodes: usize) -> usize {
        match self {
            _ if nodes == 0 => 0,
            Seat::Turn(turn) => turn % nodes,
            Seat::Row { at, of } => {
                let own = u128::from(at) * nodes as u128 / u128::from(of.max(1));
                usize::try_from(own).unwrap_or(0).min(nodes - 1)
            }
        }
    }
}

/// Whether two names are of one host: with or without its domain.
pub fn same_host(a: &str, b: &str) -> bool {
    short_host(a) == short_host(b)
}

/// A host's name without its domain; an address as it is.
fn short_host(name: &str) -> String {
    let address = name.parse::<std::net::IpAddr>().is_ok();
    if address { name.to_owned() } else { name.split('.').next().unwrap_or_default().to_ascii_lowercase() }
}

/// A number that stands for a host, the same wherever it is made (FNV-1a of its short name).
pub fn host_number(name: &str) -> u64 {
    let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    short_host(name).bytes().fold(0xcbf2_9ce4_8422_2325, mix)
}

/// What an I/O node knows of one rank, or of the processes of a host that have none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientReport {
    /// Where it runs.
    pub host: String,
    /// Its number in the program.
    pub rank: Option<u32>,
    /// How many it says there are; 0 if it does not know.
    pub ranks: u32,
    /// The last of its processes that came.
    pub pid: u32,
    /// How many processes came.
    pub processes: u64,
    /// Requests that were answered.
    pub requests: u64,
    /// Of which so many failed.
    pub errors: u64,
    /// Bytes read.
    pub read: u64,
    /// Bytes written.
    pub written: u64,
    /// Nanoseconds for which its requests were here, together.
    pub busy_ns: u64,
}

impl ClientReport {
    /// What can be summed up.
    fn sums(&mut self) -> [&mut u64; 6] {
        [
            &mut self.processes,
            &mut self.requests,
            &mut self.errors,
            &mut self.read,
            &mut self.written,
            &mut self.busy_ns,
        ]
    }

    /// Takes in what was known of the same one elsewhere, or at another time.
    pub fn add(&mut self, other: &ClientReport) {
        self.ranks = self.ranks.max(other.ranks);
        let mut other = other.clone();
        self.sums().into_iter().zip(other.sums()).for_each(|(sum, more)| *sum = sum.saturating_add(*more));
    }

    /// Leaves what has been done since `old`.
    pub fn subtract(&mut self, old: &ClientReport) {
        let mut old = old.clone();
        self.sums().into_iter().zip(old.sums()).for_each(|(sum, less)| *sum = sum.saturating_sub(*less));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_of_several_or_alone() {
        let of = |given: &[(&str, &str)]| {
            let env = |name: &str| given.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned());
            Task::one_of_several(env).map(|(by, task)| (by, task.rank, task.ranks))
        };
        let ompi = [("OMPI_COMM_WORLD_RANK", "1"), ("OMPI_COMM_WORLD_SIZE", "4")];
        assert_eq!(of(&ompi), Some((Starter::OpenMpi, 1, 4)));
        assert_eq!(of(&[("PMI_RANK", "0"), ("PMI_SIZE", "2")]), Some((Starter::Hydra, 0, 2)));
        let step = [("SLURM_PROCID", "3"), ("SLURM_STEP_NUM_TASKS", "6"), ("PMIX_RANK", "3")];
        assert_eq!(of(&step), Some((Starter::Slurm, 3, 6)));
        // Alone, and a batch script of a job of many tasks.
        assert_eq!(of(&[("SLURM_PROCID", "0"), ("SLURM_STEP_NUM_TASKS", "1")]), None);
        assert_eq!(of(&[("SLURM_PROCID", "0"), ("SLURM_NTASKS", "6"), ("SLURM_NPROCS", "6")]), None);
        assert_eq!(of(&[("OMPI_COMM_WORLD_RANK", "0"), ("OMPI_COMM_WORLD_SIZE", "1")]), None);
        // OpenMPI's daemons are a step of their own; the program is not.
        let alone = [("OMPI_COMM_WORLD_RANK", "0"), ("OMPI_COMM_WORLD_SIZE", "1")];
        assert_eq!(of(&[&alone[..], &step[..]].concat()), None);
        assert_eq!(of(&[]), None);
    }

    fn hosts(n: usize) -> Vec<String> {
        (1..=n).map(|i| format!("c{i}")).collect()
    }

    fn own(host: &str, hosts: &[String], task: Option<Task>, nodes: usize) -> Option<usize> {
        Some(Seat::of(host, hosts, task, nodes)?.among(nodes))
    }

    #[test]
    fn neighbouring_hosts_share_a_node_and_hosts_stay_whole() {
        let all = hosts(4);
        let task = |rank| Some(Task { rank, ranks: 8, local: (rank % 2, 2) });
        let of = |nodes| (0..8).map(|r| own(&all[r as usize / 2], &all, task(r), nodes).unwrap()).collect();
        let (one, two, four, eight): (Vec<_>, Vec<_>, Vec<_>, Vec<_>) = (of(1), of(2), of(4), of(8));
        assert_eq!(one, [0; 8]);
        assert_eq!(two, [0, 0, 0, 0, 1, 1, 1, 1]);
        assert_eq!(four, [0, 0, 1, 1, 2, 2, 3, 3]);
        assert_eq!(eight, [0, 1, 2, 3, 4, 5, 6, 7]);
        let odd = hosts(3);
        assert_eq!([0, 1, 2].map(|i: usize| own(&odd[i], &odd, task(2 * i as u32), 2).unwrap()), [0, 0, 1]);
    }

    #[test]
    fn without_hosts_ranks_are_in_a_row_and_without_ranks_they_take_turns() {
        let task = |rank, ranks| Some(Task { rank, ranks, local: (0, 0) });
        assert_eq!((0..4).map(|r| own("x", &[], task(r, 4), 2).unwrap()).collect::<Vec<_>>(), [0, 0, 1, 1]);
        assert_eq!((0..4).map(|r| own("x", &[], task(r, 0), 2).unwrap()).collect::<Vec<_>>(), [0, 1, 0, 1]);
        assert_eq!(Seat::of("x", &hosts(3), None, 2), None);
        assert_eq!(own("c3.site.org", &hosts(3), None, 3), Some(2));
        assert_eq!(Seat::Row { at: 0, of: 0 }.among(3), 0);
        assert_eq!(Seat::Turn(7).among(0), 0);
    }

    #[test]
    fn the_environment_tells_the_rank() {
        let given = [
            ("SLURM_PROCID", "5"),
            ("SLURM_STEP_NUM_TASKS", "6"),
            ("SLURM_LOCALID", "1"),
            ("SLURM_STEP_TASKS_PER_NODE", "2(x3)"),
            ("PMI_RANK", "3"),
            ("PMI_SIZE", "nonsense"),
        ];
        let env = |name: &str| given.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_owned());
        let slurm = Task { rank: 5, ranks: 6, local: (1, 2) };
        assert_eq!(Task::find(Some(Starter::Slurm), env), Some(slurm));
        assert_eq!(Task::find(None, env), Some(Task { rank: 3, ranks: 0, local: (0, 0) }));
        assert_eq!(Task::find(Some(Starter::OpenMpi), env), None);
    }

    #[test]
    fn names_with_and_without_domain_are_one_host() {
        assert!(same_host("c1", "C1.cluster.site"));
        assert!(!same_host("c1", "c11"));
        assert!(!same_host("10.0.0.1", "10.0.0.2"));
    }
}
