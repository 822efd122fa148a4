//! `forebay top` in a terminal, and without one.

use forebay_client::{ExportId, OpenFlags, Path};
use forebay_testkit::{ArbiterSpec, NodeProcess, Process, Signal, Site, needs, program, until};
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(60);

/// A terminal, until dropped.
struct Terminal {
    socket: std::path::PathBuf,
}

impl Terminal {
    fn open(site: &Site, command: &str) -> Terminal {
        let terminal = Terminal { socket: site.path().join("tmux") };
        terminal.tmux(&["-f", "/dev/null", "new-session", "-d", "-x", "100", "-y", "20", command]);
        terminal
    }

    fn tmux(&self, args: &[&str]) -> String {
        let out = Command::new("tmux").arg("-S").arg(&self.socket).args(args).output().expect("tmux runs");
        String::from_utf8_lossy(&out.stdout).into_owned()
    }

    fn press(&self, keys: &str) {
        self.tmux(&["send-keys", keys]);
    }

    fn shows(&self, texts: &[&str]) -> String {
        until(PATIENCE, &format!("{texts:?} is not on the screen"), || {
            let screen = self.tmux(&["capture-pane", "-p"]);
            texts.iter().all(|t| screen.contains(t)).then_some(screen)
        })
    }
}

/// What is on the screen, without what is different every time: numbers, times, and how much room they take.
fn masked(screen: &str) -> String {
    let number = |word: &str| {
        let digits = word.strip_suffix("/s").unwrap_or(word).trim_end_matches(['s', 'm', 'h', 'd']);
        !digits.is_empty() && digits.chars().all(|c| c.is_ascii_digit() || c == '.')
    };
    let unit = |word: &str| ["us", "ms", "s", "B", "kB", "MB", "GB"].contains(&word);
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let mut text = String::new();
    for line in screen.lines() {
        // Why there is no answer differs.
        let line = if line.starts_with("NO ANSWER") { "NO ANSWER" } else { line };
        let mut words: Vec<&str> = Vec::new();
        for word in line.split_whitespace() {
            match word.trim_end_matches(',') {
                w if w == host => words.push("HOST"),
                w if number(w) || w == "-" => words.push("N"),
                w if unit(w) && words.last() == Some(&"N") => {}
                // The curve of the bandwidth.
                w if w.chars().all(|c| ('▁'..='█').contains(&c)) => {}
                w => words.push(w),
            }
        }
        // Rows of mere numbers come and go with what was done in the last interval.
        if words.iter().any(|w| *w != "N") {
            text += &format!("{}\n", words.join(" "));
        }
    }
    text
}

/// A screen is as it was when somebody looked at it: `tests/top/NAME.txt`. After a change that is meant:
/// `FOREBAY_BLESS=1 cargo test -p forebay --test top`, and look at the difference.
fn golden(name: &str, take: impl Fn() -> String) {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/top/{name}.txt"));
    if std::env::var_os("FOREBAY_BLESS").is_some() {
        // Until it is drawn.
        std::thread::sleep(Duration::from_secs(2));
        std::fs::write(&path, masked(&take())).expect("it can be written");
    }
    let expected = std::fs::read_to_string(&path).expect("a golden screen");
    let mut last = String::new();
    let begin = std::time::Instant::now();
    while last != expected {
        assert!(begin.elapsed() < PATIENCE, "{name} is\n{last}\ninstead of\n{expected}");
        last = masked(&take());
        std::thread::sleep(Duration::from_millis(50));
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.tmux(&["kill-server"]);
    }
}

