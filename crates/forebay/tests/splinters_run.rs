//! What a new user of `forebay run` stumbles over.

mod user;

use forebay_testkit::{ArbiterSpec, Site, ends_within_a_second};
use rustix::process::Signal;
use serde_json::Value;
use std::path::Path;
use std::process::Stdio;
use user::{asked_to_end, ended, forebay, outcome, refused, run, run_directories, secret, signal, until};

fn text(path: &Path) -> String {
    path.display().to_string()
}

#[test]
fn options_are_parsed_up_to_the_dashes() {
    let dir = tempfile::tempdir().unwrap();
    let at = text(dir.path());
    let mistyped = ["run", "--at", &at, "--ionodes", "2", "--", "ls"];
    refused(&mistyped, 125, &["unexpected argument '--ionodes'", "'--io-nodes'"]);
    // What follows the program is its own, with and without the dashes.
    for dashes in [&["--"][..], &[]] {
        let args = [&["run", "--quiet", "--at", &at], dashes, &["echo", "--ionodes", "-n", "--"]].concat();
        let (status, said, _) = run(&args);
        assert_eq!((status, said.as_str()), (Some(0), "--ionodes -n --\n"), "{args:?}");
    }
}

#[test]
fn a_report_that_cannot_be_written_is_found_before_the_job_starts() {
    let dir = tempfile::tempdir().unwrap();
    let (at, ran) = (text(dir.path()), text(&dir.path().join("ran")));
    for report in [text(&dir.path().join("no/such/report.json")), at.clone()] {
        refused(&["run", "--at", &at, "--report", &report, "--", "touch", &ran], 125, &[&report]);
        assert!(!Path::new(&ran).exists(), "the job was started");
    }
    // What was made for a run that then could not be goes again.
    let report = text(&dir.path().join("report.json"));
    let (status, ..) = run(&["run", "--at", "/forebay-not-there", "--report", &report, "--", "true"]);
    assert_eq!(status, Some(125));
    assert!(!Path::new(&report).exists());
}

#[test]
fn a_report_goes_where_it_is_told_to_and_nowhere_else() {
    let dir = tempfile::tempdir().unwrap();
    let at = text(dir.path());
    let (link, real) = (dir.path().join("link"), dir.path().join("real"));
    std::os::unix::fs::symlink("real", &link).unwrap();
    let report = |path: &Path, more: &[&str]| {
        let path = text(path);
        run(&[&["run", "--quiet", "--at", &at, "--report", &path], more, &["--", "true"]].concat())
    };
    assert_eq!(report(&link, &[]).0, Some(0));
    assert!(link.is_symlink() && serde_json::from_slice::<Value>(&std::fs::read(&real).unwrap()).is_ok());
    for both in [&real, &link, &dir.path().join("new")] {
        let (status, _, says) = report(both, &["--darshan", &text(both)]);
        assert_eq!(status, Some(125), "{says}");
        assert!(says.contains("--report and --darshan name the same file"), "{says}");
    }
    // Whoever is in a hurry has no report, but not an empty one.
    let hurried = dir.path().join("hurried.json");
    let sleep = ["run", "--quiet", "--at", &at, "--report", &text(&hurried), "--", "sleep", "60"];
    let mut child = forebay(&sleep).stderr(Stdio::null()).spawn().unwrap();
    until("the program does not start", || !children(child.id(), "sleep").is_empty());
    signal(&child, Signal::TERM);
    signal(&child, Signal::TERM);
    child.wait().unwrap();
    let left = std::fs::read(&hurried).ok();
    assert!(left.is_none_or(|json| serde_json::from_slice::<Value>(&json).is_ok()), "an empty report");
}

