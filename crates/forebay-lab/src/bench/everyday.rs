//! Everyday work: what people do in a directory all day, directly and forwarded.

use crate::Progress;
use crate::experiment::Experiment;
use crate::machine::{load, program};
use crate::outcome::{Outcome, Table, make, put};
use anyhow::{Context, Result, bail};
use forebay_client::Fallback;
use forebay_embed::{At, Layer, LayerConfig, Process, RunDir, Transport};
use forebay_types::stats::median;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Measure everyday work in a directory: directly and forwarded.
///
/// Unpacking an archive, `git clone`, a small build, `grep -r`, `dd bs=4k`, writing and reading lines, SQLite
/// and 300 Python imports, by unmodified programs. Every figure is the median of repetitions in which both
/// ways take turns, each in a fresh directory; the factor is the median of the repetitions' own factors.
#[derive(Clone, Debug)]
pub struct Everyday {
    /// Repetitions of each task.
    pub repeat: usize,
    /// Where the files are.
    pub dir: PathBuf,
    /// How the I/O node is reached.
    pub transport: Transport,
    /// Only the tasks of these names; all if empty.
    pub only: Vec<String>,
    /// A tenth of the work: to see that it runs.
    pub quick: bool,
}

impl Default for Everyday {
    fn default() -> Everyday {
        let (dir, transport) = ("/dev/shm".into(), Transport::Unix);
        Everyday { repeat: 7, dir, transport, only: Vec::new(), quick: false }
    }
}

/// One task, by both ways.
#[derive(Clone, Debug, Serialize)]
struct Row {
    what: &'static str,
    direct_ms: f64,
    forebay_ms: f64,
    factor: f64,
    target: f64,
}

/// One task: a shell script that is run in the directory. `$S` is where the sources are, `$PY` Python.
struct Task {
    what: &'static str,
    needs: &'static [&'static str],
    script: &'static str,
    /// At most this many times the time that it takes directly.
    target: f64,
}

