//! `forebay run --darshan`: a log that Darshan's own reader understands, and that agrees with the report.

use forebay_explore::darshan;
use forebay_testkit::{RunDir, program, skipped};
use std::path::Path;
use std::process::Command;

/// Writes 40 times 4 KiB (synced) and once 3 MB (its data synced), reads the first file back in pieces of 16 KiB, appends;
/// renames a file between two writes to it, and reads it.
const SCRIPT: &str = "dd if=/dev/zero of=/seen/small bs=4k count=40 conv=fsync status=none && \
                      dd if=/dev/zero of=/seen/large bs=3000000 count=1 conv=fdatasync status=none && \
                      dd if=/seen/small of=/dev/null bs=16k status=none && echo more >> /seen/log && \
                      perl -e 'open(F, \">/seen/part\"); syswrite(F, \"one\\n\"); rename(\"/seen/part\", \"/seen/whole\"); \
                      syswrite(F, \"two\\n\"); close(F)' && dd if=/seen/whole of=/dev/null bs=4k status=none";

/// What PyDarshan says: a line of counters for each file.
const PYTHON: &str = "
import sys, darshan
r = darshan.DarshanReport(sys.argv[1], read_all=True)
d = r.records['POSIX'].to_df()
c, f = d['counters'], d['fcounters']
for i in range(len(c)):
    row, t = c.iloc[i], f.iloc[i]
    n = r.name_records[int(c['id'].iloc[i])]
    print(n, *[int(row['POSIX_' + k]) for k in
        ['OPENS', 'READS', 'WRITES', 'BYTES_READ', 'BYTES_WRITTEN', 'CONSEC_WRITES', 'SIZE_WRITE_1K_10K', 'ACCESS1_ACCESS',
         'FSYNCS', 'FDSYNCS', 'RENAME_SOURCES', 'RENAME_TARGETS']],
        t['POSIX_F_WRITE_TIME'] >= 0, t['POSIX_F_CLOSE_END_TIMESTAMP'] >= t['POSIX_F_CLOSE_START_TIMESTAMP'] > 0)
    # By column: a row of signed and unsigned numbers is made of floating ones, which round.
    before = int(c['POSIX_RENAMED_FROM'].iloc[i])
    if before:
        print(n, 'was', r.name_records[before])
print('processes', r.metadata['job']['nprocs'])
print('command', r.metadata['exe'])
print('mounts', r.mounts)
";

#[test]
fn the_log_agrees_with_the_report() {
    let dir = RunDir::in_memory().expect("a directory");
    let (data, log, report) = (dir.path().join("data"), dir.path().join("log"), dir.path().join("report"));
    std::fs::create_dir(&data).expect("a directory");
    let mut run = Command::new(program());
    run.args(["run", "--quiet", "--io-nodes", "2", "--at", &format!("/seen={}", data.display())]);
    run.arg("--darshan").arg(&log).arg("--report").arg(&report).args(["--", "sh", "-c", SCRIPT]);
    let out = run.output().expect("forebay runs");
    assert!(out.status.success(), "{out:?}");
    let report: serde_json::Value =
        serde_json::from_slice(&std::fs::read(&report).expect("a report")).expect("JSON");
    let read = darshan::read(&std::fs::read(&log).expect("a log")).expect("a Darshan log");
    assert_eq!((read.processes, read.posix.len()), (1, 5), "{read:?}");
    let sum = |of: fn(&darshan::PosixRecord) -> u64| read.posix.iter().map(of).sum::<u64>();
    assert_eq!(sum(|r| r.bytes_read), report["bytes_read"], "{report:#}");
    assert_eq!(sum(|r| r.bytes_written), report["bytes_written"], "{report:#}");
    let small = read.posix.iter().find(|r| r.writes == 40).expect("the small file");
    assert_eq!((small.bytes_written, small.consec_writes, small.seq_writes), (163_840, 39, 39));
    assert_eq!((small.size_write[2], small.access[0]), (40, (4096, 40)));
    assert_eq!((small.reads, small.bytes_read), (11, 163_840), "and the end of the file");
    let predict = |curves: &str| {
        let curves = Path::new(env!("CARGO_MANIFEST_DIR")).join(curves);
        let mut explore = Command::new(program());
        explore.args(["explore", "from-darshan"]).arg(&log).arg("--predict").arg(curves);
        explore.output().expect("forebay runs")
    };
    let out = predict("../../data/marenostrum4_corrected.csv");
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(out.status.success() && said.contains("8 I/O nodes") && said.contains("write"), "{out:?}");
    assert!(said.contains("is off by"), "{said}");
    let none = predict("Cargo.toml");
    assert!(
        !none.status.success() && String::from_utf8_lossy(&none.stderr).contains("not a table of curves"),
        "{none:?}"
    );

    let python = std::env::var("FOREBAY_PYTHON").unwrap_or_else(|_| "python3".into());
    let importable = Command::new(&python).args(["-c", "import darshan"]).output();
    if !importable.is_ok_and(|out| out.status.success()) {
        return skipped("a log that PyDarshan reads", "python3 has no module darshan (pip install darshan)");
    }
    let out =
        Command::new(&python).args(["-W", "ignore", "-c", PYTHON]).arg(&log).output().expect("python runs");
    let said = String::from_utf8_lossy(&out.stdout);
    println!("{said}{}", String::from_utf8_lossy(&out.stderr));
    assert!(out.status.success(), "{out:?}");
    for line in [
        "/seen/small 2 11 40 163840 163840 39 40 4096 1 0 0 0 True True",
        "/seen/large 1 0 1 0 3000000 0 0 3000000 0 1 0 0 True True",
        "/seen/log 1 0 1 0 5 0 0 5 0 0 0 0 True True",
        // Under the name by which it was opened, as Darshan itself has it.
        "/seen/part 1 0 2 0 8 1 0 4 0 0 1 0 True True",
        "/seen/whole 1 2 0 8 0 0 0 8 0 0 0 1 True True",
        "/seen/whole was /seen/part",
    ] {
        assert!(said.lines().any(|l| l == line), "{line}: {said}");
    }
    assert!(said.contains("processes 1"), "{said}");
    assert!(said.contains("command sh -c dd if=/dev/zero of=/seen/small"), "{said}");
    assert!(said.contains("mounts [('/seen', 'forebay')]"), "{said}");
}

#[test]
fn a_file_that_cannot_be_written_is_named_with_its_option() {
    let dir = RunDir::in_memory().expect("a directory");
    let nowhere = dir.path().join("nowhere/log");
    for option in ["--darshan", "--report", "--record"] {
        let mut run = Command::new(program());
        run.args(["run", "--quiet", "--at", &dir.path().display().to_string()]).arg(option).arg(&nowhere);
        let out = run.args(["--", "true"]).output().expect("forebay runs");
        let said = String::from_utf8_lossy(&out.stderr);
        let wanted = format!("{option}: cannot write to {}", nowhere.display());
        assert!(!out.status.success() && said.contains(&wanted), "{said}");
    }
}
