//! A request as a scheduler sees it. The payload stays with the node, which finds it by the id.

use forebay_types::{FileId, FlowId, Nanos, OpKind, RequestId, ServerId};

/// What one metadata operation costs when a flow's service is counted in bytes.
pub const METADATA_COST: u64 = 10_000;

/// One request that waits to be served. It is small and `Copy`: schedulers move it by value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Who it is; comes back in the [`crate::Batch`].
    pub id: RequestId,
    /// When the node took it.
    pub arrival: Nanos,
    /// The file it concerns.
    pub file: FileId,
    /// Where it starts in the file.
    pub offset: u64,
    /// How many bytes it moves; zero for metadata.
    pub len: u64,
    /// Whose it is.
    pub flow: FlowId,
    /// The data server that holds its first byte.
    pub server: ServerId,
    /// What it does.
    pub op: OpKind,
}

impl Request {
    /// The first byte after it.
    pub fn end(&self) -> u64 {
        self.offset.saturating_add(self.len)
    }

    /// What it costs in bytes of service: its length, at least one, or `metadata` for metadata.
    pub fn cost(&self, metadata: u64) -> u64 {
        match self.op {
            OpKind::Metadata => metadata.max(1),
            OpKind::Read | OpKind::Write => self.len.max(1),
        }
    }

    /// Whether the two touch a common byte of a file and one of them writes: then their order counts.
    /// An empty one counts as one byte.
    pub fn conflicts(&self, other: &Request) -> bool {
        let data = self.op != OpKind::Metadata && other.op != OpKind::Metadata;
        self.file == other.file
            && data
            && (self.op == OpKind::Write || other.op == OpKind::Write)
            && self.offset < other.offset.saturating_add(other.len.max(1))
            && other.offset < self.offset.saturating_add(self.len.max(1))
    }
}
