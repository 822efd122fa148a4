//! The mount: what the kernel does with files is the same directly and through it; I/O nodes that die,
//! freeze and drain are not noticed; without any node calls fail in time; and nothing stays mounted,
//! whatever is killed. (The scripts of `tests/programs` run
//! through it in `programs.rs`.)

use forebay_testkit::{
    ClientOptions, Layer, Process, Signal, Talker, needs, program, seed, setting, skipped, until,
};
use std::fs::Permissions;
use std::os::unix::fs::FileExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const LEASE_MS: u64 = 500;
const PATIENCE: Duration = Duration::from_secs(60);

/// Whether a mount can be made here; says so if not.
fn can_mount(test: &str) -> bool {
    let looked = Command::new(program()).arg("doctor").output().expect("forebay doctor runs");
    let said = String::from_utf8_lossy(&looked.stdout).into_owned();
    let missing = said.lines().find(|l| l.starts_with("no  FUSE") || l.starts_with("no  namespaces"));
    if let Some(line) = missing {
        skipped(test, line);
    }
    missing.is_none()
}

/// Whether this test may mount on the machine itself.
fn can_mount_here(test: &str) -> bool {
    if !rustix::process::geteuid().is_root() {
        skipped(test, "mounting on the machine itself needs root");
        return false;
    }
    can_mount(test)
}

fn is_mounted(dir: &Path) -> bool {
    let table = std::fs::read_to_string("/proc/self/mounts").expect("the table of mounts");
    table.lines().any(|l| l.split(' ').nth(1) == dir.to_str())
}

/// `forebay run` in a directory of its own, which is forwarded as `E`.
fn run(home: &Path, arguments: &[&str], command: &[&str]) -> (Output, serde_json::Value) {
    let (export, temporary, report) = (home.join("E"), home.join("t"), home.join("report.json"));
    for dir in [&export, &temporary] {
        std::fs::create_dir_all(dir).expect("a directory");
    }
    let out = Command::new("timeout")
        .args(["-k", "5", "300"])
        .arg(program())
        .args(["run", "--report"])
        .arg(&report)
        .args(arguments)
        .arg("--at")
        .arg(&export)
        .arg("--")
        .args(command)
        .env("TMPDIR", &temporary)
        .current_dir(&export)
        .output()
        .expect("forebay run runs");
    let report = std::fs::read(report).ok().and_then(|r| serde_json::from_slice(&r).ok());
    (out, report.unwrap_or_default())
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A static program of C, compiled into `dir`.
fn calls(dir: &Path) -> Option<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mount/calls.c");
    let calls = dir.join("calls");
    let built = Command::new("gcc").args(["-D_GNU_SOURCE", "-static", "-o"]).arg(&calls).arg(source).output();
    built.is_ok_and(|b| b.status.success()).then_some(calls)
}

/// `E` as `M`, immutable, for a shell script that sees both.
fn immutable(home: &Path, script: &str) -> (Output, serde_json::Value) {
    let (export, mounted, report) = (home.join("E"), home.join("M"), home.join("report.json"));
    std::fs::create_dir_all(&mounted).expect("a directory");
    let at = format!("{}={}", mounted.display(), export.display());
    let out = Command::new("timeout")
        .args(["-k", "5", "300"])
        .arg(program())
        .args(["run", "--via", "mount", "--contract", "immutable", "--report"])
        .arg(&report)
        .args(["--at", &at, "--", "sh", "-c", script])
        .current_dir(home)
        .output()
        .expect("forebay run runs");
    let report = std::fs::read(report).ok().and_then(|r| serde_json::from_slice(&r).ok());
    (out, report.unwrap_or_default())
}

