//! `forebay top` in a terminal, and without one.

use forebay_client::{ExportId, OpenFlags, Path};
use forebay_testkit::{ArbiterSpec, NodeProcess, Site, needs, program, until};
use std::process::Command;
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
    println!("{}", terminal.shows(&["1 jobs", "2/2 I/O nodes", "seen", "MB/s", "q quit"]));
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
    terminal.tmux(&["resize-window", "-x", "100", "-y", "20"]);
    drop(arbiter);
    println!("{}", terminal.shows(&["NO ANSWER", "job seen"]));
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
    assert!(text.lines().all(|l| l.contains("0 jobs on 0 of 0 I/O nodes")), "{text}");
    let out = top(&["--count", "1", "--job", "x"]);
    assert_eq!(String::from_utf8_lossy(&out.stdout), "job x does not run\n");
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
