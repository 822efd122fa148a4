//! The node's open files: whose they are, and how long they stay for processes that inherited them. A file is
//! closed with the last session that refers to it; if a forked process may still ask for it, not as long as that
//! one's lifeline holds, and for a while after.

use forebay_types::Nanos;
use std::collections::HashMap;
use std::hash::BuildHasher;

/// All open files of one job by handle.
#[derive(Debug)]
pub struct Files<F, S> {
    files: HashMap<u64, Entry<F>, S>,
}

impl<F, S: Default> Default for Files<F, S> {
    fn default() -> Files<F, S> {
        Files { files: HashMap::default() }
    }
}

#[derive(Debug)]
struct Entry<F> {
    file: F,
    references: u32,
    /// With no reference left: when to close.
    until: Nanos,
}

impl<F: Clone, S: BuildHasher> Files<F, S> {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.files.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Whether the handle stands for one.
    pub fn contains(&self, handle: u64) -> bool {
        self.files.contains_key(&handle)
    }

    /// Enters a file with one reference, under a new handle.
    pub fn enter(&mut self, handle: u64, file: F) {
        self.files.insert(handle, Entry { file, references: 1, until: Nanos::ZERO });
    }

    /// One more reference to a file that is still open.
    pub fn adopt(&mut self, handle: u64) -> Option<F> {
        let entry = self.files.get_mut(&handle)?;
        entry.references += 1;
        Some(entry.file.clone())
    }

    /// One reference less. Without `linger` the last one takes the file out, to be closed by the caller.
    pub fn release(&mut self, handle: u64, linger: Option<Nanos>) -> Option<F> {
        let entry = self.files.get_mut(&handle)?;
        entry.references = entry.references.saturating_sub(1);
        if entry.references > 0 {
            return None;
        }
        match linger {
            Some(until) => {
                entry.until = until;
                None
            }
            None => self.files.remove(&handle).map(|e| e.file),
        }
    }

    /// Takes out the files that nobody asked for in time.
    pub fn expire(&mut self, now: Nanos) -> Vec<F> {
        let due = |e: &Entry<F>| e.references == 0 && e.until <= now;
        let due: Vec<u64> = self.files.iter().filter(|(_, e)| due(e)).map(|(h, _)| *h).collect();
        due.iter().filter_map(|h| self.files.remove(h)).map(|e| e.file).collect()
    }
}

/// The files of one session. What it lets go is released in the job's [`Files`] by the function that its
/// methods are given; what they return is to be dropped, which closes what was the last.
#[derive(Debug)]
pub struct Share<F, S> {
    files: HashMap<u64, F, S>,
    /// Connections that the processes forked from this one hold, oldest first.
    lifelines: Vec<Lifeline>,
    issued: u64,
    /// Files that were closed here, and which processes may still adopt that hold a lifeline older than this: those
    /// that were forked later have not inherited it.
    kept: Vec<(u64, F, Lifeline)>,
}

/// A connection that only keeps the files of its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Lifeline(u64);

impl<F, S: Default> Default for Share<F, S> {
    fn default() -> Share<F, S> {
        Share { files: HashMap::default(), lifelines: Vec::new(), issued: 0, kept: Vec::new() }
    }
}

impl<F: Clone, S: BuildHasher> Share<F, S> {
    /// How many files it has open.
    pub fn len(&self) -> usize {
        self.files.len()
    }

    /// Whether it has none open.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// The open file of `handle`.
    pub fn get(&self, handle: u64) -> Option<&F> {
        self.files.get(&handle)
    }

    /// All that it has open, or keeps.
    pub fn all(&self) -> impl Iterator<Item = &F> {
        self.files.values().chain(self.kept.iter().map(|(_, file, _)| file))
    }

    /// It has that one open, too.
    pub fn enter(&mut self, handle: u64, file: F) {
        self.files.insert(handle, file);
    }

    /// A process holds a lifeline of it.
    pub fn tied(&mut self) -> Lifeline {
        self.issued += 1;
        let line = Lifeline(self.issued);
        self.lifelines.push(line);
        line
    }

    /// A lifeline has ended; who inherited files may ask for them until `linger`.
    pub fn untied(
        &mut self,
        line: Lifeline,
        linger: Nanos,
        release: impl Fn(u64, Option<Nanos>) -> Option<F>,
    ) -> Vec<F> {
        self.lifelines.retain(|l| *l != line);
        let oldest = self.lifelines.first().copied();
        let over = |(_, _, before): &mut (u64, F, Lifeline)| oldest.is_none_or(|l| l >= *before);
        let kept: Vec<_> = self.kept.extract_if(.., over).collect();
        let last: Vec<F> = kept.iter().filter_map(|(h, ..)| release(*h, Some(linger))).collect();
        kept.into_iter().map(|(_, file, _)| file).chain(last).collect()
    }

