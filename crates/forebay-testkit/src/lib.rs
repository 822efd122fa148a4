//! What the tests share: I/O nodes, arbiters and etcd clusters as real processes, programs that check
//! every byte, connections that break, and tools that may be missing. For tests only.

mod etcd;
mod hosts;
mod layer;
mod munge;
mod proxy;
mod recorder;
mod site;
mod skip;
mod tls;
mod verify;
mod workers;

pub use etcd::Cluster;
pub use forebay_embed::{ArbiterProcess, ArbiterSpec, NodeProcess, NodeSpec, Process, RunDir};
pub use hosts::{Hosts, SHARED, SSH};
pub use layer::{AT, ClientOptions, Layer, Talker, compile};
pub use munge::{Munged, as_user, as_user_in};
pub use proxy::Proxy;
pub use recorder::{Recorded, Recorder, say_again};
pub use rustix::process::Signal;
pub use site::Site;
pub use skip::{installed, needs, skipped};
pub use tls::certificates;
pub use verify::Verifiers;
pub use workers::Workers;

use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The program `forebay`, as cargo builds it for the tests of its own crate; or another one, to see what the
/// tests say of it: `FOREBAY_PROGRAM`, with its library `FOREBAY_LIBRARY`.
pub fn program() -> PathBuf {
    if let Some(other) = std::env::var_os("FOREBAY_PROGRAM") {
        return other.into();
    }
    let here = std::env::current_exe().expect("a test has a file");
    let target = here.parent().and_then(std::path::Path::parent).expect("tests are in target/PROFILE/deps");
    let program = target.join("forebay");
    assert!(program.is_file(), "{}: build the program first: cargo build -p forebay", program.display());
    program
}

/// Waits until `what` gives something.
pub fn until<T>(patience: Duration, why: &str, mut what: impl FnMut() -> Option<T>) -> T {
    let begin = Instant::now();
    loop {
        if let Some(found) = what() {
            return found;
        }
        assert!(begin.elapsed() < patience, "after {patience:?}: {why}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Asserts that something ends within a second. Each try says how long it took; since tests run side by side on
/// machines that are busy with other things, a try that took longer is repeated, and only the quickest counts:
/// what waits for something that never comes, or for a time-out, takes longer every time.
pub fn ends_within_a_second(what: &str, mut try_once: impl FnMut() -> Duration) {
    let mut took = Vec::new();
    while took.len() < 6 {
        took.push(try_once());
        if took.iter().any(|t| *t <= Duration::from_secs(1)) {
            return;
        }
    }
    panic!("{what} does not end within a second: {took:?}");
}

/// An address on this machine at which nobody listens.
pub fn free_address() -> String {
    let free = std::net::TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr());
    free.expect("a free port").to_string()
}

/// Whether times are held against what is promised (`FOREBAY_STRICT_TIMES=1`): on a machine that does nothing else.
pub fn strict_times() -> bool {
    std::env::var_os("FOREBAY_STRICT_TIMES").is_some_and(|v| v != "0")
}

/// The seed of a random test: `FOREBAY_SEED`, or another one every time.
pub fn seed() -> u64 {
    let seed = match std::env::var("FOREBAY_SEED") {
        Ok(text) => text.parse().expect("FOREBAY_SEED is a number"),
        Err(_) => std::time::UNIX_EPOCH.elapsed().map_or(1, |t| t.as_nanos() as u64 % 1_000_000_007),
    };
    println!("seed {seed} (repeat with FOREBAY_SEED={seed})");
    seed
}

/// A number from the environment.
pub fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |t| t.parse().unwrap_or_else(|_| panic!("{name} is a number")))
}
