//! Random operations of several processes against a model in memory: every answer must be the one
//! the model gives, and the files at the end the model's. `FOREBAY_SEED` repeats a run,
//! `FOREBAY_CASES` sets how many cases it has. A failing case is made as short as it still fails.

mod tree;

use forebay_testkit::{AT, ClientOptions, Layer, Talker, compile, seed, setting};
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use tree::{EXCHANGE, Kind, NOREPLACE, O_APPEND, O_CREAT, O_EXCL, O_NOFOLLOW, O_TRUNC, Op, Tree};

const PROCESSES: usize = 4;

fn path(rng: &mut ChaCha8Rng) -> String {
    let depth = *[1, 1, 1, 2, 2, 3].choose(rng).expect("not empty");
    (0..depth).map(|_| *["a", "b", "c", "d"].choose(rng).expect("not empty")).collect::<Vec<_>>().join("/")
}

fn op(rng: &mut ChaCha8Rng) -> Op {
    let slot = rng.random_range(0..3);
    let size = *[0, 1, 7, 100, 4096, 5000, 70_000].choose(rng).expect("not empty");
    let at = *[0, 1, 50, 4096, 9000, 100_000].choose(rng).expect("not empty");
    match rng.random_range(0..40) {
        0..=7 => {
            let mut flags = rng.random_range(0..3);
            for flag in [O_CREAT, O_CREAT, O_EXCL, O_TRUNC, O_APPEND, O_NOFOLLOW] {
                let likely = if flag == O_CREAT { 0.5 } else { 0.15 };
                flags |= if rng.random_bool(likely) { flag } else { 0 };
            }
            Op::Open(slot, path(rng), flags)
        }
        8 => Op::Close(slot),
        9 => Op::Dup(slot, rng.random_range(0..3)),
        10..=12 => Op::Read(slot, size),
        13 => Op::Pread(slot, size, at),
        14..=17 => Op::Write(slot, size, rng.random()),
        18 => Op::Pwrite(slot, size, at, rng.random()),
        19 => Op::Seek(slot, at as i64 - 50, rng.random_range(0..3)),
        20 => Op::Ftruncate(slot, at),
        21 => Op::Fstat(slot),
        22 => Op::Fsync(slot),
        23 => Op::Truncate(path(rng), at),
        24 | 25 => Op::Unlink(path(rng)),
        26 => Op::Rmdir(path(rng)),
        27..=29 => Op::Mkdir(path(rng)),
        30..=32 => {
            Op::Rename(path(rng), path(rng), *[0, 0, NOREPLACE, EXCHANGE].choose(rng).expect("not empty"))
        }
        33 => Op::Link(path(rng), path(rng)),
        34 => Op::Symlink(path(rng), path(rng)),
        35 => Op::Readlink(path(rng)),
        36 => Op::Stat(path(rng)),
        37 => Op::Lstat(path(rng)),
        38 => Op::List(path(rng)),
        _ => Op::List(".".into()),
    }
}

/// The processes that do the operations, and where.
struct Bench {
    processes: Vec<Talker>,
    /// As the processes name the directory, and as this test does.
    theirs: String,
    ours: std::path::PathBuf,
    cases: usize,
}

impl Bench {
    fn new(processes: Vec<Talker>, theirs: &str, ours: &Path) -> Bench {
        Bench { processes, theirs: theirs.into(), ours: ours.into(), cases: 0 }
    }

    /// Runs a case in a fresh directory; what went wrong, if anything did.
    fn run(&mut self, ops: &[(usize, Op)]) -> Result<(), String> {
        let name = format!("case{}", self.cases);
        self.cases += 1;
        let here = self.ours.join(&name);
        std::fs::create_dir(&here).map_err(|e| e.to_string())?;
        for (i, process) in self.processes.iter_mut().enumerate() {
            // Absolute names, names relative to the working directory, and to a descriptor.
            let answer = process.ask(&format!("case {}/{name} {}", self.theirs, i % 3));
            if answer != "0 0" {
                return Err(format!("process {i} cannot begin: {answer}"));
            }
        }
        let mut tree = Tree::new();
        for (i, (process, op)) in ops.iter().enumerate() {
            if tree.is_unspecified(*process, op) {
                continue;
            }
            let want = tree.apply(*process, op);
            let got = self.processes[*process].ask(&op.to_string());
            if got != want {
                return Err(format!(
                    "operation {i} (process {process}: {op}) answered {got:?}, the model {want:?}"
                ));
            }
        }
        let (want, got) = (tree.contents(), contents(&here));
        let _ = std::fs::remove_dir_all(&here);
        if want == got {
            Ok(())
        } else {
            Err(format!("the files differ: the model has {want:?}, there are {got:?}"))
        }
    }

