//! Forebay's second front end: a forwarded directory as a mounted file system. The kernel keeps
//! names, descriptors, mappings and working directories; what it asks of the file system goes through
//! `forebay-client`, so that failover, replay and moves are the same as under the preload library.
//!
//! Read from the outside in: [`Mounted`] is a mount that is being served; `server` takes the
//! kernel's requests apart; `fs` carries them out; `tree` knows which inode has which names.
//! [`place`] mounts, on the machine or in a namespace of its own.
//!
//! The protocol is spoken here and not through a crate: what was found (fuser 0.18,
//! fuse-backend-rs) cannot tell `flock` from `fcntl` locks or end a wait for a lock when the program
//! gets a signal, and has no unnamed files.

mod abi;
mod fs;
pub mod place;
mod server;
mod sys;
mod tree;
mod turn;

pub use forebay_client::Ids;
pub use fs::{Contract, Options};

use forebay_client::Client;
use fs::Fs;
use rustix::fd::OwnedFd;
use server::Server;
use std::sync::Arc;
use std::time::Duration;

/// A mount that is being served by threads of this process.
pub struct Mounted {
    server: Arc<Server>,
}

impl Mounted {
    /// Serves the connection `device` that was mounted somewhere (see [`place`]).
    pub fn serve(device: OwnedFd, client: Arc<Client>, options: Options) -> std::io::Result<Mounted> {
        let server = Server::start(device, Fs::new(client, options))?;
        Ok(Mounted { server })
    }

    /// Waits until it is unmounted, at most for `limit`: whether it is.
    pub fn wait(&self, limit: Duration) -> bool {
        self.server.wait(limit)
    }

    /// The files that were changed, though the contract is [`Contract::Immutable`].
    pub fn changed_files(&self) -> Vec<Vec<u8>> {
        self.server.changed_files()
    }

    /// Closes what is still open on the I/O nodes. Requests that come after this fail.
    pub fn leave(&self) {
        self.server.leave();
    }
}
