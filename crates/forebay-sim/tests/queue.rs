//! The queue simulation: the shipped queue's figures, accounting, and fair MCKP's promise.

use forebay_policy::{FairConfig, PolicyKind, Settings};
use forebay_sim::queue::{Outcome, QueueFile, least_share, part_of_gain, simulate};
use proptest::prelude::*;

fn settings(share: f64, move_seconds: f64) -> Settings {
    Settings { fair: FairConfig { share, move_seconds, ..FairConfig::default() }, ..Settings::default() }
}

fn built_in() -> QueueFile {
    QueueFile::parse(QueueFile::BUILT_IN).unwrap()
}

fn run(file: &QueueFile, kind: PolicyKind, share: f64) -> Outcome {
    simulate(file, kind, &settings(share, 0.1)).unwrap()
}

#[test]
fn mckp_nearly_doubles_static_and_fair_keeps_the_gain_without_a_victim() {
    let file = built_in();
    let share = FairConfig::default().share;
    let [fixed, mckp, fair] =
        [PolicyKind::Static, PolicyKind::Mckp, PolicyKind::Fair].map(|k| run(&file, k, share));
    // The live experiment had 8.41 GB/s under STATIC.
    assert!((fixed.aggregate_mbs / 1000.0 - 8.41).abs() < 0.5, "{}", fixed.aggregate_mbs);
    assert!(mckp.aggregate_mbs >= 1.9 * fixed.aggregate_mbs);
    for share in [share, 0.9] {
        let fair = run(&file, PolicyKind::Fair, share);
        assert!(part_of_gain(&fair, &fixed, &mckp) >= 0.9, "at share {share}");
        assert!(least_share(&fair, &fixed) >= share, "at share {share}");
    }
    assert!(least_share(&fair, &fixed) >= share);
}

#[test]
fn static_gives_what_the_thesis_saw() {
    let fixed = run(&built_in(), PolicyKind::Static, 0.5);
    let held = |id: &str| fixed.jobs.iter().find(|j| j.id == id).unwrap().holds[0].io_nodes.len();
    assert_eq!((held("HACC#1"), held("POSIX-L#1"), held("IOR-MPI#2")), (1, 8, 2));
    assert!(fixed.jobs.iter().all(|j| j.moves == 0));
}

/// Two applications: a small one that MCKP starves as long as large ones run.
fn contended(small_gb: f64, large: usize) -> QueueFile {
    let queue: Vec<String> = std::iter::once(r#"{"app": "small"}"#.to_owned())
        .chain((0..large).map(|i| format!(r#"{{"app": "large", "arrival": {}}}"#, i * 10)))
        .collect();
    QueueFile::parse(&format!(
        r#"{{"compute_nodes": 64, "io_nodes": 8, "applications": {{
            "small": {{"compute_nodes": 32, "processes": 32, "gigabytes": {small_gb}, "mode": "N-N",
                       "curve": {{"1": 10, "2": 20, "4": 120, "8": 200}}}},
            "large": {{"compute_nodes": 16, "processes": 16, "gigabytes": 40, "mode": "N-N",
                       "curve": {{"1": 100, "2": 400, "4": 1500, "8": 2000}}}}}},
          "queue": [{}]}}"#,
        queue.join(",")
    ))
    .unwrap()
}

#[test]
fn fair_protects_the_job_that_mckp_sacrifices() {
    let file = contended(20.0, 30);
    let [fixed, mckp] = [PolicyKind::Static, PolicyKind::Mckp].map(|k| run(&file, k, 0.5));
    assert!(least_share(&mckp, &fixed) < 0.3);
    for share in [0.3, 0.5, 0.8] {
        let fair = run(&file, PolicyKind::Fair, share);
        assert!(least_share(&fair, &fixed) >= share, "{} at share {share}", least_share(&fair, &fixed));
        assert!(fair.aggregate_mbs > fixed.aggregate_mbs);
    }
}

/// A job that looks for its I/O nodes from time to time stays where it is until then, and its nodes serve the newcomer, too.
#[test]
fn a_job_that_does_not_look_stays_where_it_was() {
    let at_once = contended(8.0, 3);
    let file = QueueFile { look_seconds: 25.0, ..at_once.clone() };
    let [told, looking] = [at_once, file].map(|f| run(&f, PolicyKind::Mckp, 0.5));
    let small = |outcome: &Outcome| outcome.jobs.iter().find(|j| j.id.starts_with("small")).unwrap().clone();
    assert!(small(&told).moves > 0 && small(&told).holds[0].until < 25.0, "{:?}", small(&told));
    assert!(small(&looking).holds[0].until >= 25.0, "{:?}", small(&looking));
    for job in &looking.jobs {
        let since = |at: f64| (at - job.start) / 25.0;
        assert!(job.holds.iter().all(|h| (since(h.from) - since(h.from).round()).abs() < 1e-9), "{job:?}");
    }
}

/// The published queue with the published 10 s: HACC and IOR-MPI, which are most of MCKP's gain, end before they have looked.
#[test]
fn looking_every_ten_seconds_takes_much_of_the_gain_of_short_jobs() {
    let file = QueueFile { look_seconds: 10.0, ..built_in() };
    let [told, looking] = [built_in(), file].map(|f| run(&f, PolicyKind::Mckp, 0.5).aggregate_mbs / 1000.0);
    assert!((told - 23.1).abs() < 0.5, "{told}");
    assert!((looking - 16.02).abs() < 1.6, "{looking}");
}

