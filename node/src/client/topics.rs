//! Topics: what is kept of each, its subscriptions, and a publish from the command line.

use std::error::Error;

use super::options::{
    OfProgram, OfSubscription, OfTopic, Publish, PurgeTopic, ReleaseKey, SendBack, Subscriptions,
};
use super::place::client;
use super::raw::Raw;
use super::time::{date_and_time, duration};
use super::wire::Ask;
use super::{PAGE, json, object, pages, program, say, show, text, write, write_list};
use crate::outcome::Outcome;
use crate::table::Table;

/// Lists the durable topics with what is kept of each, and the topics in memory that are exposed.
pub(super) async fn topics(of: OfProgram) -> Result<Outcome, Box<dyn Error>> {
    program("topics", of, shown_topics).await
}

fn shown_topics(answer: &Raw) -> String {
    let mut durable = Table::of([
        "topic",
        "records",
        "bytes",
        "first at (UTC)",
        "last at (UTC)",
        "kept for",
        "bytes max",
        "records max",
        "unread bytes max",
        "payload",
    ]);
    for topic in answer.list_of("durable") {
        let time = |name| topic.number_of(name).map_or_else(String::new, date_and_time);
        let bound = |name: &str| {
            let retention = topic.get("retention");
            retention.and_then(|retention| retention.number_of(name))
        };
        let unless_endless = |bound: Option<u64>, shown: fn(u64) -> String| match bound {
            // The largest numbers are told for what has no bound.
            Some(bound) if bound < u64::MAX / 1_000_000 => shown(bound),
            _ => "no bound".to_owned(),
        };
        let payload = match topic.text_of("is_exposed").as_str() {
            "true" => topic.text_of("payload"),
            _ => "(not exposed)".to_owned(),
        };
        durable.row([
            topic.text_of("name"),
            topic.text_of("records"),
            topic.text_of("bytes"),
            time("first_at_us"),
            time("last_at_us"),
            unless_endless(bound("age_max_us"), duration),
            unless_endless(bound("bytes_max"), |bytes| bytes.to_string()),
            unless_endless(bound("len_max"), |len| len.to_string()),
            // A program of an earlier release does not tell it.
            unless_endless(bound("unread_bytes_max").or(Some(0)), |bytes| bytes.to_string()),
            payload,
        ]);
    }
    let mut volatile = Table::of(["topic in memory", "published", "payload"]);
    let in_memory = answer.list_of("topics");
    for topic in &in_memory {
        volatile.row(["name", "published", "payload"].map(|name| topic.text_of(name)));
    }
    match in_memory.is_empty() {
        true => durable.to_string(),
        false => format!("{durable}\n\n{volatile}"),
    }
}

/// Publishes a value, and tells where its record is, or to how many inboxes it was delivered.
pub(super) async fn publish(options: Publish) -> Result<Outcome, Box<dyn Error>> {
    let value = json(options.value)?;
    let said = [
        ("key", options.key),
        ("id", options.id),
        ("correlation", options.correlation),
        ("content_type", options.content_type),
    ];
    let said: Vec<_> = said
        .into_iter()
        .filter_map(|(name, said)| Some((name, text(&said?))))
        .collect();
    let mut fields = vec![("value", &*value)];
    fields.extend(said.iter().map(|(name, said)| (*name, said.as_str())));
    let body = object(&fields);
    say(
        "publish",
        &options.topic,
        body,
        &options.at,
        options.form,
        shown_publish,
    )
    .await
}

fn shown_publish(answer: &Raw) -> String {
    if answer.get("token").is_none() {
        return format!("delivered to {}", answer.text_of("delivered"));
    }
    let again = match answer.text_of("is_repeat").as_str() {
        "true" => "  (published before under this id)",
        _ => "",
    };
    format!(
        "{}  {}{again}",
        answer.text_of("sequence"),
        answer.text_of("token")
    )
}

/// Drops records of a durable topic.
pub(super) async fn purge(options: PurgeTopic) -> Result<Outcome, Box<dyn Error>> {
    let body = options.before.map_or_else(
        || object(&[]),
        |before| match before.parse::<u64>() {
            Ok(number) => object(&[("before", &number.to_string())]),
            Err(_) => object(&[("token", &text(&before))]),
        },
    );
    change(options.of, "purge_topic", body).await
}

/// Removes a durable subscription.
pub(super) async fn remove_subscription(options: OfSubscription) -> Result<Outcome, Box<dyn Error>> {
    let body = object(&[("name", &text(&options.name))]);
    change(options.of, "remove_subscription", body).await
}

/// Lets a key go on that a subscription holds.
pub(super) async fn release_key(options: ReleaseKey) -> Result<Outcome, Box<dyn Error>> {
    let body = object(&[
        ("subscription", &text(&options.subscription)),
        ("key", &text(&options.key)),
    ]);
    change(options.of, "release_key", body).await
}

