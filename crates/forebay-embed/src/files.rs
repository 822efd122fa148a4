//! Files that only this user may read.

use crate::EmbedError;
use forebay_client::Config;
use std::path::Path;

/// Writes a client's configuration to a file that only this user may read; whoever reads it meanwhile
/// finds the old one or the new one.
pub fn write_config(path: &Path, config: &Config) -> Result<(), EmbedError> {
    // What a program's processes could not use would leave them without their I/O nodes, and unnoticed.
    let json = config.to_json().map_err(|e| EmbedError::Argument(e.to_string()))?;
    let new = path.with_extension("new");
    let _ = std::fs::remove_file(&new);
    write_private(&new, &json)?;
    std::fs::rename(&new, path).map_err(EmbedError::io("cannot write", path))
}

pub(crate) fn write_private(path: &Path, bytes: &[u8]) -> Result<(), EmbedError> {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    std::fs::File::options()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
        .and_then(|mut f| f.write_all(bytes))
        .map_err(EmbedError::io("cannot write", path))
}
