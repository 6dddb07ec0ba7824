//! Groups: turns of several runs in one batch that are appended all together or not at all.
//!
//! ```text
//!   turns  │ turn 0 │ turn 1 │ turn 2 │ turn 3 │ turn 4 │
//!   left   │   0    │   3    │   2    │   1    │   0    │      turns 1 to 3 are a group
//!   read   │ group  │         group            │ group  │      a turn by itself is a group of one
//! ```
//!
//! The log stores nothing about groups: all turns that are taken from a batch become durable in one commit, so after a crash
//! either all of a group is there or nothing.

use std::ops::Range;

use millrun_core::RunId;

use super::{Batch, TurnHeader, TurnSpan, TurnView, TurnWriter};
use crate::error::TurnError;

impl Batch {
    /// Starts a group of turns: one for each of several runs whose partitions have one owner. A group that is not
    /// [finished](GroupWriter::finish) leaves no trace.
    ///
    /// A journal takes all of a group's turns or none: if one is refused, the others are refused with it (see
    /// [`Journal::enqueue`](crate::Journal::enqueue)). After a crash either all of its turns are there or none. Together they
    /// have at most `turn_bytes_max` bytes.
    ///
    /// ```
    /// # use std::convert::Infallible;
    /// # use millrun_core::{Epoch, InstanceId, RunId, Sequence, Timestamp};
    /// # use millrun_persistence::{Batch, TurnHeader};
    /// # let (order, parcel) = (InstanceId::new("order-42")?, InstanceId::new("parcel-42")?);
    /// # let (epoch, time) = (Epoch::new(1), Timestamp::from_micros(1_700_000_000_000_000));
    /// let mut batch = Batch::new();
    /// let mut group = batch.group();
    /// for id in [&order, &parcel] {
    ///     let run = RunId::new(id.partition(), time, 1);
    ///     let mut turn = group.turn(TurnHeader { run, head: Sequence::ZERO, epoch, time, opens: Some(id) });
    ///     turn.record(1, |body| { body.extend_from_slice(b"started"); Ok::<_, Infallible>(()) })?;
    ///     turn.finish(false)?;
    /// }
    /// assert_eq!(group.finish()?, 0..2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn group(&mut self) -> GroupWriter<'_> {
        GroupWriter {
            start: self.bytes.len(),
            first: self.turns.len(),
            begun: 0,
            is_finished: false,
            batch: self,
        }
    }

    /// The finished turns in order, grouped into what a journal takes or refuses as a whole: the turns of a
    /// [group](Self::group) together, every other turn by itself.
    ///
    /// ```
    /// # let batch = millrun_persistence::Batch::new();
    /// for group in batch.groups() {
    ///     for (index, turn) in group.turns() {
    ///         println!("turn {index} of {}", turn.run());
    ///     }
    /// }
    /// ```
    pub fn groups(&self) -> impl Iterator<Item = GroupView<'_>> + '_ {
        let mut from = 0;
        std::iter::from_fn(move || {
            let turns = self.group_at(from);
            from = turns.end;
            (!turns.is_empty()).then_some(GroupView { batch: self, turns })
        })
    }

    /// The indexes of the turns of the group that begins with this turn; empty after the last turn.
    pub(crate) fn group_at(&self, first: usize) -> Range<usize> {
        first..first + self.turns.get(first).map_or(0, TurnSpan::group_len)
    }

    /// The index of the first turn of the last group.
    pub(super) fn first_of_last_group(&self) -> usize {
        let mut first = self.turns.len().saturating_sub(1);
        while first > 0
            && self.turns[first].group > 0
            && self.turns[first - 1].group > self.turns[first].group
        {
            first -= 1;
        }
        first
    }
}

impl TurnSpan {
    /// How many turns of its group there are from this one on.
    fn group_len(&self) -> usize {
        usize::try_from(self.group.max(1)).expect("a usize holds a u32 here")
    }
}

/// Writes a [group](Batch::group) of turns into a [`Batch`].
///
/// If it is dropped without [`finish`](Self::finish), it takes its turns back.
#[derive(Debug)]
#[must_use = "a group that is not finished is taken back"]
pub struct GroupWriter<'b> {
    batch: &'b mut Batch,
    start: usize,
    first: usize,
    /// How many turns were begun; all must be finished in the end.
    begun: usize,
    is_finished: bool,
}

impl GroupWriter<'_> {
    /// Starts a turn of the group, for a run that has no turn in it yet.
    pub fn turn(&mut self, header: TurnHeader<'_>) -> TurnWriter<'_> {
        self.begun += 1;
        self.batch.turn_in_group(header, self.start)
    }

    /// Ends the group. Returns the indexes of its turns in the batch, by which refusals name them.
    ///
    /// # Errors
    /// [`TurnError::Empty`] if no turn was begun, [`TurnError::GroupNotWhole`] if one was begun and not finished,
    /// [`TurnError::RunTwice`] if two are of one run. The batch is then as it was before the group.
    pub fn finish(mut self) -> Result<Range<usize>, TurnError> {
        let turns = &mut self.batch.turns[self.first..];
        if self.begun == 0 {
            return Err(TurnError::Empty);
        }
        if turns.len() != self.begun {
            return Err(TurnError::GroupNotWhole);
        }
        let mut runs: Vec<RunId> = turns.iter().map(|turn| turn.run).collect();
        runs.sort_unstable();
        if let Some(twice) = runs.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(TurnError::RunTwice { run: twice[0] });
        }
        let len = u32::try_from(turns.len()).map_err(|_| TurnError::GroupNotWhole)?;
        if len > 1 {
            for (turn, left) in turns.iter_mut().zip((1..=len).rev()) {
                turn.group = left;
            }
        }
        self.is_finished = true;
        Ok(self.first..self.batch.turns.len())
    }
}

impl Drop for GroupWriter<'_> {
    fn drop(&mut self) {
        if !self.is_finished {
            self.batch.turns.truncate(self.first);
            self.batch.bytes.truncate(self.start);
        }
    }
}

/// Turns of a [`Batch`] that a journal takes or refuses as a whole: a [group](Batch::group), or a single turn that is in no
/// group. Made by [`Batch::groups`].
#[derive(Clone, Debug)]
pub struct GroupView<'a> {
    batch: &'a Batch,
    turns: Range<usize>,
}

impl<'a> GroupView<'a> {
    /// The turns with their indexes in the batch, in order; at least one.
    pub fn turns(&self) -> impl ExactSizeIterator<Item = (usize, TurnView<'a>)> + use<'a> {
        let batch = self.batch;
        let turns = self.turns.clone().zip(&batch.turns[self.turns.clone()]);
        turns.map(move |(index, span)| (index, TurnView::new(span, batch.frames(span))))
    }

    /// Size of its turns in bytes, frames included: what a journal's `turn_bytes_max` bounds.
    #[must_use]
    pub fn bytes(&self) -> usize {
        bytes(&self.batch.turns[self.turns.clone()])
    }

    /// Whether the whole group is refused if the turn before it in its batch is refused, see
    /// [`Batch::tie_last`].
    #[must_use]
    pub fn is_tied(&self) -> bool {
        self.batch.turns[self.turns.start].is_tied
    }
}

/// The size of adjacent turns.
pub(crate) fn bytes(turns: &[TurnSpan]) -> usize {
    match turns {
        [] => 0,
        [first, ..] => turns[turns.len() - 1].end - first.start,
    }
}
