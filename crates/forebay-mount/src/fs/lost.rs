//! Locks that an open file of the kernel has lost with their I/O node: every process that shares it is told, once. A
//! process that began when another one had been told already is not.

use super::Outcome;
use crate::turn;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// So many processes are known to have been told; of more the first may be told again.
const MOST: usize = 4096;

/// The losses of one open file.
#[derive(Default)]
pub(super) struct Lost {
    any: AtomicBool,
    told: Mutex<Told>,
}

#[derive(Default)]
struct Told {
    /// When the first one was.
    at: u64,
    processes: VecDeque<u32>,
}

impl Lost {
    /// The thread `who` is the first to be told of a loss.
    pub(super) fn note(&self, who: u32) {
        let (process, _) = process_of(who);
        let at = ticks();
        {
            let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
            *told = Told { at, processes: VecDeque::from([process]) };
            self.any.store(true, Ordering::SeqCst);
        }
        // What it starts when it has been told begins at a later tick.
        turn::pass_on();
        while ticks() <= at {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// `EIO`, if the thread `who` is of a process that is to be told of a loss.
    pub(super) fn tell(&self, who: u32) -> Outcome<()> {
        if !self.any.load(Ordering::SeqCst) {
            return Ok(());
        }
        let (process, began) = process_of(who);
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if began > told.at || told.processes.contains(&process) {
            return Ok(());
        }
        if told.processes.len() >= MOST {
            told.processes.pop_front();
        }
        told.processes.push_back(process);
        Err(libc::EIO)
    }
}

/// The time since the machine was started, in the unit in which the kernel tells when a process began.
fn ticks() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let per_second = rustix::param::clock_ticks_per_second();
    now.tv_sec as u64 * per_second + now.tv_nsec as u64 * per_second / 1_000_000_000
}

/// The process of a thread, and when it began; of one of which nothing is known, at the beginning of time.
fn process_of(thread: u32) -> (u32, u64) {
    let read =
        |process: u32, what: &str| std::fs::read(format!("/proc/{process}/{what}")).unwrap_or_default();
    let process = group(&String::from_utf8_lossy(&read(thread, "status"))).unwrap_or(thread);
    (process, begin(&String::from_utf8_lossy(&read(process, "stat"))).unwrap_or(0))
}

fn group(status: &str) -> Option<u32> {
    status.lines().find_map(|line| line.strip_prefix("Tgid:"))?.trim().parse().ok()
}

fn begin(stat: &str) -> Option<u64> {
    // The name before may hold anything.
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_of_processes_that_began_before_now() {
        let (process, began) =
            std::thread::spawn(|| process_of(rustix::thread::gettid().as_raw_nonzero().get() as u32))
                .join()
                .unwrap();
        assert_eq!(process, std::process::id());
        assert!(began > 0 && began <= ticks(), "{began} {}", ticks());
        assert_eq!(begin("1 (a) b) S 1 1 1 0 -1 4 0 0 0 0 0 0 0 0 20 0 1 0 4711 0"), Some(4711));
    }

    #[test]
    fn each_process_is_told_once_and_later_ones_are_not() {
        let (lost, me) = (Lost::default(), std::process::id());
        assert_eq!(lost.tell(me), Ok(()), "nothing is lost");
        lost.note(1);
        assert_eq!((lost.tell(me), lost.tell(me), lost.tell(1)), (Err(libc::EIO), Ok(()), Ok(())));
        let mut later = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        assert_eq!(lost.tell(later.id()), Ok(()), "it began when one had been told");
        lost.note(me);
        assert_eq!((lost.tell(later.id()), lost.tell(me)), (Err(libc::EIO), Ok(())), "another loss");
        later.kill().unwrap();
        later.wait().unwrap();
    }
}
