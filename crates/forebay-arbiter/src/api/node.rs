//! An I/O node's WebSocket: what it says goes to the core, what the core says goes to it.

use super::{App, No};
use crate::core::ConnectionId;
use crate::service::Shared;
use axum::extract::State;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::http::StatusCode;
use axum::response::Response;
use forebay_control::node::{NodeHello, ToArbiter, ToNode};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

/// The largest message of a node.
const MESSAGE: usize = 4 << 20;

/// How long a node may take to say hello, or to take a message.
const PATIENCE: Duration = Duration::from_secs(5);

/// A node takes an arbiter that says nothing for two seconds for gone.
const PING: Duration = Duration::from_millis(500);

pub(super) async fn connect(
    State(shared): App,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response, No> {
    let upgrade =
        upgrade.map_err(|e| No(StatusCode::BAD_REQUEST, format!("a WebSocket is expected: {e}")))?;
    let upgrade = upgrade.max_message_size(MESSAGE).max_frame_size(MESSAGE);
    Ok(upgrade.on_upgrade(move |socket| serve(shared, socket)))
}

async fn serve(shared: Arc<Shared>, mut socket: WebSocket) {
    let hello = match tokio::time::timeout(PATIENCE, hear(&mut socket)).await {
        Ok(Some(Ok(ToArbiter::Hello(hello)))) => hello,
        Ok(Some(Ok(_))) => return sorry(&mut socket, "the first message must be `hello`".into()).await,
        Ok(Some(Err(e))) => return sorry(&mut socket, e).await,
        Ok(None) | Err(_) => return,
    };
    let node = hello.node;
    let (connection, messages) = match join(&shared, hello).await {
        Ok(joined) => joined,
        Err(reason) => {
            tracing::warn!(%node, %reason, "an I/O node is refused");
            return sorry(&mut socket, reason).await;
        }
    };
    tracing::info!(%node, "an I/O node came");
    let why = converse(&shared, &mut socket, connection, messages).await;
    tracing::info!(%node, why, "an I/O node's connection ended");
    let _ = shared.ask(move |core, now| core.node_lost(now, connection)).await;
}

async fn join(shared: &Shared, hello: NodeHello) -> Result<(ConnectionId, mpsc::Receiver<ToNode>), String> {
    shared.hello(hello).await.map_err(|e| e.to_string())?.map_err(|e| e.to_string())
}

/// Until one side ends it, and why.
async fn converse(
    shared: &Shared,
    socket: &mut WebSocket,
    connection: ConnectionId,
    mut messages: mpsc::Receiver<ToNode>,
) -> &'static str {
    let mut ping = tokio::time::interval(PING);
    loop {
        tokio::select! {
            _ = ping.tick() => {
                let sent = tokio::time::timeout(PATIENCE, socket.send(Message::Ping(Default::default()))).await;
                if !matches!(sent, Ok(Ok(()))) {
                    return "it does not listen";
                }
            }
            message = messages.recv() => {
                let Some(message) = message else { return "the arbiter hung up" };
                if !say(socket, &message).await {
                    return "it does not listen";
                }
            }
            said = hear(socket) => match said {
                Some(Ok(message)) => {
                    if shared.ask(move |core, now| core.node_said(now, connection, message)).await.is_err() {
                        return "the arbiter does not lead any more";
                    }
                }
                Some(Err(e)) => {
                    sorry(socket, e).await;
                    return "it sent something that is no message";
                }
                None => return "the node closed it",
            },
        }
    }
}

/// The next message; `None` at the end of the connection.
async fn hear(socket: &mut WebSocket) -> Option<Result<ToArbiter, String>> {
    loop {
        match socket.recv().await? {
            Ok(Message::Text(text)) => {
                return Some(
                    serde_json::from_str(&text).map_err(|e| format!("not a message of a node: {e}")),
                );
            }
            Ok(Message::Ping(_) | Message::Pong(_)) => {}
            Ok(Message::Binary(_)) => return Some(Err("messages are text, not binary".into())),
            Ok(Message::Close(_)) | Err(_) => return None,
        }
    }
}

async fn say(socket: &mut WebSocket, message: &ToNode) -> bool {
    let Ok(text) = serde_json::to_string(message) else { return false };
    let sent = tokio::time::timeout(PATIENCE, socket.send(Message::Text(text.into()))).await;
    matches!(sent, Ok(Ok(())))
}

async fn sorry(socket: &mut WebSocket, reason: String) {
    say(socket, &ToNode::Sorry { reason }).await;
    let _ = tokio::time::timeout(PATIENCE, socket.send(Message::Close(None))).await;
}
