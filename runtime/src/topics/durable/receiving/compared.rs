//! How far waits were compared that have ended without a record: a run that waits again for the same goes on from there, as one
//! does that looks at a clock or at other operations between two waits.

use std::collections::BTreeMap;

use millrun_core::{RunId, Sequence, Timestamp};
use millrun_workflow::{ReceiveScheduled, RecordFilter};

/// How many ended waits are remembered of a topic before all are forgotten; a forgotten one is compared from its beginning.
const LEN_MAX: usize = 4_096;

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct ComparedWaits(BTreeMap<(RunId, RecordFilter), Compared>);

#[derive(Debug)]
struct Compared {
    /// Where the wait began.
    from: (Option<Sequence>, Option<Timestamp>),
    through: Sequence,
}

impl ComparedWaits {
    /// No record up to this one has met the wait.
    pub(super) fn note(&mut self, run: RunId, scheduled: &ReceiveScheduled, through: Sequence) {
        let key = (run, scheduled.filter.clone());
        if self.0.len() >= LEN_MAX && !self.0.contains_key(&key) {
            self.0.clear();
        }
        let from = (scheduled.behind, scheduled.since);
        self.0.insert(key, Compared { from, through });
    }

    /// The last record that is known not to meet a wait from the same beginning.
    pub(super) fn through(&self, run: RunId, scheduled: &ReceiveScheduled) -> Option<Sequence> {
        let compared = self.0.get(&(run, scheduled.filter.clone()))?;
        (compared.from == (scheduled.behind, scheduled.since)).then_some(compared.through)
    }
}

#[cfg(test)]
mod tests {
    use millrun_core::Partition;
    use millrun_workflow::{KeyFilter, OperationId};

    use super::*;

    fn run(number: u64) -> RunId {
        RunId::new(Partition::of(b"a"), Timestamp::EPOCH, number)
    }

    fn wait(key: &str, behind: Option<u64>, since: Option<u64>) -> ReceiveScheduled {
        ReceiveScheduled {
            operation: OperationId::new(1),
            topic: "paid".into(),
            filter: RecordFilter {
                key: Some(KeyFilter::StartsWith(key.into())),
                correlation: None,
            },
            behind: behind.map(Sequence::new),
            since: since.map(Timestamp::from_micros),
        }
    }

    #[test]
    fn a_wait_goes_on_where_one_of_the_same_run_filter_and_beginning_has_ended() {
        let mut compared = ComparedWaits::default();
        compared.note(run(1), &wait("a", Some(3), None), Sequence::new(7));
        compared.note(run(1), &wait("b", None, Some(5)), Sequence::new(8));
        for (of, again, expected) in [
            (1, wait("a", Some(3), None), Some(7)),
            (2, wait("a", Some(3), None), None),
            (1, wait("a", Some(4), None), None),
            (1, wait("a", None, None), None),
            (1, wait("b", None, Some(5)), Some(8)),
            (1, wait("b", None, Some(4)), None),
            (1, wait("c", None, None), None),
        ] {
            let through = compared.through(run(of), &again).map(Sequence::get);
            assert_eq!(through, expected, "{of} {again:?}");
        }
    }

    #[test]
    fn all_are_forgotten_at_the_bound() {
        let mut compared = ComparedWaits::default();
        for number in 1..=LEN_MAX as u64 {
            compared.note(run(number), &wait("a", None, None), Sequence::new(number));
        }
        compared.note(run(1), &wait("a", None, None), Sequence::new(9));
        assert_eq!(compared.0.len(), LEN_MAX);
        compared.note(run(0), &wait("a", None, None), Sequence::new(9));
        assert_eq!(compared.0.len(), 1);
    }
}
