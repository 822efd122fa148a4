//! What a name below a mount is, asked of an I/O node: one trip, where the kernel asks the mount for the name, for the attributes and,
//! where it checks permissions, for those of each directory. The node resolves the path as the kernel would. Only where
//! that is the same: the mount is where it was, in this process' eyes, nothing else is mounted below it, the process may search
//! every directory there is, and the path goes neither up nor round about. Everything else is the kernel's.

use crate::look;
use crate::state::{self, State};
use forebay_client::{Answer, Attr, Config, Error, ExportId, IDS, Ids, Meta, Path, Target};
use forebay_hook::sys::{self, sys};
use forebay_hook::user;
use std::ffi::{c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Longer paths, and names, are the kernel's, which says what is wrong with them.
const LONGEST_PATH: usize = 4000;
const LONGEST_NAME: usize = 255;
/// A file in `/proc` of a few lines.
const FEW: usize = 4096;

/// The mounts, and how they show files.
pub(crate) struct Names {
    ids: Ids,
    mounts: Vec<Mount>,
    /// The process has left the user namespace for which they were made.
    left: AtomicBool,
    calls: AtomicU32,
}

/// One of them.
struct Mount {
    /// With a NUL.
    dir: Vec<u8>,
    export: ExportId,
    device: (u32, u32),
    /// As the kernel numbers mounts, one by one, in every namespace; and the number that programs know.
    number: u64,
    short: u64,
}

/// What was found.
pub(crate) struct Found {
    /// As the kernel shows it.
    pub(crate) attr: Attr,
    /// The number of its mount.
    pub(crate) mount: u64,
    /// What the kernel would tell if it were so.
    pub(crate) attributes: u64,
}

impl Names {
    /// The mounts of this configuration as this process sees them. Nothing: names are the kernel's.
    pub(crate) fn find(config: &Config, run: &std::path::Path) -> Option<Names> {
        let ids = Ids::from_json(&sys::read_file(run.join(IDS).as_os_str().as_bytes(), 1 << 20)?)?;
        let exports = config.exports.iter().enumerate();
        let mounts = exports.filter_map(|(i, map)| {
            let dir = sys::cstring(map.dir.as_os_str().as_bytes());
            let root = root_of(&dir)?;
            let short = look::statx(
                libc::AT_FDCWD,
                dir.as_ptr().cast(),
                libc::AT_STATX_DONT_SYNC,
                libc::STATX_MNT_ID,
            )?;
            let device = (root.stx_dev_major, root.stx_dev_minor);
            let export = ExportId(u16::try_from(i).ok()?);
            Some(Mount { dir, export, device, number: root.stx_mnt_id, short: short.stx_mnt_id })
        });
        let names =
            Names { mounts: mounts.collect(), ids, left: AtomicBool::new(false), calls: AtomicU32::new(0) };
        (!names.mounts.is_empty() && names.fits()).then_some(names)
    }

    /// Whether users have the numbers here for which the mounts were made.
    fn fits(&self) -> bool {
        let Some(map) = sys::read_file(b"/proc/self/uid_map", FEW) else { return false };
        let map = String::from_utf8_lossy(&map);
        let numbers: Vec<u32> = map.split_ascii_whitespace().filter_map(|n| n.parse().ok()).collect();
        self.ids.numbers().is_none_or(|wanted| numbers == wanted)
    }

    /// In a forked child: it may have been made in another namespace.
    pub(crate) fn after_fork(&self) {
        if !self.fits() {
            self.leave();
        }
    }

    /// From now on names are the kernel's.
    pub(crate) fn leave(&self) {
        self.left.store(true, Ordering::Relaxed);
    }

    /// The mount that an absolute path leads into, and the rest of it.
    fn mount_of<'p>(&self, path: &'p [u8]) -> Option<(&Mount, &'p [u8])> {
        let inside = |mount: &Mount| {
            let rest = path.strip_prefix(&mount.dir[..mount.dir.len() - 1])?;
            rest.strip_prefix(b"/").or(rest.is_empty().then_some(rest))
        };
        let found = self.mounts.iter().filter_map(|mount| Some((mount, inside(mount)?)));
        found.max_by_key(|(mount, _)| mount.dir.len())
    }
}

/// The root of the mount that lies at `dir`, if one does.
fn root_of(dir: &[u8]) -> Option<libc::statx> {
    let wanted = libc::STATX_BASIC_STATS | libc::STATX_MNT_ID_UNIQUE;
    let root = look::statx(libc::AT_FDCWD, dir.as_ptr().cast(), libc::AT_STATX_DONT_SYNC, wanted)?;
    let known = root.stx_mask & libc::STATX_MNT_ID_UNIQUE != 0;
    (known && root.stx_attributes & libc::STATX_ATTR_MOUNT_ROOT as u64 != 0).then_some(root)
}

