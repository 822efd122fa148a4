//! The one client of the arbiter's HTTP API. It is given one address or several, and follows the leader:
//! whoever does not lead is not taken at his word, and whom he names is asked.

use crate::JOBS_PATH;
use crate::job::{JobGrant, JobRequest, PinRequest, Problem};
use crate::limit::{LIMITS_PATH, Limit, LimitView, Subject};
use crate::status::Unanswered;
use forebay_types::{Epoch, NodeId, Secret};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// The largest answer that is read.
const ANSWER: u64 = 64 << 20;

/// How long an arbiter has for its answer, over what it was asked to wait.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long it has to take the connection.
const CONNECT: Duration = Duration::from_secs(2);

/// What is no arbiter's address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no arbiter's address: write http://HOST:PORT, several separated by commas")]
pub struct UrlError(String);

/// The arbiter, or several of which one leads.
pub struct Client {
    urls: Vec<String>,
    /// The one that answered last; perhaps none of `urls` but one that was named as the leader.
    last: Mutex<String>,
    secret: Option<Secret>,
    patience: Duration,
    agent: ureq::Agent,
}

impl Client {
    /// A client of the arbiters at `urls` (`http://HOST:PORT`, separated by commas). Only one with a
    /// secret can change anything.
    pub fn new(urls: &str, secret: Option<Secret>) -> Result<Client, UrlError> {
        let all: Vec<String> = urls
            .split(',')
            .map(|u| u.trim().trim_end_matches('/').to_owned())
            .filter(|u| !u.is_empty())
            .collect();
        let Some(first) = all.first().filter(|_| all.iter().all(|u| u.starts_with("http://"))) else {
            return Err(UrlError(urls.to_owned()));
        };
        let config = ureq::Agent::config_builder()
            .proxy(None)
            .timeout_connect(Some(CONNECT))
            .http_status_as_error(false)
            .build();
        let last = Mutex::new(first.clone());
        Ok(Client { last, urls: all, secret, patience: PATIENCE, agent: config.into() })
    }

    /// Gives every arbiter this long for an answer.
    pub fn with_patience(mut self, patience: Duration) -> Client {
        self.patience = patience;
        self
    }

    /// A job begins, or says again that it runs.
    pub fn register(&self, job: &JobRequest) -> Result<JobGrant, Unanswered> {
        self.send("POST", JOBS_PATH, Some(job))
    }

    /// A job runs.
    pub fn renew(&self, id: &str) -> Result<JobGrant, Unanswered> {
        self.send("PUT", &format!("{}/lease", job_path(id)), None::<&()>)
    }

    /// A job runs: the answer comes when its mapping is no longer the `known` one, at the latest after
    /// `wait`.
    pub fn follow(&self, id: &str, known: Epoch, wait: Duration) -> Result<JobGrant, Unanswered> {
        let path = format!("{}/lease?known={known}&wait_ms={}", job_path(id), wait.as_millis());
        read(&self.call_for("PUT", &path, None, wait)?)
    }

    /// A job has ended.
    pub fn end(&self, id: &str) -> Result<(), Unanswered> {
        self.send("DELETE", &job_path(id), None::<&()>)
    }

    /// A job is to be on these I/O nodes; none leaves it to the policy again.
    pub fn pin(&self, id: &str, nodes: Vec<NodeId>) -> Result<JobGrant, Unanswered> {
        self.send("PUT", &format!("{}/nodes", job_path(id)), Some(&PinRequest { nodes }))
    }

    /// An I/O node is to end.
    pub fn drain(&self, node: NodeId) -> Result<(), Unanswered> {
        self.send("POST", &format!("/v1/nodes/{node}/drain"), None::<&()>)
    }

    /// From now on, in place of an earlier limit for the same subject.
    pub fn limit(&self, limit: &Limit) -> Result<LimitView, Unanswered> {
        self.send("POST", LIMITS_PATH, Some(limit))
    }

    /// The limits.
    pub fn limits(&self) -> Result<Vec<LimitView>, Unanswered> {
        self.get(LIMITS_PATH)
    }

    /// A limit holds no longer.
    pub fn remove_limit(&self, subject: &Subject) -> Result<(), Unanswered> {
        let path = format!("{LIMITS_PATH}/{}", in_path(&subject.to_string()));
        self.send("DELETE", &path, None::<&()>)
    }

    /// What a path shows.
    pub fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Unanswered> {
        self.send("GET", path, None::<&()>)
    }

    /// Sends something and reads the answer.
    pub fn send<T: DeserializeOwned>(
        &self,
        method: &str,
        path: &str,
        body: Option<&impl Serialize>,
    ) -> Result<T, Unanswered> {
        let json = body.map(serde_json::to_string).transpose();
        let json = json.map_err(|e| Unanswered::Refused(e.to_string()))?;
        read(&self.call(method, path, json.as_deref())?)
    }

    /// Sends text and returns the answer's.
    pub fn call(&self, method: &str, path: &str, body: Option<&str>) -> Result<String, Unanswered> {
        self.call_for(method, path, body, Duration::ZERO)
    }

    /// What the first of the addresses answers, whoever leads: status and text.
    pub fn ask(&self, method: &str, path: &str, body: Option<&str>) -> Result<(u16, String), Unanswered> {
        let url = self.urls.first().map_or("", String::as_str);
        self.exchange(url, method, path, body, self.patience)
    }

