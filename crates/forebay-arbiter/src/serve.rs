//! Taking connections: a bounded number of them, none of which may dawdle. When there are as many as can
//! be, the oldest of those who have not shown the secret gives way: nobody without a right keeps out
//! nodes and jobs.

use crate::service::Shared;
use axum::extract::Request;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio_rustls::TlsAcceptor;

/// How long a client may take to send the head of a request, the next one on the same connection
/// included.
const HEADER: Duration = Duration::from_secs(15);

/// How often it is looked whether a connection has ended, while all have shown the secret.
const LOOK: Duration = Duration::from_millis(20);

/// Who is at the other end of a connection.
#[derive(Default)]
pub struct Peer {
    /// Nobody else hears what it says: it is on this machine, or what it says is encrypted.
    pub(crate) private: bool,
    authorized: AtomicBool,
    gone: AtomicBool,
    leave: Notify,
    /// Where it connected from.
    pub(crate) from: Option<IpAddr>,
}

impl Peer {
    /// It has shown the secret.
    pub(crate) fn authorize(&self) {
        self.authorized.store(true, Ordering::Relaxed);
    }
}

/// Serves the API until the future `end` is done.
pub async fn serve(shared: Arc<Shared>, listener: TcpListener, end: impl Future<Output = ()>) {
    let wanted = shared.config.max_connections.clamp(1, 1 << 20);
    let most = allowed(wanted, raise_descriptor_limit());
    if most < wanted {
        tracing::info!("at most {most} connections: more the limit of open files does not allow");
    }
    let tls = shared.config.tls.clone().map(TlsAcceptor::from);
    let router = crate::api::router(shared);
    let accept = async {
        let (mut peers, mut failing): (VecDeque<Arc<Peer>>, _) = (VecDeque::new(), false);
        loop {
            let taken = listener.accept().await;
            let failed = std::mem::replace(&mut failing, taken.is_err());
            let (stream, from) = match taken {
                Ok(taken) => taken,
                Err(e) => {
                    if !failed {
                        tracing::warn!("a connection could not be taken: {e}");
                    }
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            };
            make_room(&mut peers, most).await;
            let private = tls.is_some() || from.ip().to_canonical().is_loopback();
            let peer = Arc::new(Peer { private, from: Some(from.ip()), ..Peer::default() });
            peers.push_back(Arc::clone(&peer));
            let _ = stream.set_nodelay(true);
            tokio::spawn(take(tls.clone(), router.clone(), stream, peer));
        }
    };
    tokio::select! {
        () = accept => {}
        () = end => {}
    }
}

/// How many connections there can be of those `wanted`, within so many descriptors: some are for files, and for
/// connections that are about to end.
fn allowed(wanted: usize, descriptors: usize) -> usize {
    wanted.min(descriptors.saturating_sub((descriptors / 4).clamp(16, 256)).max(1))
}

/// As many descriptors as this process may have, and how many that are.
fn raise_descriptor_limit() -> usize {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let maximum = getrlimit(Resource::Nofile).maximum;
    let _ = setrlimit(Resource::Nofile, rustix::process::Rlimit { current: maximum, maximum });
    getrlimit(Resource::Nofile).current.map_or(usize::MAX, |most| usize::try_from(most).unwrap_or(usize::MAX))
}

/// Waits until there are fewer than `most`; who has not shown the secret does not make anybody wait.
async fn make_room(peers: &mut VecDeque<Arc<Peer>>, most: usize) {
    while peers.len() >= most {
        peers.retain(|p| !p.gone.load(Ordering::Relaxed));
        if peers.len() < most {
            return;
        }
        match peers.iter().position(|p| !p.authorized.load(Ordering::Relaxed)) {
            Some(oldest) => {
                if let Some(peer) = peers.remove(oldest) {
                    peer.leave.notify_one();
                }
            }
            None => tokio::time::sleep(LOOK).await,
        }
    }
}

/// Encrypts a connection where that is wanted, and serves it.
async fn take(tls: Option<TlsAcceptor>, router: axum::Router, stream: TcpStream, peer: Arc<Peer>) {
    match tls {
        None => converse(router, stream, Arc::clone(&peer)).await,
        Some(tls) => tokio::select! {
            encrypted = tokio::time::timeout(HEADER, tls.accept(stream)) => {
                // Who cannot agree on a key is not talked to.
                if let Ok(Ok(stream)) = encrypted {
                    converse(router, stream, Arc::clone(&peer)).await;
                }
            }
            () = peer.leave.notified() => {}
        },
    }
    peer.gone.store(true, Ordering::Relaxed);
}

async fn converse<S>(router: axum::Router, stream: S, peer: Arc<Peer>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let known = Arc::clone(&peer);
    let service = tower::util::MapRequest::new(router, move |mut request: Request<hyper::body::Incoming>| {
        request.extensions_mut().insert(Arc::clone(&known));
        request
    });
    let mut http = hyper::server::conn::http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEADER);
    let service = TowerToHyperService::new(service);
    let connection = http.serve_connection(TokioIo::new(stream), service).with_upgrades();
    tokio::select! {
        // A client that breaks off is its own affair.
        _ = connection => {}
        () = peer.leave.notified() => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_connections_than_descriptors_for_them() {
        assert_eq!([65_536, 1024, 256, 10].map(|n| allowed(4096, n)), [4096, 768, 192, 1]);
        assert_eq!(allowed(100, usize::MAX), 100);
    }
}
