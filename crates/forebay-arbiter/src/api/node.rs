//! An I/O node's WebSocket: what it says goes to the core, what the core says goes to it.

use super::{App, Rejection};
use crate::core::ConnectionId;
use crate::refusals::Who;
use crate::service::{NotLeading, Outgoing, Shared};
use axum::extract::State;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::response::Response;
use forebay_control::node::{NodeHello, ToArbiter, ToNode};
use forebay_control::status::Status;
use forebay_types::NodeId;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};

/// The largest message of a node.
const MESSAGE: usize = 4 << 20;

/// A connection's buffer, which is cleared before each read: not much larger than a report.
const BUFFER: usize = 8 << 10;

/// How long a node may take to say hello, or to take a message.
const PATIENCE: Duration = Duration::from_secs(5);

/// A node takes an arbiter that says nothing for two seconds for gone: one to which nothing was said for
/// this long is pinged.
const PING: Duration = Duration::from_millis(500);

pub(super) async fn connect(
    State(shared): App,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response, Rejection> {
    let upgrade =
        upgrade.map_err(|e| Rejection::new(Status::Invalid, format!("a WebSocket is expected: {e}")))?;
    shared.leads()?;
    let upgrade = upgrade.max_message_size(MESSAGE).max_frame_size(MESSAGE).read_buffer_size(BUFFER);
    Ok(upgrade.on_upgrade(move |socket| serve(shared, socket)))
}

async fn serve(shared: Arc<Shared>, mut socket: WebSocket) {
    let hello = match tokio::time::timeout(PATIENCE, hear(&mut socket)).await {
        Ok(Some(Heard::Message(Ok(ToArbiter::Hello(hello))))) => hello,
        Ok(Some(Heard::Message(Err(e)))) => return sorry(&mut socket, e).await,
        Ok(Some(_)) => return sorry(&mut socket, "the first message must be `hello`".into()).await,
        Ok(None) | Err(_) => return,
    };
    let (node, host) = (hello.node, hello.host.clone());
    let (connection, messages) = match join(&shared, hello).await {
        Ok(joined) => joined,
        Err(reason) => {
            shared.refusals.refused(Who::Node(node, host), &reason);
            return sorry(&mut socket, reason).await;
        }
    };
    shared.refusals.admitted(node, &host);
    tracing::info!(%node, "an I/O node came");
    let why = converse(&shared, &mut socket, node, connection, messages).await;
    tracing::info!(%node, why, "an I/O node's connection ended");
    let _ = shared.ask(move |core, now| core.node_lost(now, node, connection)).await;
}

async fn join(shared: &Shared, hello: NodeHello) -> Result<(ConnectionId, mpsc::Receiver<Outgoing>), String> {
    shared.hello(hello).await.map_err(|e| e.to_string())?.map_err(|e| e.to_string())
}

/// Until one side ends it, and why.
///
/// A node takes in one message after the other, and answers a ping in its turn: then it has taken in
/// everything that was sent before. That answers [`Outgoing::Settled`].
async fn converse(
    shared: &Shared,
    socket: &mut WebSocket,
    node: NodeId,
    connection: ConnectionId,
    mut messages: mpsc::Receiver<Outgoing>,
) -> &'static str {
    let mut beat = tokio::time::interval(PING);
    let mut pings: u64 = 0;
    let mut settling: VecDeque<(u64, oneshot::Sender<()>)> = VecDeque::new();
    loop {
        tokio::select! {
            _ = beat.tick() => {
                pings += 1;
                if !shared.is_alive() {
                    return "the arbiter's core hangs";
                }
                if !send(socket, ping(pings)).await {
                    return "it does not listen";
                }
            }
            message = messages.recv() => {
                let sent = match message {
                    None => {
                        send(socket, Message::Close(None)).await;
                        return "the arbiter hung up";
                    }
                    Some(Outgoing::Say(text)) => {
                        beat.reset();
                        send(socket, Message::Text((&*text).into())).await
                    }
                    Some(Outgoing::Settled(done)) => {
                        pings += 1;
                        settling.push_back((pings, done));
                        send(socket, ping(pings)).await
                    }
                };
                if !sent {
                    return "it does not listen";
                }
            }
            said = hear(socket) => match said {
                Some(Heard::Message(Ok(message))) => {
                    if let ToArbiter::Refused { term, newest } = message {
                        tracing::warn!(%node, "it does not obey this arbiter (term {term}) but another one (term {newest}): stop one of them");
                    }
                    tracing::trace!(%node, "says: {message:?}");
                    if let ToArbiter::Answer { id, answer } = message {
                        shared.questions.answered(node, id, answer);
                        continue;
                    }
                    // Not waiting for the core, whose store may be slow: the node wants to hear pings.
                    let said = shared.tell(move |core, now| core.node_said(now, node, connection, message));
                    match said.await {
                        Ok(()) => {}
                        Err(NotLeading::Busy) => return "the arbiter is overloaded",
                        Err(NotLeading::Elsewhere { .. }) => return "the arbiter does not lead any more",
                    }
                }
                Some(Heard::Message(Err(e))) => {
                    sorry(socket, e).await;
                    return "it sent something that is no message";
                }
                Some(Heard::Pong(number)) => {
                    while settling.front().is_some_and(|(n, _)| *n <= number) {
                        if let Some((_, done)) = settling.pop_front() {
                            let _ = done.send(());
                        }
                    }
                }
                None => return "the node closed it",
            },
        }
    }
}

fn ping(number: u64) -> Message {
    Message::Ping(number.to_be_bytes().to_vec().into())
}

/// What came from a node.
enum Heard {
    Message(Result<ToArbiter, String>),
    /// The answer to the ping of this number.
    Pong(u64),
}

/// What comes next; `None` at the end of the connection.
async fn hear(socket: &mut WebSocket) -> Option<Heard> {
    loop {
        match socket.recv().await? {
            Ok(Message::Text(text)) => {
                let message =
                    serde_json::from_str(&text).map_err(|e| format!("not a message of a node: {e}"));
                return Some(Heard::Message(message));
            }
            Ok(Message::Pong(data)) => {
                if let Ok(number) = <[u8; 8]>::try_from(data.as_ref()) {
                    return Some(Heard::Pong(u64::from_be_bytes(number)));
                }
            }
            Ok(Message::Ping(_)) => {}
            Ok(Message::Binary(_)) => {
                return Some(Heard::Message(Err("messages are text, not binary".into())));
            }
            Ok(Message::Close(_)) | Err(_) => return None,
        }
    }
}

async fn say(socket: &mut WebSocket, message: &ToNode) -> bool {
    let Ok(text) = serde_json::to_string(message) else { return false };
    send(socket, Message::Text(text.into())).await
}

async fn send(socket: &mut WebSocket, message: Message) -> bool {
    matches!(tokio::time::timeout(PATIENCE, socket.send(message)).await, Ok(Ok(())))
}

async fn sorry(socket: &mut WebSocket, reason: String) {
    say(socket, &ToNode::Sorry { reason }).await;
    send(socket, Message::Close(None)).await;
}
