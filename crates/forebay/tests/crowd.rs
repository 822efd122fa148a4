//! One user wants all there is, or an end comes at the wrong moment: the others, and their files, go on.

mod world;

use forebay_testkit::until;
use std::io::Read;
use std::net::TcpStream;
use std::os::unix::fs::{PermissionsExt, chown};
use std::process::Stdio;
use world::*;

/// A group of whoever says so.
const TEAM: u32 = 7300;

#[test]
fn one_users_open_files_leave_room_for_others() {
    let Some(world) = World::with_descriptors("one_users_open_files", 400) else { return };
    let held = world.at(&format!("home-{B}/held"));
    let script =
        "for i in {1..300}; do exec {fd}> /fwd/b/$i || break; done; echo $i > $HOME/held; exec sleep 1000";
    let _b = world.going(B, "many", script);
    until(PATIENCE, "b has as many as they can", || held.exists().then_some(()));
    let held = || std::fs::read_to_string(&held).unwrap().trim().parse::<u32>().ok();
    let held = until(PATIENCE, "how many", held);
    assert!((20..100).contains(&held), "{held} of 136");
    for job in ["first", "second"] {
        let out = world.run(A, job, "echo hi > /fwd/a/x && cat /fwd/a/x");
        assert!(out.status.success() && out.stdout == b"hi\n", "{}", said(&out));
    }
    let log = world.launcher.log("node0");
    assert_eq!(log.matches("no more open files for user 7002").count(), 1, "{log}");
}

#[test]
fn who_only_connects_keeps_nobody_out_and_fills_no_log() {
    let Some(world) = World::with_descriptors("who_only_connects", 400) else { return };
    let node = world.node_address().strip_prefix("tcp:").unwrap().to_owned();
    for address in [world.address(), &node] {
        let idle: Vec<TcpStream> = (0..450).map(|_| TcpStream::connect(address).unwrap()).collect();
        for job in ["first", "second"] {
            assert_eq!(world.ask(A, "GET", "/v1/jobs", "").0, 200, "{address}");
            let out = world.run(A, job, "echo hi > /fwd/a/x && cat /fwd/a/x");
            assert!(out.status.success(), "{address}: {}", said(&out));
        }
        drop(idle);
    }
    for _ in 0..20 {
        let mut stream = TcpStream::connect(&node).unwrap();
        std::io::Write::write_all(&mut stream, &[b'x'; 100]).unwrap();
        // It is told what was wrong.
        let _ = stream.read_to_end(&mut Vec::new());
    }
    let log = world.launcher.log("node0");
    assert!(!log.contains("cut off") && !log.contains("cannot accept"), "{log}");
}

#[test]
fn a_group_that_the_arbiters_machine_does_not_know_of_counts_for_nothing() {
    let Some(world) = World::start("a_group") else { return };
    let team = world.at("data/team");
    std::fs::create_dir(&team).unwrap();
    std::fs::write(team.join("f"), "of the team\n").unwrap();
    for (path, mode) in [(team.join("f"), 0o640), (team, 0o750)] {
        chown(&path, Some(A), Some(TEAM)).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
    }
    let out = world.run_in(B, TEAM, "theirs", "cat /fwd/team/f");
    assert!(!out.status.success() && said(&out).contains("Permission denied"), "{}", said(&out));
    let out = world.run_in(B, TEAM, "own", "echo x > /fwd/b/x; chgrp 7300 /fwd/b/x");
    assert!(!out.status.success(), "{}", said(&out));
    for (what, method, path) in [
        ("see all", "GET", "/v1/mapping"),
        ("drain", "POST", "/v1/nodes/0/drain"),
        ("watch", "GET", "/metrics"),
    ] {
        let (status, text) = world.ask_in(B, ADMINS, method, path);
        assert_eq!(status, 403, "{what}: {text}");
    }
    assert_eq!(world.ask_in(0, ADMINS, "GET", "/v1/mapping").0, 200, "root is in group 0, whatever it says");
}

#[test]
fn a_name_is_free_for_others_when_its_job_has_ended() {
    let Some(world) = World::start("a_name_is_free") else { return };
    for _ in 0..2 {
        for (uid, own) in [(A, "a"), (B, "b")] {
            let script = format!("head -c 100000 /dev/zero > /fwd/{own}/x && wc -c < /fwd/{own}/x");
            let out = world.run(uid, "same-name", &script);
            assert!(out.status.success(), "{uid}: {}", said(&out));
        }
    }
}

#[test]
fn a_file_that_cannot_be_opened_again_stays_with_a_node_that_drains() {
    let Some(mut world) = World::start("a_file_that_cannot_be_opened_again") else { return };
    drop(world.node.take());
    let options = ["--identities", "arbiter", "--arbiter", &world.url, "--drain-timeout", "60"];
    let _first = world.start_node_as(1, &options);
    world.await_node(1);
    // With this umask what is made may only be read, but for whoever made it.
    let script = "umask 277; exec 3> /fwd/a/read-only; chmod 0 /fwd/a/read-only
        while [ ! -e $HOME/stop ]; do echo line >&3 || exit 9; sleep 0.4; done";
    let arguments = ["run", "--quiet", "--job", "writer", "--at", "/fwd=data", "--", "bash", "-c", script];
    let mut writer =
        world.forebay(A, &arguments).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let lines = || std::fs::read(world.at("data/a/read-only")).map_or(0, |text| text.len() / 5);
    until(PATIENCE, "it writes", || (lines() > 1).then_some(()));
    let _second = world.start_node_as(2, &options);
    world.await_node(2);
    assert!(world.ask(ADMIN, "POST", "/v1/nodes/1/drain", "").0 < 300);
    let before = lines();
    until(PATIENCE, "it goes on", || {
        (lines() > before + 4 || writer.try_wait().unwrap().is_some()).then_some(())
    });
    std::fs::write(world.at(&format!("home-{A}/stop")), "").unwrap();
    let out = writer.wait_with_output().unwrap();
    assert!(out.status.success(), "{}", said(&out));
}
