//! The register beside a store that is a map, opened again and again.

use std::collections::BTreeMap;

use millrun_core::{Epoch, Partition};

use super::*;
use crate::batch::TopicRecordHeader;

/// What a journal would have stored.
#[derive(Default)]
struct Store {
    names: BTreeMap<TopicNumber, StoredTopicName>,
    rows: BTreeMap<(TopicNumber, Sequence), StoredTopicRow>,
    ids: BTreeMap<u64, StoredTopicId>,
}

fn end(row: &StoredTopicRow) -> u64 {
    row.first.get() + u64::from(row.len) - 1
}

impl Store {
    fn outlines(&self, topic: TopicNumber, behind: Sequence) -> Vec<TopicRowOutline> {
        let rows = self
            .rows
            .values()
            .filter(|row| row.topic == topic && row.first > behind);
        let outlines = rows.map(|row| TopicRowOutline {
            first: row.first,
            end: Sequence::new(end(row)),
            bytes: row.frames.len() as u64,
            last: row.last,
        });
        outlines.take(TopicRegister::fill_len()).collect()
    }

    fn opened(&self, config: &JournalConfig) -> TopicRegister {
        let mut register = TopicRegister::new(config);
        for stored in self.names.values() {
            let rows = self.rows.values().filter(|row| row.topic == stored.number);
            let bytes = rows.clone().map(|row| row.frames.len() as u64).sum();
            let last = rows.map(|row| Sequence::new(end(row))).max();
            assert!(register.restore(stored.clone(), last, bytes));
        }
        register.restore_ids(self.ids.values().copied());
        register
    }

    /// One commit; until nothing is due with `of_all`.
    fn commit(&mut self, register: &mut TopicRegister, now: Timestamp, of_all: bool, len_max: usize) {
        loop {
            let sealed = register.seal();
            let mut gone = Vec::new();
            loop {
                let drops = register.drop_due(now, of_all, len_max - gone.len());
                gone.extend(drops.rows);
                let Some((topic, behind)) = drops.unknown else {
                    break;
                };
                let rows = self.outlines(topic, behind);
                let is_all = rows.len() < TopicRegister::fill_len();
                register.fill(topic, rows, is_all);
            }
            for stored in register.seal_changed() {
                self.names.insert(stored.number, stored);
            }
            for key in &gone {
                assert!(self.rows.remove(key).is_some(), "only durable rows go");
            }
            self.ids.extend(sealed.ids.iter().map(|id| (id.number, *id)));
            self.ids.retain(|number, _| *number >= sealed.ids_from);
            for row in &sealed.rows {
                assert!(
                    self.names.contains_key(&row.topic),
                    "a topic is stored before its records"
                );
                self.rows.insert((row.topic, row.first), row.clone());
            }
            let is_done = sealed.rows.is_empty() && gone.len() < len_max;
            register.landed(sealed);
            if is_done || !of_all {
                return;
            }
        }
    }

    fn read(&self, register: &TopicRegister, topic: TopicNumber) -> Vec<u64> {
        let rows = self.rows.values().filter(|row| row.topic == topic).cloned();
        let (dropped, _) = register.bounds(topic).unwrap();
        let page = topic_page(topic, Sequence::ZERO, dropped, rows.collect()).unwrap();
        assert_eq!(page.dropped, dropped.get());
        page.records().map(|record| record.sequence.get()).collect()
    }
}

struct Dice(u64);

impl Dice {
    fn below(&mut self, max: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) % max
    }
}

