//! The handshake: both sides prove that they know the job's secret, and agree on how the connection is protected.

use crate::conn::{Conn, Failure};
use crate::error::Error;
use crate::hosts::HostSet;
use crate::identity::{Identity, challenge};
use crate::sys;
use forebay_types::{Address, Nanos, Protect};
use forebay_wire::frame::{Header, Opcode, flag};
use forebay_wire::hello::{Greeting, Hello, Proof, Side, negotiate};
use forebay_wire::message::{decode, encode_into};
use forebay_wire::session::wait::Wait;
use std::io::IoSlice;
use std::sync::atomic::Ordering::Relaxed;

impl Conn {
    /// The handshake, on a connection that stands.
    pub(crate) fn shake_hands(&mut self, who: &Identity<'_>, started: Nanos) -> Result<(), Failure> {
        let protocol = |a: &Address, e: &dyn std::fmt::Display| {
            Failure::Fatal(Error::Protocol(a.clone(), e.to_string()))
        };
        let address = self.address.clone();
        let mut wait = Wait::new(self.patience, started, sys::now());
        // A node that is stopped accepts connections too: no pings yet, one patience for the greeting.
        wait.sent(sys::now(), true);
        let (_, opcode, place) = self.receive_frame(&mut wait, None)?;
        if opcode == Opcode::Goodbye {
            // It has as many connections as it takes, most likely: that may pass.
            let why = String::from_utf8_lossy(self.buffered(place)).into_owned();
            return Err(self.broken(&why));
        }
        if opcode != Opcode::Greeting {
            return Err(protocol(&address, &"it did not greet"));
        }
        let greeting: Greeting =
            decode(self.buffered(place.clone()), "greeting").map_err(|e| protocol(&address, &e))?;
        let version = negotiate(&greeting).map_err(|e| protocol(&address, &e))?;
        self.process.incarnation = greeting.incarnation;
        self.process.host = greeting.host_boot;
        self.host = HostSet::of(greeting.host_boot);
        let challenge = challenge().map_err(|e| protocol(&address, &e))?;
        let (session, job) = (who.session, who.job);
        // What stays on this host needs no protection.
        let protect = match address {
            Address::Unix(_) => greeting.protect,
            _ => greeting.protect.max(who.protect),
        };
        let greeted = self.buffered(place.clone()).to_vec();
        let exports = who.exports;
        let proof = Proof { node: &greeting.challenge, client: &challenge, session, job, protect, exports };
        let hello = Hello {
            version,
            session: who.session,
            job: who.job,
            host: who.host,
            pid: sys::pid(),
            rank: who.rank,
            proof: proof.of(Side::Client, who.secret),
            challenge,
            credential: who.credential,
            epoch: who.epoch,
            lifeline: who.lifeline,
            exports: exports.to_vec(),
            protect,
        };
        let mut said = Vec::new();
        encode_into(&hello, &mut said);
        let mut header = Header::request(Opcode::Hello, 0, said.len() as u32);
        let hello_at = sys::now();
        header.stamp = hello_at.0.into();
        self.send_all(&mut wait, &mut [IoSlice::new(header.as_bytes()), IoSlice::new(&said)])?;
        wait.sent(sys::now(), true);
        let (header, _, place) = self.receive_frame(&mut wait, None)?;
        let body = self.buffered(place);
        if header.status.get() != 0 {
            let text = String::from_utf8_lossy(body).into_owned();
            // What is on the way can only have it ask for more than it does.
            who.asked.fetch_max(Protect::numbered(header.length.get()) as u8, Relaxed);
            // A node that is draining is not an enemy: another one may take us.
            return Err(if header.has(flag::MOVE) {
                Failure::Broken(format!("{address}: {text}"))
            } else {
                protocol(&address, &text)
            });
        }
        let welcomed = body.to_vec();
        self.welcome = decode(&welcomed, "welcome").map_err(|e| protocol(&address, &e))?;
        // Before anything else is said: who took over the address of a node that is gone gets nothing.
        if proof.verify(Side::Node, who.secret, &self.welcome.proof).is_err() {
            return Err(self.broken("it does not know the job's secret: it is no I/O node of this job"));
        }
        if self.welcome.max_data == 0
            || self.welcome.max_data > forebay_wire::MAX_DATA
            || self.welcome.credits == 0
        {
            return Err(protocol(&address, &"it offers no usable limits"));
        }
        let seed = proof.seed(who.secret);
        if let Some((sealer, opener)) = seed.ends(Side::Client, protect, [&greeted, &said, &welcomed]) {
            self.socket.protect(sealer, opener);
        }
        // The node measures our clock by a frame that took no longer than this: so much later than we
        // think may it believe the lease to end.
        let transit = sys::now().since(hello_at);
        self.patience.lease = Nanos::from_millis(u64::from(self.welcome.lease_ms)) + transit;
        Ok(())
    }
}
