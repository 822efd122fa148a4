//! Rewards: what each TWINS window brings in each of twelve scenarios on emulated
//! storage, and what bandits would have made of it.

use super::Experiment;
use super::storage;
use super::workload::Workload;
use crate::fleet::Fleet;
use crate::machine::{load, wall_clock};
use crate::outcome::{Outcome, csv};
use crate::{Progress, Size};
use anyhow::Result;
use forebay_embed::RunDir;
use forebay_plot::HeatMap;
use forebay_tune::policy::Ucb1;
use forebay_tune::replay::{self, Play, separately};
use forebay_tune::{Arms, BanditConfig, Guard, Memory, RewardRule};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

const NODES: usize = 4;
const PROCESSES: usize = 16;
/// Requests of the window before are still on their way for so long.
const SETTLE: Duration = Duration::from_millis(300);

/// Record what every time window (TWINS) brings, for learning offline.
///
/// 16 processes read and write (a file each, one shared file contiguously and 1D-strided; 32 and 256
/// KiB) through four I/O node processes on emulated storage, under each of the seven windows in turn.
/// Each interval of each node is a reward, as the arbiter would have booked it. The recording (CSV) is
/// what `forebay learned replay` plays bandits against; its verdict is printed here, too.
#[derive(Clone, Debug)]
pub struct Rewards {
    /// How much to do.
    pub size: Size,
    /// How often every window is measured in every scenario.
    pub rounds: usize,
}

impl Default for Rewards {
    fn default() -> Rewards {
        Rewards { size: Size::Small, rounds: 3 }
    }
}

impl Experiment for Rewards {
    fn run(&self, progress: &dyn Progress) -> Result<Outcome> {
        let arms = Arms::twins_windows();
        let names = arms.names();
        let span = Duration::from_millis(self.size.full_or(10_000, 900));
        let dir = RunDir::in_memory()?;
        let settings = storage::shared(storage::RECORDED, &arms.all()[arms.default_arm()], 200)?;
        let fleet = Fleet::start(dir.path(), NODES, &settings)?;
        let scenarios = Workload::twelve(PROCESSES);
        progress.begin(scenarios.len() * self.rounds.max(1) * names.len());
        let mut rows: Vec<[String; 4]> = Vec::new();
        for scenario in &scenarios {
            scenario.prepare(dir.path())?;
            let (stop, moved) = (AtomicBool::new(false), AtomicU64::new(0));
            std::thread::scope(|s| -> Result<()> {
                let work = s.spawn(|| {
                    let connect = |rank: usize| fleet.client("rewards", rank * NODES / PROCESSES);
                    scenario.run(connect, &stop, &moved)
                });
                let measured = (0..self.rounds.max(1)).try_for_each(|round| {
                    // Each round begins with another window, so that none always follows the same one.
                    (0..names.len()).try_for_each(|i| {
                        let arm = (i + round * 3) % names.len();
                        progress.doing(&format!("{}, {}", scenario.name(), names[arm]));
                        fleet.schedule(&arms.all()[arm])?;
                        rows.extend(measure(&fleet, scenario, &names[arm], span)?);
                        progress.advance(1);
                        Ok(())
                    })
                });
                stop.store(true, Relaxed);
                work.join().unwrap_or_else(|_| anyhow::bail!("a process of the experiment failed"))?;
                measured
            })?;
        }
        let text = csv(["scenario", "arm", "reward", "node"], &rows);
        let rewards = replay::Rewards::read_csv(text.as_bytes())?;
        let mut found = Outcome::default();
        found.line(format!(
            "{} rewards: {} scenarios, {} windows, {PROCESSES} processes, {NODES} I/O nodes ({})",
            rows.len(),
            rewards.scenarios.len(),
            names.len(),
            load()
        ));
        found.line(format!("emulated storage: the model {}", storage::RECORDED));
        judge(&mut found, &rewards, arms.default_arm());
        found.figures("rewards", text, chart(&rewards));
        Ok(found)
    }
}

/// The rewards of every node's whole intervals under one window.
fn measure(fleet: &Fleet, scenario: &Workload, arm: &str, span: Duration) -> Result<Vec<[String; 4]>> {
    let rule = RewardRule::default();
    std::thread::sleep(SETTLE);
    let since = wall_clock();
    std::thread::sleep(span);
    let mut rows = Vec::new();
    for node in 0..fleet.len() {
        for interval in fleet.intervals(node, since)? {
            if let Some(reward) = rule.reward(&interval.load, interval.end.since(interval.start)) {
                rows.push([scenario.name(), arm.into(), format!("{reward:.3}"), node.to_string()]);
            }
        }
    }
    Ok(rows)
}

fn judge(found: &mut Outcome, rewards: &replay::Rewards, default: usize) {
    let play = |guard| Play {
        policy: BanditConfig::Ucb1(Ucb1::default()),
        memory: Memory::All,
        guard,
        default,
        observations: 200,
        repetitions: 100,
        seed: 1,
    };
    let free = separately(rewards, &play(None));
    let least = free.iter().map(|o| o.performance).fold(f64::INFINITY, f64::min);
    let mean = free.iter().map(|o| o.performance).sum::<f64>() / free.len() as f64;
    found.judge(
        format!("UCB1 ≥0.95 of the best window after 200 observations, everywhere: {least:.3} at least"),
        least >= 0.95,
    );
    found.judge(format!("≥0.98 on average: {mean:.3}"), mean >= 0.98);
    let guarded = separately(rewards, &play(Some(Guard::default())));
    let worst = guarded.iter().map(|o| o.worst_window).fold(f64::INFINITY, f64::min);
    found.judge(
        format!("guarded, never below 0.9 of the default over any 30 observations: {worst:.3}"),
        worst >= 0.9,
    );
}

fn chart(rewards: &replay::Rewards) -> String {
    HeatMap {
        title: "What each window brings, as a share of the best in its scenario".into(),
        size: forebay_plot::Size::new(820.0, 140.0 + 30.0 * rewards.scenarios.len() as f64),
        x_label: "TWINS window".into(),
        columns: rewards.arms.iter().map(|a| a.trim_start_matches("twins:window=").to_owned()).collect(),
        rows: rewards.scenarios.iter().map(|s| s.name.clone()).collect(),
        cells: rewards
            .scenarios
            .iter()
            .map(|s| (0..rewards.arms.len()).map(|a| s.performance(a)).collect())
            .collect(),
        format: |v| format!("{:.0} %", v * 100.0),
        ..HeatMap::default()
    }
    .svg()
}
