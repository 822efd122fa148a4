//! The packages install on a clean root, the first job runs by the five commands of docs/INSTALL.md, and systemd has
//! nothing to say about the services.

use forebay_testkit::{needs, program, skipped, until};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use std::time::Duration;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the repository")
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    assert!(output.status.success(), "{command:?}: {}\n{}", output.status, said(&output));
    said(&output)
}

/// Made once for all tests here, of the program as it was built for them.
fn packages() -> Option<&'static Path> {
    static MADE: OnceLock<Option<tempfile::TempDir>> = OnceLock::new();
    let made = MADE.get_or_init(|| {
        if !needs("packages", &["dpkg-deb", "rpmbuild", "objcopy"]) {
            return None;
        }
        let dir = tempfile::tempdir().expect("a directory");
        run(Command::new(root().join("scripts/package"))
            .args(["--quick", "--binary"])
            .arg(program())
            .arg("--out")
            .arg(dir.path()));
        Some(dir)
    });
    made.as_ref().map(tempfile::TempDir::path)
}

fn package(dir: &Path, start: &str, end: &str) -> PathBuf {
    let named = |p: &PathBuf| {
        let name = p.file_name().unwrap_or_default().to_string_lossy().into_owned();
        name.starts_with(start) && name.ends_with(end)
    };
    let mut entries = std::fs::read_dir(dir).expect("packages").flatten().map(|e| e.path());
    entries.find(named).unwrap_or_else(|| panic!("{start}…{end} is not there"))
}

const WANTED: &[&str] = &[
    "/usr/bin/forebay",
    "/usr/lib/systemd/system/forebay-arbiter.service",
    "/usr/lib/systemd/system/forebay-node@.service",
    "/usr/lib/sysusers.d/forebay.conf",
    "/usr/lib/tmpfiles.d/forebay.conf",
    "/usr/share/man/man1/forebay-run.1.gz",
    "/usr/share/bash-completion/completions/forebay",
    "/usr/share/forebay/modulefiles/forebay.lua",
    "/usr/share/doc/forebay/node.toml",
    "/usr/share/doc/forebay/INSTALL.md",
];

#[test]
fn both_packages_have_everything() {
    let Some(dir) = packages() else { return };
    let deb = run(Command::new("dpkg-deb").arg("-c").arg(package(dir, "forebay_", ".deb")));
    let rpm = run(Command::new("rpm").arg("-qpl").arg(package(dir, "forebay-", ".rpm")));
    for file in WANTED {
        assert!(deb.lines().any(|l| l.ends_with(&format!(".{file}"))), "{file} is not in the .deb:\n{deb}");
        assert!(rpm.lines().any(|l| l == *file), "{file} is not in the .rpm:\n{rpm}");
    }
    let version = run(Command::new(program()).arg("--version"));
    let control = run(Command::new("dpkg-deb").arg("-I").arg(package(dir, "forebay_", ".deb")));
    let number = version.split_whitespace().nth(1).expect("a version");
    assert!(control.contains(&format!("Version: {number}-")), "{control}");
}

/// Only debuggers need line tables.
#[test]
fn line_tables_are_apart() {
    let Some(dir) = packages() else { return };
    let unpacked = tempfile::tempdir().expect("a directory");
    run(Command::new("dpkg-deb").arg("-x").arg(package(dir, "forebay_", ".deb")).arg(unpacked.path()));
    let program = unpacked.path().join("usr/bin/forebay");
    let sections = run(Command::new("readelf").arg("-SW").arg(&program));
    assert!(!sections.contains(".debug_line"), "{sections}");
    let debug = run(Command::new("dpkg-deb").arg("-c").arg(package(dir, "forebay-dbgsym_", ".deb")));
    assert!(debug.contains("/usr/lib/debug/.build-id/"), "{debug}");
    assert!(run(Command::new(&program).arg("--version")).starts_with("forebay "));
}

