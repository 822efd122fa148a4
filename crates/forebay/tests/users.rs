//! Users who do not trust each other, at one arbiter and one I/O node of root: each proves with MUNGE who they are,
//! has what is theirs, and nothing else.

mod world;

use forebay_control::claim::Claim;
use forebay_testkit::Munged;
use forebay_types::Secret;
use serde_json::Value;
use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use world::*;

#[test]
fn a_users_program_has_what_is_theirs_and_nothing_else() {
    let Some(world) = World::start("a_users_program") else { return };
    let out = world.run(A, "mine", "echo secret > /fwd/a/private && cat /fwd/a/private && id -u");
    assert!(out.status.success(), "{}", said(&out));
    assert_eq!(String::from_utf8_lossy(&out.stdout), "secret\n7001\n");
    let made = std::fs::metadata(world.at("data/a/private")).unwrap();
    assert_eq!((made.uid(), made.gid()), (A, NOBODY), "this machine knows no group of theirs");
    for script in [
        "cat /fwd/a/private",
        "ls /fwd/a",
        "echo x > /fwd/a/new",
        "rm -f /fwd/a/private && test ! -e /fwd/a/private",
        "mv /fwd/a /fwd/mine",
        "chmod 777 /fwd/a",
        "chown 7002 /fwd/a",
        "ln /fwd/a/private /fwd/b/link",
        "echo x > /fwd/at-the-top",
    ] {
        let out = world.run(B, "prying", script);
        assert!(!out.status.success(), "{script}: {}", said(&out));
    }
    assert_eq!(std::fs::read_to_string(world.at("data/a/private")).unwrap(), "secret\n");
    // Root of a compute node is nobody here.
    let out = world.run(0, "root", "cat /fwd/a/private");
    assert!(!out.status.success() && said(&out).contains("Permission denied"), "{}", said(&out));
}

