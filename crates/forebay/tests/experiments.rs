//! Every experiment in its smallest setting: it runs, prints its table, and leaves sane figures and a
//! chart. How fast anything was is not looked at.

use std::path::Path;
use std::process::Command;

/// Runs an experiment; what it printed and its figures, line by line.
fn run(what: &[&str]) -> (String, Vec<Vec<String>>) {
    let out = tempfile::tempdir().unwrap();
    let dir = out.path().join("new");
    let done = Command::new(env!("CARGO_BIN_EXE_forebay"))
        .arg("experiment")
        .args(what)
        .args(["--quick", "--out"])
        .arg(&dir)
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&done.stdout).into_owned();
    assert!(done.status.success(), "{what:?}: {printed}{}", String::from_utf8_lossy(&done.stderr));
    let read = |ending: &str| std::fs::read_to_string(dir.join(what[0]).with_extension(ending)).unwrap();
    let svg = read("svg");
    assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"), "{what:?}");
    assert!(!svg.contains("NaN") && !svg.contains("inf"), "{what:?}: the chart has numbers in it");
    assert!(printed.contains("──") && printed.contains("written: "), "{what:?}: {printed}");
    let told = printed.contains("met:") || printed.contains("unclear:");
    assert!(told, "{what:?} says what was to be shown: {printed}");
    let rows = read("csv").lines().map(|l| l.split(',').map(str::to_owned).collect()).collect();
    (printed, rows)
}

/// Checks a column: so many rows, all of them numbers above zero.
fn positive(rows: &[Vec<String>], column: &str, count: usize) {
    let at = rows[0].iter().position(|c| c == column).unwrap_or_else(|| panic!("no {column}: {:?}", rows[0]));
    assert_eq!(rows.len() - 1, count, "{column}");
    for row in &rows[1..] {
        let value: f64 = row[at].parse().unwrap_or_else(|_| panic!("{column}: {row:?}"));
        assert!(value.is_finite() && value > 0.0, "{column}: {row:?}");
    }
}

#[test]
fn twins() {
    let (printed, rows) = run(&["twins"]);
    // Six patterns under nine schedulers.
    positive(&rows, "mb_per_s", 6 * 9);
    for column in ["fifo", "hbrr", "125us", "8ms"] {
        assert!(printed.contains(column), "{printed}");
    }
}

#[test]
fn isolation() {
    let (_, rows) = run(&["isolation"]);
    positive(&rows, "small_ms", 5);
    positive(&rows, "small_slowdown", 5);
    let names: Vec<&str> = rows[1..].iter().map(|r| r[0].as_str()).collect();
    assert_eq!(names, ["alone", "fifo", "sfq-d", "sfq-d-plus", "capped:rate=10MB"]);
}

#[test]
fn metadata() {
    let (_, rows) = run(&["metadata"]);
    positive(&rows, "weight2_per_s", 3);
    positive(&rows, "weight1_per_s", 3);
    let index = |row: &Vec<String>| row[3].parse::<f64>().unwrap();
    assert!(rows[1..].iter().all(|r| (0.5..=1.0).contains(&index(r))), "{rows:?}");
}

#[test]
fn overhead() {
    let (_, rows) = run(&["overhead"]);
    // Three views of three operations under four schedulers.
    positive(&rows, "us", 3 * 3 * 4);
}

/// Who shares with whom, and who is given what; not how fast anything was.
#[test]
fn dfra() {
    let (_, rows) = run(&["dfra"]);
    let find = |way: &str, job: &str, beside: &str| {
        let row = rows.iter().find(|r| r[0] == way && (r[1] == job || job.is_empty()) && r[2] == beside);
        row.unwrap_or_else(|| panic!("no {way} {job} {beside}: {rows:?}")).clone()
    };
    for way in ["shared", "sfq-d-plus"] {
        assert!(rows.iter().filter(|r| r[0] == way).all(|r| r[4] == "0"), "{rows:?}");
    }
    // Whoever was there first stays by default, and the other one gets an I/O node of its own.
    assert_eq!((&*find("dfra", "awp", "apt")[4], &*find("dfra", "apt", "awp")[4]), ("0", "1"));
    assert_eq!(find("scaled", "shentu", "")[4], "1 2 3 4");
    assert_eq!(find("back", "shentu", "")[3], "1.0000");
    assert_eq!(find("strays", "", "")[3], "0.0000");
}

#[test]
fn six_patterns_on_any_file_system() {
    let mount = tempfile::tempdir().unwrap();
    let (printed, rows) =
        run(&["filesystem", "--mount", mount.path().to_str().unwrap(), "--request", "32,1M"]);
    // Six patterns, two sizes, written and read, three ways.
    positive(&rows, "mb_per_s", 6 * 2 * 2 * 3);
    assert!(printed.contains("own random") && printed.contains("shared strided"), "{printed}");
}

#[test]
fn windows_on_any_file_system() {
    let (mount, layout) = (tempfile::tempdir().unwrap(), tempfile::NamedTempFile::new().unwrap());
    std::fs::write(layout.path(), "layout = { kind = \"stripe\", size = \"64KiB\", count = 4 }\n").unwrap();
    let [at, file] = [mount.path(), layout.path()].map(|p| p.to_str().unwrap());
    let (printed, rows) = run(&["twins", "--mount", at, "--layout", file]);
    // Three patterns of one application; another alone and beside a second one; read and written; ten ways.
    positive(&rows, "mb_per_s", 5 * 2 * 10);
    for column in ["direct", "hbrr", "125us", "times as long beside another"] {
        assert!(printed.contains(column), "{printed}");
    }
    assert!(left(mount.path()).is_empty(), "nothing is left behind");
}

#[test]
fn gluster_on_any_file_system() {
    let mount = tempfile::tempdir().unwrap();
    let (_, rows) = run(&["gluster", "--mount", mount.path().to_str().unwrap(), "--repeat", "2"]);
    // Three ways, written and read, twice.
    positive(&rows, "mb_per_s", 3 * 2 * 2);
    assert!(left(mount.path()).is_empty(), "nothing is left behind");
}

fn left(dir: &Path) -> Vec<std::ffi::OsString> {
    std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name()).collect()
}

#[test]
fn a_profile_is_a_scheduler() {
    let dir = tempfile::tempdir().unwrap();
    let (storage, out) = (dir.path().join("storage"), dir.path().join("out"));
    std::fs::create_dir(&storage).unwrap();
    let done = Command::new(env!("CARGO_BIN_EXE_forebay"))
        .arg("profile")
        .arg(&storage)
        .args(["--quick", "--out"])
        .arg(&out)
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&done.stdout).into_owned();
    assert!(done.status.success(), "{printed}{}", String::from_utf8_lossy(&done.stderr));
    assert!(printed.contains("scheduler = \"sfq-d-plus:depth="), "{printed}");
    assert!(left(&storage).is_empty());
    for name in ["throughput.svg", "latency.svg"] {
        let svg = std::fs::read_to_string(out.join(name)).unwrap();
        assert!(svg.starts_with("<svg") && !svg.contains("NaN"), "{name}");
    }
    let csv = std::fs::read_to_string(out.join("profile.csv")).unwrap();
    assert!(csv.starts_with("curve,operation,x,y,low,high\n") && csv.lines().count() > 30, "{csv}");
    // Both tables have their figures with the range of all passes.
    assert!(printed.matches('[').count() >= 2 * (7 + 9), "{printed}");
}
