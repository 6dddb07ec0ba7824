//! The ways into the shards.

use std::sync::Arc;

use millrun_broker::mailbox::{Mailbox, MailboxConfig};
use millrun_broker::{Broker, Envelope, Inbox, SubscribeError, SubscriptionConfig, TopicHandle};
use millrun_core::{Bell, Partition, RunId};

use super::ShardMessage;
use super::finished::Answered;
use super::local::LocalMessage;
use super::request::Request;
use super::target::Target;
use crate::activity::{ActivityReport, ActivityReports};
use crate::ownership::claims::shard_of;

/// The ways into all shards. A cheap clone.
#[derive(Clone, Debug)]
pub(crate) struct ShardDoors(Arc<[ShardDoor]>);

/// The ways into one shard.
#[derive(Debug)]
pub(crate) struct ShardDoor {
    /// Requests from outside, and messages whose places are reserved.
    pub(crate) mailbox: Mailbox<ShardMessage>,
    /// Answers of readers to the shard's questions.
    pub(crate) answers: Mailbox<Answered>,
    /// The topic for reports of activities.
    reports: TopicHandle<ActivityReports>,
    /// Where the reports arrive.
    pub(crate) inbox: Inbox<Envelope<ActivityReports>>,
}

impl ShardDoor {
    fn new(broker: &Broker, index: usize, len_max: usize) -> Result<Self, SubscribeError> {
        let config = MailboxConfig {
            capacity: len_max,
            ..MailboxConfig::default()
        };
        let mailbox = Mailbox::new(config, Bell::new())?;
        let answers = Mailbox::new(MailboxConfig::default(), mailbox.bell().clone())?;
        let name = format!("millrun.reports.{index}");
        let subscription = SubscriptionConfig {
            name: format!("shard {index}"),
            inbox: config,
            ..SubscriptionConfig::default()
        };
        let inbox = broker.subscribe(&name, subscription)?;
        let bell = mailbox.bell().clone();
        inbox.bell().connect(move || bell.ring());
        let reports = broker.topic(&name)?;
        Ok(Self {
            mailbox,
            answers,
            reports,
            inbox,
        })
    }

    /// Puts a request into the mailbox. Returns the request if there is no room, or the runtime has stopped.
    #[inline]
    #[expect(
        clippy::result_large_err,
        reason = "the request itself comes back, as from a mailbox"
    )]
    pub(crate) fn try_push(&self, request: Request) -> Result<(), Request> {
        let refused = match self.mailbox.try_push(ShardMessage::Request(request)) {
            Ok(()) => return Ok(()),
            Err(refused) => refused.into_inner(),
        };
        match refused {
            ShardMessage::Request(request) => Err(request),
            ShardMessage::Partition(_) | ShardMessage::Local(_) | ShardMessage::Mailed(_) => {
                unreachable!("what comes back is what was pushed")
            }
        }
    }

    /// As [`try_push`](Self::try_push), but waits for room. False if the runtime has stopped.
    pub(crate) async fn push(&self, request: Request) -> bool {
        self.mailbox.push(ShardMessage::Request(request)).await.is_ok()
    }

    /// Puts a message into a reserved place.
    pub(crate) fn push_reserved(&self, message: impl Into<ShardMessage>) {
        // Refused only when the runtime has stopped; what was decided is in the journal.
        drop(self.mailbox.push_reserved(message.into()));
    }

    pub(crate) fn close_discarding(&self) {
        drop(self.mailbox.close_discarding());
        drop(self.answers.close_discarding());
        self.inbox.close_discarding();
    }
}

impl ShardDoors {
    pub(crate) fn new(broker: &Broker, shards_len: usize, len_max: usize) -> Result<Self, SubscribeError> {
        (0..shards_len)
            .map(|index| ShardDoor::new(broker, index, len_max))
            .collect::<Result<_, _>>()
            .map(Self)
    }

    pub(crate) fn all(&self) -> &[ShardDoor] {
        &self.0
    }

    /// Refuses all requests from now on. The callers that wait are told why the runtime stops.
    pub(crate) fn close_discarding(&self) {
        self.0.iter().for_each(ShardDoor::close_discarding);
    }

    /// The number of the shard that hosts a partition.
    pub(crate) fn index_of(&self, partition: Partition) -> usize {
        shard_of(partition, self.0.len())
    }

    /// The shard that hosts a partition. Nothing stored depends on this.
    pub(crate) fn of(&self, partition: Partition) -> &ShardDoor {
        &self.0[self.index_of(partition)]
    }

    pub(crate) fn of_target(&self, target: &Target) -> &ShardDoor {
        self.of(target.partition())
    }

    /// Sends a message from inside the runtime, into a reserved place.
    pub(crate) fn push(&self, run: RunId, message: LocalMessage) {
        self.of(run.partition()).push_reserved(message);
    }

    /// Gives a shard the answer of a reader, into a reserved place.
    pub(crate) fn answer(&self, answered: Answered) {
        let door = self.of(answered.ask.id.partition());
        // Refused only when the runtime has stopped.
        drop(door.answers.push_reserved(answered));
    }

    /// Publishes the result of an attempt. Waits for room in the shard's inbox.
    pub(crate) async fn report(&self, report: ActivityReport) {
        let shard = self.index_of(report.run.partition());
        self.report_to(shard, report.into()).await;
    }

    /// As [`report`](Self::report), for several results to the same shard.
    pub(crate) async fn report_to(&self, shard: usize, reports: ActivityReports) {
        // An error means that the shard is gone: the attempt is made again after the restart.
        drop(self.0[shard].reports.publish(reports).await);
    }

    /// Publishes the results of attempts, in order, as far as there is room. Returns the rest.
    pub(crate) fn try_report(&self, reports: &mut Vec<ActivityReport>) -> Vec<(usize, ActivityReports)> {
        let shard_of = |report: &ActivityReport| self.index_of(report.run.partition());
        let mut refused: Vec<(usize, ActivityReports)> = Vec::new();
        for (shard, reports) in ActivityReports::of(reports, self.0.len(), shard_of) {
            // Kept behind the refused one, so that the order stays.
            if refused.last().is_some_and(|(full, _)| *full == shard) {
                refused.push((shard, reports));
            } else if let Err(error) = self.0[shard].reports.try_publish(reports) {
                let reports = error.into_refused().into_payload();
                // Other subscribers of the topic share the envelope, so its payload may have to be cloned.
                let reports = reports.unwrap_or_else(|envelope| envelope.payload().clone());
                refused.push((shard, reports));
            }
        }
        refused
    }
}
