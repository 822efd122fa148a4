//! A line per interval, where there is no terminal.

use crate::picture::Picture;
use forebay_control::view::JobView;

/// Jobs that a line names.
const NAMED: usize = 5;

/// All jobs, or one.
pub fn line(picture: &Picture, job: Option<&str>) -> String {
    let h = &picture.health;
    if let Some(id) = job {
        let Some(j) = picture.jobs.iter().find(|j| j.id == id) else {
            return format!("job {id} does not run");
        };
        let nodes: Vec<String> = j.nodes.iter().map(ToString::to_string).collect();
        return format!(
            "job {id}: {:.1} MB/s, {} in all, on I/O nodes {} ({})",
            j.bandwidth_mbs,
            moved(j),
            if nodes.is_empty() { "none".to_owned() } else { nodes.join(" ") },
            j.pattern.as_deref().unwrap_or("no I/O yet"),
        );
    }
    let mut busiest: Vec<_> = picture.jobs.iter().filter(|j| j.bandwidth_mbs > 0.0).collect();
    busiest.sort_by(|a, b| b.bandwidth_mbs.total_cmp(&a.bandwidth_mbs));
    let busiest: Vec<String> =
        busiest.iter().take(NAMED).map(|j| format!("{} {:.1}", j.id, j.bandwidth_mbs)).collect();
    let busiest = if busiest.is_empty() { String::new() } else { format!("; {}", busiest.join(", ")) };
    format!(
        "{} (term {}): {}, {} of {} I/O nodes admitted, {:.1} MB/s, {} waiting{busiest}",
        h.state,
        h.term,
        count(h.jobs as u64, "job"),
        h.admitted,
        h.nodes,
        picture.total(),
        picture.waiting(),
    )
}

/// So many of them, in words that fit.
pub fn count(n: u64, what: &str) -> String {
    match what {
        _ if n == 1 => format!("1 {what}"),
        "process" => format!("{n} processes"),
        _ => format!("{n} {what}s"),
    }
}

/// What a job has moved, or at least so much where it was not all counted.
pub fn moved(job: &JobView) -> String {
    format!("{}{}", if job.bytes_at_least { "≥ " } else { "" }, bytes(job.bytes))
}

/// In the unit that people read.
pub fn bytes(n: u64) -> String {
    let units = ["B", "kB", "MB", "GB", "TB", "PB"];
    let mut value = n as f64;
    let mut unit = 0;
    while value >= 999.95 && unit + 1 < units.len() {
        value /= 1000.0;
        unit += 1;
    }
    if unit == 0 { format!("{n} B") } else { format!("{value:.1} {}", units[unit]) }
}
