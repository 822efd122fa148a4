//! What the conductor and the processes it starts say to each other: JSON, one message a line, over
//! TCP. The conductor is the process the user (or rank 0) started.

use crate::scenario::Job;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{IpAddr, TcpStream};

/// The longest message that is taken.
const MAX_MESSAGE: u64 = 64 << 20;

/// The first message of a process.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// The study's secret.
    pub token: String,
    /// Who it is.
    pub role: Role,
}

/// What a process is there for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Role {
    /// Plays process `slot` of a run.
    Worker {
        /// Which run.
        run: u64,
        /// Which process, over all jobs.
        slot: u32,
    },
    /// Starts processes on its host, for rank `rank` of a launcher.
    Agent {
        /// Its rank.
        rank: u32,
        /// Its host.
        host: String,
    },
}

/// What a worker is to do.
#[derive(Debug, Serialize, Deserialize)]
pub struct Task {
    /// The job it belongs to.
    pub job: Job,
    /// Its rank in it.
    pub rank: u32,
    /// The scenario's seed.
    pub seed: u64,
    /// Where relative paths begin.
    pub root: String,
    /// How it reaches the files.
    pub access: Access,
}

/// How a worker reaches the files.
#[derive(Debug, Serialize, Deserialize)]
pub enum Access {
    /// Plain POSIX calls (also when a preloaded library forwards them).
    Posix,
    /// Through the client library, with this configuration.
    Client(serde_json::Value),
}

/// From the conductor to a worker, after its task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Cue {
    /// All are ready: begin the step. Or all have done the last one: prepare the next.
    Go,
}

/// From a worker to the conductor, after its hello.
#[derive(Debug, Serialize, Deserialize)]
pub enum Reply {
    /// Prepared for step so-and-so.
    Ready(usize),
    /// Did it.
    Done(Outcome),
    /// Could not; the run is void.
    Failed(String),
}

/// What one process did in one step.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// How long it took.
    pub seconds: f64,
    /// Bytes read.
    pub bytes_read: u64,
    /// Bytes written.
    pub bytes_written: u64,
    /// Requests or metadata operations.
    pub requests: u64,
    /// Whether the stone wall stopped it.
    pub hit_wall: bool,
    /// The buckets of a [`forebay_types::FineHistogram`] of the latencies, in nanoseconds.
    pub latencies: Vec<(u64, u64)>,
    /// The longest of them.
    pub slowest: u64,
}

/// From the conductor to an agent.
#[derive(Debug, Serialize, Deserialize)]
pub enum Order {
    /// Start this program: the arguments, and environment variables to set.
    Start {
        /// The program's arguments; the program is `forebay` itself.
        args: Vec<String>,
        /// Environment variables.
        env: Vec<(String, String)>,
    },
    /// Has a program ended with an error?
    Casualty,
    /// End the programs that still run.
    EndAll,
}

/// From an agent to the conductor; one to each order.
#[derive(Debug, Serialize, Deserialize)]
pub enum OrderResult {
    /// It was done; for [`Order::Casualty`], with what happened, if anything.
    Fine(String),
    /// It could not be done.
    Failed(String),
}

/// One end of a conversation.
pub struct Channel {
    reader: BufReader<TcpStream>,
    writer: TcpStream,
}

impl Channel {
    /// Over this connection.
    pub fn new(stream: TcpStream) -> io::Result<Channel> {
        stream.set_nodelay(true)?;
        let writer = stream.try_clone()?;
        Ok(Channel { reader: BufReader::new(stream), writer })
    }

    /// Sends a message.
    pub fn send<T: Serialize>(&mut self, message: &T) -> io::Result<()> {
        let mut line = serde_json::to_vec(message)?;
        line.push(b'\n');
        self.writer.write_all(&line)
    }

    /// Waits for a message. The other end being gone is an error.
    pub fn receive<T: DeserializeOwned>(&mut self) -> io::Result<T> {
        let mut line = Vec::new();
        (&mut self.reader).take(MAX_MESSAGE).read_until(b'\n', &mut line)?;
        if line.last() != Some(&b'\n') {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the other process ended"));
        }
        Ok(serde_json::from_slice(&line)?)
    }

    /// How long [`Channel::receive`] waits at most.
    pub fn set_timeout(&self, timeout: Option<std::time::Duration>) -> io::Result<()> {
        self.writer.set_read_timeout(timeout)
    }

    /// The address of this end.
    pub fn local_ip(&self) -> io::Result<IpAddr> {
        Ok(self.writer.local_addr()?.ip())
    }

    /// The address of the other end.
    pub fn peer_ip(&self) -> io::Result<IpAddr> {
        Ok(self.writer.peer_addr()?.ip())
    }

    /// A handle that can end the conversation from another thread.
    pub fn breaker(&self) -> io::Result<TcpStream> {
        self.writer.try_clone()
    }
}
