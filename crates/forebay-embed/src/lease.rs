//! Who is killed cannot remove the directory of its run, and where several hosts see it, another one cannot look whether
//! the run still lives. So each has a lease, which its run renews, and the next run of the same user removes those that
//! are over.

use crate::EmbedError;
use crate::files::write_private;
use crate::rundir::is_name;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

/// The file that says whose a directory is; its time of modification is the last sign of life.
pub(crate) const FILE: &str = "lease";

/// Between two signs of life.
const BEAT: Duration = Duration::from_secs(60);

/// A host of the same name that has started anew since may be another machine, as long as there were signs of
/// life lately.
const REBOOTED: Duration = Duration::from_secs(600);

/// From elsewhere nobody can tell a dead run from one that is suspended. A day is longer than any job is put
/// to sleep for others.
const GONE: Duration = Duration::from_secs(24 * 3600);

/// A lease is not longer than this.
const MOST: u64 = 4096;

/// So many entries of a directory are looked at.
const MOST_ENTRIES: usize = 10_000;

/// Whose a directory is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Owner {
    host: String,
    /// Which start of that host, and which of its process numberings.
    boot: String,
    space: String,
    pid: u32,
    /// When the process began, in the host's ticks: numbers are used again.
    began: u64,
}

impl Owner {
    fn this() -> Owner {
        // As /proc counts, where it is looked up: that may be another numbering than this process's own.
        let shown = std::fs::read_link("/proc/self").ok();
        let pid = shown.and_then(|name| name.to_str()?.parse().ok()).unwrap_or_else(std::process::id);
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let space = std::fs::read_link("/proc/self/ns/pid").unwrap_or_default();
        Owner {
            host: forebay_client::hostname(),
            boot: boot.trim().to_owned(),
            space: space.display().to_string(),
            pid,
            began: began(pid).unwrap_or(0),
        }
    }
}

/// When a process began; none if there is no such process.
fn began(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    // What has ended and is not yet waited for does nothing any more.
    let dead = fields.next().is_none_or(|state| state == "Z" || state == "X");
    fields.nth(18)?.parse().ok().filter(|_| !dead)
}

/// Whether a lease is over, as seen by `here`: `silent` since its last sign of life, `lives` says when a
/// process of this machine began.
fn is_over(owner: &Owner, here: &Owner, silent: Duration, lives: impl Fn(u32) -> Option<u64>) -> bool {
    let host = owner.host == here.host && !here.boot.is_empty();
    // Whoever did not see itself in /proc sees no others there, and is not seen.
    let seen = owner.began != 0 && here.began != 0;
    if host && seen && owner.boot == here.boot && owner.space == here.space {
        return lives(owner.pid) != Some(owner.began);
    }
    silent > if host && owner.boot != here.boot { REBOOTED } else { GONE }
}

