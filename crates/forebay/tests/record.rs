//! `forebay run --record`: every call of a program, and the scenario that `explore from-trace` makes of it.

use forebay_explore::scenario::{Data, Layout, Operation, Spatiality, Step, native};
use forebay_testkit::{RunDir, program};
use forebay_types::trace::{Call, Trace};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Four processes, which begin each phase at once: all write to a file, in turns; read a quarter of it each; write a file
/// each.
const PHASES: &str = r#"
use Fcntl; use Time::HiRes qw(time sleep);
my $start = time + 0.5;
for my $r (0..3) {
    next if fork;
    my $at = sub { my $left = $start + $_[0] - time; sleep($left) if $left > 0 };
    $at->(0);
    sysopen(F, "/seen/shared", O_RDWR | O_CREAT) or die;
    for my $i (0..31) { sysseek(F, ($i * 4 + $r) * 4096, 0); syswrite(F, "x" x 4096) == 4096 or die }
    close(F);
    $at->(1.5);
    sysopen(F, "/seen/shared", O_RDONLY) or die;
    sysseek(F, $r * 131072, 0);
    for my $i (0..7) { sysread(F, my $b, 16384) == 16384 or die }
    close(F);
    $at->(3);
    sysopen(F, "/seen/own$r", O_WRONLY | O_CREAT) or die;
    for my $i (0..9) { syswrite(F, "y" x 10000) == 10000 or die }
    close(F);
    exit 0;
}
1 while wait > 0;
exit 7;
"#;

struct Place {
    dir: RunDir,
}

impl Place {
    fn new() -> Place {
        let dir = RunDir::in_memory().expect("a directory");
        std::fs::create_dir(dir.path().join("data")).expect("a directory");
        Place { dir }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Runs a command, and records it.
    fn run(&self, options: &[&str], command: &[&str]) -> Output {
        let mut run = Command::new(program());
        run.args(["run", "--at", &format!("/seen={}", self.at("data").display())]);
        run.arg("--record").arg(self.at("trace")).args(options).arg("--").args(command);
        run.output().expect("forebay runs")
    }

    fn trace(&self) -> Trace {
        let file = std::fs::File::open(self.at("trace")).expect("a trace");
        Trace::read(std::io::BufReader::new(file)).expect("a trace")
    }

    fn explore(&self, words: &[&str], more: &[&Path]) -> Output {
        Command::new(program()).arg("explore").args(words).args(more).output().expect("forebay runs")
    }
}

fn said(out: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr))
}

#[test]
fn a_program_becomes_a_scenario_with_its_phases() {
    let place = Place::new();
    let out = place.run(&["--quiet", "--io-nodes", "2"], &["perl", "-e", PHASES]);
    assert_eq!((out.status.code(), said(&out).as_str()), (Some(7), ""));
    let trace = place.trace();
    assert_eq!((trace.header.missing(), trace.cut_off()), (None, 0));
    let count = |call: Call| trace.records.iter().filter(|r| r.call == call).count();
    assert_eq!((count(Call::Write), count(Call::Read), count(Call::Open)), (168, 32, 12));
    assert!(trace.header.files.contains(&b"/seen/own3".to_vec()), "{:?}", trace.header.files);
    assert!(trace.header.command.starts_with("perl -e \nuse Fcntl"), "{}", trace.header.command);

    let scenario = place.at("app.toml");
    let out = place.explore(&["from-trace", "--output"], &[&scenario, &place.at("trace")]);
    let table = said(&out);
    assert!(out.status.success() && table.contains("4 processes on 1 host"), "{table}");
    assert!(table.contains("3 phases of I/O") && !table.contains("phase 1,"), "{table}");
    let text = std::fs::read_to_string(&scenario).expect("a scenario");
    let found = native::parse(&text, "app").expect("a scenario");
    let [job] = &found[0].jobs[..] else { panic!("{text}") };
    assert_eq!((job.processes(), job.steps.len()), (4, 5), "{text}");
    let step = |n: usize| -> (Operation, Layout, Spatiality, u64, Vec<u64>) {
        let Step::Data(Data { target, spatiality, total_size, sizes, .. }) = &job.steps[n] else { panic!() };
        let Step::Data(data) = &job.steps[n] else { panic!() };
        let sizes = sizes.iter().map(|s| s.size).collect();
        (data.operation(), target.layout, *spatiality, *total_size, sizes)
    };
    assert_eq!(step(0), (Operation::Write, Layout::Shared, Spatiality::Strided, 524_288, vec![4096]));
    assert_eq!(step(2), (Operation::Read, Layout::Shared, Spatiality::Contiguous, 524_288, vec![16384]));
    let own = (Operation::Write, Layout::FilePerProcess, Spatiality::Contiguous, 400_000, vec![10000]);
    assert_eq!(step(4), own);
    assert!(matches!((&job.steps[1], &job.steps[3]), (Step::Think(_), Step::Think(_))), "{text}");

    let curves = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/marenostrum4_corrected.csv");
    let out = place.explore(&["from-trace", "--predict"], &[&curves, &place.at("trace")]);
    assert!(out.status.success() && said(&out).contains("8 I/O nodes"), "{}", said(&out));
    let words = ["--io-nodes", "0,1", "--repeat", "1", "--at"];
    let out =
        place.explore(&words, &[&place.at("data"), Path::new("--out"), &place.at("results"), &scenario]);
    assert!(out.status.success(), "{}", said(&out));
    let rows = std::fs::read_to_string(place.at("results/results.csv")).expect("results");
    assert_eq!(rows.lines().count(), 1 + 2 * 3, "{rows}");
}

