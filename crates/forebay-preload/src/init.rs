//! Start-up, before the program's `main`.

use crate::state::{self, Export, State};
use crate::sys::{self, sys};
use crate::{cwd, hooks, notes, patch, path, place, table};
use forebay_client::{Config, Counters, LONGEST_CONFIG, Reread};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::sync::Arc;
use std::time::Duration;

/// How long a program may look for an I/O node before it starts.
const ANNOUNCE_LIMIT: Duration = Duration::from_secs(5);

unsafe extern "C" {
    fn pthread_atfork(
        prepare: Option<extern "C" fn()>,
        parent: Option<extern "C" fn()>,
        child: Option<extern "C" fn()>,
    ) -> std::ffi::c_int;
}

#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = start;

extern "C" fn start() {
    // Without a configuration there is nothing to forward, and the program runs untouched.
    let Some(config_path) = sys::env(b"FOREBAY_CONFIG") else { return };
    if let Err(why) = set_up(config_path) {
        complain(&why);
        // Here, whatever the program writes by relative names would be lost.
        if in_stand_in(config_path) {
            loop {
                sys!(exit_group, 127);
            }
        }
    }
}

/// Whether the kernel's working directory is a stand-in of the run with this configuration.
fn in_stand_in(config_path: &[u8]) -> bool {
    let mut buf = [0u8; libc::PATH_MAX as usize];
    sys::getcwd_into(&mut buf).is_some_and(|cwd| path::below(cwd, run_dir(config_path)).is_some())
}

fn run_dir(config_path: &[u8]) -> &[u8] {
    config_path.iter().rposition(|&b| b == b'/').map_or(&b"."[..], |i| &config_path[..i])
}

fn complain(why: &str) {
    let line = format!("forebay: {why}; this program's I/O is not forwarded\n");
    sys!(write, 2, line.as_ptr(), line.len());
}

fn set_up(config_path: &[u8]) -> Result<(), String> {
    let shown = String::from_utf8_lossy(config_path).into_owned();
    let json =
        sys::read_file(config_path, LONGEST_CONFIG + 1).ok_or_else(|| format!("cannot read {shown}"))?;
    let mut config = Config::from_json(&json).map_err(|e| format!("{shown}: {e}"))?;
    let path = config_path.to_vec();
    let again = move || Config::from_json(&sys::read_file(&path, LONGEST_CONFIG + 1)?).ok();
    config.reread = Some(Reread(Arc::new(again)));
    let run_dir = match elsewhere(&config) {
        None => run_dir(config_path).to_vec(),
        Some(host) => {
            config.placeholder = None;
            // Another host's own directory of this name need not be the same one.
            for map in &mut config.exports {
                map.local = map.local.take().filter(|dir| sys::is_shared(dir.as_os_str().as_bytes()));
            }
            let dir = [run_dir(config_path), b"/hosts/", host.as_bytes()].concat();
            sys::mkdirs(&dir);
            sys::close(
                sys::open(&[&dir, &b"/notes"[..]].concat(), libc::O_CREAT | libc::O_CLOEXEC, 0o600) as i32
            );
            dir
        }
    };
    let run_dir = run_dir.as_slice();
    let exports: Vec<Export> = config
        .exports
        .iter()
        .map(|e| {
            let dir = path::normalise(e.dir.as_os_str().as_bytes());
            let hidden = sys!(faccessat, libc::AT_FDCWD, sys::cstring(&dir).as_ptr(), libc::F_OK) != 0;
            Export { dir, local: e.local.clone().map(|l| l.into_os_string().into_vec()), hidden }
        })
        .collect();
    let home = std::path::Path::new(std::ffi::OsStr::from_bytes(run_dir));
    forebay_client::remember_mount(home);
    forebay_client::meet_in(home);
    let counters_path = home.join("counters");
    let counters = match config.origin {
        None => Counters::open(&counters_path),
        Some(_) => Counters::open_or_create(&counters_path),
    };
    let counters = counters.ok();
    let library = sys::own_file().ok_or("cannot find this library's own file")?;
    let entered = sys::env(cwd::VARIABLE).and_then(|v| std::str::from_utf8(v).ok()?.parse().ok());
    let state = State::install(config, exports, run_dir, library, config_path.to_vec(), counters, entered);
    hooks::limit::refresh();
    find_inherited();
    tell_of_before();
    restore_environment();
    // SAFETY: handlers that need nothing but this library's own state.
    unsafe { pthread_atfork(Some(hooks::exec::before_fork), None, Some(hooks::exec::after_fork)) };
    patch::install(hooks::all().as_slice()).map_err(|e| {
        notes::note("process", b"", "libc's functions could not be replaced");
        format!("cannot replace libc's functions: {e}")
    })?;
    take_over(state);
    announce(state);
    Ok(())
}

