//! Many threads and a store on disk: the same promises where nothing is driven by hand.

use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use millrun_core::Partition;
use millrun_persistence::appender::Appender;
use millrun_persistence::contract::Author;
use millrun_persistence::{EnqueueError, Journal, JournalConfig, RedbJournal, TurnRefused};

use crate::host::ThreadHost;

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Parks this thread until the future is ready.
fn wait_for<T>(future: impl Future<Output = T>) -> T {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = std::pin::pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

#[test]
fn threads_gather_for_a_store_on_disk_and_some_go_away() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.redb");
    let mut config = JournalConfig::default();
    // Less than what each thread gathers, so that it is full all the time.
    config.batch_len_max = 100;
    let journal = Arc::new(RedbJournal::open(&path, config, ThreadHost::new()).unwrap());
    let appender = Appender::new(journal.clone(), &*ThreadHost::new()).unwrap();
    let mut authors: Vec<_> = (0..640)
        .map(|number| Author::new(&*journal, &format!("id-{number}"), number))
        .collect();
    let all: Vec<_> = (0..Partition::COUNT).filter_map(Partition::from_index).collect();
    let epoch = journal.take_over(&all).unwrap();
    authors.iter_mut().for_each(|author| author.epoch = epoch);
    thread::scope(|scope| {
        for authors in authors.chunks_mut(160) {
            let appender = appender.clone();
            scope.spawn(move || {
                for round in 0..8 {
                    append_all(&appender, authors, round);
                }
            });
        }
    });
    drop(appender);
    journal.close().unwrap();
    let journal = RedbJournal::open(&path, JournalConfig::default(), ThreadHost::new()).unwrap();
    authors
        .iter()
        .for_each(|author| drop(author.assert_history(&journal)));
    let stats = journal.stats();
    assert_eq!((stats.live_runs, stats.finished_runs), (480, 160));
    journal.close().unwrap();
}

/// A turn of each author; every fourth run ends in the last round.
fn append_all(appender: &Appender, authors: &mut [Author], round: usize) {
    let turns = authors.iter_mut().enumerate().map(|(number, author)| {
        let batch = author.batch(&[b"x"], round == 7 && number % 4 == 0);
        (appender.gather(&batch), batch)
    });
    let turns: Vec<_> = turns.collect();
    for (number, (outcome, batch)) in turns.into_iter().enumerate() {
        let refused = match outcome {
            // This one is cut off, and appends its turn again.
            Ok(gathered) if (number + round).is_multiple_of(5) => {
                drop(gathered);
                let mut refused = wait_for(appender.append(&batch)).unwrap().refused;
                let is_there = [TurnRefused::AlreadyAppended, TurnRefused::NotLive];
                refused.retain(|refused| !is_there.contains(&refused.error));
                refused
            }
            Ok(gathered) => wait_for(gathered).unwrap(),
            Err(EnqueueError::Full) => wait_for(appender.append(&batch)).unwrap().refused,
            Err(error) => panic!("{error}"),
        };
        assert_eq!(refused, []);
    }
}
