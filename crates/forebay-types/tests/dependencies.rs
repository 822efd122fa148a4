//! What Forebay is built from: licences that `deny.toml` allows, crates that come from the registry, no crate that
//! nobody uses. `cargo deny` and `cargo machete` say the same and more where they are installed; this needs neither.

use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the repository")
}

/// Without the network where everything is there; a machine that has built Forebay only once has nothing of what is for
/// other systems.
fn metadata() -> Value {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let ask = |more: &[&str]| {
        let mut command = Command::new(&cargo);
        command.args(["metadata", "--format-version", "1", "--locked"]).args(more).current_dir(root());
        command.output().expect("cargo runs")
    };
    let mut output = ask(&["--offline"]);
    if !output.status.success() {
        output = ask(&[]);
    }
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

fn rules() -> toml::Table {
    let text = std::fs::read_to_string(root().join("deny.toml")).expect("deny.toml");
    text.parse().expect("deny.toml is TOML")
}

fn strings(of: &toml::Value) -> BTreeSet<String> {
    of.as_array().expect("an array").iter().map(|v| v.as_str().expect("a text").to_owned()).collect()
}

fn text<'a>(of: &'a Value, key: &str) -> &'a str {
    of[key].as_str().unwrap_or_default()
}

/// An SPDX expression: `OR` binds weaker than `AND`, `WITH` belongs to the licence before it. The `/` of old crates
/// means `OR`.
struct Expression<'a> {
    words: Vec<String>,
    at: usize,
    broken: bool,
    allowed: &'a BTreeSet<String>,
}

impl Expression<'_> {
    fn holds(expression: &str, allowed: &BTreeSet<String>) -> bool {
        let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
        let words = spaced.split_whitespace().map(str::to_owned).collect();
        let mut parser = Expression { words, at: 0, broken: false, allowed };
        let holds = parser.any();
        holds && !parser.broken && parser.at == parser.words.len()
    }

    fn take(&mut self, word: &str) -> bool {
        let there = self.words.get(self.at).is_some_and(|w| w == word);
        self.at += usize::from(there);
        there
    }

    fn any(&mut self) -> bool {
        let mut holds = self.all();
        while self.take("OR") {
            holds |= self.all();
        }
        holds
    }

    fn all(&mut self) -> bool {
        let mut holds = self.one();
        while self.take("AND") {
            holds &= self.one();
        }
        holds
    }

    fn one(&mut self) -> bool {
        if self.take("(") {
            let holds = self.any();
            self.broken |= !self.take(")");
            return holds;
        }
        let Some(mut name) = self.words.get(self.at).cloned() else {
            self.broken = true;
            return false;
        };
        self.at += 1;
        if self.take("WITH") {
            name = format!("{name} WITH {}", self.words.get(self.at).map_or("", String::as_str));
            self.at += 1;
        }
        self.allowed.contains(&name)
    }
}

#[test]
fn an_expression_is_read_as_spdx_means_it() {
    let allowed: BTreeSet<String> = ["MIT", "ISC", "Apache-2.0 WITH LLVM-exception"].map(String::from).into();
    let holds = |e: &str| Expression::holds(e, &allowed);
    assert!(holds("MIT") && holds("GPL-3.0 OR MIT") && holds("MIT/GPL-3.0") && holds("MIT AND ISC"));
    assert!(holds("(GPL-3.0 OR MIT) AND ISC") && holds("Apache-2.0 WITH LLVM-exception OR GPL-3.0"));
    assert!(
        !holds("GPL-3.0")
            && !holds("MIT AND GPL-3.0")
            && !holds("Apache-2.0")
            && !holds("")
            && !holds("MIT OR")
    );
    assert!(!holds("(MIT"));
}

