//! GlusterFS: the `trusted.glusterfs.pathinfo` attribute, text. A file lies on one subvolume (a brick, or
//! a set of bricks with the same content); a sharded one has its further blocks as files
//! `<gfid>.<number>` in `/.shard`, each where the hash of its name falls in that directory's table.

use super::LayoutError;
use forebay_types::ServerId;

/// The bricks of a volume, as `gluster volume info` lists them. A server is a subvolume by its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GlusterVolume {
    bricks: Vec<String>,
    per_subvolume: usize,
}

/// Which subvolume takes which hashes of names in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DhtTable {
    ranges: Vec<(u32, u32, ServerId)>,
}

/// How a file is cut into shards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shards {
    /// The file's id, as `glusterfs.gfid.string` shows it.
    pub gfid: String,
    /// The volume's `features.shard-block-size`.
    pub block: u64,
    /// The table of `/.shard`.
    pub table: DhtTable,
}

/// Where a file lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GlusterLayout {
    /// The subvolume of the file, or of its first block.
    pub base: ServerId,
    /// The rest of it, if it is sharded.
    pub shards: Option<Shards>,
}

impl GlusterLayout {
    /// The subvolume of the byte at `offset`.
    pub fn server(&self, offset: u64) -> ServerId {
        match &self.shards {
            Some(s) if offset >= s.block.max(1) => {
                let name = format!("{}.{}", s.gfid, offset / s.block.max(1));
                s.table.server(&name).unwrap_or(self.base)
            }
            _ => self.base,
        }
    }
}

impl GlusterVolume {
    /// Bricks (`host:/directory`) in the volume's order; `per_subvolume` of them hold the same (the
    /// replica count, or the bricks of a dispersed set; 1 for a plain distributed volume).
    pub fn new(bricks: Vec<String>, per_subvolume: usize) -> GlusterVolume {
        GlusterVolume { bricks, per_subvolume: per_subvolume.max(1) }
    }

    /// How many data servers the volume has.
    pub fn servers(&self) -> u32 {
        self.bricks.len().div_ceil(self.per_subvolume) as u32
    }

    /// The subvolume of a file, from its pathinfo.
    ///
    /// # Errors
    /// If there is no brick in it, or one the volume does not have.
    pub fn file(&self, pathinfo: &str) -> Result<ServerId, LayoutError> {
        let (host, directory) =
            first_brick(pathinfo).ok_or_else(|| malformed("it names no brick".to_owned()))?;
        let place = self.place(host, directory).ok_or_else(|| {
            malformed(format!(
                "brick {host}:{directory} is not one of the volume's; give the hosts the names they go by"
            ))
        })?;
        Ok(ServerId((place / self.per_subvolume) as u32))
    }

    /// The place of a brick. Hosts call themselves by their own names, while a volume may know them by
    /// addresses or with their domain: a directory that only one brick has tells, too.
    fn place(&self, host: &str, directory: &str) -> Option<usize> {
        let short = |name: &str| name.split('.').next().unwrap_or_default().to_owned();
        let all = self.bricks.iter().enumerate().filter_map(|(i, b)| {
            let (h, d) = b.split_once(':')?;
            (d == directory).then_some((i, h))
        });
        let all: Vec<(usize, &str)> = all.collect();
        let exact = all.iter().find(|(_, h)| *h == host);
        let similar = || all.iter().find(|(_, h)| short(h) == short(host));
        exact.or_else(|| if all.len() == 1 { all.first() } else { similar() }).map(|(i, _)| *i)
    }

    /// A directory's table, from its pathinfo.
    ///
    /// # Errors
    /// If there is none in it, or it is not to be understood.
    pub fn table(&self, pathinfo: &str) -> Result<DhtTable, LayoutError> {
        let missing = || malformed("it has no table of hashes; is it of a directory?".to_owned());
        let at = pathinfo.rfind("-dht-layout ").ok_or_else(missing)?;
        let entries = pathinfo[at + "-dht-layout ".len()..].split('(').skip(1);
        let ranges = entries.map(|e| self.range(e)).collect::<Result<Vec<_>, _>>()?;
        if ranges.is_empty() { Err(missing()) } else { Ok(DhtTable { ranges }) }
    }

