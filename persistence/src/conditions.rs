//! The conditions under which a turn may be appended: heads of live runs, and [epochs](crate::owners).
//!
//! A pure machine. What a journal knows of a run beyond the conditions is its own choice: `P` is a place in the log for one
//! journal, the records themselves for another.
//!
//! ```text
//!            opens, head 0                    head fits                closes
//!   (none) ───────────────► live(head) ─────────────────► live(head') ───────► (none)
//!                            │      ▲
//!                    refused │      │ read again, or taken over
//!                            ▼      │
//!                           suspect(head): takes nothing
//! ```
//!
//! A refused turn shows that its owner's idea of the run is wrong. A later turn of that owner rests on the same idea, and its
//! head may fit by chance. So the run takes no turn until the owner says that it has dropped that idea and read the run
//! again. The mark is one byte in the run's head, in its padding.

use millrun_core::{Epoch, Partition, RunId, Sequence};

use crate::batch::{TurnSpan, bytes_of};
use crate::error::TurnRefused;
use crate::heads::Heads;
use crate::journal::RefusedTurn;
use crate::owners::OwnerTable;
use crate::scan::LastTurn;

#[derive(Debug)]
pub(crate) struct Conditions<P> {
    heads: Heads<Head<P>>,
    pub(crate) owners: OwnerTable,
    turn_bytes_max: usize,
    /// How many heads are marked as suspect.
    suspects_len: usize,
}

/// What is known of a live run.
#[derive(Debug, Default)]
pub(crate) struct Head<P> {
    /// Sequence of the last record.
    pub(crate) last: u32,
    /// The run's head before its last turn.
    pub(crate) before: u32,
    /// A digest of the checksums of the last turn, if they are set: it shows whether a turn is the same.
    pub(crate) digest: u32,
    /// A turn was refused, and the owner has not read the run again.
    is_suspect: bool,
    pub(crate) place: P,
}

impl<P: Default> Conditions<P> {
    /// Conditions for a journal whose partitions are all free; epochs that are given out are above `epoch`.
    pub(crate) fn new(epoch: Epoch, turn_bytes_max: usize) -> Self {
        Self {
            heads: Heads::default(),
            owners: OwnerTable::new(epoch),
            turn_bytes_max,
            suspects_len: 0,
        }
    }

    /// The partitions have new epochs: their owners start from what they read.
    pub(crate) fn trust(&mut self, partitions: &[Partition]) {
        if self.suspects_len == 0 {
            return;
        }
        let mut is_taken = vec![false; usize::from(Partition::COUNT)];
        for partition in partitions {
            is_taken[usize::from(partition.index())] = true;
        }
        for (run, head) in self.heads.iter_mut() {
            if is_taken[usize::from(run.partition().index())] {
                self.suspects_len -= usize::from(std::mem::take(&mut head.is_suspect));
            }
        }
    }

    /// The owner under this epoch has dropped what it had decided for a run: its turns are checked by their own conditions
    /// again. Returns the sequence of the run's last record, queued turns included.
    pub(crate) fn read_again(&mut self, run: RunId, epoch: Epoch) -> Result<Sequence, TurnRefused> {
        self.check_epoch(run, epoch)?;
        let head = self.heads.get_mut(run).ok_or(TurnRefused::NotLive)?;
        self.suspects_len -= usize::from(std::mem::take(&mut head.is_suspect));
        Ok(Sequence::new(u64::from(head.last)))
    }

    fn check_epoch(&self, run: RunId, epoch: Epoch) -> Result<(), TurnRefused> {
        let checked = self.owners.check(run.partition(), epoch);
        checked.map_err(|current| TurnRefused::Fenced { current })
    }

    /// Applies the turn if its conditions hold; `put` then updates the run's place. Returns the place of a run that has
    /// closed. `is_last` says whether the turn equals the run's last one; it is asked only if the sequences allow it.
    pub(crate) fn admit(
        &mut self,
        turn: &TurnSpan,
        put: impl FnOnce(&mut P),
        is_last: impl FnOnce(&Head<P>) -> bool,
    ) -> Result<Option<P>, TurnRefused> {
        let number = match self.judge(turn, turn.end - turn.start, is_last) {
            Ok(number) => number,
            Err(refused) => {
                self.mark(turn.run, &refused);
                return Err(refused);
            }
        };
        let Some(number) = number else {
            let mut place = P::default();
            put(&mut place);
            if turn.closes {
                return Ok(Some(place));
            }
            let head = Head {
                last: narrow(turn.last),
                before: narrow(turn.head),
                digest: turn.digest,
                is_suspect: false,
                place,
            };
            self.heads.add(turn.run, head);
            return Ok(None);
        };
        let (_, head) = self.heads.at_mut(number);
        head.before = head.last;
        head.last = narrow(turn.last);
        head.digest = turn.digest;
        put(&mut head.place);
        Ok(turn.closes.then(|| self.heads.remove(number).place))
    }

