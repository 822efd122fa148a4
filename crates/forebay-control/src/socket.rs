//! The I/O nodes' end of the WebSocket to the arbiter: opened here and nowhere else.

use crate::NODE_PATH;
use crate::job::Problem;
use forebay_types::Secret;
use std::io;
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;
use tungstenite::client::IntoClientRequest;
use tungstenite::http::header::AUTHORIZATION;
use tungstenite::protocol::WebSocketConfig;
use tungstenite::{Error, HandshakeError, WebSocket};

/// How long to wait for a connection and for each step of the handshake.
const CONNECT: Duration = Duration::from_secs(2);

/// The largest message: a mapping of very many jobs.
const MAX_MESSAGE: usize = 64 << 20;

/// Cleared before each read: most messages are short.
const BUFFER: usize = 8 << 10;

/// Why there is no WebSocket, or none any more.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// What was given is no arbiter's address.
    #[error("the address is not of the form http://HOST:PORT")]
    Address,
    /// Nobody takes the connection.
    #[error("cannot connect: {0}")]
    Connect(io::Error),
    /// The arbiter does not want this node, and says why.
    #[error("it refused this node: {0}")]
    Refused(String),
    /// Nothing is heard any more.
    #[error("it says nothing any more")]
    Silent,
    /// The connection broke.
    #[error("{0}")]
    Socket(Box<Error>),
}

impl From<Error> for SocketError {
    fn from(e: Error) -> SocketError {
        let text = |body: &[u8]| match serde_json::from_slice::<Problem>(body) {
            Ok(problem) => problem.error,
            Err(_) => String::from_utf8_lossy(&body[..body.len().min(200)]).into_owned(),
        };
        match e {
            Error::Http(response) => SocketError::Refused(match response.body() {
                Some(body) if !body.is_empty() => text(body),
                _ => response.status().to_string(),
            }),
            other => SocketError::Socket(Box::new(other)),
        }
    }
}

/// Opens it at the arbiter's address. Reads and writes of the socket have a time limit, which may be changed.
pub fn connect(url: &str, secret: Option<&Secret>) -> Result<WebSocket<TcpStream>, SocketError> {
    let host = url.strip_prefix("http://").ok_or(SocketError::Address)?.trim_end_matches('/');
    let addresses = host.to_socket_addrs().map_err(SocketError::Connect)?;
    let mut last = SocketError::Address;
    for address in addresses {
        match TcpStream::connect_timeout(&address, CONNECT) {
            Ok(stream) => return shake_hands(stream, host, secret),
            Err(e) => last = SocketError::Connect(e),
        }
    }
    Err(last)
}

fn shake_hands(
    stream: TcpStream,
    host: &str,
    secret: Option<&Secret>,
) -> Result<WebSocket<TcpStream>, SocketError> {
    let set = |s: &TcpStream| {
        s.set_nodelay(true)?;
        s.set_read_timeout(Some(CONNECT))?;
        s.set_write_timeout(Some(CONNECT))
    };
    set(&stream).map_err(SocketError::Connect)?;
    let mut request = format!("ws://{host}{NODE_PATH}").into_client_request()?;
    if let Some(bearer) = secret.and_then(|s| format!("Bearer {}", s.to_hex()).parse().ok()) {
        request.headers_mut().insert(AUTHORIZATION, bearer);
    }
    let mut limits = WebSocketConfig::default();
    limits.max_message_size = Some(MAX_MESSAGE);
    limits.max_frame_size = Some(MAX_MESSAGE);
    limits.read_buffer_size = BUFFER;
    match tungstenite::client::client_with_config(request, stream, Some(limits)) {
        Ok((socket, _)) => Ok(socket),
        Err(HandshakeError::Failure(e)) => Err(e.into()),
        Err(HandshakeError::Interrupted(_)) => Err(SocketError::Silent),
    }
}
