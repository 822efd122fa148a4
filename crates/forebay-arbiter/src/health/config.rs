//! The thresholds of the screening, with their defaults.

use serde::{Deserialize, Serialize};

/// When a node counts as slow or lost. Spans are in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ScreenConfig {
    /// A probe is sent to every node this often. 0.25.
    pub probe_every: f64,
    /// Probes and reports of the last so many seconds are judged. 4.
    pub window: f64,
    /// Answers to probes that are needed within the window. 6.
    pub least_probes: usize,
    /// A stall below this is never slow. 0.025.
    pub stall_floor: f64,
    /// A storage time below this is never slow. 0.02.
    pub storage_floor: f64,
    /// A mean response time below this is never slow. 0.005.
    pub response_floor: f64,
    /// Slow is so many times the peers' median, and the node's own past. 3.
    pub factor: f64,
    /// …and so many deviations (1.4826 times the median deviation) above the peers' median, where
    /// there are three peers or more. 6.
    pub deviations: f64,
    /// Requests of a kind that are needed within the window to judge the service of it. 20.
    pub least_requests: u64,
    /// How long there must have been such requests at the node, within the window. 0.5.
    pub least_busy: f64,
    /// How long a node must have been out of line before it is taken out. 2.
    pub sustain: f64,
    /// A node that has not been heard of for so long is lost. 3.
    pub lost_after: f64,
    /// A slow node gets jobs again after it has been in line for so long. 15.
    pub probation: f64,
    /// The probation doubles at each relapse, up to this. 600.
    pub longest_probation: f64,
    /// Not a relapse any more: slow again after so long a time in line. 600.
    pub forgive: f64,
    /// At most this part of the nodes is taken out for being slow (but one of two may be, and never
    /// the last). 0.34.
    pub largest_part: f64,
}

impl Default for ScreenConfig {
    fn default() -> ScreenConfig {
        ScreenConfig {
            probe_every: 0.25,
            window: 4.0,
            least_probes: 6,
            stall_floor: 0.025,
            storage_floor: 0.020,
            response_floor: 0.005,
            factor: 3.0,
            deviations: 6.0,
            least_requests: 20,
            least_busy: 0.5,
            sustain: 2.0,
            lost_after: 3.0,
            probation: 15.0,
            longest_probation: 600.0,
            forgive: 600.0,
            largest_part: 0.34,
        }
    }
}

impl ScreenConfig {
    /// What is wrong with it, if anything is.
    pub fn problem(&self) -> Option<String> {
        let spans = [
            ("probe_every", self.probe_every, 0.01, 60.0),
            ("window", self.window, 0.1, 600.0),
            ("stall_floor", self.stall_floor, 0.0, 60.0),
            ("storage_floor", self.storage_floor, 0.0, 60.0),
            ("response_floor", self.response_floor, 0.0, 60.0),
            ("factor", self.factor, 1.0, 1e6),
            ("deviations", self.deviations, 0.0, 1e6),
            ("least_busy", self.least_busy, 0.0, 600.0),
            ("sustain", self.sustain, 0.0, 600.0),
            ("lost_after", self.lost_after, 0.5, 3600.0),
            ("probation", self.probation, 0.0, 86_400.0),
            ("longest_probation", self.longest_probation, self.probation, 86_400.0),
            ("forgive", self.forgive, 0.0, 864_000.0),
            ("largest_part", self.largest_part, 0.0, 1.0),
        ];
        if let Some((name, value, low, high)) =
            spans.iter().find(|(_, v, low, high)| !(low..=high).contains(&v))
        {
            return Some(format!("{name} = {value} is not within {low} to {high}"));
        }
        if self.window / self.probe_every > 10_000.0 {
            return Some(format!(
                "a window of {} s holds too many probes of every {} s",
                self.window, self.probe_every
            ));
        }
        if self.least_probes == 0 || self.least_probes as f64 > self.window / self.probe_every {
            return Some(format!(
                "least_probes = {} is not within 1 and the {:.0} probes of a window",
                self.least_probes,
                self.window / self.probe_every
            ));
        }
        None
    }
}
