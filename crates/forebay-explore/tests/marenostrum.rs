//! The MareNostrum 4 measurements give the numbers that are known of them.

use forebay_explore::analysis::{Measurements, Rule, StudyReport, assess, html, text};
use forebay_explore::curves;
use forebay_policy::CurveTable;
use std::collections::BTreeMap;
use std::fmt::Display;

const PUBLISHED: &str = include_str!("../../../data/marenostrum4.csv");
const CORRECTED: &str = include_str!("../../../data/marenostrum4_corrected.csv");

fn report(csv: &str, rule: Rule) -> StudyReport {
    let mut m = Measurements::default();
    m.add_csv("marenostrum4.csv", csv.as_bytes()).unwrap();
    assess(&m, rule)
}

fn values<K: Display>(tally: &BTreeMap<K, usize>) -> String {
    tally.values().map(usize::to_string).collect::<Vec<_>>().join("/")
}

#[test]
fn as_published() {
    let r = report(PUBLISHED, Rule::Described);
    assert_eq!((r.scenarios, r.rows), (189, 5039));
    assert_eq!(r.best.max.keys().copied().collect::<Vec<_>>(), [0, 1, 2, 4, 8]);
    assert_eq!(values(&r.best.max), "62/12/83/15/17");
    assert_eq!(values(&r.best.mean), "22/10/91/16/50");
    assert_eq!(values(&r.distinct), "96/93/0/0/0");
    let r = report(PUBLISHED, Rule::Published);
    assert_eq!(values(&r.distinct), "18/40/88/39/4");
}

#[test]
fn corrected() {
    let r = report(CORRECTED, Rule::Described);
    assert_eq!((r.scenarios, r.rows), (189, 4396));
    assert_eq!(values(&r.best.max), "60/14/83/15/17");
    assert_eq!(values(&r.best.mean), "53/10/90/16/20");
    let published = report(PUBLISHED, Rule::Described).rows;
    assert_eq!(published - r.rows, 643);
}

/// What is best for the patterns A to T, in the words of the paper's text on its figure 2.
#[test]
fn the_papers_remarks_on_single_scenarios_hold() {
    let r = report(PUBLISHED, Rule::Described);
    let best = |name: &str| r.verdicts.iter().find(|v| v.scenario == name).unwrap().best.max;
    assert_eq!(best("1536-32-0-0-1024-1"), 0, "A");
    assert_eq!(best("1536-32-0-0-128-1"), 8, "B");
    assert_eq!(best("1536-32-1-0-1024-1"), 2, "C");
}

#[test]
fn json_has_the_agreed_shape() {
    let json = serde_json::to_value(report(PUBLISHED, Rule::Described)).unwrap();
    assert_eq!(json["scenarios"], 189);
    assert_eq!(json["best"]["max"], serde_json::json!({"0": 62, "1": 12, "2": 83, "4": 15, "8": 17}));
    assert_eq!(json["best"]["median"]["2"], 89);
    assert_eq!(json["distinct"], serde_json::json!({"1": 96, "2": 93, "3": 0, "4": 0, "5": 0}));
    assert_eq!(json["verdicts"].as_array().unwrap().len(), 189);
}

#[test]
fn reports_name_every_scenario() {
    let r = report(CORRECTED, Rule::Described);
    let (t, h) = (text(&r), html(&r, "MareNostrum <4>"));
    for v in &r.verdicts {
        assert!(t.contains(&v.scenario) && h.contains(&v.scenario));
    }
    assert!(h.contains("MareNostrum &lt;4&gt;"));
    assert!(
        !h.contains("http://")
            || h.matches("http").count() == h.matches("http://www.w3.org/2000/svg").count()
    );
}

#[test]
fn curves_survive_export_and_import() {
    let curves = curves::of(&report(CORRECTED, Rule::Described)).unwrap();
    let mut file = Vec::new();
    curves.to_csv(&mut file).unwrap();
    assert_eq!(CurveTable::from_csv(file.as_slice()).unwrap(), curves);
    // The file is also a table of measurements.
    let again = report(std::str::from_utf8(&file).unwrap(), Rule::Described);
    assert_eq!(values(&again.best.mean), "53/10/90/16/20");
}

#[test]
fn a_measured_pattern_is_its_own_estimate() {
    let curves = curves::of(&report(CORRECTED, Rule::Described)).unwrap();
    let c = &curves.scenarios[17];
    let estimate = curves.estimate(&c.facts);
    assert!(c.curve.points().iter().all(|p| estimate[&p.io_nodes] == p.bandwidth.0));
}

/// Measured once: median error 13.4 %, 90 % of errors below 34.6 %, 97.8 % of the best bandwidth.
#[test]
fn estimates_of_unseen_patterns_are_useful() {
    let e = curves::of(&report(CORRECTED, Rule::Described)).unwrap().leave_one_out().unwrap();
    assert_eq!(e.curves, 189);
    assert!(e.median_error < 0.15 && e.p90_error < 0.36, "{e:?}");
    assert!(e.share_of_best > 0.97 && e.right_choice > 0.75, "{e:?}");
}
