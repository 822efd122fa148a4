//! Files through I/O nodes, by the client library.

use super::files::{Files, OpenFile};
use forebay_client::{Client, Config, Error, ExportId, File, Meta, OpenFlags, Path, Target};
use std::io;

/// The exports of I/O nodes.
pub(super) struct Forwarded {
    client: Client,
}

struct Handle<'a> {
    client: &'a Client,
    file: File,
}

impl Forwarded {
    pub(super) fn new(config: &serde_json::Value) -> io::Result<Forwarded> {
        let config = Config::from_json(&serde_json::to_vec(config)?).map_err(io::Error::other)?;
        Ok(Forwarded { client: Client::new(config, None).map_err(io::Error::other)? })
    }

    fn locate<'a>(&self, path: &'a str) -> io::Result<Path<'a>> {
        for (i, export) in self.client.config().exports.iter().enumerate() {
            if let Ok(rel) = std::path::Path::new(path).strip_prefix(&export.dir) {
                let rel = rel.as_os_str().as_encoded_bytes();
                return Ok(Path { export: ExportId(i as u16), rel });
            }
        }
        Err(io::Error::other(format!("{path} is below no directory that the I/O nodes serve")))
    }
}

impl Drop for Forwarded {
    fn drop(&mut self) {
        self.client.leave();
    }
}

fn told(error: Error) -> io::Error {
    io::Error::other(error)
}

impl Files for Forwarded {
    fn open(&self, path: &str, direct_io: bool) -> io::Result<Box<dyn OpenFile + '_>> {
        let mut flags = OpenFlags::READ | OpenFlags::WRITE | OpenFlags::CREATE;
        if direct_io {
            flags = flags | OpenFlags::DIRECT;
        }
        let (file, _) = self.client.open(self.locate(path)?, flags, 0o644).map_err(told)?;
        Ok(Box::new(Handle { client: &self.client, file }))
    }

    fn create(&self, path: &str) -> io::Result<()> {
        let flags = OpenFlags::WRITE | OpenFlags::CREATE;
        let (file, _) = self.client.open(self.locate(path)?, flags, 0o644).map_err(told)?;
        self.client.close(&file).map_err(told)
    }

    fn stat(&self, path: &str) -> io::Result<()> {
        let target = Target::Path(self.locate(path)?);
        self.client.meta(Meta::Stat { target }, |_| Some(())).map_err(told)
    }

    fn unlink(&self, path: &str) -> io::Result<()> {
        self.client.meta(Meta::Unlink { path: self.locate(path)? }, |_| Some(())).map_err(told)
    }
}

impl OpenFile for Handle<'_> {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.client.pread(&self.file, buf, offset).map_err(told)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<usize> {
        self.client.pwrite(&self.file, buf, offset).map_err(told)
    }

    fn sync(&self) -> io::Result<()> {
        self.client
            .meta_on(&self.file, |handle| Meta::Fsync { handle, data_only: false }, |_| Some(()))
            .map_err(told)
    }

    fn close(self: Box<Self>) -> io::Result<()> {
        self.client.close(&self.file).map_err(told)
    }
}
