//! `sbatch --forebay=…`: the SPANK plugin of contrib/slurm in a real Slurm. Jobs are registered while they run, and at
//! no other time.

#[path = "cluster/site.rs"]
#[allow(dead_code)] // the other tests of the cluster use more of it
mod site;

use forebay_testkit::until;
use site::{FOREBAY, PATIENCE, Site, said};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

fn contrib() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../contrib/slurm")
}

/// The jobs that the arbiter knows.
fn jobs(site: &Site) -> Vec<String> {
    let all = site.jobs("https://10.77.0.6:7410").expect("the arbiter answers");
    all.iter().map(|j| j["id"].as_str().unwrap_or_default().to_owned()).collect()
}

/// Nothing of any job is left: no registration, no process, no file.
fn nothing_left(site: &Site, of: &str) {
    let began = Instant::now();
    while !jobs(site).is_empty() {
        assert!(
            began.elapsed() < PATIENCE,
            "{of}: the arbiter still knows {:?}\n{}",
            jobs(site),
            site.hosts.ok("c1", "tail -n 40 /mnt/slurm/slurmd-c1.log")
        );
        std::thread::sleep(Duration::from_millis(100));
    }
    let left = || {
        let line =
            "pgrep -af 'forebay run --quie[t]'; ls -AR /mnt/home/.forebay; cat /mnt/home/.forebay/*/log";
        String::from_utf8_lossy(&site.hosts.sh("c1", line).stdout).into_owned()
    };
    let empty = |text: &str| text.trim() == "/mnt/home/.forebay:";
    let began = Instant::now();
    while !empty(&left()) {
        assert!(began.elapsed() < PATIENCE, "{of}: left behind: {}", left());
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// A Slurm with the plugin, and an arbiter with two I/O nodes.
fn with_plugin(test: &str) -> Option<Site> {
    let tools = ["sbatch", "srun", "slurmctld", "slurmd", "munged", "gcc", "make"];
    let mut site = Site::up(test, &tools)?;
    if !Path::new("/usr/include/slurm/spank.h").exists() {
        forebay_testkit::skipped(test, "libslurm-dev is not installed (see scripts/test-packages)");
        return None;
    }
    let shared = site.hosts.shared();
    let object = shared.join("forebay.so");
    let mut make = Command::new("gcc");
    make.args(["-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", "-o"]).arg(&object);
    assert!(make.arg(contrib().join("spank_forebay.c")).status().unwrap().success(), "the plugin compiles");
    std::fs::copy(contrib().join("forebay-slurm"), shared.join("forebay-slurm")).unwrap();
    std::fs::create_dir(shared.join("slurm")).unwrap();
    let plugin = format!(
        "required /mnt/forebay.so helper=/mnt/forebay-slurm program={FOREBAY} arbiter=https://10.77.0.6:7410 \
         secret=/mnt/secret\n"
    );
    std::fs::write(shared.join("slurm/plugstack.conf"), plugin).unwrap();
    site.serve();
    site.slurm();
    Some(site)
}

#[test]
fn sbatch_scancel_arrays_and_requeue() {
    let Some(site) = with_plugin("sbatch_scancel_arrays_and_requeue") else { return };
    let shared = site.hosts.shared();
    let data = site.data();
    let read = |name: &str| std::fs::read_to_string(data.join(name)).unwrap_or_default();

    // What cannot be meant is said when it is submitted.
    let (out, _) = site.shell("sbatch --forebay=scratch --wrap true");
    assert!(!out.status.success() && said(&out).contains("begins with /"), "{}", said(&out));
    let (out, _) = site.shell("srun --help");
    assert!(said(&out).contains("--forebay=DIR"), "{}", said(&out));

    // Every task of every host: there is no /fwd but through the I/O nodes.
    let script =
        "#!/bin/sh\necho batch > /fwd/batch\nsrun -n 6 sh -c 'echo $(uname -n) > /fwd/rank-$SLURM_PROCID'\n";
    std::fs::write(shared.join("job.sh"), script).unwrap();
    let (out, _) =
        site.shell("sbatch --wait -N 3 --ntasks-per-node=2 --forebay=/fwd=data -o /mnt/out /mnt/job.sh");
    let output = std::fs::read_to_string(shared.join("out")).unwrap_or_default();
    assert!(out.status.success(), "{}\n{output}", said(&out));
    let ranks: Vec<String> = (0..6).map(|r| read(&format!("rank-{r}")).trim().to_owned()).collect();
    assert_eq!((ranks.join(" ").as_str(), read("batch").trim()), ("c1 c1 c2 c2 c3 c3", "batch"), "{output}");
    nothing_left(&site, "sbatch");

    // A step of its own, whose tasks do not end together: it is held until the last one has.
    for late in 0..2 {
        let task = format!("[ $SLURM_PROCID != {late} ] || sleep 2; echo x > /fwd/step-{late}-$SLURM_PROCID");
        let (out, _) = site.shell(&format!("srun -N 2 -n 2 --forebay=/fwd=data sh -c '{task}'"));
        assert!(out.status.success(), "{}", said(&out));
        let wrote = [0, 1].map(|rank| read(&format!("step-{late}-{rank}")));
        assert_eq!(wrote, ["x\n", "x\n"], "{}", said(&out));
        nothing_left(&site, "a step");
    }

    // An allocation, whose steps are registered each.
    let (out, _) =
        site.shell("salloc -N 2 --forebay=/fwd=data srun -n 2 sh -c 'echo x > /fwd/held-$SLURM_PROCID'");
    assert!(out.status.success(), "{}", said(&out));
    assert_eq!([read("held-0"), read("held-1")], ["x\n", "x\n"], "{}", said(&out));
    nothing_left(&site, "salloc");

    // An array: each of it is a job.
    let array = "#!/bin/sh\necho $SLURM_ARRAY_TASK_ID > /fwd/array-$SLURM_ARRAY_TASK_ID\n";
    std::fs::write(shared.join("array.sh"), array).unwrap();
    let (out, _) =
        site.shell("sbatch --wait --array=0-3 -N 1 --forebay=/fwd=data -o /mnt/array-%a /mnt/array.sh");
    assert!(out.status.success(), "{}", said(&out));
    assert!((0..4).all(|n| read(&format!("array-{n}")) == format!("{n}\n")));
    nothing_left(&site, "an array");

    // A job that brings hardly any environment, nor do its steps.
    let bare = "echo x > /fwd/bare; /usr/bin/srun -N 2 -n 2 /bin/sh -c 'echo x > /fwd/bare-$SLURM_PROCID'\n";
    std::fs::write(shared.join("bare.sh"), format!("#!/bin/sh\n{bare}")).unwrap();
    let (out, _) = site
        .shell("sbatch --wait -N 2 --export=HOME,FOREBAY_CA --forebay=/fwd=data -o /mnt/bare /mnt/bare.sh");
    let output = std::fs::read_to_string(shared.join("bare")).unwrap_or_default();
    assert!(out.status.success(), "{}\n{output}", said(&out));
    assert_eq!(["bare", "bare-0", "bare-1"].map(read), ["x\n", "x\n", "x\n"], "{output}");
    nothing_left(&site, "a job without an environment");

    // What cannot be done is said where the job's output goes; the host stays in service.
    let (out, _) =
        site.shell("sbatch --wait -N 1 --forebay=/fwd=nothing -o /mnt/refused --wrap 'touch /mnt/ran'");
    let output = std::fs::read_to_string(shared.join("refused")).unwrap_or_default();
    assert!(!out.status.success() && !shared.join("ran").exists(), "{}\n{output}", said(&out));
    assert!(output.contains("the task is not started"), "{output}");
    nothing_left(&site, "a job that could not be registered");
    let (out, _) = site.shell("sinfo -h -p main -t idle,alloc,mix,comp -o %D");
    assert_eq!(String::from_utf8_lossy(&out.stdout).trim(), "3", "{}", said(&out));

    // Cancelled, and queued again, while it runs.
    let lasting = "#!/bin/sh\necho run >> /fwd/lasting\nsleep 600\n";
    std::fs::write(shared.join("lasting.sh"), lasting).unwrap();
    let (out, _) =
        site.shell("sbatch --parsable --requeue -N 1 --forebay=/fwd=data -o /mnt/lasting /mnt/lasting.sh");
    let id = String::from_utf8_lossy(&out.stdout).trim().to_owned();
    until(PATIENCE, "it runs", || (read("lasting") == "run\n").then_some(()));
    let named = jobs(&site);
    assert!(named.len() == 1 && named[0].starts_with(&format!("slurm-{id}-0-")), "{named:?}");
    let (out, _) = site.shell(&format!("scontrol requeue {id}"));
    assert!(out.status.success(), "{}", said(&out));
    until(PATIENCE, "it runs again", || {
        site.shell(&format!("scontrol update jobid={id} StartTime=now"));
        (read("lasting") == "run\nrun\n").then_some(())
    });
    let began = Instant::now();
    let one = |names: &[String]| names.len() == 1 && names[0].starts_with(&format!("slurm-{id}-"));
    while !one(&jobs(&site)) {
        assert!(began.elapsed() < PATIENCE, "the arbiter knows {:?}", jobs(&site));
        std::thread::sleep(Duration::from_millis(100));
    }
    let (out, _) = site.shell(&format!("scancel {id}"));
    assert!(out.status.success(), "{}", said(&out));
    nothing_left(&site, "scancel");

    // What watches over the batch script is killed, and cannot release the job any more.
    let (out, _) = site.shell("sbatch --parsable --no-requeue -w c1 --forebay=/fwd=data -o /mnt/orphan --wrap 'echo x > /fwd/orphan; sleep 8'");
    let id = String::from_utf8_lossy(&out.stdout).trim().to_owned();
    until(PATIENCE, "it runs", || (read("orphan") == "x\n").then_some(()));
    site.hosts.ok("c1", &format!("pkill -KILL -f 'slurmstepd: [[]{id}[.]batch'"));
    nothing_left(&site, "a job whose slurmstepd was killed");
    site.shell(&format!("scancel {id}; while squeue -h -j {id} | grep -q .; do sleep 0.2; done"));

    // Somebody has begun a job under the name that the next one would have without something that nobody can guess.
    let next: u64 = id.parse::<u64>().unwrap() + 1;
    let squat = format!(
        "{FOREBAY} run --quiet --arbiter https://10.77.0.6:7410 --secret-file /mnt/secret --at /fwd=data \
         --job slurm-{next}-0 --"
    );
    let (out, _) = site.shell(&format!("{squat} sh -c \"sbatch --wait -N 1 --forebay=/fwd=data -o /mnt/squat --export=HOME,PATH,FOREBAY_CA --wrap 'echo x > /fwd/squatted'\""));
    assert!(out.status.success() && read("squatted") == "x\n", "{}", said(&out));
    nothing_left(&site, "a name that was taken");

    // `forebay run` written by the user: in a batch script and as a step of one task it is a job, in one of
    // several it is refused.
    let own =
        |name: &str| format!("{FOREBAY} run --quiet --io-nodes 1 --at /own=/mnt/data -- touch /own/{name}");
    let batch = format!("sbatch --wait -N 2 --ntasks-per-node=2 -o /mnt/own --wrap '{}'", own("by-batch"));
    let (out, _) = site.shell(&batch);
    let output = std::fs::read_to_string(shared.join("own")).unwrap_or_default();
    assert!(out.status.success() && data.join("by-batch").exists(), "{}\n{output}", said(&out));
    let (out, _) = site.shell(&format!("srun -n 1 {}", own("by-one")));
    assert!(out.status.success() && data.join("by-one").exists(), "{}", said(&out));
    let (out, _) = site.shell(&format!("srun -n 2 {}", own("by-two")));
    assert!(!out.status.success() && said(&out).contains("-- srun -n 2 touch /own/by-two"), "{}", said(&out));
    assert!(!data.join("by-two").exists(), "{}", said(&out));

    // The host that holds a job dies: its lease runs out.
    let (out, _) =
        site.shell("sbatch --parsable --no-requeue -w c3 --forebay=/fwd=data -o /mnt/dying /mnt/lasting.sh");
    assert!(out.status.success(), "{}", said(&out));
    until(PATIENCE, "it runs on the third host", || (read("lasting").lines().count() == 3).then_some(()));
    assert_eq!(jobs(&site).len(), 1);
    site.hosts.kill("c3");
    until(PATIENCE, "the arbiter has forgotten the dead host's job", || jobs(&site).is_empty().then_some(()));

    // What it left on the shared directory: another host cannot know at once that nobody lives there, and the
    // directory stays; when there has been no sign of life for long, the user's next run removes it.
    let home = shared.join("home/.forebay");
    let left = || {
        let names = std::fs::read_dir(&home).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.collect();
        names.sort();
        names
    };
    let run = format!("{FOREBAY} run --quiet --share /mnt/home/.forebay --at /own=/mnt/data -- true");
    let of_dead_host = left();
    let kinds: Vec<&str> = of_dead_host.iter().filter_map(|n| n.split('-').next()).collect();
    assert_eq!(kinds, ["forebay", "slurm"], "{of_dead_host:?}");
    let (out, _) = site.shell(&run);
    assert!(out.status.success(), "{}", said(&out));
    assert_eq!(left(), of_dead_host);
    let lease = home.join(&of_dead_host[0]).join("lease");
    let long_ago = std::time::SystemTime::now() - Duration::from_secs(25 * 3600);
    std::fs::File::options().write(true).open(lease).unwrap().set_modified(long_ago).unwrap();
    let (out, _) = site.shell(&run);
    assert!(out.status.success(), "{}", said(&out));
    assert_eq!(left(), [""; 0]);
}

/// What a job is called, how many tasks it has, I/O nodes of its own, and options within and beside each other.
#[test]
fn names_tasks_and_options_within_options() {
    let Some(site) = with_plugin("names_tasks_and_options_within_options") else { return };
    let shared = site.hosts.shared();
    let read = |name: &str| std::fs::read_to_string(site.data().join(name)).unwrap_or_default();
    let output = |name: &str| std::fs::read_to_string(shared.join(name)).unwrap_or_default();

    // Slurm takes any name.
    let wait = "until [ -e /mnt/go ]; do sleep 0.1; done";
    let (out, _) = site.shell(&format!(
        "sbatch -J run/42 -N 3 --ntasks-per-node=2 --forebay=/fwd=data -o /mnt/out --wrap 'echo x > /fwd/named; {wait}'"
    ));
    assert!(out.status.success(), "{}", said(&out));
    until(PATIENCE, "it runs", || (read("named") == "x\n").then_some(()));
    let job = site.jobs("https://10.77.0.6:7410").and_then(|mut all| all.pop()).expect("the job is known");
    assert_eq!((&job["app"], &job["processes"]), (&"run_42".into(), &6.into()), "{job:#}");
    assert_eq!(job["hosts"], serde_json::json!(["c1", "c2", "c3"]), "{job:#}");
    std::fs::write(shared.join("go"), "").unwrap();
    nothing_left(&site, "a job with a slash in its name");
    for (n, name) in ["-x".to_owned(), "ä".repeat(300)].iter().enumerate() {
        let line = format!(
            "sbatch --wait --job-name='{name}' --forebay=/fwd=data -o /mnt/out --wrap 'echo x > /fwd/name-{n}'"
        );
        let (out, _) = site.shell(&line);
        assert!(out.status.success() && read(&format!("name-{n}")) == "x\n", "{name}: {}", said(&out));
    }

    // I/O nodes on hosts of the job.
    let task = "sh -c 'echo x > /own/srun-$SLURM_PROCID'";
    let (out, _) = site.shell(&format!("srun -N 3 -n 3 --forebay=/own=/mnt/data,io-nodes=2 {task}"));
    assert!(out.status.success() && (0..3).all(|r| read(&format!("srun-{r}")) == "x\n"), "{}", said(&out));
    nothing_left(&site, "a step with I/O nodes of its own");
    let script = "#!/bin/sh\nsrun -n 3 sh -c 'echo x > /own/batch-$SLURM_PROCID'\n";
    std::fs::write(shared.join("own.sh"), script).unwrap();
    let (out, _) =
        site.shell("sbatch --wait -N 3 -n 3 --forebay=/own=/mnt/data,io-nodes=2 -o /mnt/out /mnt/own.sh");
    let wrote = (0..3).all(|r| read(&format!("batch-{r}")) == "x\n");
    assert!(out.status.success() && wrote, "{}\n{}", said(&out), output("out"));
    nothing_left(&site, "a job with I/O nodes of its own");

    // A step of a forwarded job that asks for the same has it; for something else, it does not run.
    let script = "#!/bin/sh\nsrun -n 1 --forebay=/fwd=data sh -c 'echo x > /fwd/same'\n\
                  srun -n 1 --forebay=/other=data touch /mnt/ran\necho ended $?\n";
    std::fs::write(shared.join("two.sh"), script).unwrap();
    let (out, _) = site.shell("sbatch --wait -n 1 --forebay=/fwd=data -o /mnt/out /mnt/two.sh");
    let text = output("out");
    assert!(out.status.success(), "{}\n{text}", said(&out));
    assert_eq!(read("same"), "x\n", "{text}");
    assert!(text.contains("forwarded with /fwd=data, and a step of it cannot have /other=data"), "{text}");
    assert!(!shared.join("ran").exists() && !text.contains("ended 0"), "{text}");
    nothing_left(&site, "a step with another option");
    // What the environment has of a job that is gone does not count.
    let stale = "FOREBAY_CONFIG=/gone/config srun -n 1 --forebay=/fwd=data sh -c 'echo x > /fwd/stale'";
    let (out, _) = site.shell(stale);
    assert!(out.status.success() && read("stale") == "x\n", "{}", said(&out));
    // In an allocation a step's own takes the place of the allocation's, which nothing has been begun for.
    let (out, _) = site.shell(
        "salloc -N 1 --forebay=/fwd=data srun -n 1 --forebay=/other=data sh -c 'echo x > /other/alloc'",
    );
    assert!(out.status.success() && read("alloc") == "x\n", "{}", said(&out));
    let (out, _) = site.shell("srun -n 1 --forebay=/fwd=data --forebay=/other=data touch /mnt/ran");
    assert!(!out.status.success() && !shared.join("ran").exists(), "{}", said(&out));
    assert!(said(&out).contains("one of them would not be done"), "{}", said(&out));
    let run = format!("{FOREBAY} run --quiet --share /mnt/home/.forebay --at /own=/mnt/data --");
    let (out, _) = site.shell(&format!("{run} srun -n 1 --forebay=/fwd=data touch /mnt/ran"));
    assert!(!out.status.success() && !shared.join("ran").exists(), "{}", said(&out));
    assert!(said(&out).contains("this is run by `forebay run`"), "{}", said(&out));
    nothing_left(&site, "steps that did not run");
}

/// TaskProlog and Epilog in place of the plugin.
#[test]
fn without_spank() {
    let tools = ["sbatch", "srun", "slurmctld", "slurmd", "munged", "runuser"];
    let Some(mut site) = Site::up("without_spank", &tools) else { return };
    let shared = site.hosts.shared();
    for script in ["forebay-slurm", "task-prolog", "epilog"] {
        std::fs::copy(contrib().join(script), shared.join(script)).unwrap();
    }
    // Where the user's home is here: Slurm's epilog has the one of the user database.
    let epilog = "#!/bin/sh\nexport FOREBAY_SHARE=/mnt/home/.forebay\nexec /mnt/epilog\n";
    std::fs::write(shared.join("site-epilog"), epilog).unwrap();
    site.hosts.ok("c1", "chmod 755 /mnt/site-epilog");
    site.serve();
    site.slurm_with("TaskProlog=/mnt/task-prolog\nEpilog=/mnt/site-epilog\n");
    let read = |name: &str| std::fs::read_to_string(site.data().join(name)).unwrap_or_default();
    let job = |export: &str| {
        format!(
            "export FOREBAY_PROGRAM={FOREBAY} FOREBAY_ARBITER=https://10.77.0.6:7410 \
             FOREBAY_SECRET_FILE=/mnt/secret FOREBAY_SLURM=/fwd={export};"
        )
    };
    let script = "#!/bin/sh\nid -u > /fwd/batch\nsrun -n 4 sh -c 'uname -n > /fwd/rank-$SLURM_PROCID'\n";
    std::fs::write(shared.join("job.sh"), script).unwrap();
    let batch = "sbatch --wait -N 2 --ntasks-per-node=2 -o /mnt/out /mnt/job.sh";
    let (out, _) = site.shell(&format!("{} {batch}", job("data")));
    let output = std::fs::read_to_string(shared.join("out")).unwrap_or_default();
    assert!(out.status.success(), "{}\n{output}", said(&out));
    let ranks: Vec<String> = (0..4).map(|r| read(&format!("rank-{r}")).trim().to_owned()).collect();
    assert_eq!((ranks.join(" ").as_str(), read("batch").as_str()), ("c1 c1 c2 c2", "0\n"), "{output}");
    nothing_left(&site, "sbatch");
    // A step of its own, whose tasks do not end together.
    let step = "srun -N 2 -n 4 sh -c 'sleep $SLURM_PROCID; echo x > /fwd/step-$SLURM_PROCID'";
    let (out, _) = site.shell(&format!("{} {step}", job("data")));
    assert!(out.status.success(), "{}", said(&out));
    assert!((0..4).all(|r| read(&format!("step-{r}")) == "x\n"), "{}", said(&out));
    nothing_left(&site, "a step");
    // A step that asks for something else than its job has.
    let other = "#!/bin/sh\nFOREBAY_SLURM=/other=data srun -n 1 touch /mnt/ran\necho ended $?\n";
    std::fs::write(shared.join("other.sh"), other).unwrap();
    let (out, _) = site.shell(&format!("{} sbatch --wait -o /mnt/out /mnt/other.sh", job("data")));
    let output = std::fs::read_to_string(shared.join("out")).unwrap_or_default();
    assert!(out.status.success() && !shared.join("ran").exists(), "{}\n{output}", said(&out));
    assert!(output.contains("cannot have /other=data instead") && !output.contains("ended 0"), "{output}");
    nothing_left(&site, "a step with another option");
    // What cannot be done is said by every task, and none runs.
    let (out, _) = site.shell(&format!("{} srun -N 2 -n 4 touch /mnt/ran", job("nothing")));
    assert!(!out.status.success() && !shared.join("ran").exists(), "{}", said(&out));
    assert!(said(&out).contains("it does not serve \"nothing\""), "{}", said(&out));
    assert_eq!(said(&out).matches("the task is not started").count(), 4, "{}", said(&out));
    nothing_left(&site, "a job that could not be registered");
    let (out, _) = site.shell("srun -N 2 -n 2 sh -c 'echo \"<$LD_PRELOAD>\"'");
    assert_eq!(String::from_utf8_lossy(&out.stdout), "<>\n<>\n", "who does not ask for it has nothing of it");
}

/// Where users share a directory, another one may have made what the helper looks for, or have put a library there.
#[test]
fn what_somebody_else_has_put_there_is_not_believed() {
    const TEST: &str = "what_somebody_else_has_put_there_is_not_believed";
    if !forebay_testkit::needs(TEST, &["setpriv"]) {
        return;
    }
    if !rustix::process::geteuid().is_root() {
        return forebay_testkit::skipped(TEST, "two users take root");
    }
    let dir = tempfile::tempdir().unwrap();
    let open = |path: &Path, mode| {
        std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
    };
    open(dir.path(), 0o1777);
    let helper = dir.path().join("forebay-slurm");
    std::fs::copy(contrib().join("forebay-slurm"), &helper).unwrap();
    let (a, b) = ("7001", "7002");
    let as_user = |uid: &str, line: &str| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", uid, "--regid", uid, "--clear-groups", "bash", "-c", line, "bash"]);
        command.arg(&helper).env("FOREBAY_SHARE", dir.path()).env("FOREBAY_SLURM_WAIT", "3");
        command.current_dir(dir.path()).env("HOME", dir.path()).output().unwrap()
    };
    let plant =
        "mkdir slurm-7-0 && echo LD_PRELOAD=/tmp/b.so > slurm-7-0/env && echo 1 $(uname -n) > slurm-7-0/pid";
    for (planted, how) in [
        (b, plant.to_owned()),
        (b, format!("{plant} && chmod 700 slurm-7-0")),
        (a, format!("{plant} && chmod 777 slurm-7-0")),
    ] {
        assert!(as_user(planted, &how).status.success());
        for line in ["$1 start 7-0 0 /fwd", "$1 start 7-0 1 /fwd", "$1 stop 7-0"] {
            let out = as_user(a, line);
            assert!(!out.status.success() && out.stdout.is_empty(), "{line}: {}", said(&out));
            assert!(said(&out).contains("not this user's own"), "{line}: {}", said(&out));
        }
        std::fs::remove_dir_all(dir.path().join("slurm-7-0")).unwrap();
    }
    // A link to what is one's own, and one's own.
    assert!(as_user(a, &format!("{plant} && chmod 700 slurm-7-0 && mv slurm-7-0 own")).status.success());
    assert!(as_user(b, "ln -s own slurm-7-0").status.success());
    assert!(said(&as_user(a, "$1 start 7-0 1 /fwd")).contains("not this user's own"));
    std::fs::remove_file(dir.path().join("slurm-7-0")).unwrap();
    std::fs::rename(dir.path().join("own"), dir.path().join("slurm-7-0")).unwrap();
    assert_eq!(said(&as_user(a, "$1 start 7-0 1 /fwd")).trim(), "LD_PRELOAD=/tmp/b.so");
}
