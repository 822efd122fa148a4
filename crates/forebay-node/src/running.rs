//! A node's life: it listens, and lets its clients go when it is to end.

use crate::announce;
use crate::config::NodeConfig;
use crate::link::Link;
use crate::node::{Node, StartError, spawn};
use crate::{scrape, sys};
use forebay_types::{Address, Nanos};
use forebay_wire::session::presence::{Drain, Remaining, Step, may_close};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, PoisonError, Weak};
use std::time::{Duration, Instant};

/// An arbiter that does not listen is not waited for longer.
const SAID: Duration = Duration::from_millis(400);

/// A node that listens.
pub struct Running {
    node: Arc<Node>,
    addresses: Vec<Address>,
    metrics: Option<SocketAddr>,
    sockets: Vec<Socket>,
    listeners: Vec<OwnedFd>,
    acceptors: Vec<std::thread::JoinHandle<()>>,
    announcer: Option<std::thread::JoinHandle<()>>,
}

impl Node {
    /// Listens and serves in threads of its own.
    pub fn start(config: NodeConfig) -> Result<Running, StartError> {
        if config.listen.is_empty() {
            return Err(StartError::NoListen);
        }
        let node = Node::new(config)?;
        let mut running = Running {
            node: Arc::clone(&node),
            addresses: Vec::new(),
            metrics: None,
            sockets: Vec::new(),
            listeners: Vec::new(),
            acceptors: Vec::new(),
            announcer: None,
        };
        let mut acceptors: Vec<Box<dyn FnOnce() + Send>> = Vec::new();
        for address in &node.config.listen {
            let fail = |source| StartError::Listen { address: address.to_string(), source };
            let n = Arc::clone(&node);
            match address {
                Address::Tcp(at) => {
                    let listener = TcpListener::bind(at).map_err(fail)?;
                    let at = listener.local_addr().map_err(fail)?;
                    // std's backlog of 128 is too short for a job that starts on many nodes at once.
                    rustix::net::listen(&listener, 4096).map_err(|e| fail(e.into()))?;
                    running.addresses.push(Address::Tcp(at));
                    running.listeners.push(listener.try_clone().map_err(fail)?.into());
                    acceptors.push(Box::new(move || {
                        n.accept(&listener, || {
                            let (socket, _) = listener.accept()?;
                            socket.set_nodelay(true)?;
                            keep_alive(&socket)?;
                            Ok(socket.into())
                        });
                    }));
                }
                Address::Unix(path) => {
                    let listener = bind_unix(path).map_err(fail)?;
                    running.sockets.push(Socket(path.clone()));
                    rustix::net::listen(&listener, 4096).map_err(|e| fail(e.into()))?;
                    running.addresses.push(address.clone());
                    running.listeners.push(listener.try_clone().map_err(fail)?.into());
                    acceptors.push(Box::new(move || n.accept(&listener, || Ok(listener.accept()?.0.into()))));
                }
            }
        }
        node.engine.start().map_err(StartError::Thread)?;
        if let Some(address) = node.config.metrics {
            let fail = |source| StartError::Listen { address: address.to_string(), source };
            running.metrics = Some(scrape::start(&node, address).map_err(fail)?);
        }
        for acceptor in acceptors {
            running.acceptors.push(spawn("acceptor", acceptor).map_err(StartError::Thread)?);
        }
        node.set_peers(&node.config.peers).map_err(StartError::Peers)?;
        running.announcer = announce::start(&node, &running.addresses).map_err(StartError::Thread)?;
        let n = Arc::clone(&node);
        spawn("housekeeper", move || n.housekeep()).map_err(StartError::Thread)?;
        let n = Arc::clone(&node);
        spawn("space", move || n.watch_space()).map_err(StartError::Thread)?;
        let at: Vec<String> = running.addresses.iter().map(ToString::to_string).collect();
        tracing::info!("node {} listens on {}", node.config.id, at.join(", "));
        Ok(running)
    }

    fn accept(self: &Arc<Node>, listener: &impl AsFd, next: impl Fn() -> std::io::Result<OwnedFd>) {
        let mut failing = false;
        while !self.stopped() {
            let mut polled = [rustix::event::PollFd::new(listener, rustix::event::PollFlags::IN)];
            let tick = rustix::time::Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
            match rustix::event::poll(&mut polled, Some(&tick)) {
                Ok(0) | Err(Errno::INTR) => continue,
                _ => {}
            }
            match next() {
                Ok(socket) => {
                    if std::mem::take(&mut failing) {
                        tracing::info!("connections are accepted again");
                    }
                    self.serve(socket);
                }
                Err(_) if self.stopped() => {}
                Err(e) => {
                    // Out of descriptors or memory, most likely: it may pass.
                    if !std::mem::replace(&mut failing, true) {
                        tracing::warn!("cannot accept a connection: {e}");
                    }
                    std::thread::sleep(Duration::from_millis(10));
                }
            }
        }
    }

