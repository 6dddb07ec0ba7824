//! The table of metrics, which the README shows and a scrape reads.

use millrun::broker::{SubscriptionInfo, TopicInfo};
use millrun::operating::{PartStatus, QueueStats};
use millrun::topics::{DurableTopicSummary, SubscriptionStatus};
use prometheus_client::metrics::MetricType;

use super::Seen;
use super::samples::{Histograms, Samples};

/// One metric.
#[derive(Debug)]
#[non_exhaustive]
pub struct Metric {
    /// Its name, unique in the table. In the text the unit follows it, and then `_total` for a counter.
    pub name: &'static str,
    /// Whether it only grows.
    pub kind: MetricKind,
    /// The unit; `None` for a number of things.
    pub unit: Option<&'static str>,
    /// The name of its label, if it has one.
    pub label: Option<&'static str>,
    /// What it says.
    pub about: &'static str,
    pub(super) read: MetricSource,
}

/// How its values are read.
#[derive(Clone, Copy, Debug)]
pub(super) enum MetricSource {
    /// As numbers.
    Samples(fn(&Seen, &mut Samples)),
    /// As histograms.
    Histograms(fn(&Seen, &mut Histograms)),
}

/// The kind of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MetricKind {
    /// It only grows, from zero when the runtime was started.
    Counter,
    /// It goes up and down.
    Gauge,
    /// Durations, counted by length, since they are recorded.
    Histogram,
}

impl MetricKind {
    /// Its name, as in the documents.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }

    pub(super) const fn of_client(self) -> MetricType {
        match self {
            Self::Counter => MetricType::Counter,
            Self::Gauge => MetricType::Gauge,
            Self::Histogram => MetricType::Histogram,
        }
    }
}

impl Metric {
    const fn unit(mut self, unit: &'static str) -> Self {
        self.unit = Some(unit);
        self
    }

    const fn label(mut self, label: &'static str) -> Self {
        self.label = Some(label);
        self
    }
}

/// A counter without unit and label.
const fn counter(name: &'static str, about: &'static str, read: fn(&Seen, &mut Samples)) -> Metric {
    Metric {
        name,
        kind: MetricKind::Counter,
        unit: None,
        label: None,
        about,
        read: MetricSource::Samples(read),
    }
}

/// A gauge without unit and label.
const fn gauge(name: &'static str, about: &'static str, read: fn(&Seen, &mut Samples)) -> Metric {
    Metric {
        kind: MetricKind::Gauge,
        ..counter(name, about, read)
    }
}

/// A histogram of durations in seconds, without a label.
const fn durations(name: &'static str, about: &'static str, read: fn(&Seen, &mut Histograms)) -> Metric {
    Metric {
        name,
        kind: MetricKind::Histogram,
        unit: Some("seconds"),
        label: None,
        about,
        read: MetricSource::Histograms(read),
    }
}

