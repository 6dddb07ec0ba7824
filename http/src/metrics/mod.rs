//! The metrics of a runtime, as text for Prometheus.
//!
//! ```text
//!   GET metrics ──► Seen: stats, parts, topology, read once ──► METRICS, row by row ──► OpenMetrics text
//! ```
//!
//! There is no registry: all values are read when they are requested. From the first scrape on, the runtime records
//! [durations](Runtime::durations) for this, and nothing else. A label has at most [`SERIES_LEN_MAX`] values in a metric, the
//! first ones by name; the rest is summed up under one more value, so that a program with a topic for each user does not give
//! its Prometheus a series for each.

mod samples;
mod table;

use std::collections::HashMap;
use std::time::Duration;

use millrun::Runtime;
use millrun::broker::Topology;
use millrun::operating::{Durations, Histogram, PartStatus, RuntimeStats, WorkflowVersion};
use millrun::topics::{DurableSubscriptionSummary, DurableTopicSummary};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::exemplar::Exemplar;
use prometheus_client::registry::{Registry, Unit};

pub use samples::SERIES_LEN_MAX;
use samples::{Histograms, Sample, Samples};
use table::MetricSource;
pub use table::{METRICS, Metric, MetricKind};

/// The media type of the text.
pub(crate) const MEDIA_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The sources of the metrics: a runtime at one moment.
#[derive(Debug)]
pub(crate) struct Seen {
    stats: RuntimeStats,
    versions: Vec<WorkflowVersion>,
    parts: Vec<PartStatus>,
    topology: Topology,
    durations: Durations,
    durable: Vec<DurableTopicSummary>,
    subscriptions: Vec<DurableSubscriptionSummary>,
}

/// All metrics of a runtime at this moment, in the text form of OpenMetrics 1.0.
pub(crate) fn metrics(runtime: &Runtime) -> String {
    let seen = Seen {
        stats: runtime.stats(),
        versions: runtime.versions(),
        parts: runtime.parts(),
        topology: runtime.broker().topology(),
        durations: runtime.durations(),
        durable: runtime.durable_topics(),
        subscriptions: runtime.open_subscriptions(),
    };
    let mut registry = Registry::default();
    registry.register_collector(Box::new(seen));
    let mut written = String::new();
    text::encode(&mut written, &registry).expect("a string takes any text");
    written
}

fn labels_of<'a>(metric: &Metric, label: Option<&'a str>) -> Vec<(&'static str, &'a str)> {
    metric.label.into_iter().zip(label).collect()
}

/// For each bucket its upper bound in seconds, and how many durations fall between that and the bound before.
fn buckets_of(histogram: &Histogram) -> Vec<(f64, u64)> {
    let bounds = Histogram::BOUNDS.iter().map(Duration::as_secs_f64);
    bounds.chain([f64::INFINITY]).zip(histogram.counts).collect()
}

impl Collector for Seen {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        for metric in METRICS {
            let unit = metric.unit.map(|unit| match unit {
                "seconds" => Unit::Seconds,
                "bytes" => Unit::Bytes,
                other => Unit::Other(other.to_owned()),
            });
            let mut family = encoder.encode_descriptor(
                metric.name,
                metric.about,
                unit.as_ref(),
                metric.kind.of_client(),
            )?;
            match metric.read {
                MetricSource::Samples(read) => {
                    let mut samples = Samples::default();
                    read(self, &mut samples);
                    for Sample { label, value } in samples.bounded() {
                        let labels = labels_of(metric, label.as_deref());
                        let mut one = family.encode_family(&labels)?;
                        match metric.kind {
                            MetricKind::Counter => {
                                one.encode_counter(&value, None::<&Exemplar<NoLabelSet, f64>>)?;
                            }
                            MetricKind::Gauge | MetricKind::Histogram => one.encode_gauge(&value)?,
                        }
                    }
                }
                MetricSource::Histograms(read) => {
                    let mut histograms = Histograms::default();
                    read(self, &mut histograms);
                    for (label, histogram) in histograms.bounded() {
                        let labels = labels_of(metric, label.as_deref());
                        let mut one = family.encode_family(&labels)?;
                        let sum = histogram.sum.as_secs_f64();
                        let buckets = buckets_of(&histogram);
                        let none = None::<&HashMap<usize, Exemplar<NoLabelSet, f64>>>;
                        one.encode_histogram(sum, histogram.len(), &buckets, none)?;
                    }
                }
            }
        }
        Ok(())
    }
}
