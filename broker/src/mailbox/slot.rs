//! A value in the queue, and how much it counts towards the bounds.

/// A value and how much it counts, in one word.
pub(super) struct Slot<T> {
    pub(super) value: T,
    pub(super) share: Share,
}

/// How much a value counts towards the bounds: its weight in bytes, at most 4 GiB, and whether it takes a place, has one
/// reserved elsewhere, or holds several values that came from an inflow together.
#[derive(Clone, Copy)]
pub(super) struct Share(u64);

impl Share {
    pub(super) const RESERVED: Self = Self(1 << 63);
    const SEVERAL: u64 = 1 << 62;

    #[inline]
    pub(super) const fn of(weight: u32) -> Self {
        Self(weight as u64)
    }

    /// The share of several values in one slot; their places are counted separately, as they are handed out.
    pub(super) const fn several(weight: u32) -> Self {
        Self(Self::SEVERAL | weight as u64)
    }

    #[inline]
    pub(super) const fn is_reserved(self) -> bool {
        self.0 == Self::RESERVED.0
    }

    #[inline]
    pub(super) const fn is_several(self) -> bool {
        self.0 & Self::SEVERAL != 0
    }

    /// Zero for a reserved place.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "the low 32 bits are the weight")]
    pub(super) const fn weight(self) -> usize {
        self.0 as u32 as usize
    }
}
