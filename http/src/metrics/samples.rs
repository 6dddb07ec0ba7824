//! The values of one metric at one moment, up to a bound.

use millrun::operating::{Histogram, NamedHistogram};

/// The largest number of values of a label that a metric shows, beside one for the rest.
pub const SERIES_LEN_MAX: usize = 256;

/// The value of the label under which the rest is summed up, together with anything of that name.
const OTHERS: &str = "all others";

/// One value, with that of its label if the metric has one.
#[derive(Debug, PartialEq)]
pub(super) struct Sample {
    pub(super) label: Option<String>,
    pub(super) value: f64,
}

/// The values of a metric.
#[derive(Debug, Default)]
pub(super) struct Samples(Vec<Sample>);

impl Samples {
    /// The value of a metric without a label.
    pub(super) fn one(&mut self, value: u64) {
        self.float(as_float(value));
    }

    /// As [`one`](Self::one), for a fraction: a time in seconds, say.
    pub(super) fn float(&mut self, value: f64) {
        self.0.push(Sample { label: None, value });
    }

    /// The value for one value of the label.
    pub(super) fn of(&mut self, label: impl Into<String>, value: u64) {
        let (label, value) = (Some(label.into()), as_float(value));
        self.0.push(Sample { label, value });
    }

    /// The samples by label: equal labels are summed up, and so is the rest beyond the bound.
    pub(super) fn bounded(mut self) -> Vec<Sample> {
        self.0.sort_by(|one, other| one.label.cmp(&other.label));
        self.0.dedup_by(|next, kept| {
            let is_same = next.label == kept.label;
            if is_same {
                kept.value += next.value;
            }
            is_same
        });
        if self.0.len() > SERIES_LEN_MAX {
            let others = self.0.drain(SERIES_LEN_MAX..).map(|sample| sample.value).sum();
            match self
                .0
                .iter_mut()
                .find(|sample| sample.label.as_deref() == Some(OTHERS))
            {
                Some(named_so) => named_so.value += others,
                None => self.0.push(Sample {
                    label: Some(OTHERS.to_owned()),
                    value: others,
                }),
            }
        }
        self.0
    }
}

/// The histograms of a metric, each with the value of its label.
#[derive(Debug, Default)]
pub(super) struct Histograms(Vec<(Option<String>, Histogram)>);

impl Histograms {
    /// The histogram of a metric without a label.
    pub(super) fn one(&mut self, histogram: &Histogram) {
        self.0.push((None, histogram.clone()));
    }

    /// The histograms of a metric, by name.
    pub(super) fn of(&mut self, rows: &[NamedHistogram]) {
        let rows = rows.iter().map(|row| {
            // The runtime sums up names beyond its own bound, in a row without a name.
            let label = if row.name.is_empty() { OTHERS } else { &row.name };
            (Some(label.to_owned()), row.histogram.clone())
        });
        self.0.extend(rows);
    }

    /// The histograms by label; the rest beyond the bound is summed up.
    pub(super) fn bounded(mut self) -> Vec<(Option<String>, Histogram)> {
        self.0
            .sort_by(|(one, _), (other, _)| is_others(one).cmp(&is_others(other)).then(one.cmp(other)));
        if self.0.len() > SERIES_LEN_MAX {
            let mut others = Histogram::default();
            for (_, histogram) in self.0.drain(SERIES_LEN_MAX..) {
                others.add(&histogram);
            }
            self.0.push((Some(OTHERS.to_owned()), others));
        }
        self.0
    }
}

fn is_others(label: &Option<String>) -> bool {
    label.as_deref() == Some(OTHERS)
}

/// Prometheus only has floats, so this is the nearest one.
#[expect(
    clippy::cast_precision_loss,
    reason = "exact up to 2^53; above that a count is off by less than its last 12 bits"
)]
fn as_float(value: u64) -> f64 {
    value as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn histograms_beyond_the_bound_are_added_up_with_those_that_the_runtime_has_together() {
        for (len, is_bounded) in [(SERIES_LEN_MAX - 1, false), (SERIES_LEN_MAX + 9, true)] {
            let named = (0..len).map(|number| format!("flow {number:04}"));
            let rows: Vec<_> = named
                .chain([String::new()])
                .map(|name| {
                    let mut row = NamedHistogram::default();
                    row.name = name;
                    row.histogram.counts[0] = 2;
                    row
                })
                .collect();
            let mut histograms = Histograms::default();
            histograms.of(&rows);
            let bounded = histograms.bounded();
            let others = if is_bounded { 10 } else { 1 };
            let shown = if is_bounded { SERIES_LEN_MAX } else { len };
            assert_eq!(bounded.len(), shown + 1);
            assert_eq!(bounded[3].0.as_deref(), Some("flow 0003"));
            let (label, last) = bounded.last().unwrap();
            assert_eq!((label.as_deref(), last.len()), (Some(OTHERS), 2 * others));
        }
    }

    #[test]
    fn labels_beyond_the_bound_are_added_up_as_one_and_nothing_is_lost() {
        let mut samples = Samples::default();
        let len = SERIES_LEN_MAX as u64 + 10;
        for number in 0..len {
            samples.of(format!("topic.{number:04}"), number);
            samples.of(format!("topic.{number:04}"), 1);
        }
        let bounded = samples.bounded();
        assert_eq!(bounded.len(), SERIES_LEN_MAX + 1);
        assert_eq!(bounded[3].label.as_deref(), Some("topic.0003"));
        assert_eq!(bounded.last().unwrap().label.as_deref(), Some(OTHERS));
        let sum: f64 = bounded.iter().map(|sample| sample.value).sum();
        assert_eq!(sum, as_float((0..len).sum::<u64>() + len));
    }
}
