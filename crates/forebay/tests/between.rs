//! Somebody in between any two parties, who hears all that goes through and can say it again; somebody in the place of one of
//! them; and users whose groups change.

mod world;

use forebay_testkit::{
    ArbiterProcess, ArbiterSpec, NodeProcess, Process, Recorder, Signal, say_again, until,
};
use forebay_types::Secret;
use serde_json::Value;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use world::*;

/// An arbiter by TLS and an I/O node, and somebody in front of each.
struct Between {
    arbiter: Recorder,
    node: Recorder,
    url: String,
    ca: PathBuf,
    as_whom: Vec<String>,
    process: NodeProcess,
    real_arbiter: String,
    _arbiter: ArbiterProcess,
}

impl Between {
    fn start(world: &mut World, as_whom: &[&str]) -> Between {
        forebay_testkit::certificates(world.dir.path(), "127.0.0.1");
        let settings = std::fs::read_to_string(world.at("arbiter.toml")).unwrap();
        let settings = format!("certificate = \"arb.pem\"\nkey = \"arb.key\"\n{settings}");
        let spec = ArbiterSpec { name: "tls".into(), settings, ..ArbiterSpec::default() };
        let tls = world.launcher.arbiter(&spec).unwrap();
        let real_arbiter = tls.url().strip_prefix("https://").unwrap().to_owned();
        let arbiter = Recorder::in_front_of(&real_arbiter);
        let url = format!("https://{}", arbiter.address);
        let (node, ca) = (Recorder::start(), world.at("ca.pem"));
        drop(world.node.take());
        let reached = format!("reached-at = [\"tcp:{}\"]\n", node.address);
        std::fs::write(world.at("reached.toml"), reached).unwrap();
        let as_whom: Vec<String> = as_whom.iter().map(|o| (*o).to_owned()).collect();
        let process = Between::serve(world, &as_whom, &url, &node);
        Between { arbiter, node, url, ca, as_whom, process, real_arbiter, _arbiter: tls }
    }

    fn serve(world: &World, as_whom: &[String], url: &str, between: &Recorder) -> NodeProcess {
        let config = world.at("reached.toml").display().to_string();
        let mut options: Vec<&str> = as_whom.iter().map(String::as_str).collect();
        options.extend(["--arbiter", url, "--config", &config]);
        let launcher = world.launcher.clone().with_env("FOREBAY_CA", world.at("ca.pem"));
        let mut node = launcher.node(node_spec(&world.at("data"), &options)).unwrap();
        node.await_ready().unwrap_or_else(|e| panic!("{e}: {}", launcher.log("node0")));
        between.lead_to(node.addresses()[0].to_string().strip_prefix("tcp:").unwrap());
        node
    }

    /// The I/O node dies; another one comes when its place has been somebody else's for a while.
    fn restart(&mut self, world: &World, meanwhile: impl FnOnce(&Between)) {
        self.process.process.signal(Signal::KILL).unwrap();
        meanwhile(self);
        self.process = Between::serve(world, &self.as_whom, &self.url, &self.node);
    }

    /// Where the I/O node itself listens.
    fn real_node(&self) -> String {
        self.process.addresses()[0].to_string().strip_prefix("tcp:").unwrap().to_owned()
    }

    /// A command of a user, by way of whoever is in between.
    fn forebay(&self, world: &World, uid: u32, arguments: &[&str]) -> Command {
        let mut command = world.forebay(uid, arguments);
        command.env("FOREBAY_ARBITER", &self.url).env("FOREBAY_CA", &self.ca);
        command
    }

    /// Neither has heard that secret, nor what tells that one was sent.
    fn heard_no(&self, secret: &Secret) {
        for (who, recorder) in [("at the arbiter", &self.arbiter), ("at the I/O node", &self.node)] {
            assert!(!recorder.heard(secret.as_bytes()), "{who}");
            for what in [secret.to_hex().as_str(), "bearer", "munge:", "authorization"] {
                assert!(!recorder.heard(what.as_bytes()), "{who}: {what}");
            }
        }
    }
}

