//! Slot costs: how many depth slots a request of a given size occupies, as a table of steps that a
//! storage profile yields. Written `128KiB:1/2MiB:5`.

use forebay_types::size;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use std::fmt;
use std::str::FromStr;

/// Steps of (largest size, slots), rising in both. Past the last step the cost goes on in multiples
/// of that step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotCosts {
    steps: Vec<(u64, u32)>,
}

impl SlotCosts {
    /// The steps, in order of size.
    ///
    /// # Errors
    /// If there are none, or they do not rise from at least one byte and one slot.
    pub fn new(steps: Vec<(u64, u32)>) -> Result<SlotCosts, String> {
        let rises = steps.windows(2).all(|w| w[0].0 < w[1].0 && w[0].1 <= w[1].1);
        match steps.first() {
            Some(&(size, slots)) if size > 0 && slots > 0 && rises => Ok(SlotCosts { steps }),
            _ => Err("slot costs are steps of rising size and slots, as in `128KiB:1/2MiB:5`".to_owned()),
        }
    }

    /// The slots of a request of `bytes`, and the largest size that costs no more.
    pub fn of(&self, bytes: u64) -> (u32, u64) {
        let at = self.steps.partition_point(|(size, _)| *size < bytes);
        match (self.steps.get(at), self.steps.last()) {
            (Some(&(size, slots)), _) => (slots, size),
            (None, Some(&(size, slots))) => {
                let times = bytes.div_ceil(size);
                (u32::try_from(times).unwrap_or(u32::MAX).saturating_mul(slots), times.saturating_mul(size))
            }
            (None, None) => (1, u64::MAX),
        }
    }
}

impl Default for SlotCosts {
    /// What vPFS+ found on its storage.
    fn default() -> SlotCosts {
        SlotCosts { steps: vec![(128 << 10, 1), (2 << 20, 5)] }
    }
}

impl fmt::Display for SlotCosts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, (size, slots)) in self.steps.iter().enumerate() {
            write!(f, "{}{}:{slots}", if i > 0 { "/" } else { "" }, size::show(*size))?;
        }
        Ok(())
    }
}

impl FromStr for SlotCosts {
    type Err = String;

    fn from_str(text: &str) -> Result<SlotCosts, String> {
        let step = |step: &str| -> Result<(u64, u32), String> {
            let (size, slots) =
                step.split_once(':').ok_or_else(|| format!("`{step}` is not of the form size:slots"))?;
            let slots = slots.trim().parse().map_err(|_| format!("`{slots}` is no number of slots"))?;
            Ok((size::parse(size).map_err(|e| e.to_string())?, slots))
        };
        SlotCosts::new(text.split('/').map(step).collect::<Result<_, _>>()?)
    }
}

impl Serialize for SlotCosts {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for SlotCosts {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<SlotCosts, D::Error> {
        String::deserialize(d)?.parse().map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_are_steps_and_go_on_in_multiples() {
        let costs = SlotCosts::default();
        for (bytes, slots, largest) in [
            (0, 1, 128 << 10),
            (128 << 10, 1, 128 << 10),
            ((128 << 10) + 1, 5, 2 << 20),
            (2 << 20, 5, 2 << 20),
            ((2 << 20) + 1, 10, 4 << 20),
            (32 << 20, 80, 32 << 20),
        ] {
            assert_eq!(costs.of(bytes), (slots, largest), "{bytes}");
        }
    }

    #[test]
    fn the_text_form_reads_back_and_refuses_nonsense() {
        let costs = SlotCosts::default();
        assert_eq!(costs.to_string(), "128KiB:1/2MiB:5");
        assert_eq!(costs.to_string().parse(), Ok(costs));
        for bad in ["", "1", "1:0", "0:1", "2:1/1:2", "1:2/2:1", "x:1", "1:x"] {
            assert!(bad.parse::<SlotCosts>().is_err(), "{bad}");
        }
    }
}
