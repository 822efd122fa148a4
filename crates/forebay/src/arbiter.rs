//! Where the arbiter is, for the commands that talk to it.

use anyhow::{Context, Result};
use clap::{Args, ValueHint};
use forebay_control::client::Client;
use forebay_types::Secret;
use std::path::PathBuf;

/// Where the arbiter is when nobody says so.
const DEFAULT: &str = "http://127.0.0.1:7410";

/// Where the arbiter is, and as whom it is asked.
#[derive(Args, Clone)]
pub(crate) struct Where {
    /// The arbiter's address; with several, separated by commas, whichever leads
    /// [default: $FOREBAY_ARBITER, or http://127.0.0.1:7410].
    #[arg(long, value_name = "URL", value_hint = ValueHint::Url)]
    arbiter: Option<String>,
    #[command(flatten)]
    pub(crate) secret: SecretFile,
}

impl Where {
    /// For a command that only looks, which some arbiters let anybody do.
    pub(crate) fn looks(&self) -> Result<Client> {
        Ok(Client::who_looks(&self.url(), self.secret.if_readable()?)?)
    }

    /// For a command that changes something, or asks what is not for everybody.
    pub(crate) fn client(&self) -> Result<Client> {
        self.secret.client(&self.url())
    }

    fn url(&self) -> String {
        self.arbiter.clone().or_else(from_environment).unwrap_or_else(|| DEFAULT.to_owned())
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
    /// Whether the command line names one.
    pub(crate) fn is_given(&self) -> bool {
        self.secret_file.is_some()
    }

    /// Where it is, if that was said.
    pub(crate) fn path(&self) -> Option<PathBuf> {
        let named = || std::env::var_os("FOREBAY_SECRET_FILE").filter(|v| !v.is_empty()).map(PathBuf::from);
        self.secret_file.clone().or_else(named)
    }

    /// The secret, if one was given.
    pub(crate) fn find(&self) -> Result<Option<Secret>> {
        Ok(self.path().map(|path| Secret::read(&path)).transpose()?)
    }

    /// The same, for a command that also works without: only a file that was named on the command line has to be
    /// readable, since the environment may name one that is not for everybody.
    pub(crate) fn if_readable(&self) -> Result<Option<Secret>> {
        if self.secret_file.is_some() { self.find() } else { Ok(self.find().ok().flatten()) }
    }

    pub(crate) fn read(&self) -> Result<Secret> {
        self.find()?.context("a secret is needed: give --secret-file, or set FOREBAY_SECRET_FILE")
    }

    /// A client that the arbiter knows: by the secret, or by MUNGE.
    pub(crate) fn client(&self, urls: &str) -> Result<Client> {
        let client = Client::of_user(urls, self.find()?)?;
        Ok(client.is_somebody().map(|()| client)?)
    }
}

/// What the environment says.
pub(crate) fn from_environment() -> Option<String> {
    std::env::var("FOREBAY_ARBITER").ok().filter(|v| !v.is_empty())
}