/// The newest version of glibc that a library asks for.
fn glibc_of(library: &Path) -> (u32, u32) {
    let symbols = run(Command::new("objdump").arg("-T").arg(library));
    let version = |word: &str| {
        let (major, minor) = word.trim_matches(['(', ')']).strip_prefix("GLIBC_")?.split_once('.')?;
        Some((major.parse().ok()?, minor.split('.').next()?.parse().ok()?))
    };
    let newest = symbols.split_whitespace().filter_map(version).max();
    newest.unwrap_or_else(|| panic!("it asks for nothing of glibc:\n{symbols}"))
}

/// The preload library loads on systems that are older than the one that built it, as far as is promised.
#[test]
fn the_library_asks_for_no_newer_glibc_than_is_promised() {
    const TEST: &str = "what the preload library asks of glibc";
    if !needs(TEST, &["objdump"]) {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let plain = dir.path().join("libforebay.so");
    std::fs::write(&plain, forebay_embed::PRELOAD).expect("a file");
    // 2.34 has put libpthread and libdl into libc; who links with it needs it.
    let newest = glibc_of(&plain);
    assert!(newest <= (2, 34), "as it is built here it needs glibc {newest:?}");
    // As scripts/package makes it.
    if !needs("the preload library of packages, for glibc 2.17", &["cargo-zigbuild"]) {
        return;
    }
    let target = dir.path().join("target");
    let triple = run(Command::new("rustc").arg("-vV"));
    let triple = triple.lines().find_map(|l| l.strip_prefix("host: ")).expect("a triple");
    let mut build = Command::new("cargo");
    build.args(["zigbuild", "--release", "--quiet", "--locked", "-p", "forebay-preload", "--target"]);
    build.arg(format!("{triple}.2.17")).arg("--target-dir").arg(&target).current_dir(root());
    run(build.env("CARGO_PROFILE_RELEASE_PANIC", "abort").env("CARGO_PROFILE_RELEASE_DEBUG", "false"));
    let packaged = target.join(triple).join("release/libforebay_preload.so");
    let newest = glibc_of(&packaged);
    assert!(newest <= (2, 17), "in packages it needs glibc {newest:?}");
}

/// The commands that docs/INSTALL.md promises are enough.
fn five_commands() -> Vec<String> {
    let text = std::fs::read_to_string(root().join("docs/INSTALL.md")).expect("docs/INSTALL.md");
    let block =
        text.split("```sh\n").nth(1).and_then(|b| b.split("```").next()).expect("a block of commands");
    let commands: Vec<String> = block.lines().map(str::to_owned).collect();
    assert_eq!(commands.len(), 5, "{commands:?}");
    commands
}

/// This machine's files, with everything that is written kept apart and thrown away.
const CLEAN_ROOT: &str = r#"
set -e
mount -t tmpfs tmpfs "$1"
mkdir "$1/upper" "$1/work" "$1/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" "$1/root"
cd "$1/root"
mount --rbind /proc proc && mount --rbind /dev dev
mount -t tmpfs tmpfs tmp && mount -t tmpfs tmpfs run
mkdir tmp/install && cp "$2" tmp/install/
exec chroot . sh -ec 'cd /tmp/install; umask 022; unset FOREBAY_ARBITER; '"$3"
"#;

#[test]
fn the_first_job_runs_on_a_clean_root() {
    let Some(dir) = packages() else { return };
    const TEST: &str = "packages on a clean root";
    if !needs(TEST, &["unshare", "dpkg"]) {
        return;
    }
    if !rustix::process::geteuid().is_root() {
        return skipped(TEST, "takes root");
    }
    let scratch = tempfile::tempdir().expect("a directory");
    let mut script = five_commands().join("\n");
    script.push_str(
        "\ntest $(stat -c %s /scratch/first) = 16777216\nstat -c '%U:%G %a' /etc/forebay\ndpkg -s forebay\n",
    );
    let output = Command::new("unshare")
        .args(["--mount", "--pid", "--fork", "--kill-child", "sh", "-c", CLEAN_ROOT, "clean-root"])
        .arg(scratch.path())
        .arg(package(dir, "forebay_", ".deb"))
        .arg(&script)
        .output()
        .expect("unshare");
    let text = said(&output);
    if text.contains("mount: ") && text.contains("overlay") && !output.status.success() {
        return skipped(TEST, "no overlay file system can be mounted here");
    }
    assert!(output.status.success(), "{text}");
    assert!(text.contains("root:forebay 750"), "{text}");
    assert!(text.contains("Status: install ok installed"), "{text}");
}

#[test]
fn systemd_has_nothing_to_say() {
    let Some(dir) = packages() else { return };
    if !needs("the services' files", &["systemd-analyze"]) {
        return;
    }
    let unpacked = tempfile::tempdir().expect("a directory");
    run(Command::new("dpkg-deb").arg("-x").arg(package(dir, "forebay_", ".deb")).arg(unpacked.path()));
    for unit in ["forebay-arbiter.service", "forebay-node@.service"] {
        let file = unpacked.path().join("usr/lib/systemd/system").join(unit);
        // The program is where the package is unpacked, not where it will be.
        let here = unpacked.path().join("usr/bin/forebay");
        let text = std::fs::read_to_string(&file).expect("a unit");
        std::fs::write(&file, text.replace("/usr/bin/forebay", &here.to_string_lossy())).expect("writes");
        let instance = file.with_file_name(unit.replace("@.", "@scratch."));
        let output = Command::new("systemd-analyze")
            .args(["verify", "--man=no", "--generators=no"])
            .arg(&instance)
            .output()
            .expect("systemd-analyze runs");
        let ours: Vec<String> =
            said(&output).lines().filter(|l| l.contains("forebay")).map(str::to_owned).collect();
        assert!(output.status.success() && ours.is_empty(), "{unit}: {}", said(&output));
    }
}

/// `Type=notify`, `WatchdogSec=`: both services say when they are ready, and then that they are alive.
#[test]
fn systemd_is_told_that_a_service_is_ready_and_alive() {
    let dir = tempfile::tempdir().expect("a directory");
    let secret = dir.path().join("secret");
    forebay_types::Secret::random().and_then(|s| s.write(&secret)).expect("a secret");
    let listen = format!("unix:{}", dir.path().join("node.sock").display());
    let export = dir.path().display().to_string();
    let state = dir.path().join("state").display().to_string();
    let services: [&[&str]; 2] = [
        &["node", "--as", "self", "--listen", &listen, "--export", &export],
        &["arbiter", "--listen", "127.0.0.1:0", "--state", &state],
    ];
    for (n, arguments) in services.iter().enumerate() {
        let at = dir.path().join(format!("notify{n}"));
        let socket = UnixDatagram::bind(&at).expect("a socket");
        socket.set_read_timeout(Some(Duration::from_secs(60))).expect("a time-out");
        let mut service = Command::new(program())
            .args(*arguments)
            .arg("--secret-file")
            .arg(&secret)
            .env("NOTIFY_SOCKET", &at)
            .env("WATCHDOG_USEC", "200000")
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .spawn()
            .expect("the service starts");
        let mut heard = Vec::new();
        let mut buffer = [0; 256];
        while heard.len() < 4 {
            let n = socket.recv(&mut buffer).expect("a word before the time-out");
            heard.push(String::from_utf8_lossy(&buffer[..n]).trim().to_owned());
        }
        let pid = rustix::process::Pid::from_child(&service);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("a signal");
        until(Duration::from_secs(60), "the service ends", || service.try_wait().expect("waits"));
        assert_eq!(heard, ["READY=1", "WATCHDOG=1", "WATCHDOG=1", "WATCHDOG=1"], "{arguments:?}");
    }
}
