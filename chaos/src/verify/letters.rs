//! The records of the durable topics, read by a runtime that has no programs: what lives in the store stays as it is.

use std::error::Error;
use std::path::Path;
use std::time::Duration;

use millrun::topics::ReadFrom;

use super::SeenLetter;
use crate::programs::{self, LETTERS, Letter, REPLIES};

/// All of them, in the order of each topic.
///
/// # Errors
/// When the store cannot be opened, or a record not be read.
pub(super) async fn all(store: &Path) -> Result<Vec<SeenLetter>, Box<dyn Error>> {
    let builder = programs::at(store).configure(|config| config.journal.retention.age_max = Duration::MAX);
    let runtime = builder
        .durable_topic(LETTERS)
        .durable_topic(REPLIES)
        .start()
        .await?;
    let mut letters = Vec::new();
    for (topic, is_reply) in [(LETTERS, false), (REPLIES, true)] {
        let topic = runtime.durable_topic(topic)?;
        let mut reader = topic.read(ReadFrom::Beginning).await?;
        while let Some(record) = reader.next_encoded_now().await? {
            let letter: Letter = record.payload().decode()?;
            letters.push(SeenLetter {
                is_reply,
                sequence: record.token().sequence().get(),
                key: record.key().map(str::to_owned),
                value: letter.value,
            });
        }
    }
    runtime.shutdown().await?;
    Ok(letters)
}
