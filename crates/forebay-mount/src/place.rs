//! Where a mount goes: onto a directory of the machine ([`mount`], [`unmount`]), or into a namespace
//! that only one program sees ([`namespace`], [`doorway`]).

pub mod doorway;
pub mod namespace;

use crate::sys;
use rustix::fd::OwnedFd;
use rustix::fs::StatVfsMountFlags;
use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A mount that cannot be made, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum PlaceError {
    /// The device is not there, or not for this user.
    #[error("cannot open /dev/fuse: {}: {}", .0, device_advice(.0))]
    Device(io::Error),
    /// `mount(2)` said no.
    #[error("cannot mount on {}: {source}{}", dir.display(), mount_advice(source))]
    Mount {
        /// Where.
        dir: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The helper that mounts for users said no, or is not there.
    #[error("cannot mount on {}: {why}", dir.display())]
    Helper {
        /// Where.
        dir: PathBuf,
        /// Why.
        why: String,
    },
    /// There is nothing to mount on in what is served around it.
    #[error("cannot mount on {}: {why}", dir.display())]
    Within {
        /// Where.
        dir: PathBuf,
        /// Why.
        why: &'static str,
    },
    /// No namespaces.
    #[error("cannot make a {kind} namespace: {source}: {}", namespace_advice(kind))]
    Namespace {
        /// Which.
        kind: &'static str,
        /// Why.
        source: io::Error,
    },
    /// A step of preparing the namespace.
    #[error("{what} {}: {source}", path.display())]
    Step {
        /// What was tried.
        what: &'static str,
        /// With what.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// What the process in the namespace said.
    #[error("{0}")]
    Inside(String),
}

fn device_advice(e: &io::Error) -> &'static str {
    match e.kind() {
        io::ErrorKind::PermissionDenied => {
            "it is for root alone on this machine; an administrator can open it to everybody (mode 0666), as most distributions have it"
        }
        io::ErrorKind::NotFound => {
            "load the kernel module (modprobe fuse), or pass the device into the container"
        }
        _ => "is FUSE there (modprobe fuse)?",
    }
}

fn mount_advice(e: &io::Error) -> &'static str {
    match e.raw_os_error() {
        Some(libc::EPERM) => ": mounting is not allowed here (a container without SYS_ADMIN?)",
        Some(libc::ENODEV) => ": the kernel has no FUSE (modprobe fuse)",
        _ => "",
    }
}

fn namespace_advice(kind: &str) -> &'static str {
    if kind == "user" {
        "unprivileged user namespaces are switched off here (sysctl kernel.unprivileged_userns_clone, user.max_user_namespaces, kernel.apparmor_restrict_unprivileged_userns)"
    } else {
        "root without SYS_ADMIN, as in a container, cannot; use --via preload"
    }
}

pub(crate) fn step(what: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> PlaceError {
    let path = path.into();
    move |source| PlaceError::Step { what, path, source }
}

pub(crate) fn c_path(path: &Path) -> Result<CString, PlaceError> {
    CString::new(path.as_os_str().as_bytes())
        .map_err(|_| step("not a path:", path)(io::ErrorKind::InvalidInput.into()))
}

/// Opens the device through which the kernel asks.
pub fn open_device() -> Result<OwnedFd, PlaceError> {
    use rustix::fs::{Mode, OFlags};
    rustix::fs::open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
        .map_err(|e| PlaceError::Device(e.into()))
}

/// Whether this process may mount without a helper, as far as its user says.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Whether this process may mount in the namespace that it is in: root may not in every container, nor where it is root
/// of a user namespace alone. Nothing is mounted.
pub fn may_mount() -> io::Result<()> {
    match sys::open_file_system(c"fuse") {
        // Older kernels tell only by mounting.
        Err(e) if e.raw_os_error() == Some(libc::ENOSYS) => Ok(()),
        other => other.map(drop),
    }
}

/// The helper that mounts for users who are not root, and whether it can.
pub fn helper() -> Result<PathBuf, String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut all = std::env::split_paths(&path).map(|dir| dir.join("fusermount3"));
    let file = all.find(|file| file.is_file()).ok_or(
        "it is not installed: `forebay mount` needs it without root (package fuse3); `run --via mount` does not",
    )?;
    let about = std::fs::metadata(&file).map_err(|e| e.to_string())?;
    let set_user = about.uid() == 0 && about.mode() & 0o4000 != 0;
    let ignored = rustix::fs::statvfs(&file).is_ok_and(|fs| fs.f_flag.contains(StatVfsMountFlags::NOSUID));
    if !set_user || ignored || rustix::thread::no_new_privs().unwrap_or(false) {
        let file = file.display();
        return Err(format!(
            "{file} has not the rights of root here (set-user-ID), without which it cannot mount"
        ));
    }
    // It looks with the rights of whoever calls it.
    open_device().map_err(|e| e.to_string())?;
    Ok(file)
}

