//! A history as a file.

use std::error::Error;

use http_body_util::BodyExt as _;
use millrun::history::{ExportedHistory, Redaction};

use super::error::ClientError;
use super::wire::{Ask, Client, broken};
use crate::outcome::Outcome;
use crate::output::write;

/// Prints all of a run's history, without the fields at these paths.
pub(super) async fn export(client: &Client, run: &str, hidden: &[String]) -> Result<Outcome, Box<dyn Error>> {
    let redaction = Redaction::of(hidden).map_err(|error| ClientError::Usage(error.to_string()))?;
    let ask = Ask {
        operation: "export_history",
        value: run,
        ..Ask::default()
    };
    let mut body = client.stream(ask).await?;
    let mut text = Vec::new();
    while let Some(frame) = body.frame().await {
        let bytes = frame
            .map_err(|error| broken(&error))?
            .into_data()
            .unwrap_or_default();
        match hidden {
            [] => write(&bytes)?,
            // Fields are looked for in whole lines.
            _ => text.extend_from_slice(&bytes),
        }
    }
    if !hidden.is_empty() {
        let text = String::from_utf8(text).map_err(|_| ClientError::Answer("it is no UTF-8".to_owned()))?;
        let history: ExportedHistory = text.parse()?;
        write(history.redacted(&redaction.keeping_kinds()).as_bytes())?;
    }
    Ok(Outcome::Complete)
}
