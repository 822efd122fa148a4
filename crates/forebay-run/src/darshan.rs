//! `forebay run --darshan`: what the program did with each file, as Darshan's POSIX module would have written
//! it (log format 3.41, records of version 4, little-endian, zlib).

use flate2::Compression;
use flate2::write::ZlibEncoder;
use forebay_client::{DirectionTotals, FileTotals, name_id};
use std::io::{Result, Write};

const MAGIC: i64 = 6_567_223;
const MODULES: usize = 64;
const POSIX: usize = 1;
const POSIX_VERSION: u32 = 4;
const HEADER: usize = 32 + 16 + MODULES * 16 + MODULES * 4;
/// The job, what was run, and the mounts.
const JOB: usize = 4096;
const METADATA: usize = 1024;
const COUNTERS: usize = 69;

/// The run that a log is about. Times are nanoseconds since 1970.
pub(crate) struct Run<'a> {
    pub(crate) command: &'a str,
    /// The forwarded directories.
    pub(crate) mounts: &'a [&'a std::path::Path],
    pub(crate) processes: u64,
    pub(crate) begin: u64,
    pub(crate) end: u64,
    /// Some files found no place among those that were counted.
    pub(crate) partial: bool,
}

/// The log.
pub(crate) fn log(run: &Run<'_>, files: &[FileTotals]) -> Result<Vec<u8>> {
    let job = packed(&job(run))?;
    let mut names = Vec::new();
    let mut last: Option<&[u8]> = None;
    for file in files {
        if last != Some(&file.name) {
            names.extend(name_id(&file.name).to_le_bytes());
            // PyDarshan reads no other names.
            names.extend(String::from_utf8_lossy(&file.name).as_bytes());
            names.push(0);
            last = Some(&file.name);
        }
    }
    let records: Vec<u8> = files.iter().flat_map(|f| record(run, f)).collect();
    let (names, records) = (packed(&names)?, packed(&records)?);
    let mut out = Vec::with_capacity(HEADER + job.len() + names.len() + records.len());
    out.extend(b"3.41\0\0\0\0");
    out.extend(MAGIC.to_le_bytes());
    // Packed by zlib.
    out.extend([0; 8]);
    out.extend((u64::from(run.partial) << POSIX).to_le_bytes());
    let names_at = HEADER + job.len();
    let part = |at: usize, len: usize| [(at as u64).to_le_bytes(), (len as u64).to_le_bytes()].concat();
    out.extend(part(names_at, names.len()));
    for module in 0..MODULES {
        let here = module == POSIX && !files.is_empty();
        out.extend(if here { part(names_at + names.len(), records.len()) } else { part(0, 0) });
    }
    for module in 0..MODULES {
        out.extend(if module == POSIX { POSIX_VERSION } else { 0 }.to_le_bytes());
    }
    out.extend(job);
    out.extend(names);
    if !files.is_empty() {
        out.extend(records);
    }
    Ok(out)
}

fn job(run: &Run<'_>) -> Vec<u8> {
    let whole = |nanos: u64| [nanos / 1_000_000_000, nanos % 1_000_000_000];
    let ([begin, begin_nanos], [end, end_nanos]) = (whole(run.begin), whole(run.end));
    let user = u64::from(rustix::process::getuid().as_raw());
    let pid = u64::from(std::process::id());
    let mut job = Vec::with_capacity(JOB);
    for number in [user, begin, begin_nanos, end, end_nanos, run.processes.max(1), pid] {
        job.extend(number.to_le_bytes());
    }
    let mut metadata = b"lib_ver=3.4.1\nh=forebay\n".to_vec();
    metadata.resize(METADATA, 0);
    job.extend(metadata);
    let room = JOB - job.len() - 1;
    job.extend(command_and_mounts(run, room));
    job.resize(JOB, 0);
    job
}