#[test]
fn jobs_are_seen_and_ended_by_their_users_and_by_admins() {
    let Some(world) = World::start("jobs_are_seen") else { return };
    let job = world.lasting(A, "as-job");
    let names = |text: &str| -> Vec<String> {
        let all: Vec<Value> = serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}"));
        all.iter().map(|j| j["id"].as_str().unwrap().to_owned()).collect()
    };
    let seen = |uid| names(&world.ask(uid, "GET", "/v1/jobs", "").1);
    assert_eq!(
        (seen(A), seen(B), seen(ADMIN)),
        (vec!["as-job".to_owned()], vec![], vec!["as-job".to_owned()])
    );
    let view: Value = serde_json::from_str(&world.ask(A, "GET", "/v1/jobs/as-job", "").1).unwrap();
    assert_eq!(view["user"], "7001", "not what the job says of itself");
    // Where its time has gone is its user's and the admins' to know, who prove it by MUNGE as for anything else.
    for (who, says) in [(A, true), (ADMIN, true), (B, false)] {
        let out = world.forebay(who, &["blame", "as-job", "--what-if", "sfq"]).output().unwrap();
        let asked = said(&out);
        assert_eq!(out.status.success(), says, "{who}: {asked}");
        assert!(!asked.contains("secret is needed") && (says || asked.contains("no job")), "{who}: {asked}");
    }
    let told = |out: Output| String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(told(world.forebay(A, &["jobs"]).output().unwrap()).contains("as-job"));
    assert!(!told(world.forebay(B, &["jobs"]).output().unwrap()).contains("as-job"));
    // An admin without MUNGE has the site's secret.
    for looks in [&["nodes"][..], &["jobs"], &["decisions"], &["limit", "list"], &["learned"]] {
        let asked = |more: &[&str]| {
            let mut asked = world.forebay(0, &[looks, more].concat());
            asked.env("FOREBAY_MUNGE_SOCKET", "/nonexistent");
            asked
        };
        let secret = world.launcher.secret_file();
        assert!(!asked(&[]).output().unwrap().status.success(), "{looks:?} without a secret");
        for mut known in [asked(&[]), asked(&["--secret-file", secret.to_str().unwrap()])] {
            let out = known.env("FOREBAY_SECRET_FILE", &secret).output().unwrap();
            assert!(out.status.success(), "{looks:?}: {}", said(&out));
        }
    }
    // What B tries, and what comes of it.
    let limit = r#"{"subject": {"user": "7001"}, "rates": {"bandwidth": 1}}"#;
    for (what, method, path, body, status) in [
        ("look at it", "GET", "/v1/jobs/as-job", "", 404),
        ("ask where its time goes", "GET", "/v1/jobs/as-job/blame", "", 404),
        ("end it", "DELETE", "/v1/jobs/as-job", "", 404),
        ("keep it alive", "PUT", "/v1/jobs/as-job/lease", "", 404),
        ("pin it", "PUT", "/v1/jobs/as-job/nodes", r#"{"nodes": [0]}"#, 403),
        ("limit it", "POST", "/v1/limits", limit, 403),
        ("see limits", "GET", "/v1/limits", "", 403),
        ("drain the node", "POST", "/v1/nodes/0/drain", "", 403),
        ("see where all are", "GET", "/v1/mapping", "", 403),
        ("see who did what", "GET", "/v1/history", "", 403),
        ("see past jobs", "GET", "/v1/history/jobs", "", 403),
        ("see decisions", "GET", "/v1/decisions", "", 403),
        ("watch all", "GET", "/v1/live", "", 403),
        ("read metrics", "GET", "/metrics", "", 403),
        ("forget what was learned", "DELETE", "/v1/learned", "", 403),
        ("be an I/O node", "GET", "/v1/nodes/connect", "", 403),
        ("take its name", "POST", "/v1/jobs", r#"{"id": "as-job"}"#, 409),
    ] {
        let (got, text) = world.ask(B, method, path, body);
        assert_eq!(got, status, "{what}: {text}");
    }
    assert_eq!(seen(A), ["as-job"], "it is still there");
    // A weight of one's own choice is none.
    let (status, _) =
        world.ask(B, "POST", "/v1/jobs", r#"{"id": "heavy", "weight": 1000000, "user": "7001"}"#);
    assert_eq!(status, 200);
    let view: Value = serde_json::from_str(&world.ask(B, "GET", "/v1/jobs/heavy", "").1).unwrap();
    assert_eq!((&view["weight"], &view["user"]), (&1.into(), &"7002".into()));
    assert_eq!(world.ask(ADMIN, "PUT", "/v1/jobs/as-job/nodes", r#"{"nodes": [0]}"#).0, 200, "an admin may");
    assert_eq!(world.ask(A, "DELETE", "/v1/jobs/as-job", "").0, 204, "its own user may");
    drop(job);
}

#[test]
fn a_credential_is_good_for_one_request_once() {
    let Some(world) = World::start("a_credential") else { return };
    let post = |claim: &Claim, body: &str, more: &[&str]| {
        http(world.address(), "POST", "/v1/jobs", body, &world.claim(A, claim, more))
    };
    let secret = Some(Secret::new([1; 32]));
    let body = r#"{"id": "one"}"#;
    let claim = Claim::new("POST", "/v1/jobs", body.as_bytes(), secret.clone());
    let credential = world.claim(A, &claim, &[]);
    let send = |body: &str| http(world.address(), "POST", "/v1/jobs", body, &credential);
    let (status, text) = send(body);
    assert_eq!(status, 200, "{text}");
    assert!(!text.contains("secret"), "the secret is not said again: {text}");
    let (status, text) = send(body);
    assert!(status == 401 && text.contains("used before"), "replayed: {status} {text}");
    // Made for another body, path, method, or for something else altogether.
    assert_eq!(post(&claim, r#"{"id": "two"}"#, &[]).0, 401);
    assert_eq!(post(&Claim::new("POST", "/v1/limits", body.as_bytes(), secret.clone()), body, &[]).0, 401);
    assert_eq!(post(&Claim::new("DELETE", "/v1/jobs", body.as_bytes(), secret.clone()), body, &[]).0, 401);
    let foreign = format!("Munge {}", world.munged.credential(A, b"for another service", &[]));
    assert_eq!(http(world.address(), "POST", "/v1/jobs", body, &foreign).0, 401);
    // For another reader, by another key, or no credential at all.
    let another = world.claim(A, &claim, &["--restrict-uid=7001"]);
    assert_eq!(http(world.address(), "POST", "/v1/jobs", body, &another).0, 401);
    let elsewhere = tempfile::tempdir().unwrap();
    let other = Munged::start("another cluster's MUNGE", elsewhere.path()).unwrap();
    let forged = format!("Munge {}", other.credential(A, &claim.to_bytes(), &[]));
    assert_eq!(http(world.address(), "POST", "/v1/jobs", body, &forged).0, 401);
    for nonsense in ["Munge ", "Munge MUNGE:AwQ=:", "Munge x", "Bearer ", "Bearer 00", "", "Basic cm9vdDo="] {
        assert_eq!(http(world.address(), "POST", "/v1/jobs", body, nonsense).0, 401, "{nonsense}");
    }
    // An old one.
    let two = Claim::new("POST", "/v1/jobs", br#"{"id": "two"}"#, secret);
    let old = world.claim(A, &two, &["--ttl=1"]);
    std::thread::sleep(Duration::from_millis(2500));
    let (status, text) = http(world.address(), "POST", "/v1/jobs", r#"{"id": "two"}"#, &old);
    assert!(status == 401 && text.contains("too old"), "{status} {text}");
}

#[test]
fn a_node_without_an_arbiter_takes_munge_itself() {
    let Some(mut world) = World::start("a_node_without_an_arbiter") else { return };
    if !forebay_testkit::needs("a mount of a user", &["fusermount3", "unshare"]) {
        return;
    }
    drop(world.node.take());
    world.node = Some(world.start_node(&["--identities", "munge"]));
    let node = world.node_address();
    // Users may mount where they may use the device; here they see one of their own.
    let script = r#"mknod -m 666 "$1/fuse-$2" c 10 229 && mount --bind "$1/fuse-$2" /dev/fuse || exit 77
        { cat /etc/passwd; echo "u$2:x:$2:$2::/:/bin/sh"; } > "$1/passwd-$2" && mount --bind "$1/passwd-$2" /etc/passwd || exit 79
        user="setpriv --reuid=$2 --regid=$2 --clear-groups --"
        mkdir "$HOME/mount" && chown "$2:$2" "$HOME/mount"
        $user "$4" mount --node "$3" --at "$HOME/mount=data" & serving=$!
        for i in $(seq 600); do
            grep -q " $HOME/mount " /proc/mounts && break
            kill -0 $serving || exit 78
            sleep 0.1
        done
        $user sh -c "cd $HOME/mount && echo x > $5/by-mount && cat $5/by-mount && ! ls $6"; status=$?
        touch "$1/served-$5"
        for i in $(seq 600); do [ -e "$1/served-$6" ] && break; sleep 0.1; done
        kill $serving; wait $serving; exit $status"#;
    // Both at once, by the same command.
    let both = [(A, "a", "b"), (B, "b", "a")].map(|(uid, own, other)| {
        let mut inside = Command::new("unshare");
        inside.args(["--mount", "--propagation", "private", "sh", "-c", script, "sh"]).arg(world.dir.path());
        inside
            .args([&uid.to_string(), &node, FOREBAY, own, other])
            .env("HOME", world.at(&format!("home-{uid}")));
        inside.env("FOREBAY_MUNGE_SOCKET", world.munged.socket()).stdin(Stdio::null());
        (uid, own, inside.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
    });
    for (uid, own, mounted) in both {
        let out = mounted.wait_with_output().unwrap();
        if out.status.code() == Some(77) {
            return forebay_testkit::skipped("a mount of a user", "there is no /dev/fuse to be had here");
        }
        assert!(out.status.success(), "{}", said(&out));
        assert_eq!(std::fs::metadata(world.at("data").join(own).join("by-mount")).unwrap().uid(), uid);
    }
}

#[test]
fn a_rogue_arbiter_gets_nothing() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let heard: Arc<Mutex<Vec<u8>>> = Arc::default();
    let all = Arc::clone(&heard);
    std::thread::spawn(move || {
        for mut client in listener.incoming().map_while(Result::ok) {
            let mut piece = [0; 4096];
            let _ = client.set_read_timeout(Some(Duration::from_millis(300)));
            while let Ok(n @ 1..) = client.read(&mut piece) {
                all.lock().unwrap().extend_from_slice(&piece[..n]);
            }
        }
    });
    let dir = tempfile::tempdir().unwrap();
    let secret = dir.path().join("secret");
    Secret::random().unwrap().write(&secret).unwrap();
    // By a name that is not this machine's, in the clear: nothing is even sent.
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    for url in [format!("http://{host}:{port}"), format!("http://10.0.0.1:{port}")] {
        let mut command = Command::new(FOREBAY);
        command.args(["nodes", "drain", "0", "--arbiter", &url, "--secret-file"]).arg(&secret);
        let out = command.output().unwrap();
        assert!(!out.status.success() && said(&out).contains("in the clear"), "{}", said(&out));
        let mut node = Command::new("timeout");
        node.args(["2", FOREBAY, "node", "--as", "self", "--die-with-parent", "--listen", "tcp:127.0.0.1:0"]);
        node.args(["--arbiter", &url, "--secret-file"]).arg(&secret).arg("--export").arg(dir.path());
        let out = node.arg("--ledger-dir").arg(dir.path().join("ledgers")).output().unwrap();
        assert!(said(&out).contains("in the clear"), "{}", said(&out));
    }
    assert!(heard.lock().unwrap().is_empty(), "not a byte");
}

/// Any user can listen at a port of this machine that is free, and is no arbiter for that.
#[test]
fn whoever_listens_on_this_machine_is_no_arbiter_for_that() {
    if !rustix::process::geteuid().is_root() {
        return forebay_testkit::skipped("a rogue arbiter on this machine", "this is not root");
    }
    let dir = tempfile::tempdir().unwrap();
    let secret = dir.path().join("secret");
    Secret::random().unwrap().write(&secret).unwrap();
    let listens = "import socket,sys\ns=socket.create_server(('127.0.0.1',0))\nprint(s.getsockname()[1],flush=True)\ns.settimeout(30)\n\
                   c,_=s.accept()\nc.settimeout(2)\nsys.stdout.write(repr(c.recv(4096)))";
    let mut rogue = Command::new("python3");
    rogue.args(["-c", listens]).uid(65534).gid(65534).current_dir("/").stdout(Stdio::piped());
    let mut rogue = rogue.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(rogue.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    let url = format!("http://127.0.0.1:{}", line.trim());
    let mut command = Command::new(FOREBAY);
    command.args(["nodes", "drain", "0", "--arbiter", &url, "--secret-file"]).arg(&secret);
    let out = command.output().unwrap();
    assert!(!out.status.success() && said(&out).contains("runs as user 65534"), "{}", said(&out));
    let mut node = Command::new("timeout");
    node.args(["2", FOREBAY, "node", "--as", "self", "--die-with-parent", "--listen", "tcp:127.0.0.1:0"]);
    node.args(["--arbiter", &url, "--secret-file"]).arg(&secret).arg("--export").arg(dir.path());
    let out = node.arg("--ledger-dir").arg(dir.path().join("ledgers")).output().unwrap();
    assert!(said(&out).contains("runs as user 65534"), "{}", said(&out));
    rogue.kill().unwrap();
    let heard = rogue.wait_with_output().unwrap().stdout;
    assert!(heard.is_empty(), "it heard {}", String::from_utf8_lossy(&heard));
}

#[test]
fn secrets_that_others_can_read_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let secret = dir.path().join("secret");
    Secret::random().unwrap().write(&secret).unwrap();
    std::fs::set_permissions(&secret, PermissionsExt::from_mode(0o644)).unwrap();
    let (file, at) = (secret.to_str().unwrap(), dir.path().to_str().unwrap());
    let commands: [&[&str]; 4] = [
        &["node", "--as", "self", "--listen", "tcp:127.0.0.1:0", "--export", at, "--secret-file", file],
        &["arbiter", "--listen", "127.0.0.1:0", "--state", at, "--secret-file", file],
        &["mount", "--node", "tcp:127.0.0.1:1", "--at", "/nowhere=x", "--secret-file", file],
        &["nodes", "drain", "0", "--arbiter", "http://127.0.0.1:1", "--secret-file", file],
    ];
    for command in commands {
        let out = Command::new(FOREBAY).args(command).output().unwrap();
        assert!(!out.status.success() && said(&out).contains("chmod 600"), "{command:?}: {}", said(&out));
    }
}
