//! Programs that deal with topics, promises and time.

use std::time::Duration;

use millrun::workflow::{Either, PublishOutcome, PublishStepError};
use millrun::{PromiseError, WorkflowContext, WorkflowError};

use super::{Input, NowUs, PARCELS, Parcel, ProgramResult, Sheet, TELL};

/// The longest timer that wins its race.
pub(crate) const SLEEP_MS_MAX: u64 = 20;
/// A timer that always loses its race.
const LONG: Duration = Duration::from_secs(365 * 86_400);

/// The value of a parcel: different for each courier and each number.
pub(crate) fn parcel_value(id: &str, number: u32) -> u64 {
    // FNV-1a, over the id and the number.
    let bytes = id.bytes().chain(number.to_le_bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// Publishes values one after the other, and keeps what it was told of each, and by which process.
pub(crate) async fn courier(
    cx: WorkflowContext,
    input: Input,
    life: u64,
) -> Result<ProgramResult, WorkflowError> {
    let mut outcome = ProgramResult::default();
    for number in 0..input.len {
        let value = parcel_value(&input.id, number);
        let failure = match cx.publish(PARCELS, value).await {
            Ok(PublishOutcome::Taken) => None,
            Ok(PublishOutcome::Unknown) => Some("not known".into()),
            Err(PublishStepError::Cancelled(cancelled)) => return Err(cancelled.into()),
            Err(error) => Some(error.to_string()),
        };
        let life = cx.record(move || life).await?;
        outcome.parcels.push(Parcel { value, failure, life });
        cx.sleep(Duration::from_millis(cx.random() % 5)).await?;
    }
    Ok(outcome)
}

/// Makes a promise, tells the world about it, and waits until it is settled.
pub(crate) async fn asker(cx: WorkflowContext, input: Input) -> Result<ProgramResult, WorkflowError> {
    let promise = cx.promise::<u64>();
    cx.call(TELL, (input.id, promise.token().to_string())).await?;
    let promised = match promise.await {
        Ok(value) => Some(value),
        Err(PromiseError::Cancelled(cancelled)) => return Err(cancelled.into()),
        Err(error) => return Err(error.into()),
    };
    Ok(ProgramResult {
        promised,
        ..ProgramResult::default()
    })
}

/// Timers one after the other, each in a race with a longer one. Records the host's time before each, so that
/// the history says from when a timer should count.
pub(crate) async fn sleeper(
    cx: WorkflowContext,
    input: Input,
    now: NowUs,
) -> Result<ProgramResult, WorkflowError> {
    let sheet = cx.state(Sheet::default());
    let mut early_us = 0;
    for _ in 0..input.len {
        let began = cx.now();
        sheet.change(|sheet| sheet.see(began));
        let pause = Duration::from_millis(cx.random() % SLEEP_MS_MAX);
        cx.record(|| now()).await?;
        match cx.race(cx.sleep(pause), cx.sleep(LONG)).await {
            Either::Left(rung) | Either::Right(rung) => rung?,
        }
        let ended = cx.now();
        sheet.change(|sheet| sheet.see(ended));
        let due = began + pause;
        early_us = early_us.max(due.as_micros().saturating_sub(ended.as_micros()));
    }
    Ok(ProgramResult {
        early_us,
        ..sheet.read(Sheet::outcome)
    })
}