/// What was run, and behind it a line for each mount. Darshan takes the first line for the command, and there is none
/// where no line ends. A mount is not split, and one that does not fit is left out.
fn command_and_mounts(run: &Run<'_>, room: usize) -> Vec<u8> {
    let one_line = |text: &str| text.replace(['\n', '\t', '\0'], " ");
    let mount =
        |dir: &&std::path::Path| format!("\nforebay\t{}", one_line(&dir.to_string_lossy()).replace(' ', "_"));
    let mut mounts: Vec<String> = run.mounts.iter().map(mount).collect();
    if mounts.is_empty() {
        mounts.push("\nforebay\t/".to_owned());
    }
    let mut left = room;
    mounts.retain(|line| left.checked_sub(line.len()).inspect(|rest| left = *rest).is_some());
    let command = one_line(run.command);
    command.bytes().take(left).chain(mounts.concat().into_bytes()).collect()
}

fn record(run: &Run<'_>, f: &FileTotals) -> Vec<u8> {
    let mut c = [0u64; COUNTERS];
    let (r, w) = (&f.read, &f.written);
    for (at, value) in [
        (0, f.opens),
        (3, r.count),
        (4, w.count),
        (8, f.syncs[0]),
        (9, f.syncs[1]),
        (10, f.renamed[0]),
        (11, f.renamed[1]),
        (12, f.renamed_from),
        (14, r.bytes),
        (15, w.bytes),
        (16, r.most),
        (17, w.most),
        (18, r.consecutive),
        (19, w.consecutive),
        (20, r.sequential),
        (21, w.sequential),
        (22, f.switches),
        // Alignments that were not looked at, as Darshan knows them.
        (24, 8),
        (26, 4096),
        (27, r.longest_size),
        (28, w.longest_size),
    ] {
        c[at] = value;
    }
    c[29..39].copy_from_slice(&r.classes);
    c[39..49].copy_from_slice(&w.classes);
    for (i, (size, count)) in f.sizes.iter().enumerate() {
        (c[57 + i], c[61 + i]) = (*size, *count);
    }
    let since = |nanos: u64| if nanos == 0 { 0.0 } else { nanos.saturating_sub(run.begin) as f64 / 1e9 };
    let seconds = |nanos: u64| nanos as f64 / 1e9;
    let last = |d: &DirectionTotals| since(d.last);
    let times = [
        since(f.opened.0),
        since(r.first),
        since(w.first),
        since(f.closed.0),
        since(f.opened.1),
        last(r),
        last(w),
        since(f.closed.1),
        seconds(r.nanos),
        seconds(w.nanos),
        seconds(f.meta_nanos),
        seconds(r.longest),
        seconds(w.longest),
        0.0,
        0.0,
        0.0,
        0.0,
    ];
    let head = [name_id(&f.name), f.rank].into_iter().chain(c);
    head.flat_map(u64::to_le_bytes).chain(times.iter().flat_map(|t: &f64| t.to_le_bytes())).collect()
}

fn packed(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut zlib = ZlibEncoder::new(Vec::new(), Compression::default());
    zlib.write_all(bytes)?;
    zlib.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn the_command_is_a_line_and_so_is_each_mount() {
        let run = |command, mounts| Run { command, mounts, processes: 1, begin: 0, end: 0, partial: false };
        let text = |run: Run<'_>, room| String::from_utf8(command_and_mounts(&run, room)).unwrap();
        let mounts = [Path::new("/scr"), Path::new("/a b")];
        assert_eq!(text(run("./app\t1\n2", &mounts), 100), "./app 1 2\nforebay\t/scr\nforebay\t/a_b");
        assert_eq!(text(run("app", &[]), 100), "app\nforebay\t/");
        // The mounts are short; a command need not be.
        assert_eq!(text(run("a-long-command", &mounts[..1]), 20), "a-long-\nforebay\t/scr");
        let long = Path::new("/a/directory/that/does/not/fit");
        assert_eq!(text(run("app", &[long, mounts[0]]), 20), "app\nforebay\t/scr");
    }
}
