//! Chromium without a window, driven over its DevTools protocol.

use forebay_testkit::{Process, RunDir, until};
use serde_json::{Value, json};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;
use tungstenite::{Message, WebSocket};

const PATIENCE: Duration = Duration::from_secs(60);

/// What every page runs before its own scripts: how long its frames take, from the first script to the
/// first task after them, and the long tasks in between.
const WATCH: &str = r#"
  window.frames_ms = [];
  window.tasks_ms = [];
  const ask = window.requestAnimationFrame.bind(window);
  const channel = new MessageChannel();
  const begun = [];
  channel.port1.onmessage = () => { window.frames_ms.push(performance.now() - begun.shift()); };
  window.requestAnimationFrame = (f) => ask((t) => { begun.push(performance.now()); f(t); channel.port2.postMessage(0); });
  new PerformanceObserver((l) => { for (const e of l.getEntries()) window.tasks_ms.push(e.duration); }).observe({ type: "longtask" });
"#;

/// A browser with one page, until dropped.
pub(crate) struct Browser {
    socket: WebSocket<TcpStream>,
    session: Option<String>,
    next: u64,
    /// What the page complained about: errors, and warnings.
    pub(crate) complaints: Vec<String>,
    _process: Process,
    _dir: RunDir,
}

impl Browser {
    pub(crate) fn start() -> Browser {
        let dir = RunDir::in_memory().expect("a directory");
        let mut command = Command::new("chromium");
        command.args(["--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0"]);
        command.args(["--no-first-run", "--disable-extensions", "--disable-background-networking"]);
        command.args(["--hide-scrollbars", "--force-device-scale-factor=1"]);
        command.arg(format!("--user-data-dir={}", dir.path().display())).arg("about:blank");
        command.env("HOME", dir.path()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let process = Process::start(&mut command).expect("chromium starts");
        let port = dir.path().join("DevToolsActivePort");
        let (port, path) = until(PATIENCE, "chromium does not listen", || {
            let text = std::fs::read_to_string(&port).ok()?;
            let (port, path) = text.trim().split_once('\n')?;
            Some((port.to_owned(), path.to_owned()))
        });
        let stream = TcpStream::connect(format!("127.0.0.1:{port}")).expect("chromium listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        let url = format!("ws://127.0.0.1:{port}{path}");
        let (socket, _) = tungstenite::client(url, stream).expect("a WebSocket");
        let mut browser =
            Browser { socket, session: None, next: 0, complaints: Vec::new(), _process: process, _dir: dir };
        let target = browser.call("Target.createTarget", json!({ "url": "about:blank" }));
        let target = target["targetId"].as_str().expect("a target").to_owned();
        let session = browser.call("Target.attachToTarget", json!({ "targetId": target, "flatten": true }));
        browser.session = Some(session["sessionId"].as_str().expect("a session").to_owned());
        for domain in ["Page", "Runtime", "Log"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        browser.before_scripts(WATCH);
        browser
    }

    /// Every page that is opened from now on runs this first.
    pub(crate) fn before_scripts(&mut self, script: &str) {
        self.call("Page.addScriptToEvaluateOnNewDocument", json!({ "source": script }));
    }

    /// Calls a method, and notes what happens meanwhile.
    pub(crate) fn call(&mut self, method: &str, params: Value) -> Value {
        self.next += 1;
        let mut message = json!({ "id": self.next, "method": method, "params": params });
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        self.socket.send(Message::text(message.to_string())).expect("chromium hears");
        loop {
            let Message::Text(text) = self.socket.read().expect("chromium answers") else { continue };
            let answer: Value = serde_json::from_str(&text).expect("JSON");
            if answer["id"] == json!(self.next) {
                assert!(answer["error"].is_null(), "{method}: {answer}");
                return answer["result"].clone();
            }
            self.note(&answer);
        }
    }

    fn note(&mut self, event: &Value) {
        let params = &event["params"];
        let complaint = match event["method"].as_str() {
            Some("Runtime.exceptionThrown") => Some(&params["exceptionDetails"]),
            Some("Runtime.consoleAPICalled") if ["error", "warning"].iter().any(|t| params["type"] == *t) => {
                Some(&params["args"])
            }
            Some("Log.entryAdded") if params["entry"]["level"] == "error" => Some(&params["entry"]),
            _ => None,
        };
        self.complaints.extend(complaint.map(Value::to_string));
    }

    /// The value of an expression; of what it promises, if it does.
    pub(crate) fn eval(&mut self, expression: &str) -> Value {
        let options = json!({ "expression": expression, "returnByValue": true, "awaitPromise": true });
        let answer = self.call("Runtime.evaluate", options);
        assert!(answer["exceptionDetails"].is_null(), "{expression}: {answer}");
        answer["result"]["value"].clone()
    }

    pub(crate) fn open(&mut self, url: &str) {
        self.call("Page.navigate", json!({ "url": url }));
        until(PATIENCE, "the page does not load", || {
            (self.eval("!!window.forebay && document.readyState") == "complete").then_some(())
        });
    }

    /// When, in milliseconds since 1970, the page first showed that an expression is true.
    pub(crate) fn shows(&mut self, what: &str, expression: &str) -> f64 {
        let wait = format!(
            "new Promise((done, fail) => {{ const until = performance.now() + {}; const look = () => {{
               if ({expression}) return done(performance.timeOrigin + performance.now());
               if (performance.now() > until) return fail(new Error({}));
               setTimeout(look, 5); }}; look(); }})",
            PATIENCE.as_millis() / 2,
            json!(format!("{what}: {expression}")),
        );
        self.eval(&wait).as_f64().expect("a time")
    }

    /// Width, height, and whether it is to be dark.
    pub(crate) fn size(&mut self, width: u32, height: u32) {
        let size = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600 });
        self.call("Emulation.setDeviceMetricsOverride", size);
    }

    pub(crate) fn theme(&mut self, dark: bool) {
        let value = if dark { "dark" } else { "light" };
        let feature = json!({ "features": [{ "name": "prefers-color-scheme", "value": value }] });
        self.call("Emulation.setEmulatedMedia", feature);
    }

    /// A key goes down and up again.
    pub(crate) fn press(&mut self, key: &str, code: u32, text: &str) {
        for kind in ["keyDown", "keyUp"] {
            let mut event = json!({ "type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code });
            if kind == "keyDown" && !text.is_empty() {
                event["text"] = json!(text);
            }
            self.call("Input.dispatchKeyEvent", event);
        }
    }

    /// Goes to one of the page's views.
    pub(crate) fn view(&mut self, name: &str) {
        self.eval(&format!("location.hash = '#/{name}'"));
        self.eval(
            "new Promise((done) => setTimeout(() => requestAnimationFrame(() => setTimeout(done)), 50))",
        );
    }

    /// A picture of what is seen.
    pub(crate) fn screenshot(&mut self, file: &Path) {
        let picture = self.call("Page.captureScreenshot", json!({ "format": "png" }));
        let png = base64(picture["data"].as_str().expect("a picture"));
        assert!(png.starts_with(b"\x89PNG"), "{}", file.display());
        std::fs::write(file, png).expect("a picture");
    }

    /// Bytes of JavaScript that are in use, and elements, after what is unused was thrown away.
    pub(crate) fn memory(&mut self) -> (f64, f64) {
        for _ in 0..2 {
            self.call("HeapProfiler.collectGarbage", json!({}));
        }
        let heap = self.call("Runtime.getHeapUsage", json!({}))["usedSize"].as_f64().expect("a size");
        let elements = self.call("Memory.getDOMCounters", json!({}))["nodes"].as_f64().expect("a count");
        (heap, elements)
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // It tidies up after itself if it can; dropping its process kills it.
        self.session = None;
        let close = json!({ "id": 0, "method": "Browser.close" });
        let _ = self.socket.send(Message::text(close.to_string()));
        let _ = self._process.wait_for(Duration::from_secs(5));
    }
}

fn base64(text: &str) -> Vec<u8> {
    let digit = |b: u8| match b {
        b'A'..=b'Z' => Some(b - b'A'),
        b'a'..=b'z' => Some(b - b'a' + 26),
        b'0'..=b'9' => Some(b - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    };
    let digits: Vec<u32> = text.bytes().filter_map(digit).map(u32::from).collect();
    let mut out = Vec::with_capacity(digits.len() * 3 / 4);
    for four in digits.chunks(4) {
        let bits = four.iter().enumerate().fold(0, |bits, (i, d)| bits | d << (18 - 6 * i));
        out.extend_from_slice(&bits.to_be_bytes()[1..four.len()]);
    }
    out
}
