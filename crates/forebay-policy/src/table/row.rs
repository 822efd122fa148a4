//! One row of a table of curves.

use super::{Facts, TableError};
use crate::curve::{Point, Spread};
use forebay_types::input::Rows;
use forebay_types::{Bandwidth, Layout, Operation, Spatiality};
use serde::{Deserialize, Serialize, Serializer};
use std::fmt::Display;
use std::io::Read;

/// What one row says: one repetition, or the mean of several.
#[derive(Clone, Debug, PartialEq)]
pub struct TableRow {
    /// Where it stands in the file.
    pub line: u64,
    /// As the file calls it.
    pub scenario: String,
    /// What the scenario does.
    pub facts: Facts,
    /// With how many I/O nodes; 0 is direct access.
    pub io_nodes: u32,
    /// MB/s; operations a second where those are counted.
    pub value: f64,
    /// How far the repetitions lie apart, where the row is the mean of some.
    pub spread: Option<Spread>,
    /// When it was measured, in seconds since 1970.
    pub started: Option<f64>,
}

impl TableRow {
    /// A scenario is described in one way only.
    pub fn described_as(&self, facts: &Facts) -> Result<(), String> {
        if self.facts == *facts {
            return Ok(());
        }
        Err(format!("scenario {} is described in another way further up", self.scenario))
    }
}

/// Reads a table row by row: that of the FORGE evaluation, the explorer's, or one of means. Further columns
/// are ignored.
pub fn table_rows(input: impl Read) -> Result<Vec<TableRow>, TableError> {
    let mut reader = csv::ReaderBuilder::new().trim(csv::Trim::All).from_reader(Rows::new(input));
    let headers = reader.headers()?.clone();
    let mut rows = Vec::new();
    for record in reader.records() {
        let record = record?;
        let line = record.position().map_or(0, |p| p.line());
        let row: Row = record.deserialize(Some(&headers))?;
        rows.push(row.checked(line).map_err(|what| TableError::Value { line, what })?);
    }
    Ok(rows)
}

/// A row as it stands in the file.
#[derive(Serialize, Deserialize)]
pub(super) struct Row {
    scenario: String,
    compute_nodes: u32,
    processes: u32,
    layout: u8,
    spatiality: u8,
    #[serde(serialize_with = "plain")]
    request_kb: f64,
    io_nodes: u32,
    bandwidth_mbs: f64,
    #[serde(default)]
    operation: Option<String>,
    #[serde(default)]
    low_mbs: Option<f64>,
    #[serde(default)]
    high_mbs: Option<f64>,
    #[serde(default)]
    std_dev_mbs: Option<f64>,
    #[serde(default)]
    samples: Option<u32>,
    #[serde(default, skip_serializing)]
    ops_per_s: Option<f64>,
    #[serde(default, skip_serializing)]
    started: Option<f64>,
}

/// A number as people write it: `32`, not `32.0`.
fn plain<S: Serializer>(v: &f64, s: S) -> Result<S::Ok, S::Error> {
    s.serialize_str(&v.to_string())
}

/// All that may stand in a column: `0 (contiguous), 1 (strided) or 2 (random)`.
fn codes(all: &[impl Display]) -> String {
    let all: Vec<String> = all.iter().enumerate().map(|(code, one)| format!("{code} ({one})")).collect();
    all.join(" or ")
}

impl Row {
    /// The mean of what was measured of a scenario with one number of I/O nodes.
    pub(super) fn of(scenario: &str, facts: &Facts, p: &Point) -> Row {
        Row {
            scenario: scenario.to_owned(),
            compute_nodes: facts.compute_nodes,
            processes: facts.processes,
            layout: u8::from(facts.shared),
            spatiality: facts.spatiality.code(),
            request_kb: facts.request_kb,
            io_nodes: p.io_nodes,
            bandwidth_mbs: p.bandwidth.0,
            operation: Some(facts.operation.to_string()),
            low_mbs: Some(p.spread.map_or(p.bandwidth.0, |s| s.low.0)),
            high_mbs: Some(p.spread.map_or(p.bandwidth.0, |s| s.high.0)),
            std_dev_mbs: Some(p.spread.map_or(0.0, |s| s.std_dev)),
            samples: Some(p.spread.map_or(1, |s| s.samples)),
            ops_per_s: None,
            started: None,
        }
    }

    fn checked(self, line: u64) -> Result<TableRow, String> {
        let facts = self.facts()?;
        if self.scenario.chars().any(char::is_control) {
            return Err(format!("the name {:?} has control characters", self.scenario));
        }
        let mbs = self.bandwidth_mbs;
        let more = [self.low_mbs, self.high_mbs, self.std_dev_mbs, self.ops_per_s].into_iter().flatten();
        if let Some(v) = [mbs].into_iter().chain(more).find(|v| !v.is_finite() || *v < 0.0) {
            return Err(format!("{v} MB/s is not a bandwidth"));
        }
        let spread = self.samples.map(|samples| Spread {
            low: Bandwidth(self.low_mbs.unwrap_or(mbs)),
            high: Bandwidth(self.high_mbs.unwrap_or(mbs)),
            std_dev: self.std_dev_mbs.unwrap_or(0.0),
            samples,
        });
        let value = self.ops_per_s.filter(|_| facts.operation.counts_operations()).unwrap_or(mbs);
        let Row { scenario, io_nodes, started, .. } = self;
        Ok(TableRow { line, scenario, facts, io_nodes, value, spread, started })
    }

    fn facts(&self) -> Result<Facts, String> {
        let Row { compute_nodes, processes, request_kb, .. } = *self;
        let layout = Layout::from_code(self.layout)
            .ok_or_else(|| format!("layout is {}, not {}", self.layout, codes(&Layout::ALL)))?;
        let spatiality = Spatiality::from_code(self.spatiality)
            .ok_or_else(|| format!("spatiality is {}, not {}", self.spatiality, codes(&Spatiality::ALL)))?;
        let operation = match self.operation.as_deref() {
            None | Some("") => Operation::Write,
            Some(name) => Operation::from_name(name).ok_or_else(|| {
                let all = Operation::ALL.map(Operation::name).join(", ");
                format!("operation is {name:?}, not one of {all}")
            })?,
        };
        if compute_nodes == 0 {
            return Err("a scenario without compute nodes".to_owned());
        }
        if !request_kb.is_finite() || request_kb < 0.0 {
            return Err(format!("{request_kb} KiB is not a request size"));
        }
        let shared = layout == Layout::Shared;
        Ok(Facts { compute_nodes, processes, shared, spatiality, request_kb, operation })
    }
}
