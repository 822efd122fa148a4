//! A job's hosts and ranks, and where its I/O nodes run: what the command says goes before what the batch
//! system says.

use super::{BatchJob, Launch, recognise};
use anyhow::{Context, Result, bail};
use forebay_control::job::{JobRequest, MOST_HOSTS, MOST_HOSTS_BYTES};
use forebay_embed::{Across, Agent};
use forebay_types::{Starter, hostlist, same_host};
use std::ffi::OsString;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Where I/O nodes run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IoHosts {
    /// On hosts of the allocation that the program does not use.
    Dedicated,
    /// On hosts of the program, spread evenly.
    Shared,
    /// On these.
    List(Vec<String>),
}

impl FromStr for IoHosts {
    type Err = String;

    fn from_str(text: &str) -> Result<IoHosts, String> {
        match text {
            "dedicated" => Ok(IoHosts::Dedicated),
            "shared" => Ok(IoHosts::Shared),
            list => match hostlist::expand(list).filter(|all| !all.is_empty()) {
                Some(all) => Ok(IoHosts::List(all)),
                None => Err(format!("`{list}`: write dedicated, shared, or hosts as in `io1,io[2-4]`")),
            },
        }
    }
}

/// What is asked of a job on several hosts.
#[derive(Clone, Debug, Default)]
pub struct Several {
    /// The directory that all hosts see.
    pub share: Option<PathBuf>,
    /// Where the I/O nodes run.
    pub io_hosts: Option<IoHosts>,
    /// What starts them there, in place of `ssh`.
    pub agent: Option<String>,
    /// All ranks must be forwarded, or none runs.
    pub strict: bool,
}

/// What a command starts where.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The command, as it is to be started.
    pub command: Vec<OsString>,
    /// What it says.
    pub launch: Launch,
    /// What the batch system says.
    pub batch: BatchJob,
    /// The compute nodes, neighbours beside each other; empty if only this one is known.
    pub hosts: Vec<String>,
    /// How many ranks, if anybody says.
    pub ranks: Option<u32>,
    /// This host.
    pub here: String,
}

impl Plan {
    /// Looks at a command, in this process's environment.
    pub fn of(command: &[OsString]) -> Plan {
        let at = super::wrapper::before(command);
        let starter = command.get(at).and_then(|c| recognise(c));
        let launch = Launch::read(command, at, starter);
        let batch = BatchJob::here();
        let listed = launch.host_file.as_ref().and_then(|f| std::fs::read_to_string(f).ok());
        let mut hosts = match listed {
            Some(text) if launch.hosts.is_empty() => hostlist::lines(&text),
            _ => launch.hosts.clone(),
        };
        if hosts.is_empty() && starter.is_some() {
            hosts.clone_from(&batch.hosts);
        }
        let tasks = batch.tasks.filter(|_| starter == Some(Starter::Slurm));
        let ranks = launch.ranks.or(tasks);
        Plan { command: command.to_vec(), launch, batch, hosts, ranks, here: forebay_client::hostname() }
    }

    /// The program and its arguments; not the launcher, nor what only sets something up for it (`env`, `nice`).
    pub fn program(&self) -> &[OsString] {
        let launched = self.command.get(self.launch.program..).unwrap_or_default();
        launched.get(super::wrapper::behind(launched)..).unwrap_or_default()
    }

    /// How many words of the command, from the program on, make a rank of the job of whatever comes behind them:
    /// `forebay join`, and what sets something up for it. 0 without.
    pub(crate) fn joining(&self) -> usize {
        let launched = self.command.get(self.launch.program..).unwrap_or_default();
        super::wrapper::behind_join(launched)
    }

    /// The command in one.
    pub(crate) fn words(&self) -> String {
        self.command.join(std::ffi::OsStr::new(" ")).to_string_lossy().into_owned()
    }

    /// The program's name.
    pub fn app(&self) -> String {
        forebay_control::job::fitting(&crate::name(self.program()))
    }