#[test]
fn what_is_stored_and_kept_agrees_with_a_list_whenever_it_is_opened() {
    let owners = OwnerTable::new(Epoch::new(1));
    let partition = Partition::of(b"topics");
    for seed in 0..40 {
        let mut dice = Dice(seed);
        let config = JournalConfig {
            topic_latest_bytes_max: [0, 3_000, 1 << 20][usize::try_from(seed % 3).unwrap()],
            ..JournalConfig::default()
        };
        let (mut store, mut now) = (Store::default(), 1_000_000);
        let mut register = TopicRegister::new(&config);
        let keep = 1 + dice.below(90);
        let retention = TopicRetention {
            len_max: keep,
            ..TopicRetention::unbounded()
        };
        let topic = register.declare("a", retention).unwrap();
        let (mut last, mut purged) = (0, 0);
        for step in 0..120 {
            now += 1;
            match dice.below(10) {
                0..6 => {
                    let mut batch = Batch::new();
                    // Few steps make large rows, of which few fit one commit's share.
                    for _ in 0..1 + dice.below(3) {
                        let header = TopicRecordHeader {
                            topic,
                            partition,
                            epoch: Epoch::new(1),
                            time: Timestamp::from_micros(now),
                            id: (dice.below(2) == 0).then(|| u128::from(now) << 64 | u128::from(last)),
                            with: None,
                        };
                        batch.topic_record(header, &[&[7; 40]]).unwrap();
                        last += 1;
                    }
                    let appends = register.append(&batch, &[], &owners);
                    assert_eq!(appends.last(), Some(&TopicAppend::Appended(Sequence::new(last))));
                    store.commit(&mut register, Timestamp::from_micros(now), false, 2);
                }
                6 => {
                    let through = dice.below(last + 2);
                    register.purge(topic, Sequence::new(through)).unwrap();
                    purged = purged.max(through.min(last));
                    store.commit(&mut register, Timestamp::from_micros(now), false, 2);
                }
                7 => store.commit(&mut register, Timestamp::from_micros(now), true, 3),
                _ => {
                    store.commit(&mut register, Timestamp::from_micros(now), false, 2);
                    register = store.opened(&config);
                }
            }
            let context = format!("seed {seed}, step {step}");
            let read = store.read(&register, topic);
            let summary = register.summary(topic).unwrap();
            assert_eq!(summary.last.get(), last.max(summary.first.get() - 1), "{context}");
            assert_eq!(
                read,
                (summary.first.get()..=last).collect::<Vec<_>>(),
                "{context}"
            );
            assert!(summary.first.get() > purged, "{context}");
            match register.latest(topic, Sequence::ZERO, usize::MAX).unwrap() {
                LatestRecords::Page(page) => {
                    let told: Vec<_> = page.records().map(|record| record.sequence.get()).collect();
                    assert_eq!(told, read, "{context}");
                }
                LatestRecords::Ask => assert!(!read.is_empty(), "{context}"),
            }
        }
        store.commit(&mut register, Timestamp::from_micros(now), true, 4);
        let left = store.read(&register, topic).len() as u64;
        // A row of up to three records stays if one of its records does.
        assert!(left <= keep + 2, "seed {seed}: {left} of {keep}");
        assert!(left >= keep.min(last - purged), "seed {seed}: {left} of {keep}");
        let stored: u64 = store.rows.values().map(|row| row.frames.len() as u64).sum();
        assert_eq!(register.counts(), (1, stored), "seed {seed}");
        let ids = store.opened(&config);
        for stored in store.ids.values() {
            assert_eq!(
                ids.appended_with(topic, stored.id),
                register.appended_with(topic, stored.id)
            );
        }
    }
}

#[test]
fn a_row_that_is_missing_or_damaged_is_named_with_what_follows_it() {
    let row = |first: u64, frames: Bytes| StoredTopicRow {
        topic: TopicNumber::new(0),
        first: Sequence::new(first),
        len: 1,
        last: Timestamp::EPOCH,
        frames,
    };
    let record = super::super::TopicRecord {
        sequence: Sequence::ZERO,
        partition: Partition::of(b"a"),
        time: Timestamp::EPOCH,
        id: None,
        body: Bytes::from_static(b"body"),
    };
    let chunk = TopicChunk::of(Sequence::new(1), [&record]).unwrap();
    let sound = chunk.frames().clone();
    let bad = Bytes::from(vec![0; sound.len()]);
    let page = |rows| topic_page(TopicNumber::new(0), Sequence::ZERO, Sequence::ZERO, rows);
    let read = page(vec![row(1, sound.clone()), row(2, bad.clone())]).unwrap();
    assert_eq!(read.last(), Sequence::new(1), "it ends before the damage");
    for rows in [vec![row(1, bad), row(2, sound.clone())], vec![row(2, sound)]] {
        let error = page(rows).unwrap_err();
        let ReadError::TopicDamaged { after, until, .. } = error else {
            panic!("{error}")
        };
        assert_eq!((after, until), (Sequence::ZERO, Sequence::new(1)));
    }
}