#[test]
fn options_that_would_do_nothing_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let at = text(dir.path());
    for option in [
        ["--pattern", "x"],
        ["--wait", "5"],
        ["--weight", "3"],
        ["--app", "x"],
        ["--processes", "4"],
        ["--secret-file", "/no/such/file"],
    ] {
        let args = [&["run", "--at", &at], &option[..], &["--", "true"]].concat();
        refused(&args, 125, &[option[0], "is for jobs of an arbiter"]);
    }
    for option in [["--scheduler", "wfq"], ["--transport", "tcp"]] {
        let arbiter = ["run", "--at", &at, "--arbiter", "http://127.0.0.1:9"];
        refused(&[&arbiter, &option[..], &["--", "true"]].concat(), 125, &[option[0], "this run starts"]);
    }
}

#[test]
fn a_report_never_replaces_the_jobs_status() {
    let dir = tempfile::tempdir().unwrap();
    let at = text(dir.path());
    let args = ["run", "--quiet", "--at", &at, "--report", "/dev/full", "--", "sh", "-c", "exit 7"];
    refused(&args, 7, &["the report could not be written", "No space left on device"]);
}

#[test]
fn the_report_counts_what_was_measured() {
    let dir = tempfile::tempdir().unwrap();
    let (at, report) = (text(dir.path()), dir.path().join("report.json"));
    std::fs::write(&report, "what was there before is longer than nothing".repeat(500)).unwrap();
    let script =
        format!("dd if=/dev/zero of={at}/data bs=1M count=20 status=none; cat {at}/data >/dev/null; exit 3");
    let (status, _, says) = run(&["run", "--at", &at, "--report", &text(&report), "--", "sh", "-c", &script]);
    assert_eq!(status, Some(3), "{says}");
    let json: Value = serde_json::from_slice(&std::fs::read(&report).unwrap()).unwrap();
    assert_eq!((&json["status"], &json["signal"]), (&Value::from(3), &Value::Null));
    let operations = json["operations"].as_array().unwrap();
    assert!(operations.iter().any(|o| o["name"] == "write" && o["bytes"] == 20 << 20), "{operations:?}");
    for o in operations {
        let at = ["p50_us", "p95_us", "p99_us", "max_us"].map(|p| o[p].as_f64().unwrap());
        assert!(at.is_sorted(), "{o}");
        // The bounds of no bucket: a single operation took what it took.
        assert!(o["count"] != 1 || at[0] == at[3] || (at[3] - at[0]) / at[3] < 0.04, "{o}");
    }
    // One convention on a line: rates are decimal, and so is what they are a rate of.
    let amounts = says.lines().find(|l| l.contains("MB/s")).unwrap();
    assert!(amounts.contains("written 21.0 MB (") && !amounts.contains("iB"), "{amounts}");
    assert!(says.contains("(exit status 3, "), "{says}");
}

#[test]
fn a_killed_job_has_a_signal_and_no_status() {
    let dir = tempfile::tempdir().unwrap();
    let (at, report) = (text(dir.path()), dir.path().join("report.json"));
    let (status, ..) = run(&["run", "--at", &at, "--report", &text(&report), "--", "sh", "-c", "kill -9 $$"]);
    assert_eq!(status, Some(137));
    let json: Value = serde_json::from_slice(&std::fs::read(&report).unwrap()).unwrap();
    assert_eq!((&json["status"], &json["signal"]), (&Value::Null, &Value::from(9)));
}

#[test]
fn of_directories_within_each_other_the_innermost_counts() {
    for turn in [[0, 1], [1, 0]] {
        let dir = tempfile::tempdir().unwrap();
        let (outer, inner) = (dir.path().join("outer"), dir.path().join("inner"));
        std::fs::create_dir_all(&outer).unwrap();
        std::fs::create_dir_all(&inner).unwrap();
        let at = [format!("/forebay-x={}", text(&outer)), format!("/forebay-x/sub={}", text(&inner))];
        // Links of the outer one lead into the inner one, not to what it hides.
        for (target, link) in [("sub/g", "file"), ("sub", "dir"), ("dir", "twice")] {
            std::os::unix::fs::symlink(target, outer.join(link)).unwrap();
        }
        let script = "echo a > /forebay-x/f; echo b > /forebay-x/sub/g; cat /forebay-x/sub/../sub/g; \
                      cd /forebay-x && cat file twice/g && echo c > dir/new && mv f moved && mv dir/new twice/n && \
                      cd /forebay-x/sub && cat g && [ -e n ] && [ -L ../dir ] && [ -e ../moved ] && ls .. > ../listed";
        let args = ["run", "--quiet", "--at", &at[turn[0]], "--at", &at[turn[1]], "--", "sh", "-c", script];
        let (status, said, says) = run(&args);
        assert_eq!((status, said.as_str()), (Some(0), "b\nb\nb\nb\n"), "{turn:?}: {says}");
        assert_eq!(std::fs::read_to_string(outer.join("moved")).unwrap(), "a\n");
        assert_eq!(std::fs::read_to_string(inner.join("n")).unwrap(), "c\n");
        assert_eq!(std::fs::read_to_string(inner.join("g")).unwrap(), "b\n");
        assert!(!outer.join("sub").exists(), "{turn:?}");
    }
}

