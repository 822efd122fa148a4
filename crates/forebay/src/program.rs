//! What kind of program a file is, as far as it decides whether the preload library reaches it.

use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// The most that is read of a file's head, and of its notes.
const HEAD: usize = 64 << 10;
/// A script's interpreter may be a script.
const DEEPEST: usize = 5;

/// Why the preload library does not reach a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Uncovered {
    Static,
    Go,
    Bits32,
    SetUserId,
    OtherLibc,
}

impl Uncovered {
    /// As a reason in a sentence: "it is …".
    pub(crate) fn reason(self) -> &'static str {
        match self {
            Uncovered::Static => "statically linked: no library can be loaded into it",
            Uncovered::Go => "written in Go, which makes its system calls itself",
            Uncovered::Bits32 => "a 32-bit program; the preload library has 64 bits",
            Uncovered::SetUserId => "set-user-id: the loader ignores LD_PRELOAD for it",
            Uncovered::OtherLibc => "linked with another C library than glibc",
        }
    }
}

/// A program as it was found.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Program {
    pub(crate) path: PathBuf,
    /// What runs it, if it is a script.
    pub(crate) interpreter: Option<PathBuf>,
    pub(crate) uncovered: Option<Uncovered>,
}

/// Finds a command as the shell would, and looks at it.
pub(crate) fn inspect(command: &OsStr) -> std::io::Result<Program> {
    let path = find(command)?;
    let mut interpreter = None;
    let mut at = path.clone();
    for _ in 0..DEEPEST {
        match look(&at)? {
            Kind::Script(runs) => {
                at = find(&runs)?;
                interpreter = Some(at.clone());
            }
            Kind::Binary(uncovered) => return Ok(Program { path, interpreter, uncovered }),
        }
    }
    Ok(Program { path, interpreter, uncovered: None })
}

fn find(command: &OsStr) -> std::io::Result<PathBuf> {
    if command.as_bytes().contains(&b'/') {
        return Ok(command.into());
    }
    let paths = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&paths)
        .map(|dir| dir.join(command))
        .find(|p| p.metadata().is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0))
        .ok_or_else(|| std::io::Error::new(std::io::ErrorKind::NotFound, "not found in PATH"))
}

enum Kind {
    Script(std::ffi::OsString),
    Binary(Option<Uncovered>),
}

fn look(path: &Path) -> std::io::Result<Kind> {
    let mut file = std::fs::File::open(path)?;
    let mut head = Vec::new();
    (&mut file).take(HEAD as u64).read_to_end(&mut head)?;
    if let Some(line) = head.strip_prefix(b"#!") {
        return Ok(Kind::Script(script(line)));
    }
    if !head.starts_with(b"\x7fELF") {
        // A script without a first line: the shell runs it.
        return Ok(Kind::Script("/bin/sh".into()));
    }
    let mode = file.metadata()?.permissions().mode();
    if mode & 0o6000 != 0 {
        return Ok(Kind::Binary(Some(Uncovered::SetUserId)));
    }
    Ok(Kind::Binary(elf(&file, &head)))
}

/// The program that a script's first line names; `env NAME` names NAME.
fn script(line: &[u8]) -> std::ffi::OsString {
    let line = line.split(|&b| b == b'\n').next().unwrap_or_default();
    let mut words = line.split(|b| b.is_ascii_whitespace()).filter(|w| !w.is_empty());
    let first = words.next().unwrap_or(b"/bin/sh");
    let named = words.find(|w| !w.starts_with(b"-"));
    let runs = if first.ends_with(b"/env") { named.unwrap_or(first) } else { first };
    OsStr::from_bytes(runs).to_owned()
}

/// What an ELF file's program headers say.
fn elf(file: &std::fs::File, head: &[u8]) -> Option<Uncovered> {
    const PT_INTERP: u32 = 3;
    const PT_NOTE: u32 = 4;
    if head.get(4) != Some(&2) {
        return Some(Uncovered::Bits32);
    }
    let u16_at = |at: usize| head.get(at..at + 2).map(|b| u16::from_le_bytes([b[0], b[1]]));
    let u32_at = |at: usize| head.get(at..at + 4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]));
    let u64_at = |at: usize| {
        let b: [u8; 8] = head.get(at..at.checked_add(8)?)?.try_into().ok()?;
        usize::try_from(u64::from_le_bytes(b)).ok()
    };
    let (start, size, count) = (u64_at(32)?, usize::from(u16_at(54)?), usize::from(u16_at(56)?));
    let mut loader = None;
    let mut go = false;
    for n in 0..count {
        let at = start.checked_add(n * size)?;
        let (Some(kind), Some(offset), Some(len)) = (u32_at(at), u64_at(at + 8), u64_at(at + 32)) else {
            break;
        };
        let content = || {
            let mut bytes = vec![0; len.min(HEAD)];
            let n = file.read_at(&mut bytes, offset as u64).unwrap_or(0);
            bytes.truncate(n);
            bytes
        };
        match kind {
            PT_INTERP => loader = Some(content()),
            // A note whose owner is "Go": its build id.
            PT_NOTE => go |= content().windows(8).any(|w| w == b"\x04\0\0\0Go\0\0"),
            _ => {}
        }
    }
    if go {
        return Some(Uncovered::Go);
    }
    match loader {
        None => Some(Uncovered::Static),
        Some(l) if l.windows(9).any(|w| w == b"ld-linux-" || w == b"ld64.so.2") => None,
        Some(_) => Some(Uncovered::OtherLibc),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_name_their_interpreters() {
        assert_eq!(script(b"/bin/bash -e\nrest"), "/bin/bash");
        assert_eq!(script(b" /usr/bin/env python3\n"), "python3");
        assert_eq!(script(b"/usr/bin/env -S perl -w\n"), "perl");
        assert_eq!(script(b"\n"), "/bin/sh");
    }

    #[test]
    fn this_test_is_covered_and_garbage_is_not_fatal() {
        let own = std::env::current_exe().unwrap();
        assert_eq!(inspect(own.as_os_str()).unwrap().uncovered, None);
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("x");
        let bytes = std::fs::read(&own).unwrap();
        for len in [4, 5, 33, 57, 64, 100] {
            std::fs::write(&file, &bytes[..len]).unwrap();
            let _ = inspect(file.as_os_str()).unwrap();
        }
        let mut hostile = bytes[..64].to_vec();
        hostile[32..40].fill(0xff);
        hostile[54..58].fill(0xff);
        std::fs::write(&file, &hostile).unwrap();
        let _ = inspect(file.as_os_str()).unwrap();
    }
}