fn site_secret(world: &World) -> Secret {
    Secret::from_hex(&std::fs::read_to_string(world.at("secret")).unwrap()).unwrap()
}

/// The secret of a job, from the configuration that a program of it has printed.
fn job_secret(configuration: &str) -> Secret {
    let configuration: Value = serde_json::from_str(configuration.trim()).unwrap();
    Secret::from_hex(configuration["secret"].as_str().unwrap()).unwrap()
}

#[test]
fn what_anybody_in_between_hears_is_of_no_use() {
    let Some(mut world) = World::start("what_anybody_in_between_hears") else { return };
    if !forebay_testkit::needs("what_anybody_in_between_hears", &["openssl"]) {
        return;
    }
    let between = Between::start(&mut world, &["--identities", "arbiter"]);
    let script = "echo private words > /fwd/a/file; cat /fwd/a/file; echo a line >> /fwd/a/log
        cat $FOREBAY_CONFIG > $HOME/config; echo x > /fwd/a/done
        until [ -e $HOME/stop ]; do sleep 0.1; done; cat /fwd/a/log";
    let arguments = ["run", "--quiet", "--job", "heard", "--at", "/fwd=data", "--", "sh", "-c", script];
    let running = between.forebay(&world, A, &arguments).stdout(Stdio::piped()).spawn().unwrap();
    until(PATIENCE, "it has worked", || world.at("data/a/done").exists().then_some(()));
    // An admin's command, with the secret itself.
    let secret = world.at("secret").display().to_string();
    let admin = |arguments: &[&str]| {
        let mut command = between.forebay(&world, 0, arguments);
        command.args(["--secret-file", &secret]).output().unwrap()
    };
    assert!(said(&admin(&["nodes", "drain", "77"])).contains("77"));
    assert!(between.node.heard(b"private words"), "all of it goes through here");
    assert!(between.arbiter.recorded().iter().map(|r| r.asked.len()).sum::<usize>() > 1000);
    between.heard_no(&site_secret(&world));
    let configuration = std::fs::read_to_string(world.at(&format!("home-{A}/config"))).unwrap();
    between.heard_no(&job_secret(&configuration));
    assert!(!between.arbiter.heard(b"heard"), "nor of which job it is");
    // All of it said again, while the job runs.
    let recorded = between.node.recorded();
    assert!(recorded.iter().any(|r| r.asked.len() > HEADER), "{recorded:?}");
    let tell = |text: &[u8], what: &[u8]| text.windows(what.len()).any(|w| w == what);
    assert!(recorded.iter().any(|r| welcomed(&r.answered) == Some(0)), "they were welcome the first time");
    for said in &recorded {
        let answer = say_again(&between.real_node(), &said.asked);
        assert!(!tell(&answer, b"private words"), "{}", String::from_utf8_lossy(&answer));
        assert!(welcomed(&answer).is_none_or(|status| status != 0), "the hello counts again");
    }
    let jobs = |out: Output| String::from_utf8_lossy(&out.stdout).matches("heard").count();
    let before = jobs(admin(&["jobs", "--json"]));
    for said in between.arbiter.recorded() {
        assert!(!tell(&say_again(&between.real_arbiter, &said.asked), b"HTTP/1.1"));
    }
    assert_eq!(jobs(admin(&["jobs", "--json"])), before);
    std::fs::write(world.at(&format!("home-{A}/stop")), "").unwrap();
    let out = running.wait_with_output().unwrap();
    assert!(out.status.success(), "{}", said(&out));
    assert_eq!(String::from_utf8_lossy(&out.stdout), "private words\na line\n", "nothing was done twice");
}

/// Of a frame's header (docs/PROTOCOL.md): length, and where in it stand what the frame is for, how many bytes follow, and
/// the status of an answer.
const HEADER: usize = 64;
const HELLO: u16 = 2;

