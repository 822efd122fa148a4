//! Finds a program as `execvp` does, and looks at it.

use crate::{HEAD, Uncovered, script, uncovered};
use std::ffi::{OsStr, OsString};
use std::io::{Error, ErrorKind, Read, Result};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A script's interpreter may be a script: the kernel allows as many.
const MAX_SCRIPTS: usize = 4;

/// A program as it was found.
#[derive(Debug, PartialEq, Eq)]
pub struct Program {
    /// Its file.
    pub path: PathBuf,
    /// What runs it, if it is a script.
    pub interpreter: Option<PathBuf>,
    /// Why the library does not reach it, or what runs it.
    pub uncovered: Option<Uncovered>,
}

/// Finds a command as the shell would, and looks at it.
pub fn inspect(command: &OsStr) -> Result<Program> {
    let path = find(command)?;
    let mut interpreter = None;
    for _ in 0..=MAX_SCRIPTS {
        match look(interpreter.as_deref().unwrap_or(&path))? {
            Kind::Script(runs) => interpreter = Some(find(&runs)?),
            Kind::Binary(uncovered) => return Ok(Program { path, interpreter, uncovered }),
        }
    }
    Ok(Program { path, interpreter, uncovered: None })
}

fn find(command: &OsStr) -> Result<PathBuf> {
    if command.as_bytes().contains(&b'/') {
        return Ok(command.into());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .map(|dir| dir.join(command))
        .find(|file| std::fs::metadata(file).is_ok_and(|m| m.is_file() && m.mode() & 0o111 != 0))
        .ok_or_else(|| Error::new(ErrorKind::NotFound, "not found in PATH"))
}

enum Kind {
    Script(OsString),
    Binary(Option<Uncovered>),
}

fn look(path: &Path) -> Result<Kind> {
    let mut file = std::fs::File::open(path)?;
    let mode = file.metadata()?.mode();
    let mut head = Vec::new();
    (&mut file).take(HEAD as u64).read_to_end(&mut head)?;
    if !head.starts_with(b"\x7fELF") {
        return Ok(Kind::Script(runs(&head)));
    }
    // The bits of set-user-id and set-group-id.
    let reason = if mode & 0o6000 != 0 { Some(Uncovered::SetUserId) } else { uncovered(&head) };
    Ok(Kind::Binary(reason))
}

/// The program that runs a script; `env NAME` runs NAME, and a shell what has no first line of its own.
fn runs(head: &[u8]) -> OsString {
    let Some((interpreter, argument)) = script(head) else { return "/bin/sh".into() };
    let mut words = argument.unwrap_or_default().split(u8::is_ascii_whitespace).filter(|w| !w.is_empty());
    let named = words.find(|w| !w.starts_with(b"-"));
    let runs = if interpreter.ends_with(b"/env") { named.unwrap_or(interpreter) } else { interpreter };
    OsStr::from_bytes(runs).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_name_their_interpreters() {
        assert_eq!(runs(b"#!/bin/bash -e\nrest"), "/bin/bash");
        assert_eq!(runs(b"#! /usr/bin/env python3\n"), "python3");
        assert_eq!(runs(b"#!/usr/bin/env -S perl -w\n"), "perl");
        assert_eq!(runs(b"#!\n"), "/bin/sh");
        assert_eq!(runs(b"echo\n"), "/bin/sh");
    }

    #[test]
    fn this_test_is_covered() {
        let own = std::env::current_exe().expect("this program");
        let found = inspect(own.as_os_str()).expect("it can be read");
        assert_eq!((found.uncovered, found.interpreter), (None, None));
        assert!(inspect(OsStr::new("no-such-program")).is_err());
    }
}
