//! etcd's JSON gateway, as far as it is needed: read, watch, guarded write, lease. Every call has a deadline
//! and tries the endpoints in turn until it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use forebay_control::private;
use rustls::pki_types::CertificateDer;
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};
use std::io::BufRead as _;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use ureq::tls::{Certificate, ClientCert, PrivateKey, RootCerts, TlsConfig};

/// One endpoint gets no longer than this before the next is tried.
const TRY: Duration = Duration::from_secs(1);
/// Between two rounds over all endpoints.
const PAUSE: Duration = Duration::from_millis(100);
/// An answer is not read beyond this.
const LONGEST_ANSWER: u64 = 64 << 20;
/// Of a watch that sees one change at most.
const LONGEST_WATCH: u64 = 1 << 20;
/// Pairs read at once.
const PAGE: usize = 200;

/// Where etcd is: `etcds://HOST:PORT,HOST:PORT`, by TLS, or `etcd://…` on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EtcdUrl {
    endpoints: Vec<String>,
}

impl FromStr for EtcdUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<EtcdUrl, String> {
        let wrong = |why: String| format!("`{text}`: {why}; write etcds://HOST:PORT,HOST:PORT,…");
        let (list, scheme) = match (text.strip_prefix("etcds://"), text.strip_prefix("etcd://")) {
            (Some(list), _) => (list, "https"),
            (_, Some(list)) => (list, "http"),
            _ => return Err(wrong("no etcds:// or etcd:// at the front".into())),
        };
        let endpoint = |e: &str| match e.rsplit_once(':') {
            Some((host, port))
                if !host.is_empty()
                    && !host.contains(['/', '@', '?', '#', ' '])
                    && port.parse::<u16>().is_ok_and(|p| p > 0) =>
            {
                let url = format!("{scheme}://{e}");
                // It holds the secrets of all jobs.
                if private::may_know(&url) {
                    Ok(url)
                } else {
                    Err(wrong(format!("{e} is another machine, and etcd:// has no TLS")))
                }
            }
            _ => Err(wrong(format!("`{e}` is no HOST:PORT"))),
        };
        let endpoints = list.trim_end_matches('/').split(',').map(endpoint).collect::<Result<Vec<_>, _>>()?;
        if endpoints.len() > 16 {
            return Err(wrong("more than 16 endpoints".into()));
        }
        Ok(EtcdUrl { endpoints })
    }
}

/// Whose word counts for etcd's certificates, and what is shown to an etcd that wants to know who comes: PEM files.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EtcdTls {
    /// Without it: the authority that counts for arbiters.
    pub ca: Option<PathBuf>,
    /// A certificate for clients.
    pub certificate: Option<PathBuf>,
    /// Its key, which nobody else may read.
    pub key: Option<PathBuf>,
}

impl EtcdTls {
    /// With files below `base`.
    pub(crate) fn below(self, base: &Path) -> EtcdTls {
        let at = |file: Option<PathBuf>| file.map(|f| base.join(f));
        EtcdTls { ca: at(self.ca), certificate: at(self.certificate), key: at(self.key) }
    }

    fn config(&self) -> Result<TlsConfig, String> {
        let shown = |all: Vec<CertificateDer<'static>>| -> Vec<Certificate<'static>> {
            all.iter().map(|c| Certificate::from_der(c).to_owned()).collect()
        };
        let trusted = match &self.ca {
            Some(file) => private::certificates(file)?,
            None => private::authorities()?,
        };
        let own = match (&self.certificate, &self.key) {
            (Some(certificate), Some(key)) => {
                let fail = |e: &dyn std::fmt::Display| format!("{}: {e}", key.display());
                // Nobody else may read it.
                private::private_key(key)?;
                let text = std::fs::read(key).map_err(|e| fail(&e))?;
                let key = PrivateKey::from_pem(&text).map_err(|e| fail(&e))?;
                Some(ClientCert::new_with_certs(&shown(private::certificates(certificate)?), key))
            }
            (None, None) => None,
            _ => return Err("[etcd]: give `certificate` and `key`, or neither".to_owned()),
        };
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = TlsConfig::builder().unversioned_rustls_crypto_provider(provider);
        Ok(tls.root_certs(RootCerts::new_with_certs(&shown(trusted))).client_cert(own).build())
    }
}

