//! `forebay doctor`: what works on this machine for this program, before it is run.

use crate::cmd::run::via;
use anyhow::Result;
use clap::{Args, ValueHint};
use forebay_client::Address;
use forebay_mount::place;
use forebay_program::Uncovered;
use std::ffi::OsString;
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

/// How long an I/O node may take to answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// Look whether a program's I/O can be forwarded on this machine, and how.
///
/// Every line says what was found and, where something is missing, what to do about it. Nothing is
/// changed and the program is not run.
#[derive(Args)]
#[command(after_long_help = "\
Examples:
  forebay doctor
  forebay doctor -- ./simulation
  forebay doctor --node tcp:10.0.0.7:7411 -- mpirun ./app

Exit status:
  0 if the program can be run with its I/O forwarded, 1 if not.")]
pub(crate) struct Doctor {
    /// See whether this I/O node can be reached. May be repeated.
    #[arg(long, value_name = "ADDRESS")]
    node: Vec<Address>,
    /// The program to look at.
    #[arg(value_name = "CMD", trailing_var_arg = true, allow_hyphen_values = true, value_hint = ValueHint::CommandWithArguments)]
    command: Vec<OsString>,
}

/// One thing that was looked at.
struct Finding {
    good: bool,
    what: String,
    /// What to do, or what follows.
    then: String,
}

fn good(what: impl Into<String>, then: impl Into<String>) -> Finding {
    Finding { good: true, what: what.into(), then: then.into() }
}

fn bad(what: impl Into<String>, then: impl Into<String>) -> Finding {
    Finding { good: false, what: what.into(), then: then.into() }
}

impl Doctor {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let device = device();
        let namespace = namespace();
        let library = library();
        let (mount, preload) = (device.good && namespace.good, library.good);
        let mut findings = vec![kernel(), device, namespace, helper(), glibc(), library];
        findings.extend(self.node.iter().map(reachable));
        let mut works = mount || preload;
        if let Some(command) = self.command.first() {
            let (finding, covered) = look_at(command, mount);
            works = finding.good && (mount || (preload && covered));
            findings.push(finding);
        }
        works &= self.node.is_empty() || findings.iter().any(|f| f.good && f.what.starts_with("I/O node"));
        for f in &findings {
            let sign = if f.good { "ok" } else { "no" };
            let then = if f.then.is_empty() { String::new() } else { format!(": {}", f.then) };
            println!("{sign}  {}{then}", f.what);
        }
        Ok(ExitCode::from(u8::from(!works)))
    }
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
    match via::probe() {
        Ok(()) => good("namespaces", "`run --via mount` mounts for the program alone"),
        Err(e) => bad("namespaces", format!("{e:#}")),
    }
}

fn helper() -> Finding {
    if place::is_root() {
        return good("mounting for all users", "as root, by `forebay mount`");
    }
    let there = std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|dir| dir.join("fusermount3").is_file()));
    if there {
        good("fusermount3", "`forebay mount` works without root, for you alone")
    } else {
        bad(
            "fusermount3",
            "not installed: `forebay mount` needs it without root (package fuse3); `run --via mount` does not",
        )
    }
}

fn glibc() -> Finding {
    // SAFETY: returns a static string.
    let version = unsafe { std::ffi::CStr::from_ptr(libc::gnu_get_libc_version()) }.to_string_lossy();
    good(format!("glibc {version}"), "the preload library is for programs with glibc of this machine")
}

/// The preload library is put into the directory for temporary files.
fn library() -> Finding {
    let dir = std::env::temp_dir();
    let flags = rustix::fs::statvfs(&dir).map(|s| s.f_flag);
    match flags {
        Ok(flags) if flags.contains(rustix::fs::StatVfsMountFlags::NOEXEC) => bad(
            "preload library",
            format!(
                "{} is mounted noexec, so nothing can be loaded from it: set TMPDIR to another directory",
                dir.display()
            ),
        ),
        Ok(_) => good("preload library", format!("can be loaded from {}", dir.display())),
        Err(e) => bad("preload library", format!("{}: {e}: set TMPDIR", dir.display())),
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
fn look_at(command: &OsString, mount: bool) -> (Finding, bool) {
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
    let finding = match program.uncovered {
        None => good(what, "the preload library reaches it; what it starts is looked at when it is started"),
        Some(why) if mount => {
            let more = if why == Uncovered::SetUserId && !place::is_root() {
                "; in a user namespace it runs without its privileges"
            } else {
                ""
            };
            good(what, format!("it is {}: use --via mount, or --via auto{more}", why.reason()))
        }
        Some(why) => bad(what, format!("it is {}, and the mount is not possible (see above)", why.reason())),
    };
    (finding, program.uncovered.is_none())
}
