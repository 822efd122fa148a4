//! One user wants more than there is, or keeps what cannot go elsewhere: others find room, and a drain waits.

mod common;

use common::users::*;
use common::*;
use forebay_wire::flags::OpenFlags;
use forebay_wire::frame::flag;
use forebay_wire::message::Meta;
use std::net::TcpStream;
use std::time::Duration;

#[test]
fn one_user_leaves_connections_to_others() {
    let Some(node) = node(|c| c.max_connections = 16) else { return };
    let connect = |name: &str, uid: u32| Client::connect(node.address, &[uid as u8; 32], name, new_session());
    let all = |name: &str, uid: u32| -> Vec<Client> {
        std::iter::from_fn(|| connect(name, uid).ok()).take(100).collect()
    };
    let b = all("b", B);
    assert_eq!(b.len(), 8, "half of them");
    let refused = connect("b", B).err().unwrap();
    assert_eq!(refused.status(), libc::EUSERS, "{}", refused.text());
    assert!(refused.header.has(flag::MOVE), "it may pass");
    let mut a = all("a", A);
    assert_eq!(a.len(), 4, "half of the rest");
    assert_eq!(all("c", C).len(), 2);
    assert_eq!(a[0].ping().status(), 0);
    assert!(Client::connect(node.address, &SECRET, "admin", new_session()).is_ok(), "an admin gets in");
    drop(b);
    eventually("there is room again", || connect("a", A).is_ok());
}

#[test]
fn who_shows_nothing_gives_way() {
    let Some(node) = node(|c| c.max_connections = 64) else { return };
    let _b = client(&node, "b");
    let idle: Vec<TcpStream> = (0..200).map(|_| TcpStream::connect(node.address).unwrap()).collect();
    for _ in 0..3 {
        eventually("a gets in", || {
            Client::connect(node.address, &[A as u8; 32], "a", new_session())
                .is_ok_and(|mut a| a.ping().status() == 0)
        });
    }
    drop(idle);
}

#[test]
fn a_drain_waits_for_what_its_user_could_not_open_again() {
    let Some(mut node) = node(|c| c.drain_timeout = Duration::from_secs(60)) else { return };
    let (mut a, mut b, mut c) = (client(&node, "a"), client(&node, "b"), client(&node, "c"));
    let write_only = OpenFlags::WRITE | OpenFlags::CREATE | OpenFlags::EXCL;
    let (only_read, _) = a.open_attr("a/read-only", write_only, 0o400).unwrap();
    b.open("b/private", RW).unwrap();
    // What the node cannot see for itself its client has found out.
    let elsewhere = c.open("c/private", RW).unwrap();
    c.done(&Meta::SetFlags { handle: elsewhere, flags: RW | OpenFlags::STAYS }).unwrap();
    let running = node.running.take().unwrap();
    let drained = std::thread::spawn(move || running.drain());
    assert!(b.closed(), "it can go elsewhere");
    for at in 0..3 {
        // Longer than a connection is left quiet.
        std::thread::sleep(Duration::from_millis(400));
        assert_eq!(a.write(only_read, at, b"x"), Ok(1));
        assert_eq!(c.write(elsewhere, at, b"x"), Ok(1));
    }
    a.close(only_read).unwrap();
    c.close(elsewhere).unwrap();
    assert!(a.closed() && c.closed());
    assert!(drained.join().unwrap(), "all left in time");
}
