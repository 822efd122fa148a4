//! What a protected connection carries once hands are shaken: the same bytes, in records that are sealed with
//! AES-256-GCM. A record is its length (four bytes, little-endian: data and tag), up to [`RECORD`] bytes of data
//! (encrypted for [`Protect::Privacy`], as they are for [`Protect::Integrity`]) and a tag of 16 bytes.
//!
//! Each direction of each connection has a key of its own, made of the job's secret and of everything that was
//! said in the handshake: if that was changed on the way, the first record is already refused. Records are
//! numbered, so that none can be left out, repeated or put elsewhere.

use crate::WireError;
use crate::hello::{Proof, Side};
use forebay_types::{Protect, Secret};
use hmac::{Hmac, Mac};
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use sha2::{Digest, Sha256};
use std::ops::Range;

/// The most data in one record.
pub const RECORD: usize = 64 << 10;
const LENGTH: usize = 4;
const TAG: usize = 16;
/// The largest record as it is sent.
const LARGEST: usize = LENGTH + RECORD + TAG;

/// What the keys of a connection are made of: the secret, as it was proved in this handshake.
#[derive(Clone)]
pub struct Seed([u8; 32]);

impl Proof<'_> {
    /// What the keys of the connection are made of.
    pub fn seed(&self, secret: &Secret) -> Seed {
        Seed(self.keyed(b"forebay  seal  7", secret).finalize().into_bytes().into())
    }
}

impl Seed {
    /// The two ends' keys, by who sends, from the bodies of greeting, hello and welcome as they were sent.
    fn key(&self, sender: Side, handshake: [&[u8]; 3]) -> LessSafeKey {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("HMAC takes keys of any length");
        mac.update(match sender {
            Side::Client => b"from the client",
            Side::Node => b"from  the  node",
        });
        for said in handshake {
            mac.update(&Sha256::digest(said));
        }
        let key: [u8; 32] = mac.finalize().into_bytes().into();
        LessSafeKey::new(UnboundKey::new(&AES_256_GCM, &key).expect("a key of 256 bits"))
    }

    /// What one side seals with and opens with after this handshake; `None` if nothing is to be protected.
    pub fn ends(&self, own: Side, protect: Protect, handshake: [&[u8]; 3]) -> Option<(Sealer, Opener)> {
        let encrypt = match protect {
            Protect::None => return None,
            Protect::Integrity => false,
            Protect::Privacy => true,
        };
        let other = match own {
            Side::Client => Side::Node,
            Side::Node => Side::Client,
        };
        let end = |side| End { key: self.key(side, handshake), encrypt, records: 0 };
        Some((
            Sealer(end(own)),
            Opener { end: end(other), raw: vec![0; 2 * LARGEST], held: 0..0, plain: 0..0 },
        ))
    }
}

/// One direction.
struct End {
    key: LessSafeKey,
    encrypt: bool,
    /// How many there were.
    records: u64,
}

impl End {
    fn nonce(&self) -> Nonce {
        let mut nonce = [0; 12];
        nonce[4..].copy_from_slice(&self.records.to_be_bytes());
        Nonce::assume_unique_for_key(nonce)
    }
}

/// The sending side.
pub struct Sealer(End);

impl Sealer {
    /// How many bytes the records have that carry so many of data.
    pub fn length(data: usize) -> usize {
        data + data.div_ceil(RECORD) * (LENGTH + TAG)
    }