    /// The next lifeline.
    fn next(&self) -> Lifeline {
        Lifeline(self.issued + 1)
    }

    /// Closes a file; `linger`: a forked process may ask for it until then. `None`: it is not known.
    pub fn close(
        &mut self,
        handle: u64,
        linger: Option<Nanos>,
        release: impl Fn(u64, Option<Nanos>) -> Option<F>,
    ) -> Option<Vec<F>> {
        let file = self.files.remove(&handle)?;
        if linger.is_some() && !self.lifelines.is_empty() {
            self.kept.push((handle, file.clone(), self.next()));
            return Some(vec![file]);
        }
        let last = release(handle, linger);
        Some(std::iter::once(file).chain(last).collect())
    }

    /// Gives up all it has open; `keep`: but for what forked processes may adopt.
    pub fn leave(
        &mut self,
        linger: Option<Nanos>,
        keep: bool,
        release: impl Fn(u64, Option<Nanos>) -> Option<F>,
    ) -> Vec<F> {
        let held: Vec<(u64, F)> = self.files.drain().collect();
        if keep && !self.lifelines.is_empty() {
            let before = self.next();
            self.kept.extend(held.into_iter().map(|(handle, file)| (handle, file, before)));
            return Vec::new();
        }
        let last: Vec<F> = held.iter().filter_map(|(h, _)| release(*h, linger)).collect();
        held.into_iter().map(|(_, file)| file).chain(last).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::hash::RandomState;
    use std::rc::Rc;

    type All = RefCell<Files<Rc<()>, RandomState>>;

    #[test]
    fn references_are_counted() {
        let mut files: Files<u8, RandomState> = Files::default();
        files.enter(7, 1);
        assert!(files.contains(7) && files.adopt(7).is_some());
        assert!(files.release(7, None).is_none(), "one is left");
        assert!(files.release(7, Some(Nanos(5))).is_none(), "it lingers");
        assert!(files.expire(Nanos(4)).is_empty());
        assert!(files.adopt(7).is_some());
        assert!(files.expire(Nanos(9)).is_empty(), "adopted in time");
        assert!(files.release(7, None).is_some());
        assert!(files.adopt(7).is_none() && files.is_empty());
    }

    #[test]
    fn a_child_has_its_file_as_long_as_its_lifeline() {
        let all = All::default();
        let release = |h, linger| all.borrow_mut().release(h, linger);
        let file = Rc::new(());
        all.borrow_mut().enter(1, Rc::clone(&file));
        let mut parent: Share<Rc<()>, RandomState> = Share::default();
        parent.enter(1, Rc::clone(&file));
        let line = parent.tied();
        assert!(parent.close(1, Some(Nanos(10)), release).is_some() && parent.get(1).is_none());
        assert!(parent.close(1, None, release).is_none(), "once");
        assert!(all.borrow_mut().expire(Nanos(1000)).is_empty(), "kept");
        assert_eq!(parent.all().count(), 1);
        // Whoever is forked after that has not inherited it.
        parent.tied();
        drop(parent.untied(line, Nanos(2000), release));
        assert!(all.borrow_mut().expire(Nanos(1999)).is_empty());
        let adopted = all.borrow_mut().adopt(1).expect("in time");
        assert!(all.borrow_mut().expire(Nanos(9000)).is_empty());
        let mut child: Share<Rc<()>, RandomState> = Share::default();
        child.enter(1, adopted);
        drop(child.leave(None, true, release));
        assert!(all.borrow().is_empty() && Rc::strong_count(&file) == 1);
    }

    #[test]
    fn who_ends_leaves_files_to_those_who_hold_his_lifeline() {
        let all = All::default();
        let release = |h, linger| all.borrow_mut().release(h, linger);
        for tied in [false, true] {
            let file = Rc::new(());
            all.borrow_mut().enter(1, Rc::clone(&file));
            let mut s: Share<Rc<()>, RandomState> = Share::default();
            s.enter(1, Rc::clone(&file));
            if tied {
                s.tied();
            }
            drop(s.leave(None, true, release));
            assert_eq!(all.borrow().contains(1), tied);
            assert_eq!(s.len(), 0);
        }
    }
}
