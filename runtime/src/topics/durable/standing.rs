//! The state of one record at the durable subscriptions of its topic, and where it was buried or sent back.

use millrun_core::Sequence;
use millrun_persistence::TopicNumber;
use xxhash_rust::xxh3::xxh3_128;

use super::declared::KnownTopic;
use super::subscription::{burial_id, kept_before, record_standing, sent_back_id};
use super::token::RecordToken;
use crate::StopCause;
use crate::inner::Inner;

/// The state of a record at a subscription.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StandingOfRecord {
    /// It is acknowledged, or was skipped.
    Acknowledged,
    /// The subscription has not reached it, or has not delivered it yet.
    Waiting,
    /// It is given to a consumer.
    Leased,
    /// It came back, with the number of deliveries and the last error.
    Returned { deliveries: u32, error: String },
    /// What the subscription has kept cannot be read.
    Unknown(String),
}

/// A subscription, and the state of one record there.
#[derive(Clone, Debug)]
pub(crate) struct RecordAtSubscription {
    pub(crate) subscription: String,
    pub(crate) standing: StandingOfRecord,
    /// The topic and record as which it was buried.
    pub(crate) buried: Option<(String, Sequence)>,
    /// The record as which it was sent back to its topic.
    pub(crate) sent_back: Option<Sequence>,
}

impl Inner {
    /// The state of a record at its topic's durable subscriptions, in the order of their names.
    pub(crate) async fn record_at_subscriptions(
        &self,
        (topic, topic_name): (KnownTopic, &str),
        sequence: Sequence,
    ) -> Result<Vec<RecordAtSubscription>, StopCause> {
        let before = kept_before(topic_name);
        let streams = self.streams();
        let all = streams.list();
        let kept = all.iter().filter_map(|kept| {
            let name = kept.name.strip_prefix(&before)?;
            (kept.last >= kept.first).then_some((name, kept))
        });
        let mut kept: Vec<_> = kept.collect();
        kept.sort_by_key(|(name, _)| *name);
        // The topic where it was buried is found by the id that it has there.
        let own = |name: &str| name.starts_with("millrun.");
        let topics = || all.iter().filter(|topic| !own(&topic.name));
        let token = RecordToken::new(topic.store, topic.number, sequence);
        let mut found = Vec::with_capacity(kept.len());
        for (name, kept) in kept {
            let id = xxh3_128(burial_id(name, token).as_bytes());
            let buried = topics().find_map(|topic| {
                let at = streams.appended_with(topic.number, id)?;
                Some((topic.name.clone(), at))
            });
            let id = xxh3_128(sent_back_id(name, token).as_bytes());
            found.push(RecordAtSubscription {
                subscription: name.to_owned(),
                standing: record_standing(self, kept, sequence).await?,
                buried,
                sent_back: streams.appended_with(topic.number, id),
            });
        }
        Ok(found)
    }

    /// The record that was published with this id, while the journal remembers the id.
    pub(crate) fn record_with_id(&self, topic: TopicNumber, id: &str) -> Option<Sequence> {
        self.streams().appended_with(topic, xxh3_128(id.as_bytes()))
    }
}
