//! The node's side: when a client counts as gone, and when a node that drains may end. A client whose connections
//! broke may come back, for answers that it has not got or with what it has yet to send.

use super::place::Ties;
use forebay_types::Nanos;

/// A session whose last connection broke is given up after this, unless the node is told otherwise.
pub const GRACE: Nanos = Nanos::from_secs(1);

/// While draining, a connection that has been quiet for so long is closed.
pub const QUIET: Nanos = Nanos::from_millis(250);

/// Whether the client of a session is there.
#[derive(Clone, Debug)]
pub struct Presence {
    connections: u32,
    /// When the last connection broke.
    alone_since: Option<Nanos>,
    /// A connection broke by which the client may not have got all its answers, and it has not come back.
    owed: bool,
}

impl Presence {
    /// A session that begins at `now`, without a connection yet.
    pub fn new(now: Nanos) -> Presence {
        Presence { connections: 0, alone_since: Some(now), owed: false }
    }

    /// A connection was made.
    pub fn joined(&mut self) {
        self.connections += 1;
        (self.alone_since, self.owed) = (None, false);
    }

    /// A connection ended; `owed`: the client may not have got all its answers.
    pub fn left(&mut self, now: Nanos, owed: bool) {
        self.connections = self.connections.saturating_sub(1);
        self.owed |= owed;
        if self.connections == 0 {
            self.alone_since = Some(now);
        }
    }

    /// Whether the session is over: nobody has come back for `grace`. What is still being carried out (`busy`)
    /// is waited for: its client may come for the answer.
    pub fn is_over(&self, now: Nanos, grace: Nanos, busy: bool) -> bool {
        self.alone_since.is_some_and(|since| now.since(since) >= grace) && !busy
    }

    /// Whether a node that drains should wait for the client though it is not connected. Who still is has
    /// another way to ask.
    pub fn is_owed(&self, busy: bool) -> bool {
        self.owed && self.connections == 0 || busy
    }
}

/// What there still is on a node that drains.
#[derive(Clone, Copy, Debug)]
pub struct Remaining {
    /// Connections.
    pub connections: usize,
    /// Requests are waiting or being carried out.
    pub busy: bool,
    /// A client may come back for an answer: [`Presence::is_owed`].
    pub owed: bool,
}

/// A drain under way.
#[derive(Clone, Copy, Debug)]
pub struct Drain {
    deadline: Nanos,
}

/// What a draining node does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Closes connections that [`may_close`], and looks again soon.
    Wait,
    /// Ends. `settled`: every request was answered, and every client that may want an answer has come for it.
    End {
        /// It is.
        settled: bool,
    },
}

impl Drain {
    /// It begins at `now`, and takes no longer than `limit`.
    pub fn new(now: Nanos, limit: Nanos) -> Drain {
        Drain { deadline: now + limit }
    }

    /// What to do at `now`.
    pub fn next(&self, now: Nanos, left: Remaining) -> Step {
        let settled = left.connections == 0 && !left.busy && !left.owed;
        if settled || now >= self.deadline { Step::End { settled } } else { Step::Wait }
    }
}

/// Whether a draining node closes a connection: it is quiet, nothing of it is unanswered, and its client has
/// nothing here that cannot be had elsewhere (`holds_on`).
pub fn may_close(quiet_for: Nanos, unanswered: bool, holds_on: impl FnOnce() -> bool) -> bool {
    quiet_for >= QUIET && !unanswered && !holds_on()
}

/// Whether a draining node waits for a client that says nothing: something of it is being carried out (`busy`), it
/// holds locks, or files that it could not have elsewhere.
pub fn holds_on(busy: bool, locks: bool, mut files: impl Iterator<Item = Ties>) -> bool {
    busy || locks || files.any(|ties| ties.locked || ties.nameless)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_stays_away_is_given_up_and_who_works_is_not() {
        let at = Nanos::from_millis;
        let mut p = Presence::new(at(0));
        assert!(p.is_over(GRACE, GRACE, false) && !p.is_over(at(999), GRACE, false));
        p.joined();
        p.joined();
        p.left(at(2000), true);
        assert!(!p.is_over(at(9000), GRACE, false), "one connection is left");
        assert!(!p.is_owed(false));
        p.left(at(3000), false);
        assert!(p.is_owed(false), "an answer may not have come");
        assert!(!p.is_over(at(3999), GRACE, false) && p.is_over(at(4000), GRACE, false));
        assert!(!p.is_over(at(9000), GRACE, true), "its request is still at the storage");
        p.joined();
        p.left(at(5000), false);
        assert!(!p.is_owed(false) && p.is_owed(true));
    }

    #[test]
    fn a_drain_ends_when_all_is_done_or_its_time_is_over() {
        let drain = Drain::new(Nanos::ZERO, Nanos::from_secs(5));
        let left = Remaining { connections: 0, busy: false, owed: false };
        let now = Nanos::from_secs(1);
        assert_eq!(drain.next(now, left), Step::End { settled: true });
        let more = [
            Remaining { connections: 1, ..left },
            Remaining { busy: true, ..left },
            Remaining { owed: true, ..left },
        ];
        for left in more {
            assert_eq!(drain.next(now, left), Step::Wait, "{left:?}");
            assert_eq!(drain.next(Nanos::from_secs(5), left), Step::End { settled: false });
        }
        assert!(may_close(QUIET, false, || false) && !may_close(QUIET, false, || true));
        let free = Ties { shared: true, ..Ties::default() };
        assert!(!holds_on(false, false, [free].into_iter()));
        assert!(holds_on(true, false, [].into_iter()) && holds_on(false, true, [].into_iter()));
        for tied in [Ties { locked: true, ..free }, Ties { nameless: true, ..free }] {
            assert!(holds_on(false, false, [free, tied].into_iter()), "{tied:?}");
        }
        assert!(!may_close(QUIET, true, || false) && !may_close(Nanos(1), false, || false));
    }
}
