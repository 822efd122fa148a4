//! Lustre: the `lustre.lov` extended attribute, little-endian. Plain layouts (v1, and v3 with a pool
//! name) and composite ones (progressive layouts, mirrors), of which each component is a plain one.

use super::LayoutError;
use forebay_types::ServerId;

const V1: u32 = 0x0bd1_0bd0;
const V3: u32 = 0x0bd3_0bd0;
const COMPOSITE: u32 = 0x0bd6_0bd0;

const HEADER_V1: usize = 32;
const HEADER_V3: usize = HEADER_V1 + 16;
const OBJECT: usize = 24;
const COMPOSITE_HEADER: usize = 32;
const COMPOSITE_ENTRY: usize = 48;

/// Data on OSTs, in turn; other patterns have no objects or lie on the metadata server.
const RAID0: u32 = 1;
const RELEASED: u32 = 0x8000_0000;
const STALE: u32 = 0x1;
const INITIALISED: u32 = 0x10;
const PARITY: u32 = 0x80;

/// Stretches of the file and the OSTs of each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LustreLayout {
    /// Never empty.
    components: Vec<Component>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Component {
    start: u64,
    end: u64,
    stripe: u64,
    /// Never empty.
    osts: Vec<u32>,
}

impl LustreLayout {
    /// Reads the value of `lustre.lov`.
    ///
    /// # Errors
    /// If it is cut short, of an unknown kind, or names no OSTs.
    pub fn parse(value: &[u8]) -> Result<LustreLayout, LayoutError> {
        let components = match u32_at(value, 0)? {
            COMPOSITE => composite(value)?,
            _ => plain(value, 0, u64::MAX)?.into_iter().collect(),
        };
        if components.is_empty() { Err(LayoutError::NoObjects) } else { Ok(LustreLayout { components }) }
    }

    /// The OST of the byte at `offset`; past what has been laid out, as in the last component.
    pub fn server(&self, offset: u64) -> ServerId {
        self.component(offset)
            .map_or(ServerId(0), |c| ServerId(c.osts[(offset / c.stripe % c.osts.len() as u64) as usize]))
    }

    /// Bytes of a piece there.
    pub(super) fn piece(&self, offset: u64) -> u64 {
        self.component(offset).map_or(u64::MAX, |c| c.stripe)
    }

    fn component(&self, offset: u64) -> Option<&Component> {
        let covers = |c: &&Component| c.start <= offset && offset < c.end;
        self.components.iter().find(covers).or(self.components.last())
    }
}

fn composite(value: &[u8]) -> Result<Vec<Component>, LayoutError> {
    let count = usize::from(u16_at(value, 14)?);
    let mut components = Vec::new();
    for i in 0..count {
        let entry = COMPOSITE_HEADER + i * COMPOSITE_ENTRY;
        let flags = u32_at(value, entry + 4)?;
        let (start, end) = (u64_at(value, entry + 8)?, u64_at(value, entry + 16)?);
        let (at, len) = (u32_at(value, entry + 24)? as usize, u32_at(value, entry + 28)? as usize);
        if flags & INITIALISED == 0 || flags & (STALE | PARITY) != 0 {
            continue;
        }
        let blob = value.get(at..).and_then(|b| b.get(..len));
        let blob = blob.ok_or(LayoutError::Short {
            what: "Lustre",
            len: value.len(),
            needed: at.saturating_add(len),
        })?;
        components.extend(plain(blob, start, end)?);
    }
    Ok(components)
}

