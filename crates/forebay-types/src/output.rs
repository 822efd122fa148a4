//! Files that people name to be written to: never one that is read, and whole or as they were.

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{MemfdFlags, OFlags, fcntl_getfl, fcntl_setfl, memfd_create};
use std::fs::File;
use std::io::{Error, ErrorKind, Read, Result, Seek, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// For so long whoever reads a FIFO may take nothing out of it.
const UNREAD: Duration = Duration::from_secs(5);

/// Refuses to write where one of the files is that are read.
///
/// # Errors
/// If it is, with a sentence for whoever named both.
pub fn beside<P: AsRef<Path>>(out: &Path, inputs: impl IntoIterator<Item = P>) -> Result<()> {
    let file = |path: &Path| path.metadata().ok().filter(|m| m.is_file()).map(|m| (m.dev(), m.ino()));
    let Some(written) = file(out) else { return Ok(()) };
    match inputs.into_iter().find(|input| file(input.as_ref()) == Some(written)) {
        Some(input) => {
            let input = input.as_ref().display();
            Err(Error::other(format!("{input} is read: give another file to write to")))
        }
        None => Ok(()),
    }
}

/// Where a path leads.
enum Place {
    /// To a file; a symbolic link to it stays one.
    File(PathBuf),
    /// To nothing yet.
    Nothing,
    /// To something that is written to and not replaced: a device, a FIFO, what is already open, a link to nothing.
    Stream,
}

fn place(path: &Path) -> Result<Place> {
    if is_open(path) {
        return Ok(Place::Stream);
    }
    not_planted(path)?;
    match std::fs::canonicalize(path) {
        Ok(real) if real.is_dir() => Err(ErrorKind::IsADirectory.into()),
        Ok(real) if real.is_file() => Ok(Place::File(real)),
        Ok(_) => Ok(Place::Stream),
        Err(e) if e.kind() != ErrorKind::NotFound => Err(e),
        Err(_) if path.is_symlink() => Ok(Place::Stream),
        Err(_) => Ok(Place::Nothing),
    }
}

/// Refuses to follow a link that somebody else has put there, wherever that is: who may change a directory can have
/// any file written to by whoever names one in it.
fn not_planted(path: &Path) -> Result<()> {
    let Some(link) = std::fs::symlink_metadata(path).ok().filter(|m| m.file_type().is_symlink()) else {
        return Ok(());
    };
    if is_mine(&link) || link.uid() == 0 {
        return Ok(());
    }
    let why = format!("it is a link of user {}: name the file to which it leads", link.uid());
    Err(Error::new(ErrorKind::PermissionDenied, why))
}

fn is_mine(file: &std::fs::Metadata) -> bool {
    file.uid() == rustix::process::geteuid().as_raw()
}

/// Refuses to write what is for nobody else's eyes into another one's file.
fn not_theirs(place: &Place) -> Result<()> {
    match place {
        Place::File(real) if !is_mine(&real.metadata()?) => {
            let why = format!("it is a file of user {}, who could read it", real.metadata()?.uid());
            Err(Error::new(ErrorKind::PermissionDenied, why))
        }
        _ => Ok(()),
    }
}

/// Whether a path names a descriptor rather than a file.
pub fn is_open(path: &Path) -> bool {
    ["/dev/stdout", "/dev/stderr", "/dev/fd", "/proc/self/fd"].iter().any(|open| path.starts_with(open))
}

/// Whether a path names a FIFO in the file system. Whoever has one open already reads it when it suits them.
pub fn is_fifo(path: &Path) -> bool {
    !is_open(path) && path.metadata().is_ok_and(|m| m.file_type().is_fifo())
}

/// Opens a FIFO that somebody reads; nobody is waited for.
///
/// # Errors
/// If nobody does.
pub fn open_fifo(path: &Path) -> Result<File> {
    let opened = File::options().write(true).custom_flags(OFlags::NONBLOCK.bits() as i32).open(path);
    opened.map_err(|e| match e.raw_os_error() {
        Some(code) if code == rustix::io::Errno::NXIO.raw_os_error() => {
            Error::new(ErrorKind::NotConnected, "it is a FIFO that nobody reads")
        }
        _ => e,
    })
}

/// Writes to a FIFO, as long as it is read.
///
/// # Errors
/// If nobody takes anything out of it for seconds.
pub fn write_fifo(fifo: &mut File, fill: impl FnOnce(&mut File) -> Result<()>) -> Result<()> {
    let mut all: File = memfd_create("fifo", MemfdFlags::CLOEXEC)?.into();
    fill(&mut all)?;
    all.rewind()?;
    fcntl_setfl(&*fifo, fcntl_getfl(&*fifo)? | OFlags::NONBLOCK)?;
    let mut chunk = vec![0; 64 << 10];
    loop {
        let read = all.read(&mut chunk)?;
        let mut rest = &chunk[..read];
        if rest.is_empty() {
            return Ok(());
        }
        while !rest.is_empty() {
            match fifo.write(rest) {
                Ok(written) => rest = &rest[written..],
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => wait_until_read(fifo)?,
                Err(e) => return Err(e),
            }
        }
    }
}

fn wait_until_read(fifo: &File) -> Result<()> {
    let patience = rustix::fs::Timespec { tv_sec: UNREAD.as_secs() as i64, tv_nsec: 0 };
    match poll(&mut [PollFd::new(fifo, PollFlags::OUT)], Some(&patience)) {
        Ok(0) => {
            let why = format!("nobody has read from this FIFO for {} s", UNREAD.as_secs());
            Err(Error::new(ErrorKind::TimedOut, why))
        }
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(e) => Err(e.into()),
    }
}

/// A file beside `path` that is to become it.
fn draft(path: &Path, mode: u32) -> Result<(PathBuf, File)> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    loop {
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let new = path.with_file_name(format!(".forebay-{}-{count}", std::process::id()));
        match File::options().write(true).create_new(true).mode(mode).open(&new) {
            Err(e) if e.kind() == ErrorKind::AlreadyExists && count < 10_000 => {}
            made => return made.map(|file| (new, file)),
        }
    }
}