    /// Asks the one that answered last, then the others, and whoever is named as the leader meanwhile.
    fn call_for(
        &self,
        method: &str,
        path: &str,
        body: Option<&str>,
        wait: Duration,
    ) -> Result<String, Unanswered> {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut asked: Vec<String> = Vec::new();
        let mut next: Vec<String> = self.urls.iter().rev().cloned().collect();
        next.push(last);
        let mut away = Vec::new();
        while let Some(url) = next.pop() {
            if asked.contains(&url) {
                continue;
            }
            let answer = self.call_one(&url, method, path, body, self.patience + wait);
            asked.push(url.clone());
            match answer {
                Err((Unanswered::Away(why), leader)) => {
                    away.push(format!("{url}: {why}"));
                    // At most as many are named as there are arbiters; a chain of names is no reason to
                    // go on for ever.
                    if asked.len() < 2 * self.urls.len() + 2 {
                        next.extend(leader.map(|l| l.trim_end_matches('/').to_owned()));
                    }
                }
                other => {
                    *self.last.lock().unwrap_or_else(PoisonError::into_inner) = url;
                    return other.map_err(|(e, _)| e);
                }
            }
        }
        Err(Unanswered::Away(away.join("; ")))
    }

    /// One arbiter's answer, or why there is none and who leads instead.
    fn call_one(
        &self,
        url: &str,
        method: &str,
        path: &str,
        body: Option<&str>,
        patience: Duration,
    ) -> Result<String, (Unanswered, Option<String>)> {
        let (status, text) = self.exchange(url, method, path, body, patience).map_err(|e| (e, None))?;
        if (200..300).contains(&status) {
            return Ok(text);
        }
        let mut problem = serde_json::from_str::<Problem>(&text)
            .unwrap_or_else(|_| Problem { error: format!("status {status}"), leader: None });
        let leader = problem.leader.take().filter(|l| l.starts_with("http://"));
        Err((Unanswered::new(status, problem), leader))
    }

    /// One question and one arbiter's answer: status and text.
    fn exchange(
        &self,
        url: &str,
        method: &str,
        path: &str,
        body: Option<&str>,
        patience: Duration,
    ) -> Result<(u16, String), Unanswered> {
        let away = |e: &dyn std::fmt::Display| Unanswered::Away(e.to_string());
        let mut request = ureq::http::Request::builder().method(method).uri(format!("{url}{path}"));
        if let Some(secret) = &self.secret {
            request = request.header("authorization", format!("Bearer {}", secret.to_hex()));
        }
        if body.is_some() {
            request = request.header("content-type", "application/json");
        }
        let request = request
            .body(body.unwrap_or_default().to_owned())
            .map_err(|e| Unanswered::Refused(e.to_string()))?;
        let request = self.agent.configure_request(request).timeout_global(Some(patience)).build();
        let mut answer = self.agent.run(request).map_err(|e| away(&e))?;
        let text = answer.body_mut().with_config().limit(ANSWER).read_to_string().map_err(|e| away(&e))?;
        Ok((answer.status().as_u16(), text))
    }
}

fn read<T: DeserializeOwned>(text: &str) -> Result<T, Unanswered> {
    let text = if text.is_empty() { "null" } else { text };
    serde_json::from_str(text).map_err(|e| Unanswered::Refused(format!("an answer that is none: {e}")))
}

fn job_path(id: &str) -> String {
    format!("{JOBS_PATH}/{}", in_path(id))
}

/// A name as it stands in a path.
pub fn in_path(name: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_.~".contains(&b);
    name.bytes().map(|b| if plain(b) { char::from(b).to_string() } else { format!("%{b:02X}") }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader, Write};
    use std::net::TcpListener;

    /// Somebody who answers every request with the same status and body, `times` times.
    fn answering(status: u16, body: String, times: usize) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        std::thread::spawn(move || {
            for stream in listener.incoming().take(times) {
                let mut stream = stream.unwrap();
                let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
                while lines.next().is_some_and(|l| l.is_ok_and(|l| !l.is_empty())) {}
                let head = format!("HTTP/1.1 {status} X\r\ncontent-length: {}\r\n", body.len());
                let _ = stream.write_all(format!("{head}connection: close\r\n\r\n{body}").as_bytes());
            }
        });
        url
    }

    #[test]
    fn the_leader_is_found_wherever_it_stands_in_the_list() {
        let leader = answering(200, "7".into(), 3);
        let standby = answering(421, r#"{"error": "not I"}"#.into(), 1);
        let client = Client::new(&format!("{standby},{leader}"), None).unwrap();
        assert_eq!(client.get::<u32>("/v1/x"), Ok(7));
        // It is asked first from now on: the one that stands by would not answer a second time.
        assert_eq!(client.get::<u32>("/v1/x"), Ok(7));
        // One that is not in the list is found where it is named.
        let naming = answering(421, format!(r#"{{"error": "not I", "leader": "{leader}"}}"#), 1);
        assert_eq!(Client::new(&naming, None).unwrap().get::<u32>("/v1/x"), Ok(7));
    }

    #[test]
    fn who_is_final_and_who_is_away() {
        let no = answering(409, r#"{"error": "taken"}"#.into(), 1);
        let client = Client::new(&no, None).unwrap();
        assert_eq!(client.get::<u32>("/v1/x"), Err(Unanswered::Refused("taken".into())));
        // Nobody leads: the two name each other, and the question ends.
        let a = answering(421, r#"{"error": "not I", "leader": "http://127.0.0.1:1"}"#.into(), 1);
        let said = Client::new(&a, None).unwrap().get::<u32>("/v1/x").unwrap_err();
        assert!(matches!(&said, Unanswered::Away(why) if why.contains("not I")), "{said}");
        for wrong in ["", ",", "login1:7410", "https://a:1", "http://a:1,b:2"] {
            assert!(Client::new(wrong, None).is_err(), "{wrong}");
        }
        assert_eq!(in_path("a b/ü"), "a%20b%2F%C3%BC");
    }
}
