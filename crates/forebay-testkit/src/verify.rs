//! Clients that write and read back, and know what they must read.

use forebay_client::{Client, ExportId, OpenFlags, Path};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Clients at work.
pub struct Verifiers {
    end: Arc<AtomicBool>,
    rounds: Arc<AtomicU64>,
    clients: Vec<JoinHandle<()>>,
}

const REQUEST: usize = 16 << 10;
const BLOCKS: u64 = 32;

impl Verifiers {
    /// Starts them.
    pub fn start(clients: Vec<Client>) -> Verifiers {
        let (end, rounds) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let work = |(rank, client): (usize, Client)| {
            let (end, rounds) = (end.clone(), rounds.clone());
            std::thread::spawn(move || work(&client, rank, &end, &rounds))
        };
        Verifiers { clients: clients.into_iter().enumerate().map(work).collect(), end, rounds }
    }

    /// Whether all are still at work.
    pub fn check(&self) {
        assert!(self.clients.iter().all(|c| !c.is_finished()), "a client has failed");
    }

    /// Ends; every call succeeded and every byte was right. How many rounds there were.
    pub fn finish(self) -> u64 {
        self.end.store(true, Ordering::Relaxed);
        for client in self.clients {
            client.join().expect("no I/O error and no wrong byte");
        }
        self.rounds.load(Ordering::Relaxed)
    }
}

fn work(client: &Client, rank: usize, end: &AtomicBool, rounds: &AtomicU64) {
    let name = format!("file-{rank}");
    let path = Path { export: ExportId(0), rel: name.as_bytes() };
    let flags = OpenFlags::READ | OpenFlags::WRITE | OpenFlags::CREATE;
    let (file, _) = client.open(path, flags, 0o600).expect("the file opens");
    let mut data = vec![0u8; REQUEST];
    let mut versions = [0u8; BLOCKS as usize];
    for step in 0u64.. {
        if end.load(Ordering::Relaxed) {
            break;
        }
        let block = step * 7 % BLOCKS;
        versions[block as usize] = (step % 251) as u8 + 1;
        data.fill(versions[block as usize] ^ rank as u8);
        client.pwrite(&file, &data, block * REQUEST as u64).expect("a write");
        let other = step * 13 % BLOCKS;
        if versions[other as usize] != 0 {
            let got = client.pread(&file, &mut data, other * REQUEST as u64).expect("a read");
            assert_eq!(got, REQUEST, "a whole block");
            let wanted = versions[other as usize] ^ rank as u8;
            assert!(data.iter().all(|b| *b == wanted), "client {rank}, block {other}");
        }
        rounds.fetch_add(1, Ordering::Relaxed);
        std::thread::sleep(Duration::from_millis(4));
    }
    client.leave();
}