    /// The hosts that are named: those of the program, or, where their processes come through a directory that is
    /// shared with them (`share`), those of the batch job.
    pub(crate) fn known_hosts(&self, share: bool) -> &[String] {
        if self.hosts.is_empty() && share { &self.batch.hosts } else { &self.hosts }
    }

    /// The hosts of the job, as far as they are known.
    fn job_hosts(&self, share: bool) -> Vec<String> {
        match self.known_hosts(share) {
            [] if self.is_away() => Vec::new(),
            [] => vec![self.here.clone()],
            known => known.to_vec(),
        }
    }

    /// What an arbiter is told of the job. `share`: it is for whoever comes by way of a shared directory.
    pub fn request(&self, share: bool) -> JobRequest {
        let mut hosts = self.job_hosts(share);
        let compute_nodes = hosts.len().max(1) as u32;
        let bytes = hosts.iter().map(String::len).sum::<usize>();
        if hosts.len() > MOST_HOSTS || bytes > MOST_HOSTS_BYTES {
            hosts.clear();
        }
        // Not what the environment says: limits are set for users.
        let tasks = self.batch.tasks.filter(|_| share);
        let uid = rustix::process::getuid().as_raw();
        JobRequest {
            app: self.app(),
            user: forebay_who::name(uid).unwrap_or_else(|| uid.to_string()),
            account: self.batch.account.clone().unwrap_or_default(),
            compute_nodes,
            hosts,
            processes: self.ranks.or(tasks).unwrap_or(1).max(1),
            ..JobRequest::default()
        }
    }

    /// Whether some of it runs on other hosts.
    pub(crate) fn is_away(&self) -> bool {
        // Without an allocation `srun` chooses the hosts itself, later.
        let unknown = self.launch.starter == Some(Starter::Slurm) && self.hosts.is_empty();
        unknown
            || self.hosts.iter().any(|h| !same_host(h, &self.here) && h != "localhost" && h != "127.0.0.1")
    }

    /// Where the processes of all hosts find what they need, and where the I/O nodes run; nothing for a job
    /// of this host alone. `nodes`: how many I/O nodes are to be started.
    pub fn across(&mut self, asked: &Several, nodes: usize) -> Result<Option<Across>> {
        let io_hosts = match &asked.io_hosts {
            Some(io_hosts) if nodes > 0 => self.place(io_hosts, nodes)?,
            _ => Vec::new(),
        };
        if asked.share.is_none() && io_hosts.is_empty() && !self.is_away() {
            return Ok(None);
        }
        let share = match &asked.share {
            Some(dir) if dir.is_dir() => std::path::absolute(dir)?,
            Some(dir) => bail!("--share {}: there is no such directory", dir.display()),
            None => {
                let home = std::env::var_os("HOME").filter(|h| !h.is_empty());
                PathBuf::from(
                    home.context("there is no HOME: name a directory that all hosts see with --share")?,
                )
                .join(".forebay")
            }
        };
        private_dir(&share).with_context(|| format!("--share {}", share.display()))?;
        let io_hosts = io_hosts.into_iter().map(|host| {
            let at = address_of(&host).with_context(|| format!("I/O host {host}"))?;
            Ok((host, at))
        });
        let io_hosts = io_hosts.collect::<Result<Vec<_>>>()?;
        let others = self.known_hosts(true).iter().filter(|h| !same_host(h, &self.here));
        let towards = others.filter_map(|h| address_of(h).ok()).next();
        let here = towards.and_then(facing).or_else(|| address_of(&self.here).ok());
        let here = here.unwrap_or(IpAddr::V4(std::net::Ipv4Addr::LOCALHOST));
        Ok(Some(Across { share, here, io_hosts, agent: self.agent(asked) }))
    }

    /// What starts I/O nodes on other hosts: what the launcher itself would use.
    fn agent(&self, asked: &Several) -> Agent {
        let env = |name: &str| std::env::var(name).ok().filter(|v| !v.is_empty());
        let of_mpi = || env("OMPI_MCA_plm_rsh_agent").or_else(|| env("HYDRA_LAUNCHER_EXEC"));
        let named = asked.agent.clone().or_else(|| self.launch.agent.clone()).or_else(of_mpi);
        match named {
            Some(agent) => Agent::Ssh(agent),
            None if env("SLURM_JOB_ID").is_some() => Agent::Srun,
            None => Agent::Ssh("ssh".into()),
        }
    }

