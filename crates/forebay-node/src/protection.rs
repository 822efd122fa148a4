//! How what an I/O node exports is protected: all of it, and more of it where an export asks for that.

use crate::config::ExportConfig;
use forebay_types::Protect;
use serde::Deserialize;
use std::str::FromStr;

/// `HOW`, at least so for every export, or `EXPORT=HOW`, for one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Protection {
    export: Option<String>,
    how: Protect,
}

impl FromStr for Protection {
    type Err = String;

    fn from_str(text: &str) -> Result<Protection, String> {
        let (export, how) = match text.rsplit_once('=') {
            Some((name, how)) => (Some(name.to_owned()), how),
            None => (None, text),
        };
        Ok(Protection { export, how: how.parse()? })
    }
}

/// One, or a list of them, as a settings file has it.
#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "protect is `HOW`, or a list of `HOW` and `EXPORT=HOW`")]
pub(crate) enum Protections {
    One(String),
    Many(Vec<String>),
}

impl Protections {
    pub(crate) fn parse(self) -> Result<Vec<Protection>, String> {
        match self {
            Protections::One(text) => Ok(vec![text.parse()?]),
            Protections::Many(texts) => texts.iter().map(|text| text.parse()).collect(),
        }
    }
}

/// Sets what was asked for: of all exports, and of some of them.
pub(crate) fn ask(
    all: &mut Protect,
    exports: &mut [ExportConfig],
    asked: &[Protection],
) -> Result<(), String> {
    for Protection { export, how } in asked {
        let Some(name) = export else {
            *all = *how;
            continue;
        };
        let found = exports.iter_mut().find(|e| e.name == *name);
        found.ok_or_else(|| format!("protect: there is no export {name:?}"))?.protect = *how;
    }
    Ok(())
}