#[test]
fn what_a_killed_process_recorded_is_there() {
    let place = Place::new();
    let killed = "open(F, '>', '/seen/x'); syswrite(F, 'x' x 100) for 1..500; kill 9, $$; sleep 9";
    let out = place.run(&[], &["perl", "-e", killed]);
    assert_eq!(out.status.code(), Some(137), "{}", said(&out));
    let trace = place.trace();
    assert_eq!(trace.records.iter().filter(|r| r.call == Call::Write && r.bytes == 100).count(), 500);
    assert_eq!(trace.header.missing(), None);

    // A trace that is cut off is used as far as it goes, and one that is none is refused.
    let bytes = std::fs::read(place.at("trace")).expect("a trace");
    let cut = place.at("cut");
    std::fs::write(&cut, &bytes[..bytes.len() - 48 * 100 - 5]).expect("written");
    let out = place.explore(&["from-trace"], &[&cut]);
    assert!(
        out.status.success() && said(&out).contains("101 of its 501 records are missing"),
        "{}",
        said(&out)
    );
    for (bytes, says) in [(&bytes[..30], "cut off before its first record"), (b"\x7fELF\n", "not a trace")] {
        std::fs::write(&cut, bytes).expect("written");
        let out = place.explore(&["from-trace"], &[&cut]);
        assert!(!out.status.success() && said(&out).contains(says), "{}", said(&out));
    }
}

#[test]
fn limits_break_no_program_and_what_is_missing_is_said() {
    let place = Place::new();
    std::fs::write(place.at("data/x"), vec![1; 1 << 20]).expect("written");
    // No file may grow: what is recorded has its room from before.
    let out = place.run(&[], &["sh", "-c", "ulimit -f 0; dd if=/seen/x of=/dev/null bs=64k status=none"]);
    assert_eq!(out.status.code(), Some(0), "{}", said(&out));
    let trace = place.trace();
    assert_eq!(trace.records.iter().filter(|r| r.call == Call::Read && r.bytes == 65536).count(), 16);
    assert_eq!(trace.header.missing(), None);

    // No memory to share: the program goes on, and the report says that nothing was recorded of it.
    let limited = "ulimit -v 65536; dd if=/seen/x of=/dev/null bs=64k status=none";
    let out = place.run(&[], &["sh", "-c", limited]);
    assert_eq!(out.status.code(), Some(0), "{}", said(&out));
    assert!(said(&out).contains("could record nothing"), "{}", said(&out));
    assert!(place.trace().header.silent > 0);
    let out = place.explore(&["from-trace"], &[&place.at("trace")]);
    assert!(!out.status.success() && said(&out).contains("no reads or writes"), "{}", said(&out));

    // Counting file by file is not worth a program's life either.
    let log = place.at("log").display().to_string();
    let out = place.run(
        &["--quiet", "--darshan", &log],
        &["sh", "-c", "ulimit -f 0; exec dd if=/seen/x of=/dev/null bs=64k status=none"],
    );
    assert_eq!(out.status.code(), Some(0), "{}", said(&out));
}

#[test]
fn a_trace_that_cannot_be_had_is_refused_before_and_told_after() {
    let place = Place::new();
    let trace = place.at("trace").display().to_string();
    for (options, says) in [
        (&["--via", "mount"][..], "--record has no calls to record under the mount (as asked)"),
        (&["--report", &trace], "--report and --record name the same file"),
        (&["--darshan", &trace], "--darshan and --record name the same file"),
    ] {
        let out = place.run(options, &["touch", "/seen/started"]);
        assert_eq!(out.status.code(), Some(125), "{}", said(&out));
        assert!(said(&out).contains(says), "{says}: {}", said(&out));
        assert!(!place.at("data/started").exists() && !place.at("trace").exists());
    }
    // What went wrong with the trace is not the program's status.
    std::fs::create_dir(place.at("gone")).expect("a directory");
    let mut run = Command::new(program());
    run.args(["run", "--quiet", "--at", &format!("/seen={}", place.at("data").display())]);
    run.arg("--record").arg(place.at("gone/trace")).args(["--", "sh", "-c"]);
    let out =
        run.arg(format!("rmdir {}; exit 3", place.at("gone").display())).output().expect("forebay runs");
    assert_eq!(out.status.code(), Some(3), "{}", said(&out));
    assert!(said(&out).contains("the trace could not be written"), "{}", said(&out));
}
