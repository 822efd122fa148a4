//! Which front end a run has, and starting the program behind it.

use crate::launch::Plan;
use crate::mount::places;
use crate::not_run::{NOT_STARTED, not_executed};
use anyhow::{Context, Result, bail};
use forebay_client::gate::Gates;
use forebay_client::{Address, Client, Config, IDS, Reread, gates_at};
use forebay_embed::{ACCELERATOR_FILE, Layer, Note};
use forebay_mount::place::doorway::Doorway;
use forebay_mount::place::{self, namespace};
use forebay_mount::{Contract, Ids, Mounted, Options};
use serde::Serialize;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// How a program's calls are caught.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Via {
    /// By a library that is loaded into it.
    Preload,
    /// By a file system that is mounted for it alone.
    Mount,
    /// By the library where it reaches the program, else by the mount.
    Auto,
}

/// What was chosen, and why.
pub(crate) struct Route {
    pub(crate) mount: bool,
    pub(crate) why: String,
}

impl Route {
    /// Decides. `direct`: calls are to go to the machine's own files when no I/O node answers.
    pub(crate) fn choose(via: Via, plan: &Plan, direct: bool, contract: Contract) -> Result<Route> {
        let preload = |why: String| Route { mount: false, why };
        let mount = |why: String| Route { mount: true, why };
        let kept = contract != Contract::Strict;
        // Where other hosts are to have it, it lies elsewhere.
        let loads = match plan.is_away() {
            true => Ok(()),
            false => forebay_embed::can_load_library().map(drop).map_err(anyhow::Error::msg),
        };
        Ok(match via {
            Via::Preload if kept => bail!(
                "the library keeps nothing, so there only are --contract strict and synchronous: use --via mount, whose kernel does"
            ),
            Via::Auto if kept && direct => {
                bail!(
                    "a --contract other than strict and synchronous needs the mount, which has no --fallback direct"
                )
            }
            Via::Auto if kept => mount("the contract is the mount's".into()),
            Via::Preload => {
                loads?;
                preload("as asked".into())
            }
            Via::Mount if direct => {
                bail!("--fallback direct is not possible under the mount: use --via preload")
            }
            Via::Mount => mount("as asked".into()),
            Via::Auto if direct => {
                loads?;
                preload("the mount has no --fallback direct".into())
            }
            Via::Auto => {
                let uncovered = uncovered(plan).and_then(|p| p.uncovered);
                let why = match (&uncovered, &loads) {
                    (Some(why), _) => format!("the program is {}", why.reason()),
                    (None, Err(why)) => why.to_string(),
                    (None, Ok(())) => return Ok(preload("the library reaches the program".into())),
                };
                let impossible = match plan.is_away() {
                    true => Some("it reaches the processes of this host alone".to_owned()),
                    false => probe().err().map(|e| format!("{e:#}")),
                };
                match impossible {
                    None => mount(why),
                    Some(e) => {
                        loads.with_context(|| format!("the mount is not possible ({e})"))?;
                        preload(format!("{why}, so it is not covered; the mount is not possible: {e}"))
                    }
                }
            }
        })
    }
}

/// What the library does not reach: the program, or else what starts it.
pub(crate) fn uncovered(plan: &Plan) -> Option<forebay_program::Program> {
    let files = [plan.program().first(), plan.command.first()];
    let found = files.into_iter().flatten().filter_map(|file| forebay_program::inspect(file).ok());
    found.into_iter().find(|p| p.uncovered.is_some())
}

/// Whether a mount in a namespace of its own is possible here, tried in a process of its own.
pub(crate) fn probe() -> Result<()> {
    place::open_device()?;
    let out = Command::new(std::env::current_exe()?).arg("mount-inside").output()?;
    if !out.status.success() {
        bail!("{}", String::from_utf8_lossy(&out.stderr).trim().trim_start_matches("forebay: "));
    }
    Ok(())
}

