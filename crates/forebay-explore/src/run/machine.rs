//! Where processes run: on this machine, or on those that a launcher (`srun`, `mpirun`) gave us.

use super::protocol::{Channel, Order, OrderResult};
use forebay_embed::Process;
use rustix::process::Signal;
use std::collections::BTreeSet;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Command, Stdio};
use std::time::Duration;

/// How long a process may take to end before it is made to.
const END_PATIENCE: Duration = Duration::from_secs(1);

/// Which place a process is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The i-th I/O node.
    IoNode(u32),
    /// The i-th client process.
    Client(u32),
}

/// Starts processes of this very program.
pub trait Machine {
    /// Client processes it has room for; `None`: as many as wanted.
    fn clients(&self) -> Option<u32>;
    /// I/O nodes it has room for; `None`: as many as wanted.
    fn io_nodes(&self) -> Option<u32>;
    /// The address at which the process at `place` reaches this one, which listens on `port`.
    fn conductor(&self, place: Role, port: u16) -> SocketAddr;
    /// The address at which clients reach the I/O node that listens on `port` at the i-th place.
    fn io_node(&self, i: u32, port: u16) -> SocketAddr;
    /// What an I/O node there is to listen on.
    fn listen(&self) -> &'static str;
    /// Starts a process.
    fn start(&mut self, place: Role, args: &[String], env: &[(String, String)]) -> io::Result<()>;
    /// A process that ended with an error, if there is one, in words.
    fn casualty(&mut self) -> Option<String>;
    /// Ends all processes.
    fn end_all(&mut self);
    /// Ends all processes where they are: nobody waits for what they would still do.
    fn kill_all(&mut self);
}

/// This machine.
#[derive(Default)]
pub struct Local {
    processes: Vec<Process>,
}

impl Machine for Local {
    fn clients(&self) -> Option<u32> {
        None
    }

    fn io_nodes(&self) -> Option<u32> {
        None
    }

    fn conductor(&self, _: Role, port: u16) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, port).into()
    }

    fn io_node(&self, _: u32, port: u16) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, port).into()
    }

    fn listen(&self) -> &'static str {
        "tcp:127.0.0.1:0"
    }

    fn start(&mut self, _: Role, args: &[String], env: &[(String, String)]) -> io::Result<()> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(args).envs(env.iter().map(|(k, v)| (k, v))).stdin(Stdio::null());
        self.processes.push(Process::start(&mut command)?);
        Ok(())
    }

    fn casualty(&mut self) -> Option<String> {
        self.processes.iter_mut().find_map(|p| match p.try_wait() {
            Ok(Some(status)) if !status.success() => Some(status.to_string()),
            _ => None,
        })
    }

    fn end_all(&mut self) {
        self.processes.iter().for_each(Process::ask_to_end);
        for mut process in self.processes.drain(..) {
            process.end(END_PATIENCE);
        }
    }

    fn kill_all(&mut self) {
        for process in &self.processes {
            let _ = process.signal(Signal::KILL);
        }
        self.processes.clear();
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        self.end_all();
    }
}

/// The ranks of a launcher. The first ranks are the I/O nodes, as in FORGE; all others are clients.
pub struct Launched {
    here: Local,
    /// The agents of ranks 1, 2, …
    agents: Vec<Channel>,
    io_nodes: u32,
    /// Ranks that have started something.
    busy: BTreeSet<u32>,
}

impl Launched {
    /// With the agents of ranks 1, 2, … of which the first `io_nodes` ranks (0 among them) are kept
    /// for I/O nodes.
    pub fn new(agents: Vec<Channel>, io_nodes: u32) -> Launched {
        Launched { here: Local::default(), agents, io_nodes, busy: BTreeSet::new() }
    }

    fn rank(&self, place: Role) -> u32 {
        match place {
            Role::IoNode(i) => i,
            Role::Client(i) => i + self.io_nodes,
        }
    }

    fn agent(&self, rank: u32) -> Option<&Channel> {
        self.agents.get((rank as usize).checked_sub(1)?)
    }

    fn order(&mut self, rank: u32, order: &Order) -> io::Result<String> {
        let agent = (rank as usize).checked_sub(1).and_then(|i| self.agents.get_mut(i));
        let agent = agent.ok_or_else(|| io::Error::other(format!("there is no rank {rank}")))?;
        agent.send(order)?;
        match agent.receive()? {
            OrderResult::Fine(s) => Ok(s),
            OrderResult::Failed(e) => Err(io::Error::other(format!("rank {rank}: {e}"))),
        }
    }
}

impl Machine for Launched {
    fn clients(&self) -> Option<u32> {
        Some((self.agents.len() as u32 + 1).saturating_sub(self.io_nodes))
    }

    fn io_nodes(&self) -> Option<u32> {
        Some(self.io_nodes)
    }

    fn conductor(&self, place: Role, port: u16) -> SocketAddr {
        let here = self.agent(self.rank(place)).and_then(|a| a.local_ip().ok());
        (here.unwrap_or(Ipv4Addr::LOCALHOST.into()), port).into()
    }

    fn io_node(&self, i: u32, port: u16) -> SocketAddr {
        let rank = self.rank(Role::IoNode(i));
        let there = if rank == 0 {
            // Rank 0 is known to the others by the address they called.
            let calls = self.agents.iter().filter_map(|a| a.local_ip().ok());
            calls.reduce(|a, b| if a.is_loopback() { b } else { a })
        } else {
            self.agent(rank).and_then(|a| a.peer_ip().ok())
        };
        (there.unwrap_or(Ipv4Addr::LOCALHOST.into()), port).into()
    }

    fn listen(&self) -> &'static str {
        "tcp:0.0.0.0:0"
    }

    fn start(&mut self, place: Role, args: &[String], env: &[(String, String)]) -> io::Result<()> {
        let rank = self.rank(place);
        self.busy.insert(rank);
        if rank == 0 {
            return self.here.start(place, args, env);
        }
        self.order(rank, &Order::Start { args: args.to_vec(), env: env.to_vec() }).map(drop)
    }

    fn casualty(&mut self) -> Option<String> {
        let ranks: Vec<u32> = self.busy.iter().copied().filter(|r| *r > 0).collect();
        self.here.casualty().or_else(|| {
            ranks.into_iter().find_map(|rank| match self.order(rank, &Order::Casualty) {
                Ok(how) => (!how.is_empty()).then(|| format!("rank {rank}: {how}")),
                Err(e) => Some(e.to_string()),
            })
        })
    }

    fn end_all(&mut self) {
        for rank in std::mem::take(&mut self.busy) {
            if rank == 0 {
                self.here.end_all();
            } else {
                // A rank that is gone has nothing left to end.
                let _ = self.order(rank, &Order::EndAll);
            }
        }
    }

    fn kill_all(&mut self) {
        self.here.kill_all();
        self.end_all();
    }
}

/// Carries out the orders of a conductor until it hangs up.
pub fn serve_agent(mut channel: Channel) -> io::Result<()> {
    let mut here = Local::default();
    while let Ok(order) = channel.receive() {
        let done = match order {
            // A rank's own place does not matter here: everything it starts is local.
            Order::Start { args, env } => here.start(Role::Client(0), &args, &env).map(|()| String::new()),
            Order::Casualty => Ok(here.casualty().unwrap_or_default()),
            Order::EndAll => {
                here.end_all();
                Ok(String::new())
            }
        };
        channel.send(&match done {
            Ok(s) => OrderResult::Fine(s),
            Err(e) => OrderResult::Failed(e.to_string()),
        })?;
    }
    Ok(())
}
