//! Labelled metrics: the rows detectors are trained on and judged by, as CSV, and how they are
//! divided.
//!
//! One row is one interval of one flow on one I/O node. First come the columns of [`Label`], which
//! say what the flow really did, then those of [`FlowMetrics`], which say what the node saw. Columns
//! are found by name; others are ignored.

use forebay_types::FlowMetrics;
use forebay_types::Pattern;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::io::{Read, Write};

/// What a flow really did.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Label {
    /// Which run of which scenario the row comes from.
    pub run: u32,
    /// Which I/O node saw it.
    pub node: u32,
    /// Which interval of the run it is.
    pub second: u32,
    /// The pattern.
    pub class: Pattern,
    /// The processes' request size in bytes.
    pub request_size: u64,
    /// Processes of the whole job.
    pub processes: u32,
    /// I/O nodes of the whole job.
    pub io_nodes: u32,
}

/// A labelled interval.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// What the flow did.
    pub label: Label,
    /// What the I/O node saw of it.
    pub metrics: FlowMetrics,
}

/// The columns, in the order they are written.
pub const COLUMNS: [&str; 36] = [
    "run",
    "node",
    "second",
    "class",
    "request_size",
    "processes",
    "io_nodes",
    "flow",
    "files",
    "clients",
    "streams",
    "top_file",
    "reads",
    "writes",
    "metadata",
    "bytes_read",
    "bytes_written",
    "size_min",
    "size_mean",
    "size_max",
    "size_p50",
    "size_p90",
    "size_p99",
    "offset_distance",
    "judged",
    "sequential",
    "forward",
    "jumps",
    "regular",
    "jump_width",
    "arrival_mean",
    "arrival_cv",
    "served",
    "served_read",
    "busy",
    "outstanding",
];

/// Writes `rows` as CSV with a header line.
pub fn write_csv<'a>(out: impl Write, rows: impl IntoIterator<Item = &'a Row>) -> Result<(), csv::Error> {
    let mut writer = csv::WriterBuilder::new().has_headers(false).from_writer(out);
    writer.write_record(COLUMNS)?;
    for row in rows {
        writer.serialize((&row.label, &row.metrics))?;
    }
    writer.flush()?;
    Ok(())
}

/// Reads rows from CSV; the error names the line and the column that is wrong.
pub fn read_csv(input: impl Read) -> Result<Vec<Row>, csv::Error> {
    let mut reader = csv::Reader::from_reader(input);
    let header = reader.headers()?.clone();
    let mut rows = Vec::new();
    for record in reader.records() {
        let record = record?;
        let label = record.deserialize(Some(&header))?;
        let metrics = record.deserialize(Some(&header))?;
        rows.push(Row { label, metrics });
    }
    Ok(rows)
}

/// Rows to learn from, to test with, and to judge by.
#[derive(Clone, Debug, Default)]
pub struct Split {
    /// 70 % of the rows of the training sizes and process counts.
    pub train: Vec<Row>,
    /// The other 30 %.
    pub test: Vec<Row>,
    /// Every row whose request size or process count was not trained on.
    pub validation: Vec<Row>,
    /// The request sizes trained on.
    pub sizes: BTreeSet<u64>,
    /// The process counts trained on.
    pub processes: BTreeSet<u32>,
}

impl Split {
    /// Divides `rows`: those of `sizes` and `processes` are shuffled by `seed` into 70 % training and
    /// 30 % test; the rest validate.
    pub fn new(rows: Vec<Row>, sizes: BTreeSet<u64>, processes: BTreeSet<u32>, seed: u64) -> Split {
        let known = |r: &Row| sizes.contains(&r.label.request_size) && processes.contains(&r.label.processes);
        let (mut train, validation): (Vec<Row>, Vec<Row>) = rows.into_iter().partition(known);
        train.shuffle(&mut ChaCha8Rng::seed_from_u64(seed));
        let test = train.split_off(train.len() * 7 / 10);
        Split { train, test, validation, sizes, processes }
    }
}

/// Every other process count that occurs in `rows`, from the smallest on: those between are left to
/// validate with. With fewer than three there is nothing to leave out.
pub fn alternate_processes(rows: &[Row]) -> BTreeSet<u32> {
    let all: BTreeSet<u32> = rows.iter().map(|r| r.label.processes).collect();
    let step = if all.len() < 3 { 1 } else { 2 };
    all.into_iter().step_by(step).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_types::{FileId, FlowId, Nanos};

    fn row(request_size: u64, processes: u32) -> Row {
        let label = Label {
            run: 3,
            node: 1,
            second: 9,
            class: Pattern::SharedStrided,
            request_size,
            processes,
            io_nodes: 4,
        };
        let metrics = FlowMetrics {
            flow: FlowId(7),
            files: 1,
            top_file: (processes > 8).then_some(FileId(42)),
            size_mean: 32768.5,
            served_read: (processes > 8).then_some(11),
            outstanding: 1.25,
            busy: Nanos(123),
            ..Default::default()
        };
        Row { label, metrics }
    }

    #[test]
    fn what_is_written_is_read_back() {
        let rows = vec![row(32768, 8), row(65536, 16)];
        let mut csv = Vec::new();
        write_csv(&mut csv, &rows).unwrap();
        assert_eq!(read_csv(&csv[..]).unwrap(), rows);
        // The header names the fields in the order serde writes them.
        let json = |v: serde_json::Value| v.as_object().unwrap().keys().cloned().collect::<BTreeSet<_>>();
        let mut fields = json(serde_json::to_value(&rows[0].label).unwrap());
        fields.extend(json(serde_json::to_value(&rows[0].metrics).unwrap()));
        assert_eq!(fields, COLUMNS.iter().map(|c| c.to_string()).collect());
    }

    #[test]
    fn a_bad_cell_is_named() {
        let mut csv = Vec::new();
        write_csv(&mut csv, &[row(32768, 8)]).unwrap();
        let text = String::from_utf8(csv).unwrap().replace("shared-strided", "zigzag");
        let error = read_csv(text.as_bytes()).unwrap_err().to_string();
        assert!(error.contains("line: 2") && error.contains("zigzag"), "{error}");
        assert!(read_csv(&b"a,b\n1,2\n"[..]).unwrap_err().to_string().contains("missing field"));
    }

    #[test]
    fn the_split_keeps_unseen_sizes_and_counts_apart() {
        let rows: Vec<Row> =
            [32, 64, 128, 256].iter().flat_map(|&s| [8, 16, 32].map(|p| row(s, p))).collect();
        assert_eq!(alternate_processes(&rows), BTreeSet::from([8, 32]));
        let split = Split::new(rows, BTreeSet::from([32, 256]), BTreeSet::from([8, 32]), 1);
        assert_eq!((split.train.len(), split.test.len(), split.validation.len()), (2, 2, 8));
        assert!(
            split
                .validation
                .iter()
                .all(|r| ![32, 256].contains(&r.label.request_size) || r.label.processes == 16)
        );
    }
}
