//! The whole way: requests, collector, rows, split, training, model file, detection.

use forebay_pattern::data::{Row, Split, alternate_processes};
use forebay_pattern::train::{TrainError, Trainer, importance, judge};
use forebay_pattern::{Access, Collector, Feature, FlowMetrics, KeptError, Model, synthetic};
use forebay_types::{ClientId, FileId, FlowId, Nanos, OpKind, Pattern};
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::sync::OnceLock;

fn rows() -> &'static [Row] {
    static ROWS: OnceLock<Vec<Row>> = OnceLock::new();
    ROWS.get_or_init(|| {
        let plan = synthetic::Plan {
            processes: vec![8, 16, 32],
            io_nodes: vec![1, 2],
            seconds: 3,
            ..synthetic::Plan::default()
        };
        synthetic::rows(&plan, 7)
    })
}

fn split() -> Split {
    Split::new(rows().to_vec(), BTreeSet::from([32 << 10, 256 << 10]), alternate_processes(rows()), 7)
}

fn models() -> &'static [Model] {
    static MODELS: OnceLock<Vec<Model>> = OnceLock::new();
    let train = |t: &Trainer| t.train(&split().train, &Feature::ALL, "synthetic", 7, &mut |_| {}).unwrap();
    MODELS.get_or_init(|| Trainer::ALL.iter().map(train).collect())
}

#[test]
fn unseen_sizes_and_process_counts_are_detected() {
    let split = split();
    assert!(split.validation.iter().any(|r| r.label.processes == 16 && r.label.request_size == 64 << 10));
    for model in models() {
        let confusion = judge(model, &split.validation);
        assert!(confusion.accuracy() > 0.97, "{}: {confusion:?}", model.kind().name());
        assert!(confusion.kappa() > 0.95, "{}: {confusion:?}", model.kind().name());
    }
}

#[test]
fn training_is_repeatable() {
    let again = Trainer::Forest.train(&split().train, &Feature::ALL, "synthetic", 7, &mut |_| {}).unwrap();
    assert_eq!(&again, &models()[1]);
}

#[test]
fn a_model_relies_on_something() {
    for model in models() {
        let importance = importance(model, &split().test, 1);
        assert_eq!(importance.len(), Feature::ALL.len());
        assert!(importance[0].1 > 0.05, "{importance:?}");
        assert!(importance.windows(2).all(|w| w[0].1 >= w[1].1));
    }
}

#[test]
fn a_model_file_gives_the_same_answers() {
    for model in models() {
        let read = Model::from_json(&model.to_json()).unwrap();
        for row in rows() {
            assert_eq!(read.detect(&row.metrics), model.detect(&row.metrics));
        }
    }
}

#[test]
fn too_little_is_refused() {
    for model in models() {
        let row = rows().iter().find(|r| r.label.class == Pattern::FppContiguous).unwrap();
        assert_eq!(model.detect(&row.metrics).pattern, Pattern::FppContiguous);
        let few = FlowMetrics { judged: model.least_judged - 1, ..row.metrics.clone() };
        assert_eq!(model.detect(&few).pattern, Pattern::Unknown);
        assert_eq!(model.detect(&FlowMetrics::default()).pattern, Pattern::Unknown);
    }
}

#[test]
fn training_needs_rows_of_two_classes() {
    let train = |rows: &[Row]| Trainer::Tree.train(rows, &Feature::ALL, "", 1, &mut |_| {});
    assert!(matches!(train(&rows()[..10]), Err(TrainError::TooFew { rows: 10 })));
    let one: Vec<Row> = rows().iter().filter(|r| r.label.class == Pattern::Random).cloned().collect();
    assert!(matches!(train(&one), Err(TrainError::OneClass(Pattern::Random))));
}