#[test]
fn what_does_not_change_is_fetched_once() {
    if !can_mount("what_does_not_change_is_fetched_once") {
        return;
    }
    let home = tempfile::tempdir().expect("a directory");
    std::fs::create_dir(home.path().join("E")).expect("a directory");
    std::fs::write(home.path().join("E/a"), "the same for everybody").expect("a file");
    let script = "for i in $(seq 60); do [ \"$(cat M/a)\" = 'the same for everybody' ] || exit 1; \
                  [ ! -e M/missing ] || exit 2; ls M > /dev/null || exit 3; done; \
                  ! (echo no > M/a) 2>/dev/null && ! mkdir M/d 2>/dev/null && ! rm -f M/a 2>/dev/null";
    let (out, report) = immutable(home.path(), script);
    assert!(out.status.success(), "{:?} {}", out.status, text(&out.stderr));
    let operations = report["operations"].as_array().expect("operations");
    let count: u64 = operations.iter().filter_map(|o| o["count"].as_u64()).sum();
    // Directly it would be sixty times half a dozen.
    assert!(count <= 30, "{count} operations: {operations:?}");
    assert_eq!(std::fs::read(home.path().join("E/a")).expect("still there"), b"the same for everybody");
}

#[test]
fn a_change_of_what_does_not_change_is_told_and_never_mixed() {
    if !can_mount("a_change_of_what_does_not_change_is_told_and_never_mixed") {
        return;
    }
    let home = tempfile::tempdir().expect("a directory");
    std::fs::create_dir(home.path().join("E")).expect("a directory");
    std::fs::write(home.path().join("E/large"), vec![b'o'; 32 << 20]).expect("a file");
    let script = "head -c 4096 M/large > /dev/null || exit 1; \
                  tr o n < E/large > new && cat new > E/large || exit 2; \
                  cat M/large > seen 2> why && exit 3; \
                  ! grep -q n seen || exit 4; cat why";
    let (out, _) = immutable(home.path(), script);
    assert!(out.status.success(), "{:?} {}", out.status, text(&out.stderr));
    assert!(text(&out.stderr).contains("was changed"), "{}", text(&out.stderr));
}

/// A contract that the library cannot keep is refused before anything starts.
#[test]
fn the_library_keeps_nothing() {
    let home = tempfile::tempdir().expect("a directory");
    let (out, _) = run(home.path(), &["--via", "preload", "--contract", "close-to-open"], &["true"]);
    assert_eq!(out.status.code(), Some(125));
    assert!(text(&out.stderr).contains("--via mount"), "{}", text(&out.stderr));
}

/// Mappings, unnamed files, locks, sockets, moving directories: the kernel's business, in a program
/// that no library reaches. `auto` takes the mount for it, and says so.
#[test]
fn a_static_program_does_what_it_does_directly() {
    const NAME: &str = "a_static_program_does_what_it_does_directly";
    let home = tempfile::tempdir().expect("a directory");
    let Some(calls) = calls(home.path()) else { return skipped(NAME, "gcc -static does not work here") };
    if !can_mount(NAME) {
        return;
    }
    let direct = home.path().join("direct");
    std::fs::create_dir(&direct).expect("a directory");
    let wanted = Command::new(&calls).current_dir(&direct).output().expect("it runs");
    let (got, report) = run(home.path(), &["--via", "auto"], &[calls.to_str().expect("UTF-8")]);
    assert_eq!(text(&got.stdout), text(&wanted.stdout), "{}", text(&got.stderr));
    assert_eq!(report["front_end"], "mount");
    assert!(report["because"].as_str().expect("a reason").contains("statically linked"), "{report:#}");
    assert!(text(&got.stderr).contains("through    the mount (the program is statically linked"));
    for file in ["named", "copy", "holes", "log", "big", "done/file"] {
        let read = |dir: &Path| std::fs::read(dir.join(file)).expect("it was made");
        assert!(read(&direct) == read(&home.path().join("E")), "{file}");
    }
}

#[test]
fn busybox_and_a_program_of_go() {
    const NAME: &str = "busybox_and_a_program_of_go";
    if !can_mount(NAME) {
        return;
    }
    let home = tempfile::tempdir().expect("a directory");
    if needs(NAME, &["busybox"]) {
        let script = "mkdir d && cd d && echo one > a && cp a b && mv b ../c && ls -l . .. | wc -l && tar cf ../t.tar . && sync && cat ../c";
        let (out, report) = run(home.path(), &[], &["busybox", "sh", "-c", script]);
        assert!(out.status.success() && text(&out.stdout).ends_with("one\n"), "{}", text(&out.stderr));
        assert_eq!(report["front_end"], "mount");
    }
    if needs(NAME, &["go"]) {
        let source = "package main\nimport (\"fmt\"; \"os\")\nfunc main() { os.WriteFile(\"go\", []byte(\"written\"), 0600); b, e := os.ReadFile(\"go\"); fmt.Println(string(b), e) }\n";
        std::fs::write(home.path().join("main.go"), source).expect("a source");
        let built = Command::new("go")
            .args(["build", "-o", "program", "main.go"])
            .env("GOCACHE", home.path().join("cache"))
            .current_dir(home.path())
            .output()
            .expect("go runs");
        assert!(built.status.success(), "{}", text(&built.stderr));
        let program = home.path().join("program");
        let (out, report) = run(home.path(), &["--via", "auto"], &[program.to_str().expect("UTF-8")]);
        assert_eq!(text(&out.stdout), "written <nil>\n", "{}", text(&out.stderr));
        assert_eq!(report["front_end"], "mount");
    }
}

