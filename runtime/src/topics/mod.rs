//! Durable topics: publishing to them from outside of runs, and reading them.
//!
//! For the crate itself, also the connection between runs and the broker's topics: publishes of runs on their way out, and
//! triggers on their way in.

pub(crate) mod durable;
pub(crate) mod publisher;
pub(crate) mod trigger;

pub(crate) mod handed;

pub use durable::declared::DurableTopicError;
pub use durable::handle::{DurableTopicHandle, DurableTopicSummary};
pub use durable::looking::{DurableTopicTimes, TopicLookError};
pub use durable::managing::{PurgeBefore, TopicDeleted, TopicManageError, TopicPurged};
pub use durable::publish::{DurablePublishError, PublishRecord, PublishedRecord, PublishingRecord};
pub use durable::reader::{ReadFrom, ReadFromError, TopicReadError, TopicReader};
pub use durable::record::DurableRecord;
pub use durable::subscription::{
    AckSaved, AttachedSubscription, DurableSubscription, DurableSubscriptionSummary, FILTERED_TOPICS_MAX,
    FilteredOpenError, FilteredReadError, FilteredSubscription, FilteredTopics, FilteredTopicsError,
    LeaseLost, RecordDelivery, RecordTurn, SendBackError, SentBackStretch, SubscribeFiltered,
    SubscribeRecords, SubscriptionLost, SubscriptionOpenError, SubscriptionReadError, SubscriptionStatus,
    UndeliveredRecord,
};
pub use durable::token::{RecordToken, RecordTokenError};
pub use durable::trigger::{DurableTrigger, TriggerRecords};
pub use millrun_persistence::TopicRetention;
pub use millrun_workflow::RECORD_TEXT_BYTES_MAX;
pub use millrun_workflow::TopicTerms;
