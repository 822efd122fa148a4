//! FORGE's JSON, unchanged: the study's flat form, and the newer one with phases and patterns.
//! Numbers may be numbers or strings, as in its examples.

use super::{Data, Fsync, Job, Layout, Scenario, SizeShare, Spatiality, Step, Target};
use serde_json::{Map, Value};
use std::time::Duration;

const TOP: [&str; 5] = ["forwarders", "handlers", "listeners", "dispatchers", "phases"];
const PATTERN: [&str; 10] = [
    "path",
    "operation",
    "operations",
    "number_of_files",
    "spatiality",
    "total_size",
    "request_size",
    "validation",
    "direct_io",
    "stone_wall",
];

/// The scenario in `text`. FORGE takes the number of processes from `mpirun`; until the command line
/// says otherwise there is one per forwarder, and at least one.
pub fn parse(text: &str, name: &str) -> Result<Scenario, String> {
    let value: Value = serde_json::from_str(text).map_err(|e| format!("not JSON: {e}"))?;
    let Value::Object(top) = value else { return Err("not a JSON object".into()) };
    let flat = !top.contains_key("phases");
    for key in top.keys() {
        let known = TOP.contains(&key.as_str()) || (flat && PATTERN.contains(&key.as_str()));
        if !known {
            return Err(format!("{key}: FORGE has no such key"));
        }
    }
    // FORGE's handlers are threads that receive; ours need none of their own, so they are only read.
    for key in ["handlers", "listeners"] {
        number(&top, key)?;
    }
    let forwarders = count(&top, "forwarders")?;
    let mut steps = Vec::new();
    if flat {
        let operations = text_of(&top, "operations")?.or(text_of(&top, "operation")?).unwrap_or("write");
        flat_steps(&top, operations, &mut steps)?;
    } else {
        let phases = top.get("phases").and_then(Value::as_array).ok_or("phases: not a list")?;
        for (i, phase) in phases.iter().enumerate() {
            phase_steps(phase, &mut steps).map_err(|e| format!("phases[{i}]: {e}"))?;
        }
    }
    Ok(Scenario {
        name: name.to_owned(),
        jobs: vec![Job {
            name: "forge".into(),
            compute_nodes: forwarders.unwrap_or(1).max(1),
            processes_per_node: 1,
            delay: Duration::ZERO,
            steps,
        }],
        io_nodes: forwarders.into_iter().collect(),
        repetitions: None,
        shuffle: true,
        seed: 0,
        scheduler: None,
        dispatchers: count(&top, "dispatchers")?.filter(|n| *n > 0),
    })
}

fn flat_steps(top: &Map<String, Value>, operations: &str, steps: &mut Vec<Step>) -> Result<(), String> {
    let target = target(top)?;
    steps.push(Step::Open(target.clone()));
    for operation in operations.split(['/', ',', '+', ' ']).filter(|s| !s.is_empty()) {
        let read_share = match operation {
            "write" => 0.0,
            "read" => 1.0,
            other => return Err(format!("operations: {other:?} is neither write nor read")),
        };
        steps.push(Step::Data(data(top, read_share)?));
    }
    steps.push(Step::Close(target));
    Ok(())
}

/// Repetitions and patterns that would unroll to more steps than this are refused.
const MAX_STEPS: usize = 100_000;

fn phase_steps(phase: &Value, steps: &mut Vec<Step>) -> Result<(), String> {
    let phase = phase.as_object().ok_or("not an object")?;
    if let Some(key) = phase.keys().find(|k| !["repetitions", "patterns"].contains(&k.as_str())) {
        return Err(format!("{key}: FORGE has no such key"));
    }
    let repetitions = count(phase, "repetitions")?.unwrap_or(1);
    let patterns = phase.get("patterns").and_then(Value::as_array).ok_or("patterns: not a list")?;
    let mut once = Vec::new();
    for (i, pattern) in patterns.iter().enumerate() {
        let step = pattern_step(pattern).map_err(|e| format!("patterns[{i}]: {e}"))?;
        once.push(step);
    }
    if steps.len() + once.len().saturating_mul(repetitions as usize) > MAX_STEPS {
        return Err(format!("more than {MAX_STEPS} steps"));
    }
    for _ in 0..repetitions {
        steps.extend(once.iter().cloned());
    }
    Ok(())
}

