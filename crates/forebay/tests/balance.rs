//! A job's load is spread over its I/O nodes, whoever of it does the I/O, and what is written through
//! several of them is one file.

use std::process::Command;

const MIB: u64 = 1 << 20;

/// Runs a Python script, rank 0 of 64, with so many I/O nodes: the report, unless there is no Python here.
fn reported(test: &str, nodes: &str, script: &str) -> Option<serde_json::Value> {
    let home = tempfile::tempdir().unwrap();
    let (export, report) = (home.path().join("E"), home.path().join("report.json"));
    std::fs::create_dir(&export).unwrap();
    if Command::new("python3").arg("--version").output().is_err() {
        forebay_testkit::skipped(test, "no python3");
        return None;
    }
    let out = Command::new("timeout")
        .args([
            "-k",
            "5",
            "120",
            env!("CARGO_BIN_EXE_forebay"),
            "run",
            "--via",
            "preload",
            "--io-nodes",
            nodes,
        ])
        .arg("--report")
        .arg(&report)
        .arg("--at")
        .arg(&export)
        .args(["--", "env", "OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE=64", "python3", "-c", script])
        .env("D", &export)
        .env("TMPDIR", home.path())
        .output()
        .unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    Some(serde_json::from_slice(&std::fs::read(report).unwrap()).unwrap())
}

/// The bytes that each node wrote.
fn written(report: &serde_json::Value) -> Vec<u64> {
    let of = |node: &serde_json::Value| {
        let flows = node["stats"]["flows"].as_array().unwrap();
        flows.iter().filter_map(|f| f["operations"]["write"]["bytes"].as_u64()).sum()
    };
    report["io_nodes"].as_array().unwrap().iter().map(of).collect()
}

/// One process, as the one aggregator of a collective write is.
#[test]
fn a_large_file_of_one_process_goes_through_all_nodes() {
    let script = r#"
import os, hashlib, random
name = os.environ["D"] + "/large"
fd = os.open(name, os.O_RDWR | os.O_CREAT, 0o644)
block = random.Random(1).randbytes(16 << 20)
want = hashlib.sha256()
for i in range(4):
    piece = bytes([i]) + block[1:]
    assert os.pwrite(fd, piece, i * len(piece)) == len(piece)
    want.update(piece)
os.fsync(fd)
assert os.fstat(fd).st_size == 64 << 20
seen = hashlib.sha256(os.pread(fd, 64 << 20, 0))
assert seen.digest() == want.digest(), "other bytes than were written"
# Appends and what is written under a lock: through one node, in the same file.
import fcntl
fcntl.lockf(fd, fcntl.LOCK_EX)
assert os.pwrite(fd, b"locked", 3 << 20) == 6
fcntl.lockf(fd, fcntl.LOCK_UN)
end = os.open(name, os.O_WRONLY | os.O_APPEND)
assert os.write(end, b"the end") == 7
os.close(end)
assert os.pread(fd, 7, 64 << 20) == b"the end" and os.pread(fd, 6, 3 << 20) == b"locked"
os.unlink(name)
assert os.pwrite(fd, block, 0) == len(block) and os.pread(fd, len(block), 0) == block
os.close(fd)
"#;
    let Some(report) = reported("a_large_file_of_one_process_goes_through_all_nodes", "4", script) else {
        return;
    };
    let written = written(&report);
    assert!(written.iter().all(|&bytes| bytes >= 16 * MIB), "{written:?}");
    assert!(report["imbalance"].is_null(), "{}", report["imbalance"]);
}

#[test]
fn every_second_rank_is_spread() {
    let script = r#"
import os, subprocess, sys
work = """
import os
with open(os.environ["D"] + "/" + os.environ["OMPI_COMM_WORLD_RANK"], "wb", buffering=0) as f:
    for _ in range(64): f.write(b"x" * 65536)
"""
ranks = [subprocess.Popen([sys.executable, "-c", work], env=dict(os.environ, OMPI_COMM_WORLD_RANK=str(r), OMPI_COMM_WORLD_SIZE="16"))
         for r in range(0, 16, 2)]
sys.exit(max(r.wait() for r in ranks))
"#;
    let Some(report) = reported("every_second_rank_is_spread", "4", script) else { return };
    assert_eq!(written(&report), [8 * MIB; 4]);
}

#[test]
fn forked_workers_are_spread() {
    let script = r#"
import os
open(os.environ["D"] + "/parent", "wb").close()
children = []
for i in range(8):
    pid = os.fork()
    if pid == 0:
        with open(os.environ["D"] + "/" + str(i), "wb", buffering=0) as f:
            for _ in range(64): f.write(b"x" * 65536)
        os._exit(0)
    children.append(pid)
for pid in children:
    assert os.waitpid(pid, 0)[1] == 0
"#;
    let Some(report) = reported("forked_workers_are_spread", "4", script) else { return };
    assert_eq!(written(&report), [8 * MIB; 4]);
    assert!(report["imbalance"].is_null(), "{}", report["imbalance"]);
}

#[test]
fn an_imbalance_is_told_with_its_cause() {
    let script = r#"
import os
with open(os.environ["D"] + "/one", "wb", buffering=0) as f:
    for _ in range(512): f.write(b"x" * 65536)
"#;
    let Some(report) = reported("an_imbalance_is_told_with_its_cause", "2", script) else { return };
    let cause = report["imbalance"]["cause"].as_str().expect("all of it went through one node");
    assert!(cause.contains("1 of 2 were used"), "{cause}");
}
