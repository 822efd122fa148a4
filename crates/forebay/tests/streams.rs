//! Small requests that follow each other do not make a trip each, and nobody can tell but by the time.

use std::process::{Command, Output};

/// Runs a Python script with one I/O node: what it said, and the report; nothing where there is no Python.
fn run(test: &str, script: &str, env: &[(&str, &str)]) -> Option<(Output, serde_json::Value)> {
    let home = tempfile::tempdir().unwrap();
    let (export, report) = (home.path().join("E"), home.path().join("report.json"));
    std::fs::create_dir(&export).unwrap();
    if Command::new("python3").arg("--version").output().is_err() {
        forebay_testkit::skipped(test, "no python3");
        return None;
    }
    let limited = "[ -z \"$LIMIT\" ] || ulimit -S -f $LIMIT; exec timeout -k 5 600 \"$@\"";
    let out = Command::new("bash")
        .args(["-c", limited, "bash", env!("CARGO_BIN_EXE_forebay"), "run", "--via", "preload", "--report"])
        .arg(&report)
        .arg("--at")
        .arg(&export)
        .args(["--", "python3", "-c", script])
        .env("D", &export)
        .env("TMPDIR", home.path())
        .envs(env.iter().copied())
        .output()
        .unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    Some((out, serde_json::from_slice(&std::fs::read(report).unwrap()).unwrap()))
}

/// How often the node did this, and how many bytes it moved.
fn served(report: &serde_json::Value, what: &str) -> (u64, u64) {
    let flows = report["io_nodes"][0]["stats"]["flows"].as_array().unwrap();
    let of = |f: &serde_json::Value, field: &str| f["operations"][what][field].as_u64().unwrap_or(0);
    (flows.iter().map(|f| of(f, "count")).sum(), flows.iter().map(|f| of(f, "bytes")).sum())
}

/// 20,000 writes and 20,000 reads.
#[test]
fn they_are_joined() {
    let script = r#"
import os
name = os.environ["D"] + "/blocks"
fd = os.open(name, os.O_WRONLY | os.O_CREAT, 0o644)
for i in range(20000): assert os.write(fd, b"%0400d\n" % i) == 401
os.close(fd)
fd = os.open(name, os.O_RDONLY)
for i in range(20000): assert os.read(fd, 401) == b"%0400d\n" % i
assert os.read(fd, 401) == b""
"#;
    let Some((_, report)) = run("they_are_joined", script, &[]) else { return };
    let ((writes, written), (reads, _)) = (served(&report, "write"), served(&report, "read"));
    assert_eq!(written, 20_000 * 401);
    assert!(writes < 200 && reads < 200, "{writes} writes, {reads} reads");
}