/// What a frame is for, its status, and its length.
fn frame(bytes: &[u8]) -> Option<(u16, u32, usize)> {
    let number = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    let whole = bytes.starts_with(b"FBAY") && bytes.len() >= HEADER;
    whole.then_some((number(4)? as u16, number(52)?, HEADER + number(48)? as usize))
}

/// The status of the answer to a hello.
fn welcomed(mut frames: &[u8]) -> Option<u32> {
    while let Some((opcode, status, length)) = frame(frames) {
        if opcode == HELLO {
            return Some(status);
        }
        frames = frames.get(length..)?;
    }
    None
}

/// A process that joins makes the job's secret from one that it has; neither goes over the network.
#[test]
fn who_joins_tells_nobody_a_secret() {
    let Some(mut world) = World::start("who_joins_tells_nobody") else { return };
    if !forebay_testkit::needs("who_joins_tells_nobody", &["openssl", "unshare"]) {
        return;
    }
    let between = Between::start(&mut world, &["--as", "self"]);
    let (shared, secret) = (world.at("shared"), world.at("secret").display().to_string());
    for dir in [&shared, &world.at("empty")] {
        std::fs::create_dir(dir).unwrap();
        std::fs::set_permissions(dir, PermissionsExt::from_mode(0o700)).unwrap();
    }
    // It sees nothing of the directory of the job, as on another host.
    let inner = format!(
        "mount --bind {} {} && exec {FOREBAY} join --secret-file {secret} -- sh -c \
         'echo joined words > /fwd/a/joined; cat $FOREBAY_CONFIG > {}; cat /fwd/a/joined'",
        world.at("empty").display(),
        shared.display(),
        world.at("config").display()
    );
    let share = shared.display().to_string();
    let arguments = ["run", "--quiet", "--secret-file", &secret, "--share", &share, "--job", "heard", "--at"];
    let mut run = between.forebay(&world, 0, &arguments);
    let out = run.args(["/fwd=data", "--", "unshare", "-m", "sh", "-c", &inner]).output().unwrap();
    assert!(out.status.success() && said(&out).contains("joined words"), "{}", said(&out));
    assert_eq!(std::fs::read_to_string(world.at("data/a/joined")).unwrap(), "joined words\n");
    assert!(between.node.heard(b"joined words"), "it was forwarded");
    between.heard_no(&site_secret(&world));
    between.heard_no(&job_secret(&std::fs::read_to_string(world.at("config")).unwrap()));
}

