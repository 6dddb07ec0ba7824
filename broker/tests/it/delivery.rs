//! Who gets what, and in which order.

use millrun_broker::{
    AnyEnvelope, Broker, BrokerConfig, DEAD_LETTERS, DeadLetter, Envelope, GroupChoice, GroupConfig, Headers,
    Inbox, SubscribeError, SubscriptionConfig, TopicConfig, TopicError, Undeliverable,
};

use crate::host::ready;

fn broker() -> Broker {
    Broker::without_host(BrokerConfig::default())
}

fn inbox(broker: &Broker, filter: &str) -> Inbox<Envelope<u32>> {
    broker.subscribe(filter, SubscriptionConfig::default()).unwrap()
}

fn payloads(inbox: &Inbox<Envelope<u32>>) -> Vec<u32> {
    inbox.take().map(|envelope| *envelope.payload()).collect()
}

#[test]
fn every_matching_subscription_gets_each_envelope_in_order() {
    let broker = broker();
    let (exact, wild, other) = (
        inbox(&broker, "a.b"),
        inbox(&broker, "a.>"),
        inbox(&broker, "b.*"),
    );
    let mut publisher = broker.topic::<u32>("a.b").unwrap().publisher();
    for number in 0..3_u32 {
        assert_eq!(ready(publisher.publish(number)).unwrap().delivered, 2);
    }
    assert_eq!(payloads(&exact), [0, 1, 2]);
    assert_eq!(payloads(&wild), [0, 1, 2]);
    assert!(other.is_empty());
}

#[test]
fn a_publisher_sees_subscriptions_come_and_go() {
    let broker = broker();
    let mut publisher = broker.topic::<u32>("a").unwrap().publisher();
    assert_eq!(ready(publisher.publish(0)).unwrap().delivered, 0);
    assert_eq!(broker.given_up(Undeliverable::Unrouted), 1);
    let late = inbox(&broker, "*");
    assert_eq!(ready(publisher.publish(1)).unwrap().delivered, 1);
    late.close();
    assert_eq!(ready(publisher.publish(2)).unwrap().delivered, 0);
    assert_eq!(payloads(&late), [1], "closing leaves what is queued");
    assert!(late.is_finished());
}

#[test]
fn dropping_the_last_inbox_ends_the_subscription() {
    let broker = broker();
    let first = inbox(&broker, "a");
    let clone = first.clone();
    let topic = broker.topic::<u32>("a").unwrap();
    drop(first);
    assert_eq!(ready(topic.publish(1)).unwrap().delivered, 1);
    drop(clone);
    assert_eq!(broker.given_up(Undeliverable::Discarded), 1);
    assert_eq!(ready(topic.publish(2)).unwrap().delivered, 0);
    assert!(broker.topology().subscriptions.is_empty());
}

#[test]
fn a_topic_has_one_payload_type() {
    let broker = broker();
    broker.topic::<u32>("a").unwrap();
    assert!(matches!(
        broker.topic::<String>("a"),
        Err(TopicError::PayloadType { .. })
    ));
    let exact = broker.subscribe::<String>("a", SubscriptionConfig::default());
    assert!(matches!(
        exact,
        Err(SubscribeError::Topic(TopicError::PayloadType { .. }))
    ));
}

#[test]
fn a_typed_filter_passes_over_topics_of_other_types_and_an_untyped_one_takes_all() {
    let broker = broker();
    let numbers = inbox(&broker, ">");
    let all: Inbox<dyn AnyEnvelope> = broker.subscribe_any(">", SubscriptionConfig::default()).unwrap();
    let text = broker.topic::<String>("text").unwrap();
    ready(broker.topic::<u32>("number").unwrap().publish(1)).unwrap();
    ready(text.publish("one".to_owned())).unwrap();
    assert_eq!(payloads(&numbers), [1]);
    let all: Vec<_> = all.take().collect();
    assert_eq!(all.len(), 2);
    assert_eq!(broker.topic_name(all[1].topic()).unwrap().as_str(), "text");
    let envelope = all[1].clone().downcast::<String>().unwrap();
    assert_eq!(envelope.payload(), "one");
}

