//! Where exports are mounted, and in which order: outer directories first, so that of directories within each other the
//! innermost counts, however they were given.

use anyhow::{Context, Result, bail};
use forebay_client::{Answer, Client, Config, Error, ExportId, ExportMap, Meta, Path as Name, Target};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The exports to mount, outer directories first. One that is there by two names is mounted once.
pub(crate) fn places(config: &Config) -> Vec<(u16, ExportMap)> {
    let mut seen: Vec<PathBuf> = Vec::new();
    let mut all = Vec::new();
    for (n, map) in config.exports.iter().enumerate() {
        let (on_host, dir) = (resolved(&map.dir), place(&map.dir, &config.exports));
        if let Ok(n) = u16::try_from(n)
            && ![&on_host, &dir].into_iter().any(|d| seen.contains(d))
        {
            seen.extend([on_host, dir.clone()]);
            all.push((n, ExportMap { dir, ..map.clone() }));
        }
    }
    all.sort_by_key(|(_, map)| map.dir.components().count());
    all
}

/// Without symbolic links, as far as it is there.
fn resolved(dir: &Path) -> PathBuf {
    match (std::fs::canonicalize(dir), dir.parent(), dir.file_name()) {
        (Ok(real), ..) => real,
        (Err(_), Some(parent), Some(name)) => resolved(parent).join(name),
        (Err(_), ..) => dir.to_owned(),
    }
}

/// Where a directory is once those around it are mounted: what lies below them on the host is not seen any more.
fn place(dir: &Path, all: &[ExportMap]) -> PathBuf {
    let around = all.iter().map(|map| map.dir.as_path()).filter(|d| *d != dir && dir.starts_with(d));
    let outer = around.max_by_key(|d| d.components().count());
    match outer.and_then(|outer| Some((outer, dir.strip_prefix(outer).ok()?))) {
        Some((outer, rest)) => place(outer, all).join(rest),
        None => resolved(dir),
    }
}

/// Whether all places are there to be mounted on. What is within another one is looked for by way of the I/O nodes: through
/// the mount it would be this very process that has to answer, and it may be about to end.
pub(super) fn are_there(places: &[(u16, ExportMap)], client: &Client) -> Result<()> {
    for (n, (_, map)) in places.iter().enumerate() {
        let outer = places[..n].iter().rev().find(|(_, outer)| map.dir.starts_with(&outer.dir));
        let Some((export, outer)) = outer else {
            if !map.dir.is_dir() {
                bail!("{}: no such directory to mount on: make it first", map.dir.display());
            }
            continue;
        };
        let within = map.dir.strip_prefix(&outer.dir).unwrap_or(&map.dir);
        if !is_dir(client, ExportId(*export), within)
            .with_context(|| format!("--at {}", map.dir.display()))?
        {
            bail!(
                "cannot mount on {}: {} shows what is in {}, which has no directory {}: make it there",
                map.dir.display(),
                outer.dir.display(),
                outer.export,
                within.display()
            );
        }
    }
    Ok(())
}

/// A symbolic link is none: what is mounted has to be found again to be unmounted.
fn is_dir(client: &Client, export: ExportId, within: &Path) -> Result<bool, Error> {
    let target = Target::Link(Name { export, rel: within.as_os_str().as_bytes() });
    let mode = |answer: Answer<'_>| match answer {
        Answer::Attr(attr) => Some(attr.mode),
        _ => None,
    };
    match client.meta(Meta::Stat { target }, mode) {
        Ok(mode) => Ok(mode & libc::S_IFMT == libc::S_IFDIR),
        Err(Error::Refused { errno: libc::ENOENT | libc::ENOTDIR, .. }) => Ok(false),
        Err(e) => Err(e),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn outer_ones_come_first_and_what_they_hide_does_not_count() {
        let top = tempfile::tempdir().unwrap();
        let top = top.path().canonicalize().unwrap();
        let at = |name: &str| top.join(name);
        std::fs::create_dir_all(at("real")).unwrap();
        std::fs::create_dir_all(at("elsewhere")).unwrap();
        symlink(at("real"), at("mp")).unwrap();
        symlink(at("elsewhere"), at("real/sub")).unwrap();
        let map = |dir: &str, export: &str| ExportMap { dir: at(dir), export: export.into(), local: None };
        let exports =
            vec![map("mp/sub/deep", "C"), map("mp/sub", "B"), map("elsewhere", "B"), map("mp", "A")];
        let config = Config { exports, ..Config::new("job", "0".repeat(64), Vec::new()) };
        let found: Vec<_> = places(&config).into_iter().map(|(n, map)| (n, map.dir)).collect();
        assert_eq!(found, [(3, at("real")), (1, at("real/sub")), (0, at("real/sub/deep"))]);
    }
}
