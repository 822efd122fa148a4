//! Short waits are spun: see [`forebay_wire::session::spin`]. `FOREBAY_SPIN=off` switches it off.

use crate::sys;
use forebay_types::Nanos;
use forebay_wire::session::spin::{Cores, Spin};
use rustix::fd::AsFd;
use rustix::io::Errno;
use std::io::IoSliceMut;
use std::sync::OnceLock;

/// Between two looks at a socket: long enough not to be in the way of who fills it.
const PAUSES: usize = 16;

static CORES: Cores = Cores::new();
static WANTED: OnceLock<bool> = OnceLock::new();

/// Whether a wait that begins now may be spun: nobody switched it off, and the machine has a processor to
/// spare. Costs a look at the machine every 20 ms.
pub fn may_spin(now: Nanos) -> bool {
    let wanted = *WANTED.get_or_init(|| {
        std::env::var_os("FOREBAY_SPIN").is_none_or(|v| v != "off" && v != "0") && sys::processors() > 1
    });
    if !wanted {
        return false;
    }
    if CORES.look(now) {
        // Where it cannot be told, nobody spins.
        CORES.saw(sys::running().unwrap_or(usize::MAX - 1), sys::processors());
    }
    CORES.spare()
}

/// The waits for answers on one connection.
#[derive(Debug, Default)]
pub(crate) struct Waiter {
    spin: Spin,
    /// How long the next receive may be spun.
    budget: Nanos,
}

impl Waiter {
    /// A request was sent; `short`: whose answer is worth waiting for.
    pub(crate) fn sent(&mut self, short: bool, now: Nanos) {
        self.budget = if short && may_spin(now) { self.spin.budget() } else { Nanos::ZERO };
    }

    /// One receive into several pieces, spun for as long as that is worth it.
    pub(crate) fn receive(&mut self, fd: impl AsFd, pieces: &mut [IoSliceMut<'_>]) -> Result<usize, Errno> {
        let budget = std::mem::take(&mut self.budget);
        if budget > Nanos::ZERO {
            let began = sys::now();
            loop {
                let got = sys::receive_now(&fd, pieces);
                let took = sys::now().since(began);
                if got != Err(Errno::AGAIN) {
                    self.spin.hit(took);
                    return got;
                }
                if took >= budget {
                    self.spin.miss();
                    break;
                }
                (0..PAUSES).for_each(|_| std::hint::spin_loop());
            }
        }
        sys::receive(fd, pieces)
    }
}
