//! The handshake: the node greets with a challenge, the client proves that it knows the job's secret and
//! has a challenge of its own, the node welcomes it with its limits and proves the same. One round trip after
//! the connection stands. Neither proof can be given for the other, nor used a second time.
//!
//! A user may instead begin a job with a MUNGE credential, which carries the secret that the job is to have:
//! the same two proofs are then given under that.

use crate::{VERSION_MAX, VERSION_MIN, WireError};
use forebay_types::{Epoch, FlowId, NodeId, Protect, Secret};
use hmac::{Hmac, Mac};
use serde::{Deserialize, Serialize};
use sha2::Sha256;

/// Names one client process's session with a node, across its connections and reconnections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SessionId(pub [u8; 16]);

impl SessionId {
    /// A session of a process of the job's `run`: the last four bytes name that.
    pub fn of_run(random: [u8; 16], run: u32) -> SessionId {
        let mut id = random;
        id[12..].copy_from_slice(&run.to_le_bytes());
        SessionId(id)
    }

    /// Which run of its job it belongs to: several may have the same name, one after the other.
    pub fn run(&self) -> u32 {
        u32::from_le_bytes(std::array::from_fn(|i| self.0[12 + i]))
    }
}

/// One running kernel, and so one page cache: all node processes on it have the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct HostBoot(pub [u8; 16]);

/// One node process, from its start to its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Incarnation(pub [u8; 16]);

impl Incarnation {
    /// Enough of it to tell the processes apart that one client meets.
    pub fn part(&self) -> u64 {
        u64::from_le_bytes(std::array::from_fn(|i| self.0[i]))
    }
}

/// What a MUNGE credential of a hello carries: this, and 32 bytes that are the job's secret.
pub const JOB: &[u8] = b"forebay-job-4";

/// What the node says first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Greeting {
    /// Oldest version the node speaks.
    pub version_min: u16,
    /// Newest version the node speaks.
    pub version_max: u16,
    /// Which I/O node this is.
    pub node: NodeId,
    /// The kernel it runs on.
    pub host_boot: HostBoot,
    /// Which process of it this is.
    pub incarnation: Incarnation,
    /// To be answered in [`Hello::proof`].
    pub challenge: [u8; 16],
    /// How this connection is to be protected at least, once hands are shaken ([`crate::seal`]). An export may ask
    /// for more.
    pub protect: Protect,
}

/// What the client answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello<'a> {
    /// The version to speak.
    pub version: u16,
    /// The client process's session.
    pub session: SessionId,
    /// The job: its name is the flow's.
    pub job: &'a str,
    /// Where the client runs.
    pub host: &'a str,
    /// The client's process id there.
    pub pid: u32,
    /// Which process of a parallel program it is, as `(rank, ranks)`; `ranks` is 0 if not known.
    pub rank: Option<(u32, u32)>,
    /// Keyed hash of both challenges, session and job under the job's secret.
    pub proof: [u8; 32],
    /// To be answered in [`Welcome::proof`].
    pub challenge: [u8; 16],
    /// A MUNGE credential that carries the secret, from the user whose job begins; else empty.
    pub credential: &'a str,
    /// The newest mapping the client knows.
    pub epoch: Epoch,
    /// This connection carries no requests. Children inherit it: while any process holds it, the
    /// session's open files stay for them to adopt.
    pub lifeline: bool,
    /// The exports that requests on this connection are about, by name; a path has the place of its export in here.
    #[serde(borrow)]
    pub exports: Vec<&'a str>,
    /// How the connection is protected.
    pub protect: Protect,
}

/// What the node replies to a [`Hello`] it accepts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Welcome {
    /// The version that is spoken from here on.
    pub version: u16,
    /// The flow the session's requests belong to.
    pub flow: FlowId,
    /// How many requests may be unanswered on this connection.
    pub credits: u32,
    /// The largest data payload of one frame.
    pub max_data: u32,
    /// How long a request stays valid after the client's last sign of life, in milliseconds.
    pub lease_ms: u32,
    /// The exported directories, by index.
    pub exports: Vec<String>,
    /// The epoch of the job's mapping.
    pub epoch: Epoch,
    /// Whether the node still had this session (after a broken connection).
    pub resumed: bool,
    /// Where clients of the node's own host find its [`crate::session::board`].
    pub board: Option<BoardAt>,
    /// Keyed hash of the same under the job's secret: the node knows it, too.
    pub proof: [u8; 32],
}

/// A node's board: the descriptor that it has of it, and the nonce it begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)] // said above
pub struct BoardAt {
    pub fd: i32,
    pub nonce: u64,
}

/// The version both ends speak, from a node's greeting.
pub fn negotiate(greeting: &Greeting) -> Result<u16, WireError> {
    let version = VERSION_MAX.min(greeting.version_max);
    if version < VERSION_MIN || version < greeting.version_min {
        return Err(WireError::Version { theirs: greeting.version_max, min: VERSION_MIN, max: VERSION_MAX });
    }
    Ok(version)
}

/// A secret made of another one, for `purpose`: who has it does not know the other.
pub fn derive(secret: &Secret, purpose: &str) -> Secret {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).expect("HMAC takes keys of any length");
    mac.update(b"forebay derive 4");
    mac.update(purpose.as_bytes());
    Secret::new(mac.finalize().into_bytes().into())
}

