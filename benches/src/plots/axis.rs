//! Where the marks of an axis stand and what is written at them.

use std::ops::Range;

use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint, Ranged};

/// A range with its marks, as the plotting crate wants it.
#[derive(Clone, Debug)]
pub(super) struct Marked {
    pub(super) range: (f64, f64),
    pub(super) marks: Vec<f64>,
}

impl Ranged for Marked {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    #[expect(clippy::cast_possible_truncation, reason = "a pixel of a small picture")]
    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        let (low, high) = self.range;
        let share = (value - low) / (high - low);
        limit.0 + (share * f64::from(limit.1 - limit.0)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        self.marks.clone()
    }

    fn range(&self) -> Range<f64> {
        self.range.0..self.range.1
    }
}

/// How a quantity is laid out, and what it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Axis {
    /// Evenly, from zero.
    Linear(&'static str),
    /// By powers of ten.
    Log(&'static str),
    /// A share of all, by what is left to the whole: 50%, 90%, 99%, …
    Quantile,
}

impl Axis {
    /// What is written along the axis.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Linear(name) | Self::Log(name) => name,
            Self::Quantile => "share of all that stayed within",
        }
    }

    /// Where a value stands; `None` if it has no place.
    pub(super) fn place(self, value: f64) -> Option<f64> {
        match self {
            Self::Linear(_) => Some(value),
            Self::Log(_) => (value > 0.0).then(|| value.log10()),
            Self::Quantile => (value < 1.0).then(|| -(1.0 - value).log10()),
        }
    }

    /// The value at a place.
    fn value(self, place: f64) -> f64 {
        match self {
            Self::Linear(_) => place,
            Self::Log(_) => 10_f64.powf(place),
            Self::Quantile => 1.0 - 10_f64.powf(-place),
        }
    }

    /// From where to where the axis reaches so that it holds these places.
    pub(super) fn range(self, places: impl Iterator<Item = f64> + Clone) -> (f64, f64) {
        let low = places.clone().fold(f64::INFINITY, f64::min);
        let high = places.fold(f64::NEG_INFINITY, f64::max);
        if !low.is_finite() {
            return (0.0, 1.0);
        }
        match self {
            Self::Linear(_) => (0.0, if high > 0.0 { high * 1.06 } else { 1.0 }),
            Self::Log(_) => (low.floor(), (high + 0.05).max(low.floor() + 1.0)),
            Self::Quantile => (low, high.max(low + 1.0)),
        }
    }

    /// The range with its marks.
    pub(super) fn marked(self, range: (f64, f64)) -> Marked {
        Marked {
            range,
            marks: self.marks(range),
        }
    }

    /// Places of the marks.
    fn marks(self, (low, high): (f64, f64)) -> Vec<f64> {
        let marks: Vec<f64> = match self {
            Self::Linear(_) => {
                let rough: f64 = (high - low) / 6.0;
                let power = 10_f64.powf(rough.log10().floor());
                let step = [1.0, 2.0, 5.0, 10.0]
                    .map(|times| times * power)
                    .into_iter()
                    .find(|step| *step >= rough)
                    .unwrap_or(rough);
                (0..12).map(|count| low + f64::from(count) * step).collect()
            }
            Self::Log(_) => {
                // Few decades have room for marks between them.
                let between: &[f64] = if high - low < 3.0 {
                    &[1.0, 2.0, 5.0]
                } else {
                    &[1.0]
                };
                (-9..16)
                    .flat_map(|power| between.iter().map(move |times| f64::from(power) + times.log10()))
                    .collect()
            }
            Self::Quantile => [0.5, 0.9, 0.99, 0.999, 0.9999]
                .into_iter()
                .filter_map(|share| self.place(share))
                .collect(),
        };
        let is_inside = |mark: &f64| (low - 1e-9..=high + 1e-9).contains(mark);
        marks.into_iter().filter(is_inside).collect()
    }

    /// What is written at a place.
    pub(super) fn text(self, place: f64) -> String {
        let value = self.value(place);
        match self {
            Self::Quantile => {
                let percent = format!("{:.2}", value * 100.0);
                format!("{}%", percent.trim_end_matches('0').trim_end_matches('.'))
            }
            Self::Linear(_) | Self::Log(_) => short(value),
        }
    }
}

/// A number in as few characters as it needs: `0.5`, `20`, `1.5k`, `2M`.
pub(super) fn short(value: f64) -> String {
    let (scaled, unit) = match value.abs() {
        size if size >= 1e9 => (value / 1e9, "G"),
        size if size >= 1e6 => (value / 1e6, "M"),
        size if size >= 1e3 => (value / 1e3, "k"),
        _ => (value, ""),
    };
    let digits = match scaled.abs() {
        size if size >= 100.0 => 0,
        size if size >= 10.0 => 1,
        size if size >= 0.995 => 2,
        _ => 3,
    };
    let text = format!("{scaled:.digits$}");
    let text = if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.')
    } else {
        &text
    };
    format!("{text}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        let texts = [0.0, 0.25, 1.0, 20.0, 1_500.0, 65_536.0, 2e6, 1.25e9].map(short);
        assert_eq!(texts, ["0", "0.25", "1", "20", "1.5k", "65.5k", "2M", "1.25G"]);
    }

    #[test]
    fn marks_stand_at_round_values_within_the_axis() {
        let texts = |axis: Axis, range| {
            let marks = axis.marks(range);
            marks.into_iter().map(|mark| axis.text(mark)).collect::<Vec<_>>()
        };
        assert_eq!(
            texts(Axis::Linear("x"), (0.0, 10.6)),
            ["0", "2", "4", "6", "8", "10"]
        );
        assert_eq!(texts(Axis::Log("x"), (0.0, 3.2)), ["1", "10", "100", "1k"]);
        assert_eq!(texts(Axis::Log("x"), (0.0, 1.0)), ["1", "2", "5", "10"]);
        let shares = texts(Axis::Quantile, (0.3, 4.0));
        assert_eq!(shares, ["50%", "90%", "99%", "99.9%", "99.99%"]);
    }

    #[test]
    fn what_has_no_place_is_left_out() {
        assert_eq!(Axis::Log("x").place(0.0), None);
        assert_eq!(Axis::Quantile.place(1.0), None);
        assert_eq!(Axis::Linear("x").place(-1.0), Some(-1.0));
    }
}