#[test]
fn a_terminal_shows_jobs_nodes_and_a_dead_arbiter() {
    if !needs("forebay top in a terminal", &["tmux"]) {
        return;
    }
    let site = Site::new();
    let arbiter = site.arbiter(&ArbiterSpec::default());
    let _nodes: Vec<NodeProcess> = (0..2).map(|n| site.node(n, arbiter.url())).collect();
    until(PATIENCE, "the nodes do not come", || site.nodes(arbiter.url()).filter(|n| n.len() == 2));
    let grant = site.register(arbiter.url(), "seen", None).expect("an answer").expect("a grant");
    let client = site.client(&grant, grant.secret.as_deref().expect("a new job's secret"));
    let secret = site.secret_file();
    let command = format!(
        "{} top --no-color --interval 0.2 --arbiter {} --secret-file {}",
        program().display(),
        arbiter.url(),
        secret.display()
    );
    let terminal = Terminal::open(&site, &command);
    println!("{}", terminal.shows(&["1 job ", "2/2 I/O nodes", "seen", "MB/s", "q quit"]));
    let screen = || terminal.tmux(&["capture-pane", "-p"]);
    golden("jobs", screen);
    terminal.press("2");
    println!("{}", terminal.shows(&["admitted", "p99", "sort (node)"]));
    terminal.press("1");
    terminal.shows(&["sort (MB/s)"]);
    terminal.press("Enter");
    println!("{}", terminal.shows(&["job seen", "no I/O yet"]));
    // Its ranks come with its first request.
    let path = Path { export: ExportId(0), rel: b"file" };
    client.open(path, OpenFlags::WRITE | OpenFlags::CREATE, 0o600).expect("it opens");
    println!("{}", terminal.shows(&["rank", "host", "requests"]));
    terminal.tmux(&["resize-window", "-x", "40", "-y", "14"]);
    let narrow = until(PATIENCE, "it does not fit a narrow terminal", || {
        let screen = terminal.shows(&["job seen", "requests"]);
        (!screen.contains("failed") && screen.lines().all(|l| l.chars().count() <= 40)).then_some(screen)
    });
    println!("{narrow}");
    golden("narrow", screen);
    terminal.tmux(&["resize-window", "-x", "100", "-y", "20"]);
    drop(arbiter);
    println!("{}", terminal.shows(&["NO ANSWER", "job seen"]));
    golden("dead", screen);
    // No colours were asked for: bold and the like are none.
    let escaped = terminal.tmux(&["capture-pane", "-p", "-e"]);
    let coloured = |code: &str| (30..=49).any(|c| code.split(';').any(|part| part == c.to_string()));
    let codes = escaped.split("\x1b[").skip(1).filter_map(|rest| rest.split_once('m'));
    assert!(
        codes.into_iter().all(|(code, _)| !coloured(code) || code == "39" || code == "49"),
        "{escaped:?}"
    );
    client.leave();
    terminal.press("q");
    until(PATIENCE, "it does not end", || terminal.tmux(&["list-sessions"]).is_empty().then_some(()));
}

/// Through `forebay run --watch` in a terminal: the program's own words stay above, its job is shown below, and
/// afterwards the terminal is whole again, however the program ended.
#[test]
fn a_run_shows_its_job_below_what_the_program_says() {
    if !needs("forebay run --watch in a terminal", &["tmux"]) {
        return;
    }
    for killed in [false, true] {
        let site = Site::new();
        let (arbiter, at) = (site.arbiter(&ArbiterSpec::default()), site.data());
        let _node = site.node(0, arbiter.url());
        until(PATIENCE, "the node does not come", || site.nodes(arbiter.url()).filter(|n| n.len() == 1));
        // With an arbiter and without one.
        let own = ["--arbiter", arbiter.url(), "--secret-file", &site.secret_file().display().to_string()]
            .join(" ");
        let whose = if killed {
            format!("{own} --at {}=data", at.display())
        } else {
            format!("--at {}", at.display())
        };
        let (pid, stop) = (site.path().join("pid"), site.path().join("stop"));
        let script = format!(
            "echo 'the program speaks'; while [ ! -e {} ]; do dd if=/dev/zero of={}/file bs=64k count=8 status=none; \
             sleep 0.05; done",
            stop.display(),
            at.display()
        );
        let inner = site.path().join("inner.sh");
        std::fs::write(&inner, script).expect("a script");
        let outer = site.path().join("outer.sh");
        let text = format!(
            "{} run --watch --quiet --job seen {whose} -- sh {} & echo $! > {}; wait; for i in $(seq 1 60); do echo \
             line $i; done; sleep 600",
            program().display(),
            inner.display(),
            pid.display()
        );
        std::fs::write(&outer, text).expect("a script");
        let terminal = Terminal::open(&site, &format!("sh {}", outer.display()));
        let screen = terminal.shows(&["the program speaks", "job seen", "MB/s", "requests", "rank"]);
        println!("{screen}");
        let line = |text: &str| screen.lines().position(|l| l.contains(text));
        assert!(line("the program speaks") < line("job seen") && line("job seen") >= Some(10), "{screen}");
        if killed {
            let pid: i32 = std::fs::read_to_string(&pid).expect("a number").trim().parse().expect("a number");
            let pid = rustix::process::Pid::from_raw(pid).expect("a process");
            rustix::process::kill_process(pid, Signal::TERM).expect("it runs");
        } else {
            std::fs::write(&stop, "").expect("a file");
        }
        // All of the terminal scrolls again.
        let after = terminal.shows(&["line 60"]);
        assert!(after.contains("line 45") && !after.contains("job seen"), "{after}");
        assert_eq!(terminal.tmux(&["display-message", "-p", "#{cursor_flag}"]).trim(), "1", "no cursor");
    }
}

