//! Seeded random numbers, for the moments of kills.

use std::time::{SystemTime, UNIX_EPOCH};

/// SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators").
#[derive(Debug)]
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A seed that differs from one call to the next: the nanoseconds of the clock.
    pub(crate) fn from_time() -> u32 {
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.subsec_nanos())
    }

    /// From 0 to just below 1.
    pub(crate) fn fraction(&mut self) -> f64 {
        // 32 bits are exact in a float.
        f64::from(self.next()) / (f64::from(u32::MAX) + 1.0)
    }

    /// From 0 to just below `len`.
    pub(crate) fn below(&mut self, len: u16) -> u16 {
        let below = (u64::from(self.next()) * u64::from(len)) >> 32;
        u16::try_from(below).expect("it is less than `len`")
    }

    fn next(&mut self) -> u32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        u32::try_from((z ^ (z >> 31)) >> 32).expect("a shift leaves 32 bits")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fractions_repeat_with_their_seed_and_fill_the_range() {
        let draw = |seed| {
            let mut dice = Dice::new(seed);
            (0..1_000).map(|_| dice.fraction()).collect::<Vec<_>>()
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
        assert!(draw(7).iter().all(|fraction| (0.0..1.0).contains(fraction)));
        assert!(
            draw(7).iter().any(|fraction| *fraction < 0.05)
                && draw(7).iter().any(|fraction| *fraction > 0.95)
        );
        let mut dice = Dice::new(7);
        let drawn: std::collections::BTreeSet<_> = (0..100).map(|_| dice.below(3)).collect();
        assert!(drawn.into_iter().eq(0..3));
    }
}
