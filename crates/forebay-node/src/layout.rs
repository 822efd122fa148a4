//! Which data server holds which part of a file: asked from the file system once per open file, when a
//! scheduler first wants to know.

use crate::file::OpenFile;
use forebay_sched::layout::{CephLayout, GlusterLayout, GlusterVolume, Layout, LustreLayout, Shards, Stripe};
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

    /// The data server of the byte at `offset`.
    pub(crate) fn server(&self, file: &OpenFile, offset: u64) -> ServerId {
        match self {
            LayoutSource::Stripe(stripe) => stripe.server(offset),
            _ => file
                .layout
                .get_or_init(|| self.ask(file.fd()))
                .as_ref()
                .map_or(ServerId(0), |l| l.server(offset)),
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
