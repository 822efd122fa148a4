//! How often something is done a second by several at once.

use anyhow::{Result, bail};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// What one of them did: from when to when, and how often.
type Work = (Instant, Instant, u64);

/// `outstanding` threads do what `worker` gives them (by their number) again and again for `span`, and are counted from
/// the first one's beginning to the last one's end, whenever the machine lets them run: never more than there was.
pub(super) fn rate<W, F>(outstanding: usize, span: Duration, worker: W) -> Result<f64>
where
    W: Fn(usize) -> F + Sync,
    F: FnMut() -> Result<()>,
{
    let stop = AtomicBool::new(false);
    let all_here = Barrier::new(outstanding + 1);
    let work = |number: usize| -> Result<Work> {
        let mut once = worker(number);
        all_here.wait();
        let (began, mut count) = (Instant::now(), 0);
        // Everybody does it once: so many are outstanding.
        while count == 0 || !stop.load(Ordering::Relaxed) {
            once()?;
            count += 1;
        }
        Ok((began, Instant::now(), count))
    };
    let done: Vec<Result<Work>> = std::thread::scope(|s| {
        let work = &work;
        let threads: Vec<_> = (0..outstanding).map(|i| s.spawn(move || work(i))).collect();
        all_here.wait();
        std::thread::sleep(span);
        stop.store(true, Ordering::Relaxed);
        threads.into_iter().map(|t| t.join().unwrap_or_else(|_| bail!("a thread failed"))).collect()
    });
    let done = done.into_iter().collect::<Result<Vec<Work>>>()?;
    let began = done.iter().map(|w| w.0).min();
    let ended = done.iter().map(|w| w.1).max();
    let lasted = began.zip(ended).map_or(Duration::ZERO, |(began, ended)| ended - began);
    let count: u64 = done.iter().map(|w| w.2).sum();
    Ok(count as f64 / lasted.as_secs_f64().max(1e-9))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Also with more threads than the machine can run at a time.
    #[test]
    fn nothing_is_faster_than_it_can_be() {
        for outstanding in [1, 8, 32] {
            let once = Duration::from_micros(200);
            let most = outstanding as f64 / once.as_secs_f64();
            for span in [Duration::ZERO, Duration::from_millis(2)] {
                let busy = |_| {
                    || -> Result<()> {
                        let began = Instant::now();
                        while began.elapsed() < once {}
                        Ok(())
                    }
                };
                let rate = rate(outstanding, span, busy).unwrap();
                assert!(rate <= most, "{rate}/s by {outstanding} that take {once:?} each");
            }
        }
    }

    #[test]
    fn what_fails_is_told() {
        let fails = |number: usize| move || if number == 3 { bail!("no room") } else { Ok(()) };
        assert_eq!(rate(8, Duration::from_millis(1), fails).unwrap_err().to_string(), "no room");
    }
}
