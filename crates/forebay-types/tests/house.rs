//! The papers on the wall are true: the crate graph, the files that the documents name, the size of files.

use forebay_types::switches::{HANDED_ON, SETTINGS};
use std::collections::BTreeSet;
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
    for name in graph.lines().filter_map(|l| l.split_whitespace().next()) {
        let told = document.lines().any(|l| l.starts_with('|') && l.contains(&format!("`{name}`")));
        assert!(told, "docs/ARCHITECTURE.md does not say what lives in {name}");
    }
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

/// `[CRATE ]FILE::TEST` in the promises is a test, or a file of tests, of that crate.
#[test]
fn tests_that_promises_name_are_there() {
    let text = read("docs/SEMANTICS.md");
    let named = text
        .split('`')
        .skip(1)
        .step_by(2)
        .filter(|q| q.contains("::") && !q.ends_with('*') && *q != "file::test");
    let (mut missing, mut count) = (Vec::new(), 0);
    for quoted in named {
        let (owner, path) = quoted.split_once(' ').unwrap_or(("forebay", quoted));
        let Some(last) = path.rsplit("::").next() else { continue };
        let dir = root().join("crates").join(owner);
        let mut sources = Vec::new();
        for part in ["tests", "src"].map(|part| dir.join(part)).iter().filter(|part| part.is_dir()) {
            files(part, &["rs", "sh"], &mut sources);
        }
        let there = sources.iter().any(|f| {
            f.file_stem().is_some_and(|stem| stem == last)
                || std::fs::read_to_string(f).is_ok_and(|t| t.contains(&format!("fn {last}(")))
        });
        count += 1;
        if !there {
            missing.push(quoted);
        }
    }
    assert!(missing.is_empty() && count > 40, "{count} named, not there: {missing:#?}");
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

/// The lines of a source file that are product code: up to its unit tests, trimmed, none of them empty.
fn product_lines(file: &Path) -> Vec<(usize, String)> {
    let text = std::fs::read_to_string(file).expect("a source file");
    let lines = text.lines().take_while(|l| *l != "#[cfg(test)]").enumerate();
    lines.map(|(n, l)| (n + 1, l.trim().to_owned())).filter(|(_, l)| !l.is_empty()).collect()
}

/// The sources of a crate, or of all, without tests.
fn product_sources(crates: &str) -> Vec<PathBuf> {
    let mut sources = Vec::new();
    files(&root().join(crates), &["rs"], &mut sources);
    sources.retain(|f| {
        let in_tests =
            f.components().any(|c| ["tests", "benches", "examples"].iter().any(|d| c.as_os_str() == *d));
        !in_tests && f.file_name().is_some_and(|n| n != "tests.rs")
    });
    sources
}

#[test]
fn the_command_line_only_speaks() {
    let sources = product_sources("crates/forebay/src");
    let lines = sources.iter().map(|f| std::fs::read_to_string(f).expect("a source file").lines().count());
    let lines: usize = lines.sum();
    assert!(lines > 1000, "the sources were found");
    assert!(lines <= 4500, "{lines} lines: what a command does belongs into the crate of that idea");
}

#[test]
fn edges_that_should_not_be_there_are_not() {
    let document = read("docs/ARCHITECTURE.md");
    let uses = |who: &str, whom: &str| {
        let line = document.lines().find(|l| l.split_whitespace().next() == Some(who) && l.contains('→'));
        line.unwrap_or_else(|| panic!("{who} is not in the graph")).split_whitespace().any(|w| w == whom)
    };
    let unwanted = [
        ("forebay-arbiter", "explore"),
        ("forebay-control", "sched"),
        ("forebay-control", "pattern"),
        ("forebay-embed", "node"),
        ("forebay-node", "arbiter"),
    ];
    for (who, whom) in unwanted {
        assert!(!uses(who, whom), "{who} needs no forebay-{whom}");
    }
    assert!(uses("forebay-arbiter", "policy"), "the graph was read");
    // An I/O node observes; it does not train.
    assert!(!read("crates/forebay-node/Cargo.toml").contains("\"train\""));
}

/// So many lines in a row that stand in two places want to be one piece of code.
const REPEATED: usize = 12;

#[test]
fn nothing_is_written_twice() {
    let mut seen: std::collections::HashMap<Vec<String>, String> = std::collections::HashMap::new();
    let mut repeats = Vec::new();
    for file in product_sources("crates") {
        let lines = product_lines(&file);
        let mut covered = 0;
        for (at, run) in lines.windows(REPEATED).enumerate() {
            // Imports and closing braces are alike everywhere.
            let says = |l: &str| l.len() > 3 && !l.starts_with("use ") && !l.starts_with("//");
            if at < covered || run.iter().filter(|(_, l)| says(l)).count() < REPEATED / 2 {
                continue;
            }
            let place = format!("{}:{}", file.strip_prefix(root()).unwrap_or(&file).display(), run[0].0);
            let text: Vec<String> = run.iter().map(|(_, l)| l.clone()).collect();
            match seen.get(&text) {
                Some(first) => {
                    repeats.push(format!("{first} and {place}"));
                    covered = at + REPEATED;
                }
                None => drop(seen.insert(text, place)),
            }
        }
    }
    assert!(seen.len() > 10_000, "the sources were read");
    assert!(repeats.is_empty(), "one piece of code can serve both: {repeats:#?}");
}

/// Whoever meets a variable of ours finds out what it is.
#[test]
fn variables_of_the_environment_are_in_the_table() {
    let table = read("docs/INSTALL.md");
    // Of the build, of tests and of the tools that make both.
    let own = ["FOREBAY_VERSION", "FOREBAY_PRELOAD_LIBRARY"];
    let mut seen = BTreeSet::new();
    for file in product_sources("crates").iter().filter(|f| !f.to_string_lossy().contains("forebay-testkit"))
    {
        for (_, line) in product_lines(file) {
            for rest in line.split("\"FOREBAY_").skip(1) {
                let name: String = rest.chars().take_while(|c| c.is_ascii_uppercase() || *c == '_').collect();
                seen.insert(format!("FOREBAY_{name}"));
            }
        }
    }
    // And whoever misspells one is told: by a list that is this table.
    let listed: BTreeSet<&str> = SETTINGS.into_iter().chain(HANDED_ON).collect();
    let part = table.split("## ").find(|part| part.starts_with("The environment")).expect("the chapter");
    let rows: BTreeSet<&str> = part
        .lines()
        .filter(|line| line.starts_with("| `FOREBAY_"))
        .flat_map(|line| line.split('|').nth(1).expect("a name").split('`'))
        .filter(|word| word.starts_with("FOREBAY_"))
        .collect();
    assert_eq!(rows, listed, "docs/INSTALL.md against crates/forebay-types/src/switches.rs");
    let told = |name: &String| table.contains(&format!("`{name}`")) || own.contains(&name.as_str());
    let missing: Vec<&String> = seen.iter().filter(|name| !told(name)).collect();
    assert!(seen.len() > 10 && missing.is_empty(), "docs/INSTALL.md does not tell of {missing:?}");
}

/// What `scripts/mutations` is to break is there, once; or nobody learns what would notice.
#[test]
fn lines_to_be_broken_are_there() {
    let list = read("scripts/mutations.tsv");
    let mut wrong = Vec::new();
    for line in list.lines().filter(|l| !l.starts_with('#')) {
        let [name, _, file, this, that, ..] = line.split('\t').collect::<Vec<_>>()[..] else {
            panic!("too few columns: {line}");
        };
        let times = read(file).matches(&this.replace("\\n", "\n")).count();
        if times != 1 || !that.contains("BROKEN") {
            wrong.push(format!("{name}: {times} times in {file}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
