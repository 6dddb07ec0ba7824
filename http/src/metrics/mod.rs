//! What a runtime counts, as text for Prometheus.
//!
//! ```text
//!   GET metrics ──► Seen: stats, parts, topology, read once ──► METRICS, row by row ──► OpenMetrics text
//! ```
//!
//! Nothing is registered anywhere and nothing is counted for the sake of this: all is read when it is asked for. A label
//! has at most [`SERIES_LEN_MAX`] values in a metric, the first by name; what the others have is added up under one
//! more, so that a program with a topic for each of its users does not give its Prometheus a series for each.

mod samples;
mod table;

use millrun::Runtime;
use millrun::broker::Topology;
use millrun::operating::{PartStatus, RuntimeStats};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::exemplar::Exemplar;
use prometheus_client::registry::{Registry, Unit};

pub use samples::SERIES_LEN_MAX;
use samples::{Sample, Samples};
pub use table::{METRICS, Metric, MetricKind};

/// The media type of the text.
pub(crate) const MEDIA_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// What the metrics are read from: a runtime at one moment.
#[derive(Debug)]
pub(crate) struct Seen {
    stats: RuntimeStats,
    parts: Vec<PartStatus>,
    topology: Topology,
}

/// All metrics of a runtime as they are now, in the text form of OpenMetrics 1.0.
pub(crate) fn metrics(runtime: &Runtime) -> String {
    let seen = Seen {
        stats: runtime.stats(),
        parts: runtime.parts(),
        topology: runtime.broker().topology(),
    };
    let mut registry = Registry::default();
    registry.register_collector(Box::new(seen));
    let mut written = String::new();
    text::encode(&mut written, &registry).expect("a string takes any text");
    written
}

impl Collector for Seen {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        for metric in METRICS {
            let unit = metric.unit.map(|unit| match unit {
                "seconds" => Unit::Seconds,
                "bytes" => Unit::Bytes,
                other => Unit::Other(other.to_owned()),
            });
            let mut samples = Samples::default();
            (metric.read)(self, &mut samples);
            let mut family = encoder.encode_descriptor(
                metric.name,
                metric.about,
                unit.as_ref(),
                metric.kind.of_client(),
            )?;
            for Sample { label, value } in samples.bounded() {
                let labels: Vec<(&str, &str)> = metric.label.into_iter().zip(label.as_deref()).collect();
                let mut one = family.encode_family(&labels)?;
                match metric.kind {
                    MetricKind::Counter => {
                        one.encode_counter(&value, None::<&Exemplar<NoLabelSet, f64>>)?;
                    }
                    MetricKind::Gauge => one.encode_gauge(&value)?,
                }
            }
        }
        Ok(())
    }
}
