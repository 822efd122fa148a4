//! What an I/O node counts of a job goes on over several runs of the same name: what the last of them did is what
//! was counted since it began.

use forebay_types::Histogram;
use serde::Deserialize;
use serde_json::{Value, json};

/// A distribution of which all is known that its parts are made of.
#[derive(Deserialize)]
struct Distribution {
    count: u64,
    mean: f64,
    max: u64,
    buckets: Vec<(u64, u64)>,
}

/// Takes what was counted before a run began from what was counted by its end: all that an I/O node says of a job's
/// operations and clients.
pub(super) fn subtract(stats: &mut Value, old: &Value) {
    let flows = stats.get_mut("flows").and_then(Value::as_array_mut).into_iter().flatten();
    for (flow, old) in flows.zip(old["flows"].as_array().into_iter().flatten()) {
        let operations = flow.get_mut("operations").and_then(Value::as_object_mut);
        for (name, operation) in operations.into_iter().flatten() {
            let old = &old["operations"][name.as_str()];
            less(operation, old, &["count", "errors", "bytes"]);
            for field in ["latency_ns", "size"] {
                operation.get_mut(field).into_iter().for_each(|now| distribution(now, &old[field]));
            }
        }
        let Some(clients) = flow.get_mut("clients").and_then(Value::as_array_mut) else { continue };
        let before = old["clients"].as_array().map_or(&[][..], Vec::as_slice);
        for client in clients.iter_mut() {
            let place = |c: &Value| (c["host"].clone(), c["rank"].clone());
            if let Some(old) = before.iter().find(|old| place(old) == place(client)) {
                less(client, old, &["processes", "requests", "errors", "read", "written", "busy_ns"]);
            }
        }
        clients.retain(|c| c["processes"] != json!(0) || c["requests"] != json!(0));
    }
}

fn less(now: &mut Value, old: &Value, fields: &[&str]) {
    for field in fields {
        let was = old[*field].as_u64().unwrap_or(0);
        if let Some(sum) = now.get_mut(*field) {
            *sum = sum.as_u64().unwrap_or(0).saturating_sub(was).into();
        }
    }
}

/// The largest of what is left is known to within its bucket.
fn distribution(now: &mut Value, old: &Value) {
    let (Ok(all), Ok(old)) = (Distribution::deserialize(&*now), Distribution::deserialize(old)) else {
        return;
    };
    let counts = |h: &Distribution| Histogram::counts_of(h.buckets.iter().copied(), h.max);
    let left = counts(&all).since(&counts(&old));
    let left = Histogram::counts_of(left.buckets(), all.max);
    let sum = all.mean * all.count as f64 - old.mean * old.count as f64;
    let (count, q) = (left.count(), |q: f64| left.quantile(q));
    *now = json!({
        "count": count,
        "mean": if count == 0 { 0.0 } else { sum.max(0.0) / count as f64 },
        "p50": q(0.5),
        "p90": q(0.9),
        "p99": q(0.99),
        "p999": q(0.999),
        "max": left.max(),
        "buckets": left.buckets().collect::<Vec<_>>(),
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As an I/O node would say it of writes of these latencies.
    fn stats(latencies: &[u64]) -> Value {
        let held = Histogram::default();
        latencies.iter().for_each(|l| held.record(*l));
        let (counts, n) = (held.counts(), latencies.len());
        let q = |q: f64| counts.quantile(q);
        let latency = json!({
            "count": n, "mean": counts.mean(), "p50": q(0.5), "p90": q(0.9), "p99": q(0.99), "p999": q(0.999),
            "max": counts.max(), "buckets": counts.buckets().collect::<Vec<_>>(),
        });
        let client = json!({
            "host": "c1", "rank": null, "ranks": 0, "pid": 7, "processes": 1, "requests": n, "errors": 0,
            "read": 0, "written": 100 * n, "busy_ns": latencies.iter().sum::<u64>(),
        });
        let write = json!({ "count": n, "errors": 0, "bytes": 100 * n, "latency_ns": latency, "size": null });
        json!({ "flows": [{ "operations": { "write": write }, "clients": [client] }] })
    }

    #[test]
    fn an_earlier_run_of_the_same_name_is_not_counted() {
        let mut now = stats(&[1000, 7, 50, 50, 60, 7]);
        now["flows"][0]["clients"][0]["processes"] = json!(2);
        subtract(&mut now, &stats(&[1000, 7]));
        let only = stats(&[50, 50, 60, 7]);
        // The largest that is left lies between 60 and the end of its bucket.
        let latency = &mut now["flows"][0]["operations"]["write"]["latency_ns"];
        assert!((60..64).contains(&latency["max"].as_u64().unwrap()), "{latency}");
        for p in ["max", "p90", "p99", "p999"] {
            latency[p] = only["flows"][0]["operations"]["write"]["latency_ns"][p].clone();
        }
        assert_eq!(now, only);
        let mut now = only.clone();
        subtract(&mut now, &json!({}));
        assert_eq!(now, only);
        let operation = |stats: &Value| stats["flows"][0]["operations"]["write"].clone();
        subtract(&mut now, &only);
        let none = operation(&now);
        assert_eq!((&none["count"], &none["latency_ns"]["count"]), (&json!(0), &json!(0)));
        assert_eq!(now["flows"][0]["clients"], json!([]));
    }
}
