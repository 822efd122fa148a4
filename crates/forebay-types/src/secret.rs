//! The secret that a job's clients and its I/O nodes share, or that an arbiter shares with its nodes
//! and users: made, read from a file that nobody else can read, and compared in constant time.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};
use std::fmt;
use std::io::{Read, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use subtle::ConstantTimeEq;

/// 32 bytes that prove who one is; written as 64 hexadecimal digits.
#[derive(Clone)]
pub struct Secret([u8; 32]);

/// Why there is no secret.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// The file cannot be read.
    #[error("{}: cannot read the secret: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// Others can read the file.
    #[error("{}: others may read this secret (mode {mode:03o}); run `chmod 600 {}`", path.display(), path.display())]
    Exposed {
        /// The file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// It is a device.
    #[error("{}: is no file that a secret could be kept in", path.display())]
    NoFile {
        /// What was named.
        path: PathBuf,
    },
    /// The file holds something else.
    #[error("{}: holds no secret: 64 hexadecimal digits are one (for example from `openssl rand -hex 32`)", path.display())]
    Text {
        /// The file.
        path: PathBuf,
    },
}

impl Secret {
    /// From its 32 bytes.
    pub const fn new(bytes: [u8; 32]) -> Secret {
        Secret(bytes)
    }

    /// A new one that nobody can guess.
    pub fn random() -> std::io::Result<Secret> {
        let mut bytes = [0; 32];
        std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
        Ok(Secret(bytes))
    }

    /// From 64 hexadecimal digits.
    pub fn from_hex(hex: &str) -> Option<Secret> {
        let hex = hex.trim().as_bytes();
        if hex.len() != 64 {
            return None;
        }
        let mut out = [0u8; 32];
        for (o, pair) in out.iter_mut().zip(hex.chunks_exact(2)) {
            let hi = (pair[0] as char).to_digit(16)?;
            let lo = (pair[1] as char).to_digit(16)?;
            *o = u8::try_from(hi * 16 + lo).ok()?;
        }
        Some(Secret(out))
    }

    /// As 64 hexadecimal digits.
    pub fn to_hex(&self) -> String {
        self.0.iter().map(|b| format!("{b:02x}")).collect()
    }

    /// The bytes, as the key of a keyed hash.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// From a file of 64 hexadecimal digits, unless others than its owner may read it.
    pub fn read(path: &Path) -> Result<Secret, SecretError> {
        let failed = |source| SecretError::Read { path: path.to_owned(), source };
        let file = std::fs::File::open(path).map_err(failed)?;
        // Of the file that was opened, not of the name, which may have come to mean another one.
        let metadata = file.metadata().map_err(failed)?;
        if metadata.is_dir() {
            return Err(failed(std::io::ErrorKind::IsADirectory.into()));
        }
        let kind = metadata.file_type();
        if kind.is_char_device() || kind.is_block_device() {
            return Err(SecretError::NoFile { path: path.to_owned() });
        }
        let mode = metadata.mode() & 0o777;
        if mode & 0o077 != 0 {
            return Err(SecretError::Exposed { path: path.to_owned(), mode });
        }
        let mut text = Vec::new();
        file.take(1024).read_to_end(&mut text).map_err(failed)?;
        let secret = std::str::from_utf8(&text).ok().and_then(Secret::from_hex);
        secret.ok_or_else(|| SecretError::Text { path: path.to_owned() })
    }

    /// Into a new file that only this user can read.
    pub fn write(&self, path: &Path) -> std::io::Result<()> {
        let mut file = std::fs::File::options().write(true).create_new(true).mode(0o600).open(path)?;
        file.write_all(self.to_hex().as_bytes())
    }
}

/// Not what it is, wherever it may be printed.
impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// In constant time: how long it takes says nothing about where two differ.
impl PartialEq for Secret {
    fn eq(&self, other: &Secret) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl Eq for Secret {}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(&self.to_hex())
    }
}

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Secret, D::Error> {
        let text = String::deserialize(d)?;
        Secret::from_hex(&text).ok_or_else(|| D::Error::custom("a secret has 64 hexadecimal digits"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn files_that_others_can_read_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("secret");
        let secret = Secret::random().unwrap();
        secret.write(&path).unwrap();
        assert_eq!(Secret::read(&path).unwrap(), secret);
        assert!(secret.write(&path).is_err(), "an existing file is not replaced");
        for mode in [0o644, 0o640, 0o604, 0o666] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            let said = Secret::read(&path).unwrap_err().to_string();
            assert!(said.contains("chmod 600") && said.contains("secret"), "{said}");
        }
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        std::fs::write(&path, "not a secret").unwrap();
        assert!(Secret::read(&path).unwrap_err().to_string().contains("64 hexadecimal"));
        assert!(Secret::read(&dir.path().join("none")).unwrap_err().to_string().contains("none"));
        let said = Secret::read(dir.path()).unwrap_err().to_string();
        assert!(said.contains("is a directory") && !said.contains("chmod"), "{said}");
    }

    #[test]
    fn digits_and_comparison() {
        let secret = Secret::new([0x0f; 32]);
        assert_eq!(secret.to_hex(), "0f".repeat(32));
        assert_eq!(Secret::from_hex(&"0F".repeat(32)), Some(secret.clone()));
        let mut other = [0x0f; 32];
        other[31] = 0;
        assert_ne!(Secret::new(other), secret);
        assert_ne!(Secret::random().unwrap(), Secret::random().unwrap());
        for wrong in ["", "zz", &"0".repeat(63), &"g".repeat(64), &"é".repeat(32)] {
            assert_eq!(Secret::from_hex(wrong), None);
        }
        assert!(!format!("{secret:?}").contains("0f"));
    }
}
