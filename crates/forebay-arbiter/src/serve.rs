//! Taking connections: a bounded number of them, none of which may dawdle.

use crate::service::Shared;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

/// How long a client may take to send the head of a request, the next one on the same connection
/// included.
const HEADER: Duration = Duration::from_secs(15);

/// Serves the API until the future `end` is done.
pub async fn serve(shared: Arc<Shared>, listener: TcpListener, end: impl Future<Output = ()>) {
    let free = Arc::new(Semaphore::new(shared.config.max_connections.clamp(1, 1 << 20)));
    let service = TowerToHyperService::new(crate::api::router(shared));
    let accept = async {
        loop {
            let permit = Arc::clone(&free).acquire_owned().await;
            let stream = match listener.accept().await {
                Ok((stream, _)) => stream,
                Err(e) => {
                    tracing::warn!("a connection could not be taken: {e}");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            };
            let _ = stream.set_nodelay(true);
            let service = service.clone();
            tokio::spawn(async move {
                let mut http = hyper::server::conn::http1::Builder::new();
                http.timer(TokioTimer::new()).header_read_timeout(HEADER);
                let connection = http.serve_connection(TokioIo::new(stream), service).with_upgrades();
                // A client that breaks off is its own affair.
                let _ = connection.await;
                drop(permit);
            });
        }
    };
    tokio::select! {
        () = accept => {}
        () = end => {}
    }
}
