//! The client's side: what to do while an answer is awaited.
//!
//! After [`Patience::ping_after`] without an answer the client asks the node whether it lives. A node
//! that answers is given more time (its queue is long); one that does not is given up once every
//! stamp the client sent is older than the lease, so that the node can no longer carry the request
//! out. The call as a whole has a deadline, in which the time does not count that a limit holds it back.

use super::fence::fence;
use forebay_types::Nanos;

/// How patient a client is.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// Ask after this long without an answer.
    pub ping_after: Nanos,
    /// The node's lease, from its welcome.
    pub lease: Nanos,
    /// The whole call, all nodes and tries together.
    pub deadline: Nanos,
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Wait for bytes until then.
    WaitUntil(Nanos),
    /// Send a ping now, and tell [`Wait::sent`].
    Ping,
    /// The node does not live: break the connection, go elsewhere.
    GiveUp,
    /// The call's time is over: break the connection, fail.
    Deadline,
}

/// One request (or a train of them) on one connection, waiting for its answer.
#[derive(Clone, Debug)]
pub struct Wait {
    patience: Patience,
    call_started: Nanos,
    last_sent: Nanos,
    last_heard: Nanos,
    unanswered_ping: bool,
    held: Nanos,
}

impl Wait {
    /// For a call that began at `call_started` and whose request was sent at `now`.
    pub fn new(patience: Patience, call_started: Nanos, now: Nanos) -> Wait {
        Wait {
            patience,
            call_started,
            last_sent: now,
            last_heard: now,
            unanswered_ping: false,
            held: Nanos::ZERO,
        }
    }

    /// Stamped bytes (a ping, a further request) were sent.
    pub fn sent(&mut self, now: Nanos, ping: bool) {
        self.last_sent = now;
        self.unanswered_ping |= ping;
    }

    /// It is time for a ping, but the socket takes no more: as good as one that is not answered.
    pub fn cannot_ping(&mut self) {
        self.unanswered_ping = true;
    }

    /// When bytes were last sent that may have reached the node.
    pub fn last_sent(&self) -> Nanos {
        self.last_sent
    }

    /// Something came from the node.
    pub fn heard(&mut self, now: Nanos) {
        self.last_heard = now;
        self.unanswered_ping = false;
    }

    /// The node holds the request back, since somebody has set a limit: all the time until now does not count.
    pub fn held(&mut self, now: Nanos) {
        self.held = now.since(self.call_started);
    }

    /// What to do at `now`.
    pub fn step(&self, now: Nanos) -> Step {
        let deadline = self.call_started + self.held + self.patience.deadline;
        if now >= deadline {
            return Step::Deadline;
        }
        let ping_at = self.last_heard.max(self.last_sent) + self.patience.ping_after;
        if !self.unanswered_ping {
            return if now >= ping_at { Step::Ping } else { Step::WaitUntil(ping_at.min(deadline)) };
        }
        let dead_at = self.last_sent + fence(self.patience.lease);
        if now >= dead_at { Step::GiveUp } else { Step::WaitUntil(dead_at.min(deadline)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const P: Patience = Patience {
        ping_after: Nanos::from_millis(500),
        lease: Nanos::from_secs(2),
        deadline: Nanos::from_secs(30),
    };

    #[test]
    fn a_dead_node_is_given_up_after_the_lease() {
        let mut w = Wait::new(P, Nanos::ZERO, Nanos::ZERO);
        assert_eq!(w.step(Nanos::from_millis(10)), Step::WaitUntil(Nanos::from_millis(500)));
        assert_eq!(w.step(Nanos::from_millis(500)), Step::Ping);
        w.sent(Nanos::from_millis(500), true);
        assert_eq!(w.step(Nanos::from_millis(600)), Step::WaitUntil(Nanos::from_millis(3500)));
        assert_eq!(w.step(Nanos::from_millis(3500)), Step::GiveUp);
    }

    #[test]
    fn a_slow_node_that_lives_is_waited_for_until_the_deadline() {
        let mut w = Wait::new(P, Nanos::ZERO, Nanos::ZERO);
        let mut now = Nanos::ZERO;
        let mut pings = 0;
        loop {
            match w.step(now) {
                Step::WaitUntil(t) => now = t,
                Step::Ping => {
                    w.sent(now, true);
                    now = now + Nanos::from_millis(1);
                    w.heard(now);
                    pings += 1;
                }
                Step::GiveUp => panic!("it answers"),
                Step::Deadline => break,
            }
        }
        assert_eq!(now, Nanos::from_secs(30));
        assert!(pings > 50);
    }

    #[test]
    fn what_a_limit_holds_back_is_waited_for() {
        let mut w = Wait::new(P, Nanos::ZERO, Nanos::ZERO);
        for s in 1..100 {
            let now = Nanos::from_secs(s);
            assert_eq!(w.step(now), Step::Ping, "after {s} s");
            w.sent(now, true);
            w.heard(now);
            w.held(now);
        }
        assert_eq!(w.step(Nanos::from_secs(128)), Step::Ping, "it was let go, and has all of its time");
        assert_eq!(w.step(Nanos::from_secs(129)), Step::Deadline);
    }
}