/// What the accelerator did.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Accelerated {
    /// Calls that went past the mount.
    pub(crate) calls: u64,
    /// Of so many processes.
    pub(crate) processes: u64,
}

/// The mounts of a run. Dropping it ends them.
pub(crate) struct Mounts {
    mounted: Vec<Mounted>,
    gates: Option<&'static Gates>,
    _made: namespace::TemporaryDirs,
}

impl Mounts {
    /// What went past them, if it could.
    pub(crate) fn accelerated(&self) -> Option<Accelerated> {
        let number = |n: &AtomicU64| n.load(Ordering::Relaxed);
        self.gates
            .map(|gates| Accelerated { calls: number(&gates.calls), processes: number(&gates.processes) })
    }

    /// What the contract says does not change, and did.
    pub(crate) fn notes(&self) -> Vec<Note> {
        let note = |name: Vec<u8>| Note {
            kind: "changed".into(),
            path: String::from_utf8_lossy(&name).into_owned(),
            why: "was changed while it was in use, though the contract is immutable: refused with ESTALE"
                .into(),
            program: String::new(),
            count: 1,
        };
        self.mounted.iter().flat_map(Mounted::changed_files).map(note).collect()
    }
}

impl Drop for Mounts {
    fn drop(&mut self) {
        self.mounted.iter().for_each(Mounted::leave);
    }
}

/// Set for a program whose directories are mounted for it.
const WITHIN: &str = "FOREBAY_WITHIN";

/// Refuses a command that measures where what it does would go through I/O nodes that it knows nothing of.
pub fn not_within() -> Result<()> {
    if ["FOREBAY_CONFIG", WITHIN].iter().any(|name| std::env::var_os(name).is_some()) {
        bail!(
            "this is inside of `forebay run`, through whose I/O nodes everything would go: start this command by itself"
        );
    }
    Ok(())
}

/// `on`: data goes past the mount; `always`: everything that can, from the first call on. For the program, where the
/// accelerator finds its configuration.
const ACCELERATOR: &str = "FOREBAY_ACCELERATOR";

/// Makes it possible that the program's data goes past the mounts: what it finds in its environment, and the gates. Only
/// if all I/O nodes are of this host, so that an `fsync` of the mount's is one for what went through any of them.
fn accelerate(layer: &Layer, plan: &Plan, contract: Contract) -> Result<Option<(OsString, &'static Gates)>> {
    let wanted = std::env::var_os(ACCELERATOR).unwrap_or_default();
    let config = layer.config();
    let here = |address: &Address| matches!(address, Address::Unix(_));
    if !(wanted == "on" || wanted == "always")
        || contract != Contract::Strict
        || config.origin.is_some()
        || config.epoch != Default::default()
        || !config.nodes.iter().chain(&config.spare).all(here)
        || uncovered(plan).is_some()
    {
        return Ok(None);
    }
    layer.write_accelerator()?;
    let gates = layer.dir().join("gates");
    let gates = gates_at(&gates).with_context(|| format!("cannot make {}", gates.display()))?;
    let shown = layer.dir().join(IDS);
    std::fs::write(&shown, ids().to_json()).with_context(|| format!("cannot write {}", shown.display()))?;
    let mut variable = OsString::from(if wanted == "always" { "!" } else { "" });
    variable.push(layer.client_config());
    Ok(Some((variable, gates)))
}

