//! The files that the processes of scenarios make: whether one is there before, and their removal. Files of others
//! are neither used nor removed.

use super::prepare::CannotRun;
use crate::scenario::{Layout, Scenario, Step, Target};
use std::collections::{BTreeMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};

/// Names that begin with `stem`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Claim {
    stem: String,
    names: Names,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Names {
    /// It alone.
    One,
    /// One of each process.
    Of { processes: u32 },
    /// Many of each process.
    Many { processes: u32, files: u32 },
}

impl Claim {
    fn includes(&self, name: &str) -> bool {
        let Some(rest) = name.strip_prefix(&self.stem) else { return false };
        let number = |text: &str, width: usize| -> Option<u32> {
            text.parse().ok().filter(|n| format!("{n:0width$}") == text)
        };
        let rank = |text: &str, processes: u32| number(text, 3).is_some_and(|rank| rank < processes);
        match self.names {
            Names::One => rest.is_empty(),
            Names::Of { processes } => rest.strip_prefix('-').is_some_and(|r| rank(r, processes)),
            Names::Many { processes, files } => rest
                .strip_prefix('-')
                .and_then(|r| r.split_once('-'))
                .is_some_and(|(r, i)| rank(r, processes) && number(i, 6).is_some_and(|i| i < files)),
        }
    }
}

/// All files of some scenarios, by directory.
#[derive(Clone, Debug, Default)]
pub(super) struct Claims(BTreeMap<PathBuf, HashSet<Claim>>);

impl Claims {
    /// The files of `scenarios` below `root`.
    pub(super) fn of(scenarios: &[Scenario], root: &Path) -> Claims {
        let mut all = Claims::default();
        for job in scenarios.iter().flat_map(|s| &s.jobs) {
            let processes = job.processes();
            for step in &job.steps {
                let (path, names) = match step {
                    Step::Data(d) => (&d.target.path, names(&d.target, processes)),
                    Step::Open(t) => (&t.path, names(t, processes)),
                    Step::Metadata(m) => (&m.path, Names::Many { processes, files: m.files }),
                    Step::Close(_) | Step::Think(_) => continue,
                };
                let (dir, stem) = path.rsplit_once('/').unwrap_or(("", path));
                let claim = Claim { stem: stem.to_owned(), names };
                all.0.entry(root.join(dir)).or_default().insert(claim);
            }
        }
        all
    }

    /// Refuses files in a directory that is not there: no process makes one.
    pub(super) fn directories_are_there(&self) -> Result<(), CannotRun> {
        let there = |dir: &PathBuf| match std::fs::metadata(dir) {
            Ok(of) if of.is_dir() => Ok(()),
            Ok(_) => {
                Err(CannotRun::Directory { dir: dir.clone(), source: io::ErrorKind::NotADirectory.into() })
            }
            Err(source) => Err(CannotRun::Directory { dir: dir.clone(), source }),
        };
        self.0.keys().try_for_each(there)
    }

    /// Refuses to begin where one of them is there.
    pub(super) fn refuse_existing(&self) -> Result<(), CannotRun> {
        for (dir, claims) in &self.0 {
            let found = present(dir, claims).and_then(|mut all| all.next().transpose());
            match found {
                Ok(None) => {}
                Ok(Some(path)) => return Err(CannotRun::Exists(path)),
                Err(source) => return Err(CannotRun::Directory { dir: dir.clone(), source }),
            }
        }
        Ok(())
    }

    /// Removes those that are there: none was before.
    pub(super) fn remove(&self) {
        for (dir, claims) in &self.0 {
            // Some file systems leave out others while one is removed.
            while present(dir, claims)
                .is_ok_and(|all| all.flatten().filter(|f| std::fs::remove_file(f).is_ok()).count() > 0)
            {
            }
        }
    }
}

fn names(target: &Target, processes: u32) -> Names {
    match target.layout {
        Layout::Shared => Names::One,
        Layout::FilePerProcess => Names::Of { processes },
    }
}

/// What is there of `claims` in `dir`; nothing, if there is no such directory.
fn present<'a>(
    dir: &Path,
    claims: &'a HashSet<Claim>,
) -> io::Result<impl Iterator<Item = io::Result<PathBuf>> + use<'a>> {
    let entries = match std::fs::read_dir(dir) {
        Ok(entries) => Some(entries),
        Err(e) if e.kind() == io::ErrorKind::NotFound => None,
        Err(e) => return Err(e),
    };
    Ok(entries.into_iter().flatten().filter_map(|entry| match entry {
        Ok(entry) => {
            let name = entry.file_name();
            let ours = name.to_str().is_some_and(|name| claims.iter().any(|c| c.includes(name)));
            ours.then(|| Ok(entry.path()))
        }
        Err(e) => Some(Err(e)),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::native;

    #[test]
    fn only_names_that_processes_make_are_theirs() {
        let claim = |names| Claim { stem: "a".into(), names };
        let theirs = |names, name: &str| claim(names).includes(name);
        assert!(theirs(Names::One, "a"));
        assert!(!theirs(Names::One, "a-000") && !theirs(Names::One, "b") && !theirs(Names::One, ""));
        let own = Names::Of { processes: 1001 };
        assert!(theirs(own, "a-007") && theirs(own, "a-1000"));
        for other in ["a", "a-7", "a-0007", "a-1001", "a-+07", "a-007x", "a-007-000000"] {
            assert!(!theirs(own, other), "{other}");
        }
        let many = Names::Many { processes: 2, files: 1_000_001 };
        assert!(theirs(many, "a-001-000000") && theirs(many, "a-001-1000000"));
        for other in ["a-001", "a-002-000000", "a-001-1000001", "a-001-0", "a--000000"] {
            assert!(!theirs(many, other), "{other}");
        }
    }

    #[test]
    fn others_stay_and_what_is_left_goes() {
        let dir = tempfile::tempdir().unwrap();
        let text = "compute_nodes = 2\n\
                    [[phase]]\noperation = \"create\"\npath = \"sub/many\"\nfiles = 9\n\
                    [[phase]]\noperation = \"write\"\npath = \"in\"\ntotal_size = 8192\nrequest_size = 4096\n";
        let claims = Claims::of(&native::parse(text, "s").unwrap(), dir.path());
        claims.refuse_existing().unwrap();
        std::fs::create_dir(dir.path().join("sub")).unwrap();
        let make = |name: &str| std::fs::write(dir.path().join(name), "").unwrap();
        ["in-000", "other", "sub/in", "sub/many-002-000000"].into_iter().for_each(make);
        claims.refuse_existing().unwrap();
        for name in ["in", "sub/many-001-000008"] {
            make(name);
            let refused = claims.refuse_existing().unwrap_err().to_string();
            assert!(refused.contains(&format!("{name} is there already")), "{refused}");
            claims.remove();
            claims.refuse_existing().unwrap();
        }
        // One that leads nowhere is somebody's too.
        std::os::unix::fs::symlink("nowhere", dir.path().join("in")).unwrap();
        assert!(claims.refuse_existing().is_err());
        for other in ["in-000", "other", "sub/in", "sub/many-002-000000"] {
            assert!(dir.path().join(other).exists(), "{other}");
        }
    }
}
