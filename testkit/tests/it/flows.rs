//! What a recorder knows of each envelope, and what its assertions say when they fail.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use millrun_broker::mailbox::MailboxConfig;
use millrun_broker::{
    Broker, BrokerConfig, Envelope, EnvelopeId, Headers, Inbox, Overflow, ServiceConfig, SubscriptionConfig,
    Undeliverable,
};
use millrun_testkit::{Fate, FlowConfig, FlowRecorder, SimConfig, SimHost};

#[derive(Clone, Debug, PartialEq, Eq)]
struct Order(u32);

struct Setup {
    world: SimHost,
    broker: Broker,
    flows: FlowRecorder,
}

fn setup() -> Setup {
    let world = SimHost::new(SimConfig::seeded(3));
    let broker = Broker::new(BrokerConfig::default(), world.host());
    let flows = FlowRecorder::attach(&broker).unwrap().keep::<Order>();
    Setup { world, broker, flows }
}

fn named(name: &str) -> SubscriptionConfig {
    SubscriptionConfig {
        name: name.to_owned(),
        ..SubscriptionConfig::default()
    }
}

fn one_place(name: &str, overflow: Overflow) -> SubscriptionConfig {
    SubscriptionConfig {
        inbox: MailboxConfig {
            capacity: 1,
            ..MailboxConfig::default()
        },
        overflow,
        ..named(name)
    }
}

impl Setup {
    fn publish(&self, topic: &str, order: u32) -> EnvelopeId {
        let topic = self.broker.topic::<Order>(topic).unwrap();
        self.world
            .block_on(topic.publish(Order(order)))
            .unwrap()
            .unwrap()
            .id
    }

    fn fate(&self, envelope: EnvelopeId, inbox: &Inbox<Envelope<Order>>) -> Option<Fate> {
        let flow = self.flows.flow_of(envelope)?;
        flow.at(inbox.id()).map(|delivery| delivery.fate)
    }

    fn subscribe(&self, filter: &str, config: SubscriptionConfig) -> Inbox<Envelope<Order>> {
        self.broker.subscribe(filter, config).unwrap()
    }
}

/// What an assertion that fails says; ids count from `first`, so that the text is the same in each
/// run.
fn complaint(first: EnvelopeId, assertion: impl FnOnce()) -> String {
    let panic = catch_unwind(AssertUnwindSafe(assertion)).expect_err("the assertion fails");
    let mut text = *panic.downcast::<String>().expect("a message");
    for offset in (0..4).rev() {
        let id = EnvelopeId::from_bits(first.bits() + offset).unwrap();
        text = text.replace(&id.to_string(), &format!("#{offset}"));
    }
    text
}

#[test]
fn each_fate_is_told_apart() {
    let setup = setup();
    let blocking = setup.subscribe("a", one_place("blocking", Overflow::Block));
    let strict = setup.subscribe("a", one_place("strict", Overflow::Fail));
    let newest = setup.subscribe("a", one_place("newest", Overflow::DropNewest));
    let oldest = setup.subscribe("a", one_place("oldest", Overflow::DropOldest));
    let first = setup.publish("a", 1);
    assert_eq!(setup.fate(first, &blocking), Some(Fate::Queued));

    let topic = setup.broker.topic::<Order>("a").unwrap();
    let limit = Duration::from_secs(1);
    let refused = setup
        .world
        .block_on(topic.publish_timeout(Order(2), limit))
        .unwrap();
    let second = refused.unwrap_err().into_refused().envelope().id();
    assert_eq!(setup.fate(second, &blocking), Some(Fate::LeftTheLine));
    assert_eq!(setup.fate(second, &strict), Some(Fate::Refused));
    assert_eq!(
        setup.fate(second, &newest),
        Some(Fate::GivenUp(Undeliverable::DroppedNewest))
    );
    assert_eq!(setup.fate(second, &oldest), Some(Fate::Queued));
    assert_eq!(
        setup.fate(first, &oldest),
        Some(Fate::GivenUp(Undeliverable::DroppedOldest))
    );

    assert_eq!(blocking.take().count(), 1);
    assert_eq!(setup.fate(first, &blocking), Some(Fate::Taken));
    strict.close_discarding();
    assert_eq!(
        setup.fate(first, &strict),
        Some(Fate::GivenUp(Undeliverable::Discarded))
    );
    let nowhere = setup.publish("b", 3);
    setup.flows.assert_given_up(nowhere, Undeliverable::Unrouted);
    setup.flows.assert_given_up(second, Undeliverable::DroppedNewest);
    setup.flows.assert_not_reached(second, "newest");
    setup.flows.assert_reached(second, &oldest);
    setup.flows.assert_published("*", 3);
}