const TASKS: [Task; 8] = [
    Task { what: "unpack", needs: &["tar"], script: "tar xf $S/tree.tar", target: 8.0 },
    Task {
        what: "clone",
        needs: &["git"],
        script: "git -c advice.detachedHead=false clone -q --no-local $S/repo.git clone",
        target: 8.0,
    },
    Task {
        what: "build",
        needs: &["gcc", "ar"],
        script: "cp $S/code/* . && for c in unit*.c; do gcc -O0 -c $c || exit 1; done && ar rc lib.a unit*.o && gcc main.c lib.a -o main",
        target: 8.0,
    },
    Task { what: "grep -r", needs: &["tar", "grep"], script: "! grep -r no-such-word tree", target: 8.0 },
    Task {
        what: "dd bs=4k",
        needs: &["dd"],
        script: "dd if=/dev/zero of=blocks bs=4k count=$N status=none && dd if=blocks of=/dev/null bs=4k status=none",
        target: 1.8,
    },
    Task {
        what: "lines",
        needs: &["python3"],
        script: "$PY -c '
import sys
with open(\"lines\", \"w\", buffering=1) as f:
    for i in range(int(sys.argv[1])): f.write(\"line %d of many, as a log has them\\n\" % i)
with open(\"lines\") as f: assert sum(1 for _ in f) == int(sys.argv[1])' $N",
        target: 1.8,
    },
    Task {
        what: "SQLite",
        needs: &["python3"],
        script: "$PY -c '
import sqlite3, sys
db = sqlite3.connect(\"data.db\")
db.execute(\"create table t (k integer primary key, v text)\")
for i in range(int(sys.argv[1]) // 40):
    with db: db.executemany(\"insert into t (v) values (?)\", [(\"value %d\" % (i * j),) for j in range(10)])
assert db.execute(\"select count(*) from t\").fetchone()[0] == int(sys.argv[1]) // 40 * 10' $N",
        target: 8.0,
    },
    Task {
        what: "imports",
        needs: &["python3"],
        script: "cp -r $S/modules modules && PYTHONPATH=modules $PY -c 'import everything'",
        target: 8.0,
    },
];

/// What all of them together are held against.
const MEAN_TARGET: f64 = 2.5;
/// A task that takes longer than this hangs.
const LIMIT: Duration = Duration::from_secs(300);

/// The two ways, and what both need.
struct EverydaySetup {
    sources: PathBuf,
    python: PathBuf,
    layer: Layer,
    library: PathBuf,
    count: usize,
    /// Where the directories of both ways are; it goes with the rest.
    home: RunDir,
    /// Where compilers put what they forget when they are killed.
    temporary: RunDir,
}

impl Experiment for Everyday {
    fn run(&self, progress: &dyn Progress) -> Result<Outcome> {
        let asked = self.tasks()?;
        let ground = EverydaySetup::new(self)?;
        let mut outcome = Outcome::default();
        let (tasks, missing): (Vec<&Task>, Vec<&Task>) =
            asked.into_iter().partition(|t| t.needs.iter().all(|tool| installed(tool)));
        for task in missing {
            outcome.line(format!(
                "{}: not measured, since one of {} is missing",
                task.what,
                task.needs.join(", ")
            ));
        }
        let repeat = self.repeat.max(1);
        progress.begin(repeat * tasks.len() * 2);
        let mut seen = vec![[Vec::new(), Vec::new()]; tasks.len()];
        for round in 0..repeat {
            let dirs = [ground.fresh("direct", round)?, ground.fresh("forwarded", round)?];
            for (task, seen) in tasks.iter().zip(&mut seen) {
                progress.doing(task.what);
                for i in 0..2 {
                    let way = (i + round) % 2;
                    seen[way].push(ground.time(task, &dirs[way], way == 1)?);
                    progress.advance(1);
                }
            }
            for dir in dirs {
                std::fs::remove_dir_all(&dir).with_context(|| format!("cannot remove {}", dir.display()))?;
            }
        }
        let rows: Vec<Row> =
            tasks.iter().zip(seen).map(|(task, [direct, forebay])| row(task, direct, forebay)).collect();
        tell(&mut outcome, &rows, repeat)?;
        Ok(outcome)
    }
}

impl Everyday {
    /// What is to be done, in order: what is looked through is unpacked first.
    fn tasks(&self) -> Result<Vec<&'static Task>> {
        let known = |name: &str| TASKS.iter().any(|t| t.what == name);
        if let Some(other) = self.only.iter().find(|name| !known(name)) {
            let names = TASKS.map(|t| t.what).join(", ");
            bail!("there is no task `{other}`: there are {names}");
        }
        let asked = |what: &str| self.only.iter().any(|name| name == what);
        let wanted =
            |t: &&Task| self.only.is_empty() || asked(t.what) || t.what == "unpack" && asked("grep -r");
        Ok(TASKS.iter().filter(wanted).collect())
    }
}

fn row(task: &Task, direct: Vec<f64>, forebay: Vec<f64>) -> Row {
    let factor = median(&direct.iter().zip(&forebay).map(|(d, f)| f / d).collect::<Vec<_>>());
    let (direct_ms, forebay_ms) = (median(&direct), median(&forebay));
    Row { what: task.what, direct_ms, forebay_ms, factor, target: task.target }
}

fn tell(outcome: &mut Outcome, rows: &[Row], repeat: usize) -> Result<()> {
    let mean = mean(rows);
    outcome.line(format!("medians of {repeat} interleaved repetitions; {}", load()));
    let mut t = Table::new(["ms", "direct", "forebay", "factor", "target"]);
    for r in rows {
        t.row([
            r.what.to_owned(),
            format!("{:.1}", r.direct_ms),
            format!("{:.1}", r.forebay_ms),
            format!("{:.2}", r.factor),
            format!("≤ {}", r.target),
        ]);
    }
    outcome.table(t);
    for r in rows {
        outcome.judge(
            format!("{}: {:.2} times as long as directly (≤ {})", r.what, r.factor, r.target),
            r.factor <= r.target,
        );
    }
    outcome.judge(format!("geometric mean: {mean:.2} (≤ {MEAN_TARGET})"), mean <= MEAN_TARGET);
    let all =
        serde_json::json!({ "rows": rows, "geometric_mean": mean, "repeat": repeat, "machine": load() });
    outcome.file("everyday.json", serde_json::to_string_pretty(&all)?);
    Ok(())
}

fn mean(rows: &[Row]) -> f64 {
    (rows.iter().map(|r| r.factor.ln()).sum::<f64>() / rows.len().max(1) as f64).exp()
}

fn installed(tool: &str) -> bool {
    std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|dir| dir.join(tool).is_file()))
}

/// The interpreter itself: what is found by its name may be a script that looks for it.
fn interpreter() -> PathBuf {
    let asked = Command::new("python3").args(["-c", "import sys; print(sys.executable)"]).output();
    let path = asked.ok().and_then(|out| String::from_utf8(out.stdout).ok());
    path.map(|p| PathBuf::from(p.trim())).filter(|p| p.is_absolute()).unwrap_or_else(|| "python3".into())
}

impl EverydaySetup {
    fn new(settings: &Everyday) -> Result<EverydaySetup> {
        let home = RunDir::create(&settings.dir)?;
        let sources = home.path().join("sources");
        let tenth = |full: usize| if settings.quick { full / 10 } else { full };
        make_sources(&sources, tenth(1000), tenth(20), tenth(300))?;
        let forwarded = home.path().join("forwarded");
        make(&forwarded)?;
        make(&home.path().join("direct"))?;
        let layer = Layer::start(&LayerConfig {
            program: program()?,
            io_nodes: 1,
            at: vec![At { dir: forwarded.clone(), export: forwarded }],
            transport: settings.transport,
            deadline: Duration::from_secs(30),
            fallback: Fallback::Error,
            protect: forebay_types::Protect::None,
            node_args: Vec::new(),
            across: None,
            joins: true,
            job: "everyday".into(),
        })?;
        let library = layer.write_preload()?;
        let temporary = RunDir::create(&std::env::temp_dir())?;
        Ok(EverydaySetup {
            sources,
            python: interpreter(),
            layer,
            library,
            count: tenth(20_000),
            home,
            temporary,
        })
    }

    fn fresh(&self, way: &str, round: usize) -> Result<PathBuf> {
        let dir = self.home.path().join(way).join(round.to_string());
        make(&dir)?;
        Ok(dir)
    }

    /// Milliseconds that the task takes in `dir`.
    fn time(&self, task: &Task, dir: &Path, forwarded: bool) -> Result<f64> {
        let mut c = Command::new("sh");
        c.args(["-c", task.script]).current_dir(dir);
        c.env("TMPDIR", self.temporary.path())
            .env("S", &self.sources)
            .env("PY", &self.python)
            .env("N", self.count.to_string());
        c.env("PYTHONDONTWRITEBYTECODE", "1").env("PWD", dir).stdin(Stdio::null()).stdout(Stdio::null());
        if forwarded {
            c.env("LD_PRELOAD", &self.library).env("FOREBAY_CONFIG", self.layer.client_config());
        }
        let began = Instant::now();
        let mut shell = Process::start(&mut c).context("cannot start a shell")?;
        let ended = shell.wait_for(LIMIT)?;
        let took = began.elapsed();
        let way = if forwarded { "forwarded" } else { "directly" };
        match ended {
            None => bail!("{} did not end within {} s {way}", task.what, LIMIT.as_secs()),
            Some(status) if !status.success() => bail!("{} failed {way} ({status})", task.what),
            Some(_) => {}
        }
        Ok(took.as_secs_f64() * 1e3)
    }
}

/// An archive, a repository, C sources and Python modules.
fn make_sources(at: &Path, files: usize, units: usize, modules: usize) -> Result<()> {
    let tree = at.join("tree");
    let text = |i: usize| format!("file {i}: some words that make a line of text\n").repeat(10 + i % 90);
    for i in 0..files {
        let dir = tree.join(format!("part{}", i % 40));
        make(&dir)?;
        put(&dir.join(format!("file{i}.txt")), text(i))?;
    }
    let (code, python) = (at.join("code"), at.join("modules"));
    make(&code)?;
    make(&python)?;
    for i in 0..units {
        let source = format!(
            "#include <stdio.h>\n#include <stdlib.h>\nint unit{i}(int x) {{ return x * {i} + rand(); }}\n"
        );
        put(&code.join(format!("unit{i}.c")), source)?;
    }
    put(&code.join("main.c"), "int main(void) { return 0; }\n")?;
    for i in 0..modules {
        put(&python.join(format!("module{i}.py")), format!("VALUE = {i}\ndef double(): return VALUE * 2\n"))?;
    }
    let all: String = (0..modules).map(|i| format!("import module{i}\n")).collect();
    put(&python.join("everything.py"), all)?;
    let script = "tar cf tree.tar tree; if command -v git; then cd tree && git init -q . && git add . && \
        git -c user.name=everyday -c user.email=everyday@localhost commit -qm all && \
        git clone -q --bare . ../repo.git; fi";
    let mut shell = Command::new("sh");
    let made = Process::start(shell.args(["-c", script]).current_dir(at).stdout(Stdio::null()))?.wait()?;
    if !made.success() {
        bail!("cannot make the archive and the repository in {}", at.display());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn single_tasks() {
        let of = |names: &[&str]| {
            let only = names.iter().map(|n| (*n).to_owned()).collect();
            let tasks = Everyday { only, ..Everyday::default() }.tasks();
            tasks.map(|all| all.iter().map(|t| t.what).collect::<Vec<_>>())
        };
        assert_eq!(of(&[]).unwrap().len(), TASKS.len());
        assert_eq!(of(&["SQLite", "clone"]).unwrap(), ["clone", "SQLite"]);
        assert_eq!(of(&["grep -r"]).unwrap(), ["unpack", "grep -r"]);
        assert!(of(&["grep"]).unwrap_err().to_string().contains("grep -r"));
    }

    #[test]
    fn factors_and_their_mean() {
        let one = row(&TASKS[0], vec![10.0, 20.0, 10.0], vec![20.0, 40.0, 80.0]);
        assert_eq!((one.direct_ms, one.forebay_ms, one.factor), (10.0, 40.0, 2.0));
        let other = Row { factor: 8.0, ..one.clone() };
        assert!((mean(&[one, other]) - 4.0).abs() < 1e-9);
    }
}
