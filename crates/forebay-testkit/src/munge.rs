//! A `munged` of a test's own: its key, its socket, and credentials of other users.

use crate::{needs, skipped, until};
use forebay_embed::Process;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// The daemon, until dropped.
pub struct Munged {
    _process: Process,
    socket: PathBuf,
}

impl Munged {
    /// Starts one that keeps everything in `dir`; nothing, and says so, where that is not possible.
    pub fn start(test: &str, dir: &Path) -> Option<Munged> {
        if !needs(test, &["munged", "munge", "setpriv"]) {
            return None;
        }
        if !rustix::process::geteuid().is_root() {
            skipped(test, "acting as several users needs root");
            return None;
        }
        let at = |name: &str| dir.join(name);
        let mut key = vec![0; 1024];
        let random =
            std::fs::File::open("/dev/urandom").and_then(|mut f| std::io::Read::read_exact(&mut f, &mut key));
        random.expect("random numbers");
        std::fs::write(at("munge.key"), key).expect("a key");
        let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(at("munge.key"), private).expect("a key of one's own");
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(dir, open).expect("a directory that users see");
        let socket = at("munge.sock");
        let option = |name: &str, file: &str| format!("--{name}={}", at(file).display());
        let log = std::fs::File::create(at("munge.said")).expect("a log");
        let mut command = Command::new("munged");
        command
            .args(["-F", "--force"])
            .arg(option("socket", "munge.sock"))
            .arg(option("key-file", "munge.key"));
        command.args([option("pid-file", "munge.pid"), option("log-file", "munge.log")]);
        command.arg(option("seed-file", "munge.seed")).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let process = Process::start(&mut command).expect("munged starts");
        until(Duration::from_secs(30), "munged listens", || {
            std::os::unix::net::UnixStream::connect(&socket).is_ok().then_some(())
        });
        Some(Munged { _process: process, socket })
    }

    /// Where it listens.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// A credential of user (and group) `uid` for root, as the tool `munge` makes it.
    pub fn credential(&self, uid: u32, payload: &[u8], more: &[&str]) -> String {
        self.credential_in(uid, uid, payload, more)
    }

    /// The same, of a user with that group.
    pub fn credential_in(&self, uid: u32, gid: u32, payload: &[u8], more: &[&str]) -> String {
        let mut munge = as_user_in(uid, gid, "munge");
        munge.arg("--socket").arg(&self.socket).args(["--restrict-uid=0"]).args(more);
        let mut child = munge.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("munge runs");
        child.stdin.take().expect("a pipe").write_all(payload).expect("the payload");
        let said = child.wait_with_output().expect("munge ends");
        assert!(said.status.success());
        String::from_utf8_lossy(&said.stdout).trim().to_owned()
    }
}

/// A command as another user, of whom nobody needs to know.
pub fn as_user(uid: u32, program: impl AsRef<std::ffi::OsStr>) -> Command {
    as_user_in(uid, uid, program)
}

/// The same, with that group.
pub fn as_user_in(uid: u32, gid: u32, program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new("setpriv");
    command.arg(format!("--reuid={uid}")).arg(format!("--regid={gid}")).args(["--clear-groups", "--"]);
    command.arg(program);
    command
}
