//! What files, names and counters are when one operation comes after the other.

use super::linear::Model;

/// A word of a file: reads give what was written last.
pub(super) struct Register;

/// On a [`Register`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RegisterOp {
    Write(u64),
    Read(u64),
}

impl Model for Register {
    type State = u64;
    type Op = RegisterOp;

    fn step(state: &u64, op: &RegisterOp) -> Option<u64> {
        match *op {
            RegisterOp::Write(value) => Some(value),
            RegisterOp::Read(value) => (*state == value).then_some(value),
        }
    }

    fn only_looks(op: &RegisterOp) -> bool {
        matches!(op, RegisterOp::Read(_))
    }
}

/// Two names in a directory, each free or standing for something.
pub(super) struct Names;

/// On [`Names`]; a rename goes to the other name, and replaces what that stood for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NamesOp {
    Make { name: usize, value: u64, made: bool },
    Remove { name: usize, removed: bool },
    Rename { from: usize, moved: bool },
    Look { name: usize, value: Option<u64> },
}

impl Model for Names {
    type State = [Option<u64>; 2];
    type Op = NamesOp;

    fn step(state: &[Option<u64>; 2], op: &NamesOp) -> Option<[Option<u64>; 2]> {
        let mut after = *state;
        let possible = match *op {
            NamesOp::Make { name, value, made } => {
                let free = state[name].is_none();
                if free {
                    after[name] = Some(value);
                }
                free == made
            }
            NamesOp::Remove { name, removed } => after[name].take().is_some() == removed,
            NamesOp::Rename { from, moved } => {
                let there = after[from].take();
                if there.is_some() {
                    after[1 - from] = there;
                }
                there.is_some() == moved
            }
            NamesOp::Look { name, value } => state[name] == value,
        };
        possible.then_some(after)
    }

    fn only_looks(op: &NamesOp) -> bool {
        use NamesOp::{Look, Make, Remove, Rename};
        // What was refused changed nothing either.
        matches!(
            op,
            Look { .. }
                | Make { made: false, .. }
                | Remove { removed: false, .. }
                | Rename { moved: false, .. }
        )
    }
}

/// A number to which one is added under a lock.
pub(super) struct Counter;

impl Model for Counter {
    type State = u64;
    /// What it was before.
    type Op = u64;

    fn step(state: &u64, was: &u64) -> Option<u64> {
        (state == was).then(|| was + 1)
    }

    fn only_looks(_: &u64) -> bool {
        false
    }
}
