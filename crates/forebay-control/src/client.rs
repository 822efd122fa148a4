//! The one client of the arbiter's HTTP API. It is given one address or several, and follows the leader:
//! whoever does not lead is not taken at his word, and whom he names is asked.

use crate::JOBS_PATH;
use crate::claim::{Claim, SCHEME};
use crate::job::{JobGrant, JobRequest, PinRequest, Problem};
use crate::limit::{LIMITS_PATH, Limit, LimitView, Subject};
use crate::private::{self, arbiter_user, authority};
use crate::status::Unanswered;
use crate::view::BlameView;
use forebay_types::{Epoch, NodeId, Secret};
use forebay_who::Munge;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use ureq::tls::{Certificate, RootCerts, TlsConfig};

/// The largest answer that is read.
const ANSWER: u64 = 64 << 20;

/// How long an arbiter has for its answer, over what it was asked to wait.
const PATIENCE: Duration = Duration::from_secs(10);

/// How much longer it has if its I/O nodes are to go through what they remember.
const RECALL: Duration = Duration::from_secs(10);

/// How long it has to take the connection.
const CONNECT: Duration = Duration::from_secs(2);

/// Why there is no client.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    /// That is no arbiter's address.
    #[error(
        "{0:?} is no arbiter's address: write https://HOST:PORT or http://HOST:PORT, several separated by commas"
    )]
    Address(String),
    /// Nobody could tell whether it is one.
    #[error("https: {0}")]
    Authority(String),
}

/// Nobody can tell who asks.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a secret is needed, or MUNGE: give --secret-file, or set FOREBAY_SECRET_FILE; {0}")]
pub struct Nobody(String);

/// How it is shown who asks.
enum Key {
    /// Not at all, and why not by MUNGE.
    None(String),
    /// By the secret that the arbiter and its nodes share.
    Secret(Secret),
    /// By credentials that only the user of this number can read, as whom the arbiter runs.
    Munge(Munge, u32),
}

