//! Announcers: what reporting to an arbiter costs, and how fast it decides for
//! 768 I/O nodes.

mod crowd;

use super::Experiment;
use super::storage;
use super::workload::Workload;
use crate::fleet::{Arbiter, Fleet};
use crate::machine::load;
use crate::outcome::{Outcome, Table, csv};
use crate::{Progress, Size};
use anyhow::Result;
use forebay_embed::RunDir;
use forebay_plot::{Axis, Line, Series};
use forebay_tune::Arms;
use forebay_types::stats::{median, quantile};
use std::time::Duration;

const NODES: usize = 4;
const PROCESSES: usize = 16;
/// Reporting I/O nodes.
const ANNOUNCERS: usize = 768;

/// What metrics, reports and decisions cost.
///
/// Overhead: twelve scenarios on emulated storage through four I/O node processes that report to an
/// arbiter in shadow mode (it learns and decides, and the decisions are ignored), against four that know
/// no arbiter; the two take turns within each scenario. Decisions: 768 connections report each second,
/// one after the other as nodes whose intervals begin at different times do, and change their scheduler
/// as the arbiter says; from the last report to the decision that the first and the last of them hears.
#[derive(Clone, Debug)]
pub struct Announcers {
    /// How much to do.
    pub size: Size,
    /// Turns of each side in each scenario; 0 measures the decisions only.
    pub turns: usize,
    /// Rounds of reports.
    pub rounds: usize,
}

impl Default for Announcers {
    fn default() -> Announcers {
        Announcers { size: Size::Small, turns: 5, rounds: 100 }
    }
}

impl Experiment for Announcers {
    fn run(&self, progress: &dyn Progress) -> Result<Outcome> {
        let (mut found, mut rows) = (Outcome::default(), Vec::new());
        if self.turns > 0 {
            self.overhead(&mut found, &mut rows, progress)?;
        }
        let times = self.decisions(&mut found, &mut rows, progress)?;
        let quantile = |q: f64| quantile(&times, q) * 1e3;
        let chart = Line {
            title: format!("From the last of {ANNOUNCERS} reports to the last decision"),
            size: forebay_plot::Size::new(720.0, 360.0),
            x: Axis::linear("share of the rounds, %"),
            y: Axis::linear("ms"),
            series: vec![Series::new("", (0..=100).map(|p| (f64::from(p), quantile(f64::from(p) / 100.0))))],
            ..Line::default()
        };
        found.figures("announcers", csv(["what", "case", "value", "unit"], &rows), chart.svg());
        Ok(found)
    }
}

