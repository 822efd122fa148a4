//! What a user says to the arbiter in a MUNGE credential, in confidence: which request it is for, and the
//! secret that the job is to have. `Authorization: Munge CREDENTIAL`.

use forebay_types::Secret;
use sha2::{Digest, Sha256};

/// The scheme's name in the header.
pub const SCHEME: &str = "Munge ";

const VERSION: &str = "forebay-1";

/// The payload of a credential.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// `POST`…
    pub method: String,
    /// With its query.
    pub path: String,
    /// SHA-256 of the body, as hexadecimal digits.
    digest: String,
    /// The secret of the job that is registered.
    pub secret: Option<Secret>,
}

fn digest(body: &[u8]) -> String {
    Sha256::digest(body).iter().map(|b| format!("{b:02x}")).collect()
}

impl Claim {
    /// For one request.
    pub fn new(method: &str, path: &str, body: &[u8], secret: Option<Secret>) -> Claim {
        Claim { method: method.to_owned(), path: path.to_owned(), digest: digest(body), secret }
    }

    /// As the credential carries it.
    pub fn to_bytes(&self) -> Vec<u8> {
        let secret = self.secret.as_ref().map_or_else(|| "-".to_owned(), Secret::to_hex);
        [VERSION, &self.method, &self.path, &self.digest, &secret].join("\n").into_bytes()
    }

    /// What a credential carried, if it is for this service at all.
    pub fn from_bytes(bytes: &[u8]) -> Option<Claim> {
        let text = std::str::from_utf8(bytes).ok()?;
        let mut lines = text.split('\n');
        if lines.next()? != VERSION {
            return None;
        }
        let mut next = || lines.next().map(str::to_owned);
        let (method, path, digest, secret) = (next()?, next()?, next()?, next()?);
        let secret = if secret == "-" { None } else { Some(Secret::from_hex(&secret)?) };
        lines.next().is_none().then_some(Claim { method, path, digest, secret })
    }

    /// Whether it was made for this request and no other.
    pub fn is_for(&self, method: &str, path: &str, body: &[u8]) -> bool {
        self.method == method && self.path == path && self.digest == digest(body)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_is_for_one_request() {
        let claim = Claim::new("POST", "/v1/jobs", b"{}", Some(Secret::new([3; 32])));
        let back = Claim::from_bytes(&claim.to_bytes()).unwrap();
        assert_eq!(back, claim);
        assert!(back.is_for("POST", "/v1/jobs", b"{}"));
        assert!(!back.is_for("PUT", "/v1/jobs", b"{}"));
        assert!(!back.is_for("POST", "/v1/jobs/a", b"{}"));
        assert!(!back.is_for("POST", "/v1/jobs", b"{} "));
        let plain = Claim::new("GET", "/v1/jobs", b"", None);
        assert_eq!(Claim::from_bytes(&plain.to_bytes()), Some(plain));
        for wrong in [
            &b""[..],
            b"x",
            b"forebay-1\nGET\n/\n0",
            b"forebay-1\nGET\n/\n0\nzz",
            b"forebay-1\nGET\n/\n0\n-\nmore",
            &[0xff],
        ] {
            assert_eq!(Claim::from_bytes(wrong), None);
        }
    }
}