#[test]
fn asynchronous_input_and_output_of_the_kernel() {
    const NAME: &str = "asynchronous_input_and_output_of_the_kernel";
    if !can_mount(NAME) || !needs(NAME, &["fio"]) {
        return;
    }
    let home = tempfile::tempdir().expect("a directory");
    for engine in ["libaio", "io_uring"] {
        for direct in ["0", "1"] {
            let job = format!(
                "fio --name=x --ioengine={engine} --direct={direct} --rw=randwrite --bs=16k --size=2m --iodepth=8 \
                 --verify=crc32c --do_verify=1 --minimal"
            );
            let (out, _) = run(home.path(), &["--via", "mount"], &["sh", "-c", &job]);
            let said = text(&out.stdout) + &text(&out.stderr);
            if said.contains("not loadable") {
                skipped(NAME, &format!("fio has no engine {engine}"));
                break;
            }
            assert_eq!(out.status.code(), Some(0), "{engine}, direct {direct}: {said}");
        }
    }
}

/// The directory does not exist on the machine, and what is written beside it is refused, not lost.
#[test]
fn a_directory_that_is_not_there() {
    const NAME: &str = "a_directory_that_is_not_there";
    if !can_mount(NAME) {
        return;
    }
    let home = tempfile::tempdir().expect("a directory");
    let nowhere = format!("/forebay-none-{}", std::process::id());
    let export = home.path().join("E");
    std::fs::create_dir(&export).expect("a directory");
    let script = format!(
        "cd {nowhere}/deep && pwd && echo text > file && ls /usr >/dev/null && ! echo x > {nowhere}/lost"
    );
    let out = Command::new(program())
        .args(["run", "--quiet", "--via", "mount", "--at"])
        .arg(format!("{nowhere}/deep={}", export.display()))
        .args(["--", "sh", "-c", &script])
        .env("TMPDIR", home.path())
        .output()
        .expect("forebay run runs");
    assert_eq!(
        (out.status.code(), text(&out.stdout)),
        (Some(0), format!("{nowhere}/deep\n")),
        "{}",
        text(&out.stderr)
    );
    assert_eq!(std::fs::read_to_string(export.join("file")).expect("it was written"), "text\n");
    assert!(!Path::new(&nowhere).exists());
}

/// Two processes wait for each other's byte ranges: one of them is told, and the other one goes on.
#[test]
fn who_waits_in_a_circle_is_told() {
    const NAME: &str = "who_waits_in_a_circle_is_told";
    if !can_mount(NAME) || !needs(NAME, &["python3"]) {
        return;
    }
    let script = r#"
import errno, fcntl, os
fd = os.open("f", os.O_RDWR | os.O_CREAT)
(a, b), (c, d) = os.pipe(), os.pipe()
def lock(at): fcntl.lockf(fd, fcntl.LOCK_EX, 1, at)
def told(at):
    try: lock(at)
    except OSError as e:
        assert e.errno == errno.EDEADLK, e
        return 1
    return 0
child = os.fork()
if child == 0:
    lock(1), os.write(b, b"x"), os.read(c, 1)
    os._exit(told(0))
lock(0), os.read(a, 1), os.write(d, b"x")
mine = told(1)
fcntl.lockf(fd, fcntl.LOCK_UN)
assert mine + os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1, mine
"#;
    let home = tempfile::tempdir().expect("a directory");
    let (out, _) = run(home.path(), &["--via", "mount"], &["python3", "-c", script]);
    assert!(out.status.success(), "{}\n{}", out.status, text(&out.stderr));
}

