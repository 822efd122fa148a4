//! The kinds of jobs, and the queue.

use forebay_policy::{Facts, scenario_name};
use forebay_types::{Operation, Spatiality};

/// I/O nodes.
pub(super) const NODES: u32 = 4;

/// Compute nodes of the machine.
pub(super) const MACHINE: u32 = 48;

/// A kind of job: an unmodified program, run by sh.
pub(super) struct Kind {
    pub(super) name: &'static str,
    pub(super) compute_nodes: u32,
    pub(super) processes: u32,
    pub(super) shared: bool,
    pub(super) request_kb: f64,
    pub(super) operation: Operation,
    /// What its bandwidth is bound by, for the reader.
    pub(super) bound: &'static str,
    /// `$D` is its directory, `$N` how much it is to do (1 is the small setting), made before: `$D/in`.
    pub(super) script: &'static str,
    /// MiB of `$D/in`.
    pub(super) input_mib: u64,
}

impl Kind {
    /// What it does, as a table of curves knows it.
    pub(super) fn facts(&self) -> Facts {
        Facts {
            compute_nodes: self.compute_nodes,
            processes: self.processes,
            shared: self.shared,
            spatiality: Spatiality::Contiguous,
            request_kb: self.request_kb,
            operation: self.operation,
        }
    }

    /// The name of its curve in such a table.
    pub(super) fn pattern(&self) -> String {
        scenario_name(self.name, &self.facts())
    }
}

pub(super) const KINDS: [Kind; 5] = [
    Kind {
        name: "checkpoint",
        compute_nodes: 12,
        processes: 12,
        shared: false,
        request_kb: 1024.0,
        operation: Operation::Write,
        bound: "the I/O nodes: 12 processes write a file each",
        script: "for i in 0 1 2 3 4 5 6 7 8 9 10 11; do dd if=/dev/zero of=$D/$i bs=1M count=$((16 * N)) status=none & P=\"$P $!\"; done; for p in $P; do wait $p || exit 1; done",
        input_mib: 0,
    },
    Kind {
        name: "analysis",
        compute_nodes: 12,
        processes: 12,
        shared: true,
        request_kb: 1024.0,
        operation: Operation::Read,
        bound: "the I/O nodes: 12 processes read parts of a file",
        script: "for i in 0 1 2 3 4 5 6 7 8 9 10 11; do dd if=$D/in of=/dev/null bs=1M skip=$((16 * N * i)) count=$((16 * N)) status=none & P=\"$P $!\"; done; for p in $P; do wait $p || exit 1; done",
        input_mib: 192,
    },
    Kind {
        name: "rank0",
        compute_nodes: 24,
        processes: 24,
        shared: false,
        request_kb: 1024.0,
        operation: Operation::Write,
        bound: "the one process that writes for all, one request at a time",
        script: "dd if=/dev/zero of=$D/all bs=1M count=$((128 * N)) status=none",
        input_mib: 0,
    },
    Kind {
        name: "solver",
        compute_nodes: 24,
        processes: 24,
        shared: false,
        request_kb: 1024.0,
        operation: Operation::Write,
        bound: "its computing: 0.7 s between writes of 2 MiB",
        script: "exec python3 -c 'import os,time\nfor i in range(6 * int(os.environ[\"N\"])):\n    time.sleep(0.7)\n    with open(os.environ[\"D\"] + \"/state\", \"r+b\" if i else \"wb\", buffering=0) as f:\n        f.write(bytes(2 << 20))'",
        input_mib: 0,
    },
    Kind {
        name: "ensemble",
        compute_nodes: 12,
        processes: 1,
        shared: false,
        request_kb: 8.0,
        operation: Operation::Write,
        bound: "the latency of one small file after the other",
        script: "i=0; while [ $i -lt $((40 * N)) ]; do head -c 65536 /dev/zero > $D/member$i || exit 1; i=$((i + 1)); done",
        input_mib: 0,
    },
];

const CHECKPOINT: usize = 0;
const ANALYSIS: usize = 1;
const RANK0: usize = 2;
const SOLVER: usize = 3;
const ENSEMBLE: usize = 4;

/// The jobs, first come, first served. At most 48 compute nodes' worth of them run at once.
pub(super) const QUEUE: [usize; 12] = [
    RANK0, CHECKPOINT, ENSEMBLE, ANALYSIS, SOLVER, CHECKPOINT, RANK0, ANALYSIS, CHECKPOINT, SOLVER, ANALYSIS,
    CHECKPOINT,
];
