//! An arbiter as far as the page sees it: the page itself is the real one's, the stream is made up here.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Until dropped.
pub(crate) struct Stream {
    url: String,
    end: Arc<AtomicBool>,
}

impl Stream {
    /// Serves the page of the arbiter at `real`, and events: `make(n)` is the n-th, after which it waits for
    /// as long as it says; `None` is the last.
    pub(crate) fn start<M>(real: &str, make: M) -> Stream
    where
        M: Fn(u64) -> Option<(String, std::time::Duration)> + Send + Sync + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let end = Arc::new(AtomicBool::new(false));
        let (real, over, make) = (real.trim_start_matches("http://").to_owned(), end.clone(), Arc::new(make));
        std::thread::spawn(move || {
            for connection in listener.incoming().flatten() {
                if over.load(Ordering::Relaxed) {
                    return;
                }
                let (real, over, make) = (real.clone(), over.clone(), make.clone());
                // A connection that breaks is the browser's business.
                std::thread::spawn(move || serve(connection, &real, &over, &*make));
            }
        });
        Stream { url, end }
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.end.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(self.url.trim_start_matches("http://"));
    }
}

fn serve(
    mut browser: TcpStream,
    real: &str,
    end: &AtomicBool,
    make: &dyn Fn(u64) -> Option<(String, std::time::Duration)>,
) -> std::io::Result<()> {
    let mut lines = BufReader::new(browser.try_clone()?).lines();
    let first = lines.next().transpose()?.unwrap_or_default();
    while lines.next().transpose()?.is_some_and(|line| !line.is_empty()) {}
    let path = first.split(' ').nth(1).unwrap_or("/");
    if path != "/v1/live" {
        let mut answer = Vec::new();
        let mut arbiter = TcpStream::connect(real)?;
        write!(arbiter, "GET {path} HTTP/1.1\r\nHost: {real}\r\nConnection: close\r\n\r\n")?;
        arbiter.read_to_end(&mut answer)?;
        return browser.write_all(&answer);
    }
    browser.write_all(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n")?;
    for n in 0.. {
        let Some((event, pause)) = make(n).filter(|_| !end.load(Ordering::Relaxed)) else { break };
        browser.write_all(format!("data: {event}\n\n").as_bytes())?;
        std::thread::sleep(pause);
    }
    // The page would come back at once if it were closed.
    while !end.load(Ordering::Relaxed) {
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    Ok(())
}
