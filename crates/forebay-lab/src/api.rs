//! The arbiter's HTTP API, as far as experiments use it.

use anyhow::{Context, Result, bail};
use forebay_control::job::Problem;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::time::Duration;

/// An arbiter on this machine.
pub(crate) struct Api {
    url: String,
    secret: String,
    agent: ureq::Agent,
}

impl Api {
    pub(crate) fn new(port: u16, secret: &str) -> Api {
        let config = ureq::Agent::config_builder()
            .timeout_global(Some(Duration::from_secs(10)))
            .proxy(None)
            .http_status_as_error(false)
            .build();
        Api { url: format!("http://127.0.0.1:{port}"), secret: secret.into(), agent: config.into() }
    }

    /// What a path shows.
    pub(crate) fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T> {
        self.answer(path, self.agent.get(format!("{}{path}", self.url)).call())
    }

    /// Sends something and reads the answer.
    pub(crate) fn send<T: DeserializeOwned>(
        &self,
        method: &str,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T> {
        let url = format!("{}{path}", self.url);
        let request = if method == "PUT" { self.agent.put(url) } else { self.agent.post(url) };
        let answer = request.header("authorization", format!("Bearer {}", self.secret)).send_json(body);
        self.answer(path, answer)
    }

    fn answer<T: DeserializeOwned>(
        &self,
        path: &str,
        answer: Result<ureq::http::Response<ureq::Body>, ureq::Error>,
    ) -> Result<T> {
        let mut answer = answer.context("the arbiter does not answer")?;
        let text = answer.body_mut().with_config().limit(64 << 20).read_to_string()?;
        if !answer.status().is_success() {
            let why = serde_json::from_str::<Problem>(&text).map_or(text, |p| p.error);
            bail!("{path}: {why}");
        }
        serde_json::from_str(&text).with_context(|| format!("the arbiter's answer to {path}"))
    }
}
