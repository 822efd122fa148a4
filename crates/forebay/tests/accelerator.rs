//! The accelerator under the mount: what goes past the mount and what goes through it is the same file, at once, for
//! programs that have the library and for those that have not; a descriptor is never taken for what it was; I/O nodes that
//! die, freeze and drain are not noticed. (The scripts of `tests/programs` run with it in `programs.rs`.)

use forebay_testkit::{Talker, compile, needs, program, seed, setting, skipped, until};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Whether a mount can be made here; says so if not.
fn can_mount(test: &str) -> bool {
    let looked = Command::new(program()).arg("doctor").output().expect("forebay doctor runs");
    let said = String::from_utf8_lossy(&looked.stdout).into_owned();
    let missing = said.lines().find(|l| l.starts_with("no  FUSE") || l.starts_with("no  namespaces"));
    if let Some(line) = missing {
        skipped(test, line);
    }
    missing.is_none() && needs(test, &["gcc"])
}

/// A directory of a test's own: what is forwarded is `E`.
struct Ground {
    home: tempfile::TempDir,
}

impl Ground {
    fn new() -> Ground {
        let home = tempfile::tempdir().expect("a directory");
        for dir in ["E", "t"] {
            std::fs::create_dir(home.path().join(dir)).expect("a directory");
        }
        Ground { home }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    /// `forebay run --via mount` of a command, with the accelerator as told.
    fn run(&self, accelerator: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new("timeout");
        command.args(["-k", "5", "300"]).arg(program()).args(["run", "--via", "mount", "--report"]);
        command.arg(self.at("report.json")).args(arguments).arg("--at").arg(self.at("E")).arg("--");
        command.env("FOREBAY_ACCELERATOR", accelerator).env("TMPDIR", self.at("t"));
        command.current_dir(self.at("E"));
        command
    }

    /// How many calls went past the mount, by the report; nothing: none could.
    fn past(&self) -> Option<u64> {
        let report = std::fs::read(self.at("report.json")).expect("a report");
        let report: serde_json::Value = serde_json::from_slice(&report).expect("JSON");
        assert_eq!(report["front_end"], "mount");
        report["accelerator"]["calls"].as_u64()
    }

    /// `both.c`, dynamic and static.
    fn both(&self) -> [PathBuf; 2] {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/accelerator/both.c");
        [("both", "-rdynamic"), ("both-static", "-static")].map(|(name, how)| {
            let program = self.at(name);
            let mut gcc = Command::new("gcc");
            gcc.args(["-D_GNU_SOURCE", "-O1", "-w", "-pthread", how, "-o"]).arg(&program).arg(&source);
            assert!(gcc.status().expect("gcc runs").success(), "both.c does not compile");
            program
        })
    }
}

/// `both.c` through so many I/O nodes; the calls that went past the mount.
fn both(test: &str, accelerator: &str, arguments: &[&str]) -> Option<u64> {
    both_of(test, accelerator, arguments, None)
}

/// The same, or a part of it alone.
fn both_of(test: &str, accelerator: &str, arguments: &[&str], part: Option<&str>) -> Option<u64> {
    let ground = Ground::new();
    let [dynamic, fixed] = ground.both();
    let mut command = ground.run(accelerator, arguments);
    let out = command.arg(dynamic).arg(fixed).arg(ground.at("E")).args(part).output();
    let out = out.expect("forebay run runs");
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(out.status.success() && out.stdout == b"done\n", "{test}: {:?}\n{said}", out.status);
    let past = ground.past();
    assert_eq!(said.contains("by the accelerator"), past.is_some_and(|n| n > 0), "{said}");
    past
}

#[test]
fn who_has_it_and_who_has_not_see_the_same() {
    const NAME: &str = "who_has_it_and_who_has_not_see_the_same";
    if can_mount(NAME) {
        assert!(both(NAME, "always", &[]).is_some_and(|calls| calls > 1000));
    }
}

#[test]
fn who_has_it_and_who_has_not_see_the_same_through_two_nodes() {
    const NAME: &str = "who_has_it_and_who_has_not_see_the_same_through_two_nodes";
    if can_mount(NAME) {
        assert!(both(NAME, "always", &["--io-nodes", "2"]).is_some_and(|calls| calls > 1000));
    }
}

/// Files by their names: by libc and by raw system calls, in links, other namespaces, for other users, after everything that
/// changes names.
#[test]
fn a_name_is_what_the_kernel_says_it_is() {
    const NAME: &str = "a_name_is_what_the_kernel_says_it_is";
    if can_mount(NAME) {
        assert!(both_of(NAME, "always", &[], Some("names")).is_some_and(|calls| calls > 1000));
        assert!(
            both_of(NAME, "always", &["--io-nodes", "2"], Some("names")).is_some_and(|calls| calls > 1000)
        );
        assert_eq!(both_of(NAME, "off", &[], Some("names")), None);
    }
}

#[test]
fn it_can_be_switched_off() {
    const NAME: &str = "it_can_be_switched_off";
    if can_mount(NAME) {
        assert_eq!(both(NAME, "off", &[]), None);
    }
}

/// Files that are used a little are left to the mount, and contracts that keep something to the kernel.
#[test]
fn what_is_not_worth_it_or_not_allowed_is_the_mounts() {
    if !can_mount("what_is_not_worth_it_or_not_allowed_is_the_mounts") {
        return;
    }
    let ground = Ground::new();
    let shell = |contract: &str, script: &str| {
        let out = ground.run("on", &["--contract", contract]).args(["sh", "-c", script]).output();
        let out = out.expect("forebay run runs");
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        ground.past()
    };
    assert_eq!(shell("strict", "echo a > a && cat a"), Some(0));
    let copies = "dd if=/dev/zero of=b bs=4k count=64 && dd if=b of=c bs=4k && cmp b c";
    assert!(shell("strict", copies).is_some_and(|calls| calls > 100));
    assert_eq!(shell("close-to-open", copies), None);
    assert_eq!(shell("exclusive", copies), None);
}

/// Programs that cannot load it are not given it, whoever starts them.
#[test]
fn who_cannot_load_it_is_not_bothered() {
    const NAME: &str = "who_cannot_load_it_is_not_bothered";
    if !can_mount(NAME) {
        return;
    }
    let ground = Ground::new();
    let source = ground.at("small.c");
    std::fs::write(&source, "#include <stdio.h>\nint main(void) { puts(\"fine\"); return 0; }\n")
        .expect("a file");
    let build = |compiler: &str, how: &[&str], name: &str| {
        let mut command = Command::new(compiler);
        command.args(how).arg("-o").arg(ground.at("E").join(name)).arg(&source).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    let built = [("gcc", &["-m32"][..], "small32"), ("musl-gcc", &[][..], "smallmusl")];
    let built = built.into_iter().filter(|(compiler, how, name)| build(compiler, how, name));
    let names: Vec<&str> = built.map(|(_, _, name)| name).collect();
    if names.is_empty() {
        return skipped(NAME, "neither gcc -m32 nor musl-gcc builds a program");
    }
    let script = "for p in small*; do ./$p || exit 1; sh -c \"./$p; true\"; done";
    let out = ground.run("always", &["--quiet"]).args(["bash", "-c", script]).output().expect("it runs");
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(out.status.success() && said.is_empty(), "{names:?}: {said}");
    assert_eq!(String::from_utf8_lossy(&out.stdout), "fine\n".repeat(2 * names.len()));
}

/// Every byte of one file, whatever is done to it.
#[test]
fn every_byte_of_one_file() {
    if !can_mount("every_byte_of_one_file") {
        return;
    }
    let ground = Ground::new();
    let fsx = compile(ground.home.path(), "fsx");
    let mut command = ground.run("always", &["--io-nodes", "2"]);
    command.arg(fsx).arg(ground.at("E/fsx")).arg(ground.at("copy"));
    command.arg(seed().to_string()).arg((256 << 10).to_string());
    let mut fsx = Talker::start(command);
    let operations = setting("FOREBAY_OPERATIONS", 20_000);
    let done: u64 = fsx.ask(&operations.to_string()).parse().expect("a count");
    assert!(done >= operations);
    fsx.finish();
    assert!(ground.past().is_some_and(|calls| calls > 0));
}

/// The I/O nodes of a run, by their number.
fn nodes(run: u32) -> Vec<u32> {
    let parent = |pid: u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse::<u32>().ok()
    };
    let is_node = |pid: u32| {
        let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        words.split(|b| *b == 0).nth(1) == Some(b"node")
    };
    let all = std::fs::read_dir("/proc").expect("/proc").flatten();
    let all = all.filter_map(|e| e.file_name().to_str()?.parse::<u32>().ok());
    let mut found: Vec<u32> = all.filter(|pid| parent(*pid) == Some(run) && is_node(*pid)).collect();
    found.sort_unstable();
    found
}

#[test]
fn nodes_freeze_die_and_drain() {
    if !can_mount("nodes_freeze_die_and_drain") {
        return;
    }
    let ground = Ground::new();
    let fsx = compile(ground.home.path(), "fsx");
    let mut command = Command::new(program());
    command.args(["run", "--via", "mount", "--io-nodes", "4", "--report"]).arg(ground.at("report.json"));
    command.arg("--at").arg(ground.at("E")).arg("--").arg(fsx).arg(ground.at("E/fsx")).arg(ground.at("copy"));
    command.arg(seed().to_string()).arg((256 << 10).to_string());
    command.env("FOREBAY_ACCELERATOR", "always").env("TMPDIR", ground.at("t"));
    let mut fsx = Talker::start(command);
    let run = fsx.id();
    let mut round = || {
        let done: u64 = fsx.ask("300").parse().expect("a count");
        assert!(done >= 300);
    };
    round();
    let nodes = nodes(run);
    assert_eq!(nodes.len(), 4, "its I/O nodes");
    let send = |node: u32, signal: &str| {
        let sent = Command::new("kill").args([signal, &node.to_string()]).status();
        assert!(sent.expect("kill runs").success());
    };
    // Two are frozen, one after the other, and go on; one is killed, one drains; one is left.
    for node in &nodes[..2] {
        send(*node, "-STOP");
        // What a thread of it has begun meanwhile, nobody could tell the end of.
        let still = || forebay_embed::stands_still(*node).expect("our own node").then_some(());
        until(Duration::from_secs(60), "the node stands still", still);
        round();
        send(*node, "-CONT");
        round();
    }
    send(nodes[0], "-KILL");
    round();
    send(nodes[1], "-TERM");
    round();
    send(nodes[2], "-KILL");
    round();
    fsx.finish();
    assert!(ground.past().is_some_and(|calls| calls > 0));
}
