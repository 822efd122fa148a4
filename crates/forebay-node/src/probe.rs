//! The probe: tries the storage behind the exports when the arbiter asks whether the node is well.

use crate::node::Node;
use crate::sys;
use forebay_control::node::ToArbiter;
use forebay_types::Nanos;
use rustix::fs::{Mode, OFlags, fstatfs, openat};
use rustix::io::Errno;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::mpsc::SyncSender;

/// Probes in a thread of its own, since storage may hang; one at a time. Whoever asks again
/// meanwhile gets no answer, as from a node that hangs itself.
pub(crate) fn start(node: &Arc<Node>, id: u64, answer: SyncSender<ToArbiter>) {
    if node.probing.swap(true, Acquire) {
        return;
    }
    let n = Arc::clone(node);
    let spawned = std::thread::Builder::new().name("probe".into()).stack_size(64 << 10).spawn(move || {
        let began = sys::now();
        let error = probe(&n).err().map(|e| e.to_string());
        n.probing.store(false, Release);
        // The announcer may have lost its arbiter meanwhile: then nobody wants to know.
        let _ = answer.try_send(ToArbiter::Probed { id, took: sys::now().since(began), error });
    });
    if spawned.is_err() {
        node.probing.store(false, Release);
    }
}

/// A node that is at work shows in its reports how well; asking the file system for its totals
/// suffices to see that it answers. An idle one writes a little into a file without a name.
fn probe(node: &Node) -> Result<(), Errno> {
    let idle = node.engine.intervals(Nanos::ZERO).last().is_none_or(|i| i.load.served == 0);
    for export in &node.exports {
        fstatfs(&export.root)?;
        if !idle {
            continue;
        }
        let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
        match openat(&export.root, c".", flags, Mode::RUSR | Mode::WUSR) {
            Ok(file) => drop(rustix::io::pwrite(&file, &[0u8; 4096], 0)?),
            // A file system that has no such files, or an export that is only read.
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::NOENT | Errno::ROFS | Errno::ACCESS) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}
