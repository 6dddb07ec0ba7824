//! Runs all contestants through all cells.

use std::collections::HashMap;
use std::time::Duration;

use super::{Contestant, Flavor, Load, Row};
use crate::{BenchError, Progress, interleaved};

/// Below this number of messages a sample is not shortened further.
const MESSAGES_MIN: u64 = 1_000;

/// How much is measured.
#[derive(Clone, Debug)]
pub struct Effort {
    /// Samples per contestant and cell, besides one that is thrown away.
    pub rounds: usize,
    /// The numbers of messages.
    pub messages: Vec<u64>,
    /// The sizes of the payloads.
    pub payloads: Vec<usize>,
    /// A contestant that would take longer than this for one sample sends fewer messages in it;
    /// its row then says how many.
    pub sample_time_max: Duration,
}

impl Effort {
    /// Everything, in some minutes.
    #[must_use]
    pub fn full() -> Self {
        Self {
            rounds: 7,
            messages: vec![1_000, 10_000, 100_000],
            payloads: vec![32, 256, 1_024, 4_096],
            sample_time_max: Duration::from_secs(1),
        }
    }

    /// The same cells with fewer and shorter samples, in less than a minute.
    #[must_use]
    pub fn quick() -> Self {
        Self {
            rounds: 3,
            sample_time_max: Duration::from_millis(150),
            ..Self::full()
        }
    }
}

/// One run of the suite.
#[derive(Debug)]
pub struct Contest {
    effort: Effort,
    /// The rates seen so far, to shorten the samples of the very slow.
    rates: HashMap<(String, Flavor), f64>,
}

impl Contest {
    /// Prepares a run.
    #[must_use]
    pub fn new(effort: Effort) -> Self {
        Self {
            effort,
            rates: HashMap::new(),
        }
    }

    /// One producer, one topic, one consumer, in every size and on both runtimes.
    ///
    /// # Errors
    /// When a contestant loses, doubles, cuts or reorders a message, or its library fails.
    pub fn pair(&mut self, only: Option<&str>) -> Result<Vec<Row>, BenchError> {
        let mut contestants: Vec<Box<dyn Contestant>> = Vec::new();
        contestants.extend(super::millrun::pair());
        contestants.extend(super::maiko::pair());
        contestants.extend(super::actix::pair());
        contestants.extend(super::ractor::pair());
        contestants.extend(super::kameo::pair());
        contestants.extend(super::channel::pair());
        let loads: Vec<Load> = self
            .effort
            .messages
            .iter()
            .flat_map(|messages| {
                self.effort
                    .payloads
                    .iter()
                    .map(|payload| Load::pair(*messages, *payload))
            })
            .collect();
        self.group("pair", &chosen(contestants, only), &loads)
    }

    fn group(
        &mut self,
        group: &'static str,
        contestants: &[Box<dyn Contestant>],
        loads: &[Load],
    ) -> Result<Vec<Row>, BenchError> {
        let progress = Progress::new((loads.len() * Flavor::ALL.len()) as u64);
        let mut rows = Vec::new();
        for flavor in Flavor::ALL {
            for load in loads {
                progress.running(format!(
                    "{group}, {}, {} messages of {} B",
                    flavor.name(),
                    load.messages,
                    load.payload_bytes
                ));
                rows.extend(self.cell(group, contestants, flavor, *load)?);
                progress.step();
            }
        }
        progress.finish();
        Ok(rows)
    }

    fn cell(
        &mut self,
        group: &'static str,
        contestants: &[Box<dyn Contestant>],
        flavor: Flavor,
        load: Load,
    ) -> Result<Vec<Row>, BenchError> {
        let shortened: Vec<Load> = contestants
            .iter()
            .map(|contestant| self.shortened(contestant.identity().name(), flavor, load))
            .collect();
        let samples = interleaved(contestants.len(), self.effort.rounds, |place| {
            let load = shortened[place];
            let took = contestants[place].run(flavor, load)?;
            Ok(load.deliveries() as f64 / took.as_secs_f64())
        })?;
        let mut rows = Vec::new();
        for (place, samples) in samples.iter().enumerate() {
            let identity = contestants[place].identity();
            if let Some(row) = Row::new(group, identity, flavor, load, shortened[place].messages, samples) {
                let sent_per_s = row.median_per_s / load.subscribers as f64;
                self.rates.insert((identity.name(), flavor), sent_per_s);
                rows.push(row);
            }
        }
        Ok(rows)
    }

    /// The load, with as many messages as fit the time for a sample.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a count of messages, and float casts saturate"
    )]
    fn shortened(&self, name: String, flavor: Flavor, load: Load) -> Load {
        let Some(rate) = self.rates.get(&(name, flavor)) else {
            return load;
        };
        let fitting = (rate * self.effort.sample_time_max.as_secs_f64()) as u64;
        Load {
            messages: load.messages.min(fitting.max(MESSAGES_MIN)),
            ..load
        }
    }
}

fn chosen(contestants: Vec<Box<dyn Contestant>>, only: Option<&str>) -> Vec<Box<dyn Contestant>> {
    contestants
        .into_iter()
        .filter(|contestant| only.is_none_or(|only| contestant.identity().name().contains(only)))
        .collect()
}
