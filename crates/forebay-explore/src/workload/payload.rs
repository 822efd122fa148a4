//! Bytes that tell where they belong: a function of file and offset, cheap to make and to check.

use super::requests::mix;

/// The bytes of one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Payload {
    key: u64,
}

/// A byte that is not what it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("byte {offset} is {found:#04x}, not {expected:#04x}")]
pub struct Mismatch {
    /// Where in the file.
    pub offset: u64,
    /// What it should be.
    pub expected: u8,
    /// What it is.
    pub found: u8,
}

impl Payload {
    /// The bytes of the file called `name`.
    pub fn of(name: &str) -> Payload {
        let key = name
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325, |h: u64, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3));
        Payload { key: mix(key) }
    }

    /// The eight bytes at `index × 8`. One multiplication and a shift: enough that no two words of a
    /// file, and no two files, are alike in practice.
    fn word(self, index: u64) -> [u8; 8] {
        let x = (index ^ self.key).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (x ^ (x >> 29)).to_le_bytes()
    }

    /// Fills `buf` with the bytes at `offset`.
    pub fn fill(self, buf: &mut [u8], offset: u64) {
        let skip = (offset % 8) as usize;
        let mut index = offset / 8;
        let head = if skip == 0 { 0 } else { (8 - skip).min(buf.len()) };
        buf[..head].copy_from_slice(&self.word(index)[skip.min(8 - head)..][..head]);
        if head > 0 {
            index = index.wrapping_add(1);
        }
        let mut words = buf[head..].chunks_exact_mut(8);
        for word in &mut words {
            word.copy_from_slice(&self.word(index));
            index = index.wrapping_add(1);
        }
        let tail = words.into_remainder();
        let n = tail.len();
        tail.copy_from_slice(&self.word(index)[..n]);
    }

    /// Checks that `buf` holds the bytes at `offset`.
    pub fn check(self, buf: &[u8], offset: u64) -> Result<(), Mismatch> {
        let mut expected = [0_u8; 4096];
        for (i, chunk) in buf.chunks(expected.len()).enumerate() {
            let at = offset + (i * expected.len()) as u64;
            let expected = &mut expected[..chunk.len()];
            self.fill(expected, at);
            if chunk != expected {
                let k = chunk.iter().zip(&*expected).position(|(a, b)| a != b).unwrap_or(0);
                return Err(Mismatch { offset: at + k as u64, expected: expected[k], found: chunk[k] });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Whatever the pieces, the whole is the same.
        #[test]
        fn bytes_depend_on_place_alone(offset in 0..10_000_u64, len in 0..9000_usize, cut in 0..9000_usize) {
            let p = Payload::of("a");
            let mut whole = vec![0; len];
            p.fill(&mut whole, offset);
            let cut = cut.min(len);
            let (mut a, mut b) = (vec![0; cut], vec![0; len - cut]);
            p.fill(&mut a, offset);
            p.fill(&mut b, offset + cut as u64);
            a.extend(b);
            prop_assert!(a == whole);
            prop_assert!(p.check(&whole, offset).is_ok());
        }

        #[test]
        fn a_wrong_byte_is_found(len in 1..9000_usize, at in 0..9000_usize, offset in 0..1000_u64) {
            let p = Payload::of("a");
            let mut buf = vec![0; len];
            p.fill(&mut buf, offset);
            let at = at % len;
            buf[at] ^= 1;
            prop_assert_eq!(p.check(&buf, offset).unwrap_err().offset, offset + at as u64);
        }
    }

    #[test]
    fn other_places_and_files_have_other_bytes() {
        let mut buf = [0; 4096];
        Payload::of("a").fill(&mut buf, 0);
        assert!(Payload::of("a").check(&buf, 4096).is_err());
        assert!(Payload::of("b").check(&buf, 0).is_err());
        assert!(Payload::of("a").check(&[0; 64], 0).is_err());
    }
}
