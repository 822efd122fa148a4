//! A large file of one process through several I/O nodes: every node of the job's mapping has the file
//! open, and the place in the file decides through which of them a large request goes. What is small,
//! appended or locked goes through the file's own node.

use crate::client::Client;
use crate::error::Error;
use crate::file::{Alone, File};
use crate::sys;
use forebay_types::Epoch;
use forebay_wire::MAX_DATA;
use forebay_wire::flags::OpenFlags;
use forebay_wire::message::{Answer, ExportId, Meta, Path};
use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;

/// Requests from this size on are spread.
const LARGE: usize = 1 << 20;
/// So much of a file in a row goes through one node.
const STRIPE: u64 = MAX_DATA as u64;
/// No file is spread over more nodes than this.
const MOST: usize = 16;

/// The file as it is open on each of the job's nodes; nothing where it is open anyway.
#[derive(Debug)]
struct Open {
    epoch: Epoch,
    lanes: Box<[Option<File>]>,
}

/// The lanes of a file: opened with its first large request, closed with it.
#[derive(Debug, Default)]
pub(crate) struct Lanes {
    open: OnceLock<Open>,
    opening: AtomicBool,
}

impl Lanes {
    /// Those that are open.
    pub(crate) fn open(&self) -> impl Iterator<Item = &File> {
        self.open.get().into_iter().flat_map(|o| o.lanes.iter().flatten())
    }
}

impl Client {
    /// The lane through which a request of `len` bytes at `offset` goes.
    pub(crate) fn lane<'a>(&self, file: &'a File, offset: u64, len: usize) -> &'a File {
        // What holds a lock must hear of its loss; what has no name can be opened nowhere else.
        if len < LARGE || !self.config.stripe || file.is_bound() || file.is_closed() {
            return file;
        }
        let Some(open) = file.lanes.open.get().or_else(|| self.open_lanes(file)) else { return file };
        if open.epoch != self.nodes.epoch() || open.lanes.is_empty() {
            return file;
        }
        // Another node first for another file: programs write many side by side, each from its beginning.
        let which = (offset / STRIPE).wrapping_add(file.identity) % open.lanes.len() as u64;
        let usable = |lane: &&File| self.nodes.usable(lane.place().node, sys::now());
        open.lanes[which as usize].as_ref().filter(usable).unwrap_or(file)
    }

    fn open_lanes<'a>(&self, file: &'a File) -> Option<&'a Open> {
        // One thread does, or a signal handler of it: nobody waits.
        let _alone = Alone::enter(&file.lanes.opening)?;
        let epoch = self.nodes.epoch();
        let mut nodes = self.nodes.mapped();
        nodes.truncate(MOST);
        let here = file.place().node;
        let mut lanes = Vec::new();
        if nodes.len() > 1 && nodes.contains(&here) {
            // What cannot be opened there goes through the file's own node.
            lanes.extend(
                nodes.iter().map(|&node| if node == here { None } else { self.open_lane(file, node) }),
            );
        }
        // Nobody else sets it while we are alone.
        let _ = file.lanes.open.set(Open { epoch, lanes: lanes.into_boxed_slice() });
        if file.is_closed() {
            // It was closed meanwhile, and these not with it.
            let _ = self.close_lanes(file);
        }
        file.lanes.open.get()
    }

    /// The file on `node`, if it can be had there.
    fn open_lane(&self, file: &File, node: usize) -> Option<File> {
        let rel = file.rel();
        let path = Path { export: ExportId(file.export), rel: &rel };
        let flags = file.flags().without(OpenFlags::NOFOLLOW);
        let op = Meta::Open { path, flags, mode: 0, identity: file.identity };
        let (_, header, body) = self.exchange(node, &op, sys::now() + self.limit()).ok()?;
        match Answer::decode(&body) {
            Ok(Answer::Opened { handle, attr, identity, .. }) if header.status.get() == 0 => {
                let lane = File::new(path, flags, &attr, identity, self.place(node, handle));
                lane.set_shared(file.is_shared());
                lane.set_stays();
                Some(lane)
            }
            _ => None,
        }
    }

    /// Closes the lanes of a file that is being closed.
    pub(crate) fn close_lanes(&self, file: &File) -> Result<(), Error> {
        let mut outcome = Ok(());
        for lane in file.lanes.open() {
            // All of them are closed; the first error is told.
            outcome = outcome.and(self.close(lane));
        }
        outcome
    }
}