/// A lease that is renewed until this is dropped.
#[derive(Debug)]
pub(crate) struct Lease {
    /// Dropped first: that is the end.
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Lease {
    /// Writes the lease of a directory. `first` is done beside it, and need not be waited for by whoever takes it.
    pub(crate) fn take(dir: &Path, first: impl FnOnce() + Send + 'static) -> Result<Lease, EmbedError> {
        let path = dir.join(FILE);
        let text = serde_json::to_vec(&Owner::this()).map_err(|e| EmbedError::Argument(e.to_string()))?;
        write_private(&path, &text)?;
        let file = File::options().write(true).open(&path).map_err(EmbedError::io("cannot open", &path))?;
        let (end, ended) = channel::<()>();
        let renew = move || {
            first();
            while ended.recv_timeout(BEAT) == Err(RecvTimeoutError::Timeout) {
                // If it cannot be told now, it will be a minute later.
                let now = rustix::fs::Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_NOW };
                let times = rustix::fs::Timestamps { last_access: now, last_modification: now };
                let _ = rustix::fs::futimens(&file, &times);
            }
        };
        let thread = std::thread::Builder::new().name("lease".into()).spawn(renew);
        let thread = thread.map_err(EmbedError::io("cannot renew", path))?;
        Ok(Lease { end: Some(end), thread: Some(thread) })
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.end = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Removes what runs of this user left beside `own` whose lease is over; that has one that was taken just now: the clock
/// is the file system's. What is not certain stays. `shared`: other hosts see it, too.
pub(crate) fn sweep(own: &Path, shared: bool) {
    let Some(base) = own.parent() else { return };
    let now = std::fs::metadata(own.join(FILE)).and_then(|m| m.modified());
    let (Ok(now), Ok(entries)) = (now, std::fs::read_dir(base)) else { return };
    let here = Owner::this();
    let all: Vec<PathBuf> = entries.flatten().take(MOST_ENTRIES).map(|e| e.path()).collect();
    let named = |dir: &&PathBuf, prefix: &str| {
        let name = dir.file_name().unwrap_or_default().to_string_lossy().into_owned();
        name.starts_with(prefix) && dir.as_path() != own && is_ours(dir)
    };
    let run = |d: &&PathBuf| is_name(d.file_name().unwrap_or_default()) && named(d, "forebay-");
    for dir in all.iter().filter(run) {
        if left(dir, &here, now) && !in_use(dir) {
            let _ = std::fs::remove_dir_all(dir);
        } else if shared && silent_for(dir, now).is_some_and(|silent| silent > REBOOTED) {
            // An empty one, of which a network file system kept the last file until its process had ended.
            let _ = std::fs::remove_dir(dir);
        }
    }
    for dir in all.iter().filter(|d| shared && named(d, "slurm-")) {
        if noted_of_nothing(dir, base, now) {
            let _ = std::fs::remove_dir_all(dir);
        }
    }
}

/// A directory of this user that nobody else may enter.
fn is_ours(dir: &Path) -> bool {
    let user = rustix::process::geteuid().as_raw();
    std::fs::symlink_metadata(dir).is_ok_and(|m| m.is_dir() && m.uid() == user && m.mode() & 0o077 == 0)
}

fn silent_for(path: &Path, now: SystemTime) -> Option<Duration> {
    let seen = std::fs::symlink_metadata(path).and_then(|m| m.modified()).ok()?;
    now.duration_since(seen).ok()
}

fn left(dir: &Path, here: &Owner, now: SystemTime) -> bool {
    let path = dir.join(FILE);
    let mut text = Vec::new();
    let read = File::open(&path).and_then(|f| f.take(MOST).read_to_end(&mut text));
    let owner = read.ok().and_then(|_| serde_json::from_slice::<Owner>(&text).ok());
    // One from the future is not old.
    let silent = silent_for(&path, now).unwrap_or_default();
    owner.is_some_and(|owner| is_over(&owner, here, silent, began))
}

/// Whether a process on this machine was started with what is in there: it would go on without.
fn in_use(dir: &Path) -> bool {
    !crate::using(&dir.join("client.json")).is_empty()
}

/// What `forebay-slurm` noted of a job whose run has gone, or never came to be.
fn noted_of_nothing(dir: &Path, base: &Path, now: SystemTime) -> bool {
    match std::fs::read_to_string(dir.join("env")) {
        Ok(text) => {
            let config = text.lines().find_map(|l| l.strip_prefix("FOREBAY_CONFIG="));
            let run = config.and_then(|c| Path::new(c).parent());
            run.is_some_and(|run| run.parent() == Some(base) && !run.exists())
        }
        Err(_) => silent_for(dir, now).is_some_and(|silent| silent > GONE),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(host: &str, boot: &str) -> Owner {
        Owner { host: host.into(), boot: boot.into(), space: "pid:[1]".into(), pid: 7, began: 70 }
    }

    #[test]
    fn only_what_is_certainly_over() {
        let here = owner("c1", "b1");
        let over = |owner: &Owner, silent: u64, began: Option<u64>| {
            is_over(owner, &here, Duration::from_secs(silent), |_| began)
        };
        // Here: the process is there, or not, or its number is another's.
        assert!(!over(&here, 1_000_000, Some(70)));
        assert!(over(&here, 0, None));
        assert!(over(&here, 0, Some(71)));
        // Its /proc did not show it: nobody can tell.
        let unseen = Owner { began: 0, ..here.clone() };
        assert!(!over(&unseen, 80_000, None) && over(&unseen, 90_000, None));
        // In a container of this host, whose processes are not seen from here.
        let inside = Owner { space: "pid:[2]".into(), ..here.clone() };
        assert!(!over(&inside, 80_000, None) && over(&inside, 90_000, None));
        // This host before it started anew, unless it is another of the same name.
        let before = owner("c1", "b0");
        assert!(!over(&before, 300, None) && over(&before, 700, None));
        // Another host: suspended, or dead for good.
        let other = owner("c2", "b2");
        assert!(!over(&other, 80_000, None) && over(&other, 90_000, None));
    }

    #[test]
    fn a_lease_of_this_process_stays_and_of_one_that_is_gone_goes() {
        let base = std::env::temp_dir().join(format!("forebay-lease-{}", std::process::id()));
        std::fs::create_dir_all(&base).unwrap();
        let private = |name: &str| {
            use std::os::unix::fs::DirBuilderExt;
            let dir = base.join(name);
            std::fs::DirBuilder::new().mode(0o700).create(&dir).unwrap();
            dir
        };
        let [own, alive, dead, bare, noted, held] =
            ["forebay-1-0", "forebay-2-0", "forebay-3-0", "forebay-4-0", "slurm-1-0", "slurm-2-0"]
                .map(private);
        let leases = [&own, &alive].map(|dir| Lease::take(dir, || ()).unwrap());
        let gone = Owner { pid: u32::MAX, ..Owner::this() };
        write_private(&dead.join(FILE), &serde_json::to_vec(&gone).unwrap()).unwrap();
        let env = |dir: &Path| format!("LD_PRELOAD=x\nFOREBAY_CONFIG={}/client.json\n", dir.display());
        write_private(&noted.join("env"), env(&dead).as_bytes()).unwrap();
        write_private(&held.join("env"), env(&alive).as_bytes()).unwrap();
        sweep(&own, true);
        let there = |dirs: &[&PathBuf]| dirs.iter().map(|d| d.exists()).collect::<Vec<_>>();
        assert_eq!(there(&[&own, &alive, &bare, &held]), [true; 4]);
        assert_eq!(there(&[&dead, &noted]), [false; 2]);
        drop(leases);
        std::fs::remove_dir_all(base).unwrap();
    }
}
