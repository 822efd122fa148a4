//! The council as the arbiter uses it: reports in, decisions out.

use forebay_pattern::KeptError;
use forebay_tune::policy::{EpsilonGreedy, Ucb1};
use forebay_tune::{
    Arms, BanditConfig, Context, Council, CouncilConfig, CouncilError, Decision, Guard, Learned, LoadClass,
    Memory, Observation, SizeClass, Why,
};
use forebay_types::{NodeId, OpKind, Pattern};
use proptest::prelude::*;

fn context(operation: OpKind) -> Context {
    Context { operation, pattern: Pattern::SharedStrided, size: SizeClass::Small, load: LoadClass::Heavy }
}

fn report(node: u32, arm: usize, context: Context, reward: f64) -> Observation {
    Observation {
        node: NodeId(node),
        arm: Some(arm),
        context: Some(context),
        reward: Some(reward),
        may_explore: true,
    }
}

/// Writes do best with the shortest window, reads with the longest, as in the thesis.
fn bandwidth(operation: OpKind, arm: usize) -> f64 {
    match operation {
        OpKind::Write => 400.0 - 25.0 * arm as f64,
        _ => 300.0 + 25.0 * arm as f64,
    }
}

fn config(guard: Option<Guard>) -> CouncilConfig {
    CouncilConfig { policy: BanditConfig::Ucb1(Ucb1::default()), guard, seed: 3, ..CouncilConfig::default() }
}

fn explained(decision: &Decision) -> String {
    decision.explain(&Arms::twins_windows().names())
}

fn council(guard: Option<Guard>) -> Council {
    Council::new(Arms::twins_windows(), config(guard)).unwrap()
}

/// So many rounds in which four nodes do `operation`.
fn run(council: &mut Council, operation: OpKind, rounds: usize) -> Vec<Decision> {
    (0..rounds)
        .map(|_| {
            let arm = council.standing();
            for node in 0..4 {
                // Nodes differ a little.
                let noise = 1.0 + 0.01 * f64::from(node) - 0.015;
                council.report(report(node, arm, context(operation), bandwidth(operation, arm) * noise));
            }
            council.decide()
        })
        .collect()
}

#[test]
fn each_phase_gets_its_window() {
    let mut council = council(Some(Guard::default()));
    run(&mut council, OpKind::Write, 150);
    run(&mut council, OpKind::Read, 150);
    // Back to writing: from the second round on, what was learned is in force.
    let decisions = run(&mut council, OpKind::Write, 20);
    let best = decisions[1..].iter().filter(|d| d.arm == 0).count();
    assert!(best >= 18, "{best}");
    let decisions = run(&mut council, OpKind::Read, 20);
    assert!(decisions[1..].iter().filter(|d| d.arm == 6).count() >= 18);
}

#[test]
fn what_was_learned_survives() {
    let mut first = council(Some(Guard::default()));
    run(&mut first, OpKind::Write, 150);
    let file = first.learned().to_json();
    let mut second = council(Some(Guard::default()));
    second.import(&Learned::from_json(&file).unwrap()).unwrap();
    assert_eq!(second.learned(), first.learned());
    let decisions = run(&mut second, OpKind::Write, 10);
    assert!(decisions.iter().filter(|d| d.arm == 0).count() >= 9);
}

#[test]
fn what_is_known_to_be_bad_is_not_tried_anew_after_a_restart() {
    let go = |council: &mut Council, rounds: usize| -> usize {
        let trials = (0..rounds).filter(|round| {
            let arm = council.standing();
            let scatter = [0.5, 1.0, 1.5][round % 3];
            let reward = if arm == 5 { 400.0 } else { 300.0 } * scatter;
            council.report(report(0, arm, context(OpKind::Write), reward));
            council.decide().explores()
        });
        trials.count()
    };
    let mut first = council(Some(Guard::default()));
    assert!(go(&mut first, 300) > 10);
    let mut second = council(Some(Guard::default()));
    second.import(&first.learned()).unwrap();
    second.adopt(5);
    assert_eq!(go(&mut second, 60), 0);
}

#[test]
fn other_arms_are_carried_over_by_what_they_are() {
    let mut first = council(None);
    run(&mut first, OpKind::Write, 100);
    let all = Arms::twins_windows();
    let fewer =
        Arms::new(vec![all.all()[6].clone(), "fifo".parse().unwrap(), all.all()[0].clone()], &all.all()[6])
            .unwrap();
    let mut second = Council::new(fewer, config(None)).unwrap();
    second.import(&first.learned()).unwrap();
    let (before, after) = (first.learned(), second.learned());
    let (before, after) = (before.contexts()[0].values.arms(), after.contexts()[0].values.arms());
    assert_eq!((after[0], after[2]), (before[6], before[0]));
    assert_eq!(after[1].weight, 0.0);
}

#[test]
fn a_window_can_follow_another_memory() {
    let mut first = council(None);
    run(&mut first, OpKind::Write, 100);
    let window = CouncilConfig { memory: Memory::Window(70), ..config(None) };
    let mut second = Council::new(Arms::twins_windows(), window).unwrap();
    second.import(&first.learned()).unwrap();
    let learned = second.learned();
    let values = &learned.contexts()[0].values;
    assert!(values.weight() <= 70.0 && values.weight() > 10.0);
    assert_eq!(values.best(), Some(0));
}