/// Running I/O nodes, and a directory on which `forebay mount` shows what they export.
struct Mounted {
    layer: Layer,
    dir: PathBuf,
    process: Process,
}

impl Mounted {
    fn start(deadline: &str) -> Mounted {
        let layer = Layer::start(2, LEASE_MS, &ClientOptions::default());
        let dir = layer.scratch().join("mounted");
        let secret = layer.scratch().join("mount-secret");
        std::fs::create_dir(&dir).expect("a directory");
        std::fs::write(&secret, layer.secret()).expect("a file");
        std::fs::set_permissions(&secret, Permissions::from_mode(0o600)).expect("a mode");
        let mut command = Command::new(program());
        command.args(["mount", "--job", "test", "--deadline", deadline, "--secret-file"]).arg(secret);
        for n in 0..2 {
            command.arg("--node").arg(format!("tcp:{}", layer.address(n)));
        }
        command.arg("--at").arg(format!("{}={}", dir.display(), layer.export().display()));
        let temporary = layer.scratch().join("mount-tmp");
        std::fs::create_dir(&temporary).expect("a directory");
        command.env("TMPDIR", temporary);
        let process = Process::start(command.stdin(Stdio::null())).expect("forebay mount starts");
        until(PATIENCE, "it is mounted", || is_mounted(&dir).then_some(()));
        Mounted { layer, dir, process }
    }

    /// Asks it to end: how long that took.
    fn end(&mut self) -> Duration {
        let since = Instant::now();
        let status = self.process.end(PATIENCE);
        assert!(status.is_some_and(|s| s.success()), "{status:?}");
        assert!(!is_mounted(&self.dir));
        since.elapsed()
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        self.process.end(PATIENCE);
        if is_mounted(&self.dir) {
            let _ = Command::new("umount").arg("-l").arg(&self.dir).status();
        }
    }
}

/// How often a node was killed: odd while one is being killed.
#[derive(Default)]
struct Kills(AtomicU64);

impl Kills {
    fn during(&self, kill: impl FnOnce()) {
        self.0.fetch_add(1, Ordering::SeqCst);
        kill();
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    /// Makes a call that must be done once; whether it was done. A node that is killed within the system
    /// call has noted that it began, and nobody can tell whether it ended: that is `EIO`, at once and not
    /// at the deadline, and then one looks. Nothing else is allowed, nor that at any other time.
    fn once(&self, call: impl Fn() -> std::io::Result<()>, look: impl Fn() -> bool) -> bool {
        let (since, before) = (Instant::now(), self.0.load(Ordering::SeqCst));
        let Err(e) = call() else { return true };
        let took = since.elapsed();
        let killed = before % 2 == 1 || self.0.load(Ordering::SeqCst) != before;
        let excused = killed && e.raw_os_error() == Some(5) && took < Duration::from_secs(10);
        assert!(excused, "{e} after {took:?}; a node was killed meanwhile: {killed}");
        let done = look();
        println!("a node was killed within a call, which was {}done", if done { "" } else { "not " });
        done
    }
}

/// Writes and reads back until it is told to stop: every call succeeds, every byte is right.
fn verify(dir: &Path, number: usize, stop: &AtomicBool, kills: &Kills) -> u64 {
    const BLOCK: usize = 8192;
    let path = dir.join(format!("file{number}"));
    let file = std::fs::File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .open(&path)
        .expect("open");
    let mut rounds = 0u64;
    let mut versions = [0u8; 16];
    while !stop.load(Ordering::Relaxed) {
        let at = (rounds * 7 % 16) as usize;
        versions[at] = (rounds % 250) as u8 + 1;
        file.write_all_at(&[versions[at]; BLOCK], (at * BLOCK) as u64).expect("a write");
        let other = (rounds * 5 % 16) as usize;
        if versions[other] != 0 {
            let mut got = [0; BLOCK];
            file.read_exact_at(&mut got, (other * BLOCK) as u64).expect("a read");
            assert!(got.iter().all(|b| *b == versions[other]), "block {other} of {}", path.display());
        }
        let name = dir.join(format!("name{number}-{rounds}"));
        let moved = name.with_extension("moved");
        let there = |path: &Path| path.try_exists().expect("a look");
        if kills.once(|| std::fs::create_dir(&name), || there(&name)) {
            let renamed = kills.once(|| std::fs::rename(&name, &moved), || there(&moved));
            let left = if renamed { &moved } else { &name };
            while !kills.once(|| std::fs::remove_dir(left), || !there(left)) {}
        }
        rounds += 1;
    }
    rounds
}

/// Tells the workers to stop when it is dropped.
struct Told<'a>(&'a AtomicBool);

