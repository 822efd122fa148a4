//! Small requests that follow each other, and small files, do not make a trip for everything, and nobody can
//! tell but by the time.

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
    let out = Command::new("timeout")
        .args(["-k", "5", "600", env!("CARGO_BIN_EXE_forebay"), "run", "--via", "preload", "--report"])
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

/// Finds its I/O node.
const VICTIM: &str = r#"
import os, signal, sys, time
def node():
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/%s/stat" % pid) as f: parent = int(f.read().rsplit(")", 1)[1].split()[1])
            with open("/proc/%s/cmdline" % pid, "rb") as f: words = f.read().split(b"\0")
        except OSError: continue
        if parent == os.getppid() and b"node" in words: return int(pid)
victim = node()
"#;

/// Runs a Python script that is told `how` and where its files are, and may end its I/O node: what it said, the report,
/// and the directory whose `E` has the files.
fn beside(script: &str, how: &str) -> (Output, serde_json::Value, tempfile::TempDir) {
    let home = tempfile::tempdir().unwrap();
    let (export, report) = (home.path().join("E"), home.path().join("report.json"));
    std::fs::create_dir(&export).unwrap();
    let forebay = env!("CARGO_BIN_EXE_forebay");
    let out = Command::new("timeout")
        .args(["-k", "5", "120", forebay, "run", "--via", "preload", "--deadline", "3", "--report"])
        .arg(&report)
        .arg("--at")
        .arg(&export)
        .args(["--", "python3", "-c", &format!("{VICTIM}{script}"), how])
        .arg(&export)
        .env("TMPDIR", home.path())
        .output()
        .unwrap();
    let report = serde_json::from_slice(&std::fs::read(report).unwrap()).unwrap();
    (out, report, home)
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
MOST, RING = 8 << 20, 512 << 10
resource.prlimit(victim, resource.RLIMIT_FSIZE, (MOST, MOST))
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
    run("late_errors_are_told", &format!("{VICTIM}{script}"), &[]);
}

/// The only I/O node is killed under a stream: a later write is told, as is an `exec`; of a process that makes no further
/// call what is missing is in the report.
#[test]
fn a_dead_node_is_noticed() {
    let script = r#"
how, name = sys.argv[1], sys.argv[2] + "/log"
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
        let (out, report, home) = beside(script, how);
        let told = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success(), "{how}: {} {told}", out.status);
        let there = std::fs::read(home.path().join("E/log")).unwrap().len() / 101;
        let writes = report["operations"].as_array().unwrap().iter().find(|o| o["name"] == "write").unwrap();
        // At its end all that was missing; before it, nothing was.
        let lost = how == "exit" && there < 100;
        assert!(there == 100 || lost, "{how}: {there} lines");
        let failed = writes["errors"].as_u64().unwrap();
        assert_eq!(failed > 0, lost || how == "write", "{how}: {there} lines, {writes}\n{told}");
    }
}

/// Opening a small file brings its attributes and what is in it; nothing else is asked for.
#[test]
fn a_small_file_comes_with_its_open() {
    let script = r#"
import os
os.chdir(os.environ["D"])
for i in range(200):
    with open("f%d" % i, "wb") as f: f.write(b"%d " % i * i)
os.sync()
for i in range(200):
    fd = os.open("f%d" % i, os.O_RDONLY)
    assert os.fstat(fd).st_size == len(b"%d " % i) * i
    assert os.read(fd, 100000) == b"%d " % i * i
    assert os.read(fd, 100000) == b""
    assert os.pread(fd, 2, 1) == (b"%d " % i * i)[1:3]
    os.close(fd)
"#;
    let Some((_, report)) = run("a_small_file_comes_with_its_open", script, &[]) else { return };
    let (reads, stats) = (served(&report, "read").0, served(&report, "stat").0);
    // What comes with an open is counted as the read it is.
    assert!((199..210).contains(&reads) && stats < 210, "{reads} reads, {stats} stats");
}

