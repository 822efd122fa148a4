//! Slow neighbours, from outside: programs whose answers are taken slowly, and those of another job.

use forebay_testkit::{AT, Layer, Process, until};
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

const SLOW: usize = 64;

/// The way to a node on which answers trickle, 32 KB/s for each connection. How many have begun to.
fn trickle(listen: &Path, node: String) -> Arc<AtomicUsize> {
    let listener = UnixListener::bind(listen).expect("a socket");
    let begun = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&begun);
    std::thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let Ok(server) = UnixStream::connect(&node) else { return };
            let (Ok(from), Ok(to)) = (client.try_clone(), server.try_clone()) else { return };
            std::thread::spawn(move || std::io::copy(&mut &from, &mut &to));
            let count = Arc::clone(&count);
            std::thread::spawn(move || sip(&server, &client, &count));
        }
    });
    begun
}

fn sip(mut node: &UnixStream, mut client: &UnixStream, begun: &AtomicUsize) {
    let (mut sip, mut taken) = ([0; 1024], 0);
    while let Ok(n @ 1..) = node.read(&mut sip) {
        if client.write_all(&sip[..n]).is_err() {
            break;
        }
        // More than a handshake and the answer to an `open`.
        begun.fetch_add(usize::from(taken < 8 << 10 && taken + n >= 8 << 10), Relaxed);
        taken += n;
        std::thread::sleep(Duration::from_millis(30));
    }
    let _ = client.shutdown(std::net::Shutdown::Both);
}

/// They hold what memory of the node they can get: another job has its share all the same.
#[test]
fn who_takes_answers_slowly_leaves_another_job_its_memory() {
    let mut layer = Layer::start_for_any_job(1, 2000);
    layer.configure(0, "memory-mib = 32\n");
    std::fs::write(layer.export().join("large"), vec![1; 4 << 20]).expect("a file");
    let slowly = layer.scratch().join("slowly");
    let begun = trickle(&slowly, layer.address(0).trim_start_matches("unix:").to_owned());
    let slow = layer.job("slow", &format!("unix:{}", slowly.display()), Duration::from_secs(200));
    let other = layer.job("other", &layer.address(0), Duration::from_secs(15));
    let dd = |config: &Path, arguments: &[&str]| {
        let mut command = layer.command(Path::new("/usr/bin/dd"), 0);
        command.args(arguments).args(["bs=4M", "status=none"]).env("FOREBAY_CONFIG", config);
        Process::start(command.stdout(Stdio::null()).stderr(Stdio::null())).expect("dd runs")
    };
    let large = format!("if={AT}/large");
    let slow: Vec<Process> = (0..SLOW).map(|_| dd(&slow, &[&large])).collect();
    // As much as there is for all of them, less what they must leave to others.
    until(Duration::from_secs(60), "they take their answers", || (begun.load(Relaxed) >= 6).then_some(()));
    std::thread::sleep(Duration::from_millis(500));
    for _ in 0..3 {
        let mut write = dd(&other, &["if=/dev/zero", &format!("of={AT}/other"), "count=3"]);
        let ended = write.wait().expect("it ends");
        assert!(ended.success(), "a job that has done nothing wrong: {ended}");
    }
    drop(slow);
}
