//! The connections and counters of a broker: as data, as a diagram, as JSON.

use std::fmt::Write;

use crate::id::SubscriptionId;
use crate::mailbox::MailboxStats;
use crate::name::{Filter, TopicName};
use crate::subscription::{Overflow, SubscriptionStats};
use crate::watch::dead_letter::Undeliverable;
use crate::watch::monitor::LongWait;

/// A broker at one moment. The counters are read one after the other, so envelopes that pass meanwhile may make them differ.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Topology {
    /// All topics, by name.
    pub topics: Vec<TopicInfo>,
    /// All subscriptions, in the order in which they came.
    pub subscriptions: Vec<SubscriptionInfo>,
    /// How many envelopes were given up, by reason; reasons with none are left out.
    pub given_up: Vec<(Undeliverable, u64)>,
    /// How many publishes wait for room now.
    pub waiting: usize,
    /// The publishes that have waited for long.
    pub long_waits: Vec<LongWait>,
}

/// A topic at one moment.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TopicInfo {
    /// Its name.
    pub name: TopicName,
    /// The type of its payloads.
    pub payload: &'static str,
    /// How many envelopes were published to it.
    pub published: u64,
    /// The subscriptions that get them.
    pub subscriptions: Vec<SubscriptionId>,
}

/// A subscription at one moment.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SubscriptionInfo {
    /// Its id.
    pub id: SubscriptionId,
    /// Its name for readers.
    pub name: String,
    /// What it selects.
    pub filter: Filter,
    /// What happens when its inbox is full.
    pub overflow: Overflow,
    /// The queue group it belongs to.
    pub group: Option<String>,
    /// Its inbox.
    pub inbox: MailboxStats,
    /// The most envelopes the inbox holds.
    pub capacity: usize,
    /// What happened outside of it.
    pub stats: SubscriptionStats,
}

impl Topology {
    /// A Mermaid flowchart: topics on the left, subscriptions on the right, each with its main numbers.
    #[must_use]
    pub fn to_mermaid(&self) -> String {
        let mut text = String::from("flowchart LR\n");
        for (index, topic) in self.topics.iter().enumerate() {
            let label = format!("{}<br/>{} published", topic.name, topic.published);
            line(
                &mut text,
                format_args!("  t{index}([\"{}\"])", escape_html(&label)),
            );
        }
        for subscription in &self.subscriptions {
            let name = if subscription.name.is_empty() {
                subscription.filter.as_str()
            } else {
                &subscription.name
            };
            let label = format!(
                "{name}<br/>{} taken, {} of {} waiting, {} dropped",
                subscription.inbox.taken,
                subscription.inbox.queued + subscription.inbox.in_hand,
                subscription.capacity,
                subscription.stats.dropped
            );
            line(
                &mut text,
                format_args!("  s{}[\"{}\"]", subscription.id.0, escape_html(&label)),
            );
        }
        for (index, topic) in self.topics.iter().enumerate() {
            for subscription in &topic.subscriptions {
                line(&mut text, format_args!("  t{index} --> s{}", subscription.0));
            }
        }
        text
    }

    /// The same as JSON, in one line: `topics`, `subscriptions`, `given_up`, `waiting`,
    /// `long_waits`. Times are in microseconds and named so.
    #[must_use]
    pub fn to_json(&self) -> String {
        let topics = list(&self.topics, |topic| {
            format!(
                r#"{{"name":{},"payload":{},"published":{},"subscriptions":{}}}"#,
                quote(topic.name.as_str()),
                quote(topic.payload),
                topic.published,
                ids(&topic.subscriptions)
            )
        });
        let subscriptions = list(&self.subscriptions, SubscriptionInfo::to_json);
        let given_up: Vec<String> = self
            .given_up
            .iter()
            .map(|(reason, count)| format!("{}:{count}", quote(&format!("{reason:?}"))))
            .collect();
        let long_waits = list(&self.long_waits, |wait| {
            format!(
                r#"{{"held_up":{},"waits_for":{},"since_us":{},"cycle":{}}}"#,
                wait.held_up
                    .map_or_else(|| "null".to_owned(), |id| id.0.to_string()),
                ids(&wait.waits_for),
                wait.since.as_micros(),
                ids(&wait.cycle)
            )
        });
        format!(
            r#"{{"topics":{topics},"subscriptions":{subscriptions},"given_up":{{{}}},"waiting":{},"long_waits":{long_waits}}}"#,
            given_up.join(","),
            self.waiting
        )
    }
}

impl SubscriptionInfo {
    fn to_json(&self) -> String {
        let Self { id, inbox, stats, .. } = self;
        format!(
            concat!(
                r#"{{"id":{},"name":{},"filter":{},"overflow":{},"group":{},"capacity":{},"#,
                r#""queued":{},"in_hand":{},"len_max":{},"pushed":{},"taken":{},"refused":{},"waits":{},"#,
                r#""dropped":{},"expired":{},"failed":{},"handled":{},"handler_time_us":{},"topics_passed_over":{}}}"#
            ),
            id.0,
            quote(&self.name),
            quote(self.filter.as_str()),
            quote(&format!("{:?}", self.overflow)),
            self.group.as_deref().map_or_else(|| "null".to_owned(), quote),
            self.capacity,
            inbox.queued,
            inbox.in_hand,
            inbox.len_max,
            inbox.pushed,
            inbox.taken,
            inbox.refused,
            inbox.waits,
            stats.dropped,
            stats.expired,
            stats.failed,
            stats.handled,
            stats.handler_time.as_micros(),
            stats.topics_passed_over
        )
    }
}

fn line(text: &mut String, content: std::fmt::Arguments<'_>) {
    writeln!(text, "{content}").expect("writing to a string does not fail");
}

fn list<T>(items: &[T], item: impl Fn(&T) -> String) -> String {
    format!("[{}]", items.iter().map(item).collect::<Vec<_>>().join(","))
}

fn ids(ids: &[SubscriptionId]) -> String {
    list(ids, |id| id.0.to_string())
}

/// A JSON string.
fn quote(text: &str) -> String {
    let mut quoted = String::from("\"");
    for char in text.chars() {
        match char {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            control if control < ' ' => {
                write!(quoted, "\\u{:04x}", u32::from(control)).expect("writing to a string does not fail");
            }
            other => quoted.push(other),
        }
    }
    quoted.push('"');
    quoted
}

/// Escapes a name, so that Mermaid does not read it as markup.
fn escape_html(text: &str) -> String {
    text.replace('"', "#quot;")
        .replace('<', "&lt;")
        .replace("&lt;br/>", "<br/>")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_quoted_for_json() {
        assert_eq!(quote("a\"b\\c\nd"), r#""a\"b\\c\u000ad""#);
    }
}
