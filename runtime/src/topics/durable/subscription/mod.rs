//! Durable subscriptions: named consumers of a durable topic whose progress the journal keeps.
//!
//! ```text
//!   reader ─► records in hand ─► next() ─► delivery ─► ack, send back ─┐
//!                  ▲                                                  ▼
//!                  └───────── what is kept: a topic of its own ◄─── keeper, one append at a time
//!                                                                     └─► undelivered records
//! ```
//!
//! Invariants: a record counts as acknowledged when the journal holds the acknowledgement, and is never delivered again then;
//! any other record is delivered again, in this process or the next. Only the keeper appends, and each append has the
//! complete state: the last record of the subscription's own topic counts. That topic's partition fences a second process.

mod acknowledged;
mod attached;
mod config;
mod consumer;
mod deliveries;
mod delivery;
mod expiry;
mod filtered;
mod keeper;
mod open;
mod places;
mod releasing;
mod shared;
mod standing;
mod stored;
mod summary;
mod undelivered;

pub use attached::{AttachedSubscription, RecordTurn};
pub use consumer::{DurableSubscription, SubscriptionReadError};
pub use delivery::{AckSaved, LeaseLost, RecordDelivery};
pub(crate) use expiry::expire_unused;
pub use filtered::{
    FILTERED_TOPICS_MAX, FilteredOpenError, FilteredReadError, FilteredSubscription, FilteredTopics,
    FilteredTopicsError, SubscribeFiltered,
};
pub use open::{SubscribeRecords, SubscriptionOpenError};
pub(crate) use places::note_places;
pub(crate) use releasing::release_held_key;
pub(crate) use shared::OpenSubscriptions;
pub use shared::SubscriptionLost;
pub(crate) use standing::record_standing;
#[cfg(feature = "fuzz")]
pub(crate) use stored::go_on_from;
pub use summary::{DurableSubscriptionSummary, SubscriptionStatus};
pub use undelivered::{SendBackError, SentBackStretch, UndeliveredRecord};
pub(crate) use undelivered::{burial_id, sent_back_id};

/// The prefix of the names of the topics in which the subscriptions of a topic are kept; the subscription's name follows.
/// Prefixes of different topics never collide: in the topic's name, `/` is written as `%2F`, and `%` as `%25`.
pub(crate) fn kept_before(topic: &str) -> String {
    let topic = topic.replace('%', "%25").replace('/', "%2F");
    format!("millrun.subscription {topic}/")
}

#[cfg(test)]
mod tests {
    use super::kept_before;

    #[test]
    fn no_topic_has_subscriptions_that_are_kept_as_those_of_another() {
        let topics = ["a", "a/b", "a/", "a%2Fb", "a%", "a/b/c", "%2F", "/"];
        for (one, other) in topics.iter().flat_map(|one| topics.map(|other| (*one, other))) {
            let is_inside = kept_before(one).starts_with(&kept_before(other));
            assert_eq!(is_inside, one == other, "{one} and {other}");
        }
        assert_eq!(
            kept_before("orders.placed"),
            "millrun.subscription orders.placed/"
        );
    }
}