#[test]
fn the_majority_decides_and_ties_keep_what_is() {
    let mut council = council(None);
    run(&mut council, OpKind::Write, 150);
    run(&mut council, OpKind::Read, 150);
    let vote = |council: &mut Council, writers: u32, readers: u32| {
        for node in 0..writers + readers {
            let operation = if node < writers { OpKind::Write } else { OpKind::Read };
            council.report(Observation {
                reward: None,
                may_explore: true,
                ..report(node, 0, context(operation), 0.0)
            });
        }
        council.decide()
    };
    assert_eq!(vote(&mut council, 3, 1).arm, 0);
    assert_eq!(vote(&mut council, 2, 2).arm, 0, "a tie keeps arm 0");
    assert_eq!(vote(&mut council, 1, 3).arm, 6);
    assert_eq!(vote(&mut council, 2, 2).arm, 6, "a tie keeps arm 6");
    let idle = vote(&mut council, 0, 0);
    assert_eq!((idle.arm, idle.votes.len()), (6, 0));
    assert!(explained(&idle).ends_with("stays: no node is in a known situation"), "{}", explained(&idle));
}

#[test]
fn shadow_mode_changes_nothing() {
    let mut council =
        Council::new(Arms::twins_windows(), CouncilConfig { shadow: true, ..config(None) }).unwrap();
    let decisions = run(&mut council, OpKind::Write, 30);
    assert!(decisions.iter().all(|d| d.arm == 3 && d.before == 3));
    assert!(decisions.iter().any(|d| d.instead_of.is_some()));
    assert!(decisions.iter().any(|d| explained(d).contains("(shadow mode; it would be twins:window=125us)")));
    assert_eq!(council.learned().contexts()[0].values.arms()[3].seen, 29, "one a round, not one a node");
}

#[test]
fn the_interval_between_two_phases_is_no_situation_of_its_own() {
    let mut council = council(Some(Guard::default()));
    run(&mut council, OpKind::Write, 150);
    run(&mut council, OpKind::Read, 150);
    run(&mut council, OpKind::Write, 5);
    let known = council.learned().contexts().len();
    // Half of it written, half read: it looks like something that has never been seen.
    let between = Context { pattern: Pattern::SharedContiguous, ..context(OpKind::Read) };
    let standing = council.standing();
    (0..4).for_each(|node| council.report(report(node, standing, between, 1.0)));
    let decision = council.decide();
    assert_eq!((decision.arm, decision.votes.len()), (standing, 0), "{}", explained(&decision));
    // What comes then is known, and has its window at once; nothing is learned from this interval yet.
    let before = council.learned();
    let decisions = run(&mut council, OpKind::Read, 1);
    assert_eq!(decisions[0].arm, 6, "{}", explained(&decisions[0]));
    assert_eq!(council.learned().contexts(), before.contexts());
    assert_eq!(before.contexts().len(), known);
    // Whoever goes on with it is doing that.
    for _ in 0..2 {
        let standing = council.standing();
        (0..4).for_each(|node| council.report(report(node, standing, between, 1.0)));
        council.decide();
    }
    assert_eq!(council.learned().contexts().len(), known + 1);
}

#[test]
fn a_job_can_ask_not_to_be_experimented_with() {
    let mut council = council(Some(Guard::default()));
    for _ in 0..60 {
        for node in 0..4 {
            let arm = council.standing();
            let r = report(node, arm, context(OpKind::Write), bandwidth(OpKind::Write, arm));
            council.report(Observation { may_explore: node != 2, ..r });
        }
        let d = council.decide();
        assert_eq!(d.arm, 3, "{}", explained(&d));
        assert!(!d.explores());
    }
}

#[test]
fn a_bad_trial_is_rolled_back_and_explained() {
    let mut council = council(Some(Guard::default()));
    let mut rolled_back = None;
    for _ in 0..60 {
        let arm = council.standing();
        let reward = if arm == 3 { 400.0 } else { 200.0 };
        council.report(report(0, arm, context(OpKind::Write), reward));
        let decision = council.decide();
        if let Some(Why::RolledBack { from, reward, .. }) =
            decision.votes.first().map(|v| v.recommendation.why)
        {
            assert_eq!((decision.arm, reward, decision.before), (3, 200.0, from));
            rolled_back = Some(explained(&decision));
        }
    }
    let text = rolled_back.expect("half the bandwidth must be noticed");
    assert!(
        text.contains("rolled back from twins:window=") && text.contains("200.0 MB/s where 400.0 are known"),
        "{text}"
    );
}

