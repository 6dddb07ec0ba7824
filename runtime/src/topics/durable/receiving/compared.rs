//! How far cancelled waits had been compared with records. A run often repeats a wait, for example beside a timer: the new
//! wait begins where the cancelled one ended.

use std::collections::BTreeMap;

use millrun_core::{RunId, Sequence, Timestamp};
use millrun_workflow::{ReceiveScheduled, RecordFilter};

/// How many cancelled waits one of the two halves remembers; when it is full, the older half is dropped. A wait whose place
/// is forgotten is compared from its own beginning.
const HALF_LEN: usize = 4_096;

/// Remembers cancelled waits; see the [module](self).
#[derive(Debug, Default)]
pub(super) struct ComparedWaits {
    present: BTreeMap<(RunId, RecordFilter), Compared>,
    former: BTreeMap<(RunId, RecordFilter), Compared>,
}

#[derive(Debug)]
struct Compared {
    /// Where the wait began.
    from: (Option<Sequence>, Option<Timestamp>),
    through: Sequence,
}

impl ComparedWaits {
    /// Notes that no record up to this one meets the wait.
    pub(super) fn note(&mut self, run: RunId, scheduled: &ReceiveScheduled, through: Sequence) {
        let known = self.through(run, scheduled).max(scheduled.behind);
        let compared = Compared {
            from: (scheduled.behind, scheduled.since),
            through: known.map_or(through, |known| known.max(through)),
        };
        self.present.insert((run, scheduled.filter.clone()), compared);
        if self.present.len() >= HALF_LEN {
            self.former = std::mem::take(&mut self.present);
        }
    }

    /// The last record that is known not to meet a wait with the same beginning.
    pub(super) fn through(&self, run: RunId, scheduled: &ReceiveScheduled) -> Option<Sequence> {
        if self.present.is_empty() && self.former.is_empty() {
            return None;
        }
        let key = (run, scheduled.filter.clone());
        let compared = self.present.get(&key).or_else(|| self.former.get(&key))?;
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
    fn a_place_never_goes_back() {
        let mut compared = ComparedWaits::default();
        let waits = wait("a", Some(60), None);
        for (through, expected) in [(50, 60), (70, 70), (65, 70)] {
            compared.note(run(1), &waits, Sequence::new(through));
            assert_eq!(compared.through(run(1), &waits), Some(Sequence::new(expected)));
        }
    }

    #[test]
    fn the_latest_places_are_remembered_and_the_others_forgotten() {
        let mut compared = ComparedWaits::default();
        let last = 3 * HALF_LEN as u64 - 1;
        for number in 1..=last {
            compared.note(run(number), &wait("a", None, None), Sequence::new(number));
        }
        let is_known = |number| compared.through(run(number), &wait("a", None, None)).is_some();
        assert!(is_known(last) && is_known(last - HALF_LEN as u64) && !is_known(1));
        assert!(compared.present.len() + compared.former.len() <= 2 * HALF_LEN);
    }
}
