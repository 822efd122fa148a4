//! Connections that carry nothing: a process that forks makes one to each node it uses, and its
//! children inherit them. While any of them lives, the node keeps what the parent had open, so that a
//! child can take it over however late.

use crate::client::Client;
use crate::conn::Conn;
use crate::sys;
use std::sync::atomic::{AtomicI32, Ordering};

/// As many as a process holds: of its own, and of the processes it comes from.
const MAX: usize = 64;

struct Line {
    fd: AtomicI32,
    /// The node's index plus one for one of our own; 0 for an inherited one.
    node: AtomicI32,
}

/// The lifelines of one process, bare connections that are never used again.
pub(crate) struct Lifelines {
    lines: Box<[Line]>,
}

impl Drop for Lifelines {
    fn drop(&mut self) {
        self.fds().for_each(sys::close);
    }
}

impl Default for Lifelines {
    fn default() -> Lifelines {
        let line = |_| Line { fd: AtomicI32::new(-1), node: AtomicI32::new(0) };
        Lifelines { lines: (0..MAX).map(line).collect() }
    }
}

impl Lifelines {
    /// For a forked child: the parent's are its own now.
    pub(crate) fn inherit(&self) -> Lifelines {
        let child = Lifelines::default();
        for (to, from) in child.lines.iter().zip(self.lines.iter()) {
            to.fd.store(from.fd.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        child
    }

    fn has(&self, node: usize) -> bool {
        self.lines.iter().any(|l| l.node.load(Ordering::Relaxed) == node as i32 + 1)
    }

    fn keep(&self, node: usize, conn: Conn) {
        let free = self.lines.iter().find(|l| l.fd.load(Ordering::Relaxed) < 0);
        let Some(line) = free else { return };
        line.fd.store(conn.into_raw_fd(), Ordering::Relaxed);
        line.node.store(node as i32 + 1, Ordering::Relaxed);
    }

    /// The process has closed something that its children may still hold: from now on only they say how
    /// long the nodes keep it. The next fork makes new ones.
    pub(crate) fn let_go(&self) {
        for line in self.lines.iter().filter(|l| l.node.load(Ordering::Relaxed) > 0) {
            let fd = line.fd.swap(-1, Ordering::Relaxed);
            line.node.store(0, Ordering::Relaxed);
            if fd >= 0 {
                sys::close(fd);
            }
        }
    }

    pub(crate) fn owns_fd(&self, fd: i32) -> bool {
        self.lines.iter().any(|l| l.fd.load(Ordering::Relaxed) == fd)
    }

    pub(crate) fn fds(&self) -> impl Iterator<Item = i32> {
        self.lines.iter().map(|l| l.fd.load(Ordering::Relaxed)).filter(|&fd| fd >= 0)
    }

    /// The program wants the descriptor number `fd`.
    pub(crate) fn vacate(&self, fd: i32) {
        for line in self.lines.iter().filter(|l| l.fd.load(Ordering::Relaxed) == fd) {
            if let Some(new) = sys::move_descriptor(fd) {
                line.fd.store(new, Ordering::Relaxed);
            }
        }
    }
}

impl Client {
    /// The process is about to fork: what it has open on each node must outlive it there.
    pub(crate) fn tie_lifelines(&self) {
        for node in self.pool.nodes().into_iter().filter(|&n| !self.lifelines.has(n)) {
            let until = sys::now() + self.limit();
            // Without one, a child that comes late finds what can be opened by name.
            if let Ok(conn) = self.connect(node, until, true) {
                self.lifelines.keep(node, conn);
            }
        }
    }
}
