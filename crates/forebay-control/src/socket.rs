//! The I/O nodes' end of the WebSocket to the arbiter: opened here and nowhere else.

use crate::NODE_PATH;
use crate::job::Problem;
use crate::private;
use forebay_types::Secret;
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};
use std::io::{self, Read, Write};
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
    #[error("the address is not of the form https://HOST:PORT or http://HOST:PORT")]
    Address,
    /// It must not be talked to in the clear, or has not proved to be an arbiter.
    #[error("{0}")]
    Private(String),
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

/// The connection below it: a bare one to this machine, or an encrypted one to a proved arbiter.
pub enum Stream {
    /// Bare.
    Plain(TcpStream),
    /// Encrypted.
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Stream {
    /// The socket, for its time limits and addresses.
    pub fn tcp(&self) -> &TcpStream {
        match self {
            Stream::Plain(stream) => stream,
            Stream::Tls(tls) => &tls.sock,
        }
    }
}

impl Read for Stream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Plain(stream) => stream.read(into),
            Stream::Tls(tls) => tls.read(into),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Plain(stream) => stream.write(from),
            Stream::Tls(tls) => tls.write(from),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Stream::Plain(stream) => stream.flush(),
            Stream::Tls(tls) => tls.flush(),
        }
    }
}

/// Opens it at the arbiter's address. Reads and writes of the socket have a time limit, which may be changed.
pub fn connect(url: &str, secret: Option<&Secret>) -> Result<WebSocket<Stream>, SocketError> {
    let (authority, tls) = private::authority(url).ok_or(SocketError::Address)?;
    if secret.is_some() {
        private::may_hear(url).map_err(SocketError::Private)?;
    }
    let port = if tls { ":443" } else { ":80" };
    let bare = private::host(authority).len() == authority.trim_matches(['[', ']']).len();
    let at = format!("{authority}{}", if bare { port } else { "" });
    let mut last = SocketError::Address;
    for address in at.to_socket_addrs().map_err(SocketError::Connect)? {
        match TcpStream::connect_timeout(&address, CONNECT) {
            Ok(stream) => return shake_hands(stream, authority, tls, secret),
            Err(e) => last = SocketError::Connect(e),
        }
    }
    Err(last)
}

/// TLS with whoever is there: fails unless it is who the address says.
fn encrypt(stream: TcpStream, authority: &str) -> Result<Stream, SocketError> {
    let config = private::tls().map_err(SocketError::Private)?;
    let name = ServerName::try_from(private::host(authority).to_owned()).map_err(|_| SocketError::Address)?;
    let session = ClientConnection::new(config, name).map_err(|e| SocketError::Private(e.to_string()))?;
    let mut tls = StreamOwned::new(session, stream);
    while tls.conn.is_handshaking() {
        tls.conn.complete_io(&mut tls.sock).map_err(SocketError::Connect)?;
    }
    Ok(Stream::Tls(Box::new(tls)))
}

fn shake_hands(
    stream: TcpStream,
    authority: &str,
    tls: bool,
    secret: Option<&Secret>,
) -> Result<WebSocket<Stream>, SocketError> {
    let set = |s: &TcpStream| {
        s.set_nodelay(true)?;
        s.set_read_timeout(Some(CONNECT))?;
        s.set_write_timeout(Some(CONNECT))
    };
    set(&stream).map_err(SocketError::Connect)?;
    let stream = if tls { encrypt(stream, authority)? } else { Stream::Plain(stream) };
    let scheme = if tls { "wss" } else { "ws" };
    let mut request = format!("{scheme}://{authority}{NODE_PATH}").into_client_request()?;
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