impl Drop for Told<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Kills, freezes and drains, at most one node at a time, under two programs that check every byte.
#[test]
fn nodes_die_freeze_and_drain() {
    if !can_mount_here("nodes_die_freeze_and_drain") {
        return;
    }
    let mut mounted = Mounted::start("30");
    let (stop, kills) = (AtomicBool::new(false), Kills::default());
    let dir = mounted.dir.clone();
    std::thread::scope(|scope| {
        // Also when something is wrong here: the scope waits for the workers.
        let told = Told(&stop);
        let (stop, dir, kills) = (&stop, &dir, &kills);
        let workers: Vec<_> = (0..2).map(|n| scope.spawn(move || verify(dir, n, stop, kills))).collect();
        let pause = |ms| std::thread::sleep(Duration::from_millis(ms));
        for round in 0..setting("FOREBAY_ROUNDS", 6) {
            pause(400);
            let n = (round / 3 % 2) as usize;
            match round % 3 {
                0 => kills.during(|| mounted.layer.kill(n)),
                1 => mounted.layer.freeze(n),
                _ => drop(mounted.layer.drain(n)),
            }
            pause(if round % 3 == 1 { 3000 } else { 300 });
            if round % 3 == 1 { mounted.layer.thaw(n) } else { mounted.layer.restart(n) }
        }
        pause(400);
        drop(told);
        for worker in workers {
            assert!(worker.join().expect("every call succeeded and every byte was right") > 0);
        }
    });
    let left = std::fs::read_dir(mounted.layer.export()).expect("the directory").flatten();
    let mut left: Vec<_> = left.map(|entry| entry.file_name()).collect();
    left.sort();
    assert_eq!(left, ["file0", "file1"], "what was removed is gone");
    mounted.end();
}

#[test]
fn without_any_node_calls_fail_in_time_and_it_can_be_unmounted() {
    if !can_mount_here("without_any_node_calls_fail_in_time_and_it_can_be_unmounted") {
        return;
    }
    let mut mounted = Mounted::start("2");
    let path = mounted.dir.join("file");
    std::fs::write(&path, "before").expect("a write");
    let open = std::fs::File::options().read(true).write(true).open(&path).expect("open");
    for n in 0..2 {
        mounted.layer.kill(n);
    }
    let calls: [(&str, &dyn Fn() -> std::io::Result<()>); 5] = [
        ("write", &|| open.write_all_at(b"x", 0)),
        ("read", &|| open.read_exact_at(&mut [0; 4], 0)),
        ("stat", &|| std::fs::metadata(&path).map(drop)),
        ("create", &|| std::fs::write(mounted.dir.join("new"), "x")),
        ("list", &|| std::fs::read_dir(&mounted.dir).map(drop)),
    ];
    for (name, call) in calls {
        let since = Instant::now();
        assert_eq!(call().map_err(|e| e.raw_os_error()), Err(Some(5)), "{name}: EIO");
        assert!(since.elapsed() < Duration::from_secs(2) + PATIENCE, "{name} took {:?}", since.elapsed());
    }
    mounted.layer.restart(0);
    until(PATIENCE, "it goes on when a node is back", || open.write_all_at(b"after.", 0).ok());
    assert_eq!(std::fs::read(mounted.layer.export().join("file")).expect("the file"), b"after.");
    mounted.layer.kill(0);
    mounted.end();
}

