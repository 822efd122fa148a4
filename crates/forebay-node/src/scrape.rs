//! Where Prometheus fetches the metrics: an HTTP server of one thread that serves a few visitors at
//! once, each of whom has its time. Whoever says nothing keeps nobody else waiting.

use crate::node::{Node, spawn};
use forebay_types::exposition::CONTENT_TYPE;
use rustix::event::{PollFd, PollFlags, poll};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a visit may take in all.
const PATIENCE: Duration = Duration::from_secs(2);
/// Visitors at once; for one more, the oldest that has asked for nothing yet is sent away.
const VISITORS: usize = 16;
/// The longest request that is read.
const HEAD: usize = 8 << 10;
/// How often it is looked whether the node has ended.
const TICK: Duration = Duration::from_millis(200);

/// Serves the metrics at `address` until the node has ended; where that is.
pub(crate) fn start(node: &Arc<Node>, address: SocketAddr) -> std::io::Result<SocketAddr> {
    let listener = TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    let at = listener.local_addr()?;
    let node = Arc::clone(node);
    spawn("metrics", move || {
        let mut visits: Vec<Visit> = Vec::new();
        while !node.stopped() {
            wait(&listener, &visits);
            let failed = welcome(&listener, &mut visits).is_err();
            let now = Instant::now();
            // Whoever has hung up misses nothing.
            visits.retain_mut(|v| now < v.until && v.go_on(&node).unwrap_or(false));
            if failed {
                // Out of descriptors, most likely: it may pass.
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    })?;
    Ok(at)
}

/// Until somebody comes, sends or takes something, or it is time to look around.
fn wait(listener: &TcpListener, visits: &[Visit]) {
    let wants = |v: &Visit| if v.answer.is_empty() { PollFlags::IN } else { PollFlags::OUT };
    let mut polled = vec![PollFd::new(listener, PollFlags::IN)];
    polled.extend(visits.iter().map(|v| PollFd::new(&v.stream, wants(v))));
    let tick = rustix::time::Timespec { tv_sec: 0, tv_nsec: i64::from(TICK.subsec_nanos()) };
    // Interrupted or not, all are looked after.
    let _ = poll(&mut polled, Some(&tick));
}

/// Lets those in who have come, as many as there may be at once.
fn welcome(listener: &TcpListener, visits: &mut Vec<Visit>) -> std::io::Result<()> {
    for _ in 0..VISITORS {
        let stream = match listener.accept() {
            Ok((stream, _)) => stream,
            Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(e) => return Err(e),
        };
        stream.set_nonblocking(true)?;
        if visits.len() >= VISITORS {
            visits.remove(visits.iter().position(|v| v.answer.is_empty()).unwrap_or(0));
        }
        visits.push(Visit { stream, until: Instant::now() + PATIENCE, head: Vec::new(), answer: Vec::new() });
    }
    Ok(())
}

/// Somebody who is connected.
struct Visit {
    stream: TcpStream,
    until: Instant,
    /// What it has asked so far.
    head: Vec<u8>,
    /// What it is still to be told; empty before it has asked.
    answer: Vec<u8>,
}

impl Visit {
    /// Hears and says what can be without waiting; whether there is more to come.
    fn go_on(&mut self, node: &Node) -> std::io::Result<bool> {
        match self.hear(node).and_then(|()| self.say()) {
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(true),
            done => done.map(|()| false),
        }
    }

    fn hear(&mut self, node: &Node) -> std::io::Result<()> {
        let mut part = [0; 1024];
        while self.answer.is_empty() {
            let n = self.stream.read(&mut part)?;
            self.head.extend_from_slice(&part[..n]);
            if n == 0 || self.head.len() > HEAD {
                return Err(ErrorKind::InvalidData.into());
            }
            if self.head.windows(4).any(|w| w == b"\r\n\r\n") {
                self.answer = answer(node, &self.head);
            }
        }
        Ok(())
    }

    fn say(&mut self) -> std::io::Result<()> {
        while !self.answer.is_empty() {
            let n = self.stream.write(&self.answer)?;
            self.answer.drain(..n);
        }
        Ok(())
    }
}

fn answer(node: &Node, head: &[u8]) -> Vec<u8> {
    let line = head.split(|b| *b == b'\r').next().unwrap_or_default();
    let mut words = line.split(|b| *b == b' ');
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let path = path.split(|b| *b == b'?').next().unwrap_or_default();
    let (status, body) = match (method, path) {
        (b"GET" | b"HEAD", b"/metrics") => ("200 OK", node.metrics()),
        (b"GET" | b"HEAD", _) => ("404 Not Found", "the metrics are at /metrics\n".to_owned()),
        _ => ("405 Method Not Allowed", "GET /metrics\n".to_owned()),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {CONTENT_TYPE}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    let body = if method == b"HEAD" { "" } else { &body };
    [head.as_bytes(), body.as_bytes()].concat()
}
