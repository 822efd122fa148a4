//! Traces of runs, on any bytes: an error, or a trace that is read again as it was.
#![no_main]

use forebay_types::trace::{Trace, to_bytes};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(trace) = Trace::read(data) else { return };
    let mut again = Vec::new();
    trace.header.write(&mut again).expect("memory takes it");
    trace.records.iter().for_each(|r| again.extend(to_bytes(r.words())));
    assert_eq!(Trace::read(&again[..]).expect("a trace"), trace);
});
