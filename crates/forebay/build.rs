//! The version that `forebay --version` prints: with the commit where there is one.

use std::path::Path;
use std::process::Command;

fn git(args: &[&str]) -> Option<String> {
    let output = Command::new("git").args(args).output().ok().filter(|o| o.status.success())?;
    let text = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (!text.is_empty()).then_some(text)
}

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let version = env!("CARGO_PKG_VERSION");
    // A commit of somebody's repository that merely contains the sources says nothing.
    let ours = git(&["ls-files", "build.rs"]).is_some();
    let commit = git(&["rev-parse", "--short=12", "HEAD"]).filter(|_| ours);
    for part in ["HEAD", "logs/HEAD"] {
        if let Some(path) = git(&["rev-parse", "--git-path", part]).filter(|p| Path::new(p).exists()) {
            println!("cargo:rerun-if-changed={path}");
        }
    }
    match commit {
        Some(commit) => println!("cargo:rustc-env=FOREBAY_VERSION={version} ({commit})"),
        None => println!("cargo:rustc-env=FOREBAY_VERSION={version}"),
    }
}
