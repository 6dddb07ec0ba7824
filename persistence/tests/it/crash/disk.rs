//! A disk in memory that fails on demand: power cuts, errors, lying syncs.
//!
//! ```text
//!   write, set_len ──► current ──► what reads see
//!        │
//!        └──► unsynced ──sync──► durable
//!                 │                 │
//!                 └── power cut: any subset, torn at sectors ──► image after the crash
//! ```

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use millrun_persistence::Disk;

/// A sector is written wholly or not at all.
const SECTOR: usize = 512;

/// A small generator of pseudo-random numbers (splitmix64).
#[derive(Clone, Debug)]
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x2545_f491_4f6c_dd1d) ^ 0x6a09_e667_f3bc_c909)
    }

    pub(crate) fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.roll() % bound
    }

    /// `true` in one of `n` cases.
    pub(crate) fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

#[derive(Clone, Debug)]
enum Change {
    Write(u64, Vec<u8>),
    SetLen(u64),
}

#[derive(Debug)]
struct DiskState {
    durable: Vec<u8>,
    current: Vec<u8>,
    unsynced: Vec<Change>,
    dice: Dice,
    /// How many accesses there have been; reads do not count for cuts.
    writes: u64,
    accesses: u64,
    cut_at: Option<u64>,
    image: Option<Vec<u8>>,
    /// Cuts that left a file of its new length, with zeros where the last writes should be.
    zero_tails: u64,
    plan: Plan,
}

/// What goes wrong.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Plan {
    /// The access with this number fails.
    pub(crate) fails_at: Option<u64>,
    /// So do all after it.
    pub(crate) is_sticky: bool,
    /// There is no room from that access on: what writes fails, and nothing else does.
    pub(crate) is_full: bool,
    /// A failing write has written half of its bytes before.
    pub(crate) is_short: bool,
    /// One in this many syncs does nothing and says that all is well.
    pub(crate) lies_one_in: Option<u64>,
}

impl Plan {
    /// What the errors are.
    pub(crate) fn kind(self) -> io::ErrorKind {
        if self.is_full {
            io::ErrorKind::StorageFull
        } else {
            io::ErrorKind::Other
        }
    }
}

#[derive(Debug)]
pub(crate) struct SimDisk {
    state: Mutex<DiskState>,
    is_locked: AtomicBool,
}

impl SimDisk {
    pub(crate) fn new(image: Vec<u8>, seed: u64) -> Arc<Self> {
        Self::planned(image, seed, Plan::default())
    }

    pub(crate) fn planned(image: Vec<u8>, seed: u64, plan: Plan) -> Arc<Self> {
        let state = DiskState {
            durable: image.clone(),
            current: image,
            unsynced: Vec::new(),
            dice: Dice::new(seed),
            writes: 0,
            accesses: 0,
            cut_at: None,
            image: None,
            zero_tails: 0,
            plan,
        };
        Arc::new(Self {
            state: Mutex::new(state),
            is_locked: AtomicBool::new(false),
        })
    }

    /// Cuts the power right before the write, cut or sync that is `ahead` from now.
    pub(crate) fn cut_after(&self, ahead: u64) {
        let mut state = self.lock();
        state.cut_at = Some(state.writes + ahead);
    }

    /// What the power cut left, if it has happened. The disk itself lives on, as in a world
    /// where the power had stayed.
    pub(crate) fn image(&self) -> Option<Vec<u8>> {
        self.lock().image.clone()
    }

    /// What a power cut at this moment would leave.
    pub(crate) fn cut_now(&self) -> Vec<u8> {
        self.lock().cut()
    }

    /// Everything written, as a process that is killed leaves it.
    pub(crate) fn current(&self) -> Vec<u8> {
        self.lock().current.clone()
    }

    /// How many cuts left a tail of zeros in place of what had been written.
    pub(crate) fn zero_tails(&self) -> u64 {
        self.lock().zero_tails
    }

    pub(crate) fn accesses(&self) -> u64 {
        self.lock().accesses
    }

    pub(crate) fn set_plan(&self, plan: Plan) {
        self.lock().plan = plan;
    }

    fn lock(&self) -> MutexGuard<'_, DiskState> {
        self.state.lock().unwrap()
    }
}

fn apply(bytes: &mut Vec<u8>, change: &Change) {
    match change {
        Change::SetLen(len) => bytes.resize(usize::try_from(*len).unwrap(), 0),
        Change::Write(offset, data) => write(bytes, *offset, data),
    }
}

fn write(bytes: &mut Vec<u8>, offset: u64, data: &[u8]) {
    let start = usize::try_from(offset).unwrap();
    let end = start + data.len();
    if bytes.len() < end {
        bytes.resize(end, 0);
    }
    bytes[start..end].copy_from_slice(data);
}

