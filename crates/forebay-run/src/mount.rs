//! Forwarded directories as mounted file systems on this machine, until somebody wants them to end.

mod places;
mod until;

pub(crate) use places::places;
pub use until::Until;

use crate::launch::Plan;
use crate::program::{Forward, place, try_exports};
use crate::registration::Registered;
use crate::sys::own_session;
use anyhow::{Context, Result};
use forebay_client::{Address, Client, Config, Fallback, Reread};
use forebay_control::client::Client as Arbiter;
use forebay_control::job::JobRequest;
use forebay_embed::{Layer, LayerConfig, RunDir, Transport};
use forebay_mount::place::{self as mounting, PlaceError};
use forebay_mount::{Contract, Ids, Mounted, Options};
use forebay_types::{Protect, Secret};
use rustix::fd::OwnedFd;
use rustix::fs::FileType;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long open files are waited for once the directory is unmounted.
const LAST_USERS: Duration = Duration::from_millis(500);

/// How long an arbiter has to answer, and to find an I/O node.
const PATIENCE: Duration = Duration::from_secs(30);

/// What the command in the background says once everything is mounted.
pub const MOUNTED: &str = "mounted";

/// Whose I/O nodes serve what is mounted.
pub enum By<'a> {
    /// Some that live as long as the mount: so many.
    Own(usize),
    /// These, under the secret of a file, or by MUNGE.
    Nodes(&'a [Address], Option<&'a Path>),
    /// Those that the arbiter at this address gives, under the secret of a file, or by MUNGE.
    Arbiter(&'a str, Option<&'a Path>),
}

/// What is to be mounted, and its I/O nodes; they, or the job at the arbiter, end with it.
pub struct Served {
    layer: Layer,
    registered: Option<Registered>,
}

impl Served {
    /// `at`: what is served, and where.
    /// `joins`: small requests need not make a trip each, where that can be.
    pub fn by(
        by: &By<'_>,
        at: &[Forward],
        job: Option<&str>,
        deadline: Duration,
        joins: bool,
    ) -> Result<Served> {
        let mount = |config: Config| Config {
            exports: at.iter().map(Forward::by_name).collect(),
            deadline_ms: deadline.as_millis() as u64,
            ..config
        };
        // Of each user's own: on an I/O node a job's name is its first user's.
        let own = format!("mount-{}", rustix::process::geteuid().as_raw());
        let name = job.unwrap_or(&own);
        let (layer, registered) = match by {
            By::Own(number) => {
                let layer = Layer::start(&LayerConfig {
                    program: std::env::current_exe().context("cannot find this program's own file")?,
                    io_nodes: *number,
                    at: at.iter().map(|f| f.at.clone()).collect(),
                    transport: Transport::Unix,
                    deadline,
                    fallback: Fallback::Error,
                    protect: Protect::None,
                    node_args: Vec::new(),
                    across: None,
                    joins,
                    job: name.to_owned(),
                })?;
                (layer, None)
            }
            By::Nodes(nodes, secret) => {
                let config = mount(crate::known_to(name, *secret, nodes.to_vec())?);
                try_exports(&config, |_| {})?;
                (Layer::attach(config, None)?, None)
            }
            By::Arbiter(urls, secret) => {
                let registered = register(urls, *secret, job)?;
                let grant = &registered.grant;
                let secret = grant.secret.as_ref().context("the arbiter gave the job no secret")?;
                let mut config = mount(Config::new(&grant.id, secret, Vec::new()));
                place(&mut config, grant)?;
                try_exports(&config, |_| {})?;
                (Layer::attach(config, None)?, Some(registered))
            }
        };
        Ok(Served { layer, registered })
    }
}

/// A job for a mount at an arbiter, which knows whoever mounts by the secret or by MUNGE.
fn register(urls: &str, secret: Option<&Path>, job: Option<&str>) -> Result<Registered> {
    let site = secret.map(Secret::read).transpose()?;
    let arbiter = Arbiter::of_user(urls, site.clone())?;
    arbiter.is_somebody().context("the arbiter must know who mounts")?;
    let id = job.unwrap_or_default().to_owned();
    let request = JobRequest {
        // Mounts of one name are one job.
        secret: site.filter(|_| !id.is_empty()).map(|s| crate::job_secret(&s, &id).to_hex()),
        id,
        app: "mount".to_owned(),
        ..Plan::of(&[]).request(false)
    };
    Registered::new(arbiter, request, PATIENCE)
}

