//! What a new user stumbles over, whatever the command: output that nobody reads, values that make no
//! sense, errors that say too much or too little.

mod user;

use forebay_testkit::{ArbiterSpec, Process, Signal, Site, ends_within_a_second};
use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use user::{asked_to_end, forebay, outcome, refused, repository, run, secret, until};

fn text(path: &Path) -> String {
    path.display().to_string()
}

/// Commands that print more than a line, each with what it needs.
fn printers() -> Vec<Vec<String>> {
    let owned = |args: &[&str]| args.iter().map(|a| (*a).to_owned()).collect::<Vec<_>>();
    let data = repository("data/marenostrum4.csv");
    let log = repository("crates/forebay-explore/tests/darshan/example.darshan");
    vec![
        owned(&["--help"]),
        owned(&["run", "--help"]),
        owned(&["--version"]),
        owned(&["completions", "bash"]),
        owned(&["node", "--example-config"]),
        owned(&["arbiter", "--example-config"]),
        owned(&["analyze", &data]),
        owned(&["analyze", &data, "--json"]),
        owned(&["simulate", "queue"]),
        owned(&["simulate", "queue", "--json"]),
        owned(&["simulate", "policies", &data, "--sets", "20"]),
        owned(&["explore", "from-darshan", &log]),
    ]
}

#[test]
fn nobody_reads_the_output() {
    for args in printers() {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = forebay(&args).stdout(writer).stderr(Stdio::piped()).output().unwrap();
        let (status, _, says) = outcome(&output);
        assert_eq!((status, says.as_str()), (Some(141), ""), "{args:?}");
    }
}

#[test]
fn the_disk_is_full() {
    for args in printers() {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let output = forebay(&args).stdout(full).stderr(Stdio::piped()).output().unwrap();
        let (status, _, says) = outcome(&output);
        assert_eq!(status, Some(1), "{args:?}: {says}");
        assert!(says.contains("No space left on device") && says.lines().count() == 1, "{args:?}: {says}");
    }
}

/// As other tools have it; without anything to print, all is well.
#[test]
fn the_output_is_closed() {
    let closed = |args: &[String]| {
        let mut sh = Command::new("sh");
        sh.args(["-c", "exec \"$@\" >&-", "sh", env!("CARGO_BIN_EXE_forebay")]).args(args);
        outcome(&sh.output().unwrap())
    };
    for args in printers() {
        let (status, _, says) = closed(&args);
        assert_eq!(status, Some(1), "{args:?}");
        assert_eq!(says, "forebay: cannot write to standard output: it is closed\n", "{args:?}");
    }
    // The program finds it as it was given.
    let dir = tempfile::tempdir().unwrap();
    let at = text(dir.path());
    let run = |script: &str| {
        let args = ["run", "--quiet", "--at", &at, "--", "sh", "-c", script];
        closed(&args.map(str::to_owned))
    };
    assert_eq!(run("[ -e /proc/$$/fd/1 ] && exit 4; exit 3").0, Some(3));
}

/// Services serve, though nobody hears that they are ready.
#[test]
fn a_service_does_not_need_a_listener() {
    let dir = tempfile::tempdir().unwrap();
    let (at, secret) = (text(dir.path()), secret(dir.path()));
    let node =
        ["node", "--as", "self", "--listen", "tcp:127.0.0.1:0", "--secret-file", &secret, "--export", &at];
    let state = text(&dir.path().join("state"));
    let arbiter = ["arbiter", "--listen", "127.0.0.1:0", "--secret-file", &secret, "--state", &state];
    for args in [&node[..], &arbiter[..]] {
        let full = || File::options().write(true).open("/dev/full").unwrap();
        let mut child = forebay(args).stdout(full()).stderr(full()).spawn().unwrap();
        let listens = || {
            let sockets = std::fs::read_dir(format!("/proc/{}/fd", child.id())).unwrap().flatten();
            sockets.filter_map(|e| std::fs::read_link(e.path()).ok()).any(|l| text(&l).starts_with("socket:"))
        };
        until("it listens", listens);
        std::thread::sleep(Duration::from_millis(300));
        assert_eq!(child.try_wait().unwrap(), None, "{args:?} has ended");
        let (status, _) = asked_to_end(child, Signal::TERM);
        assert_eq!(status.code(), Some(0), "{args:?}");
    }
}

