//! Labelled metrics from real I/O nodes: the explorer's processes play every pattern through node
//! processes, and what the nodes saw is labelled with what was played.

use crate::Progress;
use crate::fleet::Fleet;
use crate::machine::wall_clock;
use anyhow::{Context, Result};
use forebay_embed::RunDir;
use forebay_explore::run::machine::Local;
use forebay_explore::run::{Run, Study, Via};
use forebay_explore::scenario::{Data, Fsync, Job, Layout, Scenario, SizeShare, Spatiality, Step, Target};
use forebay_pattern::data::{Label, Row};
use forebay_types::{Nanos, Pattern};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use std::net::TcpListener;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// How long the nodes' intervals are. A second, as in operation, would need ten times as long for as
/// many rows; what detectors look at are shares, which do not depend on it.
pub const INTERVAL_MS: u64 = 100;
/// Pause of a process after each request, so that the machine is not what is measured.
const PAUSE: Duration = Duration::from_millis(10);
/// Fewer comparable requests in an interval than this are no load, and detectors refuse them.
const LEAST_JUDGED: u64 = 8;

/// Which combinations to play.
#[derive(Clone, Debug)]
pub struct Plan {
    sizes: Vec<u64>,
    processes: Vec<u32>,
    io_nodes: Vec<u32>,
    /// Requests of each process.
    requests: u64,
}

impl Plan {
    /// What the shipped model is trained on.
    pub fn full() -> Plan {
        Plan {
            sizes: vec![32 << 10, 64 << 10, 128 << 10, 256 << 10],
            processes: vec![8, 16, 32],
            io_nodes: vec![1, 2, 4],
            requests: 50,
        }
    }

    /// Less than a minute.
    pub fn small() -> Plan {
        Plan { sizes: vec![32 << 10, 64 << 10], processes: vec![4, 8], io_nodes: vec![1], requests: 30 }
    }
}

/// What some of the processes do.
#[derive(Clone, Copy)]
struct Habit {
    layout: Layout,
    spatiality: Spatiality,
}

const OWN: Habit = Habit { layout: Layout::FilePerProcess, spatiality: Spatiality::Contiguous };
const OWN_RANDOM: Habit = Habit { layout: Layout::FilePerProcess, spatiality: Spatiality::Random };
const SEGMENTS: Habit = Habit { layout: Layout::Shared, spatiality: Spatiality::Contiguous };
const STRIDED: Habit = Habit { layout: Layout::Shared, spatiality: Spatiality::Strided };
const RANDOM: Habit = Habit { layout: Layout::Shared, spatiality: Spatiality::Random };

/// The patterns; two habits are those of one half and of the other half of the processes, which
/// together have no name among the classes.
const PLAYS: [(Pattern, &[Habit]); 9] = [
    (Pattern::FppContiguous, &[OWN]),
    (Pattern::SharedContiguous, &[SEGMENTS]),
    (Pattern::SharedStrided, &[STRIDED]),
    (Pattern::Random, &[RANDOM]),
    (Pattern::Random, &[OWN_RANDOM]),
    (Pattern::Unknown, &[OWN, RANDOM]),
    (Pattern::Unknown, &[SEGMENTS, STRIDED]),
    (Pattern::Unknown, &[STRIDED, RANDOM]),
    (Pattern::Unknown, &[OWN, STRIDED]),
];

/// One run.
#[derive(Clone, Copy)]
struct Play {
    class: Pattern,
    habits: &'static [Habit],
    /// Reads or writes.
    reads: bool,
    request_size: u64,
    processes: u32,
    io_nodes: u32,
}

