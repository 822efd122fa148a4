//! What the report prints, as a statistician would: one measure decides, n and p are there, pairs are
//! compared only where something differs, and direct access is no number of I/O nodes.

use forebay_explore::analysis::{Measurements, Rule, StudyReport, assess, html, text};

const HEAD: &str = "scenario,compute_nodes,processes,layout,spatiality,request_kb,io_nodes,bandwidth_mbs\n";

fn report(rows: &str, rule: Rule) -> StudyReport {
    let mut m = Measurements::default();
    m.add_csv("x.csv", format!("{HEAD}{rows}").as_bytes()).unwrap();
    assess(&m, rule)
}

fn rows(name: &str, io_nodes: u32, values: &[f64]) -> String {
    values.iter().map(|v| format!("{name},4,8,1,0,32,{io_nodes},{v}\n")).collect()
}

/// Of three groups only the first pair looks different, and not if one asks about all three first.
fn borderline() -> String {
    rows("b", 0, &[10.0, 11.0, 12.0, 19.0, 20.0])
        + &rows("b", 1, &[14.0, 16.0, 18.0, 21.0, 22.0])
        + &rows("b", 2, &[13.0, 15.0, 17.0, 15.5, 16.5])
}

#[test]
fn pairs_are_shown_only_where_something_differs() {
    let r = report(&borderline(), Rule::Described);
    let v = &r.verdicts[0];
    assert!(v.kruskal_wallis.unwrap().p > 0.05);
    assert!(v.dunn.is_empty());
    assert_eq!((v.choices.as_slice(), v.smallest_equivalent), (&[0][..], Some(0)));
    let line = text(&r).lines().find(|l| l.starts_with('b')).unwrap().to_owned();
    assert!(line.ends_with('–'), "{line}");
    // The published figure was made without that gate.
    assert_eq!(report(&borderline(), Rule::Published).verdicts[0].dunn.len(), 3);
    let clear = rows("c", 1, &[1.0, 2.0, 3.0, 4.0, 5.0]) + &rows("c", 2, &[11.0, 12.0, 13.0, 14.0, 15.0]);
    let r = report(&clear, Rule::Described);
    assert_eq!(r.verdicts[0].choices, [1, 2]);
    assert_eq!(r.distinct_gated[&2], 1);
}

#[test]
fn one_measure_decides_and_n_is_told() {
    // By the mean the first is higher, by the median the second.
    let skewed = rows("s", 1, &[1.0, 1.0, 1.0, 100.0]) + &rows("s", 2, &[10.0, 10.0, 10.0]);
    let shown = text(&report(&skewed, Rule::Described));
    let line = shown.lines().find(|l| l.starts_with('s') && !l.starts_with("scen")).unwrap();
    assert!(line.contains("*10.0 [10.0–10.0]") && line.contains(" 1.00 [1.00–25.8]"), "{line}");
    assert!(line.contains("  4/3  "), "{line}");
    assert_eq!(line.matches('*').count(), 1, "{line}");
}

/// One value is what it is, and no quartiles, tests or comparisons; direct access that nobody measured has no share.
#[test]
fn one_repetition_says_what_it_can() {
    let once = report(&(rows("o", 1, &[10.0]) + &rows("o", 2, &[20.0])), Rule::Described);
    let shown = text(&once);
    let line = shown.lines().find(|l| l.starts_with("o ")).unwrap();
    assert!(line.contains("  *20.0  ") && !line.contains('['), "{line}");
    let words: Vec<&str> = line.split_whitespace().collect();
    assert!(words.ends_with(&["1", "–", "2", "–", "–"]), "{line}");
    assert!(once.verdicts[0].kruskal_wallis.is_none() && once.smallest_equivalent.values().all(|n| *n == 0));
    assert!(!shown.contains("forwarding") && !shown.contains('%'), "{shown}");
    let page = html(&once, "x");
    assert!(page.contains("enough <b>–</b>") && page.contains(">20.0</td>"), "{page}");
    let both = text(&report(&(rows("o", 0, &[10.0]) + &rows("o", 2, &[20.0])), Rule::Described));
    assert!(both.contains("100.0 %"), "{both}");
}

#[test]
fn numbers_in_names_sort_by_value() {
    let all = rows("1536-a", 1, &[1.0]) + &rows("192-a", 1, &[1.0]) + &rows("96-a", 1, &[1.0]);
    let names: Vec<_> = report(&all, Rule::Described).verdicts.into_iter().map(|v| v.scenario).collect();
    assert_eq!(names, ["96-a", "192-a", "1536-a"]);
}

#[test]
fn direct_access_is_not_joined_to_numbers_of_io_nodes() {
    let lines = |rows: &str| html(&report(rows, Rule::Described), "x").matches("<polyline").count();
    let forwarded = rows("s", 1, &[1.0, 2.0]);
    assert_eq!(lines(&forwarded), 0);
    assert_eq!(lines(&(rows("s", 0, &[5.0, 6.0]) + &forwarded)), 0);
    assert_eq!(lines(&(rows("s", 0, &[5.0]) + &forwarded + &rows("s", 2, &[3.0]))), 1);
}

#[test]
fn colours_mean_the_same_in_every_panel() {
    let with = rows("with", 0, &[5.0]) + &rows("with", 1, &[1.0]) + &rows("with", 2, &[2.0]);
    let without = rows("without", 1, &[1.0]) + &rows("without", 2, &[2.0]);
    let page = html(&report(&(with + &without), Rule::Described), "x");
    let strokes: Vec<&str> = page
        .split("<polyline")
        .skip(1)
        .filter_map(|l| l.split("stroke=\"").nth(1)?.split('"').next())
        .collect();
    assert_eq!(strokes.len(), 2);
    assert_eq!(strokes[0], strokes[1]);
}

/// The bars of both figures over all scenarios, each with a whisker and its two caps that are as long as the
/// interval is wide.
#[test]
fn bars_have_error_bars() {
    let scenario = |name: &str| rows(name, 1, &[1.0, 2.0, 3.0]) + &rows(name, 2, &[11.0, 12.0, 13.0]);
    let all: String = ["a", "b", "c", "d"].map(scenario).concat();
    let page = html(&report(&all, Rule::Described), "x");
    let from = page.find("<h2>All scenarios</h2>").unwrap();
    let figures = &page[from..from + page[from..].find("</div>").unwrap()];
    let bars = figures.split("<rect ").skip(1).filter(|r| r.contains("<title>")).count();
    assert!(bars >= 4, "{figures}");
    let number = |line: &str, key: &str| -> f64 {
        let text = line.split(&format!("{key}=\"")).nth(1).unwrap().split('"').next().unwrap();
        text.parse().unwrap()
    };
    // Axes have another width.
    let whiskers: Vec<&str> =
        figures.split("<line ").skip(1).filter(|l| l.contains("stroke-width=\"1.2\"")).collect();
    assert_eq!(whiskers.len(), 3 * bars, "{figures}");
    for bar in whiskers.chunks(3) {
        let [upright, cap, other] = [bar[0], bar[1], bar[2]].map(|l| [number(l, "y1"), number(l, "y2")]);
        assert!(upright[0] - upright[1] > 5.0, "no interval at all: {bar:?}");
        assert_eq!((cap, other), ([upright[0]; 2], [upright[1]; 2]), "{bar:?}");
    }
}
