//! Programs and calls that the preload library does not reach: what they write is never lost, and the
//! report names them, whoever started them.

use forebay_testkit::{needs, skipped};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A run that takes longer than this hangs.
const LIMIT_S: &str = "300";

/// Builds a C program in `home`; says so if that does not work here.
fn build(home: &Path, test: &str, source: &str, name: &str, compiler: &[&str]) -> Option<PathBuf> {
    let (file, program) = (home.join(format!("{name}.c")), home.join(name));
    std::fs::write(&file, source).unwrap();
    let (compiler, flags) = compiler.split_first().unwrap();
    let built = Command::new(compiler).args(flags).arg("-o").arg(&program).arg(&file).output();
    // It may be built and still not run, as with another processor's code.
    let runs = built.is_ok_and(|b| b.status.success())
        && Command::new(&program).current_dir(home).status().is_ok_and(|s| s.code().is_some());
    if !runs {
        skipped(test, &format!("{compiler} {} does not work here", flags.join(" ")));
    }
    runs.then_some(program)
}

/// Writes to a relative name.
const WRITER: &str = r#"
#include <fcntl.h>
#include <unistd.h>
int main(void) { int f = open("out", O_WRONLY | O_CREAT | O_TRUNC, 0644); return write(f, "kept\n", 5) != 5; }
"#;

/// A run of `command` below a fresh directory `E`, and its report.
fn reported(home: &Path, command: &[&str]) -> (Output, serde_json::Value) {
    run_at(home, home.join("E").to_str().unwrap(), command)
}

fn run_at(home: &Path, dir: &str, command: &[&str]) -> (Output, serde_json::Value) {
    let (export, temporary, report) = (home.join("E"), home.join("t"), home.join("report.json"));
    std::fs::create_dir_all(&export).unwrap();
    std::fs::create_dir_all(&temporary).unwrap();
    let out = Command::new("timeout")
        .args(["-k", "5", LIMIT_S, env!("CARGO_BIN_EXE_forebay")])
        .args(["run", "--via", "preload", "--io-nodes", "2", "--report"])
        .arg(&report)
        .arg("--at")
        .arg(format!("{dir}={}", export.display()))
        .arg("--")
        .args(command)
        .env("TMPDIR", &temporary)
        .env("D", dir)
        .current_dir(home)
        .output()
        .unwrap();
    let report = serde_json::from_slice(&std::fs::read(report).unwrap()).unwrap();
    (out, report)
}

/// As [`reported`], where the program names the directory by a path that this machine does not have.
fn reported_nowhere(home: &Path, command: &[&str]) -> (Output, serde_json::Value) {
    run_at(home, &format!("/forebay-nowhere-{}/E", std::process::id()), command)
}

fn note<'a>(report: &'a serde_json::Value, kind: &str) -> Option<&'a serde_json::Value> {
    report["not_forwarded"].as_array().unwrap().iter().find(|n| n["kind"] == kind)
}

#[test]
fn a_static_binary_runs_and_is_reported() {
    let home = tempfile::tempdir().unwrap();
    let source = home.path().join("s.c");
    std::fs::write(&source, "#include <stdio.h>\nint main(void) { puts(\"static\"); return 3; }\n").unwrap();
    let built = Command::new("gcc").args(["-static", "-o"]).arg(home.path().join("s")).arg(&source).output();
    if !built.is_ok_and(|b| b.status.success()) {
        return skipped("a_static_binary_runs_and_is_reported", "gcc -static does not work here (libc6-dev)");
    }
    for script in ["./s", "cp s \"$D/s\"; \"$D/s\""] {
        let (out, report) = reported(home.path(), &["sh", "-c", script]);
        assert_eq!((out.status.code(), out.stdout.as_slice()), (Some(3), &b"static\n"[..]), "{script}");
        assert!(note(&report, "static").is_some(), "{script}: {report:#}");
        assert!(String::from_utf8_lossy(&out.stderr).contains("static binary"), "a person is told, too");
    }
}

