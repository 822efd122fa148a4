//! `ioctl` on forwarded files: what can be answered is, the rest gets the errno of a file system that does
//! not have it. The placeholder's own answers would be about the placeholder.

use super::{fail, fail_errno, fd, hooks, size};
use crate::notes;
use crate::state::state;
use crate::sys::{self, sys};
use crate::table::{self, Open};
use crate::user;
use forebay_client::{Answer, Error, File, Meta, OpenFlags, Target};
use std::ffi::{c_int, c_ulong};

hooks! {
    c"ioctl" => ioctl,
}

/// The low 32 bits tell them apart; some libraries pass them sign-extended.
mod request {
    pub(super) const FIBMAP: u32 = 1;
    pub(super) const FIGETBSZ: u32 = 2;
    pub(super) const FIONREAD: u32 = 0x541b;
    pub(super) const FIONBIO: u32 = 0x5421;
    pub(super) const FIONCLEX: u32 = 0x5450;
    pub(super) const FIOCLEX: u32 = 0x5451;
    pub(super) const FIOASYNC: u32 = 0x5452;
    pub(super) const FIEMAP: u32 = 0xc020_660b;
    pub(super) const FICLONE: u32 = 0x4004_9409;
    pub(super) const FICLONERANGE: u32 = 0x4020_940d;
    pub(super) const FIDEDUPERANGE: u32 = 0xc018_9436;
    pub(super) const SETFLAGS: u32 = 0x4008_6602;
    pub(super) const FSSETXATTR: u32 = 0x401c_5820;
}

pub(crate) unsafe extern "C" fn ioctl(fd: c_int, asked: c_ulong, argument: usize) -> c_int {
    let Some(open) = table::get(fd) else {
        // A forwarded file cannot be cloned into one of this machine.
        if asked as u32 == request::FICLONE && table::is_forwarded(argument as c_int) {
            return fail_errno(libc::EXDEV) as c_int;
        }
        return sys::ret(sys!(ioctl, fd, asked, argument)) as c_int;
    };
    let Some(file) = open.remote() else { return fail_errno(libc::ENOTTY) as c_int };
    if file.flags().has(OpenFlags::PATH) {
        return fail_errno(libc::EBADF) as c_int;
    }
    match asked as u32 {
        // About the descriptor, not the file.
        request::FIOCLEX | request::FIONCLEX => sys::ret(sys!(ioctl, fd, asked, argument)) as c_int,
        request::FIONBIO => switch(fd, argument, libc::O_NONBLOCK),
        // The kernel has no way to announce a regular file.
        request::FIOASYNC => match switched(fd, argument, libc::O_ASYNC) {
            Ok((before, after)) if before != after => fail_errno(libc::ENOTTY) as c_int,
            Ok(_) => 0,
            Err(e) => fail_errno(e) as c_int,
        },
        request::FIONREAD if !file.is_dir() => give(&open, argument, left(fd, file)),
        request::FIGETBSZ => give(&open, argument, block_size(file)),
        request::FIBMAP => fail_errno(libc::EINVAL) as c_int,
        request::FIEMAP | request::FICLONE | request::FICLONERANGE | request::FIDEDUPERANGE => {
            fail_errno(libc::EOPNOTSUPP) as c_int
        }
        other => {
            if matches!(other, request::SETFLAGS | request::FSSETXATTR) {
                notes::note("ioctl", &open.path, "a file's flags cannot be set: refused with ENOTTY");
            }
            fail_errno(libc::ENOTTY) as c_int
        }
    }
}

/// The flags of an open file, and what they are to be: with `flag` or without, by the number at `argument`.
fn switched(fd: c_int, argument: usize, flag: c_int) -> Result<(c_int, c_int), i32> {
    // SAFETY: any bytes are a number.
    let on = unsafe { user::take(argument as *const c_int) }? != 0;
    let before = fd::control(fd, libc::F_GETFL, 0) as c_int;
    Ok((before, if on { before | flag } else { before & !flag }))
}

fn switch(fd: c_int, argument: usize, flag: c_int) -> c_int {
    match switched(fd, argument, flag) {
        Ok((_, after)) => fd::control(fd, libc::F_SETFL, after as usize) as c_int,
        Err(e) => fail_errno(e) as c_int,
    }
}

fn give(open: &Open, argument: usize, value: Result<i64, Error>) -> c_int {
    let given = value.and_then(|v| user::give(argument as *mut c_int, v as c_int).map_err(Error::local));
    match given {
        Ok(()) => 0,
        Err(e) => fail(&e, &open.path) as c_int,
    }
}

/// What can still be read.
fn left(fd: c_int, file: &File) -> Result<i64, Error> {
    let at = sys!(lseek, fd, 0, libc::SEEK_CUR) as i64;
    Ok((size::size(file)? as i64).saturating_sub(at))
}

fn block_size(file: &File) -> Result<i64, Error> {
    let statfs = |h| Meta::Statfs { target: Target::Handle(h) };
    state().client().meta_on(file, statfs, |a| match a {
        Answer::Fs(f) => Some(f.bsize as i64),
        _ => None,
    })
}
