//! `fsync` for every byte that was acknowledged since the last one, through whichever nodes: what a
//! node took lies in its host's kernel, and any node process on that host can have it written.

use crate::call::{Body, On, Request, TURN};
use crate::client::Client;
use crate::conn::Failure;
use crate::counters::OpIndex;
use crate::error::Error;
use crate::file::File;
use crate::sys;
use forebay_types::Nanos;
use forebay_wire::flags::OpenFlags;
use forebay_wire::hello::HostBoot;
use forebay_wire::message::{Answer, ExportId, Meta, Path};
use std::time::Duration;

/// How long a node on a host that has our data is looked for: one that is started again is there by then.
const PATIENCE: Nanos = Nanos::from_secs(3);
const NAP: Duration = Duration::from_millis(50);

impl Client {
    pub(crate) fn sync(&self, file: &File, data_only: bool) -> Result<(), Error> {
        let started = sys::now();
        let _alone = loop {
            match file.begin_sync() {
                Some(alone) => break alone,
                None if sys::now().since(started) >= self.limit() => return Err(Error::Unsynced),
                None => drop(sys::nap(TURN)),
            }
        };
        let owed = file.take_unsynced();
        let build = |handle: u64, out: &mut Vec<u8>| Meta::Fsync { handle, data_only }.encode(out);
        let shape = Meta::Fsync { handle: 0, data_only };
        let request = Request::meta(&shape, Body::ForHandle(&build));
        let here =
            self.call(OpIndex::meta(&shape), On::File(file), request, None, |served, _, _| Ok(served.host));
        let here = here.inspect_err(|e| {
            // Nobody was asked: it is owed still.
            if matches!(e, Error::NoNode { .. } | Error::LockLost(_)) {
                file.mark_unsynced(owed);
            }
        })?;
        for host in owed.without(here).iter() {
            self.sync_on(file, host.ok_or(Error::Unsynced)?, data_only)?;
        }
        Ok(())
    }

    /// Has a node on `host` sync the file. If there is none, what it took cannot be vouched for; that is
    /// said once.
    fn sync_on(&self, file: &File, host: HostBoot, data_only: bool) -> Result<(), Error> {
        let started = sys::now();
        let end = started + self.limit();
        loop {
            let now = sys::now();
            let there: Vec<usize> = self.nodes.on_host(host, now, false).collect();
            for node in there {
                if let Ok(Some(outcome)) = self.sync_through(node, file, host, data_only, end) {
                    return outcome;
                }
            }
            let now = sys::now();
            if now.since(started) >= PATIENCE || now >= end {
                return Err(Error::Unsynced);
            }
            let _ = sys::nap(NAP);
        }
    }

    /// `None`: the node is not on that host.
    fn sync_through(
        &self,
        node: usize,
        file: &File,
        host: HostBoot,
        data_only: bool,
        end: Nanos,
    ) -> Result<Option<Result<(), Error>>, Failure> {
        let rel = file.rel();
        let path = Path { export: ExportId(file.export), rel: &rel };
        let flags = file.flags().without(OpenFlags::NOFOLLOW);
        let op = Meta::Open { path, flags, mode: 0, identity: file.identity };
        let (process, header, body) = self.exchange(node, &op, end)?;
        let Ok(Answer::Opened { handle, .. }) = Answer::decode(&body) else {
            let gone = header.status.get() != 0 && process.host == host;
            return Ok(gone.then_some(Err(Error::Unsynced)));
        };
        let synced = if process.host == host {
            let (process, header, body) = self.exchange(node, &Meta::Fsync { handle, data_only }, end)?;
            let outcome = match header.status.get() {
                0 => Ok(()),
                _ => Err(crate::call::refused(&header, &body)),
            };
            (process.host == host).then_some(outcome)
        } else {
            None
        };
        // If this fails, the node is gone, and the handle with it.
        let _ = self.exchange(node, &Meta::Close { handle }, end);
        Ok(synced)
    }
}
