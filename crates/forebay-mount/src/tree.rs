//! The inodes that the kernel knows, by the number it was given for each, and the names they have.
//! No I/O: what happened is told, and a node's path below the export can be asked for.

use crate::abi::ROOT;
use forebay_client::Attr;
use std::collections::HashMap;

/// A path has fewer components than bytes.
const DEEPEST: usize = 4096;

/// What makes a file the same file: an inode number is used again, its time of birth is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key {
    dev: u64,
    ino: u64,
    kind: u32,
    born: Option<(i64, u32)>,
}

impl Key {
    fn of(attr: &Attr) -> Key {
        Key { dev: attr.dev, ino: attr.ino, kind: attr.mode & libc::S_IFMT, born: attr.btime }
    }
}

/// A name in a directory.
type Name = (u64, Box<[u8]>);

#[derive(Debug)]
struct Node {
    key: Key,
    /// How often the kernel was given the number and has not given it back.
    lookups: u64,
    /// Names that have this node as their directory.
    children: u64,
    /// The newest last.
    names: Vec<Name>,
    attr: Attr,
}

/// The table.
#[derive(Debug)]
pub(crate) struct Tree {
    nodes: HashMap<u64, Node, foldhash::fast::RandomState>,
    by_key: HashMap<Key, u64, foldhash::fast::RandomState>,
    by_name: HashMap<Name, u64, foldhash::fast::RandomState>,
    next: u64,
}

impl Tree {
    /// With the root alone, whose attributes may not be known yet.
    pub(crate) fn new() -> Tree {
        let attr = Attr { mode: libc::S_IFDIR, ..Attr::default() };
        let root = Node { key: Key::of(&attr), lookups: 1, children: 0, names: Vec::new(), attr };
        let mut nodes = HashMap::default();
        nodes.insert(ROOT, root);
        Tree { nodes, by_key: HashMap::default(), by_name: HashMap::default(), next: ROOT + 1 }
    }

    /// The kernel is told of what `name` in `parent` is: its number, counted as one more lookup.
    pub(crate) fn found(&mut self, parent: u64, name: &[u8], attr: &Attr) -> u64 {
        let id = self.known(attr);
        let name: Name = (parent, name.into());
        let before = self.by_name.insert(name.clone(), id);
        if before != Some(id) {
            if let Some(other) = before {
                self.unname(other, &name);
            }
            self.adopt(id, name);
        }
        id
    }

    /// A file without a name was made: its number, counted as one lookup.
    pub(crate) fn unnamed(&mut self, attr: &Attr) -> u64 {
        self.known(attr)
    }

    /// The node of `attr`, new or not, with one more lookup.
    fn known(&mut self, attr: &Attr) -> u64 {
        let key = Key::of(attr);
        let id = *self.by_key.entry(key).or_insert(self.next);
        if id == self.next {
            self.next += 1;
        }
        let node = self.nodes.entry(id).or_insert_with(|| Node {
            key,
            lookups: 0,
            children: 0,
            names: Vec::new(),
            attr: *attr,
        });
        node.lookups += 1;
        node.attr = *attr;
        id
    }

    fn adopt(&mut self, id: u64, name: Name) {
        if let Some(parent) = self.nodes.get_mut(&name.0) {
            parent.children += 1;
        }
        if let Some(node) = self.nodes.get_mut(&id) {
            node.names.push(name);
        }
    }

    fn unname(&mut self, id: u64, name: &Name) {
        if let Some(node) = self.nodes.get_mut(&id) {
            node.names.retain(|n| n != name);
        }
        if let Some(parent) = self.nodes.get_mut(&name.0) {
            parent.children = parent.children.saturating_sub(1);
            self.drop_unused(name.0);
        }
    }

    /// Whoever finds this file from now on gets another node for it.
    pub(crate) fn renew(&mut self, id: u64) {
        if let Some(node) = self.nodes.get(&id)
            && self.by_key.get(&node.key) == Some(&id)
        {
            self.by_key.remove(&node.key);
        }
    }

    /// The name is no more. The node that had it, if it is known.
    pub(crate) fn gone(&mut self, parent: u64, name: &[u8]) -> Option<u64> {
        let name: Name = (parent, name.into());
        let id = self.by_name.remove(&name)?;
        if let Some(node) = self.nodes.get_mut(&id) {
            node.attr.nlink = node.attr.nlink.saturating_sub(1);
            if node.key.kind == libc::S_IFDIR {
                node.attr.nlink = 0;
            }
        }
        self.unname(id, &name);
        Some(id)
    }

