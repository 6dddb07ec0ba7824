//! Programs whose steps leave marks in the ledger.

use std::time::Duration;

use millrun::{Retry, WorkflowContext, WorkflowError};
use serde::{Deserialize, Serialize};

use super::{EFFECT, Input, ProgramResult, Sheet};

/// The longest pause between two steps.
const PAUSE_MS_MAX: u64 = 12;
/// The longest time that an attempt takes after it has left its mark.
const LINGER_MS_MAX: u64 = 8;

/// One step, which is shown what the steps before it gave.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Effect {
    pub(crate) id: String,
    pub(crate) step: u32,
    pub(crate) earlier: Vec<u64>,
}

/// Activities one after the other, with pauses between them. Gives their tokens.
pub(super) async fn in_sequence(cx: &WorkflowContext, input: &Input) -> Result<Vec<u64>, WorkflowError> {
    let mut tokens = Vec::new();
    for step in 0..input.len {
        if step > 0 {
            let pause = cx.random() % PAUSE_MS_MAX;
            cx.sleep(Duration::from_millis(pause)).await?;
        }
        let effect = Effect {
            id: input.id.clone(),
            step,
            earlier: tokens.clone(),
        };
        let retry = Retry::exponential().first_pause(Duration::from_millis(5));
        tokens.push(cx.call(EFFECT, effect).retry(retry).await?);
    }
    Ok(tokens)
}

/// Keeps an attempt from ending at once, in three of four cases.
pub(super) async fn linger(token: u64) {
    if !token.is_multiple_of(4) {
        let pause = Duration::from_millis(token % LINGER_MS_MAX);
        tokio::time::sleep(pause).await;
    }
}

/// Steps, with a value taken from the world between them.
pub(crate) async fn steps(cx: WorkflowContext, input: Input) -> Result<ProgramResult, WorkflowError> {
    let sheet = cx.state(Sheet::default());
    let begun = cx.record(|| 1_u64).await?;
    let tokens = in_sequence(&cx, &input).await?;
    let now = cx.now();
    sheet.change(|sheet| {
        sheet.see(now);
        sheet.note(begun);
    });
    Ok(ProgramResult {
        tokens,
        ..sheet.read(Sheet::outcome)
    })
}

/// One step.
pub(crate) async fn pebble(cx: WorkflowContext, input: Input) -> Result<ProgramResult, WorkflowError> {
    let tokens = in_sequence(&cx, &Input { len: 1, ..input }).await?;
    Ok(ProgramResult {
        tokens,
        ..ProgramResult::default()
    })
}
