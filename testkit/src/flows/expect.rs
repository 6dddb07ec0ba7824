//! Assertions whose failures report what happened instead.

use millrun_broker::{AnyEnvelope, EnvelopeId, Inbox, SubscriptionId, Undeliverable};

use super::book::Book;
use super::flow::{Fate, Flow};
use super::recorder::{FlowRecorder, parse};

/// The subscriber of an assertion: a subscription by its id, an inbox, or all subscriptions with this
/// [name](millrun_broker::SubscriptionConfig::name) or, if that is empty, this filter.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Subscriber {
    /// This one.
    Id(SubscriptionId),
    /// Those with this name, or without a name and with this filter.
    Named(String),
}

impl From<SubscriptionId> for Subscriber {
    fn from(id: SubscriptionId) -> Self {
        Self::Id(id)
    }
}

impl From<&str> for Subscriber {
    fn from(name: &str) -> Self {
        Self::Named(name.to_owned())
    }
}

impl<E: AnyEnvelope + ?Sized> From<&Inbox<E>> for Subscriber {
    fn from(inbox: &Inbox<E>) -> Self {
        Self::Id(inbox.id())
    }
}

impl FlowRecorder {
    /// Asserts that the inbox of this subscriber took the envelope and did not lose it unhandled.
    ///
    /// # Panics
    /// If not, with all that is known of the envelope, and with the reason why it was not offered to the subscriber.
    #[track_caller]
    pub fn assert_reached(&self, envelope: EnvelopeId, subscriber: impl Into<Subscriber>) {
        let subscriber = subscriber.into();
        let flow = self.expect_flow(envelope);
        if !self.is_fate(&flow, &subscriber, Fate::is_reached) {
            self.fail(&flow, &subscriber, "did not reach");
        }
    }

    /// Asserts that the envelope was not offered to this subscriber, or did not get into its inbox.
    ///
    /// # Panics
    /// If it did, with all that is known of the envelope.
    #[track_caller]
    pub fn assert_not_reached(&self, envelope: EnvelopeId, subscriber: impl Into<Subscriber>) {
        let subscriber = subscriber.into();
        let flow = self.expect_flow(envelope);
        if self.is_fate(&flow, &subscriber, Fate::is_reached) {
            self.fail(&flow, &subscriber, "did reach");
        }
    }

    /// Asserts that a handler of this subscriber's service succeeded with the envelope.
    ///
    /// # Panics
    /// If not, with all that is known of the envelope.
    #[track_caller]
    pub fn assert_handled(&self, envelope: EnvelopeId, subscriber: impl Into<Subscriber>) {
        let subscriber = subscriber.into();
        let flow = self.expect_flow(envelope);
        if !self.is_fate(&flow, &subscriber, |fate| fate == Fate::Handled) {
            self.fail(&flow, &subscriber, "was not handled by");
        }
    }

    /// Asserts that the envelope was given up for this reason, at any subscription or because none matched.
    ///
    /// # Panics
    /// If not, with all that is known of the envelope.
    #[track_caller]
    pub fn assert_given_up(&self, envelope: EnvelopeId, reason: Undeliverable) {
        let flow = self.expect_flow(envelope);
        let unrouted = flow.unrouted && reason == Undeliverable::Unrouted;
        let given_up = |fate| fate == Fate::GivenUp(reason);
        assert!(
            unrouted || flow.deliveries.iter().any(|delivery| given_up(delivery.fate)),
            "envelope {envelope} was not given up as {reason:?}\nwhat is known of it:\n{flow}{}",
            self.caveat()
        );
    }

    /// Asserts how many envelopes were published to the topics that the filter selects.
    ///
    /// # Panics
    /// If not, with a list of those that were; or when `filter` is not one.
    #[track_caller]
    pub fn assert_published(&self, filter: &str, count: usize) {
        let flows = self.flows(filter);
        if flows.len() != count {
            let list: String = flows.iter().map(|flow| format!("\n{flow}")).collect();
            let found = flows.len();
            panic!(
                "{found} envelopes were published to {filter}, not {count}{list}{}",
                self.caveat()
            );
        }
    }

