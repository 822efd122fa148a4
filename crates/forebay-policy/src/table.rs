//! Measured curves as a table. The file is CSV with the columns of the explorer's measurements, one row per
//! repetition; or one row per mean, with its spread in `low_mbs`, `high_mbs`, `std_dev_mbs` and `samples`, as
//! [`CurveTable::to_csv`] writes it. Its rows are read by [`table_rows`] and nowhere else.

mod row;

pub use row::{TableRow, table_rows};

use crate::curve::{BandwidthCurve, CurveError, Point, Spread};
use forebay_types::{Bandwidth, Operation, Spatiality};
use row::Row;
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::sync::Arc;

/// What a scenario does.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Facts {
    /// Compute nodes.
    pub compute_nodes: u32,
    /// Processes on all of them.
    pub processes: u32,
    /// Whether all processes use one file, else one each.
    pub shared: bool,
    /// How a process walks through the file.
    pub spatiality: Spatiality,
    /// Size of a request, KiB.
    pub request_kb: f64,
    /// What they do.
    pub operation: Operation,
}

/// One measured pattern.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// The name it has in the table.
    pub name: String,
    /// What it does.
    pub facts: Facts,
    /// What came out: the mean of the repetitions by I/O nodes.
    pub curve: Arc<BandwidthCurve>,
}

/// Why a table cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    /// Not CSV, a column is missing, or a field is not what it should be.
    #[error(
        "{0}; columns: scenario,compute_nodes,processes,layout,spatiality,request_kb,io_nodes,bandwidth_mbs"
    )]
    Csv(csv::Error),
    /// The file cannot be read or written.
    #[error(transparent)]
    Io(std::io::Error),
    /// A value out of its range.
    #[error("line {line}: {what}")]
    Value {
        /// Where.
        line: u64,
        /// What is wrong.
        what: String,
    },
    /// The rows of one scenario make no curve.
    #[error("scenario {scenario}: {error}")]
    Curve {
        /// Which.
        scenario: String,
        /// Why.
        error: CurveError,
    },
    /// A header and nothing else.
    #[error("there are no curves in it")]
    Empty,
}

impl From<csv::Error> for TableError {
    fn from(error: csv::Error) -> TableError {
        if !error.is_io_error() {
            return TableError::Csv(error);
        }
        TableError::Io(error.into())
    }
}

/// Curves of many patterns.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CurveTable {
    /// In the order they first appear.
    pub scenarios: Vec<Scenario>,
}

/// What one row, or all repetitions so far, say of one number of I/O nodes.
enum Level {
    Mean(f64, Spread),
    Repetitions(Vec<f64>),
}

impl Level {
    fn point(self, io_nodes: u32) -> Point {
        let (mean, spread) = match self {
            Level::Mean(mean, spread) => (mean, spread),
            Level::Repetitions(of) => spread(&of),
        };
        Point { io_nodes, bandwidth: Bandwidth(mean), spread: Some(spread) }
    }
}

/// The mean of at least one repetition, and how far they lie apart.
fn spread(of: &[f64]) -> (f64, Spread) {
    let n = of.len() as f64;
    let mean = of.iter().sum::<f64>() / n;
    let squares = of.iter().map(|x| (x - mean).powi(2)).sum::<f64>();
    let spread = Spread {
        low: Bandwidth(of.iter().copied().fold(f64::INFINITY, f64::min)),
        high: Bandwidth(of.iter().copied().fold(f64::NEG_INFINITY, f64::max)),
        std_dev: if n > 1.0 { (squares / (n - 1.0)).sqrt() } else { 0.0 },
        samples: u32::try_from(of.len()).unwrap_or(u32::MAX),
    };
    (mean, spread)
}

impl Level {
    /// What one row more says, added to what was said before.
    fn add(row: &TableRow, levels: &mut BTreeMap<u32, Level>) -> Result<(), String> {
        if let Some(spread) = row.spread {
            return match levels.insert(row.io_nodes, Level::Mean(row.value, spread)) {
                Some(_) => Err(format!("{} has {} I/O nodes twice", row.scenario, row.io_nodes)),
                None => Ok(()),
            };
        }
        match levels.entry(row.io_nodes).or_insert_with(|| Level::Repetitions(Vec::new())) {
            Level::Repetitions(of) => of.push(row.value),
            Level::Mean(..) => return Err(format!("{} has means and repetitions", row.scenario)),
        }
        Ok(())
    }
}

/// The name of a scenario's curve: that of the scenario, and the operation where it is no write.
pub fn scenario_name(scenario: &str, facts: &Facts) -> String {
    let operation = format!("/{}", facts.operation);
    if facts.operation == Operation::Write || scenario.ends_with(&operation) {
        return scenario.to_owned();
    }
    scenario.to_owned() + &operation
}

