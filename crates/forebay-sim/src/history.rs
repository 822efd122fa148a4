//! What DFRA would know of a job whose bandwidth curve is all that was measured.

use forebay_policy::BandwidthCurve;
use forebay_policy::dfra::{DfraConfig, IoProfile};
use forebay_types::IoMode;

/// The highest bandwidth on a curve, MB/s.
pub(crate) fn best(curve: &BandwidthCurve) -> f64 {
    curve.points().iter().map(|p| p.bandwidth.0).fold(0.0, f64::max)
}

/// A run of `bytes` in which all compute nodes did I/O, no metadata to speak of.
pub(crate) fn profile(curve: &BandwidthCurve, compute_nodes: u32, mode: IoMode, bytes: f64) -> IoProfile {
    IoProfile {
        bytes: bytes as u64,
        io_compute_nodes: compute_nodes,
        mode,
        bandwidth_mbs: best(curve),
        iops: 0.0,
        metadata_rate: 0.0,
        metadata_waiting: 0.0,
    }
}

/// DFRA's two peak bandwidths for the machine that was measured: what one I/O node gave at most, and
/// what one compute node did.
pub(crate) fn with_peaks<'a>(
    mut config: DfraConfig,
    curves: impl Iterator<Item = (&'a BandwidthCurve, u32)>,
) -> DfraConfig {
    let (mut io_node, mut compute_node) = (0.0f64, 0.0f64);
    for (curve, compute_nodes) in curves {
        io_node = io_node.max(curve.at(1).map_or(0.0, |b| b.0));
        compute_node = compute_node.max(best(curve) / f64::from(compute_nodes.max(1)));
    }
    if io_node > 0.0 && compute_node > 0.0 {
        config.io_node_peak_mbs = io_node;
        config.compute_node_peak_mbs = compute_node;
    }
    config
}
