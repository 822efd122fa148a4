//! The screening of I/O nodes, driven by simulated pools: nodes that fail slowly in several ways are
//! found in time, and noise, load, a slow file system and a stalled arbiter are not mistaken for it.

use forebay_arbiter::health::{Change, Screen, ScreenConfig, State};
use forebay_control::node::NodeReport;
use forebay_pattern::{FlowMetrics, Interval, Load};
use forebay_types::{FlowId, Nanos, NodeId};
use proptest::prelude::*;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeMap;

/// How a simulated node is.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Ill {
    No,
    /// Runs for the first tenth of each so many milliseconds.
    Stopped(u64),
    /// Its storage takes so many times as long.
    Storage(f64),
    /// Its requests take so many times as long and are served so many times as slowly.
    Service(f64),
    /// Its queue is so many times as long; the rate is what it should be.
    Queue(f64),
    /// Its storage fails.
    Failing,
    /// It says nothing.
    Silent,
}

/// A pool in virtual time. What is on the way is delivered when its time has come.
struct Pool {
    screen: Screen,
    rng: ChaCha8Rng,
    now: Nanos,
    ill: Vec<Ill>,
    /// How many times as slow the file system is, for everybody.
    weather: f64,
    /// Requests a second and node; 0 is idle.
    load: f64,
    answers: BTreeMap<(Nanos, u64), (NodeId, Nanos, Option<String>)>,
    changes: Vec<(Nanos, Change)>,
}

const TICK: Nanos = Nanos::from_millis(250);

impl Pool {
    fn new(nodes: usize, seed: u64) -> Pool {
        Pool::with(nodes, seed, ScreenConfig::default())
    }

    fn with(nodes: usize, seed: u64, config: ScreenConfig) -> Pool {
        let mut screen = Screen::new(config);
        let now = Nanos::from_secs(1_000);
        for n in 0..nodes {
            screen.joined(NodeId(n as u32), now);
        }
        let rng = ChaCha8Rng::seed_from_u64(seed);
        let ill = vec![Ill::No; nodes];
        Pool {
            screen,
            rng,
            now,
            ill,
            weather: 1.0,
            load: 2000.0,
            answers: BTreeMap::new(),
            changes: Vec::new(),
        }
    }

    /// Log-normal noise around 1, with one wild value in a hundred.
    fn noise(&mut self) -> f64 {
        let normal: f64 = (0..12).map(|_| self.rng.random::<f64>()).sum::<f64>() - 6.0;
        let wild = if self.rng.random_bool(0.01) { 50.0 } else { 1.0 };
        (0.5 * normal).exp() * wild
    }

    /// When a node that is `ill` gets to something that reached it at `at`.
    fn awake(ill: Ill, at: Nanos) -> Nanos {
        match ill {
            Ill::Stopped(period) => {
                let (cycle, phase) = (at.0 / (period * 1_000_000), at.0 % (period * 1_000_000));
                if phase < period * 100_000 { at } else { Nanos((cycle + 1) * period * 1_000_000) }
            }
            _ => at,
        }
    }

    fn run(&mut self, seconds: f64) -> &mut Pool {
        let end = self.now + Nanos((seconds * 1e9) as u64);
        while self.now < end {
            self.now = self.now + TICK;
            let due = self.answers.split_off(&(self.now, 0));
            for ((at, id), (node, took, error)) in std::mem::replace(&mut self.answers, due) {
                self.screen.probed(node, id, took, error, at);
            }
            for n in 0..self.ill.len() {
                self.step(n);
            }
            let now = self.now;
            self.changes.extend(self.screen.tick(now).into_iter().map(|c| (now, c)));
        }
        self
    }

    fn step(&mut self, n: usize) {
        let (node, ill, now) = (NodeId(n as u32), self.ill[n], self.now);
        let id = self.screen.probe(node, now);
        if ill == Ill::Silent {
            return;
        }
        let slow = if let Ill::Storage(times) = ill { times } else { 1.0 };
        let took = Nanos((2e6 * slow * self.weather * self.noise()) as u64);
        let wire = Nanos((0.3e6 * self.noise()) as u64);
        let done = Pool::awake(ill, now + wire) + took;
        let error = (ill == Ill::Failing).then(|| "Input/output error".to_owned());
        self.answers.insert((done, id), (node, took, error));
        if now.0 % 1_000_000_000 == 0 {
            let report = self.report(ill);
            self.screen.reported(node, &report, now);
        }
    }