impl CurveTable {
    /// Reads a table; further columns are ignored.
    pub fn from_csv(input: impl Read) -> Result<CurveTable, TableError> {
        let mut order: Vec<(String, Facts, BTreeMap<u32, Level>)> = Vec::new();
        let mut index: BTreeMap<String, usize> = BTreeMap::new();
        for row in table_rows(input)? {
            let bad = |what: String| TableError::Value { line: row.line, what };
            // One name per curve, though a scenario may both write and read.
            let name = scenario_name(&row.scenario, &row.facts);
            let at = *index.entry(name.clone()).or_insert_with(|| {
                order.push((name.clone(), row.facts.clone(), BTreeMap::new()));
                order.len() - 1
            });
            let (_, first, levels) = &mut order[at];
            row.described_as(first).map_err(bad)?;
            Level::add(&row, levels).map_err(bad)?;
        }
        if order.is_empty() {
            return Err(TableError::Empty);
        }
        let mut table = CurveTable::default();
        for (name, facts, levels) in order {
            table.add(name, facts, levels.into_iter().map(|(io_nodes, level)| level.point(io_nodes)))?;
        }
        Ok(table)
    }

    /// Adds a pattern.
    pub fn add(
        &mut self,
        name: String,
        facts: Facts,
        points: impl IntoIterator<Item = Point>,
    ) -> Result<(), TableError> {
        match BandwidthCurve::new(points) {
            Ok(curve) => self.scenarios.push(Scenario { name, facts, curve: Arc::new(curve) }),
            Err(error) => return Err(TableError::Curve { scenario: name, error }),
        }
        Ok(())
    }

    /// Writes the table, a row per mean.
    pub fn to_csv(&self, out: impl Write) -> Result<(), TableError> {
        let mut writer = csv::Writer::from_writer(out);
        for s in &self.scenarios {
            for p in s.curve.points() {
                writer.serialize(Row::of(&s.name, &s.facts, p))?;
            }
        }
        writer.flush().map_err(TableError::Io)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str =
        "scenario,compute_nodes,processes,layout,spatiality,request_kb,io_nodes,bandwidth_mbs\n";

    fn read(rows: &str) -> Result<CurveTable, TableError> {
        CurveTable::from_csv(format!("{HEAD}{rows}").as_bytes())
    }

    #[test]
    fn rows_become_means_with_their_spread() {
        let table =
            read("a,8,96,0,0,32,1,10\nb,16,96,1,1,32,0,7\na,8,96,0,0,32,1,30\na,8,96,0,0,32,0,5\n").unwrap();
        assert_eq!(table.scenarios.len(), 2);
        let a = &table.scenarios[0];
        assert_eq!(a.curve.at(1), Some(Bandwidth(20.0)));
        let spread = a.curve.points()[1].spread.unwrap();
        assert_eq!((spread.low.0, spread.high.0, spread.samples), (10.0, 30.0, 2));
        assert!(table.scenarios[1].facts.shared);
    }

    #[test]
    fn bad_rows_say_where() {
        for (rows, expect) in [
            ("", "no curves"),
            ("a,8,96,2,0,32,1,10\n", "line 2: layout is 2"),
            ("a,8,96,0,0,32,1,10\na,8,96,0,0,32,1,-1\n", "line 3: -1"),
            ("a,8,96,0,0,32,1,10\na,9,96,0,0,32,1,1\n", "another way"),
            ("a,8,96,0,0,32,1,ten\n", "line: 2"),
            ("a,8,96,0,0,32,1\n", "line: 2"),
            ("a,0,96,0,0,32,1,1\n", "without compute nodes"),
            ("a,8,96,0,0,32,1,NaN\n", "NaN"),
            ("a,8,96,0,7,32,1,1\n", "spatiality is 7, not 0 (contiguous) or"),
        ] {
            let error = read(rows).unwrap_err().to_string();
            assert!(error.contains(expect), "{error}");
        }
        assert!(CurveTable::from_csv("x,y\n1,2\n".as_bytes()).unwrap_err().to_string().contains("scenario"));
    }

    #[test]
    fn a_scenario_that_reads_and_writes_has_two_curves() {
        let head = HEAD.trim_end();
        let text = format!("{head},operation\na,8,96,0,0,32,1,10,write\na,8,96,0,0,32,1,30,read\n");
        let table = CurveTable::from_csv(text.as_bytes()).unwrap();
        let names: Vec<&str> = table.scenarios.iter().map(|s| s.name.as_str()).collect();
        assert_eq!(names, ["a", "a/read"]);
        let mut file = Vec::new();
        table.to_csv(&mut file).unwrap();
        assert_eq!(CurveTable::from_csv(file.as_slice()).unwrap(), table);
    }
}