/// As /scratch is a link on many machines; and one directory under two names.
#[test]
fn a_directory_may_have_several_names() {
    let dir = tempfile::tempdir().unwrap();
    let real = dir.path().join("real");
    std::fs::create_dir_all(real.join("below")).unwrap();
    std::fs::write(real.join("below/f"), "x").unwrap();
    let link = dir.path().join("link");
    std::os::unix::fs::symlink("real", &link).unwrap();
    let (a, b) = (format!("/forebay-a={}", text(&real)), format!("/forebay-b={}", text(&real)));
    let (file, below) = (text(&link.join("below/f")), text(&link.join("below")));
    for (at, files) in [
        (&[text(&link)][..], [&file, &text(&real.join("below/f"))]),
        (&[below], [&file, &file]),
        (&[a, b], [&"/forebay-a/below/f".to_owned(), &"/forebay-b/below/f".to_owned()]),
    ] {
        let mut args = vec!["run", "--quiet"];
        at.iter().for_each(|at| args.extend(["--at", at]));
        args.extend(["--", "cat", files[0], files[1]]);
        let (status, said, says) = run(&args);
        assert_eq!((status, said.as_str()), (Some(0), "xx"), "{at:?}: {says}");
    }
}

/// `/proc/self/fd/N` of a file that was removed or replaced is no other file, and makes none.
#[test]
fn an_open_file_is_not_what_has_its_name_now() {
    let dir = tempfile::tempdir().unwrap();
    let script = "echo old > a; echo NEW > n; echo gone > r; exec 5<>a 6<>r; cat /proc/self/fd/5 /dev/fd/6; \
                  mv n a; rm r; cat /proc/self/fd/5 2>&1; echo more >> /dev/fd/6; true > /dev/fd/5; cat a; ls";
    let args = ["run", "--quiet", "--via", "preload", "--at", &text(dir.path()), "--", "sh", "-c", script];
    let output = in_dir(dir.path(), &args).output().unwrap();
    let (status, said, says) = outcome(&output);
    assert_eq!(status, Some(0), "{says}");
    assert!(said.starts_with("old\ngone\n") && said.ends_with("NEW\na\n"), "{said}{says}");
    assert_eq!(said.matches("NEW").count(), 1, "{said}");
}

#[test]
fn a_run_within_a_run_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (at, ran) = (text(dir.path()), text(&dir.path().join("ran")));
    let inner = [env!("CARGO_BIN_EXE_forebay"), "run", "--at", &at, "--", "touch", &ran];
    let args = [&["run", "--quiet", "--at", &at, "--"][..], &inner].concat();
    refused(&args, 125, &["run by another `forebay run` already", "--at of its own"]);
    assert!(!Path::new(&ran).exists());
}