/// What came with an open is not used once another process has changed the file, by whatever way.
#[test]
fn what_came_with_an_open_is_what_is_there() {
    let script = r#"
import os, random
os.chdir(os.environ["D"])
seed = int(os.environ.get("FOREBAY_SEED", "0")) or random.SystemRandom().randrange(1 << 30)
rng = random.Random(seed)
there, back = os.pipe(), os.pipe()
child = os.fork()
if child == 0:
    os.close(there[1]); os.close(back[0])
    kept = None
    while True:
        do = os.read(there[0], 1)
        if not do: os._exit(0)
        if do == b"w":
            fd = os.open("f", os.O_WRONLY); os.pwrite(fd, b"W", 3); os.close(fd)
        elif do == b"k":
            # A file that is made, written and not closed yet.
            if kept is not None: os.close(kept)
            kept = os.open("f", os.O_WRONLY | os.O_TRUNC)
            os.write(kept, b"kept")
        elif do == b"m":
            if kept is not None: os.write(kept, b"more")
        elif do == b"t": os.truncate("f", 2)
        elif do == b"o": open("f", "wb").close()
        elif do == b"c": os.chmod("f", rng.randrange(0o600, 0o700))
        elif do == b"u": os.utime("f", (rng.randrange(1 << 30), rng.randrange(1 << 30)))
        elif do == b"l":
            try: os.link("f", "g")
            except FileExistsError: os.unlink("g")
        s = os.stat("f")
        with open("f", "rb") as f: text = f.read()
        said = "%d %d %d %d %s" % (s.st_size, s.st_mode, s.st_mtime_ns, s.st_nlink, text.hex())
        os.write(back[1], b"%-400s" % said.encode())
os.close(there[0]); os.close(back[1])
with open("f", "wb") as f: f.write(b"0123456789")
for k in range(400):
    if rng.random() < 0.1: 
        with open("f", "wb") as f: f.write(bytes(rng.choices(b"abcdef", k=rng.randrange(1, 60))))
    fd = os.open("f", os.O_RDONLY)
    if rng.random() < 0.3: os.fstat(fd)
    if rng.random() < 0.3: os.read(fd, 1); os.lseek(fd, 0, os.SEEK_SET)
    how = rng.choice("wktocumlm")
    os.write(there[1], how.encode())
    size, mode, mtime, links, *text = os.read(back[0], 400).decode().split()
    s = os.fstat(fd)
    seen = (s.st_size, s.st_mode, s.st_mtime_ns, s.st_nlink)
    assert seen == (int(size), int(mode), int(mtime), int(links)), (seed, k, how, seen, size, mode, mtime, links)
    got = os.read(fd, 1000)
    assert got == bytes.fromhex("".join(text)), (seed, k, how, got)
    os.close(fd)
os.close(there[1])
assert os.waitpid(child, 0)[1] == 0, seed
"#;
    run("what_came_with_an_open_is_what_is_there", script, &[]);
}