/// One process writes and overwrites, another one reads: whatever the first one says it has done, the second
/// one finds, by every way to look.
#[test]
fn what_one_process_has_written_another_one_sees() {
    let script = r#"
import os, random, mmap
os.chdir(os.environ["D"])
seed = int(os.environ.get("FOREBAY_SEED", "0")) or random.SystemRandom().randrange(1 << 30)
there, back = os.pipe(), os.pipe()
def tell(end, text): assert os.write(end, b"%-40s" % text.encode()) == 40
def hear(end):
    text = os.read(end, 40)
    assert len(text) == 40, "the other one has ended"
    return text.decode().split()
rounds = 60
child = os.fork()
rng = random.Random(seed)
if child == 0:
    # The reader: it has one descriptor open all the time and reads small pieces in a row.
    os.close(there[1]); os.close(back[0])
    reader = None
    for k in range(rounds):
        name, size, at, stamp = hear(there[0])
        size, at, stamp = int(size), int(at), int(stamp)
        if reader is None or reader[0] != name:
            if reader: os.close(reader[1])
            reader = (name, os.open(name, os.O_RDONLY))
            os.lseek(reader[1], at, os.SEEK_SET)
        assert os.stat(name).st_size == size == os.fstat(reader[1]).st_size, (seed, k)
        if k % 5 == 0:
            with mmap.mmap(reader[1], 0, prot=mmap.PROT_READ) as m: assert m[at:at+1] == bytes([stamp]), (seed, k)
        # Half of it is read ahead before the next change.
        place = at if k % 2 else max(0, at - 2000)
        if k % 3: os.lseek(reader[1], place, os.SEEK_SET)
        else: place = os.lseek(reader[1], 0, os.SEEK_CUR)
        while place < size:
            got = os.read(reader[1], 100)
            assert got, (seed, k, place, size)
            if place <= at < place + len(got): assert got[at - place] == stamp, (seed, k, place, at)
            place += len(got)
            if rng.random() < 0.01: break
        tell(back[1], "seen")
    os._exit(0)
os.close(there[0]); os.close(back[1])
model, fd, name = bytearray(), None, None
for k in range(rounds):
    if k % 20 == 0:
        if fd is not None: os.close(fd)
        name = "f%d" % k
        fd, model = os.open(name, os.O_RDWR | os.O_CREAT, 0o644), bytearray()
    if rng.random() < 0.3 and model: os.lseek(fd, rng.randrange(len(model)), os.SEEK_SET)
    elif rng.random() < 0.2:
        os.ftruncate(fd, 0); model = bytearray(); os.lseek(fd, 0, os.SEEK_SET)
    at = os.lseek(fd, 0, os.SEEK_CUR)
    for _ in range(rng.randrange(1, 400)):
        piece = bytes([rng.randrange(1, 256)]) * rng.randrange(1, 300)
        assert os.write(fd, piece) == len(piece)
        if len(model) < at: model.extend(bytes(at - len(model)))
        model[at:at + len(piece)] = piece
        at += len(piece)
    if rng.random() < 0.3:
        other = os.open(name, os.O_RDWR)
        where = rng.randrange(len(model))
        assert os.pwrite(other, b"\x07", where) == 1
        model[where] = 7
        assert os.pread(fd, len(model), 0) == bytes(model), seed
        os.close(other)
    where = rng.randrange(len(model)) if rng.random() < 0.5 else len(model) - 1
    tell(there[1], "%s %d %d %d" % (name, len(model), where, model[where]))
    assert hear(back[0]) == ["seen"]
    with open(name, "rb") as f: assert f.read() == bytes(model), (seed, k)
assert os.waitpid(child, 0)[1] == 0, seed
"#;
    run("what_one_process_has_written_another_one_sees", script, &[]);
}