fn pattern_step(pattern: &Value) -> Result<Step, String> {
    let p = pattern.as_object().ok_or("not an object")?;
    if let Some(key) = p.keys().find(|k| !PATTERN.contains(&k.as_str())) {
        return Err(format!("{key}: FORGE has no such key"));
    }
    match text_of(p, "operation")?.ok_or("operation is missing")? {
        "open" => Ok(Step::Open(target(p)?)),
        "close" => Ok(Step::Close(target(p)?)),
        "write" => Ok(Step::Data(data(p, 0.0)?)),
        "read" => Ok(Step::Data(data(p, 1.0)?)),
        other => Err(format!("operation: {other:?} is not open, close, write or read")),
    }
}

fn target(p: &Map<String, Value>) -> Result<Target, String> {
    let layout = match text_of(p, "number_of_files")? {
        Some("individual") => Layout::FilePerProcess,
        Some("shared") | None => Layout::Shared,
        Some(other) => return Err(format!("number_of_files: {other:?} is neither individual nor shared")),
    };
    let path = text_of(p, "path")?.ok_or("path is missing")?.to_owned();
    Ok(Target { path, layout, direct_io: number(p, "direct_io")?.is_some_and(|n| n > 0.0) })
}

fn data(p: &Map<String, Value>, read_share: f64) -> Result<Data, String> {
    let spatiality = match text_of(p, "spatiality")? {
        Some("contiguous") | None => Spatiality::Contiguous,
        Some("strided") => Spatiality::Strided,
        Some(other) => return Err(format!("spatiality: {other:?} is neither contiguous nor strided")),
    };
    let size = |key: &str| {
        let n = number(p, key)?.ok_or(format!("{key} is missing"))?;
        if n.fract() == 0.0 && (1.0..=1e18).contains(&n) {
            Ok(n as u64)
        } else {
            Err(format!("{key}: {n} is not a size"))
        }
    };
    Ok(Data {
        target: target(p)?,
        read_share,
        spatiality,
        total_size: size("total_size")?,
        sizes: vec![SizeShare { size: size("request_size")?, weight: 1.0 }],
        think: Duration::ZERO,
        stone_wall: super::units::seconds(number(p, "stone_wall")?.unwrap_or(0.0))
            .map_err(|e| format!("stone_wall: {e}"))?,
        validation: number(p, "validation")?.is_some_and(|n| n > 0.0),
        fsync: Fsync::Never,
    })
}

fn text_of<'a>(p: &'a Map<String, Value>, key: &str) -> Result<Option<&'a str>, String> {
    match p.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(s)) => Ok(Some(s)),
        Some(_) => Err(format!("{key}: not a text")),
    }
}

/// A number, also one in quotes; `true` and `false` are 1 and 0.
fn number(p: &Map<String, Value>, key: &str) -> Result<Option<f64>, String> {
    let parsed = match p.get(key) {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::Number(n)) => n.as_f64(),
        Some(Value::String(s)) => s.trim().parse().ok(),
        Some(Value::Bool(b)) => Some(f64::from(u8::from(*b))),
        Some(_) => None,
    };
    parsed.filter(|n| n.is_finite()).map(Some).ok_or(format!("{key}: not a number"))
}