/// Mounts what is served, says so, and serves it until it is to end.
pub fn serve(
    Served { layer, registered }: &Served,
    contract: Contract,
    until: Until,
    ready: impl FnOnce(&[&Path]) -> Result<()>,
) -> Result<()> {
    let newest = Arc::new(Mutex::new(layer.config().clone()));
    let lock = |newest: &Mutex<Config>| newest.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let read = Arc::clone(&newest);
    let again = Reread(Arc::new(move || Some(lock(&read))));
    let config = Config { reread: registered.as_ref().map(|_| again), ..lock(&newest) };
    let client = Arc::new(Client::new(config, Some(layer.counters()))?);
    if let Some(registered) = registered {
        let told = Arc::downgrade(&client);
        registered.when_changed(move |grant, _| {
            let mut config = lock(&newest);
            if let (Ok(()), Some(client)) = (place(&mut config, grant), told.upgrade()) {
                client.moved(grant.epoch, &config.nodes);
                *newest.lock().unwrap_or_else(PoisonError::into_inner) = config;
            }
        });
    }
    let places = places(layer.config());
    places::are_there(&places, &client)?;
    let made = Arc::new(OwnMounts::default());
    let left = Arc::clone(&made);
    forebay_embed::before_exit("unmount", move || left.abandon());
    let mut mounts = Vec::new();
    let served = (|| {
        for (export, map) in places {
            let options = Options { export, contract, ids: ids(), gates: None };
            let end = until.end.clone();
            mounts.push(Mountpoint::new(&map.dir, &made, Arc::clone(&client), options, layer.dir(), end)?);
        }
        until.serving();
        ready(&mounts.iter().map(|m| m.dir.as_path()).collect::<Vec<_>>())?;
        until.wait();
        Ok(())
    })();
    made.unmount();
    for mount in &mounts {
        mount.watcher.dismiss();
    }
    for mount in &mounts {
        mount.mounted.wait(LAST_USERS);
        mount.mounted.leave();
    }
    served
}

/// How a command in the background began.
pub enum Background {
    /// This process serves the mounts.
    Serves(u32),
    /// It ended without.
    Failed(ExitStatus),
}

/// Starts this program with other arguments as a process of its own that goes on when this one has ended,
/// and waits until it has mounted everything. What it says until then is told.
pub fn in_background(
    args: impl Iterator<Item = std::ffi::OsString>,
    tell: impl Fn(&str),
) -> Result<Background> {
    let mut command = Command::new(std::env::current_exe().context("cannot find this program's own file")?);
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped());
    // Whoever reads what this command says waits for the end of it.
    let read = rustix::fs::fstat(std::io::stderr())
        .is_ok_and(|stat| matches!(FileType::from_raw_mode(stat.st_mode), FileType::Fifo | FileType::Socket));
    if read {
        command.stderr(Stdio::null());
    }
    own_session(&mut command);
    let until = Until::signalled()?;
    let mut child = until.start(&mut command)?;
    let said = child.stdout.take().map(|out| BufReader::new(out).lines());
    for line in said.into_iter().flatten() {
        match line.context("cannot hear from the background")? {
            line if line == MOUNTED => return Ok(Background::Serves(child.id())),
            line => tell(&line),
        }
    }
    Ok(Background::Failed(until.ended(child)?))
}

/// As whom files are shown by a mount on the machine itself.
fn ids() -> Ids {
    if mounting::is_root() { Ids::All } else { Ids::AsTheyAre }
}

/// One mount on the machine.
struct Mountpoint {
    dir: PathBuf,
    mounted: Arc<Mounted>,
    watcher: Arc<Watcher>,
}

