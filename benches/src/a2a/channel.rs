//! Bare tokio channels between tasks: what an actor's mailbox costs without the actor.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{broadcast, mpsc};

use super::{Contestant, Flavor, Identity, Kind, Load, Race, Turns};
use crate::BenchError;

const CAPACITY: usize = 256;
/// A broadcast channel overwrites what is not yet read; the sender looks this often.
const LOOK_EVERY: usize = CAPACITY / 4;

pub(super) fn direct() -> Vec<Box<dyn Contestant>> {
    vec![Box::new(Channel)]
}

pub(super) fn fan_out() -> Vec<Box<dyn Contestant>> {
    vec![Box::new(Broadcast)]
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
            let mut senders = Vec::new();
            for mut ledger in ledgers {
                let (sender, mut receiver) = mpsc::channel::<Vec<u8>>(CAPACITY);
                senders.push(sender);
                tokio::spawn(async move {
                    while let Some(payload) = receiver.recv().await {
                        ledger.receive(&payload);
                    }
                });
            }
            for mut feed in feeds {
                let mut senders = Turns::new(senders.clone());
                tokio::spawn(async move {
                    while let Some(payload) = feed.next_payload() {
                        if senders.next_turn().send(payload).await.is_err() {
                            break;
                        }
                    }
                });
            }
            finish.elapsed(&self.identity().name()).await
        })
    }
}

/// One channel that all consumers read. Its sender never waits, so here it yields while the
/// slowest reader is behind: nothing is dropped.
struct Broadcast;

impl Contestant for Broadcast {
    fn identity(&self) -> Identity {
        Identity {
            framework: "tokio",
            mode: "broadcast",
            kind: Kind::Reference,
            queue: "256, sender yields",
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
            let (sender, _) = broadcast::channel::<Arc<Vec<u8>>>(CAPACITY);
            for mut ledger in ledgers {
                let mut receiver = sender.subscribe();
                tokio::spawn(async move {
                    while let Ok(payload) = receiver.recv().await {
                        ledger.receive(&payload);
                    }
                });
            }
            for mut feed in feeds {
                let sender = sender.clone();
                tokio::spawn(async move {
                    let mut until_look = LOOK_EVERY;
                    while let Some(payload) = feed.next_payload() {
                        until_look -= 1;
                        if until_look == 0 {
                            until_look = LOOK_EVERY;
                            while sender.len() > CAPACITY - LOOK_EVERY {
                                tokio::task::yield_now().await;
                            }
                        }
                        if sender.send(Arc::new(payload)).is_err() {
                            break;
                        }
                    }
                });
            }
            finish.elapsed(&self.identity().name()).await
        })
    }
}
