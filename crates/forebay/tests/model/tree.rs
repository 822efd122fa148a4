//! The reference: files, directories and links in memory, with the answers Linux gives.

use std::collections::BTreeMap;
use std::fmt;

/// Errors are errno values.
pub(crate) type Answer = Result<String, i32>;

const ENOENT: i32 = 2;
const EBADF: i32 = 9;
const EEXIST: i32 = 17;
const ENOTDIR: i32 = 20;
const EISDIR: i32 = 21;
const EINVAL: i32 = 22;
const EPERM: i32 = 1;
const ENOTEMPTY: i32 = 39;
const ELOOP: i32 = 40;

const O_ACCMODE: i32 = 3;
const O_WRONLY: i32 = 1;
pub(crate) const O_CREAT: i32 = 0o100;
pub(crate) const O_EXCL: i32 = 0o200;
pub(crate) const O_TRUNC: i32 = 0o1000;
pub(crate) const O_APPEND: i32 = 0o2000;
pub(crate) const O_NOFOLLOW: i32 = 0o400_000;
pub(crate) const NOREPLACE: u32 = 1;
pub(crate) const EXCHANGE: u32 = 2;

const ROOT: usize = 0;

/// One operation of one process.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    Open(usize, String, i32),
    Close(usize),
    Dup(usize, usize),
    Read(usize, usize),
    Pread(usize, usize, u64),
    Write(usize, usize, u8),
    Pwrite(usize, usize, u64, u8),
    Seek(usize, i64, u8),
    Ftruncate(usize, u64),
    Fstat(usize),
    Fsync(usize),
    Truncate(String, u64),
    Unlink(String),
    Rmdir(String),
    Mkdir(String),
    Rename(String, String, u32),
    Link(String, String),
    Symlink(String, String),
    Readlink(String),
    Stat(String),
    Lstat(String),
    List(String),
}

/// As the driver reads it.
impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Op::Open(s, p, flags) => write!(f, "open {s} {p} {flags}"),
            Op::Close(s) => write!(f, "close {s}"),
            Op::Dup(s, t) => write!(f, "dup {s} {t}"),
            Op::Read(s, n) => write!(f, "read {s} {n}"),
            Op::Pread(s, n, at) => write!(f, "pread {s} {n} {at}"),
            Op::Write(s, n, tag) => write!(f, "write {s} {n} {tag}"),
            Op::Pwrite(s, n, at, tag) => write!(f, "pwrite {s} {n} {at} {tag}"),
            Op::Seek(s, to, whence) => write!(f, "lseek {s} {to} {whence}"),
            Op::Ftruncate(s, n) => write!(f, "ftruncate {s} {n}"),
            Op::Fstat(s) => write!(f, "fstat {s}"),
            Op::Fsync(s) => write!(f, "fsync {s}"),
            Op::Truncate(p, n) => write!(f, "truncate {p} {n}"),
            Op::Unlink(p) => write!(f, "unlink {p}"),
            Op::Rmdir(p) => write!(f, "rmdir {p}"),
            Op::Mkdir(p) => write!(f, "mkdir {p}"),
            Op::Rename(a, b, flags) => write!(f, "rename {a} {b} {flags}"),
            Op::Link(a, b) => write!(f, "link {a} {b}"),
            Op::Symlink(t, p) => write!(f, "symlink {t} {p}"),
            Op::Readlink(p) => write!(f, "readlink {p}"),
            Op::Stat(p) => write!(f, "stat {p}"),
            Op::Lstat(p) => write!(f, "lstat {p}"),
            Op::List(p) => write!(f, "list {p}"),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    File(Vec<u8>),
    Dir(BTreeMap<String, usize>),
    Link(String),
}

struct Inode {
    kind: Kind,
    links: usize,
}

/// An open file description.
struct Description {
    inode: usize,
    flags: i32,
    position: u64,
}

/// Where a path leads: the directory, the name in it, and what is there.
struct Spot {
    dir: usize,
    name: String,
    inode: Option<usize>,
}

/// The whole state: a tree, and the open files of each process.
pub(crate) struct Tree {
    inodes: Vec<Inode>,
    descriptions: Vec<Description>,
    slots: BTreeMap<(usize, usize), usize>,
}

impl Tree {
    pub(crate) fn new() -> Tree {
        let root = Inode { kind: Kind::Dir(BTreeMap::new()), links: 1 };
        Tree { inodes: vec![root], descriptions: Vec::new(), slots: BTreeMap::new() }
    }

