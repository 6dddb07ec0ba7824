//! The cases of `bench-workflows`.

use super::{Case, FIVE_TASKS, ONE_STEP, PARALLEL, SEQUENCE, THREE_STEPS, sum_of_parallel};
use crate::runs::Store;

const SEQUENCE_STEPS: u64 = 40;
const PARALLEL_CALLS: u64 = 1_000;

/// One, three and five activities at a time, forty in sequence, a thousand at once, and beside them the floor
/// and the bare commits.
#[must_use]
pub fn suite() -> Vec<Case> {
    let one_step =
        |store, concurrency| Case::numbered("one-step", ONE_STEP, 1, |number| number + 1, store, concurrency);
    let three_steps = |concurrency| {
        Case::numbered(
            "three-step",
            THREE_STEPS,
            3,
            |number| number + 3,
            Store::Durable,
            concurrency,
        )
    };
    let five_tasks = Case::numbered(
        "five-task",
        FIVE_TASKS,
        5,
        |number| 3 * number + 7,
        Store::Durable,
        1_024,
    );
    let sequence = Case::repeated(
        "40 in sequence",
        SEQUENCE,
        SEQUENCE_STEPS,
        (SEQUENCE_STEPS, SEQUENCE_STEPS),
        Store::Durable,
    );
    let parallel = Case::repeated(
        "1,000 in parallel",
        PARALLEL,
        PARALLEL_CALLS,
        (PARALLEL_CALLS, sum_of_parallel(PARALLEL_CALLS)),
        Store::Durable,
    );
    vec![
        Case::commits(1),
        Case::commits(SEQUENCE_STEPS + 1),
        sequence,
        Case::floor(Store::Durable, 32),
        one_step(Store::Durable, 32),
        Case::floor(Store::Durable, 1_024),
        one_step(Store::Durable, 1_024),
        three_steps(32),
        three_steps(1_024),
        five_tasks,
        parallel,
        Case::floor(Store::Volatile, 1_024),
        one_step(Store::Volatile, 1_024),
    ]
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::Bars;
    use crate::runs::{Row, Sample};

    /// A bar whose row has another name than it looks for judges nothing, and nobody would see it.
    #[test]
    fn each_bar_of_a_case_finds_its_row() {
        let sample = Sample::of(&[Duration::from_millis(1)]);
        let rows: Vec<_> = suite()
            .iter()
            .map(|case| Row::new(&case.level(2), std::slice::from_ref(&sample)))
            .collect();
        let verdicts = Bars::load().unwrap().judge("workflows", &rows).unwrap();
        let mut judged: Vec<_> = verdicts.iter().map(|verdict| verdict.name.as_str()).collect();
        judged.sort_unstable();
        let expected = [
            "1,000 in parallel",
            "40 in sequence, over 41 bare commits",
            "one-step, durable, concurrency 1024",
            "one-step, durable, concurrency 32",
            "one-step, durable, over the floor, concurrency 1024",
            "one-step, durable, over the floor, concurrency 32",
            "one-step, in memory, concurrency 1024",
            "one-step, in memory, over the floor, concurrency 1024",
            "three-step, durable, concurrency 1024",
        ];
        assert_eq!(judged, expected);
    }
}
