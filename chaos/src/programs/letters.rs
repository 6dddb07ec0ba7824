//! The program that takes records of a durable topic.

use millrun::{WorkflowContext, WorkflowError};
use serde::{Deserialize, Serialize};

use super::{Input, LETTERS, ProgramResult, REPLIES};

/// What the records of both durable topics carry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Letter {
    /// The postman's instance, which is the key, too.
    pub(crate) to: String,
    pub(crate) value: u64,
}

/// The instance to which the trigger hands a postman's letters as notes.
pub(crate) fn mailbox_of(postman: &str) -> String {
    format!("mailbox.{postman}")
}

/// Takes letters with its id as their key, one behind the other, and replies to each.
pub(crate) async fn postman(cx: WorkflowContext, input: Input) -> Result<ProgramResult, WorkflowError> {
    let mut outcome = ProgramResult::default();
    for _ in 0..input.len {
        let letter = cx.receive_from(LETTERS).key(input.id.as_str()).await?;
        let letter = letter.into_payload();
        outcome.notes.push(letter.value);
        cx.publish(REPLIES, letter).await?;
    }
    Ok(outcome)
}
