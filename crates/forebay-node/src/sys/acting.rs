//! Acting as somebody: a thread's file-system user, group, supplementary groups, capabilities and umask.
//!
//! Linux keeps these for each thread; the C library's functions would change them for the whole process,
//! so the system calls are made directly. A thread remembers as whom it acts, and whoever needs to act as
//! somebody says so right before: [`act_as`] does nothing if that is so already, and otherwise changes
//! all of it or, if anything goes wrong, leaves the thread as nobody known, so that the next one changes
//! all of it again. Nothing is ever taken for granted: a request cannot run under what the one before it
//! left behind, nor under what the thread that started this one had.
//!
//! Leaving user 0 takes the file system's capabilities away in the kernel, but not those that let root
//! write beyond quotas and reserves or set trusted and security attributes: so all but the two needed to
//! change back leave the effective set.

use forebay_types::Identity;
use rustix::io::Errno;
use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

const CAP_SETGID: u32 = 6;
const CAP_SETUID: u32 = 7;
/// `_LINUX_CAPABILITY_VERSION_3`: 64 bits, in two halves.
const CAP_VERSION: u32 = 0x2008_0522;

/// As whom requests are carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Whom {
    /// As the node itself.
    Node,
    /// As this user.
    User(Arc<Identity>),
    /// As nobody: they are refused.
    Nobody,
}

/// Whether any thread of this process has ever acted as somebody else.
static SWITCHES: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// As whom this thread acts, where it is known.
    static NOW: RefCell<Option<Whom>> = const { RefCell::new(None) };
    /// The umask of this thread, once it has one of its own.
    static UMASK: Cell<Option<u32>> = const { Cell::new(None) };
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Half {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

#[repr(C)]
struct CapHeader {
    version: u32,
    pid: i32,
}

/// What the process was started with.
struct Own {
    uid: u32,
    gid: u32,
    groups: Vec<u32>,
    capabilities: [Half; 2],
}

fn check(result: libc::c_long) -> Result<libc::c_long, Errno> {
    if result < 0 { Err(super::last_error()) } else { Ok(result) }
}

fn own() -> Result<&'static Own, Errno> {
    static OWN: OnceLock<Result<Own, Errno>> = OnceLock::new();
    let own = OWN.get_or_init(|| {
        let groups = rustix::process::getgroups()?.into_iter().map(rustix::process::Gid::as_raw).collect();
        let mut capabilities = [Half::default(); 2];
        let mut header = CapHeader { version: CAP_VERSION, pid: 0 };
        // SAFETY: version 3 reads the header and fills in two halves.
        check(unsafe { libc::syscall(libc::SYS_capget, &raw mut header, capabilities.as_mut_ptr()) })?;
        let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        Ok(Own { uid, gid, groups, capabilities })
    });
    own.as_ref().map_err(|e| *e)
}

/// To be called before any other thread is there: whether this process may act as others.
pub(crate) fn may_switch() -> Result<bool, Errno> {
    let own = own()?;
    let needed = 1 << CAP_SETUID | 1 << CAP_SETGID;
    Ok(own.uid == 0 && own.capabilities[0].effective & needed == needed)
}

/// From now on this thread acts as `whom`; refused for nobody.
pub(crate) fn act_as(whom: &Whom) -> Result<(), Errno> {
    match whom {
        Whom::Nobody => return Err(Errno::ACCESS),
        Whom::Node if !SWITCHES.load(Relaxed) => return Ok(()),
        _ => {}
    }
    NOW.with_borrow_mut(|now| {
        let same = match (&*now, whom) {
            (Some(Whom::User(a)), Whom::User(b)) => Arc::ptr_eq(a, b) || a == b,
            (Some(Whom::Node), Whom::Node) => true,
            _ => false,
        };
        if same {
            return Ok(());
        }
        // Whatever happens from here on, nobody relies on what was.
        *now = None;
        SWITCHES.store(true, Relaxed);
        let own = own()?;
        match whom {
            Whom::User(who) => {
                let mut capabilities = own.capabilities;
                if who.uid != 0 {
                    capabilities[0].effective &= 1 << CAP_SETUID | 1 << CAP_SETGID;
                    capabilities[1].effective = 0;
                }
                switch(who.uid, who.gid, &who.groups, &capabilities)?;
            }
            _ => switch(own.uid, own.gid, &own.groups, &own.capabilities)?,
        }
        *now = Some(whom.clone());
        Ok(())
    })
}

/// Who `whom` is, if not somebody who may everything or nothing.
pub(crate) fn identity(whom: &Whom) -> Option<Arc<Identity>> {
    match whom {
        Whom::User(user) => Some(Arc::clone(user)).filter(|user| user.uid != 0),
        Whom::Node => {
            let own = own().ok().filter(|own| own.uid != 0)?;
            Some(Arc::new(Identity { uid: own.uid, gid: own.gid, groups: own.groups.clone() }))
        }
        Whom::Nobody => None,
    }
}