#[test]
fn who_takes_a_dead_nodes_place_is_told_nothing() {
    let Some(mut world) = World::start("who_takes_a_dead_nodes_place") else { return };
    if !forebay_testkit::needs("who_takes_a_dead_nodes_place", &["openssl"]) {
        return;
    }
    let mut between = Between::start(&mut world, &["--identities", "arbiter"]);
    let script = "i=0; cat $FOREBAY_CONFIG > $HOME/config
        until [ -e $HOME/stop ]; do i=$((i+1)); echo private line $i >> /fwd/a/log || exit 9; sleep 0.02; done; echo $i";
    let arguments = ["run", "--quiet", "--deadline", "120", "--job", "heard", "--at", "/fwd=data", "--"];
    let mut run = between.forebay(&world, A, &arguments);
    let mut run = run.args(["bash", "-c", script]).stdout(Stdio::piped()).spawn().unwrap();
    let lines = || std::fs::read(world.at("data/a/log")).unwrap_or_default();
    until(PATIENCE, "it writes", || (lines().len() > 100).then_some(()));
    // What the node has said to a client that wrote, all of it.
    let played = between.node.recorded().into_iter().max_by_key(|r| r.answered.len()).unwrap().answered;
    assert!(played.len() > 2 * HEADER, "a greeting and a welcome");
    between.restart(&world, |between| {
        for posing in [Vec::new(), played] {
            let before = between.node.recorded().len();
            let says_nothing = posing.is_empty();
            between.node.pose(posing);
            let came = || between.node.recorded().split_off(before);
            until(PATIENCE, "somebody comes", || {
                came().iter().any(|r| says_nothing || !r.asked.is_empty()).then_some(())
            });
            for heard in came() {
                // One hello at the most, in which nothing is said but who wants to talk to whom.
                let first = frame(&heard.asked);
                assert!(first.is_none_or(|(opcode, ..)| opcode == HELLO));
                assert_eq!(heard.asked.len(), first.map_or(0, |(_, _, length)| length), "{heard:?}");
                let tells = |what: &[u8]| heard.asked.windows(what.len()).any(|w| w == what);
                assert!(!tells(b"private line"));
            }
        }
    });
    between.heard_no(&site_secret(&world));
    let configuration = std::fs::read_to_string(world.at(&format!("home-{A}/config"))).unwrap();
    between.heard_no(&job_secret(&configuration));
    let before = lines().len();
    until(PATIENCE, "it goes on", || {
        (lines().len() > before + 40 || run.try_wait().unwrap().is_some()).then_some(())
    });
    std::fs::write(world.at(&format!("home-{A}/stop")), "").unwrap();
    let out = run.wait_with_output().unwrap();
    assert!(out.status.success(), "{}", said(&out));
    let count: u64 = String::from_utf8_lossy(&out.stdout).trim().parse().unwrap();
    let right: String = (1..=count).map(|i| format!("private line {i}\n")).collect();
    assert!(lines() == right.as_bytes(), "{}", String::from_utf8_lossy(&lines()));
}

/// Somebody who has a certificate, too, but of another authority.
struct Rogue {
    process: Process,
    said: BufReader<std::process::ChildStdout>,
    url: String,
}

impl Rogue {
    fn start(dir: &Path) -> Rogue {
        let listens = "import socket,ssl,sys
c=ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER); c.load_cert_chain(sys.argv[1], sys.argv[2])
s=socket.create_server(('127.0.0.1',0)); print(s.getsockname()[1], flush=True)
while True:
    p,_=s.accept(); p.settimeout(20)
    try: print(repr(c.wrap_socket(p, server_side=True).recv(65536)), flush=True)
    except Exception as e: print('refused', e, flush=True)";
        let mut rogue = Command::new("python3");
        rogue.args(["-c", listens]).arg(dir.join("arb.pem")).arg(dir.join("arb.key"));
        let mut process = Process::start(rogue.stdout(Stdio::piped()).stderr(Stdio::null())).unwrap();
        let mut said = BufReader::new(process.output().unwrap());
        let mut line = String::new();
        said.read_line(&mut line).unwrap();
        Rogue { process, said, url: format!("https://127.0.0.1:{}", line.trim()) }
    }

    /// All that was said to it.
    fn end(mut self) -> String {
        self.process.signal(Signal::KILL).unwrap();
        let mut all = String::new();
        self.said.read_to_string(&mut all).unwrap();
        all
    }
}