    /// A name became another one, or both were exchanged. The node that was moved first.
    pub(crate) fn moved(&mut self, from: (u64, &[u8]), to: (u64, &[u8]), exchange: bool) -> Option<u64> {
        let (from, to): (Name, Name) = ((from.0, from.1.into()), (to.0, to.1.into()));
        if from == to {
            return self.by_name.get(&from).copied();
        }
        let source = self.by_name.get(&from).copied();
        let target = self.by_name.get(&to).copied();
        if source.is_some() && source == target {
            // Two names of one file: rename(2) leaves both.
            return source;
        }
        // Keeps the directories of both names while they change hands.
        for dir in [from.0, to.0] {
            if let Some(node) = self.nodes.get_mut(&dir) {
                node.children += 1;
            }
        }
        if exchange {
            self.by_name.remove(&from);
            self.by_name.remove(&to);
            for (id, old, new) in [(source, &from, &to), (target, &to, &from)] {
                if let Some(id) = id {
                    self.unname(id, old);
                    self.by_name.insert(new.clone(), id);
                    self.adopt(id, new.clone());
                }
            }
        } else {
            self.gone(to.0, &to.1);
            if let Some(id) = self.by_name.remove(&from) {
                self.unname(id, &from);
                self.by_name.insert(to.clone(), id);
                self.adopt(id, to.clone());
            }
        }
        for dir in [from.0, to.0] {
            if let Some(node) = self.nodes.get_mut(&dir) {
                node.children = node.children.saturating_sub(1);
            }
            self.drop_unused(dir);
        }
        source
    }

    /// The kernel gives `count` lookups back.
    pub(crate) fn forget(&mut self, id: u64, count: u64) {
        if id == ROOT {
            return;
        }
        if let Some(node) = self.nodes.get_mut(&id) {
            node.lookups = node.lookups.saturating_sub(count);
            self.drop_unused(id);
        }
    }

    fn drop_unused(&mut self, id: u64) {
        let mut id = id;
        while id != ROOT && self.nodes.get(&id).is_some_and(|n| n.lookups == 0 && n.children == 0) {
            let Some(node) = self.nodes.remove(&id) else { return };
            if self.by_key.get(&node.key) == Some(&id) {
                self.by_key.remove(&node.key);
            }
            let mut next = ROOT;
            for (i, name) in node.names.iter().enumerate() {
                self.by_name.remove(name);
                if let Some(parent) = self.nodes.get_mut(&name.0) {
                    parent.children = parent.children.saturating_sub(1);
                }
                if i == 0 {
                    next = name.0;
                } else {
                    self.drop_unused(name.0);
                }
            }
            id = next;
        }
    }

    /// The newest path below the export, if there is one.
    pub(crate) fn path(&self, id: u64) -> Option<Vec<u8>> {
        let mut parts: Vec<&[u8]> = Vec::new();
        let mut at = id;
        while at != ROOT {
            let (parent, name) = self.nodes.get(&at)?.names.last()?;
            parts.push(name);
            at = *parent;
            if parts.len() > DEEPEST {
                return None;
            }
        }
        parts.reverse();
        Some(parts.join(&b'/'))
    }

    /// Whether this is a directory that was removed through this mount: not merely one whose name is not known.
    pub(crate) fn is_removed_directory(&self, id: u64) -> bool {
        self.nodes
            .get(&id)
            .is_some_and(|n| n.key.kind == libc::S_IFDIR && n.attr.nlink == 0 && n.names.is_empty())
    }

    /// The path of `name` in the directory `parent`.
    pub(crate) fn child(&self, parent: u64, name: &[u8]) -> Option<Vec<u8>> {
        let mut path = self.path(parent)?;
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(name);
        Some(path)
    }

    /// The node of a name, if it is known.
    pub(crate) fn at(&self, parent: u64, name: &[u8]) -> Option<u64> {
        self.by_name.get(&(parent, Box::from(name))).copied()
    }

    /// The type of a name's file, if it is known.
    pub(crate) fn kind(&self, parent: u64, name: &[u8]) -> Option<u32> {
        self.nodes.get(&self.at(parent, name)?).map(|n| n.key.kind)
    }

    /// Whether a node is known to be a directory.
    pub(crate) fn is_dir(&self, id: u64) -> bool {
        self.nodes.get(&id).is_some_and(|n| n.key.kind == libc::S_IFDIR)
    }

    /// What was last known of a node.
    pub(crate) fn attr(&self, id: u64) -> Option<&Attr> {
        self.nodes.get(&id).map(|n| &n.attr)
    }

    /// The node of that file, if it is known.
    pub(crate) fn of(&self, attr: &Attr) -> Option<u64> {
        self.by_key.get(&Key::of(attr)).copied()
    }

    /// New attributes of a node: false if they are another file's.
    pub(crate) fn update(&mut self, id: u64, attr: &Attr) -> bool {
        let Some(node) = self.nodes.get_mut(&id) else { return false };
        if id != ROOT && node.key != Key::of(attr) {
            return false;
        }
        node.attr = *attr;
        true
    }

