//! What does one envelope cost, from the publisher's hand to the consumer's?
//!
//! On one thread, without an async runtime: each iteration publishes as many envelopes as an inbox
//! holds and takes them out again. In memory, nothing durable.

use std::hint::black_box;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use millrun_broker::{Broker, BrokerConfig, Envelope, Inbox, SubscriptionConfig};

const BATCH: u64 = 256;

/// Polls a publish that finds room; one that lets others run first is polled again.
fn finish<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return output;
        }
    }
}

fn inboxes(broker: &Broker, filters: &[String]) -> Vec<Inbox<Envelope<Vec<u8>>>> {
    let subscribe = |filter: &String| broker.subscribe(filter, SubscriptionConfig::default());
    filters
        .iter()
        .map(|filter| subscribe(filter).expect("the filter is one"))
        .collect()
}

fn drain(inboxes: &[Inbox<Envelope<Vec<u8>>>]) {
    for inbox in inboxes {
        inbox.take().for_each(|envelope| drop(black_box(envelope)));
    }
}

/// One topic, by size of the payload.
fn sizes(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("publish and take");
    group.throughput(Throughput::Elements(BATCH));
    for bytes in [32, 256, 1_024, 4_096] {
        let broker = Broker::without_host(BrokerConfig::default());
        let inboxes = inboxes(&broker, &["orders".to_owned()]);
        let mut publisher = broker.topic("orders").expect("the name is one").publisher();
        group.bench_function(BenchmarkId::from_parameter(bytes), |bencher| {
            bencher.iter(|| {
                for _ in 0..BATCH {
                    finish(publisher.publish(vec![0x6d_u8; bytes])).expect("there is room");
                }
                drain(&inboxes);
            });
        });
    }
    group.finish();
}

/// One topic, one envelope at a time and in batches, to many inboxes.
fn fan_out(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("fan-out to 64");
    group.throughput(Throughput::Elements(BATCH * 64));
    let broker = Broker::without_host(BrokerConfig::default());
    let inboxes = inboxes(&broker, &vec!["orders".to_owned(); 64]);
    let mut publisher = broker.topic("orders").expect("the name is one").publisher();
    group.bench_function("one by one", |bencher| {
        bencher.iter(|| {
            for _ in 0..BATCH {
                finish(publisher.publish(vec![0x6d_u8; 256])).expect("there is room");
            }
            drain(&inboxes);
        });
    });
    group.bench_function("in batches of 32", |bencher| {
        bencher.iter_batched(
            || {
                (0..BATCH / 32)
                    .map(|_| vec![vec![0x6d_u8; 256]; 32])
                    .collect::<Vec<_>>()
            },
            |batches| {
                for batch in batches {
                    finish(publisher.publish_batch(batch)).expect("there is room");
                }
                drain(&inboxes);
            },
            BatchSize::SmallInput,
        );
    });
    group.finish();
}

/// Publishing in turn to many topics, each with a filter of its own, beside
/// doing so to one.
fn topics(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("topics");
    group.throughput(Throughput::Elements(BATCH));
    for count in [1, 10_000] {
        let broker = Broker::without_host(BrokerConfig::default());
        let names: Vec<String> = (0..count).map(|number| format!("orders.{number}")).collect();
        let inboxes = inboxes(&broker, &names);
        let mut publishers: Vec<_> = names
            .iter()
            .map(|name| broker.topic(name).expect("the name is one").publisher())
            .collect();
        let mut next = 0;
        group.bench_function(BenchmarkId::from_parameter(count), |bencher| {
            bencher.iter(|| {
                for _ in 0..BATCH {
                    finish(publishers[next].publish(vec![0x6d_u8; 32])).expect("there is room");
                    drain(&inboxes[next..=next]);
                    next = (next + 1) % publishers.len();
                }
            });
        });
    }
    group.finish();
}

criterion_group!(hot_path, sizes, fan_out, topics);
criterion_main!(hot_path);