    /// Why a group of turns, each of another run, is refused as a whole: one error for each turn, if one of them does not
    /// hold. `None` if all hold; then nothing is changed. `is_damaged` says which runs take no turns.
    pub(crate) fn refuse_group(
        &mut self,
        turns: &[TurnSpan],
        is_damaged: impl Fn(RunId) -> bool,
        is_last: impl Fn(&TurnSpan, &Head<P>) -> bool,
    ) -> Option<Vec<TurnRefused>> {
        let bytes = bytes_of(turns);
        let refused = turns.iter().map(|turn| match is_damaged(turn.run) {
            true => Some(TurnRefused::Quarantined),
            false => self.judge(turn, bytes, |head| is_last(turn, head)).err(),
        });
        let refused: Vec<_> = refused.collect();
        if refused.iter().all(Option::is_none) {
            return None;
        }
        let errors = turns.iter().zip(refused).map(|(turn, refused)| {
            let refused = refused.unwrap_or(TurnRefused::ReadAgain);
            self.mark(turn.run, &refused);
            refused
        });
        Some(errors.collect())
    }

    /// Whether the conditions of a turn hold (`bytes` counts the turns that belong to it too): then returns the number of its
    /// run, or `None` if it opens the run.
    #[inline]
    fn judge(
        &self,
        turn: &TurnSpan,
        bytes: usize,
        is_last: impl FnOnce(&Head<P>) -> bool,
    ) -> Result<Option<u32>, TurnRefused> {
        self.check_epoch(turn.run, turn.epoch)?;
        if bytes > self.turn_bytes_max {
            return Err(TurnRefused::TooLarge {
                bytes,
                max: self.turn_bytes_max,
            });
        }
        let Some(number) = self.heads.find(turn.run) else {
            return if turn.opens {
                Ok(None)
            } else {
                Err(TurnRefused::NotLive)
            };
        };
        let (_, head) = self.heads.at(number);
        if turn.opens || head.last != narrow(turn.head) || head.is_suspect {
            return Err(refusal(head, turn, is_last));
        }
        Ok(Some(number))
    }

    /// Remembers what a refusal means for its run.
    #[cold]
    fn mark(&mut self, run: RunId, refused: &TurnRefused) {
        match refused {
            TurnRefused::AlreadyAppended | TurnRefused::NotLive | TurnRefused::Quarantined => {}
            // Under a stale epoch no turn is taken anyway: the present owner's view of the run is not touched.
            TurnRefused::Fenced { .. } => {}
            TurnRefused::Conflict { .. } | TurnRefused::ReadAgain | TurnRefused::TooLarge { .. } => {
                self.suspect(run);
            }
        }
    }

    /// Takes no more turns of this run, if it is live, until its owner has read it again.
    fn suspect(&mut self, run: RunId) {
        if let Some(head) = self.heads.get_mut(run) {
            self.suspects_len += usize::from(!std::mem::replace(&mut head.is_suspect, true));
        }
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
                is_suspect: false,
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

/// Whether a turn is tied to the turn before it in its batch and that turn was refused. For a group, ask with its first turn.
pub(crate) fn rests_on_refused(turn: &TurnSpan, index: usize, refused: &[RefusedTurn]) -> bool {
    let is_refused =
        |last: &RefusedTurn| last.turn + 1 == index && last.error != TurnRefused::AlreadyAppended;
    turn.is_tied && refused.last().is_some_and(is_refused)
}

fn refusal<P>(head: &Head<P>, turn: &TurnSpan, is_last: impl FnOnce(&Head<P>) -> bool) -> TurnRefused {
    if head.is_suspect {
        return TurnRefused::ReadAgain;
    }
    let same = head.before == narrow(turn.head) && head.last == narrow(turn.last);
    if same && is_last(head) {
        TurnRefused::AlreadyAppended
    } else {
        TurnRefused::Conflict {
            head: Sequence::new(u64::from(head.last)),
        }
    }
}

/// As the conditions keep it.
pub(crate) fn narrow(sequence: Sequence) -> u32 {
    u32::try_from(sequence.get()).expect("a finished turn has sequences below 2^32")
}
