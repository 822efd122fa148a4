//! `forebay experiment rewards`: what each TWINS window brings in each of twelve scenarios on emulated
//! storage, and what bandits would have made of it.

use super::storage;
use super::workload::Workload;
use super::{Common, csv, load, progress, verdict};
use crate::cmd::fleet::{Fleet, wall_clock};
use crate::cmd::scratch;
use anyhow::Result;
use clap::Args;
use forebay_plot::{HeatMap, Size};
use forebay_tune::policy::Ucb1;
use forebay_tune::replay::{Play, Rewards, separately};
use forebay_tune::{Arms, Guard, Memory, PolicyConfig, RewardRule};
use std::process::ExitCode;
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
#[derive(Args)]
pub(super) struct RewardsArgs {
    #[command(flatten)]
    common: Common,
    /// How often every window is measured in every scenario.
    #[arg(long, value_name = "N", default_value_t = 3)]
    rounds: usize,
}

impl RewardsArgs {
    pub(super) fn run(self) -> Result<ExitCode> {
        let arms = Arms::twins_windows();
        let names = arms.names();
        let span = Duration::from_millis(if self.common.full { 10_000 } else { 900 });
        let dir = scratch::directory(&scratch::memory(), "rewards")?;
        let settings = storage::RECORDED.settings(&arms.all()[arms.default_arm()], 200);
        let fleet = Fleet::start(dir.path(), NODES, &settings)?;
        let scenarios = Workload::twelve(PROCESSES);
        let bar = progress(scenarios.len() * self.rounds.max(1) * names.len());
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
                        bar.set_message(format!("{}, {}", scenario.name(), names[arm]));
                        fleet.schedule(&arms.all()[arm])?;
                        rows.extend(measure(&fleet, scenario, &names[arm], span)?);
                        bar.inc(1);
                        Ok(())
                    })
                });
                stop.store(true, Relaxed);
                work.join().unwrap_or_else(|_| anyhow::bail!("a process of the experiment failed"))?;
                measured
            })?;
        }
        bar.finish_and_clear();
        let text = csv(["scenario", "arm", "reward", "node"], &rows);
        let rewards = Rewards::read_csv(text.as_bytes())?;
        println!(
            "{} rewards: {} scenarios, {} windows, {PROCESSES} processes, {NODES} I/O nodes ({})",
            rows.len(),
            rewards.scenarios.len(),
            names.len(),
            load()
        );
        println!("emulated storage: {}\n", storage::RECORDED.describe());
        judge(&rewards, arms.default_arm());
        self.common.write("rewards", &text, &chart(&rewards))?;
        Ok(ExitCode::SUCCESS)
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

fn judge(rewards: &Rewards, default: usize) {
    let play = |guard| Play {
        policy: PolicyConfig::Ucb1(Ucb1::default()),
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
    verdict(
        &format!("UCB1 ≥0.95 of the best window after 200 observations, everywhere: {least:.3} at least"),
        least >= 0.95,
    );
    verdict(&format!("≥0.98 on average: {mean:.3}"), mean >= 0.98);
    let guarded = separately(rewards, &play(Some(Guard::default())));
    let worst = guarded.iter().map(|o| o.worst_window).fold(f64::INFINITY, f64::min);
    verdict(
        &format!("guarded, never below 0.9 of the default over any 30 observations: {worst:.3}"),
        worst >= 0.9,
    );
}

fn chart(rewards: &Rewards) -> String {
    HeatMap {
        title: "What each window brings, as a share of the best in its scenario".into(),
        size: Size::new(820.0, 140.0 + 30.0 * rewards.scenarios.len() as f64),
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
