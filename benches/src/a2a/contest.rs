//! Runs all contestants through all cells.

use std::collections::HashMap;
use std::time::Duration;

use super::rows::Cell;
use super::{Contestant, Flavor, Load, Row, round_trip};
use crate::{BenchError, Progress, interleaved};

/// Below this number of messages a sample is not shortened further.
const MESSAGES_MIN: u64 = 1_000;
/// So few messages take less than a millisecond, in which one wake-up of a thread more or less decides:
/// of such there are more samples, of all contestants alike.
const MESSAGES_SHORT: u64 = 1_000;
const MORE_ROUNDS: usize = 7;

/// A shape of load that contestants are compared in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, clap::ValueEnum)]
pub enum Group {
    /// One producer, one topic, one consumer.
    Pair,
    /// One producer, one topic, 8 or 64 consumers.
    FanOut,
    /// One producer, 64 or 1,024 topics in turn, a consumer for each.
    Topics,
    /// Four producers, one topic, one consumer.
    Producers,
    /// There and back, one at a time.
    Latency,
    /// A pair alone, and beside a subscriber that never takes anything.
    Stuck,
    /// A publish to one topic, and in turn to 10,000 with 10,000 filters.
    Crowd,
}

impl Group {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Pair,
        Self::FanOut,
        Self::Topics,
        Self::Producers,
        Self::Latency,
        Self::Stuck,
        Self::Crowd,
    ];

    /// As the rows name it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pair => "pair",
            Self::FanOut => "fan-out",
            Self::Topics => "topics",
            Self::Producers => "producers",
            Self::Latency => "latency",
            Self::Stuck => "stuck",
            Self::Crowd => "crowd",
        }
    }

    fn contestants(self) -> Vec<Box<dyn Contestant>> {
        let mut all = super::millrun::pair();
        all.extend(super::maiko::brokered());
        match self {
            Self::Pair | Self::Producers => {
                all.extend(super::actix::direct());
                all.extend(super::ractor::direct());
                all.extend(super::kameo::direct());
                all.extend(super::channel::direct());
            }
            Self::FanOut => {
                all.extend(super::ractor_groups::brokered());
                all.extend(super::kameo_pubsub::fan_out());
                all.extend(super::channel::fan_out());
            }
            Self::Topics => {
                all.extend(super::ractor_groups::brokered());
                all.extend(super::ractor::direct());
                all.extend(super::kameo::direct());
                all.extend(super::channel::direct());
            }
            Self::Latency => all.clear(),
            Self::Stuck => all = super::stuck::both(),
            Self::Crowd => all = super::crowd::both(),
        }
        all
    }

    fn loads(self, effort: &Effort) -> Vec<Load> {
        let messages = effort.messages.last().copied().unwrap_or(MESSAGES_MIN);
        match self {
            Self::Pair => effort
                .messages
                .iter()
                .flat_map(|messages| {
                    effort
                        .payloads
                        .iter()
                        .map(|payload| Load::pair(*messages, *payload))
                })
                .collect(),
            Self::FanOut => [8, 64]
                .map(|subscribers| Load {
                    subscribers,
                    ..Load::pair(messages / 10, 256)
                })
                .into(),
            Self::Topics => [64, 1_024]
                .map(|topics| Load {
                    topics,
                    ..Load::pair(messages, 32)
                })
                .into(),
            Self::Producers => [32, 256]
                .map(|payload| Load {
                    producers: 4,
                    ..Load::pair(messages, payload)
                })
                .into(),
            Self::Stuck => vec![Load::pair(messages, 256)],
            Self::Crowd => vec![Load::pair(messages, 32)],
            Self::Latency => vec![Load::pair(messages / 10, 32)],
        }
    }
}

/// How much is measured.
#[derive(Clone, Debug)]
pub struct Effort {
    /// Samples per contestant and cell, besides one that is thrown away. Of a thousand messages, and
    /// beside a stuck subscriber, seven times as many are taken.
    pub rounds: usize,
    /// The numbers of messages, the largest last.
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

    /// How many samples of this load. Beside a stuck one, there is a twentieth at stake: the machine's
    /// own speed moves by more from one sample to the next.
    const fn rounds_of(&self, group: Group, load: Load) -> usize {
        if load.messages <= MESSAGES_SHORT || matches!(group, Group::Stuck) {
            self.rounds * MORE_ROUNDS
        } else {
            self.rounds
        }
    }

    /// The same cells with fewer and shorter samples, in less than a minute.
    #[must_use]
    pub fn quick() -> Self {
        Self {
            rounds: 3,
            sample_time_max: Duration::from_millis(80),
            ..Self::full()
        }
    }
}

