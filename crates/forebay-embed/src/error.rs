//! Why something could not be started.

use std::path::PathBuf;

/// What went wrong, with which file or node, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum EmbedError {
    /// A file of the run's own directory.
    #[error("{what} {}: {source}", path.display())]
    Io {
        /// What was tried.
        what: &'static str,
        /// With which file.
        path: PathBuf,
        /// The system's answer.
        source: std::io::Error,
    },
    /// A directory to export that is none.
    #[error("{} is not a directory this machine can read: {source}", path.display())]
    Export {
        /// The directory.
        path: PathBuf,
        /// The system's answer.
        source: std::io::Error,
    },
    /// A node or an arbiter did not come up.
    #[error("{what} did not start: {why}")]
    Start {
        /// Which.
        what: String,
        /// What was seen.
        why: String,
    },
    /// An unusable argument.
    #[error("{0}")]
    Argument(String),
}

impl EmbedError {
    pub(crate) fn io(
        what: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(std::io::Error) -> EmbedError {
        let path = path.into();
        move |source| EmbedError::Io { what, path, source }
    }
}
