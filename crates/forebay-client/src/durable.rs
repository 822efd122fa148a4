//! `fsync` for every byte that was acknowledged since the last one, through whichever nodes: what a
//! node took lies in its host's kernel, and any node process on that host can have it written.

use crate::call::{Body, On, Request, TURN};
use crate::client::Client;
use crate::conn::Failure;
use crate::counters::OpIndex;
use crate::error::Error;
use crate::file::{File, FileRecord};
use crate::hosts::HostSet;
use crate::sys;
use forebay_types::Nanos;
use forebay_wire::flags::OpenFlags;
use forebay_wire::hello::HostBoot;
use forebay_wire::message::{Answer, ExportId, Meta, Path};
use forebay_wire::session::duty::{Duty, Step};

impl Client {
    /// What another process needs to go on with the file.
    pub fn record(&self, file: &File) -> FileRecord {
        let (_, at) = self.at(file, sys::now());
        let here = self.nodes.host(at.node).into_iter();
        file.record(HostSet::all(here, false))
    }

    /// The record of the file goes to another program, and cannot be changed any more: it is right, or what
    /// it does not know of is synced now. False: neither.
    pub fn settle_record(&self, file: &File) -> bool {
        let settled = || self.settle(file).inspect_err(|e| self.tell_later(file, e.errno())).is_ok();
        let right = !file.is_record_old() || settled() && self.sync(file, true).is_ok();
        if !right {
            // Whoever goes on with it is told.
            file.mark_unsynced(HostSet::all(std::iter::empty(), true));
        }
        right
    }

    pub(crate) fn sync(&self, file: &File, data_only: bool) -> Result<(), Error> {
        let started = sys::now();
        let end = started + self.limit();
        let _alone = loop {
            match file.sync_alone() {
                Some(alone) => break alone,
                None if sys::now() >= end => return Err(Error::Unsynced),
                None => drop(sys::nap(TURN)),
            }
        };
        let sync = file.begin_sync();
        let done = self.sync_all(file, sync.hosts, data_only, end);
        file.end_sync(sync);
        done
    }

    fn sync_all(&self, file: &File, owed: HostSet, data_only: bool, end: Nanos) -> Result<(), Error> {
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
            let duty = Duty::new(host.ok_or(Error::Unsynced)?, sys::now(), end);
            self.discharge(duty, file, data_only, end)?;
        }
        Ok(())
    }

    /// Has a node on the duty's host sync the file. If there is none, that is said once.
    fn discharge(&self, mut duty: Duty, file: &File, data_only: bool, end: Nanos) -> Result<(), Error> {
        loop {
            match duty.next(sys::now(), &self.nodes) {
                Step::Through(node) => {
                    if let Ok(Some(outcome)) = self.sync_through(node, file, duty.host, data_only, end) {
                        return outcome;
                    }
                }
                Step::Nap(until) => drop(sys::nap(until.since(sys::now()).into())),
                Step::Unsynced => return Err(Error::Unsynced),
            }
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