/// Sends undelivered records back: one, or page by page all that are there.
pub(super) async fn send_back(options: SendBack) -> Result<Outcome, Box<dyn Error>> {
    if let Some(token) = options.token {
        let body = object(&[("token", &text(&token))]);
        return change(options.of, "send_back", body).await;
    }
    let client = client(&options.of.at).await?;
    let (mut after, mut left) = (options.after, options.limit);
    let mut counts = [("sent_back", 0), ("repeats", 0), ("passed_over", 0)];
    while left > 0 {
        let limit = left.min(PAGE);
        left -= limit;
        let mut fields = vec![("limit", limit.to_string())];
        fields.extend(after.as_deref().map(|after| ("after", text(after))));
        let fields: Vec<_> = fields
            .iter()
            .map(|(name, value)| (*name, value.as_str()))
            .collect();
        let ask = Ask {
            operation: "send_back",
            value: &options.of.topic,
            body: Some(object(&fields)),
            ..Ask::default()
        };
        let answer = Raw::parse(&client.ask(ask).await?)?;
        for (name, count) in &mut counts {
            *count += answer.number_of(name).unwrap_or(0);
        }
        let next = answer.text_of("next");
        after = (!next.is_empty()).then_some(next);
        if after.is_none() {
            break;
        }
    }
    let next = after.map_or_else(|| "null".to_owned(), |after| text(&after));
    let counts = counts.map(|(name, count)| (name, count.to_string()));
    let mut fields: Vec<_> = counts
        .iter()
        .map(|(name, count)| (*name, count.as_str()))
        .collect();
    fields.push(("next", &next));
    write(&object(&fields), options.of.form, show::fields)?;
    Ok(Outcome::Complete)
}

/// Changes a durable topic, and tells what that has done.
pub(super) async fn change(of: OfTopic, operation: &str, body: String) -> Result<Outcome, Box<dyn Error>> {
    say(operation, &of.topic, body, &of.at, of.form, show::fields).await
}

/// Lists the durable subscriptions of a topic.
pub(super) async fn subscriptions(options: Subscriptions) -> Result<Outcome, Box<dyn Error>> {
    let client = client(&options.at).await?;
    let page = pages(
        &client,
        ("subscriptions", &options.topic),
        "subscriptions",
        &[],
        options.after,
        options.limit,
    );
    write_list(&page.await?, options.form, shown_subscriptions)?;
    Ok(Outcome::Complete)
}

fn shown_subscriptions(items: &[Raw]) -> String {
    let mut table = Table::of([
        "subscription",
        "open",
        "lag",
        "dropped",
        "oldest at (UTC)",
        "in hand",
        "leased",
        "returned",
        "held keys",
        "missed",
        "undelivered",
        "problem",
    ]);
    for item in items {
        let figure = |name| item.text_of(name);
        let undelivered = match (figure("undelivered"), item.text_of("undelivered_to")) {
            (count, topic) if topic.is_empty() => count,
            (count, topic) => format!("{count} to {topic}"),
        };
        table.row([
            figure("name"),
            if figure("is_open") == "true" { "yes" } else { "no" }.to_owned(),
            figure("lag"),
            figure("dropped"),
            item.number_of("oldest_at_us")
                .map_or_else(String::new, date_and_time),
            figure("in_hand"),
            figure("leased"),
            figure("returned"),
            figure("held_keys"),
            figure("missed"),
            undelivered,
            figure("problem"),
        ]);
    }
    table.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(value: serde_json::Value) -> Raw {
        Raw::parse(&value.to_string()).unwrap()
    }

    #[test]
    fn what_is_kept_of_topics_is_told_and_what_has_no_bound_said() {
        let answer = raw(serde_json::json!({
            "topics": [{"name": "news", "published": 3, "payload": "String"}],
            "durable": [
                {"name": "orders", "is_exposed": true, "payload": "u64", "records": 2, "bytes": 90,
                 "first_at_us": 0, "last_at_us": 1_500_000,
                 "retention": {"age_max_us": 7_260_000_000_u64, "bytes_max": u64::MAX, "len_max": 9,
                               "unread_bytes_max": 4_096}},
                {"name": "audit", "is_exposed": false, "payload": null, "records": 0, "bytes": 0,
                 "first_at_us": null, "last_at_us": null,
                 "retention": {"age_max_us": u64::MAX, "bytes_max": 5, "len_max": u64::MAX}},
            ],
        }));
        let shown = shown_topics(&answer);
        let rows: Vec<_> = shown
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
            .collect();
        for expected in [
            "orders 2 90 1970-01-01 00:00:00.000 1970-01-01 00:00:01.500 2 h 1 min no bound 9 4096 u64",
            "audit 0 0 no bound 5 no bound 0 (not exposed)",
            "news 3 String",
        ] {
            assert!(
                rows.iter().any(|row| row == expected),
                "{expected} is not in\n{shown}"
            );
        }
    }

    #[test]
    fn a_publish_tells_the_place_of_its_record_and_whether_it_was_there() {
        for (answer, expected) in [
            (
                serde_json::json!({"token": "AQ", "sequence": 7, "is_repeat": false}),
                "7  AQ",
            ),
            (
                serde_json::json!({"token": "AQ", "sequence": 7, "is_repeat": true}),
                "7  AQ  (published before under this id)",
            ),
            (
                serde_json::json!({"envelope": "1", "delivered": 2}),
                "delivered to 2",
            ),
        ] {
            assert_eq!(shown_publish(&raw(answer)), expected);
        }
    }

    #[test]
    fn a_subscription_that_cannot_be_read_says_why_in_its_row() {
        let items = [raw(
            serde_json::json!({"name": "billing", "is_open": false, "lag": null, "problem": "it ends too early"}),
        )];
        let shown = shown_subscriptions(&items);
        assert!(
            shown.contains("billing") && shown.contains("it ends too early"),
            "{shown}"
        );
    }
}
