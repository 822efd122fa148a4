//! docs/PROTOCOL.md says what the code does: each of its tables is made again here.

use forebay_wire::frame::{HEADER_LEN, Header, Opcode, flag};
use forebay_wire::message::Meta;
use forebay_wire::{MAX_DATA, MAX_META, MAX_NAME, MAX_PATH, VERSION_MAX, VERSION_MIN};
use std::path::Path;

fn document() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/PROTOCOL.md");
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The rows of the table below a heading, cell by cell.
fn table(heading: &str) -> Vec<Vec<String>> {
    let text = document();
    let (_, rest) = text.split_once(&format!("## {heading}\n")).unwrap_or_else(|| panic!("no {heading}"));
    let rest = rest.split("\n## ").next().unwrap_or_default();
    let rows = rest.lines().skip_while(|l| !l.starts_with('|')).take_while(|l| l.starts_with('|'));
    rows.skip(2)
        .map(|l| l.trim_matches('|').split('|').map(|c| c.trim().trim_matches('`').to_owned()).collect())
        .collect()
}

#[test]
fn versions_and_limits() {
    let limits: Vec<(String, u64)> =
        table("Limits").into_iter().map(|r| (r[0].clone(), r[1].replace(',', "").parse().unwrap())).collect();
    let limit = |name: &str| limits.iter().find(|(n, _)| n == name).unwrap_or_else(|| panic!("{name}")).1;
    assert_eq!(limit("oldest version"), u64::from(VERSION_MIN));
    assert_eq!(limit("newest version"), u64::from(VERSION_MAX));
    assert_eq!(limit("header"), HEADER_LEN as u64);
    assert_eq!(limit("data of one frame"), u64::from(MAX_DATA));
    assert_eq!(limit("body of any other frame"), u64::from(MAX_META));
    assert_eq!(limit("path"), MAX_PATH as u64);
    assert_eq!(limit("name"), MAX_NAME as u64);
    assert_eq!(limits.len(), 7);
}

#[test]
fn opcodes() {
    let all = [
        Opcode::Greeting,
        Opcode::Hello,
        Opcode::Read,
        Opcode::Write,
        Opcode::Append,
        Opcode::Meta,
        Opcode::Ping,
        Opcode::Goodbye,
        Opcode::Control,
    ];
    let rows = table("Opcodes");
    let told: Vec<(String, String)> = rows.iter().map(|r| (r[0].clone(), r[1].clone())).collect();
    let real: Vec<_> = all.iter().map(|o| ((*o as u16).to_string(), o.name().to_owned())).collect();
    assert_eq!(told, real);
    // There are no others.
    for raw in 0..=u16::MAX {
        let mut bytes = *Header::request(Opcode::Ping, 1, 0).as_bytes();
        bytes[4..6].copy_from_slice(&raw.to_le_bytes());
        let known = all.iter().any(|o| *o as u16 == raw);
        assert_eq!(Header::decode(&bytes).is_ok(), known, "opcode {raw}");
    }
}

#[test]
fn flags() {
    let real = [
        ("REPLY", flag::REPLY),
        ("REPLAY", flag::REPLAY),
        ("MOVE", flag::MOVE),
        ("ESCAPES", flag::ESCAPES),
        ("EXPIRED", flag::EXPIRED),
        ("STALE_HANDLE", flag::STALE_HANDLE),
        ("LINGER", flag::LINGER),
        ("HELD", flag::HELD),
        ("LOOK", flag::LOOK),
        ("PLACED", flag::PLACED),
    ];
    let told: Vec<(String, String)> =
        table("Flags").into_iter().map(|r| (r[1].clone(), r[0].clone())).collect();
    let real: Vec<_> = real.iter().map(|(n, bit)| ((*n).to_owned(), bit.to_string())).collect();
    assert_eq!(told, real);
}

#[test]
fn metadata_operations() {
    let rows = table("Metadata operations");
    let told: Vec<(String, String)> = rows.iter().map(|r| (r[0].clone(), r[1].clone())).collect();
    let real: Vec<_> =
        Meta::NAMES.iter().enumerate().map(|(i, n)| (i.to_string(), (*n).to_owned())).collect();
    assert_eq!(told, real);
}

#[test]
fn the_header() {
    // A field is where the table says if writing there changes what it reads.
    let mut header = Header::request(Opcode::Read, 0x0102_0304_0506_0708, 0x1112_1314);
    header.handle = 0x2122_2324_2526_2728.into();
    header.offset = 0x3132_3334_3536_3738.into();
    header.length = 0x4142_4344_4546_4748.into();
    header.stamp = 0x5152_5354_5556_5758.into();
    header.status = 0x6162_6364.into();
    header.age_ms = 0x7172_7374.into();
    let bytes = header.as_bytes();
    let mut end = 0;
    for row in table("Header") {
        let (at, len) = (row[0].parse::<usize>().unwrap(), row[1].parse::<usize>().unwrap());
        assert_eq!(at, end, "{row:?}");
        end = at + len;
        let field = &bytes[at..end];
        let expected: &[u8] = match row[2].as_str() {
            "magic" => b"FBAY",
            "opcode" => &3u16.to_le_bytes(),
            "flags" => &[0; 2],
            "id" => &0x0102_0304_0506_0708u64.to_le_bytes(),
            "handle" => &0x2122_2324_2526_2728u64.to_le_bytes(),
            "offset" => &0x3132_3334_3536_3738u64.to_le_bytes(),
            "length" => &0x4142_4344_4546_4748u64.to_le_bytes(),
            "stamp" => &0x5152_5354_5556_5758u64.to_le_bytes(),
            "body" => &0x1112_1314u32.to_le_bytes(),
            "status" => &0x6162_6364u32.to_le_bytes(),
            "reserved" => &[0; 4],
            "age_ms" => &0x7172_7374u32.to_le_bytes(),
            other => panic!("the header has no field {other}"),
        };
        assert_eq!(field, expected, "{row:?}");
    }
    assert_eq!(end, HEADER_LEN);
}
