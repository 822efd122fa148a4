//! Which data server holds which part of a file: asked from the file system once per open file, when a
//! scheduler first wants to know.

use crate::file::OpenFile;
use crate::sys::acting;
use forebay_sched::layout::{
    CephLayout, GlusterLayout, GlusterVolume, Layout, LustreLayout, Servers, Shards, Stripe,
};
use forebay_types::ServerId;
use rustix::fd::BorrowedFd;
use serde::Deserialize;

/// The longest layout worth reading: a Lustre file on 2,000 OSTs has one of 48 KiB.
const LONGEST: usize = 64 << 10;

/// Whom to ask.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum LayoutSource {
    /// Nobody: all files are striped alike.
    Stripe(Stripe),
    /// Lustre (`lustre.lov`).
    Lustre,
    /// CephFS (`ceph.file.layout`).
    Ceph,
    /// GlusterFS (`trusted.glusterfs.pathinfo`; the node must run as root).
    Gluster {
        /// The volume's bricks, `host:/directory`, in its order.
        bricks: Vec<String>,
        /// How many of them hold the same data.
        #[serde(default = "one", rename = "per-subvolume")]
        per_subvolume: usize,
        /// The volume's shard size in MiB, if it shards.
        #[serde(rename = "shard-mib")]
        shard_mib: Option<u64>,
    },
}

fn one() -> usize {
    1
}

impl Default for LayoutSource {
    fn default() -> LayoutSource {
        LayoutSource::Stripe(Stripe { size: 1 << 20, count: 1, first: 0 })
    }
}

impl LayoutSource {
    /// How many data servers there are, where this tells.
    pub(crate) fn servers(&self) -> Option<u32> {
        match self {
            LayoutSource::Stripe(s) => Some(s.count),
            LayoutSource::Gluster { bricks, per_subvolume, .. } => {
                Some(GlusterVolume::new(bricks.clone(), *per_subvolume).servers())
            }
            LayoutSource::Lustre | LayoutSource::Ceph => None,
        }
    }

    /// The data server of the byte at `offset`, and those of so many from there on.
    pub(crate) fn servers_of(&self, file: &OpenFile, offset: u64, len: u64) -> (ServerId, Servers) {
        let told = |l: &Layout| (l.server(offset), l.servers(offset, len));
        match self {
            LayoutSource::Stripe(stripe) => told(&Layout::Stripe(*stripe)),
            _ => file
                .layout
                // Some of it only root is told.
                .get_or_init(|| acting::as_node(|| self.ask(file.fd())).ok().flatten())
                .as_ref()
                .map_or((ServerId(0), ServerId(0).into()), told),
        }
    }

