//! How the process in the namespace hands its mounts to the one outside that serves them: over a
//! socket in the run's private directory.

use super::PlaceError;
use crate::sys;
use rustix::fd::{AsFd, OwnedFd};
use std::io::{self, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How often it is looked whether the other side is still there.
const LOOK: Duration = Duration::from_millis(20);

/// The side that serves.
pub struct Doorway {
    listener: UnixListener,
    path: PathBuf,
}

impl Doorway {
    /// Opens it at `path`, which only this user may reach.
    pub fn open(path: &Path) -> io::Result<Doorway> {
        let listener = UnixListener::bind(path)?;
        listener.set_nonblocking(true)?;
        Ok(Doorway { listener, path: path.to_owned() })
    }

    /// Waits for the process inside; `gone` says that it has ended.
    pub fn accept(&self, mut gone: impl FnMut() -> bool) -> Result<Guest, PlaceError> {
        loop {
            match self.listener.accept() {
                Ok((stream, _)) => {
                    let prepared = stream.set_nonblocking(false);
                    return prepared.map(|()| Guest(stream)).map_err(super::step("cannot use", &self.path));
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    if gone() {
                        return Err(PlaceError::Inside("the process in the namespace has ended".into()));
                    }
                    let mut fds = [rustix::event::PollFd::new(&self.listener, rustix::event::PollFlags::IN)];
                    let t = rustix::time::Timespec { tv_sec: 0, tv_nsec: LOOK.as_nanos() as i64 };
                    // A signal only shortens the wait.
                    let _ = rustix::event::poll(&mut fds, Some(&t));
                }
                Err(e) => return Err(super::step("cannot accept on", &self.path)(e)),
            }
        }
    }
}

impl Drop for Doorway {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// The process inside, as the outside sees it.
pub struct Guest(UnixStream);

impl Guest {
    /// The next mount. To be served at once: the process inside may already use it.
    pub fn next(&self) -> Result<OwnedFd, PlaceError> {
        match sys::receive_fd(self.0.as_fd()) {
            Ok(Some((_, Some(device)))) => Ok(device),
            Ok(Some((message, None))) => {
                Err(PlaceError::Inside(String::from_utf8_lossy(&message).into_owned()))
            }
            Ok(None) => Err(PlaceError::Inside("the process in the namespace ended early".into())),
            Err(e) => Err(PlaceError::Inside(format!("the process in the namespace: {e}"))),
        }
    }
}

/// The side inside.
pub(crate) struct Outside(UnixStream);

impl Outside {
    pub(crate) fn connect(path: &Path) -> Result<Outside, PlaceError> {
        UnixStream::connect(path).map(Outside).map_err(super::step("cannot reach", path))
    }

    pub(crate) fn hand_over(&self, device: &OwnedFd) -> io::Result<()> {
        sys::send_fd(self.0.as_fd(), device.as_fd())
    }

    pub(crate) fn tell(mut self, problem: &PlaceError) {
        // If nobody listens, the exit status has to do.
        let _ = self.0.write_all(problem.to_string().as_bytes());
    }
}