/// What is done to a file between its making and its close is seen by others at once, survives its process and
/// is told at the close if it failed.
#[test]
fn what_is_done_later_is_as_if_it_were_done() {
    let script = r#"
import os, signal, errno, resource
os.chdir(os.environ["D"])
resource.prlimit(victim, resource.RLIMIT_FSIZE, (8 << 20, 8 << 20))
def make(name): return os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
for i in range(10): os.close(make("before%d" % i))
there, back = os.pipe(), os.pipe()
child = os.fork()
if child == 0:
    os.close(there[1]); os.close(back[0])
    while True:
        name = os.read(there[0], 20).decode().strip()
        if not name: os._exit(0)
        s = os.stat(name)
        with open(name, "rb") as f: text = f.read()
        os.write(back[1], b"%-99s" % (b"%d %o %d %s" % (s.st_size, s.st_mode & 0o777, s.st_mtime_ns, text)))
os.close(there[0]); os.close(back[1])
def told(name):
    os.write(there[1], b"%-20s" % name.encode())
    return os.read(back[0], 99).split()
for i in range(100):
    name = "file%d" % i
    fd = make(name)
    assert os.fstat(fd).st_size == 0
    assert os.write(fd, b"first") == 5
    if i % 2: assert told(name)[::3] == [b"5", b"first"], i
    assert os.write(fd, b"-second") == 7
    os.utime(fd, ns=(5, i * 1000))
    os.fchown(fd, os.geteuid(), os.getegid())
    os.fchmod(fd, 0o640)
    if i % 3 == 0: assert told(name) == [b"12", b"640", b"%d" % (i * 1000), b"first-second"], i
    if i % 5 == 0: assert os.fstat(fd).st_size == 12
    if i % 7 == 0: os.ftruncate(fd, 5); os.utime(fd, ns=(5, i * 1000))
    os.close(fd)
    assert told(name) == [b"5" if i % 7 == 0 else b"12", b"640", b"%d" % (i * 1000), b"first" if i % 7 == 0 else b"first-second"], i
# Of a file that was not there, as a journal; pieces that follow each other, and one that does not.
for i in range(20):
    fd = os.open("journal", os.O_RDWR | os.O_CREAT, 0o600)
    for at, piece in (0, b"head"), (4, b"page"), (8, b"sum"), (1, b"EAD"), (11, b"."): assert os.pwrite(fd, piece, at) == len(piece)
    if i % 2: os.fdatasync(fd)
    assert told("journal")[::3] == [b"12", b"hEADpagesum."], i
    assert os.pread(fd, 99, 0) == b"hEADpagesum."
    os.pwrite(fd, b"H", 0)
    os.close(fd)
    if i % 2: assert told("journal")[3] == b"HEADpagesum."
    os.unlink("journal")
# An owner that stays takes set-id bits away, and sets the time of the last change.
for i in range(5):
    fd = make("owner%d" % i)
    os.write(fd, b"x")
    os.fchmod(fd, 0o4711)
    os.fchown(fd, os.geteuid(), os.getegid())
    os.utime(fd, ns=(5, 5))
    s = os.fstat(fd)
    assert s.st_mode & 0o7777 == 0o711 and s.st_mtime_ns == 5 and s.st_ctime_ns > 5, oct(s.st_mode)
    os.close(fd)
# Killed between the two.
for i in range(20):
    r, w = os.pipe()
    victim = os.fork()
    if victim == 0:
        for k in range(5): os.close(make("victim%d-%d" % (i, k)))
        fd = make("killed%d" % i)
        os.write(fd, b"acknowledged")
        os.fchmod(fd, 0o604)
        os.write(w, b"x")
        signal.pause()
    os.read(r, 1)
    os.kill(victim, signal.SIGKILL)
    os.waitpid(victim, 0)
    got = told("killed%d" % i)
    assert (got[0], got[1], got[3]) == (b"12", b"604", b"acknowledged"), (i, got)
# The node may write 8 MiB to a file and not more.
for end in os.close, os.fsync:
    fd = make("toolong" + end.__name__)
    try:
        os.pwrite(fd, b"beyond", 8 << 20)
        end(fd)
    except OSError as e: assert e.errno == errno.EFBIG, e
    else: assert False, "nobody was told"
os.close(there[1])
assert os.waitpid(child, 0)[1] == 0
"#;
    let script = format!("{VICTIM}{script}");
    let Some((_, report)) = run("what_is_done_later_is_as_if_it_were_done", &script, &[]) else { return };
    assert!(served(&report, "share").0 > 20, "no rings: {report}");
}

/// What came with an open is not what a child or another program uses that inherits the open file.
#[test]
fn what_came_with_an_open_is_not_inherited() {
    let script = r#"
import os, subprocess
os.chdir(os.environ["D"])
for how in "fork", "exec", "spawn":
    with open("f", "wb") as f: f.write(b"before")
    fd = os.open("f", os.O_RDONLY)
    assert os.fstat(fd).st_size == 6
    os.set_inheritable(fd, True)
    go, gone = os.pipe(), os.pipe()
    os.set_inheritable(go[0], True)
    wait = "import os; os.read(%d, 1); assert os.fstat(%d).st_size == 9; assert os.pread(%d, 99, 0) == b'afterward'"
    wait = wait % (go[0], fd, fd)
    if how == "spawn":
        child = subprocess.Popen(["python3", "-c", wait], close_fds=False).pid
    else:
        child = os.fork()
        if child == 0:
            if how == "exec": os.execvp("python3", ["python3", "-c", wait])
            exec(wait)
            os._exit(0)
    with open("f", "wb") as f: f.write(b"afterward")
    os.write(go[1], b"x")
    assert os.waitpid(child, 0)[1] == 0, how
    # And of the parent, too.
    assert os.read(fd, 99) == b"afterward", how
    os.close(fd)
"#;
    run("what_came_with_an_open_is_not_inherited", script, &[]);
}