    /// `None` where the file system does not tell: such files count as one server's.
    fn ask(&self, fd: BorrowedFd<'_>) -> Option<Layout> {
        let attribute = |name: &str| {
            let mut value = vec![0; LONGEST];
            let n = rustix::fs::fgetxattr(fd, name, &mut value[..]).ok()?;
            value.truncate(n);
            Some(value)
        };
        let text = |name: &str| {
            String::from_utf8(attribute(name)?).ok().map(|t| t.trim_end_matches('\0').to_owned())
        };
        let parsed = match self {
            LayoutSource::Stripe(stripe) => Ok(Layout::Stripe(*stripe)),
            LayoutSource::Lustre => LustreLayout::parse(&attribute("lustre.lov")?).map(Layout::Lustre),
            LayoutSource::Ceph => CephLayout::parse(&text("ceph.file.layout")?).map(Layout::Ceph),
            LayoutSource::Gluster { bricks, per_subvolume, shard_mib } => {
                let volume = GlusterVolume::new(bricks.clone(), *per_subvolume);
                let shards = match shard_mib {
                    Some(mib) => Some(Shards {
                        gfid: text("glusterfs.gfid.string")?,
                        block: mib << 20,
                        table: volume.even_table("/.shard"),
                    }),
                    None => None,
                };
                volume
                    .file(&text("trusted.glusterfs.pathinfo")?)
                    .map(|base| Layout::Gluster(GlusterLayout { base, shards }))
            }
        };
        parsed.inspect_err(|e| tracing::warn!("{e}; the file counts as one server's")).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fd::AsFd;
    use std::fmt::Display;
    use std::os::unix::fs::FileExt;
    use std::path::{Path, PathBuf};
    use std::process::Command;

    const SHARD: u64 = 4 << 20;

    /// The GlusterFS of `scripts/gluster`, until dropped.
    struct Volume {
        dir: PathBuf,
    }

    impl Volume {
        fn script(what: &str, dir: &Path) -> Result<(), String> {
            let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/gluster");
            let out = Command::new(script).arg(what).arg(dir).output().map_err(|e| e.to_string())?;
            let text = String::from_utf8_lossy(&out.stderr).trim().to_owned();
            if out.status.success() { Ok(()) } else { Err(text) }
        }

        fn start() -> Result<Volume, String> {
            let dir = std::env::temp_dir().join(format!("fg-{}", std::process::id()));
            Volume::script("start", &dir)?;
            Ok(Volume { dir })
        }

        fn brick(&self, n: u32) -> PathBuf {
            self.dir.join("bricks").join((n + 1).to_string())
        }
    }

    impl Drop for Volume {
        fn drop(&mut self) {
            if let Err(e) = Volume::script("stop", &self.dir) {
                eprintln!("cannot stop {}: {e}", self.dir.display());
            }
        }
    }

    fn skip(why: impl Display) {
        forebay_testkit::skipped(
            "a_real_gluster_volume_has_its_data_where_the_layout_says",
            &why.to_string(),
        );
    }

    fn holds(path: &Path) -> bool {
        std::fs::metadata(path).is_ok_and(|m| m.len() > 0)
    }

    #[test]
    fn a_real_gluster_volume_has_its_data_where_the_layout_says() {
        let installed = |tool: &str| Command::new(tool).arg("--version").output().is_ok();
        if !rustix::process::geteuid().is_root() {
            return skip("only root can mount it");
        }
        if !installed("glusterd") || !installed("glusterfs") {
            return skip("glusterfs-server and glusterfs-client are not installed");
        }
        let volume = match Volume::start() {
            Ok(volume) => volume,
            Err(e) => return skip(e),
        };
        let bricks = (0..4).map(|n| format!("10.91.7.1:{}", volume.brick(n).display())).collect();
        let source = LayoutSource::Gluster { bricks, per_subvolume: 1, shard_mib: Some(SHARD >> 20) };
        let (mut used, mut shards) = ([false; 4], 0);
        for name in ["a", "some-longer-name.dat", "dir/c"] {
            let path = volume.dir.join("mount").join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            let file = std::fs::File::create(&path).unwrap();
            for block in 0..12 {
                file.write_all_at(&[block as u8 + 1; 4096], block * SHARD + 77).unwrap();
            }
            file.sync_all().unwrap();
            let layout = source.ask(file.as_fd()).expect("the volume tells");
            let Layout::Gluster(GlusterLayout { shards: Some(Shards { gfid, .. }), .. }) = &layout else {
                panic!("a sharded file: {layout:?}");
            };
            for block in 0..12 {
                let server = layout.server(block * SHARD + 77);
                let found: Vec<u32> = (0..4)
                    .filter(|n| {
                        let brick = volume.brick(*n);
                        let inside = if block == 0 {
                            PathBuf::from(name)
                        } else {
                            PathBuf::from(format!(".shard/{gfid}.{block}"))
                        };
                        holds(&brick.join(inside))
                    })
                    .collect();
                assert_eq!(found, [server.0], "{name}, block {block}");
                used[server.0 as usize] = true;
                shards += 1;
            }
        }
        assert_eq!((shards, used), (36, [true; 4]));
    }
}
