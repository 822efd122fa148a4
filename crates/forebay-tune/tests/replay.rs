//! Bandits against rewards in the shape of the thesis's six scenarios (its Tables 4.1 to 4.4). The
//! thesis does not print its measurements: the means below are made up to have the same shape (how
//! far arms lie apart, which are alike), with noise as reads and writes had it. They are test data,
//! not results.

use forebay_tune::policy::{EpsilonGreedy, Thompson, Ucb1};
use forebay_tune::replay::{Play, Rewards, RewardsError, separately, together};
use forebay_tune::{BanditConfig, Guard, Memory};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::fmt::Write;

const ARMS: [&str; 7] = ["125us", "250us", "500us", "1ms", "2ms", "4ms", "8ms"];

/// Scenario, mean of each arm relative to the best, noise.
const SHAPES: [(&str, [f64; 7], f64); 6] = [
    // One clearly best arm.
    ("A 8 IONs shared strided read", [0.62, 0.66, 0.70, 0.76, 0.83, 0.90, 1.00], 0.12),
    ("B 2 IONs shared contiguous write", [1.00, 0.93, 0.90, 0.86, 0.80, 0.72, 0.65], 0.05),
    // Many arms alike.
    ("C 8 IONs shared contiguous read", [0.97, 0.98, 1.00, 0.99, 0.97, 0.95, 0.93], 0.12),
    ("D 1 ION shared strided write", [1.00, 0.94, 0.90, 0.84, 0.78, 0.70, 0.65], 0.05),
    ("E 1 ION file per process write", [0.99, 1.00, 0.99, 0.98, 0.90, 0.85, 0.80], 0.05),
    ("F 4 IONs shared strided read", [0.68, 0.70, 0.75, 0.80, 0.88, 0.95, 1.00], 0.15),
];

/// Not in the thesis: arms that all but stop the I/O, beside the best one.
const DISASTERS: (&str, [f64; 7], f64) = ("disasters", [0.02, 0.05, 0.9, 0.8, 1.00, 0.03, 0.01], 0.15);

fn recording() -> Rewards {
    record(&SHAPES)
}

fn record(shapes: &[(&str, [f64; 7], f64)]) -> Rewards {
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let mut csv = String::from("scenario,arm,reward\n");
    for &(scenario, means, noise) in shapes {
        for (arm, mean) in ARMS.iter().zip(means) {
            for _ in 0..200 {
                // The mean of 12 uniforms is close enough to a normal distribution.
                let z: f64 = (0..12).map(|_| rng.random::<f64>()).sum::<f64>() - 6.0;
                let reward = (mean * (1.0 + noise * z)).max(0.001) * 400.0;
                writeln!(csv, "{scenario},{arm},{reward}").unwrap();
            }
        }
    }
    Rewards::read_csv(csv.as_bytes()).unwrap()
}

fn play(policy: BanditConfig, guard: Option<Guard>) -> Play {
    Play { policy, memory: Memory::All, guard, default: 3, observations: 200, repetitions: 40, seed: 1 }
}

#[test]
fn ucb1_finds_what_is_worth_finding() {
    let outcomes = separately(&recording(), &play(BanditConfig::Ucb1(Ucb1::default()), None));
    assert!(outcomes.iter().all(|o| o.performance >= 0.95));
    assert!(outcomes.iter().map(|o| o.performance).sum::<f64>() / 6.0 >= 0.98);
    // One clearly best arm: it is found.
    assert!(outcomes[0].precision > 0.8 && outcomes[1].precision > 0.9);
}

#[test]
fn ucb1_beats_epsilon_greedy() {
    let rewards = recording();
    let epsilon = |epsilon| BanditConfig::EpsilonGreedy(EpsilonGreedy { epsilon, half_after: None });
    let sum = |p| separately(&rewards, &play(p, None)).iter().map(|o| o.precision).sum::<f64>();
    let ucb1 = sum(BanditConfig::Ucb1(Ucb1::default()));
    for e in [0.07, 0.15] {
        assert!(ucb1 > sum(epsilon(e)), "ε = {e}");
    }
}

#[test]
fn a_falling_epsilon_settles() {
    let rewards = recording();
    let falling = BanditConfig::EpsilonGreedy(EpsilonGreedy { epsilon: 0.5, half_after: Some(10.0) });
    let steady = BanditConfig::EpsilonGreedy(EpsilonGreedy { epsilon: 0.5, half_after: None });
    let last = |p| separately(&rewards, &play(p, None))[3].performance;
    assert!(last(falling) > last(steady) + 0.03);
}

