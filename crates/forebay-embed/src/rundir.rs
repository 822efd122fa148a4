//! Directories that go with this program, also when it is interrupted.

use crate::EmbedError;
use crate::interrupt::{remove, started};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long to try to remove one.
const REMOVAL: Duration = Duration::from_millis(100);

/// A private directory that is removed when this value is dropped.
#[derive(Debug)]
pub struct RunDir {
    path: PathBuf,
    /// Somebody else removes it.
    left: bool,
}

impl RunDir {
    /// Makes one below `base`. Names are short: a Unix socket's path may have 107 bytes.
    pub fn create(base: &Path) -> Result<RunDir, EmbedError> {
        // Whoever is told of it may have gone elsewhere.
        let base = std::path::absolute(base).map_err(EmbedError::io("cannot find", base))?;
        for attempt in 0..10_000u32 {
            let path = base.join(format!("forebay-{}-{attempt}", std::process::id()));
            let mut all = started();
            match std::fs::DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => {
                    all.directories.insert(path.clone());
                    return Ok(RunDir { path, left: false });
                }
                Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(e) => return Err(EmbedError::io("cannot make the directory", path)(e)),
            }
        }
        Err(EmbedError::Argument(format!(
            "{}: too many directories of earlier runs; remove forebay-*",
            base.display()
        )))
    }

    /// Removes what programs that were killed have left below `base`, where whoever asks is alone.
    pub fn sweep(base: &Path) {
        for entry in std::fs::read_dir(base).into_iter().flatten().flatten() {
            let directory = entry.file_type().is_ok_and(|t| t.is_dir());
            if directory && is_name(&entry.file_name()) {
                remove(&entry.path(), Instant::now() + REMOVAL);
            }
        }
    }

    /// One in memory if there is a memory file system, so that nothing but what is measured takes time.
    pub fn in_memory() -> Result<RunDir, EmbedError> {
        RunDir::create(&memory())
    }

    /// One for the temporary files (`TMPDIR`) of programs that this one starts, and may have to kill before they have
    /// removed them.
    pub fn for_others() -> Result<RunDir, EmbedError> {
        RunDir::create(&std::env::temp_dir())
    }

    /// One that another program made and left to this one.
    pub fn adopt(path: PathBuf) -> RunDir {
        started().directories.insert(path.clone());
        RunDir { path, left: false }
    }

    /// From now on it is somebody else's.
    pub(crate) fn leave(&mut self) {
        self.left = true;
        started().directories.remove(&self.path);
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for RunDir {
    fn drop(&mut self) {
        if self.left {
            return;
        }
        // A process of the job that lives on may still write here; what cannot be removed now stays.
        remove(&self.path, Instant::now() + REMOVAL);
        started().directories.remove(&self.path);
    }
}

/// What such directories are called.
pub(crate) fn is_name(name: &OsStr) -> bool {
    let numbers = name.to_str().and_then(|name| name.strip_prefix("forebay-")?.split_once('-'));
    numbers.is_some_and(|(pid, n)| [pid, n].iter().all(|n| n.parse::<u32>().is_ok()))
}

/// Whether the sockets in one that is made below there have paths that a socket can have.
pub(crate) fn can_listen(base: &Path) -> bool {
    let longest = |base: PathBuf| base.join("forebay-4194304-9999/node255.sock").as_os_str().len();
    std::path::absolute(base).is_ok_and(|base| longest(base) <= forebay_types::SOCKET_PATH)
}

/// Whether the loader finds a library below there that `LD_PRELOAD` names: it cuts names apart at some
/// characters, and puts something else in for `$`.
pub fn can_preload(path: &Path) -> bool {
    !path.as_os_str().as_bytes().iter().any(|b| b" :$".contains(b))
}

/// Whether nobody else can put something in the place of what this user makes in a directory, there or further up: who
/// may write to a directory can rename what is in it, and whoever owns a link on the way can have it lead elsewhere. Or
/// why not, and what to do.
pub(crate) fn is_own(dir: &Path) -> Result<(), String> {
    let failed = |at: &Path, e: std::io::Error| format!("{}: {e}", at.display());
    let whole = std::path::absolute(dir).map_err(|e| failed(dir, e))?;
    let mut left: Vec<PathBuf> = whole.components().rev().map(|c| PathBuf::from(c.as_os_str())).collect();
    let (mut at, mut links) = (PathBuf::new(), 0);
    while let Some(part) = left.pop() {
        if part == Path::new("..") {
            at.pop();
            continue;
        }
        let next = at.join(&part);
        let found = next.symlink_metadata().map_err(|e| failed(&next, e))?;
        is_kept(&next, &found)?;
        if !found.is_symlink() {
            at = next;
            continue;
        }
        links += 1;
        if links > MOST_LINKS {
            return Err(failed(dir, rustix::io::Errno::LOOP.into()));
        }
        let to = next.read_link().map_err(|e| failed(&next, e))?;
        left.extend(to.components().rev().map(|c| PathBuf::from(c.as_os_str())));
    }
    Ok(())
}

/// Whether nobody else can change where this directory, or link, leads.
fn is_kept(at: &Path, found: &std::fs::Metadata) -> Result<(), String> {
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    // Where a user has a group to himself, it is usual that that may write.
    let alone = found.gid() == gid && gid == uid;
    let writers = if alone { 0o002 } else { 0o022 };
    let fail = |why: &str| Err(format!("{} {why}: they could replace what is put there", at.display()));
    if !found.is_symlink() && found.mode() & writers != 0 && found.mode() & 0o1000 == 0 {
        return fail("can be written to by others, and has no sticky bit (chmod +t)");
    }
    // In a user namespace the owner of the system's directories may be nobody that it knows.
    if ![uid, 0, UNMAPPED].contains(&found.uid()) {
        return fail(&format!("is another user's ({})", found.uid()));
    }
    Ok(())
}

/// As the kernel has it.
const MOST_LINKS: u32 = 40;

/// Below which directory a run has its own: the one for temporary files, or one that is as good if that is not.
pub fn run_base() -> PathBuf {
    // It is told to I/O nodes as text.
    let fits =
        |dir: &PathBuf| dir.to_str().is_some() && can_preload(dir) && can_listen(dir) && is_own(dir).is_ok();
    let usual = PathBuf::from("/tmp");
    let mut good: Vec<PathBuf> = [std::env::temp_dir(), usual.clone(), memory()].into();
    good.retain(fits);
    let loads = good.iter().find(|dir| can_load(dir)).cloned();
    loads.or_else(|| good.into_iter().next()).unwrap_or(usual)
}

/// Whether programs can load something from a directory.
fn can_load(dir: &Path) -> bool {
    rustix::fs::statvfs(dir).is_ok_and(|fs| !fs.f_flag.contains(rustix::fs::StatVfsMountFlags::NOEXEC))
}

/// From where programs load the library of a run; or why they cannot.
///
/// # Errors
/// A sentence that says what to do.
pub fn can_load_library() -> Result<PathBuf, String> {
    let dir = run_base();
    if can_load(&dir) {
        return Ok(dir);
    }
    let dir = dir.display();
    Err(format!("{dir} is mounted noexec, so nothing can be loaded from it: set TMPDIR to another directory"))
}

/// As whose what belongs to nobody of a user namespace is shown.
const UNMAPPED: u32 = 65534;

/// A memory file system if there is one, or else where temporary files go.
pub fn memory() -> PathBuf {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, chown, lchown, symlink};

    #[test]
    fn links_on_the_way_are_nobody_elses() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        for (name, mode) in [("own", 0o700), ("open", 0o777), ("sticky", 0o1777)] {
            std::fs::create_dir(at(name)).unwrap();
            std::fs::set_permissions(at(name), PermissionsExt::from_mode(mode)).unwrap();
        }
        symlink("own", at("link")).unwrap();
        symlink(at("link"), at("sticky/far")).unwrap();
        symlink(at("own"), at("open/near")).unwrap();
        symlink("around", at("around")).unwrap();
        for good in ["own", "link", "sticky", "sticky/far", "own/../own", "sticky/far/../own"] {
            assert_eq!(is_own(&at(good)), Ok(()), "{good}");
        }
        for bad in ["open", "open/near", "around", "none"] {
            assert!(is_own(&at(bad)).is_err(), "{bad}");
        }
        if rustix::process::geteuid().is_root() {
            lchown(at("sticky/far"), Some(64_321), None).unwrap();
            assert!(is_own(&at("sticky/far")).unwrap_err().contains("another user's (64321)"));
            std::fs::create_dir(at("theirs")).unwrap();
            symlink(at("own"), at("theirs/link")).unwrap();
            chown(at("theirs"), Some(64_321), None).unwrap();
            assert!(
                is_own(&at("theirs/link")).is_err(),
                "its own link may be replaced by whoever has the directory"
            );
        }
    }
}
