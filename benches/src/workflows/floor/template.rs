//! The bytes of a one-step run, as the runtime writes them.
//!
//! A run whose number is [`FIRST`] is made by the runtime and read back from its store. Every other run of
//! the floor has the same bytes but for its run id, time, instance id and number; numbers have as many digits
//! in each of them, so that nothing changes its length.

use std::convert::Infallible;
use std::path::Path;
use std::sync::Arc;

use millrun::Runtime;
use millrun_core::{Epoch, Host, InstanceId, Partition, RunId, Sequence, Timestamp};
use millrun_persistence::floor::TurnTemplate;
use millrun_persistence::{Batch, Journal, JournalConfig, Reads, Record, RedbJournal, TurnHeader};

use super::super::{ONE_STEP, registered};
use crate::BenchError;

/// The least number of a run.
const FIRST: u32 = 1_000_000;
/// One more than the greatest: the number and the next have seven digits.
const END: u32 = 9_999_999;
const DIGITS: usize = 7;
/// The prefix of each instance's id, the same as in the other workloads; digits follow.
const PREFIX: &[u8] = b"run-";
const ID_BYTES: usize = PREFIX.len() + DIGITS;

/// The number of the floor's `run`-th run; `None` if it would be longer than the first.
pub(super) fn numbered(run: u32) -> Option<u32> {
    FIRST.checked_add(run).filter(|number| *number < END)
}

/// The two turns of a run.
pub(super) struct Template {
    begins: Turn,
    ends: Turn,
}

/// The frames of a turn, and where numbers stand in them.
struct Turn {
    frames: TurnTemplate,
    id: Option<usize>,
    numbers: Vec<usize>,
}

impl Template {
    /// Has the runtime make a run in a new store at `path`, and reads it.
    pub(super) async fn learned(
        path: &Path,
        is_sealed: bool,
        host: &Arc<dyn Host>,
    ) -> Result<Self, BenchError> {
        let (id, records) = recorded(path, FIRST, host).await?;
        let (begins, ends) = records.split_at_checked(2).ok_or_else(|| unexpected("events"))?;
        if ends.len() != 2 || !ends[1].closes {
            return Err(unexpected("events"));
        }
        Ok(Self {
            begins: Turn::of(begins, Some(&id), FIRST, is_sealed)?,
            ends: Turn::of(ends, None, FIRST + 1, is_sealed)?,
        })
    }

    /// Appends the first turn of a run; gives its id.
    pub(super) fn begin(&self, log: &mut Vec<u8>, number: u32, time: Timestamp) -> RunId {
        let id = instance_id(number);
        let run = RunId::new(Partition::of(&id), time, u64::from(number));
        let Turn {
            frames,
            id: at,
            numbers,
        } = &self.begins;
        frames.put(log, (run, time), None, |turn| {
            if let Some(at) = *at {
                turn[at..at + ID_BYTES].copy_from_slice(&id);
            }
            fill(turn, numbers, number);
        });
        run
    }

    /// Appends the second turn of a run, whose first stands at `back`.
    pub(super) fn end(&self, log: &mut Vec<u8>, (run, back): (RunId, u64), result: u32, time: Timestamp) {
        let Turn { frames, numbers, .. } = &self.ends;
        frames.put(log, (run, time), Some(back), |turn| fill(turn, numbers, result));
    }
}

impl Turn {
    fn of(
        records: &[Record],
        opens: Option<&InstanceId>,
        number: u32,
        is_sealed: bool,
    ) -> Result<Self, BenchError> {
        let run = RunId::new(Partition::of(&instance_id(FIRST)), Timestamp::EPOCH, 0);
        let mut batch = Batch::new();
        let mut turn = batch.turn(TurnHeader {
            run,
            head: Sequence::new(records[0].sequence.get() - 1),
            epoch: Epoch::new(1),
            time: Timestamp::EPOCH,
            opens,
        });
        for record in records {
            let body = |bytes: &mut Vec<u8>| {
                bytes.extend_from_slice(&record.body);
                Ok::<_, Infallible>(())
            };
            let Ok(()) = turn.record(record.kind, body);
        }
        let closes = records.iter().any(|record| record.closes);
        turn.finish(closes)
            .map_err(|error| BenchError::failed("floor", error))?;
        let frames = TurnTemplate::new(&batch, is_sealed);
        let id = opens
            .map(|id| places(frames.bytes(), id.as_str().as_bytes()))
            .map(|places| places.first().copied().ok_or_else(|| unexpected("ids")))
            .transpose()?;
        let numbers: Vec<_> = places(frames.bytes(), &encoded(number))
            .into_iter()
            .map(|at| at + 1)
            .collect();
        if numbers.len() != 2 {
            return Err(unexpected("numbers"));
        }
        Ok(Self { frames, id, numbers })
    }
}

/// The id and the records of a one-step run that the runtime makes in a new store.
pub(super) async fn recorded(
    path: &Path,
    number: u32,
    host: &Arc<dyn Host>,
) -> Result<(InstanceId, Vec<Record>), BenchError> {
    fn failed(error: impl std::fmt::Display) -> BenchError {
        BenchError::failed("floor", error)
    }
    let id = String::from_utf8_lossy(&instance_id(number)).into_owned();
    let runtime = registered(Runtime::open(path)).start().await.map_err(failed)?;
    let run = runtime
        .start(ONE_STEP, &id, u64::from(number))
        .await
        .map_err(failed)?;
    run.result().await.map_err(failed)?;
    runtime.shutdown().await.map_err(failed)?;
    let id = InstanceId::new(&id).map_err(failed)?;
    let journal = RedbJournal::open(path, JournalConfig::default(), Arc::clone(host)).map_err(failed)?;
    let run = journal
        .finished(&id)
        .map_err(failed)?
        .ok_or_else(|| unexpected("runs"))?;
    let history = journal.history(run.run).map_err(failed)?;
    journal.close().map_err(failed)?;
    Ok((id, history.records))
}

pub(super) fn instance_id(number: u32) -> [u8; ID_BYTES] {
    let mut id = [0; ID_BYTES];
    id[..PREFIX.len()].copy_from_slice(PREFIX);
    let mut rest = number;
    for digit in id[PREFIX.len()..].iter_mut().rev() {
        *digit = b'0' + u8::try_from(rest % 10).expect("a digit is small");
        rest /= 10;
    }
    id
}

/// A number as MessagePack, which is what events hold.
fn encoded(number: u32) -> [u8; 5] {
    let [a, b, c, d] = number.to_be_bytes();
    [0xce, a, b, c, d]
}

fn fill(turn: &mut [u8], places: &[usize], number: u32) {
    for at in places {
        turn[*at..*at + 4].copy_from_slice(&number.to_be_bytes());
    }
}

/// Where `wanted` stands in `bytes`.
fn places(bytes: &[u8], wanted: &[u8]) -> Vec<usize> {
    let windows = bytes.windows(wanted.len()).enumerate();
    windows
        .filter(|(_, window)| *window == wanted)
        .map(|(at, _)| at)
        .collect()
}

fn unexpected(what: &str) -> BenchError {
    let cause =
        format!("a one-step run does not have the {what} that the floor knows: bring the floor up to date");
    BenchError::failed("floor", cause)
}