/// Why etcd did not do what it was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EtcdError {
    /// No endpoint answered in time.
    #[error("no etcd endpoint answered in time ({what}); tried {endpoints}; last: {why}")]
    Unreachable {
        /// The call.
        what: &'static str,
        /// All of them.
        endpoints: String,
        /// The last endpoint's failure.
        why: String,
    },
    /// etcd said no.
    #[error("etcd refused {what}: {why}")]
    Refused {
        /// The call.
        what: &'static str,
        /// etcd's words.
        why: String,
    },
}

/// A key, its value and where it comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pair {
    /// The key.
    pub key: String,
    /// Its value.
    pub value: String,
    /// The revision that created the key: larger for every new key.
    pub created: u64,
    /// The lease it ends with; 0 is none.
    pub lease: u64,
}

/// What becomes of a key: a value, or none.
pub type Write = (String, Option<String>);

/// The outcome of a guarded write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Guarded {
    /// Written, at this revision.
    Done(u64),
    /// The guard did not hold, and nothing was written; this is the guarding key now.
    Not(Option<Pair>),
}

/// A client of one etcd cluster.
pub struct Etcd {
    agent: ureq::Agent,
    endpoints: Vec<String>,
    /// The endpoint that answered last.
    good: AtomicUsize,
}

impl Etcd {
    /// Connects when it is first used. Certificates and keys are read now.
    pub fn new(url: &EtcdUrl, tls: &EtcdTls) -> Result<Etcd, String> {
        let mut config = ureq::Agent::config_builder()
            .proxy(None)
            .http_status_as_error(false)
            .max_redirects(0)
            .timeout_global(Some(TRY));
        if url.endpoints.iter().any(|e| e.starts_with("https://")) {
            config = config.tls_config(tls.config()?);
        }
        let agent = config.build().into();
        Ok(Etcd { agent, endpoints: url.endpoints.clone(), good: AtomicUsize::new(0) })
    }

    /// The pair of this key, and the revision at which that is so.
    pub fn get(&self, key: &str, until: Instant) -> Result<(Option<Pair>, u64), EtcdError> {
        let answer: RangeAnswer = self.call("kv/range", &json!({ "key": encode(key) }), until)?;
        Ok((answer.kvs.into_iter().next().map(Kv::pair), answer.header.revision))
    }

    /// Waits until this key is deleted after `revision`: whether that was seen before `span` was over.
    pub fn await_deletion(&self, key: &str, revision: u64, span: Duration) -> Result<bool, EtcdError> {
        const WHAT: &str = "watch";
        let body = json!({ "create_request": {
            "key": encode(key), "start_revision": (revision + 1).to_string(), "filters": ["NOPUT"],
        } });
        let endpoint = &self.endpoints[self.good.load(Ordering::Relaxed) % self.endpoints.len()];
        let failed = |why: String| EtcdError::Unreachable { what: WHAT, endpoints: endpoint.clone(), why };
        let request = self.agent.post(format!("{endpoint}/v3/{WHAT}"));
        let config = request.config().timeout_global(Some(span)).build();
        let mut answer = match config.send_json(&body) {
            Ok(answer) => answer,
            Err(ureq::Error::Timeout(_)) => return Ok(false),
            Err(e) => return Err(failed(e.to_string())),
        };
        // A line for the beginning, and one for each change; some when nothing happens.
        let lines = std::io::BufReader::new(answer.body_mut().with_config().limit(LONGEST_WATCH).reader());
        for line in lines.lines() {
            let line = match line {
                Ok(line) => line,
                Err(e) if is_late(&e) => return Ok(false),
                Err(e) => return Err(failed(e.to_string())),
            };
            let said: Watched = serde_json::from_str(&line).map_err(|e| failed(e.to_string()))?;
            if !said.result.events.is_empty() {
                return Ok(true);
            }
            if said.result.canceled {
                return Err(EtcdError::Refused { what: WHAT, why: said.result.cancel_reason });
            }
        }
        Err(failed("it ended".to_owned()))
    }

