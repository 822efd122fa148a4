//! `forebay mount`: forwarded directories as mounted file systems, until the command is told to end.

use super::args;
use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum, ValueHint};
use forebay_client::{Address, Client, Config, ExportMap};
use forebay_embed::{At, Layer, LayerConfig, Transport};
use forebay_mount::{Contract, Ids, Mounted, Options, place};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitCode, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How long open files are waited for once the directory is unmounted.
const LAST_USERS: Duration = Duration::from_millis(500);

/// Mount a directory that I/O nodes serve.
///
/// Every program sees the export's files below DIR, whatever it is linked with and however it was
/// started; what it does there goes through the I/O nodes. Starts I/O nodes on this machine, or uses
/// running ones with `--node`.
///
/// As root the mount is for all users, and the kernel checks permissions by owner and mode. Other
/// users need `fusermount3`, and the mount is theirs alone; `forebay run --via mount` needs neither.
///
/// SIGTERM or SIGINT unmounts at once, also while programs use it (they get errors from then on). Should
/// the command be killed, a small process of its own unmounts.
#[derive(Args)]
#[command(after_long_help = "\
Examples:
  forebay mount --at /scratch=/mnt/pfs/scratch
  forebay mount --background --at /scratch --node tcp:10.0.0.7:7411 --secret-file secret
  forebay mount --contract close-to-open --at /software=/mnt/pfs/software

Contracts:
  strict          what one process has written, all processes on all hosts see; nothing is kept
  close-to-open   the kernel keeps pages, and attributes for a second; a file is looked at anew when it
                  is opened. What another host writes to a file that is open here may be seen late.
                  Writes are never held back.")]
pub(crate) struct Mount {
    /// Mount here what the I/O nodes export as EXPORT (by default the directory of the same name).
    /// May be repeated.
    #[arg(long, value_name = "DIR[=EXPORT]", required = true, value_hint = ValueHint::DirPath)]
    at: Vec<String>,
    /// How many I/O nodes to start [default: 1].
    #[arg(long, value_name = "N", conflicts_with = "node", value_parser = clap::value_parser!(u16).range(1..=256))]
    io_nodes: Option<u16>,
    /// Use this I/O node, `tcp:HOST:PORT` or `unix:PATH`, instead of starting some. May be repeated.
    #[arg(long, value_name = "ADDRESS", requires = "secret_file")]
    node: Vec<Address>,
    /// The secret of the running I/O nodes.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    secret_file: Option<PathBuf>,
    /// The job's name, as the I/O nodes know it.
    #[arg(long, value_name = "NAME", default_value = "mount")]
    job: String,
    /// What the kernel may keep.
    #[arg(long, value_enum, default_value_t = Keep::Strict)]
    contract: Keep,
    /// The longest a single call may take before it fails.
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = args::seconds(0.1))]
    deadline: Duration,
    /// Go into the background once everything is mounted.
    #[arg(long)]
    background: bool,
    /// Say on standard output when everything is mounted.
    #[arg(long, hide = true)]
    announce: bool,
}

#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum Keep {
    /// Nothing.
    Strict,
    /// Until a file is opened again.
    CloseToOpen,
}

impl From<Keep> for Contract {
    fn from(keep: Keep) -> Contract {
        match keep {
            Keep::Strict => Contract::Strict,
            Keep::CloseToOpen => Contract::CloseToOpen,
        }
    }
}