    /// The hosts of so many I/O nodes. Where the program is to keep off them, its launcher is told.
    fn place(&mut self, io_hosts: &IoHosts, nodes: usize) -> Result<Vec<String>> {
        let all = if self.batch.hosts.is_empty() { &self.hosts } else { &self.batch.hosts };
        let even = |of: &[String]| (0..nodes).map(|i| of[i * of.len() / nodes].clone()).collect::<Vec<_>>();
        // Of what is no launcher, the batch job's.
        let beside = if self.hosts.is_empty() { &self.batch.hosts } else { &self.hosts };
        match io_hosts {
            IoHosts::List(list) => Ok((0..nodes).map(|i| list[i % list.len()].clone()).collect()),
            IoHosts::Shared if beside.is_empty() => {
                bail!(
                    "--io-hosts shared: the program's hosts are not known: name them to its launcher, or here"
                )
            }
            IoHosts::Shared => Ok(even(beside)),
            IoHosts::Dedicated => {
                let used = |h: &&String| self.launch.hosts.iter().any(|l| same_host(l, h));
                let free: Vec<String> = all.iter().filter(|h| !used(h)).cloned().collect();
                if !self.launch.hosts.is_empty() {
                    if free.is_empty() {
                        bail!("--io-hosts dedicated: the program uses every host of the allocation");
                    }
                    self.hosts.clone_from(&self.launch.hosts);
                    return Ok((0..nodes).map(|i| free[i % free.len()].clone()).collect());
                }
                if free.len() <= nodes {
                    bail!(
                        "--io-hosts dedicated: {nodes} of {} hosts would leave none for the program",
                        free.len()
                    );
                }
                let (compute, io) = free.split_at(free.len() - nodes);
                let (compute, io) = (compute.to_vec(), io.to_vec());
                self.keep_to(&compute, &io)?;
                self.hosts = compute;
                Ok(io)
            }
        }
    }

    /// Tells the launcher which hosts to use.
    fn keep_to(&mut self, compute: &[String], io: &[String]) -> Result<()> {
        let slots = self.ranks.map_or(1, |n| (n as usize).div_ceil(compute.len()));
        let with_slots = || compute.iter().map(|h| format!("{h}:{slots}")).collect::<Vec<_>>().join(",");
        let options: Vec<OsString> = match self.launch.starter {
            Some(Starter::Slurm) => vec![format!("--exclude={}", io.join(",")).into()],
            Some(Starter::OpenMpi) => vec!["--host".into(), with_slots().into()],
            Some(Starter::Hydra) => vec!["-hosts".into(), with_slots().into()],
            None => bail!("--io-hosts dedicated: {} is no launcher that is known here", self.app()),
        };
        self.command = self.launch.with_options(&self.command, options);
        Ok(())
    }
}

/// Makes a directory that only this user may enter, if it is not there.
fn private_dir(dir: &Path) -> Result<()> {
    if !dir.is_dir() {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    }
    Ok(())
}

fn address_of(host: &str) -> Result<IpAddr> {
    let all: Vec<IpAddr> = (host, 0).to_socket_addrs()?.map(|a| a.ip()).collect();
    let outside =
        all.iter().find(|a| !a.is_loopback() && a.is_ipv4()).or(all.iter().find(|a| !a.is_loopback()));
    outside.copied().context("its name stands for no address that others can reach")
}

