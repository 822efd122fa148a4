//! The node's side of fencing.
//!
//! A node that was frozen (stopped, swapped out, cut off) may find old requests in its sockets when
//! it comes back, while their client has long moved to another node and written newer data there.
//! Carrying them out would overwrite acknowledged bytes. So every request carries the client's clock
//! at sending, and a node carries out a change only while the newest stamp of the connection it came
//! by is younger than the lease; a client waits longer than the lease, without a further sign of life
//! on that connection, before it sends the request elsewhere. What it says on other connections
//! meanwhile (other threads may still be waiting there) proves nothing about this one.
//!
//! The two clocks need no common origin: the smallest difference ever seen between the node's clock
//! at receipt and the client's at sending is the fastest transit, and a frame that sat in a buffer
//! shows as a larger one.

use forebay_types::Nanos;

/// How long one minimum is trusted: clocks drift (50 ppm is 1.5 ms over this).
const WINDOW: Nanos = Nanos::from_secs(30);

/// The lease of one session's requests, as the node sees it.
#[derive(Clone, Debug)]
pub struct Lease {
    ttl: Nanos,
    /// Smallest (node clock − client clock) in this window and the one before.
    offset: i128,
    offset_before: i128,
    window_start: Nanos,
}

impl Lease {
    /// A lease of `ttl`, from the handshake: received at `now`, stamped `stamp` by the client.
    pub fn new(ttl: Nanos, now: Nanos, stamp: Nanos) -> Lease {
        let offset = i128::from(now.0) - i128::from(stamp.0);
        Lease { ttl, offset, offset_before: offset, window_start: now }
    }

    /// A frame stamped `stamp` was read at `now`.
    pub fn observe(&mut self, now: Nanos, stamp: Nanos) {
        let offset = i128::from(now.0) - i128::from(stamp.0);
        if now.since(self.window_start) > WINDOW {
            // A frozen node's first frame must not become the only sample: keep the old minimum for
            // one more window.
            self.offset_before = self.offset;
            self.offset = offset.max(self.offset_before);
            self.window_start = now;
        }
        self.offset = self.offset.min(offset);
    }

    /// Whether a change may be carried out at `now` that came by a connection whose newest frame is
    /// stamped `newest`.
    pub fn holds(&self, now: Nanos, newest: Nanos) -> bool {
        let offset = self.offset.min(self.offset_before);
        let client_now = i128::from(now.0) - offset;
        client_now - i128::from(newest.0) <= i128::from(self.ttl.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: Nanos = Nanos::from_secs(2);

    #[test]
    fn a_buffered_request_expires() {
        // The client's clock runs 1000 s ahead of the node's.
        let client = |node: Nanos| node + Nanos::from_secs(1000);
        let t = Nanos::from_secs(5);
        let mut lease = Lease::new(TTL, t + Nanos::from_millis(40), client(t));
        let t = Nanos::from_secs(6);
        lease.observe(t + Nanos::from_micros(30), client(t));
        assert!(lease.holds(t + Nanos::from_millis(1900), client(t)));
        // Sent at 7 s, read at 17 s: the node was frozen.
        let sent = Nanos::from_secs(7);
        let read = Nanos::from_secs(17);
        lease.observe(read, client(sent));
        assert!(!lease.holds(read, client(sent)));
        // A living client renews, on the connection it lives on.
        lease.observe(read + Nanos::from_millis(1), client(read));
        assert!(lease.holds(read + Nanos::from_millis(1), client(read)));
        assert!(
            !lease.holds(read + Nanos::from_millis(1), client(sent)),
            "another connection's does not count"
        );
    }

    #[test]
    fn a_freeze_longer_than_the_window_is_seen_too() {
        let t = Nanos::from_secs(1);
        let mut lease = Lease::new(TTL, t, t);
        let sent = Nanos::from_secs(2);
        let read = Nanos::from_secs(500);
        lease.observe(read, sent);
        assert!(!lease.holds(read, sent));
        lease.observe(read + Nanos(1), sent);
        assert!(!lease.holds(read + Nanos(1), sent), "the frozen sample must not become the minimum");
    }

    /// Late frames are no measure of the transit, however many there are and in how many windows.
    #[test]
    fn late_frames_renew_nothing() {
        let mut lease = Lease::new(TTL, Nanos::ZERO, Nanos::ZERO);
        for window in 0..4 {
            let fresh = Nanos::from_secs(40 * window + 1);
            lease.observe(fresh, fresh);
            for late in [20, 35] {
                let (sent, read) = (fresh, fresh + Nanos::from_secs(late));
                lease.observe(read, sent);
                assert!(!lease.holds(read, sent), "window {window}, {late} s late");
            }
        }
    }

    #[test]
    fn a_slow_queue_is_kept_alive_by_pings() {
        let mut lease = Lease::new(TTL, Nanos::ZERO, Nanos::ZERO);
        for s in 1..60 {
            lease.observe(Nanos::from_secs(s), Nanos::from_secs(s));
            assert!(lease.holds(Nanos::from_millis(s * 1000 + 999), Nanos::from_secs(s)));
        }
    }
}