    /// What there still is, of which a drain must see the end.
    fn left(&self) -> Remaining {
        Remaining {
            connections: self.connection_count(),
            busy: !self.engine.is_idle(),
            owed: self.sessions.owe(),
        }
    }

    /// Closes the connections of clients that say nothing and need nothing that only this node has.
    fn release_quiet(&self, now: Nanos) {
        let links: Vec<Arc<Link>> = self.connections().clone();
        for link in links {
            let quiet_for = now.since(Nanos(link.heard.load(Relaxed)));
            let holds_on = || link.session.get().and_then(Weak::upgrade).is_some_and(|s| s.holds_on());
            if may_close(quiet_for, link.unanswered.load(Relaxed) > 0, holds_on) {
                link.stop_receiving();
            }
        }
    }
}

impl Running {
    /// Where it listens, with the ports the system chose.
    pub fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    /// Where its metrics are served.
    pub fn metrics(&self) -> Option<SocketAddr> {
        self.metrics
    }

    /// The node itself.
    pub fn node(&self) -> &Arc<Node> {
        &self.node
    }

    /// Waits until somebody begins the drain.
    pub fn wait(&self) {
        let (lock, begun) = &self.node.drain_begun;
        let guard = lock.lock().unwrap_or_else(PoisonError::into_inner);
        drop(begun.wait_while(guard, |()| !self.node.draining()).unwrap_or_else(PoisonError::into_inner));
    }

    /// Lets clients finish, come back for what was not answered, and move; then takes no more
    /// connections and ends. Says whether all had left when the time was over.
    pub fn drain(self) -> bool {
        let node = &self.node;
        node.begin_drain();
        let drain = Drain::new(sys::now(), node.config.drain_timeout.into());
        let settled = loop {
            let now = sys::now();
            if let Step::End { settled } = drain.next(now, node.left()) {
                break settled;
            }
            // Its parent may end thread by thread.
            if sys::orphaned() {
                break false;
            }
            node.release_quiet(now);
            std::thread::sleep(Duration::from_millis(5));
        };
        let left = node.connection_count();
        node.jobs.tell_ends();
        match settled {
            _ if sys::orphaned() => {
                tracing::debug!("node {} ends: whoever started it is gone", node.config.id)
            }
            true => tracing::info!("node {} has drained", node.config.id),
            false => tracing::warn!(
                "node {} ends after {:?} though {left} connections are open: requests, locks or files without a name were left",
                node.config.id,
                node.config.drain_timeout
            ),
        }
        node.closing.store(true, Relaxed);
        for listener in &self.listeners {
            // Wakes whoever accepts.
            let _ = rustix::net::shutdown(listener, rustix::net::Shutdown::Both);
        }
        for acceptor in self.acceptors {
            let _ = acceptor.join();
        }
        drop(self.sockets);
        for link in node.connections().iter() {
            link.cut();
        }
        // An arbiter that is not told takes the node for lost.
        let since = Instant::now();
        while self.announcer.as_ref().is_some_and(|a| !a.is_finished()) && since.elapsed() < SAID {
            std::thread::sleep(Duration::from_millis(2));
        }
        node.engine.stop();
        node.end_sharing();
        // Lets the threads end that talk to other nodes.
        let _ = node.set_peers(&[]);
        node.lend_to(Default::default());
        settled
    }
}

/// A socket among the files, which goes with this: also where the node does not start.
struct Socket(PathBuf);

impl Drop for Socket {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Listens on a path, in place of a socket that a node left there when it was killed. Anything else that is there is
/// somebody's.
fn bind_unix(path: &std::path::Path) -> std::io::Result<UnixListener> {
    let bound = UnixListener::bind(path);
    let taken = matches!(&bound, Err(e) if e.kind() == std::io::ErrorKind::AddrInUse);
    let refused = |e: std::io::Error| e.kind() == std::io::ErrorKind::ConnectionRefused;
    if taken && !sys::is_socket(path) {
        return Err(std::io::Error::other("there is a file of that name, which is no socket"));
    }
    if taken && UnixStream::connect(path).is_err_and(refused) {
        std::fs::remove_file(path)?;
        return UnixListener::bind(path);
    }
    bound
}

/// Has the kernel find out within half a minute that a client's machine is gone: nobody else would
/// tell, and its locks must not outlive it.
fn keep_alive(socket: &impl AsFd) -> Result<(), Errno> {
    use rustix::net::sockopt;
    sockopt::set_socket_keepalive(socket, true)?;
    sockopt::set_tcp_keepidle(socket, Duration::from_secs(10))?;
    sockopt::set_tcp_keepintvl(socket, Duration::from_secs(5))?;
    sockopt::set_tcp_keepcnt(socket, 4)?;
    sockopt::set_tcp_user_timeout(socket, 30_000)
}
