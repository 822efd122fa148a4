//! A view of the machine for one program and what it starts: as everywhere, but with the mounts in
//! it. Without root it is a user namespace in which the user keeps his number. Directories that the
//! machine does not have are made in it, not on the machine.

use super::doorway::Outside;
use super::{PlaceError, c_path, is_root, mount, step};
use crate::sys;
use rustix::fs::{Access, Mode};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{File, TryLockError};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// A directory that has to be rebuilt may have so many entries.
const MOST_ENTRIES: usize = 4096;

/// Directories that were made on the machine for the time of a run. Dropping this removes them, unless another run has
/// mounted there since: a mount goes with its directory.
#[derive(Debug, Default)]
pub struct TemporaryDirs {
    made: Vec<PathBuf>,
    /// Of every directory that is mounted on, as long as it is: locked by all who do so.
    used: Vec<File>,
}

impl Drop for TemporaryDirs {
    fn drop(&mut self) {
        // Who cannot have it alone, once his own are let go, is not the only one.
        self.used.clear();
        let alone = |dir: &Path| match File::open(dir) {
            Ok(dir) => !matches!(dir.try_lock(), Err(TryLockError::WouldBlock)),
            Err(_) => true,
        };
        for dir in self.made.iter().rev() {
            if alone(dir) {
                // Whatever somebody put there is theirs.
                let _ = std::fs::remove_dir(dir);
            }
        }
    }
}

/// Makes those of `dirs` that are not there on the machine itself, where the user may and would
/// otherwise lose what is written beside them; the rest are made in the namespace.
pub fn make_dirs(dirs: &[PathBuf]) -> Result<TemporaryDirs, PlaceError> {
    let mut made = TemporaryDirs::default();
    for dir in dirs {
        let (parent, missing) = split(dir);
        if missing.is_empty() || parent == Path::new("/") || !sys::may(&parent, Access::WRITE_OK) {
            continue;
        }
        let mut at = parent;
        for name in missing {
            at.push(name);
            std::fs::create_dir(&at).map_err(step("cannot make the directory", &at))?;
            made.made.push(at.clone());
        }
    }
    // Where locks are not known, nobody else's are seen either.
    let lock = |dir: &PathBuf| File::open(dir).ok().filter(|dir| dir.try_lock_shared().is_ok());
    made.used = dirs.iter().filter_map(lock).collect();
    Ok(made)
}

/// The part of a path that is there, and the names that are missing.
fn split(dir: &Path) -> (PathBuf, Vec<OsString>) {
    let mut parent = dir.to_owned();
    let mut missing = Vec::new();
    while !parent.exists() {
        let Some(name) = parent.file_name() else { break };
        missing.push(name.to_owned());
        parent.pop();
    }
    missing.reverse();
    (parent, missing)
}

/// Goes into a namespace of its own, mounts on every directory of `dirs`, and hands the connections
/// over at `socket`. `stage` is an empty directory for the time of building. The process must have
/// one thread; it comes back into the directory it was in, as that is called inside.
pub fn enter(socket: &Path, stage: &Path, dirs: &[PathBuf]) -> Result<(), PlaceError> {
    let outside = Outside::connect(socket)?;
    match prepare(&outside, stage, dirs) {
        Ok(()) => Ok(()),
        Err(e) => {
            outside.tell(&e);
            Err(e)
        }
    }
}

/// Goes into a namespace and mounts there, where nothing is asked for: to find out whether it is possible. The mount
/// ends with this process, which has nothing more to do than to end.
pub fn try_it() -> Result<(), PlaceError> {
    super::open_device()?;
    let root = is_root();
    if root { new_mounts() } else { new_user() }?;
    change(Path::new("/"), libc::MS_SLAVE | libc::MS_REC)?;
    mount(Path::new("/"), root).map(drop)
}

fn new_mounts() -> Result<(), PlaceError> {
    sys::unshare(libc::CLONE_NEWNS).map_err(|source| PlaceError::Namespace { kind: "mount", source })
}

fn prepare(outside: &Outside, stage: &Path, dirs: &[PathBuf]) -> Result<(), PlaceError> {
    let here = std::env::current_dir().ok();
    let root = is_root();
    if root { new_mounts() } else { new_user() }?;
    // Mounts of the machine are seen; those made here are not seen there.
    change(Path::new("/"), libc::MS_SLAVE | libc::MS_REC)?;
    make_room(stage, dirs)?;
    let mut dirs: Vec<&PathBuf> = dirs.iter().collect();
    dirs.sort_by_key(|d| d.components().count());
    for (n, dir) in dirs.iter().enumerate() {
        if dirs[..n].iter().any(|outer| dir.starts_with(outer)) && !dir.is_dir() {
            let why = "what the directory around it is served from has no such directory: make it there, or take --via preload";
            return Err(PlaceError::Within { dir: dir.to_path_buf(), why });
        }
        let device = mount(dir, root)?;
        outside.hand_over(&device).map_err(step("cannot hand over the mount on", dir))?;
        // Should the other side be gone, the mount ends with the last descriptor. Held here, nobody would ever answer.
        drop(device);
        // Until it has asked, the kernel takes the mount's root for nobody's and lets no user write
        // there. If no I/O node answers, every call says so.
        let _ = std::fs::metadata(dir);
    }
    match here {
        Some(here) => std::env::set_current_dir(&here).map_err(step("cannot go back to", here)),
        None => Ok(()),
    }
}