/// All metrics, in the order of the documents.
pub static METRICS: &[Metric] = &[
    counter("millrun_runs_started", "runs started", |seen, samples| {
        samples.one(seen.stats.started)
    }),
    counter("millrun_runs_finished", "runs ended", |seen, samples| {
        samples.one(seen.stats.finished)
    }),
    counter(
        "millrun_traced_runs_told",
        "traced runs that have ended and whose spans were told to a reader or an exporter",
        |seen, samples| samples.one(seen.stats.traced_runs_told),
    ),
    counter(
        "millrun_traced_runs_lost",
        "traced runs whose spans were lost: the reader was behind, or the collector did not take them",
        |seen, samples| samples.one(seen.stats.traced_runs_lost),
    ),
    gauge(
        "millrun_instances_live",
        "instances that are alive",
        |seen, samples| samples.one(seen.stats.live),
    ),
    gauge(
        "millrun_instances_in_memory",
        "instances with their code in memory",
        |seen, samples| samples.one(seen.stats.hot),
    ),
    gauge(
        "millrun_instances_parked",
        "instances whose code does not run until somebody has looked at them",
        |seen, samples| samples.one(seen.stats.parked),
    ),
    counter("millrun_events", "events decided", |seen, samples| {
        samples.one(seen.stats.events)
    }),
    counter(
        "millrun_histories_loaded",
        "histories read to wake an instance",
        |seen, samples| samples.one(seen.stats.loads),
    ),
    counter(
        "millrun_histories_grown_long",
        "histories that have passed the length from which on they are warned of",
        |seen, samples| samples.one(seen.stats.long_histories),
    ),
    counter(
        "millrun_histories_untrimmed",
        "runs whose histories are not trimmed because what is to be kept of them is too large",
        |seen, samples| samples.one(seen.stats.untrimmed_histories),
    ),
    counter(
        "millrun_slow_turns",
        "turns of shards that code has held up for longer than the runtime warns of",
        |seen, samples| samples.one(seen.stats.slow_turns),
    ),
    counter(
        "millrun_replay_checks",
        "finished runs that were replayed as a check",
        |seen, samples| samples.one(seen.stats.replay_checks),
    ),
    counter(
        "millrun_replay_differences",
        "of these, the runs that did not replay as they ran",
        |seen, samples| samples.one(seen.stats.replay_differences),
    ),
    counter(
        "millrun_changed_values",
        "values that replays encoded otherwise than they were recorded",
        |seen, samples| samples.one(seen.stats.changed_values),
    ),
    gauge(
        "millrun_versions_live",
        "live runs by the version of their workflow, as `checkout@3`",
        |seen, samples| {
            for version in &seen.versions {
                let name = format!("{}@{}", version.workflow, version.version);
                samples.of(name.as_str(), version.live);
            }
        },
    )
    .label("version"),
    gauge(
        "millrun_versions_missing",
        "live runs that have a version of their workflow which is not registered",
        |seen, samples| {
            let missing = seen.versions.iter().filter(|version| !version.is_registered);
            samples.one(missing.map(|version| version.live).sum::<u64>());
        },
    ),
    counter(
        "millrun_versions_changed",
        "runs that have moved to the newest version of their workflow",
        |seen, samples| samples.one(seen.stats.versions_changed),
    ),
    counter(
        "millrun_versions_unfit",
        "runs that were tried on the newest version of their workflow and do not fit it",
        |seen, samples| samples.one(seen.stats.versions_unfit),
    ),
    counter(
        "millrun_attempts_started",
        "attempts of activities started",
        |seen, samples| samples.one(seen.stats.attempts),
    ),
    gauge(
        "millrun_attempts_running",
        "attempts of activities under way",
        |seen, samples| for_queues(seen, samples, |queue| queue.running_len),
    )
    .label("queue"),
    gauge(
        "millrun_attempts_running_max",
        "attempts that may be under way at once",
        |seen, samples| for_queues(seen, samples, |queue| queue.running_max),
    )
    .label("queue"),
    gauge(
        "millrun_tasks_waiting",
        "activities that wait in the memory of a task queue; more may wait in histories",
        |seen, samples| for_queues(seen, samples, |queue| queue.waiting_len),
    )
    .label("queue"),
    gauge(
        "millrun_tasks_waiting_max",
        "activities that may wait there",
        |seen, samples| for_queues(seen, samples, |queue| queue.waiting_max),
    )
    .label("queue"),
    gauge(
        "millrun_part_running",
        "1 while a part of the runtime runs",
        |seen, samples| for_parts(seen, samples, |part| u64::from(part.is_running)),
    )
    .label("part"),
    counter(
        "millrun_part_restarts",
        "restarts of a part of the runtime",
        |seen, samples| for_parts(seen, samples, |part| part.restarts.into()),
    )
    .label("part"),
    counter(
        "millrun_journal_commits",
        "commits of the journal",
        |seen, samples| samples.one(seen.stats.journal.commits),
    ),
    counter("millrun_journal_turns", "turns made durable", |seen, samples| {
        samples.one(seen.stats.journal.turns)
    }),
    counter(
        "millrun_journal_written",
        "bytes of records made durable",
        |seen, samples| samples.one(seen.stats.journal.bytes),
    )
    .unit("bytes"),
    gauge(
        "millrun_journal_last_commit",
        "time the last commit took",
        |seen, samples| samples.float(seen.stats.journal.last_commit.as_secs_f64()),
    )
    .unit("seconds"),
    gauge(
        "millrun_journal_queued",
        "bytes that wait for the next commit",
        |seen, samples| samples.one(seen.stats.journal.queued_bytes),
    )
    .unit("bytes"),
    gauge(
        "millrun_journal_index",
        "memory of the heads of live runs and of the index of finished ones, estimated",
        |seen, samples| samples.one(seen.stats.journal.index_bytes),
    )
    .unit("bytes"),
    gauge(
        "millrun_store_file",
        "size of the store's file; 0 in memory",
        |seen, samples| samples.one(seen.stats.journal.file_bytes),
    )
    .unit("bytes"),
    gauge("millrun_store_log", "size of the log in it", |seen, samples| {
        samples.one(seen.stats.journal.log_bytes)
    })
    .unit("bytes"),
    gauge(
        "millrun_store_log_live",
        "of the log, what belongs to live or retained runs",
        |seen, samples| samples.one(seen.stats.journal.live_bytes),
    )
    .unit("bytes"),
    gauge(
        "millrun_store_runs_retained",
        "finished runs that are retained",
        |seen, samples| samples.one(seen.stats.journal.finished_runs),
    ),
    counter(
        "millrun_store_runs_dropped",
        "finished runs that retention has dropped",
        |seen, samples| samples.one(seen.stats.journal.dropped_runs),
    ),
    counter(
        "millrun_store_runs_archived",
        "finished runs that were archived",
        |seen, samples| samples.one(seen.stats.journal.archived_runs),
    ),
    counter(
        "millrun_store_parts_archived",
        "parts of histories that were archived before they were trimmed",
        |seen, samples| samples.one(seen.stats.journal.archived_parts),
    ),
    gauge(
        "millrun_store_parts_held",
        "parts of histories that wait until they are archived",
        |seen, samples| samples.one(seen.stats.journal.held_parts),
    ),
    counter(
        "millrun_store_compactions",
        "compactions of the file",
        |seen, samples| samples.one(seen.stats.journal.compactions),
    ),
    gauge(
        "millrun_store_compacting",
        "1 while the file is being compacted",
        |seen, samples| samples.one(u64::from(seen.stats.journal.is_compacting)),
    ),
    gauge(
        "millrun_store_archive_failing",
        "1 while the archive cannot be written, so that nothing is dropped",
        |seen, samples| samples.one(u64::from(seen.stats.journal.is_archive_failing)),
    ),
    gauge(
        "millrun_store_disk_full",
        "1 while a commit waits for room on the disk",
        |seen, samples| samples.one(u64::from(seen.stats.journal.is_disk_full)),
    ),
    gauge(
        "millrun_store_retention_stopped",
        "1 once retention has stopped at a row that cannot be read",
        |seen, samples| samples.one(u64::from(seen.stats.journal.is_retention_stopped)),
    ),
    gauge(
        "millrun_store_topics",
        "topics whose records the store keeps, those of earlier openings and of durable subscriptions included",
        |seen, samples| samples.one(seen.stats.journal.topics),
    ),
    gauge(
        "millrun_store_topic_records",
        "size of the records of all topics",
        |seen, samples| samples.one(seen.stats.journal.topic_bytes),
    )
    .unit("bytes"),
    gauge(
        "millrun_durable_topic_last",
        "number of the last record of a durable topic, which is how many it has had",
        |seen, samples| for_durable(seen, samples, |topic| topic.last),
    )
    .label("topic"),
    gauge(
        "millrun_durable_topic_records",
        "size of the records that a durable topic has",
        |seen, samples| for_durable(seen, samples, |topic| topic.bytes),
    )
    .unit("bytes")
    .label("topic"),
    gauge(
        "millrun_durable_subscription_lag",
        "records that a durable subscription, which is open here, has not acknowledged",
        |seen, samples| for_open(seen, samples, |status| status.lag),
    )
    .label("subscription"),
    gauge(
        "millrun_durable_subscription_in_hand",
        "records that a durable subscription has in hand: given to consumers, waiting to be given again, or behind their key",
        |seen, samples| for_open(seen, samples, |status| status.in_hand as u64),
    )
    .label("subscription"),
    gauge(
        "millrun_durable_subscription_held_keys",
        "keys that a durable subscription holds behind undelivered records",
        |seen, samples| for_open(seen, samples, |status| status.held_keys as u64),
    )
    .label("subscription"),
    counter(
        "millrun_durable_subscription_missed",
        "records that a durable subscription has passed over since it was opened",
        |seen, samples| for_open(seen, samples, |status| status.missed),
    )
    .label("subscription"),
    counter(
        "millrun_durable_subscription_undelivered",
        "records that went to the topic for undelivered ones since the durable subscription was opened",
        |seen, samples| for_open(seen, samples, |status| status.undelivered),
    )
    .label("subscription"),
    counter(
        "millrun_durable_subscriptions_expired",
        "durable subscriptions that have expired because nobody used them for longer than their topic allows",
        |seen, samples| samples.one(seen.stats.subscriptions_expired),
    ),
    counter(
        "millrun_durable_records_unreadable",
        "records of durable topics that were passed over, each time, because no waiting run could be shown them",
        |seen, samples| samples.one(seen.stats.records_unreadable),
    ),
    counter(
        "millrun_topic_published",
        "envelopes published to a topic",
        |seen, samples| for_topics(seen, samples, |topic| topic.published),
    )
    .label("topic"),
    gauge(
        "millrun_subscription_waiting",
        "envelopes that wait in the inbox of a subscription, or are in its reader's hand",
        |seen, samples| {
            for_subscriptions(seen, samples, |subscription| {
                (subscription.inbox.queued + subscription.inbox.in_hand) as u64
            })
        },
    )
    .label("subscription"),
    counter(
        "millrun_subscription_taken",
        "envelopes that a subscription's reader has taken",
        |seen, samples| for_subscriptions(seen, samples, |subscription| subscription.inbox.taken),
    )
    .label("subscription"),
    counter(
        "millrun_subscription_dropped",
        "envelopes that a full inbox has dropped by its policy",
        |seen, samples| for_subscriptions(seen, samples, |subscription| subscription.stats.dropped),
    )
    .label("subscription"),
    counter(
        "millrun_subscription_failed",
        "envelopes that a service has given up because its handler kept failing",
        |seen, samples| for_subscriptions(seen, samples, |subscription| subscription.stats.failed),
    )
    .label("subscription"),
    gauge(
        "millrun_publishes_waiting",
        "publishes that wait for room",
        |seen, samples| samples.one(seen.topology.waiting as u64),
    ),
    counter(
        "millrun_envelopes_given_up",
        "envelopes that nobody got, by reason",
        given_up,
    )
    .label("reason"),
    durations(
        "millrun_run_duration",
        "from the beginning of a run to its end",
        |seen, histograms| histograms.of(&seen.durations.runs),
    )
    .label("workflow"),
    durations(
        "millrun_attempt_duration",
        "from when an attempt of an activity was due until its report is recorded",
        |seen, histograms| histograms.of(&seen.durations.attempts),
    )
    .label("activity"),
    durations(
        "millrun_task_wait",
        "from when an attempt is put into the memory of a task queue until a pool takes it up",
        |seen, histograms| histograms.of(&seen.durations.waits),
    )
    .label("queue"),
    durations(
        "millrun_commit_duration",
        "from when a shard queues a sweep at the journal until the shard knows that it is durable",
        |seen, histograms| histograms.one(&seen.durations.commits),
    ),
];

