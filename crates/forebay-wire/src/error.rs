//! What can be wrong with bytes from the other end.

use forebay_types::Protect;

/// A frame or message that cannot be understood. The connection it came on is no longer usable.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// The first four bytes are not Forebay's.
    #[error("not a Forebay frame (magic {0:#010x}): is something else talking to this port?")]
    BadMagic(u32),
    /// An opcode this version does not know.
    #[error("unknown opcode {0}: the other end may be newer than this one")]
    UnknownOpcode(u16),
    /// A body longer than its kind of frame may have.
    #[error("a {opcode} frame announces {length} bytes, the limit is {limit}")]
    TooLong {
        /// Which kind of frame.
        opcode: &'static str,
        /// What it announced.
        length: u64,
        /// What is allowed.
        limit: u64,
    },
    /// The body does not decode.
    #[error("malformed {0} message")]
    Malformed(&'static str),
    /// No common protocol version.
    #[error("protocol version {theirs} is not spoken here (only {min} to {max})")]
    Version {
        /// What the other end asked for.
        theirs: u16,
        /// The oldest spoken here.
        min: u16,
        /// The newest spoken here.
        max: u16,
    },
    /// The proof of the job's secret is wrong.
    #[error("wrong credentials: the secret is neither this job's nor this I/O node's")]
    Credentials,
    /// The client would say less than what it names asks for.
    #[error("what this I/O node exports is not sent without `{0}`")]
    Unprotected(Protect),
    /// A record of a protected connection is not what the other end sent.
    #[error("the connection carries something else than the other end sent: it was changed on the way")]
    Tampered,
    /// The arbiter has not told the node of the job, or not yet.
    #[error("this I/O node does not know the job: its arbiter has not told it (yet)")]
    UnknownJob,
    /// The name is another user's job's, of which something is left.
    #[error("another user's job of this name still has processes or open files on this I/O node")]
    NameTaken,
    /// A frame that is not allowed in this state of the session.
    #[error("{0}")]
    Unexpected(&'static str),
}
