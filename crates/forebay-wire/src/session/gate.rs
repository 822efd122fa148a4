//! Which open files of a mount a program may use past it, straight at an I/O node: in memory that the mount and the
//! programs share. The mount opens a gate for a file and hands out passes. Whoever has a pass goes through the gate for
//! one call at a time. Whenever the kernel has to see every call again (it keeps pages of the file, holds locks on it, has
//! lost its name), the mount shuts the gate, which makes all passes void, and waits until everybody is out.
//!
//! The kernel has an idea of the size of every open file, and asks no one for it before it maps a page. So a file that
//! somebody has open who does not know of gates (a *stranger*) is not made longer past the mount.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// So many files have a gate at a time.
pub const GATES: usize = 16 << 10;

const STRANGERS: u64 = 1;
const GREW: u64 = 1 << 1;
const ONE: u64 = 1 << 8;

/// The memory. All zero is a good beginning.
#[derive(Debug)]
#[repr(C)]
pub struct Gates {
    /// Calls that went past the mount.
    pub calls: AtomicU64,
    /// Processes of which some did.
    pub processes: AtomicU64,
    /// How often any gate was shut: whoever has passes looks at them when this has changed.
    shut: AtomicU64,
    gates: [Gate; GATES],
}

/// One file's.
#[derive(Debug)]
#[repr(C)]
struct Gate {
    /// Its generation, and flags.
    state: AtomicU64,
    /// Calls that are inside.
    inside: AtomicU32,
    unused: AtomicU32,
}

/// The right to use a file past the mount, as long as its gate is not shut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pass {
    /// Which gate.
    pub gate: u32,
    /// Of this generation.
    pub generation: u64,
}

impl Gates {
    fn gate(&self, index: u32) -> Option<&Gate> {
        self.gates.get(index as usize)
    }

    /// How often gates were shut.
    pub fn shuts(&self) -> u64 {
        self.shut.load(SeqCst)
    }

    /// Program: whether a pass is good.
    pub fn is_good(&self, pass: Pass) -> bool {
        self.gate(pass.gate).is_some_and(|gate| gate.state.load(SeqCst) / ONE == pass.generation)
    }

    /// Program: goes through the gate for one call, which may make the file longer than the kernel knows it (`grows`).
    /// Nothing: the call has to go through the mount.
    pub fn enter(&self, pass: Pass, grows: bool) -> Option<Inside<'_>> {
        let gate = self.gate(pass.gate)?;
        gate.inside.fetch_add(1, SeqCst);
        let inside = Inside(gate);
        let mut state = gate.state.load(SeqCst);
        loop {
            if state / ONE != pass.generation || grows && state & STRANGERS != 0 {
                return None;
            }
            if !grows || state & GREW != 0 {
                return Some(inside);
            }
            match gate.state.compare_exchange(state, state | GREW, SeqCst, SeqCst) {
                Ok(_) => return Some(inside),
                Err(now) => state = now,
            }
        }
    }

    /// Mount: the pass that is good now.
    pub fn pass(&self, gate: u32) -> Option<Pass> {
        Some(Pass { gate, generation: self.gate(gate)?.state.load(SeqCst) / ONE })
    }

    /// Mount: no pass is good any more. Calls may still be inside.
    pub fn shut(&self, gate: u32) {
        if let Some(gate) = self.gate(gate) {
            let next = |state: u64| Some((state / ONE).wrapping_add(1).wrapping_mul(ONE));
            // It always has a next one.
            let _ = gate.state.fetch_update(SeqCst, SeqCst, next);
            self.shut.fetch_add(1, SeqCst);
        }
    }

    /// Mount: whether the file has strangers.
    pub fn set_strangers(&self, gate: u32, strangers: bool) {
        let Some(gate) = self.gate(gate) else { return };
        match strangers {
            true => gate.state.fetch_or(STRANGERS, SeqCst),
            false => gate.state.fetch_and(!STRANGERS, SeqCst),
        };
    }

    /// Mount: whether the file was made longer since this was last asked.
    pub fn take_grown(&self, gate: u32) -> bool {
        self.gate(gate).is_some_and(|gate| gate.state.fetch_and(!GREW, SeqCst) & GREW != 0)
    }

    /// Mount: whether nobody is inside.
    pub fn is_empty(&self, gate: u32) -> bool {
        self.gate(gate).is_none_or(|gate| gate.inside.load(SeqCst) == 0)
    }
}

