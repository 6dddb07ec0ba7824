//! The records of the durable topics, and what was entered in tills, read by a runtime that has no programs: what lives in the
//! store stays as it is.

use std::error::Error;
use std::path::Path;
use std::time::Duration;

use millrun::Runtime;
use millrun::topics::{ReadFrom, UndeliveredRecord};

use super::{SeenLetter, SeenRecords};
use crate::programs::{self, DEAD, ENTERED, LETTERS, Letter, REPLIES, TILL};

/// All of them, in the order of each topic.
///
/// # Errors
/// When the store cannot be opened, or a record or a till not be read.
pub(super) async fn all(store: &Path) -> Result<SeenRecords, Box<dyn Error>> {
    let builder = programs::at(store).configure(|config| config.journal.retention.age_max = Duration::MAX);
    let runtime = builder
        .durable_topic(LETTERS)
        .durable_topic(REPLIES)
        .durable_topic(DEAD)
        .entity(programs::till())
        .start()
        .await?;
    let mut seen = SeenRecords::default();
    for (topic, is_reply) in [(LETTERS, false), (REPLIES, true)] {
        let topic = runtime.durable_topic(topic)?;
        let mut reader = topic.read(ReadFrom::Beginning).await?;
        while let Some(record) = reader.next_encoded_now().await? {
            let letter: Letter = record.payload().decode()?;
            seen.letters.push(SeenLetter {
                is_reply,
                sequence: record.token().sequence().get(),
                key: record.key().map(str::to_owned),
                value: letter.value,
                stems_from: record.stems_from().map(|token| token.sequence().get()),
            });
        }
    }
    let mut reader = runtime.durable_topic(DEAD)?.read(ReadFrom::Beginning).await?;
    while let Some(record) = reader.next_encoded_now().await? {
        let undelivered: UndeliveredRecord = record.payload().decode()?;
        seen.dead.push(undelivered.token.sequence().get());
    }
    seen.entered = entered(&runtime).await?;
    runtime.shutdown().await?;
    Ok(seen)
}

/// The numbers that were entered in each till.
async fn entered(runtime: &Runtime) -> Result<Vec<(String, Vec<u64>)>, Box<dyn Error>> {
    const PAGE: usize = 1_000;
    let (mut entered, mut after) = (Vec::new(), None);
    loop {
        let page = runtime.entities(TILL).page(after, PAGE).await?;
        for key in page.keys {
            let numbers = runtime.entity(TILL, &key).read(ENTERED, ()).await?;
            entered.push((TILL.id_of(&key), numbers));
        }
        after = page.next;
        if after.is_none() {
            return Ok(entered);
        }
    }
}
