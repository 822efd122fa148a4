//! What the mount's contracts promise: `close-to-open` on two hosts (two mounts, each through an I/O node of its
//! own), and `exclusive`, under which the kernel keeps what is written.

use forebay_testkit::{ClientOptions, Layer, Process, needs, program, skipped, until};
use rustix::fs::{FlockOperation, flock};
use std::fs::{File, Permissions};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(60);

fn can_mount(test: &str) -> bool {
    let looked = Command::new(program()).arg("doctor").output().expect("forebay doctor runs");
    let said = String::from_utf8_lossy(&looked.stdout).into_owned();
    let missing = said.lines().find(|l| l.starts_with("no  FUSE") || l.starts_with("no  namespaces"));
    if let Some(line) = missing {
        skipped(test, line);
    }
    missing.is_none()
}

fn is_mounted(dir: &Path) -> bool {
    let table = std::fs::read_to_string("/proc/self/mounts").expect("the table of mounts");
    table.lines().any(|l| l.split(' ').nth(1) == dir.to_str())
}

/// Two mounts of one export, each through an I/O node of its own, as two hosts have them.
struct Hosts {
    layer: Layer,
    dirs: [PathBuf; 2],
    mounts: Vec<Process>,
}

impl Hosts {
    fn start() -> Hosts {
        let layer = Layer::start(2, 2000, &ClientOptions::default());
        let secret = layer.scratch().join("mount-secret");
        std::fs::write(&secret, layer.secret()).expect("a file");
        std::fs::set_permissions(&secret, Permissions::from_mode(0o600)).expect("a mode");
        let dirs = ["A", "B"].map(|name| layer.scratch().join(name));
        let mut hosts = Hosts { layer, dirs, mounts: Vec::new() };
        for (n, dir) in hosts.dirs.iter().enumerate() {
            std::fs::create_dir(dir).expect("a directory");
            let mut command = Command::new(program());
            command.args(["mount", "--job", "test", "--contract", "close-to-open", "--secret-file"]);
            command.arg(&secret).arg("--node").arg(format!("tcp:{}", hosts.layer.address(n)));
            command.arg("--at").arg(format!("{}={}", dir.display(), hosts.layer.export().display()));
            hosts.mounts.push(Process::start(command.stdin(Stdio::null())).expect("forebay mount starts"));
        }
        for dir in &hosts.dirs {
            until(PATIENCE, "it is mounted", || is_mounted(dir).then_some(()));
        }
        hosts
    }

    fn open(&self, host: usize, name: &str) -> File {
        let path = self.dirs[host].join(name);
        File::options().read(true).write(true).create(true).truncate(false).open(path).expect("open")
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for mount in &mut self.mounts {
            mount.end(PATIENCE);
        }
        for dir in self.dirs.iter().filter(|dir| is_mounted(dir)) {
            let _ = Command::new("umount").arg("-l").arg(dir).status();
        }
    }
}

