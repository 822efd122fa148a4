//! What the council learned, and what bandits would have made of recorded rewards, as a person reads it.

use anyhow::{Context, Result};
use forebay_control::council::CouncilView;
use forebay_plot::{HeatMap, Size, say, table};
use forebay_tune::replay::{Outcome, Played, Rewards, WINDOW};
use forebay_tune::{LEARNED_FILE, Learned, Values};
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// The latest decisions and why they were made.
pub fn decisions(view: &CouncilView) -> String {
    let mut out = String::new();
    let in_force: Vec<String> = view.in_force.iter().map(ToString::to_string).collect();
    let wants = match &view.in_force[..] {
        [all] if *all == view.standing => String::new(),
        _ if view.mode == "on" => format!(", {} wanted", view.standing),
        _ => format!(", {} if it were on", view.standing),
    };
    let in_force = if in_force.is_empty() { "nothing".to_owned() } else { in_force.join(", ") };
    say!(out, "council {}: {in_force} in force{wants}; detector: {}\n", view.mode, view.model);
    for d in &view.decisions {
        say!(out, "{}", d.why);
    }
    if view.round == 0 {
        say!(out, "it has not decided anything yet");
    }
    out
}

/// From a file, as the arbiter exports it.
pub fn read(path: &Path) -> Result<Learned> {
    let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    let mut bytes = Vec::new();
    // One byte more than is allowed, so that a file that is too large is noticed.
    file.take(LEARNED_FILE.max_bytes as u64 + 1)
        .read_to_end(&mut bytes)
        .with_context(|| format!("cannot read {}", path.display()))?;
    Learned::from_json(&bytes).with_context(|| path.display().to_string())
}

/// A row for each situation, a column for each choice.
pub fn text(learned: &Learned) -> String {
    let mut out = String::new();
    if learned.contexts().is_empty() {
        return format!("nothing has been learned yet ({} decisions)\n", learned.round());
    }
    let (prefix, names) = learned.arms().short_names();
    let mut header =
        vec![if prefix.is_empty() { "situation".into() } else { format!("situation, {prefix}") }];
    header.extend(names.iter().cloned());
    let mut table = table::new(&header, &[]);
    for c in learned.contexts() {
        let mut row = vec![c.context.to_string()];
        row.extend((0..names.len()).map(|arm| cell(&c.values, arm)));
        table.add_row(row);
    }
    say!(out, "{table}");
    say!(
        out,
        "\nMB/s ± 95 % confidence (observations); * best known. {} decisions; default {}.",
        learned.round(),
        learned.arms().names()[learned.arms().default_arm()]
    );
    out
}

fn cell(values: &Values, arm: usize) -> String {
    let e = values.arms()[arm];
    if e.is_blank() {
        return "–".into();
    }
    let star = if values.best() == Some(arm) { "*" } else { "" };
    let half = 1.96 * values.noise() / e.weight.sqrt();
    format!("{star}{:.1} ±{half:.1} ({})", e.mean, e.seen)
}

/// Each choice's reward as a share of the best one's in that situation, as SVG.
pub fn heat_map(learned: &Learned) -> String {
    let share = |values: &Values, arm: usize| {
        let best = values.best().map_or(0.0, |b| values.arms()[b].mean);
        let e = values.arms()[arm];
        if e.is_blank() || best <= 0.0 { f64::NAN } else { e.mean / best }
    };
    let (prefix, arms) = learned.arms().short_names();
    let rows = learned.contexts().len();
    HeatMap {
        title: "Reward of each arm, as a share of the best in its situation".into(),
        size: Size::new(300.0 + 70.0 * arms.len() as f64, 140.0 + 34.0 * rows.max(2) as f64),
        x_label: if prefix.is_empty() { "arm".into() } else { prefix },
        columns: arms.clone(),
        rows: learned.contexts().iter().map(|c| c.context.to_string()).collect(),
        cells: learned
            .contexts()
            .iter()
            .map(|c| (0..arms.len()).map(|a| share(&c.values, a)).collect())
            .collect(),
        format: |v| format!("{:.0} %", v * 100.0),
        ..HeatMap::default()
    }
    .svg()
}

/// How one bandit did in every scenario.
pub fn outcomes(played: &Played, rewards: &Rewards) -> String {
    let worst = format!("worst {WINDOW}");
    let header = [played.bandit.as_str(), "best arm", "precision", "performance", "overall", worst.as_str()];
    let mut table = table::new(&header, &["best arm"]);
    for (o, s) in played.outcomes.iter().zip(&rewards.scenarios) {
        let mut row = vec![o.scenario.clone(), rewards.arms[s.best()].clone()];
        row.extend([o.precision, o.performance, o.overall, o.worst_window].map(|x| format!("{x:.3}")));
        table.add_row(row);
    }
    let n = played.outcomes.len() as f64;
    let mean = |of: fn(&Outcome) -> f64| format!("{:.3}", played.outcomes.iter().map(of).sum::<f64>() / n);
    let least = played.outcomes.iter().map(|o| o.worst_window).fold(f64::INFINITY, f64::min);
    table.add_row([
        "mean (worst: least)".to_string(),
        String::new(),
        mean(|o| o.precision),
        mean(|o| o.performance),
        mean(|o| o.overall),
        format!("{least:.3}"),
    ]);
    table.to_string()
}