/// Starts the program in a namespace in which the layer's directories are mounted.
pub(crate) fn spawn(layer: &Layer, plan: &Plan, contract: Contract) -> Result<(Child, Mounts)> {
    let config = layer.config();
    let places = places(config);
    let dirs: Vec<PathBuf> = places.iter().map(|(_, map)| map.dir.clone()).collect();
    let made = namespace::make_dirs(&dirs)?;
    let socket = layer.dir().join("mount.sock");
    let stage = layer.dir().join("root");
    std::fs::create_dir(&stage).with_context(|| format!("cannot make {}", stage.display()))?;
    let doorway = Doorway::open(&socket).with_context(|| format!("cannot listen at {}", socket.display()))?;
    let file = layer.client_config();
    let again = move || Config::from_json(&std::fs::read(&file).ok()?).ok();
    let config = Config { reread: Some(Reread(Arc::new(again))), ..config.clone() };
    let client = Arc::new(Client::new(config, Some(layer.counters()))?);
    let mut inside = Command::new(std::env::current_exe().context("cannot find this program's own file")?);
    inside.arg("mount-inside").arg("--socket").arg(&socket).arg("--stage").arg(&stage);
    for dir in &dirs {
        inside.arg("--dir").arg(dir);
    }
    inside.arg("--").args(&plan.command);
    inside.env_remove("FOREBAY_CONFIG").env_remove(ACCELERATOR).env(WITHIN, "mount");
    let accelerated = accelerate(layer, plan, contract)?;
    if let Some((variable, _)) = &accelerated {
        inside.env(ACCELERATOR, variable);
    }
    let gates = accelerated.map(|(_, gates)| gates);
    crate::sys::as_given(&mut inside);
    let mut child = inside.spawn().context("cannot start")?;
    let mut mounts = Mounts { mounted: Vec::new(), gates, _made: made };
    let served = (|| {
        let guest = doorway.accept(|| child.try_wait().is_ok_and(|s| s.is_some()))?;
        for (export, _) in &places {
            let options = Options { export: *export, contract, ids: ids(), gates };
            mounts.mounted.push(Mounted::serve(guest.next()?, Arc::clone(&client), options)?);
        }
        anyhow::Ok(())
    })();
    if let Err(e) = served {
        // Our own child, which has nothing left to do.
        let _ = child.kill();
        let _ = child.wait();
        return Err(e);
    }
    Ok((child, mounts))
}

/// As whom files are shown inside.
fn ids() -> Ids {
    if place::is_root() {
        return Ids::All;
    }
    let groups = rustix::process::getgroups().unwrap_or_default();
    Ids::Mapped {
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        groups: groups.iter().map(|g| g.as_raw()).collect(),
    }
}

/// The library that sends the program's data past the mount, if that is wanted.
fn accelerator() -> Option<PathBuf> {
    let variable = std::env::var_os(ACCELERATOR)?;
    let config = variable.as_encoded_bytes().strip_prefix(b"!").unwrap_or(variable.as_encoded_bytes());
    Some(Path::new(OsStr::from_bytes(config)).parent()?.join(ACCELERATOR_FILE))
}

/// Becomes the program, in the namespace first: the arguments are what `spawn` gave this process. Returns
/// only where that failed, with the exit status, and the reason if nobody was told yet. Without a program
/// it finds out whether the namespace is possible.
pub fn inside(
    socket: Option<&Path>,
    stage: Option<&Path>,
    dirs: &[PathBuf],
    command: &[OsString],
) -> Result<(u8, Option<String>)> {
    let (Some(socket), Some(stage), Some(program)) = (socket, stage, command.first()) else {
        namespace::try_it()?;
        return Ok((0, None));
    };
    if namespace::enter(socket, stage, dirs).is_err() {
        // It was told to whoever started this process.
        return Ok((NOT_STARTED, None));
    }
    let mut becomes = Command::new(program);
    if let Some(library) = accelerator() {
        let others = std::env::var_os("LD_PRELOAD").filter(|v| !v.is_empty());
        let mut all = library.into_os_string();
        if let Some(others) = others {
            all.push(":");
            all.push(others);
        }
        becomes.env("LD_PRELOAD", all);
    }
    crate::sys::as_given(&mut becomes);
    let e = anyhow::anyhow!(becomes.args(&command[1..]).exec());
    Ok((not_executed(&e), Some(format!("cannot run {}: {e}", program.display()))))
}