    /// `NAME-client-2 2863311530 4294967295)`
    fn range(&self, entry: &str) -> Result<(u32, u32, ServerId), LayoutError> {
        let fail = || malformed(format!("`({entry}` is no entry of a table"));
        let mut fields = entry.trim_end().trim_end_matches(')').split_ascii_whitespace();
        let (name, start, end) = fields
            .next()
            .zip(fields.next())
            .zip(fields.next())
            .map(|((n, s), e)| (n, s, e))
            .ok_or_else(fail)?;
        let number = |text: &str| text.parse::<u32>().map_err(|_| fail());
        let subvolume = number(name.rsplit('-').next().unwrap_or_default())?;
        if subvolume >= self.servers() {
            return Err(malformed(format!("{name} is beyond the volume's {} subvolumes", self.servers())));
        }
        Ok((number(start)?, number(end)?, ServerId(subvolume)))
    }

    /// The table a directory gets when it is made, bricks being of one size: equal ranges, the first of
    /// them for the subvolume that the hash of the path picks. For `/.shard`, whose pathinfo a client
    /// is not shown.
    pub fn even_table(&self, path: &str) -> DhtTable {
        let count = self.servers().max(1);
        let (first, chunk) = (hash(path.as_bytes()) % count, u32::MAX / count);
        let ranges = (0..count).map(|i| {
            let end = if i + 1 == count { u32::MAX } else { chunk * (i + 1) - 1 };
            (chunk * i, end, ServerId((first + i) % count))
        });
        DhtTable { ranges: ranges.collect() }
    }
}

impl DhtTable {
    /// The subvolume of a name.
    pub fn server(&self, name: &str) -> Option<ServerId> {
        let hash = hash(name.as_bytes());
        self.ranges.iter().find(|(start, end, _)| (*start..=*end).contains(&hash)).map(|(_, _, s)| *s)
    }
}

fn malformed(reason: String) -> LayoutError {
    LayoutError::Malformed { what: "GlusterFS", reason }
}

/// Host and directory of the first `<POSIX(/directory):host:/path>`.
fn first_brick(pathinfo: &str) -> Option<(&str, &str)> {
    let (_, leaf) = pathinfo.split_once("<POSIX(")?;
    let (directory, rest) = leaf.split_once("):")?;
    let (host, _) = rest.split_once(':')?;
    Some((host, directory))
}

/// The Davies-Meyer hash by which GlusterFS distributes names.
fn hash(name: &[u8]) -> u32 {
    hash_with(name, u32::from_le_bytes)
}

fn hash_with(name: &[u8], word: fn([u8; 4]) -> u32) -> u32 {
    let mut state = (0x9464_a485_u32, 0x542e_1a94_u32);
    let (quads, tail) = name.as_chunks::<16>();
    for quad in quads {
        let (words, _) = quad.as_chunks::<4>();
        mix(&mut state, [0, 1, 2, 3].map(|i| word(words[i])), 6);
    }
    // What is left is filled up with the length, the odd bytes shifted into the first such word.
    let (words, odd) = tail.as_chunks::<4>();
    let length = name.len() as u32;
    let pad = (length | length << 8) | (length | length << 8) << 16;
    let mut last = [pad; 4];
    for (to, from) in last.iter_mut().zip(words) {
        *to = word(*from);
    }
    if let Some(to) = last.get_mut(words.len()) {
        *to = odd.iter().fold(pad, |w, b| w << 8 | u32::from(*b));
    }
    mix(&mut state, last, 10);
    state.0 ^ state.1
}