#[test]
fn an_arbiter_of_another_authority_is_told_nothing() {
    let Some(world) = World::start("an_arbiter_of_another_authority") else { return };
    if !forebay_testkit::needs("an_arbiter_of_another_authority", &["openssl", "python3"]) {
        return;
    }
    let elsewhere = tempfile::tempdir().unwrap();
    for dir in [world.dir.path(), elsewhere.path()] {
        forebay_testkit::certificates(dir, "127.0.0.1");
        open_to_all(dir);
    }
    let secret = world.at("secret").display().to_string();
    let data = format!("{}=data", world.at("data").display());
    let ledgers = world.at("rogue-ledgers").display().to_string();
    // A user with MUNGE, an admin with the secret, a user's run with either, and an I/O node.
    let run = ["run", "--quiet", "--wait", "3600", "--at", "/fwd=data"];
    let attempts: [(u32, Vec<&str>); 5] = [
        (A, vec!["jobs"]),
        (0, vec!["nodes", "drain", "0", "--secret-file", &secret]),
        (A, [&run[..], &["--", "true"]].concat()),
        (0, [&run[..], &["--secret-file", &secret, "--", "true"]].concat()),
        (
            0,
            vec![
                "node",
                "--as",
                "self",
                "--die-with-parent",
                "--listen",
                "tcp:127.0.0.1:0",
                "--export",
                &data,
                "--secret-file",
                &secret,
                "--ledger-dir",
                &ledgers,
            ],
        ),
    ];
    for (ca, told) in [(world.dir.path(), false), (elsewhere.path(), true)] {
        let rogue = Rogue::start(elsewhere.path());
        let count = if told { 2 } else { attempts.len() };
        for (uid, arguments) in &attempts[..count] {
            // It tries again, as where an arbiter is not there yet.
            let node = arguments[0] == "node";
            let mut command = forebay_testkit::as_user(*uid, "timeout");
            command.args([if node { "3" } else { "60" }, FOREBAY]).args(arguments);
            if node {
                command.args(["--arbiter", &rogue.url]);
            }
            command.env("FOREBAY_ARBITER", &rogue.url).env("FOREBAY_CA", ca.join("ca.pem"));
            command.env("FOREBAY_MUNGE_SOCKET", world.munged.socket()).env("FOREBAY_ARBITER_USER", "root");
            command.env("HOME", world.at(&format!("home-{A}"))).current_dir("/").stdin(Stdio::null());
            let out = command.output().unwrap();
            assert!(!out.status.success(), "{arguments:?}: {}", said(&out));
            let text = said(&out).to_lowercase();
            assert!(told || text.contains("certificate"), "{arguments:?}: {text}");
            // An hour is for one that is away.
            assert!(told || arguments[0] != "run" || out.status.code() == Some(125), "{arguments:?}: {text}");
        }
        let heard = rogue.end();
        let lines: Vec<&str> = heard.lines().collect();
        assert!(lines.len() >= count, "all of them came: {heard}");
        // This test can tell: who trusts that authority speaks.
        assert_eq!(lines.iter().any(|l| !l.starts_with("refused")), told, "{heard}");
        assert_eq!(heard.to_lowercase().contains("munge"), told, "{heard}");
        assert_eq!(heard.to_lowercase().contains("bearer"), told, "{heard}");
    }
}

/// That the arbiter is not reached may pass; a no does not.
#[test]
fn a_refused_run_ends_at_once() {
    let Some(world) = World::start("a_refused_run_ends") else { return };
    let (elsewhere, wrong) = (tempfile::tempdir().unwrap(), world.at("wrong"));
    let Some(other) = forebay_testkit::Munged::start("a_refused_run_ends", elsewhere.path()) else { return };
    std::fs::write(&wrong, Secret::new([7; 32]).to_hex()).unwrap();
    std::fs::set_permissions(&wrong, PermissionsExt::from_mode(0o600)).unwrap();
    let _job = world.lasting(A, "taken");
    let run = |uid: u32, options: &[&str], munge: &Path| {
        let mut command = forebay_testkit::as_user(uid, "timeout");
        command.args(["60", FOREBAY, "run", "--quiet", "--wait", "3600", "--at", "/fwd=data"]).args(options);
        command.args(["--", "true"]).env("FOREBAY_ARBITER", &world.url).env("FOREBAY_ARBITER_USER", "root");
        command.env("FOREBAY_MUNGE_SOCKET", munge).env("HOME", world.at(&format!("home-{uid}")));
        let out = command.current_dir("/").stdin(Stdio::null()).output().unwrap();
        (out.status.code(), said(&out))
    };
    let (ours, wrong) = (world.munged.socket(), wrong.display().to_string());
    for (uid, options, munge, why) in [
        (0, &["--secret-file", &wrong][..], ours, "secret"),
        (B, &[], other.socket(), "credential"),
        (B, &["--job", "taken"], ours, "taken"),
        (B, &[], Path::new("/nonexistent/munge"), "; MUNGE: "),
    ] {
        let (code, text) = run(uid, options, munge);
        assert!(code == Some(125) && text.contains(why), "{why}: {code:?} {text}");
    }
    assert_eq!(run(B, &[], ours).0, Some(0));
}

