//! What every test of schedulers begins with.

use forebay_sched::{Request, Scheduler, SchedulerConfig, Site, build};
use forebay_types::{FileId, FlowId, Nanos, OpKind, RequestId, ServerId};
use rand::SeedableRng;
use rand::rngs::StdRng;

pub(crate) const SERVERS: u32 = 4;

pub(crate) fn scheduler(config: &str) -> Box<dyn Scheduler> {
    let config: SchedulerConfig = config.parse().unwrap();
    build(&config, Site { node: 0, servers: SERVERS })
}

/// A read of 4 KiB by flow 0 at the start of file 0, to be changed with struct update.
pub(crate) fn request(id: u64) -> Request {
    Request {
        id: RequestId(id),
        arrival: Nanos(id),
        file: FileId(0),
        offset: 0,
        len: 4096,
        flow: FlowId(0),
        server: ServerId(0),
        op: OpKind::Read,
    }
}

pub(crate) fn rng(seed: u64) -> StdRng {
    StdRng::seed_from_u64(seed)
}