fn mix(state: &mut (u32, u32), key: [u32; 4], rounds: u32) {
    let (mut a, mut b) = *state;
    let mut sum = 0u32;
    for _ in 0..rounds {
        sum = sum.wrapping_add(0x9e37_79b9);
        a = a.wrapping_add(
            (b << 4).wrapping_add(key[0]) ^ b.wrapping_add(sum) ^ (b >> 5).wrapping_add(key[1]),
        );
        b = b.wrapping_add(
            (a << 4).wrapping_add(key[2]) ^ a.wrapping_add(sum) ^ (a >> 5).wrapping_add(key[3]),
        );
    }
    *state = (state.0.wrapping_add(a), state.1.wrapping_add(b));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn volume() -> GlusterVolume {
        GlusterVolume::new(["node01", "node02", "node03"].map(|h| format!("{h}:/mnt/h1a/data")).into(), 1)
    }

    #[test]
    fn the_hash_is_that_of_glusterfs() {
        // Published values, from a big-endian machine of before the hash was made independent of it.
        for (name, value) in [
            ("/d/backends/patchy1/rebal2", 0xbe92_bc0c),
            ("/d/backends/patchy1", 0x1015_4684),
            ("/d/backends/patchy3", 0x6b2e_464f),
        ] {
            assert_eq!(hash_with(name.as_bytes(), u32::from_be_bytes), value, "{name}");
        }
        assert_ne!(hash(b"/d/backends/patchy1"), 0x1015_4684);
        for len in 0..40 {
            hash(&vec![b'x'; len]);
        }
    }

    #[test]
    fn a_file_is_found_by_its_brick() {
        let one = "(<DISTRIBUTE:test-dht> <POSIX(/mnt/h1a/data):node03:/mnt/h1a/data/dir//file3>)";
        assert_eq!(volume().file(one), Ok(ServerId(2)));
        let bricks = (1..=4).map(|i| format!("server{i}:/export/brick{i}")).collect();
        let replicated = "(<DISTRIBUTE:r2-dht> (<REPLICATE:r2-replicate-1> \
             <POSIX(/export/brick3):server3:/export/brick3/f> <POSIX(/export/brick4):server4:/export/brick4/f>))";
        assert_eq!(GlusterVolume::new(bricks, 2).file(replicated), Ok(ServerId(1)));
        for bad in ["", "(<DISTRIBUTE:x-dht>)", "<POSIX(/b):nowhere:/b/f>", "<POSIX(/b", "<POSIX(/b):h"] {
            assert!(matches!(volume().file(bad), Err(LayoutError::Malformed { .. })), "{bad}");
        }
    }

    #[test]
    fn hosts_may_go_by_other_names_than_the_volume_knows() {
        let info = |host: &str, dir: &str| format!("(<DISTRIBUTE:x-dht> <POSIX({dir}):{host}:{dir}/f>)");
        // One machine with several bricks, known by its address: the directory tells.
        let one = GlusterVolume::new((1..=4).map(|i| format!("10.0.0.1:/bricks/{i}")).collect(), 1);
        assert_eq!(one.file(&info("vm", "/bricks/3")), Ok(ServerId(2)));
        // Several machines with the same directory: the name must, with or without its domain.
        let many = |hosts: [&str; 3]| GlusterVolume::new(hosts.map(|h| format!("{h}:/b")).into(), 1);
        assert_eq!(many(["s1.x.org", "s2.x.org", "s3.x.org"]).file(&info("s2", "/b")), Ok(ServerId(1)));
        let error = many(["10.0.0.1", "10.0.0.2", "10.0.0.3"]).file(&info("s2", "/b")).unwrap_err();
        assert!(error.to_string().contains("names they go by"), "{error}");
    }

    #[test]
    fn a_directory_shows_its_table() {
        // As a volume of three bricks printed it, in the order the bricks answered.
        let text = "((<DISTRIBUTE:mcv01-dht> \
            <POSIX(/mnt/h1a/data):node02:/mnt/h1a/data/data/directory/random - new name> \
            <POSIX(/mnt/h1a/data):node03:/mnt/h1a/data/data/directory/random - old name> \
            <POSIX(/mnt/h1a/data):node01:/mnt/h1a/data/data/directory/random - new name>) \
            (mcv01-dht-layout (mcv01-client-0 0 1431655764) (mcv01-client-1 1431655765 2863311529) \
            (mcv01-client-2 2863311530 4294967295)))";
        let table = volume().table(text).unwrap();
        assert_eq!(table.ranges.iter().map(|r| r.2.0).collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(table.ranges[1], (1_431_655_765, 2_863_311_529, ServerId(1)));
        for (name, value) in [("a", hash(b"a")), ("file", hash(b"file"))] {
            assert_eq!(table.server(name), Some(ServerId(value / 1_431_655_765)));
        }
        let even: Vec<_> = volume().even_table("/x").ranges.iter().map(|r| (r.0, r.1)).collect();
        assert_eq!(even, [(0, 1_431_655_764), (1_431_655_765, 2_863_311_529), (2_863_311_530, u32::MAX)]);
        for bad in [
            "",
            "(x-dht-layout ",
            "(x-dht-layout (a 1 2))",
            "(x-dht-layout (x-client-9 1 2))",
            "(x-dht-layout (x-client-0 1))",
        ] {
            assert!(matches!(volume().table(bad), Err(LayoutError::Malformed { .. })), "{bad}");
        }
    }

    #[test]
    fn shards_go_where_their_names_hash() {
        let table = volume().even_table("/.shard");
        let gfid = "11118443-1894-4273-9340-4b212fa1c0e4".to_owned();
        let shards = Shards { gfid: gfid.clone(), block: 4 << 20, table: table.clone() };
        let layout = GlusterLayout { base: ServerId(1), shards: Some(shards) };
        assert_eq!(layout.server((4 << 20) - 1), ServerId(1));
        let mut seen = [false; 3];
        for block in 1..40u64 {
            let server = layout.server(block * (4 << 20) + 5);
            assert_eq!(Some(server), table.server(&format!("{gfid}.{block}")));
            seen[server.0 as usize] = true;
        }
        assert_eq!(seen, [true; 3]);
    }
}