#[test]
fn strict_fifo_and_no_more_compute_nodes_than_there_are() {
    for kind in PolicyKind::ALL.into_iter().filter(|&k| k != PolicyKind::Zero) {
        let file = built_in();
        let outcome = run(&file, kind, 0.5);
        let size = |id: &str| file.applications[id.split('#').next().unwrap()].compute_nodes;
        for pair in outcome.jobs.windows(2) {
            assert!(pair[0].start <= pair[1].start);
        }
        for at in outcome.jobs.iter().map(|j| j.start) {
            let busy: u32 =
                outcome.jobs.iter().filter(|j| j.start <= at && at < j.end).map(|j| size(&j.id)).sum();
            assert!(busy <= file.compute_nodes);
        }
        // Holds follow each other without a gap, from start to end.
        for job in &outcome.jobs {
            assert_eq!(job.holds[0].from, job.start);
            assert_eq!(job.holds.last().unwrap().until, job.end);
            assert!(job.holds.windows(2).all(|w| w[0].until == w[1].from));
        }
    }
}

#[test]
fn a_lone_job_takes_its_volume_over_its_bandwidth() {
    let file = contended(20.0, 0);
    let lone = |kind| run(&file, kind, 0.5).jobs[0].clone();
    // Half of the machine: 4 of 8 I/O nodes by STATIC, all 8 by MCKP.
    assert!((lone(PolicyKind::Static).end - 20_000.0 / 120.0).abs() < 1e-6);
    assert!((lone(PolicyKind::Mckp).end - 20_000.0 / 200.0).abs() < 1e-6);
}

#[test]
fn queues_that_make_no_sense_are_refused() {
    let good = r#"{"compute_nodes": 8, "io_nodes": 2, "applications": {"a": {"compute_nodes": 8, "processes": 8,
        "gigabytes": 1, "mode": "N-N", "curve": {"1": 5}}}, "queue": [{"app": "a"}]}"#;
    assert!(QueueFile::parse(good).is_ok());
    for (from, to) in [
        (r#""queue": [{"app": "a"}]"#, r#""queue": []"#),
        (r#"{"app": "a"}"#, r#"{"app": "b"}"#),
        (r#"{"app": "a"}"#, r#"{"app": "a", "arrival": -1}"#),
        (r#"{"app": "a"}"#, r#"{"app": "a", "weight": 0}"#),
        (r#"{"app": "a"}"#, r#"{"app": "a", "arival": 1}"#),
        (r#""compute_nodes": 8, "io_nodes""#, r#""compute_nodes": 4, "io_nodes""#),
        (r#""gigabytes": 1"#, r#""gigabytes": -1"#),
        (r#""io_nodes": 2"#, r#""io_nodes": 4000000000"#),
        (r#"{"1": 5}"#, r#"{}"#),
    ] {
        let bad = good.replace(from, to);
        assert_ne!(bad, good);
        assert!(QueueFile::parse(&bad).is_err(), "{to}");
    }
    // It parses, but a job would never end.
    let stalled = QueueFile::parse(&good.replace(r#"{"1": 5}"#, r#"{"1": 0}"#)).unwrap();
    assert!(simulate(&stalled, PolicyKind::One, &Settings::default()).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// On any queue whose STATIC allocation fits the pool, no job ends below its share.
    #[test]
    fn fair_keeps_its_promise_on_any_queue(
        apps in prop::collection::vec((0u32..4, 1.0f64..100.0, prop::collection::vec(1.0f64..2000.0, 4)), 1..5),
        jobs in prop::collection::vec((any::<prop::sample::Index>(), 0.0f64..300.0), 1..25),
        share in 0.0f64..=1.0,
    ) {
        let mut file = contended(1.0, 0);
        file.compute_nodes = 96;
        file.io_nodes = 12;
        let template = file.applications["small"].clone();
        file.applications.clear();
        for (i, (size, gigabytes, mbs)) in apps.iter().enumerate() {
            let curve = forebay_policy::BandwidthCurve::from_pairs([1, 2, 4, 8].into_iter().zip(mbs.iter().copied()));
            let app = forebay_sim::queue::Application {
                compute_nodes: 8 << size,
                gigabytes: *gigabytes,
                curve: curve.unwrap(),
                ..template.clone()
            };
            file.applications.insert(format!("a{i}"), app);
        }
        file.queue = jobs
            .iter()
            .map(|(app, arrival)| forebay_sim::queue::Submission {
                app: format!("a{}", app.index(apps.len())),
                arrival: *arrival,
                weight: 1.0,
            })
            .collect();
        let fixed = simulate(&file, PolicyKind::Static, &settings(share, 0.0)).unwrap();
        let fair = simulate(&file, PolicyKind::Fair, &settings(share, 0.0)).unwrap();
        prop_assert!(least_share(&fair, &fixed) >= share - 1e-6, "{} < {share}", least_share(&fair, &fixed));
        let mckp = simulate(&file, PolicyKind::Mckp, &settings(share, 0.0)).unwrap();
        prop_assert!(mckp.jobs.iter().zip(&fixed.jobs).all(|(a, b)| a.id == b.id));
    }
}
