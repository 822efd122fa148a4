//! An open file between nodes: what binds it to the one that has it open, and what follows when it was to be
//! opened on another, or taken over from a parent process. Answers in, what has become of it out.

use super::call::FileAt;
use super::locks::Locks;
use super::nodes::Nodes;
use forebay_types::Nanos;

/// What a file has besides its place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ties {
    /// Locks are held through it.
    pub locked: bool,
    /// It can be opened nowhere else: it has no name any more, or may not be opened by it.
    pub nameless: bool,
    /// Other processes may have it open, too.
    pub shared: bool,
}

impl FileAt {
    /// A file that is open on `node`, as a call is to know of it.
    pub fn new<A>(node: usize, ours: bool, lost: bool, ties: Ties, nodes: &Nodes<A>, now: Nanos) -> FileAt {
        // What other processes have open too is one open file, with one set of locks, as long as nobody
        // moves it.
        let stays = ties.locked || ties.nameless || ties.shared && nodes.serves_job(node, now);
        FileAt { node, ours, lost, stays }
    }

    /// Whether its node has it open for this process, as far as is known.
    fn is_known(&self) -> bool {
        self.ours && !self.lost
    }
}

/// What a node said that was asked to open the file by its name and identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Said {
    /// It is open there.
    Opened,
    /// It is not, for this reason.
    Refused(i32),
}

/// What became of a file that was to be opened elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moved {
    /// It is open on the other node.
    There {
        /// It is to be closed on the one it left, which is expected to answer.
        close: bool,
        /// Other processes may have inherited it there, and want it yet: it is to stay for them.
        linger: bool,
        /// Its locks went with that one, others may have had them since: the program is to be told.
        lock_lost: bool,
    },
    /// Whether the node that had it still does must be asked: [`Moving::held`].
    Ask(usize),
    /// It stays where it is, from now on.
    Stays,
    /// It is not to be had any more: removed, replaced or closed to its user, and the node that held it is gone.
    Lost,
    /// It may not be opened.
    Refused(i32),
}

/// A file that is being opened elsewhere.
#[derive(Clone, Copy, Debug)]
pub struct Moving {
    from: FileAt,
    shared: bool,
}

impl Moving {
    /// A file that is, or was, open there; `shared` as in [`Ties`].
    pub fn new(from: FileAt, shared: bool) -> Moving {
        Moving { from, shared }
    }

    /// What the other node said at `now`. The locks that were held are no more, if it has the file now.
    pub fn answered<A>(&self, said: Said, now: Nanos, nodes: &Nodes<A>, locks: &mut Locks) -> Moved {
        let usable = self.from.is_known() && !nodes.is_down(self.from.node, now);
        match said {
            Said::Opened => Moved::There { close: usable, linger: self.shared, lock_lost: locks.lose() },
            // Without a name, or without the right to open it by that: it stays where it is open.
            Said::Refused(_) if usable => Moved::Stays,
            Said::Refused(_) if self.from.is_known() => Moved::Ask(self.from.node),
            Said::Refused(errno) => Moving::without(errno),
        }
    }

    /// Whether the node that had it has it still, which the other one refused for that reason.
    pub fn held(&self, refused: i32, holds: bool) -> Moved {
        if holds { Moved::Stays } else { Moving::without(refused) }
    }

    fn without(errno: i32) -> Moved {
        // An errno of `open` would say nothing true of a read or a write.
        let barred = matches!(errno, libc::EACCES | libc::EPERM);
        if has_no_name(errno) || barred { Moved::Lost } else { Moved::Refused(errno) }
    }
}

/// Whether a node that was to open a file again by its name says by this errno that it has that name no more.
pub fn has_no_name(errno: i32) -> bool {
    matches!(errno, libc::ENOENT | libc::ESTALE | libc::ENOTDIR | libc::ELOOP)
}

/// What a node said that was asked for a parent's open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Adopted {
    /// It is this process's, too, under that handle.
    Ours(u64),
    /// It is not open there any more: it must be opened by its name.
    Gone,
    /// It is not to be had.
    Refused,
}

impl Adopted {
    /// From the node's answer: the handle if it gave one, and whether it does not know the file.
    pub fn of(handle: Option<u64>, stale: bool) -> Adopted {
        match handle {
            Some(handle) => Adopted::Ours(handle),
            None if stale => Adopted::Gone,
            None => Adopted::Refused,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::LockKind;
    use forebay_types::Epoch;

    const NOW: Nanos = Nanos::from_secs(10);

    fn nodes() -> Nodes<&'static str> {
        Nodes::new(Epoch(0), &["a", "b"], &["spare"], 0)
    }

    fn at(lost: bool) -> FileAt {
        FileAt::new(0, true, lost, Ties::default(), &nodes(), NOW)
    }

    #[test]
    fn what_binds_a_file() {
        let nodes = nodes();
        let stays = |node, ties| FileAt::new(node, true, false, ties, &nodes, NOW).stays;
        assert!(!stays(0, Ties::default()));
        assert!(stays(2, Ties { locked: true, ..Ties::default() }));
        assert!(stays(2, Ties { nameless: true, ..Ties::default() }));
        let shared = Ties { shared: true, ..Ties::default() };
        assert!(stays(1, shared) && !stays(2, shared), "while the job has that node");
        nodes.mark_up(1, true);
        assert!(!stays(1, shared), "a drain divides it");
    }

    #[test]
    fn the_loss_of_a_lock_is_told_once() {
        let (nodes, mut locks) = (nodes(), Locks::default());
        nodes.mark_down(0, NOW);
        locks.note_flock(LockKind::Write);
        let moving = Moving::new(at(false), false);
        let there = |lock_lost| Moved::There { close: false, linger: false, lock_lost };
        assert_eq!(moving.answered(Said::Opened, NOW, &nodes, &mut locks), there(true));
        assert_eq!(moving.answered(Said::Opened, NOW, &nodes, &mut locks), there(false));
    }

    #[test]
    fn a_file_without_a_name_stays_where_it_is_open() {
        let (nodes, mut locks) = (nodes(), Locks::default());
        let gone = Said::Refused(libc::ENOENT);
        let mut say = |file: FileAt, said| Moving::new(file, true).answered(said, NOW, &nodes, &mut locks);
        assert_eq!(say(at(false), gone), Moved::Stays);
        let left = Moved::There { close: true, linger: true, lock_lost: false };
        assert_eq!(say(at(false), Said::Opened), left, "a child may want it there");
        assert_eq!(say(at(true), gone), Moved::Lost, "its node does not know it");
        assert_eq!(
            say(at(false), Said::Refused(libc::EACCES)),
            Moved::Stays,
            "its user may not open it again"
        );
        assert_eq!(say(at(true), Said::Refused(libc::EACCES)), Moved::Lost);
        assert_eq!(say(at(true), Said::Refused(libc::ENFILE)), Moved::Refused(libc::ENFILE), "that may pass");
        let theirs = FileAt { ours: false, ..at(false) };
        assert_eq!(say(theirs, gone), Moved::Lost, "its parent's, and that node is down");
        nodes.mark_down(0, NOW);
        assert_eq!(say(at(false), gone), Moved::Ask(0), "it may be there after all");
        let moving = Moving::new(at(false), false);
        assert_eq!(moving.held(libc::ESTALE, true), Moved::Stays);
        assert_eq!(moving.held(libc::ESTALE, false), Moved::Lost);
        assert_eq!(Adopted::of(Some(7), false), Adopted::Ours(7));
        assert_eq!([Adopted::of(None, true), Adopted::of(None, false)], [Adopted::Gone, Adopted::Refused]);
    }
}
