//! The statistics of a study: pure functions of samples.

mod moments;
mod ranks;

pub use forebay_types::stats::{median, quantile};
pub use moments::{Interval, mean, std_dev, t_interval};
pub use ranks::{Comparison, Dunn, KruskalWallis, dunn, kruskal_wallis, ranks, spearman};
