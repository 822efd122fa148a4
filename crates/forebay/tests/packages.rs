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
    "/usr/share/forebay/slurm/spank_forebay.c",
    "/usr/share/forebay/prometheus/forebay.rules.yml",
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

/// The preload library loads on systems that are older than the one that built it, as far as is promised: everything it
/// cannot do without was in glibc 2.17.
#[test]
fn the_library_asks_for_no_newer_glibc_than_is_promised() {
    if !needs("what the preload library asks of glibc", &["objdump"]) {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let library = dir.path().join("libforebay.so");
    std::fs::write(&library, forebay_embed::PRELOAD).expect("a file");
    let symbols = run(Command::new("objdump").arg("-T").arg(&library));
    let missing: Vec<&str> = symbols.lines().filter(|l| l.contains("*UND*")).collect();
    assert!(missing.len() > 50, "{symbols}");
    for line in missing {
        let version = line.split_once('(').and_then(|(_, rest)| rest.split(')').next());
        let (optional, by_gcc) = (line.contains(" w "), version.is_some_and(|v| v.starts_with("GCC_")));
        let number = version
            .and_then(|v| v.strip_prefix("GLIBC_"))
            .map(|v| v.split('.').map(|part| part.parse().expect("a number")).collect::<Vec<u32>>());
        assert!(number.as_ref().map_or(optional || by_gcc, |v| *v <= vec![2, 17]), "it asks for {line}");
    }
}

/// What programs of 2016 do through it, with the C library of then.
#[test]
fn the_library_works_on_an_old_system() {
    const TEST: &str = "the preload library with glibc 2.23";
    if !needs(TEST, &["bwrap"]) {
        return;
    }
    let old =
        std::env::var_os("FOREBAY_OLD_ROOT").map_or_else(|| root().join("target/old-root"), PathBuf::from);
    if !old.join("done").exists() {
        return skipped(TEST, "there is no old root (scripts/old-root target/old-root)");
    }
    let dir = tempfile::tempdir().expect("a directory");
    let data = dir.path().join("data");
    std::fs::create_dir(&data).expect("a directory");
    // There is no /fwd but through the library; `perl` forks, executes, and reads directories by itself.
    let inside = "set -e; cd /fwd; echo one > a; cp a b; mkdir d; mv b d/c; seq 1 20000 > n; sed -i s/20000/last/ n
        tail -n 1 n; tar cf t.tar a d n; mkdir x; tar xf t.tar -C x; diff -r d x/d; find . -type f | wc -l
        perl -e 'open F, \">p\"; print F \"x\" x 100000; close F; if (!fork) { open F, \">>p\"; print F \"child\"; close F;
            exec \"cat\", \"a\" } wait; opendir D, \".\"; print -s \"p\", \" \", scalar(readdir(D) =~ /./), \"\\n\"'
        touch -d 2001-01-01 p; stat -c '%s %Y' p; ln -s a l; cat l; rm -r x t.tar; head -c 3 /proc/self/comm";
    let outside = "D=$(dirname \"$FOREBAY_CONFIG\"); exec bwrap --bind \"$1\" / --bind \"$D\" \"$D\" --proc /proc \
        --dev-bind /dev /dev --clearenv --setenv PATH /usr/bin:/bin --setenv LC_ALL C \
        --setenv LD_PRELOAD \"$LD_PRELOAD\" --setenv FOREBAY_CONFIG \"$FOREBAY_CONFIG\" /bin/dash -c \"$2\"";
    let mut command = Command::new(program());
    command.args(["run", "--quiet", "--via", "preload", "--at", &format!("/fwd={}", data.display()), "--"]);
    command.args(["sh", "-c", outside, "sh"]).arg(old.join("root")).arg(inside).env_remove("FOREBAY_ARBITER");
    let output = command.output().expect("forebay runs");
    let text = said(&output);
    if text.contains("bwrap: ") && !output.status.success() {
        return skipped(TEST, "bwrap may not make namespaces here");
    }
    assert!(output.status.success(), "{text}");
    assert_eq!(text, "last\n7\none\n100005 1\n100005 978307200\none\nhea", "{text}");
    let kept = std::fs::read_to_string(data.join("n")).expect("what it wrote");
    assert!(kept.lines().count() == 20000 && kept.ends_with("19999\nlast\n"));
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
    assert!(text.contains("root:forebay 751"), "{text}");
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
