//! Builds the preload library, so that the program carries the one that fits it and there is no second
//! file to install.

use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if std::env::var_os("CARGO_FEATURE_PRELOAD").is_none() {
        return;
    }
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let here = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets CARGO_MANIFEST_DIR"));
    let crates = here.parent().expect("crates/forebay-embed has a parent");
    for name in ["forebay-preload", "forebay-client", "forebay-program", "forebay-wire", "forebay-types"] {
        println!("cargo:rerun-if-changed={}", crates.join(name).join("src").display());
        println!("cargo:rerun-if-changed={}", crates.join(name).join("Cargo.toml").display());
    }
    // A package carries a library that older systems can load, too, which takes another linker: scripts/package makes it.
    println!("cargo:rerun-if-env-changed=FOREBAY_PRELOAD_LIBRARY");
    let library = match std::env::var_os("FOREBAY_PRELOAD_LIBRARY") {
        Some(given) => {
            // Not of what is made here: it is always newer than this script's start, so that all was built twice.
            println!("cargo:rerun-if-changed={}", given.display());
            PathBuf::from(given)
        }
        None => build(crates, &out),
    };
    std::fs::copy(&library, out.join("libforebay_preload.so"))
        .unwrap_or_else(|e| panic!("{}: {e}", library.display()));
}

/// A build of its own: other settings (no unwinding, small) and another target directory, since
/// cargo holds the lock on this one.
fn build(crates: &Path, out: &Path) -> PathBuf {
    let target = out.join("preload");
    let mut cargo = Command::new(std::env::var_os("CARGO").expect("cargo sets CARGO"));
    cargo
        .args(["build", "--release", "--quiet", "--package", "forebay-preload"])
        .arg("--manifest-path")
        .arg(crates.join("forebay-preload").join("Cargo.toml"))
        .arg("--target-dir")
        .arg(&target)
        .env("CARGO_PROFILE_RELEASE_PANIC", "abort")
        .env("CARGO_PROFILE_RELEASE_LTO", "off")
        .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "4")
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
    }
    let status = cargo.status().expect("cargo runs cargo");
    assert!(status.success(), "the preload library did not build");
    let dir = if cross { target.join(triple) } else { target };
    dir.join("release").join("libforebay_preload.so")
}