fn for_queues(seen: &Seen, samples: &mut Samples, value: fn(&QueueStats) -> usize) {
    for queue in &seen.stats.queues {
        samples.of(queue.name.as_str(), value(queue) as u64);
    }
}

fn for_parts(seen: &Seen, samples: &mut Samples, value: fn(&PartStatus) -> u64) {
    for part in &seen.parts {
        samples.of(part.name.as_str(), value(part));
    }
}

fn for_durable(seen: &Seen, samples: &mut Samples, value: fn(&DurableTopicSummary) -> u64) {
    for topic in &seen.durable {
        samples.of(topic.name.as_str(), value(topic));
    }
}

/// Values for the open durable subscriptions, each labelled with its topic's and its own name: `orders.placed/billing`.
fn for_open(seen: &Seen, samples: &mut Samples, value: fn(&SubscriptionStatus) -> u64) {
    for subscription in &seen.subscriptions {
        if let Ok(status) = &subscription.status {
            let label = format!("{}/{}", subscription.topic, subscription.name);
            samples.of(label, value(status));
        }
    }
}

fn for_topics(seen: &Seen, samples: &mut Samples, value: fn(&TopicInfo) -> u64) {
    for topic in &seen.topology.topics {
        samples.of(topic.name.as_str(), value(topic));
    }
}

fn for_subscriptions(seen: &Seen, samples: &mut Samples, value: fn(&SubscriptionInfo) -> u64) {
    for subscription in &seen.topology.subscriptions {
        samples.of(subscription.name.as_str(), value(subscription));
    }
}

fn given_up(seen: &Seen, samples: &mut Samples) {
    for (reason, count) in &seen.topology.given_up {
        samples.of(reason.name(), *count);
    }
}
