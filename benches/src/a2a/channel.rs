//! A bare tokio channel between two tasks: what an actor's mailbox costs without the actor.

use std::time::Duration;

use tokio::sync::mpsc;

use super::{Contestant, Flavor, Identity, Kind, Load, Race};
use crate::BenchError;

const CAPACITY: usize = 256;

pub(super) fn pair() -> Vec<Box<dyn Contestant>> {
    vec![Box::new(Channel)]
}

struct Channel;

impl Contestant for Channel {
    fn identity(&self) -> Identity {
        Identity {
            framework: "tokio",
            mode: "mpsc",
            kind: Kind::Reference,
            queue: "256, sender waits",
            in_flight: "256",
        }
    }

    fn run(&self, flavor: Flavor, load: Load) -> Result<Duration, BenchError> {
        flavor.runtime()?.block_on(async {
            let Race {
                feeds,
                ledgers,
                finish,
            } = load.race();
            for (mut feed, mut ledger) in feeds.into_iter().zip(ledgers) {
                let (sender, mut receiver) = mpsc::channel::<Vec<u8>>(CAPACITY);
                tokio::spawn(async move {
                    while let Some(payload) = receiver.recv().await {
                        ledger.receive(&payload);
                    }
                });
                tokio::spawn(async move {
                    while let Some(payload) = feed.next_payload() {
                        if sender.send(payload).await.is_err() {
                            break;
                        }
                    }
                });
            }
            finish.elapsed(&self.identity().name()).await
        })
    }
}
