//! Measured curves as a table: the explorer's CSV, one row per repetition (or per mean).

use crate::curve::{BandwidthCurve, CurveError, Point, Spread};
use forebay_types::Bandwidth;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::io::Read;
use std::sync::Arc;

/// One measured pattern.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The name it has in the table.
    pub name: String,
    /// Compute nodes it ran on.
    pub compute_nodes: u32,
    /// Processes it ran.
    pub processes: u32,
    /// Whether all processes used one file (else one each).
    pub shared_file: bool,
    /// What came out: the mean of the repetitions by I/O nodes.
    pub curve: Arc<BandwidthCurve>,
}

/// Why a table cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    /// Not CSV, a column is missing, or a field is not what it should be.
    #[error(
        "{0}; columns: scenario,compute_nodes,processes,layout,spatiality,request_kb,io_nodes,bandwidth_mbs"
    )]
    Csv(#[from] csv::Error),
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
    #[error("the table has no rows")]
    Empty,
}

/// Curves of many patterns.
#[derive(Clone, Debug)]
pub struct CurveTable {
    /// In the order they first appear.
    pub scenarios: Vec<Scenario>,
}

#[derive(Deserialize)]
struct Row {
    scenario: String,
    compute_nodes: u32,
    processes: u32,
    layout: u8,
    io_nodes: u32,
    bandwidth_mbs: f64,
}

/// Name, compute nodes, processes, shared file.
type Facts = (String, u32, u32, bool);

/// The repetitions of one count.
#[derive(Default)]
struct Runs {
    sum: f64,
    low: f64,
    high: f64,
    samples: u32,
}

impl CurveTable {
    /// Reads the CSV of the explorer: one row per repetition; further columns are ignored.
    pub fn from_csv(input: impl Read) -> Result<CurveTable, TableError> {
        let mut reader = csv::ReaderBuilder::new().trim(csv::Trim::All).from_reader(input);
        let headers = reader.headers()?.clone();
        let mut order: Vec<(Facts, BTreeMap<u32, Runs>)> = Vec::new();
        let mut index: BTreeMap<String, usize> = BTreeMap::new();
        for record in reader.records() {
            let record = record?;
            let line = record.position().map_or(0, |p| p.line());
            let row: Row = record.deserialize(Some(&headers))?;
            let bad = |what: String| TableError::Value { line, what };
            let shared_file = match row.layout {
                0 => false,
                1 => true,
                other => {
                    return Err(bad(format!("layout is {other}, not 0 (file per process) or 1 (shared)")));
                }
            };
            if row.compute_nodes == 0 {
                return Err(bad("a scenario without compute nodes".to_owned()));
            }
            if !row.bandwidth_mbs.is_finite() || row.bandwidth_mbs < 0.0 {
                return Err(bad(format!("{} MB/s is not a bandwidth", row.bandwidth_mbs)));
            }
            let facts = (row.scenario, row.compute_nodes, row.processes, shared_file);
            let at = match index.get(&facts.0) {
                Some(&at) => at,
                None => {
                    index.insert(facts.0.clone(), order.len());
                    order.push((facts.clone(), BTreeMap::new()));
                    order.len() - 1
                }
            };
            let (first, counts) = &mut order[at];
            if *first != facts {
                return Err(bad(format!("scenario {} is described in another way further up", facts.0)));
            }
            let runs = counts.entry(row.io_nodes).or_insert_with(|| Runs {
                low: row.bandwidth_mbs,
                high: row.bandwidth_mbs,
                ..Runs::default()
            });
            runs.sum += row.bandwidth_mbs;
            runs.low = runs.low.min(row.bandwidth_mbs);
            runs.high = runs.high.max(row.bandwidth_mbs);
            runs.samples += 1;
        }
        if order.is_empty() {
            return Err(TableError::Empty);
        }
        let scenario =
            |((name, compute_nodes, processes, shared_file), counts): (Facts, BTreeMap<u32, Runs>)| {
                let point = |(io_nodes, r): (u32, Runs)| Point {
                    io_nodes,
                    bandwidth: Bandwidth(r.sum / f64::from(r.samples)),
                    spread: Some(Spread {
                        low: Bandwidth(r.low),
                        high: Bandwidth(r.high),
                        samples: r.samples,
                    }),
                };
                match BandwidthCurve::new(counts.into_iter().map(point)) {
                    Ok(curve) => {
                        Ok(Scenario { name, compute_nodes, processes, shared_file, curve: Arc::new(curve) })
                    }
                    Err(error) => Err(TableError::Curve { scenario: name, error }),
                }
            };
        Ok(CurveTable { scenarios: order.into_iter().map(scenario).collect::<Result<_, _>>()? })
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
        assert!(table.scenarios[1].shared_file);
    }

    #[test]
    fn bad_rows_say_where() {
        for (rows, expect) in [
            ("", "no rows"),
            ("a,8,96,2,0,32,1,10\n", "line 2: layout is 2"),
            ("a,8,96,0,0,32,1,10\na,8,96,0,0,32,1,-1\n", "line 3: -1"),
            ("a,8,96,0,0,32,1,10\na,9,96,0,0,32,1,1\n", "another way"),
            ("a,8,96,0,0,32,1,ten\n", "line: 2"),
            ("a,8,96,0,0,32,1\n", "line: 2"),
            ("a,0,96,0,0,32,1,1\n", "without compute nodes"),
            ("a,8,96,0,0,32,1,NaN\n", "NaN"),
        ] {
            let error = read(rows).unwrap_err().to_string();
            assert!(error.contains(expect), "{error}");
        }
        assert!(CurveTable::from_csv("x,y\n1,2\n".as_bytes()).unwrap_err().to_string().contains("scenario"));
    }
}
