//! The scenario files that ship are what they say.

use forebay_explore::scenario::{Scenario, Step, load};
use std::collections::BTreeSet;
use std::path::Path;

fn shipped(file: &str) -> Vec<Scenario> {
    load(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios").join(file)).unwrap()
}

fn names(all: &[Scenario]) -> BTreeSet<&str> {
    all.iter().map(|s| s.name.as_str()).collect()
}

#[test]
fn the_study_has_the_189_names_of_its_measurements() {
    let all = shipped("forge-study-189.toml");
    assert_eq!(all.len(), 189);
    let measured: BTreeSet<&str> = include_str!("../../../data/marenostrum4.csv")
        .lines()
        .skip(1)
        .filter_map(|l| l.split(',').next())
        .collect();
    assert_eq!(names(&all), measured);
}

#[test]
fn the_thesis_has_144() {
    let all = shipped("thesis-144.toml");
    assert_eq!(all.len(), 144);
    assert_eq!(names(&all).len(), 36);
    assert!(all.iter().all(|s| s.io_nodes.len() == 1));
}

#[test]
fn a_to_t() {
    let all = shipped("paper-a-to-t.toml");
    assert_eq!(names(&all), ('A'..='T').map(|c| &*c.to_string().leak()).collect());
    let g = all.iter().find(|s| s.name == "G").unwrap();
    assert_eq!(g.jobs[0].processes(), 192 / 12);
    assert!(all.iter().all(|s| s.jobs[0].processes() >= 8));
    let what = |s: &Scenario| match &s.jobs[0].steps[0] {
        Step::Data(d) => {
            let job = &s.jobs[0];
            let spatiality = format!("{:?} {:?}", d.target.layout, d.spatiality);
            (job.compute_nodes, job.processes_per_node, spatiality, d.largest())
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(all.iter().map(what).collect::<BTreeSet<_>>().len(), 20, "no two are the same");
    assert!(matches!(&g.jobs[0].steps[0], Step::Data(d) if d.largest() == 128 << 10));
}

#[test]
fn every_file_loads() {
    for file in ["interference.toml", "metadata.toml", "forge-flat.json", "forge-phases.json"] {
        assert_eq!(shipped(file).len(), 1, "{file}");
    }
}
