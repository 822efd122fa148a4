//! Where Prometheus fetches the metrics: an HTTP server of one thread that serves one scrape after the
//! other, each of which has its time.

use crate::node::{Node, spawn};
use forebay_types::exposition::CONTENT_TYPE;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a scrape may take in all.
const PATIENCE: Duration = Duration::from_secs(2);
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
        while !node.stopped() {
            match listener.accept() {
                Ok((stream, _)) => {
                    // Whoever has hung up misses nothing.
                    let _ = serve(&node, &stream);
                }
                Err(_) => wait(&listener),
            }
        }
    })?;
    Ok(at)
}

fn wait(listener: &TcpListener) {
    let mut polled = [rustix::event::PollFd::new(listener, rustix::event::PollFlags::IN)];
    let tick = rustix::time::Timespec { tv_sec: 0, tv_nsec: i64::from(TICK.subsec_nanos()) };
    if !matches!(rustix::event::poll(&mut polled, Some(&tick)), Ok(0)) {
        // Out of descriptors, most likely: it may pass.
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn serve(node: &Node, mut stream: &TcpStream) -> std::io::Result<()> {
    stream.set_nonblocking(false)?;
    let until = Instant::now() + PATIENCE;
    let mut head = Vec::new();
    while !head.windows(4).any(|w| w == b"\r\n\r\n") {
        let mut part = [0; 1024];
        stream.set_read_timeout(Some(left(until)))?;
        let n = stream.read(&mut part)?;
        head.extend_from_slice(&part[..n]);
        if n == 0 || head.len() > HEAD || left(until) <= TINY {
            return Ok(());
        }
    }
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
    for mut bytes in [head.as_bytes(), body.as_bytes()] {
        while !bytes.is_empty() && left(until) > TINY {
            stream.set_write_timeout(Some(left(until)))?;
            let n = stream.write(bytes)?;
            bytes = &bytes[n..];
        }
    }
    Ok(())
}

/// A time-out must not be 0.
const TINY: Duration = Duration::from_millis(1);

fn left(until: Instant) -> Duration {
    until.saturating_duration_since(Instant::now()).max(TINY)
}
