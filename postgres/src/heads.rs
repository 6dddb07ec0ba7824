//! The conditions under which a turn may be appended: the heads of live runs, and the epochs of partitions.
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
//! A pure machine. Heads count queued turns. A journal that fails is opened anew, so nothing is ever undone here.

use millrun_core::{Epoch, Partition, RunId, Sequence};
use millrun_persistence::{GroupView, OwnerTable, TurnRefused, TurnView};
use rustc_hash::{FxHashMap, FxHashSet};
use xxhash_rust::xxh3::xxh3_64;

/// The heads of all live runs, and who owns their partitions.
#[derive(Debug)]
pub(crate) struct LiveHeads {
    live: FxHashMap<RunId, LiveHead>,
    /// Runs with a damaged record, live or not.
    quarantined: FxHashSet<RunId>,
    pub(crate) owners: OwnerTable,
    turn_bytes_max: usize,
    /// Bytes of the turns of all live runs.
    bytes: u64,
}

/// A live run, queued turns included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LiveHead {
    /// The sequence of its last record.
    pub(crate) last: u64,
    /// The sequence of the record before its last turn.
    pub(crate) before: u64,
    /// The digest by which the last turn is recognised.
    pub(crate) digest: u64,
    /// Bytes of its turns.
    pub(crate) bytes: u64,
    is_suspect: bool,
}

impl LiveHead {
    /// The head of a run with turns of `bytes` in all, the last of which has these frames.
    pub(crate) fn new(before: u64, last: u64, frames: &[u8], bytes: u64) -> Self {
        Self {
            last,
            before,
            digest: xxh3_64(frames),
            bytes,
            is_suspect: false,
        }
    }

    fn check(&self, turn: &TurnView<'_>) -> Result<(), TurnRefused> {
        if self.is_suspect {
            return Err(TurnRefused::ReadAgain);
        }
        let (head, last) = (turn.head().get(), turn.last().get());
        if turn.opens().is_none() && head == self.last {
            return Ok(());
        }
        let is_last = (head, last) == (self.before, self.last) && xxh3_64(turn.frames()) == self.digest;
        Err(match is_last {
            true => TurnRefused::AlreadyAppended,
            false => TurnRefused::Conflict {
                head: Sequence::new(self.last),
            },
        })
    }
}

impl LiveHeads {
    /// No live runs, and every partition free. Epochs that are granted are above `epoch`.
    pub(crate) fn new(epoch: Epoch, turn_bytes_max: usize) -> Self {
        Self {
            live: FxHashMap::default(),
            quarantined: FxHashSet::default(),
            owners: OwnerTable::new(epoch),
            turn_bytes_max,
            bytes: 0,
        }
    }

    /// Bytes of the turns of all live runs.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Adds a live run that the store has.
    pub(crate) fn restore(&mut self, run: RunId, head: LiveHead) {
        self.bytes += head.bytes;
        self.live.insert(run, head);
    }

    /// Forgets what is known of the runs of these partitions, because other processes may append to them from now on. The
    /// partitions are in order.
    pub(crate) fn forget(&mut self, partitions: &[Partition]) {
        let is_among = |run: &RunId| partitions.binary_search(&run.partition()).is_ok();
        let forgotten = self.live.extract_if(|run, _| is_among(run));
        self.bytes -= forgotten.map(|(_, head)| head.bytes).sum::<u64>();
        self.quarantined.retain(|run| !is_among(run));
    }

    /// Refuses further turns of this run: a record of it is damaged.
    pub(crate) fn quarantine(&mut self, run: RunId) {
        self.quarantined.insert(run);
    }

    pub(crate) fn is_quarantined(&self, run: RunId) -> bool {
        self.quarantined.contains(&run)
    }

    pub(crate) fn len(&self) -> usize {
        self.live.len()
    }

    /// An estimate of the memory that is held.
    pub(crate) fn memory_bytes(&self) -> u64 {
        (self.live.capacity() * (size_of::<(RunId, LiveHead)>() + 1)) as u64
    }

    pub(crate) fn head(&self, run: RunId) -> Option<&LiveHead> {
        self.live.get(&run)
    }

    /// The partitions have new epochs: what is known of their runs is trusted again, since their owners begin with a read.
    pub(crate) fn trust(&mut self, partitions: &[Partition]) {
        for (run, head) in &mut self.live {
            // The partitions of a claim are sorted.
            head.is_suspect &= partitions.binary_search(&run.partition()).is_err();
        }
    }

    /// See [`Journal::read_again`](millrun_persistence::Journal::read_again).
    pub(crate) fn read_again(&mut self, run: RunId, epoch: Epoch) -> Result<Sequence, TurnRefused> {
        self.check_epoch(run, epoch)?;
        if self.is_quarantined(run) {
            return Err(TurnRefused::Quarantined);
        }
        let head = self.live.get_mut(&run).ok_or(TurnRefused::NotLive)?;
        head.is_suspect = false;
        Ok(Sequence::new(head.last))
    }

    fn check_epoch(&self, run: RunId, epoch: Epoch) -> Result<(), TurnRefused> {
        let checked = self.owners.check(run.partition(), epoch);
        checked.map_err(|current| TurnRefused::Fenced { current })
    }

    /// Whether the conditions of all turns of a group hold; otherwise the reason for each refusal.
    pub(crate) fn judge(&mut self, group: &GroupView<'_>) -> Result<(), Vec<TurnRefused>> {
        let bytes = group.bytes();
        let judged = group.turns().map(|(_, turn)| self.check(&turn, bytes).err());
        let judged: Vec<_> = judged.collect();
        if judged.iter().all(Option::is_none) {
            return Ok(());
        }
        let refused = group.turns().zip(judged).map(|((_, turn), refused)| {
            let refused = refused.unwrap_or(TurnRefused::ReadAgain);
            self.mark(turn.run(), &refused);
            refused
        });
        Err(refused.collect())
    }

    fn check(&self, turn: &TurnView<'_>, bytes: usize) -> Result<(), TurnRefused> {
        let (run, max) = (turn.run(), self.turn_bytes_max);
        if self.is_quarantined(run) {
            return Err(TurnRefused::Quarantined);
        }
        self.check_epoch(run, turn.epoch())?;
        if bytes > max {
            return Err(TurnRefused::TooLarge { bytes, max });
        }
        match self.live.get(&run) {
            Some(head) => head.check(turn),
            None if turn.opens().is_none() => Err(TurnRefused::NotLive),
            None => Ok(()),
        }
    }

    /// After a refusal the run accepts nothing until it is read again. A fenced turn is no reason to mark the present owner's
    /// run.
    fn mark(&mut self, run: RunId, refused: &TurnRefused) {
        let says_nothing = matches!(refused, TurnRefused::Fenced { .. } | TurnRefused::AlreadyAppended);
        if !says_nothing && let Some(head) = self.live.get_mut(&run) {
            head.is_suspect = true;
        }
    }

    /// Accepts a turn whose conditions hold. Returns the bytes of all turns of its run.
    pub(crate) fn admit(&mut self, turn: &TurnView<'_>) -> u64 {
        let (run, frames) = (turn.run(), turn.frames());
        let before = self.live.get(&run).filter(|_| turn.trims().is_none());
        let bytes = before.map_or(0, |head| head.bytes) + frames.len() as u64;
        let former = if turn.closes() {
            self.live.remove(&run)
        } else {
            self.bytes += bytes;
            let head = LiveHead::new(turn.head().get(), turn.last().get(), frames, bytes);
            self.live.insert(run, head)
        };
        self.bytes -= former.map_or(0, |former| former.bytes);
        bytes
    }
}