/// `None` for a component without objects on OSTs.
fn plain(value: &[u8], start: u64, end: u64) -> Result<Option<Component>, LayoutError> {
    let header = match u32_at(value, 0)? {
        V1 => HEADER_V1,
        V3 => HEADER_V3,
        magic => return Err(LayoutError::Magic(magic)),
    };
    let pattern = u32_at(value, 4)?;
    let stripe = u64::from(u32_at(value, 24)?);
    let count = usize::from(u16_at(value, 28)?);
    let on_osts = pattern & RAID0 != 0 && pattern & RELEASED == 0;
    // A template says "all OSTs" (65535) or "default" (0) and lists none.
    if !on_osts || count == 0 || count == 0xffff || value.len() <= header {
        return Ok(None);
    }
    if stripe == 0 {
        return Err(LayoutError::Malformed { what: "Lustre", reason: "its stripe size is zero".to_owned() });
    }
    let osts = (0..count).map(|i| u32_at(value, header + i * OBJECT + 20)).collect::<Result<_, _>>()?;
    Ok(Some(Component { start, end, stripe, osts }))
}

fn bytes<const N: usize>(value: &[u8], at: usize) -> Result<[u8; N], LayoutError> {
    let short = LayoutError::Short { what: "Lustre", len: value.len(), needed: at.saturating_add(N) };
    value.get(at..).and_then(|v| v.first_chunk()).copied().ok_or(short)
}

fn u16_at(value: &[u8], at: usize) -> Result<u16, LayoutError> {
    bytes(value, at).map(u16::from_le_bytes)
}

fn u32_at(value: &[u8], at: usize) -> Result<u32, LayoutError> {
    bytes(value, at).map(u32::from_le_bytes)
}

