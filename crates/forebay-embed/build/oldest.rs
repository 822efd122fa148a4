//! The preload library is loaded into users' programs, in containers with older systems too. A linker binds every
//! function to the newest version that the C library of the building machine has; here it is shown a C library that has
//! no newer ones than [`OLDEST`]: this machine's, with its older versions alone, and without code.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The glibc that the library is to load with, and all newer ones: that of EL7.
const OLDEST: Version = (2, 17, 0);

type Version = (u32, u32, u32);

const LIBC: &str = "libc.so.6";
/// Where threads are in an old one, and where `dlsym` is; today's are empty, and still there.
const THREADS: &str = "libpthread.so.0";
const DLSYM: &str = "libdl.so.2";

/// What the linker is told; or why the library will need this machine's own glibc.
pub(crate) fn link_arguments(out: &Path, here: &Path) -> Result<Vec<String>, String> {
    let dir = out.join("oldest");
    std::fs::create_dir_all(&dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    let real = file_name("libc.so.6")?;
    let listed = run(Command::new("nm").args(["-D", "--with-symbol-versions"]).arg(&real))?;
    let symbols = symbols(&listed);
    if symbols.is_empty() {
        return Err(format!("{} is no glibc", real.display()));
    }
    let write = |name: &str, text: &str| {
        let path = dir.join(name);
        std::fs::write(&path, text).map(|()| path).map_err(|e| format!("{name}: {e}"))
    };
    let mut libraries = Vec::new();
    for home in [LIBC, THREADS, DLSYM] {
        let own: Vec<&Symbol<'_>> = symbols.values().filter(|s| s.home == home).collect();
        let (code, map) =
            (write(&format!("{home}.s"), &code(&own))?, write(&format!("{home}.map"), &map(&own))?);
        libraries.push(shared(&dir, home, &code, &map)?);
    }
    let libc = libraries.remove(0);
    // What is in none of them, but in an archive beside it, or in the loader, is told by a script of the linker's.
    let script = std::fs::read_to_string(file_name("libc.so")?).map_err(|e| format!("libc.so: {e}"))?;
    let (told, ours) = (script.split_whitespace(), libc.display().to_string());
    let words: Vec<&str> = told.map(|w| if w.ends_with("/libc.so.6") { ours.as_str() } else { w }).collect();
    if !words.contains(&ours.as_str()) {
        return Err("libc.so does not say where libc.so.6 is".to_owned());
    }
    write("libc.so", &words.join(" "))?;
    let since = dir.join("since.o");
    run(Command::new("cc").args(["-O2", "-fPIC", "-c", "-o"]).arg(&since).arg(here.join("build/since.c")))?;
    let mut arguments = vec![since.display().to_string(), format!("-L{}", dir.display())];
    arguments.push("-Wl,--no-as-needed".to_owned());
    arguments.extend(libraries.iter().map(|library| library.display().to_string()));
    Ok(arguments)
}

/// What is linked with.
struct Symbol<'a> {
    name: &'a str,
    /// The newest that is old enough.
    version: Version,
    data: bool,
    /// The library that had it then.
    home: &'static str,
}

fn symbols(listed: &str) -> BTreeMap<&str, Symbol<'_>> {
    let mut found: BTreeMap<&str, Symbol<'_>> = BTreeMap::new();
    let (mut renewed, mut offered) = (BTreeSet::new(), BTreeSet::new());
    for line in listed.lines() {
        let mut words = line.split_whitespace().rev();
        let (Some(word), Some(kind)) = (words.next(), words.next()) else { continue };
        let Some((name, version)) = word.split_once('@') else { continue };
        let Some(version) = version.trim_start_matches('@').strip_prefix("GLIBC_").and_then(number) else {
            continue;
        };
        // The one of two marks that the linker takes; what has none is there for old programs only.
        if word.contains("@@") {
            offered.insert(name);
        }
        if version > OLDEST {
            renewed.insert(name);
        } else if kind != "A" && found.get(name).is_none_or(|known| known.version < version) {
            // A version's own name is an absolute symbol.
            let data = matches!(kind, "B" | "D" | "R" | "V" | "b" | "d" | "r");
            found.insert(name, Symbol { name, version, data, home: LIBC });
        }
    }
    found.retain(|name, _| offered.contains(name));
    // What has a newer version, too, may have moved here since.
    for name in renewed {
        let home = match name {
            _ if name.starts_with("pthread_") || name.starts_with("sem_") => THREADS,
            "dladdr" | "dladdr1" | "dlclose" | "dlerror" | "dlinfo" | "dlmopen" | "dlopen" | "dlsym"
            | "dlvsym" => DLSYM,
            _ => LIBC,
        };
        if let Some(symbol) = found.get_mut(name) {
            symbol.home = home;
        }
    }
    found
}

fn number(text: &str) -> Option<Version> {
    let mut parts = text.split('.').map(|part| part.parse().ok());
    Some((parts.next()??, parts.next()??, parts.next().unwrap_or(Some(0))?))
}

fn code(symbols: &[&Symbol<'_>]) -> String {
    let mut text = String::from(".data\n");
    for Symbol { name, data, .. } in symbols {
        let kind = if *data { "object" } else { "function" };
        let _ = writeln!(text, ".globl {name}\n.type {name}, %{kind}\n{name}: .quad 0\n.size {name}, 8");
    }
    text
}

fn map(symbols: &[&Symbol<'_>]) -> String {
    let mut by_version: BTreeMap<Version, String> = BTreeMap::new();
    for symbol in symbols {
        let _ = write!(by_version.entry(symbol.version).or_default(), " {};", symbol.name);
    }
    let mut text = String::new();
    for ((major, minor, patch), names) in by_version {
        let patch = if patch == 0 { String::new() } else { format!(".{patch}") };
        let _ = writeln!(text, "GLIBC_{major}.{minor}{patch} {{{names} }};");
    }
    text
}

/// A library of this name, to link with.
fn shared(dir: &Path, name: &str, code: &Path, map: &Path) -> Result<PathBuf, String> {
    let to = dir.join(name);
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-nostdlib"]).arg(format!("-Wl,-soname,{name}"));
    cc.arg(format!("-Wl,--version-script={}", map.display())).arg("-o").arg(&to).arg(code);
    run(&mut cc)?;
    Ok(to)
}

/// Where the compiler finds a library.
fn file_name(name: &str) -> Result<PathBuf, String> {
    let said = run(Command::new("cc").arg(format!("-print-file-name={name}")))?;
    let path = PathBuf::from(said.trim());
    if path.is_absolute() { Ok(path) } else { Err(format!("cc does not know where {name} is")) }
}

fn run(command: &mut Command) -> Result<String, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let out = command.output().map_err(|e| format!("{name}: {e}"))?;
    if !out.status.success() {
        return Err(format!("{name}: {}", String::from_utf8_lossy(&out.stderr).trim()));
    }
    Ok(String::from_utf8_lossy(&out.stdout).into_owned())
}
