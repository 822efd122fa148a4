//! The handshake: the node greets with a challenge, the client proves that it knows the job's
//! secret, the node welcomes it with its limits. One round trip after the connection stands.

use crate::{VERSION_MAX, VERSION_MIN, WireError};
use forebay_types::{Epoch, FlowId, NodeId, Secret};
use hmac::{Hmac, Mac};
use serde::{Deserialize, Serialize};
use sha2::Sha256;

/// Names one client process's session with a node, across its connections and reconnections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SessionId(pub [u8; 16]);

/// One running kernel, and so one page cache: all node processes on it have the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct HostBoot(pub [u8; 16]);

/// One node process, from its start to its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Incarnation(pub [u8; 16]);

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
    /// Keyed hash of challenge, session and job under the job's secret.
    pub proof: [u8; 32],
    /// The newest mapping the client knows.
    pub epoch: Epoch,
    /// This connection carries no requests. Children inherit it: while any process holds it, the
    /// session's open files stay for them to adopt.
    pub lifeline: bool,
}

/// What the node replies to a [`Hello`] it accepts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
}

/// The version both ends speak, from a node's greeting.
pub fn negotiate(greeting: &Greeting) -> Result<u16, WireError> {
    let version = VERSION_MAX.min(greeting.version_max);
    if version < VERSION_MIN || version < greeting.version_min {
        return Err(WireError::Version { theirs: greeting.version_max, min: VERSION_MIN, max: VERSION_MAX });
    }
    Ok(version)
}

fn mac(secret: &Secret, challenge: &[u8; 16], session: SessionId, job: &str) -> Hmac<Sha256> {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).expect("HMAC takes keys of any length");
    mac.update(challenge);
    mac.update(&session.0);
    mac.update(job.as_bytes());
    mac
}

/// The proof a client gives that it knows the secret.
pub fn prove(secret: &Secret, challenge: &[u8; 16], session: SessionId, job: &str) -> [u8; 32] {
    mac(secret, challenge, session, job).finalize().into_bytes().into()
}

/// Whether `hello` proves knowledge of the secret, in constant time.
pub fn verify(secret: &Secret, challenge: &[u8; 16], hello: &Hello<'_>) -> Result<(), WireError> {
    mac(secret, challenge, hello.session, hello.job)
        .verify_slice(&hello.proof)
        .map_err(|_| WireError::Credentials)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proof() {
        let secret = Secret::new([0x0f; 32]);
        let session = SessionId([3; 16]);
        let challenge = [7; 16];
        let mut hello = Hello {
            version: 1,
            session,
            job: "j",
            host: "h",
            pid: 1,
            rank: None,
            proof: prove(&secret, &challenge, session, "j"),
            epoch: Epoch(0),
            lifeline: false,
        };
        assert!(verify(&secret, &challenge, &hello).is_ok());
        assert!(verify(&secret, &[8; 16], &hello).is_err());
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
        };
        assert_eq!(negotiate(&g), Ok(VERSION_MAX));
        g.version_min = 8;
        assert!(negotiate(&g).is_err());
    }
}
