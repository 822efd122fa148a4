//! Short waits are spun: see [`forebay_wire::session::spin`]. `FOREBAY_SPIN=off` switches it off;
//! `FOREBAY_SPIN=always` is for a process that has processors of its own, whatever others do.

use crate::sys;
use forebay_types::Nanos;
use forebay_wire::session::spin::{Cores, Spin};
use rustix::fd::AsFd;
use rustix::io::Errno;
use std::ffi::OsStr;
use std::io::IoSliceMut;
use std::sync::OnceLock;

/// Between two looks at a socket: long enough not to be in the way of who fills it.
const PAUSES: usize = 16;

static CORES: Cores = Cores::new();
static WANTED: OnceLock<Wanted> = OnceLock::new();

/// What the environment asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    Never,
    IfThereIsOneToSpare,
    Always,
}

impl Wanted {
    fn of(variable: Option<&OsStr>, processors: usize) -> Wanted {
        match variable.and_then(OsStr::to_str) {
            _ if processors < 2 => Wanted::Never,
            Some("off" | "0") => Wanted::Never,
            Some("always") => Wanted::Always,
            _ => Wanted::IfThereIsOneToSpare,
        }
    }
}

/// Whether a wait that begins now may be spun: nobody switched it off, and the machine has a processor to
/// spare. Costs a look at the machine every 20 ms.
pub fn may_spin(now: Nanos) -> bool {
    let variable = || std::env::var_os("FOREBAY_SPIN");
    match WANTED.get_or_init(|| Wanted::of(variable().as_deref(), sys::processors())) {
        Wanted::Never => return false,
        Wanted::Always => return true,
        Wanted::IfThereIsOneToSpare => {}
    }
    if CORES.look(now) {
        // Where it cannot be told, nobody spins.
        CORES.saw(now, sys::running().unwrap_or(usize::MAX - 1), sys::processors());
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_can_be_switched() {
        let wanted = |v: &str, processors| Wanted::of(Some(OsStr::new(v)), processors);
        assert_eq!(Wanted::of(None, 2), Wanted::IfThereIsOneToSpare);
        assert_eq!([wanted("off", 8), wanted("0", 8)], [Wanted::Never; 2]);
        assert_eq!(wanted("always", 2), Wanted::Always);
        assert_eq!(wanted("always", 1), Wanted::Never, "who would answer?");
    }

    #[test]
    fn an_answer_that_is_there_is_taken_and_one_that_is_not_is_slept_for() {
        let (here, there) = std::os::unix::net::UnixStream::pair().unwrap();
        let mut waiter = Waiter { budget: Nanos::from_micros(10), ..Waiter::default() };
        let mut buffer = [0u8; 8];
        std::thread::scope(|s| {
            s.spawn(|| {
                std::thread::sleep(std::time::Duration::from_millis(20));
                std::io::Write::write_all(&mut (&there), b"late").unwrap();
            });
            assert_eq!(waiter.receive(&here, &mut [IoSliceMut::new(&mut buffer)]), Ok(4));
        });
        std::io::Write::write_all(&mut (&there), b"early").unwrap();
        waiter.budget = Nanos::from_secs(60);
        assert_eq!(waiter.receive(&here, &mut [IoSliceMut::new(&mut buffer)]), Ok(5));
        assert_eq!(&buffer[..5], b"early");
        drop(there);
        waiter.budget = Nanos::from_secs(60);
        assert_eq!(waiter.receive(&here, &mut [IoSliceMut::new(&mut buffer)]), Ok(0), "an end is an end");
    }
}