    /// Every path and what is there.
    pub(crate) fn contents(&self) -> BTreeMap<String, Kind> {
        let mut all = BTreeMap::new();
        let mut left = vec![(String::new(), ROOT)];
        while let Some((path, dir)) = left.pop() {
            for (name, &inode) in self.entries(dir) {
                let path = if path.is_empty() { name.clone() } else { format!("{path}/{name}") };
                match &self.inodes[inode].kind {
                    Kind::Dir(_) => {
                        all.insert(path.clone(), Kind::Dir(BTreeMap::new()));
                        left.push((path, inode));
                    }
                    other => drop(all.insert(path, other.clone())),
                }
            }
        }
        all
    }

    fn entries(&self, dir: usize) -> &BTreeMap<String, usize> {
        match &self.inodes[dir].kind {
            Kind::Dir(entries) => entries,
            _ => unreachable!("only directories are walked"),
        }
    }

    fn entries_mut(&mut self, dir: usize) -> &mut BTreeMap<String, usize> {
        match &mut self.inodes[dir].kind {
            Kind::Dir(entries) => entries,
            _ => unreachable!("only directories are walked"),
        }
    }

    fn is_dir(&self, inode: usize) -> bool {
        matches!(self.inodes[inode].kind, Kind::Dir(_))
    }

    fn walk(&self, path: &str, follow: bool) -> Result<Spot, i32> {
        let parts = |p: &str| -> Vec<String> { p.split('/').rev().map(str::to_owned).collect() };
        let mut left = parts(path);
        let (mut dir, mut links) = (ROOT, 0);
        loop {
            let Some(name) = left.pop() else {
                return Ok(Spot { dir, name: ".".into(), inode: Some(dir) });
            };
            if name == "." || name.is_empty() {
                continue;
            }
            let last = left.is_empty();
            let Some(&inode) = self.entries(dir).get(&name) else {
                return if last { Ok(Spot { dir, name, inode: None }) } else { Err(ENOENT) };
            };
            match &self.inodes[inode].kind {
                Kind::Link(target) if follow || !last => {
                    links += 1;
                    if links > 40 {
                        return Err(ELOOP);
                    }
                    left.extend(parts(target));
                }
                _ if last => return Ok(Spot { dir, name, inode: Some(inode) }),
                Kind::Dir(_) => dir = inode,
                _ => return Err(ENOTDIR),
            }
        }
    }

    fn found(&self, path: &str, follow: bool) -> Result<usize, i32> {
        self.walk(path, follow)?.inode.ok_or(ENOENT)
    }

    fn add(&mut self, spot: Spot, kind: Kind) -> usize {
        self.inodes.push(Inode { kind, links: 1 });
        let inode = self.inodes.len() - 1;
        self.entries_mut(spot.dir).insert(spot.name, inode);
        inode
    }

    fn drop_link(&mut self, spot: &Spot) {
        if let Some(inode) = self.entries_mut(spot.dir).remove(&spot.name) {
            self.inodes[inode].links -= 1;
        }
    }

    /// Whether `dir` is `inode` or below it.
    fn below(&self, dir: usize, inode: usize) -> bool {
        dir == inode
            || self.is_dir(inode)
                && self.entries(inode).values().any(|&i| self.is_dir(i) && self.below(dir, i))
    }

    fn describe(&self, inode: usize) -> String {
        match &self.inodes[inode].kind {
            Kind::File(data) => format!("0 0 f {} {}", data.len(), self.inodes[inode].links),
            Kind::Dir(_) => "0 0 d".into(),
            Kind::Link(target) => format!("0 0 l {}", target.len()),
        }
    }

    fn slot(&self, process: usize, slot: usize) -> Result<usize, i32> {
        self.slots.get(&(process, slot)).copied().ok_or(EBADF)
    }

    /// Whether Linux's file systems differ in what `op` answers.
    pub(crate) fn is_unspecified(&self, process: usize, op: &Op) -> bool {
        match op {
            Op::Seek(slot, ..) => {
                self.slot(process, *slot).is_ok_and(|d| self.is_dir(self.descriptions[d].inode))
            }
            _ => false,
        }
    }

    /// What `op` by `process` answers.
    pub(crate) fn apply(&mut self, process: usize, op: &Op) -> String {
        self.attempt(process, op).unwrap_or_else(|errno| format!("-1 {errno}"))
    }