#[test]
fn values_that_make_no_sense_are_refused_with_the_range() {
    let dir = tempfile::tempdir().unwrap();
    let (at, secret) = (dir.path().display().to_string(), secret(dir.path()));
    let data = repository("data/marenostrum4.csv");
    for bad in ["0", "nan", "-1", "1e300"] {
        let deadline = format!("--deadline={bad}");
        refused(&["run", "--at", &at, &deadline, "--", "true"], 125, &["--deadline", "0.1 to 86400 seconds"]);
    }
    refused(&["run", "--at", &at, "--io-nodes", "0", "--", "true"], 125, &["from 1 to 256"]);
    let long = "n".repeat(256);
    for (name, why) in [
        ("a/b", "has a slash"),
        ("a\nb", "has control characters"),
        ("", "it is empty"),
        ("(others)", "stands for all jobs"),
        ("forebay-control", "controls an I/O node"),
        (&long, "longer than 255 bytes"),
    ] {
        refused(&["run", "--at", &at, "--job", name, "--", "true"], 125, &["--job", why]);
    }
    for (scheduler, range) in [("sfq-d:depth=many", "1 to 1048576"), ("hbrr:quantum=-3", "1 to 1048576")] {
        refused(&["run", "--at", &at, "--scheduler", scheduler, "--", "true"], 125, &[range]);
    }
    let quantum = ["hbrr:quantum=0", "wfq:quantum=0", "aioli:quantum=0KiB", "mlf:quantum=0"];
    for scheduler in quantum.into_iter().chain(["sfq-d:depth=0", "sfq-d-plus:depth=0"]) {
        let args = ["run", "--at", &at, "--scheduler", scheduler, "--", "true"];
        refused(&args, 125, &["out of range", "1"]);
    }
    let node = |option: &str, value: &str| {
        let listen = ["node", "--listen", "tcp:127.0.0.1:0", "--secret-file", &secret, "--export", &at];
        [&listen[..], &[option, value]].concat().iter().map(|s| (*s).to_owned()).collect::<Vec<_>>()
    };
    // By hand: these are about what the command line itself refuses.
    refused(&node("--lease-ms", "0"), 2, &["from 50 to 600000"]);
    refused(&node("--dispatchers", "0"), 2, &["from 1 to 1024"]);
    refused(&node("--drain-timeout", "nan"), 2, &["0 to 86400 seconds"]);
    let file = dir.path().join("node.toml");
    std::fs::write(&file, "lease-ms = 0\n").unwrap();
    refused(&node("--config", &file.display().to_string()), 1, &["lease-ms is 0: it can be 50 to 600000"]);
    for share in ["nan", "1.5", "-0.1"] {
        let share = format!("--share={share}");
        refused(&["simulate", "queue", &share], 2, &["from 0 to 1"]);
        refused(&["simulate", "policies", &data, &share], 2, &["from 0 to 1"]);
        refused(&["allocate", "--policy", "fair", "--io-nodes", "2", &share, "-"], 2, &["from 0 to 1"]);
    }
    for files in ["0", "4294967296", "9223372036854775807"] {
        refused(&["bench", "sched", "--files", files], 2, &["from 1 to 10000000"]);
    }
    for measured in
        [["bench", "path"], ["bench", "everyday"], ["experiment", "twins"], ["experiment", "overhead"]]
    {
        for repeat in ["0", "18446744073709551615"] {
            refused(&[&measured[..], &["--repeat", repeat]].concat(), 2, &["from 1 to 1000"]);
        }
    }
    refused(&["nodes", "drain", "-1"], 2, &["from 0 to 4294967295"]);
    refused(&["node", "weight", "tcp:127.0.0.1:1", "job", "-1"], 2, &["from 1 to 1000000"]);
    refused(&["node", "weight", "tcp:127.0.0.1:1", "job", "0"], 2, &["from 1 to 1000000"]);
    refused(&["nodes", "--arbiter", "http://127.0.0.1:99999"], 1, &["no arbiter's address", "HOST:PORT"]);
    refused(&["node", "stats", "tcp:127.0.0.1:1", "--secret-file", &at], 1, &["is a directory"]);
}

