//! `forebay mount` of directories within each other: the innermost counts, in whatever order they are given.

mod user;

use forebay_testkit::{Signal, skipped};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use user::{ended, forebay, run, signal, until};

/// Whether a mount can be made on this machine; says so if not.
fn can_mount(test: &str) -> bool {
    let can = rustix::process::geteuid().is_root() && !run(&["doctor"]).1.contains("no  FUSE");
    if !can {
        skipped(test, "needs root and FUSE");
    }
    can
}

/// What is mounted below `dir`.
fn mounted(dir: &Path) -> Vec<String> {
    let table = std::fs::read_to_string("/proc/self/mounts").unwrap();
    let places = table.lines().filter_map(|l| l.split(' ').nth(1));
    places.filter(|at| Path::new(at).starts_with(dir)).map(str::to_owned).collect()
}

/// Exports `A`, with a directory `sub`, `B` and `C`, each with a file `f` that has its name.
struct Home(tempfile::TempDir);

impl Home {
    fn new() -> Home {
        let home = Home(tempfile::tempdir().unwrap());
        for (dir, says) in [("A", "A"), ("A/sub", "A/sub"), ("B", "B"), ("B/deep", "B/deep"), ("C", "C")] {
            std::fs::create_dir(home.path(dir)).unwrap();
            std::fs::write(home.path(dir).join("f"), says).unwrap();
        }
        home
    }

    fn path(&self, name: &str) -> PathBuf {
        // As the table of mounts has it.
        self.0.path().canonicalize().unwrap().join(name)
    }

    fn args(&self, at: &[(&str, &str)]) -> Vec<String> {
        let place = |(dir, export): &(&str, &str)| {
            format!("{}={}", self.path(dir).display(), self.path(export).display())
        };
        let options = at.iter().flat_map(|at| ["--at".to_owned(), place(at)]);
        std::iter::once("mount".to_owned()).chain(options).collect()
    }

    /// Once it says that everything is mounted.
    fn mount(&self, at: &[(&str, &str)]) -> Child {
        let log = self.path("log");
        let said = std::fs::File::create(&log).unwrap();
        let child = forebay(&self.args(at)).stdout(Stdio::null()).stderr(said).spawn().unwrap();
        until("it is mounted", || {
            let said = std::fs::read_to_string(&log).unwrap();
            assert!(!said.contains("forebay:"), "{at:?}: {said}");
            said.matches("mounted on").count() == at.len()
        });
        child
    }

    /// How it ends that cannot mount, and what it says.
    fn refused(&self, at: &[(&str, &str)]) -> (Option<i32>, String) {
        let log = self.path("log");
        let said = std::fs::File::create(&log).unwrap();
        let child = forebay(&self.args(at)).stdout(Stdio::null()).stderr(said).spawn().unwrap();
        let status = ended(child).code();
        assert_eq!(mounted(&self.path("")), Vec::<String>::new(), "{at:?}");
        (status, std::fs::read_to_string(&log).unwrap())
    }

    fn says(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name).join("f")).unwrap()
    }

    fn end(&self, child: Child) {
        signal(&child, Signal::TERM);
        assert!(ended(child).success());
        assert_eq!(mounted(&self.path("")), Vec::<String>::new());
    }
}

#[test]
fn the_innermost_counts_in_whatever_order() {
    if !can_mount("the_innermost_counts_in_whatever_order") {
        return;
    }
    let home = Home::new();
    let (a, b, c) = (("mp", "A"), ("mp/sub", "B"), ("mp/sub/deep", "C"));
    std::fs::create_dir_all(home.path("mp/sub/deep")).unwrap();
    for order in [[a, b, c], [c, b, a], [b, a, c]] {
        let child = home.mount(&order);
        assert_eq!(["mp", "mp/sub", "mp/sub/deep"].map(|dir| home.says(dir)), ["A", "B", "C"], "{order:?}");
        home.end(child);
    }
    // What the host has below the outer one does not count: it is hidden.
    std::fs::remove_dir_all(home.path("mp/sub")).unwrap();
    for hidden in [false, true] {
        if hidden {
            std::fs::create_dir(home.path("elsewhere")).unwrap();
            std::os::unix::fs::symlink(home.path("elsewhere"), home.path("mp/sub")).unwrap();
        }
        let child = home.mount(&[b, a]);
        assert_eq!(["mp", "mp/sub"].map(|dir| home.says(dir)), ["A", "B"], "{hidden}");
        assert_eq!(mounted(&home.path("elsewhere")), Vec::<String>::new());
        home.end(child);
    }
}

#[test]
fn what_is_not_there_to_be_mounted_on_is_said() {
    if !can_mount("what_is_not_there_to_be_mounted_on_is_said") {
        return;
    }
    let home = Home::new();
    // Here it is, but the outer one hides it.
    std::fs::create_dir_all(home.path("mp/none")).unwrap();
    std::fs::write(home.path("A/file"), "").unwrap();
    for (inner, name) in [("mp/none", "none"), ("mp/file", "file"), ("mp/file/deep", "file/deep")] {
        for order in [[(inner, "B"), ("mp", "A")], [("mp", "A"), (inner, "B")]] {
            let why = format!(
                "forebay: cannot mount on {}: {} shows what is in {}, which has no directory {name}: make it there\n",
                home.path(inner).display(),
                home.path("mp").display(),
                home.path("A").display()
            );
            assert_eq!(home.refused(&order), (Some(1), why), "{order:?}");
        }
    }
    let (status, says) = home.refused(&[("mp", "A"), ("nowhere", "B")]);
    assert!(status == Some(1) && says.contains("nowhere: no such directory to mount on"), "{says}");
}