#[test]
fn close_to_open_on_two_hosts() {
    const NAME: &str = "close_to_open_on_two_hosts";
    if !rustix::process::geteuid().is_root() {
        return skipped(NAME, "mounting on the machine itself needs root");
    }
    if !can_mount(NAME) {
        return;
    }
    let hosts = Hosts::start();
    // What one has written and closed, the other one has who opens it then; longer, shorter, as long as before.
    for round in 0..40usize {
        let (here, there) = (round % 2, 1 - round % 2);
        let text = format!("{round} ").repeat(1 + round * 7919 % 5000);
        std::fs::write(hosts.dirs[here].join("seen"), &text).expect("a write");
        let read = std::fs::read_to_string(hosts.dirs[there].join("seen")).expect("a read");
        assert!(read == text, "round {round}: {} bytes instead of {}", read.len(), text.len());
    }
    // Both write other bytes of the same pages, of which both have read what was there before.
    let whole = vec![b'.'; 3 * 4096];
    std::fs::write(hosts.dirs[0].join("pages"), &whole).expect("a write");
    let open = [0, 1].map(|host| hosts.open(host, "pages"));
    for file in &open {
        file.read_exact_at(&mut vec![0; whole.len()], 0).expect("a read");
    }
    for at in (0..whole.len()).step_by(31) {
        let host = at / 31 % 2;
        open[host].write_all_at(&[b'A' + host as u8], at as u64).expect("a write");
    }
    drop(open);
    let there = std::fs::read(hosts.layer.export().join("pages")).expect("the file");
    for (at, byte) in there.iter().enumerate() {
        let wanted = if at % 31 == 0 { b'A' + (at / 31 % 2) as u8 } else { b'.' };
        assert_eq!(*byte, wanted, "byte {at}");
    }
    // Locks are barriers: whoever has one sees what was written under it before, through files that stay open.
    std::fs::write(hosts.dirs[0].join("count"), 0u64.to_le_bytes()).expect("a write");
    std::thread::scope(|scope| {
        for host in 0..2 {
            let file = hosts.open(host, "count");
            scope.spawn(move || {
                for _ in 0..50 {
                    flock(&file, FlockOperation::LockExclusive).expect("a lock");
                    let mut count = [0; 8];
                    file.read_exact_at(&mut count, 0).expect("a read");
                    let more = u64::from_le_bytes(count) + 1;
                    file.write_all_at(&more.to_le_bytes(), 0).expect("a write");
                    flock(&file, FlockOperation::Unlock).expect("an unlock");
                }
            });
        }
    });
    let count = std::fs::read(hosts.layer.export().join("count")).expect("the file");
    assert_eq!(count, 100u64.to_le_bytes());
}

/// A script of Python below `M`, which is `E` under `--contract exclusive`: what it wrote, and the report's count of
/// writes.
fn exclusive(name: &str, script: &str) -> Option<u64> {
    if !can_mount(name) || !needs(name, &["python3", "timeout"]) {
        return None;
    }
    let home = tempfile::tempdir().expect("a directory");
    let (export, mounted, report) =
        (home.path().join("E"), home.path().join("M"), home.path().join("report"));
    for dir in [&export, &mounted] {
        std::fs::create_dir(dir).expect("a directory");
    }
    let begin = r#"
import os, signal, subprocess, sys, time, errno, resource, mmap
E, M = os.environ["E"], os.environ["M"]
def node():
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/%s/stat" % pid) as f: parent = int(f.read().rsplit(")", 1)[1].split()[1])
            with open("/proc/%s/cmdline" % pid, "rb") as f: words = f.read().split(b"\0")
        except OSError: continue
        if parent == os.getppid() and b"node" in words: return int(pid)
def there(name): return open(E + "/" + name, "rb").read()
def opened(name, how=os.O_WRONLY | os.O_CREAT): return os.open(M + "/" + name, how, 0o644)
"#;
    let out = Command::new("timeout")
        .args(["-k", "5", "300"])
        .arg(program())
        .args(["run", "--via", "mount", "--contract", "exclusive", "--report"])
        .arg(&report)
        .arg("--at")
        .arg(format!("{}={}", mounted.display(), export.display()))
        .args(["--", "python3", "-c", &format!("{begin}{script}")])
        .env("E", &export)
        .env("M", &mounted)
        .current_dir(home.path())
        .output()
        .expect("forebay run runs");
    assert!(out.status.success(), "{}\n{}", out.status, String::from_utf8_lossy(&out.stderr));
    let report: serde_json::Value =
        serde_json::from_slice(&std::fs::read(report).expect("a report")).expect("JSON");
    let operations = report["operations"].as_array().expect("operations");
    operations.iter().find(|o| o["name"] == "write").and_then(|o| o["count"].as_u64())
}

