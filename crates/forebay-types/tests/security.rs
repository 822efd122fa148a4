//! docs/SECURITY.md: every attempt of its table is tried by a test that exists.

use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Whether a file of tests has one of this name.
fn has_test(text: &str, name: &str) -> bool {
    let Some(at) = text.find(&format!("fn {name}()")) else { return false };
    text[..at].trim_end().ends_with("#[test]")
}

#[test]
fn every_attempt_names_a_test_that_is_there() {
    let text = std::fs::read_to_string(root().join("docs/SECURITY.md")).expect("docs/SECURITY.md");
    let (_, table) = text.split_once("| # | B tries to | test |\n").expect("the table");
    let rows: Vec<&str> = table.lines().skip(1).take_while(|l| l.starts_with('|')).collect();
    assert!(rows.len() >= 40, "{} attempts", rows.len());
    for (n, row) in rows.iter().enumerate() {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        assert_eq!(cells[0], (n + 1).to_string(), "{row}");
        let mut named = cells[2].split('`').filter(|part| !part.trim().is_empty());
        let (Some(file), Some(test)) = (named.next(), named.next()) else { panic!("{row}") };
        let tests = std::fs::read_to_string(root().join(file)).unwrap_or_else(|e| panic!("{file}: {e}"));
        assert!(has_test(&tests, test), "{row}: {file} has no such test");
    }
}

#[test]
fn a_test_is_one_only_with_its_attribute() {
    assert!(has_test("#[test]\nfn a() {}", "a"));
    assert!(!has_test("fn a() {}", "a"));
    assert!(!has_test("#[test]\nfn ab() {}", "a"));
}