#[test]
fn what_a_waiting_publish_and_a_working_handler_do_is_seen_while_they_do_it() {
    let setup = setup();
    let inbox = setup.subscribe("a", one_place("slow", Overflow::Block));
    let first = setup.publish("a", 1);
    let topic = setup.broker.topic::<Order>("a").unwrap();
    let waiting = setup.world.host().spawn(
        "publisher",
        Box::pin(async move { drop(topic.publish(Order(2)).await) }),
    );
    assert_eq!(setup.world.run_ready(), millrun_testkit::SimStop::Idle);
    let second = setup.flows.flows("a")[1].id;
    assert_eq!(setup.fate(second, &inbox), Some(Fate::Waiting));

    let service = inbox
        .serve(ServiceConfig::default(), |_| {
            std::future::pending::<Result<(), String>>()
        })
        .unwrap();
    assert_eq!(setup.world.run_ready(), millrun_testkit::SimStop::Idle);
    assert_eq!(setup.fate(first, &inbox), Some(Fate::AtWork));
    assert_eq!(setup.fate(second, &inbox), Some(Fate::Queued));
    drop(service);
    assert_eq!(setup.world.run_ready(), millrun_testkit::SimStop::Idle);
    assert_eq!(setup.fate(first, &inbox), Some(Fate::Queued), "back at the front");
    waiting.abort();
}