/// The arbiter, or several of which one leads.
pub struct Client {
    urls: Vec<String>,
    /// The one that answered last; perhaps none of `urls` but one that was named as the leader.
    last: Mutex<String>,
    key: Key,
    looks: bool,
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
        let Some(first) = all.first().filter(|_| all.iter().all(|u| authority(u).is_some())) else {
            return Err(UrlError::Address(urls.to_owned()));
        };
        let mut tls = TlsConfig::builder()
            .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()));
        if all.iter().any(|u| u.starts_with("https://")) {
            let authorities = private::authorities().map_err(UrlError::Authority)?;
            let all = authorities.iter().map(|c| Certificate::from_der(c).to_owned());
            tls = tls.root_certs(RootCerts::new_with_certs(&all.collect::<Vec<_>>()));
        }
        let config = ureq::Agent::config_builder()
            .tls_config(tls.build())
            .proxy(None)
            .timeout_connect(Some(CONNECT))
            .http_status_as_error(false)
            .build();
        let last = Mutex::new(first.clone());
        let key = secret.map_or_else(|| Key::None("MUNGE was not asked".to_owned()), Key::Secret);
        Ok(Client { last, urls: all, key, looks: false, patience: PATIENCE, agent: config.into() })
    }

    /// As [`Client::new`] for a user: without a secret it is proved with MUNGE who asks, if this machine has it.
    pub fn of_user(urls: &str, secret: Option<Secret>) -> Result<Client, UrlError> {
        let mut client = Client::new(urls, secret)?;
        let munge = Munge::new(None);
        if matches!(client.key, Key::None(_)) {
            client.key = match munge.encode(b"", 0) {
                Ok(_) => Key::Munge(munge, arbiter_user()),
                Err(e) => Key::None(e.to_string()),
            };
        }
        Ok(client)
    }

    /// As [`Client::of_user`] for one who only looks: an arbiter that may not hear who asks is asked by nobody, which it
    /// may allow.
    pub fn who_looks(urls: &str, secret: Option<Secret>) -> Result<Client, UrlError> {
        Ok(Client { looks: true, ..Client::of_user(urls, secret)? })
    }

    /// Who is asked, and the secret if that shows who asks: enough for another process to be the same to them.
    pub fn access(&self) -> (String, Option<Secret>) {
        let secret = if let Key::Secret(secret) = &self.key { Some(secret.clone()) } else { None };
        (self.urls.join(","), secret)
    }

    /// Whether it is shown who asks.
    pub fn is_somebody(&self) -> Result<(), Nobody> {
        if let Key::None(why) = &self.key { Err(Nobody(why.clone())) } else { Ok(()) }
    }

    /// Gives every arbiter this long for an answer.
    pub fn with_patience(mut self, patience: Duration) -> Client {
        self.patience = patience;
        self
    }

    /// A job begins, or says again that it runs.
    pub fn register(&self, job: &JobRequest) -> Result<JobGrant, Unanswered> {
        if !matches!(self.key, Key::Munge(..)) {
            return self.send("POST", JOBS_PATH, Some(job));
        }
        // Chosen here, and told in the credential: nobody else ever hears it.
        let told = job.secret.as_deref().map(|s| Secret::from_hex(s).ok_or("the job's secret is none"));
        let secret = told.unwrap_or_else(|| Secret::random().map_err(|_| "there are no random numbers"));
        let secret = secret.map_err(|e| Unanswered::Refused(e.to_owned()))?;
        let request = JobRequest { secret: None, ..job.clone() };
        let json = serde_json::to_string(&request).map_err(|e| Unanswered::Refused(e.to_string()))?;
        let asked = ApiRequest { method: "POST", path: JOBS_PATH, body: Some(&json), secret: Some(&secret) };
        let grant: JobGrant = read(&self.call_for(&asked, Duration::ZERO)?)?;
        Ok(JobGrant { secret: Some(secret.to_hex()), ..grant })
    }

    /// That run of a job goes on.
    pub fn renew(&self, id: &str, run: u32) -> Result<JobGrant, Unanswered> {
        self.send("PUT", &format!("{}/lease?run={run}", job_path(id)), None::<&()>)
    }

    /// That run of a job goes on: the answer comes when its mapping is no longer the `known` one, at the latest after
    /// `wait`.
    pub fn follow(&self, id: &str, run: u32, known: Epoch, wait: Duration) -> Result<JobGrant, Unanswered> {
        let path = format!("{}/lease?run={run}&known={known}&wait_ms={}", job_path(id), wait.as_millis());
        read(&self.call_for(&ApiRequest { method: "PUT", path: &path, body: None, secret: None }, wait)?)
    }

    /// A job is to end, whoever runs it.
    pub fn end(&self, id: &str) -> Result<(), Unanswered> {
        self.send("DELETE", &job_path(id), None::<&()>)
    }

    /// That run of a job has ended, and with the last of them the job. One that failed says nothing of what the
    /// next will do.
    pub fn end_run(&self, id: &str, run: u32, failed: bool) -> Result<(), Unanswered> {
        self.send("DELETE", &format!("{}?run={run}&failed={failed}", job_path(id)), None::<&()>)
    }

    /// A job is to be on these I/O nodes; none leaves it to the policy again.
    pub fn pin(&self, id: &str, nodes: Vec<NodeId>) -> Result<JobGrant, Unanswered> {
        self.send("PUT", &format!("{}/nodes", job_path(id)), Some(&PinRequest { nodes }))
    }

    /// Who slowed a job, and what would have been under another scheduler.
    pub fn blame(&self, id: &str, what_if: Option<&str>) -> Result<BlameView, Unanswered> {
        let what_if = what_if.map_or(String::new(), |spec| format!("?what_if={}", in_path(spec)));
        let path = format!("{}/blame{what_if}", job_path(id));
        read(&self.call_for(&ApiRequest { method: "GET", path: &path, body: None, secret: None }, RECALL)?)
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
        self.call_for(&ApiRequest { method, path, body, secret: None }, Duration::ZERO)
    }

    /// What the first of the addresses answers, whoever leads: status and text.
    pub fn ask(&self, method: &str, path: &str, body: Option<&str>) -> Result<(u16, String), Unanswered> {
        let url = self.urls.first().map_or("", String::as_str);
        self.exchange(url, &ApiRequest { method, path, body, secret: None }, self.patience)
    }

    /// Asks the one that answered last, then the others, and whoever is named as the leader meanwhile.
    fn call_for(&self, asked: &ApiRequest<'_>, wait: Duration) -> Result<String, Unanswered> {
        let question = asked;
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut asked: Vec<String> = Vec::new();
        let mut next: Vec<String> = self.urls.iter().rev().cloned().collect();
        next.push(last);
        let (mut away, mut untrusted) = (Vec::new(), true);
        while let Some(url) = next.pop() {
            if asked.contains(&url) {
                continue;
            }
            let answer = self.call_one(&url, question, self.patience + wait);
            asked.push(url.clone());
            match answer {
                Err((Unanswered::Untrusted(why), _)) => away.push(format!("{url}: {why}")),
                Err((Unanswered::Away(why), leader)) => {
                    untrusted = false;
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
        let away = away.join("; ");
        // One of several that is not trusted does not speak for the others.
        Err(if untrusted { Unanswered::Untrusted(away) } else { Unanswered::Away(away) })
    }

    /// One arbiter's answer, or why there is none and who leads instead.
    fn call_one(
        &self,
        url: &str,
        asked: &ApiRequest<'_>,
        patience: Duration,
    ) -> Result<String, (Unanswered, Option<String>)> {
        let (status, text) = self.exchange(url, asked, patience).map_err(|e| (e, None))?;
        if (200..300).contains(&status) {
            return Ok(text);
        }
        let mut problem = serde_json::from_str::<Problem>(&text).unwrap_or_else(|_| Problem {
            error: format!("{url} is no arbiter: it answers with status {status}"),
            leader: None,
        });
        let leader = problem.leader.take().filter(|l| authority(l).is_some());
        Err((Unanswered::new(status, problem), leader))
    }

    /// One question and one arbiter's answer: status and text.
    fn exchange(
        &self,
        url: &str,
        asked: &ApiRequest<'_>,
        patience: Duration,
    ) -> Result<(u16, String), Unanswered> {
        let ApiRequest { method, path, body, .. } = *asked;
        let away = |e: ureq::Error| match e {
            ureq::Error::Io(e) => Unanswered::Away(e.to_string()),
            ureq::Error::Timeout(_) => {
                Unanswered::Away(format!("nothing was heard for {} s", patience.as_secs_f64()))
            }
            e => Unanswered::Away(e.to_string()),
        };
        let mut request = ureq::http::Request::builder().method(method).uri(format!("{url}{path}"));
        match &self.key {
            Key::None(_) => {}
            Key::Secret(_) if self.looks && method == "GET" && private::may_hear(url).is_err() => {}
            Key::Secret(secret) => {
                private::may_hear(url).map_err(Unanswered::Refused)?;
                request = request.header("authorization", format!("Bearer {}", secret.to_hex()));
            }
            // Whoever hears a credential can use it, once. Who only looks may do so without one.
            Key::Munge(..) if method == "GET" && private::may_hear(url).is_err() => {}
            Key::Munge(munge, reader) => {
                private::may_hear(url).map_err(Unanswered::Refused)?;
                let body = body.unwrap_or_default().as_bytes();
                let claim = Claim::new(method, path, body, asked.secret.cloned());
                let credential = munge.encode(&claim.to_bytes(), *reader);
                let credential = credential.map_err(|e| Unanswered::Refused(e.to_string()))?;
                request = request.header("authorization", format!("{SCHEME}{credential}"));
            }
        }
        if body.is_some() {
            request = request.header("content-type", "application/json");
        }
        let request = request
            .body(body.unwrap_or_default().to_owned())
            .map_err(|e| Unanswered::Refused(e.to_string()))?;
        let request = self.agent.configure_request(request).timeout_global(Some(patience)).build();
        let untrusted = |e: &rustls::Error| matches!(e, rustls::Error::InvalidCertificate(_));
        let mut answer = self.agent.run(request).map_err(|e| match &e {
            ureq::Error::Io(io) if io.get_ref().and_then(|e| e.downcast_ref()).is_some_and(untrusted) => {
                Unanswered::Untrusted(e.to_string())
            }
            ureq::Error::Rustls(tls) if untrusted(tls) => Unanswered::Untrusted(e.to_string()),
            _ => away(e),
        })?;
        let text = answer.body_mut().with_config().limit(ANSWER).read_to_string().map_err(away)?;
        Ok((answer.status().as_u16(), text))
    }
}

/// One question.
struct ApiRequest<'a> {
    method: &'a str,
    path: &'a str,
    body: Option<&'a str>,
    /// What is said in confidence along with it.
    secret: Option<&'a Secret>,
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
        for wrong in [
            "",
            ",",
            "login1:7410",
            "ftp://a:1",
            "http://a:1,b:2",
            "http://a:99999",
            "http://a:0",
            "http://[::1]x",
            "http://:1",
        ] {
            assert!(Client::new(wrong, None).is_err(), "{wrong}");
        }
        assert_eq!(in_path("a b/ü"), "a%20b%2F%C3%BC");
    }
}
