//! The experiments of the sources in virtual time, on the emulated storage.
//!
//! `twins [MODEL [WORKERS]]`: 32 processes, 4 I/O nodes, reads under fifo, hbrr and seven windows.
//! `isolation [MODEL [MIB [WORKERS [SFQ-D-PLUS]]]]`: small bursts against 32 MiB writes in pieces.
//! `metadata [MODEL]`: two jobs of metadata operations with weights 2 and 1.
//! MODEL is the storage model as JSON; `{}` is the default.

#[path = "../tests/common/workloads.rs"]
mod workloads;
#[path = "../tests/common/world.rs"]
mod world;

use forebay_sched::emulate::StorageModel;
use forebay_types::Nanos;
use workloads::{Pattern, large_writes, metadata, readers, small_bursts};
use world::{Process, Seen, World};

const WINDOWS: [&str; 7] = ["125us", "250us", "500us", "1ms", "2ms", "4ms", "8ms"];
const SPAN: Nanos = Nanos::from_secs(20);

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let arg = |i: usize, default: &str| args.get(i).cloned().unwrap_or(default.to_owned());
    let model = |default: &str| serde_json::from_str(&arg(1, default)).expect("a storage model as JSON");
    let number = |i: usize, default: &str| arg(i, default).parse().expect("a number");
    match arg(0, "").as_str() {
        "twins" => twins(model("{}"), number(2, "16")),
        "isolation" => {
            let model = model(r#"{"server":{"seek":"100us"}}"#);
            isolation(model, (number(2, "4") as u64) << 20, number(3, "64"), &arg(4, "sfq-d-plus"));
        }
        "metadata" => two_to_one(model("{}")),
        _ => eprintln!("twins, isolation or metadata? See the head of this file."),
    }
}

fn twins(model: StorageModel, workers: usize) {
    println!("{}", serde_json::to_string(&model).expect("a model is plain data"));
    let windows = WINDOWS.iter().map(|w| format!("twins:window={w}"));
    let schedulers: Vec<String> = ["fifo", "hbrr"].map(str::to_owned).into_iter().chain(windows).collect();
    print!("{:<18}", "time (mean size)");
    for s in &schedulers {
        print!(" {:>13}", s.trim_start_matches("twins:window="));
    }
    println!();
    for pattern in [Pattern::SharedContiguous, Pattern::SharedStrided, Pattern::FilePerProcess] {
        print!("{:<18}", format!("{pattern:?}"));
        for s in &schedulers {
            let mut world = World::new(model.clone(), s, 4, workers, readers(pattern, 256));
            let time = world.run(Nanos(u64::MAX >> 1));
            print!(" {:>6.3} s {:>2} KiB", time.as_secs_f64(), (world.seen[0].bytes / world.batches) >> 10);
        }
        println!();
    }
}

fn run(model: &StorageModel, scheduler: &str, workers: usize, processes: Vec<Process>) -> Vec<Seen> {
    let mut world = World::new(model.clone(), scheduler, 1, workers, processes);
    world.run(SPAN);
    world.seen
}

fn isolation(model: StorageModel, piece: u64, workers: usize, plus: &str) {
    let rate = |s: &Seen| s.bytes as f64 / SPAN.as_secs_f64() / 1e6;
    // What one small request takes, as its process sees it.
    let wait = |s: &Seen| s.io_time.as_secs_f64() * 1e3 / s.requests as f64;
    let alone = run(&model, "fifo", workers, small_bursts())[0];
    let large = run(&model, "fifo", workers, large_writes(piece))[1];
    println!("alone: small {:.2} ms, {:.2} MB/s; large {:.1} MB/s", wait(&alone), rate(&alone), rate(&large));
    for s in ["fifo", "sfq-d", plus, "capped:rate=20MB"] {
        let mut both = small_bursts();
        both.extend(large_writes(piece));
        let seen = run(&model, s, workers, both);
        let (a, b) = (rate(&seen[0]), rate(&seen[1]));
        println!(
            "{s:<20} small {:>8.2} ms, slowdown {:>7.2}; small {a:>6.3}, large {b:>6.1}, total {:>6.1} MB/s",
            wait(&seen[0]),
            wait(&seen[0]) / wait(&alone),
            a + b
        );
    }
}

fn two_to_one(model: StorageModel) {
    for scheduler in ["fifo", "wfq:quantum=10KB", "sfq-d", "sfq-d-plus"] {
        let mut world = World::new(model.clone(), scheduler, 1, 8, metadata());
        world.set_weight(0, 2);
        world.run(SPAN);
        let [a, b] = [0, 1].map(|f| world.seen[f].requests as f64 / SPAN.as_secs_f64());
        println!(
            "{scheduler:<16} {a:>7.0} and {b:>7.0} operations/s, Jain's index {:.4}",
            world.accounts(0).jain()
        );
    }
}
