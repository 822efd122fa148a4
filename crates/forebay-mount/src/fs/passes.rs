//! Passes for programs that use open files past the mount ([`forebay_client::gate`]): who gets one, and when the gates
//! are shut. Only under [`Contract::Strict`](super::Contract::Strict), where the kernel keeps nothing of its own but the pages of
//! mappings and an idea of the size.

use super::{Asked, Contract, Fs, Outcome, Reply};
use crate::abi::{IoctlIn, IoctlOut};
use crate::turn;
use forebay_client::OpenFlags;
use forebay_client::gate::{ASK, GATES, Gates, LONGEST, Told};
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use zerocopy::{FromZeros, IntoBytes};

/// How long a call that is inside is waited for: one that takes longer is that of a process which was killed, or stopped.
const OUT: Duration = Duration::from_secs(2);
const TURN: Duration = Duration::from_micros(50);
/// How long somebody may take to come back to a file that he was sent away from. Whoever is killed on the way never does:
/// until then the file grows through the mount alone.
const BACK: Duration = Duration::from_secs(30);

pub(super) struct Passes {
    gates: Option<&'static Gates>,
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    files: HashMap<u64, Gated, foldhash::fast::RandomState>,
    free: Vec<u32>,
    next: u32,
}

/// An open file that has a gate, or must have none for a while.
#[derive(Default)]
struct Gated {
    gate: Option<u32>,
    ino: u64,
    /// As long as these are open it must have none.
    barred: Vec<u64>,
    /// How many are about to open it.
    coming: usize,
    /// The threads that were sent away to look at it again, and until when they are expected back: the kernel tries a
    /// second time for each of them, not a third.
    expected: Vec<(u32, Instant)>,
}

impl Gated {
    /// Whether there is nothing to be known of it.
    fn is_nothing(&self) -> bool {
        self.gate.is_none() && self.barred.is_empty() && self.coming == 0 && !self.expects(Instant::now())
    }

    /// Whether somebody has not come back yet who was sent away.
    fn expects(&self, now: Instant) -> bool {
        self.expected.iter().any(|(_, until)| now < *until)
    }

    /// Somebody opens it: whether he was sent away before, and has looked since. It has not grown in between.
    fn is_back(&mut self, thread: u32, now: Instant) -> bool {
        self.expected.retain(|(_, until)| now < *until);
        let found = self.expected.iter().position(|(one, _)| *one == thread);
        found.map(|i| self.expected.swap_remove(i)).is_some()
    }
}

impl Passes {
    pub(super) fn new(gates: Option<&'static Gates>, contract: Contract) -> Passes {
        Passes { gates: gates.filter(|_| contract == Contract::Strict), table: Mutex::default() }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the file may be changed past the mount at any time.
    pub(super) fn has(&self, node: u64) -> bool {
        self.gates.is_some() && self.table().files.get(&node).is_some_and(|file| file.gate.is_some())
    }
}

impl Table {
    fn new_gate(&mut self) -> Option<u32> {
        self.free.pop().or_else(|| {
            let next = self.next;
            self.next += u32::from((next as usize) < GATES);
            ((next as usize) < GATES).then_some(next)
        })
    }

    fn drop_if_nothing(&mut self, node: u64) {
        if self.files.get(&node).is_some_and(Gated::is_nothing) {
            self.files.remove(&node);
        }
        // Of those who were killed on their way back nobody tells.
        if self.files.len() > 2 * GATES {
            self.files.retain(|_, file| !file.is_nothing());
        }
    }
}

/// Somebody is about to open a file, until this is dropped.
pub(super) struct Coming<'a> {
    fs: &'a Fs,
    node: u64,
}

impl Drop for Coming<'_> {
    fn drop(&mut self) {
        let mut table = self.fs.passes.table();
        if let Some(file) = table.files.get_mut(&self.node) {
            file.coming = file.coming.saturating_sub(1);
            self.fs.count_strangers(self.node, file);
            table.drop_if_nothing(self.node);
        }
    }
}

/// Waits until nobody is inside; whether that is so.
fn wait_until_empty(gates: &Gates, gate: u32) -> bool {
    if gates.is_empty(gate) {
        return true;
    }
    turn::pass_on();
    let until = Instant::now() + OUT;
    while !gates.is_empty(gate) {
        if Instant::now() >= until {
            return false;
        }
        std::thread::sleep(TURN);
    }
    true
}

