//! The conditions under which a turn may be appended: heads of live runs, and epochs.
//!
//! A pure machine. What it knows of a run beyond the conditions is the journal's own business:
//! `P` is a place in the log for one journal, the records themselves for another.
//!
//! ```text
//!            opens, head 0                    head fits                closes
//!   (none) ───────────────► live(head) ─────────────────► live(head') ───────► (none)
//! ```

use millrun_core::{Epoch, Partition, RunId, Sequence};

use crate::batch::TurnSpan;
use crate::error::TurnRefused;
use crate::heads::Heads;
use crate::scan::LastTurn;

#[derive(Debug)]
pub(crate) struct Ledger<P> {
    heads: Heads<Head<P>>,
    epochs: Vec<Epoch>,
    newest_epoch: Epoch,
    turn_bytes_max: usize,
}

/// What is known of a live run.
#[derive(Debug, Default)]
pub(crate) struct Head<P> {
    /// Sequence of the last record.
    pub(crate) last: u32,
    /// The head that the last turn found.
    pub(crate) before: u32,
    /// Of the checksums of the last turn, if they are set: by it the same turn is recognised.
    pub(crate) digest: u32,
    pub(crate) place: P,
}

impl<P: Default> Ledger<P> {
    /// A ledger in which every partition has the epoch `epoch`.
    pub(crate) fn new(epoch: Epoch, turn_bytes_max: usize) -> Self {
        Self {
            heads: Heads::default(),
            epochs: vec![epoch; usize::from(Partition::COUNT)],
            newest_epoch: epoch,
            turn_bytes_max,
        }
    }

    /// Gives the partitions a new epoch.
    pub(crate) fn take_over(&mut self, partitions: &[Partition]) -> Epoch {
        self.newest_epoch = self.newest_epoch.next();
        for partition in partitions {
            self.epochs[usize::from(partition.index())] = self.newest_epoch;
        }
        self.newest_epoch
    }

    pub(crate) fn newest_epoch(&self) -> Epoch {
        self.newest_epoch
    }

    /// Applies the turn if its conditions hold; `put` then updates the run's place. Returns the
    /// place of a run that has closed. `is_last` says whether the turn is the run's last one once more,
    /// if by its sequences it may be.
    pub(crate) fn admit(
        &mut self,
        turn: &TurnSpan,
        put: impl FnOnce(&mut P),
        is_last: impl FnOnce(&Head<P>) -> bool,
    ) -> Result<Option<P>, TurnRefused> {
        let current = self.epochs[usize::from(turn.run.partition().index())];
        if turn.epoch != current {
            return Err(TurnRefused::Fenced { current });
        }
        let bytes = turn.end - turn.start;
        if bytes > self.turn_bytes_max {
            return Err(TurnRefused::TooLarge {
                bytes,
                max: self.turn_bytes_max,
            });
        }
        let Some(number) = self.heads.find(turn.run) else {
            if !turn.opens {
                return Err(TurnRefused::NotLive);
            }
            let mut place = P::default();
            put(&mut place);
            if turn.closes {
                return Ok(Some(place));
            }
            let head = Head {
                last: narrow(turn.last),
                before: narrow(turn.head),
                digest: turn.digest,
                place,
            };
            self.heads.add(turn.run, head);
            return Ok(None);
        };
        let (_, head) = self.heads.at_mut(number);
        if turn.opens || head.last != narrow(turn.head) {
            return Err(refusal(head, turn, is_last));
        }
        head.before = head.last;
        head.last = narrow(turn.last);
        head.digest = turn.digest;
        put(&mut head.place);
        Ok(turn.closes.then(|| self.heads.remove(number).place))
    }

    /// Enters a live run that was read back from the log.
    pub(crate) fn restore(&mut self, run: RunId, turn: LastTurn, place: P) {
        let LastTurn { before, last, digest } = turn;
        self.heads.add(
            run,
            Head {
                last,
                before,
                digest,
                place,
            },
        );
    }

    pub(crate) fn head(&self, run: RunId) -> Option<&Head<P>> {
        self.heads.get(run)
    }

    pub(crate) fn head_mut(&mut self, run: RunId) -> Option<&mut Head<P>> {
        self.heads.get_mut(run)
    }

    /// Memory held, estimated from the capacity.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.heads.memory_bytes()
    }

    pub(crate) fn heads(&self) -> &Heads<Head<P>> {
        &self.heads
    }
}

fn refusal<P>(head: &Head<P>, turn: &TurnSpan, is_last: impl FnOnce(&Head<P>) -> bool) -> TurnRefused {
    let same = head.before == narrow(turn.head) && head.last == narrow(turn.last);
    if same && is_last(head) {
        TurnRefused::AlreadyAppended
    } else {
        TurnRefused::Conflict {
            head: Sequence::new(u64::from(head.last)),
        }
    }
}

fn narrow(sequence: Sequence) -> u32 {
    u32::try_from(sequence.get()).expect("a finished turn has sequences below 2^32")
}
