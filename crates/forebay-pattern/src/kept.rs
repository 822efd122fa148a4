//! Files that are kept from one run to the next, of detectors and of what was learned: JSON with a version.
//! Reading one never panics, whatever the bytes are.

use serde::Deserialize;
use serde::de::DeserializeOwned;

/// A kind of file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeptFile {
    /// What it is: "model file".
    pub what: &'static str,
    /// The version this program writes and reads.
    pub version: u32,
    /// No such file is larger; a reader need not take in more.
    pub max_bytes: usize,
}

/// What can be wrong with such a file.
#[derive(Debug, thiserror::Error)]
pub enum KeptError {
    /// It is no such file at all.
    #[error("not a Forebay {}: {why}", .of.what)]
    Syntax {
        /// What it should be.
        of: KeptFile,
        /// What it is not.
        why: String,
    },
    /// It was written by another version.
    #[error("the {} has version {found}, this program reads version {}: make it again", .of.what, .of.version)]
    Version {
        /// What it is.
        of: KeptFile,
        /// The version in the file.
        found: u32,
    },
    /// It contradicts itself.
    #[error("the {} is damaged: {why}", .of.what)]
    Damaged {
        /// What it is.
        of: KeptFile,
        /// What is wrong.
        why: String,
    },
    /// It is larger than any such file is.
    #[error("the {} is larger than {} MiB", .of.what, .of.max_bytes >> 20)]
    TooLarge {
        /// What it should be.
        of: KeptFile,
    },
}

impl KeptFile {
    /// Reads one; whether it contradicts itself is for the caller to see.
    pub fn read<T: DeserializeOwned>(self, bytes: &[u8]) -> Result<T, KeptError> {
        #[derive(Deserialize)]
        struct Versioned {
            version: u32,
        }
        if bytes.len() > self.max_bytes {
            return Err(KeptError::TooLarge { of: self });
        }
        let syntax = |e: serde_json::Error| KeptError::Syntax { of: self, why: e.to_string() };
        // The version first: another version's body need not even parse.
        let Versioned { version } = serde_json::from_slice(bytes).map_err(syntax)?;
        if version != self.version {
            return Err(KeptError::Version { of: self, found: version });
        }
        serde_json::from_slice(bytes).map_err(syntax)
    }

    /// It contradicts itself.
    pub fn damaged(self, why: impl Into<String>) -> KeptError {
        KeptError::Damaged { of: self, why: why.into() }
    }
}