/// `mpirun -n 4 forebay run … -- ./app`: every rank would be a job of its own.
#[test]
fn one_of_several_ranks_is_refused_with_the_right_command() {
    let dir = tempfile::tempdir().unwrap();
    let (at, ran) = (text(dir.path()), text(&dir.path().join("ran")));
    let args = ["run", "--quiet", "--at", &at, "--", "touch", &ran];
    let with = |variables: &[(&str, &str)]| {
        outcome(&forebay(&args).envs(variables.iter().copied()).output().expect("forebay starts"))
    };
    for (rank, ranks, right) in [
        ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "mpirun -n 4"),
        ("PMI_RANK", "PMI_SIZE", "mpiexec -n 4"),
        ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "srun -n 4"),
    ] {
        let (status, _, says) = with(&[(rank, "3"), (ranks, "4")]);
        let right = format!("forebay run … -- {right} touch {ran}");
        assert!(says.lines().count() == 1 && says.contains(&right), "{says}");
        assert_eq!((status, Path::new(&ran).exists()), (Some(125), false), "{says}");
        // One rank is no reason.
        let (status, _, says) = with(&[(rank, "0"), (ranks, "1")]);
        assert_eq!((status, Path::new(&ran).exists()), (Some(0), true), "{says}");
        std::fs::remove_file(&ran).unwrap();
    }
    // The script of a batch job has a number, but no step.
    let (status, _, says) = with(&[("SLURM_PROCID", "0"), ("SLURM_NTASKS", "4"), ("SLURM_JOB_ID", "7")]);
    assert_eq!(status, Some(0), "{says}");
    for launcher in ["mpirun.openmpi", "mpirun.mpich"] {
        if !forebay_testkit::needs("several ranks of a launcher", &[launcher]) {
            continue;
        }
        let ranks = |n: &str| {
            let mut command = std::process::Command::new(launcher);
            command.args(["-n", n, env!("CARGO_BIN_EXE_forebay")]).args(args);
            for name in ["OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"] {
                command.env(name, "1");
            }
            command.env("OMPI_MCA_rmaps_base_oversubscribe", "1");
            outcome(&command.stdin(Stdio::null()).output().expect("the launcher starts"))
        };
        let (status, _, says) = ranks("2");
        assert!(status != Some(0) && says.contains(" -n 2 touch "), "{launcher}: {says}");
        let (status, _, says) = ranks("1");
        assert_eq!(status, Some(0), "{launcher}: {says}");
    }
}

