//! One of each chart on an HTML page: `cargo run -p forebay-plot --example gallery > gallery.html`.

use forebay_plot::*;

fn main() {
    let names = ["0", "1", "2", "4", "8"];
    let line = Line {
        title: "Bandwidth by I/O nodes, shared file, 1 MiB writes".into(),
        x: Axis::categories("I/O nodes", names),
        y: Axis::linear("MB/s"),
        series: vec![
            Series {
                samples: (0..25)
                    .map(|i| (f64::from(i % 5), 900.0 + f64::from(i * 37 % 170) + f64::from(i % 5) * 150.0))
                    .collect(),
                ..Series::with_range(
                    "contiguous",
                    (0..5).map(|i| {
                        (
                            f64::from(i),
                            1000.0 + 150.0 * f64::from(i),
                            900.0 + 140.0 * f64::from(i),
                            1100.0 + 160.0 * f64::from(i),
                        )
                    }),
                )
            },
            Series::with_range(
                "1D-strided",
                (0..5).map(|i| {
                    (
                        f64::from(i),
                        1400.0 - 120.0 * f64::from(i),
                        1350.0 - 140.0 * f64::from(i),
                        1500.0 - 110.0 * f64::from(i),
                    )
                }),
            ),
            Series::new("file per process", (0..5).map(|i| (f64::from(i), 700.0 + 20.0 * f64::from(i)))),
        ],
        ..Line::default()
    };
    let log = Line {
        title: "Latency by request size".into(),
        x: Axis::log2("request size").formatted(bytes),
        y: Axis::log10("latency").formatted(seconds),
        series: vec![
            Series::with_range(
                "direct",
                (9..24).map(|e| {
                    let v = 1e-5 + f64::powi(2.0, e) / 3e9;
                    (f64::powi(2.0, e), v, v * 0.7, v * 1.6)
                }),
            ),
            Series::new("forwarded", (9..24).map(|e| (f64::powi(2.0, e), 4e-5 + f64::powi(2.0, e) / 2e9))),
        ],
        spread: Spread::Bars,
        ..Line::default()
    };
    let bars = Bars {
        title: "Scenarios by best I/O node count".into(),
        x_label: "I/O nodes".into(),
        categories: names.map(String::from).to_vec(),
        y: Axis::linear("scenarios"),
        series: vec![
            BarSeries::new("published", [62.0, 12.0, 83.0, 15.0, 17.0]),
            BarSeries::new("corrected", [60.0, 14.0, 83.0, 15.0, 17.0]),
        ],
        labels: true,
        ..Bars::default()
    };
    let stacked = Bars { title: "The same, stacked".into(), stacked: true, ..bars.clone() };
    let heat = HeatMap {
        title: "Slowdown of one application by another".into(),
        columns: ["MPI-IO N-1", "APT", "DNDC", "WRF-1", "Shentu"].map(String::from).to_vec(),
        rows: ["MPI-IO N-1", "APT", "DNDC", "WRF-1", "Shentu"].map(String::from).to_vec(),
        x_label: "neighbour".into(),
        y_label: "application".into(),
        cells: (0..5)
            .map(|r| {
                (0..5)
                    .map(|c| if r == c { f64::NAN } else { 1.0 + f64::from((r * 7 + c * 13) % 29) })
                    .collect()
            })
            .collect(),
        shades: Shades::Logarithmic,
        ..HeatMap::default()
    };
    let change = HeatMap {
        title: "Change against FIFO".into(),
        columns: (0..7).map(|i| seconds(125e-6 * f64::from(1 << i))).collect(),
        rows: ["read shared", "write shared", "read own"].map(String::from).to_vec(),
        cells: (0..3)
            .map(|r| (0..7).map(|c| f64::from((r * 5 + c * 3) % 11) / 20.0 - 0.25).collect())
            .collect(),
        format: percent,
        shades: Shades::Diverging(0.0),
        size: Size::new(720.0, 220.0),
        ..HeatMap::default()
    };
    let gantt = Gantt {
        title: "I/O nodes by job".into(),
        size: Size::new(720.0, 0.0),
        x: Axis::linear("time").formatted(seconds),
        rows: (0..6).map(|i| format!("node {i}")).collect(),
        holders: ["HACC", "IOR-MPI", "S3D", "BT-C"].map(String::from).to_vec(),
        holds: (0..18)
            .map(|i: usize| Hold {
                row: i % 6,
                from: (i / 6 * 200 + i % 6 * 30) as f64,
                to: (i / 6 * 200 + i % 6 * 30 + 180) as f64,
                holder: i * 7 % 4,
                label: ["HACC", "IOR-MPI", "S3D", "BT-C"][i * 7 % 4].into(),
            })
            .collect(),
    };
    let jumps = |k: u32| (0..9).map(|t| (f64::from(t) * 10.0, f64::from((t * k) % 5))).collect();
    let series: Vec<StepSeries> = ["HACC", "IOR-MPI", "S3D"]
        .iter()
        .enumerate()
        .map(|(i, n)| StepSeries { name: (*n).into(), jumps: jumps(i as u32 + 2) })
        .collect();
    let steps = Steps {
        title: "I/O nodes held".into(),
        x: Axis::linear("time").formatted(seconds),
        y: Axis::linear("I/O nodes"),
        series,
        end: Some(95.0),
        ..Steps::default()
    };
    let stacked_steps = Steps { title: "I/O nodes held, stacked".into(), stacked: true, ..steps.clone() };
    let small = Line {
        title: "B  1536 file-per-process 128".into(),
        size: Size::SMALL,
        x: Axis::categories("", names),
        series: line.series[..1].to_vec(),
        y: Axis::linear(""),
        spread: Spread::Bars,
        ..Line::default()
    };
    let many = Bars {
        title: "Many long names".into(),
        categories: (0..20).map(|i| format!("scenario number {i}")).collect(),
        series: vec![BarSeries::new("", (0..20).map(f64::from))],
        ..Bars::default()
    };
    println!(
        "<!doctype html><meta charset=utf-8><body style='display:flex;flex-wrap:wrap;gap:12px;background:#eee'>"
    );
    for svg in [
        line.svg(),
        log.svg(),
        bars.svg(),
        stacked.svg(),
        heat.svg(),
        change.svg(),
        gantt.svg(),
        steps.svg(),
        stacked_steps.svg(),
        many.svg(),
        small.svg(),
        small.svg(),
        Line::default().svg(),
    ] {
        println!("{svg}");
    }
}
