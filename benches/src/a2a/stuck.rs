//! A subscriber that never takes anything, and a publisher waiting for it: does it slow others?
//!
//! ```text
//!   producer ──► topic "free"  ──► consumer       timed, with and without the lower half
//!   producer ──► topic "stuck" ──► nobody takes   full, its publisher parked
//! ```
//!
//! The same is not asked of Maiko: there a topic that blocks stops the broker task, and with it
//! all topics, so that the sample would never end.

use std::time::Duration;

use millrun_broker::{Broker, BrokerConfig, SubscriptionConfig};

use super::{Contestant, Flavor, Identity, Kind, Load, Race};
use crate::BenchError;

pub(super) fn both() -> Vec<Box<dyn Contestant>> {
    vec![Box::new(Pair::Alone), Box::new(Pair::BesideStuck)]
}

enum Pair {
    Alone,
    BesideStuck,
}

impl Contestant for Pair {
    fn identity(&self) -> Identity {
        Identity {
            framework: "millrun",
            mode: match self {
                Self::Alone => "alone",
                Self::BesideStuck => "beside a stuck one",
            },
            kind: Kind::Brokered,
            queue: "256, Block",
            in_flight: "256",
        }
    }

    fn run(&self, flavor: Flavor, load: Load) -> Result<Duration, BenchError> {
        let name = self.identity().name();
        flavor.runtime()?.block_on(async {
            let broker = Broker::without_host(BrokerConfig::default());
            let subscribe = |topic: &str| {
                broker
                    .subscribe::<Vec<u8>>(topic, SubscriptionConfig::default())
                    .map_err(|error| BenchError::failed(&name, error))
            };
            let publisher = |topic: &str| match broker.topic::<Vec<u8>>(topic) {
                Ok(topic) => Ok(topic.publisher()),
                Err(error) => Err(BenchError::failed(&name, error)),
            };
            let stuck = subscribe("stuck")?;
            if let Self::BesideStuck = self {
                let mut parked = publisher("stuck")?;
                while parked.try_publish(vec![0; load.payload_bytes]).is_ok() {}
                tokio::spawn(async move { parked.publish(Vec::new()).await.is_ok() });
            }
            let Race {
                feeds,
                ledgers,
                finish,
            } = load.race();
            for (mut feed, mut ledger) in feeds.into_iter().zip(ledgers) {
                let mut receiver = subscribe("free")?.into_receiver();
                let mut publisher = publisher("free")?;
                tokio::spawn(async move {
                    while let Some(envelope) = receiver.recv().await {
                        ledger.receive(envelope.payload());
                    }
                });
                tokio::spawn(async move {
                    while let Some(payload) = feed.next_payload() {
                        if publisher.publish(payload).await.is_err() {
                            break;
                        }
                    }
                });
            }
            let elapsed = finish.elapsed(&name).await;
            drop(stuck);
            elapsed
        })
    }
}