/// `forebay run … -- sbatch job.sh`: the job would run when the run has ended.
#[test]
fn what_is_submitted_is_refused_with_the_right_command() {
    let dir = tempfile::tempdir().unwrap();
    let (at, ran) = (text(dir.path()), dir.path().join("ran"));
    let tool = dir.path().join("sbatch");
    std::fs::write(&tool, format!("#!/bin/sh\ntouch {}\n", ran.display())).unwrap();
    std::fs::set_permissions(&tool, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let right = format!("sbatch --forebay={at},io-nodes=1 -N 2 job.sh");
    let script = format!("forebay run --at {at} -- … into the job's script");
    refused(
        &["run", "--quiet", "--at", &at, "--", &text(&tool), "-N", "2", "job.sh"],
        125,
        &[&right, &script],
    );
    refused(&["run", "--quiet", "--at", &at, "--", "salloc", "-N", "2"], 125, &["salloc … forebay run"]);
    refused(&["run", "--quiet", "--at", &at, "--", "nice", "qsub", "job.sh"], 125, &[&script]);
    assert!(!ran.exists(), "it was started");
}

#[test]
fn a_run_ends_when_it_is_asked_to() {
    let dir = tempfile::tempdir().unwrap();
    let (at, secret) = (text(dir.path()), secret(dir.path()));
    // While it waits for an arbiter that is not there.
    let nobody = ["run", "--arbiter", "http://127.0.0.1:1", "--wait", "600", "--secret-file", &secret];
    let waits = [&nobody[..], &["--at", &at, "--", "true"]].concat();
    // While its program runs.
    let runs = ["run", "--at", &at, "--", "sleep", "600"];
    for (args, runs) in [(&waits[..], false), (&runs[..], true)] {
        for (how, number) in [(Signal::TERM, 15), (Signal::INT, 2)] {
            ends_within_a_second(&format!("{args:?}"), || {
                let child = forebay(args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
                let pid = child.id();
                until("its program runs", || !runs || !children(pid, "sleep").is_empty());
                until("it watches for signals", || runs || watches_signals(pid));
                let (status, took) = asked_to_end(child, how);
                assert_eq!(status.code(), Some(128 + number), "{args:?}");
                assert!(run_directories(pid).is_empty(), "{args:?} left its directory behind");
                took
            });
        }
    }
}

/// What the program's processes could not use is refused before there are any.
#[test]
fn what_would_not_be_forwarded_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (at, ran) = (text(dir.path()), text(&dir.path().join("ran")));
    let job = "a".repeat(256);
    refused(&["run", "--job", &job, "--at", &at, "--", "touch", &ran], 125, &["255 bytes"]);
    let twice = ["run", "--at", &format!("/x={at}"), "--at", "/x/../x=/tmp", "--", "touch", &ran];
    refused(&twice, 125, &["--at /x: given twice"]);
    assert!(!Path::new(&ran).exists(), "the job was started");
    // The loader would cut this apart.
    let (odd, report) = (dir.path().join("a b:c"), dir.path().join("report.json"));
    std::fs::create_dir(&odd).unwrap();
    let args = ["run", "--quiet", "--report", &text(&report), "--at", &at, "--", "touch", &ran];
    assert_eq!(outcome(&forebay(&args).env("TMPDIR", &odd).output().unwrap()).0, Some(0));
    let json: Value = serde_json::from_slice(&std::fs::read(&report).unwrap()).unwrap();
    assert!(!json["operations"].as_array().unwrap().is_empty(), "nothing was forwarded: {json}");
}

/// A terminal, and the end of it that a program has.
fn terminal() -> (std::fs::File, std::fs::File) {
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::OpenOptionsExt;
    let open = |path: &str| {
        std::fs::File::options().read(true).write(true).custom_flags(libc::O_NOCTTY).open(path).unwrap()
    };
    let (ours, mut number, unlocked) = (open("/dev/ptmx"), 0u32, 0i32);
    // SAFETY: both take a pointer to an integer.
    unsafe {
        assert_eq!(libc::ioctl(ours.as_raw_fd(), libc::TIOCSPTLCK, &unlocked), 0);
        assert_eq!(libc::ioctl(ours.as_raw_fd(), libc::TIOCGPTN, &mut number), 0);
    }
    (ours, open(&format!("/dev/pts/{number}")))
}

/// Not from the terminal, which sends Ctrl-C to all itself: somebody wants the run to end.
#[test]
fn an_interrupt_for_the_run_alone_is_the_programs() {
    let dir = tempfile::tempdir().unwrap();
    let (_ours, theirs) = terminal();
    let mut command = forebay(&["run", "--quiet", "--at", &text(dir.path()), "--", "sleep", "600"]);
    let child = command.stdin(theirs).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let pid = child.id();
    until("its program runs", || !children(pid, "sleep").is_empty());
    assert_eq!(asked_to_end(child, Signal::INT).0.code(), Some(130));
}

/// Batch systems warn jobs by signals before their time is up.
#[test]
fn signals_are_the_programs() {
    let dir = tempfile::tempdir().unwrap();
    let (at, ready) = (text(dir.path()), dir.path().join("ready"));
    for via in ["preload", "auto"] {
        for (name, how) in [("USR1", Signal::USR1), ("USR2", Signal::USR2), ("ALRM", Signal::ALARM)] {
            let script =
                format!("trap 'exit 77' {name}; touch {}; while :; do sleep 0.05; done", ready.display());
            let child = forebay(&["run", "--quiet", "--via", via, "--at", &at, "--", "bash", "-c", &script]);
            let child = { child }.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
            let pid = child.id();
            until("it runs", || ready.exists());
            signal(&child, how);
            assert_eq!(ended(child).code(), Some(77), "{via} {name}");
            assert!(run_directories(pid).is_empty(), "{via} {name} left its directory behind");
            std::fs::remove_file(&ready).unwrap();
        }
    }
}

/// `--strict` starts nothing that would not be forwarded.
#[test]
fn a_program_that_the_library_does_not_reach_is_not_started_under_strict() {
    let Some(busybox) = ["/bin/busybox", "/usr/bin/busybox"].into_iter().find(|p| Path::new(p).exists())
    else {
        return forebay_testkit::skipped("--strict and a static program", "busybox-static is not installed");
    };
    let dir = tempfile::tempdir().unwrap();
    let (at, made) = (text(dir.path()), dir.path().join("made"));
    let args = ["run", "--strict", "--via", "preload", "--at", &at, "--", busybox, "touch", &text(&made)];
    refused(&args, 125, &["--strict", busybox, "--via mount"]);
    assert!(!made.exists());
}

/// Signals that are ignored, as by `nohup`, and standard descriptors that are closed.
#[test]
fn the_program_begins_with_what_the_run_was_given() {
    let dir = tempfile::tempdir().unwrap();
    let program = env!("CARGO_BIN_EXE_forebay");
    for via in ["preload", "mount"] {
        let doctor = run(&["doctor"]).1;
        if via == "mount"
            && doctor.lines().any(|l| l.starts_with("no  FUSE") || l.starts_with("no  namespaces"))
        {
            forebay_testkit::skipped("given over a mount", "there can be none here");
            continue;
        }
        let run = format!("{program} run --quiet --via {via} --at {} --", dir.path().display());
        for command in [
            "trap '' HUP USR1 PIPE; CMD grep SigIgn /proc/self/status",
            "CMD grep SigIgn /proc/self/status",
            "CMD echo x >&- 2> err; echo $?; CMD cat <&- 2> err; echo $?; CMD sh -c 'echo x >&2' 2>&-; echo $?",
        ] {
            let says = |with: &str| {
                let mut shell = std::process::Command::new("bash");
                shell.args(["-c", &command.replace("CMD", with)]).current_dir(dir.path());
                let said = String::from_utf8(shell.output().unwrap().stdout).unwrap();
                // Signals from 32 on are the C library's.
                let ignored =
                    said.strip_prefix("SigIgn:").map(|mask| u64::from_str_radix(mask.trim(), 16).unwrap());
                ignored.map_or(said, |mask| format!("{:x}", mask & 0x7fff_ffff))
            };
            assert_eq!(says(&run), says(""), "{via}: {command}");
        }
    }
}

/// The children of a process with this name.
fn children(pid: u32, name: &str) -> Vec<u32> {
    let list = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    let named = |p: &u32| std::fs::read_to_string(format!("/proc/{p}/comm")).is_ok_and(|c| c.trim() == name);
    list.split_whitespace().filter_map(|p| p.parse().ok()).filter(named).collect()
}

/// Whether the process has its own way with SIGTERM.
fn watches_signals(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let caught = status.lines().find_map(|l| l.strip_prefix("SigCgt:")).unwrap_or("0");
    u64::from_str_radix(caught.trim(), 16).is_ok_and(|mask| mask & (1 << 14) != 0)
}

#[test]
fn names_that_the_nodes_do_not_export_are_refused_before_the_job_starts() {
    let site = Site::new();
    let arbiter = site.arbiter(&ArbiterSpec::default());
    let _node = site.node(0, arbiter.url());
    let (ran, secret) = (site.data().join("ran"), text(&site.secret_file()));
    let job = ["run", "--quiet", "--arbiter", arbiter.url(), "--secret-file", &secret, "--at"];
    refused(&[&job[..], &["/data", "--", "touch", &text(&ran)]].concat(), 125, &["/data", "\"data\""]);
    assert!(!ran.exists(), "the job was started");
    // Under the name that it has, it is served.
    let right = [&job[..], &["/data=data", "--", "touch", "/data/ran"]].concat();
    let output = forebay(&right).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{:?}", outcome(&output));
    assert!(ran.exists());
}

/// A pattern that the arbiter's table does not have tells it nothing, which is said.
#[test]
fn a_pattern_that_nobody_knows_is_told() {
    let site = Site::new();
    let arbiter = site.arbiter(&ArbiterSpec::default());
    let _node = site.node(0, arbiter.url());
    let (at, secret) = ("/seen=data", text(&site.secret_file()));
    let with = ["run", "--quiet", "--at", at, "--arbiter", arbiter.url(), "--secret-file", &secret];
    let (status, _, says) = run(&[&with[..], &["--pattern", "no-such", "--", "true"]].concat());
    assert_eq!(status, Some(0), "{says}");
    assert!(says.contains("no table of curves") && says.contains("no-such"), "{says}");
    let (status, _, says) = run(&[&with[..], &["--", "true"]].concat());
    assert_eq!((status, says.as_str()), (Some(0), ""));
}

/// A program with a name of its own in a directory of its own, which is the working directory.
fn in_dir(dir: &Path, args: &[&str]) -> std::process::Command {
    let mut command = forebay(args);
    command.current_dir(dir);
    command
}

#[test]
fn names_that_begin_with_a_dash_are_names() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("d")).unwrap();
    std::fs::copy("/bin/true", dir.path().join("-x")).unwrap();
    for more in [&["--", "./-x"][..], &["--job=-x", "--", "true"], &["--job=--", "--", "true"]] {
        let out = in_dir(dir.path(), &[&["run", "--quiet", "--at", "d"], more].concat()).output().unwrap();
        assert!(out.status.success(), "{more:?}: {out:?}");
    }
}

