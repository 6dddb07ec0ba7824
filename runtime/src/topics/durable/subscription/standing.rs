//! The state of one record at one subscription.

use millrun_core::Sequence;
use millrun_persistence::TopicSummary;

use super::acknowledged::Acknowledged;
use super::deliveries::Returned;
use super::stored;
use crate::StopCause;
use crate::inner::Inner;
use crate::topics::durable::standing::StandingOfRecord;

/// The state of a record at the subscription that is kept in this topic: the state in memory if a consumer has it open,
/// otherwise the kept one.
pub(crate) async fn record_standing(
    inner: &Inner,
    kept: &TopicSummary,
    sequence: Sequence,
) -> Result<StandingOfRecord, StopCause> {
    let open = inner.shared.durable.subscriptions.get(&kept.name);
    if let Some(shared) = open.filter(|shared| shared.is_open()) {
        let state = shared.lock();
        if state.in_hand.is_leased(sequence.get()) {
            return Ok(StandingOfRecord::Leased);
        }
        let returned = state.in_hand.returned();
        let mut back = returned.filter(|(at, _)| *at == sequence.get());
        return Ok(of(
            state.in_hand.acknowledged(),
            back.next().map(|(_, returned)| returned),
            sequence,
        ));
    }
    let before = Sequence::new(kept.last.get().saturating_sub(1));
    let record = match inner.record_behind(kept.number, before).await? {
        Ok(Some(record)) => record,
        Ok(None) => {
            return Ok(StandingOfRecord::Unknown(
                "what it has kept is not there".to_owned(),
            ));
        }
        Err(error) => return Ok(StandingOfRecord::Unknown(error.to_string())),
    };
    Ok(match stored::decode(&record.body) {
        Ok(kept) => {
            let returned = kept.returned.get(&sequence.get());
            of(&kept.acknowledged, returned, sequence)
        }
        Err(error) => StandingOfRecord::Unknown(error.to_string()),
    })
}

fn of(acknowledged: &Acknowledged, returned: Option<&Returned>, sequence: Sequence) -> StandingOfRecord {
    match returned {
        _ if acknowledged.has(sequence.get()) => StandingOfRecord::Acknowledged,
        Some(returned) => StandingOfRecord::Returned {
            deliveries: returned.deliveries,
            error: returned.error.as_deref().unwrap_or_default().to_owned(),
        },
        None => StandingOfRecord::Waiting,
    }
}
