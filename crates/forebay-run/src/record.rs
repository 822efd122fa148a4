//! `forebay run --record`: every call of the program on forwarded files, in one file.

use crate::ReportFile;
use crate::launch::Plan;
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
pub(crate) fn write(file: ReportFile, layer: &Layer, plan: &Plan) -> std::io::Result<Option<Note>> {
    let mut traced = Traced::gather(layer.dir())?;
    traced.header.command = plan.words();
    let path = file.path().display().to_string();
    file.write_by(|file| {
        let mut out = BufWriter::new(file);
        traced.write(&mut out)?;
        out.flush()
    })?;
    let counted = traced.header.missing();
    let counted = counted.map(|what| format!("{what} (a host has room for {MOST_TRACED} records)"));
    // They cannot say so themselves.
    let unseen = (plan.joining() > 0).then(|| {
        let dir = layer.dir().display();
        format!("not in the trace: processes that `forebay join` starts where {dir} is not seen")
    });
    let missing: Vec<String> = counted.into_iter().chain(unseen).collect();
    let note = |why| Note { kind: "trace".into(), path, why, program: String::new(), count: 1 };
    Ok((!missing.is_empty()).then(|| note(missing.join("; "))))
}
