//! From a history to what it says.

use std::collections::BTreeSet;
use std::error::Error;
use std::io::Write;

use millrun::Limits;
use millrun::operating::ParkReason;
use millrun_persistence::{History, Record};
use millrun_workflow::{Event, Implementation, Instance, OperationId, wire};

use super::{End, Seen};
use crate::programs::{Kind, NOTE, SLEEP_MS_MAX};

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
    for record in &history.records {
        let event = decode(record, history)?;
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
    seen.difference = match Instance::replay(code, history.run, events, Limits::default()) {
        Ok(instance) => match instance.park_reason() {
            None | Some(ParkReason::Paused { .. }) => None,
            Some(reason) => Some(reason.to_string()),
        },
        Err(error) => Some(error.to_string()),
    };
    Ok(seen)
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
        Event::Parked { reason } if !matches!(reason, ParkReason::Paused { .. }) => {
            seen.parked.push(reason.to_string());
        }
        Event::Completed { result } => seen.end = Some(End::Completed(result.decode()?)),
        Event::Failed { error } => seen.end = Some(End::Failed(format!("{error:?}"))),
        Event::Cancelled { .. } => seen.end = Some(End::Cancelled),
        Event::Terminated { reason } => seen.end = Some(End::Terminated(reason.clone())),
        Event::ContinuedAsNew { run, .. } => seen.end = Some(End::Continued(run.to_string())),
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