/// One interval in which `clients` processes send 50 requests each, in turn, as `place` says.
fn seen(clients: u64, size: u64, place: impl Fn(u64, u64) -> (u64, u64)) -> FlowMetrics {
    let mut collector = Collector::new(Nanos::ZERO);
    for k in 0..50 {
        for client in 0..clients {
            let (file, offset) = place(client, k);
            let access = Access {
                flow: FlowId(1),
                client: ClientId(client),
                file: FileId(file),
                op: OpKind::Write,
                offset,
                len: size,
            };
            collector.arrive(Nanos(k * 1_000_000 + client), &access);
        }
    }
    collector.close(Nanos::from_secs(1)).flows.remove(0)
}

#[test]
fn the_shipped_model_knows_the_plain_cases() {
    let model = Model::builtin();
    for size in [4 << 10, 47_008, 1 << 20, 16 << 20] {
        for n in [1, 2, 3, 7, 48, 1000] {
            let own = seen(n, size, |c, k| (c, k * size));
            assert_eq!(model.detect(&own).pattern, Pattern::FppContiguous, "{n} × {size}");
            if n > 1 {
                let segments = seen(n, size, |c, k| (0, (c * 50 + k) * size));
                assert_eq!(model.detect(&segments).pattern, Pattern::SharedContiguous, "{n} × {size}");
                let strided = seen(n, size, |c, k| (0, (k * n + c) * size));
                assert_eq!(model.detect(&strided).pattern, Pattern::SharedStrided, "{n} × {size}");
                let scattered =
                    |c: u64, k: u64| (0, (c * 50 + k).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40 << 12);
                assert_eq!(model.detect(&seen(n, size, scattered)).pattern, Pattern::Random, "{n} × {size}");
            }
        }
    }
}

fn edited(model: &Model, edit: impl Fn(&mut serde_json::Value)) -> Result<Model, KeptError> {
    let mut json: serde_json::Value = serde_json::from_slice(&model.to_json()).unwrap();
    edit(&mut json);
    Model::from_json(json.to_string().as_bytes())
}

#[test]
fn damaged_models_are_refused() {
    let [tree, forest, net] = models() else { panic!("three models") };
    let split_to = |child: u32| edited(tree, |j| j["detector"]["tree"][0]["split"]["low"] = child.into());
    assert!(matches!(split_to(0), Err(KeptError::Damaged { .. })), "a loop");
    assert!(matches!(split_to(1_000_000), Err(KeptError::Damaged { .. })), "a child outside");
    let feature = edited(tree, |j| j["detector"]["tree"][0]["split"]["feature"] = 99.into());
    assert!(matches!(feature, Err(KeptError::Damaged { .. })));
    assert!(matches!(
        edited(forest, |j| j["detector"]["forest"] = [0; 0].as_slice().into()),
        Err(KeptError::Damaged { .. })
    ));
    let narrow = edited(net, |j| j["detector"]["net"]["hidden"]["weights"][0] = vec![1.0].into());
    assert!(matches!(narrow, Err(KeptError::Damaged { .. })));
    let flat = edited(net, |j| j["detector"]["net"]["inputs"][0]["deviation"] = 0.0.into());
    assert!(matches!(flat, Err(KeptError::Damaged { .. })));
    assert!(matches!(edited(tree, |j| j["version"] = 2.into()), Err(KeptError::Version { found: 2, .. })));
    assert!(matches!(
        edited(tree, |j| j["features"] = ["nonsense"].as_slice().into()),
        Err(KeptError::Syntax { .. })
    ));
    assert!(matches!(Model::from_json(b""), Err(KeptError::Syntax { .. })));
}

proptest! {
    /// Whatever is done to the bytes: an error, or a model that still answers.
    #[test]
    fn hostile_bytes_do_no_harm(which in 0usize..3, edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6)) {
        let mut bytes = models()[which].to_json();
        for (at, byte) in edits {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Ok(model) = Model::from_json(&bytes) {
            for row in rows().iter().step_by(97) {
                let d = model.detect(&row.metrics);
                prop_assert!((0.0..=1.0 + 1e-9).contains(&d.probability));
            }
        }
    }
}