/// Threads that make files at the same time, one of them together, while another process looks.
#[test]
fn threads_make_files_together() {
    let script = r#"
import os, threading
os.chdir(os.environ["D"])
def make(name): return os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
there, back = os.pipe(), os.pipe()
child = os.fork()
if child == 0:
    os.close(there[1]); os.close(back[0])
    while True:
        name = os.read(there[0], 20).decode().strip()
        if not name: os._exit(0)
        with open(name, "rb") as f: text = f.read()
        os.write(back[1], b"%-400s" % text)
os.close(there[0]); os.close(back[1])
asking, wrong = threading.Lock(), []
def told(name):
    with asking:
        os.write(there[1], b"%-20s" % name.encode())
        return os.read(back[0], 400).rstrip()
both = make("both")
def work(me):
    try:
        for i in range(150):
            name = "%d-%d" % (me, i)
            fd = make(name)
            for k in range(5): assert os.write(fd, b"%d" % me * 9) == 9
            os.pwrite(both, b"%d" % me, i * 4 + me)
            os.fchmod(fd, 0o640)
            if i % 10 == me: assert told(name) == b"%d" % me * 45, name
            os.close(fd)
            assert os.stat(name).st_size == 45 and os.stat(name).st_mode & 0o777 == 0o640, name
            with open(name, "rb") as f: assert f.read() == b"%d" % me * 45, name
    except BaseException as e: wrong.append(repr(e))
threads = [threading.Thread(target=work, args=(me,)) for me in range(4)]
for t in threads: t.start()
for t in threads: t.join()
assert not wrong, wrong
os.close(both)
with open("both", "rb") as f: assert f.read() == b"0123" * 150
os.close(there[1])
assert os.waitpid(child, 0)[1] == 0
"#;
    run("threads_make_files_together", script, &[]);
}

/// The only I/O node dies with something that was acknowledged and put off: whoever goes on is told, whatever it does
/// next; nobody is told of what was done before. Stopped first, the node cannot have done it.
#[test]
fn a_node_that_dies_with_what_was_put_off() {
    let script = r#"
how, home = sys.argv[1:]
os.chdir(home)
def make(name): return os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
for i in range(10): os.close(make("before%d" % i))
fd = make("file")
if how != "done":
    os.kill(victim, signal.SIGSTOP)
    while open("/proc/%d/stat" % victim).read().rsplit(")", 1)[1].split()[0] != "T": time.sleep(0.001)
assert os.write(fd, b"acknowledged") == 12
if how == "done": time.sleep(0.5)
os.kill(victim, signal.SIGKILL)
if how == "exit": os._exit(0)
time.sleep(0.05)
if how == "dup2":
    os.dup2(2, fd)
    os._exit(0)
try:
    if how in ("close", "done"): os.close(fd)
    elif how == "fsync": os.fsync(fd)
    elif how == "exec": os.execv("/bin/true", ["true"])
    else: os.write(fd, b"more")
except OSError: os._exit(0 if how != "done" else 3)
os._exit(4 if how != "done" else 0)
"#;
    if Command::new("python3").arg("--version").output().is_err() {
        return forebay_testkit::skipped("a_node_that_dies_with_what_was_put_off", "no python3");
    }
    for how in ["close", "fsync", "write", "exec", "exit", "dup2", "done"] {
        let (out, report, export) = beside(script, how);
        let told = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success(), "{how}: {} {told}", out.status);
        let there = std::fs::read(export.path().join("E/file")).unwrap();
        assert_eq!(there, if how == "done" { &b"acknowledged"[..] } else { b"" }, "{how}");
        if how == "exit" || how == "dup2" {
            let all = report["operations"].as_array().unwrap();
            let writes = all.iter().find(|o| o["name"] == "write").unwrap();
            assert!(writes["errors"].as_u64().unwrap() > 0, "nobody was told: {writes}");
        }
    }
}