    fn report(&mut self, ill: Ill) -> NodeReport {
        let requests = (self.load * self.rng.random_range(0.3..1.5)) as u64;
        let (mut slow, mut queue) = (self.weather, 1.0);
        match ill {
            Ill::Service(times) => slow *= times,
            Ill::Queue(times) => queue = times,
            _ => {}
        }
        let requests = ((requests as f64) / slow) as u64;
        let busy = Nanos::from_millis(if requests == 0 { 0 } else { 900 });
        // Little: a healthy request takes 4 ms on average.
        let outstanding = requests as f64 * 0.004 * slow * queue * self.noise().min(3.0) / 0.9;
        let flow = FlowMetrics {
            flow: FlowId(1),
            writes: requests,
            bytes_written: requests << 16,
            served: requests << 16,
            size_mean: 65_536.0,
            busy,
            outstanding,
            ..FlowMetrics::default()
        };
        let load = Load { offered: requests << 16, served: requests << 16, busy, outstanding };
        NodeReport {
            present: Vec::new(),
            interval: Interval {
                start: self.now - Nanos::from_secs(1),
                end: self.now,
                load,
                flows: if requests == 0 { Vec::new() } else { vec![flow] },
            },
            jobs: BTreeMap::new(),
            waiting: 0,
            connections: 8,
            latency_p50: Nanos::from_millis(4),
            latency_p99: Nanos::from_millis(20),
            job_latencies: BTreeMap::new(),
            job_hosts: BTreeMap::new(),
            errors: 0,
            scheduler: None,
        }
    }

    fn state(&self, n: u32) -> State {
        self.screen.diagnosis(NodeId(n)).unwrap().state
    }

    fn reason(&self, n: u32) -> &str {
        &self.screen.diagnosis(NodeId(n)).unwrap().reason
    }

    /// Times at which the node became `state`.
    fn became(&self, n: u32, state: State) -> Vec<Nanos> {
        let is = |c: &Change| c.node == NodeId(n) && c.diagnosis.state == state;
        self.changes.iter().filter(|(_, c)| is(c)).map(|(at, _)| *at).collect()
    }

    fn slow_diagnoses(&self) -> Vec<&(Nanos, Change)> {
        self.changes.iter().filter(|(_, c)| c.diagnosis.state == State::Slow).collect()
    }
}

/// The node falls ill after a while and is screened out within ten seconds; nobody else is.
fn found(ill: Ill, load: f64, word: &str) {
    for seed in 0..40 {
        let mut pool = Pool::new(4, seed);
        pool.load = load;
        pool.run(60.0 + 0.013 * seed as f64);
        assert!(pool.slow_diagnoses().is_empty(), "{:?}", pool.slow_diagnoses());
        pool.ill[2] = ill;
        let since = pool.now;
        pool.run(10.0);
        assert_eq!(pool.state(2), State::Slow, "seed {seed}: {}", pool.reason(2));
        let after = pool.became(2, State::Slow)[0].since(since).as_secs_f64();
        assert!(after < 10.0, "seed {seed}: {after} s");
        assert!(pool.reason(2).contains(word), "{}", pool.reason(2));
        for other in [0, 1, 3] {
            assert!(pool.state(other).usable(), "seed {seed}, node {other}: {}", pool.reason(other));
        }
    }
}

#[test]
fn a_node_that_is_stopped_most_of_the_time_is_found_busy_or_idle() {
    found(Ill::Stopped(200), 2000.0, "probes wait");
    found(Ill::Stopped(200), 0.0, "probes wait");
    found(Ill::Stopped(1000), 2000.0, "probes wait");
}

#[test]
fn a_slow_storage_is_found_by_the_probe() {
    found(Ill::Storage(15.0), 0.0, "its storage takes");
}

#[test]
fn slow_service_is_found_in_the_reports() {
    found(Ill::Service(10.0), 2000.0, "writes of 64 KiB and more take");
}

#[test]
fn a_failing_storage_is_found_and_named() {
    found(Ill::Failing, 0.0, "Input/output error");
}

#[test]
fn a_node_that_was_slow_from_the_start_is_found_too() {
    let mut pool = Pool::new(4, 1);
    pool.ill[0] = Ill::Stopped(200);
    pool.run(10.0);
    assert_eq!(pool.state(0), State::Slow, "{}", pool.reason(0));
}

#[test]
fn hours_of_noise_give_few_diagnoses() {
    let mut wrong = 0;
    for seed in 0..4 {
        let mut pool = Pool::new(8, seed);
        // An hour: load comes and goes, and so does the file system's speed, for everybody.
        for minute in 0..60 {
            pool.load = [0.0, 30.0, 2000.0, 500.0][minute % 4];
            pool.weather = if minute % 7 == 3 { 20.0 } else { 1.0 };
            pool.run(60.0);
        }
        wrong += pool.slow_diagnoses().len();
    }
    // Four hours of eight nodes each.
    assert!(wrong <= 1, "{wrong} nodes were screened out for nothing");
}

