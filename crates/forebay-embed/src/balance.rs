//! Whether the I/O nodes of a run had the same to do, and if not, why.

use crate::layer::NodeOutcome;
use serde::Serialize;

/// Below this nobody cares.
const LITTLE: u64 = 16 << 20;
/// The busiest node may have moved so many times what the idlest did.
const MOST: f64 = 2.0;

/// What a node served, all flows together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Requests of all kinds.
    pub requests: u64,
    /// Bytes read.
    pub read: u64,
    /// Bytes written.
    pub written: u64,
    /// Connections it took; most processes have one.
    pub connections: u64,
}

impl Totals {
    fn bytes(self) -> u64 {
        self.read + self.written
    }
}

impl NodeOutcome {
    /// What it served; nothing if it left no statistics.
    pub fn totals(&self) -> Option<Totals> {
        let stats = self.stats.as_ref()?;
        let mut totals =
            Totals { connections: stats["connections_accepted"].as_u64().unwrap_or(0), ..Totals::default() };
        for flow in stats["flows"].as_array().into_iter().flatten() {
            for (name, op) in flow["operations"].as_object().into_iter().flatten() {
                totals.requests += op["count"].as_u64().unwrap_or(0);
                let bytes = op["bytes"].as_u64().unwrap_or(0);
                match name.as_str() {
                    "read" => totals.read += bytes,
                    "write" | "append" => totals.written += bytes,
                    _ => {}
                }
            }
        }
        Some(totals)
    }
}

/// The I/O nodes had very different loads.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Imbalance {
    /// The node that moved the most bytes.
    pub busiest: usize,
    /// The one that moved the fewest.
    pub idlest: usize,
    /// How many times as many; absent if the other moved none.
    pub ratio: Option<f64>,
    /// Why, and what helps.
    pub cause: String,
}

/// What is to be said about the nodes of a run, if anything is.
pub fn imbalance(nodes: &[NodeOutcome]) -> Option<Imbalance> {
    let totals: Vec<(usize, Totals)> = nodes.iter().filter_map(|n| Some((n.node, n.totals()?))).collect();
    let &(busiest, most) = totals.iter().max_by_key(|(_, t)| t.bytes())?;
    let &(idlest, least) = totals.iter().min_by_key(|(_, t)| t.bytes())?;
    if most.bytes() < LITTLE || most.bytes() as f64 <= MOST * least.bytes() as f64 {
        return None;
    }
    // A connection alone may be that of the run itself, which asks every node at the end.
    let cause = if least.requests == 0 {
        let used = totals.iter().filter(|(_, t)| t.requests > 0).count();
        format!(
            "fewer processes did I/O than there are I/O nodes ({used} of {} were used): requests of 1 MiB and more are spread, smaller ones are not",
            totals.len()
        )
    } else if most.connections as f64 > MOST * least.connections as f64 {
        format!(
            "{} connections of processes there, {} here: the processes that do I/O are not those the nodes were dealt to",
            most.connections, least.connections
        )
    } else {
        "some processes moved far more than others, in requests below 1 MiB or appends, which one node serves"
            .into()
    };
    let ratio = (least.bytes() > 0).then(|| most.bytes() as f64 / least.bytes() as f64);
    Some(Imbalance { busiest, idlest, ratio, cause })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn node(node: usize, mib: u64, connections: u64) -> NodeOutcome {
        let stats = json!({
            "connections_accepted": connections,
            "flows": [{ "operations": { "write": { "count": mib, "bytes": mib << 20 } } }],
        });
        NodeOutcome { node, address: String::new(), problem: None, stats: Some(stats) }
    }

    #[test]
    fn is_told_with_its_cause() {
        assert_eq!(imbalance(&[]), None);
        assert_eq!(imbalance(&[node(0, 100, 2)]), None);
        assert_eq!(imbalance(&[node(0, 100, 2), node(1, 51, 2)]), None, "less than two to one");
        assert_eq!(imbalance(&[node(0, 8, 1), node(1, 0, 0)]), None, "too little to care");
        let one = imbalance(&[node(0, 0, 0), node(1, 100, 1)]).expect("one does everything");
        assert_eq!((one.busiest, one.idlest, one.ratio), (1, 0, None));
        assert!(one.cause.contains("1 of 2 were used"), "{}", one.cause);
        let ranks = imbalance(&[node(0, 90, 9), node(1, 30, 3)]).expect("three to one");
        assert!(ranks.cause.contains("9 connections"), "{}", ranks.cause);
        let heavy = imbalance(&[node(0, 90, 3), node(1, 30, 3)]).expect("three to one");
        assert!(heavy.cause.contains("far more"), "{}", heavy.cause);
    }
}
