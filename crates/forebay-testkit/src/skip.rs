//! Tests that cannot run here say so, and are counted.

use std::io::Write;

/// Says that a test, or a part of one, was not run, and why: on both outputs, and as a line of the file
/// that `FOREBAY_SKIPS` names, if it does, so that whoever runs all tests can count them.
pub fn skipped(test: &str, why: &str) {
    let line = format!("SKIPPED: {test}: {why}");
    println!("{line}");
    eprintln!("{line}");
    if let Some(file) = std::env::var_os("FOREBAY_SKIPS").filter(|f| !f.is_empty()) {
        let file = std::fs::File::options().create(true).append(true).open(file);
        // One write, so that lines of tests that run at the same time stay whole.
        let written = file.and_then(|mut f| f.write_all(format!("{line}\n").as_bytes()));
        written.expect("the file that FOREBAY_SKIPS names can be written");
    }
}

/// Whether a tool is on the path.
pub fn installed(tool: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(tool).is_file())
}

/// Whether all these tools are there; says so if not: the test is to return then.
#[must_use]
pub fn needs(test: &str, tools: &[&str]) -> bool {
    let missing = tools.iter().find(|tool| !installed(tool));
    if let Some(tool) = missing {
        skipped(test, &format!("{tool} is not installed (see scripts/test-packages)"));
    }
    missing.is_none()
}
