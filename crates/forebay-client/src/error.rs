//! What can go wrong between a call and its answer.

use forebay_types::Address;

/// A call that failed. [`Error::errno`] is what an application sees.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file system under the I/O node said no.
    #[error("{}", describe(*errno, message))]
    Refused {
        /// Its errno.
        errno: i32,
        /// A sentence from the node, or nothing.
        message: String,
    },
    /// A symbolic link or `..` leads out of the export: to be resolved on the client.
    #[error("the path leaves the exported directory")]
    Escapes,
    /// No I/O node answered within the call's deadline.
    #[error("no I/O node answered in {waited_ms} ms{}: are the I/O nodes running?", in_parentheses(last))]
    NoNode {
        /// For how long was tried, in milliseconds.
        waited_ms: u64,
        /// What happened with the last one tried; nothing if it took the connection and was silent.
        last: String,
    },
    /// The file was unlinked, replaced or closed to its user while open, and the I/O node that held it is gone.
    #[error(
        "the open file was removed, replaced or may not be opened again, and the I/O node that held it ({0}) is gone"
    )]
    Lost(Address),
    /// The node does not know the handle: the file must be opened again.
    #[error("the I/O node does not know this open file any more")]
    StaleHandle,
    /// A lock was held on an I/O node that is gone: others may have had it since.
    #[error("a file lock was lost: I/O node {0}, which held it, is gone")]
    LockLost(Address),
    /// Whether a request was carried out cannot be told.
    #[error("I/O node {0} did not answer, and whether it did what it was asked cannot be told ({1})")]
    Unknown(Address, String),
    /// Data that was written is with a host that is gone, or cannot be reached.
    #[error("data written earlier cannot be synced: the host of an I/O node that took it is gone")]
    Unsynced,
    /// The node and this client do not understand each other.
    #[error("I/O node {0}: {1}")]
    Protocol(Address, String),
}

impl Error {
    /// The errno an application gets.
    pub fn errno(&self) -> i32 {
        match self {
            Error::Refused { errno, .. } => *errno,
            Error::Escapes => libc::EXDEV,
            Error::NoNode { .. } => libc::EIO,
            Error::Lost(_) | Error::StaleHandle => libc::ESTALE,
            Error::LockLost(_) | Error::Unknown(..) | Error::Unsynced => libc::EIO,
            Error::Protocol(..) => libc::EPROTO,
        }
    }

    /// An errno of the client's own.
    pub fn local(errno: i32) -> Error {
        Error::Refused { errno, message: String::new() }
    }
}

fn in_parentheses(last: &str) -> String {
    if last.is_empty() { String::new() } else { format!(" (last: {last})") }
}

fn describe(errno: i32, message: &str) -> String {
    if message.is_empty() { std::io::Error::from_raw_os_error(errno).to_string() } else { message.to_owned() }
}