#[test]
fn a_long_queue_is_not_a_slow_node() {
    let mut pool = Pool::new(4, 3);
    pool.ill[1] = Ill::Queue(20.0);
    pool.run(120.0);
    assert!(pool.slow_diagnoses().is_empty(), "{:?}", pool.slow_diagnoses());
}

#[test]
fn a_file_system_that_is_slow_for_all_is_nobodys_fault() {
    let mut pool = Pool::new(4, 4);
    pool.run(60.0);
    pool.weather = 30.0;
    pool.run(120.0);
    assert!(pool.slow_diagnoses().is_empty(), "{:?}", pool.slow_diagnoses());
}

#[test]
fn an_arbiter_that_stood_still_blames_nobody() {
    let mut pool = Pool::new(4, 5);
    pool.run(30.0);
    for _ in 0..5 {
        // Nobody called; all answers are then found at once.
        pool.now = pool.now + Nanos::from_secs(8);
        let now = pool.now;
        for ((_, id), (node, took, error)) in std::mem::take(&mut pool.answers) {
            pool.screen.probed(node, id, took, error, now);
        }
        pool.run(6.0);
    }
    assert!(pool.changes.iter().all(|(_, c)| c.diagnosis.state.usable()), "{:?}", pool.changes);
}

#[test]
fn a_node_that_behaves_is_readmitted_and_a_relapse_doubles_the_wait() {
    let mut pool = Pool::new(4, 6);
    pool.run(30.0);
    let mut waits = Vec::new();
    for _ in 0..3 {
        pool.ill[3] = Ill::Stopped(200);
        pool.run(12.0);
        assert_eq!(pool.state(3), State::Slow, "{}", pool.reason(3));
        pool.ill[3] = Ill::No;
        let well = pool.now;
        while pool.state(3) == State::Slow {
            pool.run(0.25);
            assert!(pool.now.since(well).as_secs_f64() < 200.0, "{}", pool.reason(3));
        }
        waits.push(pool.now.since(well).as_secs_f64());
        assert!(pool.reason(3).contains("re-admitted"), "{}", pool.reason(3));
    }
    assert!((15.0..20.0).contains(&waits[0]), "{waits:?}");
    assert!((30.0..35.0).contains(&waits[1]), "{waits:?}");
    assert!((60.0..65.0).contains(&waits[2]), "{waits:?}");
}

#[test]
fn a_silent_node_is_lost_and_has_to_earn_its_place() {
    let mut pool = Pool::new(3, 7);
    pool.run(20.0);
    pool.ill[0] = Ill::Silent;
    pool.run(5.0);
    assert_eq!(pool.state(0), State::Lost);
    assert!(pool.reason(0).starts_with("nothing has been heard of it for"), "{}", pool.reason(0));
    pool.ill[0] = Ill::No;
    pool.run(1.0);
    assert_eq!(pool.state(0), State::Slow, "{}", pool.reason(0));
    pool.run(20.0);
    assert_eq!(pool.state(0), State::Healthy, "{}", pool.reason(0));
}

#[test]
fn a_node_that_reconnects_is_used_at_once_and_one_that_does_not_is_lost() {
    let mut pool = Pool::new(3, 8);
    pool.run(20.0);
    let now = pool.now;
    pool.screen.disconnected(NodeId(1), now);
    pool.ill[1] = Ill::Silent;
    pool.run(2.0);
    assert!(pool.state(1).usable(), "{}", pool.reason(1));
    pool.run(2.0);
    assert_eq!(pool.state(1), State::Lost);
    assert!(pool.reason(1).starts_with("it has been disconnected for"), "{}", pool.reason(1));
    pool.ill[1] = Ill::No;
    let now = pool.now;
    pool.screen.joined(NodeId(1), now);
    pool.run(0.5);
    assert_eq!(pool.state(1), State::Healthy, "{}", pool.reason(1));
}