    /// The shortest part of a failing case that still fails, and how.
    fn shrink(&mut self, mut ops: Vec<(usize, Op)>, mut why: String) -> (Vec<(usize, Op)>, String) {
        let mut size = ops.len() / 2;
        while size > 0 {
            let mut at = 0;
            while at < ops.len() {
                let mut fewer = ops.clone();
                fewer.drain(at..(at + size).min(ops.len()));
                match self.run(&fewer) {
                    Err(e) => (ops, why) = (fewer, e),
                    Ok(()) => at += size,
                }
            }
            size /= 2;
        }
        (ops, why)
    }

    fn check(&mut self, cases: u64, seed: u64) {
        for case in 0..cases {
            let seed = seed.wrapping_add(case);
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            let n = rng.random_range(5..40);
            let ops: Vec<(usize, Op)> =
                (0..n).map(|_| (rng.random_range(0..PROCESSES), op(&mut rng))).collect();
            if let Err(why) = self.run(&ops) {
                let (ops, why) = self.shrink(ops, why);
                let list: String = ops.iter().map(|(p, op)| format!("  process {p}: {op}\n")).collect();
                panic!(
                    "case {case}: {why}\nrepeat with FOREBAY_SEED={seed} FOREBAY_CASES=1; at its shortest:\n{list}"
                );
            }
        }
    }
}

/// The files below `dir`, as they are.
fn contents(dir: &Path) -> BTreeMap<String, Kind> {
    let mut all = BTreeMap::new();
    let mut left = vec![(String::new(), dir.to_owned())];
    while let Some((prefix, dir)) = left.pop() {
        for entry in std::fs::read_dir(&dir).expect("a directory").map(|e| e.expect("an entry")) {
            let name = entry.file_name().into_string().expect("a plain name");
            let name = if prefix.is_empty() { name } else { format!("{prefix}/{name}") };
            let kind = entry.file_type().expect("a type");
            let kind = if kind.is_dir() {
                left.push((name.clone(), entry.path()));
                Kind::Dir(BTreeMap::new())
            } else if kind.is_symlink() {
                Kind::Link(std::fs::read_link(entry.path()).expect("a link").to_str().expect("plain").into())
            } else {
                Kind::File(std::fs::read(entry.path()).expect("a file"))
            };
            all.insert(name, kind);
        }
    }
    all
}

/// The model is right: the kernel gives the same answers.
#[test]
fn the_model_is_linux() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let driver = compile(dir.path(), "driver");
    let ours = dir.path().join("files");
    std::fs::create_dir(&ours).expect("a directory");
    let processes = (0..PROCESSES).map(|_| Talker::start(Command::new(&driver))).collect();
    let mut bench = Bench::new(processes, ours.to_str().expect("plain"), &ours);
    bench.check(setting("FOREBAY_CASES", 1000), seed());
    bench.processes.into_iter().for_each(|p| drop(p.finish()));
}

/// Four processes on two I/O nodes.
#[test]
fn the_layer_is_the_model() {
    let layer = Layer::start(2, 2000, &ClientOptions::default());
    let driver = layer.compile("driver");
    let processes = (0..PROCESSES).map(|n| Talker::start(layer.command(&driver, n))).collect();
    let mut bench = Bench::new(processes, AT, &layer.export());
    bench.check(setting("FOREBAY_CASES", 2500), seed());
    bench.processes.into_iter().for_each(|p| drop(p.finish()));
}