/// Sizes and times are written the same way everywhere; a plain number means what it meant.
#[test]
fn one_way_to_write_quantities() {
    let requests = ["simulate", "requests", "--requests", "2", "--processes", "2", "fifo", "--size"];
    for size in ["64", "64K", "64KiB"] {
        let (status, said, says) = run(&[&requests[..], &[size]].concat());
        assert!(status == Some(0) && said.contains("2 requests of 64 KiB each"), "{size}: {said}{says}");
    }
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path().display().to_string();
    for deadline in ["5", "5s", "5000ms"] {
        let (status, _, says) = run(&["run", "--quiet", "--deadline", deadline, "--at", &at, "--", "true"]);
        assert_eq!(status, Some(0), "{deadline}: {says}");
    }
}

/// What is to be written at the end is tried at the beginning.
#[test]
fn output_that_cannot_be_written_is_found_before_the_work() {
    let dir = tempfile::tempdir().unwrap();
    let (at, file) = (dir.path().display().to_string(), dir.path().join("file"));
    std::fs::write(&file, "").unwrap();
    let below = file.join("out").display().to_string();
    let began = Instant::now();
    refused(&["train", "--synthetic", "--out", &below], 1, &["cannot write", &below]);
    refused(&["train", "--small", "--save-data", &below], 1, &["cannot write", &below]);
    refused(&["profile", "--out", &below, &at], 1, &["cannot make", &below]);
    refused(&["experiment", "twins", "--quick", "--out", &below], 1, &["cannot make", &below]);
    refused(&["bench", "everyday", "--quick", "--out", &below], 1, &["cannot make", &below]);
    assert!(began.elapsed() < Duration::from_secs(20), "the work was done first: {:?}", began.elapsed());
}

#[test]
fn curves_that_are_none_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (secret, state) = (secret(dir.path()), dir.path().join("state").display().to_string());
    let file = dir.path().join("curves.csv");
    let path = file.display().to_string();
    let header = "scenario,compute_nodes,processes,layout,spatiality,request_kb,io_nodes,bandwidth_mbs\n";
    for bad in ["", "garbage\n", "garbage\nmore,garbage\n", header] {
        std::fs::write(&file, bad).unwrap();
        let arbiter = ["arbiter", "--listen", "127.0.0.1:0", "--secret-file", &secret, "--state", &state];
        refused(&[&arbiter[..], &["--curves", &path]].concat(), 1, &["curves.csv"]);
        refused(&["simulate", "policies", &path], 1, &["curves.csv"]);
        refused(&["analyze", &path], 1, &["curves.csv"]);
    }
}

/// What is named need not end: it is read up to a limit, which is told.
#[test]
fn no_file_is_too_long_for_the_memory() {
    let dir = tempfile::tempdir().unwrap();
    let endless = dir.path().join("endless.toml");
    std::os::unix::fs::symlink("/dev/zero", &endless).unwrap();
    let (endless, out) = (endless.display().to_string(), dir.path().join("out").display().to_string());
    for args in [
        &["simulate", "fit", &endless][..],
        &["simulate", "queue", &endless],
        &["simulate", "policies", &endless],
        &["allocate", "--policy", "mckp", "--io-nodes", "1", &endless],
        &["analyze", &endless],
        &["learned", "replay", &endless],
        &["train", &endless],
        &["explore", "from-darshan", &endless],
        &["explore", &endless, "--out", &out],
    ] {
        refused(args, 1, &["endless.toml", "longer than", "MiB"]);
    }
    let zeros = File::open("/dev/zero").unwrap();
    let allocate = ["allocate", "--policy", "mckp", "--io-nodes", "1", "-"];
    let (status, _, says) = outcome(&forebay(&allocate).stdin(zeros).output().unwrap());
    assert!(status == Some(1) && says.contains("longer than 16 MiB"), "{says}");
    refused(&["simulate", "decision", "--jobs", "4294967295"], 2, &["from 1 to 100000"]);
}

