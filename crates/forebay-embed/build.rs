//! Builds the libraries that are loaded into programs, so that the program carries those that fit it and there is no
//! second file to install.

#[path = "build/oldest.rs"]
mod oldest;

use std::path::{Path, PathBuf};
use std::process::Command;

const LIBRARIES: [&str; 2] = ["forebay-preload", "forebay-accelerator"];

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=build");
    if std::env::var_os("CARGO_FEATURE_PRELOAD").is_none() {
        return;
    }
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let here = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets CARGO_MANIFEST_DIR"));
    let crates = here.parent().expect("crates/forebay-embed has a parent");
    let parts = ["forebay-hook", "forebay-client", "forebay-program", "forebay-wire", "forebay-types"];
    for name in LIBRARIES.iter().chain(&parts) {
        println!("cargo:rerun-if-changed={}", crates.join(name).join("src").display());
        println!("cargo:rerun-if-changed={}", crates.join(name).join("Cargo.toml").display());
    }
    for package in LIBRARIES {
        let library = build(package, crates, &here, &out);
        std::fs::copy(&library, out.join(file_name(package)))
            .unwrap_or_else(|e| panic!("{}: {e}", library.display()));
    }
}

fn file_name(package: &str) -> String {
    format!("lib{}.so", package.replace('-', "_"))
}

/// A build of its own: other settings (no unwinding, small) and another target directory, since
/// cargo holds the lock on this one.
fn build(package: &str, crates: &Path, here: &Path, out: &Path) -> PathBuf {
    let target = out.join("preload");
    let mut cargo = Command::new(std::env::var_os("CARGO").expect("cargo sets CARGO"));
    cargo
        .args(["rustc", "--release", "--quiet", "--lib", "--package", package])
        .arg("--manifest-path")
        .arg(crates.join(package).join("Cargo.toml"))
        .arg("--target-dir")
        .arg(&target)
        .env("CARGO_PROFILE_RELEASE_PANIC", "abort")
        .env("CARGO_PROFILE_RELEASE_LTO", "fat")
        .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "1")
        .env("CARGO_PROFILE_RELEASE_DEBUG", "false")
        .env("CARGO_PROFILE_RELEASE_INCREMENTAL", "false")
        .env("CARGO_PROFILE_RELEASE_STRIP", "symbols")
        // What wraps the compiler for the outer build (clippy) has no business here.
        .env_remove("RUSTC_WORKSPACE_WRAPPER")
        .env_remove("RUSTC_WRAPPER")
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .env_remove("CARGO_MAKEFLAGS");
    let triple = std::env::var("TARGET").expect("cargo sets TARGET");
    let cross = std::env::var("HOST").is_ok_and(|host| host != triple);
    if cross {
        cargo.arg("--target").arg(&triple);
    } else if triple.ends_with("-linux-gnu") {
        match oldest::link_arguments(out, here) {
            Ok(all) => {
                cargo.arg("--").args(all.into_iter().map(|a| format!("-Clink-arg={a}")));
            }
            Err(why) => println!("cargo:warning={package} will need this machine's glibc: {why}"),
        }
    }
    let status = cargo.status().expect("cargo runs cargo");
    assert!(status.success(), "{package} did not build");
    let dir = if cross { target.join(triple) } else { target };
    dir.join("release").join(file_name(package))
}
