//! What a scrape says is what the runtime counts.

use millrun::broker::SubscriptionConfig;
use millrun::operating::Histogram;
use millrun_http::{Access, METRICS, MetricKind, SERIES_LEN_MAX, router};

use crate::support::{ORDER, PAID, get, runtime};

#[tokio::test]
async fn a_scrape_has_each_metric_of_the_table_with_what_the_runtime_counts() {
    let runtime = runtime().await;
    let handle = runtime.start(ORDER, "one", 5).await.unwrap();
    runtime.start(ORDER, "two", 5).await.unwrap();
    handle.signal(PAID, 1).await.unwrap();
    handle.result().await.unwrap();

    let answer = get(&router(&runtime, Access::read_only()), "/metrics").await;
    assert_eq!(answer.status, 200);
    assert_eq!(
        answer.header("content-type"),
        "application/openmetrics-text; version=1.0.0; charset=utf-8"
    );
    let lines: Vec<_> = answer.text.lines().collect();
    assert_eq!(lines.last(), Some(&"# EOF"));
    for metric in METRICS {
        let unit = metric.unit.map(|unit| format!("_{unit}")).unwrap_or_default();
        let (name, kind) = (format!("{}{unit}", metric.name), metric.kind.name());
        assert!(
            lines.contains(&format!("# TYPE {name} {kind}").as_str()),
            "{name}: {}",
            answer.text
        );
    }
    let stats = runtime.stats();
    for expected in [
        "millrun_runs_started_total 2.0".to_owned(),
        "millrun_runs_finished_total 1.0".to_owned(),
        "millrun_instances_live 1.0".to_owned(),
        "millrun_attempts_started_total 2.0".to_owned(),
        "millrun_attempts_running{queue=\"default\"} 0.0".to_owned(),
        format!(
            "millrun_attempts_running_max{{queue=\"default\"}} {}.0",
            stats.queues[0].running_max
        ),
        format!("millrun_events_total {}.0", stats.events),
        "millrun_part_running{part=\"shard 0\"} 1.0".to_owned(),
        "millrun_topic_published_total{topic=\"millrun.tasks.default\"} 2.0".to_owned(),
        "millrun_store_disk_full 0.0".to_owned(),
    ] {
        assert!(
            lines.contains(&expected.as_str()),
            "{expected} is not in {}",
            answer.text
        );
    }
}

#[tokio::test]
async fn durations_are_recorded_from_the_first_scrape_on() {
    let runtime = runtime().await;
    let app = router(&runtime, Access::read_only());
    let mut shown = Vec::new();
    for id in ["one", "two"] {
        let handle = runtime.start(ORDER, id, 5).await.unwrap();
        handle.signal(PAID, 1).await.unwrap();
        handle.result().await.unwrap();
        let answer = get(&app, "/metrics").await;
        let lines = answer
            .text
            .lines()
            .filter(|line| line.contains("duration_seconds_") || line.contains("wait_seconds_"));
        shown.push(lines.map(str::to_owned).collect::<Vec<_>>());
    }
    let none = [
        "millrun_commit_duration_seconds_sum 0.0",
        "millrun_commit_duration_seconds_count 0",
    ];
    assert_eq!(shown[0][..2], none);
    for expected in [
        "millrun_run_duration_seconds_count{workflow=\"order\"} 1",
        "millrun_attempt_duration_seconds_count{activity=\"charge\"} 1",
        "millrun_task_wait_seconds_count{queue=\"default\"} 1",
    ] {
        assert!(
            shown[1].iter().any(|line| line == expected),
            "{expected}: {:?}",
            shown[1]
        );
    }
    let buckets: Vec<_> = shown[1]
        .iter()
        .filter(|line| line.starts_with("millrun_run_duration_seconds_bucket"))
        .collect();
    assert_eq!(buckets.len(), Histogram::BOUNDS.len() + 1);
    assert!(buckets[0].contains("le=\"0.0001\""), "{}", buckets[0]);
    let last = buckets.last().unwrap();
    assert!(last.contains("le=\"+Inf\"") && last.ends_with(" 1"), "{last}");
}

#[tokio::test]
async fn a_topic_for_each_user_does_not_make_a_series_for_each() {
    let runtime = runtime().await;
    for user in 0..2 * SERIES_LEN_MAX {
        let topic = runtime
            .broker()
            .topic::<u64>(&format!("users.{user:04}.notices"))
            .unwrap();
        let config = SubscriptionConfig {
            name: format!("user {user:04}"),
            ..SubscriptionConfig::default()
        };
        let inbox = runtime
            .broker()
            .subscribe::<u64>(&format!("users.{user:04}.notices"), config)
            .unwrap();
        topic.publish(1).await.unwrap();
        drop(inbox);
    }
    let answer = get(&router(&runtime, Access::read_only()), "/metrics").await;
    for metric in METRICS.iter().filter(|metric| metric.label.is_some()) {
        let label = metric.label.unwrap();
        let total = match metric.kind {
            MetricKind::Counter => "_total",
            _ => "",
        };
        let start = format!("{}{total}{{{label}=", metric.name);
        let series: Vec<_> = answer
            .text
            .lines()
            .filter(|line| line.starts_with(&start))
            .collect();
        assert!(
            series.len() <= SERIES_LEN_MAX + 1,
            "{}: {}",
            metric.name,
            series.len()
        );
    }
    assert!(
        answer
            .text
            .contains("millrun_topic_published_total{topic=\"all others\"}")
    );
}
