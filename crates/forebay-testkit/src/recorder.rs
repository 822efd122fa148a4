//! Somebody in between, who takes down all that goes through and changes nothing; or who is in its place, and says again
//! what was said.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long somebody who says nothing is listened to, when something is said again.
const SILENCE: Duration = Duration::from_secs(2);

/// A connection, as it was taken down.
#[derive(Clone, Debug, Default)]
pub struct Recorded {
    /// What whoever connected said.
    pub asked: Vec<u8>,
    /// What was answered.
    pub answered: Vec<u8>,
}

#[derive(Default)]
struct Shared {
    /// Where connections go on to, `HOST:PORT`.
    to: Option<String>,
    /// What is answered in the place of whoever was there; connections go nowhere then.
    posing: Option<Vec<u8>>,
    all: Vec<Recorded>,
    open: Vec<TcpStream>,
}

/// Listens on a port of its own until the test ends.
#[derive(Clone)]
pub struct Recorder {
    /// Where, `HOST:PORT`.
    pub address: String,
    shared: Arc<Mutex<Shared>>,
}

impl Recorder {
    /// In front of nobody yet.
    pub fn start() -> Recorder {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        let recorder = Recorder { address, shared: Arc::default() };
        let ours = recorder.clone();
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                ours.take(client);
            }
        });
        recorder
    }

    /// In front of whoever listens there, `HOST:PORT`.
    pub fn in_front_of(to: &str) -> Recorder {
        let recorder = Recorder::start();
        recorder.lead_to(to);
        recorder
    }

    /// Connections go on to there from now on.
    pub fn lead_to(&self, to: &str) {
        let mut shared = self.lock();
        (shared.to, shared.posing) = (Some(to.to_owned()), None);
    }

    /// All connections end, and new ones are answered with these bytes, as far as it goes.
    pub fn pose(&self, with: Vec<u8>) {
        let mut shared = self.lock();
        shared.posing = Some(with);
        for socket in shared.open.drain(..) {
            let _ = socket.shutdown(Shutdown::Both);
        }
    }

    /// All that was taken down so far.
    pub fn recorded(&self) -> Vec<Recorded> {
        self.lock().all.clone()
    }

    /// Whether these bytes went through, either way and in letters of either case.
    pub fn heard(&self, what: &[u8]) -> bool {
        let has = |text: &[u8]| text.windows(what.len()).any(|w| w.eq_ignore_ascii_case(what));
        self.lock().all.iter().any(|r| has(&r.asked) || has(&r.answered))
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, client: TcpStream) {
        let mut shared = self.lock();
        let number = shared.all.len();
        shared.all.push(Recorded::default());
        let _ = client.set_nodelay(true);
        shared.open.extend(client.try_clone());
        let (posing, to) = (shared.posing.clone(), shared.to.clone());
        drop(shared);
        let Ok(back) = client.try_clone() else { return };
        let recorder = self.clone();
        if let Some(answer) = posing {
            std::thread::spawn(move || {
                let _ = (&back).write_all(&answer);
                recorder.pump(client, None, number, |r| &mut r.asked);
            });
            return;
        }
        let Some(server) = to.and_then(|to| TcpStream::connect(to).ok()) else { return };
        let _ = server.set_nodelay(true);
        let Ok(forth) = server.try_clone() else { return };
        self.lock().open.extend(server.try_clone());
        std::thread::spawn(move || recorder.pump(client, Some(forth), number, |r| &mut r.asked));
        let recorder = self.clone();
        std::thread::spawn(move || recorder.pump(server, Some(back), number, |r| &mut r.answered));
    }

    fn pump(
        &self,
        mut from: TcpStream,
        to: Option<TcpStream>,
        number: usize,
        into: fn(&mut Recorded) -> &mut Vec<u8>,
    ) {
        let mut piece = [0; 65536];
        while let Ok(n @ 1..) = from.read(&mut piece) {
            into(&mut self.lock().all[number]).extend_from_slice(&piece[..n]);
            if to.as_ref().is_some_and(|mut to| to.write_all(&piece[..n]).is_err()) {
                break;
            }
        }
        to.inspect(|to| drop(to.shutdown(Shutdown::Write)));
    }
}

/// Says to whoever listens there what somebody else has said, and hears the answer to the end, or until nothing comes any
/// more.
pub fn say_again(to: &str, what: &[u8]) -> Vec<u8> {
    let mut answer = Vec::new();
    let Ok(mut stream) = TcpStream::connect(to) else { return answer };
    let _ = (stream.set_nodelay(true), stream.set_read_timeout(Some(SILENCE)));
    let Ok(mut forth) = stream.try_clone() else { return answer };
    let what = what.to_vec();
    // Beside the reading: neither side may wait for the other.
    let saying = std::thread::spawn(move || drop(forth.write_all(&what)));
    let mut piece = [0; 65536];
    while let Ok(n @ 1..) = stream.read(&mut piece) {
        answer.extend_from_slice(&piece[..n]);
    }
    let _ = stream.shutdown(Shutdown::Both);
    let _ = saying.join();
    answer
}