    /// Asserts that a chain to which the envelope belongs goes through topics that these filters
    /// select, one after the other, from its first cause to an envelope without consequences.
    ///
    /// # Panics
    /// If not, with the whole chain; or when one of `filters` is not a filter.
    #[track_caller]
    pub fn assert_chain(&self, envelope: EnvelopeId, filters: &[&str]) {
        filters.iter().for_each(|filter| drop(parse(filter)));
        // A known flow always has a chain: at least itself.
        let flow = self.expect_flow(envelope);
        let chain = self.chain_of(envelope);
        let has_path = chain.as_ref().is_some_and(|chain| chain.has_path(filters));
        if !has_path {
            let chain = chain.map_or_else(|| flow.to_string(), |chain| chain.to_string());
            panic!(
                "no path of the chain goes {}\nthe chain:\n{chain}{}",
                filters.join(" → "),
                self.caveat()
            );
        }
    }

    #[track_caller]
    fn expect_flow(&self, envelope: EnvelopeId) -> Flow {
        self.flow_of(envelope).unwrap_or_else(|| {
            panic!(
                "envelope {envelope} was not seen since the recorder was attached or cleared{}",
                self.caveat()
            )
        })
    }

    fn is_fate(&self, flow: &Flow, subscriber: &Subscriber, wanted: impl Fn(Fate) -> bool) -> bool {
        let meant = self.book().meant(subscriber);
        meant
            .into_iter()
            .filter_map(|id| flow.at(id))
            .any(|delivery| wanted(delivery.fate))
    }

    #[track_caller]
    fn fail(&self, flow: &Flow, subscriber: &Subscriber, verb: &str) -> ! {
        let meant = self.book().meant(subscriber);
        let name = match subscriber {
            Subscriber::Id(id) => self.book().label(*id),
            Subscriber::Named(name) => format!("{name:?}"),
        };
        let mut notes = String::new();
        if meant.is_empty() {
            let book = self.book();
            let labels = book.subscriptions.iter().map(|(id, known)| known.label(*id));
            let all = labels.collect::<Vec<_>>().join(", ");
            notes = format!("\nno subscription is called {name}; there are: {all}");
        }
        for id in meant {
            if flow.at(id).is_some() {
                continue;
            }
            let label = self.book().label(id);
            let why = self.why_not(flow, id);
            notes += &format!("\n{label} had no part in it: {why}");
        }
        panic!(
            "envelope {} {verb} {name}\nwhat is known of it:\n{flow}{notes}{}",
            flow.id,
            self.caveat()
        );
    }

    /// Why an envelope was not offered to a subscription.
    fn why_not(&self, flow: &Flow, id: SubscriptionId) -> String {
        let book = self.book();
        let known = book.subscriptions.get(&id);
        let filter = known.map_or("", |known| known.filter.as_str());
        match &flow.topic {
            Some(topic) if !parse(filter).matches(topic) => {
                format!("its filter {filter} does not select {topic}")
            }
            _ => "it was not subscribed at that time, takes another type, or another member of its \
                  queue group got it"
                .to_owned(),
        }
    }

    /// What a failure's report may lack.
    fn caveat(&self) -> String {
        let book = self.book();
        match book.forgotten {
            0 => String::new(),
            forgotten => format!(
                "\n{forgotten} older steps were forgotten: `steps_max` is {}",
                book.config.steps_max
            ),
        }
    }
}

impl Book {
    fn meant(&self, subscriber: &Subscriber) -> Vec<SubscriptionId> {
        let known = self.subscriptions.iter().filter(|(id, known)| match subscriber {
            Subscriber::Id(wanted) => *id == wanted,
            Subscriber::Named(name) if known.name.is_empty() => known.filter == *name,
            Subscriber::Named(name) => known.name == *name,
        });
        known.map(|(id, _)| *id).collect()
    }
}
