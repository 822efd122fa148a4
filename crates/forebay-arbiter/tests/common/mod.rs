//! An arbiter in this process on a port of its own, and I/O nodes that are only their control side.

use forebay_arbiter::config::Config;
use forebay_arbiter::curves::Curves;
use forebay_arbiter::service::{Leading, Shared};
use forebay_arbiter::store::SqliteStore;
use forebay_control::CONTROL_VERSION;
use forebay_control::client::Client;
use forebay_control::node::{NodeHello, NodeReport, Term, ToArbiter, ToNode};
use forebay_pattern::{FlowMetrics, Interval};
use forebay_types::{FlowId, Nanos, NodeId, Secret};
use serde_json::Value;
use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tungstenite::client::IntoClientRequest;
use tungstenite::{Message, WebSocket};

pub(crate) const SECRET: &str = "a0a1a2a3a4a5a6a7a8a9aaabacadaeafb0b1b2b3b4b5b6b7b8b9babbbcbdbebf";

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// A running arbiter.
pub(crate) struct Arbiter {
    pub(crate) address: SocketAddr,
    leading: Option<Leading>,
    stop: Option<tokio::sync::oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Arbiter {
    pub(crate) fn start(state: &Path, tell: impl FnOnce(&mut Config)) -> Arbiter {
        let mut config = Config {
            state: state.to_owned(),
            secret: Secret::from_hex(SECRET),
            listen: ([127, 0, 0, 1], 0).into(),
            ..Config::default()
        };
        tell(&mut config);
        let store = SqliteStore::open(state, 1000).unwrap();
        let shared = Shared::new(config).unwrap();
        let leading = shared.lead(Box::new(store), Curves::default()).unwrap();
        let (stop, stopped) = tokio::sync::oneshot::channel();
        let (told, address) = std::sync::mpsc::channel();
        let serving = Arc::clone(&shared);
        let thread = std::thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
            runtime.block_on(async {
                let listener = tokio::net::TcpListener::bind(serving.config.listen).await.unwrap();
                told.send(listener.local_addr().unwrap()).unwrap();
                let end = async { drop(stopped.await) };
                forebay_arbiter::serve::serve(serving, listener, end).await;
            });
            runtime.shutdown_timeout(Duration::from_secs(1));
        });
        Arbiter {
            address: address.recv().unwrap(),
            leading: Some(leading),
            stop: Some(stop),
            thread: Some(thread),
        }
    }

    /// Method, path, body: the status and the answer, which is a string where it is not JSON.
    pub(crate) fn call(
        &self,
        method: &str,
        path: &str,
        body: Option<&Value>,
        secret: Option<&str>,
    ) -> (u16, Value) {
        let secret = secret.map(|hex| Secret::from_hex(hex).expect("a secret"));
        let client =
            Client::new(&format!("http://{}", self.address), secret).unwrap().with_patience(PATIENCE);
        let (status, text) = client.ask(method, path, body.map(Value::to_string).as_deref()).unwrap();
        (status, serde_json::from_str(&text).unwrap_or(Value::String(text)))
    }

    pub(crate) fn get(&self, path: &str) -> Value {
        let (status, value) = self.call("GET", path, None, None);
        assert_eq!(status, 200, "{path}: {value}");
        value
    }

    pub(crate) fn send(&self, method: &str, path: &str, body: Option<Value>) -> (u16, Value) {
        self.call(method, path, body.as_ref(), Some(SECRET))
    }
}

impl Drop for Arbiter {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
        self.leading.take().unwrap().stop().unwrap();
    }
}

/// The control side of an I/O node.
pub(crate) struct Node {
    pub(crate) id: u32,
    pub(crate) socket: WebSocket<TcpStream>,
}

pub(crate) fn hello(id: u32) -> NodeHello {
    NodeHello {
        version: CONTROL_VERSION,
        node: NodeId(id),
        host: "here".into(),
        addresses: vec![format!("tcp:127.0.0.1:{}", 20_000 + id)],
        exports: vec!["data".into()],
        dispatchers: 16,
        memory: 1 << 28,
        scheduler: "fifo".parse().unwrap(),
        interval: Nanos::from_secs(1),
        term: Term(0),
        shares: Vec::new(),
    }
}

impl Node {
    pub(crate) fn connect(arbiter: &Arbiter, id: u32) -> Node {
        let mut node = Node { id, socket: open(arbiter, SECRET).unwrap() };
        node.say(&ToArbiter::Hello(hello(id)));
        assert!(matches!(node.hear(), ToNode::Welcome { .. }));
        node
    }

    pub(crate) fn say(&mut self, message: &ToArbiter) {
        self.socket.send(Message::text(serde_json::to_string(message).unwrap())).unwrap();
    }

    /// The next message but pings and probes.
    pub(crate) fn hear(&mut self) -> ToNode {
        let until = Instant::now() + Duration::from_secs(20);
        while Instant::now() < until {
            if let Ok(Message::Text(text)) = self.socket.read() {
                let message: ToNode = serde_json::from_str(text.as_str()).unwrap();
                if !matches!(message, ToNode::Probe { .. }) {
                    return message;
                }
            }
        }
        panic!("node {} heard nothing", self.id);
    }

    pub(crate) fn report(&mut self, job: &str, bytes: u64) {
        let flow = FlowMetrics {
            flow: FlowId(1),
            files: 2,
            clients: 2,
            streams: 2,
            writes: 10,
            metadata: 3,
            bytes_written: bytes,
            size_min: 1,
            size_mean: bytes as f64 / 10.0,
            size_max: bytes,
            served: bytes,
            busy: Nanos::from_secs(1),
            outstanding: 1.5,
            ..FlowMetrics::default()
        };
        let load = forebay_pattern::Load { served: bytes, ..Default::default() };
        let interval =
            Interval { start: Nanos::from_secs(1), end: Nanos::from_secs(2), load, flows: vec![flow] };
        self.say(&ToArbiter::Report(Box::new(NodeReport {
            present: Vec::new(),
            interval,
            jobs: BTreeMap::from([(FlowId(1), job.to_owned())]),
            waiting: 1,
            connections: 2,
            latency_p50: Nanos::from_micros(100),
            latency_p99: Nanos::from_millis(2),
            job_latencies: BTreeMap::new(),
            job_hosts: BTreeMap::new(),
            errors: 0,
            scheduler: None,
        })));
    }
}

pub(crate) fn open(arbiter: &Arbiter, secret: &str) -> Result<WebSocket<TcpStream>, String> {
    let stream = TcpStream::connect(arbiter.address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut request = format!("ws://{}/v1/nodes/connect", arbiter.address).into_client_request().unwrap();
    request.headers_mut().insert("authorization", format!("Bearer {secret}").parse().unwrap());
    tungstenite::client(request, stream).map(|(s, _)| s).map_err(|e| e.to_string())
}

/// Waits until the condition holds.
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !holds() {
        assert!(Instant::now() < end, "{what}: not within 20 s");
        std::thread::sleep(Duration::from_millis(20));
    }
}