/// Whether nothing is mounted below a mount.
fn is_bare(mount: u64) -> bool {
    #[repr(C)]
    struct Asked {
        size: u32,
        spare: u32,
        mount: u64,
        after: u64,
        namespace: u64,
    }
    let asked = Asked { size: size_of::<Asked>() as u32, spare: 0, mount, after: 0, namespace: 0 };
    let mut found = 0u64;
    sys!(listmount, &raw const asked, &raw mut found, 1, 0) == 0
}

/// Whether this process may search every directory.
fn may_search() -> bool {
    const VERSION: u32 = 0x2008_0522;
    const DAC_READ_SEARCH: u32 = 1 << 2;
    let head = [VERSION, 0];
    let mut sets = [0u32; 6];
    sys!(capget, head.as_ptr(), sets.as_mut_ptr()) == 0 && sets[0] & DAC_READ_SEARCH != 0
}

/// Whether a path goes straight down.
fn is_plain(path: &[u8]) -> bool {
    let plain = |name: &[u8]| !matches!(name, b"" | b"." | b"..") && name.len() <= LONGEST_NAME;
    path.len() <= LONGEST_PATH && path.split(|b| *b == b'/').all(plain)
}

/// The attributes of what has that path, of the link itself unless it is `followed`; or an errno. `None`: the kernel is to be asked.
pub(crate) fn attributes(dir: c_int, path: *const c_char, followed: bool) -> Option<Result<Found, i32>> {
    let state = state::get()?;
    let names = state.names.as_ref().filter(|names| !names.left.load(Ordering::Relaxed))?;
    // SAFETY: the program's own argument to a function that takes a C string.
    let path = unsafe { user::text(path) }?;
    let mut whole = [0; libc::PATH_MAX as usize];
    let mut joined;
    let (mount, rel) = match path {
        [b'/', ..] => names.mount_of(path).filter(|(_, rel)| is_plain(rel))?,
        _ if dir == libc::AT_FDCWD && is_plain(path) => {
            let (mount, below) = names.mount_of(sys::getcwd_into(&mut whole)?)?;
            // What was worked in before the mount came has the same name.
            look::at(libc::AT_FDCWD).filter(|seen| seen.device == mount.device)?;
            joined = below.to_vec();
            if !below.is_empty() {
                joined.push(b'/');
            }
            joined.extend_from_slice(path);
            (mount, &joined[..])
        }
        _ => return None,
    };
    if !state.is_worth_it(names.calls.fetch_add(1, Ordering::Relaxed), 0)
        || rel.len() > LONGEST_PATH
        || !state.is_home()
        || !look::has_room()
        || names.ids.kernel_checks() && !may_search()
    {
        return None;
    }
    let root = root_of(&mount.dir)?;
    let same = (root.stx_dev_major, root.stx_dev_minor) == mount.device && root.stx_mnt_id == mount.number;
    if !same || !is_bare(mount.number) {
        return None;
    }
    let found = ask(state, Path { export: mount.export, rel }, followed)?;
    Some(found.map(|attr| {
        let (attr, attributes) = (names.shown(&attr, mount), root.stx_attributes_mask);
        Found { attr, mount: mount.short, attributes }
    }))
}

/// Apart, so that its stack is not that of every call.
#[inline(never)]
fn ask(state: &'static State, path: Path<'_>, followed: bool) -> Option<Result<Attr, i32>> {
    let target = if followed { Target::Path(path) } else { Target::Link(path) };
    let attr = |answer: Answer<'_>| match answer {
        Answer::Attr(attr) => Some(attr),
        _ => None,
    };
    let client = state.client()?;
    if !client.is_connected() && !look::has_descriptor() {
        return None;
    }
    let told = client.meta(Meta::Stat { target }, attr);
    state.count();
    match told {
        // The kernel says by itself how large a block is.
        Ok(attr) => attr.blksize.is_power_of_two().then_some(Ok(attr)),
        Err(Error::Refused { errno: libc::ENOENT, .. }) => Some(Err(libc::ENOENT)),
        Err(Error::Refused { .. } | Error::Escapes) => None,
        Err(e) => Some(Err(e.errno())),
    }
}

impl Names {
    fn shown(&self, attr: &Attr, mount: &Mount) -> Attr {
        let (uid, gid) = self.ids.seen(attr);
        let dev = libc::makedev(mount.device.0, mount.device.1);
        Attr { dev, uid, gid, btime: None, ..*attr }
    }
}
