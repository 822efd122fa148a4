//! A TCP proxy in front of an I/O node that cuts connections at random points: within a request,
//! behind it, or before its answer.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

const LATE: Duration = Duration::from_millis(100);

/// A proxy in front of one node. Dropping it ends it.
pub struct Proxy {
    /// Where it listens, `HOST:PORT`.
    pub address: String,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    /// New connections are closed at once.
    refuses: AtomicBool,
    ended: AtomicBool,
    /// A request whose connection is cut reaches the node all the same, after a while.
    late: AtomicBool,
    cuts: AtomicU64,
    /// Connections under way.
    open: Mutex<Vec<TcpStream>>,
}

impl Proxy {
    /// In front of the node at `HOST:PORT`; connections end after a while.
    pub fn start(node: String, seed: u64) -> Proxy {
        Proxy::begin(node, seed, 30)
    }

    /// The same, but connections last until they are cut.
    pub fn steady(node: String) -> Proxy {
        Proxy::begin(node, 0, i64::MAX)
    }

    fn begin(node: String, seed: u64, longest: i64) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        let shared = Arc::new(Shared::default());
        let ours = Arc::clone(&shared);
        std::thread::spawn(move || {
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            for client in listener.incoming().map_while(Result::ok) {
                if ours.ended.load(Relaxed) {
                    return;
                }
                if ours.refuses.load(Relaxed) {
                    continue;
                }
                let Ok(server) = TcpStream::connect(&node) else { continue };
                let _ = (client.set_nodelay(true), server.set_nodelay(true));
                // The handshake takes three pieces; then the connection lives for some more.
                let left = Arc::new(AtomicI64::new(if longest == i64::MAX {
                    longest
                } else {
                    rng.random_range(4..longest)
                }));
                let half = rng.random_bool(0.5);
                let both = [client.try_clone(), server.try_clone()].into_iter().flatten();
                ours.open.lock().unwrap_or_else(PoisonError::into_inner).extend(both);
                for (from, to) in [(&client, &server), (&server, &client)] {
                    let (from, to) = (from.try_clone(), to.try_clone());
                    let (Ok(from), Ok(to)) = (from, to) else { continue };
                    let (left, shared) = (Arc::clone(&left), Arc::clone(&ours));
                    let request = to.peer_addr().is_ok_and(|a| a.to_string() == node);
                    std::thread::spawn(move || pump(from, to, request, &left, half, &shared));
                }
            }
        });
        Proxy { address, shared }
    }

    /// Every connection is reset, and new ones are closed at once.
    pub fn cut(&self) {
        self.refuse(true);
        for socket in self.shared.open.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            let _ = socket.shutdown(Shutdown::Both);
        }
    }

    /// Whether new connections are closed at once.
    pub fn refuse(&self, yes: bool) {
        self.shared.refuses.store(yes, Relaxed);
    }

    /// Whether requests that are cut off reach the node all the same, later.
    pub fn deliver_late(&self) {
        self.shared.late.store(true, Relaxed);
    }

    /// How many connections were cut.
    pub fn cuts(&self) -> u64 {
        self.shared.cuts.load(Relaxed)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.ended.store(true, Relaxed);
        // Wakes the thread that accepts.
        let _ = TcpStream::connect(&self.address);
    }
}

fn pump(
    mut from: TcpStream,
    mut to: TcpStream,
    request: bool,
    left: &AtomicI64,
    half: bool,
    shared: &Shared,
) {
    let mut piece = vec![0u8; 64 << 10];
    loop {
        let n = from.read(&mut piece).unwrap_or(0);
        let over = left.fetch_sub(1, Relaxed) <= 0;
        if over && n > 0 {
            shared.cuts.fetch_add(1, Relaxed);
            if request && shared.late.load(Relaxed) {
                let _ = from.shutdown(Shutdown::Both);
                std::thread::sleep(LATE);
                let _ = to.write_all(&piece[..n]);
                std::thread::sleep(LATE);
            } else if half {
                let _ = to.write_all(&piece[..n / 2]);
            }
        }
        if n == 0 || over || to.write_all(&piece[..n]).is_err() {
            let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
            return;
        }
    }
}