impl DiskState {
    fn cut(&mut self) -> Vec<u8> {
        // Sometimes nearly all arrives, sometimes nearly nothing, mostly something between.
        match self.dice.below(8) {
            7 => self.cut_to_zeros(),
            kind => self.cut_to_any([0, 1, 10, 50, 90, 99, 100][usize::try_from(kind).unwrap()]),
        }
    }

    /// So many of 100 changes arrive, sector by sector, in any order.
    fn cut_to_any(&mut self, survives: u64) -> Vec<u8> {
        let mut image = self.durable.clone();
        for change in &self.unsynced {
            match change {
                Change::SetLen(_) if self.dice.below(100) < survives => apply(&mut image, change),
                Change::SetLen(_) => {}
                Change::Write(offset, data) => {
                    let mut at = 0;
                    while at < data.len() {
                        let position = usize::try_from(*offset).unwrap() + at;
                        let len = (SECTOR - position % SECTOR).min(data.len() - at);
                        if self.dice.below(100) < survives {
                            write(&mut image, position as u64, &data[at..at + len]);
                        }
                        at += len;
                    }
                }
            }
        }
        image
    }

    /// The file has its new length and all writes below some place; behind it, what was not synced
    /// reads as zeros if it was never written before, and as it was otherwise: the length was
    /// journalled by the file system, and the blocks were allocated, before the data arrived.
    fn cut_to_zeros(&mut self) -> Vec<u8> {
        let mut image = self.durable.clone();
        // The place lies within one of the writes, so that it cuts something.
        let writes: Vec<_> = self
            .unsynced
            .iter()
            .filter_map(|change| match change {
                Change::Write(offset, data) => Some((*offset, data.len() as u64)),
                Change::SetLen(_) => None,
            })
            .collect();
        let tail = if writes.is_empty() {
            self.current.len()
        } else {
            let place = usize::try_from(self.dice.below(writes.len() as u64)).unwrap();
            usize::try_from(writes[place].0 + self.dice.below(writes[place].1.max(1))).unwrap()
        };
        for change in &self.unsynced {
            match change {
                Change::SetLen(_) => apply(&mut image, change),
                Change::Write(offset, data) => {
                    let below = tail
                        .saturating_sub(usize::try_from(*offset).unwrap())
                        .min(data.len());
                    let below = below - below % SECTOR;
                    write(&mut image, *offset, &data[..below]);
                    let end = usize::try_from(*offset).unwrap() + data.len();
                    if image.len() < end {
                        image.resize(end, 0);
                    }
                }
            }
        }
        self.zero_tails += u64::from(image.len() == self.current.len() && image != self.current);
        image
    }

    /// Counts an access; says whether it fails.
    fn access(&mut self, writes: bool) -> io::Result<()> {
        let number = self.accesses;
        self.accesses += 1;
        let plan = self.plan;
        let fails = plan.fails_at.is_some_and(|at| match plan.is_full {
            true => writes && number >= at,
            false => number == at || (plan.is_sticky && number > at),
        });
        if fails {
            Err(io::Error::new(plan.kind(), "injected"))
        } else {
            Ok(())
        }
    }

    fn change(&mut self, change: Change) {
        apply(&mut self.current, &change);
        self.unsynced.push(change);
    }

    fn count_write(&mut self) {
        if self.cut_at == Some(self.writes) {
            self.image = Some(self.cut());
        }
        self.writes += 1;
    }
}

impl Disk for SimDisk {
    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let mut state = self.lock();
        state.access(false)?;
        let start = usize::try_from(offset).unwrap();
        let bytes = state.current.get(start..start + out.len());
        out.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut state = self.lock();
        state.count_write();
        if let Err(error) = state.access(true) {
            if state.plan.is_short {
                state.change(Change::Write(offset, data[..data.len() / 2].to_vec()));
            }
            return Err(error);
        }
        state.change(Change::Write(offset, data.to_vec()));
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.lock().current.len() as u64)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut state = self.lock();
        state.count_write();
        state.access(true)?;
        state.change(Change::SetLen(len));
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.lock();
        state.count_write();
        state.access(false)?;
        if let Some(n) = state.plan.lies_one_in
            && state.dice.one_in(n)
        {
            return Ok(());
        }
        let unsynced = std::mem::take(&mut state.unsynced);
        for change in &unsynced {
            apply(&mut state.durable, change);
        }
        Ok(())
    }

    fn try_lock(&self) -> io::Result<bool> {
        Ok(!self.is_locked.swap(true, Ordering::SeqCst))
    }
}