#[test]
fn a_set_user_id_program_is_reported() {
    let home = tempfile::tempdir().unwrap();
    let program = home.path().join("cat");
    std::fs::copy("/bin/cat", &program).unwrap();
    std::fs::set_permissions(&program, PermissionsExt::from_mode(0o4755)).unwrap();
    let (out, report) = reported(home.path(), &["sh", "-c", "echo text > plain; ./cat plain"]);
    assert_eq!(out.stdout, b"text\n");
    assert!(note(&report, "setuid").is_some(), "{report:#}");
}

#[test]
fn kernel_asynchronous_io_is_refused_clearly() {
    if !needs("kernel_asynchronous_io_is_refused_clearly", &["fio"]) {
        return;
    }
    let home = tempfile::tempdir().unwrap();
    for (engine, kind) in [("libaio", "aio"), ("io_uring", "io_uring")] {
        let script = format!(
            "fio --name=x --ioengine={engine} --directory=\"$D\" --rw=write --bs=4k --size=64k --iodepth=4 --thread=0"
        );
        let (out, report) = reported(home.path(), &["sh", "-c", &script]);
        let said = [out.stdout, out.stderr].concat();
        if String::from_utf8_lossy(&said).contains("not loadable") {
            skipped("kernel_asynchronous_io_is_refused_clearly", &format!("fio has no engine {engine}"));
            continue;
        }
        assert_ne!(out.status.code(), Some(0), "{engine}: {}", String::from_utf8_lossy(&said));
        assert!(note(&report, kind).is_some(), "{engine}: {report:#}");
    }
}

/// Where the machine has the directory, under whatever path, it is the kernel's working directory.
#[test]
fn what_a_static_program_writes_is_where_it_belongs() {
    let test = "what_a_static_program_writes_is_where_it_belongs";
    let home = tempfile::tempdir().unwrap();
    let Some(program) = build(home.path(), test, WRITER, "writer", &["gcc", "-static"]) else { return };
    let script = format!("mkdir -p \"$D/run\"; cd \"$D/run\" && {} && cat out", program.display());
    for run in [reported, reported_nowhere] {
        let (out, report) = run(home.path(), &["sh", "-c", &script]);
        assert_eq!(out.stdout, b"kept\n", "{}", String::from_utf8_lossy(&out.stderr));
        let file = home.path().join("E/run/out");
        assert_eq!(std::fs::read(&file).expect("the file is there"), b"kept\n");
        std::fs::remove_file(file).unwrap();
        let said = note(&report, "static").unwrap_or_else(|| panic!("{report:#}"));
        assert_eq!(said["program"], shell(), "who started it: {said}");
    }
}

/// What a launcher or `env` starts counts, not the launcher: by `auto`, `doctor`, `--strict` and the report.
#[test]
fn the_program_behind_a_launcher_counts() {
    let test = "the_program_behind_a_launcher_counts";
    let home = tempfile::tempdir().unwrap();
    let Some(program) = build(home.path(), test, WRITER, "writer", &["gcc", "-static"]) else { return };
    let program = program.to_str().unwrap();
    let mut behind = vec![vec!["env", "X=1", program], vec!["nice", "-n", "1", "timeout", "60", program]];
    if needs(test, &["mpirun.openmpi"]) {
        behind.push(vec!["mpirun.openmpi", "--oversubscribe", "-n", "2", "env", "X=1", program]);
    }
    let forebay = |words: &[&str]| {
        let mut command = Command::new("timeout");
        command
            .args(["-k", "5", LIMIT_S, env!("CARGO_BIN_EXE_forebay")])
            .args(words)
            .current_dir(home.path());
        for name in ["OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"] {
            command.env(name, "1");
        }
        let out = command.output().unwrap();
        (out.status.code(), [out.stdout, out.stderr].concat())
    };
    let says = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    std::fs::create_dir_all(home.path().join("E")).unwrap();
    for command in &behind {
        let (_, said) = forebay(&[&["doctor", "--"], &command[..]].concat());
        let line = says(&said).lines().find(|l| l.contains(program)).unwrap_or_default().to_owned();
        assert!(line.contains("statically linked"), "{command:?}: {}", says(&said));
        let can_mount = line.starts_with("ok");
        let strict = ["run", "--strict", "--via", "preload", "--at", "E", "--"];
        let (status, said) = forebay(&[&strict[..], &command[..]].concat());
        assert!(status == Some(125) && says(&said).contains("statically linked"), "{}", says(&said));
        let auto = ["run", "--report", "report.json", "--at", "E", "--"];
        let (status, said) = forebay(&[&auto[..], &command[..]].concat());
        assert_eq!(status, Some(0), "{command:?}: {}", says(&said));
        let report = std::fs::read(home.path().join("report.json")).unwrap();
        let report: serde_json::Value = serde_json::from_slice(&report).unwrap();
        assert_eq!(
            report["front_end"],
            if can_mount { "mount" } else { "preload" },
            "{command:?}: {report:#}"
        );
        assert_eq!(note(&report, "static").is_none(), can_mount, "{report:#}");
        assert!(!says(&said).contains("not forwarded: no process"), "{}", says(&said));
        if command[0] != "mpirun.openmpi" {
            let (_, report) = reported(home.path(), command);
            assert!(note(&report, "static").is_some(), "{command:?}: {report:#}");
        }
    }
}