/// What is read is not written over, and a full disk is told as one.
#[test]
fn measurements_stay_what_they_are() {
    let dir = tempfile::tempdir().unwrap();
    let [file, link] = ["c.csv", "link.csv"].map(|name| dir.path().join(name));
    std::fs::copy(repository("data/marenostrum4.csv"), &file).unwrap();
    std::os::unix::fs::symlink(&file, &link).unwrap();
    let before = std::fs::read(&file).unwrap();
    let [name, other] = [&file, &link].map(|path| path.display().to_string());
    refused(&["analyze", &name, "--curves", &name], 1, &["c.csv is read"]);
    refused(&["analyze", &name, "--html", &other], 1, &["c.csv is read"]);
    assert_eq!(std::fs::read(&file).unwrap(), before);
    let (status, _, says) = run(&["analyze", &name, "--curves", "/dev/full"]);
    assert_eq!(status, Some(1), "{says}");
    assert!(says.contains("cannot write /dev/full: No space left on device"), "{says}");
    assert!(!says.contains("columns"), "{says}");
}

/// A scenario that is not there makes no directory for its results.
#[test]
fn what_cannot_be_read_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let output = forebay(&["explore", "no-such.toml"]).current_dir(dir.path()).output().unwrap();
    let (status, _, says) = outcome(&output);
    assert!(status == Some(1) && says.contains("no-such.toml"), "{says}");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn a_cause_is_said_once() {
    let (status, _, says) = run(&["run", "--at", "/forebay-not-there", "--", "true"]);
    assert_eq!(status, Some(125));
    assert_eq!(says.matches("No such file or directory").count(), 1, "{says}");
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("queue.json");
    std::fs::write(&file, "[{}]").unwrap();
    let (status, _, says) = run(&["simulate", "queue", &file.display().to_string()]);
    assert_eq!(status, Some(1));
    assert_eq!(says.matches("at line 1 column").count(), 1, "{says}");
}

#[test]
fn a_node_is_asked_with_the_secret_of_the_environment() {
    let site = Site::new();
    let mut node = site.node_with(0, &[]);
    let address = &node.addresses()[0].to_string();
    let secret = site.secret_file();
    let output = forebay(&["node", "stats", address]).env("FOREBAY_SECRET_FILE", &secret).output().unwrap();
    let (status, shown, says) = outcome(&output);
    assert_eq!(status, Some(0), "{says}");
    assert!(shown.contains("I/O node 0, up"), "{shown}");
    refused(&["node", "stats", address], 1, &["--secret-file", "FOREBAY_SECRET_FILE"]);
    let file = secret.display().to_string();
    let weight = ["node", "weight", address, "nobody", "2", "--secret-file", &file];
    refused(&weight, 1, &["says: this node has not seen a job `nobody`"]);
    assert!(node.process.end(Duration::from_secs(60)).unwrap().success());
}

/// Also a node that an arbiter tells of jobs knows that this is none of them.
#[test]
fn a_secret_that_is_not_the_nodes_is_called_so() {
    let site = Site::new();
    let arbiter = site.arbiter(&ArbiterSpec::default());
    let node = site.node(0, arbiter.url());
    let dir = tempfile::tempdir().unwrap();
    let other = secret(dir.path());
    let began = Instant::now();
    let stats = ["node", "stats", &node.addresses()[0].to_string(), "--secret-file", &other];
    refused(&stats, 1, &["refuses", "the secret is neither this job's nor this I/O node's"]);
    assert!(began.elapsed() < Duration::from_secs(4), "it went on asking");
}

fn interrupt_is_ignored() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let ignored = status.lines().find_map(|l| l.strip_prefix("SigIgn:")).unwrap().trim();
    u64::from_str_radix(ignored, 16).unwrap() & 1 << 1 != 0
}

#[test]
fn a_computation_ends_when_it_is_asked_to() {
    let data = repository("data/marenostrum4.csv");
    for how in [Signal::TERM, Signal::INT] {
        // A shell starts what it does not wait for with SIGINT ignored, and programs leave it so.
        if how == Signal::INT && interrupt_is_ignored() {
            continue;
        }
        let args = ["simulate", "policies", &data, "--sets", "1000000", "--set-size", "1000"];
        ends_within_a_second("a computation", || {
            let child = forebay(&args).stdout(Stdio::null()).spawn().unwrap();
            let (status, took) = asked_to_end(child, how);
            assert!(!status.success(), "{status}");
            took
        });
    }
}