/// A user and mount namespace in which this user is the same user.
fn new_user() -> Result<(), PlaceError> {
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    sys::unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWNS)
        .map_err(|source| PlaceError::Namespace { kind: "user", source })?;
    let write = |file: &str, text: String| std::fs::write(file, text).map_err(step("cannot write", file));
    // Without this a group that takes rights away could be left.
    write("/proc/self/setgroups", "deny".into())?;
    write("/proc/self/uid_map", format!("{uid} {uid} 1"))?;
    write("/proc/self/gid_map", format!("{gid} {gid} 1"))
}

/// Makes the directories that are missing: their parent is replaced by a small file system in memory
/// with everything that is in the parent, and them.
fn make_room(stage: &Path, dirs: &[PathBuf]) -> Result<(), PlaceError> {
    let mut rooms: BTreeMap<PathBuf, Vec<Vec<OsString>>> = BTreeMap::new();
    for dir in dirs {
        let (parent, missing) = split(dir);
        if missing.is_empty() {
            if !dir.is_dir() {
                return Err(step("cannot mount on", dir)(io::ErrorKind::NotADirectory.into()));
            }
            continue;
        }
        rooms.entry(parent).or_default().push(missing);
    }
    // The root is replaced last: the others must still be found.
    for (parent, names) in rooms.iter().rev() {
        rebuild(stage, parent, names)?;
    }
    Ok(())
}

fn rebuild(stage: &Path, parent: &Path, names: &[Vec<OsString>]) -> Result<(), PlaceError> {
    let mode = std::fs::metadata(parent).map_or(0o755, |m| m.permissions().mode() & 0o777);
    let options = c_path(Path::new(&format!("mode={mode:o},size=4m")))?;
    let at = c_path(stage)?;
    let plain = libc::MS_NOSUID | libc::MS_NODEV;
    sys::mount(Some(c"forebay"), &at, Some(c"tmpfs"), plain, Some(&options))
        .map_err(step("cannot mount memory on", stage))?;
    // Otherwise it would be found in itself.
    change(stage, libc::MS_UNBINDABLE)?;
    let entries = std::fs::read_dir(parent).map_err(step("cannot list", parent))?;
    for (n, entry) in entries.enumerate() {
        let entry = entry.map_err(step("cannot list", parent))?;
        if n >= MOST_ENTRIES {
            return Err(step("too many entries in", parent)(io::Error::from_raw_os_error(libc::E2BIG)));
        }
        bring(&entry.path(), &stage.join(entry.file_name()))?;
    }
    for missing in names {
        let dir = missing.iter().fold(stage.to_owned(), |at, name| at.join(name));
        std::fs::create_dir_all(&dir).map_err(step("cannot make the directory", dir))?;
    }
    let read_only = libc::MS_REMOUNT | libc::MS_BIND | libc::MS_RDONLY | plain;
    sys::mount(None, &at, None, read_only, None).map_err(step("cannot protect", stage))?;
    change(stage, libc::MS_PRIVATE)?;
    if parent != Path::new("/") {
        return sys::mount(Some(&at), &c_path(parent)?, None, libc::MS_MOVE, None)
            .map_err(step("cannot mount on", parent));
    }
    std::env::set_current_dir(stage).map_err(step("cannot go to", stage))?;
    sys::pivot_root_here()
        .and_then(|()| sys::unmount(c".", false))
        .map_err(step("cannot change the root to", stage))?;
    std::env::set_current_dir("/").map_err(step("cannot go to", "/"))
}

/// Changes how a mount and others hear of each other.
fn change(at: &Path, how: u64) -> Result<(), PlaceError> {
    sys::mount(None, &c_path(at)?, None, how, None).map_err(step("cannot keep mounts private below", at))
}

/// Makes `from` seen at `to`.
fn bring(from: &Path, to: &Path) -> Result<(), PlaceError> {
    let kind = std::fs::symlink_metadata(from).map_err(step("cannot look at", from))?;
    if kind.is_symlink() {
        let target = std::fs::read_link(from).map_err(step("cannot read the link", from))?;
        return std::os::unix::fs::symlink(target, to).map_err(step("cannot make the link", to));
    }
    if kind.is_dir() {
        std::fs::create_dir(to).map_err(step("cannot make the directory", to))?;
    } else {
        rustix::fs::mknodat(
            rustix::fs::CWD,
            to,
            rustix::fs::FileType::RegularFile,
            Mode::from_raw_mode(0o600),
            0,
        )
        .map_err(|e| step("cannot make the file", to)(e.into()))?;
    }
    match sys::mount(Some(&c_path(from)?), &c_path(to)?, None, libc::MS_BIND | libc::MS_REC, None) {
        // What may not be looked at cannot be used either.
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied && !is_root() => Ok(()),
        other => other.map_err(step("cannot bring in", from)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_missing_is_made_and_removed() {
        let top = tempfile::tempdir().unwrap();
        let dir = top.path().join("a/b");
        assert_eq!(split(&dir), (top.path().to_owned(), vec!["a".into(), "b".into()]));
        {
            let _made = make_dirs(&[dir.clone(), top.path().to_owned()]).unwrap();
            assert!(dir.is_dir());
        }
        assert!(!top.path().join("a").exists() && top.path().exists());
        let first = make_dirs(std::slice::from_ref(&dir)).unwrap();
        let second = make_dirs(std::slice::from_ref(&dir)).unwrap();
        drop(first);
        assert!(dir.is_dir(), "another one is mounted there");
        drop(second);
    }
}