#[test]
fn without_a_terminal_there_is_a_line_per_interval() {
    let site = Site::new();
    let arbiter = site.arbiter(&ArbiterSpec::default());
    let top = |args: &[&str]| {
        let mut command = Command::new(program());
        command.args(["top", "--interval", "0.1", "--arbiter", arbiter.url()]).args(args);
        command.output().expect("forebay runs")
    };
    let out = top(&["--count", "3"]);
    let text = String::from_utf8(out.stdout).expect("UTF-8");
    assert!(out.status.success() && text.lines().count() == 3, "{text}");
    assert!(text.lines().all(|l| l.contains("0 jobs, 0 of 0 I/O nodes admitted")), "{text}");
    let out = top(&["--count", "1", "--job", "x"]);
    assert_eq!(String::from_utf8_lossy(&out.stdout), "job x does not run\n");
    // A secret that was named has to be there.
    let out = top(&["--count", "1", "--secret-file", "/nonexist/secret"]);
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(!out.status.success() && said.contains("/nonexist/secret"), "{out:?}");
    // Whoever reads goes after two lines: that is no failure.
    let mut piped = Command::new("sh");
    piped.args([
        "-c",
        "{ \"$0\" top --interval 0.1 --arbiter \"$1\"; echo \"ended with $?\" >&2; } | head -n 2",
    ]);
    let piped = piped.arg(program()).arg(arbiter.url()).output().expect("sh runs");
    assert_eq!(String::from_utf8_lossy(&piped.stdout).lines().count(), 2, "{piped:?}");
    let ended = String::from_utf8_lossy(&piped.stderr);
    assert!(["ended with 0\n", "ended with 141\n"].contains(&&*ended), "{ended}");
    let nobody = Command::new(program()).args(["top", "--arbiter", "http://127.0.0.1:1"]).output();
    let nobody = nobody.expect("forebay runs");
    assert_eq!(nobody.status.code(), Some(1), "{nobody:?}");
    assert!(String::from_utf8_lossy(&nobody.stderr).contains("does not answer"), "{nobody:?}");
}

