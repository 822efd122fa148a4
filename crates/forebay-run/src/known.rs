//! How I/O nodes that no arbiter leads know whose job comes: by a secret that they were given, or by MUNGE.

use anyhow::{Context, Result};
use forebay_client::{Address, Config, Vouch};
use forebay_types::Secret;
use forebay_who::Munge;
use forebay_wire::hello::JOB;
use std::path::Path;
use std::sync::Arc;

/// As whom a node runs that acts as others: only it can read what is said to it.
const ROOT: u32 = 0;

/// A job's client of these I/O nodes, under the secret of the file. Without one the job gets a secret of its own,
/// which is told to them in MUNGE credentials.
pub fn known_to(job: &str, secret_file: Option<&Path>, nodes: Vec<Address>) -> Result<Config> {
    if let Some(file) = secret_file {
        return Ok(Config::new(job, Secret::read(file)?.to_hex(), nodes));
    }
    let secret = Secret::random()?;
    let payload = [JOB, secret.as_bytes()].concat();
    let munge = Munge::new(None);
    // Whether there is MUNGE at all, and somebody to ask, is said now.
    munge.encode(&payload, ROOT).context("no --secret-file was given, so MUNGE is to say who asks")?;
    let vouch = move || munge.encode(&payload, ROOT).map_err(|e| e.to_string());
    Ok(Config { vouch: Some(Vouch(Arc::new(vouch))), ..Config::new(job, secret.to_hex(), nodes) })
}
