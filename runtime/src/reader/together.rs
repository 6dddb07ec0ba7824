//! Reads several small requests in two calls of the journal: first the snapshots of all runs, and which ids have finished
//! runs; then the histories, or the events behind the snapshots.
//!
//! Each request is answered as soon as it has been read. One that the journal skips, because it is large, waits again, and is
//! read alone.

use std::cell::Cell;

use millrun_core::RunId;
use millrun_persistence::{ReadError, ToRead, WasRead};
use millrun_workflow::KeptBeginning;

use super::door::ReadRequest;
use super::lanes::Lanes;
use super::{Owed, Reader, Said, kept_in, story, story_behind};
use crate::RunError;
use crate::mail::{Answered, Found, LocalMessage, Story};

/// How many bytes of records and snapshots are read in one call. A run with more is read alone.
const TOGETHER_BYTES_MAX: usize = 1 << 20;

/// A run that is to be brought back: the number of its request, and its snapshot.
struct WokenRun {
    number: usize,
    kept: Cell<Option<Box<KeptBeginning>>>,
}

impl Reader {
    /// Answers the requests that the lane has taken.
    pub(super) fn answer_together(&self, lanes: &Lanes<ReadRequest>, lane: usize) {
        let (mut numbers, mut wanted) = (Vec::new(), Vec::new());
        lanes.left(lane, |number, request| {
            wanted.push(match request {
                ReadRequest::Load(load) => ToRead::Snapshot(load.run),
                ReadRequest::Finished(ask) => ToRead::Finished(ask.id.clone()),
                _ => return,
            });
            numbers.push(number);
        });
        let journal = &self.shared.journal;
        let (mut beginnings, mut histories) = (Vec::new(), Vec::new());
        journal.read_together(&wanted, TOGETHER_BYTES_MAX, &mut |at, was_read| {
            let number = numbers[at];
            match (&wanted[at], was_read) {
                (ToRead::Finished(_), Ok(WasRead::Finished(found))) => {
                    self.tell_finished(lanes.claim(lane, number), Ok(found.map(|found| found.run)));
                }
                (ToRead::Finished(_), Err(error)) => {
                    self.tell_finished(lanes.claim(lane, number), Err(error));
                }
                (ToRead::Snapshot(run), was_read) => {
                    let kept = match was_read {
                        Ok(WasRead::Snapshot(Some(snapshot))) => kept_in(&snapshot),
                        _ => None,
                    };
                    histories.push(match &kept {
                        Some(kept) => ToRead::Page {
                            run: *run,
                            after: kept.sequence(),
                            bytes_max: self.history_bytes_max(),
                        },
                        None => ToRead::History(*run),
                    });
                    let kept = Cell::new(kept);
                    beginnings.push(WokenRun { number, kept });
                }
                _ => {}
            }
        });
        journal.read_together(&histories, TOGETHER_BYTES_MAX, &mut |at, was_read| {
            let WokenRun { number, kept } = &beginnings[at];
            match (kept.take(), was_read) {
                (Some(kept), Ok(WasRead::Page(page))) => {
                    self.tell_loaded(lanes, (lane, *number), || story_behind(kept, &page).map(Ok));
                }
                (None, Ok(WasRead::History(history))) => {
                    self.tell_loaded(lanes, (lane, *number), || Some(story(&history)));
                }
                (None, Err(error)) => {
                    self.tell_loaded(lanes, (lane, *number), || Some(Err(error.into())));
                }
                // The whole history tells what is wrong.
                _ => {}
            }
        });
        for request in lanes.rest(lane) {
            match request {
                ReadRequest::Load(load) => Self::read_alone(lanes, ReadRequest::LoadAlone(load)),
                other => self.answer(other),
            }
        }
    }

    /// Puts a request back, to be read alone.
    fn read_alone(lanes: &Lanes<ReadRequest>, request: ReadRequest) {
        // It uses the place of the request before. Refused only when the runtime has stopped.
        drop(lanes.requests().push_reserved(request));
    }

    /// Tells a shard what a run is brought back from, unless another lane does. If `decode` fails, the whole history is read.
    fn tell_loaded(
        &self,
        lanes: &Lanes<ReadRequest>,
        (lane, number): (usize, usize),
        decode: impl FnOnce() -> Option<Result<Story, RunError>>,
    ) {
        let Some(ReadRequest::Load(load)) = lanes.claim(lane, number) else {
            return;
        };
        let unread = LocalMessage::Loaded { load, history: None };
        let owed = Owed::new(self, Said::Here(load.run, unread));
        match decode() {
            Some(history) => {
                let history = Some(history.map(|story| self.shared.with_trial(load.run, story)));
                owed.pay(Said::Here(load.run, LocalMessage::Loaded { load, history }));
            }
            None => {
                owed.forgive();
                Self::read_alone(lanes, ReadRequest::LoadAlone(load));
            }
        }
    }

    /// Tells a shard the latest finished run of an id, unless another lane does.
    fn tell_finished(&self, request: Option<ReadRequest>, finished: Result<Option<RunId>, ReadError>) {
        if let Some(ReadRequest::Finished(ask)) = request {
            let found = Some(Found::unread(finished));
            self.shards.answer(Answered {
                ask,
                found,
                to_reset: None,
            });
        }
    }
}