impl Mount {
    pub(crate) fn run(self) -> Result<ExitCode> {
        if self.background {
            return in_background();
        }
        super::begin_service(false)?;
        use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
        let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM, SIGHUP])?;
        let (end, ended) = channel();
        let told = end.clone();
        std::thread::spawn(move || {
            for _ in signals.forever() {
                // If nobody listens any more, the end is under way.
                let _ = told.send(());
            }
        });
        let layer = self.layer()?;
        let client = Arc::new(Client::new(layer.config().clone(), Some(layer.counters()))?);
        let mut mounts = Vec::new();
        for (export, map) in places(layer.config()) {
            let options = Options { export, contract: self.contract.into(), ids: ids() };
            mounts.push(Place::new(&map.dir, Arc::clone(&client), options, end.clone())?);
        }
        self.say_ready(&mounts)?;
        // The first signal, or the end of a mount that somebody else unmounted.
        let _ = ended.recv();
        mounts.iter().for_each(Place::unmount);
        for mount in &mounts {
            mount.mounted.wait(LAST_USERS);
            mount.mounted.leave();
        }
        drop(mounts);
        drop(layer);
        Ok(ExitCode::SUCCESS)
    }

    /// Running I/O nodes.
    fn layer(&self) -> Result<Layer> {
        if self.node.is_empty() {
            let at: Result<Vec<At>, String> = self.at.iter().map(|a| a.parse()).collect();
            return Ok(Layer::start(&LayerConfig {
                program: std::env::current_exe().context("cannot find this program's own file")?,
                io_nodes: self.io_nodes.unwrap_or(1).into(),
                at: at.map_err(anyhow::Error::msg)?,
                transport: Transport::Unix,
                deadline: self.deadline,
                fallback: forebay_client::Fallback::Error,
                node_args: Vec::new(),
                job: self.job.clone(),
            })?);
        }
        let file = self.secret_file.as_ref().context("--secret-file is needed")?;
        let secret =
            std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
        let export = |text: &String| {
            let (dir, export) = text.split_once('=').unwrap_or((text, text));
            ExportMap { dir: dir.into(), export: export.into(), local: None }
        };
        Ok(Layer::attach(Config {
            exports: self.at.iter().map(export).collect(),
            deadline_ms: self.deadline.as_millis() as u64,
            ..Config::new(&self.job, secret.trim(), self.node.clone())
        })?)
    }

    fn say_ready(&self, mounts: &[Place]) -> Result<()> {
        for mount in mounts {
            eprintln!("mounted on {}", mount.dir.display());
        }
        if self.announce {
            println!("mounted");
            std::io::stdout().flush()?;
        }
        Ok(())
    }
}

/// The same command as a process of its own that goes on when this one has ended.
fn in_background() -> Result<ExitCode> {
    let mut command = Command::new(std::env::current_exe().context("cannot find this program's own file")?);
    command.args(std::env::args_os().skip(1).filter(|a| a != "--background")).arg("--announce");
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    own_session(&mut command);
    let mut child = command.spawn().context("cannot start")?;
    let mut said = String::new();
    if let Some(out) = child.stdout.take() {
        BufReader::new(out).read_line(&mut said).context("cannot hear from the background")?;
    }
    if said.trim() == "mounted" {
        eprintln!("process {} serves it; end it to unmount", child.id());
        return Ok(ExitCode::SUCCESS);
    }
    let status = child.wait()?;
    Ok(ExitCode::from(status.code().and_then(|c| u8::try_from(c).ok()).filter(|c| *c != 0).unwrap_or(1)))
}

/// A terminal's signals are not for this process.
fn own_session(command: &mut Command) {
    // SAFETY: setsid(2) is all that happens between fork and exec, and it is safe there.
    unsafe {
        command.pre_exec(|| {
            rustix::process::setsid()?;
            Ok(())
        });
    }
}

/// As whom files are shown by a mount on the machine itself.
fn ids() -> Ids {
    if place::is_root() { Ids::All } else { Ids::AsTheyAre }
}

/// The exports to mount: a directory that is there by two names is mounted once.
pub(crate) fn places(config: &Config) -> Vec<(u16, ExportMap)> {
    let real = |dir: &Path| std::fs::canonicalize(dir).unwrap_or_else(|_| dir.to_owned());
    let mut seen: Vec<PathBuf> = Vec::new();
    let mut all = Vec::new();
    for (n, map) in config.exports.iter().enumerate() {
        let dir = real(&map.dir);
        if let Ok(n) = u16::try_from(n)
            && !seen.contains(&dir)
        {
            seen.push(dir.clone());
            all.push((n, ExportMap { dir, ..map.clone() }));
        }
    }
    all
}

