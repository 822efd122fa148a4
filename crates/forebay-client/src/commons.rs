//! Where the processes of a job on one host find what they know together of the open files they share: one file in the
//! run's directory, mapped by all of them. A file gets a place there when it is about to be shared, and names it in its
//! [`crate::FileRecord`]. A place is used again when all processes that came to it have ended or closed the file.

use crate::hosts::{HostSet, NUMBERED};
use crate::sys;
use forebay_wire::hello::HostBoot;
use forebay_wire::session::common::Common;
use forebay_wire::session::owed::{NAMES, Undertaken};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, AtomicU16, AtomicU32, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};

/// So many open files can be shared at a time.
const PLACES: usize = 1 << 14;
/// So many places are used again and again before there are more: what is used stays in memory.
const FIRST: u32 = 1 << 9;
/// So many processes that share one are known; with more of them at a time its place is not used again.
const USERS: usize = 16;
/// So many boots of hosts have a name here, from the beginning of the run to its end.
const NAMED: usize = 4096;
const _: () = assert!(NAMED <= NAMES);
/// A place's key while somebody makes it ready.
const CLAIMED: u64 = 1;

#[derive(Debug)]
#[repr(C)]
struct Commons {
    /// Whose process numbers are meant: the namespace of whoever came first.
    namespace: AtomicU32,
    /// So many places are in use, in powers of two of [`FIRST`].
    grown: AtomicU32,
    next: AtomicU64,
    hosts: [HostCell; NAMED],
    places: [Place; PLACES],
}

/// A host that has a name here: where it stands.
#[derive(Debug)]
#[repr(C)]
struct HostCell {
    /// 0 free, 1 being written, 2 there.
    state: AtomicU64,
    halves: [AtomicU64; 2],
}

#[derive(Debug)]
#[repr(C)]
struct Place {
    /// Which open file it is for; 0 is none.
    key: AtomicU64,
    /// It has or had processes that are not among its users.
    crowded: AtomicU64,
    users: [AtomicU32; USERS],
    common: Common,
}

/// A place, as another process is told of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommonAt {
    index: u32,
    key: u64,
}

/// This process's use of a place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Joined {
    commons: &'static Commons,
    index: usize,
}

/// What another process has told of.
#[derive(Debug)]
pub(crate) enum Found {
    Here(Joined),
    /// It is another file's by now: all that had come to it had left.
    Anothers,
    /// This process knows of no such places.
    Nowhere,
}

/// The place of one open file, or none: looked at by every call, and set once.
#[derive(Debug, Default)]
pub(crate) struct Membership {
    /// The index plus one.
    index: AtomicU32,
    /// The process that has come to it.
    entered: AtomicU32,
}

static HOME: OnceLock<PathBuf> = OnceLock::new();
static COMMONS: AtomicPtr<Commons> = AtomicPtr::new(std::ptr::null_mut());
/// The names that this process's hosts have there, plus one.
static KNOWN: [AtomicU16; NUMBERED] = [const { AtomicU16::new(0) }; NUMBERED];

/// The directory of this run: processes that share open files meet there.
pub fn meet_in(dir: &Path) {
    // The first one stands.
    let _ = HOME.set(dir.join("commons"));
}

/// `None`: there is no such directory, or it is not to be written to.
fn commons() -> Option<&'static Commons> {
    let known = COMMONS.load(SeqCst);
    if !known.is_null() {
        // SAFETY: a mapping that is never undone.
        return Some(unsafe { &*known });
    }
    // SAFETY: it is made of atomics.
    let new: &'static Commons = unsafe { sys::map_file(HOME.get()?) }.ok()?;
    let _ = new.namespace.compare_exchange(0, self_and_namespace().1, SeqCst, SeqCst);
    // Of two threads that come first both have mapped the same file.
    COMMONS.store(std::ptr::from_ref(new).cast_mut(), SeqCst);
    Some(new)
}

/// This process, and what its number is unique in.
fn self_and_namespace() -> (u32, u32) {
    static KNOWN: AtomicU64 = AtomicU64::new(0);
    let (pid, known) = (sys::pid(), KNOWN.load(Relaxed));
    if known as u32 == pid {
        return (pid, (known >> 32) as u32);
    }
    let namespace = sys::process_namespace();
    KNOWN.store(u64::from(namespace) << 32 | u64::from(pid), Relaxed);
    (pid, namespace)
}