    /// All pairs whose keys begin with `prefix`, as they are at one revision, in key order.
    pub fn all(&self, prefix: &str, until: Instant) -> Result<Vec<Pair>, EtcdError> {
        let end = encode_bytes(&after(prefix.as_bytes()));
        let (mut pairs, mut from, mut revision) = (Vec::new(), prefix.to_owned(), 0);
        loop {
            let body = json!({
                "key": encode(&from), "range_end": end, "limit": PAGE.to_string(), "revision": revision.to_string(),
            });
            let answer: RangeAnswer = self.call("kv/range", &body, until)?;
            revision = answer.header.revision;
            pairs.extend(answer.kvs.into_iter().map(Kv::pair));
            match pairs.last() {
                // The smallest key after the last one.
                Some(last) if answer.more => from = format!("{}\0", last.key),
                _ => return Ok(pairs),
            }
        }
    }

    /// Writes all or nothing, if `guard` was created at revision `created` (0: does not exist).
    pub fn write(
        &self,
        guard: &str,
        created: u64,
        writes: &[Write],
        lease: Option<u64>,
        until: Instant,
    ) -> Result<Guarded, EtcdError> {
        let operation = |(key, value): &Write| match value {
            Some(value) => json!({ "requestPut": {
                "key": encode(key), "value": encode(value), "lease": lease.unwrap_or(0).to_string(),
            } }),
            None => json!({ "requestDeleteRange": { "key": encode(key) } }),
        };
        let body = json!({
            "compare": [{
                "key": encode(guard), "target": "CREATE", "result": "EQUAL", "create_revision": created.to_string(),
            }],
            "success": writes.iter().map(operation).collect::<Vec<_>>(),
            "failure": [{ "requestRange": { "key": encode(guard) } }],
        });
        let answer: TxnAnswer = self.call("kv/txn", &body, until)?;
        if answer.succeeded {
            return Ok(Guarded::Done(answer.header.revision));
        }
        let range = answer.responses.into_iter().next().and_then(|r| r.response_range);
        Ok(Guarded::Not(range.and_then(|r| r.kvs.into_iter().next()).map(Kv::pair)))
    }

    /// A new lease of about so long: its number, and how long it really is.
    pub fn grant(&self, span: Duration, until: Instant) -> Result<(u64, Duration), EtcdError> {
        let answer: Lease = self.call("lease/grant", &json!({ "TTL": span.as_secs().max(1) }), until)?;
        Ok((answer.id, Duration::from_secs(answer.ttl)))
    }

    /// Renews a lease, for the span that is returned; `None` if it has ended.
    pub fn renew(&self, lease: u64, until: Instant) -> Result<Option<Duration>, EtcdError> {
        #[derive(Deserialize)]
        struct Answer {
            result: Lease,
        }
        let answer: Answer = self.call("lease/keepalive", &json!({ "ID": lease.to_string() }), until)?;
        Ok((answer.result.ttl > 0).then(|| Duration::from_secs(answer.result.ttl)))
    }

    /// Ends a lease and deletes what hangs on it.
    pub fn revoke(&self, lease: u64, until: Instant) -> Result<(), EtcdError> {
        let _: Value = self.call("lease/revoke", &json!({ "ID": lease.to_string() }), until)?;
        Ok(())
    }