    fn attempt(&mut self, process: usize, op: &Op) -> Answer {
        let done = || Ok("0 0".to_owned());
        match op {
            Op::Open(slot, path, flags) => {
                let made = self.open(path, *flags);
                self.slots.remove(&(process, *slot));
                let inode = made?;
                self.descriptions.push(Description { inode, flags: *flags, position: 0 });
                self.slots.insert((process, *slot), self.descriptions.len() - 1);
                done()
            }
            Op::Close(slot) => self.slots.remove(&(process, *slot)).map(|_| "0 0".into()).ok_or(EBADF),
            Op::Dup(slot, to) => {
                let d = self.slot(process, *slot)?;
                self.slots.insert((process, *to), d);
                done()
            }
            Op::Read(slot, n) => {
                let d = self.slot(process, *slot)?;
                let (text, n) = self.read(d, *n, self.descriptions[d].position)?;
                self.descriptions[d].position += n as u64;
                Ok(text)
            }
            Op::Pread(slot, n, at) => self.read(self.slot(process, *slot)?, *n, *at).map(|r| r.0),
            Op::Write(slot, n, tag) => {
                let d = self.slot(process, *slot)?;
                let end = self.write(d, *n, self.descriptions[d].position, *tag)?;
                self.descriptions[d].position = end;
                Ok(format!("{n} 0"))
            }
            Op::Pwrite(slot, n, at, tag) => {
                self.write(self.slot(process, *slot)?, *n, *at, *tag)?;
                Ok(format!("{n} 0"))
            }
            Op::Seek(slot, to, whence) => {
                let d = self.slot(process, *slot)?;
                let base = match (whence, &self.inodes[self.descriptions[d].inode].kind) {
                    (0, _) => 0,
                    (1, _) => self.descriptions[d].position as i64,
                    (_, Kind::File(data)) => data.len() as i64,
                    _ => unreachable!("the end of a directory is each file system's own"),
                };
                let at = u64::try_from(base + to).map_err(|_| EINVAL)?;
                self.descriptions[d].position = at;
                Ok(format!("{at} 0"))
            }
            Op::Ftruncate(slot, n) => {
                let d = self.slot(process, *slot)?;
                let description = &self.descriptions[d];
                match &mut self.inodes[description.inode].kind {
                    Kind::File(data) if description.flags & O_ACCMODE != 0 => data.resize(*n as usize, 0),
                    _ => return Err(EINVAL),
                }
                done()
            }
            Op::Fstat(slot) => Ok(self.describe(self.descriptions[self.slot(process, *slot)?].inode)),
            Op::Fsync(slot) => self.slot(process, *slot).and_then(|_| done()),
            Op::Truncate(path, n) => {
                match &mut { self.found(path, true) }.map(|i| &mut self.inodes[i].kind)? {
                    Kind::File(data) => {
                        data.resize(*n as usize, 0);
                        done()
                    }
                    _ => Err(EISDIR),
                }
            }
            Op::Unlink(path) => {
                let spot = self.walk(path, false)?;
                if self.is_dir(spot.inode.ok_or(ENOENT)?) {
                    return Err(EISDIR);
                }
                self.drop_link(&spot);
                done()
            }
            Op::Rmdir(path) => {
                let spot = self.walk(path, false)?;
                match &self.inodes[spot.inode.ok_or(ENOENT)?].kind {
                    Kind::Dir(entries) if !entries.is_empty() => Err(ENOTEMPTY),
                    Kind::Dir(_) => {
                        self.drop_link(&spot);
                        done()
                    }
                    _ => Err(ENOTDIR),
                }
            }
            Op::Mkdir(path) => self.create(path, Kind::Dir(BTreeMap::new())),
            Op::Symlink(target, path) => self.create(path, Kind::Link(target.clone())),
            Op::Rename(from, to, flags) => self.rename(from, to, *flags),
            Op::Link(from, to) => {
                let inode = self.found(from, false)?;
                let spot = self.walk(to, false)?;
                if spot.inode.is_some() {
                    return Err(EEXIST);
                }
                if self.is_dir(inode) {
                    return Err(EPERM);
                }
                self.entries_mut(spot.dir).insert(spot.name, inode);
                self.inodes[inode].links += 1;
                done()
            }
            Op::Readlink(path) => match &self.inodes[self.found(path, false)?].kind {
                Kind::Link(target) => Ok(format!("{} 0 {target}", target.len())),
                _ => Err(EINVAL),
            },
            Op::Stat(path) => Ok(self.describe(self.found(path, true)?)),
            Op::Lstat(path) => Ok(self.describe(self.found(path, false)?)),
            Op::List(path) => match &self.inodes[self.found(path, true)?].kind {
                Kind::Dir(entries) => {
                    let names: Vec<&str> = entries.keys().map(String::as_str).collect();
                    Ok(format!("{} 0 {}", names.len(), names.join(",")).trim_end().to_owned())
                }
                _ => Err(ENOTDIR),
            },
        }
    }

