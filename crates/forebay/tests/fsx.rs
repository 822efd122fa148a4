//! One file under hundreds of thousands of random operations by two processes in turn, each through
//! its own I/O node, every byte checked. `FOREBAY_OPERATIONS` sets how many, `FOREBAY_SEED` repeats.

use forebay_testkit::{AT, ClientOptions, Layer, Talker, seed, setting};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::path::Path;

/// Two processes take turns of random length until so many operations are done.
fn take_turns(layer: &mut Layer, operations: u64, largest: usize, seed: u64) {
    let fsx = layer.compile("fsx");
    let copy = layer.scratch().join("copy");
    let mut processes: Vec<Talker> = (0..2)
        .map(|n| {
            let mut command = layer.command(&fsx, n);
            command.arg(Path::new(AT).join("file")).arg(&copy).arg(seed.to_string()).arg(largest.to_string());
            Talker::start(command)
        })
        .collect();
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let (mut done, mut turns) = (0, 0);
    while done < operations {
        // Each has had a turn, and of less than half of everything, before chance decides.
        let (who, most) = if turns < 2 { (turns, operations / 2) } else { (rng.random_range(0..2), 400) };
        let turn = rng.random_range(1..most.clamp(2, 400));
        done = processes[who].ask(&turn.to_string()).parse().expect("a count");
        turns += 1;
    }
    processes.into_iter().for_each(|p| drop(p.finish()));
    let copy = std::fs::read(&copy).expect("the copy");
    let size = u64::from_le_bytes(copy[..8].try_into().expect("eight bytes")) as usize;
    let file = std::fs::read(layer.export().join("file")).expect("the file");
    assert!(file == copy[4096..4096 + size], "what is on disk is what was written");
    for n in 0..2 {
        let stats = layer.drain(n);
        assert!(stats["issued_write"]["count"].as_u64().expect("a count") > 0, "node {n} was used");
    }
}

#[test]
fn every_byte_of_one_file() {
    let seed = seed();
    let mut layer = Layer::start(2, 2000, &ClientOptions::default());
    take_turns(&mut layer, setting("FOREBAY_OPERATIONS", 200_000), 256 << 10, seed);
}

/// Transfers of several frames.
#[test]
fn every_byte_of_a_large_file() {
    let seed = seed();
    let mut layer = Layer::start(2, 2000, &ClientOptions::default());
    take_turns(&mut layer, setting("FOREBAY_OPERATIONS", 200_000) / 200, 24 << 20, seed);
}