/// One run of the suite.
#[derive(Debug)]
pub struct Contest {
    effort: Effort,
    only: Option<String>,
    /// The rates seen so far, by size of payload, to shorten the samples of the very slow.
    rates: HashMap<(Group, String, Flavor, usize), f64>,
}

impl Contest {
    /// Prepares a run of all contestants, or of the ones whose name contains `only`.
    #[must_use]
    pub fn new(effort: Effort, only: Option<String>) -> Self {
        Self {
            effort,
            only,
            rates: HashMap::new(),
        }
    }

    /// Runs these groups, on both runtimes.
    ///
    /// # Errors
    /// When a contestant loses, doubles, cuts or reorders a message, or its library fails.
    pub fn run(&mut self, groups: &[Group]) -> Result<Vec<Row>, BenchError> {
        let cells: Vec<(Flavor, Group, Load)> = Flavor::ALL
            .iter()
            .flat_map(|flavor| groups.iter().map(move |group| (*flavor, *group)))
            .flat_map(|(flavor, group)| {
                group
                    .loads(&self.effort)
                    .into_iter()
                    .map(move |load| (flavor, group, load))
            })
            .collect();
        let progress = Progress::new(cells.len() as u64);
        let mut rows = Vec::new();
        for (flavor, group, load) in cells {
            progress.running(format!(
                "{}, {}, {} messages of {} B",
                group.name(),
                flavor.name(),
                load.messages,
                load.payload_bytes
            ));
            rows.extend(match group {
                Group::Latency => self.trips(flavor, load)?,
                group => self.cell(group, flavor, load)?,
            });
            progress.step();
        }
        progress.finish();
        Ok(rows)
    }

    fn cell(&mut self, group: Group, flavor: Flavor, load: Load) -> Result<Vec<Row>, BenchError> {
        let mut contestants = group.contestants();
        contestants.retain(|contestant| self.takes_part(&contestant.identity().name()));
        let measured: Vec<Load> = contestants
            .iter()
            .map(|contestant| self.shortened(group, contestant.identity().name(), flavor, load))
            .collect();
        let samples = interleaved(contestants.len(), self.effort.rounds_of(group, load), |place| {
            let took = contestants[place].run(flavor, measured[place])?;
            Ok(measured[place].deliveries() as f64 / took.as_secs_f64())
        })?;
        let mut rows = Vec::new();
        for ((contestant, measured), rates) in contestants.iter().zip(measured).zip(&samples) {
            let identity = contestant.identity();
            let cell = Cell {
                group: group.name(),
                runtime: flavor,
                load,
                measured,
            };
            if let Some(row) = Row::new(cell, identity, rates, &[]) {
                let messages_per_s = row.median_per_s / load.subscribers as f64;
                self.rates.insert(
                    (group, identity.name(), flavor, load.payload_bytes),
                    messages_per_s,
                );
                rows.push(row);
            }
        }
        Ok(rows)
    }

    fn trips(&self, flavor: Flavor, load: Load) -> Result<Vec<Row>, BenchError> {
        let mut contestants = round_trip::all();
        contestants.retain(|contestant| self.takes_part(&contestant.identity().name()));
        let samples = interleaved(contestants.len(), self.effort.rounds, |place| {
            contestants[place].run(flavor, load.messages, load.payload_bytes)
        })?;
        let cell = Cell {
            group: Group::Latency.name(),
            runtime: flavor,
            load,
            measured: load,
        };
        Ok(contestants
            .iter()
            .zip(samples)
            .filter_map(|(contestant, laps)| {
                let (rates, trips): (Vec<_>, Vec<_>) = laps
                    .into_iter()
                    .map(|laps| (load.messages as f64 / laps.elapsed.as_secs_f64(), laps.nanos))
                    .unzip();
                Row::new(cell, contestant.identity(), &rates, &trips)
            })
            .collect())
    }

    fn takes_part(&self, name: &str) -> bool {
        self.only.as_ref().is_none_or(|only| name.contains(only.as_str()))
    }

    /// The load, with as many messages as fit the time for a sample.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a count of messages, and float casts saturate"
    )]
    fn shortened(&self, group: Group, name: String, flavor: Flavor, load: Load) -> Load {
        let Some(rate) = self.rates.get(&(group, name, flavor, load.payload_bytes)) else {
            return load;
        };
        let fitting = (rate * self.effort.sample_time_max.as_secs_f64()) as u64;
        Load {
            messages: load.messages.min(fitting.max(MESSAGES_MIN)),
            ..load
        }
    }
}
