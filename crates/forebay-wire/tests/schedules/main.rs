//! The session's two halves in virtual time: any number of clients and node processes and one storage,
//! joined by a network that delays, drops and resets, after which some of what was sent arrives all the same and
//! is sent again; with nodes that freeze, die, drain and come back, there or elsewhere, an arbiter that moves the
//! job, storage calls of up to a minute, and clients that are stopped, fork and end. Everything follows from a seed; a seed
//! that breaks a promise is printed with the fewest faults that still break it.
//!
//! `FOREBAY_SCHEDULES=1000000 cargo test --release -p forebay-wire --test schedules` runs a million.

mod client;
mod judge;
mod kin;
mod life;
mod net;
mod node;
mod plan;
mod together;
mod world;

use plan::Plan;
use world::World;

/// As many as a test run has time for.
fn count() -> u64 {
    let asked = std::env::var("FOREBAY_SCHEDULES").ok().and_then(|n| n.parse().ok());
    asked.unwrap_or(if cfg!(debug_assertions) { 4_000 } else { 20_000 })
}

/// The first seed, to try another part of the space.
fn first() -> u64 {
    std::env::var("FOREBAY_SEED").ok().and_then(|n| n.parse().ok()).unwrap_or(1)
}

/// The plan without each fault that is not needed to break a promise.
fn shrink(mut plan: Plan) -> Plan {
    let mut at = 0;
    while at < plan.faults.len() {
        let mut smaller = plan.clone();
        smaller.faults.remove(at);
        if World::run(&smaller, false).is_err() {
            plan = smaller;
        } else {
            at += 1;
        }
    }
    plan
}

#[test]
fn promises_hold_in_every_schedule() {
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get() as u64);
    let (count, first) = (count(), first());
    let totals = std::thread::scope(|s| {
        let workers: Vec<_> = (0..threads)
            .map(|t| {
                s.spawn(move || {
                    let mut total = world::Totals::default();
                    for seed in (first..first + count).filter(|seed| seed % threads == t) {
                        let plan = Plan::new(seed);
                        match World::run(&plan, false) {
                            Ok(totals) => total.add(&totals),
                            Err(_) => {
                                let plan = shrink(plan);
                                let broken = World::run(&plan, true).err().unwrap_or_default();
                                panic!("seed {seed} breaks a promise: {broken}\n{plan:#?}");
                            }
                        }
                    }
                    total
                })
            })
            .collect();
        let mut total = world::Totals::default();
        for worker in workers {
            match worker.join() {
                Ok(part) => total.add(&part),
                Err(e) => std::panic::resume_unwind(e),
            }
        }
        total
    });
    println!("{count} schedules: {totals:?}");
    // A test that breaks nothing proves nothing.
    assert!(totals.answered > 3 * count && totals.moved > 0 && totals.unknown > 0 && totals.settled > 0);
    assert!(
        totals.told > 0
            && totals.heard > 0
            && totals.covered > 0
            && totals.remapped > 0
            && totals.adopted > 0
            && totals.kept > 0
            && totals.stale > 0
    );
}