#[test]
fn the_guard_keeps_its_promise() {
    let shapes: Vec<_> = SHAPES.into_iter().chain([DISASTERS]).collect();
    let rewards = record(&shapes);
    for policy in [
        BanditConfig::Ucb1(Ucb1::default()),
        BanditConfig::Thompson(Thompson::default()),
        BanditConfig::EpsilonGreedy(EpsilonGreedy { epsilon: 0.2, half_after: None }),
    ] {
        for default in [0, 3, 4, 6] {
            let play = Play { default, repetitions: 10, ..play(policy, Some(Guard::default())) };
            for o in separately(&rewards, &play) {
                assert!(
                    o.worst_window >= 0.9,
                    "{policy} default {default}: {} {}",
                    o.scenario,
                    o.worst_window
                );
            }
        }
    }
    // The disasters are real: without the guard the promise would be broken.
    let unguarded = Play { default: 4, ..play(BanditConfig::Ucb1(Ucb1::default()), None) };
    let unguarded = separately(&rewards, &unguarded);
    assert!(unguarded[6].worst_window < 0.9);
}

#[test]
fn guarded_ucb1_still_learns() {
    let outcomes =
        separately(&recording(), &play(BanditConfig::Ucb1(Ucb1::default()), Some(Guard::default())));
    assert!(outcomes.iter().all(|o| o.performance >= 0.95), "{outcomes:?}");
}

/// Rewards measured on emulated storage (`forebay experiment rewards`): twelve scenarios, seven windows.
fn measured() -> Rewards {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../data/twins_rewards.csv");
    Rewards::read_csv(std::fs::File::open(path).unwrap()).unwrap()
}

#[test]
fn measured_rewards_are_learned() {
    let rewards = measured();
    assert!(rewards.scenarios.len() >= 12 && rewards.arms.len() == 7);
    let default = rewards.arm("twins:window=1ms").unwrap();
    let play = |guard| Play { default, repetitions: 100, ..play(BanditConfig::Ucb1(Ucb1::default()), guard) };
    let free = separately(&rewards, &play(None));
    for o in &free {
        assert!(o.performance >= 0.95, "{o:?}");
    }
    assert!(free.iter().map(|o| o.performance).sum::<f64>() / free.len() as f64 >= 0.98);
    for o in separately(&rewards, &play(Some(Guard::default()))) {
        assert!(o.worst_window >= 0.9, "{o:?}");
        assert!(o.performance >= 0.95, "{o:?}");
    }
}

#[test]
fn patterns_in_turn_are_learned_as_well_as_one_by_one() {
    let rewards = recording();
    let play = play(BanditConfig::Ucb1(Ucb1::default()), None);
    for (alone, mixed) in separately(&rewards, &play).iter().zip(together(&rewards, &play)) {
        assert_eq!(alone.scenario, mixed.scenario);
        assert!((alone.performance - mixed.performance).abs() < 0.03, "{alone:?} {mixed:?}");
    }
}

#[test]
fn the_same_seed_plays_the_same() {
    let rewards = recording();
    let thompson = play(BanditConfig::Thompson(Thompson::default()), Some(Guard::default()));
    assert_eq!(separately(&rewards, &thompson), separately(&rewards, &thompson));
    assert_ne!(separately(&rewards, &thompson), separately(&rewards, &Play { seed: 2, ..thompson }));
}

#[test]
fn a_bad_recording_is_refused() {
    let read = |text: &str| Rewards::read_csv(text.as_bytes());
    assert!(matches!(read("scenario,arm,reward\n"), Err(RewardsError::Empty)));
    assert!(matches!(read("scenario,arm,reward\nx,a,0\n"), Err(RewardsError::Reward { line: 2, .. })));
    assert!(matches!(read("scenario,arm,reward\nx,a,nan\n"), Err(RewardsError::Reward { .. })));
    let missing = read("scenario,arm,reward\nx,a,1\nx,b,1\ny,b,1\n").unwrap_err();
    assert_eq!(
        missing.to_string(),
        "scenario `y` has no measurement of arm `a`: every arm must be measured in every scenario"
    );
    assert!(matches!(read("a,b\n1,2\n"), Err(RewardsError::Csv(_))));
    let good = read("scenario,arm,reward\nx,a,1\nx,b,2\n").unwrap();
    assert!(good.arm("c").is_err());
    assert_eq!(good.scenarios[0].best(), 1);
}