    /// Whether `id` lies below `dir`, or is it.
    pub(crate) fn is_below(&self, id: u64, dir: u64) -> bool {
        let mut at = id;
        for _ in 0..DEEPEST {
            if at == dir {
                return true;
            }
            match self.nodes.get(&at).and_then(|n| n.names.last()) {
                Some((parent, _)) => at = *parent,
                None => return false,
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn attr(ino: u64, kind: u32) -> Attr {
        Attr { ino, mode: kind | 0o644, nlink: 1, ..Attr::default() }
    }

    #[test]
    fn names_follow_what_happens() {
        let mut t = Tree::new();
        let d = t.found(ROOT, b"d", &attr(10, libc::S_IFDIR));
        let f = t.found(d, b"f", &attr(11, libc::S_IFREG));
        assert_eq!(t.path(f).unwrap(), b"d/f");
        assert_eq!(t.found(ROOT, b"hard", &attr(11, libc::S_IFREG)), f, "the same file");
        assert_eq!(t.path(f).unwrap(), b"hard");
        t.gone(ROOT, b"hard");
        assert_eq!(t.path(f).unwrap(), b"d/f", "the other name is left");
        t.moved((ROOT, b"d"), (ROOT, b"e"), false);
        assert_eq!(t.path(f).unwrap(), b"e/f");
        assert!(t.is_below(f, d) && !t.is_below(d, f));
        // Another host put another file there.
        let g = t.found(d, b"f", &attr(12, libc::S_IFREG));
        assert_ne!(g, f);
        assert_eq!(t.path(f), None);
        assert_eq!(t.path(g).unwrap(), b"e/f");
        // The directory goes first, but is kept for what lies in it.
        t.forget(d, 1);
        assert_eq!(t.path(g).unwrap(), b"e/f");
        t.forget(g, 1);
        t.forget(f, 2);
        assert_eq!((t.nodes.len(), t.by_key.len(), t.by_name.len()), (1, 0, 0));
    }

    #[test]
    fn renewed() {
        let mut t = Tree::new();
        let old = t.found(ROOT, b"f", &attr(1, libc::S_IFREG));
        t.renew(old);
        let new = t.found(ROOT, b"f", &attr(1, libc::S_IFREG));
        assert_ne!(old, new);
        assert_eq!((t.path(old), t.path(new).unwrap()), (None, b"f".to_vec()));
        t.forget(old, 1);
        assert_eq!(t.found(ROOT, b"g", &attr(1, libc::S_IFREG)), new);
        t.forget(new, 2);
        assert_eq!((t.nodes.len(), t.by_key.len(), t.by_name.len()), (1, 0, 0));
    }

    #[test]
    fn exchanged() {
        let mut t = Tree::new();
        let a = t.found(ROOT, b"a", &attr(1, libc::S_IFDIR));
        let b = t.found(ROOT, b"b", &attr(2, libc::S_IFREG));
        let c = t.found(a, b"c", &attr(3, libc::S_IFREG));
        t.moved((ROOT, b"b"), (ROOT, b"a"), true);
        assert_eq!(t.path(b).unwrap(), b"a");
        assert_eq!(t.path(c).unwrap(), b"b/c");
    }

    /// What a directory tree of names and inode numbers would say, by brute force.
    #[derive(Default)]
    struct Model {
        names: HashMap<(u64, Vec<u8>), u64>,
    }

    proptest! {
        /// Whatever happens in two directories, every node's path names the node in the model, and
        /// when everything is forgotten nothing is left.
        #[test]
        fn as_the_model(steps in prop::collection::vec((0u8..5, 0usize..2, 0u8..4, 0usize..2, 0u8..4, 20u64..26), 0..200)) {
            let mut t = Tree::new();
            let dirs = [ROOT, t.found(ROOT, b"dir", &attr(9, libc::S_IFDIR))];
            let mut model = Model::default();
            let mut lookups: HashMap<u64, u64> = HashMap::new();
            for (what, d, n, d2, n2, ino) in steps {
                let (from, to) = ((dirs[d], vec![b'a' + n]), (dirs[d2], vec![b'a' + n2]));
                match what {
                    0 | 1 => {
                        let id = t.found(from.0, &from.1, &attr(ino, libc::S_IFREG));
                        *lookups.entry(id).or_default() += 1;
                        model.names.insert(from, id);
                    }
                    2 => {
                        t.gone(from.0, &from.1);
                        model.names.remove(&from);
                    }
                    3 if model.names.contains_key(&from) => {
                        t.moved((from.0, &from.1), (to.0, &to.1), false);
                        if model.names.get(&from) != model.names.get(&to) {
                            let id = model.names.remove(&from).unwrap();
                            model.names.insert(to, id);
                        }
                    }
                    4 if model.names.contains_key(&from) && model.names.contains_key(&to) => {
                        t.moved((from.0, &from.1), (to.0, &to.1), true);
                        let (a, b) = (model.names[&from], model.names[&to]);
                        model.names.insert(from, b);
                        model.names.insert(to, a);
                    }
                    _ => {}
                }
                for &id in lookups.keys() {
                    let mut all: Vec<Vec<u8>> = model.names.iter().filter(|(_, v)| **v == id)
                        .map(|((d, n), _)| if *d == ROOT { n.clone() } else { [b"dir/".as_slice(), n].concat() })
                        .collect();
                    all.sort();
                    match t.path(id) {
                        Some(path) => prop_assert!(all.contains(&path)),
                        None => prop_assert!(all.is_empty()),
                    }
                }
            }
            for (id, n) in lookups {
                t.forget(id, n);
            }
            t.forget(dirs[1], 1);
            prop_assert_eq!((t.nodes.len(), t.by_key.len(), t.by_name.len()), (1, 0, 0));
        }
    }
}
