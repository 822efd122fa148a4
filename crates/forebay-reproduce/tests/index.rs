//! The index, the session and the report.

use forebay_reproduce::{ClaimVerdict, Index, Laboratory, Session, Setup, html, text, trial};

#[test]
fn the_index_is_large_and_says_where_everything_is_from() {
    let index = Index::built_in().unwrap();
    assert!(index.entry.len() >= 60, "{}", index.entry.len());
    for e in &index.entry {
        assert!(!e.source.is_empty() && !e.figure.is_empty() && !e.claim.is_empty(), "{}", e.id);
    }
}

#[test]
fn mistakes_in_an_index_are_named() {
    let entry = |id: &str, rest: &str| {
        format!(
            "[[entry]]\nid = \"{id}\"\nsource = \"s\"\nfigure = \"f\"\nclaim = \"c\"\nsetting = \"simulation\"\n\
             published = 1.0\ntolerance = \"at-most\"\n{rest}\n"
        )
    };
    for (text, hint) in [
        (entry("a b", "measure = \"g.x\""), "letters, digits and dashes"),
        (entry("a", ""), "says why none is possible"),
        (entry("a", "measure = \"g.x\"\nnot-possible = \"n\""), "says why none is possible"),
        (entry("a", "measure = \"g.x\"") + &entry("a", "measure = \"g.x\""), "twice"),
        (entry("a", "measure = \"g.x\"\nbecause = { reason = \"r\", seen = [2.0, 1.0] }"), "in order"),
        (entry("a", "measur = \"g.x\""), "unknown field"),
    ] {
        let error = Index::parse(&text).unwrap_err().to_string();
        assert!(error.contains(hint), "{text}: {error}");
    }
}

/// A laboratory that counts.
struct Counting(std::cell::Cell<u32>);

impl Laboratory for Counting {
    fn run(&self, _: &str, _: bool) -> anyhow::Result<Vec<(String, String)>> {
        self.0.set(self.0.get() + 1);
        let csv = "scheduler,weight2_per_s,weight1_per_s,jain\n\"sfq-d-plus:depth=4,merge=1\",1,1,1\nsfq-d-plus,200,100,1.0\n";
        Ok(vec![("metadata.svg".into(), String::new()), ("metadata.csv".into(), csv.into())])
    }
}

#[test]
fn a_session_goes_on_where_it_was() {
    let index = Index::built_in().unwrap();
    let entry = index.find("vpfs-live-jain").unwrap();
    let directory = tempfile::tempdir().unwrap();
    let laboratory = Counting(std::cell::Cell::new(0));
    let setup = Setup { full: false, broken: None, tables: &index.table, laboratory: Some(&laboratory) };
    for _ in 0..2 {
        let mut session = Session::open(Some(directory.path())).unwrap();
        session.make("live-metadata", &setup).unwrap();
        assert_eq!(session.verdict(entry).unwrap().verdict, ClaimVerdict::Reproduced);
    }
    assert_eq!(laboratory.0.get(), 1, "the second session had the figures");
    // What failed is told, and tried again.
    let without = Setup { laboratory: None, ..setup };
    let mut session = Session::open(None).unwrap();
    session.make("live-metadata", &without).unwrap();
    let told = session.verdict(entry).unwrap().verdict;
    assert!(told.because().is_some_and(|why| why.contains("real I/O nodes")), "{told:?}");
}

#[test]
fn the_report_shows_every_verdict_and_escapes_what_it_shows() {
    let index = Index::built_in().unwrap();
    let mut session = Session::open(None).unwrap();
    let setup = Setup { full: false, broken: None, tables: &index.table, laboratory: None };
    session.make("forge", &setup).unwrap();
    let tried = session.verdicts(&index);
    let page = html(&index, &tried, &["<today>".into()]);
    assert!(page.contains("forge-best-0") && page.contains("<svg") && page.contains("&lt;today&gt;"));
    assert!(!page.contains("<today>"));
    assert_eq!(page.matches("<article").count(), tried.len());
}

#[test]
fn a_fresh_checkout_knows_the_verdicts_of_the_published_run() {
    let mut index = Index::built_in().unwrap();
    let nowhere = tempfile::tempdir().unwrap();
    let out = nowhere.path().join("none");
    let last = trial::last(&index, &out, false).unwrap();
    assert!(last.len() >= 60, "{}", last.len());
    let listed = text::list_json(&index, &last);
    let of = |id: &str| listed.iter().find(|e| e["id"] == id).unwrap()["last_verdict"].clone();
    assert_eq!((of("forge-best-0"), of("learn-opposite")), ("reproduced".into(), "refuted".into()));
    // Its figures are held against the index as it is now.
    for entry in index.entry.iter_mut().filter(|e| e.id == "forge-best-0") {
        entry.published *= 2.0;
    }
    let last = trial::last(&index, &out, false).unwrap();
    let verdict = &last.iter().find(|t| t.id == "forge-best-0").unwrap().verdict;
    assert_eq!(verdict, &ClaimVerdict::Refuted);
    // What was tried since comes first.
    let session_dir = tempfile::tempdir().unwrap();
    let setup = Setup { full: false, broken: None, tables: &index.table, laboratory: None };
    Session::open(Some(session_dir.path())).unwrap().make("forge", &setup).unwrap();
    let last = trial::last(&index, session_dir.path(), false).unwrap();
    assert_eq!(last.iter().filter(|t| t.id == "forge-best-0").count(), 1);
}

/// A laboratory that has run a queue and a slow I/O node.
struct Recorded;

impl Laboratory for Recorded {
    fn run(&self, experiment: &str, _: bool) -> anyhow::Result<Vec<(String, String)>> {
        let file = |name: &str, text: String| (name.to_owned(), text);
        Ok(match experiment {
            // One that moves 131 MB/s, is slow from 12.1 s on, screened out at 16.5 s, and used again.
            "failslow" => {
                let rate = |t: f64| if (12.1..16.5).contains(&t) { 100.0 } else { 131.0 };
                let rows = (1..=240).map(|i| f64::from(i) * 0.25).map(|t| format!("{t},{}\n", rate(t)));
                let times = "slow from,12.1\nslow to,37.1\nscreened,16.5\nreadmitted,54.0\n";
                vec![
                    file("failslow.csv", format!("seconds,mb_per_s\n{}", rows.collect::<String>())),
                    file("failslow-times.csv", format!("what,seconds\n{times}")),
                ]
            }
            other => anyhow::bail!("no {other}"),
        })
    }
}

#[test]
fn a_slow_node_is_simulated_with_the_production_screening() {
    let index = Index::built_in().unwrap();
    let setup = Setup { full: false, broken: None, tables: &index.table, laboratory: Some(&Recorded) };
    let mut session = Session::open(None).unwrap();
    session.make("live-failslow", &setup).unwrap();
    let off = |name: &str| {
        let tried = session.verdict(index.find(&format!("sim-failslow-{name}")).unwrap()).unwrap();
        tried.measured.unwrap_or_else(|| panic!("{name}: {:?}", tried.verdict)).value
    };
    for name in ["before", "slow", "screened-out", "screened-after", "readmitted-after"] {
        assert!(off(name) < 15.0, "{name}: off by {} %", off(name));
    }
}