    /// Repeating a call is harmless: all of them can be done twice.
    fn call<T: DeserializeOwned>(
        &self,
        what: &'static str,
        body: &Value,
        until: Instant,
    ) -> Result<T, EtcdError> {
        let mut why = "the time had already passed".to_owned();
        loop {
            let first = self.good.load(Ordering::Relaxed);
            for step in 0..self.endpoints.len() {
                let left = until.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    let endpoints = self.endpoints.join(", ");
                    return Err(EtcdError::Unreachable { what, endpoints, why });
                }
                let index = (first + step) % self.endpoints.len();
                match self.ask(&self.endpoints[index], what, body, left.min(TRY)) {
                    Ok(Answer::Value(value)) => {
                        self.good.store(index, Ordering::Relaxed);
                        return Ok(value);
                    }
                    Ok(Answer::Refused(why)) => return Err(EtcdError::Refused { what, why }),
                    Ok(Answer::NotNow(said)) => why = format!("{}: {said}", self.endpoints[index]),
                    Err(e) => why = format!("{}: {e}", self.endpoints[index]),
                }
            }
            std::thread::sleep(PAUSE.min(until.saturating_duration_since(Instant::now())));
        }
    }

    fn ask<T: DeserializeOwned>(
        &self,
        endpoint: &str,
        what: &str,
        body: &Value,
        span: Duration,
    ) -> Result<Answer<T>, ureq::Error> {
        let request = self.agent.post(format!("{endpoint}/v3/{what}"));
        let mut answer = request.config().timeout_global(Some(span)).build().send_json(body)?;
        let status = answer.status();
        let body = answer.body_mut().with_config().limit(LONGEST_ANSWER);
        if status.is_success() {
            return Ok(Answer::Value(body.read_json()?));
        }
        #[derive(Deserialize, Default)]
        struct Failure {
            #[serde(default)]
            error: String,
            #[serde(default)]
            code: u32,
        }
        let text = body.read_to_string().unwrap_or_default();
        let failure: Failure = serde_json::from_str(&text).unwrap_or_default();
        let said = if failure.error.is_empty() { format!("HTTP {status}") } else { failure.error };
        // gRPC's words for a request that can never succeed: invalid argument, not found, failed
        // precondition, out of range, unimplemented, unauthenticated, permission denied.
        let hopeless = matches!(failure.code, 3 | 5 | 7 | 9 | 11 | 12 | 16);
        Ok(if hopeless { Answer::Refused(said) } else { Answer::NotNow(said) })
    }
}

/// Whether a read ended because its time was over.
fn is_late(e: &std::io::Error) -> bool {
    let timeout = e.get_ref().and_then(|e| e.downcast_ref::<ureq::Error>());
    e.kind() == std::io::ErrorKind::TimedOut || matches!(timeout, Some(ureq::Error::Timeout(_)))
}

enum Answer<T> {
    Value(T),
    Refused(String),
    NotNow(String),
}

#[derive(Deserialize, Default)]
struct Header {
    #[serde(default, deserialize_with = "number")]
    revision: u64,
}

#[derive(Deserialize)]
struct Kv {
    #[serde(deserialize_with = "text")]
    key: String,
    #[serde(default, deserialize_with = "text")]
    value: String,
    #[serde(default, deserialize_with = "number")]
    create_revision: u64,
    #[serde(default, deserialize_with = "number")]
    lease: u64,
}

impl Kv {
    fn pair(self) -> Pair {
        Pair { key: self.key, value: self.value, created: self.create_revision, lease: self.lease }
    }
}

#[derive(Deserialize)]
struct Watched {
    result: WatchedResult,
}

#[derive(Deserialize)]
struct WatchedResult {
    #[serde(default)]
    events: Vec<Value>,
    #[serde(default)]
    canceled: bool,
    #[serde(default)]
    cancel_reason: String,
}

#[derive(Deserialize)]
struct RangeAnswer {
    #[serde(default)]
    header: Header,
    #[serde(default)]
    kvs: Vec<Kv>,
    #[serde(default)]
    more: bool,
}