#[test]
fn a_relative_tmpdir_is_where_it_was_when_the_run_began() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["tmp", "export", "local"] {
        std::fs::create_dir(dir.path().join(name)).unwrap();
    }
    let (local, export) = (dir.path().join("local"), dir.path().join("export"));
    let at = format!("{}={}", local.display(), export.display());
    let script = format!("cd /; cp /etc/hostname {}/f", local.display());
    for transport in ["tcp", "unix"] {
        let args = [
            "run",
            "--quiet",
            "--via",
            "preload",
            "--transport",
            transport,
            "--at",
            &at,
            "--",
            "sh",
            "-c",
            &script,
        ];
        let out = in_dir(dir.path(), &args).env("TMPDIR", "tmp").output().unwrap();
        assert!(out.status.success() && out.stderr.is_empty(), "{out:?}");
        assert!(export.join("f").exists() && !local.join("f").exists(), "{transport}");
        std::fs::remove_file(export.join("f")).unwrap();
    }
}

#[test]
fn a_shared_directory_in_which_others_could_replace_the_library_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let (share, at) = (dir.path().join("share"), dir.path().join("d"));
    std::fs::create_dir(&at).unwrap();
    std::fs::create_dir_all(share.join("below")).unwrap();
    let args = |share: &Path| {
        ["run", "--quiet", "--share", &text(share), "--at", &text(&at), "--", "true"].map(str::to_owned)
    };
    for (mode, good) in [(0o777, false), (0o770, false), (0o1777, true), (0o755, true)] {
        std::fs::set_permissions(&share, PermissionsExt::from_mode(mode)).unwrap();
        for place in [share.clone(), share.join("below")] {
            match good {
                true => assert_eq!(run(&args(&place)).0, Some(0), "{mode:o}"),
                // Where a user has a group to himself, it may write.
                false if mode == 0o770 && !rustix::process::geteuid().is_root() => {}
                false if mode == 0o770 => {
                    std::os::unix::fs::chown(&share, None, Some(65534)).unwrap();
                    refused(&args(&place), 125, &["sticky bit"]);
                }
                false => refused(&args(&place), 125, &["sticky bit"]),
            }
        }
    }
}

#[test]
fn a_mount_goes_to_the_arbiter_of_the_environment() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("data")).unwrap();
    let at = format!("{}/mp=data", dir.path().display());
    let mut command = in_dir(dir.path(), &["mount", "--at", &at]);
    command.env("FOREBAY_ARBITER", "http://127.0.0.1:1").env("FOREBAY_SECRET_FILE", "/nowhere/secret");
    let (status, _, says) = outcome(&command.output().unwrap());
    assert!(status == Some(1) && says.contains("/nowhere/secret"), "{says}");
}