#[test]
fn one_member_of_a_group_gets_each_envelope() {
    for choice in [GroupChoice::RoundRobin, GroupChoice::LeastLoaded] {
        let broker = broker();
        let config = SubscriptionConfig {
            group: Some(GroupConfig {
                name: "workers".to_owned(),
                choice,
            }),
            ..SubscriptionConfig::default()
        };
        let members: Vec<Inbox<Envelope<u32>>> = (0..3)
            .map(|_| broker.subscribe("jobs.*", config.clone()).unwrap())
            .collect();
        let outside = inbox(&broker, "jobs.a");
        let mut publisher = broker.topic::<u32>("jobs.a").unwrap().publisher();
        for number in 0..9 {
            assert_eq!(ready(publisher.publish(number)).unwrap().delivered, 2);
        }
        assert_eq!(outside.len(), 9);
        assert_eq!(
            members.iter().map(Inbox::len).collect::<Vec<_>>(),
            [3, 3, 3],
            "{choice:?}"
        );
    }
}

#[test]
fn members_of_a_group_must_agree_on_the_choice() {
    let broker = broker();
    let config = |choice| SubscriptionConfig {
        group: Some(GroupConfig {
            name: "workers".to_owned(),
            choice,
        }),
        ..SubscriptionConfig::default()
    };
    let first = broker
        .subscribe::<u32>("a", config(GroupChoice::RoundRobin))
        .unwrap();
    let other = broker.subscribe::<u32>("a", config(GroupChoice::LeastLoaded));
    assert!(matches!(other, Err(SubscribeError::GroupChoice { .. })));
    drop(first);
    assert!(
        broker
            .subscribe::<u32>("a", config(GroupChoice::LeastLoaded))
            .is_ok()
    );
}

#[test]
fn a_retained_envelope_greets_late_subscribers() {
    let broker = broker();
    let config = TopicConfig {
        retain: true,
        ..TopicConfig::default()
    };
    let topic = broker.topic_with::<u32>("state", &config).unwrap();
    let mut publisher = topic.publisher();
    ready(publisher.publish(1)).unwrap();
    ready(publisher.publish_batch(vec![2, 3])).unwrap();
    let late = inbox(&broker, "*");
    assert_eq!(payloads(&late), [3]);
    ready(publisher.publish(4)).unwrap();
    assert_eq!(payloads(&late), [4]);
    assert_eq!(topic.last().unwrap().payload(), &4);
}

#[test]
fn a_batch_reaches_each_inbox_in_order() {
    let broker = broker();
    let (first, second) = (inbox(&broker, "a"), inbox(&broker, "*"));
    let mut publisher = broker.topic::<u32>("a").unwrap().publisher();
    assert_eq!(ready(publisher.publish_batch((0..100).collect())).unwrap(), 200);
    assert!(payloads(&first).into_iter().eq(0..100));
    assert!(payloads(&second).into_iter().eq(0..100));
    assert_eq!(broker.topic::<u32>("a").unwrap().published(), 100);
}

#[test]
fn headers_travel_with_the_envelope() {
    let broker = broker();
    let seen = inbox(&broker, "a");
    let topic = broker.topic::<u32>("a").unwrap();
    ready(topic.publish_with(Headers::new().key("order-42"), 1)).unwrap();
    let first = seen.take().next().unwrap();
    ready(topic.publish_with(Headers::new().caused_by(&*first), 2)).unwrap();
    let second = seen.take().next().unwrap();
    assert_eq!(first.key(), Some("order-42"));
    assert_eq!(second.causation(), Some(first.id()));
    assert_eq!(second.correlation(), first.correlation());
}

#[test]
fn dead_letters_are_published_and_never_become_dead_letters_themselves() {
    let broker = broker();
    let config = SubscriptionConfig {
        inbox: millrun_broker::mailbox::MailboxConfig {
            capacity: 1,
            ..Default::default()
        },
        ..SubscriptionConfig::default()
    };
    let dead: Inbox<Envelope<DeadLetter>> = broker.subscribe(DEAD_LETTERS, config).unwrap();
    let topic = broker.topic::<u32>("nobody.listens").unwrap();
    ready(topic.publish(1)).unwrap();
    ready(topic.publish(2)).unwrap();
    assert_eq!(broker.dead_letters_lost(), 1);
    let letter = dead.take().next().unwrap();
    assert_eq!(letter.payload().reason, Undeliverable::Unrouted);
    assert_eq!(
        letter
            .payload()
            .envelope
            .clone()
            .downcast::<u32>()
            .unwrap()
            .payload(),
        &1
    );
    let all = broker.subscribe_any(">", SubscriptionConfig::default()).unwrap();
    ready(broker.topic::<u32>("$hidden").unwrap().publish(3)).unwrap();
    assert!(
        all.is_empty(),
        "a wildcard does not select the broker's own topics"
    );
}

