//! What an experiment found: lines, tables and judgements for people, files for programs.

use anyhow::{Context, Result, bail};
use forebay_plot::table;
use forebay_types::output;
use std::fmt::{self, Write as _};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

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
    Judgement(Judgement, String),
}

/// Whether what was to be shown was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// It was.
    Met,
    /// It was not.
    NotMet,
    /// The measurements do not say.
    Unclear,
}

impl Judgement {
    /// One or the other.
    pub fn of(met: bool) -> Judgement {
        if met { Judgement::Met } else { Judgement::NotMet }
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

impl Judgement {
    fn word(self) -> &'static str {
        match self {
            Judgement::Met => "met:    ",
            Judgement::NotMet => "NOT met:",
            Judgement::Unclear => "unclear:",
        }
    }
}

/// Sentences and judgements line by line, tables with a blank line around them.
impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut after_table = false;
        for (i, finding) in self.findings.iter().enumerate() {
            let is_table = matches!(finding, Finding::Table(_));
            if i > 0 && (is_table || after_table) {
                writeln!(f)?;
            }
            after_table = is_table;
            match finding {
                Finding::Line(text) => writeln!(f, "{text}")?,
                Finding::Judgement(judgement, what) => writeln!(f, "{} {what}", judgement.word())?,
                Finding::Table(t) => {
                    let words: Vec<&str> = t.words.iter().map(String::as_str).collect();
                    let mut table = table::new(&t.header, &words);
                    for row in &t.rows {
                        table.add_row(row);
                    }
                    writeln!(f, "{table}")?;
                }
            }
        }
        Ok(())
    }
}

/// Whether a file can be written, found out before the work of which it tells; what is in it stays. It is none of those
/// that are read.
pub fn can_write(path: &Path, inputs: &[PathBuf]) -> Result<()> {
    output::beside(path, inputs)?;
    output::try_it(path).with_context(|| format!("cannot write {}", path.display()))
}

/// Refuses two outputs, each with its option, that are one file: the second would take the place of the first.
pub fn apart(first: (&str, &Path), second: (&str, &Path)) -> Result<()> {
    let place = |path: &Path| {
        let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let new = || Some(dir.canonicalize().ok()?.join(path.file_name()?));
        path.canonicalize().ok().or_else(new).filter(|path| path.is_file() || !path.exists())
    };
    if place(first.1).is_some() && place(first.1) == place(second.1) {
        bail!("{} and {} name the same file, {}", first.0, second.0, first.1.display());
    }
    Ok(())
}

/// Writes a file, whole or not at all; why not, with its name.
pub fn put(path: &Path, content: impl AsRef<[u8]>) -> Result<()> {
    output::write(path, content).with_context(|| format!("cannot write {}", path.display()))
}

/// Makes a directory and those above it; why not, with its name.
pub(crate) fn make(dir: &Path) -> Result<()> {
    std::fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))
}

/// Refuses a file that is named twice: its rows would count twice.
pub fn no_twins(inputs: &[PathBuf]) -> Result<()> {
    let file = |path: &PathBuf| path.metadata().ok().map(|m| (m.dev(), m.ino()));
    for (n, input) in inputs.iter().enumerate() {
        if let Some(twin) = inputs[..n].iter().find(|i| file(i).is_some() && file(i) == file(input)) {
            bail!("{} and {} are one file: its rows would count twice", twin.display(), input.display());
        }
    }
    Ok(())
}

/// Whether files can be written into a directory, which need not be there yet.
pub fn can_write_below(dir: &Path) -> Result<()> {
    let missing = |d: &&Path| !d.as_os_str().is_empty() && !d.exists();
    let made: Vec<&Path> = dir.ancestors().take_while(missing).collect();
    let tried =
        make(dir).and_then(|()| can_write(&dir.join(format!(".forebay-{}", std::process::id())), &[]));
    // Until there is something to be written.
    made.iter().for_each(|d| drop(std::fs::remove_dir(d)));
    tried
}

impl Outcome {
    /// Writes the files into `out`; what was written, in a few words.
    pub fn write(&self, out: &Path) -> Result<String> {
        make(out)?;
        for (name, text) in &self.files {
            put(&out.join(name), text)?;
        }
        let names: Vec<&str> = self.files.iter().map(|(name, _)| name.as_str()).collect();
        Ok(out.join(format!("{{{}}}", names.join(","))).display().to_string())
    }

    pub(crate) fn line(&mut self, text: impl Into<String>) {
        self.findings.push(Finding::Line(text.into()));
    }

    pub(crate) fn table(&mut self, table: Table) {
        self.findings.push(Finding::Table(table));
    }

    pub(crate) fn judged(&mut self, what: impl Into<String>, judgement: Judgement) {
        self.findings.push(Finding::Judgement(judgement, what.into()));
    }

    /// A judgement that is one or the other.
    pub(crate) fn judge(&mut self, what: impl Into<String>, met: bool) {
        self.judged(what, Judgement::of(met));
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
