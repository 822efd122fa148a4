//! CephFS: the `ceph.file.layout` virtual attribute, text. A file is cut into stripe units over a set of
//! objects; CRUSH puts each object on an OSD, which only the cluster can tell. Here an object stands
//! for its server: requests to one object surely go to one OSD.

use super::LayoutError;
use forebay_types::ServerId;

/// How a file is cut into objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CephLayout {
    unit: u64,
    count: u64,
    units_per_object: u64,
}

impl CephLayout {
    /// Reads the value of `ceph.file.layout`.
    ///
    /// # Errors
    /// If a field is missing or makes no sense.
    pub fn parse(text: &str) -> Result<CephLayout, LayoutError> {
        let malformed = |reason: String| LayoutError::Malformed { what: "CephFS", reason };
        let field = |name: &str| -> Result<u64, LayoutError> {
            let value = text.split_ascii_whitespace().find_map(|f| f.strip_prefix(name)?.strip_prefix('='));
            let value = value.ok_or_else(|| malformed(format!("it has no `{name}`")))?;
            let number = value.parse().ok().filter(|n| *n > 0);
            number.ok_or_else(|| malformed(format!("`{name}` is `{value}`")))
        };
        let (unit, count, object) = (field("stripe_unit")?, field("stripe_count")?, field("object_size")?);
        if object % unit != 0 {
            return Err(malformed(format!("objects of {object} bytes do not hold whole units of {unit}")));
        }
        Ok(CephLayout { unit, count, units_per_object: object / unit })
    }

    /// The number of the object of the byte at `offset`, as a server.
    pub fn server(&self, offset: u64) -> ServerId {
        let unit = offset / self.unit;
        let (row, column) = (unit / self.count, unit % self.count);
        let object = (row / self.units_per_object).saturating_mul(self.count).saturating_add(column);
        ServerId(object as u32)
    }

    /// Bytes of a piece.
    pub(super) fn piece(&self) -> u64 {
        self.unit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_layout_is_one_object_after_the_other() {
        let text = "stripe_unit=4194304 stripe_count=1 object_size=4194304 pool=cephfs_data";
        let layout = CephLayout::parse(text).unwrap();
        let objects = [0, (4 << 20) - 1, 4 << 20, 41 << 20].map(|o| layout.server(o).0);
        assert_eq!(objects, [0, 0, 1, 10]);
    }

    #[test]
    fn striping_fills_a_set_of_objects_before_the_next() {
        let text = "stripe_unit=65536 stripe_count=5 object_size=131072 pool=3 pool_namespace=x";
        let layout = CephLayout::parse(text).unwrap();
        let objects: Vec<u32> = (0..12).map(|u| layout.server(u * 65536).0).collect();
        assert_eq!(objects, [0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 5, 6]);
    }

    #[test]
    fn nonsense_is_refused() {
        for text in [
            "",
            "stripe_unit=0 stripe_count=1 object_size=1",
            "stripe_unit=4 stripe_count=1 object_size=6",
            "stripe_unit=4 stripe_count=x object_size=8",
            "stripe_unit=4 object_size=8",
        ] {
            assert!(matches!(CephLayout::parse(text), Err(LayoutError::Malformed { .. })), "{text}");
        }
    }
}
