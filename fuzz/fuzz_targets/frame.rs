//! Every decoder of the wire, on any bytes: an error or a value, and a value means what it says.
#![no_main]

use forebay_wire::frame::{HEADER_LEN, Header};
use forebay_wire::hello::{Greeting, Hello, Welcome};
use forebay_wire::message::{Answer, Meta, decode};
use forebay_wire::{MAX_DATA, MAX_PATH};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let body = match data.split_first_chunk::<HEADER_LEN>() {
        Some((head, body)) => {
            if let Ok((header, opcode)) = Header::decode(head) {
                assert!(header.body_len() <= MAX_DATA as usize);
                assert_eq!(header.as_bytes(), head);
                assert!(!opcode.name().is_empty());
            }
            body
        }
        None => data,
    };
    if let Ok(meta) = Meta::decode(body) {
        assert_eq!(Meta::NAMES[meta.index()], meta.name());
        let _ = (meta.changes(), meta.needs_reply_cache());
        if let Meta::Open { path, flags, .. } = meta {
            let _ = flags.to_linux();
            assert!(path.check().is_err() || path.rel.len() < MAX_PATH);
        }
        let mut again = Vec::new();
        meta.encode(&mut again);
        assert_eq!(Meta::decode(&again), Ok(meta));
    }
    let _ = Answer::decode(body);
    let _ = decode::<Hello<'_>>(body, "hello");
    let _ = decode::<Greeting>(body, "greeting");
    let _ = decode::<Welcome>(body, "welcome");
});
