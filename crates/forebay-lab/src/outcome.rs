//! What an experiment found: lines, tables and verdicts for people, files for programs.

use std::fmt::Write as _;

/// What was found, in the order in which it is told.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// For people.
    pub findings: Vec<Finding>,
    /// Names and contents of files: figures (CSV) and charts (SVG).
    pub files: Vec<(String, String)>,
}

/// One thing that was found.
#[derive(Clone, Debug)]
pub enum Finding {
    /// A sentence.
    Line(String),
    /// Figures.
    Table(Table),
    /// Whether what was to be shown was seen.
    Verdict(Verdict, String),
}

/// Whether what was to be shown was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It was.
    Met,
    /// It was not.
    NotMet,
    /// The measurements do not say.
    Unclear,
}

impl Verdict {
    /// One or the other.
    pub fn of(met: bool) -> Verdict {
        if met { Verdict::Met } else { Verdict::NotMet }
    }
}

/// Cells of text under a header. The first column goes to the left, figures to the right.
#[derive(Clone, Debug, Default)]
pub struct Table {
    /// The columns' names.
    pub header: Vec<String>,
    /// Names of further columns that hold words, and go to the left.
    pub words: Vec<String>,
    /// Cells, row by row.
    pub rows: Vec<Vec<String>>,
}

impl Table {
    /// One without rows.
    pub fn new<S: Into<String>>(header: impl IntoIterator<Item = S>) -> Table {
        Table { header: header.into_iter().map(Into::into).collect(), ..Table::default() }
    }

    /// This column holds words.
    pub fn words(mut self, column: &str) -> Table {
        self.words.push(column.into());
        self
    }

    /// Adds a row.
    pub fn row<S: Into<String>>(&mut self, cells: impl IntoIterator<Item = S>) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }
}

impl Outcome {
    pub(crate) fn line(&mut self, text: impl Into<String>) {
        self.findings.push(Finding::Line(text.into()));
    }

    pub(crate) fn table(&mut self, table: Table) {
        self.findings.push(Finding::Table(table));
    }

    pub(crate) fn verdict(&mut self, what: impl Into<String>, verdict: Verdict) {
        self.findings.push(Finding::Verdict(verdict, what.into()));
    }

    /// A verdict that is one or the other.
    pub(crate) fn judge(&mut self, what: impl Into<String>, met: bool) {
        self.verdict(what, Verdict::of(met));
    }

    pub(crate) fn file(&mut self, name: impl Into<String>, content: impl Into<String>) {
        self.files.push((name.into(), content.into()));
    }

    /// The two files that every experiment leaves.
    pub(crate) fn figures(&mut self, name: &str, csv: String, svg: String) {
        self.file(format!("{name}.csv"), csv);
        self.file(format!("{name}.svg"), svg);
    }
}

/// Rows of figures as CSV.
pub(crate) fn csv<const N: usize>(header: [&str; N], rows: &[[String; N]]) -> String {
    let mut text = header.join(",") + "\n";
    for row in rows {
        // Only parameters hold commas; they are quoted.
        let cell = |c: &String| if c.contains(',') { format!("\"{c}\"") } else { c.clone() };
        let _ = writeln!(text, "{}", row.iter().map(cell).collect::<Vec<_>>().join(","));
    }
    text
}
