//! Why a request was not carried out, as its client will be told.

use forebay_wire::frame::flag;
use rustix::io::Errno;

/// An errno, the reply's flags that go with it, and a sentence where the errno alone says too little.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) errno: Errno,
    pub(crate) flags: u16,
    pub(crate) why: &'static str,
}

impl Failure {
    /// The path leaves its export.
    pub(crate) const ESCAPES: Failure =
        Failure { errno: Errno::XDEV, flags: flag::ESCAPES, why: "the path leaves the exported directory" };
    /// The handle is not known in this session.
    pub(crate) const STALE: Failure = Failure { errno: Errno::BADF, flags: flag::STALE_HANDLE, why: "" };
    /// The session's lease ran out before the change could be made.
    pub(crate) const EXPIRED: Failure = Failure {
        errno: Errno::TIMEDOUT,
        flags: flag::EXPIRED,
        why: "not carried out: the client was silent for longer than the lease",
    };

    /// There are more operations under way than can be remembered.
    pub(crate) const BUSY: Failure = Failure {
        errno: Errno::TIMEDOUT,
        flags: flag::EXPIRED,
        why: "not carried out: too many operations are under way on this I/O node",
    };
    /// Its client does not wait for it any more.
    pub(crate) const ABANDONED: Failure = Failure {
        errno: Errno::IO,
        flags: 0,
        why: "the connection ended while the request's first try was still running on this I/O node",
    };

    /// The node cannot act as the job's user.
    pub(crate) const NOBODY: Failure = Failure {
        errno: Errno::ACCESS,
        flags: 0,
        why: "this I/O node does not act as this job's user: it was not told who that is, or may not",
    };

    /// The connection is less protected than what it is about.
    pub(crate) const UNPROTECTED: Failure = Failure {
        errno: Errno::ACCESS,
        flags: 0,
        why: "the export asks for more protection than this connection has",
    };

    /// Its user has as many files open as leave room for others.
    pub(crate) const NO_ROOM: Failure = Failure {
        errno: Errno::NFILE,
        flags: 0,
        why: "as many files are open on this I/O node as it can have, or as one user may of those",
    };

    pub(crate) fn new(errno: Errno, why: &'static str) -> Failure {
        Failure { errno, flags: 0, why }
    }

    /// Whether nothing was done, so that the same request may be sent again.
    pub(crate) fn not_tried(&self) -> bool {
        self.flags & (flag::EXPIRED | flag::STALE_HANDLE) != 0
    }
}

impl From<Errno> for Failure {
    fn from(errno: Errno) -> Failure {
        Failure { errno, flags: 0, why: "" }
    }
}

/// What an operation gives.
pub(crate) type Outcome<T> = Result<T, Failure>;
