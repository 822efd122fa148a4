//! How programs use files: who shares a file, in which order a process walks through it, what it does
//! there. The explorer measures by these words, the detectors tell them from what I/O nodes see, the
//! policies and the council decide by them.

use serde::{Deserialize, Deserializer, Serialize};
use std::fmt;

/// Names of the variants of an enum, in one place: as they are shown, and in the order of their codes.
macro_rules! names {
    ($of:ident { $($variant:ident = $name:literal),+ $(,)? }) => {
        impl $of {
            /// Every one, in the order of their numbers.
            pub const ALL: [$of; [$($name),+].len()] = [$($of::$variant),+];

            /// As it stands in files and on the command line.
            pub const fn name(self) -> &'static str {
                match self {
                    $($of::$variant => $name),+
                }
            }

            /// The one of this name.
            pub fn from_name(name: &str) -> Option<$of> {
                $of::ALL.into_iter().find(|one| one.name() == name)
            }
        }

        impl fmt::Display for $of {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.name())
            }
        }
    };
}

/// Whether a request reads data, writes data, or does neither (metadata).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OpKind {
    /// Data comes from storage.
    Read,
    /// Data goes to storage.
    Write,
    /// Names and attributes.
    Metadata,
}

names!(OpKind { Read = "read", Write = "write", Metadata = "metadata" });

/// What the processes of a job do with their files for a while.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Operation {
    /// They write.
    #[default]
    Write,
    /// They read.
    Read,
    /// They read and write.
    Mixed,
    /// They make files.
    Create,
    /// They look at files.
    Stat,
    /// They remove files.
    Unlink,
}

names!(Operation {
    Write = "write",
    Read = "read",
    Mixed = "mixed",
    Create = "create",
    Stat = "stat",
    Unlink = "unlink",
});

impl Operation {
    /// Whether it is measured in operations a second instead of MB/s.
    pub const fn counts_operations(self) -> bool {
        matches!(self, Operation::Create | Operation::Stat | Operation::Unlink)
    }
}

/// Who shares a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Layout {
    /// Nobody: each process has its own.
    #[serde(alias = "individual")]
    FilePerProcess,
    /// All processes.
    #[default]
    Shared,
}

names!(Layout { FilePerProcess = "file-per-process", Shared = "shared" });

impl Layout {
    /// The number that tables of results have for it.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The layout of this number.
    pub fn from_code(code: u8) -> Option<Layout> {
        Layout::ALL.get(usize::from(code)).copied()
    }
}

/// In which order a process walks through its part of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Spatiality {
    /// One piece per process, front to back.
    #[default]
    Contiguous,
    /// Requests of all processes take turns in the file (1D-strided).
    #[serde(alias = "1d-strided")]
    Strided,
    /// One piece per process, in random order, every request once.
    Random,
}

names!(Spatiality { Contiguous = "contiguous", Strided = "strided", Random = "random" });

impl Spatiality {
    /// The number that tables of results have for it.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The spatiality of this number.
    pub fn from_code(code: u8) -> Option<Spatiality> {
        Spatiality::ALL.get(usize::from(code)).copied()
    }
}

/// How many processes use how many files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum IoMode {
    /// Every process uses files of its own.
    #[serde(rename = "N-N")]
    NToN,
    /// Many processes share a file.
    #[serde(rename = "N-1")]
    NTo1,
    /// One process does all the I/O.
    #[serde(rename = "1-1")]
    OneTo1,
}

names!(IoMode { NToN = "N-N", NTo1 = "N-1", OneTo1 = "1-1" });

impl IoMode {
    /// Who shares a file in this mode.
    pub const fn layout(self) -> Layout {
        match self {
            IoMode::NTo1 => Layout::Shared,
            IoMode::NToN | IoMode::OneTo1 => Layout::FilePerProcess,
        }
    }
}

/// A class of access, as a detector tells them apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pattern {
    /// A file per process, each read or written front to back.
    FppContiguous,
    /// One shared file in which every process has its own stretch.
    SharedContiguous,
    /// One shared file in which the processes' requests alternate (1D-strided).
    SharedStrided,
    /// Requests without order.
    Random,
    /// None of these, or not sure.
    Unknown,
}

names!(Pattern {
    FppContiguous = "fpp-contiguous",
    SharedContiguous = "shared-contiguous",
    SharedStrided = "shared-strided",
    Random = "random",
    Unknown = "unknown",
});