impl Announcers {
    /// What each scenario loses by reporting.
    fn overhead(
        &self,
        found: &mut Outcome,
        rows: &mut Vec<[String; 4]>,
        progress: &dyn Progress,
    ) -> Result<()> {
        let arms = Arms::twins_windows();
        let dir = RunDir::in_memory()?;
        let settings = storage::shared(storage::RECORDED, &arms.all()[arms.default_arm()], 1000)?;
        let (quiet_dir, loud_dir) = (dir.path().join("quiet"), dir.path().join("loud"));
        std::fs::create_dir(&quiet_dir)?;
        std::fs::create_dir(&loud_dir)?;
        let quiet = Fleet::start(&quiet_dir, NODES, &settings)?;
        let port = Arbiter::free_port()?;
        let url = format!("arbiters = [\"http://127.0.0.1:{port}\"]\n{settings}");
        let loud = Fleet::start(&loud_dir, NODES, &url)?;
        let arbiter = Arbiter::start(&loud, port, "[tune]\nmode = \"shadow\"\n")?;
        let span = Duration::from_millis(self.size.full_or(5000, 1000));
        let scenarios = Workload::twelve(PROCESSES);
        let turns = self.turns;
        progress.begin(scenarios.len() * turns * 2);
        let mut t = Table::new(["scenario", "alone MB/s", "reporting MB/s", "lost"]);
        let mut lost = Vec::new();
        for scenario in &scenarios {
            scenario.prepare(&quiet_dir)?;
            scenario.prepare(&loud_dir)?;
            let mut rates = [Vec::new(), Vec::new()];
            for turn in 0..turns {
                // Each turn begins with the other side.
                for i in 0..2 {
                    let side = (i + turn) % 2;
                    let fleet = [&quiet, &loud][side];
                    progress.doing(&format!("{}, {}", scenario.name(), ["alone", "reporting"][side]));
                    let connect = |rank: usize| fleet.client("overhead", rank * NODES / PROCESSES);
                    rates[side].push(scenario.run_for(connect, span)? as f64 / 1e6 / span.as_secs_f64());
                    progress.advance(1);
                }
            }
            let [alone, reporting] = rates.map(|rates| median(&rates));
            let loss = 1.0 - reporting / alone;
            lost.push(loss);
            t.row([
                scenario.name(),
                format!("{alone:.1}"),
                format!("{reporting:.1}"),
                format!("{:+.2} %", loss * 100.0),
            ]);
            rows.push(["overhead".into(), scenario.name(), format!("{loss:.5}"), "share".into()]);
        }
        drop(arbiter);
        found.line(format!("medians of {turns} turns of {} s ({})", span.as_secs_f64(), load()));
        found.table(t);
        let middle = median(&lost);
        found.judge(
            format!("median overhead over {} scenarios ≤1 %: {:+.2} %", scenarios.len(), middle * 100.0),
            middle <= 0.01,
        );
        Ok(())
    }

    /// How long decisions take, in seconds.
    fn decisions(
        &self,
        found: &mut Outcome,
        rows: &mut Vec<[String; 4]>,
        progress: &dyn Progress,
    ) -> Result<Vec<f64>> {
        let dir = RunDir::in_memory()?;
        // No nodes of its own: the connections play them.
        let fleet = Fleet::start(dir.path(), 0, "")?;
        // Any window at any time, so that nearly every round has something to tell; and nobody is given up
        // while all connect.
        let restless = "node-grace-ms = 60000\n[tune]\nmode = \"on\"\npolicy = { name = \"epsilon-greedy\", epsilon = 1.0 }\n\
                        guard = { floor = 0.0, window = 10000, margin = 0.99 }\n";
        let arbiter = Arbiter::start(&fleet, Arbiter::free_port()?, restless)?;
        progress.begin(self.rounds);
        progress.doing(&format!("{ANNOUNCERS} connections report"));
        let times = crowd::run(&arbiter, ANNOUNCERS, self.rounds, &|| progress.advance(1))?;
        found.line(format!(
            "{ANNOUNCERS} connections, {} rounds of which {} changed the scheduler ({}); ms from the last report:",
            self.rounds,
            times.len(),
            load(),
        ));
        let mut t = Table::new(["until", "p50", "p90", "p99", "most"]);
        let mut told = [Vec::new(), Vec::new()];
        for (what, pick) in [(0, "the first is told"), (1, "all are told")] {
            let times: Vec<f64> = times.iter().map(|t| t[what]).collect();
            for time in &times {
                rows.push(["decision".into(), pick.into(), format!("{:.3}", time * 1e3), "ms".into()]);
            }
            let ms = |q: f64| format!("{:.1}", quantile(&times, q) * 1e3);
            t.row([pick.to_owned(), ms(0.5), ms(0.9), ms(0.99), ms(1.0)]);
            told[what] = times;
        }
        found.table(t);
        let [first, all] = told.each_ref().map(|t| quantile(t, 0.99) * 1e3);
        found.judge(format!("decision for {ANNOUNCERS} announcers, p99 <20 ms: {first:.1} ms"), first < 20.0);
        found.judge(format!("and all of them told, p99 <20 ms: {all:.1} ms"), all < 20.0);
        let [_, all] = told;
        Ok(all)
    }
}