/// What was open before `exec` is this program's too, from now on: whoever started it may close it, or end.
fn take_over(state: &'static state::State) {
    let mut inherited = table::all().filter(|(_, open)| open.remote().is_some());
    let _ = inherited
        .all(|(_, open)| open.remote().is_some_and(|file| state.client().adopt_early(file, ANNOUNCE_LIMIT)));
}

/// The host's name, if it is not the one that the job was started on.
fn elsewhere(config: &Config) -> Option<String> {
    let origin = config.origin.as_ref()?;
    let host = forebay_client::hostname();
    let plain = !host.is_empty() && !host.contains('/') && !host.starts_with('.');
    (host != *origin && plain).then_some(host)
}

/// The first process of a rank makes itself known, so that every rank is accounted for, also one that never
/// opens a file.
fn announce(state: &'static state::State) {
    let Some(task) = forebay_client::Task::find(state.starter(), |name| {
        Some(String::from_utf8_lossy(sys::env(name.as_bytes())?).into_owned())
    }) else {
        return;
    };
    let rank = task.rank.to_string();
    if sys::env(b"FOREBAY_ANNOUNCED").is_some_and(|known| known == rank.as_bytes()) {
        return;
    }
    if let Err(why) = state.client().announce(ANNOUNCE_LIMIT) {
        // The report names it so, if no process of the rank comes later.
        let who = format!("rank {rank} of host {}", forebay_client::hostname());
        notes::note("rank", who.as_bytes(), &format!("reached no I/O node when it started: {why}"));
    }
    let rank = sys::cstring(rank.as_bytes());
    // SAFETY: before `main`, with one thread; C strings.
    unsafe { libc::setenv(c"FOREBAY_ANNOUNCED".as_ptr(), rank.as_ptr().cast(), 1) };
}

/// Locks that the process had when it was another program, and failures that it was not told of.
fn tell_of_before() {
    let (locked, late) = (numbers_of(hooks::exec::LOCKED), numbers_of(hooks::exec::LATE));
    if !locked.is_empty() || !late.is_empty() {
        for (_, open) in table::all() {
            let Some(file) = open.remote() else { continue };
            if locked.contains(&file.identity) {
                file.expect_loss();
            }
            file.expect_late(&late);
        }
    }
    for name in [c"FOREBAY_LOCKED", c"FOREBAY_LATE"] {
        // SAFETY: before `main`, with one thread; C strings.
        unsafe { libc::unsetenv(name.as_ptr()) };
    }
}

/// What the program before this one in the same process has left in such a variable.
fn numbers_of(name: &[u8]) -> Vec<u64> {
    let told = sys::env(name).and_then(|v| std::str::from_utf8(v).ok()).unwrap_or_default();
    let mut numbers = told.split(' ').filter_map(|n| n.parse::<u64>().ok());
    if numbers.next() == Some(sys::getpid() as u64) { numbers.collect() } else { Vec::new() }
}

/// What was put aside for the time of `exec` comes back before the program looks.
fn restore_environment() {
    // SAFETY: before `main`, with one thread; a C string.
    unsafe { libc::unsetenv(c"FOREBAY_CWD".as_ptr()) };
    let Some(before) = sys::env(hooks::exec::SEARCH_BEFORE) else { return };
    let before = sys::cstring(before);
    // SAFETY: before `main`, with one thread; C strings.
    unsafe {
        if before.len() == 1 {
            libc::unsetenv(c"LD_LIBRARY_PATH".as_ptr());
        } else {
            libc::setenv(c"LD_LIBRARY_PATH".as_ptr(), before.as_ptr().cast(), 1);
        }
        libc::unsetenv(c"FOREBAY_LD_LIBRARY_PATH".as_ptr());
    }
}

/// Descriptors that stand for forwarded files since before `exec`.
fn find_inherited() {
    let dir = sys::open(b"/proc/self/fd", libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC, 0);
    if dir < 0 {
        return;
    }
    let mut buf = [0u64; 512];
    loop {
        let n = sys!(getdents64, dir, buf.as_mut_ptr(), size_of_val(&buf));
        if n <= 0 {
            break;
        }
        for (_, name) in hooks::dir::raw_entries(&buf, n as usize) {
            let Some(fd) = std::str::from_utf8(name).ok().and_then(|s| s.parse::<i32>().ok()) else {
                continue;
            };
            if fd as isize != dir
                && let Some(open) = place::inherited(fd)
            {
                let _ = table::put(fd, open);
            }
        }
    }
    sys::close(dir as i32);
}