#[test]
fn services_end_when_they_are_asked_to() {
    let site = Site::new();
    for how in [Signal::TERM, Signal::INT] {
        if how == Signal::INT && interrupt_is_ignored() {
            continue;
        }
        let end = |process: &mut Process| {
            let since = Instant::now();
            process.signal(how).unwrap();
            let status = process.wait_for(Duration::from_secs(60)).unwrap().expect("it ends");
            assert!(status.success(), "{status}");
            since.elapsed()
        };
        ends_within_a_second("an arbiter", || {
            let mut arbiter = site.arbiter(&ArbiterSpec::default());
            let mut node = site.node(0, arbiter.url());
            let took = end(&mut node.process);
            took.max(end(&mut arbiter.process))
        });
    }
}

/// Each was tried by somebody who knew the help texts alone.
#[test]
fn what_can_only_be_a_mistake_is_refused_and_named() {
    let dir = tempfile::tempdir().unwrap();
    let (at, secret) = (text(dir.path()), secret(dir.path()));
    let node = ["node", "--listen", "tcp:127.0.0.1:0", "--secret-file", &secret];
    let exports = [format!("{at}=s"), format!("{at}=s")];
    let twice = [&node[..], &["--export", &exports[0], "--export", &exports[1]]].concat();
    refused(&twice, 1, &["two exports are called s"]);
    refused(&[&node[..], &["--export", &at, "--metrics", "unix:/x"]].concat(), 2, &["write HOST:PORT"]);
    refused(&["torture", "--seconds", "1", "--keep", "/dev/null/x"], 1, &["/dev/null/x"]);
    refused(
        &["node", "stats", "tcp:127.0.0.1:1", "--secret-file", "/dev/null"],
        1,
        &["no file that a secret"],
    );
    refused(&["node", "stats", "tcp:127.0.0.1:1", "--secret-file", &secret], 1, &["does not answer", ":1: "]);
    for (app, why) in [("x/y", "has a slash"), ("", "it is empty")] {
        let run = ["run", "--arbiter", "http://127.0.0.1:1", "--app", app, "--at", &at, "--", "true"];
        refused(&run, 125, &["--app", why]);
    }
    let jobs = dir.path().join("jobs.json");
    let job = r#"[{"id": "a", "compute_nodes": 16, "processes": 4, "curve": {"3": 5.0}}]"#;
    for (text, why) in [
        (job.replace("\"a\"", "\"a\\u001b[1m\""), "its id is empty, or has control characters"),
        (job.replace("\"processes\": 4", "\"processes\": 0"), "at least one process"),
        (job.replace("\"curve\"", "\"current\": 99, \"curve\""), "holds more I/O nodes than there are"),
    ] {
        std::fs::write(&jobs, text).unwrap();
        refused(&["allocate", "--policy", "mckp", "--io-nodes", "4", &self::text(&jobs)], 1, &[why]);
    }
    std::fs::write(&jobs, job).unwrap();
    let allocate = ["allocate", "--policy", "mckp", "--io-nodes", "4", &self::text(&jobs)];
    refused(&[&allocate[..], &["--compute-nodes", "0"]].concat(), 2, &["from 1 to 10000000"]);
    refused(&[&allocate[..], &["--compute-nodes", "8"]].concat(), 1, &["the jobs have 16 compute nodes"]);
    let (status, says, _) = run(&allocate);
    assert!(status == Some(0) && says.contains("no count of its curve divides"), "{says}");
}

