//! The set study gives the published figures, and the same ones on any number of threads.

use forebay_policy::{CurveTable, PolicyKind, Settings};
use forebay_sim::study::{Study, StudyConfig, run};

fn table(csv: &str) -> CurveTable {
    CurveTable::from_csv(csv.as_bytes()).unwrap()
}

fn published() -> CurveTable {
    table(include_str!("../../../data/marenostrum4.csv"))
}

fn corrected() -> CurveTable {
    table(include_str!("../../../data/marenostrum4_corrected.csv"))
}

fn config(sets: u32, seed: u64) -> StudyConfig {
    StudyConfig { sets, set_size: 16, io_nodes: vec![56], seed, settings: Settings::default() }
}

/// Percent, of the median set: ONE over ZERO, ORACLE over ZERO, MCKP over STATIC.
fn figures(study: &Study) -> [f64; 3] {
    let cell = |kind| study.cell(kind, 56).unwrap();
    [
        cell(PolicyKind::One).over_zero.median,
        cell(PolicyKind::Oracle).over_zero.median,
        cell(PolicyKind::Mckp).over_static.median,
    ]
    .map(|part| 100.0 * part)
}

/// The figures of the study and how far medians of 10,000 sets may lie apart: about four standard
/// errors, from studies with other seeds.
fn assert_near(got: f64, expected: f64, tolerance: f64) {
    assert!((got - expected).abs() <= tolerance, "{got} instead of {expected} ± {tolerance}");
}

#[test]
fn published_labels_give_the_published_figures() {
    for seed in [1, 2] {
        let study = run(&published(), &config(10_000, seed), || ()).unwrap();
        assert_eq!(study.scenarios, 189);
        let [one, oracle, mckp] = figures(&study);
        assert_near(one, -82.0, 0.6);
        assert_near(oracle, 25.0, 1.0);
        assert_near(mckp, 213.0, 6.0);
        assert!((55.0..=56.0).contains(&study.mckp_reaches_oracle.median));
        // Every set gains, and some very much.
        let over = study.cell(PolicyKind::Mckp, 56).unwrap().over_static;
        assert!(over.min > 0.0 && over.max > 5.0);
    }
}

#[test]
fn corrected_labels_give_the_corrected_figures() {
    let study = run(&corrected(), &config(10_000, 1), || ()).unwrap();
    let [_, oracle, mckp] = figures(&study);
    assert_near(oracle, 2.9, 0.15);
    assert_near(mckp, 292.0, 8.0);
}

#[test]
fn threads_and_order_do_not_matter() {
    let table = published();
    let config = StudyConfig { io_nodes: vec![8, 56], ..config(200, 7) };
    let on = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| run(&table, &config, || ()).unwrap())
    };
    assert_eq!(on(1), on(5));
    assert_ne!(on(1), run(&table, &StudyConfig { seed: 8, ..config.clone() }, || ()).unwrap());
}

#[test]
fn the_order_of_the_policies_is_as_it_must_be() {
    let config = StudyConfig { io_nodes: vec![4, 16, 128], ..config(300, 3) };
    let study = run(&published(), &config, || ()).unwrap();
    for &pool in &config.io_nodes {
        let of = |kind| study.cell(kind, pool).unwrap().total_mbs;
        assert!(of(PolicyKind::Zero).median <= of(PolicyKind::Mckp).median);
        assert!(of(PolicyKind::Fair).median <= of(PolicyKind::Mckp).median);
        assert!(of(PolicyKind::Mckp).median <= of(PolicyKind::Oracle).median);
    }
    let all = |kind| study.cell(kind, 128).unwrap().total_mbs.median;
    assert!((all(PolicyKind::Mckp) / all(PolicyKind::Oracle) - 1.0).abs() < 1e-9);
}

#[test]
fn what_cannot_be_studied_is_refused() {
    let table = published();
    for bad in [
        StudyConfig { sets: 0, ..config(1, 1) },
        StudyConfig { set_size: 0, ..config(1, 1) },
        StudyConfig { io_nodes: vec![], ..config(1, 1) },
        StudyConfig { io_nodes: vec![8, 0], ..config(1, 1) },
        StudyConfig { io_nodes: vec![u32::MAX], ..config(1, 1) },
    ] {
        assert!(run(&table, &bad, || ()).is_err());
    }
    let head = "scenario,compute_nodes,processes,layout,spatiality,request_kb,io_nodes,bandwidth_mbs\n";
    let without_direct = self::table(&format!("{head}a,8,8,0,0,32,1,10\n"));
    let error = run(&without_direct, &config(1, 1), || ()).unwrap_err().to_string();
    assert!(error.contains("scenario a") && error.contains("ZERO"), "{error}");
}
