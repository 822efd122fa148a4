//! As much of a program's or library's file as is needed to find the libraries it asks for.

const PT_LOAD: u64 = 1;
const PT_DYNAMIC: u64 = 2;
const PT_INTERP: u64 = 3;
const PT_NOTE: u64 = 4;
/// `e_machine` of the processor this is compiled for.
const MACHINE: u64 = if cfg!(target_arch = "x86_64") { 62 } else { 183 };
const DT_NEEDED: u64 = 1;
const DT_STRTAB: u64 = 5;
const DT_RPATH: u64 = 15;
const DT_RUNPATH: u64 = 29;

/// A 64-bit little-endian ELF file, or its beginning.
#[derive(Clone, Copy, Debug)]
pub struct Elf<'a>(&'a [u8]);

/// What a file asks the dynamic linker for.
#[derive(Debug, Default)]
pub struct Wants<'a> {
    /// Libraries, by name.
    pub needed: Vec<&'a [u8]>,
    /// Directories to look in, colon-separated, `$ORIGIN` and all.
    pub paths: Vec<&'a [u8]>,
}

struct Segment {
    kind: u64,
    offset: u64,
    vaddr: u64,
    size: u64,
}

impl<'a> Elf<'a> {
    /// The file that begins with `bytes`, if it is one.
    pub fn new(bytes: &'a [u8]) -> Option<Elf<'a>> {
        (bytes.starts_with(b"\x7fELF") && bytes.get(4) == Some(&2) && bytes.get(5) == Some(&1))
            .then_some(Elf(bytes))
    }

    fn word(self, at: u64, n: usize) -> Option<u64> {
        let at = usize::try_from(at).ok()?;
        let mut b = [0u8; 8];
        b[..n].copy_from_slice(self.0.get(at..at.checked_add(n)?)?);
        Some(u64::from_le_bytes(b))
    }

    fn segments(self) -> Option<Vec<Segment>> {
        let (table, size, count) = (self.word(32, 8)?, self.word(54, 2)?, self.word(56, 2)?);
        (0..count.min(64))
            .map(|i| {
                let at = table.checked_add(i * size)?;
                Some(Segment {
                    kind: self.word(at, 4)?,
                    offset: self.word(at + 8, 8)?,
                    vaddr: self.word(at + 16, 8)?,
                    size: self.word(at + 32, 8)?,
                })
            })
            .collect()
    }

    /// Whether it is for the processor this code runs on.
    pub fn is_for_this_processor(&self) -> bool {
        self.word(18, 2) == Some(MACHINE)
    }

    /// The dynamic linker it asks for.
    pub fn interpreter(self) -> Option<&'a [u8]> {
        let segments = self.segments()?;
        let named = segments.iter().find(|s| s.kind == PT_INTERP)?;
        let rest = self.0.get(usize::try_from(named.offset).ok()?..)?;
        let end = rest.iter().take(4096).position(|&b| b == 0)?;
        Some(&rest[..end])
    }

    /// Whether Go's linker left its mark, a note of that name.
    pub fn is_go(self) -> bool {
        let notes = |s: &Segment| -> Option<bool> {
            let (mut at, end) = (s.offset, s.offset.checked_add(s.size)?);
            while at.checked_add(12)? <= end {
                let (name, value) = (self.word(at, 4)?, self.word(at + 4, 4)?);
                if name == 4 && self.word(at + 12, 4)? == u64::from(u32::from_le_bytes(*b"Go\0\0")) {
                    return Some(true);
                }
                at = at.checked_add(12 + name.next_multiple_of(4) + value.next_multiple_of(4))?;
            }
            Some(false)
        };
        self.segments()
            .is_some_and(|all| all.iter().filter(|s| s.kind == PT_NOTE).any(|s| notes(s) == Some(true)))
    }

    /// Whether it has no interpreter. Unclear cases count as dynamic.
    pub fn is_static(self) -> bool {
        self.segments().is_some_and(|all| all.iter().all(|s| s.kind != PT_INTERP))
    }

    /// What it asks for; nothing if it cannot be understood.
    pub fn wants(self) -> Wants<'a> {
        self.read_wants().unwrap_or_default()
    }

    fn read_wants(self) -> Option<Wants<'a>> {
        let segments = self.segments()?;
        let dynamic = segments.iter().find(|s| s.kind == PT_DYNAMIC)?;
        let entries: Vec<(u64, u64)> = (0..dynamic.size.min(1 << 16) / 16)
            .map_while(|i| {
                let at = dynamic.offset.checked_add(i * 16)?;
                Some((self.word(at, 8)?, self.word(at + 8, 8)?)).filter(|(tag, _)| *tag != 0)
            })
            .collect();
        let table = entries.iter().find(|(tag, _)| *tag == DT_STRTAB)?.1;
        let load = segments
            .iter()
            .find(|s| s.kind == PT_LOAD && (s.vaddr..s.vaddr.saturating_add(s.size)).contains(&table))?;
        let strings = load.offset.checked_add(table - load.vaddr)?;
        let text = |offset: u64| -> Option<&'a [u8]> {
            let rest = self.0.get(usize::try_from(strings.checked_add(offset)?).ok()?..)?;
            Some(&rest[..rest.iter().take(4096).position(|&b| b == 0)?])
        };
        let all =
            |want: u64| entries.iter().filter(move |(tag, _)| *tag == want).filter_map(|(_, v)| text(*v));
        Some(Wants {
            needed: all(DT_NEEDED).collect(),
            paths: all(DT_RPATH).chain(all(DT_RUNPATH)).collect(),
        })
    }
}