    /// Appends the records that carry these pieces, one behind the other.
    pub fn seal<'a>(&mut self, pieces: impl IntoIterator<Item = &'a [u8]>, out: &mut Vec<u8>) {
        let mut begun: Option<usize> = None;
        for mut piece in pieces {
            while !piece.is_empty() {
                let start = *begun.get_or_insert_with(|| {
                    out.extend_from_slice(&[0; LENGTH]);
                    out.len()
                });
                let (now, later) = piece.split_at(piece.len().min(RECORD - (out.len() - start)));
                out.extend_from_slice(now);
                piece = later;
                if out.len() - start == RECORD {
                    self.finish(start, out);
                    begun = None;
                }
            }
        }
        if let Some(start) = begun {
            self.finish(start, out);
        }
    }

    /// The data of a record stand in `out` from `start` on, behind room for the length.
    fn finish(&mut self, start: usize, out: &mut Vec<u8>) {
        let length = ((out.len() - start + TAG) as u32).to_le_bytes();
        out[start - LENGTH..start].copy_from_slice(&length);
        let (nonce, key) = (self.0.nonce(), &self.0.key);
        let tag = if self.0.encrypt {
            key.seal_in_place_separate_tag(nonce, Aad::from(length), &mut out[start..])
        } else {
            key.seal_in_place_separate_tag(nonce, Aad::from(&out[start - LENGTH..]), &mut [])
        };
        self.0.records += 1;
        out.extend_from_slice(tag.expect("a record is short").as_ref());
    }

    /// The last record was not sent, not a byte of it: its number is free.
    pub fn take_back(&mut self) {
        self.0.records -= 1;
    }
}

/// The receiving side: bytes of the socket go into [`Opener::room`], data come out of [`Opener::take`].
pub struct Opener {
    end: End,
    raw: Vec<u8>,
    /// The part of `raw` that was received and not opened yet.
    held: Range<usize>,
    /// The part of `raw` that was opened and not taken yet, before that.
    plain: Range<usize>,
}

impl Opener {
    /// Where the next bytes belong. Never empty after [`Opener::take`] gave nothing.
    pub fn room(&mut self) -> &mut [u8] {
        if self.plain.is_empty() && (self.held.is_empty() || self.raw.len() - self.held.start < LARGEST) {
            self.raw.copy_within(self.held.clone(), 0);
            self.held = 0..self.held.len();
            self.plain = 0..0;
        }
        &mut self.raw[self.held.end..]
    }

    /// So many bytes were put there.
    pub fn received(&mut self, n: usize) {
        self.held.end = self.raw.len().min(self.held.end + n);
    }

    /// Whether there is data to take.
    pub fn is_ready(&self) -> bool {
        !self.plain.is_empty()
    }

    /// Data, as much as there is and fits; 0: more bytes must come first.
    pub fn take(&mut self, into: &mut [u8]) -> Result<usize, WireError> {
        if self.plain.is_empty() {
            self.open()?;
        }
        let n = self.plain.len().min(into.len());
        into[..n].copy_from_slice(&self.raw[self.plain.start..self.plain.start + n]);
        self.plain.start += n;
        Ok(n)
    }

