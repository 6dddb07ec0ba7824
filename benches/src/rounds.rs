//! Interleaved rounds and what is kept of them.
//!
//! A shared machine changes its mind every few seconds. So every contestant runs once per round,
//! and each round starts with another one: what disturbs a round disturbs all of them alike.

use serde::{Deserialize, Serialize};

use crate::BenchError;

/// The middle and the ends of several measurements of one thing.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// The middle value; the lower of the two middle ones if their number is even.
    pub median: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
}

impl Spread {
    /// Of at least one value; `None` of none.
    #[must_use]
    pub fn of(values: &[f64]) -> Option<Self> {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        Some(Self {
            median: *sorted.get(sorted.len().checked_sub(1)? / 2)?,
            min: *sorted.first()?,
            max: *sorted.last()?,
        })
    }
}

impl Spread {
    /// The shares at which the distribution of `values` values is kept: 50%, closer and closer to
    /// all, as long as a value is beyond, at most 99.995%.
    pub fn quantiles(values: u64) -> impl Iterator<Item = f64> {
        (0..17)
            .map(|place| 1.0 - 0.5 * 10_f64.powf(-f64::from(place) / 4.0))
            .filter(move |share| (1.0 - share) * values as f64 >= 1.0)
    }
}

/// How often a contestant is sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turns {
    /// Whether once before, unmeasured, in the round before the first.
    pub is_warmed: bool,
    /// How many rounds follow, with one measurement each.
    pub rounds: usize,
}

impl Turns {
    /// All of them.
    #[must_use]
    pub const fn samples(self) -> usize {
        self.is_warmed as usize + self.rounds
    }
}

/// Whose turn it is, one after the other, and whether it is measured.
fn order(turns: &[Turns]) -> impl Iterator<Item = (usize, bool)> {
    let contestants = turns.len();
    let warming = (0..contestants).filter(|contestant| turns[*contestant].is_warmed);
    let rounds = turns.iter().map(|turns| turns.rounds).max().unwrap_or(0);
    let measured = (0..rounds)
        .flat_map(move |round| (0..contestants).map(move |place| (round, (place + round) % contestants)))
        .filter(|(round, contestant)| *round < turns[*contestant].rounds);
    warming
        .map(|contestant| (contestant, false))
        .chain(measured.map(|(_, contestant)| (contestant, true)))
}

/// Runs `sample(contestant)` once per round for each of `contestants`, after one unmeasured
/// round, and gives the samples of each contestant in the order of the rounds.
///
/// # Errors
/// The first error of a sample ends everything.
pub fn interleaved<T>(
    contestants: usize,
    rounds: usize,
    mut sample: impl FnMut(usize) -> Result<T, BenchError>,
) -> Result<Vec<Vec<T>>, BenchError> {
    let turns = Turns {
        is_warmed: true,
        rounds,
    };
    let mut samples: Vec<Vec<T>> = (0..contestants).map(|_| Vec::with_capacity(rounds)).collect();
    for (contestant, is_measured) in order(&vec![turns; contestants]) {
        let sample = sample(contestant)?;
        if is_measured {
            samples[contestant].push(sample);
        }
    }
    Ok(samples)
}

/// The same with turns of each contestant's own. An error ends those of its contestant, and is what
/// it gives; the others go on.
pub fn each_interleaved<T>(
    turns: &[Turns],
    mut sample: impl FnMut(usize) -> Result<T, BenchError>,
) -> Vec<Result<Vec<T>, BenchError>> {
    let mut outcomes: Vec<_> = turns
        .iter()
        .map(|turns| Ok(Vec::with_capacity(turns.rounds)))
        .collect();
    for (contestant, is_measured) in order(turns) {
        let outcome = &mut outcomes[contestant];
        if let Ok(samples) = outcome {
            match sample(contestant) {
                Ok(sample) if is_measured => samples.push(sample),
                Ok(_) => {}
                Err(error) => *outcome = Err(error),
            }
        }
    }
    outcomes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_one_of_the_values() {
        let spread = Spread::of(&[3.0, 1.0, 2.0]).unwrap();
        assert_eq!((spread.min, spread.median, spread.max), (1.0, 2.0, 3.0));
        assert_eq!(Spread::of(&[1.0, 2.0]).unwrap().median, 1.0);
        assert_eq!(Spread::of(&[]), None);
    }

    #[test]
    fn each_round_starts_with_another_contestant() {
        let mut order = Vec::new();
        let samples = interleaved(3, 2, |contestant| {
            order.push(contestant);
            Ok(order.len())
        })
        .unwrap();
        assert_eq!(order, [0, 1, 2, 0, 1, 2, 1, 2, 0]);
        assert_eq!(samples, [vec![4, 9], vec![5, 7], vec![6, 8]]);
    }

    #[test]
    fn a_contestant_has_its_own_turns_and_its_failure_is_its_own() {
        let turns = |is_warmed, rounds| Turns { is_warmed, rounds };
        let mut order = Vec::new();
        let outcomes = each_interleaved(&[turns(true, 2), turns(false, 1), turns(true, 2)], |contestant| {
            order.push(contestant);
            match contestant {
                2 => Err(BenchError::failed("it", "no")),
                _ => Ok(order.len()),
            }
        });
        assert_eq!(order, [0, 2, 0, 1, 0]);
        assert_eq!(outcomes[0].as_ref().unwrap(), &[3, 5]);
        assert_eq!(outcomes[1].as_ref().unwrap(), &[4]);
        assert!(outcomes[2].is_err());
    }
}
