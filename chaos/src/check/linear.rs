//! Linearizability of one instance's register.
//!
//! The search of Wing and Gong ("Testing and Verifying Concurrent Objects", 1993, section 4) with the
//! memory of configurations that Lowe added ("Testing for linearizability", 2017, section 3): a call may
//! be the next in the order if no other call returned before it was made; what was tried once, a set of
//! calls done and the state they led to, is not tried again.
//!
//! A call in doubt returns at the end of time with any result: it is placed where it helps, or behind
//! everything, where nobody sees it.

use std::collections::HashSet;

use crate::ledger::Tick;

/// What a call does with the register, and what it gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    /// Adds, and gives the new value if that is known.
    Add(u64, Option<u64>),
    /// Sets, and gives the value before if that is known.
    Swap(u64, Option<u64>),
    /// Adds, and gives nothing.
    Note(u64),
    /// Gives the value.
    Read(u64),
}

/// A call with the interval in which it took place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Call {
    pub(crate) operation: Operation,
    pub(crate) asked: Tick,
    /// [`Tick::MAX`] if it is in doubt.
    pub(crate) answered: Tick,
}

/// What the search found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// There is an order that explains all answers.
    Linear,
    /// There is none. The most calls that could be put in order, and those that can follow none of them.
    Broken { ordered: usize, stuck: Vec<Call> },
    /// The search had more configurations than [`CONFIGURATIONS_MAX`].
    Undecided,
}

/// How many configurations are looked at for one instance.
pub(crate) const CONFIGURATIONS_MAX: usize = 300_000;

impl Operation {
    /// The value after it, if it can give what it gave at this value.
    fn step(self, value: u64) -> Option<u64> {
        let (next, given, known) = match self {
            Self::Add(by, known) => (value.wrapping_add(by), value.wrapping_add(by), known),
            Self::Swap(to, known) => (to, value, known),
            Self::Note(by) => return Some(value.wrapping_add(by)),
            Self::Read(known) => (value, value, Some(known)),
        };
        known.is_none_or(|known| known == given).then_some(next)
    }
}

/// Which calls are in the order already.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Done(Box<[u64]>);

impl Done {
    fn contains(&self, index: usize) -> bool {
        self.0[index / 64] >> (index % 64) & 1 == 1
    }

    fn with(&self, index: usize) -> Self {
        let mut done = self.clone();
        done.0[index / 64] |= 1 << (index % 64);
        done
    }
}

/// Looks for an order of all calls that begins with the value zero.
pub(crate) fn check(calls: &[Call]) -> Verdict {
    let mut calls = calls.to_vec();
    calls.sort_by_key(|call| call.asked);
    let definite = calls.iter().filter(|call| call.answered < Tick::MAX).count();
    let nothing = Done(vec![0; calls.len().div_ceil(64)].into());
    // Of each configuration: the calls done, how many of them are definite, and the value.
    let mut open = vec![(nothing, 0, 0_u64)];
    let mut seen = HashSet::new();
    let (mut furthest, mut stuck) = (0, Vec::new());
    while let Some((done, ordered, value)) = open.pop() {
        if ordered == definite {
            return Verdict::Linear;
        }
        let waiting = || (0..calls.len()).filter(|index| !done.contains(*index));
        // A call that was made after this moment cannot come next: another had returned before.
        let until = waiting()
            .map(|index| calls[index].answered)
            .min()
            .unwrap_or(Tick::MAX);
        let mut has_next = false;
        for index in waiting().take_while(|index| calls[*index].asked < until) {
            let call = calls[index];
            let Some(value) = call.operation.step(value) else {
                continue;
            };
            has_next = true;
            let next = done.with(index);
            if !seen.insert((next.clone(), value)) {
                continue;
            }
            if seen.len() > CONFIGURATIONS_MAX {
                return Verdict::Undecided;
            }
            let ordered = ordered + usize::from(call.answered < Tick::MAX);
            open.push((next, ordered, value));
        }
        if !has_next && ordered >= furthest {
            furthest = ordered;
            stuck = waiting()
                .map(|index| calls[index])
                .filter(|call| call.asked < until)
                .collect();
        }
    }
    Verdict::Broken {
        ordered: furthest,
        stuck,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(operation: Operation, asked: Tick, answered: Tick) -> Call {
        Call {
            operation,
            asked,
            answered,
        }
    }

    fn is_linear(calls: &[Call]) -> bool {
        match check(calls) {
            Verdict::Linear => true,
            Verdict::Broken { .. } => false,
            Verdict::Undecided => panic!("so few calls are decided"),
        }
    }

    use Operation::{Add, Note, Read, Swap};

    #[test]
    fn calls_in_sequence_are_linear_only_with_the_right_answers() {
        let right = [
            call(Add(5, Some(5)), 1, 2),
            call(Swap(9, Some(5)), 3, 4),
            call(Read(9), 5, 6),
        ];
        assert!(is_linear(&right));
        let wrong = [right[0], call(Swap(9, Some(4)), 3, 4), right[2]];
        assert!(!is_linear(&wrong));
    }

    #[test]
    fn a_read_that_misses_an_acknowledged_note_is_stale() {
        assert!(!is_linear(&[call(Note(7), 1, 2), call(Read(0), 3, 4)]));
        assert!(is_linear(&[call(Note(7), 1, 2), call(Read(7), 3, 4)]));
    }

    #[test]
    fn a_read_beside_a_note_may_see_it_or_not() {
        for value in [0, 7] {
            assert!(is_linear(&[call(Note(7), 1, 4), call(Read(value), 2, 3)]));
        }
        assert!(!is_linear(&[call(Note(7), 1, 4), call(Read(3), 2, 3)]));
    }

    #[test]
    fn a_value_that_was_seen_and_is_gone_again_is_found() {
        let calls = [call(Note(7), 1, 10), call(Read(7), 2, 3), call(Read(0), 4, 5)];
        assert!(!is_linear(&calls));
    }

    #[test]
    fn a_call_in_doubt_may_count_at_any_time_or_never_but_not_before_it_was_made() {
        let doubtful = call(Note(7), 3, Tick::MAX);
        for value in [0, 7] {
            assert!(is_linear(&[doubtful, call(Read(value), 8, 9)]));
        }
        assert!(!is_linear(&[doubtful, call(Read(7), 1, 2)]));
        // Once it has been seen it stays.
        assert!(!is_linear(&[
            doubtful,
            call(Read(7), 8, 9),
            call(Read(0), 10, 11)
        ]));
    }

    #[test]
    fn an_update_that_counted_twice_is_found() {
        let calls = [call(Add(5, Some(5)), 1, 2), call(Read(10), 3, 4)];
        assert!(!is_linear(&calls));
    }

    #[test]
    fn two_updates_with_the_answers_of_one_order_and_the_value_of_the_other_are_found() {
        let first = call(Swap(1, Some(0)), 1, 10);
        let second = call(Swap(2, Some(1)), 2, 9);
        assert!(is_linear(&[first, second, call(Read(2), 11, 12)]));
        assert!(!is_linear(&[first, second, call(Read(1), 11, 12)]));
    }

    #[test]
    fn fifty_calls_of_five_callers_are_decided() {
        let mut value = 0;
        let mut calls = Vec::new();
        for number in 0..50_u64 {
            value += number;
            // Each overlaps with the four before and behind it.
            calls.push(call(Add(number, Some(value)), 2 * number + 1, 2 * number + 10));
        }
        assert!(is_linear(&calls));
        calls[30].operation = Add(30, Some(value));
        assert!(!is_linear(&calls));
    }
}
