//! What the kernel keeps, and when it is told to let go of it. Under [`Contract::Exclusive`] that is what was written,
//! too: its pages go out when a file is closed or synced, and whenever it is asked to.

use super::handles::Held;
use super::{Contract, Fs};
use crate::abi::{InvalInode, NOTIFY_INVAL_INODE, OutHeader};
use crate::turn;
use forebay_client::{Attr, File, OpenFlags};
use rustix::fd::OwnedFd;
use std::collections::BTreeSet;
use std::io::IoSlice;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;
use zerocopy::IntoBytes;

/// How long everything that was written may take to go out when the mount ends.
const LAST_PAGES: Duration = Duration::from_secs(1);

fn writes(file: &File) -> bool {
    file.flags().has(OpenFlags::WRITE)
}

impl Fs {
    pub(super) fn is_exclusive(&self) -> bool {
        self.contract == Contract::Exclusive
    }

    /// The kernel is heard at this descriptor.
    pub(crate) fn heard_at(&self, device: OwnedFd) {
        let _ = self.kernel.set(device);
    }

    /// How a file is opened on the node so that the kernel can keep what is written to it: a page of which only a part
    /// is written has to be read first.
    pub(super) fn readable(&self, flags: OpenFlags) -> OpenFlags {
        let pages = self.is_exclusive() && flags.has(OpenFlags::WRITE) && !flags.has(OpenFlags::DIRECT);
        if pages { flags | OpenFlags::READ } else { flags }
    }

    /// Whether the kernel may keep pages of a file that was opened so.
    pub(super) fn keeps_pages(&self, held: &Held) -> bool {
        let flags = held.file.flags();
        !self.is_exclusive() || flags.has(OpenFlags::READ) || !flags.has(OpenFlags::WRITE)
    }

    /// The kernel trusts its own idea of the size of a file that it knows. If somebody else has changed it after all,
    /// and it is not being written here, whoever opens it from now on gets it as another one.
    pub(super) fn renew_if_changed(&self, node: u64, attr: &Attr) {
        if !self.is_exclusive() || attr.mode & libc::S_IFMT != libc::S_IFREG {
            return;
        }
        let same = |known: &Attr| (known.size, known.mtime) == (attr.size, attr.mtime);
        if self.tree().attr(node).is_none_or(same) || self.handles.that(node, writes).is_some() {
            return;
        }
        self.tree_mut().renew(node);
    }

    /// Somebody has a lock on `node`: what was written under it before, on another host, is to be seen.
    pub(super) fn look_again(&self, node: u64) {
        if let Some(kernel) = self.kernel.get().filter(|_| self.contract == Contract::CloseToOpen) {
            turn::pass_on();
            write_out(kernel, node);
        }
    }

    /// All that was written to `node` is on its I/O node when this returns.
    pub(super) fn write_out(&self, node: u64) {
        if let Some(kernel) = self.kernel.get().filter(|_| self.is_exclusive()) {
            turn::pass_on();
            write_out(kernel, node);
        }
    }

    /// The same for everything that is open, as far as it can be done in a moment.
    pub(super) fn write_all_out(&self) {
        let Some(kernel) = self.kernel.get().filter(|_| self.is_exclusive()) else { return };
        let open = self.handles.all().into_iter().filter(|(_, held): &(u64, Arc<Held>)| writes(&held.file));
        let nodes: BTreeSet<u64> = open.map(|(node, _)| node).collect();
        let Ok(kernel) = kernel.try_clone() else { return };
        let (done, all) = channel();
        std::thread::spawn(move || {
            nodes.into_iter().for_each(|node| write_out(&kernel, node));
            // Nobody may be waiting any more.
            let _ = done.send(());
        });
        if all.recv_timeout(LAST_PAGES).is_err() {
            tracing::error!("not all that was written to open files could be written out");
        }
    }
}

/// The kernel writes out what it has of `node`, and forgets it.
fn write_out(kernel: &OwnedFd, node: u64) {
    let what = InvalInode { ino: node, off: 0, len: 0 };
    let len = (size_of::<OutHeader>() + size_of::<InvalInode>()) as u32;
    let header = OutHeader { len, error: NOTIFY_INVAL_INODE, unique: 0 };
    let pieces = [IoSlice::new(header.as_bytes()), IoSlice::new(what.as_bytes())];
    if let Err(e) = rustix::io::writev(kernel, &pieces) {
        // It may not know the inode any more: then nothing of it is kept.
        tracing::debug!("writing out {node}: {e}");
    }
}
