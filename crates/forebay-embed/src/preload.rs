//! The preload library that the program carries.

use crate::rundir::can_preload;
use crate::{EmbedError, Layer};
use std::path::PathBuf;

/// The library, as a file's content.
pub static PRELOAD: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/libforebay_preload.so"));

impl Layer {
    /// Puts the library into the run's directory; its name is for `LD_PRELOAD`.
    pub fn write_preload(&self) -> Result<PathBuf, EmbedError> {
        let library = self.dir().join("libforebay.so");
        if !can_preload(&library) {
            return Err(EmbedError::Argument(format!(
                "{}: the loader takes no library below a directory with a space, `:` or `$` in its name: \
                 choose another one",
                self.dir().display()
            )));
        }
        std::fs::write(&library, PRELOAD).map_err(EmbedError::io("cannot write", &library))?;
        Ok(library)
    }
}
