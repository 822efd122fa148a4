//! Writes that were acknowledged and have failed, as is known too late: each process that shares the open file is told,
//! once. By `fork` it goes along in the copied memory, otherwise by what such processes know together.

use crate::client::Client;
use crate::counters::OpIndex;
use crate::error::Error;
use crate::file::File;
use crate::sys;
use forebay_wire::message::Meta;
use forebay_wire::session::common::Common;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};

/// What is to be told of one open file.
#[derive(Debug, Default)]
pub(crate) struct Late {
    /// The last errno; without those that are known together.
    errno: AtomicI32,
    /// Of which of those that are known together this process was told.
    heard: AtomicU64,
    /// The file was the parent's.
    inherited: AtomicBool,
}

impl Late {
    /// A program that begins is told of what nobody was told before, if nobody says more.
    pub(crate) fn begin_with(&self, common: &Common) {
        self.heard.store(common.failure_told(), Relaxed);
    }

    /// In a forked child: what the parent was not told, it is told, too.
    pub(crate) fn after_fork(&self) {
        self.inherited.store(true, Relaxed);
    }
}

impl Client {
    /// The next call is told of a write that has failed. It is counted now, since the process may end before.
    pub(crate) fn tell_later(&self, file: &File, errno: i32) {
        self.count(OpIndex::WRITE, sys::now(), &Err(Error::local(errno)));
        file.late.errno.store(errno, SeqCst);
        file.fail_together();
    }

    /// A program was told an error by its close of a descriptor, and the file stays open until it is closed for all; `first`:
    /// that close is counted for this one.
    pub fn count_refused_close(&self, first: bool) {
        let close = OpIndex::meta(&Meta::Close { handle: 0 });
        match self.counters {
            Some(c) if first => c.fail(close),
            Some(c) => c.add(close, 0, 0, true),
            None => {}
        }
    }
}

impl File {
    /// What is to be told is known together from now on, if other processes share the file.
    pub(crate) fn fail_together(&self) {
        if let Some(common) = self.common()
            && let errno @ 1.. = self.late.errno.swap(0, SeqCst)
        {
            common.fail(errno);
        }
    }

    /// The error that this process is to be told, if there is one. It is told now.
    pub(crate) fn late(&self) -> Result<(), Error> {
        if self.late.errno.load(Relaxed) != 0
            && let errno @ 1.. = self.late.errno.swap(0, SeqCst)
        {
            return Err(Error::local(errno));
        }
        let Some(common) = self.common() else { return Ok(()) };
        let failed = common.failed();
        if self.late.heard.load(Relaxed) == failed || self.late.heard.swap(failed, SeqCst) == failed {
            return Ok(());
        }
        common.note_failure_told(failed);
        Err(Error::local(Common::errno(failed)))
    }

    /// Before the process becomes another program, which is told what this one was not, if the file `stays` open there:
    /// the key by which it finds it. Otherwise this process is told now, if it does not have it from its parent, whose
    /// memory it may be `passing` through.
    pub fn hand_down(&self, stays: impl FnOnce() -> bool, passing: bool) -> Result<Option<u64>, Error> {
        let heard = self.late.heard.load(Relaxed);
        let together = self.common.get().filter(|joined| joined.common().failed() != heard);
        if together.is_none() && self.late.errno.load(Relaxed) == 0 {
            return Ok(None);
        }
        match together.filter(|_| stays()) {
            None if !passing && !self.late.inherited.load(Relaxed) => self.late().map(|()| None),
            together => Ok(together.map(|joined| joined.key())),
        }
    }

    /// The program before this one in the same process was not told of failures of the files with these keys.
    pub fn expect_late(&self, keys: &[u64]) {
        if self.common.get().is_some_and(|joined| keys.contains(&joined.key())) {
            self.late.heard.store(0, Relaxed);
        }
    }
}
