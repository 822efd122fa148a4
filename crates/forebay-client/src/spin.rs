//! Short waits are spun: see [`forebay_wire::session::spin`]. `FOREBAY_SPIN=off` switches it off;
//! `FOREBAY_SPIN=always` is for a process that has processors of its own, whatever others do.

use crate::{sleep, sys};
use forebay_types::Nanos;
use forebay_wire::session::spin::{Cores, Spin};
use rustix::fd::AsFd;
use rustix::io::Errno;
use std::ffi::OsStr;
use std::io::IoSliceMut;
use std::sync::OnceLock;

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
    fn of(variable: Option<&OsStr>) -> Wanted {
        match variable.and_then(OsStr::to_str) {
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
    let wanted = *WANTED.get_or_init(|| Wanted::of(variable().as_deref()));
    if wanted == Wanted::Never {
        return false;
    }
    if CORES.look(now) {
        // Asked for again every time: a process may be bound to one processor, and freed again. Where it cannot be
        // told how many threads run, nobody spins.
        let running = || sys::running().unwrap_or(usize::MAX - 1);
        CORES.saw(now, if wanted == Wanted::Always { 1 } else { running() }, sys::processors());
    }
    CORES.spare()
}

/// The processors that this process may run on, as last seen by [`may_spin`].
pub fn processors() -> usize {
    CORES.processors()
}

/// Looks again and again from `began` on, which is now, at most for `budget`: what was found.
fn spun<T>(spin: &mut Spin, began: Nanos, budget: Nanos, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    if budget == Nanos::ZERO {
        return None;
    }
    let mut took = Nanos::ZERO;
    loop {
        if let Some(found) = look() {
            // It took a little longer, by one look: whoever has it looks at the clock anyway.
            spin.hit(took);
            return Some(found);
        }
        took = sys::now().since(began);
        if took >= budget {
            spin.miss();
            return None;
        }
        // Who is waited for may have been put on this processor.
        rustix::thread::sched_yield();
    }
}

/// The waits of a front end's thread for what comes next.
#[derive(Debug, Default)]
pub struct Watch(Spin);

impl Watch {
    /// Looks again and again for as long as that is worth it: what was found.
    pub fn spin<T>(&mut self, look: impl FnMut() -> Option<T>) -> Option<T> {
        let now = sys::now();
        let budget = if may_spin(now) { self.0.budget() } else { Nanos::ZERO };
        spun(&mut self.0, now, budget, look)
    }
}

/// The waits for answers on one connection.
#[derive(Debug, Default)]
pub(crate) struct Waiter {
    spin: Spin,
    /// How long the next receive may be spun, from when on.
    budget: Nanos,
    sent: Nanos,
}

impl Waiter {
    /// A request was sent; `short`: whose answer is worth waiting for.
    pub(crate) fn sent(&mut self, short: bool, now: Nanos) {
        self.sent = now;
        self.budget = if short && may_spin(now) { self.spin.budget() } else { Nanos::ZERO };
    }

    /// One receive into several pieces, spun for as long as that is worth it.
    pub(crate) fn receive(&mut self, fd: impl AsFd, pieces: &mut [IoSliceMut<'_>]) -> Result<usize, Errno> {
        let budget = std::mem::take(&mut self.budget);
        let now = || Some(sys::receive_now(&fd, pieces)).filter(|got| *got != Err(Errno::AGAIN));
        if let Some(got) = spun(&mut self.spin, self.sent, budget, now) {
            return got;
        }
        sleep::begins(Some(fd.as_fd()));
        sys::receive(fd, pieces)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_can_be_switched() {
        let wanted = |v: &str| Wanted::of(Some(OsStr::new(v)));
        assert_eq!(Wanted::of(None), Wanted::IfThereIsOneToSpare);
        assert_eq!([wanted("off"), wanted("0")], [Wanted::Never; 2]);
        assert_eq!(wanted("always"), Wanted::Always);
    }

    #[test]
    fn an_answer_that_is_there_is_taken_and_one_that_is_not_is_slept_for() {
        let (here, there) = std::os::unix::net::UnixStream::pair().unwrap();
        let mut waiter = Waiter { budget: Nanos::from_micros(10), sent: sys::now(), ..Waiter::default() };
        let mut buffer = [0u8; 8];
        std::thread::scope(|s| {
            s.spawn(|| {
                std::thread::sleep(std::time::Duration::from_millis(20));
                std::io::Write::write_all(&mut (&there), b"late").unwrap();
            });
            assert_eq!(waiter.receive(&here, &mut [IoSliceMut::new(&mut buffer)]), Ok(4));
        });
        std::io::Write::write_all(&mut (&there), b"early").unwrap();
        (waiter.budget, waiter.sent) = (Nanos::from_secs(60), sys::now());
        assert_eq!(waiter.receive(&here, &mut [IoSliceMut::new(&mut buffer)]), Ok(5));
        assert_eq!(&buffer[..5], b"early");
        drop(there);
        (waiter.budget, waiter.sent) = (Nanos::from_secs(60), sys::now());
        assert_eq!(waiter.receive(&here, &mut [IoSliceMut::new(&mut buffer)]), Ok(0), "an end is an end");
    }
}
