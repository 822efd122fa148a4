//! `forebay run --record`: every call of the program on forwarded files, in one file.

use crate::ReportFile;
use crate::route::Route;
use anyhow::{Result, bail};
use forebay_client::{MOST_TRACED, Traced, prepare_trace};
use forebay_embed::{Layer, Note};
use std::io::{BufWriter, Write};

/// The mount sees what the kernel makes of the calls (pages, read ahead, of all processes as one): that is no trace of
/// the program.
pub(crate) fn refuse_mount(route: &Route) -> Result<()> {
    if route.mount {
        bail!(
            "--record has no calls to record under the mount ({}), which sees the kernel's requests in their place: use \
             --via preload with a program that the library reaches, or --darshan, which counts those requests",
            route.why
        );
    }
    Ok(())
}

/// Makes this host's part of the trace, before the program may set limits that forbid it.
pub(crate) fn prepare(layer: &Layer, warn: fn(&str)) {
    if let Err(e) = prepare_trace(layer.dir()) {
        warn(&format!("--record: nothing can be recorded on this host: {}: {e}", layer.dir().display()));
    }
}

/// Writes the trace. What is not in it is noted for the report.
pub(crate) fn write(file: ReportFile, layer: &Layer, command: String) -> std::io::Result<Option<Note>> {
    let mut traced = Traced::gather(layer.dir())?;
    traced.header.command = command;
    let path = file.path().display().to_string();
    file.write_by(|file| {
        let mut out = BufWriter::new(file);
        traced.write(&mut out)?;
        out.flush()
    })?;
    Ok(traced.header.missing().map(|missing| Note {
        kind: "trace".into(),
        path,
        why: format!("{missing} (at most {MOST_TRACED} records of a host are kept)"),
        program: String::new(),
        count: 1,
    }))
}