#[test]
fn what_is_kept_goes_out_when_it_must() {
    let writes = exclusive(
        "what_is_kept_goes_out_when_it_must",
        r#"
lines = [b"line %d of many\n" % i for i in range(5000)]
fd = opened("log")
for line in lines: os.write(fd, line)
os.fsync(fd)
assert there("log") == b"".join(lines)
for line in lines: os.write(fd, line)
os.close(fd)
assert there("log") == b"".join(lines) * 2
assert open(M + "/log", "rb").read() == there("log")

# A process that is killed loses nothing.
child = os.fork()
if child == 0:
    fd = opened("killed")
    for line in lines: os.write(fd, line)
    os.kill(os.getpid(), signal.SIGKILL)
os.waitpid(child, 0)
assert there("killed") == b"".join(lines)

# Of a page that is there already a few bytes are written, by who may only write.
open(E + "/old", "wb").write(bytes(range(256)) * 40)
fd = opened("old", os.O_WRONLY)
os.pwrite(fd, b"xyz", 5000)
os.close(fd)
want = bytearray(bytes(range(256)) * 40); want[5000:5003] = b"xyz"
assert there("old") == bytes(want)

# Appending, by several processes at once.
children = []
for number in range(4):
    child = os.fork()
    if child == 0:
        fd = opened("appended", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        for i in range(500): os.write(fd, b"%d %d\n" % (number, i))
        os._exit(0)
    children.append(child)
for child in children: assert os.waitpid(child, 0)[1] == 0
assert sorted(there("appended").split(b"\n")[:-1]) == sorted(b"%d %d" % (n, i) for n in range(4) for i in range(500))

# Holes and mappings.
fd = opened("holes", os.O_RDWR | os.O_CREAT)
os.pwrite(fd, b"data", 1 << 20)
assert os.lseek(fd, 0, os.SEEK_DATA) == 1 << 20 and os.lseek(fd, 0, os.SEEK_HOLE) == 0
with mmap.mmap(fd, 1 << 20) as m:
    m[5:9] = b"here"
    assert os.pread(fd, 4, 5) == b"here"
os.truncate(M + "/holes", 10)
os.close(fd)
assert there("holes") == b"\0" * 5 + b"here\0"

# What somebody else has changed all the same is there for who opens it later.
open(E + "/other", "w").write("first")
assert open(M + "/other").read() == "first"
for text in "much longer than that", "short":
    open(E + "/other", "w").write(text)
    time.sleep(2.1)
    assert open(M + "/other").read() == text, open(M + "/other").read()
os.chmod(E + "/other", 0o600)
"#,
    );
    assert!(writes.is_none_or(|n| n < 1000), "{writes:?} writes of 27,000");
}

#[test]
fn late_errors_are_told_at_close_and_fsync() {
    exclusive(
        "late_errors_are_told_at_close_and_fsync",
        r#"
resource.prlimit(node(), resource.RLIMIT_FSIZE, (10 << 20, 10 << 20))
for end in os.fsync, os.close:
    fd, told = opened(end.__name__), None
    try:
        for i in range(8000): os.write(fd, b"x" * 4096)
        end(fd)
    except OSError as e: told = e.errno
    # At a close the kernel knows of no other errors than these and a full file system.
    assert told == errno.EFBIG or end == os.close and told == errno.EIO, (end, told)
fd = opened("little")
os.write(fd, b"x" * 4096)
os.close(fd)
assert there("little") == b"x" * 4096
"#,
    );
}

/// How many operations reach the I/O node when so many processes import the same 300 modules.
fn imports(home: &Path, contract: &str, processes: usize) -> u64 {
    let report = home.join(format!("{contract}.json"));
    let each = "PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$M python3 -c 'import everything'";
    let out = Command::new("timeout")
        .args(["-k", "5", "300"])
        .arg(program())
        .args(["run", "--via", "mount", "--contract", contract, "--report"])
        .arg(&report)
        .arg("--at")
        .arg(format!("{}={}", home.join("M").display(), home.join("E").display()))
        .args(["--", "sh", "-c", &format!("seq {processes} | xargs -P 8 -I @@ sh -c \"{each}\"")])
        .env("M", home.join("M"))
        .output()
        .expect("forebay run runs");
    assert!(out.status.success(), "{contract}: {}\n{}", out.status, String::from_utf8_lossy(&out.stderr));
    let report: serde_json::Value =
        serde_json::from_slice(&std::fs::read(report).expect("a report")).expect("JSON");
    let operations = report["operations"].as_array().expect("operations");
    operations.iter().filter_map(|o| o["count"].as_u64()).sum()
}

#[test]
fn what_many_processes_import_is_fetched_once() {
    const NAME: &str = "what_many_processes_import_is_fetched_once";
    if !can_mount(NAME) || !needs(NAME, &["python3", "timeout", "xargs"]) {
        return;
    }
    let home = tempfile::tempdir().expect("a directory");
    for dir in ["E", "M"] {
        std::fs::create_dir(home.path().join(dir)).expect("a directory");
    }
    let put =
        |name: String, text: String| std::fs::write(home.path().join("E").join(name), text).expect("a file");
    (0..300).for_each(|i| put(format!("module{i}.py"), format!("VALUE = {i}\n")));
    put("everything.py".into(), (0..300).map(|i| format!("import module{i}\n")).collect());
    let (one, all) = (imports(home.path(), "strict", 1), imports(home.path(), "immutable", 64));
    assert!(one > 300, "{one} operations of one process that keeps nothing");
    assert!(all * 20 <= one * 64, "{all} operations of 64 processes, {one} of one that keeps nothing");
    eprintln!("one process, strict: {one} operations; 64 processes, immutable: {all}");
}

/// Whoever looks past the I/O node finds every write the moment it returns; by `strict` it may be late, and fewer requests
/// are made.
#[test]
fn what_is_synchronous_is_there_at_once() {
    const NAME: &str = "what_is_synchronous_is_there_at_once";
    if !needs(NAME, &["python3", "timeout"]) {
        return;
    }
    let script = "
import os, sys
fd, late = os.open('/forwarded/records', os.O_WRONLY | os.O_CREAT, 0o644), 0
for i in range(1, 2001):
    assert os.write(fd, b'x' * 464) == 464
    late += os.stat(sys.argv[1] + '/records').st_size != i * 464
print(late)
";
    let run = |via: &str, contract: &str| {
        let home = tempfile::tempdir().expect("a directory");
        let (export, report) = (home.path().join("E"), home.path().join("report.json"));
        std::fs::create_dir(&export).expect("a directory");
        let out = Command::new("timeout")
            .args(["-k", "5", "120"])
            .arg(program())
            .args(["run", "--via", via, "--contract", contract, "--report"])
            .arg(&report)
            .arg("--at")
            .arg(format!("/forwarded={}", export.display()))
            .args(["--", "python3", "-c", script])
            .arg(&export)
            .env("TMPDIR", home.path())
            .output()
            .expect("it runs");
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        let late: u64 = String::from_utf8_lossy(&out.stdout).trim().parse().expect("a number");
        let text = std::fs::read(report).expect("a report");
        let report: serde_json::Value = serde_json::from_slice(&text).expect("JSON");
        let flows = report["io_nodes"][0]["stats"]["flows"].as_array().expect("flows");
        let writes = |f: &serde_json::Value| f["operations"]["write"]["count"].as_u64().unwrap_or(0);
        (late, flows.iter().map(writes).sum::<u64>())
    };
    let mut ways = vec!["preload"];
    if can_mount(NAME) {
        ways.push("mount");
    }
    for via in ways {
        assert_eq!(run(via, "synchronous"), (0, 2000), "{via}");
        let (late, writes) = run(via, "strict");
        assert!(late > 0 && writes < 2000, "{via}: {late} late, {writes} writes");
    }
}