impl Pattern {
    /// The index of this pattern in [`Pattern::ALL`].
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The abbreviation of the literature, for narrow tables.
    pub const fn short(self) -> &'static str {
        match self {
            Pattern::FppContiguous => "FPP",
            Pattern::SharedContiguous => "SC",
            Pattern::SharedStrided => "SS",
            Pattern::Random => "RND",
            Pattern::Unknown => "?",
        }
    }

    /// In which order its processes walk, where that is known.
    pub const fn spatiality(self) -> Option<Spatiality> {
        match self {
            Pattern::FppContiguous | Pattern::SharedContiguous => Some(Spatiality::Contiguous),
            Pattern::SharedStrided => Some(Spatiality::Strided),
            Pattern::Random => Some(Spatiality::Random),
            Pattern::Unknown => None,
        }
    }
}

/// How a job uses its files, as far as its bandwidth depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct AccessPattern {
    /// What it does, for the most part.
    pub operation: Operation,
    /// Who shares its files; an arbiter's store of before 1.0 says `shared`, true or not.
    #[serde(alias = "shared", deserialize_with = "layout_or_shared")]
    pub layout: Layout,
    /// In which order.
    pub spatiality: Spatiality,
    /// Size of a request, KiB.
    pub request_kb: f64,
}

fn layout_or_shared<'de, D: Deserializer<'de>>(from: D) -> Result<Layout, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum EitherWay {
        Shared(bool),
        Layout(Layout),
    }
    Ok(match EitherWay::deserialize(from)? {
        EitherWay::Shared(true) => Layout::Shared,
        EitherWay::Shared(false) => Layout::FilePerProcess,
        EitherWay::Layout(layout) => layout,
    })
}

impl AccessPattern {
    /// Patterns of one class have about the same bandwidth: request sizes by the power of two.
    pub fn class(&self) -> String {
        let octave = self.request_kb.max(0.001).log2().round().clamp(-10.0, 30.0);
        let layout = match self.layout {
            Layout::Shared => "shared",
            Layout::FilePerProcess => "fpp",
        };
        format!("{layout}-{}/{}/{}", self.spatiality, self.operation, octave.exp2())
    }
}

impl fmt::Display for AccessPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let layout = match self.layout {
            Layout::Shared => "shared file",
            Layout::FilePerProcess => "file per process",
        };
        write!(f, "{}, {layout}, {}, {:.0} KiB", self.operation, self.spatiality, self.request_kb)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_codes_are_those_of_the_files() {
        fn same<T: Serialize + fmt::Display, const N: usize>(all: [T; N]) {
            for one in all {
                assert_eq!(serde_json::to_string(&one).unwrap(), format!("\"{one}\""));
            }
        }
        same(OpKind::ALL);
        same(Operation::ALL);
        same(Layout::ALL);
        same(Spatiality::ALL);
        same(IoMode::ALL);
        same(Pattern::ALL);
        assert_eq!((Layout::FilePerProcess.code(), Layout::Shared.code()), (0, 1));
        assert_eq!(Spatiality::from_code(2), Some(Spatiality::Random));
        assert_eq!((Layout::from_code(2), Spatiality::from_code(3)), (None, None));
        assert_eq!(
            (Operation::from_name("stat"), Operation::from_name("Stat")),
            (Some(Operation::Stat), None)
        );
        for (i, pattern) in Pattern::ALL.iter().enumerate() {
            assert_eq!(pattern.index(), i);
        }
    }

    #[test]
    fn request_sizes_of_one_octave_are_one_class() {
        let of = |request_kb| AccessPattern {
            operation: Operation::Read,
            layout: Layout::Shared,
            spatiality: Spatiality::Strided,
            request_kb,
        };
        assert_eq!(of(512.0).class(), "shared-strided/read/512");
        assert_eq!(of(500.0).class(), of(512.0).class());
        assert_ne!(of(128.0).class(), of(512.0).class());
        assert_eq!(of(512.0).to_string(), "read, shared file, strided, 512 KiB");
        let old = r#"{"shared":true,"spatiality":"strided","operation":"read","request_kb":512.0}"#;
        assert_eq!(serde_json::from_str::<AccessPattern>(old).unwrap(), of(512.0));
        let kept = serde_json::to_string(&of(512.0)).unwrap();
        assert_eq!(serde_json::from_str::<AccessPattern>(&kept).unwrap(), of(512.0));
    }
}
