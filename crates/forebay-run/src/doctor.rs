//! What works on this machine for a program, before it is run.

use crate::launch::Plan;
use crate::route;
use crate::sys::glibc_version;
use forebay_client::Address;
use forebay_embed::RunDir;
use forebay_mount::place;
use forebay_program::Uncovered;
use std::ffi::{OsStr, OsString};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// How long an I/O node may take to answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// One thing that was looked at.
pub struct Finding {
    /// Whether it is as it should be.
    pub good: bool,
    /// What it is.
    pub what: String,
    /// What to do, or what follows.
    pub then: String,
}

fn good(what: impl Into<String>, then: impl Into<String>) -> Finding {
    Finding { good: true, what: what.into(), then: then.into() }
}

fn bad(what: impl Into<String>, then: impl Into<String>) -> Finding {
    Finding { good: false, what: what.into(), then: then.into() }
}

/// What was found.
pub struct Diagnosis {
    /// One by one.
    pub findings: Vec<Finding>,
    /// Whether the program, or any where none was named, can be run with its I/O forwarded.
    pub works: bool,
}

/// Looks at this machine, at I/O nodes that should answer, and at the program that a command starts.
pub fn examine(nodes: &[Address], command: &[OsString]) -> Diagnosis {
    let device = device();
    let namespace = namespace();
    let library = library();
    let (mount, preload) = (device.good && namespace.good, library.good);
    let temporary = temporary();
    let room = temporary.good;
    let mut findings = vec![kernel(), device, namespace, helper(), glibc(), temporary, library];
    let reached: Vec<Finding> = nodes.iter().map(reachable).collect();
    let any_node = nodes.is_empty() || reached.iter().any(|f| f.good);
    findings.extend(reached);
    let mut works = mount || preload;
    let plan = Plan::of(command);
    if let Some(program) = plan.program().first() {
        let mount = mount && !plan.is_away();
        let (finding, covered) = look_at(program, mount);
        works = finding.good && (mount || (preload && covered));
        findings.push(finding);
    }
    Diagnosis { findings, works: works && any_node && room }
}

fn kernel() -> Finding {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let mut numbers = release.split(['.', '-']).map_while(|n| n.parse::<u32>().ok());
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    let what = format!("kernel {release}");
    if version < (5, 6) {
        bad(what, "I/O nodes need 5.6 (openat2); the mount and the preload library run on older ones")
    } else if version < (6, 6) {
        good(
            what,
            "shared mappings (MAP_SHARED) under the strict mount need 6.6: they are refused with ENODEV",
        )
    } else {
        good(what, "")
    }
}

fn device() -> Finding {
    match place::open_device() {
        Ok(_) => good("FUSE", "/dev/fuse can be opened"),
        Err(e) => bad("FUSE", format!("{e}; until then use --via preload")),
    }
}

fn namespace() -> Finding {
    match route::probe() {
        Ok(()) => good("namespaces", "`run --via mount` mounts for the program alone"),
        Err(e) => bad("namespaces", format!("{e:#}")),
    }
}

fn helper() -> Finding {
    if place::is_root() {
        let what = "mounting for all users";
        return match place::may_mount() {
            Ok(()) => good(what, "as root, by `forebay mount`"),
            Err(e) => bad(
                what,
                format!("{e}: this root may not (a container without SYS_ADMIN, a user namespace?)"),
            ),
        };
    }
    match place::helper() {
        Ok(_) => good("fusermount3", "`forebay mount` works without root, for you alone"),
        Err(why) => bad("fusermount3", why),
    }
}

fn glibc() -> Finding {
    good(format!("glibc {}", glibc_version()), "the preload library is for programs with glibc 2.17 or newer")
}

/// The preload library is put into the directory for temporary files.
fn library() -> Finding {
    match forebay_embed::can_load_library() {
        Ok(dir) => good("preload library", format!("can be loaded from {}", dir.display())),
        Err(why) => bad("preload library", why),
    }
}

/// So much a run writes there, whatever it does.
const NEEDED: usize = 4 << 20;

/// Every run has a directory of its own among the temporary files.
fn temporary() -> Finding {
    let base = forebay_embed::run_base();
    let tried = RunDir::create(&base).map_err(|e| e.to_string()).and_then(|dir| {
        std::fs::write(dir.path().join("room"), vec![0; NEEDED])
            .map_err(|e| format!("{}: {e}", base.display()))
    });
    match tried {
        Ok(()) => good("temporary files", format!("in {}", base.display())),
        Err(e) => bad("temporary files", format!("{e}: set TMPDIR to another directory")),
    }
}

fn reachable(node: &Address) -> Finding {
    let what = format!("I/O node {node}");
    let connected = match node {
        Address::Tcp(a) => TcpStream::connect_timeout(a, PATIENCE).map(drop),
        Address::Unix(p) => UnixStream::connect(p).map(drop),
    };
    match connected {
        Ok(()) => good(what, "can be reached"),
        Err(e) => bad(what, format!("{e}: is it running, and does the firewall let its port through?")),
    }
}

/// What was found about the program, and whether the preload library reaches it.
fn look_at(command: &OsStr, mount: bool) -> (Finding, bool) {
    let what = command.to_string_lossy().into_owned();
    let program = match forebay_program::inspect(command) {
        Ok(program) => program,
        Err(e) => return (bad(what, format!("cannot be looked at: {e}")), false),
    };
    let how = |path: &Path| path.display().to_string();
    let what = match &program.interpreter {
        Some(by) => format!("{} (run by {})", how(&program.path), how(by)),
        None => how(&program.path),
    };
    if rustix::fs::access(&program.path, rustix::fs::Access::EXEC_OK).is_err() {
        return (bad(what, "it may not be executed: is it a program, and has it the x bit?"), false);
    }
    let finding = match program.uncovered {
        None => good(what, "the preload library reaches it; what it starts is looked at when it is started"),
        Some(why) if mount => {
            let more = if why == Uncovered::SetUserId && !place::is_root() {
                "; in a user namespace it runs without its privileges"
            } else {
                ""
            };
            good(
                what,
                format!("it is {}: the mount is taken for it (--via auto, the default){more}", why.reason()),
            )
        }
        Some(why) => bad(
            what,
            format!(
                "it is {}, and the mount is not possible (see above), or reaches this host alone",
                why.reason()
            ),
        ),
    };
    (finding, program.uncovered.is_none())
}