fn u64_at(value: &[u8], at: usize) -> Result<u64, LayoutError> {
    bytes(value, at).map(u64::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A plain layout, field by field as `lustre_user.h` has them.
    fn sample(pool: Option<&str>, pattern: u32, stripe: u32, osts: &[u32]) -> Vec<u8> {
        let mut v = Vec::new();
        v.extend(if pool.is_some() { V3 } else { V1 }.to_le_bytes());
        v.extend(pattern.to_le_bytes());
        v.extend(0x10_0000_0000_0401u64.to_le_bytes()); // lmm_oi
        v.extend(0x2_0000_0bd0u64.to_le_bytes());
        v.extend(stripe.to_le_bytes());
        v.extend((osts.len() as u16).to_le_bytes());
        v.extend(0u16.to_le_bytes()); // lmm_layout_gen
        if let Some(pool) = pool {
            let mut name = [0u8; 16];
            name[..pool.len()].copy_from_slice(pool.as_bytes());
            v.extend(name);
        }
        for ost in osts {
            v.extend(77u64.to_le_bytes()); // l_ost_oi
            v.extend(0u64.to_le_bytes());
            v.extend(0u32.to_le_bytes()); // l_ost_gen
            v.extend(ost.to_le_bytes());
        }
        v
    }

    fn composed(parts: &[(u32, u64, u64, Vec<u8>)]) -> Vec<u8> {
        let mut blobs: Vec<u8> = Vec::new();
        let mut entries = Vec::new();
        let base = COMPOSITE_HEADER + parts.len() * COMPOSITE_ENTRY;
        for (i, (flags, start, end, blob)) in parts.iter().enumerate() {
            entries.extend((i as u32 + 1).to_le_bytes());
            entries.extend(flags.to_le_bytes());
            entries.extend(start.to_le_bytes());
            entries.extend(end.to_le_bytes());
            entries.extend(((base + blobs.len()) as u32).to_le_bytes());
            entries.extend((blob.len() as u32).to_le_bytes());
            entries.extend([0u8; 16]); // generation, timestamp, padding
            blobs.extend(blob);
        }
        let mut v = Vec::new();
        v.extend(COMPOSITE.to_le_bytes());
        v.extend(((base + blobs.len()) as u32).to_le_bytes());
        v.extend(3u32.to_le_bytes());
        v.extend(0u16.to_le_bytes());
        v.extend((parts.len() as u16).to_le_bytes());
        v.extend([0u8; 16]);
        v.extend(entries);
        v.extend(blobs);
        v
    }

    fn at(layout: &LustreLayout, offsets: &[u64]) -> Vec<u32> {
        offsets.iter().map(|o| layout.server(*o).0).collect()
    }

    #[test]
    fn plain_layouts_with_and_without_a_pool() {
        const MIB: u64 = 1 << 20;
        for pool in [None, Some("flash")] {
            let layout = LustreLayout::parse(&sample(pool, 1, 1 << 20, &[3, 0, 7])).unwrap();
            assert_eq!(at(&layout, &[0, MIB - 1, MIB, 2 * MIB, 3 * MIB, 5 * MIB]), [3, 3, 0, 7, 3, 7]);
        }
    }

    #[test]
    fn a_v1_value_byte_by_byte() {
        // Two stripes of 1 MiB on OSTs 1 and 0: magic and pattern, object id, stripe size and count; then
        // for each object its id, generation and OST.
        let hex = [
            "d00bd10b01000000020400000000000001040000000000000000100002000000",
            "030000000000000000000000000000000000000001000000",
            "020000000000000000000000000000000000000000000000",
        ]
        .concat();
        let value: Vec<u8> =
            (0..hex.len() / 2).map(|i| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).unwrap()).collect();
        assert_eq!(value.len(), HEADER_V1 + 2 * OBJECT);
        assert_eq!(at(&LustreLayout::parse(&value).unwrap(), &[0, 1 << 20, 2 << 20]), [1, 0, 1]);
    }

    #[test]
    fn a_progressive_layout_by_its_extents() {
        const MIB: u64 = 1 << 20;
        let value = composed(&[
            (INITIALISED, 0, MIB, sample(None, 1, 1 << 20, &[5])),
            (INITIALISED, MIB, 64 * MIB, sample(Some("disk"), 1, 4 << 20, &[1, 2, 3, 4])),
            // Not yet written to: a template without objects.
            (0, 64 * MIB, u64::MAX, sample(None, 1, 4 << 20, &[])),
        ]);
        let layout = LustreLayout::parse(&value).unwrap();
        assert_eq!(at(&layout, &[0, MIB, 4 * MIB, 13 * MIB, 100 * MIB]), [5, 1, 2, 4, 2]);
    }

    #[test]
    fn of_mirrors_the_fresh_one_counts() {
        let value = composed(&[
            (INITIALISED | STALE, 0, u64::MAX, sample(None, 1, 1 << 20, &[8])),
            (INITIALISED, 0, u64::MAX, sample(None, 1, 1 << 20, &[9])),
        ]);
        assert_eq!(LustreLayout::parse(&value).unwrap().server(0), ServerId(9));
    }

    #[test]
    fn what_has_no_servers_or_no_sense_says_so() {
        assert_eq!(LustreLayout::parse(&sample(None, 0x100, 1 << 20, &[1])), Err(LayoutError::NoObjects));
        assert_eq!(
            LustreLayout::parse(&sample(None, 1 | RELEASED, 1 << 20, &[1])),
            Err(LayoutError::NoObjects)
        );
        assert_eq!(LustreLayout::parse(&composed(&[])), Err(LayoutError::NoObjects));
        assert_eq!(LustreLayout::parse(&[1, 0, 0, 0]), Err(LayoutError::Magic(1)));
        assert!(matches!(LustreLayout::parse(&[]), Err(LayoutError::Short { needed: 4, .. })));
        let cut = &sample(None, 1, 1 << 20, &[1, 2])[..HEADER_V1 + OBJECT + 3];
        assert!(matches!(LustreLayout::parse(cut), Err(LayoutError::Short { .. })));
        assert!(matches!(LustreLayout::parse(&sample(None, 1, 0, &[1])), Err(LayoutError::Malformed { .. })));
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(
            magic in prop::sample::select(vec![V1, V3, COMPOSITE, 0]),
            mut rest in prop::collection::vec(any::<u8>(), 0..400),
            offset in any::<u64>(),
        ) {
            let mut value = magic.to_le_bytes().to_vec();
            value.append(&mut rest);
            if let Ok(layout) = LustreLayout::parse(&value) {
                layout.server(offset);
            }
        }
    }
}
