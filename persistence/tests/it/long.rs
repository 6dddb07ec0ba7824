//! What is asked of a long history costs what it needs, not what the history is long.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use millrun_core::{InstanceId, Partition, RunId, Sequence, Timestamp};
use millrun_persistence::contract::Author;
use millrun_persistence::{
    Batch, Disk, Journal, JournalConfig, MemoryJournal, Reads, RedbConfig, RedbJournal,
};

use crate::crash::disk::SimDisk;
use crate::host::HandHost;

/// Counts the bytes that are read.
#[derive(Debug)]
struct Counting {
    disk: Arc<SimDisk>,
    read: AtomicU64,
}

impl Disk for Counting {
    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.read.fetch_add(out.len() as u64, Ordering::Relaxed);
        self.disk.read(offset, out)
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.disk.write(offset, data)
    }

    fn len(&self) -> io::Result<u64> {
        self.disk.len()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.disk.set_len(len)
    }

    fn sync(&self) -> io::Result<()> {
        self.disk.sync()
    }

    fn try_lock(&self) -> io::Result<bool> {
        self.disk.try_lock()
    }
}

const TURNS: u64 = 3_000;
const BODY: [u8; 1_000] = [7; 1_000];

/// Writes a run of many turns, which ends.
fn write(journal: &impl Journal, commit: &dyn Fn()) -> RunId {
    let all: Vec<_> = (0..Partition::COUNT).filter_map(Partition::from_index).collect();
    let epoch = journal.take_over(&all).unwrap();
    let id = InstanceId::new("long").unwrap();
    let time = Timestamp::from_micros(1_700_000_000_000_000);
    let mut author = Author {
        run: RunId::new(id.partition(), time, 1),
        id,
        head: Sequence::ZERO,
        epoch,
        time,
        written: Vec::new(),
        trimmed: 0,
    };
    for turn in 1..=TURNS {
        let mut batch = Batch::new();
        author.put(&mut batch, &[&BODY], turn == TURNS);
        assert_eq!(journal.enqueue(&batch).unwrap().refused, []);
        commit();
    }
    author.run
}

fn assert_ends(journal: &impl Journal, run: RunId) {
    let id = InstanceId::new("long").unwrap();
    assert_eq!(journal.finished(&id).unwrap().unwrap().run, run);
    let page = journal.history_page(run, Sequence::ZERO, 0).unwrap();
    assert_eq!((page.records.len(), page.head.get()), (1, TURNS));
    assert_eq!(page.records[0].sequence.get(), 1);
    let page = journal.history_page(run, Sequence::new(TURNS - 1), 0).unwrap();
    assert_eq!((page.records.len(), page.records[0].closes), (1, true));
}

/// A start that was repeated under the id of a long finished run read the whole of its history, to learn
/// of which workflow it was: slowly, and not at all where it was longer than a history may be that is read
/// at once. The first page read the head of each turn as well, back from the last. No test looked at what
/// is read.
#[test]
fn the_first_and_the_last_record_of_a_long_history_are_read_without_the_rest() {
    for is_settled in [false, true] {
        let mut config = RedbConfig::default();
        if is_settled {
            config.store.unsettled_len_max = 1;
        }
        config.store.cache_bytes_max = 1 << 20;
        let (host, disk) = (HandHost::new(), SimDisk::new(Vec::new(), 1));
        let journal = RedbJournal::open_disk(disk.clone(), "simulated", config.clone(), host.clone());
        let journal = journal.unwrap();
        let run = write(&journal, &|| host.run());
        assert_ends(&journal, run);
        journal.begin_close();
        host.run();
        drop(journal);

        let disk = Arc::new(Counting {
            disk: SimDisk::new(disk.current(), 2),
            read: AtomicU64::new(0),
        });
        let host = HandHost::new();
        let journal = RedbJournal::open_disk(disk.clone(), "simulated", config, host).unwrap();
        let before = disk.read.load(Ordering::Relaxed);
        assert_ends(&journal, run);
        let read = disk.read.load(Ordering::Relaxed) - before;
        assert!(read < 400_000, "of {} bytes {read} were read", TURNS * 1_000);
    }
}

#[test]
fn a_page_in_memory_is_the_same_wherever_it_begins() {
    let journal = MemoryJournal::new(JournalConfig::default()).unwrap();
    let run = write(&journal, &|| {});
    assert_ends(&journal, run);
    for (after, bytes_max, len) in [(0, 0, 1), (0, 10_000, 9), (17, 1_100, 1), (17, 2_200, 2)] {
        let page = journal
            .history_page(run, Sequence::new(after), bytes_max)
            .unwrap();
        assert_eq!((page.records.len(), page.head.get()), (len, TURNS));
        assert_eq!(page.records[0].sequence.get(), after + 1);
    }
}