impl Mountpoint {
    fn new(
        dir: &Path,
        made: &OwnMounts,
        client: Arc<Client>,
        options: Options,
        own: &Path,
        ended: Sender<()>,
    ) -> Result<Mountpoint> {
        let (device, device_number) = made.mount(dir)?;
        let mounted = Arc::new(Mounted::serve(device, client, options)?);
        let watcher = Watcher::start([dir, own], &device_number)?;
        let served = Arc::clone(&mounted);
        std::thread::spawn(move || {
            while !served.wait(Duration::from_secs(3600)) {}
            let _ = ended.send(());
        });
        Ok(Mountpoint { dir: dir.to_owned(), mounted, watcher })
    }
}

/// What this process has mounted, outer directories first, so that nothing of it stays however this process ends.
#[derive(Default)]
struct OwnMounts {
    /// Where, and as which device.
    mounts: Mutex<Vec<(PathBuf, String)>>,
    /// Held by whoever mounts, and for ever by whoever ends this process.
    turn: Mutex<()>,
}

impl OwnMounts {
    fn mount(&self, dir: &Path) -> Result<(OwnedFd, String), PlaceError> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let device =
            if mounting::is_root() { mounting::mount(dir, true)? } else { mounting::mount_as_user(dir)? };
        let number = mounting::mounted(dir).unwrap_or_default();
        self.all().push((dir.to_owned(), number.clone()));
        Ok((device, number))
    }

    /// Unmounts everything.
    fn unmount(&self) {
        self.each(mounting::unmount);
    }

    /// The same for a process that ends where it is, and may be mounting: within a directory that is served by an I/O node
    /// that does not answer this would wait for this process itself, and keep it.
    fn abandon(&self) {
        self.each(mounting::unmount_by_force);
        std::mem::forget(self.turn.lock().unwrap_or_else(PoisonError::into_inner));
        self.each(mounting::unmount_by_force);
    }

    fn each(&self, unmount: fn(&Path) -> std::io::Result<()>) {
        for (dir, device) in self.all().iter() {
            // It may be unmounted already, with the one around it too: what is there then is not this process's.
            if mounting::mounted(dir).as_ref() == Some(device)
                && let Err(e) = unmount(dir)
            {
                tracing::debug!("{}: {e}", dir.display());
            }
        }
    }

    fn all(&self) -> MutexGuard<'_, Vec<(PathBuf, String)>> {
        self.mounts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A process that unmounts when this one is gone without having done it, and removes its directory. It is started again
/// should somebody end it.
struct Watcher {
    state: Mutex<Option<ChildStdin>>,
}

impl Watcher {
    fn start(dirs: [&Path; 2], device: &str) -> Result<Arc<Watcher>> {
        let (dirs, device) = (dirs.map(Path::to_owned), device.to_owned());
        let mut child = Watcher::spawn(&dirs, &device)?;
        let watcher = Arc::new(Watcher { state: Mutex::new(child.stdin.take()) });
        let kept = Arc::clone(&watcher);
        std::thread::spawn(move || {
            loop {
                let _ = child.wait();
                let mut state = kept.state.lock().unwrap_or_else(PoisonError::into_inner);
                if state.is_none() {
                    return;
                }
                match Watcher::spawn(&dirs, &device) {
                    Ok(mut next) => {
                        *state = next.stdin.take();
                        child = next;
                    }
                    Err(e) => {
                        tracing::warn!(
                            "nobody will unmount {} if this process is killed: {e}",
                            dirs[0].display()
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

    fn spawn([dir, own]: &[PathBuf; 2], device: &str) -> Result<Child> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("mount-watch").arg("--device").arg(device).arg("--own").arg(own).arg(dir);
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

/// What the process that watches over a mount does: waits for the end of standard input and unmounts
/// `dir`, unless told that it is done. Another mount there, with another device number, is left alone. Then it removes
/// what was the mounting process's `own`.
pub fn watch(dir: &Path, device: &str, own: PathBuf) -> std::io::Result<()> {
    let mut told = Vec::new();
    // An error is the end, too.
    let _ = std::io::stdin().read_to_end(&mut told);
    if !told.is_empty() {
        return Ok(());
    }
    // Dropped last: I/O nodes that write there end with that process.
    let _own = RunDir::adopt(own);
    if mounting::mounted(dir).as_deref() == Some(device) {
        mounting::unmount(dir)?;
    }
    Ok(())
}