/// Whatever is killed, nothing stays mounted, nor what was made for it.
#[test]
fn nothing_stays_mounted() {
    if !can_mount_here("nothing_stays_mounted") {
        return;
    }
    let mounted = Mounted::start("2");
    // In use while it goes.
    let _held = std::fs::File::open(&mounted.dir).expect("open");
    mounted.process.signal(Signal::KILL).expect("our own child");
    until(PATIENCE, "it is unmounted", || (!is_mounted(&mounted.dir)).then_some(()));
    let temporary = mounted.layer.scratch().join("mount-tmp");
    let left = || std::fs::read_dir(&temporary).expect("its directory").count();
    until(PATIENCE, "its own directory goes", || (left() == 0).then_some(()));
    drop(mounted);
    // A run's mount is the program's own view: the machine never sees it.
    let home = tempfile::tempdir().expect("a directory");
    let export = home.path().join("E");
    std::fs::create_dir(&export).expect("a directory");
    let mut command = Command::new(program());
    command.args(["run", "--quiet", "--via", "mount", "--at"]).arg(&export);
    command.args(["--", "sh", "-c", "echo up > started; exec sleep 60"]).current_dir(&export);
    let mut run = Process::start(command.env("TMPDIR", home.path()).stdin(Stdio::null())).expect("it starts");
    until(PATIENCE, "the program runs", || export.join("started").exists().then_some(()));
    assert!(!is_mounted(&export));
    run.kill();
    assert!(!is_mounted(&export));
}

/// Random operations on one file, every byte checked.
#[test]
fn every_byte_of_one_file() {
    if !can_mount_here("every_byte_of_one_file") {
        return;
    }
    let mut mounted = Mounted::start("30");
    let fsx = mounted.layer.compile("fsx");
    let mut command = Command::new(&fsx);
    command.arg(mounted.dir.join("fsx")).arg(mounted.layer.scratch().join("copy"));
    command.arg(seed().to_string()).arg((256 << 10).to_string());
    let mut fsx = Talker::start(command);
    let operations = setting("FOREBAY_OPERATIONS", 20_000);
    let done: u64 = fsx.ask(&operations.to_string()).parse().expect("a count");
    assert!(done >= operations);
    fsx.finish();
    mounted.end();
}

/// A user who is not root stays who he is, with all his groups, and sees a directory that the machine
/// does not have. The device is opened to everybody in a view of the machine of the test's own.
#[test]
fn without_root_the_user_stays_who_he_is() {
    const NAME: &str = "without_root_the_user_stays_who_he_is";
    if !can_mount_here(NAME) || !needs(NAME, &["unshare", "setpriv", "mknod"]) {
        return;
    }
    let home = tempfile::tempdir().expect("a directory");
    let at = |name: &str| home.path().join(name);
    for dir in ["dev", "t", "E", "E/project"] {
        std::fs::create_dir(at(dir)).expect("a directory");
    }
    std::fs::copy(program(), at("forebay")).expect("the program");
    std::fs::write(at("E/foreign"), "readable").expect("a file");
    let prepare = r#"
        chmod 755 . forebay && chown 4242:4242 t E && chown 5:4343 E/project && chmod 2775 E/project &&
        mount -t tmpfs none dev && mknod -m 666 dev/fuse c 10 229 && mount --bind dev/fuse /dev/fuse &&
        exec setpriv --reuid 4242 --regid 4242 --groups 4242,4343 --inh-caps=-all \
            ./forebay run --quiet --via mount --at /forebay-none/deep="$PWD/E" -- sh -c '
                id -u; grep CapEff /proc/self/status; cd /forebay-none/deep && cat foreign && echo &&
                echo a > own && echo b > project/shared && mkdir -p d/e && mv own d/e/own && stat -c %u d/e/own &&
                ! echo c 2>/dev/null > foreign'
    "#;
    let out = Command::new("unshare")
        .args(["--mount", "sh", "-c", prepare])
        .env("TMPDIR", at("t"))
        .current_dir(home.path())
        .output()
        .expect("unshare runs");
    let said = text(&out.stdout);
    assert_eq!(
        (out.status.code(), said.as_str()),
        (Some(0), "4242\nCapEff:\t0000000000000000\nreadable\n4242\n"),
        "{}",
        text(&out.stderr)
    );
    use std::os::unix::fs::MetadataExt;
    let owner = |name: &str| std::fs::metadata(at(name)).map(|m| (m.uid(), m.gid())).expect("it was made");
    assert_eq!(owner("E/d/e/own"), (4242, 4242));
    assert_eq!(owner("E/project/shared"), (4242, 4343), "the directory passes its group on");
    assert_eq!(std::fs::read_to_string(at("E/foreign")).expect("it is there"), "readable");
}
