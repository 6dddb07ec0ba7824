//! Reports of attempts on their way from a pool to a shard, several in an envelope.

use super::ActivityReport;

/// The largest number of reports in one envelope.
const REPORTS_LEN_MAX: usize = 64;

/// The size of the values in one envelope at most; the last value may exceed it.
const REPORTS_BYTES_MAX: usize = 64 * 1_024;

/// At least one report, in the order in which the attempts ended.
#[derive(Clone, Debug)]
pub(crate) struct ActivityReports {
    first: ActivityReport,
    /// Most reports travel alone, without an allocation here.
    others: Vec<ActivityReport>,
}

impl From<ActivityReport> for ActivityReports {
    fn from(first: ActivityReport) -> Self {
        Self {
            first,
            others: Vec::new(),
        }
    }
}

impl ActivityReports {
    /// Groups reports for the same shard, and empties the list.
    pub(crate) fn of(
        reports: &mut Vec<ActivityReport>,
        shards_len: usize,
        shard_of: impl Fn(&ActivityReport) -> usize,
    ) -> impl Iterator<Item = (usize, Self)> {
        if shards_len > 1 {
            // A stable sort: reports of the same step stay in order.
            reports.sort_by_key(&shard_of);
        }
        let mut rest = reports.drain(..).peekable();
        std::iter::from_fn(move || {
            let first = rest.next()?;
            let shard = shard_of(&first);
            let mut others = Vec::with_capacity(rest.len().min(REPORTS_LEN_MAX - 1));
            let mut bytes = bytes_of(&first);
            while others.len() + 1 < REPORTS_LEN_MAX
                && bytes < REPORTS_BYTES_MAX
                && let Some(other) = rest.next_if(|report| shard_of(report) == shard)
            {
                bytes += bytes_of(&other);
                others.push(other);
            }
            Some((shard, Self { first, others }))
        })
    }

    pub(crate) fn len(&self) -> usize {
        1 + self.others.len()
    }
}

/// The size of a report's value.
fn bytes_of(report: &ActivityReport) -> usize {
    report.outcome.as_ref().map_or(0, |value| value.len())
}

impl IntoIterator for ActivityReports {
    type Item = ActivityReport;
    type IntoIter = std::iter::Chain<std::iter::Once<ActivityReport>, std::vec::IntoIter<ActivityReport>>;

    fn into_iter(self) -> Self::IntoIter {
        std::iter::once(self.first).chain(self.others)
    }
}

#[cfg(test)]
mod tests {
    use millrun_core::{Partition, RunId, Timestamp};
    use millrun_workflow::{OperationId, Payload};

    use super::*;

    fn report(shard: u16, number: u32) -> ActivityReport {
        let partition = Partition::from_index(shard).unwrap();
        ActivityReport {
            run: RunId::new(partition, Timestamp::EPOCH, 0),
            operation: OperationId::new(number),
            attempt: 1,
            outcome: Ok(Payload::encode(&()).unwrap()),
        }
    }

    #[test]
    fn each_goes_to_its_shard_in_order_and_no_envelope_has_too_many() {
        let mut reports: Vec<_> = (0..300_u32)
            .map(|number| report(u16::from(number % 3 == 0), number))
            .collect();
        let shard_of = |report: &ActivityReport| usize::from(report.run.partition().index());
        let mut seen = [Vec::new(), Vec::new()];
        for (shard, batch) in ActivityReports::of(&mut reports, 2, shard_of) {
            assert!(batch.len() <= REPORTS_LEN_MAX);
            let len = batch.len();
            let before = seen[shard].len();
            for report in batch {
                assert_eq!(shard_of(&report), shard);
                seen[shard].push(report.operation.get());
            }
            assert_eq!(seen[shard].len() - before, len);
        }
        let [others, thirds] = seen;
        assert!(thirds.iter().copied().eq((0..300).step_by(3)));
        assert!(
            others
                .iter()
                .copied()
                .eq((0..300).filter(|number| number % 3 != 0))
        );
        assert!(reports.is_empty());
    }
}