#[test]
fn a_changed_system_is_learned_anew() {
    for memory in [Memory::Window(60), Memory::Discount(0.97)] {
        let mut council =
            Council::new(Arms::twins_windows(), CouncilConfig { memory, ..config(None) }).unwrap();
        let go = |council: &mut Council, best: usize, rounds: usize| {
            let mut hits = 0;
            for _ in 0..rounds {
                let arm = council.standing();
                council.report(report(
                    0,
                    arm,
                    context(OpKind::Write),
                    400.0 - 40.0 * arm.abs_diff(best) as f64,
                ));
                hits += usize::from(council.decide().arm == best);
            }
            hits
        };
        go(&mut council, 1, 200);
        go(&mut council, 5, 200);
        let hits = go(&mut council, 5, 100);
        assert!(hits > 60, "{memory:?}: {hits}");
    }
}

#[test]
fn decisions_repeat_with_the_seed() {
    let greedy = BanditConfig::EpsilonGreedy(EpsilonGreedy { epsilon: 0.5, half_after: None });
    let arms = |seed| {
        let config = CouncilConfig { policy: greedy, seed, ..config(None) };
        let mut council = Council::new(Arms::twins_windows(), config).unwrap();
        run(&mut council, OpKind::Read, 50).iter().map(|d| d.arm).collect::<Vec<_>>()
    };
    assert_eq!(arms(1), arms(1));
    assert_ne!(arms(1), arms(2));
}

#[test]
fn reset_forgets() {
    let mut council = council(None);
    run(&mut council, OpKind::Write, 50);
    run(&mut council, OpKind::Read, 50);
    council.reset(Some(context(OpKind::Read)));
    assert_eq!(council.learned().contexts().len(), 1);
    council.reset(None);
    assert!(council.learned().contexts().is_empty());
    assert_eq!(council.standing(), 3);
}

#[test]
fn nonsense_configurations_are_refused() {
    let new = |c: CouncilConfig| Council::new(Arms::twins_windows(), c).err();
    let epsilon = |epsilon| BanditConfig::EpsilonGreedy(EpsilonGreedy { epsilon, half_after: None });
    assert_eq!(new(CouncilConfig { policy: epsilon(1.5), ..config(None) }), Some(CouncilError::BanditPolicy));
    assert_eq!(new(CouncilConfig { memory: Memory::Window(0), ..config(None) }), Some(CouncilError::Memory));
    assert_eq!(
        new(CouncilConfig { memory: Memory::Discount(f64::NAN), ..config(None) }),
        Some(CouncilError::Memory)
    );
    let guard = Guard { window: 0, ..Guard::default() };
    assert_eq!(new(config(Some(guard))), Some(CouncilError::Guard));
}

#[test]
fn damaged_files_are_refused() {
    let mut council = council(None);
    run(&mut council, OpKind::Write, 20);
    let good: serde_json::Value = serde_json::from_slice(&council.learned().to_json()).unwrap();
    let edited = |edit: &dyn Fn(&mut serde_json::Value)| {
        let mut json = good.clone();
        edit(&mut json);
        Learned::from_json(json.to_string().as_bytes()).unwrap_err()
    };
    let negative = edited(&|j| j["contexts"][0]["values"]["arms"][0]["weight"] = (-1.0).into());
    assert!(matches!(negative, KeptError::Damaged { .. }), "{negative}");
    let fewer = edited(&|j| drop(j["contexts"][0]["values"]["arms"].as_array_mut().unwrap().pop()));
    assert!(fewer.to_string().contains("6 estimates for 7 arms"), "{fewer}");
    let twice = edited(&|j| {
        let c = j["contexts"][0].clone();
        j["contexts"].as_array_mut().unwrap().push(c);
    });
    assert!(twice.to_string().contains("occurs twice"), "{twice}");
    assert!(matches!(edited(&|j| j["version"] = 7.into()), KeptError::Version { found: 7, .. }));
    assert!(matches!(edited(&|j| j["arms"]["arms"] = [0; 0].as_slice().into()), KeptError::Syntax { .. }));
}

proptest! {
    /// Whatever is done to the bytes: an error, or something a council can go on with.
    #[test]
    fn hostile_bytes_do_no_harm(edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6)) {
        let mut council = council(Some(Guard::default()));
        run(&mut council, OpKind::Write, 10);
        let mut bytes = council.learned().to_json();
        for (at, byte) in edits {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Ok(learned) = Learned::from_json(&bytes) {
            council.import(&learned).unwrap();
            run(&mut council, OpKind::Write, 5);
        }
    }

    /// Reports in any order and combination: a decision for a declared arm, the same for all.
    #[test]
    fn any_reports_give_a_decision(rounds in prop::collection::vec(prop::collection::vec((0u32..6, prop::option::of(0usize..9), any::<bool>(), prop::option::of(-1.0f64..1e9), any::<bool>()), 0..8), 1..40)) {
        let mut council = council(Some(Guard::default()));
        for reports in rounds {
            for (node, arm, idle, reward, may_explore) in reports {
                let context = (!idle).then(|| context(OpKind::Read));
                council.report(Observation { node: NodeId(node), arm, context, reward, may_explore });
            }
            let decision = council.decide();
            prop_assert!(decision.arm < 7);
            prop_assert_eq!(&decision.config, &council.arms().all()[decision.arm]);
            prop_assert_eq!(decision.arm, council.standing());
        }
    }
}
