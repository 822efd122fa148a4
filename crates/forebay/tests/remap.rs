//! Running programs are moved between I/O nodes while they work: every byte stays right, locks and
//! unlinked files stay where they are held, appends are made once.
//!
//! `FOREBAY_MOVES` sets how often the mapping changes, every 200 ms (the full test has 300).

use forebay_client::{Client, Config};
use forebay_control::node::{JobMapping, Term};
use forebay_node::control::{Command, Reply};
use forebay_testkit::{AT, ClientOptions, Layer, Talker, Workers, seed, setting};
use forebay_types::Epoch;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::time::Duration;

const NODES: usize = 4;

/// Tells all nodes where the clients belong, as an arbiter would.
struct Mapper {
    nodes: Vec<Client>,
    addresses: Vec<String>,
    secret: String,
    epoch: u64,
}

impl Mapper {
    fn of(layer: &Layer, nodes: usize) -> Mapper {
        let secret = layer.secret();
        let addresses: Vec<String> = (0..nodes).map(|n| format!("tcp:{}", layer.address(n))).collect();
        let client = |address: &String| {
            let config = Config::new("test", &secret, vec![address.parse().expect("an address")]);
            Client::new(config, None).expect("a client")
        };
        Mapper { nodes: addresses.iter().map(client).collect(), addresses, secret, epoch: 0 }
    }

    fn control(&self, node: usize, command: &Command) -> Reply {
        let json = serde_json::to_vec(command).expect("JSON");
        serde_json::from_slice(&self.nodes[node].control(0, &json).expect("the node answers")).expect("JSON")
    }

    fn map(&mut self, to: &[usize]) {
        self.epoch += 1;
        let mapping = JobMapping {
            job: "test".into(),
            secret: self.secret.clone(),
            weight: 1,
            epoch: Epoch(self.epoch),
            nodes: to.iter().map(|&n| self.addresses[n].clone()).collect(),
            user: None,
        };
        for n in 0..self.nodes.len() {
            let jobs = vec![mapping.clone()];
            let said =
                self.control(n, &Command::Mapping { term: Term(1), complete: true, jobs, ended: vec![] });
            assert_eq!(said.error, None);
        }
    }

    /// Data requests of the job that a node has answered.
    fn served(&self, node: usize) -> u64 {
        let stats = self.control(node, &Command::Stats).stats.expect("statistics");
        let flow = stats.flows.iter().find(|f| f.job == "test");
        let count = |op| flow.and_then(|f| f.operations.get(op)).map_or(0, |o| o.count);
        count("read") + count("write")
    }
}

#[test]
fn every_byte_stays_right_while_the_mapping_changes() {
    let seed = seed();
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let layer = Layer::start(NODES, 2000, &ClientOptions::default());
    let mut mapper = Mapper::of(&layer, NODES);
    let load = Workers::start(&layer, seed);
    let mut all: Vec<usize> = (0..NODES).collect();
    for _ in 0..setting("FOREBAY_MOVES", 25) {
        all.shuffle(&mut rng);
        let some = rng.random_range(1..=NODES);
        mapper.map(&all[..some]);
        std::thread::sleep(Duration::from_millis(200));
    }
    load.finish(&layer);
    for n in 0..NODES {
        assert!(mapper.served(n) > 0, "node {n} has had its part");
    }
}

#[test]
fn a_program_goes_where_it_is_mapped_and_takes_its_open_files_along() {
    let layer = Layer::start(3, 2000, &ClientOptions::default());
    let mut mapper = Mapper::of(&layer, 3);
    let mut program = Talker::start(layer.command(&layer.compile("driver"), 0));
    assert_eq!(program.ask(&format!("case {AT} 0")), "0 0");
    assert!(program.ask("open 0 file 66").starts_with('0'));
    program.ask("write 0 100 1");
    for to in [1, 2, 0, 2] {
        mapper.map(&[to]);
        // The answer to this one tells of the move; everything after it goes to the new node.
        program.ask("fstat 0");
        let before: Vec<u64> = (0..3).map(|n| mapper.served(n)).collect();
        program.ask("pread 0 10 0");
        program.ask("pread 0 10 5");
        for (n, before) in before.iter().enumerate() {
            assert_eq!(mapper.served(n) - before, if n == to { 2 } else { 0 }, "node {n}, mapped to {to}");
        }
    }
    program.finish();
}

#[test]
fn an_unlinked_file_stays_with_its_node_and_others_move() {
    let layer = Layer::start(2, 2000, &ClientOptions::default());
    let mut mapper = Mapper::of(&layer, 2);
    let mut program = Talker::start(layer.command(&layer.compile("driver"), 0));
    assert_eq!(program.ask(&format!("case {AT} 0")), "0 0");
    for slot in ["0 gone", "1 kept"] {
        assert!(program.ask(&format!("open {slot} 66")).starts_with('0'));
    }
    program.ask("write 0 100 1");
    let content = program.ask("pread 0 100 0");
    assert!(program.ask("unlink gone").starts_with('0'));
    mapper.map(&[1]);
    program.ask("stat kept");
    let before = (mapper.served(0), mapper.served(1));
    assert_eq!(program.ask("pread 0 100 0"), content, "it is still there");
    program.ask("write 1 50 2");
    assert_eq!((mapper.served(0) - before.0, mapper.served(1) - before.1), (1, 1));
    program.finish();
}

/// `fcntl` locks by the driver: a write lock on bytes 0 to 9, and its release.
const LOCK: &str = "lock 0 1 0 10";
const UNLOCK: &str = "lock 0 2 0 10";

#[test]
fn a_lock_holds_while_its_holder_is_mapped_elsewhere() {
    let layer = Layer::start(2, 2000, &ClientOptions::default());
    let mut mapper = Mapper::of(&layer, 2);
    let driver = layer.compile("driver");
    let mut programs: Vec<Talker> = (0..2).map(|_| Talker::start(layer.command(&driver, 0))).collect();
    for p in &mut programs {
        assert_eq!(p.ask(&format!("case {AT} 0")), "0 0");
        assert!(p.ask("open 0 file 66").starts_with('0'));
    }
    assert!(programs[0].ask(LOCK).starts_with('0'));
    mapper.map(&[1]);
    for round in 0..3 {
        for p in &mut programs {
            p.ask("fstat 0");
        }
        let refused = programs[1].ask(LOCK);
        assert!(refused.starts_with("-1"), "round {round}: {refused}");
        mapper.map(&[round % 2]);
    }
    assert!(programs[0].ask(UNLOCK).starts_with('0'));
    assert!(programs[1].ask(LOCK).starts_with('0'), "it is free now");
    for p in programs {
        p.finish();
    }
}
