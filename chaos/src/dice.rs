//! Choices that a seed makes.

/// SplitMix64 (Steele, Lea, Flood: "Fast Splittable Pseudorandom Number Generators", 2014).
#[derive(Clone, Debug)]
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Dice of their own for a part of the work, so that one part's rolls do not move another's.
    pub(crate) const fn split(&self, label: u64) -> Self {
        let mut split = Self(self.0 ^ label.wrapping_mul(0xd6e8_feb8_6659_fd93));
        split.0 = split.roll();
        split
    }

    /// The next 64 bits.
    pub(crate) const fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`; zero if `bound` is zero.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.roll().checked_rem(bound).unwrap_or(0)
    }

    /// A number from `low` to `high`, both included.
    pub(crate) fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// `true` in one of `n` cases.
    pub(crate) fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// One of these, of which there is at least one.
    pub(crate) fn pick<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        let bound = u64::try_from(all.len()).expect("a length fits 64 bits");
        &all[usize::try_from(self.below(bound)).expect("a number below a length fits a usize")]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rolls_repeat_with_their_seed_and_differ_between_splits() {
        let draw = |mut dice: Dice| (0..100).map(|_| dice.roll()).collect::<Vec<_>>();
        let dice = Dice::new(7);
        assert_eq!(draw(dice.clone()), draw(Dice::new(7)));
        assert_ne!(draw(dice.split(1)), draw(dice.split(2)));
        assert_ne!(draw(dice.split(1)), draw(dice));
    }
}
