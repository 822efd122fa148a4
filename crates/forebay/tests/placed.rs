//! Large writes through an I/O node of the same host are placed in memory that both have, and nobody can tell but by the
//! time.

use forebay_testkit::{AT, ClientOptions, Layer, Talker};
use std::process::Command;
use std::time::Duration;

/// A process, its threads and its child write large pieces of several sizes: each byte is where it belongs, and the node
/// has memory of both processes.
#[test]
fn large_writes_are_where_they_belong() {
    let script = r#"
import os, sys, threading
d = sys.argv[1]
sizes = [1 << 20, 300001, 65536, 32768, 32767, (1 << 20) + 1, 5 << 20, 40961]
def piece(who, i): return bytes([who * 16 + i % 16]) * sizes[i % len(sizes)]
def write(name, who):
    fd, all = os.open(d + "/" + name, os.O_WRONLY | os.O_CREAT, 0o644), b""
    for i in range(24):
        assert os.write(fd, piece(who, i)) == len(piece(who, i)), (name, i)
        all += piece(who, i)
    os.close(fd)
    with open(d + "/" + name, "rb") as f: assert f.read() == all, name
def placed():
    # One of its connections to each of the two processes.
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/%s/stat" % pid) as f: parent = int(f.read().rsplit(")", 1)[1].split()[1])
            with open("/proc/%s/cmdline" % pid, "rb") as f: words = f.read().split(b"\0")
            if parent != os.getppid() or b"node" not in words: continue
            with open("/proc/%s/maps" % pid) as f: maps = [l.split() for l in f if "memfd:forebay " in l]
        except OSError: continue
        sizes = [int(m[0].split("-")[1], 16) - int(m[0].split("-")[0], 16) for m in maps]
        return sum(1 for s in sizes if s == (1 << 20) + 4096)
write("first", 1)
assert placed() == 1, placed()
threads = [threading.Thread(target=write, args=("thread%d" % n, n)) for n in range(2, 5)]
child = os.fork()
if child == 0:
    write("child", 5)
    os._exit(0)
for t in threads: t.start()
for t in threads: t.join()
assert os.waitpid(child, 0)[1] == 0
write("last", 6)
assert placed() >= 1, placed()
"#;
    if Command::new("python3").arg("--version").output().is_err() {
        return forebay_testkit::skipped("large_writes_are_where_they_belong", "no python3");
    }
    for streams in ["on", "off"] {
        let home = tempfile::tempdir().unwrap();
        let export = home.path().join("E");
        std::fs::create_dir(&export).unwrap();
        let out = Command::new("timeout")
            .args(["-k", "5", "300", env!("CARGO_BIN_EXE_forebay"), "run", "--via", "preload", "--at"])
            .arg(&export)
            .args(["--", "python3", "-c", script])
            .arg(&export)
            .env("TMPDIR", home.path())
            .env("FOREBAY_STREAMS", streams)
            .output()
            .unwrap();
        assert!(out.status.success(), "{streams}: {}", String::from_utf8_lossy(&out.stderr));
    }
}

/// A node hangs in a write that its client has given up: whenever it goes on, it writes what it was given, and not what the
/// client has placed since.
#[test]
fn a_write_that_was_given_up_is_what_it_was() {
    let deadline = Duration::from_secs(2);
    let mut layer = Layer::start_on(1, 500, &ClientOptions { deadline, ..ClientOptions::default() }, true);
    layer.configure(0, "slow-storage = \"slow\"\n");
    layer.reconfigure(&ClientOptions { deadline, ..ClientOptions::default() });
    let mut a = Talker::start(layer.command(&layer.compile("driver"), 0));
    assert_eq!(a.ask(&format!("case {AT} 0")), "0 0");
    assert_eq!(a.ask("open 0 file 66"), "0 0");
    for _ in 0..6 {
        assert_eq!(a.ask("pwrite 0 65536 0 1"), "65536 0");
    }
    let before = std::fs::read(layer.export().join("file")).expect("the file");
    layer.slow("slow", 5000);
    a.send("pwrite 0 65536 0 2");
    assert_eq!(a.receive(), format!("-1 {}", libc::EIO));
    layer.slow("slow", 0);
    // New connections, and new memory.
    for _ in 0..6 {
        assert_eq!(a.ask("pwrite 0 65536 1048576 3"), "65536 0");
    }
    let after = || std::fs::read(layer.export().join("file")).expect("the file");
    let third = after()[1 << 20..].to_vec();
    assert_ne!(third, before[..65536]);
    std::thread::sleep(Duration::from_millis(4500));
    let whole = after();
    assert_ne!(whole[..65536], third, "a write put down what another one had");
    assert_eq!(whole[1 << 20..], third);
    a.finish();
}
