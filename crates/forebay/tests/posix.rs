//! pjdfstest (the crate of that name): what it finds below the layer is what it finds on the file system itself, test by
//! test; under the preload library it is that but for what is listed here, each with its reason.

use forebay_embed::{Launcher, Log};
use forebay_testkit::{Munged, NodeSpec, RunDir, program, skipped};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// Users to switch between, whom every system has.
const SETTINGS: &str = "[features]
posix_fallocate = {}
rename_ctime = {}
utime_now = {}
utimensat = {}
[settings]
naptime = 0.01
[dummy_auth]
entries = [[\"nobody\", \"nogroup\"], [\"daemon\", \"daemon\"]]
";

/// What a test of it came to, and why, if it says so.
type Verdicts = BTreeMap<String, (String, String)>;

/// A directory of a file system in memory, the settings, and a second file system.
struct Ground {
    tool: PathBuf,
    dir: RunDir,
    second: tempfile::TempDir,
}

impl Ground {
    /// Nothing, and says so, where it cannot be tried.
    fn new(test: &str) -> Option<Ground> {
        let given = std::env::var_os("FOREBAY_PJDFSTEST").map(PathBuf::from);
        let kept = || program().parent()?.parent().map(|target| target.join("pjdfstest/bin/pjdfstest"));
        let Some(tool) = given.or_else(kept).filter(|tool| tool.is_file()) else {
            skipped(test, "there is no pjdfstest (scripts/test installs it below target/)");
            return None;
        };
        if !rustix::process::geteuid().is_root() {
            skipped(test, "pjdfstest switches users, which needs root");
            return None;
        }
        let dir = RunDir::in_memory().expect("a directory");
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(dir.path(), open).expect("a directory that users see");
        std::fs::write(dir.path().join("settings"), SETTINGS).expect("settings");
        for name in ["here", "data", "M"] {
            std::fs::create_dir(dir.path().join(name)).expect("a directory");
        }
        Some(Ground { tool, dir, second: tempfile::tempdir().expect("a directory") })
    }

    fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The words that run it in a directory.
    fn words(&self, dir: &Path) -> Vec<String> {
        let text = |path: &Path| path.display().to_string();
        let (tool, settings) = (text(&self.tool), text(&self.at("settings")));
        let words = ["-c", &settings, "-s", &text(self.second.path()), "-p", &text(dir)].map(str::to_owned);
        std::iter::once(tool).chain(words).collect()
    }

    /// On the file system itself.
    fn below(&self) -> Verdicts {
        let words = self.words(&self.at("here"));
        verdicts(&output(Command::new(&words[0]).args(&words[1..])))
    }

    /// Below `forebay run` with these options.
    fn run(&self, options: &[&str]) -> Verdicts {
        let at = format!("{}={}", self.at("M").display(), self.at("data").display());
        let mut run = Command::new(program());
        run.args(["run", "--quiet", "--at", &at]).args(options).arg("--").args(self.words(&self.at("M")));
        verdicts(&output(&mut run))
    }
}

fn output(command: &mut Command) -> Output {
    command.env("NO_COLOR", "1").env_remove("RUST_BACKTRACE").env_remove("FOREBAY_CONFIG");
    command.current_dir("/").stdin(Stdio::null()).output().expect("it runs")
}

/// Every line of it that begins with a name ends with what came of it; what follows, further in, is why.
fn verdicts(out: &Output) -> Verdicts {
    let (said, complaints) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    let mut all = Verdicts::new();
    let mut last: Option<String> = None;
    for line in said.lines() {
        match (line.strip_prefix('\t'), line.rsplit_once(' ')) {
            (Some(why), _) => {
                if let Some((_, reason)) = last.as_ref().and_then(|name| all.get_mut(name)) {
                    reason.push_str(why);
                }
            }
            (None, Some((name, end))) if ["ok", "skipped", "FAILED"].contains(&end) => {
                let name = name.trim().to_owned();
                all.insert(name.clone(), (end.to_owned(), String::new()));
                last = Some(name);
            }
            _ => last = None,
        }
    }
    assert!(all.len() > 300, "it did not come to its end: {said}\n{complaints}");
    all
}

/// How many of each.
fn summary(all: &Verdicts) -> BTreeMap<&str, usize> {
    all.values().fold(BTreeMap::new(), |mut sums, (verdict, _)| {
        *sums.entry(verdict.as_str()).or_default() += 1;
        sums
    })
}

/// What came to something else than on the file system: by test, both, and why.
fn differences(below: &Verdicts, here: &Verdicts) -> BTreeMap<String, String> {
    println!("{:?} on the file system, {:?} here", summary(below), summary(here));
    assert_eq!(below.keys().collect::<Vec<_>>(), here.keys().collect::<Vec<_>>(), "the same tests");
    let mut found = BTreeMap::new();
    for ((name, (there, _)), (verdict, why)) in below.iter().zip(here.values()) {
        if there != verdict {
            found.insert(name.clone(), format!("{there}, here {verdict}: {why}"));
        }
    }
    found
}

#[test]
fn under_the_mount_everything_is_as_on_the_file_system() {
    let Some(ground) = Ground::new("pjdfstest under the mount") else { return };
    let looked = output(Command::new(program()).arg("doctor"));
    let said = String::from_utf8_lossy(&looked.stdout).into_owned();
    if let Some(line) = said.lines().find(|l| l.starts_with("no  FUSE") || l.starts_with("no  namespaces")) {
        return skipped("pjdfstest under the mount", line);
    }
    let found = differences(&ground.below(), &ground.run(&["--via", "mount"]));
    assert!(found.is_empty(), "{found:#?}");
}

/// An I/O node of root that acts as whoever proves with MUNGE to be somebody, mounted by root for all users.
#[test]
fn through_a_node_of_many_users_everything_is_as_on_the_file_system() {
    let test = "pjdfstest through a node of many users";
    let Some(ground) = Ground::new(test) else { return };
    let Some(munged) = Munged::start(test, ground.dir.path()) else { return };
    let launcher = Launcher::new(&program(), ground.dir.path(), Log::Files).expect("a launcher");
    let launcher = launcher.with_env("FOREBAY_MUNGE_SOCKET", munged.socket());
    let mut node = launcher
        .node(NodeSpec {
            listen: Some("tcp:127.0.0.1:0".into()),
            exports: vec![format!("{}=data", ground.at("data").display())],
            more: ["--identities", "munge", "--allow-root"].map(str::to_owned).into(),
            ..NodeSpec::default()
        })
        .expect("a node");
    node.await_ready().unwrap_or_else(|e| panic!("{e}: {}", launcher.log("node0")));
    // Mounted in a namespace of its own, for as long as it takes.
    let script = "mount -t tmpfs none /mnt && mkdir /mnt/M || exit 1; [ -c /dev/fuse ] || exit 77; \
                  \"$1\" mount --node \"$2\" --at /mnt/M=data --announce > /mnt/said & server=$!; \
                  for i in $(seq 600); do [ -s /mnt/said ] && break; kill -0 $server || exit 1; sleep 0.1; done; \
                  shift 2; \"$@\"; kill $server; wait $server";
    let mut inside = Command::new("unshare");
    inside.args(["--mount", "--propagation", "private", "sh", "-c", script, "sh"]).arg(program());
    inside.arg(node.addresses()[0].to_string()).args(ground.words(Path::new("/mnt/M")));
    inside.env("FOREBAY_MUNGE_SOCKET", munged.socket()).env_remove("FOREBAY_SECRET_FILE");
    let out = output(&mut inside);
    if out.status.code() == Some(77) {
        return skipped(test, "there is no /dev/fuse to be had here");
    }
    let found = differences(&ground.below(), &verdicts(&out));
    assert!(found.is_empty(), "{found:#?}");
}

/// A program that becomes another user meanwhile: a run's I/O nodes serve who started it, and nobody else.
const USERS: &str = "the run's I/O nodes serve the user who started it; who has become another is refused";
const ADDRESS: &str =
    "of two names one is forwarded and the other no address: the kernel looks at the first before the second";
const COPY: &str = "a program below runs from a copy, so that its file is not busy";
const KERNEL: &str = "the kernel mounts nothing on a name that only the library knows";

/// What differs under the preload library, and why.
const PRELOAD: &[(&str, &str)] = &[
    ("chmod::clear_isgid_bit", USERS),
    ("ftruncate::affected_create_flags_only", USERS),
    ("link::efault_either", ADDRESS),
    ("mkdir::uid_gid_eq_euid_egid", USERS),
    ("mkfifo::uid_gid_eq_euid_egid", USERS),
    ("mknod::uid_gid_eq_euid_egid", USERS),
    ("open::etxtbsy", COPY),
    ("open::uid_gid_eq_euid_egid", USERS),
    ("posix_fallocate::affected_only_create_flags", USERS),
    ("rename::efault_either", ADDRESS),
    ("rename::unchanged_ctime_failed::block", USERS),
    ("rename::unchanged_ctime_failed::char", USERS),
    ("rename::unchanged_ctime_failed::dir", USERS),
    ("rename::unchanged_ctime_failed::fifo", USERS),
    ("rename::unchanged_ctime_failed::regular", USERS),
    ("rename::unchanged_ctime_failed::socket", USERS),
    ("rename::unchanged_ctime_failed::symlink", USERS),
    ("rename::write_access_required_subdir", USERS),
    ("rmdir::ebusy", KERNEL),
    ("truncate::etxtbsy", COPY),
    ("unlink::unchanged_ctime_failed::block", USERS),
    ("unlink::unchanged_ctime_failed::char", USERS),
    ("unlink::unchanged_ctime_failed::fifo", USERS),
    ("unlink::unchanged_ctime_failed::regular", USERS),
    ("unlink::unchanged_ctime_failed::socket", USERS),
    ("utimensat::nobody", USERS),
    ("utimensat::write_perm", USERS),
];

#[test]
fn under_the_preload_library_the_differences_are_known() {
    let Some(ground) = Ground::new("pjdfstest under the preload library") else { return };
    let found = differences(&ground.below(), &ground.run(&["--via", "preload"]));
    let known = |name: &str| PRELOAD.iter().any(|(known, _)| *known == name);
    let new: Vec<_> = found.iter().filter(|(name, _)| !known(name)).collect();
    assert!(new.is_empty(), "{} new differences: {new:#?}", new.len());
    let gone: Vec<_> = PRELOAD.iter().filter(|(name, _)| !found.contains_key(*name)).collect();
    assert!(gone.is_empty(), "no longer different: {gone:#?}");
}
