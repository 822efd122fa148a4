//! The limit: the smallest synchronous forwarder there can be. A blocking socket, a header, the
//! payload, one system call on the file, a reply; a thread per connection; no names beneath an
//! export, no sessions, no scheduler, no counters, no checks. What Forebay is held against. With `spin`
//! both sides look for up to 100 µs before they sleep, as Forebay does where there is a processor to spare.

use anyhow::{Context, Result, bail};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use std::fs::File;
use std::io::{IoSlice, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::{Duration, Instant};

const OPEN: u8 = 0;
const READ: u8 = 1;
const WRITE: u8 = 2;
const STAT: u8 = 3;
const CREATE: u8 = 4;
const UNLINK: u8 = 5;
const HEADER: usize = 32;
const MAX: usize = 4 << 20;
/// How long a spinning side looks before it sleeps.
const SPIN: Duration = Duration::from_micros(100);

/// One end of a connection.
struct Wire {
    socket: File,
    spin: bool,
}

impl Wire {
    fn tcp(stream: TcpStream, spin: bool) -> Result<Wire> {
        stream.set_nodelay(true)?;
        Ok(Wire { socket: File::from(OwnedFd::from(stream)), spin })
    }

    fn unix(stream: UnixStream, spin: bool) -> Wire {
        Wire { socket: File::from(OwnedFd::from(stream)), spin }
    }

    fn read_exact(&mut self, mut into: &mut [u8]) -> Result<()> {
        let began = Instant::now();
        while self.spin && !into.is_empty() {
            match recv(&self.socket, &mut *into, RecvFlags::DONTWAIT) {
                Ok((0, _)) => bail!("the other end is gone"),
                Ok((n, _)) => into = &mut into[n..],
                Err(Errno::AGAIN) if began.elapsed() < SPIN => std::thread::yield_now(),
                Err(_) => break,
            }
        }
        Ok(self.socket.read_exact(into)?)
    }

    fn write_both(&mut self, head: &[u8], body: &[u8]) -> std::io::Result<()> {
        let mut pieces = [IoSlice::new(head), IoSlice::new(body)];
        let mut pieces: &mut [IoSlice<'_>] = &mut pieces;
        while !pieces.is_empty() {
            let n = self.socket.write_vectored(pieces)?;
            IoSlice::advance_slices(&mut pieces, n);
        }
        Ok(())
    }
}

fn header(op: u8, length: usize, offset: u64) -> [u8; HEADER] {
    let mut h = [0u8; HEADER];
    h[0] = op;
    h[8..16].copy_from_slice(&(length as u64).to_le_bytes());
    h[16..24].copy_from_slice(&offset.to_le_bytes());
    h
}

fn fields(h: &[u8; HEADER]) -> (u8, usize, u64) {
    let word = |i: usize| u64::from_le_bytes(h[i..i + 8].try_into().unwrap_or_default());
    (h[0], (word(8) as usize).min(MAX), word(16))
}

/// The bench's own forwarder, in a process of its own, at a Unix socket or at a TCP port that it chooses.
/// Prints where and serves until its standard input ends.
pub fn serve_limit(unix: Option<&Path>, spin: bool) -> Result<()> {
    if let Some(path) = unix {
        let listener = UnixListener::bind(path)?;
        println!("{}", path.display());
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                std::thread::spawn(move || serve(Wire::unix(stream, spin)));
            }
        });
    } else {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        println!("{}", listener.local_addr()?.port());
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                std::thread::spawn(move || serve(Wire::tcp(stream, spin)?));
            }
        });
    }
    // The bench holds the other end: when it is gone, so are we.
    let _ = std::io::stdin().read(&mut [0u8; 1]);
    Ok(())
}

fn serve(mut wire: Wire) -> Result<()> {
    let mut memory = super::worker::aligned(MAX);
    let buf = memory.as_mut_slice();
    let mut file: Option<File> = None;
    let mut head = [0u8; HEADER];
    loop {
        wire.read_exact(&mut head)?;
        let (op, length, offset) = fields(&head);
        let mut answer = 0;
        match op {
            READ => {
                let n = file.as_ref().context("not open")?.read_at(&mut buf[..length], offset)?;
                let h = header(op, n, 0);
                wire.write_both(&h, &buf[..n])?;
                continue;
            }
            WRITE => {
                wire.read_exact(&mut buf[..length])?;
                answer = file.as_ref().context("not open")?.write_at(&buf[..length], offset)?;
            }
            _ => {
                wire.read_exact(&mut buf[..length])?;
                let path = Path::new(std::ffi::OsStr::from_bytes(&buf[..length]));
                match op {
                    OPEN => {
                        file = Some(
                            File::options().read(true).write(true).create(true).truncate(false).open(path)?,
                        )
                    }
                    STAT => answer = std::fs::metadata(path)?.len() as usize,
                    CREATE => drop(File::options().write(true).create_new(true).open(path)?),
                    UNLINK => std::fs::remove_file(path)?,
                    _ => bail!("unknown operation {op}"),
                }
            }
        }
        wire.write_both(&header(op, answer, 0), &[])?;
    }
}

/// The client's side.
pub(crate) struct LimitClient(Wire);

impl LimitClient {
    /// To a port, or a Unix socket.
    pub(crate) fn connect(at: &str, spin: bool) -> Result<LimitClient> {
        Ok(LimitClient(match at.parse::<u16>() {
            Ok(port) => Wire::tcp(TcpStream::connect(("127.0.0.1", port))?, spin)?,
            Err(_) => Wire::unix(UnixStream::connect(at)?, spin),
        }))
    }

    fn round(&mut self, op: u8, body: &[u8], offset: u64) -> Result<usize> {
        self.0.write_both(&header(op, body.len(), offset), body)?;
        self.answer().map(|h| h.1)
    }

    fn answer(&mut self) -> Result<(u8, usize, u64)> {
        let mut h = [0u8; HEADER];
        self.0.read_exact(&mut h)?;
        Ok(fields(&h))
    }

    pub(crate) fn open(&mut self, path: &Path) -> Result<()> {
        self.round(OPEN, path.as_os_str().as_bytes(), 0).map(drop)
    }

    pub(crate) fn write(&mut self, data: &[u8], offset: u64) -> Result<usize> {
        self.round(WRITE, data, offset)
    }

    pub(crate) fn read(&mut self, buf: &mut [u8], offset: u64) -> Result<usize> {
        self.0.write_both(&header(READ, buf.len(), offset), &[])?;
        let (_, n, _) = self.answer()?;
        let data = buf.get_mut(..n).context("more data than asked for")?;
        self.0.read_exact(data)?;
        Ok(n)
    }

    pub(crate) fn stat(&mut self, path: &Path) -> Result<()> {
        self.round(STAT, path.as_os_str().as_bytes(), 0).map(drop)
    }

    pub(crate) fn create(&mut self, path: &Path) -> Result<()> {
        self.round(CREATE, path.as_os_str().as_bytes(), 0).map(drop)
    }

    pub(crate) fn unlink(&mut self, path: &Path) -> Result<()> {
        self.round(UNLINK, path.as_os_str().as_bytes(), 0).map(drop)
    }
}
