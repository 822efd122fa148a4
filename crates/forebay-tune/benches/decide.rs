//! How long a decision takes, without the network: `cargo bench -p forebay-tune`.

use forebay_tune::{Arms, Context, Council, CouncilConfig, LoadClass, Observation, SizeClass};
use forebay_types::{NodeId, OpKind, Pattern};
use std::time::Instant;

fn main() {
    for nodes in [4, 240, 768, 4096] {
        for contexts in [1, 24] {
            decide(nodes, contexts);
        }
    }
}

fn decide(nodes: u32, contexts: u32) {
    let mut council = Council::new(Arms::twins_windows(), CouncilConfig::default())
        .expect("the default configuration is sound");
    let mut spent: Vec<f64> = (0..1000)
        .map(|round| {
            let arm = council.standing();
            let start = Instant::now();
            for node in 0..nodes {
                let k = node % contexts;
                let context = Context {
                    operation: if k.is_multiple_of(2) { OpKind::Read } else { OpKind::Write },
                    pattern: Pattern::ALL[(k / 2 % 4) as usize],
                    size: [SizeClass::Small, SizeClass::Medium, SizeClass::Large][(k / 8 % 3) as usize],
                    load: LoadClass::Heavy,
                };
                let reward = 300.0 + 10.0 * arm as f64 + f64::from((node * 7 + round * 13) % 40);
                council.report(Observation {
                    node: NodeId(node),
                    arm: Some(arm),
                    context: Some(context),
                    reward: Some(reward),
                    may_explore: true,
                });
            }
            std::hint::black_box(council.decide());
            start.elapsed().as_secs_f64() * 1e3
        })
        .collect();
    spent.sort_by(f64::total_cmp);
    let at = |q: f64| spent[(q * (spent.len() - 1) as f64) as usize];
    println!(
        "decide: {nodes:4} nodes in {contexts:2} contexts  median {:.3} ms  p99 {:.3} ms",
        at(0.5),
        at(0.99)
    );
}