/// One mount on the machine.
struct Place {
    dir: PathBuf,
    mounted: Arc<Mounted>,
    watcher: Arc<Watcher>,
}

impl Place {
    fn new(dir: &Path, client: Arc<Client>, options: Options, ended: Sender<()>) -> Result<Place> {
        if !dir.is_dir() {
            bail!("{}: no such directory to mount on: make it first", dir.display());
        }
        let device = if place::is_root() { place::mount(dir, true)? } else { place::mount_as_user(dir)? };
        let device_number = place::mounted(dir).unwrap_or_default();
        let mounted = Arc::new(Mounted::serve(device, client, options)?);
        let watcher = Watcher::start(dir, &device_number)?;
        let served = Arc::clone(&mounted);
        std::thread::spawn(move || {
            while !served.wait(Duration::from_secs(3600)) {}
            let _ = ended.send(());
        });
        Ok(Place { dir: dir.to_owned(), mounted, watcher })
    }

    fn unmount(&self) {
        // It may be unmounted already.
        if let Err(e) = place::unmount(&self.dir) {
            tracing::debug!("{}: {e}", self.dir.display());
        }
        self.watcher.dismiss();
    }
}

/// A process that unmounts when this one is gone without having done it. It is started again should
/// somebody end it.
struct Watcher {
    state: Mutex<Option<ChildStdin>>,
}

impl Watcher {
    fn start(dir: &Path, device: &str) -> Result<Arc<Watcher>> {
        let (dir, device) = (dir.to_owned(), device.to_owned());
        let mut child = Watcher::spawn(&dir, &device)?;
        let watcher = Arc::new(Watcher { state: Mutex::new(child.stdin.take()) });
        let kept = Arc::clone(&watcher);
        std::thread::spawn(move || {
            loop {
                let _ = child.wait();
                let mut state = kept.state.lock().unwrap_or_else(PoisonError::into_inner);
                if state.is_none() {
                    return;
                }
                match Watcher::spawn(&dir, &device) {
                    Ok(mut next) => {
                        *state = next.stdin.take();
                        child = next;
                    }
                    Err(e) => {
                        tracing::warn!(
                            "nobody will unmount {} if this process is killed: {e}",
                            dir.display()
                        );
                        return;
                    }
                }
                drop(state);
                std::thread::sleep(Duration::from_millis(100));
            }
        });
        Ok(watcher)
    }

    fn spawn(dir: &Path, device: &str) -> Result<Child> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("mount-watch").arg("--device").arg(device).arg(dir);
        command.stdin(Stdio::piped()).stdout(Stdio::null());
        own_session(&mut command);
        command.spawn().context("cannot start the process that unmounts")
    }

    /// Everything is done: it has nothing to do.
    fn dismiss(&self) {
        if let Some(mut stdin) = self.state.lock().unwrap_or_else(PoisonError::into_inner).take() {
            let _ = stdin.write_all(b"done");
        }
    }
}

/// Waits for the end of standard input and unmounts DIR, unless told that it is done.
#[derive(Args)]
pub(crate) struct MountWatch {
    /// The device number of the mount: another one on the same directory is left alone.
    #[arg(long)]
    device: String,
    dir: PathBuf,
}

impl MountWatch {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let mut told = Vec::new();
        // An error is the end, too.
        let _ = std::io::stdin().read_to_end(&mut told);
        if told.is_empty() && place::mounted(&self.dir).as_deref() == Some(&self.device) {
            place::unmount(&self.dir)?;
        }
        Ok(ExitCode::SUCCESS)
    }
}
