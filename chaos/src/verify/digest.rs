//! From a history to what it says.

use std::collections::BTreeSet;
use std::error::Error;
use std::io::Write;

use millrun::Limits;
use millrun::operating::ParkReason;
use millrun::store::Sequence;
use millrun_persistence::{History, Record};
use millrun_workflow::{
    Checkpoint, Event, Implementation, Instance, KeptBeginning, Ledger, OperationId, wire,
};

use super::{End, Seen};
use crate::programs::{Kind, NOTE, SLEEP_MS_MAX, Sheet, TILL};

/// Reads and replays a history.
///
/// # Errors
/// When a record is no event.
pub(super) fn of(history: &History, implementations: &[Implementation]) -> Result<Seen, Box<dyn Error>> {
    let mut seen = Seen {
        id: history.id.to_string(),
        run: history.run.to_string(),
        events: history.records.len() as u64,
        ..Seen::default()
    };
    let mut events = Vec::with_capacity(history.records.len());
    let mut ended = BTreeSet::new();
    let mut workflow = String::new();
    let mut host_now = 0;
    let kept = history
        .trimmed
        .as_ref()
        .map(|trimmed| KeptBeginning::decode(&trimmed.kept));
    let kept = kept.transpose()?;
    if let Some(kept) = &kept {
        take_kept(kept.ledger(), &mut seen)?;
        let started = kept.ledger().started().ok_or("what is kept has no beginning")?;
        workflow = started.workflow.to_string();
    }
    let from = kept.as_ref().map_or(Sequence::ZERO, KeptBeginning::sequence);
    for record in &history.records {
        let event = decode(record, history)?;
        if record.sequence <= from {
            if let Event::Checkpointed(checkpoint) = &event
                && workflow != TILL.name()
            {
                take_checkpoint(checkpoint, &mut seen)?;
            }
            continue;
        }
        if let Event::Started(started) = &event {
            workflow = started.workflow.to_string();
        }
        if let Some(operation) = ends(&event)
            && !ended.insert(operation)
        {
            seen.doubled.push(format!(
                "operation {operation} ended twice, again with {}",
                event.label()
            ));
        }
        take(&event, &mut seen)?;
        if workflow == Kind::Sleeper.name() {
            timed(&event, &mut host_now, &mut seen)?;
        }
        events.push((event, record.time));
    }
    let code = implementations.iter().find(|code| code.name() == workflow);
    let replayed = match kept {
        Some(kept) => Instance::replay_kept(code, history.run, kept, events, Limits::default()),
        None => Instance::replay(code, history.run, events, Limits::default()),
    };
    seen.difference = match replayed {
        Ok(instance) => match instance.park_reason() {
            None | Some(ParkReason::Paused { .. }) => None,
            Some(reason) => Some(reason.to_string()),
        },
        Err(error) => Some(error.to_string()),
    };
    Ok(seen)
}

/// What was kept of the events before a checkpoint, of what callers were told.
fn take_kept(ledger: &Ledger, seen: &mut Seen) -> Result<(), Box<dyn Error>> {
    if let Some(started) = ledger.started() {
        take(&Event::Started(started.clone()), seen)?;
    }
    for (request, answer) in ledger.answered_updates() {
        seen.accepted.push(request.to_owned());
        if let Ok(answer) = answer {
            seen.answers.push((request.to_owned(), answer.decode()?));
        }
    }
    Ok(())
}

/// The notes that a keeper has taken up to its checkpoint, and those that it has not.
fn take_checkpoint(checkpoint: &Checkpoint, seen: &mut Seen) -> Result<(), Box<dyn Error>> {
    let sheet: Sheet = checkpoint.state.decode()?;
    seen.notes = sheet.notes().to_vec();
    for (name, value) in &checkpoint.signals {
        if *name == NOTE.name() {
            seen.notes.push(value.decode()?);
        }
    }
    Ok(())
}

fn decode(record: &Record, history: &History) -> Result<Event, Box<dyn Error>> {
    let opens = (record.sequence.get() == 1).then_some(history.id.as_str());
    Ok(wire::decode(record.kind, &record.body, opens)?)
}

/// The operation that this event ends.
fn ends(event: &Event) -> Option<OperationId> {
    match event {
        Event::ActivityCompleted { operation, .. }
        | Event::ActivityFailed { operation, .. }
        | Event::TimerFired { operation }
        | Event::ChildEnded { operation, .. }
        | Event::Published { operation, .. }
        | Event::SignalSent { operation, .. }
        | Event::PromiseSettled { operation, .. } => Some(*operation),
        _ => None,
    }
}

/// What an event adds to what is seen.
fn take(event: &Event, seen: &mut Seen) -> Result<(), Box<dyn Error>> {
    match event {
        Event::Started(started) => {
            let Some(origin) = &started.origin else {
                return Ok(());
            };
            seen.continues = origin.continued.map(|run| run.to_string());
            if origin.continued.is_none() {
                for (_, value) in &origin.signals {
                    seen.notes.push(value.decode()?);
                }
            }
        }
        Event::SignalReceived { name, value, .. } if *name == NOTE.name() => seen.notes.push(value.decode()?),
        Event::UpdateAccepted { request, .. } => seen.accepted.push(request.clone()),
        Event::UpdateAnswered {
            request,
            answer: Ok(answer),
        } => seen.answers.push((request.clone(), answer.decode()?)),
        Event::CommandPerformed(performed) => {
            if let Some(request) = &performed.request {
                seen.accepted.push(request.to_string());
                seen.answers
                    .push((request.to_string(), performed.answer.decode()?));
            }
        }
        Event::Parked { reason } if !matches!(reason, ParkReason::Paused { .. }) => {
            seen.parked.push(reason.to_string());
        }
        Event::Completed { result } => seen.end = Some(End::Completed(result.decode()?)),
        Event::Failed { error } => seen.end = Some(End::Failed(format!("{error:?}"))),
        Event::Cancelled { .. } => seen.end = Some(End::Cancelled),
        Event::Terminated { reason } => seen.end = Some(End::Terminated(reason.clone())),
        Event::ContinuedAsNew { run, .. } | Event::Reset { run, .. } => {
            seen.end = Some(End::Continued(run.to_string()))
        }
        _ => {}
    }
    Ok(())
}

/// Compares the deadline of a sleeper's timer with the host's time that it recorded before. The longer timer,
/// which comes behind, is left out.
fn timed(event: &Event, host_now: &mut u64, seen: &mut Seen) -> Result<(), Box<dyn Error>> {
    match event {
        Event::ValueRecorded { value: Ok(value), .. } => *host_now = value.decode()?,
        Event::TimerStarted { deadline, .. } if *host_now > 0 => {
            let latest = std::mem::take(host_now) + SLEEP_MS_MAX * 1_000;
            seen.too_far_us = seen.too_far_us.max(deadline.as_micros().saturating_sub(latest));
        }
        _ => {}
    }
    Ok(())
}

/// Prints a history for people.
///
/// # Errors
/// When a record is no event, or nobody reads.
pub(super) fn tell(history: &History, out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    writeln!(out, "{} run {}", history.id, history.run)?;
    for record in &history.records {
        let event = decode(record, history)?;
        writeln!(
            out,
            "  {:>5}  {}  {event:?}",
            record.sequence.get(),
            record.time.as_micros()
        )?;
    }
    Ok(())
}
