//! A real etcd cluster on loopback, which ends with the test.

use crate::{Process, skip::needs};
use forebay_embed::Etcd;

/// Three members.
pub struct Cluster(Etcd);

impl Cluster {
    /// Starts one and waits until it answers; `None`, and said so, where there is no etcd.
    pub fn start(test: &str) -> Option<Cluster> {
        // Debian's package etcd-server.
        needs(test, &["etcd"]).then(|| Cluster(Etcd::start().expect("an etcd cluster comes up")))
    }

    /// Starts a member again.
    pub fn launch(&mut self, n: usize) {
        self.0.launch(n).expect("etcd starts");
    }

    /// For `--ha`.
    pub fn url(&self) -> String {
        self.0.url()
    }

    fn member(&self, n: usize) -> &Process {
        self.0.member(n).expect("it runs")
    }

    /// Stops a member, and waits until it stands still.
    pub fn freeze(&self, n: usize) {
        self.member(n).freeze().expect("our own child takes signals");
    }

    /// Lets it go on.
    pub fn thaw(&self, n: usize) {
        self.member(n).thaw().expect("our own child takes signals");
    }

    /// Kills a member at once.
    pub fn kill(&mut self, n: usize) {
        self.0.kill(n);
    }
}