/// The name under which `sh` is known to the kernel.
fn shell() -> String {
    let path = std::fs::canonicalize("/bin/sh").unwrap();
    path.file_name().unwrap().to_string_lossy().into_owned()
}

/// Where the machine does not have the directory, a program that the library does not reach is not
/// started in it: its output would be lost.
#[test]
fn a_static_program_is_refused_where_its_output_would_be_lost() {
    let test = "a_static_program_is_refused_where_its_output_would_be_lost";
    let home = tempfile::tempdir().unwrap();
    let Some(program) = build(home.path(), test, WRITER, "writer", &["gcc", "-static"]) else { return };
    let program = program.display();
    let script = format!(
        "{REMOTE} sh -c 'cd \"$D\" && echo covered > here; cat here; {program}; echo $?; mkdir a; cd a; mv ../a ../b; \
         echo renamed > f; cat ../b/f; pwd -P; cp {program} own; ./own; echo $?; cd /; {program}; echo $?'"
    );
    let (out, report) = reported_nowhere(&home.path().canonicalize().unwrap(), &["bash", "-c", &script]);
    let dir = format!("/forebay-nowhere-{}/E", std::process::id());
    let expected = format!("covered\n126\nrenamed\n{dir}/b\n126\n0\n");
    assert_eq!(String::from_utf8_lossy(&out.stdout), expected, "{}", String::from_utf8_lossy(&out.stderr));
    assert!(!home.path().join("E/out").exists());
    // It ran in the root directory, which is this machine's.
    let _ = std::fs::remove_file("/out");
    let notes = report["not_forwarded"].as_array().unwrap();
    let refused = notes.iter().filter(|n| n["why"].as_str().unwrap().contains("refused with EPERM"));
    assert_eq!(refused.count(), 2, "{report:#}");
}

/// A configuration as on a machine that does not have the directory.
const REMOTE: &str = r#"
sed '/"local"/d' "$FOREBAY_CONFIG" > "$FOREBAY_CONFIG.remote"
sed -i -z 's/,\(\s*}\)/\1/g' "$FOREBAY_CONFIG.remote"
FOREBAY_CONFIG=$FOREBAY_CONFIG.remote"#;

