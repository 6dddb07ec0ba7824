//! A publish among ten thousand topics and ten thousand filters: does it cost more than alone?
//!
//! ```text
//!   publisher ──► topic ──► inbox              one topic, one filter, timed
//!   publisher ──► 10,000 topics in turn        each selected by one of 10,000 filters with a
//!                 ──► 10,000 inboxes           wildcard, timed
//! ```
//!
//! Each message is published and taken out again at once, on one task, so that neither waking nor
//! waiting is timed, and each inbox has been used before, so that nothing is done for the first time. What is left of a
//! difference is that 10,000 publishers and inboxes do not fit the caches.

use std::time::Duration;

use millrun_broker::{Broker, BrokerConfig, Envelope, Inbox, Publisher, SubscriptionConfig};

use super::{Contestant, Flavor, Identity, Kind, Load, Race, Turns};
use crate::BenchError;

const CROWD: usize = 10_000;

pub(super) fn both() -> Vec<Box<dyn Contestant>> {
    vec![Box::new(Publishing::Alone), Box::new(Publishing::InACrowd)]
}

enum Publishing {
    Alone,
    InACrowd,
}

type Line = (Publisher<Vec<u8>>, Inbox<Envelope<Vec<u8>>>);

impl Publishing {
    /// Topics with one inbox each. The filters are there first, the topics are matched as they come.
    fn lines(&self, name: &str) -> Result<Vec<Line>, BenchError> {
        let count = match self {
            Self::Alone => 1,
            Self::InACrowd => CROWD,
        };
        let broker = Broker::without_host(BrokerConfig::default());
        let inboxes: Vec<_> = (0..count)
            .map(|number| {
                let filter = format!("crowd.{number}.*");
                let inbox = broker.subscribe(&filter, SubscriptionConfig::default());
                inbox.map_err(|error| BenchError::failed(name, error))
            })
            .collect::<Result<_, _>>()?;
        let lines = inboxes.into_iter().enumerate().map(|(number, inbox)| {
            let topic = broker.topic(&format!("crowd.{number}.placed"));
            let topic = topic.map_err(|error| BenchError::failed(name, error))?;
            Ok((topic.publisher(), inbox))
        });
        lines.collect()
    }
}

impl Contestant for Publishing {
    fn identity(&self) -> Identity {
        Identity {
            framework: "millrun",
            mode: match self {
                Self::Alone => "one topic",
                Self::InACrowd => "10,000 topics and filters",
            },
            kind: Kind::Brokered,
            queue: "256, Block",
            in_flight: "1",
        }
    }

    fn run(&self, flavor: Flavor, load: Load) -> Result<Duration, BenchError> {
        let name = self.identity().name();
        let mut lines = self.lines(&name)?;
        for (publisher, inbox) in &mut lines {
            let published = publisher.try_publish(vec![0; load.payload_bytes]);
            published.map_err(|error| BenchError::failed(&name, error))?;
            inbox.take().for_each(drop);
        }
        flavor.runtime()?.block_on(async {
            let mut lines = Turns::new(lines);
            let Race {
                feeds,
                ledgers,
                finish,
            } = load.race();
            for (mut feed, mut ledger) in feeds.into_iter().zip(ledgers) {
                while let Some(payload) = feed.next_payload() {
                    let (publisher, inbox) = lines.next_turn();
                    let published = publisher.publish(payload).await;
                    published.map_err(|error| BenchError::failed(&name, error))?;
                    for envelope in inbox.take() {
                        ledger.receive(envelope.payload());
                    }
                }
            }
            finish.elapsed(&name).await
        })
    }
}