/// Whether a file can be written, found out before the work of which it tells; what is in it stays.
///
/// # Errors
/// If not.
pub fn try_it(path: &Path) -> Result<()> {
    try_place(place(path)?, path)
}

/// The same of what is for nobody else's eyes.
///
/// # Errors
/// If not.
pub fn try_private(path: &Path) -> Result<()> {
    let place = place(path)?;
    not_theirs(&place)?;
    try_place(place, path)
}

fn try_place(place: Place, path: &Path) -> Result<()> {
    match place {
        Place::File(real) => File::options().write(true).open(real).map(drop),
        Place::Nothing => std::fs::remove_file(draft(path, 0o600)?.0),
        Place::Stream if is_fifo(path) => open_fifo(path).map(drop),
        Place::Stream => Ok(()),
    }
}

/// Writes a file. Whoever reads it meanwhile finds the old one or the new one, and on a full disk the old one stays.
///
/// # Errors
/// If it cannot be written.
pub fn write(path: &Path, bytes: impl AsRef<[u8]>) -> Result<()> {
    write_by(path, |file| file.write_all(bytes.as_ref()))
}

/// The same of what is too long to be had at once: `fill` writes it.
///
/// # Errors
/// If it cannot be written.
pub fn write_by(path: &Path, fill: impl FnOnce(&mut File) -> Result<()>) -> Result<()> {
    put(path, fill, None)
}

/// The same, for nobody else's eyes.
///
/// # Errors
/// If it cannot be written.
pub fn write_private(path: &Path, bytes: &[u8]) -> Result<()> {
    put(path, |file| file.write_all(bytes), Some(0o600))
}

fn put(path: &Path, fill: impl FnOnce(&mut File) -> Result<()>, mode: Option<u32>) -> Result<()> {
    let place = place(path)?;
    if mode.is_some() {
        not_theirs(&place)?;
    }
    match place {
        Place::Nothing => {
            let (new, file) = draft(path, mode.unwrap_or(0o666))?;
            finish(&new, file, fill, path)
        }
        Place::File(real) => {
            // Who may not write to it may not replace it.
            let mut there = File::options().write(true).open(&real)?;
            let before = there.metadata()?;
            // Links to it, its owner and a directory that takes no other file would not outlive a new one.
            let new = match draft(&real, mode.unwrap_or(0o600)) {
                Ok((new, file)) if before.nlink() == 1 && file.metadata()?.uid() == before.uid() => {
                    (new, file)
                }
                Ok((new, _)) => return std::fs::remove_file(new).and_then(|()| in_place(&mut there, fill)),
                Err(e) if matches!(e.kind(), ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem) => {
                    return in_place(&mut there, fill);
                }
                Err(e) => return Err(e),
            };
            if mode.is_none() {
                let _ = new.1.set_permissions(before.permissions());
            }
            finish(&new.0, new.1, fill, &real)
        }
        Place::Stream if is_fifo(path) => write_fifo(&mut open_fifo(path)?, fill),
        Place::Stream => {
            let mut stream = File::options();
            stream
                .append(is_open(path))
                .write(true)
                .create(path.is_symlink() && !path.exists())
                .truncate(false);
            fill(&mut stream.mode(mode.unwrap_or(0o666)).open(path)?)
        }
    }
}

fn finish(new: &Path, mut file: File, fill: impl FnOnce(&mut File) -> Result<()>, path: &Path) -> Result<()> {
    let done = fill(&mut file).and_then(|()| std::fs::rename(new, path));
    if done.is_err() {
        let _ = std::fs::remove_file(new);
    }
    done
}

