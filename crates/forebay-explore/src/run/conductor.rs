//! Leads the workers of a run: waits for them, gives them their tasks, and lets all processes of a
//! job begin each step together.

use super::launcher::greet;
use super::machine::Machine;
use super::protocol::{Channel, Cue, Outcome, Reply, Role, Task};
use crate::scenario::Job;
use std::io;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long workers may take to start.
const START_PATIENCE: Duration = Duration::from_secs(60);

/// Waits until all `slots` workers of run `run` have called.
pub(super) fn assemble(
    listener: &TcpListener,
    token: &str,
    run: u64,
    slots: u32,
    machine: &mut dyn Machine,
    stop: &AtomicBool,
) -> io::Result<Vec<Channel>> {
    let deadline = Instant::now() + START_PATIENCE;
    let mut workers: Vec<Option<Channel>> = (0..slots).map(|_| None).collect();
    let mut missing = slots;
    let mut look_again = Instant::now() + Duration::from_millis(200);
    listener.set_nonblocking(true)?;
    while missing > 0 {
        if stop.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::Interrupted.into());
        }
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(false)?;
                if let Some((Role::Worker { run: r, slot }, channel)) = greet(stream, token)
                    && r == run
                    && let Some(place) = workers.get_mut(slot as usize)
                    && place.replace(channel).is_none()
                {
                    missing -= 1;
                }
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                if Instant::now() > look_again {
                    if let Some(how) = machine.casualty() {
                        return Err(io::Error::other(format!("a process of the run ended ({how})")));
                    }
                    look_again = Instant::now() + Duration::from_millis(200);
                }
                if Instant::now() > deadline {
                    return Err(io::Error::other(format!(
                        "{missing} of {slots} client processes did not start"
                    )));
                }
                std::thread::sleep(Duration::from_micros(200));
            }
            Err(e) => return Err(e),
        }
    }
    Ok(workers.into_iter().flatten().collect())
}

/// Runs the jobs, each with its workers; gives `outcomes[job][step][rank]`.
pub(super) fn conduct(
    jobs: Vec<(Vec<Task>, Vec<Channel>)>,
    stop: &AtomicBool,
) -> io::Result<Vec<Vec<Vec<Outcome>>>> {
    let mut ready = Vec::new();
    let mut breakers: Vec<TcpStream> = Vec::new();
    for (tasks, mut workers) in jobs {
        for (task, worker) in tasks.iter().zip(&mut workers) {
            breakers.push(worker.breaker()?);
            worker.send(task)?;
        }
        let Some(task) = tasks.into_iter().next() else { continue };
        ready.push((task.job, workers));
    }
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // Ctrl-C, or one job's failure, ends the conversation with all: their reads return.
        let guard = scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                if stop.load(Ordering::Relaxed) {
                    hang_up(&breakers);
                    return;
                }
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        // The first steps of all jobs begin together.
        let first = ready.iter_mut().try_for_each(|(_, workers)| all_ready(workers));
        let results: Vec<io::Result<_>> = match first {
            Err(e) => vec![Err(e)],
            Ok(()) => {
                let threads: Vec<_> = ready
                    .iter_mut()
                    .map(|(job, workers)| {
                        let breakers = &breakers;
                        scope.spawn(move || lead(job, workers).inspect_err(|_| hang_up(breakers)))
                    })
                    .collect();
                threads
                    .into_iter()
                    .map(|t| t.join().unwrap_or_else(|_| Err(io::Error::other("a thread panicked"))))
                    .collect()
            }
        };
        over.store(true, Ordering::Relaxed);
        let _ = guard.join();
        if stop.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::Interrupted.into());
        }
        // The first cause, not what followed from hanging up.
        let mut errors: Vec<io::Error> = Vec::new();
        let mut fine = Vec::new();
        for r in results {
            match r {
                Ok(o) => fine.push(o),
                Err(e) => errors.push(e),
            }
        }
        errors.sort_by_key(|e| e.kind() == io::ErrorKind::UnexpectedEof);
        errors.into_iter().next().map_or(Ok(fine), Err)
    })
}

fn hang_up(breakers: &[TcpStream]) {
    for b in breakers {
        let _ = b.shutdown(Shutdown::Both);
    }
}

/// One job, from the first cue to the last reply; its workers are ready for the first step.
fn lead(job: &Job, workers: &mut [Channel]) -> io::Result<Vec<Vec<Outcome>>> {
    std::thread::sleep(job.delay);
    let mut outcomes = Vec::with_capacity(job.steps.len());
    for step in 0..job.steps.len() {
        if step > 0 {
            go(workers)?;
            all_ready(workers)?;
        }
        go(workers)?;
        let mut by_rank = Vec::with_capacity(workers.len());
        for (rank, w) in workers.iter_mut().enumerate() {
            match w.receive()? {
                Reply::Done(outcome) => by_rank.push(outcome),
                Reply::Failed(e) => {
                    return Err(io::Error::other(format!("process {rank} of {}: {e}", job.name)));
                }
                Reply::Ready(_) => return Err(io::Error::other("a client process is out of step")),
            }
        }
        outcomes.push(by_rank);
    }
    Ok(outcomes)
}

/// On with what comes next: all have told that the last is done.
fn go(workers: &mut [Channel]) -> io::Result<()> {
    workers.iter_mut().try_for_each(|w| w.send(&Cue::Go))
}

fn all_ready(workers: &mut [Channel]) -> io::Result<()> {
    for (rank, w) in workers.iter_mut().enumerate() {
        match w.receive()? {
            Reply::Ready(_) => {}
            Reply::Failed(e) => return Err(io::Error::other(format!("process {rank}: {e}"))),
            Reply::Done(_) => return Err(io::Error::other("a client process is out of step")),
        }
    }
    Ok(())
}