/// An arbiter that stands still takes connections and says nothing.
#[test]
fn an_arbiter_that_stands_still_is_seen() {
    let site = Site::new();
    let arbiter = site.arbiter(&ArbiterSpec::default());
    let args = ["top", "--interval", "0.1", "--arbiter", arbiter.url()];
    let mut command = Command::new(program());
    command.args(args).arg("--lines").stdin(Stdio::null()).stdout(Stdio::piped());
    let mut lines = Process::start(&mut command).expect("it starts");
    let mut said = BufReader::new(lines.output().expect("piped")).lines();
    let mut says = |word: &str| {
        let line = said.by_ref().map(|l| l.expect("a line")).take(10_000).find(|l| l.starts_with(word));
        println!("{}", line.unwrap_or_else(|| panic!("it never says {word}")));
    };
    let screen = needs("forebay top on a terminal and an arbiter that stands still", &["tmux"])
        .then(|| Terminal::open(&site, &format!("{} {}", program().display(), args.join(" "))));
    let shows = |texts: &[&str]| {
        if let Some(screen) = &screen {
            println!("{}", screen.shows(texts));
        }
    };
    says("leading");
    shows(&["0 jobs", "FAIR"]);
    arbiter.process.signal(Signal::STOP).expect("it runs");
    says("no answer for ");
    shows(&["NO ANSWER: for ", "0 jobs"]);
    arbiter.process.signal(Signal::CONT).expect("it runs");
    says("leading");
    until(PATIENCE, "it still says so", || {
        screen.as_ref().is_none_or(|s| !s.shows(&["0 jobs"]).contains("NO ANSWER")).then_some(())
    });
}

/// A terminal on which nothing can be drawn is as good as none.
#[test]
fn a_dumb_terminal_gets_lines() {
    if !needs("forebay top in a dumb terminal", &["tmux"]) {
        return;
    }
    let site = Site::new();
    let arbiter = site.arbiter(&ArbiterSpec::default());
    let top = format!("{} top --interval 0.1 --count 2 --arbiter {}", program().display(), arbiter.url());
    let script = format!("TERM=dumb {top}; env -u TERM {top}; echo ended; sleep 600");
    let terminal = Terminal::open(&site, &script);
    let screen = terminal.shows(&["ended"]);
    assert_eq!(screen.matches("0 jobs, 0 of 0 I/O nodes admitted").count(), 4, "{screen}");
}

/// What a program asks and what somebody types stays together, whatever is drawn below, and though the size of the
/// terminal changes meanwhile.
#[test]
fn what_is_typed_stands_behind_the_programs_question() {
    if !needs("typing under forebay run --watch", &["tmux"]) {
        return;
    }
    let site = Site::new();
    let run =
        format!("{} run --watch --quiet --job seen --at {}", program().display(), site.data().display());
    let ask =
        "printf 'name: '; read x; echo \"it is $x\"; printf 'colour: '; read y; echo \"it is $y\"; sleep 600";
    let inner = site.path().join("ask.sh");
    std::fs::write(&inner, ask).expect("a script");
    let terminal = Terminal::open(&site, &format!("{run} -- sh {}", inner.display()));
    terminal.shows(&["name:", "job seen"]);
    terminal.tmux(&["resize-window", "-x", "110"]);
    terminal.shows(&["name:", &"─".repeat(110), "job seen"]);
    for c in "bob with a long name".chars() {
        terminal.tmux(&["send-keys", "-l", &c.to_string()]);
    }
    let screen = terminal.shows(&["a long name", "job seen"]);
    assert!(screen.contains("name: bob with a long name"), "{screen}");
    terminal.press("Enter");
    terminal.shows(&["it is bob with a long name", "colour:"]);
    terminal.tmux(&["send-keys", "-l", "red"]);
    let screen = terminal.shows(&["red", "job seen"]);
    assert!(screen.contains("colour: red"), "{screen}");
}

/// With the terminal the program ends, though it hears of no signal.
#[test]
fn a_terminal_that_is_gone_ends_it() {
    if !needs("a_terminal_that_is_gone_ends_it", &["python3"]) {
        return;
    }
    let script = r#"
import os, pty, signal, sys, time
signal.signal(signal.SIGHUP, signal.SIG_IGN)
pid, terminal = pty.fork()
if pid == 0:
    os.execv(sys.argv[1], ["forebay", "top", "--arbiter", "http://127.0.0.1:9"])
os.read(terminal, 1)
os.close(terminal)
for _ in range(600):
    if os.waitpid(pid, os.WNOHANG) != (0, 0):
        sys.exit(0)
    time.sleep(0.1)
os.kill(pid, signal.SIGKILL)
sys.exit("it is still there")
"#;
    let out = Command::new("python3").args(["-c", script, env!("CARGO_BIN_EXE_forebay")]).output();
    let out = out.expect("python3 runs");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
}