/// A word that switches nothing, a file that would count twice, a name with a `=`.
#[test]
fn what_would_silently_mean_something_else_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (at, named) = (text(dir.path()), dir.path().join("a=b"));
    let out = forebay(&["run", "--at", &at, "--", "true"]).env("FOREBAY_SPIN", "of").output().unwrap();
    let (status, _, says) = outcome(&out);
    assert_eq!(
        (status, says.as_str()),
        (Some(125), "forebay: FOREBAY_SPIN=of: it takes on, off or always\n")
    );
    let data = concat!(env!("CARGO_MANIFEST_DIR"), "/../../data/santosdumont.csv");
    refused(&["analyze", data, data], 1, &["its rows would count twice"]);
    refused(&["train", data, data], 1, &["its rows would count twice"]);
    let (out, same) = (text(&dir.path().join("one")), text(&dir.path().join(".").join("one")));
    let outputs = ["train", data, "--out", &out, "--save-data", &same];
    refused(&outputs, 1, &["--out and --save-data name the same file"]);
    refused(&["simulate", "queue", "--io-nodes", "0"], 2, &["from 1 to 100000"]);
    std::fs::create_dir(&named).unwrap();
    refused(&["run", "--at", &text(&named), "--", "true"], 125, &["write `", r"a\=b`"]);
    let (at, script) = (text(&named).replace('=', r"\="), format!("echo x > '{}/f'", text(&named)));
    let (status, _, says) = run(&["run", "--quiet", "--at", &at, "--", "sh", "-c", &script]);
    assert_eq!(status, Some(0), "{says}");
    assert_eq!(std::fs::read_to_string(named.join("f")).unwrap(), "x\n");
}

#[test]
fn what_is_hidden_is_not_offered() {
    for shell in ["bash", "zsh", "fish"] {
        let (status, script, _) = run(&["completions", shell]);
        assert_eq!(status, Some(0));
        for hidden in ["run-rest", "mount-inside", "mount-watch", "torture-worker", "limit-server", "--break"]
        {
            assert!(!script.contains(hidden), "{shell}: {hidden}");
        }
        assert!(script.contains("simulate") && script.contains("front-ends"), "{shell}");
    }
}

#[test]
fn what_is_out_of_range_is_a_mistake_of_the_command_line() {
    let (data, rewards) = (repository("data/marenostrum4.csv"), repository("data/twins_rewards.csv"));
    for (args, says) in [
        (&["simulate", "queue", "--share", "-1"][..], "a number from 0 to 1"),
        (&["simulate", "requests", "--seed", "-1"], "from 0 to 18446744073709551615"),
        (&["simulate", "month", "--days", "0"], "from 0.01 to 2000"),
        (&["simulate", "policies", &data, "--sets", "0"], "from 1 to 10000000"),
        (&["learned", "replay", &rewards, "--epsilon", "2"], "a number from 0 to 1"),
        (&["learned", "replay", &rewards, "--repetitions", "100001"], "from 1 to 100000"),
        (&["reproduce", "--list", "nosuch"], "cannot be used with"),
        (&["explore", "x.toml", "--export", "y"], "--nodes"),
    ] {
        refused(args, 2, &[says]);
    }
    refused(&["run", "--at", "/tmp", "--deadline", "-1", "--", "true"], 125, &["0.1 to 86400 seconds"]);
    refused(&["simulate", "policies", &data, "--io-nodes", "8,16,8"], 1, &["--io-nodes names 8 twice"]);
}

#[test]
fn figures_that_nobody_measured_stay_readable() {
    let dir = tempfile::tempdir().unwrap();
    let table = dir.path().join("b.csv");
    let header = "scenario,compute_nodes,processes,layout,spatiality,request_kb,io_nodes,bandwidth_mbs";
    std::fs::write(&table, format!("{header}\nx,1,1,0,0,32,0,1e308\nx,1,1,0,0,32,0,1e308\n")).unwrap();
    let (status, says, why) = run(&["analyze", &text(&table)]);
    assert_eq!(status, Some(0), "{why}");
    assert!(says.starts_with("1 scenario, 2 measurements\n") && says.contains("*1.00e308 ["), "{says}");
}

#[test]
fn help_is_broken_into_lines_once() {
    for command in ["run", "join", "mount", "node", "arbiter", "jobs", "nodes", "limit", "blame", "explore"] {
        let (_, help, _) = run(&[command, "--help"]);
        // What was broken by hand stands below the options; one word there is what did not fit.
        let below = help.split("Print version").last().unwrap();
        let alone: Vec<&str> = below.lines().filter(|l| l.split_whitespace().count() == 1).collect();
        let broken: Vec<_> = alone.iter().filter(|l| l.starts_with(' ') && !l.contains('-')).collect();
        assert!(broken.is_empty(), "{command}: {broken:?}");
    }
}