/// A call that is inside, until this is dropped.
#[derive(Debug)]
pub struct Inside<'a>(&'a Gate);

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.0.inside.fetch_sub(1, SeqCst);
    }
}

/// The longest path of a file with a gate.
pub const LONGEST: usize = 4096;

/// The mount's answer to whoever asks (by [`ASK`]) for a pass for an open file.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Told {
    /// Of the pass.
    pub generation: u64,
    /// The file's, as nodes know it.
    pub identity: u64,
    /// As the kernel shows it.
    pub ino: u64,
    /// Of the pass.
    pub gate: u32,
    /// How it is open, as on the wire.
    pub flags: u32,
    /// Where it is.
    pub export: u16,
    /// How long its path is.
    pub len: u16,
    /// Nothing.
    pub unused: u32,
    /// Its path below the export.
    pub path: [u8; LONGEST],
}

/// The `ioctl` that asks for a pass: it is answered with [`Told`].
pub const ASK: u32 = 2 << 30 | (size_of::<Told>() as u32) << 16 | 0xfb << 8 | 0x60;

impl Told {
    /// The pass.
    pub fn pass(&self) -> Pass {
        Pass { gate: self.gate, generation: self.generation }
    }

    /// The path, if it is one.
    pub fn path(&self) -> Option<&[u8]> {
        self.path.get(..usize::from(self.len))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    fn gates() -> Box<Gates> {
        let gates: Vec<Gate> = (0..GATES)
            .map(|_| Gate { state: AtomicU64::new(0), inside: AtomicU32::new(0), unused: AtomicU32::new(0) })
            .collect();
        let gates: Box<[Gate; GATES]> = gates.try_into().expect("as many");
        let (calls, processes, shut) = Default::default();
        Box::new(Gates { calls, processes, shut, gates: *gates })
    }

    #[test]
    fn a_gate_that_was_shut_lets_nobody_in() {
        let gates = gates();
        let pass = gates.pass(7).expect("a gate");
        let inside = gates.enter(pass, false);
        assert!(inside.is_some() && !gates.is_empty(7) && gates.is_empty(8));
        gates.shut(7);
        assert!(!gates.is_good(pass) && !gates.is_empty(7), "whoever is inside is waited for");
        assert!(gates.enter(pass, false).is_none());
        drop(inside);
        assert!(gates.is_empty(7), "who was not let in does not count");
        let next = gates.pass(7).expect("a gate");
        assert!(gates.enter(next, false).is_some() && gates.shuts() == 1);
        assert!(gates.enter(Pass { gate: GATES as u32, generation: 0 }, false).is_none());
    }

    #[test]
    fn no_file_grows_behind_a_strangers_back() {
        let gates = gates();
        let pass = gates.pass(0).expect("a gate");
        assert!(gates.enter(pass, true).is_some());
        assert!(gates.take_grown(0) && !gates.take_grown(0));
        gates.set_strangers(0, true);
        assert!(gates.enter(pass, true).is_none() && gates.enter(pass, false).is_some());
        assert!(!gates.take_grown(0) && gates.is_good(pass));
        gates.set_strangers(0, false);
        assert!(gates.enter(pass, true).is_some());
        gates.set_strangers(0, true);
        gates.shut(0);
        assert!(gates.enter(gates.pass(0).expect("a gate"), true).is_some(), "the next file has none yet");
    }

    /// Whoever has shut a gate and found it empty is alone with the file.
    #[test]
    fn nobody_is_inside_after_it_was_shut_and_empty() {
        const ROUNDS: u64 = 20_000;
        let gates: Arc<Gates> = Arc::from(gates());
        let (handed, alone) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let walker = {
            let (gates, handed, alone) = (Arc::clone(&gates), Arc::clone(&handed), Arc::clone(&alone));
            std::thread::spawn(move || {
                while handed.load(SeqCst) < ROUNDS {
                    let pass = Pass { gate: 3, generation: handed.load(SeqCst) };
                    let grows = pass.generation.is_multiple_of(2);
                    if let Some(_inside) = gates.enter(pass, grows) {
                        assert!(!alone.load(SeqCst), "inside a gate that was shut and empty");
                    }
                }
            })
        };
        for _ in 0..ROUNDS {
            gates.shut(3);
            while !gates.is_empty(3) && !walker.is_finished() {
                std::hint::spin_loop();
            }
            alone.store(true, SeqCst);
            std::hint::spin_loop();
            alone.store(false, SeqCst);
            handed.store(gates.pass(3).expect("a gate").generation, SeqCst);
        }
        walker.join().expect("it never was inside when it should not");
    }
}
