//! `forebay analyze`: what measurements say about how many I/O nodes a pattern wants.

use anyhow::Context;
use forebay_explore::analysis::{Measurements, Rule, assess, html, text};
use forebay_explore::curves;
use forebay_types::input;
use std::path::PathBuf;
use std::process::ExitCode;

/// Tell how many I/O nodes each scenario wants, from measurements.
///
/// Reads the CSV files that `forebay explore` writes, or those of the FORGE evaluation: one row per
/// repetition, with at least the columns scenario, compute_nodes, processes, layout (0 file per
/// process, 1 shared), spatiality (0 contiguous, 1 strided, 2 random), request_kb, io_nodes (0 is
/// direct access) and bandwidth_mbs.
///
/// For each scenario it prints the median bandwidth by number of I/O nodes with its quartiles, how often
/// it was measured, whether the number of I/O nodes matters at all (Kruskal-Wallis), and, where it does,
/// the best number, the smallest number that is as good, and the numbers that really differ (Dunn's
/// test). Both tests are corrected for ties.
#[derive(clap::Args)]
#[command(after_long_help = "Examples:\n  \
    forebay analyze results.csv\n  \
    forebay analyze data/marenostrum4.csv --html report.html\n  \
    forebay analyze data/marenostrum4.csv --as-published --json | jq .distinct")]
pub(crate) struct Analyze {
    /// Measurements; several files are read as one.
    #[arg(required = true, value_name = "CSV")]
    files: Vec<PathBuf>,

    /// Print the report as JSON.
    #[arg(long)]
    json: bool,

    /// Compare Dunn's Z with 0.05, as the FORGE study's published figure did, instead of p with α/2,
    /// as its text describes.
    #[arg(long)]
    as_published: bool,

    /// Write the report, with plots, as one self-contained HTML page.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,

    /// Write the bandwidth curves (pattern to bandwidth by number of I/O nodes, with spread) that
    /// the arbiter reads, and tell how well patterns not measured can be estimated from them.
    #[arg(long, value_name = "FILE")]
    curves: Option<PathBuf>,
}

impl Analyze {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        for out in self.html.iter().chain(&self.curves) {
            forebay_lab::can_write(out, &self.files)?;
        }
        if let (Some(html), Some(curves)) = (&self.html, &self.curves) {
            forebay_lab::apart(("--html", html), ("--curves", curves))?;
        }
        forebay_lab::no_twins(&self.files)?;
        let mut measurements = Measurements::default();
        for path in &self.files {
            let file = input::open(path).with_context(|| format!("cannot open {}", path.display()))?;
            measurements.add_csv(&path.display().to_string(), file)?;
        }
        let rule = if self.as_published { Rule::Published } else { Rule::Described };
        let report = assess(&measurements, rule);
        if let Some(path) = &self.html {
            let names: Vec<_> =
                self.files.iter().filter_map(|f| f.file_stem()).map(|s| s.to_string_lossy()).collect();
            let page = html(&report, &format!("I/O nodes: {}", names.join(", ")));
            forebay_lab::put(path, page)?;
        }
        let mut quality = None;
        if let Some(path) = &self.curves {
            let curves = curves::of(&report)?;
            let mut table = Vec::new();
            curves.to_csv(&mut table)?;
            forebay_lab::put(path, table)?;
            quality = curves.leave_one_out();
        }
        if self.json {
            println!("{}", serde_json::to_string_pretty(&report)?);
            return Ok(ExitCode::SUCCESS);
        }
        print!("{}", text(&report));
        if let Some(path) = &self.html {
            println!("\nreport: {}", path.display());
        }
        if let Some(path) = &self.curves {
            println!("\ncurves: {} ({} patterns)", path.display(), report.scenarios);
        }
        if let Some(q) = quality {
            println!("{q}");
        }
        Ok(ExitCode::SUCCESS)
    }
}