#[test]
fn a_failure_to_reach_says_what_did_happen_and_why() {
    let setup = setup();
    let billing = setup.subscribe("orders.eu.*", named("billing"));
    let audit = setup.subscribe("orders.us.*", named("audit"));
    let id = setup.publish("orders.eu.placed", 42);
    assert_eq!(billing.take().count(), 1);
    setup.flows.assert_reached(id, "billing");
    let expected = r##"envelope #0 did not reach "audit"
what is known of it:
#0 orders.eu.placed Order(42)
  "billing" (subscription-1, orders.eu.*): taken
"audit" (subscription-2, orders.us.*) had no part in it: its filter orders.us.* does not select orders.eu.placed"##;
    assert_eq!(
        complaint(id, || setup.flows.assert_reached(id, "audit")),
        expected
    );
    let expected = r##"envelope #0 did not reach "nobody"
what is known of it:
#0 orders.eu.placed Order(42)
  "billing" (subscription-1, orders.eu.*): taken
no subscription is called "nobody"; there are: "billing" (subscription-1, orders.eu.*), "audit" (subscription-2, orders.us.*)"##;
    assert_eq!(
        complaint(id, || setup.flows.assert_reached(id, "nobody")),
        expected
    );
    let expected = r##"envelope #0 did reach "billing" (subscription-1, orders.eu.*)
what is known of it:
#0 orders.eu.placed Order(42)
  "billing" (subscription-1, orders.eu.*): taken"##;
    assert_eq!(
        complaint(id, || setup.flows.assert_not_reached(id, &billing)),
        expected
    );
    let late = setup.subscribe("orders.>", SubscriptionConfig::default());
    let text = complaint(id, || setup.flows.assert_reached(id, &late));
    assert!(
        text.contains(r#""orders.>" (subscription-3) had no part in it: it was not subscribed at that time"#),
        "{text}"
    );
    drop(audit);
}

#[test]
fn a_handler_that_keeps_failing_is_quoted() {
    let setup = setup();
    let inbox = setup.subscribe("jobs", named("worker"));
    let _service = inbox
        .serve(ServiceConfig::default(), |_| async { Err::<(), _>("no paper") })
        .unwrap();
    let id = setup.publish("jobs", 1);
    setup.flows.settle_in(&setup.world).unwrap();
    setup.flows.assert_given_up(id, Undeliverable::Failed);
    let expected = r##"envelope #0 was not handled by "worker"
what is known of it:
#0 jobs Order(1)
  "worker" (subscription-1, jobs): given up: Failed
    attempt 1: no paper
    attempt 2: no paper
    attempt 3: no paper"##;
    assert_eq!(
        complaint(id, || setup.flows.assert_handled(id, "worker")),
        expected
    );
    let expected = r##"envelope #0 was not given up as Expired
what is known of it:
#0 jobs Order(1)
  "worker" (subscription-1, jobs): given up: Failed
    attempt 1: no paper
    attempt 2: no paper
    attempt 3: no paper"##;
    assert_eq!(
        complaint(id, || setup.flows.assert_given_up(id, Undeliverable::Expired)),
        expected
    );
}

#[test]
fn a_count_that_is_wrong_lists_what_was_published() {
    let setup = setup();
    let first = setup.publish("a.x", 1);
    let expected = "1 envelopes were published to a.*, not 2\n#0 a.x Order(1)\n  nobody was subscribed";
    assert_eq!(
        complaint(first, || setup.flows.assert_published("a.*", 2)),
        expected
    );
    let text = complaint(first, || setup.flows.assert_published("a..b", 0));
    assert!(text.starts_with("\"a..b\" is not a filter"), "{text}");
    setup.flows.clear();
    let text = complaint(first, || setup.flows.assert_reached(first, "anyone"));
    assert_eq!(
        text,
        "envelope #0 was not seen since the recorder was attached or cleared"
    );
}

/// a → b twice, and one of them → c.
#[test]
fn a_chain_is_a_tree_of_causes() {
    let setup = setup();
    let (b, c) = (
        setup.broker.topic::<Order>("b").unwrap(),
        setup.broker.topic::<Order>("c").unwrap(),
    );
    let splitting = setup.subscribe("a", named("splitter"));
    let _splitter = splitting
        .serve(ServiceConfig::default(), move |order| {
            let b = b.clone();
            async move {
                for half in 0..2 {
                    drop(b.publish(Order(order.payload().0 + half)).await);
                }
                Ok::<_, String>(())
            }
        })
        .unwrap();
    let ending = setup.subscribe("b", named("ender"));
    let _ender = ending
        .serve(ServiceConfig::default(), move |order| {
            let c = c.clone();
            async move {
                if order.payload().0 == 10 {
                    drop(c.publish_with(Headers::new().key("k"), Order(99)).await);
                }
                Ok::<_, String>(())
            }
        })
        .unwrap();
    let root = setup.publish("a", 10);
    let other = setup.publish("a.other", 1);
    setup.flows.settle_in(&setup.world).unwrap();

    let last = setup.flows.flows("c")[0].id;
    let chain = setup.flows.chain_of(last).unwrap();
    assert_eq!(chain.root().id, root);
    assert_eq!(chain.links().len(), 4);
    let payloads: Vec<Vec<u32>> = chain
        .paths()
        .iter()
        .map(|path| {
            path.iter()
                .map(|flow| flow.payload::<Order>().unwrap().0)
                .collect()
        })
        .collect();
    assert_eq!(payloads, [vec![10, 10, 99], vec![10, 11]]);
    setup.flows.assert_chain(root, &["a", "b", "c"]);
    setup.flows.assert_chain(last, &["a", "b"]);
    assert_eq!(setup.flows.chain_of(other).unwrap().links().len(), 1);

    let text = complaint(root, || setup.flows.assert_chain(root, &["a", "c"]));
    // Ids within a chain depend on who asked the broker for one first, so they are left out.
    let without_ids: String = text
        .lines()
        .map(|line| {
            let end = line.find(", caused by").unwrap_or(line.len());
            let words: Vec<&str> = line[..end].split(' ').collect();
            let is_id = |word: &str| {
                word.starts_with('#') || word.len() == 16 && word.chars().all(char::is_alphanumeric)
            };
            let kept: Vec<&str> = words.into_iter().filter(|word| !is_id(word)).collect();
            kept.join(" ") + "\n"
        })
        .collect();
    let expected = r##"no path of the chain goes a → c
the chain:
a Order(10)
  "splitter" (subscription-1, a): handled
├─ b Order(10)
│    "ender" (subscription-2, b): handled
│  └─ c Order(99)
│       nobody was subscribed
└─ b Order(11)
     "ender" (subscription-2, b): handled
"##;
    assert_eq!(without_ids, expected);
}

#[test]
fn payloads_are_copies_and_the_recorder_holds_no_envelope() {
    let setup = setup();
    let inbox = setup.subscribe("a", named("reader"));
    setup.publish("a", 7);
    let envelope = inbox.take().next().unwrap();
    let payload = envelope.into_payload().expect("nobody else holds it");
    assert_eq!(payload, Order(7));
    assert_eq!(setup.flows.payloads::<Order>("a"), [Order(7)]);

    setup
        .world
        .block_on(setup.broker.topic("b").unwrap().publish(8_u64))
        .unwrap()
        .unwrap();
    let first = setup.flows.flows("b")[0].id;
    let text = complaint(first, || drop(setup.flows.payloads::<u64>("b")));
    assert_eq!(
        text,
        "payloads of type u64 are not kept: call `keep::<u64>()` when the recorder is attached"
    );
}

#[test]
fn a_recorder_forgets_the_oldest_envelopes_beyond_its_bound_and_says_so() {
    let broker = Broker::without_host(BrokerConfig::default());
    let config = FlowConfig::default().steps_max(10);
    let flows = FlowRecorder::with_config(&broker, config).unwrap();
    assert!(FlowRecorder::attach(&broker).is_err(), "one tap per broker");
    let inbox: Inbox<Envelope<u32>> = broker.subscribe("a", named("reader")).unwrap();
    let topic = broker.topic::<u32>("a").unwrap();
    let ids: Vec<EnvelopeId> = (0..25)
        .map(|number| topic.try_publish(number).unwrap().id)
        .collect();
    assert_eq!(flows.flows("a").len(), 10);
    assert_eq!(flows.forgotten(), 15);
    assert!(flows.flow_of(ids[14]).is_none());
    flows.assert_reached(ids[15], "reader");
    let text = complaint(ids[0], || flows.assert_reached(ids[0], "reader"));
    assert!(
        text.ends_with("15 older steps were forgotten: `steps_max` is 10"),
        "{text}"
    );
    drop(inbox);
    // Each envelope that is known takes one more step as it is discarded: half of them stay.
    assert!(flows.flows("a").len() <= 10);
}

#[test]
fn one_envelope_cannot_take_more_than_the_bound() {
    let broker = Broker::without_host(BrokerConfig::default());
    let config = FlowConfig::default().steps_max(3);
    let flows = FlowRecorder::with_config(&broker, config).unwrap();
    let inboxes: Vec<Inbox<Envelope<u32>>> = (0..5)
        .map(|_| broker.subscribe("a", SubscriptionConfig::default()).unwrap())
        .collect();
    let id = broker.topic::<u32>("a").unwrap().try_publish(1).unwrap().id;
    assert_eq!(flows.flow_of(id).unwrap().deliveries.len(), 3);
    assert_eq!(flows.forgotten(), 2);
    drop(inboxes);
}

#[test]
fn a_recorder_that_is_dropped_leaves_the_broker_as_it_was() {
    let broker = Broker::without_host(BrokerConfig::default());
    let flows = FlowRecorder::attach(&broker).unwrap();
    let inbox: Inbox<Envelope<u32>> = broker.subscribe("a", SubscriptionConfig::default()).unwrap();
    drop(flows);
    let published = broker.topic::<u32>("a").unwrap().try_publish(1).unwrap();
    assert_eq!(published.delivered, 1);
    assert_eq!(inbox.take().count(), 1);
}
