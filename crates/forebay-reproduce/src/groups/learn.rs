//! Bandits against rewards recorded here, and the council's time to decide.

use super::{Break, Figures, Measured, Setup, put};
use anyhow::{Context, Result};
use forebay_tune::policy::{EpsilonGreedy, Ucb1};
use forebay_tune::replay::{self, Outcome, Play, Rewards};
use forebay_tune::{
    Arms, BanditConfig, Context as Situation, Council, CouncilConfig, LoadClass, Memory, Observation,
    SizeClass,
};
use forebay_types::{NodeId, OpKind, Pattern};
use std::time::Instant;

const REWARDS: &[u8] = include_bytes!("../../../../data/twins_rewards.csv");

pub(super) fn figures(setup: &Setup<'_>) -> Result<Figures> {
    let rewards = Rewards::read_csv(REWARDS).context("the recorded rewards")?;
    let mut figures = Figures::new();
    let random = setup.breaks(Break::Learning);
    let epsilon = |epsilon: f64| {
        let epsilon = if random { 1.0 } else { epsilon };
        BanditConfig::EpsilonGreedy(EpsilonGreedy { epsilon, half_after: None })
    };
    let ucb1 = if random { epsilon(1.0) } else { BanditConfig::Ucb1(Ucb1::default()) };
    let play = |policy| Play {
        policy,
        memory: Memory::All,
        guard: None,
        default: 0,
        observations: 200,
        repetitions: if setup.full { 100 } else { 20 },
        seed: 1,
    };
    let spread = |outcomes: &[Outcome], of: fn(&Outcome) -> f64| {
        Measured::of(outcomes.iter().map(of).collect(), "scenarios")
    };
    let greedy = replay::separately(&rewards, &play(epsilon(0.10)));
    let together = replay::together(&rewards, &play(epsilon(0.15)));
    let upper = replay::separately(&rewards, &play(ucb1));
    for (name, outcomes) in [("greedy", &greedy), ("together", &together), ("ucb1", &upper)] {
        put(&mut figures, &format!("{name}-precision"), spread(outcomes, |o| o.precision));
        put(&mut figures, &format!("{name}-performance"), spread(outcomes, |o| o.performance));
        let least = outcomes.iter().map(|o| o.performance).fold(1.0, f64::min);
        put(&mut figures, &format!("{name}-performance-least"), Measured::exact(least));
    }
    // How soon: the first bin of ten observations in which half of the choices are the best one.
    let soon = |outcomes: &[Outcome]| {
        let bin = |o: &Outcome| o.curve.iter().position(|p| *p >= 0.5).unwrap_or(o.curve.len()) as f64 + 1.0;
        outcomes.iter().map(bin).sum::<f64>() / outcomes.len().max(1) as f64
    };
    put(&mut figures, "ucb1-sooner", Measured::exact(soon(&greedy) / soon(&upper)));
    for nodes in [240, 768] {
        put(&mut figures, &format!("council-ms-{nodes}"), council(nodes)?);
    }
    Ok(figures)
}

/// The council's own time for a round with so many nodes, in milliseconds, of 50 rounds.
fn council(nodes: u32) -> Result<Measured> {
    let mut council = Council::new(Arms::twins_windows(), CouncilConfig::default())?;
    let mut times = Vec::new();
    for round in 0..50 {
        let began = Instant::now();
        for n in 0..nodes {
            let operation = if n % 2 == 0 { OpKind::Read } else { OpKind::Write };
            let situation = Situation {
                operation,
                pattern: Pattern::SharedStrided,
                size: SizeClass::of(32 << 10),
                load: LoadClass::of(8.0),
            };
            council.report(Observation {
                node: NodeId(n),
                arm: Some(council.standing()),
                context: Some(situation),
                reward: Some(100.0 + f64::from((n + round) % 7)),
                may_explore: true,
            });
        }
        std::hint::black_box(council.decide());
        times.push(began.elapsed().as_secs_f64() * 1e3);
    }
    Ok(Measured::of(times, "rounds"))
}