impl Commons {
    fn name(&self, host: HostBoot) -> Option<u16> {
        let whole = u128::from_le_bytes(host.0);
        let halves = [whole as u64, (whole >> 64) as u64];
        for (i, cell) in self.hosts.iter().enumerate() {
            if cell.state.compare_exchange(0, 1, SeqCst, SeqCst).is_ok() {
                cell.halves.iter().zip(halves).for_each(|(cell, half)| cell.store(half, SeqCst));
                cell.state.store(2, SeqCst);
                return Some(i as u16);
            }
            // One that is just being written may be the same: then the host has two names, which does no harm.
            if cell.host() == Some(host) {
                return Some(i as u16);
            }
        }
        None
    }
}

impl HostCell {
    fn host(&self) -> Option<HostBoot> {
        let [low, high] = self.halves.each_ref().map(|half| half.load(SeqCst));
        let host = HostBoot((u128::from(high) << 64 | u128::from(low)).to_le_bytes());
        (self.state.load(SeqCst) == 2).then_some(host)
    }
}

impl Place {
    /// Whether nobody who came here can come back.
    fn is_left(&self) -> bool {
        let gone = |user: &AtomicU32| matches!(user.load(SeqCst), pid if pid == 0 || !sys::is_alive(pid));
        self.crowded.load(SeqCst) == 0 && self.users.iter().all(gone)
    }

    fn enter(&self, commons: &Commons) {
        let (pid, namespace) = self_and_namespace();
        let put = |user: &AtomicU32, old: u32| user.compare_exchange(old, pid, SeqCst, SeqCst).is_ok();
        let taken = |user: &AtomicU32| match user.load(SeqCst) {
            0 => put(user, 0),
            other => !sys::is_alive(other) && put(user, other),
        };
        let ours = namespace == commons.namespace.load(SeqCst);
        if !ours || !self.users.iter().any(|user| put(user, 0)) && !self.users.iter().any(taken) {
            self.crowded.store(1, SeqCst);
        }
    }

    fn leave(&self) {
        let pid = sys::pid();
        let _ = self.users.iter().any(|user| user.compare_exchange(pid, 0, SeqCst, SeqCst).is_ok());
    }

    /// Nobody's any more, if nobody is left.
    fn claim(&self) -> bool {
        let key = self.key.load(SeqCst);
        let free = key == 0 || key != CLAIMED && self.is_left();
        free && self.key.compare_exchange(key, CLAIMED, SeqCst, SeqCst).is_ok()
    }
}

impl Membership {
    pub(crate) fn get(&self) -> Option<Joined> {
        let index = self.index.load(SeqCst).checked_sub(1)?;
        Some(Joined { commons: commons()?, index: index as usize % PLACES })
    }

    /// The file has this place from now on, unless another thread has found it one.
    pub(crate) fn set(&self, joined: Joined) {
        let index = joined.index as u32 + 1;
        match self.index.compare_exchange(0, index, SeqCst, SeqCst) {
            Ok(_) => self.entered.store(sys::pid(), SeqCst),
            Err(_) => joined.place().leave(),
        }
    }

    /// In a forked child: it came, too.
    pub(crate) fn enter(&self) {
        if let Some(joined) = self.get()
            && self.entered.swap(sys::pid(), SeqCst) != sys::pid()
        {
            joined.place().enter(joined.commons);
        }
    }

    /// This process has closed the file.
    pub(crate) fn leave(&self) {
        if let Some(joined) = self.get() {
            joined.place().leave();
        }
    }
}

impl Joined {
    /// A place for an open file that is going to be shared.
    pub(crate) fn new() -> Option<Joined> {
        let commons = commons()?;
        let mut key = [0; 8];
        key.copy_from_slice(&sys::random16()[..8]);
        let key = u64::from_le_bytes(key).max(CLAIMED + 1);
        loop {
            let grown = commons.grown.load(SeqCst);
            let places = commons.places.get(..(FIRST << grown) as usize)?;
            for _ in places {
                let index = commons.next.fetch_add(1, SeqCst) as usize % places.len();
                let place = &places[index];
                if place.claim() {
                    place.users.iter().for_each(|user| user.store(0, SeqCst));
                    place.common.clear();
                    place.enter(commons);
                    place.key.store(key, SeqCst);
                    return Some(Joined { commons, index });
                }
            }
            if places.len() == PLACES {
                return None;
            }
            let _ = commons.grown.compare_exchange(grown, grown + 1, SeqCst, SeqCst);
        }
    }

    /// The place that another process has told of.
    pub(crate) fn find(at: CommonAt) -> Found {
        let Some(commons) = commons() else { return Found::Nowhere };
        let index = at.index as usize;
        match commons.places.get(index).filter(|p| p.key.load(SeqCst) == at.key) {
            Some(place) => {
                place.enter(commons);
                Found::Here(Joined { commons, index })
            }
            None => Found::Anothers,
        }
    }

