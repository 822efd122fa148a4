//! Where an I/O node or an arbiter listens, in one grammar: `tcp:HOST:PORT` or `unix:PATH`.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

/// An address. Reading one asks no name server: HOST is a number, or `localhost`, which is 127.0.0.1.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Address {
    /// `tcp:HOST:PORT`, where `tcp:` may be left out. To listen, port 0 is any free one.
    Tcp(SocketAddr),
    /// `unix:PATH`.
    Unix(PathBuf),
}

/// What is no address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// It is none of the grammar's.
    #[error("{0:?} is no address: write tcp:HOST:PORT with a numeric HOST or localhost, or unix:PATH")]
    Grammar(String),
    /// No system has sockets there.
    #[error(
        "the path of a Unix socket has at most {SOCKET_PATH} bytes, and this one has {0}: take a shorter one"
    )]
    Long(usize),
}

/// The longest path of a Unix socket, in bytes (`sockaddr_un`, without its last).
pub const SOCKET_PATH: usize = 107;

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Address, AddressError> {
        let wrong = || AddressError::Grammar(text.chars().take(200).collect());
        if let Some(path) = text.strip_prefix("unix:") {
            return match path.len() {
                0 => Err(wrong()),
                n if n > SOCKET_PATH => Err(AddressError::Long(n)),
                _ => Ok(Address::Unix(path.into())),
            };
        }
        let host = text.strip_prefix("tcp:").unwrap_or(text);
        if let Some(port) = host.strip_prefix("localhost:") {
            let port = port.parse().map_err(|_| wrong())?;
            return Ok(Address::Tcp((Ipv4Addr::LOCALHOST, port).into()));
        }
        host.parse().map(Address::Tcp).map_err(|_| wrong())
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp(at) => write!(f, "tcp:{at}"),
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl TryFrom<String> for Address {
    type Error = AddressError;
    fn try_from(text: String) -> Result<Address, AddressError> {
        text.parse()
    }
}

impl From<Address> for String {
    fn from(address: Address) -> String {
        address.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_grammar() {
        for (text, canonical) in [
            ("tcp:127.0.0.1:7400", "tcp:127.0.0.1:7400"),
            ("127.0.0.1:0", "tcp:127.0.0.1:0"),
            ("tcp:localhost:7400", "tcp:127.0.0.1:7400"),
            ("localhost:1", "tcp:127.0.0.1:1"),
            ("tcp:[::1]:7400", "tcp:[::1]:7400"),
            ("unix:/run/forebay/0.sock", "unix:/run/forebay/0.sock"),
        ] {
            let address: Address = text.parse().unwrap();
            assert_eq!(address.to_string(), canonical);
            assert_eq!(canonical.parse(), Ok(address));
        }
        // A name that a name server would know is refused like any other text: nobody is asked.
        for wrong in ["", "unix:", "tcp:", "tcp:7400", "tcp:localhost", "tcp:login1:7400", "localhost:66000"]
        {
            let said = wrong.parse::<Address>().unwrap_err().to_string();
            assert!(said.contains("tcp:HOST:PORT") && said.contains("unix:PATH"), "{said}");
        }
        // As many bytes as a socket can be bound to, not one more.
        let longest = format!("unix:/{}", "x".repeat(SOCKET_PATH - 1));
        assert!(longest.parse::<Address>().is_ok());
        assert_eq!(format!("{longest}x").parse::<Address>(), Err(AddressError::Long(SOCKET_PATH + 1)));
    }
}
