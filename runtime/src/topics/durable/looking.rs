//! What operators see of durable topics beyond what is in memory: when their records were appended, and the state of their
//! subscriptions, also of those that no consumer has open. Looking changes nothing, and uses the viewer's lane.

use millrun_core::{Sequence, Timestamp};
use millrun_persistence::{LatestRecords, ReadError, TopicNumber, TopicRecord};

use super::subscription::{DurableSubscriptionSummary, SubscriptionStatus};
use crate::inner::Inner;
use crate::{Runtime, StopCause};

/// Why a durable topic cannot be shown.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TopicLookError {
    /// The topic is not registered with the runtime's builder.
    #[error("the builder of this runtime was told of no durable topic {name:?}")]
    NotDeclared {
        /// The name.
        name: String,
    },
    /// It cannot be read.
    #[error("the topic cannot be read")]
    Read(#[source] ReadError),
    /// The runtime has stopped.
    #[error("{}", .0.told())]
    Stopped(#[from] StopCause),
}

/// When the records of a durable topic were appended; `None` if there are none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DurableTopicTimes {
    /// The time of the first record that is left.
    pub first: Option<Timestamp>,
    /// The time of the last.
    pub last: Option<Timestamp>,
}

impl Inner {
    /// The first record behind this one; `None` if there is none.
    pub(crate) async fn record_behind(
        &self,
        topic: TopicNumber,
        after: Sequence,
    ) -> Result<Result<Option<TopicRecord>, ReadError>, StopCause> {
        // A page has at least one record, however small this is.
        const FEW: usize = 1;
        let page = match self.streams().latest(topic, after, FEW) {
            Ok(LatestRecords::Page(page)) => Ok(page),
            Ok(LatestRecords::Ask) => {
                let read = self.shared.reader.view_topic_page(topic, after, FEW);
                self.lane_answer(read).await?
            }
            Err(error) => Err(self.unless_stopped(error)?),
        };
        Ok(page.map(|page| page.records().next()))
    }
}

impl Runtime {
    /// When the first and the last record of a durable topic were appended. This may read the store.
    ///
    /// # Errors
    /// See [`TopicLookError`].
    ///
    /// # Cancel safety
    /// Nothing is lost when the future is dropped.
    pub async fn durable_topic_times(&self, name: &str) -> Result<DurableTopicTimes, TopicLookError> {
        let inner = self.inner();
        let number = declared(inner, name)?;
        let Some(summary) = inner.streams().summary(number) else {
            return Ok(DurableTopicTimes::default());
        };
        if summary.last < summary.first {
            return Ok(DurableTopicTimes::default());
        }
        let time = async |at: Sequence| -> Result<Option<Timestamp>, TopicLookError> {
            let before = Sequence::new(at.get().saturating_sub(1));
            let record = inner.record_behind(number, before).await?;
            Ok(record.map_err(TopicLookError::Read)?.map(|record| record.time))
        };
        Ok(DurableTopicTimes {
            first: time(summary.first).await?,
            last: time(summary.last).await?,
        })
    }

    /// The state of a topic's durable subscriptions behind this name, in the order of their names, at most `len_max`. Those
    /// that are open in this runtime show what they have in hand; for others the store is read for what they have kept.
    ///
    /// ```
    /// use millrun::{DurableTopic, Runtime, Topic};
    ///
    /// const PLACED: DurableTopic<u64> = Topic::named("orders.placed").durable();
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let runtime = Runtime::volatile().durable_topic(PLACED).start().await?;
    /// let placed = runtime.durable_topic(PLACED)?;
    /// let billing = placed.subscribe("billing").await?;
    /// placed.publish(&7).await?;
    /// let told = runtime.durable_subscriptions("orders.placed", None, 100).await?;
    /// assert_eq!((told[0].name.as_str(), told[0].is_open), ("billing", true));
    /// assert_eq!(told[0].status.as_ref().map(|status| status.lag), Ok(1));
    /// # drop(billing);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// See [`TopicLookError`]. A subscription that cannot be read is no error: its status says so.
    ///
    /// # Cancel safety
    /// Nothing is lost when the future is dropped.
    pub async fn durable_subscriptions(
        &self,
        topic: &str,
        after: Option<&str>,
        len_max: usize,
    ) -> Result<Vec<DurableSubscriptionSummary>, TopicLookError> {
        let inner = self.inner();
        let number = declared(inner, topic)?;
        if let Some(cause) = self.stop_cause() {
            return Err(cause.into());
        }
        let told = DurableSubscriptionSummary::of_topic(inner, (number, topic), after, len_max).await?;
        Ok(told)
    }

    /// The state of the durable subscriptions that are open in this runtime, in the order of their topics and names. Nothing
    /// is read from the store, so `oldest` in the status is the first record in hand.
    #[must_use]
    pub fn open_subscriptions(&self) -> Vec<DurableSubscriptionSummary> {
        let mut told: Vec<_> = (self.inner().shared.durable.subscriptions.all().iter())
            .map(|shared| DurableSubscriptionSummary::of_open(shared, SubscriptionStatus::of_open(shared)))
            .collect();
        told.sort_by(|one, other| (&one.topic, &one.name).cmp(&(&other.topic, &other.name)));
        told
    }
}

fn declared(inner: &Inner, name: &str) -> Result<TopicNumber, TopicLookError> {
    let number = inner.shared.durable.number(name);
    number.ok_or_else(|| TopicLookError::NotDeclared {
        name: name.to_owned(),
    })
}
