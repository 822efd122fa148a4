//! Reading measurements: our own CSV and the FORGE evaluation's, one row per repetition.

use forebay_policy::{Facts, TableError, table_rows};
use forebay_types::Operation;
use std::cmp::Ordering;
use std::collections::{BTreeMap, HashMap};
use std::io::Read;

/// Why measurements cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum MeasurementError {
    /// It is no table of measurements.
    #[error("{file}: {error}")]
    Table {
        /// Which file.
        file: String,
        /// What is wrong with it.
        error: TableError,
    },
    /// A header and nothing else.
    #[error("{file}: no measurements in it")]
    Empty {
        /// Which file.
        file: String,
    },
}

/// A scenario in a few words: `1536 processes, shared, strided, 512 KiB`.
pub(super) fn describe(facts: &Facts) -> String {
    if facts.operation.counts_operations() {
        return format!("{} processes, {} of files, operations/s", facts.processes, facts.operation);
    }
    let layout = if facts.shared { "shared" } else { "file per process" };
    let size = forebay_plot::bytes(facts.request_kb * 1024.0);
    let operation = match facts.operation {
        Operation::Write => String::new(),
        other => format!(", {other}"),
    };
    format!("{} processes, {layout}, {}, {size}{operation}", facts.processes, facts.spatiality)
}

/// All that was measured of one scenario.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// As the file calls it.
    pub name: String,
    /// What it does.
    pub facts: Facts,
    /// MB/s (or operations per second) of each repetition by number of I/O nodes, in the order they were made.
    pub runs: BTreeMap<u32, Vec<f64>>,
}

/// Everything measured.
#[derive(Clone, Debug, Default)]
pub struct Measurements {
    /// By name, numbers in it by their value.
    pub scenarios: Vec<Scenario>,
    /// Repetitions in all.
    pub rows: usize,
}

impl Measurements {
    /// Reads one CSV file more.
    pub fn add_csv(&mut self, file: &str, input: impl Read) -> Result<(), MeasurementError> {
        let in_file = |error| MeasurementError::Table { file: file.to_owned(), error };
        let mut rows = table_rows(input).map_err(in_file)?;
        if rows.is_empty() {
            return Err(MeasurementError::Empty { file: file.to_owned() });
        }
        // Repetitions are made in random order: only their times tell which came first, and only
        // their names give scenarios an order.
        if rows.iter().all(|r| r.started.is_some()) {
            rows.sort_by(|a, b| a.started.unwrap_or(0.0).total_cmp(&b.started.unwrap_or(0.0)));
        }
        let mut index: HashMap<(String, Operation), usize> = self
            .scenarios
            .iter()
            .enumerate()
            .map(|(i, s)| ((s.name.clone(), s.facts.operation), i))
            .collect();
        for row in rows {
            let at = *index.entry((row.scenario.clone(), row.facts.operation)).or_insert_with(|| {
                let (name, facts, runs) = (row.scenario.clone(), row.facts.clone(), BTreeMap::new());
                self.scenarios.push(Scenario { name, facts, runs });
                self.scenarios.len() - 1
            });
            let scenario = &mut self.scenarios[at];
            let bad = |what| in_file(TableError::Value { line: row.line, what });
            row.described_as(&scenario.facts).map_err(bad)?;
            scenario.runs.entry(row.io_nodes).or_default().push(row.value);
            self.rows += 1;
        }
        // Stable: the operations of a scenario stay in the order they ran in.
        self.scenarios.sort_by(|a, b| natural(&a.name, &b.name));
        Ok(())
    }

    /// Every number of I/O nodes that occurs, ascending.
    pub fn counts(&self) -> Vec<u32> {
        let mut all: Vec<u32> = self.scenarios.iter().flat_map(|s| s.runs.keys().copied()).collect();
        all.sort_unstable();
        all.dedup();
        all
    }
}

/// Numbers within names by their value: `a2` before `a10`.
fn natural(a: &str, b: &str) -> Ordering {
    let parts = |s: &str| -> Vec<(String, u128)> {
        let mut out: Vec<(String, u128)> = vec![(String::new(), 0)];
        let mut in_number = false;
        for c in s.chars() {
            match (c.to_digit(10), in_number) {
                (Some(d), _) => {
                    in_number = true;
                    if let Some(last) = out.last_mut() {
                        last.1 = last.1.saturating_mul(10).saturating_add(u128::from(d));
                    }
                }
                (None, true) => {
                    in_number = false;
                    out.push((c.to_string(), 0));
                }
                (None, false) => {
                    if let Some(last) = out.last_mut() {
                        last.0.push(c);
                    }
                }
            }
        }
        out
    };
    parts(a).cmp(&parts(b)).then_with(|| a.cmp(b))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HEADER: &str =
        "scenario,compute_nodes,processes,layout,spatiality,request_kb,io_nodes,bandwidth_mbs";

    fn read(text: &str) -> Result<Measurements, MeasurementError> {
        let mut m = Measurements::default();
        m.add_csv("m.csv", text.as_bytes())?;
        Ok(m)
    }

    #[test]
    fn bad_rows_are_named() {
        for (row, says) in [
            ("a,1,1,2,0,32,0,5", "layout is 2"),
            ("a,1,1,0,9,32,0,5", "spatiality is 9"),
            ("a,1,1,0,0,32,0,-5", "not a bandwidth"),
            ("a,1,1,0,0,32,0,NaN", "not a bandwidth"),
            ("a,1,x,0,0,32,0,5", "line: 2"),
            ("a,1,1,0,0,32,0,5\na,2,1,0,0,32,0,5", "line 3: scenario a is described in another way"),
        ] {
            let e = read(&format!("{HEADER}\n{row}\n")).unwrap_err().to_string();
            assert!(e.contains(says), "{e}");
        }
        assert!(read(HEADER).unwrap_err().to_string().contains("no measurements"));
        assert!(read("scenario,io_nodes\na,1\n").unwrap_err().to_string().contains("compute_nodes"));
    }

    #[test]
    fn names_sort_as_people_sort_them() {
        let mut names = ["a10", "B", "a2", "A", "a", "16-8-1", "16-8-0", "8-1"];
        names.sort_by(|a, b| natural(a, b));
        assert_eq!(names, ["8-1", "16-8-0", "16-8-1", "A", "B", "a", "a2", "a10"]);
    }

    #[test]
    fn later_times_come_later() {
        let m = read(&format!(
            "{HEADER},operation,started\na,1,1,0,0,32,0,5,read,20\na,1,1,0,0,32,0,7,read,10\n"
        ))
        .unwrap();
        assert_eq!(m.scenarios[0].runs[&0], [7.0, 5.0]);
        assert_eq!(m.scenarios[0].facts.operation, Operation::Read);
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "\\PC{0,200}", rows in prop::collection::vec("[a0-9,.\n-]{0,40}", 0..5)) {
            let _ = read(&text);
            let _ = read(&format!("{HEADER}\n{}", rows.join("\n")));
        }
    }
}
