//! A job whose compute nodes have the file system mounted goes direct when the arbiter thinks that better, and
//! back, while it runs: no call fails, no byte is wrong.

use forebay_testkit::{ArbiterSpec, Process, Site, free_address, until};
use serde_json::Value;
use std::io::Read;
use std::process::Stdio;
use std::time::Duration;

/// Direct access is the best for the one, and not measured for the other.
const CURVES: &str = "scenario,compute_nodes,processes,layout,spatiality,request_kb,io_nodes,bandwidth_mbs,operation,low_mbs,high_mbs,std_dev_mbs,samples
flat,1,1,0,0,1024,0,500,write,490,510,1,3
flat,1,1,0,0,1024,1,100,write,90,110,1,3
";

/// Writes, reads, renames and removes files, and appends to two that it has opened long before.
const SCRIPT: &str = "cd $D || exit 1; exec 7>>early; i=0; \
    while [ ! -e $STOP ]; do i=$((i + 1)); \
    seq $i $((i + 2000)) > a || exit 1; seq $i $((i + 2000)) | cmp - a || exit 2; \
    mv a b || exit 3; seq $i $((i + 2000)) | cmp - b || exit 4; rm b || exit 5; \
    mkdir d$i && [ -d d$i ] && rmdir d$i || exit 6; \
    echo $i >&7 || exit 7; echo $i >> late || exit 8; \
    [ $((i % 20)) = 0 ] && { exec 7>&- 7>>early || exit 9; }; echo $i > $STOP.round; done; echo $i";

#[test]
fn a_program_goes_direct_and_back() {
    let (site, address) = (Site::new(), free_address());
    let url = format!("http://{address}");
    let path = |name: &str| site.path().join(name);
    std::fs::write(path("curves.csv"), CURVES).unwrap();
    let _arbiter = site.arbiter(&ArbiterSpec {
        name: "state".into(),
        listen: address.clone(),
        settings: format!("policy = \"mckp\"\ncurves = \"{}\"\n", path("curves.csv").display()),
        ..ArbiterSpec::default()
    });
    let (data, stop) = (path("data"), path("stop"));
    let here = data.display().to_string();
    // It exports the directory under the path that it has here; the run waits until it is there.
    let listen = format!("tcp:{}", free_address());
    let mut node =
        site.command(&["node", "--id", "0", "--as", "self", "--listen", &listen, "--export", &here]);
    let secret = site.secret_file();
    let log = std::fs::File::create(path("node.log")).unwrap();
    let _node = Process::start(
        node.args(["--arbiter", &url, "--secret-file"]).arg(secret).stdout(Stdio::null()).stderr(log),
    )
    .unwrap();
    let script = format!("D={}; STOP={}; {SCRIPT}", data.display(), stop.display());
    let mut run = site.command(&["run", "--quiet", "--arbiter", &url, "--job", "j", "--at", &here]);
    run.args(["--pattern", "flat", "--fallback", "direct", "--", "sh", "-c", &script]);
    let errors = std::fs::File::create(path("errors")).unwrap();
    let mut program = Process::start(run.stdout(Stdio::piped()).stderr(errors)).unwrap();

    let tool = |args: &[&str]| site.command(args).env("FOREBAY_ARBITER", &url).output().unwrap();
    let job = || {
        let out = tool(&["jobs", "--json"]).stdout;
        let jobs: Value = serde_json::from_slice(&out).unwrap_or_default();
        jobs.as_array().and_then(|all| all.iter().find(|j| j["id"] == "j").cloned()).unwrap_or_default()
    };
    let rounds =
        || std::fs::read_to_string(path("stop.round")).ok().and_then(|t| t.trim().parse::<u64>().ok());
    let wait =
        |why: &str, holds: &dyn Fn() -> bool| until(Duration::from_secs(60), why, || holds().then_some(()));
    let work = |more: u64| {
        let before = rounds().unwrap_or(0);
        wait("it works", &|| rounds().is_some_and(|now| now >= before + more));
    };
    let bytes = || job()["bytes"].as_u64().unwrap_or(0);
    work(3);
    for turn in 0..4 {
        assert_eq!(job()["nodes"], serde_json::json!([]), "direct: {}", job());
        // Processes look a few times a second, and what was opened before is closed.
        work(25);
        // What was counted last is heard of later.
        wait(&format!("turn {turn}: nothing more goes through the I/O node"), &|| {
            let before = bytes();
            work(10);
            bytes() - before < 10_000
        });
        let before = bytes();
        assert!(tool(&["jobs", "pin", "j", "0"]).status.success());
        wait("its files come through the I/O node", &|| bytes() > before + 100_000);
        assert_eq!(job()["nodes"], serde_json::json!([0]));
        assert!(tool(&["jobs", "pin", "j"]).status.success());
        work(2);
    }
    std::fs::write(&stop, "").unwrap();
    let mut said = String::new();
    program.output().unwrap().read_to_string(&mut said).unwrap();
    let status = program.wait().unwrap();
    assert!(status.success(), "{status}: {said}{}", std::fs::read_to_string(path("errors")).unwrap());
    let last: u64 = said.trim().parse().unwrap();
    let all: String = (1..=last).map(|i| format!("{i}\n")).collect();
    for name in ["early", "late"] {
        assert_eq!(
            std::fs::read_to_string(data.join(name)).unwrap(),
            all,
            "{name}: every line once, in order"
        );
    }
}