impl Fs {
    /// Somebody asks for a pass, by an open file. What is refused goes through the mount.
    pub(crate) fn ask(&self, who: &Asked, asked: &IoctlIn) -> Outcome<Reply> {
        let gates = self.passes.gates.filter(|_| asked.cmd == ASK).ok_or(libc::ENOTTY)?;
        if (asked.out_size as usize) < size_of::<Told>() {
            return Err(libc::EINVAL);
        }
        let open = self.handles.get(asked.fh)?;
        let file = &open.held.file;
        let unfit = OpenFlags::DIRECT | OpenFlags::SYNC | OpenFlags::DSYNC | OpenFlags::PATH;
        let regular = file.mode & libc::S_IFMT == libc::S_IFREG;
        if open.shared || !regular || file.identity == 0 || file.flags().0 & unfit.0 != 0 {
            return Err(libc::EOPNOTSUPP);
        }
        let path = self.tree().path(open.node).filter(|path| path.len() <= LONGEST).ok_or(libc::ESTALE)?;
        let mut table = self.passes.table();
        let mut gated = table.files.remove(&who.node).unwrap_or_default();
        if gated.gate.is_none() && gated.barred.is_empty() {
            (gated.gate, gated.ino) = (table.new_gate(), file.ino);
        }
        let gated = table.files.entry(who.node).insert_entry(gated).into_mut();
        let pass = gated.gate.and_then(|gate| gates.pass(gate)).ok_or(libc::EBUSY)?;
        self.handles.knows_gates(asked.fh);
        self.count_strangers(who.node, gated);
        drop(table);
        let mut told = Told::new_zeroed();
        told.path[..path.len()].copy_from_slice(&path);
        let (gate, generation, flags) = (pass.gate, pass.generation, file.flags().0);
        let (identity, ino, export, len) = (file.identity, file.ino, self.export.0, path.len() as u16);
        told = Told { generation, identity, ino, gate, flags, export, len, ..told };
        let head = IoctlOut::default();
        Ok(Reply::Bytes([head.as_bytes(), told.as_bytes()].concat()))
    }

    /// A file grows past the mount only while everybody who has it open knows of gates.
    fn count_strangers(&self, node: u64, file: &Gated) {
        if let (Some(gates), Some(gate)) = (self.passes.gates, file.gate) {
            let awaited = file.coming > 0 || file.expects(Instant::now());
            gates.set_strangers(gate, awaited || self.handles.has_strangers(node));
        }
    }

    /// A file was opened, or (`closed`) an open one was closed.
    pub(super) fn used_otherwise(&self, node: u64, closed: Option<u64>) {
        let Some(gates) = self.passes.gates else { return };
        let mut table = self.passes.table();
        let Some(file) = table.files.get_mut(&node) else { return };
        file.barred.retain(|fh| closed != Some(*fh));
        if self.handles.of(node).is_some() || file.coming > 0 {
            self.count_strangers(node, file);
        } else if let Some(gate) = file.gate.take() {
            gates.shut(gate);
            // One in which somebody stays for good is not used again.
            if gates.is_empty(gate) {
                table.free.push(gate);
            }
        }
        table.drop_if_nothing(node);
    }

    /// Somebody opens a file, having looked at it before: it does not grow past the mount until it is known whether he
    /// knows of gates. If it has grown since the kernel was last told its size, the kernel is to look again.
    pub(super) fn comes(&self, who: &Asked) -> Outcome<Option<Coming<'_>>> {
        let (node, thread) = (who.node, who.pid);
        let Some(gates) = self.passes.gates else { return Ok(None) };
        let (gate, back, unseen) = {
            let mut table = self.passes.table();
            let file = table.files.entry(node).or_default();
            file.coming += 1;
            if let Some(gate) = file.gate {
                gates.set_strangers(gate, true);
            }
            let now = Instant::now();
            let back = file.is_back(thread, now);
            // Somebody was sent away, and the kernel may not have looked since.
            (file.gate, back, file.expects(now))
        };
        let coming = Coming { fs: self, node };
        let Some(gate) = gate else { return Ok(Some(coming)) };
        wait_until_empty(gates, gate);
        if (gates.take_grown(gate) || unseen) && !back {
            if let Some(file) = self.passes.table().files.get_mut(&node) {
                file.expected.push((thread, Instant::now() + BACK));
            }
            return Err(libc::ESTALE);
        }
        Ok(Some(coming))
    }

    /// The kernel has to see every call on the file, until all that are open now are closed: it keeps pages of it, or it has
    /// locks, or no name.
    /// `alone`: whoever is inside is waited for.
    pub(super) fn only_here(&self, node: u64, alone: bool) {
        let Some(gates) = self.passes.gates else { return };
        let barred = self.handles.numbers(node);
        if barred.is_empty() {
            return;
        }
        let gate = {
            let mut table = self.passes.table();
            let file = table.files.entry(node).or_default();
            file.barred = barred;
            file.gate.take()
        };
        let Some(gate) = gate else { return };
        gates.shut(gate);
        if !alone || wait_until_empty(gates, gate) {
            self.passes.table().free.push(gate);
        }
    }

    /// Another file has this inode number by now.
    pub(super) fn replaced(&self, node: u64, ino: u64) {
        if self.passes.gates.is_none() {
            return;
        }
        let others = |(other, file): (&u64, &Gated)| (*other != node && file.ino == ino).then_some(*other);
        let others: Vec<u64> = self.passes.table().files.iter().filter_map(others).collect();
        others.into_iter().for_each(|other| self.only_here(other, false));
    }

    /// A file has another path, or all that are below a directory: whoever has a pass needs a new one.
    pub(super) fn paths_changed(&self, moved: Option<u64>) {
        let Some(gates) = self.passes.gates else { return };
        let plain = moved.filter(|node| !self.tree().is_dir(*node));
        let table = self.passes.table();
        let changed = table.files.iter().filter(|(node, _)| plain.is_none_or(|moved| moved == **node));
        changed.filter_map(|(_, file)| file.gate).for_each(|gate| gates.shut(gate));
    }
}