#[test]
fn a_topic_that_is_durable_is_refused_by_its_name_and_passed_by_wildcards() {
    let broker = broker();
    let wild = broker
        .subscribe::<u32>("orders.>", SubscriptionConfig::default())
        .unwrap();
    // One that nobody uses any more does not count.
    drop(broker.topic::<u32>("orders.eu").unwrap());
    broker.leave_durable(["orders.eu", "orders paid"]).unwrap();
    let durable = |refused: &TopicError| {
        let is_told = refused.to_string().contains("runtime.durable_topic(");
        is_told && matches!(refused, TopicError::Durable { topic } if topic.as_str() == "orders.eu")
    };
    assert!(durable(&broker.topic::<u32>("orders.eu").unwrap_err()));
    let of_another_type = broker.topic_with::<String>("orders.eu", &TopicConfig::default());
    assert!(durable(&of_another_type.unwrap_err()));
    let config = SubscriptionConfig::default;
    for refused in [
        broker.subscribe::<u32>("orders.eu", config()).map(drop),
        broker.subscribe_any("orders.eu", config()).map(drop),
    ] {
        assert!(matches!(refused, Err(SubscribeError::Topic(error)) if durable(&error)));
    }
    broker.subscribe_any("orders.*", config()).unwrap();
    ready(broker.topic::<u32>("orders.us").unwrap().publish(1)).unwrap();
    assert_eq!(wild.take().count(), 1);
    // The next list counts in place of this one.
    broker.leave_durable([]).unwrap();
    broker.topic::<u32>("orders.eu").unwrap();
}

#[test]
fn a_topic_that_is_in_use_cannot_be_durable() {
    let broker = broker();
    let in_use = |broker: &Broker| {
        let refused = broker.leave_durable(["orders.us", "orders.eu"]).unwrap_err();
        assert_eq!(refused.topic, "orders.eu");
        broker.topic::<u32>("orders.us").expect("nothing is changed");
    };
    let held = broker.topic::<u32>("orders.eu").unwrap();
    in_use(&broker);
    drop(held);
    let any = broker
        .subscribe_any("orders.eu", SubscriptionConfig::default())
        .unwrap();
    in_use(&broker);
    drop(any);
    let typed = broker
        .subscribe::<u32>("orders.eu", SubscriptionConfig::default())
        .unwrap();
    in_use(&broker);
    drop(typed);
    broker.leave_durable(["orders.us", "orders.eu"]).unwrap();
}

#[test]
fn unused_topics_make_room_for_new_ones() {
    let config = BrokerConfig {
        topics_max: 3,
        ..BrokerConfig::default()
    };
    let broker = Broker::without_host(config);
    let held = broker.topic::<u32>("held").unwrap();
    for number in 0..10 {
        broker.topic::<u32>(&format!("passing.{number}")).unwrap();
    }
    let also_held = broker.topic::<u32>("also.held").unwrap();
    assert!(matches!(
        broker.topic::<u32>("one.more"),
        Err(TopicError::TooMany { topics_max: 3 })
    ));
    drop((held, also_held));
    broker.topic::<u32>("one.more").unwrap();
    broker
        .topic::<String>("held")
        .expect("a forgotten topic may come back with another type");
}

#[test]
fn the_topology_shows_who_is_connected_to_whom() {
    let broker = broker();
    let config = SubscriptionConfig {
        name: "printer \"2\"".to_owned(),
        ..SubscriptionConfig::default()
    };
    let printer = broker.subscribe::<u32>("orders.>", config).unwrap();
    let mut publisher = broker.topic::<u32>("orders.eu").unwrap().publisher();
    ready(publisher.publish(1)).unwrap();
    assert_eq!(printer.take().count(), 1);
    let topology = broker.topology();
    let orders = topology
        .topics
        .iter()
        .find(|topic| topic.name.as_str() == "orders.eu")
        .unwrap();
    assert_eq!(
        (orders.published, &*orders.subscriptions),
        (1, &[printer.id()][..])
    );
    assert_eq!(
        topology.to_mermaid(),
        "flowchart LR\n  \
         t0([\"$broker.dead-letters<br/>0 published\"])\n  \
         t1([\"orders.eu<br/>1 published\"])\n  \
         s1[\"printer #quot;2#quot;<br/>1 taken, 0 of 256 waiting, 0 dropped\"]\n  \
         t1 --> s1\n"
    );
    let json: serde_json::Value = serde_json::from_str(&topology.to_json()).unwrap();
    assert_eq!(json["subscriptions"][0]["name"], "printer \"2\"");
    assert_eq!(json["topics"][1]["published"], 1);
}