/// Who gives a proof.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The client.
    Client,
    /// The node.
    Node,
}

/// What is proved: that one knows the secret, now, in this handshake.
#[derive(Clone, Copy, Debug)]
pub struct Proof<'a> {
    /// The node's challenge.
    pub node: &'a [u8; 16],
    /// The client's.
    pub client: &'a [u8; 16],
    /// The client's session.
    pub session: SessionId,
    /// The job.
    pub job: &'a str,
    /// How the connection is protected.
    pub protect: Protect,
    /// What it is for.
    pub exports: &'a [&'a str],
}

impl Proof<'_> {
    /// The hash of all of it, for one purpose.
    pub(crate) fn keyed(&self, purpose: &[u8; 16], secret: &Secret) -> Hmac<Sha256> {
        let mut mac =
            Hmac::<Sha256>::new_from_slice(secret.as_bytes()).expect("HMAC takes keys of any length");
        mac.update(purpose);
        mac.update(self.node);
        mac.update(self.client);
        mac.update(&self.session.0);
        mac.update(&[self.protect as u8]);
        for text in std::iter::once(&self.job).chain(self.exports) {
            mac.update(&(text.len() as u64).to_le_bytes());
            mac.update(text.as_bytes());
        }
        mac
    }

    fn mac(&self, side: Side, secret: &Secret) -> Hmac<Sha256> {
        let purpose = match side {
            Side::Client => b"forebay client 7",
            Side::Node => b"forebay  node  7",
        };
        self.keyed(purpose, secret)
    }

    /// The proof of one side.
    pub fn of(&self, side: Side, secret: &Secret) -> [u8; 32] {
        self.mac(side, secret).finalize().into_bytes().into()
    }

    /// Whether the other side has proved it, in constant time.
    pub fn verify(&self, side: Side, secret: &Secret, proof: &[u8; 32]) -> Result<(), WireError> {
        self.mac(side, secret).verify_slice(proof).map_err(|_| WireError::Credentials)
    }
}

impl Hello<'_> {
    /// What is to be proved in the handshake that the node began with this challenge.
    pub fn to_prove<'a>(&'a self, node: &'a [u8; 16]) -> Proof<'a> {
        let Hello { session, job, protect, .. } = *self;
        Proof { node, client: &self.challenge, session, job, protect, exports: &self.exports }
    }
}

/// Whether `hello` proves knowledge of the secret.
pub fn verify(secret: &Secret, challenge: &[u8; 16], hello: &Hello<'_>) -> Result<(), WireError> {
    hello.to_prove(challenge).verify(Side::Client, secret, &hello.proof)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proof() {
        let secret = Secret::new([0x0f; 32]);
        let session = SessionId([3; 16]);
        let (challenge, own) = ([7; 16], [9; 16]);
        let (protect, exports) = (Protect::None, &["a", "b"][..]);
        let what = Proof { node: &challenge, client: &own, session, job: "j", protect, exports };
        let mut hello = Hello {
            version: 1,
            session,
            job: "j",
            host: "h",
            pid: 1,
            rank: None,
            proof: what.of(Side::Client, &secret),
            challenge: own,
            credential: "",
            epoch: Epoch(0),
            lifeline: false,
            exports: exports.to_vec(),
            protect: Protect::None,
        };
        assert!(verify(&secret, &challenge, &hello).is_ok());
        assert!(verify(&secret, &[8; 16], &hello).is_err());
        assert!(verify(&Secret::new([1; 32]), &challenge, &hello).is_err());
        // The node's answer is another one, and cannot be made of the client's.
        let welcome = hello.to_prove(&challenge).of(Side::Node, &secret);
        assert_ne!(welcome, hello.proof);
        assert!(what.verify(Side::Node, &secret, &welcome).is_ok());
        assert!(what.verify(Side::Node, &secret, &hello.proof).is_err());
        let other = Proof { client: &[1; 16], ..what };
        assert!(other.verify(Side::Node, &secret, &welcome).is_err(), "of another handshake");
        hello.challenge = [1; 16];
        assert!(verify(&secret, &challenge, &hello).is_err());
        hello.challenge = own;
        hello.protect = Protect::Privacy;
        assert!(verify(&secret, &challenge, &hello).is_err(), "nobody on the way chooses");
        hello.protect = Protect::None;
        for other in [vec![], vec!["a"], vec!["b", "a"], vec!["ab"], vec!["a", "b", ""]] {
            hello.exports = other;
            assert!(verify(&secret, &challenge, &hello).is_err(), "nor what for: {:?}", hello.exports);
        }
        hello.exports = exports.to_vec();
        hello.job = "k";
        assert!(verify(&secret, &challenge, &hello).is_err());
    }

    #[test]
    fn versions() {
        let mut g = Greeting {
            version_min: 1,
            version_max: 9,
            node: NodeId(0),
            host_boot: HostBoot::default(),
            incarnation: Incarnation::default(),
            challenge: [0; 16],
            protect: Protect::None,
        };
        assert_eq!(negotiate(&g), Ok(VERSION_MAX));
        g.version_min = VERSION_MAX + 1;
        assert!(negotiate(&g).is_err());
    }
}
