//! Gathers what is outstanding in a history, without decoding the rest.
//!
//! ```text
//!   record ─► kind, number of the operation ─► begins: its bytes are kept
//!                                              ends:   they are let go of
//!                                              else:   not looked at
//!   at the end: the bytes that are left ─► events ─► Ledger
//! ```
//!
//! If a history was trimmed, its [kept beginning](crate::KeptBeginning) says what is outstanding of the removed part.
//!
//! Opening a store reads the records of all runs, and nearly all of these concern operations that have ended. Such records
//! are not decoded here; an error in one that its checksum does not show is only found when the run is replayed.

use bytes::Bytes;
use millrun_core::{Sequence, Timestamp};

use crate::event::{Event, EventError};
use crate::operations::Operations;
use crate::wire::{Bearing, bearing, decode_kept};
use crate::{Ledger, wire};

/// Up to these sizes, memory is reused: a million runs may have been live at once, and each may once have had a large value.
const KEPT_BYTES_MAX: usize = 1_024;
const KEPT_OPEN_MAX: usize = 8;

/// Takes a run's records one by one, and makes a [`Ledger`] of what is outstanding at the end.
#[derive(Debug, Default)]
pub struct Outstanding {
    /// Reusable memory of an earlier run's beginning, if this run has none yet.
    beginning: Option<Box<OutstandingBeginning>>,
    is_started: bool,
    open: Operations<Open>,
    parked: Option<Box<OutstandingNoted>>,
    /// The last change of the code's version.
    moved: Option<Box<OutstandingNoted>>,
    /// Reusable memory of the last operation that ended.
    spare: Vec<u8>,
}

#[derive(Debug, Default)]
struct OutstandingBeginning {
    id: String,
    has_id: bool,
    noted: OutstandingNoted,
}

/// A record, undecoded.
#[derive(Debug, Default)]
struct OutstandingNoted {
    kind: u8,
    time: Timestamp,
    body: Vec<u8>,
}

/// An operation that has not ended.
#[derive(Debug)]
struct Open {
    begun: OutstandingNoted,
    /// For each kind, the last record that says more about it.
    later: Vec<Later>,
}

#[derive(Debug)]
struct Later {
    noted: OutstandingNoted,
    /// The number of records that it stands for.
    count: u32,
}

impl OutstandingNoted {
    fn new(kind: u8, time: Timestamp, body: &[u8]) -> Self {
        let body = body.to_vec();
        Self { kind, time, body }
    }

    fn apply(&self, opens: Option<&str>, ledger: &mut Ledger, count: u32) -> Result<(), EventError> {
        let event = wire::decode(self.kind, &Bytes::copy_from_slice(&self.body), opens)?;
        for _ in 0..count {
            ledger.apply(&event, self.time);
        }
        Ok(())
    }
}

impl Outstanding {
    /// Nothing is outstanding yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Resets it for another run, and keeps the memory.
    pub fn clear(&mut self) {
        self.is_started = false;
        self.forget_open();
        self.parked = None;
        self.moved = None;
        if let Some(beginning) = &mut self.beginning
            && beginning.noted.body.capacity() > KEPT_BYTES_MAX
        {
            beginning.noted.body = Vec::new();
        }
    }

    fn forget_open(&mut self) {
        if self.open.capacity() > KEPT_OPEN_MAX {
            self.open = Operations::default();
        } else {
            self.open.clear();
        }
    }