/// Does something as the node itself, whomever this thread acts as; the next request says again as whom.
pub(crate) fn as_node<T>(act: impl FnOnce() -> T) -> Result<T, Errno> {
    act_as(&Whom::Node)?;
    Ok(act())
}

fn switch(uid: u32, gid: u32, groups: &[u32], capabilities: &[Half; 2]) -> Result<(), Errno> {
    const QUESTION: u32 = u32::MAX;
    let header = CapHeader { version: CAP_VERSION, pid: 0 };
    // SAFETY: these calls take numbers, and lists of the length that is told; they change this thread alone.
    unsafe {
        check(libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()))?;
        libc::syscall(libc::SYS_setfsgid, gid);
        libc::syscall(libc::SYS_setfsuid, uid);
        // Neither says whether it worked; a number that cannot be changes nothing and tells what is.
        let is = (libc::syscall(libc::SYS_setfsuid, QUESTION), libc::syscall(libc::SYS_setfsgid, QUESTION));
        if (is.0 as u32, is.1 as u32) != (uid, gid) {
            return Err(Errno::PERM);
        }
        check(libc::syscall(libc::SYS_capset, &raw const header, capabilities.as_ptr()))?;
    }
    Ok(())
}

/// Does something that makes a file under this umask, which the kernel heeds only where the directory has no
/// default access control list. `None`: this thread cannot have an umask of its own.
pub(crate) fn under_umask<T>(mask: u32, act: impl FnOnce() -> T) -> Option<T> {
    let mask = mask & 0o777;
    if UMASK.get().is_none() {
        if mask == 0 {
            // Nobody has another one than the process's, which is 0.
            return Some(act());
        }
        // SAFETY: takes a number. Working directory, root and umask become this thread's own.
        check(unsafe { libc::unshare(libc::CLONE_FS) }.into()).ok()?;
        UMASK.set(Some(u32::MAX));
    }
    if UMASK.get() != Some(mask) {
        rustix::process::umask(rustix::fs::Mode::from_raw_mode(mask));
        UMASK.set(Some(mask));
    }
    Some(act())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    fn user(uid: u32, groups: &[u32]) -> Whom {
        Whom::User(Arc::new(Identity { uid, gid: uid, groups: groups.to_vec() }))
    }

    fn made(dir: &std::path::Path, name: &str) -> u32 {
        let path = dir.join(name);
        std::fs::write(&path, "x").unwrap();
        std::fs::metadata(path).unwrap().uid()
    }

    fn status(key: &str) -> String {
        let text = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let line = text.lines().find_map(|l| l.strip_prefix(key)).unwrap();
        line.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_thread_acts_as_whoever_was_named_last_and_its_children_are_asked_anew() {
        if !may_switch().unwrap() {
            return forebay_testkit::skipped("acting as others", "only root can");
        }
        let dir = tempfile::tempdir().unwrap();
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        std::fs::set_permissions(dir.path(), open).unwrap();
        let at = dir.path().to_owned();
        std::thread::spawn(move || {
            act_as(&user(7001, &[7100, 7200])).unwrap();
            assert_eq!(made(&at, "a"), 7001);
            assert_eq!(status("Groups:"), "7100 7200");
            assert_eq!(status("CapEff:"), "00000000000000c0", "only what it takes to change back");
            // A thread started now has its identity, and does not believe so.
            let inner = at.clone();
            std::thread::spawn(move || {
                act_as(&Whom::Node).unwrap();
                assert_eq!(made(&inner, "b"), 0);
                act_as(&user(7002, &[])).unwrap();
                assert_eq!((made(&inner, "c"), status("Groups:")), (7002, String::new()));
            })
            .join()
            .unwrap();
            assert_eq!(as_node(|| made(&at, "d")), Ok(0));
            // What failed half-way is not taken for done.
            let impossible = Identity { uid: u32::MAX, gid: 1, groups: vec![] };
            assert!(act_as(&Whom::User(Arc::new(impossible))).is_err());
            act_as(&Whom::Node).unwrap();
            assert_eq!(made(&at, "e"), 0);
            assert_eq!(act_as(&Whom::Nobody), Err(Errno::ACCESS));
        })
        .join()
        .unwrap();
        assert_eq!(made(dir.path(), "f"), 0, "no other thread has changed");
    }

    #[test]
    fn an_umask_is_a_threads_own() {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path().to_owned();
        let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().mode() & 0o777;
        std::thread::spawn(move || {
            for (name, mask, want) in [("a", 0o077, 0o600), ("b", 0o022, 0o644), ("c", 0, 0o666)] {
                let path = at.join(name);
                under_umask(mask, || std::fs::write(&path, "x")).unwrap().unwrap();
                assert_eq!(mode(&path), want, "{name}");
            }
        })
        .join()
        .unwrap();
    }
}