fn count(p: &Map<String, Value>, key: &str) -> Result<Option<u32>, String> {
    match number(p, key)? {
        None => Ok(None),
        Some(n) if n.fract() == 0.0 && (0.0..=1e6).contains(&n) => Ok(Some(n as u32)),
        Some(n) => Err(format!("{key}: {n} is not a count")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Operation;

    /// The example in the FORGE paper's appendix.
    const PAPER: &str = r#"{
      "forwarders": "1", "handlers": "16", "dispatchers": "16", "path": "/mnt/pfs/test",
      "number_of_files": "shared", "spatiality": "contiguous", "total_size": "4294967296",
      "request_size": "32768", "validation": "0" }"#;

    #[test]
    fn the_papers_example() {
        let s = parse(PAPER, "paper").unwrap();
        assert_eq!(s.io_nodes, [1]);
        assert_eq!(s.dispatchers, Some(16));
        let Step::Data(d) = &s.jobs[0].steps[1] else { panic!("{:?}", s.jobs[0].steps) };
        assert_eq!(
            (d.total_size, d.largest(), d.operation(), d.validation),
            (4 << 30, 32768, Operation::Write, false)
        );
        assert_eq!(d.target.file(7), "/mnt/pfs/test");
        s.check().unwrap();
    }

    #[test]
    fn flat_with_all_keys_and_both_operations() {
        let s = parse(
            r#"{"forwarders": 2, "listeners": 8, "dispatchers": 4, "path": "t", "number_of_files": "individual",
            "spatiality": "contiguous", "operations": "write/read", "total_size": 1048576, "request_size": "4096",
            "direct_io": 1, "stone_wall": "60", "validation": true}"#,
            "x",
        )
        .unwrap();
        let steps = &s.jobs[0].steps;
        assert!(matches!(&steps[..], [Step::Open(_), Step::Data(w), Step::Data(r), Step::Close(_)]
            if w.operation() == Operation::Write && r.operation() == Operation::Read && r.validation && r.target.direct_io
            && r.stone_wall == Duration::from_secs(60) && r.target.file(7) == "t-007"));
    }

    #[test]
    fn phases_and_patterns() {
        let s = parse(
            r#"{"forwarders": 1, "handlers": 1, "dispatchers": 1, "phases": [{"repetitions": 2, "patterns": [
            {"path": "a", "operation": "open", "number_of_files": "shared"},
            {"path": "a", "operation": "write", "number_of_files": "shared", "spatiality": "strided", "total_size": 65536, "request_size": 1024},
            {"path": "a", "operation": "close", "number_of_files": "shared"}]}]}"#,
            "x",
        )
        .unwrap();
        assert_eq!(s.jobs[0].steps.len(), 6);
        assert!(matches!(&s.jobs[0].steps[4], Step::Data(d) if d.spatiality == Spatiality::Strided));
    }

    #[test]
    fn mistakes_are_named() {
        for (from, to, says) in [
            ("\"32768\"", "\"x\"", "request_size: not a number"),
            ("\"shared\"", "\"many\"", "number_of_files: \"many\""),
            ("\"contiguous\"", "\"zigzag\"", "spatiality"),
            ("\"validation\"", "\"valid\"", "valid: FORGE has no such key"),
            ("\"path\"", "\"direct_io\"", "path is missing"),
            ("\"4294967296\"", "\"1e99\"", "total_size"),
            ("\"forwarders\": \"1\"", "\"forwarders\": \"-1\"", "forwarders"),
        ] {
            let e = parse(&PAPER.replace(from, to), "x").unwrap_err();
            assert!(e.contains(says), "{e}");
        }
        let e = parse(
            r#"{"phases": [{"repetitions": 4000000, "patterns": [{"path": "a", "operation": "open"}]}]}"#,
            "x",
        );
        assert!(e.is_err());
    }

    proptest::proptest! {
        #[test]
        fn no_text_panics(text in "\\PC{0,200}", value in "\\PC{0,20}") {
            let _ = parse(&text, "x");
            let _ = parse(&PAPER.replace("32768", &value), "x");
        }
    }
}
