//! How much memory a node takes. One test, so that the process holds nothing else.

mod common;

use common::*;

fn resident_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|l| l.starts_with("VmRSS")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() / 1024
}

#[test]
fn idle_and_with_a_thousand_connections() {
    let node = TestNode::start();
    let idle = resident_mib();
    assert!(idle <= 20, "idle: {idle} MiB");
    let data = vec![1u8; 64 << 10];
    let mut clients: Vec<Client> = (0..1000).map(|_| node.client()).collect();
    let connected = resident_mib();
    let mut handles = Vec::new();
    for (i, c) in clients.iter_mut().enumerate() {
        let h = c.create(&format!("{}", i % 10));
        assert_eq!(c.write(h, 0, &data), Ok(data.len()));
        assert_eq!(c.read(h, 0, data.len()).unwrap(), data);
        handles.push(h);
    }
    let used = resident_mib();
    eprintln!("resident: idle {idle} MiB, 1000 connections {connected} MiB, after 64 KiB on each {used} MiB");
    assert!(used <= 150, "1000 connections: {used} MiB");
    assert_eq!(node.report().connections, 1000);
    // A large transfer on each leaves nothing behind.
    let large = vec![2u8; 1 << 20];
    for (c, h) in clients.iter_mut().zip(handles).take(100) {
        assert_eq!(c.write(h, 0, &large), Ok(large.len()));
    }
    eventually("large buffers go back", || node.report().payload_memory == 0);
    assert!(resident_mib() <= 150);
}