    /// Opens the next record, if it is all there.
    fn open(&mut self) -> Result<(), WireError> {
        let Some(length) = self.raw[self.held.clone()].first_chunk::<LENGTH>().copied() else {
            return Ok(());
        };
        let size = u32::from_le_bytes(length) as usize;
        if size <= TAG || size > RECORD + TAG {
            return Err(WireError::Tampered);
        }
        if self.held.len() < LENGTH + size {
            return Ok(());
        }
        let start = self.held.start + LENGTH;
        let (nonce, key) = (self.end.nonce(), &self.end.key);
        let data = size - TAG;
        let opened = if self.end.encrypt {
            key.open_in_place(nonce, Aad::from(length), &mut self.raw[start..start + size]).map(drop)
        } else {
            let (before, tag) = self.raw.split_at_mut(start + data);
            key.open_in_place(nonce, Aad::from(&before[start - LENGTH..]), &mut tag[..TAG]).map(drop)
        };
        opened.map_err(|_| WireError::Tampered)?;
        self.end.records += 1;
        self.plain = start..start + data;
        self.held.start = start + size;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hello::SessionId;

    fn seed() -> Seed {
        let proof = Proof {
            node: &[1; 16],
            client: &[2; 16],
            session: SessionId([3; 16]),
            job: "j",
            protect: Protect::Privacy,
            exports: &[],
        };
        proof.seed(&Secret::new([7; 32]))
    }

    fn ends(protect: Protect) -> (Sealer, Opener) {
        let said = [&b"greeting"[..], b"hello", b"welcome"];
        let (sealer, _) = seed().ends(Side::Client, protect, said).unwrap();
        let (_, opener) = seed().ends(Side::Node, protect, said).unwrap();
        (sealer, opener)
    }

    /// What comes out if these bytes come in pieces of so many.
    fn opened(opener: &mut Opener, mut sent: &[u8], piece: usize) -> Result<Vec<u8>, WireError> {
        let mut out = Vec::new();
        let mut some = [0; 1000];
        loop {
            match opener.take(&mut some)? {
                0 if sent.is_empty() => return Ok(out),
                0 => {
                    let room = opener.room();
                    assert!(!room.is_empty());
                    let n = room.len().min(piece).min(sent.len());
                    room[..n].copy_from_slice(&sent[..n]);
                    opener.received(n);
                    sent = &sent[n..];
                }
                n => out.extend_from_slice(&some[..n]),
            }
        }
    }

    #[test]
    fn what_is_sealed_is_opened_however_it_comes() {
        let data: Vec<u8> = (0..300_000u32).map(|i| (i * 7 + i / 251) as u8).collect();
        for protect in [Protect::Integrity, Protect::Privacy] {
            for piece in [1, 5, 20, 4096, 65_555, 1 << 20] {
                let (mut sealer, mut opener) = ends(protect);
                let mut sent = Vec::new();
                sealer.seal([&data[..1], &[], &data[1..77]], &mut sent);
                sealer.seal([&data[77..]], &mut sent);
                assert_eq!(sent.len(), Sealer::length(77) + Sealer::length(data.len() - 77));
                assert_eq!(sent.windows(64).any(|w| w == &data[..64]), protect == Protect::Integrity);
                assert_eq!(opened(&mut opener, &sent, piece), Ok(data.clone()), "{protect}, {piece}");
            }
        }
        assert!(seed().ends(Side::Node, Protect::None, [b"", b"", b""]).is_none());
    }

    #[test]
    fn what_was_changed_left_out_repeated_or_sent_elsewhere_is_refused() {
        for protect in [Protect::Integrity, Protect::Privacy] {
            let (mut sealer, _) = ends(protect);
            let (mut one, mut two) = (Vec::new(), Vec::new());
            sealer.seal([&b"the first"[..]], &mut one);
            sealer.seal([&b"the second"[..]], &mut two);
            let fresh = || ends(protect).1;
            assert_eq!(
                opened(&mut fresh(), &[&one[..], &two].concat(), 7),
                Ok(b"the firstthe second".to_vec())
            );
            for bit in 0..one.len() * 8 {
                let mut changed = one.clone();
                changed[bit / 8] ^= 1 << (bit % 8);
                // A length that grew waits for more, which is refused when it comes.
                let all = [&changed[..], &[0; LARGEST]].concat();
                assert_eq!(opened(&mut fresh(), &all, 64), Err(WireError::Tampered), "bit {bit}");
            }
            assert_eq!(opened(&mut fresh(), &two, 64), Err(WireError::Tampered), "left out");
            assert_eq!(
                opened(&mut fresh(), &[&one[..], &one].concat(), 64),
                Err(WireError::Tampered),
                "repeated"
            );
            // Back to who sent it, and after another handshake.
            let said = [&b"greeting"[..], b"hello", b"welcome"];
            let (_, mut own) = seed().ends(Side::Client, protect, said).unwrap();
            assert_eq!(opened(&mut own, &one, 64), Err(WireError::Tampered));
            let (_, mut other) =
                seed().ends(Side::Node, protect, [b"greeting", b"hello", b"welcome!"]).unwrap();
            assert_eq!(opened(&mut other, &one, 64), Err(WireError::Tampered));
        }
    }

    #[test]
    fn a_record_that_was_not_sent_leaves_no_gap() {
        let (mut sealer, mut opener) = ends(Protect::Privacy);
        let (mut unsent, mut sent) = (Vec::new(), Vec::new());
        sealer.seal([&b"ping"[..]], &mut unsent);
        sealer.take_back();
        sealer.seal([&b"data"[..]], &mut sent);
        assert_eq!(opened(&mut opener, &sent, 64), Ok(b"data".to_vec()));
    }
}
