//! `forebay explore` end to end: I/O nodes and client processes as real processes on this machine.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

struct Bench {
    dir: tempfile::TempDir,
}

impl Bench {
    fn new() -> Bench {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("pfs")).unwrap();
        Bench { dir }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn scenario(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    fn explore(&self, file: &Path, more: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
        command
            .arg("explore")
            .arg(file)
            .args(["--at"])
            .arg(self.path("pfs"))
            .arg("--out")
            .arg(self.path("out"));
        // A launcher around the test must not be taken for one around the program.
        for name in ["OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"] {
            command.env_remove(name);
        }
        command.args(more).output().unwrap()
    }

    fn runs(&self) -> Vec<Value> {
        let mut files: Vec<_> =
            std::fs::read_dir(self.path("out/runs")).unwrap().map(|f| f.unwrap().path()).collect();
        files.sort();
        files.iter().map(|f| serde_json::from_slice(&std::fs::read(f).unwrap()).unwrap()).collect()
    }

    fn rows(&self) -> usize {
        std::fs::read_to_string(self.path("out/results.csv")).unwrap().lines().count() - 1
    }
}

fn fine(output: &Output) {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Bytes that the processes of a run moved, and that its I/O nodes say they moved.
fn bytes(run: &Value, operation: &str) -> (u64, u64) {
    let steps = run["steps"].as_array().unwrap();
    let key = if operation == "read" { "bytes_read" } else { "bytes_written" };
    let clients = steps.iter().map(|s| s[key].as_u64().unwrap()).sum();
    let flows =
        run["node_statistics"].as_array().unwrap().iter().flat_map(|n| n["flows"].as_array().unwrap());
    let nodes = flows.filter_map(|f| f["operations"][operation]["bytes"].as_u64()).sum();
    (clients, nodes)
}

const LAYOUTS: [(&str, &str); 3] =
    [("individual", "contiguous"), ("shared", "contiguous"), ("shared", "strided")];

fn forge(layout: &str, spatiality: &str) -> String {
    format!(
        r#"{{"forwarders": "1", "handlers": "4", "dispatchers": "4", "path": "/mnt/pfs/forge", "number_of_files": "{layout}",
        "spatiality": "{spatiality}", "operations": "write/read", "total_size": "2097152", "request_size": "32768",
        "direct_io": "0", "stone_wall": "60", "validation": "1"}}"#
    )
}

#[test]
fn forge_files_run_unchanged_and_all_counters_agree() {
    for (layout, spatiality) in LAYOUTS {
        let b = Bench::new();
        let file = b.scenario("forge.json", &forge(layout, spatiality));
        fine(&b.explore(&file, &["--processes", "4", "--io-nodes", "0,1,2", "--repeat", "1"]));
        let runs = b.runs();
        assert_eq!(runs.len(), 3);
        for run in &runs {
            let nodes = run["io_nodes"].as_u64().unwrap();
            assert_eq!(run["node_statistics"].as_array().unwrap().len() as u64, nodes);
            for operation in ["write", "read"] {
                let (clients, io_nodes) = bytes(run, operation);
                assert_eq!(clients, 2_097_152, "{layout} {spatiality} {operation}");
                assert_eq!(
                    io_nodes,
                    if nodes == 0 { 0 } else { clients },
                    "{layout} {spatiality} {operation}"
                );
            }
            assert_eq!(run["steps"][1]["validated"], true);
            // Each I/O node served its part of the compute nodes.
            for node in run["node_statistics"].as_array().unwrap() {
                let written = node["flows"][0]["operations"]["write"]["bytes"].as_u64().unwrap();
                assert_eq!(written, 2_097_152 / nodes);
            }
        }
        assert_eq!(b.rows(), 6);
        assert_eq!(std::fs::read_dir(b.path("pfs")).unwrap().count(), 0, "files are left behind");
        assert!(std::fs::read_to_string(b.path("out/report.html")).unwrap().contains("<svg"));
        assert!(std::fs::read_to_string(b.path("out/summary.txt")).unwrap().contains("bandwidth:"));
    }
}