fn in_place(file: &mut File, fill: impl FnOnce(&mut File) -> Result<()>) -> Result<()> {
    file.set_len(0)?;
    fill(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn mode(path: &Path) -> u32 {
        path.metadata().unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn what_is_private_is_for_its_user_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ready");
        for text in ["first", "second"] {
            write_private(&path, text.as_bytes()).unwrap();
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
            assert_eq!(mode(&path), 0o600);
        }
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o640)).unwrap();
        write(&path, "third").unwrap();
        assert_eq!((std::fs::read_to_string(&path).unwrap().as_str(), mode(&path)), ("third", 0o640));
        let left: Vec<_> = std::fs::read_dir(dir.path()).unwrap().flatten().collect();
        assert_eq!(left.len(), 1, "{left:?}");
    }

    #[test]
    fn what_others_have_put_there_is_not_written_to() {
        if !rustix::process::geteuid().is_root() {
            return eprintln!("SKIPPED: only root can make links and files of others");
        }
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::write(at("precious"), "as it was").unwrap();
        std::fs::write(at("theirs"), "").unwrap();
        std::os::unix::fs::chown(at("theirs"), Some(64_321), None).unwrap();
        symlink("precious", at("link")).unwrap();
        write(&at("link"), "one's own leads where one knows").unwrap();
        std::os::unix::fs::lchown(at("link"), Some(64_321), None).unwrap();
        for tried in [write(&at("link"), "x"), write_private(&at("link"), b"x"), try_it(&at("link"))] {
            assert!(tried.unwrap_err().to_string().contains("a link of user 64321"));
        }
        assert_eq!(std::fs::read_to_string(at("precious")).unwrap(), "one's own leads where one knows");
        write(&at("theirs"), "for all to see").unwrap();
        for tried in [write_private(&at("theirs"), b"x"), try_private(&at("theirs"))] {
            assert!(tried.unwrap_err().to_string().contains("a file of user 64321"));
        }
        assert_eq!(std::fs::read_to_string(at("theirs")).unwrap(), "for all to see");
    }

    #[test]
    fn what_is_no_file_is_written_to_and_not_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let (file, link, fifo) = (at("file"), at("link"), at("fifo"));
        std::fs::write(&file, "before").unwrap();
        symlink(&file, &link).unwrap();
        write(&link, b"by the link").unwrap();
        assert!(link.is_symlink());
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "by the link");
        symlink("there", at("to")).unwrap();
        write(&at("to"), "made").unwrap();
        assert!(at("to").is_symlink());
        assert_eq!(std::fs::read_to_string(at("there")).unwrap(), "made");
        std::fs::hard_link(&file, at("twin")).unwrap();
        write(&file, "both").unwrap();
        assert_eq!(std::fs::read_to_string(at("twin")).unwrap(), "both");
        let user = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, user, 0).unwrap();
        let nobody = write_private(&fifo, b"to nobody").unwrap_err();
        assert_eq!(nobody.to_string(), "it is a FIFO that nobody reads");
        assert!(write(&fifo, b"to nobody").is_err() && try_it(&fifo).is_err());
        let nonblocking = OFlags::NONBLOCK.bits() as i32;
        let reader = File::options().read(true).custom_flags(nonblocking).open(&fifo).unwrap();
        write(&fifo, b"to somebody").unwrap();
        assert_eq!(std::io::read_to_string(reader).unwrap(), "to somebody");
        assert!(fifo.metadata().unwrap().file_type().is_fifo());
        write(Path::new("/dev/null"), b"nothing").unwrap();
        assert!(Path::new("/dev/null").metadata().unwrap().file_type().is_char_device());
        assert!(try_it(&at("none/stats")).is_err() && try_it(dir.path()).is_err());
        assert!(write(dir.path(), "").is_err());
    }

    #[test]
    fn a_fifo_is_written_to_as_long_as_it_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let fifo = dir.path().join("fifo");
        let user = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, user, 0).unwrap();
        let nonblocking = OFlags::NONBLOCK.bits() as i32;
        let reader = File::options().read(true).custom_flags(nonblocking).open(&fifo).unwrap();
        // More than fits: somebody who reads late has all of it, somebody who does not is not waited for.
        let large = vec![7; 1 << 20];
        let all = std::thread::scope(|s| {
            let all = s.spawn(|| {
                let waiting = File::open(&fifo).unwrap();
                std::thread::sleep(Duration::from_millis(100));
                let mut all = Vec::new();
                (&waiting).take(1 << 20).read_to_end(&mut all).unwrap();
                all
            });
            write(&fifo, &large).unwrap();
            all.join().unwrap()
        });
        assert!(all == large);
        let unread = write(&fifo, &large).unwrap_err();
        assert_eq!(
            (unread.kind(), unread.to_string().contains("nobody has read")),
            (ErrorKind::TimedOut, true)
        );
        drop(reader);
    }

    #[test]
    fn what_is_read_is_not_written_to() {
        let dir = tempfile::tempdir().unwrap();
        let (file, link) = (dir.path().join("file"), dir.path().join("link"));
        beside(&file, [&file]).unwrap();
        std::fs::write(&file, "x").unwrap();
        symlink(&file, &link).unwrap();
        for out in [&file, &link] {
            let says = beside(out, [&dir.path().join("none"), &file]).unwrap_err().to_string();
            assert!(says.ends_with("file is read: give another file to write to"), "{says}");
        }
        beside(&dir.path().join("other"), [&file]).unwrap();
        beside(Path::new("/dev/null"), ["/dev/null"]).unwrap();
    }
}
