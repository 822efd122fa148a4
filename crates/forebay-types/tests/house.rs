//! The papers on the wall are true: the crate graph, the files that the documents name, the size of files.

use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the repository")
}

fn read(name: &str) -> String {
    std::fs::read_to_string(root().join(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
}

/// Files below a directory with one of these endings.
fn files(dir: &Path, endings: &[&str], found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).expect("a directory of the repository").flatten() {
        let path = entry.path();
        if path.is_dir() {
            files(&path, endings, found);
        } else if path.extension().is_some_and(|e| endings.iter().any(|w| e == *w)) {
            found.push(path);
        }
    }
}

#[test]
fn the_crate_graph_is_the_one_in_the_document() {
    let output = Command::new(root().join("scripts/crate-graph")).output().expect("scripts/crate-graph runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let graph = String::from_utf8(output.stdout).expect("text");
    assert!(graph.lines().count() > 10 && graph.contains("forebay-types"), "{graph}");
    let document = read("docs/ARCHITECTURE.md");
    assert!(document.contains(&graph), "run scripts/crate-graph --write; the graph is now\n{graph}");
}

/// `crates/…` and `scripts/…`, `docs/…`, `scenarios/…`, `data/…` in backquotes are files or directories.
#[test]
fn files_that_documents_name_are_there() {
    let mut documents =
        vec![root().join("README.md"), root().join("CONTRIBUTING.md"), root().join("SECURITY.md")];
    files(&root().join("docs"), &["md"], &mut documents);
    let mut missing = Vec::new();
    for document in documents {
        let text = std::fs::read_to_string(&document).expect("a document");
        for quoted in text.split('`').skip(1).step_by(2) {
            let word = quoted.split(['(', ' ', ':']).next().unwrap_or_default();
            let starts = ["crates/", "scripts/", "docs/", "scenarios/", "data/", "fuzz/"];
            if starts.iter().any(|s| word.starts_with(s))
                && !word.contains(['*', '…', '{'])
                && !root().join(word).exists()
            {
                missing.push(format!("{}: {word}", document.display()));
            }
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
}

#[test]
fn no_source_file_is_longer_than_a_reader_bears() {
    let mut sources = Vec::new();
    files(&root().join("crates"), &["rs"], &mut sources);
    let long: Vec<_> = sources
        .iter()
        .map(|f| (std::fs::read_to_string(f).expect("a source file").lines().count(), f))
        .filter(|(lines, _)| *lines > 600)
        .collect();
    assert!(long.is_empty(), "a second room is wanted: {long:?}");
}