#[test]
fn every_licence_is_allowed_and_every_crate_from_the_registry() {
    let (metadata, rules) = (metadata(), rules());
    let allowed = strings(&rules["licenses"]["allow"]);
    let banned = strings(&rules["bans"]["deny"]);
    let packages = metadata["packages"].as_array().expect("packages");
    assert!(packages.len() > 100, "{} packages", packages.len());
    let mut wrong = Vec::new();
    for package in packages {
        let (name, licence) = (text(package, "name"), text(package, "license"));
        if !Expression::holds(licence, &allowed) {
            wrong.push(format!("{name}: licence {licence:?} is not among those deny.toml allows"));
        }
        if banned.contains(name) {
            wrong.push(format!("{name}: deny.toml bans it"));
        }
        if let Some(source) = package["source"].as_str()
            && !source.starts_with("registry+")
        {
            wrong.push(format!("{name}: comes from {source}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Whether any of these sources says `word` as a whole word.
fn said(sources: &[String], word: &str) -> bool {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    sources.iter().any(|s| {
        s.match_indices(word).any(|(at, _)| {
            !s[..at].chars().next_back().is_some_and(part)
                && !s[at + word.len()..].chars().next().is_some_and(part)
        })
    })
}

fn sources(dir: &Path, into: &mut Vec<String>) {
    let Ok(entries) = std::fs::read_dir(dir) else { return };
    for path in entries.flatten().map(|e| e.path()) {
        if path.is_dir() {
            sources(&path, into);
        } else if path.extension().is_some_and(|e| e == "rs") {
            into.push(std::fs::read_to_string(&path).expect("a source file"));
        }
    }
}

#[test]
fn every_dependency_is_used() {
    let metadata = metadata();
    let mut unused = Vec::new();
    for package in metadata["packages"].as_array().expect("packages") {
        if package["source"].is_string() {
            continue;
        }
        let dir = Path::new(text(package, "manifest_path")).parent().expect("its directory");
        let mut product = Vec::new();
        sources(&dir.join("src"), &mut product);
        let mut all = product.clone();
        for other in ["tests", "benches", "examples"] {
            sources(&dir.join(other), &mut all);
        }
        let build: Vec<String> = std::fs::read_to_string(dir.join("build.rs")).into_iter().collect();
        for dependency in package["dependencies"].as_array().expect("dependencies") {
            let name = dependency["rename"].as_str().unwrap_or(text(dependency, "name")).replace('-', "_");
            let (kind, users) = match dependency["kind"].as_str() {
                Some("dev") => ("dev-dependencies", &all),
                Some("build") => ("build-dependencies", &build),
                _ => ("dependencies", &product),
            };
            if !said(users, &name) {
                unused.push(format!("{}: [{kind}] {name}", text(package, "name")));
            }
        }
    }
    assert!(unused.is_empty(), "{unused:#?}");
}

/// `scripts/dependencies` with tools that do as they are told: how it ended, and what it skipped.
fn checked_with(deny: &str, machete: &str) -> (bool, String) {
    let dir = tempfile::tempdir().expect("a directory");
    for (tool, does) in [("cargo-deny", deny), ("cargo-machete", machete)] {
        let file = dir.path().join(tool);
        std::fs::write(&file, format!("#!/bin/sh\nshift\ncase \"$*\" in {does} esac\n")).expect("a tool");
        std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o755))
            .expect("its mode");
    }
    let path = std::env::var("PATH").unwrap_or_default();
    let skips = dir.path().join("skips");
    let output = Command::new(root().join("scripts/dependencies"))
        .env("PATH", format!("{}:{path}", dir.path().display()))
        .env("FOREBAY_SKIPS", &skips)
        .output()
        .expect("it runs");
    (output.status.success(), std::fs::read_to_string(&skips).unwrap_or_default())
}

/// An advisory is an error; what cannot be asked for is skipped and noted.
#[test]
fn only_what_cannot_be_had_is_skipped() {
    assert_eq!(checked_with("*) ;;", "*) ;;"), (true, String::new()));
    assert_eq!(checked_with("*advisories) exit 1;;", "*) ;;"), (false, String::new()), "an advisory");
    assert_eq!(checked_with("*licenses*) exit 1;;", "*) ;;"), (false, String::new()), "a licence");
    let (fine, skips) = checked_with("fetch*|*advisories) exit 1;;", "*) ;;");
    assert!(fine && skips == "advisories: the database cannot be fetched\n", "{skips}");
    assert_eq!(checked_with("*) ;;", "--version) ;; *) exit 1;;"), (false, String::new()), "an unused one");
    let (fine, skips) = checked_with("--version) exit 1;;", "--version) exit 1;;");
    assert!(fine && skips.lines().count() == 2 && skips.contains("cargo-machete is not there"), "{skips}");
}