/// A process that is killed, whenever that is, loses nothing that `write` has acknowledged.
/// `FOREBAY_KILLS=1000` for more.
#[test]
fn killed_writers_lose_nothing() {
    let script = r#"
import os, random, mmap, signal, struct, time
D = os.environ["D"]
rng = random.Random()
# Two places in turns: Python clears one before it stores, and may be killed between the two.
shared = mmap.mmap(-1, 4096)
acknowledged = lambda: max(struct.unpack_from("QQ", shared, 0))
kills = int(os.environ.get("FOREBAY_KILLS") or 30)
for k in range(kills):
    struct.pack_into("QQ", shared, 0, 0, 0)
    name, size = D + "/log%d" % (k % 7), rng.choice([8, 33, 64, 500, 4096])
    line = lambda i: (b"%08d" % i * (size // 8 + 1))[:size]
    child = os.fork()
    if child == 0:
        fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        i = 0
        while True:
            assert os.write(fd, line(i)) == size
            i += 1
            struct.pack_into("Q", shared, 8 * (i % 2), i)
    enough = rng.choice([3, 30, 300, 3000])
    while acknowledged() < enough: time.sleep(0.0005)
    time.sleep(rng.random() * 0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    n = acknowledged()
    with open(name, "rb") as f: data = f.read()
    assert len(data) in (n * size, (n + 1) * size), (k, n, size, len(data))
    for i in range(n): assert data[i * size:(i + 1) * size] == line(i), (k, i)
print(kills)
"#;
    let kills = std::env::var("FOREBAY_KILLS").unwrap_or_default();
    let Some((_, report)) = run("killed_writers_lose_nothing", script, &[("FOREBAY_KILLS", &kills)]) else {
        return;
    };
    assert!(served(&report, "share").0 > 10, "nothing was shared: {report}");
}

/// The I/O node may write 8 MiB to a file and not more, the program may: it is told.
#[test]
fn late_errors_are_told() {
    let script = r#"
import os, errno, resource
hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
MOST, RING = 8 << 20, 512 << 10
def fill(name, at_most):
    fd, done = os.open(os.environ["D"] + "/" + name, os.O_WRONLY | os.O_CREAT, 0o644), 0
    try:
        while done < at_most: done += os.write(fd, b"x" * 4096)
    except OSError as e:
        assert e.errno == errno.EFBIG, e
        assert MOST <= done <= MOST + RING, done
        os.close(fd)
        return "write"
    try: (os.fsync if name == "fsync" else os.close)(fd)
    except OSError as e:
        assert e.errno == errno.EFBIG, e
        return "end"
    return "nobody"
assert fill("much", 2 * MOST) == "write"
# When the node takes the last of it is its own business.
assert fill("close", MOST + 2 * 4096) != "nobody"
assert fill("fsync", MOST + 2 * 4096) != "nobody"
assert fill("little", MOST) == "nobody"
for name in "much", "close", "fsync", "little": assert os.stat(os.environ["D"] + "/" + name).st_size == MOST
"#;
    run("late_errors_are_told", script, &[("LIMIT", "8192")]);
}

/// The only I/O node is killed under a stream: a later write is told, as is an `exec`; of a process that makes no further
/// call what is missing is in the report.
#[test]
fn a_dead_node_is_noticed() {
    let script = r#"
import os, signal, sys, time
how, name = sys.argv[1:]
def node():
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/%s/stat" % pid) as f: parent = int(f.read().rsplit(")", 1)[1].split()[1])
            with open("/proc/%s/cmdline" % pid, "rb") as f: words = f.read().split(b"\0")
        except OSError: continue
        if parent == os.getppid() and b"node" in words: return int(pid)
victim = node()
fd = os.open(name, os.O_WRONLY | os.O_CREAT, 0o644)
for i in range(100): os.write(fd, b"%0100d\n" % i)
if how != "exit": time.sleep(0.5)
os.kill(victim, signal.SIGKILL)
if how == "exit": os._exit(0)
time.sleep(0.2)
if how == "exec":
    os.execv("/bin/true", ["true"])
try:
    for i in range(100, 400): os.write(fd, b"%0100d\n" % i)
except OSError:
    os._exit(0 if i == 100 else 3)
os._exit(4)
"#;
    if Command::new("python3").arg("--version").output().is_err() {
        return forebay_testkit::skipped("a_dead_node_is_noticed", "no python3");
    }
    for how in ["write", "exec", "exit"] {
        let home = tempfile::tempdir().unwrap();
        let (export, report) = (home.path().join("E"), home.path().join("report.json"));
        std::fs::create_dir(&export).unwrap();
        let out = Command::new("timeout")
            .args([
                "-k",
                "5",
                "120",
                env!("CARGO_BIN_EXE_forebay"),
                "run",
                "--via",
                "preload",
                "--deadline",
                "3",
            ])
            .arg("--report")
            .arg(&report)
            .arg("--at")
            .arg(&export)
            .args(["--", "python3", "-c", script, how])
            .arg(export.join("log"))
            .env("TMPDIR", home.path())
            .output()
            .unwrap();
        let told = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success(), "{how}: {} {told}", out.status);
        let report: serde_json::Value = serde_json::from_slice(&std::fs::read(report).unwrap()).unwrap();
        let there = std::fs::read(export.join("log")).unwrap().len() / 101;
        let writes = report["operations"].as_array().unwrap().iter().find(|o| o["name"] == "write").unwrap();
        // At its end all that was missing; before it, nothing was.
        let lost = how == "exit" && there < 100;
        assert!(there == 100 || lost, "{how}: {there} lines");
        let failed = writes["errors"].as_u64().unwrap();
        assert_eq!(failed > 0, lost || how == "write", "{how}: {there} lines, {writes}\n{told}");
    }
}
