//! What one interval of a flow looked like on one I/O node: the row that is reported, stored,
//! learned from and classified.

use crate::{Bandwidth, FileId, FlowId, IoMode, Nanos};
use serde::{Deserialize, Serialize};

/// One interval on one I/O node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// When it began.
    pub start: Nanos,
    /// When it ended.
    pub end: Nanos,
    /// The node's work, all flows together.
    pub load: Load,
    /// The flows that did something, by flow id.
    pub flows: Vec<FlowMetrics>,
}

impl Interval {
    /// The flow that moved the most bytes, if any moved any.
    pub fn dominant(&self) -> Option<&FlowMetrics> {
        self.flows.iter().filter(|f| f.bytes() > 0).max_by_key(|f| (f.bytes(), std::cmp::Reverse(f.flow)))
    }
}

/// How much work was offered and how much of it was done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Load {
    /// Bytes the arriving requests asked for.
    pub offered: u64,
    /// Bytes moved by the requests that were completed.
    pub served: u64,
    /// How long at least one request was waiting or in service.
    pub busy: Nanos,
    /// Requests waiting or in service, averaged over the busy time.
    pub outstanding: f64,
}

impl Load {
    /// The rate while there was something to do: unlike bytes over the interval, it does not fall
    /// when the application merely asks for less.
    pub fn service_rate(&self) -> Bandwidth {
        Bandwidth::of(self.served, self.busy)
    }
}

/// One interval of one flow on one I/O node. Only requests of this interval count, except that a
/// request is compared with the one before it even when that one came in an earlier interval.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FlowMetrics {
    /// Whose requests these are.
    pub flow: FlowId,
    /// Files that were read or written ("file handles" in the thesis).
    pub files: u32,
    /// Client processes that asked for anything.
    pub clients: u32,
    /// Pairs of a client and a file that were in use.
    pub streams: u32,
    /// The file with the most requests on it at the interval's end, to tell sharing across nodes.
    pub top_file: Option<FileId>,
    /// Read requests.
    pub reads: u64,
    /// Write requests.
    pub writes: u64,
    /// Metadata requests.
    pub metadata: u64,
    /// Bytes asked for by reads.
    pub bytes_read: u64,
    /// Bytes brought by writes.
    pub bytes_written: u64,
    /// Smallest read or write.
    pub size_min: u64,
    /// Mean read or write.
    pub size_mean: f64,
    /// Largest read or write.
    pub size_max: u64,
    /// Median size, to within a quarter.
    pub size_p50: u64,
    /// Size that 90 % of the requests do not exceed, to within a quarter.
    pub size_p90: u64,
    /// Size that 99 % of the requests do not exceed, to within a quarter.
    pub size_p99: u64,
    /// Mean absolute distance between the offsets of consecutive requests to a file, whoever sent
    /// them.
    pub offset_distance: f64,
    /// Requests that have a predecessor of the same client on the same file.
    pub judged: u64,
    /// Of those: requests that begin where the predecessor ended.
    pub sequential: u64,
    /// Of the others: requests that lie further on.
    pub forward: u64,
    /// Of the others: requests whose client had jumped on this file before.
    pub jumps: u64,
    /// Of `jumps`: jumps of the same width as the client's last one.
    pub regular: u64,
    /// Mean absolute width of a jump.
    pub jump_width: f64,
    /// Mean time between arrivals, in seconds.
    pub arrival_mean: f64,
    /// Standard deviation of the time between arrivals over its mean: 0 regular, 1 Poisson, more in bursts.
    pub arrival_cv: f64,
    /// Bytes moved by completed requests: less than they asked for where a file ends.
    pub served: u64,
    /// Of those, what was read; some I/O nodes do not tell.
    #[serde(default)]
    pub served_read: Option<u64>,
    /// How long at least one request was waiting or in service, in nanoseconds.
    pub busy: Nanos,
    /// Requests waiting or in service, averaged over the busy time.
    pub outstanding: f64,
}

impl FlowMetrics {
    /// Reads and writes.
    pub fn data_requests(&self) -> u64 {
        self.reads.saturating_add(self.writes)
    }

    /// Bytes read and written; of I/O nodes that do not tell, bytes asked for.
    pub fn moved(&self) -> (u64, u64) {
        let told = self.served_read.map(|read| (read, self.served.saturating_sub(read)));
        told.unwrap_or((self.bytes_read, self.bytes_written))
    }

    /// Bytes asked for.
    pub fn bytes(&self) -> u64 {
        self.bytes_read.saturating_add(self.bytes_written)
    }

    /// The share of reads among reads and writes, by bytes; 0 if there are none.
    pub fn read_share(&self) -> f64 {
        if self.bytes() == 0 { 0.0 } else { self.bytes_read as f64 / self.bytes() as f64 }
    }

    /// Metadata operations per second of an interval of length `span`.
    pub fn metadata_rate(&self, span: Nanos) -> f64 {
        if span.0 == 0 { 0.0 } else { self.metadata as f64 / span.as_secs_f64() }
    }

    /// The I/O mode of this flow as this node sees it; `None` without reads or writes.
    pub fn mode(&self) -> Option<IoMode> {
        mode_of_job([self])
    }
}

/// The I/O mode of one job from what several I/O nodes saw of it in the same interval. A file that
/// is the busiest one on two nodes is shared, even if each node sees a single client.
pub fn mode_of_job<'a>(nodes: impl IntoIterator<Item = &'a FlowMetrics>) -> Option<IoMode> {
    let seen: Vec<&FlowMetrics> = nodes.into_iter().filter(|m| m.data_requests() > 0).collect();
    let clients: u64 = seen.iter().map(|m| u64::from(m.clients)).sum();
    let files: u64 = seen.iter().map(|m| u64::from(m.files)).sum();
    let streams: u64 = seen.iter().map(|m| u64::from(m.streams)).sum();
    if seen.is_empty() {
        return None;
    }
    if clients <= 1 {
        return Some(IoMode::OneTo1);
    }
    let mut tops: Vec<FileId> = seen.iter().filter_map(|m| m.top_file).collect();
    let nodes_with_a_file = tops.len();
    tops.sort_unstable();
    tops.dedup();
    // Shared: half as many clients again as files, or the same file on top of several nodes.
    let shared_here = streams * 2 >= files * 3;
    let shared_across = tops.len() < nodes_with_a_file;
    Some(if shared_here || shared_across { IoMode::NTo1 } else { IoMode::NToN })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metrics(clients: u32, files: u32, streams: u32, top: u64) -> FlowMetrics {
        FlowMetrics { clients, files, streams, writes: 10, top_file: Some(FileId(top)), ..Default::default() }
    }

    #[test]
    fn modes() {
        assert_eq!(metrics(8, 8, 8, 1).mode(), Some(IoMode::NToN));
        assert_eq!(metrics(8, 1, 8, 1).mode(), Some(IoMode::NTo1));
        assert_eq!(metrics(1, 1, 1, 1).mode(), Some(IoMode::OneTo1));
        assert_eq!(metrics(1, 20, 20, 1).mode(), Some(IoMode::OneTo1));
        assert_eq!(FlowMetrics::default().mode(), None);
    }

    #[test]
    fn one_client_a_node_is_told_apart_by_the_file() {
        let shared = [metrics(1, 1, 1, 7), metrics(1, 1, 1, 7)];
        let own = [metrics(1, 1, 1, 7), metrics(1, 1, 1, 8)];
        assert_eq!(mode_of_job(&shared), Some(IoMode::NTo1));
        assert_eq!(mode_of_job(&own), Some(IoMode::NToN));
    }
}
