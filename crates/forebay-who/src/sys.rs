//! The user database, as the C library knows it (files, LDAP, whatever `nsswitch.conf` says).

use std::ffi::{CStr, CString};
use std::io::{Error, Result};

/// An entry larger than this is none.
const LARGEST: usize = 1 << 20;
const MOST_GROUPS: usize = 65_536;

/// A user's entry.
pub(crate) struct Entry {
    pub(crate) name: String,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

/// Calls one of the `get…_r` functions with ever larger buffers. It returns 0 and `Some` for an entry, 0
/// and `None` for none, else an errno.
fn find<T>(mut ask: impl FnMut(&mut [libc::c_char]) -> (i32, Option<T>)) -> Result<Option<T>> {
    let mut buffer = vec![0; 4096];
    loop {
        match ask(&mut buffer) {
            (0, found) => return Ok(found),
            (libc::ERANGE, _) if buffer.len() < LARGEST => buffer.resize(buffer.len() * 4, 0),
            // What the C library says for "there is none", depending on where it looked.
            (libc::ENOENT | libc::ESRCH | libc::EBADF | libc::EPERM, _) => return Ok(None),
            (libc::EINTR, _) => {}
            (errno, _) => return Err(Error::from_raw_os_error(errno)),
        }
    }
}

/// # Safety
/// `entry` is null or what a `getpw…_r` function has just filled in, with its strings still there.
unsafe fn taken(entry: *const libc::passwd) -> Option<Entry> {
    // SAFETY: see above; `pw_name` is a C string of the caller's buffer.
    unsafe {
        let entry = entry.as_ref()?;
        let name = CStr::from_ptr(entry.pw_name).to_string_lossy().into_owned();
        Some(Entry { name, uid: entry.pw_uid, gid: entry.pw_gid })
    }
}

pub(crate) fn by_name(name: &str) -> Result<Option<Entry>> {
    let Ok(name) = CString::new(name) else { return Ok(None) };
    find(|buffer| {
        // SAFETY: `passwd` is plain data; every pointer is to a live local of the size that is told.
        unsafe {
            let (mut entry, mut found) = (std::mem::zeroed(), std::ptr::null_mut());
            let (at, len) = (buffer.as_mut_ptr(), buffer.len());
            let errno = libc::getpwnam_r(name.as_ptr(), &raw mut entry, at, len, &raw mut found);
            (errno, taken(found))
        }
    })
}

pub(crate) fn by_uid(uid: u32) -> Result<Option<Entry>> {
    find(|buffer| {
        // SAFETY: as in `by_name`.
        unsafe {
            let (mut entry, mut found) = (std::mem::zeroed(), std::ptr::null_mut());
            let (at, len) = (buffer.as_mut_ptr(), buffer.len());
            let errno = libc::getpwuid_r(uid, &raw mut entry, at, len, &raw mut found);
            (errno, taken(found))
        }
    })
}

pub(crate) fn group(name: &str) -> Result<Option<u32>> {
    let Ok(name) = CString::new(name) else { return Ok(None) };
    find(|buffer| {
        // SAFETY: `group` is plain data; every pointer is to a live local of the size that is told.
        unsafe {
            let (mut entry, mut found) = (std::mem::zeroed(), std::ptr::null_mut::<libc::group>());
            let (at, len) = (buffer.as_mut_ptr(), buffer.len());
            let errno = libc::getgrnam_r(name.as_ptr(), &raw mut entry, at, len, &raw mut found);
            (errno, found.as_ref().map(|g| g.gr_gid))
        }
    })
}

/// All groups of a user, `gid` among them.
pub(crate) fn groups(name: &str, gid: u32) -> Result<Vec<u32>> {
    let name = CString::new(name).map_err(|_| Error::from_raw_os_error(libc::EINVAL))?;
    let mut groups = vec![0; 64];
    loop {
        let mut count = i32::try_from(groups.len()).unwrap_or(i32::MAX);
        // SAFETY: the list has room for as many as `count` says.
        let got = unsafe { libc::getgrouplist(name.as_ptr(), gid, groups.as_mut_ptr(), &raw mut count) };
        if got >= 0 {
            groups.truncate(got.unsigned_abs() as usize);
            return Ok(groups);
        }
        if groups.len() >= MOST_GROUPS {
            return Err(Error::from_raw_os_error(libc::E2BIG));
        }
        groups.resize(groups.len() * 4, 0);
    }
}
