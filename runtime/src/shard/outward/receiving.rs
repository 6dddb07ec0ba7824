//! Registers the waits of runs for records of durable topics.

use std::sync::Arc;

use millrun_core::{RunId, Sequence, Timestamp};
use millrun_workflow::{OperationId, Pending, ReceiveScheduled};

use crate::shard::Shard;
use crate::shard::runs::entry::Residence;
use crate::shard::sweeps::effects::Effect;
use crate::topics::durable::receiving::NewWait;

impl Shard {
    /// Looks for the record that a run waits for; the wait is durable. If the topic is not durable here, the wait stands in
    /// the run's history alone.
    #[cold]
    pub(in crate::shard) fn receive(&self, run: RunId, scheduled: &ReceiveScheduled, run_began: Timestamp) {
        if self.shared.is_read_only {
            return;
        }
        let durable = &self.shared.durable;
        let Some(topic) = durable.number(&scheduled.topic) else {
            tracing::warn!(%run, topic = %scheduled.topic, "a durable topic is not registered: the run waits");
            return;
        };
        let wait = NewWait {
            run,
            scheduled,
            run_began,
        };
        durable.waits.list(&self.shared, &self.ways.doors(), topic, wait);
    }

    /// A run was told of a record that it does not wait for. If it still waits, as after a record whose key has the same hash
    /// as the wanted key, the search goes on behind that record.
    #[cold]
    pub(in crate::shard) fn receive_behind(
        &mut self,
        run: RunId,
        operation: OperationId,
        sequence: Sequence,
    ) {
        let Some(Residence::Hot(instance)) = self.entries.get(run).map(|entry| &entry.residence) else {
            return;
        };
        if let Some(Pending::Receive { scheduled, run_began }) =
            instance.ledger().pending_operation(operation)
        {
            let mut scheduled = ReceiveScheduled::clone(scheduled);
            scheduled.behind = scheduled.behind.max(Some(sequence));
            let look = Effect::Receive(run, Arc::new(scheduled), *run_began);
            self.effects.push(look);
        }
    }

    /// A wait for a record was cancelled.
    #[cold]
    pub(in crate::shard) fn cancel_receive(&self, run: RunId, scheduled: &ReceiveScheduled) {
        let durable = &self.shared.durable;
        if let Some(topic) = durable.number(&scheduled.topic) {
            durable.waits.cancel(topic, run, scheduled);
        }
    }
}

#[cfg(test)]
mod tests {
    use millrun_core::{Partition, RunId, Sequence, Timestamp};
    use millrun_workflow::{
        KeyFilter, OperationId, Payload, RawRecord, ReceiveScheduled, RecordFilter, WorkflowContext,
        WorkflowError,
    };
    use tokio::sync::oneshot;

    use super::NewWait;
    use crate::mail::{Request, Target, Tell};
    use crate::{DurableTopic, RunError, Runtime, Topic, Workflow};

    const PAID: DurableTopic<u64> = Topic::named("paid").durable();
    const TAKE: Workflow<(), u64> = Workflow::named("take");

    async fn take(cx: WorkflowContext, (): ()) -> Result<u64, WorkflowError> {
        Ok(cx.receive_from(PAID).key("mine").await?.into_payload())
    }

    /// Tells a run of a record with another key, as if both keys had the same hash.
    async fn tell_of_another(runtime: &Runtime, run: RunId, sequence: u64) -> Result<(), RunError> {
        let record = RawRecord {
            sequence: Sequence::new(sequence),
            time: Timestamp::EPOCH,
            key: Some("another".into()),
            correlation: None,
            cause: None,
            value: Payload::encode(&0_u64).unwrap(),
        };
        let (reply, answer) = oneshot::channel();
        let (target, operation) = (Target::Run(run), OperationId::new(1));
        let what = Tell::RecordReceived {
            operation,
            record: Box::new(record),
        };
        let request = Request::Tell {
            target: target.clone(),
            what,
            reply: reply.into(),
        };
        runtime.inner().ask(&target, request, answer).await
    }

    /// A wait that only the list knows.
    fn wait_for(key: KeyFilter, behind: Option<u64>) -> ReceiveScheduled {
        ReceiveScheduled {
            operation: OperationId::new(1),
            topic: "paid".into(),
            filter: RecordFilter {
                key: Some(key),
                correlation: None,
            },
            behind: behind.map(Sequence::new),
            since: None,
        }
    }

    /// The first look reads the topic from the run's beginning; the second one has nothing to read.
    #[tokio::test]
    async fn a_wait_that_is_repeated_is_listed_at_once_where_the_cancelled_one_was() {
        let runtime = Runtime::volatile().durable_topic(PAID).start().await.unwrap();
        let paid = runtime.durable_topic(PAID).unwrap();
        let inner = runtime.inner();
        let durable = &inner.shared.durable;
        let topic = durable.number("paid").unwrap();
        let run = RunId::new(Partition::of(b"a"), Timestamp::EPOCH, 1);
        let prefix = || KeyFilter::StartsWith("mine".into());
        let scheduled = wait_for(prefix(), None);
        let list = |scheduled: &ReceiveScheduled| {
            let wait = NewWait {
                run,
                scheduled,
                run_began: Timestamp::EPOCH,
            };
            durable.waits.list(&inner.shared, &inner.doors, topic, wait);
        };
        for number in 0..3 {
            paid.publish(&number).key("another").await.unwrap();
        }
        list(&scheduled);
        assert_eq!(durable.waits.listed_len(topic), 0, "it is late");
        while durable.waits.listed_len(topic) == 0 {
            tokio::task::yield_now().await;
        }
        durable.waits.cancel(topic, run, &scheduled);
        list(&scheduled);
        assert_eq!(durable.waits.listed_len(topic), 1);
        durable.waits.cancel(topic, run, &scheduled);

        // A pass over the topic has given the run a record that the live reader has not reached.
        let ahead = wait_for(prefix(), Some(60));
        for _ in 0..2 {
            list(&ahead);
            assert_eq!(durable.waits.listed_behind(topic), Some(Sequence::new(60)));
            durable.waits.cancel(topic, run, &ahead);
        }
    }

    #[tokio::test]
    async fn a_wait_that_a_record_of_another_key_has_taken_off_the_list_is_listed_again() {
        let builder = Runtime::volatile().durable_topic(PAID).register(TAKE, take);
        let runtime = builder.start().await.unwrap();
        let paid = runtime.durable_topic(PAID).unwrap();
        let another = paid.publish(&0).key("another").await.unwrap();
        let run = runtime.start(TAKE, "a", ()).await.unwrap();
        let durable = &runtime.inner().shared.durable;
        let topic = durable.number("paid").unwrap();
        while durable.waits.listed_len(topic) == 0 {
            tokio::task::yield_now().await;
        }
        let run_id = run.run_id().unwrap();
        let scheduled = wait_for(KeyFilter::Is("mine".into()), None);
        durable.waits.cancel(topic, run_id, &scheduled);
        assert_eq!(durable.waits.listed_len(topic), 0);
        let told = tell_of_another(&runtime, run_id, another.sequence().get()).await;
        assert!(matches!(told, Err(RunError::Refused(_))), "{told:?}");
        paid.publish(&7).key("mine").await.unwrap();
        assert_eq!(run.result().await.unwrap(), 7);
    }
}
