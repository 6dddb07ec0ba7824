//! Which faults a round has, and on what kind of runtime.

use crate::check::Licence;
use crate::dice::Dice;
use crate::load::{Load, Mix};

/// The faults of a round.
#[derive(Clone, Debug)]
pub(crate) struct Weather {
    pub(crate) name: &'static str,
    pub(crate) load: Load,
    pub(crate) shards_len: usize,
    pub(crate) hot_len_max: usize,
    /// The least and the most milliseconds between two kills of parts.
    pub(crate) part_kill_every_ms: Option<(u64, u64)>,
    /// The same between two ends of the process.
    pub(crate) process_end_every_ms: Option<(u64, u64)>,
    pub(crate) is_clock_moved: bool,
    pub(crate) is_disk_troubled: bool,
    /// The file is taken from the process that has it open, and put back when that has ended.
    pub(crate) is_file_taken: bool,
    /// How many instances are started at once, in place of stories, with half of the callers dropped.
    pub(crate) crowd: Option<u32>,
}

impl Weather {
    /// What these faults allow.
    pub(crate) fn licence(&self) -> Licence {
        Licence {
            is_clock_moved: self.is_clock_moved,
            are_parts_killed: self.part_kill_every_ms.is_some(),
        }
    }
}

/// The kinds of weather.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Forecast {
    /// Parts are killed while families and counters work.
    Parts,
    /// The process is killed.
    Process,
    /// The clock is moved, and the process killed.
    Clock,
    /// The disk is full or fails.
    Disk,
    /// The file is moved away or replaced under an open store.
    Taken,
    /// Everything at once.
    Storm,
    /// Very many starts at once, with half of the callers dropped.
    Crowd,
}

impl Forecast {
    /// As on the command line.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Parts => "parts",
            Self::Process => "process",
            Self::Clock => "clock",
            Self::Disk => "disk",
            Self::Taken => "taken",
            Self::Storm => "storm",
            Self::Crowd => "crowd",
        }
    }

    pub(crate) const ALL: [Self; 7] = [
        Self::Parts,
        Self::Process,
        Self::Clock,
        Self::Disk,
        Self::Taken,
        Self::Storm,
        Self::Crowd,
    ];

    /// The weather, with what the dice choose.
    pub(crate) fn weather(self, crowd: u32, dice: &mut Dice) -> Weather {
        let calm = Weather {
            name: self.name(),
            load: Load {
                stories: 80,
                drop_one_in: 20,
                mix: Mix::Everything,
            },
            shards_len: *dice.pick(&[1, 1, 2, 3]),
            hot_len_max: *dice.pick(&[0, 20, 100_000]),
            part_kill_every_ms: None,
            process_end_every_ms: None,
            is_clock_moved: false,
            is_disk_troubled: false,
            is_file_taken: false,
            crowd: None,
        };
        let kills = *dice.pick(&[(2, 60), (2, 12), (20, 60)]);
        match self {
            Self::Parts => Weather {
                load: Load {
                    mix: if dice.one_in(2) {
                        Mix::Families
                    } else {
                        Mix::Everything
                    },
                    ..calm.load
                },
                part_kill_every_ms: Some(kills),
                ..calm
            },
            Self::Process => Weather {
                process_end_every_ms: Some((20, 600)),
                ..calm
            },
            Self::Clock => Weather {
                process_end_every_ms: Some((200, 2_000)),
                is_clock_moved: true,
                ..calm
            },
            Self::Disk => Weather {
                is_disk_troubled: true,
                ..calm
            },
            Self::Taken => Weather {
                process_end_every_ms: Some((300, 1_500)),
                is_file_taken: true,
                ..calm
            },
            Self::Storm => Weather {
                part_kill_every_ms: Some(kills),
                process_end_every_ms: Some((200, 3_000)),
                is_clock_moved: true,
                is_disk_troubled: true,
                ..calm
            },
            Self::Crowd => Weather {
                crowd: Some(crowd),
                ..calm
            },
        }
    }
}
