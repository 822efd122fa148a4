//! The libraries for programs that this one carries.

use crate::rundir::can_preload;
use crate::{EmbedError, Layer};
use std::path::PathBuf;

/// The library, as a file's content.
pub static PRELOAD: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/libforebay_preload.so"));

/// The accelerator of mounts, the same.
pub static ACCELERATOR: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/libforebay_accelerator.so"));
/// The accelerator's file in a run's directory.
pub const ACCELERATOR_FILE: &str = "libforebay-accelerator.so";

impl Layer {
    /// Puts the library into the run's directory; its name is for `LD_PRELOAD`.
    pub fn write_preload(&self) -> Result<PathBuf, EmbedError> {
        self.write_library("libforebay.so", PRELOAD)
    }

    /// Puts the accelerator there.
    pub fn write_accelerator(&self) -> Result<PathBuf, EmbedError> {
        self.write_library(ACCELERATOR_FILE, ACCELERATOR)
    }

    fn write_library(&self, name: &str, contents: &[u8]) -> Result<PathBuf, EmbedError> {
        let library = self.dir().join(name);
        if !can_preload(&library) {
            return Err(EmbedError::Argument(format!(
                "{}: the loader takes no library below a directory with a space, `:` or `$` in its name: \
                 choose another one",
                self.dir().display()
            )));
        }
        std::fs::write(&library, contents).map_err(EmbedError::io("cannot write", &library))?;
        Ok(library)
    }
}
