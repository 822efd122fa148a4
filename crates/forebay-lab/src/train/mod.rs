//! What detectors are trained on and how good they are: labelled metrics from real I/O nodes or files.

mod course;
mod measure;
mod report;
mod text;

pub use course::{Course, Source};
pub use measure::{INTERVAL_MS, Plan, measure};
pub use report::{DetectorReport, Score, TrainingReport, assess};
pub use text::text;

use anyhow::{Context, Result, bail};
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use forebay_pattern::data::{self, Row};
use forebay_types::input::{Bounded, Rows, TABLE};
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

/// Rows from a CSV file, compressed if its name ends in `.gz`.
pub fn read(path: &Path) -> Result<Vec<Row>> {
    let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    let file = BufReader::new(file);
    let text: Box<dyn Read> = if is_gz(path) { Box::new(GzDecoder::new(file)) } else { Box::new(file) };
    // Unpacked: a short file may hold a long one.
    let rows = data::read_csv(Rows::new(Bounded::new(text, TABLE)));
    let name = path.display();
    let other =
        || format!("{name} is not a file of labelled metrics (columns: {})", data::COLUMNS.join(", "));
    let rows = rows.map_err(|e| {
        let what = if e.is_io_error() { format!("cannot read {name}") } else { other() };
        anyhow::Error::new(e).context(what)
    })?;
    if rows.is_empty() {
        bail!("{}: it has no rows", other());
    }
    Ok(rows)
}

fn is_gz(path: &Path) -> bool {
    path.extension().is_some_and(|e| e == "gz")
}

/// Writes rows as CSV, compressed if the name ends in `.gz`.
pub fn write(path: &Path, rows: &[Row]) -> Result<()> {
    let mut text = Vec::new();
    if is_gz(path) {
        let mut packed = GzEncoder::new(&mut text, Compression::best());
        data::write_csv(&mut packed, rows)?;
        packed.finish()?;
    } else {
        data::write_csv(&mut text, rows)?;
    }
    crate::put(path, text)
}
