//! Where processes run: on this machine, or on those that a launcher (`srun`, `mpirun`) gave us.

use super::program::Program;
use super::protocol::{Channel, Order, Report};
use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};

/// Which place a process is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
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
    fn conductor(&self, place: Place, port: u16) -> SocketAddr;
    /// The address at which clients reach the I/O node that listens on `port` at the i-th place.
    fn io_node(&self, i: u32, port: u16) -> SocketAddr;
    /// What an I/O node there is to listen on.
    fn listen(&self) -> &'static str;
    /// Starts a process and gives it a number.
    fn start(&mut self, place: Place, args: &[String], env: &[(String, String)]) -> io::Result<u64>;
    /// The first line that the process prints.
    fn first_line(&mut self, id: u64) -> io::Result<String>;
    /// A process that ended with an error, if there is one, in words.
    fn casualty(&mut self) -> Option<String>;
    /// Ends all processes.
    fn end_all(&mut self);
}

/// This machine.
#[derive(Default)]
pub struct Local {
    programs: HashMap<u64, Program>,
    next: u64,
}

impl Machine for Local {
    fn clients(&self) -> Option<u32> {
        None
    }

    fn io_nodes(&self) -> Option<u32> {
        None
    }

    fn conductor(&self, _: Place, port: u16) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, port).into()
    }

    fn io_node(&self, _: u32, port: u16) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, port).into()
    }

    fn listen(&self) -> &'static str {
        "tcp:127.0.0.1:0"
    }

    fn start(&mut self, _: Place, args: &[String], env: &[(String, String)]) -> io::Result<u64> {
        self.next += 1;
        self.programs.insert(self.next, Program::start(args, env)?);
        Ok(self.next)
    }

    fn first_line(&mut self, id: u64) -> io::Result<String> {
        let program = self.programs.get_mut(&id).ok_or_else(|| io::Error::other("no such process"))?;
        program.first_line()
    }

    fn casualty(&mut self) -> Option<String> {
        self.programs.values_mut().find_map(Program::failed)
    }

    fn end_all(&mut self) {
        for (_, program) in self.programs.drain() {
            program.end();
        }
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
    /// Who started what: rank and number there.
    started: HashMap<u64, (u32, u64)>,
    next: u64,
}

impl Launched {
    /// With the agents of ranks 1, 2, … of which the first `io_nodes` ranks (0 among them) are kept
    /// for I/O nodes.
    pub fn new(agents: Vec<Channel>, io_nodes: u32) -> Launched {
        Launched { here: Local::default(), agents, io_nodes, started: HashMap::new(), next: 0 }
    }

    fn rank(&self, place: Place) -> u32 {
        match place {
            Place::IoNode(i) => i,
            Place::Client(i) => i + self.io_nodes,
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
            Report::Fine(s) => Ok(s),
            Report::Failed(e) => Err(io::Error::other(format!("rank {rank}: {e}"))),
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

    fn conductor(&self, place: Place, port: u16) -> SocketAddr {
        let here = self.agent(self.rank(place)).and_then(|a| a.local_ip().ok());
        (here.unwrap_or(Ipv4Addr::LOCALHOST.into()), port).into()
    }

    fn io_node(&self, i: u32, port: u16) -> SocketAddr {
        let rank = self.rank(Place::IoNode(i));
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

    fn start(&mut self, place: Place, args: &[String], env: &[(String, String)]) -> io::Result<u64> {
        let rank = self.rank(place);
        self.next += 1;
        let id = self.next;
        let number = if rank == 0 {
            self.here.start(place, args, env)?
        } else {
            self.order(rank, &Order::Start { id, args: args.to_vec(), env: env.to_vec() })?;
            id
        };
        self.started.insert(id, (rank, number));
        Ok(id)
    }

    fn first_line(&mut self, id: u64) -> io::Result<String> {
        match self.started.get(&id).copied() {
            Some((0, number)) => self.here.first_line(number),
            Some((rank, number)) => self.order(rank, &Order::FirstLine { id: number }),
            None => Err(io::Error::other("no such process")),
        }
    }

    fn casualty(&mut self) -> Option<String> {
        self.here.casualty()
    }

    fn end_all(&mut self) {
        let mut ranks: Vec<u32> = self.started.drain().map(|(_, (rank, _))| rank).collect();
        ranks.sort_unstable();
        ranks.dedup();
        for rank in ranks {
            if rank == 0 {
                self.here.end_all();
            } else {
                // A rank that is gone has nothing left to end.
                let _ = self.order(rank, &Order::EndAll);
            }
        }
    }
}

/// Carries out the orders of a conductor until it hangs up.
pub fn serve_agent(mut channel: Channel) -> io::Result<()> {
    let mut programs: HashMap<u64, Program> = HashMap::new();
    while let Ok(order) = channel.receive() {
        let done = match order {
            Order::Start { id, args, env } => Program::start(&args, &env).map(|p| {
                programs.insert(id, p);
                String::new()
            }),
            Order::FirstLine { id } => programs
                .get_mut(&id)
                .ok_or_else(|| io::Error::other("no such process"))
                .and_then(Program::first_line),
            Order::EndAll => {
                programs.drain().for_each(|(_, p)| p.end());
                Ok(String::new())
            }
        };
        channel.send(&match done {
            Ok(s) => Report::Fine(s),
            Err(e) => Report::Failed(e.to_string()),
        })?;
    }
    programs.drain().for_each(|(_, p)| p.end());
    Ok(())
}
