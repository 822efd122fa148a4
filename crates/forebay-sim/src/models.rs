//! The storage models by name. Every experiment uses one of these; none has constants of its own.

use forebay_sched::emulate::StorageModel;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The models that ship with Forebay.
pub const BUILT_IN: &str = include_str!("../../../data/storage-models.toml");

/// A storage model and where it comes from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct NamedModel {
    /// What it stands for, how its figures were found, and how well it predicts.
    pub note: String,
    /// The model.
    pub storage: StorageModel,
}

/// Why there is no such model.
#[derive(Debug, thiserror::Error)]
pub enum ModelsError {
    /// The file is no file of models.
    #[error("not a file of storage models: {0}")]
    Toml(#[from] toml::de::Error),
    /// There is none of this name.
    #[error("there is no storage model {name:?}; there are {known}")]
    Unknown {
        /// What was asked for.
        name: String,
        /// What there is.
        known: String,
    },
}

/// Reads a file of models.
pub fn parse(text: &str) -> Result<BTreeMap<String, NamedModel>, ModelsError> {
    Ok(toml::from_str(text)?)
}

/// One of those that ship with Forebay.
pub fn named(name: &str) -> Result<NamedModel, ModelsError> {
    let mut all = parse(BUILT_IN)?;
    let known = all.keys().cloned().collect::<Vec<_>>().join(", ");
    all.remove(name).ok_or_else(|| ModelsError::Unknown { name: name.to_owned(), known })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_model_that_ships_can_be_read_and_says_where_it_is_from() {
        let all = parse(BUILT_IN).unwrap();
        assert!(all.contains_key("pvfs-paper") && all.contains_key("disk"));
        assert!(all.values().all(|m| !m.note.is_empty() && m.storage.servers > 0));
        assert_eq!(all["disk"].storage, StorageModel::default());
        let error = named("floppy").unwrap_err().to_string();
        assert!(error.contains("pvfs-paper"), "{error}");
    }
}