/// The address of this host that `other` sees. Nothing is sent.
fn facing(other: IpAddr) -> Option<IpAddr> {
    let any: SocketAddr = if other.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" }.parse().ok()?;
    let socket = UdpSocket::bind(any).ok()?;
    socket.connect((other, 9)).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(line: &str, starter: Starter, allocation: &[&str]) -> Plan {
        let command: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        let launch = Launch::read(&command, crate::launch::wrapper::before(&command), Some(starter));
        let hosts: Vec<String> = allocation.iter().map(|h| (*h).to_owned()).collect();
        let batch = BatchJob { hosts: hosts.clone(), ..BatchJob::default() };
        let hosts = if launch.hosts.is_empty() { hosts } else { launch.hosts.clone() };
        Plan { command, ranks: launch.ranks, launch, batch, hosts, here: "c1".into() }
    }

    #[test]
    fn the_arbiter_is_told_the_hosts() {
        let all = ["c1", "c2", "c3"];
        let mut p = plan("mpirun --host c2,c3 -n 4 env A=1 ./app", Starter::OpenMpi, &all);
        p.batch.account = Some("engines".into());
        let request = p.request(false);
        assert_eq!(
            (request.hosts.join(" "), request.compute_nodes, request.processes),
            ("c2 c3".into(), 2, 4)
        );
        assert_eq!((request.app.as_str(), request.account.as_str()), ("app", "engines"));
        // One process; whoever shares a directory with it; hosts that a launcher chooses later.
        p.hosts.clear();
        p.launch.starter = None;
        assert_eq!((p.request(false).hosts.join(" "), p.request(true).hosts.len()), ("c1".into(), 3));
        (p.ranks, p.batch.tasks) = (None, Some(6));
        assert_eq!((p.request(false).processes, p.request(true).processes), (1, 6));
        p.launch.starter = Some(Starter::Slurm);
        assert!(p.request(false).hosts.is_empty());
        p.hosts = (0..=MOST_HOSTS).map(|n| format!("c{n}")).collect();
        let many = p.request(false);
        assert_eq!((many.hosts.len(), many.compute_nodes as usize), (0, MOST_HOSTS + 1));
    }

    #[test]
    fn io_nodes_on_hosts_of_their_own() {
        let all = ["c1", "c2", "c3", "c4"];
        let mut p = plan("srun -n 6 ./app", Starter::Slurm, &all);
        assert_eq!(p.place(&IoHosts::Dedicated, 2).unwrap(), ["c3", "c4"]);
        assert_eq!(p.command[1], "--exclude=c3,c4");
        assert_eq!((p.hosts.join(" "), p.app()), ("c1 c2".into(), "./app".trim_start_matches("./").into()));
        let mut p = plan("mpirun -n 6 ./app", Starter::OpenMpi, &all);
        assert_eq!(p.place(&IoHosts::Dedicated, 2).unwrap(), ["c3", "c4"]);
        assert_eq!(p.command[2], "c1:3,c2:3");
        assert_eq!(p.app(), "app");
        let mut p = plan("env A=1 mpirun -n 6 ./app", Starter::OpenMpi, &all);
        assert_eq!(p.place(&IoHosts::Dedicated, 2).unwrap(), ["c3", "c4"]);
        assert_eq!((p.command[4].to_str(), p.app()), (Some("c1:3,c2:3"), "app".into()));
        let mut p = plan("mpirun --host c1,c2,c3 ./app", Starter::OpenMpi, &all);
        assert_eq!(p.place(&IoHosts::Dedicated, 2).unwrap(), ["c4", "c4"]);
        assert!(plan("srun ./app", Starter::Slurm, &all).place(&IoHosts::Dedicated, 4).is_err());
    }

    #[test]
    fn io_nodes_beside_the_program() {
        let mut p = plan("srun ./app", Starter::Slurm, &["c1", "c2", "c3", "c4"]);
        assert_eq!(p.place(&IoHosts::Shared, 2).unwrap(), ["c1", "c3"]);
        // No launcher, whose hosts are those of the batch job; and nobody knows.
        (p.hosts, p.launch.starter) = (Vec::new(), None);
        assert_eq!(p.place(&IoHosts::Shared, 2).unwrap(), ["c1", "c3"]);
        let batch = std::mem::take(&mut p.batch);
        assert!(p.place(&IoHosts::Shared, 2).is_err());
        p.batch = batch;
        let list = "io[1-2]".parse::<IoHosts>().unwrap();
        assert_eq!(p.place(&list, 3).unwrap(), ["io1", "io2", "io1"]);
        assert!("io[".parse::<IoHosts>().is_err());
    }
}
