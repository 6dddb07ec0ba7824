//! Names, filters and routing against a naive matcher, and against anything at all.

use millrun_broker::{Broker, BrokerConfig, Envelope, Filter, Inbox, SubscriptionConfig, TopicName};
use proptest::prelude::*;

use crate::host::ready;

/// The rules as one would first write them down.
pub(crate) fn naive(filter: &[&str], name: &[&str]) -> bool {
    match (filter, name) {
        ([], []) => true,
        ([">"], [_, ..]) => true,
        (["*", filter @ ..], [_, name @ ..]) => naive(filter, name),
        ([wanted, filter @ ..], [token, name @ ..]) => wanted == token && naive(filter, name),
        _ => false,
    }
}

fn tokens(alphabet: &'static [&'static str]) -> impl Strategy<Value = Vec<&'static str>> {
    prop::collection::vec(prop::sample::select(alphabet), 1..5)
}

fn name() -> impl Strategy<Value = String> {
    tokens(&["a", "b", "c"]).prop_map(|tokens| tokens.join("."))
}

fn filter() -> impl Strategy<Value = String> {
    (tokens(&["a", "b", "c", "*"]), any::<bool>()).prop_map(|(mut tokens, rest)| {
        if rest {
            tokens.push(">");
        }
        tokens.join(".")
    })
}

#[derive(Clone, Debug)]
enum Step {
    Subscribe(String),
    Unsubscribe(usize),
    Publish(String),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        1 => filter().prop_map(Step::Subscribe),
        1 => any::<prop::sample::Index>().prop_map(|index| Step::Unsubscribe(index.index(64))),
        3 => name().prop_map(Step::Publish),
    ]
}

proptest! {
    #[test]
    fn a_filter_matches_as_the_naive_matcher_does(filter in filter(), name in name()) {
        let expected = naive(
            &filter.split('.').collect::<Vec<_>>(),
            &name.split('.').collect::<Vec<_>>(),
        );
        let matched = Filter::new(&filter).unwrap().matches(&TopicName::new(&name).unwrap());
        prop_assert_eq!(matched, expected);
    }

    #[test]
    fn any_text_is_a_name_or_a_typed_error(text in any::<String>()) {
        // A name is always a filter too, and both are what was written.
        if let Ok(name) = TopicName::new(&text) {
            prop_assert_eq!(name.as_str(), &text);
            prop_assert!(Filter::new(&text).unwrap().matches(&name));
        }
        if let Ok(filter) = Filter::new(&text) {
            prop_assert_eq!(filter.as_str(), &text);
            prop_assert_eq!(filter.as_name().is_some(), TopicName::new(&text).is_ok());
        }
    }

    #[test]
    fn names_close_to_the_rules_are_never_accepted_against_them(
        text in "[a.*> \u{0}$é]{0,12}",
    ) {
        let tokens: Vec<&str> = text.split('.').collect();
        let sound = |token: &&str| !token.is_empty() && !token.contains(['*', '>', ' ', '\u{0}']);
        prop_assert_eq!(TopicName::new(&text).is_ok(), tokens.iter().all(sound));
        let last = tokens.len() - 1;
        let wild = |(place, token): (usize, &&str)| *token == "*" || (*token == ">" && place == last);
        let legal = tokens.iter().enumerate().all(|(place, token)| wild((place, token)) || sound(token));
        prop_assert_eq!(Filter::new(&text).is_ok(), legal);
    }

    /// Publishers keep their handles while subscriptions come and go.
    #[test]
    fn each_envelope_reaches_exactly_the_matching_subscriptions(steps in prop::collection::vec(step(), 1..60)) {
        let broker = Broker::without_host(BrokerConfig::default());
        let mut inboxes: Vec<(String, Inbox<Envelope<u32>>)> = Vec::new();
        let mut publishers = std::collections::BTreeMap::new();
        for step in steps {
            match step {
                Step::Subscribe(filter) => {
                    let inbox = broker.subscribe(&filter, SubscriptionConfig::default()).unwrap();
                    inboxes.push((filter, inbox));
                }
                Step::Unsubscribe(index) => {
                    if index < inboxes.len() {
                        inboxes.remove(index);
                    }
                }
                Step::Publish(name) => {
                    let publisher = publishers
                        .entry(name.clone())
                        .or_insert_with(|| broker.topic::<u32>(&name).unwrap().publisher());
                    let published = ready(publisher.publish(1)).unwrap();
                    let name: Vec<&str> = name.split('.').collect();
                    let mut expected = 0;
                    for (filter, inbox) in &inboxes {
                        let wanted = naive(&filter.split('.').collect::<Vec<_>>(), &name);
                        expected += usize::from(wanted);
                        prop_assert_eq!(inbox.take().count(), usize::from(wanted));
                    }
                    prop_assert_eq!(published.delivered, expected);
                }
            }
        }
    }
}