#[derive(Deserialize)]
struct TxnAnswer {
    #[serde(default)]
    header: Header,
    #[serde(default)]
    succeeded: bool,
    #[serde(default)]
    responses: Vec<TxnPart>,
}

#[derive(Deserialize)]
struct TxnPart {
    response_range: Option<RangeAnswer>,
}

#[derive(Deserialize)]
struct Lease {
    #[serde(rename = "ID", default, deserialize_with = "number")]
    id: u64,
    #[serde(rename = "TTL", default, deserialize_with = "number")]
    ttl: u64,
}

/// The gateway writes 64-bit numbers as strings.
fn number<'de, D: Deserializer<'de>>(d: D) -> Result<u64, D::Error> {
    match Value::deserialize(d)? {
        Value::String(s) => s.parse().map_err(D::Error::custom),
        Value::Number(n) => n.as_u64().ok_or_else(|| D::Error::custom("not a whole number")),
        other => Err(D::Error::custom(format!("{other} is no number"))),
    }
}

fn text<'de, D: Deserializer<'de>>(d: D) -> Result<String, D::Error> {
    let bytes = BASE64.decode(String::deserialize(d)?).map_err(D::Error::custom)?;
    String::from_utf8(bytes).map_err(D::Error::custom)
}

fn encode(text: &str) -> String {
    encode_bytes(text.as_bytes())
}

fn encode_bytes(bytes: &[u8]) -> String {
    BASE64.encode(bytes)
}

/// The smallest key after all keys that begin with `prefix`.
fn after(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            return end;
        }
    }
    vec![0]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn urls() {
        let url: EtcdUrl = "etcds://a:2379,10.0.0.2:2379,[::1]:2379".parse().unwrap();
        assert_eq!(url.endpoints, ["https://a:2379", "https://10.0.0.2:2379", "https://[::1]:2379"]);
        let url: EtcdUrl = "etcd://localhost:2379,127.0.0.2:2379,[::1]:2379".parse().unwrap();
        assert_eq!(url.endpoints, ["http://localhost:2379", "http://127.0.0.2:2379", "http://[::1]:2379"]);
        for wrong in [
            "",
            "etcds://",
            "http://a:1",
            "etcds://a",
            "etcds://a:0",
            "etcds://a:1,,b:2",
            "etcds://a:1/x:2",
            "etcd://127.0.0.1:1,a:1",
        ] {
            let said = wrong.parse::<EtcdUrl>().unwrap_err();
            assert!(said.contains("etcds://HOST:PORT"), "{wrong}: {said}");
        }
        assert!("etcd://10.0.0.1:1".parse::<EtcdUrl>().unwrap_err().contains("no TLS"));
    }

    #[test]
    fn a_call_ends_when_its_time_is_over() {
        // A listener that never answers, and a port where nobody listens.
        let deaf = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let url = format!("etcd://{},{gone}", deaf.local_addr().unwrap());
        let etcd = Etcd::new(&url.parse().unwrap(), &EtcdTls::default()).unwrap();
        let start = Instant::now();
        let said = etcd.get("x", start + Duration::from_millis(400)).unwrap_err();
        assert!(matches!(said, EtcdError::Unreachable { .. }), "{said}");
        assert!(start.elapsed() < Duration::from_secs(5));
    }

    proptest! {
        #[test]
        fn the_end_of_a_range_holds_all_keys_with_the_prefix(
            prefix in prop::collection::vec(any::<u8>(), 1..6),
            more in prop::collection::vec(any::<u8>(), 0..6),
            other in prop::collection::vec(any::<u8>(), 1..8),
        ) {
            let end = after(&prefix);
            let within = |key: &[u8]| key >= &prefix[..] && (end == [0] || key < &end[..]);
            prop_assert!(within(&[&prefix[..], &more].concat()));
            prop_assert_eq!(within(&other), other.starts_with(&prefix));
        }
    }
}
