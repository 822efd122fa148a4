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

/// Table 5.2 of the thesis: compute nodes, processes, GB written and read.
const APPLICATIONS: [(&str, u32, u32, f64, f64); 9] = [
    ("bt-io-c", 32, 128, 6.3, 6.3),
    ("bt-io-d", 64, 512, 126.5, 126.5),
    ("hacc-io", 8, 64, 1.8, 0.0),
    ("ior-mpi", 16, 128, 16.0, 16.0),
    ("madbench2", 32, 64, 16.2, 16.2),
    ("posix-l", 64, 512, 32.0, 32.0),
    ("posix-s", 16, 128, 16.0, 16.0),
    ("s3asim", 16, 16, 19.6, 0.0),
    ("s3d-io", 64, 512, 33.7, 0.0),
];

#[test]
fn applications_are_scaled_by_their_rule_and_no_two_are_the_same() {
    let mut patterns = BTreeSet::new();
    for (name, compute_nodes, processes, written, read) in APPLICATIONS {
        let all = shipped(&format!("applications/{name}.toml"));
        let [scenario] = &all[..] else { panic!("{name}: {} scenarios", all.len()) };
        let job = &scenario.jobs[0];
        assert_eq!((&*scenario.name, job.compute_nodes), (name, (compute_nodes / 8).max(2)));
        assert_eq!(job.processes(), (processes / 16).max(8), "{name}");
        let mut pattern = format!("{}", job.processes());
        let mut moved = [0.0; 2];
        for step in &job.steps {
            let Step::Data(d) = step else { panic!("{name}: {step:?}") };
            moved[usize::from(d.read_share > 0.0)] += d.total_size as f64 / 1e9;
            pattern +=
                &format!(" {:?} {:?} {} {}", d.target.layout, d.spatiality, d.mean_size(), d.read_share);
            assert_eq!(d.total_size % u64::from(job.processes()), 0, "{name}: {}", d.total_size);
        }
        // A request of each process is the least: HACC's header is one.
        let least = f64::from(job.processes()) * if name == "hacc-io" { 27.8e6 } else { 0.0 } / 1e9;
        for (ours, theirs) in moved.into_iter().zip([written, read]) {
            let wanted: f64 = if theirs == 0.0 { 0.0 } else { (theirs / 64.0).max(least) };
            assert!((ours - wanted).abs() <= 0.2 * wanted, "{name}: {ours} GB, {wanted} by the rule");
        }
        assert!(patterns.insert(pattern), "{name} is as another");
    }
}

#[test]
fn every_file_loads() {
    for file in ["interference.toml", "metadata.toml", "forge-flat.json", "forge-phases.json"] {
        assert_eq!(shipped(file).len(), 1, "{file}");
    }
}
