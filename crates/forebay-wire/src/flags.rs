//! Open flags as they stand on the wire: their own bits, since Linux's differ between architectures.

use serde::{Deserialize, Serialize};

/// How a file is to be opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct OpenFlags(pub u32);

macro_rules! bits {
    ($($(#[$doc:meta])* $name:ident = $bit:expr, $libc:expr;)*) => {
        impl OpenFlags {
            $($(#[$doc])* pub const $name: OpenFlags = OpenFlags(1 << $bit);)*
            const TABLE: &'static [(OpenFlags, i32)] = &[$((OpenFlags::$name, $libc)),*];
        }
    };
}

bits! {
    /// Create the file if it is not there.
    CREATE = 2, libc::O_CREAT;
    /// Fail if it is there.
    EXCL = 3, libc::O_EXCL;
    /// Cut it to nothing.
    TRUNC = 4, libc::O_TRUNC;
    /// Every write goes to the end.
    APPEND = 5, libc::O_APPEND;
    /// Must be a directory.
    DIRECTORY = 6, libc::O_DIRECTORY;
    /// The last component must not be a symbolic link.
    NOFOLLOW = 7, libc::O_NOFOLLOW;
    /// Past the page cache.
    DIRECT = 8, libc::O_DIRECT;
    /// Every write is durable, with its metadata.
    SYNC = 9, libc::O_SYNC & !libc::O_DSYNC;
    /// Every write is durable.
    DSYNC = 10, libc::O_DSYNC;
    /// An unnamed file in the directory.
    TMPFILE = 11, libc::O_TMPFILE & !libc::O_DIRECTORY;
    /// Do not touch the access time.
    NOATIME = 12, libc::O_NOATIME;
    /// A place in the tree, not its content.
    PATH = 13, libc::O_PATH;
}

impl OpenFlags {
    /// For reading.
    pub const READ: OpenFlags = OpenFlags(1);
    /// For writing.
    pub const WRITE: OpenFlags = OpenFlags(2);

    /// The answer may say how long it stays true, and bring all that is in a small file.
    pub const SEEN: OpenFlags = OpenFlags(1 << 14);

    /// Said of an open file: it can be opened nowhere else, so a node that drains waits for its close.
    pub const STAYS: OpenFlags = OpenFlags(1 << 15);

    /// From the argument of `open(2)` on this machine. Flags that concern only the descriptor
    /// (close-on-exec, non-blocking…) are left out.
    pub fn from_linux(raw: i32) -> OpenFlags {
        let mut f = match raw & libc::O_ACCMODE {
            libc::O_RDONLY => OpenFlags::READ,
            libc::O_WRONLY => OpenFlags::WRITE,
            libc::O_RDWR => OpenFlags::READ | OpenFlags::WRITE,
            // Linux: neither, for `ioctl` alone.
            _ => OpenFlags(0),
        };
        for &(flag, bit) in OpenFlags::TABLE {
            if raw & bit != 0 {
                f = f | flag;
            }
        }
        f
    }

    /// As `open(2)` of this machine takes it.
    pub fn to_linux(self) -> i32 {
        let mut raw = match (self.has(OpenFlags::READ), self.has(OpenFlags::WRITE)) {
            (true, true) => libc::O_RDWR,
            (false, true) => libc::O_WRONLY,
            (true, false) => libc::O_RDONLY,
            (false, false) => libc::O_ACCMODE,
        };
        for &(flag, bit) in OpenFlags::TABLE {
            if self.has(flag) {
                raw |= bit;
            }
        }
        if self.has(OpenFlags::TMPFILE) {
            raw |= libc::O_DIRECTORY;
        }
        if self.has(OpenFlags::SYNC) {
            raw |= libc::O_DSYNC;
        }
        raw
    }

    /// Whether every bit of `other` is set.
    pub fn has(self, other: OpenFlags) -> bool {
        self.0 & other.0 == other.0
    }

    /// Without the bits of `other`.
    pub fn without(self, other: OpenFlags) -> OpenFlags {
        OpenFlags(self.0 & !other.0)
    }
}

impl std::ops::BitOr for OpenFlags {
    type Output = OpenFlags;
    fn bitor(self, rhs: OpenFlags) -> OpenFlags {
        OpenFlags(self.0 | rhs.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn linux_round_trip() {
        for raw in [
            libc::O_RDONLY,
            libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL,
            libc::O_RDWR | libc::O_TRUNC | libc::O_APPEND,
            libc::O_RDONLY | libc::O_DIRECTORY | libc::O_NOFOLLOW,
            libc::O_WRONLY | libc::O_DIRECT | libc::O_SYNC,
            libc::O_WRONLY | libc::O_DSYNC,
            libc::O_RDWR | libc::O_TMPFILE,
            libc::O_PATH,
            libc::O_ACCMODE | libc::O_APPEND,
        ] {
            assert_eq!(OpenFlags::from_linux(raw).to_linux(), raw, "{raw:#o}");
        }
        assert!(!OpenFlags::from_linux(libc::O_RDWR | libc::O_DIRECTORY).has(OpenFlags::TMPFILE));
    }
}
