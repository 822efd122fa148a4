//! `forebay train` end to end: scenarios through real I/O nodes, rows, model file, and the same again
//! from the rows.

use std::path::Path;
use std::process::{Command, Output};

fn forebay(dir: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_forebay")).current_dir(dir).args(args).output().unwrap()
}

fn report(output: &Output) -> serde_json::Value {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {errors}"))
}

#[test]
fn rows_from_real_nodes_make_a_model() {
    let dir = tempfile::tempdir().unwrap();
    let args = ["train", "--small", "--at", ".", "--kind", "forest", "--out", "model.json", "--json"];
    let measured = report(&forebay(dir.path(), &args));
    let detectors = measured["detectors"].as_array().unwrap();
    assert_eq!(detectors.len(), 3);
    // Few rows make no perfect detector, but one that knows what it is about.
    for detector in &detectors[..2] {
        let accuracy = detector["validation"]["accuracy"].as_f64().unwrap();
        assert!(accuracy > 0.85, "{detector}");
    }
    assert!(measured["validation_rows"].as_u64().unwrap() > 20);
    let model = std::fs::read(dir.path().join("model.json")).unwrap();
    let model = forebay_pattern::Model::from_json(&model).unwrap();
    assert!(model.trained_on.contains("real I/O nodes"), "{}", model.trained_on);
    let mut left: Vec<_> = std::fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["metrics.csv.gz", "model.json"], "nothing else is left behind");

    // The kept rows train the same detectors.
    let again = report(&forebay(dir.path(), &["train", "metrics.csv.gz", "--json"]));
    for (a, b) in detectors.iter().zip(again["detectors"].as_array().unwrap()) {
        assert_eq!(a["validation"], b["validation"]);
    }
}

#[test]
fn a_bad_file_is_named() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("rows.csv"), "a,b\n1,2\n").unwrap();
    let output = forebay(dir.path(), &["train", "rows.csv"]);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(errors.contains("rows.csv") && errors.contains("missing field"), "{errors}");
    let output = forebay(dir.path(), &["train", "--at", "no/such"]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("no/such"));
}
