//! The detector's file, which may be replaced while the arbiter runs.

use forebay_pattern::{KeptError, MODEL_FILE, Model};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Why there is no model in the file.
#[derive(Debug, thiserror::Error)]
pub enum ModelFileError {
    /// It cannot be read.
    #[error("cannot read the model {file}: {error}")]
    Io {
        /// Which file.
        file: String,
        /// What the system says.
        error: std::io::Error,
    },
    /// It holds no model.
    #[error("{file}: {error}")]
    Model {
        /// Which file.
        file: String,
        /// What is wrong with it.
        error: KeptError,
    },
}

/// The file and which state of it was read.
#[derive(Debug)]
pub struct ModelFile {
    path: PathBuf,
    seen: Option<(SystemTime, u64)>,
}

impl ModelFile {
    /// Reads the model in the file for the first time.
    pub fn open(path: &Path) -> Result<(ModelFile, Model), ModelFileError> {
        let mut file = ModelFile { path: path.to_owned(), seen: None };
        file.seen = file.state();
        let model = file.read()?;
        Ok((file, model))
    }

    /// The model, if the file has changed since it was last looked at.
    pub fn changed(&mut self) -> Option<Result<Model, ModelFileError>> {
        let state = self.state();
        // A file that is gone for a moment is being replaced.
        if state.is_none() || state == self.seen {
            return None;
        }
        self.seen = state;
        Some(self.read())
    }

    fn state(&self) -> Option<(SystemTime, u64)> {
        let meta = std::fs::metadata(&self.path).ok()?;
        Some((meta.modified().ok()?, meta.len()))
    }

    fn read(&self) -> Result<Model, ModelFileError> {
        let file = self.path.display().to_string();
        let mut bytes = Vec::new();
        // One byte more than is allowed, so that a file that is too large is noticed.
        let read = File::open(&self.path)
            .and_then(|f| f.take(MODEL_FILE.max_bytes as u64 + 1).read_to_end(&mut bytes));
        match read {
            Err(error) => Err(ModelFileError::Io { file, error }),
            Ok(_) => Model::from_json(&bytes).map_err(|error| ModelFileError::Model { file, error }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_model_is_noticed_and_a_broken_one_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("model.json");
        assert!(matches!(ModelFile::open(&path), Err(ModelFileError::Io { .. })));
        let mut model = Model::builtin();
        std::fs::write(&path, model.to_json()).unwrap();
        let (mut file, _) = ModelFile::open(&path).unwrap();
        assert!(file.changed().is_none());
        model.trained_on = "something else, said at length".into();
        std::fs::write(&path, model.to_json()).unwrap();
        assert_eq!(file.changed().unwrap().unwrap().trained_on, model.trained_on);
        std::fs::write(&path, "{}").unwrap();
        assert!(file.changed().unwrap().unwrap_err().to_string().contains("model.json"));
        std::fs::remove_file(&path).unwrap();
        assert!(file.changed().is_none(), "it goes on with what it has");
    }
}
