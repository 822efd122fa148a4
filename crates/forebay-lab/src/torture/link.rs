//! The way from the clients to a node: it holds back what it carries, and breaks off connections whose
//! requests arrive all the same.

use anyhow::Result;
use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

const LOOK_AGAIN: Duration = Duration::from_micros(500);
const CONNECT: Duration = Duration::from_secs(1);

/// What clients connect to instead of a node. Dropping it ends it.
pub(super) struct Link {
    pub(super) address: SocketAddr,
    listener: TcpListener,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    node: Mutex<Option<SocketAddr>>,
    requests_held: AtomicBool,
    answers_held: AtomicBool,
    refused: AtomicBool,
    ended: AtomicBool,
    next: AtomicU64,
    /// Connections under way: the client's end, and the node's.
    open: Mutex<HashMap<u64, [TcpStream; 2]>>,
}

impl Shared {
    fn open(&self) -> MutexGuard<'_, HashMap<u64, [TcpStream; 2]>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn node(&self) -> MutexGuard<'_, Option<SocketAddr>> {
        self.node.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One connection, from its beginning to its end.
    fn carry(&self, client: TcpStream) {
        let Some(at) = *self.node() else { return };
        let Ok(node) = TcpStream::connect_timeout(&at, CONNECT) else { return };
        let _ = (client.set_nodelay(true), node.set_nodelay(true));
        let (Ok(c), Ok(n)) = (client.try_clone(), node.try_clone()) else { return };
        let number = self.next.fetch_add(1, Relaxed);
        self.open().insert(number, [c, n]);
        std::thread::scope(|s| {
            s.spawn(|| {
                self.pump(&client, &node, &self.requests_held);
                let _ = node.shutdown(Shutdown::Write);
            });
            self.pump(&node, &client, &self.answers_held);
            let _ = client.shutdown(Shutdown::Both);
        });
        self.open().remove(&number);
    }

    /// Until `from` has no more. What nobody takes is dropped.
    fn pump(&self, mut from: &TcpStream, mut to: &TcpStream, held: &AtomicBool) {
        let mut piece = vec![0; 64 << 10];
        let mut taken = true;
        loop {
            let n = match from.read(&mut piece) {
                Ok(0) | Err(_) => return,
                Ok(n) => n,
            };
            while held.load(Relaxed) && !self.ended.load(Relaxed) {
                std::thread::sleep(LOOK_AGAIN);
            }
            taken = taken && to.write_all(&piece[..n]).is_ok();
        }
    }
}

impl Link {
    /// Whatever network `listener` is in, connections go on in this thread's.
    pub(super) fn new(listener: TcpListener) -> Result<Link> {
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared::default());
        let (ours, accepts) = (Arc::clone(&shared), listener.try_clone()?);
        std::thread::spawn(move || {
            for client in accepts.incoming().map_while(Result::ok) {
                if ours.ended.load(Relaxed) {
                    return;
                }
                if ours.refused.load(Relaxed) {
                    continue;
                }
                let ours = Arc::clone(&ours);
                std::thread::spawn(move || ours.carry(client));
            }
        });
        Ok(Link { address, listener, shared })
    }

    /// The node is there now.
    pub(super) fn leads_to(&self, node: SocketAddr) {
        *self.shared.node() = Some(node);
    }

    /// Whether requests, and answers, are held back.
    pub(super) fn hold(&self, requests: bool, answers: bool) {
        self.shared.requests_held.store(requests, Relaxed);
        self.shared.answers_held.store(answers, Relaxed);
    }

    /// From now on nobody gets through; what is on its way does.
    pub(super) fn refuse(&self) {
        self.shared.refused.store(true, Relaxed);
    }

    /// All is as it should be.
    pub(super) fn open(&self) {
        self.hold(false, false);
        self.shared.refused.store(false, Relaxed);
    }

    /// After `held` nothing is held back, and `more` later nobody is refused: to the millisecond, whatever else there is
    /// to do.
    pub(super) fn open_after(&self, held: Duration, more: Duration) {
        let shared = Arc::clone(&self.shared);
        std::thread::spawn(move || {
            std::thread::sleep(held);
            shared.requests_held.store(false, Relaxed);
            shared.answers_held.store(false, Relaxed);
            std::thread::sleep(more);
            shared.refused.store(false, Relaxed);
        });
    }

    /// To the clients every connection is broken; the node gets what was on its way to it.
    pub(super) fn reset(&self) {
        for [client, _] in self.shared.open().values() {
            let _ = client.shutdown(Shutdown::Both);
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.shared.ended.store(true, Relaxed);
        for end in self.shared.open().values().flatten() {
            let _ = end.shutdown(Shutdown::Both);
        }
        // Wakes the thread that accepts, in whichever network that is.
        let _ = rustix::net::shutdown(&self.listener, rustix::net::Shutdown::Both);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_arrives_though_its_connection_is_broken() {
        let node = TcpListener::bind("127.0.0.1:0").unwrap();
        let link = Link::new(TcpListener::bind("127.0.0.1:0").unwrap()).unwrap();
        link.leads_to(node.local_addr().unwrap());
        let mut client = TcpStream::connect(link.address).unwrap();
        client.write_all(b"one").unwrap();
        let (mut served, _) = node.accept().unwrap();
        let mut got = [0; 3];
        served.read_exact(&mut got).unwrap();
        served.write_all(b"yes").unwrap();
        client.read_exact(&mut got).unwrap();
        assert_eq!(&got, b"yes");
        link.hold(true, false);
        client.write_all(b"two").unwrap();
        served.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        assert!(served.read(&mut got).is_err(), "it is held back");
        link.reset();
        assert_eq!(client.read(&mut got).unwrap(), 0, "the client sees its end");
        link.hold(false, false);
        served.set_read_timeout(None).unwrap();
        served.read_exact(&mut got).unwrap();
        assert_eq!(&got, b"two");
        assert_eq!(served.read(&mut got).unwrap(), 0);
        link.refuse();
        let mut other = TcpStream::connect(link.address).unwrap();
        assert!(matches!(other.read(&mut got), Ok(0) | Err(_)), "nobody gets through");
        link.open();
        TcpStream::connect(link.address).unwrap().write_all(b"ask").unwrap();
        node.accept().unwrap().0.read_exact(&mut got).unwrap();
        assert_eq!(&got, b"ask");
    }
}
