//! Talking to the arbiter over HTTP, for the commands that do.

use anyhow::{Context, Result, anyhow, bail};
use clap::{Args, ValueHint};
use forebay_control::job::Problem;
use forebay_types::Secret;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Where the arbiter is when nobody says so.
const DEFAULT: &str = "http://127.0.0.1:7410";

/// The largest answer that is read.
const ANSWER: u64 = 64 << 20;

/// Where the arbiter is, for commands that only ask.
#[derive(Args, Clone)]
pub(crate) struct Where {
    /// The arbiter's address; with several, separated by commas, whichever leads
    /// [default: $FOREBAY_ARBITER, or http://127.0.0.1:7410].
    #[arg(long, value_name = "URL", value_hint = ValueHint::Url)]
    arbiter: Option<String>,
}

impl Where {
    pub(crate) fn client(&self) -> Result<Arbiter> {
        let url = self.arbiter.clone().or_else(from_environment);
        Arbiter::new(url.as_deref().unwrap_or(DEFAULT), None)
    }

    /// For a command that changes something.
    pub(crate) fn client_with(&self, secret: &SecretFile) -> Result<Arbiter> {
        let url = self.arbiter.clone().or_else(from_environment);
        Arbiter::new(url.as_deref().unwrap_or(DEFAULT), Some(secret.read()?))
    }
}

/// The secret of an arbiter or an I/O node, for commands that need it.
#[derive(Args, Clone)]
pub(crate) struct SecretFile {
    /// The file with the secret of the arbiter and its I/O nodes [default: $FOREBAY_SECRET_FILE].
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    secret_file: Option<PathBuf>,
}

impl SecretFile {
    pub(crate) fn read(&self) -> Result<String> {
        let path = self
            .secret_file
            .clone()
            .or_else(|| std::env::var_os("FOREBAY_SECRET_FILE").filter(|v| !v.is_empty()).map(PathBuf::from));
        let path = path.context("a secret is needed: give --secret-file, or set FOREBAY_SECRET_FILE")?;
        Ok(Secret::read(&path)?.to_hex())
    }
}

/// What the environment says.
pub(crate) fn from_environment() -> Option<String> {
    std::env::var("FOREBAY_ARBITER").ok().filter(|v| !v.is_empty())
}

/// The arbiter, or several of which one leads.
pub(crate) struct Arbiter {
    urls: Vec<String>,
    /// The one that answered last.
    last: AtomicUsize,
    secret: Option<String>,
    agent: ureq::Agent,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unanswered {
    /// The arbiter says no.
    #[error("{0}")]
    Refused(String),
    /// There is no such thing.
    #[error("{0}")]
    NotFound(String),
    /// Nobody answers, or nobody that leads.
    #[error("the arbiter does not answer: {0}")]
    Away(String),
}

impl Arbiter {
    pub(crate) fn new(urls: &str, secret: Option<String>) -> Result<Arbiter> {
        let urls: Vec<String> = urls
            .split(',')
            .map(|u| u.trim().trim_end_matches('/').to_owned())
            .filter(|u| !u.is_empty())
            .collect();
        if urls.is_empty() || urls.iter().any(|u| !u.starts_with("http://")) {
            bail!("`{}` is no arbiter's address: write http://HOST:PORT", urls.join(","));
        }
        let config = ureq::Agent::config_builder()
            .timeout_global(Some(Duration::from_secs(10)))
            .timeout_connect(Some(Duration::from_secs(2)))
            .http_status_as_error(false)
            .build();
        Ok(Arbiter { urls, last: AtomicUsize::new(0), secret, agent: config.into() })
    }

    /// What a path shows.
    pub(crate) fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T> {
        let text = self.call("GET", path, None)?;
        serde_json::from_str(&text).map_err(|e| anyhow!("the arbiter's answer to {path}: {e}"))
    }

    /// Sends something and reads the answer.
    pub(crate) fn send<T: DeserializeOwned>(
        &self,
        method: &str,
        path: &str,
        body: Option<&impl Serialize>,
    ) -> Result<T, Unanswered> {
        let json =
            body.map(serde_json::to_string).transpose().map_err(|e| Unanswered::Refused(e.to_string()))?;
        let text = self.call(method, path, json.as_deref())?;
        let text = if text.is_empty() { "null" } else { &text };
        serde_json::from_str(text).map_err(|e| Unanswered::Refused(format!("an answer that is none: {e}")))
    }

    /// Tries the addresses in turn, beginning with the one that answered last.
    pub(crate) fn call(&self, method: &str, path: &str, body: Option<&str>) -> Result<String, Unanswered> {
        let first = self.last.load(Ordering::Relaxed);
        let mut away = String::new();
        for i in 0..self.urls.len() {
            let at = (first + i) % self.urls.len();
            match self.call_one(&self.urls[at], method, path, body) {
                Err(Unanswered::Away(why)) => away = format!("{}: {why}", self.urls[at]),
                other => {
                    self.last.store(at, Ordering::Relaxed);
                    return other;
                }
            }
        }
        Err(Unanswered::Away(away))
    }

    fn call_one(
        &self,
        url: &str,
        method: &str,
        path: &str,
        body: Option<&str>,
    ) -> Result<String, Unanswered> {
        let away = |e: &dyn std::fmt::Display| Unanswered::Away(e.to_string());
        let mut request = ureq::http::Request::builder().method(method).uri(format!("{url}{path}"));
        if let Some(secret) = &self.secret {
            request = request.header("authorization", format!("Bearer {secret}"));
        }
        let refused = |e: ureq::http::Error| Unanswered::Refused(e.to_string());
        let answer = match body {
            Some(json) => {
                let request = request.header("content-type", "application/json");
                self.agent.run(request.body(json).map_err(refused)?)
            }
            None => self.agent.run(request.body(()).map_err(refused)?),
        };
        let mut answer = answer.map_err(|e| away(&e))?;
        let status = answer.status();
        let text = answer.body_mut().with_config().limit(ANSWER).read_to_string().map_err(|e| away(&e))?;
        if status.is_success() {
            return Ok(text);
        }
        let why = serde_json::from_str::<Problem>(&text).map_or_else(|_| status.to_string(), |p| p.error);
        Err(match status.as_u16() {
            404 => Unanswered::NotFound(why),
            503 | 504 => Unanswered::Away(why),
            _ => Unanswered::Refused(why),
        })
    }
}

/// A name as it stands in a path.
pub(crate) fn in_path(name: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_.~".contains(&b);
    name.bytes().map(|b| if plain(b) { char::from(b).to_string() } else { format!("%{b:02X}") }).collect()
}
