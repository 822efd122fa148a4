//! Our statistics against SciPy's and scikit-posthocs' (`goldens/make.py`).

use forebay_explore::stats::{dunn, kruskal_wallis, mean, median, quantile, t_interval};
use serde::Deserialize;

#[derive(Deserialize)]
struct Case {
    name: String,
    groups: Vec<Vec<f64>>,
    h: f64,
    p: f64,
    dunn: Vec<Pair>,
    mean: Vec<f64>,
    median: Vec<f64>,
    q1: Vec<f64>,
    q90: Vec<f64>,
    t95: Vec<(f64, f64)>,
}

#[derive(Deserialize)]
struct Pair {
    a: usize,
    b: usize,
    z: f64,
    p: f64,
    bonferroni: f64,
    holm: f64,
}

/// Within 1e-6, relative for large numbers; for small p values the ratio counts too.
fn close(ours: f64, golden: f64, what: &str) {
    let allowed = 1e-6 * golden.abs().max(1.0);
    assert!((ours - golden).abs() <= allowed, "{what}: {ours} against {golden}");
    if golden != 0.0 {
        assert!((ours / golden - 1.0).abs() <= 1e-6, "{what}: {ours} against {golden}");
    }
}

#[test]
fn agrees_with_scipy_and_scikit_posthocs() {
    let cases: Vec<Case> = serde_json::from_str(include_str!("goldens/stats.json")).unwrap();
    assert_eq!(cases.len(), 15);
    for case in &cases {
        let name = &case.name;
        let groups: Vec<&[f64]> = case.groups.iter().map(Vec::as_slice).collect();
        let kw = kruskal_wallis(&groups).unwrap();
        close(kw.h, case.h, &format!("{name}: H"));
        close(kw.p, case.p, &format!("{name}: p of H"));
        let ours = dunn(&groups);
        assert_eq!(ours.len(), case.dunn.len());
        for (o, g) in ours.iter().zip(&case.dunn) {
            let pair = format!("{name}: {}-{}", g.a, g.b);
            assert_eq!((o.a, o.b), (g.a, g.b));
            close(o.z, g.z, &format!("{pair} z"));
            close(o.p, g.p, &format!("{pair} p"));
            close(o.bonferroni, g.bonferroni, &format!("{pair} Bonferroni"));
            close(o.holm, g.holm, &format!("{pair} Holm"));
        }
        for (i, g) in groups.iter().enumerate() {
            close(mean(g), case.mean[i], name);
            close(median(g), case.median[i], name);
            close(quantile(g, 0.25), case.q1[i], name);
            close(quantile(g, 0.9), case.q90[i], name);
            let t = t_interval(g, 0.95).unwrap();
            close(t.low, case.t95[i].0, &format!("{name}: t low"));
            close(t.high, case.t95[i].1, &format!("{name}: t high"));
        }
    }
}

#[test]
fn groups_without_difference_are_alike() {
    let same: &[&[f64]] = &[&[5.0, 5.0], &[5.0, 5.0, 5.0]];
    assert_eq!(kruskal_wallis(same).unwrap().p, 1.0);
    assert!(dunn(same).iter().all(|c| c.z == 0.0 && c.p == 1.0 && c.holm == 1.0));
    assert_eq!(kruskal_wallis(&[&[1.0]]), None);
    assert!(dunn(&[&[1.0], &[]]).is_empty());
    assert_eq!(t_interval(&[3.0], 0.95), None);
}