impl Play {
    /// Processes that share a job's name are one flow to the nodes.
    fn scenario(&self, requests: u64, seed: u64) -> Scenario {
        let each = self.processes / self.habits.len() as u32;
        let job = |(i, habit): (usize, &Habit)| {
            let data = Data {
                target: Target { path: format!("part-{i}"), layout: habit.layout, direct_io: false },
                read_share: if self.reads { 1.0 } else { 0.0 },
                spatiality: habit.spatiality,
                total_size: requests * self.request_size * u64::from(each),
                sizes: vec![SizeShare { size: self.request_size, weight: 1.0 }],
                think: PAUSE,
                stone_wall: Duration::ZERO,
                validation: false,
                fsync: Fsync::Never,
            };
            Job {
                name: "train".into(),
                compute_nodes: self.io_nodes,
                processes_per_node: each / self.io_nodes,
                delay: Duration::ZERO,
                steps: vec![Step::Data(data)],
            }
        };
        Scenario {
            name: self.class.name().into(),
            jobs: self.habits.iter().enumerate().map(job).collect(),
            io_nodes: vec![self.io_nodes],
            repetitions: Some(1),
            shuffle: false,
            seed,
            scheduler: None,
            dispatchers: None,
        }
    }
}

impl Plan {
    /// Every combination, in random order: what disturbs the machine for a while disturbs no class
    /// alone.
    fn plays(&self, seed: u64) -> Vec<Play> {
        let mut plays = Vec::new();
        for &request_size in &self.sizes {
            for &processes in &self.processes {
                for &io_nodes in &self.io_nodes {
                    for (class, habits) in PLAYS {
                        // Two processes a node at least: one alone cannot be told to share its file.
                        if processes >= io_nodes * 2 {
                            let play =
                                |reads| Play { class, habits, reads, request_size, processes, io_nodes };
                            plays.extend([play(false), play(true)]);
                        }
                    }
                }
            }
        }
        plays.shuffle(&mut ChaCha8Rng::seed_from_u64(seed));
        plays
    }
}

/// Plays `plan` with files below `at` and gives what the I/O nodes saw, and in how many runs.
pub fn measure(plan: &Plan, at: &Path, seed: u64, progress: &dyn Progress) -> Result<(Vec<Row>, usize)> {
    let dir = RunDir::create(at).context("where the files of the scenarios go (see --at)")?;
    let nodes = plan.io_nodes.iter().max().copied().unwrap_or(1) as usize;
    let fleet = Fleet::start(dir.path(), nodes, &format!("interval-ms = {INTERVAL_MS}"))?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let stop = AtomicBool::new(false);
    let study = Study {
        root: fleet.data().to_owned(),
        via: Via::Client,
        standing: Some(fleet.standing()),
        scratch: fleet.dir().to_owned(),
        listener: &listener,
        token: format!("{:032x}", rand::random::<u128>()),
        stop: &stop,
    };
    let plays = plan.plays(seed);
    progress.begin(plays.len());
    let mut machine = Local::default();
    let mut rows = Vec::new();
    for (number, play) in plays.iter().enumerate() {
        progress.doing(&format!(
            "{} {}, {} processes, {} KiB, {} I/O nodes",
            if play.reads { "read" } else { "write" },
            play.class,
            play.processes,
            play.request_size >> 10,
            play.io_nodes
        ));
        let scenario = play.scenario(plan.requests, seed.wrapping_add(number as u64));
        let began = wall_clock();
        let run = Run { scenario: 0, io_nodes: play.io_nodes, repetition: 1 };
        study.run(&scenario, run, number as u64, &mut machine)?;
        // The last interval is still open.
        std::thread::sleep(Duration::from_millis(INTERVAL_MS + 20));
        for node in 0..play.io_nodes {
            rows.extend(seen(&fleet, number as u32, node, play, began)?);
        }
        progress.advance(1);
    }
    Ok((rows, plays.len()))
}

/// What a node saw of a run.
fn seen(fleet: &Fleet, run: u32, node: u32, play: &Play, began: Nanos) -> Result<Vec<Row>> {
    let intervals = fleet.intervals(node as usize, began)?;
    let flows = intervals.into_iter().enumerate().flat_map(|(i, v)| v.flows.into_iter().map(move |f| (i, f)));
    // The label speaks of all processes: an interval in which some have ended already is left out.
    let all = play.processes / play.io_nodes;
    let loaded = flows.filter(|(_, f)| f.judged >= LEAST_JUDGED && f.clients == all);
    let row = |(second, metrics): (usize, _)| Row {
        label: Label {
            run,
            node,
            second: second as u32,
            class: play.class,
            request_size: play.request_size,
            processes: play.processes,
            io_nodes: play.io_nodes,
        },
        metrics,
    };
    Ok(loaded.map(row).collect())
}