#[test]
fn a_node_that_cannot_keep_its_connection_is_found() {
    let mut pool = Pool::new(4, 12);
    pool.run(20.0);
    for _ in 0..8 {
        let now = pool.now;
        pool.screen.disconnected(NodeId(2), now);
        pool.run(0.75);
        let now = pool.now;
        pool.screen.joined(NodeId(2), now);
        pool.run(0.75);
    }
    assert_eq!(pool.state(2), State::Slow, "{}", pool.reason(2));
    assert!(pool.reason(2).contains("its connection broke"), "{}", pool.reason(2));
    // Another arbiter leads: all of them reconnect.
    let mut pool = Pool::new(4, 13);
    for n in (0..4).chain(0..4).chain(0..4).chain(0..4) {
        let now = pool.now;
        pool.screen.disconnected(NodeId(n), now);
        pool.screen.joined(NodeId(n), now);
        pool.run(0.25);
    }
    pool.run(20.0);
    assert!(pool.slow_diagnoses().is_empty(), "{:?}", pool.slow_diagnoses());
}

#[test]
fn the_last_node_is_never_screened_out_and_a_slow_one_is_better_than_none() {
    let mut pool = Pool::new(2, 9);
    pool.run(30.0);
    pool.ill[0] = Ill::Stopped(200);
    pool.run(10.0);
    assert_eq!(pool.state(0), State::Slow);
    // The healthy one goes.
    pool.ill[1] = Ill::Silent;
    pool.run(5.0);
    assert_eq!(pool.state(1), State::Lost);
    assert!(pool.state(0).usable(), "{}", pool.reason(0));
}

#[test]
fn no_more_than_the_allowed_part_is_taken_out_and_the_worst_first() {
    let mut pool = Pool::new(6, 10);
    pool.run(30.0);
    (pool.ill[0], pool.ill[1], pool.ill[2]) = (Ill::Storage(60.0), Ill::Stopped(200), Ill::Storage(15.0));
    pool.run(15.0);
    // A third of six.
    let slow: Vec<u32> = (0..6).filter(|n| pool.state(*n) == State::Slow).collect();
    assert_eq!(slow.len(), 2, "{slow:?}");
    let spared = (0..3).find(|n| !slow.contains(n)).unwrap();
    assert_eq!(pool.state(spared), State::Suspect);
    assert!(pool.reason(spared).contains("2 of 6 nodes may be taken out"), "{}", pool.reason(spared));
}

#[test]
fn a_draining_node_is_drained_whatever_it_does() {
    let mut pool = Pool::new(3, 11);
    pool.screen.drained(NodeId(2), true);
    pool.ill[2] = Ill::Stopped(200);
    pool.run(20.0);
    assert_eq!(pool.state(2), State::Drained);
    pool.ill[2] = Ill::No;
    pool.screen.drained(NodeId(2), false);
    pool.run(1.0);
    assert_eq!(pool.state(2), State::Healthy);
}

fn anything() -> impl Strategy<Value = Vec<(u8, u8, u8)>> {
    prop::collection::vec((0..9u8, 0..6u8, 0..20u8), 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// Whatever happens: never more than the allowed part is slow, a node in the pool is always
    /// usable, and every diagnosis is explained.
    #[test]
    fn whatever_happens_the_pool_is_served(nodes in 1..6usize, steps in anything(), seed in 0..1000u64) {
        let mut pool = Pool::new(nodes, seed);
        for (what, node, value) in steps {
            let n = usize::from(node) % nodes;
            let id = NodeId(n as u32);
            let now = pool.now;
            match what {
                0 => pool.ill[n] = Ill::No,
                1 => pool.ill[n] = Ill::Stopped(20 + 50 * u64::from(value)),
                2 => pool.ill[n] = Ill::Storage(f64::from(value) + 1.0),
                3 => pool.ill[n] = Ill::Service(f64::from(value) + 1.0),
                4 => pool.ill[n] = Ill::Silent,
                5 => pool.ill[n] = Ill::Failing,
                6 => pool.screen.drained(id, value % 2 == 0),
                7 => pool.screen.disconnected(id, now),
                _ => pool.screen.joined(id, now),
            }
            for _ in 0..4 * u32::from(value) {
                pool.run(0.25);
                let states: Vec<State> = (0..nodes as u32).map(|n| pool.state(n)).collect();
                let there = states.iter().filter(|s| !matches!(s, State::Lost | State::Drained)).count();
                let slow = states.iter().filter(|s| **s == State::Slow).count();
                prop_assert!(there == 0 || slow < there, "{states:?}");
                prop_assert!(slow <= ((there as f64 * 0.34) as usize).max(1), "{states:?}");
                for n in 0..nodes as u32 {
                    prop_assert!(!pool.reason(n).is_empty());
                    if pool.state(n) == State::Slow {
                        prop_assert!(pool.reason(n).contains(|c: char| c.is_ascii_digit()), "{}", pool.reason(n));
                    }
                }
            }
        }
    }
}
