//! A value in the queue, and what it takes of the bounds.

/// A value and what it takes of the bounds, in one word.
pub(super) struct Slot<T> {
    pub(super) value: T,
    pub(super) share: Share,
}

/// What a value takes of the bounds: its weight in bytes, at most 4 GiB, and whether it takes a
/// place, has one reserved elsewhere, or stands for several values that were poured in together.
#[derive(Clone, Copy)]
pub(super) struct Share(u64);

impl Share {
    pub(super) const RESERVED: Self = Self(1 << 63);
    const SEVERAL: u64 = 1 << 62;

    #[inline]
    pub(super) const fn of(weight: u32) -> Self {
        Self(weight as u64)
    }

    /// That of several values in one; their places are counted apart, as they are handed out.
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
