//! Files that people name, read up to a limit: whatever they name, a program does not take all memory for it.

use std::fs::File;
use std::io::{Error, ErrorKind, Read, Result};
use std::path::Path;

/// The most bytes of a text that one person writes: jobs, queues, scenarios.
pub const TEXT: u64 = 16 << 20;
/// The most bytes of what programs write: tables of measurements, logs.
pub const TABLE: u64 = 256 << 20;

/// Input that fails once it has given as much as it may.
#[derive(Debug)]
pub struct Bounded<R> {
    input: R,
    most: u64,
    given: u64,
}

impl<R: Read> Bounded<R> {
    /// At most so many bytes of `input`.
    pub fn new(input: R, most: u64) -> Bounded<R> {
        Bounded { input, most, given: 0 }
    }
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, buf: &mut [u8]) -> Result<usize> {
        // One byte more than is allowed, so that an input that is as long as that is no error.
        let room = usize::try_from(self.most - self.given).unwrap_or(usize::MAX).saturating_add(1);
        let len = buf.len().min(room);
        let n = self.input.read(&mut buf[..len])?;
        if n as u64 > self.most - self.given {
            let what = format!("longer than {} MiB, the most that is read of such a file", self.most >> 20);
            return Err(Error::new(ErrorKind::FileTooLarge, what));
        }
        self.given += n as u64;
        Ok(n)
    }
}

/// The most bytes of a row of a table.
const ROW: usize = 1 << 20;

/// Input whose lines are rows of a table: it fails where one is longer than any row is, so that whoever wants the whole of
/// it does not take all memory for what is no table.
#[derive(Debug)]
pub struct Rows<R> {
    input: R,
    /// Since the last end of a line.
    given: usize,
}

impl<R: Read> Rows<R> {
    /// The rows of `input`.
    pub fn new(input: R) -> Rows<R> {
        Rows { input, given: 0 }
    }
}

impl<R: Read> Read for Rows<R> {
    fn read(&mut self, buf: &mut [u8]) -> Result<usize> {
        let n = self.input.read(buf)?;
        self.given = match buf[..n].iter().rposition(|b| *b == b'\n') {
            Some(end) => n - end - 1,
            None => self.given + n,
        };
        if self.given > ROW {
            let what = format!("a line is longer than {} MiB: this is no table", ROW >> 20);
            return Err(Error::new(ErrorKind::InvalidData, what));
        }
        Ok(n)
    }
}

/// A table, to be read by and by.
///
/// # Errors
/// If it cannot be opened.
pub fn open(path: &Path) -> Result<Bounded<File>> {
    Ok(Bounded::new(File::open(path)?, TABLE))
}

/// All of a table or log.
///
/// # Errors
/// If it cannot be read, or is too long.
pub fn read(path: &Path) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(path)?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// All of a text, from wherever it comes.
///
/// # Errors
/// If it cannot be read, or is too long, or no text.
pub fn text(input: impl Read) -> Result<String> {
    let mut text = String::new();
    Bounded::new(input, TEXT).read_to_string(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_long_is_refused_and_not_kept() {
        let all = |len: u64, most: u64| {
            let mut bytes = Vec::new();
            Bounded::new(std::io::repeat(b'x').take(len), most).read_to_end(&mut bytes).map(|n| n as u64)
        };
        assert_eq!(all(0, 0).unwrap(), 0);
        assert_eq!(all(5 << 20, 5 << 20).unwrap(), 5 << 20);
        let refused = all((5 << 20) + 1, 5 << 20).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::FileTooLarge);
        assert!(refused.to_string().contains("longer than 5 MiB"), "{refused}");
        assert_eq!(all(u64::MAX, 1 << 20).unwrap_err().kind(), ErrorKind::FileTooLarge);
        assert_eq!(text(std::io::repeat(0)).unwrap_err().kind(), ErrorKind::FileTooLarge);
        let rows = |text: &[u8]| Rows::new(text).read_to_end(&mut Vec::new()).is_ok();
        assert!(rows(&b"a row\n".repeat(1 << 20)) && !rows(&[b'x'; (1 << 20) + 1]));
    }
}
