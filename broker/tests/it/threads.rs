//! Real threads: publishers, consumers and subscriptions that come and go at the same time.

use millrun_broker::mailbox::MailboxConfig;
use millrun_broker::{Broker, BrokerConfig, Envelope, Inbox, SubscriptionConfig, Undeliverable};
use tokio::task::JoinSet;

const PRODUCERS: usize = 4;
const EACH: u32 = 2_000;

type Numbered = (usize, u32);

fn config(capacity: usize) -> SubscriptionConfig {
    SubscriptionConfig {
        inbox: MailboxConfig {
            capacity,
            ..MailboxConfig::default()
        },
        ..SubscriptionConfig::default()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_publisher_keeps_its_order_while_subscriptions_come_and_go() {
    let broker = Broker::without_host(BrokerConfig::default());
    let steady: Inbox<Envelope<Numbered>> = broker.subscribe("a.*", config(7)).unwrap();
    let mut tasks = JoinSet::new();
    for producer in 0..PRODUCERS {
        let mut publisher = broker.topic::<Numbered>("a.b").unwrap().publisher();
        tasks.spawn(async move {
            for number in 0..EACH {
                publisher.publish((producer, number)).await.unwrap();
            }
        });
    }
    let churned = broker.clone();
    tasks.spawn(async move {
        for round in 0..200_usize {
            let mut passing = churned
                .subscribe::<Numbered>("a.>", config(1 + round % 5))
                .unwrap()
                .into_receiver();
            let mut last = [None; PRODUCERS];
            for _ in 0..round % 7 {
                // The publishers may all have ended.
                let Some(envelope) = passing.try_recv() else { break };
                let (producer, number) = *envelope.payload();
                assert!(last[producer] < Some(number), "out of order");
                last[producer] = Some(number);
            }
            tokio::task::yield_now().await;
        }
    });
    let mut receiver = steady.into_receiver();
    let mut next = [0; PRODUCERS];
    for _ in 0..PRODUCERS * EACH as usize {
        let envelope = receiver.recv().await.unwrap();
        let (producer, number) = *envelope.payload();
        assert_eq!(number, next[producer], "producer {producer}");
        next[producer] += 1;
    }
    while let Some(ended) = tasks.join_next().await {
        ended.unwrap();
    }
    assert_eq!(receiver.inbox().len(), 0);
    assert_eq!(broker.given_up(Undeliverable::Unrouted), 0);
    assert_eq!(
        broker.topology().waiting,
        0,
        "who waited for a subscription that ended was let go"
    );
}

#[cfg(feature = "ractor")]
mod actors {
    use millrun_broker::Publisher;
    use millrun_broker::actor::{Attached, attach};
    use ractor::{Actor, ActorProcessingErr, ActorRef, SupervisionEvent};
    use tokio::sync::mpsc;

    use super::*;

    /// No module of the broker has the name of the crate: the name would be ambiguous.
    #[test]
    fn all_of_the_broker_can_be_imported_beside_the_crate_of_its_actors() {
        use millrun_broker::*;
        use ractor::ActorStatus;

        let topic = TopicName::new("orders").unwrap();
        assert_eq!(topic.as_str(), "orders");
        assert!(ActorStatus::Stopped > ActorStatus::Running);
    }

    /// Panics at every seventh envelope it begins.
    struct Worker;

    struct Waiting;

    struct Work {
        inbox: Attached<Envelope<Numbered>>,
        done: mpsc::UnboundedSender<u32>,
        begun: u32,
    }

    impl Actor for Worker {
        type Msg = Waiting;
        type State = Work;
        type Arguments = (Inbox<Envelope<Numbered>>, mpsc::UnboundedSender<u32>);

        async fn pre_start(
            &self,
            myself: ActorRef<Waiting>,
            (inbox, done): Self::Arguments,
        ) -> Result<Work, ActorProcessingErr> {
            Ok(Work {
                inbox: attach(inbox, &myself, || Waiting),
                done,
                begun: 0,
            })
        }

        async fn handle(
            &self,
            _: ActorRef<Waiting>,
            Waiting: Waiting,
            work: &mut Work,
        ) -> Result<(), ActorProcessingErr> {
            for envelope in work.inbox.turn() {
                work.done.send(envelope.payload().1).unwrap();
                work.begun += 1;
                assert!(work.begun < 7, "every seventh envelope kills the worker");
            }
            Ok(())
        }
    }

    /// Replaces each worker that dies.
    struct Keeper;

    impl Actor for Keeper {
        type Msg = Waiting;
        type State = <Worker as Actor>::Arguments;
        type Arguments = Self::State;

        async fn pre_start(
            &self,
            myself: ActorRef<Waiting>,
            state: Self::State,
        ) -> Result<Self::State, ActorProcessingErr> {
            Actor::spawn_linked(None, Worker, state.clone(), myself.get_cell()).await?;
            Ok(state)
        }

        async fn handle_supervisor_evt(
            &self,
            myself: ActorRef<Waiting>,
            event: SupervisionEvent,
            state: &mut Self::State,
        ) -> Result<(), ActorProcessingErr> {
            if let SupervisionEvent::ActorFailed(..) = event {
                Actor::spawn_linked(None, Worker, state.clone(), myself.get_cell()).await?;
            }
            Ok(())
        }
    }

    /// Publishes each number again, one higher.
    struct Forwarder;

    struct Forwarding {
        inbox: Attached<Envelope<u32>>,
        next: Publisher<u32>,
    }

    impl Actor for Forwarder {
        type Msg = Waiting;
        type State = Forwarding;
        type Arguments = (Inbox<Envelope<u32>>, Publisher<u32>);

        async fn pre_start(
            &self,
            myself: ActorRef<Waiting>,
            (inbox, next): Self::Arguments,
        ) -> Result<Forwarding, ActorProcessingErr> {
            let inbox = attach(inbox, &myself, || Waiting);
            Ok(Forwarding { inbox, next })
        }

        async fn handle(
            &self,
            _: ActorRef<Waiting>,
            Waiting: Waiting,
            Forwarding { inbox, next }: &mut Forwarding,
        ) -> Result<(), ActorProcessingErr> {
            let turn = inbox.turn();
            let inbox = turn.inbox();
            for envelope in turn {
                let number = envelope.payload() + 1;
                inbox.handling(&envelope).run(|| next.publish(number)).await?;
            }
            Ok(())
        }
    }

    #[tokio::test]
    async fn what_an_actor_publishes_names_its_cause_if_it_says_what_it_handles() {
        let broker = Broker::without_host(BrokerConfig::default());
        let inbox = broker.subscribe::<u32>("a", config(4)).unwrap();
        let mut results = broker.subscribe::<u32>("b", config(4)).unwrap().into_receiver();
        let next = broker.topic("b").unwrap().publisher();
        let (actor, ended) = Actor::spawn(None, Forwarder, (inbox, next)).await.unwrap();
        let topic = broker.topic::<u32>("a").unwrap();
        for number in [1, 5] {
            let cause = topic.publish(number).await.unwrap().id;
            let result = results.recv().await.unwrap();
            assert_eq!(
                (*result.payload(), result.causation(), result.correlation()),
                (number + 1, Some(cause), cause)
            );
        }
        actor.stop(None);
        ended.await.unwrap();
    }

    #[tokio::test]
    async fn an_actor_that_keeps_dying_loses_nothing() {
        let broker = Broker::without_host(BrokerConfig::default());
        let inbox: Inbox<Envelope<Numbered>> = broker.subscribe("a", config(16)).unwrap();
        let (done, mut seen) = mpsc::unbounded_channel();
        let (keeper, ended) = Actor::spawn(None, Keeper, (inbox.clone(), done)).await.unwrap();
        let mut publisher = broker.topic::<Numbered>("a").unwrap().publisher();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            for number in 0..100 {
                publisher.publish((0, number)).await.unwrap();
            }
        });
        for number in 0..100 {
            assert_eq!(seen.recv().await, Some(number));
        }
        keeper.stop(None);
        ended.await.unwrap();
        assert!(inbox.is_empty());
        assert_eq!(inbox.stats().taken, 100);
    }
}
