//! Two bare tokio channels between two tasks.

use tokio::sync::mpsc;

use super::super::{Flavor, Identity, Kind};
use super::{Laps, RoundTrip, Stopwatch};
use crate::BenchError;

pub(super) fn all() -> Vec<Box<dyn RoundTrip>> {
    vec![Box::new(Channels)]
}

struct Channels;

impl RoundTrip for Channels {
    fn identity(&self) -> Identity {
        Identity {
            framework: "tokio",
            mode: "mpsc",
            kind: Kind::Reference,
            queue: "256, sender waits",
            in_flight: "1",
        }
    }

    fn run(&self, flavor: Flavor, trips: u64, payload_bytes: usize) -> Result<Laps, BenchError> {
        flavor.runtime()?.block_on(async {
            let (mut watch, end) = Stopwatch::new(trips, payload_bytes);
            let (there, mut questions) = mpsc::channel::<Vec<u8>>(256);
            let (back, mut answers) = mpsc::channel::<Vec<u8>>(256);
            tokio::spawn(async move {
                while let Some(payload) = questions.recv().await {
                    if back.send(payload).await.is_err() {
                        break;
                    }
                }
            });
            tokio::spawn(async move {
                let mut question = Some(watch.first());
                while let Some(payload) = question {
                    if there.send(payload).await.is_err() {
                        break;
                    }
                    question = answers.recv().await.and_then(|answer| watch.lap(&answer));
                }
            });
            end.laps(&self.identity().name()).await
        })
    }
}
