//! Every decoder of the wire, on any bytes: an error or a value, and a value means what it says.
#![no_main]

use forebay_wire::frame::{HEADER_LEN, Header};
use forebay_types::{Protect, Secret};
use forebay_wire::hello::{Greeting, Hello, Proof, SessionId, Side, Welcome};
use forebay_wire::message::{Answer, Meta, decode};
use forebay_wire::session::later::{LONGEST, Later};
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
    if let Ok((handle, later, len)) = Later::decode(body) {
        assert!(len <= body.len() && len <= LONGEST);
        let mut again = Vec::new();
        later.encode(handle, &mut again);
        assert_eq!(Later::decode(&again).map(|(h, l, _)| (h, l)), Ok((handle, later)));
    }
    let _ = Answer::decode(body);
    let _ = decode::<Hello<'_>>(body, "hello");
    let _ = decode::<Greeting>(body, "greeting");
    let _ = decode::<Welcome>(body, "welcome");
    sealed(data);
});

/// Nothing that was not sealed is opened, however it comes.
fn sealed(mut data: &[u8]) {
    let protect = if data.len().is_multiple_of(2) { Protect::Integrity } else { Protect::Privacy };
    let what = Proof { node: &[1; 16], client: &[2; 16], session: SessionId([3; 16]), job: "j", protect, exports: &[] };
    let ends = what.seed(&Secret::new([4; 32])).ends(Side::Node, protect, [b"", b"", b""]);
    let (_, mut opener) = ends.expect("it is protected");
    while !data.is_empty() {
        let room = opener.room();
        let n = room.len().min(data.len()).min(17);
        assert!(n > 0);
        room[..n].copy_from_slice(&data[..n]);
        opener.received(n);
        data = &data[n..];
        match opener.take(&mut [0; 8]) {
            Ok(n) => assert_eq!(n, 0),
            Err(_) => return,
        }
    }
}
