//! Spans reach an exporter of OpenTelemetry, and a collector that is away holds up nothing.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use millrun::operating::SpanExportConfig;
use millrun::workflow::{SpanId, TraceContext};
use millrun::{Runtime, RuntimeBuilder, Workflow, WorkflowContext, WorkflowError};
use millrun_testkit::{SimConfig, SimHost};
use opentelemetry::trace::Status;
use opentelemetry_sdk::error::{OTelSdkError, OTelSdkResult};
use opentelemetry_sdk::trace::{SpanData, SpanExporter};

use crate::support::Store;

const LABEL: Workflow<u64, u64> = Workflow::named("label");

async fn label(_: WorkflowContext, number: u64) -> Result<u64, WorkflowError> {
    Ok(number)
}

/// What a collector does with a batch.
#[derive(Clone, Copy, Debug)]
enum Collector {
    Takes,
    Refuses,
    Hangs,
}

#[derive(Clone, Debug)]
struct Collected {
    collector: Collector,
    spans: Arc<Mutex<Vec<SpanData>>>,
    /// How many spans came together.
    batches: Arc<Mutex<Vec<usize>>>,
}

impl SpanExporter for Collected {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        match self.collector {
            Collector::Takes => {
                self.batches.lock().unwrap().push(batch.len());
                self.spans.lock().unwrap().extend(batch);
                Ok(())
            }
            Collector::Refuses => Err(OTelSdkError::InternalFailure("no".into())),
            Collector::Hangs => std::future::pending().await,
        }
    }
}

fn collected(collector: Collector) -> Collected {
    Collected {
        collector,
        spans: Arc::default(),
        batches: Arc::default(),
    }
}

fn builder(store: &Store) -> RuntimeBuilder {
    store.bare().register(LABEL, label)
}

fn caller() -> TraceContext {
    "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
        .parse()
        .unwrap()
}

async fn run_traced(runtime: &Runtime, len: u64) {
    for number in 0..len {
        let run = runtime.start(LABEL, &number.to_string(), number).traced(caller());
        run.await.unwrap().result().await.unwrap();
    }
}

/// The process was killed behind an export: the next one exports again, and each span is the same, id and all.
#[tokio::test]
async fn what_is_exported_again_behind_a_restart_is_the_same_spans() {
    let store = Store::new();
    let mut exports = Vec::new();
    for life in 0..2 {
        let runtime = builder(&store).start().await.unwrap();
        let collected = collected(Collector::Takes);
        let mut config = SpanExportConfig::new("shop");
        config.feed.look_back = Duration::from_secs(3_600);
        let export = runtime.export_spans(collected.clone(), config).unwrap();
        if life == 0 {
            run_traced(&runtime, 3).await;
        }
        export.finish().await;
        let mut spans = collected.spans.lock().unwrap().clone();
        spans.sort_by_key(|span| span.span_context.span_id().to_string());
        exports.push(spans);
        runtime.shutdown().await.unwrap();
    }
    assert_eq!(exports[0], exports[1]);
    assert_eq!(exports[0].len(), 3);
    for span in &exports[0] {
        let context = &span.span_context;
        assert_eq!(context.trace_id().to_string(), caller().trace_id().to_string());
        assert!(context.is_sampled() && span.parent_span_is_remote);
        assert_eq!(span.parent_span_id.to_string(), caller().span_id().to_string());
        assert_eq!((&*span.name, &span.status), ("label", &Status::Unset));
        let run = span
            .attributes
            .iter()
            .find(|attribute| attribute.key.as_str() == "millrun.run")
            .unwrap();
        let run = u128::from_str_radix(&run.value.as_str(), 16).unwrap();
        let id = SpanId::of_run(millrun::RunId::from_bits(run).unwrap());
        assert_eq!(context.span_id().to_string(), id.to_string());
    }
}

#[tokio::test]
async fn a_collector_that_is_away_holds_up_no_run_and_what_it_did_not_take_is_counted() {
    for collector in [Collector::Takes, Collector::Refuses, Collector::Hangs] {
        let store = Store::new();
        let runtime = builder(&store).start().await.unwrap();
        let mut config = SpanExportConfig::new("shop");
        config.feed.queue_len_max = match collector {
            Collector::Takes => 50,
            Collector::Refuses | Collector::Hangs => 5,
        };
        let export = runtime.export_spans(collected(collector), config).unwrap();
        run_traced(&runtime, 50).await;
        match collector {
            Collector::Takes | Collector::Refuses => export.finish().await,
            // What waits is lost with the export, and so is what it has under way.
            Collector::Hangs => drop(export),
        }
        runtime.shutdown().await.unwrap();
        let stats = runtime.stats();
        let expected = match collector {
            Collector::Takes => (50, 0),
            Collector::Refuses | Collector::Hangs => (0, 50),
        };
        assert_eq!(
            (stats.traced_runs_told, stats.traced_runs_lost),
            expected,
            "{collector:?}"
        );
    }
}

/// The export gives up at the bound of one batch, and does not wait as long for each that is behind it.
#[test]
fn the_end_of_an_export_waits_once_for_a_collector_that_hangs() {
    let world = SimHost::new(SimConfig::seeded(1));
    let store = Store::new();
    let builder = builder(&store).host(world.host());
    let host = world.host();
    let script = async move {
        let runtime = builder.start().await.unwrap();
        let mut config = SpanExportConfig::new("shop");
        (config.batch_len_max, config.export_wait_max) = (1, Duration::from_secs(30));
        let export = runtime.export_spans(collected(Collector::Hangs), config).unwrap();
        run_traced(&runtime, 50).await;
        let before = host.now();
        export.finish().await;
        let waited = host.now().as_micros() - before.as_micros();
        let stats = runtime.stats();
        runtime.shutdown().await.unwrap();
        (waited, stats.traced_runs_lost)
    };
    let (waited, lost) = world.block_on(script).unwrap();
    assert!(waited <= 30_000_000, "{waited} microseconds");
    assert_eq!(lost, 50);
}

/// A batch ends with the run that reaches its bound.
#[tokio::test]
async fn batches_have_whole_runs_up_to_their_bound() {
    let store = Store::new();
    let runtime = builder(&store).start().await.unwrap();
    run_traced(&runtime, 50).await;
    let collected = collected(Collector::Takes);
    let mut config = SpanExportConfig::new("shop");
    config.feed.look_back = Duration::from_secs(3_600);
    config.batch_len_max = 20;
    let export = runtime.export_spans(collected.clone(), config).unwrap();
    export.finish().await;
    // Each run has one span, and 16 histories are read together.
    assert_eq!(*collected.batches.lock().unwrap(), [32, 18]);
    runtime.shutdown().await.unwrap();
}
