//! I/O nodes that die, freeze, drain or lose their connections while programs run through them:
//! every program ends well, every acknowledged byte is there, nothing is done twice, nothing hangs.
//!
//! `FOREBAY_ROUNDS` sets how many deaths the long test sees (the full test has 20), `FOREBAY_SEED`
//! repeats a run's random choices.

mod layer;

use layer::{AT, ClientOptions, Layer, Signal, Talker, seed, setting};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::time::Duration;

const LEASE_MS: u64 = 500;

fn pause(rng: &mut ChaCha8Rng, ms: std::ops::Range<u64>) {
    std::thread::sleep(Duration::from_millis(rng.random_range(ms)));
}

/// Four writers and four readers under way in a layer of two nodes.
struct Load {
    writers: Vec<Talker>,
    readers: Vec<Talker>,
}

impl Load {
    fn start(layer: &Layer, seed: u64) -> Load {
        let worker = layer.compile("worker");
        let fixed: Vec<u8> = (0..8u32 << 20).map(|i| (u64::from(i).wrapping_mul(2_654_435_761) as u32 >> 13) as u8).collect();
        std::fs::write(layer.export().join("fixed"), fixed).expect("a file to read");
        for n in 0..4 {
            let pages = vec![0u8; 2 * 32 * 16 * 4096];
            std::fs::write(layer.export().join(format!("data.{n}")), pages).expect("a file to write");
        }
        let start = |what: &str, n: usize| {
            let mut command = layer.command(&worker, n);
            command.args([what, AT, &n.to_string(), &seed.to_string()]);
            Talker::start(command)
        };
        Load {
            writers: (0..4).map(|n| start("write", n)).collect(),
            readers: (0..4).map(|n| start("read", n)).collect(),
        }
    }

    /// Ends the programs and looks at what they left, past the layer.
    fn finish(self, layer: &Layer) {
        for talker in self.readers {
            print!("reader: {}", talker.finish());
        }
        for (n, talker) in self.writers.into_iter().enumerate() {
            let said = talker.finish();
            print!("writer: {said}");
            for thread in 0..2 {
                let line = said.lines().find(|l| l.starts_with(&format!("thread {thread}:"))).expect("a thread's line");
                let words: Vec<&str> = line.split_whitespace().collect();
                let records: usize = words[4].parse().expect("a count");
                let want: String = (0..records).map(|r| format!("record {n}.{thread}.{r}.\n")).collect();
                let log = std::fs::read_to_string(layer.export().join(format!("log.{n}.{thread}"))).expect("the log");
                assert!(log == want, "writer {n}, thread {thread}: {records} appends were acknowledged once each");
                assert!(words[2].parse::<u64>().expect("a count") > 0, "it wrote");
            }
        }
    }
}

/// Kills and freezes, in turn, at random moments, at most one node at a time.
#[test]
fn nodes_die_and_freeze_under_load() {
    let seed = seed();
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut layer = Layer::start(2, LEASE_MS, &ClientOptions::default());
    let load = Load::start(&layer, seed);
    for round in 0..setting("FOREBAY_ROUNDS", 8) {
        pause(&mut rng, 100..700);
        let n = rng.random_range(0..2);
        if round % 2 == 0 {
            layer.kill(n);
            pause(&mut rng, 1..800);
            layer.restart(n);
        } else {
            // Short ones are sat out, long ones are left: both, and the moment between.
            layer.signal(n, Signal::STOP);
            pause(&mut rng, 50..3500);
            layer.signal(n, Signal::CONT);
        }
    }
    pause(&mut rng, 300..600);
    load.finish(&layer);
}

#[test]
fn drains_are_not_noticed() {
    let seed = seed();
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut layer = Layer::start(2, LEASE_MS, &ClientOptions::default());
    let load = Load::start(&layer, seed);
    for round in 0..4 {
        pause(&mut rng, 200..600);
        layer.drain(round % 2);
        pause(&mut rng, 1..300);
        layer.restart(round % 2);
    }
    pause(&mut rng, 200..400);
    load.finish(&layer);
}