    /// How another process is told of it.
    pub(crate) fn at(&self) -> CommonAt {
        CommonAt { index: self.index as u32, key: self.key() }
    }

    /// Which open file it is for.
    pub(crate) fn key(&self) -> u64 {
        self.place().key.load(SeqCst)
    }

    fn place(&self) -> &'static Place {
        &self.commons.places[self.index]
    }

    pub(crate) fn common(&self) -> &'static Common {
        &self.place().common
    }

    /// These hosts have taken data.
    pub(crate) fn mark(&self, hosts: HostSet) {
        let mut rest = hosts.0;
        while rest != 0 {
            let i = rest.trailing_zeros() as usize;
            rest &= rest - 1;
            let known = KNOWN.get(i).and_then(|name| name.load(Relaxed).checked_sub(1));
            self.common().owed.mark(known.or_else(|| self.name(i)));
        }
    }

    #[cold]
    fn name(&self, i: usize) -> Option<u16> {
        let name = self.commons.name(HostSet(1 << i).iter().next().flatten()?)?;
        if let Some(known) = KNOWN.get(i) {
            known.store(name + 1, Relaxed);
        }
        Some(name)
    }

    /// What a sync has undertaken.
    pub(crate) fn undertaken(&self, sync: Undertaken) -> HostSet {
        let host = |name: u16| self.commons.hosts.get(usize::from(name))?.host();
        let hosts: Vec<Option<HostBoot>> =
            self.common().owed.hosts(sync).map(|name| name.and_then(host)).collect();
        HostSet::all(hosts.iter().copied().flatten(), hosts.contains(&None))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::{File, FileRecord};
    use forebay_types::Address;
    use forebay_wire::flags::OpenFlags;
    use forebay_wire::hello::SessionId;

    #[test]
    fn places_are_found_and_used_again() {
        let dir = tempfile::tempdir().unwrap();
        meet_in(dir.path());
        let one = Joined::new().expect("a place");
        let Found::Here(same) = Joined::find(one.at()) else { panic!("it is there") };
        let (a, b) = (HostSet::of(HostBoot([71; 16])), HostSet::of(HostBoot([72; 16])));
        one.mark(a);
        same.mark(HostSet(a.0 | b.0));
        let undertaken = |joined: &Joined| {
            let sync = joined.common().owed.begin_sync();
            let hosts = joined.undertaken(sync);
            joined.common().owed.end_sync(sync);
            hosts
        };
        assert_eq!(undertaken(&same).0, a.0 | b.0);
        let unknown = HostSet::all(std::iter::empty(), true);
        one.mark(unknown);
        assert_eq!(undertaken(&same), unknown);
        // Of a process of its own each, as they would be.
        let boots = 16 * NUMBERED as u16;
        let boot = |n: u16| HostBoot((1 << 100 | u128::from(n)).to_le_bytes());
        let all = (0..boots).map(|n| one.commons.name(boot(n)));
        let mut all: Vec<_> =
            all.map(|name| name.expect("more of them than one process tells apart")).collect();
        all.dedup();
        assert_eq!(all.len(), usize::from(boots));
        let told = one.at();
        one.place().leave();
        assert!(!one.place().claim(), "the other one is still there");
        same.place().leave();
        assert!(one.place().claim());
        let of = |common: Option<CommonAt>| FileRecord {
            export: 0,
            rel: b"file".to_vec(),
            opened_as: None,
            flags: OpenFlags::WRITE,
            ino: 1,
            identity: 0,
            mode: 0,
            node: Address::Unix("/".into()),
            handle: 1,
            session: SessionId([0; 16]),
            unsynced: Vec::new(),
            more_unsynced: false,
            common,
        };
        assert_eq!(File::inherited(of(None)).take_unsynced(), HostSet::default());
        assert_eq!(
            File::inherited(of(Some(told))).take_unsynced(),
            unknown,
            "it is another's now, and what was said there is forgotten"
        );
        for _ in 0..2 * PLACES {
            Joined::new().expect("those that are left are used again").place().leave();
        }
        let grown = one.commons.grown.load(SeqCst);
        assert_eq!(grown, 0, "before more of the memory is touched");
        let all: Vec<Joined> = (0..PLACES).map_while(|_| Joined::new()).collect();
        assert!(all.len() >= PLACES - 1 && Joined::new().is_none(), "there is no room for more");
        all.iter().for_each(|joined| joined.place().leave());
    }
}