/// CMD is started by `forebay run`, where no library looks on.
#[test]
fn cmd_itself_is_named() {
    let test = "cmd_itself_is_named";
    let home = tempfile::tempdir().unwrap();
    let bare = "void _start(void) { __asm__(\"mov $1, %eax; xor %ebx, %ebx; int $0x80\"); }";
    let static_pie = &["gcc", "-static-pie"][..];
    let kinds: [(&str, &str, &[&str]); 4] = [
        ("static", WRITER, &["gcc", "-static"]),
        ("static", WRITER, static_pie),
        ("32-bit", bare, &["gcc", "-m32", "-nostdlib", "-static", "-fno-pie"]),
        ("libc", WRITER, &["musl-gcc"]),
    ];
    for (kind, source, compiler) in kinds {
        let name = compiler.join("").replace('/', "");
        let Some(program) = build(home.path(), test, source, &name, compiler) else { continue };
        let program = program.to_str().unwrap();
        let (_, report) = reported(home.path(), &[program]);
        let said = note(&report, kind).unwrap_or_else(|| panic!("{compiler:?}: {report:#}"));
        assert_eq!((said["path"].as_str(), said["program"].as_str()), (Some(program), Some(name.as_str())));
        // And when somebody else starts it.
        let (out, report) = reported(home.path(), &["sh", "-c", program]);
        assert_eq!(out.status.code(), Some(0), "{compiler:?}: {}", String::from_utf8_lossy(&out.stderr));
        let said = note(&report, kind).unwrap_or_else(|| panic!("{compiler:?}: {report:#}"));
        assert_eq!(said["program"], shell());
    }
    // A script is what its interpreter is.
    if let Some(program) = build(home.path(), test, WRITER, "interpreter", &["gcc", "-static"]) {
        let script = home.path().join("script");
        std::fs::write(&script, format!("#!{}\n", program.display())).unwrap();
        std::fs::set_permissions(&script, PermissionsExt::from_mode(0o755)).unwrap();
        let (_, report) = reported(home.path(), &[script.to_str().unwrap()]);
        assert!(note(&report, "static").is_some(), "{report:#}");
    }
}