/// Users and groups as the arbiter's machine knows them.
fn accounts(dir: &Path, team: &str, admins: &str) {
    let system = |name: &str| std::fs::read_to_string(format!("/etc/{name}")).unwrap();
    let users: String = [A, B].map(|uid| format!("u{uid}:x:{uid}:{uid}::/:/bin/sh\n")).concat();
    let groups = format!("team:x:7300:{team}\nadmins:x:{ADMINS}:{admins}\n");
    // In place: another file of the name would not be seen.
    std::fs::write(dir.join("passwd"), system("passwd") + &users).unwrap();
    std::fs::write(dir.join("group"), system("group") + &groups).unwrap();
}

/// A job has the groups that its user had when it began, as a process has; an admin is one for as long as the group says so.
#[test]
fn groups_are_those_of_the_jobs_beginning() {
    const TEAM: u32 = 7300;
    let test = "groups_are_those_of_the_jobs_beginning";
    if !forebay_testkit::needs(test, &["unshare"]) {
        return;
    }
    let world = World::with(test, |dir| {
        accounts(dir, &format!("u{A}"), &format!("u{A}"));
        let bind = |name: &str| format!("mount --bind {0}/{name} /etc/{name}", dir.display());
        let arbiter = format!("{} && {} && exec \"$0\" \"$@\"", bind("passwd"), bind("group"));
        program_of(
            dir,
            &format!(
                "[ \"$1\" != arbiter ] || exec unshare -m sh -c '{arbiter}' {FOREBAY} \"$@\"; exec {FOREBAY} \"$@\""
            ),
        )
    });
    let Some(world) = world else { return };
    let team = world.at("data/team");
    std::fs::create_dir(&team).unwrap();
    std::fs::write(team.join("f"), "of the team\n").unwrap();
    for (path, mode) in [(team.join("f"), 0o640), (team, 0o750)] {
        chown(&path, Some(0), Some(TEAM)).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
    }
    let reads =
        |uid: u32, job: &str| world.run(uid, &format!("{job}-{uid}"), "cat /fwd/team/f").status.success();
    assert!(reads(A, "before") && !reads(B, "before"));
    assert_eq!(world.ask(A, "GET", "/v1/mapping", "").0, 200, "A is an admin");
    // A job of each that lasts, and reads when it is told to.
    let later = |uid: u32, own: &str| {
        let script = format!(
            "echo x > /fwd/{own}/begun; until [ -e $HOME/go ]; do sleep 0.1; done; cat /fwd/team/f; true"
        );
        let arguments = ["run", "--quiet", "--job", own, "--at", "/fwd=data", "--", "bash", "-c", &script];
        let run =
            world.forebay(uid, &arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let begun = world.at("data").join(own).join("begun");
        until(PATIENCE, "the job runs", || begun.exists().then_some(()));
        run
    };
    let (a, b) = (later(A, "a"), later(B, "b"));
    accounts(world.dir.path(), &format!("u{B}"), "");
    assert_eq!(world.ask(A, "GET", "/v1/mapping", "").0, 403, "and is none any more");
    for uid in [A, B] {
        std::fs::write(world.at(&format!("home-{uid}/go")), "").unwrap();
    }
    let (a, b) = (a.wait_with_output().unwrap(), b.wait_with_output().unwrap());
    assert_eq!(String::from_utf8_lossy(&a.stdout), "of the team\n", "{}", said(&a));
    assert!(b.stdout.is_empty() && said(&b).contains("Permission denied"), "{}", said(&b));
    assert!(!reads(A, "after") && reads(B, "after"), "the next job has the groups of then");
}