#[test]
fn preloaded_programs_do_the_same() {
    let b = Bench::new();
    let file = b.scenario("forge.json", &forge("shared", "strided"));
    fine(&b.explore(&file, &["--processes", "2", "--io-nodes", "1", "--repeat", "1", "--via", "preload"]));
    let runs = b.runs();
    assert_eq!(runs[0]["via"], "preload");
    for operation in ["write", "read"] {
        assert_eq!(bytes(&runs[0], operation), (2_097_152, 2_097_152), "{operation}");
    }
}

const ALL_KINDS: &str = r#"
repetitions = 1
io_nodes = [0, 1]
scheduler = "twins:window=500us"

[[job]]
name = "a"
compute_nodes = 2
phase = [
  { operation = "mixed", read_share = 0.5, layout = "file-per-process", spatiality = "random", total_size = "1 MiB", request_size = [{ size = 512, weight = 3 }, { size = 8192, weight = 1 }], validation = true },
  { operation = "think", think = "1 ms" },
  { operation = "read", path = "other", layout = "shared", total_size = "1 MiB", request_size = "64 KiB", validation = true, stone_wall = "10s" },
]

[[job]]
name = "b"
phase = [
  { operation = "create", path = "many", files = 20 },
  { operation = "stat", path = "many", files = 20 },
  { operation = "unlink", path = "many", files = 20 },
  { operation = "write", path = "synced", total_size = "64 KiB", request_size = "16 KiB", fsync = "each" },
]
"#;

#[test]
fn every_kind_of_step_runs_and_studies_resume() {
    let b = Bench::new();
    let file = b.scenario("kinds.toml", ALL_KINDS);
    fine(&b.explore(&file, &[]));
    let runs = b.runs();
    assert_eq!((runs.len(), b.rows()), (2, 12));
    let forwarded = &runs[1];
    assert_eq!(forwarded["io_nodes"], 1);
    assert!(forwarded["node_statistics"][0]["scheduler"].as_str().unwrap().contains("twins"));
    let flows = forwarded["node_statistics"][0]["flows"].as_array().unwrap();
    let unlinked: u64 = flows.iter().filter_map(|f| f["operations"]["unlink"]["count"].as_u64()).sum();
    assert_eq!(unlinked, 20);

    // Refused without --resume; with it, only what is missing is run.
    let again = b.explore(&file, &[]);
    assert!(!again.status.success());
    assert!(String::from_utf8_lossy(&again.stderr).contains("--resume"));
    fine(&b.explore(&file, &["--resume", "--repeat", "2"]));
    assert_eq!((b.runs().len(), b.rows()), (4, 24));
}

/// What a stone wall kept from being written is not read, whatever the order.
#[test]
fn reads_stop_where_a_stone_wall_stopped_writes() {
    for spatiality in ["contiguous", "strided", "random"] {
        let b = Bench::new();
        let phase = format!(
            "total_size = \"64 GiB\", request_size = \"64 KiB\", spatiality = \"{spatiality}\", validation = true"
        );
        let file = b.scenario(
            "wall.toml",
            &format!(
                "compute_nodes = 2\nphase = [{{ operation = \"write\", stone_wall = \"50 ms\", {phase} }}, \
                 {{ operation = \"read\", {phase} }}]"
            ),
        );
        fine(&b.explore(&file, &["--io-nodes", "0,1", "--repeat", "1"]));
        for run in b.runs() {
            let (written, read) = (&run["steps"][0], &run["steps"][1]);
            assert_eq!(written["stone_wall_hit"], true);
            assert_eq!(written["bytes_written"], read["bytes_read"], "{spatiality}");
        }
    }
}

#[test]
fn mistakes_are_told() {
    let b = Bench::new();
    let file =
        b.scenario("bad.toml", "phase = [{ operation = \"write\", total_size = 1, request_size = 4096 }]");
    let out = b.explore(&file, &[]);
    assert!(!out.status.success());
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(said.contains("bad.toml") && said.contains("less than one request"), "{said}");
    let file = b.scenario("sched.toml", &ALL_KINDS.replace("twins:window=500us", "magic"));
    let out = b.explore(&file, &[]);
    assert!(!out.status.success());
    assert!(String::from_utf8_lossy(&out.stderr).contains("magic"));
}