/// A Go program makes its system calls itself, also where it has a dynamic linker.
#[test]
fn a_go_program_is_named() {
    if !needs("a_go_program_is_named", &["go"]) {
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let source = home.path().join("p.go");
    let text =
        "package main\nimport \"os\"\nfunc main() { os.WriteFile(\"out\", []byte(\"kept\\n\"), 0644) }\n";
    std::fs::write(&source, text).unwrap();
    let built = Command::new("go")
        .args(["build", "-buildmode=pie", "-ldflags=-linkmode=external", "-o"])
        .arg(home.path().join("p"))
        .arg(&source)
        .env("HOME", home.path())
        .env("GOCACHE", home.path().join("cache"))
        .output()
        .unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let (_, report) = reported(home.path(), &["sh", "-c", "cd \"$D\" && ../p"]);
    assert!(note(&report, "go").is_some(), "{report:#}");
    assert_eq!(std::fs::read(home.path().join("E/out")).unwrap(), b"kept\n");
}

/// Under another root directory the same path is another file, on this machine.
#[test]
fn another_root_directory_is_not_forwarded() {
    let test = "another_root_directory_is_not_forwarded";
    let home = tempfile::tempdir().unwrap();
    let source = r#"
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>
int main(int n, char **v) { if (n < 3) return 0; if (chroot(v[1]) || chdir("/")) return 77; FILE *f = fopen(v[2], "w"); return !f || fputs("inside\n", f) < 0 || fclose(f); }
"#;
    let Some(program) = build(home.path(), test, source, "enter", &["gcc"]) else { return };
    let dir = home.path().join("E");
    let jail = home.path().join("jail");
    let inside = jail.join(dir.strip_prefix("/").unwrap());
    std::fs::create_dir_all(&inside).unwrap();
    let file = dir.join("f");
    let (out, report) =
        reported(home.path(), &[program.to_str().unwrap(), jail.to_str().unwrap(), file.to_str().unwrap()]);
    if out.status.code() == Some(77) {
        return skipped(test, "this user may not change the root directory");
    }
    assert_eq!(out.status.code(), Some(0), "{}", String::from_utf8_lossy(&out.stderr));
    assert_eq!(std::fs::read(inside.join("f")).unwrap(), b"inside\n");
    assert!(!file.exists());
    assert_eq!(note(&report, "chroot").unwrap_or_else(|| panic!("{report:#}"))["program"], "enter");
}

/// What a shell redirects for a static program goes into the file; where it cannot, that is told.
#[test]
fn redirected_output_of_a_static_program_is_kept() {
    let test = "redirected_output_of_a_static_program_is_kept";
    if !needs(test, &["busybox", "bash"]) {
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let script = "cd \"$D\" && busybox seq 3 > new && busybox seq 4 5 >> new && { busybox seq 6; echo 7; } > both; true";
    let (out, report) = reported(home.path(), &["bash", "-c", script]);
    assert_eq!(out.status.code(), Some(0), "{}", String::from_utf8_lossy(&out.stderr));
    assert_eq!(std::fs::read(home.path().join("E/new")).unwrap(), b"1\n2\n3\n4\n5\n");
    // The shell has it open, too, and would not know how far the other one has written.
    assert_eq!(std::fs::read(home.path().join("E/both")).unwrap(), b"7\n");
    let told = note(&report, "descriptor").unwrap_or_else(|| panic!("{report:#}"));
    assert!(told["why"].as_str().unwrap().contains("both"), "{told}");
}

/// Who is left behind by the program is named: the I/O nodes end with the run.
#[test]
fn a_process_that_is_left_behind_is_named() {
    let home = tempfile::tempdir().unwrap();
    let (out, report) = reported(home.path(), &["sh", "-c", "sleep 5 >/dev/null 2>&1 & exit 0"]);
    assert_eq!(out.status.code(), Some(0));
    assert_eq!(note(&report, "survivor").unwrap_or_else(|| panic!("{report:#}"))["path"], "sleep");
    // One that has ended is not.
    let (_, report) = reported(home.path(), &["sh", "-c", "sleep 0 & wait"]);
    assert!(note(&report, "survivor").is_none(), "{report:#}");
}

/// The I/O nodes act for who started the job: somebody else gets no connection, and is told so at once.
#[test]
fn another_user_is_refused_at_once() {
    let test = "another_user_is_refused_at_once";
    let home = tempfile::tempdir().unwrap();
    let source = r#"
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>
int main(int n, char **v) { if (n < 2) return 0; if (setgid(65534) || setuid(65534)) return 77; return open(v[1], O_WRONLY | O_CREAT, 0644) >= 0 ? 1 : errno != EACCES; }
"#;
    let Some(program) = build(home.path(), test, source, "other", &["gcc"]) else { return };
    let file = home.path().join("E/f");
    let (out, report) = reported(home.path(), &[program.to_str().unwrap(), file.to_str().unwrap()]);
    if out.status.code() == Some(77) {
        return skipped(test, "this user may not become another one");
    }
    assert_eq!(out.status.code(), Some(0), "{}", String::from_utf8_lossy(&out.stderr));
    assert!(!file.exists());
    let slowest = report["operations"].as_array().unwrap().iter().map(|o| o["max_us"].as_f64());
    assert!(slowest.flatten().all(|us| us < 20e6), "it was not waited for: {report:#}");
}

/// A program of root that becomes another user and then starts a program, as `su` does: the library is in a private
/// directory, so that the loader leaves it out.
#[test]
fn a_program_that_is_started_as_another_user_is_named() {
    let test = "a_program_that_is_started_as_another_user_is_named";
    let home = tempfile::tempdir().unwrap();
    std::fs::set_permissions(home.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let source = r#"
#include <unistd.h>
int main(int n, char **v) { if (n < 2) return 0; if (setgid(65534) || setuid(65534)) return 77; execl("/bin/sh", "sh", "-c", v[1], (char *)0); return 78; }
"#;
    let Some(program) = build(home.path(), test, source, "becomes", &["gcc"]) else { return };
    let (out, report) = reported(home.path(), &[program.to_str().unwrap(), "echo here"]);
    if out.status.code() == Some(77) {
        return skipped(test, "this user may not become another one");
    }
    assert_eq!(out.status.code(), Some(0), "{}", String::from_utf8_lossy(&out.stderr));
    assert_eq!(String::from_utf8_lossy(&out.stdout), "here\n");
    assert!(!String::from_utf8_lossy(&out.stderr).contains("ld.so"), "the loader complains");
    assert!(note(&report, "user").is_some(), "{report:#}");
    // By a directory that is not on this machine.
    let script = format!("cd \"$D\"; {} 'echo there > f'; true", program.display());
    let (_, report) = reported_nowhere(home.path(), &["sh", "-c", &script]);
    assert!(note(&report, "user").is_some(), "{report:#}");
}

/// Refused with the errno of a file system that does not have it, and named.
#[test]
fn what_cannot_be_forwarded_is_refused() {
    let test = "what_cannot_be_forwarded_is_refused";
    let home = tempfile::tempdir().unwrap();
    let source = r#"
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>
#define SHOW(x) do { errno = 0; long r_ = (long)(x); printf("%s %s\n", #x, r_ < 0 ? strerrorname_np(errno) : "done"); } while (0)
int main(int n, char **v) {
    if (n < 2) return 0;
    int f = open(v[1], O_RDWR | O_CREAT, 0644), g = open(v[1], O_RDONLY), local = open("/dev/null", O_RDWR); int flags = 0; struct fiemap m = {0};
    SHOW(fcntl(f, F_SETLEASE, F_RDLCK)); SHOW(ioctl(f, FICLONE, g)); SHOW(ioctl(f, FS_IOC_FIEMAP, &m)); SHOW(ioctl(f, FS_IOC_SETFLAGS, &flags)); SHOW(ioctl(f, FS_IOC_GETFLAGS, &flags));
    struct file_handle *h = calloc(1, sizeof *h + 128); int id; h->handle_bytes = 128; SHOW(name_to_handle_at(AT_FDCWD, v[1], h, &id, 0)); SHOW(open_by_handle_at(f, h, O_RDONLY));
}
"#;
    let Some(program) = build(home.path(), test, source, "asks", &["gcc", "-w"]) else { return };
    let file = home.path().join("E/f");
    let (out, report) = reported(home.path(), &[program.to_str().unwrap(), file.to_str().unwrap()]);
    let said = String::from_utf8_lossy(&out.stdout);
    let errors: Vec<&str> = said.lines().filter_map(|l| l.rsplit(' ').next()).collect();
    let expected = ["EINVAL", "EOPNOTSUPP", "EOPNOTSUPP", "ENOTTY", "ENOTTY", "EOPNOTSUPP", "EOPNOTSUPP"];
    assert_eq!(errors, expected, "{said}");
    for kind in ["lease", "ioctl"] {
        assert_eq!(note(&report, kind).unwrap_or_else(|| panic!("{kind}: {report:#}"))["program"], "asks");
    }
}

/// On a machine that does not see the directory itself: private mappings work, shared writable ones are
/// refused and reported, never silently wrong.
#[test]
fn a_shared_writable_mapping_without_the_file_is_refused() {
    if !needs("a_shared_writable_mapping_without_the_file_is_refused", &["python3"]) {
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let script = r#"
python3 - <<'P'
import json, os
path = os.environ["FOREBAY_CONFIG"]
config = json.load(open(path))
for export in config["exports"]: export.pop("local", None)
json.dump(config, open(path + ".remote", "w"))
P
FOREBAY_CONFIG=$FOREBAY_CONFIG.remote python3 - <<'P'
import errno, mmap, os
path = os.environ["D"] + "/file"
open(path, "wb").write(b"content" * 1000)
f = open(path, "r+b")
m = mmap.mmap(f.fileno(), 0, flags=mmap.MAP_PRIVATE)
m[0:4] = b"PRIV"
print(m[0:7], open(path, "rb").read(7))
print(mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ, flags=mmap.MAP_SHARED)[7:14])
try: mmap.mmap(f.fileno(), 0)
except OSError as e: print(errno.errorcode[e.errno])
P
"#;
    let (out, report) = reported(home.path(), &["sh", "-c", script]);
    let said = String::from_utf8_lossy(&out.stdout);
    assert_eq!(
        said,
        "b'PRIVent' b'content'\nb'content'\nENODEV\n",
        "{}",
        String::from_utf8_lossy(&out.stderr)
    );
    let notes = report["not_forwarded"].as_array().unwrap();
    assert!(notes.iter().any(|n| n["why"].as_str().unwrap().contains("refused with ENODEV")), "{report:#}");
}
