//! The socket of a connection: bytes out, bytes in, sealed where that was agreed on.

use crate::spin::Waiter;
use crate::sys;
use forebay_wire::seal::{Opener, Sealer};
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::io::Errno;
use std::io::{IoSlice, IoSliceMut};

/// So much is sealed before it is sent.
const BATCH: usize = 128 << 10;

pub(crate) struct Socket {
    fd: OwnedFd,
    sealed: Option<Box<(Sealer, Opener)>>,
}

impl Socket {
    pub(crate) fn new(fd: OwnedFd) -> Socket {
        Socket { fd, sealed: None }
    }

    pub(crate) fn fd(&self) -> &OwnedFd {
        &self.fd
    }

    pub(crate) fn into_fd(self) -> OwnedFd {
        self.fd
    }

    /// Moves the descriptor away from a number a program wants for itself.
    pub(crate) fn relocate(&mut self) {
        if let Ok(fd) = rustix::io::fcntl_dupfd_cloexec(&self.fd, self.fd.as_raw_fd() + 1) {
            self.fd = fd;
        }
    }

    /// From now on everything is sealed, both ways.
    pub(crate) fn protect(&mut self, sealer: Sealer, opener: Opener) {
        self.sealed = Some(Box::new((sealer, opener)));
    }

    /// Whether what is sent is to be [sealed](Socket::seal).
    pub(crate) fn is_protected(&self) -> bool {
        self.sealed.is_some()
    }

    /// The records that carry the first so many bytes of these pieces, in the place of what `out` holds, all of which
    /// must be sent. Not all at once: what was sent is opened while the next is sealed.
    pub(crate) fn seal(&mut self, pieces: &[IoSlice<'_>], out: &mut Vec<u8>) -> usize {
        let now = pieces.iter().map(|p| p.len()).sum::<usize>().min(BATCH);
        let mut left = now;
        out.clear();
        if let Some(ends) = &mut self.sealed {
            let firsts = pieces.iter().map(|piece| {
                let n = piece.len().min(left);
                left -= n;
                &piece[..n]
            });
            ends.0.seal(firsts, out);
        }
        now
    }

    /// One send of what is sealed already, or need not be.
    pub(crate) fn send(&self, pieces: &[IoSlice<'_>]) -> Result<usize, Errno> {
        sys::send(&self.fd, pieces)
    }

    /// Sends less than a record at once: whether all of it was taken. After an error nothing was.
    pub(crate) fn send_small(&mut self, bytes: &[u8]) -> Result<bool, Errno> {
        let mut records = Vec::new();
        if self.is_protected() {
            self.seal(&[IoSlice::new(bytes)], &mut records);
        }
        let bytes = if self.is_protected() { &records } else { bytes };
        let sent = sys::send(&self.fd, &[IoSlice::new(bytes)]);
        if sent.is_err()
            && let Some(ends) = &mut self.sealed
        {
            ends.0.take_back();
        }
        sent.map(|n| n == bytes.len())
    }

    /// One receive into several pieces, spun for as long as that is worth it; 0 is the end. `EINTR` where only a
    /// part of a record came, `EBADMSG` where a record is not what the node sent.
    pub(crate) fn receive(
        &mut self,
        waiter: &mut Waiter,
        pieces: &mut [IoSliceMut<'_>],
    ) -> Result<usize, Errno> {
        let Some(ends) = &mut self.sealed else { return waiter.receive(&self.fd, pieces) };
        let opener = &mut ends.1;
        let ready = take(opener, pieces)?;
        if ready > 0 {
            return Ok(ready);
        }
        match waiter.receive(&self.fd, &mut [IoSliceMut::new(opener.room())])? {
            0 => return Ok(0),
            n => opener.received(n),
        }
        match take(opener, pieces)? {
            0 => Err(Errno::INTR),
            n => Ok(n),
        }
    }
}

/// What is there, into piece after piece.
fn take(opener: &mut Opener, pieces: &mut [IoSliceMut<'_>]) -> Result<usize, Errno> {
    let mut all = 0;
    for piece in pieces {
        let mut done = 0;
        while done < piece.len() {
            match opener.take(&mut piece[done..]).map_err(|_| Errno::BADMSG)? {
                0 => return Ok(all),
                n => (done, all) = (done + n, all + n),
            }
        }
    }
    Ok(all)
}
