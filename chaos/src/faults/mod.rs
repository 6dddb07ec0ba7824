//! What is broken while the callers work.
//!
//! ```text
//!   weather ──► parts      killed every few milliseconds, in bursts
//!           ├─► process    SIGKILL, and an orderly restart now and then
//!           ├─► clock      forward and back, between processes and within one
//!           └─► disk       full for a while, writes and syncs that fail
//! ```

mod weather;

use std::sync::Arc;
use std::time::Duration;

pub(crate) use weather::{Forecast, Weather};

use crate::dice::Dice;
use crate::supervisor::desk::Desk;
use crate::wire::{Answer, Ask, Trouble};

/// The caller's number of whatever breaks things.
const NOBODY: u32 = u32::MAX;

/// Kills parts, in bursts with pauses in which work gets done. Ends with the desk.
pub(crate) async fn kill_parts(desk: &Arc<Desk>, weather: &Weather, mut dice: Dice) {
    let Some((least, most)) = weather.part_kill_every_ms else {
        return;
    };
    const BURST_MAX: u64 = 60;
    const REST_MS_MAX: u64 = 300;
    while !desk.is_closing() {
        for _ in 0..dice.between(1, BURST_MAX) {
            let part = match dice.below(100) {
                0..70 => format!("shard {}", dice.below(weather.shards_len as u64)),
                70..85 => format!("reader {}", dice.below(4)),
                85..93 => "pool default".into(),
                93..98 => "pool errands".into(),
                _ => "watcher".into(),
            };
            desk.ask(NOBODY, &Ask::Kill { part }, None).await;
            tokio::time::sleep(Duration::from_millis(dice.between(least, most))).await;
            if desk.is_closing() {
                return;
            }
        }
        tokio::time::sleep(Duration::from_millis(dice.below(REST_MS_MAX))).await;
    }
}

/// Sets the clock of the running process forward and back.
pub(crate) async fn move_clock(desk: &Arc<Desk>, weather: &Weather, mut dice: Dice) {
    while weather.is_clock_moved && !desk.is_closing() {
        tokio::time::sleep(Duration::from_millis(dice.between(50, 800))).await;
        let by = i64::try_from(dice.between(1, 5_000)).expect("a few seconds fit");
        let by_ms = if dice.one_in(2) { by } else { -by };
        desk.ask(NOBODY, &Ask::MoveClock { by_ms }, None).await;
    }
}

/// Lets the disk fail for a while, and be well again.
pub(crate) async fn trouble_disk(desk: &Arc<Desk>, weather: &Weather, mut dice: Dice) {
    while weather.is_disk_troubled && !desk.is_closing() {
        tokio::time::sleep(Duration::from_millis(dice.between(200, 1_200))).await;
        let trouble = match dice.below(4) {
            0 | 1 => Trouble::Full,
            2 => Trouble::Writes {
                one_in: dice.between(1, 40),
            },
            _ => Trouble::Syncs {
                one_in: dice.between(1, 10),
            },
        };
        desk.ask(NOBODY, &Ask::Disk { trouble }, None).await;
        tokio::time::sleep(Duration::from_millis(dice.between(10, 300))).await;
        desk.ask(
            NOBODY,
            &Ask::Disk {
                trouble: Trouble::None,
            },
            None,
        )
        .await;
    }
}

/// Asks again and again how far the subscription is, so that missing values can be told from late ones.
pub(crate) async fn fence(desk: &Arc<Desk>) {
    while !desk.is_closing() {
        tokio::time::sleep(Duration::from_millis(150)).await;
        desk.ask(NOBODY, &Ask::Fence, None).await;
    }
}

/// Asks something of the worker itself that is about no instance.
pub(crate) async fn ask(desk: &Arc<Desk>, ask: &Ask) -> Answer {
    desk.ask(NOBODY, ask, None).await
}