    /// Takes the next record of the history: its kind, its body, the time when it was recorded, and the instance's id if the
    /// journal keeps it with this record.
    ///
    /// # Errors
    /// When the kind is unknown, or the body does not name the operation that it must concern. What was taken before stays.
    pub fn take(
        &mut self,
        kind: u8,
        body: &[u8],
        time: Timestamp,
        opens: Option<&str>,
    ) -> Result<(), EventError> {
        match bearing(kind, body)? {
            Bearing::Starts => {
                let beginning = self.beginning.get_or_insert_default();
                beginning.id.clear();
                beginning.id.push_str(opens.unwrap_or_default());
                beginning.has_id = opens.is_some();
                beginning.noted.kind = kind;
                beginning.noted.time = time;
                beginning.noted.body.clear();
                beginning.noted.body.extend_from_slice(body);
                self.is_started = true;
            }
            Bearing::Begins(operation) => {
                let mut kept = std::mem::take(&mut self.spare);
                kept.clear();
                kept.extend_from_slice(body);
                let begun = OutstandingNoted {
                    kind,
                    time,
                    body: kept,
                };
                let later = Vec::new();
                self.open.insert(operation, Open { begun, later });
            }
            Bearing::Tells {
                operation,
                is_counted,
            } => {
                let Some(open) = self.open.get_mut(operation) else {
                    return Ok(());
                };
                let noted = OutstandingNoted::new(kind, time, body);
                match open.later.iter_mut().find(|later| later.noted.kind == kind) {
                    Some(later) => {
                        later.noted = noted;
                        later.count = later.count.saturating_add(u32::from(is_counted));
                    }
                    None => open.later.push(Later { noted, count: 1 }),
                }
            }
            Bearing::Ends(operation) => {
                if let Some(open) = self.open.remove(operation)
                    && open.begun.body.capacity() <= KEPT_BYTES_MAX
                {
                    self.spare = open.begun.body;
                }
                if self.open.len() == 0 && self.open.capacity() > KEPT_OPEN_MAX {
                    self.open = Operations::default();
                }
            }
            Bearing::Parks => self.parked = Some(Box::new(OutstandingNoted::new(kind, time, body))),
            Bearing::Resumes => self.parked = None,
            Bearing::Moves => self.moved = Some(Box::new(OutstandingNoted::new(kind, time, body))),
            Bearing::Closes => {
                self.forget_open();
                self.parked = None;
            }
            Bearing::None => {}
        }
        Ok(())
    }

    /// Restarts with the [kept beginning](crate::KeptBeginning) of a history, and returns its sequence: only records behind
    /// that sequence are to be taken.
    ///
    /// # Errors
    /// When the bytes are not a kept beginning, or were written by a later version.
    pub fn begin_kept(&mut self, kept: &[u8]) -> Result<Sequence, EventError> {
        self.clear();
        let parts = decode_kept(&Bytes::copy_from_slice(kept))?;
        let mut body = Vec::new();
        for noted in &parts.events {
            body.clear();
            wire::encode(&noted.event, &mut body)?;
            let kind = wire::kind(&noted.event);
            let opens = match &noted.event {
                Event::Started(started) => Some(started.id.as_str()),
                _ => None,
            };
            self.take(kind, &body, noted.time, opens)?;
            if let Bearing::Tells { operation, .. } = bearing(kind, &body)?
                && let Some(open) = self.open.get_mut(operation)
                && let Some(later) = open.later.iter_mut().find(|later| later.noted.kind == kind)
            {
                later.count = noted.count;
            }
        }
        Ok(Sequence::new(parts.sequence))
    }

    /// What is outstanding: the run's beginning, the version of its code, the pending operations, and why the code does not
    /// run. The ledger lacks everything else: its sequence, updates, a request to cancel, the outcome.
    ///
    /// # Errors
    /// When an outstanding record does not decode.
    pub fn ledger(&self) -> Result<Ledger, EventError> {
        let mut ledger = Ledger::new();
        if let Some(beginning) = self.beginning.as_ref().filter(|_| self.is_started) {
            let id = beginning.has_id.then_some(beginning.id.as_str());
            beginning.noted.apply(id, &mut ledger, 1)?;
        }
        if let Some(moved) = &self.moved {
            moved.apply(None, &mut ledger, 1)?;
        }
        for (_, open) in self.open.iter() {
            open.begun.apply(None, &mut ledger, 1)?;
            for later in &open.later {
                later.noted.apply(None, &mut ledger, later.count)?;
            }
        }
        if let Some(parked) = &self.parked {
            parked.apply(None, &mut ledger, 1)?;
        }
        Ok(ledger)
    }
}