/// Mounts on `dir` by this process's own right, for every process that sees it. `checked`: the kernel
/// checks permissions by owner and mode.
pub fn mount(dir: &Path, checked: bool) -> Result<OwnedFd, PlaceError> {
    let device = open_device()?;
    let options = format!(
        "fd={},rootmode=40000,user_id={},group_id={},allow_other{}",
        sys::number(&device),
        rustix::process::geteuid().as_raw(),
        rustix::process::getegid().as_raw(),
        if checked { ",default_permissions" } else { "" },
    );
    let options = CString::new(options).map_err(|e| step("mount options", dir)(e.into()))?;
    let flags = libc::MS_NOSUID | libc::MS_NODEV;
    sys::mount(Some(c"forebay"), &c_path(dir)?, Some(c"fuse.forebay"), flags, Some(&options))
        .map_err(|source| PlaceError::Mount { dir: dir.to_owned(), source })?;
    Ok(device)
}

/// Mounts on `dir` with the help of `fusermount3`, for this user alone.
pub fn mount_as_user(dir: &Path) -> Result<OwnedFd, PlaceError> {
    use rustix::fd::AsFd;
    let failed = |why: String| PlaceError::Helper { dir: dir.to_owned(), why };
    let (ours, theirs) = std::os::unix::net::UnixStream::pair().map_err(|e| failed(e.to_string()))?;
    let ran = Command::new("fusermount3")
        .args(["-o", "nosuid,nodev,fsname=forebay,subtype=forebay", "--"])
        .arg(dir)
        .env("_FUSE_COMMFD", "0")
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .stdout(Stdio::null())
        .output()
        .map_err(|e| {
            failed(format!("fusermount3, which mounts for users who are not root, does not start ({e}): install fuse3, or use `forebay run --via mount`, which needs no helper"))
        })?;
    if !ran.status.success() {
        return Err(failed(String::from_utf8_lossy(&ran.stderr).trim().to_owned()));
    }
    match sys::receive_fd(ours.as_fd()) {
        Ok(Some((_, Some(device)))) => Ok(device),
        other => Err(failed(format!("fusermount3 gave no connection ({other:?})"))),
    }
}

/// Unmounts, also while it is in use: whoever uses it gets errors from then on.
pub fn unmount(dir: &Path) -> io::Result<()> {
    unmounted(dir, false)
}

/// The same for whoever ends at once: who waits for an answer there does not get it any more, this process neither.
pub fn unmount_by_force(dir: &Path) -> io::Result<()> {
    unmounted(dir, true)
}

fn unmounted(dir: &Path, by_force: bool) -> io::Result<()> {
    let at = CString::new(dir.as_os_str().as_bytes())?;
    match sys::unmount(&at, by_force) {
        Err(e) if e.raw_os_error() == Some(libc::EPERM) => {
            let ran = Command::new("fusermount3").args(["-u", "-z", "-q", "--"]).arg(dir).status()?;
            if ran.success() { Ok(()) } else { Err(e) }
        }
        other => other,
    }
}

/// The device number of the Forebay mount on `dir`, if the last one mounted there is Forebay's.
pub fn mounted(dir: &Path) -> Option<String> {
    let table = std::fs::read("/proc/self/mountinfo").ok()?;
    mount_of(&table, dir)
}

/// In the format of `proc_pid_mountinfo(5)`: the later of two lines for one place lies on top.
fn mount_of(table: &[u8], dir: &Path) -> Option<String> {
    let lines = table.split(|&b| b == b'\n').rev();
    for line in lines {
        let mut fields = line.split(|&b| b == b' ');
        let (Some(device), Some(place)) = (fields.nth(2), fields.nth(1)) else { continue };
        if unescape(place) != dir.as_os_str().as_bytes() {
            continue;
        }
        let ours = line.windows(13).any(|w| w == b"fuse.forebay ");
        return ours.then(|| String::from_utf8_lossy(device).into_owned());
    }
    None
}

/// Spaces and the like stand there as octal numbers.
fn unescape(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut i = 0;
    while i < text.len() {
        let octal = text
            .get(i + 1..i + 4)
            .filter(|d| text[i] == b'\\' && d.iter().all(|b| (b'0'..=b'7').contains(b)));
        match octal {
            Some(d) => {
                out.push(d.iter().fold(0u8, |n, b| n.wrapping_mul(8).wrapping_add(b - b'0')));
                i += 4;
            }
            None => {
                out.push(text[i]);
                i += 1;
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_topmost_mount_counts() {
        let table = b"22 1 8:1 / / rw - ext4 /dev/sda1 rw\n\
            30 22 0:40 / /mnt/a\\040b rw,nosuid - fuse.forebay forebay rw\n\
            31 22 0:41 / /mnt/c rw - fuse.forebay forebay rw\n\
            32 31 0:42 / /mnt/c rw - tmpfs tmpfs rw\n";
        assert_eq!(mount_of(table, Path::new("/mnt/a b")).as_deref(), Some("0:40"));
        assert_eq!(mount_of(table, Path::new("/mnt/c")), None);
        assert_eq!(mount_of(table, Path::new("/")), None);
        assert_eq!(mount_of(table, Path::new("/none")), None);
    }
}
