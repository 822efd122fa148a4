//! What kind of program a file is: whether the preload library reaches it, and which libraries it
//! asks for. Looks at bytes and mode bits; the reading of files is [`inspect`] alone, for those who may
//! use the standard library for it.

mod elf;
mod inspect;

pub use elf::{Elf, Wants};
pub use inspect::{Program, inspect};

/// Why the preload library does not reach a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Uncovered {
    /// It has no dynamic linker to load the library.
    Static,
    /// It makes its system calls itself.
    Go,
    /// The library has 64-bit code.
    Bits32,
    /// It is for another processor, or another byte order.
    Foreign,
    /// Its C library is not glibc.
    OtherLibc,
    /// The dynamic linker does not listen to a user who gains rights.
    SetUserId,
    /// It is started as another user, who can read neither the library nor its configuration.
    OtherUser,
}

impl Uncovered {
    /// The word for it in reports.
    pub fn kind(self) -> &'static str {
        match self {
            Uncovered::Static => "static",
            Uncovered::Go => "go",
            Uncovered::Bits32 => "32-bit",
            Uncovered::Foreign => "foreign",
            Uncovered::OtherLibc => "libc",
            Uncovered::SetUserId => "setuid",
            Uncovered::OtherUser => "user",
        }
    }

    /// As a reason in a sentence: "it is …".
    pub fn reason(self) -> &'static str {
        match self {
            Uncovered::Static => "statically linked: no library can be loaded into it",
            Uncovered::Go => "written in Go, which makes its system calls itself",
            Uncovered::Bits32 => "a 32-bit program; the preload library has 64 bits",
            Uncovered::Foreign => "for another processor than the preload library",
            Uncovered::OtherLibc => "linked with another C library than glibc",
            Uncovered::SetUserId => "set-user-id: the loader ignores LD_PRELOAD for it",
            Uncovered::OtherUser => "started as another user, who cannot read the preload library",
        }
    }

    /// The reason, for a person who reads what was not forwarded.
    pub fn why(self) -> &'static str {
        match self {
            Uncovered::Static => "a static binary cannot be preloaded: its I/O is not forwarded",
            Uncovered::Go => {
                "a Go program makes its system calls without the C library: its I/O is not forwarded"
            }
            Uncovered::Bits32 => "a 32-bit program cannot load the library: its I/O is not forwarded",
            Uncovered::Foreign => {
                "a program for another processor cannot load the library: its I/O is not forwarded"
            }
            Uncovered::OtherLibc => {
                "a program with another C library than glibc cannot load the library: its I/O is not forwarded"
            }
            Uncovered::SetUserId => {
                "a set-user-id program (or one with file capabilities) cannot be preloaded: its I/O is not forwarded"
            }
            Uncovered::OtherUser => {
                "a program that is started as another user cannot read the run's library: its I/O is not forwarded"
            }
        }
    }
}

/// How many bytes of a file [`uncovered`] wants to see.
pub const HEAD: usize = 8192;

/// What keeps the library out of a program that begins with `head`; `None`: nothing, or it is no
/// program in machine code.
pub fn uncovered(head: &[u8]) -> Option<Uncovered> {
    if !head.starts_with(b"\x7fELF") {
        return None;
    }
    if head.get(4) == Some(&1) {
        return Some(Uncovered::Bits32);
    }
    let Some(elf) = Elf::new(head).filter(Elf::is_for_this_processor) else {
        return Some(Uncovered::Foreign);
    };
    if elf.is_static() {
        Some(Uncovered::Static)
    } else if elf.is_go() {
        Some(Uncovered::Go)
    } else if elf.interpreter().is_some_and(|i| contains(i, b"ld-musl") || contains(i, b"ld-uClibc")) {
        Some(Uncovered::OtherLibc)
    } else {
        None
    }
}

fn contains(text: &[u8], word: &[u8]) -> bool {
    text.windows(word.len()).any(|w| w == word)
}

/// The interpreter a script names in its first line, and its one argument.
pub fn script(head: &[u8]) -> Option<(&[u8], Option<&[u8]>)> {
    let line = head.strip_prefix(b"#!")?;
    let end = line.iter().take(255).position(|&b| b == b'\n').unwrap_or(line.len().min(255));
    let line = line[..end].trim_ascii();
    let cut = line.iter().position(u8::is_ascii_whitespace).unwrap_or(line.len());
    let argument = line[cut..].trim_ascii();
    (cut > 0).then(|| (&line[..cut], (!argument.is_empty()).then_some(argument)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads() {
        assert_eq!(uncovered(b"#!/bin/sh\n"), None);
        assert_eq!(uncovered(b""), None);
        let mut small = b"\x7fELF\x01\x01\x01".to_vec();
        small.resize(64, 0);
        assert_eq!(uncovered(&small), Some(Uncovered::Bits32));
        let own = std::fs::read("/proc/self/exe").expect("this program");
        assert_eq!(uncovered(&own[..HEAD]), None);
        // However short or damaged, it is an answer.
        for n in 0..200 {
            uncovered(&own[..n]);
            let mut damaged = own[..HEAD].to_vec();
            damaged[32 + n % 32] ^= 0xff;
            uncovered(&damaged);
        }
    }

    #[test]
    fn scripts() {
        assert_eq!(script(b"#! /bin/sh -e \nx"), Some((&b"/bin/sh"[..], Some(&b"-e"[..]))));
        assert_eq!(script(b"#!/bin/sh"), Some((&b"/bin/sh"[..], None)));
        assert_eq!(script(b"#!\n"), None);
        assert_eq!(script(b"text"), None);
    }
}