    fn create(&mut self, path: &str, kind: Kind) -> Answer {
        let spot = self.walk(path, false)?;
        if spot.inode.is_some() {
            return Err(EEXIST);
        }
        self.add(spot, kind);
        Ok("0 0".into())
    }

    fn open(&mut self, path: &str, flags: i32) -> Result<usize, i32> {
        let exclusive = flags & O_CREAT != 0 && flags & O_EXCL != 0;
        let spot = self.walk(path, flags & O_NOFOLLOW == 0 && !exclusive)?;
        let Some(inode) = spot.inode else {
            return if flags & O_CREAT != 0 {
                Ok(self.add(spot, Kind::File(Vec::new())))
            } else {
                Err(ENOENT)
            };
        };
        if exclusive {
            return Err(EEXIST);
        }
        match &mut self.inodes[inode].kind {
            Kind::Link(_) => return Err(ELOOP),
            Kind::Dir(_) if flags & (O_ACCMODE | O_CREAT | O_TRUNC) != 0 => return Err(EISDIR),
            Kind::File(data) if flags & O_TRUNC != 0 => data.clear(),
            _ => {}
        }
        Ok(inode)
    }

    fn read(&self, d: usize, n: usize, at: u64) -> Result<(String, usize), i32> {
        let description = &self.descriptions[d];
        if description.flags & O_ACCMODE == O_WRONLY {
            return Err(EBADF);
        }
        let Kind::File(data) = &self.inodes[description.inode].kind else { return Err(EISDIR) };
        let from = data.len().min(at as usize);
        let got = &data[from..data.len().min(from + n)];
        let hash = got
            .iter()
            .fold(0xcbf2_9ce4_8422_2325u64, |h, &b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3));
        Ok((format!("{} 0 {hash:016x}", got.len()), got.len()))
    }

    /// Where it ended.
    fn write(&mut self, d: usize, n: usize, at: u64, tag: u8) -> Result<u64, i32> {
        let description = &self.descriptions[d];
        if description.flags & O_ACCMODE == 0 {
            return Err(EBADF);
        }
        let Kind::File(data) = &mut self.inodes[description.inode].kind else { return Err(EISDIR) };
        let at = if description.flags & O_APPEND != 0 { data.len() } else { at as usize };
        if n > 0 && data.len() < at + n {
            data.resize(at + n, 0);
        }
        for i in 0..n {
            data[at + i] = (usize::from(tag) + i * 7 + (i >> 8)) as u8;
        }
        Ok(if n == 0 { description.position } else { (at + n) as u64 })
    }

    fn rename(&mut self, from: &str, to: &str, flags: u32) -> Answer {
        let (a, b) = (self.walk(from, false)?, self.walk(to, false)?);
        let source = a.inode.ok_or(ENOENT)?;
        if flags & NOREPLACE != 0 && b.inode.is_some() {
            return Err(EEXIST);
        }
        if flags & EXCHANGE != 0 && b.inode.is_none() {
            return Err(ENOENT);
        }
        if self.is_dir(source) && self.below(b.dir, source) {
            return Err(EINVAL);
        }
        if let Some(target) = b.inode {
            if self.is_dir(target) && self.below(a.dir, target) {
                return Err(if flags & EXCHANGE != 0 { EINVAL } else { ENOTEMPTY });
            }
            if source == target {
                return Ok("0 0".into());
            }
            if flags & EXCHANGE != 0 {
                self.entries_mut(a.dir).insert(a.name, target);
                self.entries_mut(b.dir).insert(b.name, source);
                return Ok("0 0".into());
            }
            match (self.is_dir(source), self.is_dir(target)) {
                (true, false) => return Err(ENOTDIR),
                (false, true) => return Err(EISDIR),
                (true, true) if !self.entries(target).is_empty() => return Err(ENOTEMPTY),
                _ => {}
            }
            self.inodes[target].links -= 1;
        }
        self.entries_mut(a.dir).remove(&a.name);
        self.entries_mut(b.dir).insert(b.name, source);
        Ok("0 0".into())
    }
}
