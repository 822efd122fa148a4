//! The files that `--report`, `--darshan` and `--record` name: tried before the program starts, so that a mistake costs
//! no run, and written when it has ended.

use anyhow::{Context, Result, bail};
use forebay_types::output;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The files that a run is to be written to, by the options that name them.
pub struct RunFiles {
    /// `--report`
    pub report: Option<ReportFile>,
    /// `--darshan`
    pub darshan: Option<ReportFile>,
    /// `--record`
    pub record: Option<ReportFile>,
}

impl RunFiles {
    /// Opens those that are named: three different ones, and none of those that are `read`.
    pub fn open(
        report: Option<&Path>,
        darshan: Option<&Path>,
        record: Option<&Path>,
        read: Option<&Path>,
    ) -> Result<RunFiles> {
        let open = |option, path: Option<&Path>| path.map(|p| ReportFile::open(option, p, read)).transpose();
        let files = RunFiles {
            report: open("--report", report)?,
            darshan: open("--darshan", darshan)?,
            record: open("--record", record)?,
        };
        let all: Vec<_> = [&files.report, &files.darshan, &files.record].into_iter().flatten().collect();
        for (i, file) in all.iter().enumerate() {
            all[..i].iter().try_for_each(|other| other.differs_from(file))?;
        }
        Ok(files)
    }
}

/// A file for what is said of a run.
pub struct ReportFile {
    option: &'static str,
    path: PathBuf,
    /// What was there before, open; else it is made when there is something to write, so that a run that is killed leaves
    /// no empty one.
    there: Option<File>,
}

impl ReportFile {
    /// Opens the file that `option` names, or makes sure that it can be made; what is in it stays until there is
    /// something to write. It is none of those that are `read`.
    fn open(option: &'static str, path: &Path, read: Option<&Path>) -> Result<ReportFile> {
        output::beside(path, read).context(option)?;
        let before = path.metadata().is_ok();
        // What somebody has open (`/dev/stdout`) goes on where it is.
        let file = if output::is_fifo(path) {
            output::open_fifo(path)
        } else {
            File::options().append(output::is_open(path)).write(true).create(true).truncate(false).open(path)
        };
        let file = file.with_context(|| format!("{option}: cannot write to {}", path.display()))?;
        if !before {
            // Of a link that leads to it, the link stays.
            let made = path.canonicalize().unwrap_or_else(|_| path.to_owned());
            let _ = std::fs::remove_file(made);
        }
        Ok(ReportFile { option, path: path.to_owned(), there: before.then_some(file) })
    }

    /// Refuses another one that is the same file.
    fn differs_from(&self, other: &ReportFile) -> Result<()> {
        let place = |f: &ReportFile| -> Option<(u64, u64)> {
            let m = f.there.as_ref()?.metadata().ok().filter(|m| m.is_file() || m.file_type().is_fifo())?;
            Some((m.dev(), m.ino()))
        };
        // One that is not there yet is where its name or its link says.
        let name = |f: &ReportFile| -> Option<PathBuf> {
            let at =
                std::fs::read_link(&f.path).map_or(f.path.clone(), |to| f.path.with_file_name("").join(to));
            let dir = at.parent().filter(|d| !d.as_os_str().is_empty()).unwrap_or(Path::new("."));
            Some(dir.canonicalize().ok()?.join(at.file_name()?))
        };
        let same = match (place(self), place(other)) {
            (None, None) if self.there.is_none() && other.there.is_none() => {
                name(self).is_some_and(|n| Some(n) == name(other))
            }
            (one, two) => one.is_some() && one == two,
        };
        if same {
            bail!("{} and {} name the same file, {}", self.option, other.option, other.path.display());
        }
        Ok(())
    }

    /// Which file it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Replaces what is in it.
    pub fn write(self, bytes: &[u8]) -> std::io::Result<()> {
        self.write_by(|file| file.write_all(bytes))
    }

    /// The same of what is too long to be had at once.
    pub(crate) fn write_by(self, fill: impl FnOnce(&mut File) -> std::io::Result<()>) -> std::io::Result<()> {
        match self.there {
            Some(mut file) if output::is_fifo(&self.path) => output::write_fifo(&mut file, fill),
            Some(mut file) if output::is_open(&self.path) || !file.metadata()?.is_file() => fill(&mut file),
            _ => output::write_by(&self.path, fill),
        }
    }
}
