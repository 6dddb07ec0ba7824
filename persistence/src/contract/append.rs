//! Appending: conditions, atomicity, fencing, unknown outcomes.

use millrun_core::{Offset, Partition, RunId, Sequence};

use super::actor::{accepted, refused};
use super::{Author, Subject, suite};
use crate::batch::{Batch, TURN_BYTES_MAX_DEFAULT};
use crate::config::JournalConfig;
use crate::error::TurnRefused;
use crate::journal::{Journal, Reads};
use crate::memory::MemoryJournal;
use crate::record::RecordView;
use crate::resolve::Resolved;

suite![
    a_first_turn_is_durable_at_its_offset,
    turns_of_one_run_follow_each_other,
    several_turns_of_a_run_in_one_batch_follow_each_other,
    queued_turns_count_for_the_head,
    a_turn_behind_the_head_is_refused_with_the_head,
    a_turn_ahead_of_the_head_is_refused_with_the_head,
    of_two_turns_with_one_head_the_first_wins,
    the_same_turn_again_is_already_appended,
    a_first_turn_again_is_already_appended,
    other_bytes_at_the_same_place_are_a_conflict,
    other_bytes_for_a_first_turn_are_a_conflict,
    a_turn_of_an_unknown_run_is_refused,
    a_turn_after_the_last_is_refused,
    a_refused_turn_touches_no_other,
    a_refused_turn_leaves_its_run_as_it_was,
    behind_a_refused_turn_its_run_takes_none_until_it_was_read_again,
    a_run_that_was_to_be_read_again_goes_on_under_a_new_owner,
    a_turn_that_is_tied_to_a_refused_one_is_refused_with_it,
    a_fenced_turn_keeps_no_present_owner_from_its_run,
    a_run_is_read_again_by_its_owner_only,
    a_batch_of_refused_turns_waits_for_no_more_than_an_answer_does,
    a_stale_epoch_is_fenced,
    a_takeover_of_one_partition_leaves_the_others,
    every_takeover_gives_a_higher_epoch,
    an_epoch_that_nobody_was_given_is_fenced,
    offsets_grow_with_each_batch,
    an_empty_batch_is_durable_with_what_came_before,
    many_runs_in_one_batch_are_all_appended,
    a_batch_is_taken_whichever_journal_made_it,
    a_turn_is_the_same_whichever_journal_made_its_batch,
    threads_race_and_each_run_stays_whole,
];

fn open<S: Subject>(subject: &S) -> S::Journal {
    subject.fresh(JournalConfig::default())
}

fn a_first_turn_is_durable_at_its_offset<S: Subject>(subject: &S) {
    let journal = open(subject);
    let mut author = Author::new(&journal, "a", 1);
    author.append(subject, &journal, &[b"one", b"two"], false);
    let history = author.assert_history(&journal);
    assert_eq!(
        history
            .records
            .iter()
            .map(|record| record.kind)
            .collect::<Vec<_>>(),
        [1, 2]
    );
    assert!(
        history
            .records
            .iter()
            .all(|record| record.time == author.time && !record.closes)
    );
}

fn turns_of_one_run_follow_each_other<S: Subject>(subject: &S) {
    let journal = open(subject);
    let mut author = Author::new(&journal, "a", 1);
    for turn in 0..20_u8 {
        author.append(subject, &journal, &[&[turn], &[turn, turn]], false);
    }
    author.assert_history(&journal);
}

fn several_turns_of_a_run_in_one_batch_follow_each_other<S: Subject>(subject: &S) {
    let journal = open(subject);
    let mut author = Author::new(&journal, "a", 1);
    let mut batch = Batch::new();
    for turn in 0..5_u8 {
        author.put(&mut batch, &[&[turn]], turn == 4);
    }
    let offset = accepted(&journal, &batch);
    subject.settle(&journal, offset);
    assert!(author.assert_history(&journal).is_closed());
}

fn queued_turns_count_for_the_head<S: Subject>(subject: &S) {
    let journal = open(subject);
    let mut author = Author::new(&journal, "a", 1);
    let mut offset = Offset::ZERO;
    for turn in 0..50_u8 {
        offset = accepted(&journal, &author.batch(&[&[turn]], false));
    }
    subject.settle(&journal, offset);
    author.assert_history(&journal);
}

fn a_turn_behind_the_head_is_refused_with_the_head<S: Subject>(subject: &S) {
    let journal = open(subject);
    let mut author = Author::new(&journal, "a", 1);
    for body in [b"1", b"2", b"3"] {
        author.append(subject, &journal, &[body], false);
    }
    let mut late = Author {
        head: Sequence::new(1),
        ..author.clone()
    };
    let error = refused(&journal, &late.batch(&[b"late"], false));
    assert_eq!(
        error,
        TurnRefused::Conflict {
            head: Sequence::new(3)
        }
    );
    author.assert_history(&journal);
}

fn a_turn_ahead_of_the_head_is_refused_with_the_head<S: Subject>(subject: &S) {
    let journal = open(subject);
    let mut author = Author::new(&journal, "a", 1);
    author.append(subject, &journal, &[b"1"], false);
    let mut early = Author {
        head: Sequence::new(7),
        ..author.clone()
    };
    let error = refused(&journal, &early.batch(&[b"early"], false));
    assert_eq!(
        error,
        TurnRefused::Conflict {
            head: Sequence::new(1)
        }
    );
    author.assert_history(&journal);
}

fn of_two_turns_with_one_head_the_first_wins<S: Subject>(subject: &S) {
    let journal = open(subject);
    let mut winner = Author::new(&journal, "a", 1);
    winner.append(subject, &journal, &[b"start"], false);
    let mut loser = winner.clone();
    let mut batch = Batch::new();
    winner.put(&mut batch, &[b"mine"], false);
    let lost = loser.put(&mut batch, &[b"no, mine"], false);
    let enqueued = journal.enqueue(&batch).expect("the batch is taken");
    assert_eq!(enqueued.refused.len(), 1);
    assert_eq!(enqueued.refused[0].turn, lost);
    assert_eq!(
        enqueued.refused[0].error,
        TurnRefused::Conflict { head: winner.head }
    );
    subject.settle(&journal, enqueued.offset);
    winner.assert_history(&journal);
}

fn the_same_turn_again_is_already_appended<S: Subject>(subject: &S) {
    let journal = open(subject);
    let mut author = Author::new(&journal, "a", 1);
    author.append(subject, &journal, &[b"start"], false);
    let batch = author.batch(&[b"once", b"only"], false);
    accepted(&journal, &batch);
    let again = journal.enqueue(&batch).expect("the batch is taken");
    assert_eq!(again.refused[0].error, TurnRefused::AlreadyAppended);
    subject.settle(&journal, again.offset);
    author.assert_history(&journal);
}

fn a_first_turn_again_is_already_appended<S: Subject>(subject: &S) {
    let journal = open(subject);
    let mut author = Author::new(&journal, "a", 1);
    let batch = author.batch(&[b"start"], false);
    subject.settle(&journal, accepted(&journal, &batch));
    assert_eq!(refused(&journal, &batch), TurnRefused::AlreadyAppended);
    author.assert_history(&journal);
}

fn other_bytes_at_the_same_place_are_a_conflict<S: Subject>(subject: &S) {
    let journal = open(subject);
    let mut author = Author::new(&journal, "a", 1);
    author.append(subject, &journal, &[b"start"], false);
    let mut other = author.clone();
    author.append(subject, &journal, &[b"this"], false);
    let error = refused(&journal, &other.batch(&[b"that"], false));
    assert_eq!(error, TurnRefused::Conflict { head: author.head });
}

fn other_bytes_for_a_first_turn_are_a_conflict<S: Subject>(subject: &S) {
    let journal = open(subject);
    let mut author = Author::new(&journal, "a", 1);
    let mut other = author.clone();
    author.append(subject, &journal, &[b"this"], false);
    let error = refused(&journal, &other.batch(&[b"that"], false));
    assert_eq!(error, TurnRefused::Conflict { head: author.head });
}

fn a_turn_of_an_unknown_run_is_refused<S: Subject>(subject: &S) {
    let journal = open(subject);
    let mut author = Author {
        head: Sequence::new(4),
        ..Author::new(&journal, "a", 1)
    };
    assert_eq!(
        refused(&journal, &author.batch(&[b"?"], false)),
        TurnRefused::NotLive
    );
}

fn a_turn_after_the_last_is_refused<S: Subject>(subject: &S) {
    let journal = open(subject);
    let mut author = Author::new(&journal, "a", 1);
    author.append(subject, &journal, &[b"start"], false);
    author.append(subject, &journal, &[b"end"], true);
    let mut late = author.clone();
    assert_eq!(
        refused(&journal, &late.batch(&[b"late"], false)),
        TurnRefused::NotLive
    );
    author.assert_history(&journal);
}

fn a_refused_turn_touches_no_other<S: Subject>(subject: &S) {
    let journal = open(subject);
    let mut authors: Vec<_> = (0..5)
        .map(|number| Author::new(&journal, &format!("run-{number}"), number))
        .collect();
    for author in &mut authors {
        author.append(subject, &journal, &[b"start"], false);
    }
    let mut stale = Author {
        head: Sequence::new(9),
        ..authors[2].clone()
    };
    let mut batch = Batch::new();
    for (index, author) in authors.iter_mut().enumerate() {
        if index == 2 {
            stale.put(&mut batch, &[b"stale"], false);
        } else {
            author.put(&mut batch, &[b"fine"], false);
        }
    }
    let enqueued = journal.enqueue(&batch).expect("the batch is taken");
    assert_eq!(
        enqueued
            .refused
            .iter()
            .map(|refused| refused.turn)
            .collect::<Vec<_>>(),
        [2]
    );
    subject.settle(&journal, enqueued.offset);
    for author in &authors {
        author.assert_history(&journal);
    }
}

fn a_refused_turn_leaves_its_run_as_it_was<S: Subject>(subject: &S) {
    let journal = open(subject);
    let mut author = Author::new(&journal, "a", 1);
    author.append(subject, &journal, &[b"1"], false);
    let mut wrong = Author {
        head: Sequence::new(5),
        ..author.clone()
    };
    refused(&journal, &wrong.batch(&[b"wrong"], true));
    assert_eq!(journal.read_again(author.run, author.epoch), Ok(author.head));
    author.append(subject, &journal, &[b"2"], false);
    author.assert_history(&journal);
}

/// Turns of one run, one behind the other, that begin at a wrong head.
fn stale_turns(author: &Author, head: u64, len: usize) -> (Author, Vec<Batch>) {
    let mut stale = Author {
        head: Sequence::new(head),
        ..author.clone()
    };
    let batches = (0..len).map(|_| stale.batch(&[b"stale"], false)).collect();
    (stale, batches)
}

/// A shard that worked on with a stale history had its turn at the head 1 refused, since the run was at
/// 2. Its next turn, at 2, fitted, and was taken: the history then held what followed from an event
/// that it did not hold, and the run's code did not fit it any more.
fn behind_a_refused_turn_its_run_takes_none_until_it_was_read_again<S: Subject>(subject: &S) {
    for is_one_batch in [true, false] {
        let journal = open(subject);
        let (mut author, mut other) = (
            Author::new(&journal, "a", 1),
            Author::new(&journal, "another partition", 2),
        );
        for body in [b"1", b"2"] {
            author.append(subject, &journal, &[body], false);
        }
        other.append(subject, &journal, &[b"1"], false);
        let (mut stale, batches) = stale_turns(&author, 1, 2);
        let mut refusals = Vec::new();
        if is_one_batch {
            let mut batch = Batch::new();
            let mut late = stale_turns(&author, 1, 0).0;
            late.put(&mut batch, &[b"stale"], false);
            other.put(&mut batch, &[b"between"], false);
            late.put(&mut batch, &[b"stale"], false);
            let enqueued = journal.enqueue(&batch).expect("the batch is taken");
            let turns: Vec<_> = enqueued.refused.iter().map(|refused| refused.turn).collect();
            assert_eq!(turns, [0, 2], "the turn of another run is taken");
            refusals.extend(enqueued.refused.into_iter().map(|refused| refused.error));
        } else {
            refusals.extend(batches.iter().map(|batch| refused(&journal, batch)));
        }
        let head = author.head;
        assert_eq!(refusals, [TurnRefused::Conflict { head }, TurnRefused::ReadAgain]);
        // Nor does it matter how they end, or how often they are tried.
        assert_eq!(
            refused(&journal, &stale.batch(&[b"end"], true)),
            TurnRefused::ReadAgain
        );
        let mut sound = author.clone();
        assert_eq!(
            refused(&journal, &sound.batch(&[b"fits"], false)),
            TurnRefused::ReadAgain
        );
        assert_eq!(journal.read_again(author.run, author.epoch), Ok(head));
        author.append(subject, &journal, &[b"3"], false);
        assert_eq!(
            refused(&journal, &batches[1]),
            TurnRefused::Conflict { head: author.head }
        );
        author.assert_history(&journal);
        other.append(subject, &journal, &[b"behind"], true);
        other.assert_history(&journal);
    }
}

fn a_run_that_was_to_be_read_again_goes_on_under_a_new_owner<S: Subject>(subject: &S) {
    let journal = open(subject);
    let mut authors = [Author::new(&journal, "a", 1), Author::new(&journal, "b", 2)];
    for author in &mut authors {
        for body in [b"1", b"2"] {
            author.append(subject, &journal, &[body], false);
        }
        let (_, batches) = stale_turns(author, 1, 1);
        let head = author.head;
        assert_eq!(refused(&journal, &batches[0]), TurnRefused::Conflict { head });
    }
    let [taken, left] = &mut authors;
    taken.epoch = journal
        .take_over(&[taken.id.partition()])
        .expect("an open journal gives an epoch");
    taken.append(subject, &journal, &[b"3"], false);
    taken.assert_history(&journal);
    assert_eq!(
        refused(&journal, &left.clone().batch(&[b"3"], false)),
        TurnRefused::ReadAgain
    );
    left.assert_history(&journal);
}

/// A run ended and the next one began in its place; the end was refused, and the beginning was taken. The
/// instance then had two live runs.
fn a_turn_that_is_tied_to_a_refused_one_is_refused_with_it<S: Subject>(subject: &S) {
    let journal = open(subject);
    let mut former = Author::new(&journal, "a", 1);
    former.append(subject, &journal, &[b"1"], false);
    let of = |former: &Author, unique: u64| Author {
        run: RunId::new(former.id.partition(), former.time, unique),
        head: Sequence::ZERO,
        written: Vec::new(),
        trimmed: 0,
        ..former.clone()
    };
    let (mut next, mut third, mut free) = (of(&former, 2), of(&former, 3), of(&former, 4));
    let mut stale = Author {
        head: Sequence::new(7),
        ..former.clone()
    };
    let mut batch = Batch::new();
    stale.put(&mut batch, &[b"end"], true);
    next.clone().put(&mut batch, &[b"begin and end"], true);
    batch.tie_last();
    third.clone().put(&mut batch, &[b"begin"], false);
    batch.tie_last();
    free.put(&mut batch, &[b"begin"], false);
    let enqueued = journal.enqueue(&batch).expect("the batch is taken");
    let refused: Vec<_> = enqueued
        .refused
        .iter()
        .map(|refused| (refused.turn, &refused.error))
        .collect();
    let head = former.head;
    let expected = [
        (0, &TurnRefused::Conflict { head }),
        (1, &TurnRefused::ReadAgain),
        (2, &TurnRefused::ReadAgain),
    ];
    assert_eq!(refused, expected);
    subject.settle(&journal, enqueued.offset);
    free.assert_history(&journal);
    // Read again, it ends, and the others come in its place.
    assert_eq!(journal.read_again(former.run, former.epoch), Ok(head));
    let mut batch = Batch::new();
    former.put(&mut batch, &[b"end"], true);
    next.put(&mut batch, &[b"begin and end"], true);
    batch.tie_last();
    third.put(&mut batch, &[b"begin"], false);
    batch.tie_last();
    subject.settle(&journal, accepted(&journal, &batch));
    for author in [&former, &next, &third] {
        author.assert_history(&journal);
    }
}

fn a_fenced_turn_keeps_no_present_owner_from_its_run<S: Subject>(subject: &S) {
    let journal = open(subject);
    let mut old = Author::new(&journal, "a", 1);
    old.append(subject, &journal, &[b"old"], false);
    let current = journal
        .take_over(&[old.id.partition()])
        .expect("an open journal gives an epoch");
    let mut new = Author {
        epoch: current,
        ..old.clone()
    };
    for body in [b"1", b"2"] {
        let late = old.batch(&[body], false);
        assert_eq!(refused(&journal, &late), TurnRefused::Fenced { current });
        new.append(subject, &journal, &[body], false);
    }
    new.assert_history(&journal);
}

fn a_run_is_read_again_by_its_owner_only<S: Subject>(subject: &S) {
    let journal = open(subject);
    let mut old = Author::new(&journal, "a", 1);
    old.append(subject, &journal, &[b"1"], false);
    let current = journal
        .take_over(&[old.id.partition()])
        .expect("an open journal gives an epoch");
    let mut new = Author {
        epoch: current,
        ..old.clone()
    };
    let (_, batches) = stale_turns(&new, 7, 1);
    assert_eq!(
        refused(&journal, &batches[0]),
        TurnRefused::Conflict { head: new.head }
    );
    let fenced = Err(TurnRefused::Fenced { current });
    assert_eq!(journal.read_again(old.run, old.epoch), fenced);
    assert_eq!(
        refused(&journal, &new.clone().batch(&[b"2"], false)),
        TurnRefused::ReadAgain
    );
    assert_eq!(journal.read_again(new.run, new.epoch), Ok(new.head));
    new.append(subject, &journal, &[b"2"], true);
    assert_eq!(journal.read_again(new.run, new.epoch), Err(TurnRefused::NotLive));
    new.assert_history(&journal);
}

fn a_batch_of_refused_turns_waits_for_no_more_than_an_answer_does<S: Subject>(subject: &S) {
    let journal = open(subject);
    let mut author = Author::new(&journal, "a", 1);
    let last = author.append(subject, &journal, &[b"1"], false);
    // A journal over a store that other processes may take asks the store before each answer.
    let answers_alone = journal.confirm(last) == last;
    let mut wrong = Author {
        head: Sequence::new(5),
        ..author.clone()
    };
    let enqueued = journal
        .enqueue(&wrong.batch(&[b"wrong"], false))
        .expect("the batch is taken");
    if answers_alone {
        assert!(journal.high_watermark() >= enqueued.offset);
    }
    subject.settle(&journal, enqueued.offset);
    assert!(journal.high_watermark() >= enqueued.offset);
}

fn a_stale_epoch_is_fenced<S: Subject>(subject: &S) {
    let journal = open(subject);
    let mut old = Author::new(&journal, "a", 1);
    old.append(subject, &journal, &[b"old"], false);
    let current = journal
        .take_over(&[old.id.partition()])
        .expect("an open journal gives an epoch");
    let mut new = Author {
        epoch: current,
        ..old.clone()
    };
    assert_eq!(
        refused(&journal, &old.clone().batch(&[b"late"], false)),
        TurnRefused::Fenced { current }
    );
    new.append(subject, &journal, &[b"new"], false);
    new.assert_history(&journal);
}

fn a_takeover_of_one_partition_leaves_the_others<S: Subject>(subject: &S) {
    let journal = open(subject);
    let mut author = Author::new(&journal, "a", 1);
    let others: Vec<_> = (0..Partition::COUNT)
        .filter_map(Partition::from_index)
        .filter(|partition| *partition != author.id.partition())
        .collect();
    journal
        .take_over(&others)
        .expect("an open journal gives an epoch");
    author.append(subject, &journal, &[b"still mine"], false);
    author.assert_history(&journal);
}

fn every_takeover_gives_a_higher_epoch<S: Subject>(subject: &S) {
    let journal = open(subject);
    let (one, two) = (Partition::of(b"one"), Partition::of(b"two"));
    let mut last = std::collections::BTreeMap::new();
    for partitions in [&[one][..], &[two], &[one, two], &[two], &[one, two]] {
        let epoch = journal
            .take_over(partitions)
            .expect("an open journal gives an epoch");
        for partition in partitions {
            assert!(last.insert(*partition, epoch).is_none_or(|before| before < epoch));
        }
    }
}

fn an_epoch_that_nobody_was_given_is_fenced<S: Subject>(subject: &S) {
    let journal = open(subject);
    let author = Author::new(&journal, "a", 1);
    let mut forged = Author {
        epoch: author.epoch.next(),
        ..author.clone()
    };
    let error = refused(&journal, &forged.batch(&[b"forged"], false));
    assert_eq!(
        error,
        TurnRefused::Fenced {
            current: author.epoch
        }
    );
}

fn offsets_grow_with_each_batch<S: Subject>(subject: &S) {
    let journal = open(subject);
    let mut author = Author::new(&journal, "a", 1);
    let mut last = journal.high_watermark();
    for turn in 0..10_u8 {
        let offset = accepted(&journal, &author.batch(&[&[turn]], false));
        assert!(offset > last);
        last = offset;
    }
    subject.settle(&journal, last);
    assert_eq!(
        journal.high_watermark(),
        last,
        "nothing beyond what was enqueued is durable"
    );
}

fn an_empty_batch_is_durable_with_what_came_before<S: Subject>(subject: &S) {
    let journal = open(subject);
    let mut author = Author::new(&journal, "a", 1);
    let before = accepted(&journal, &author.batch(&[b"1"], false));
    let offset = accepted(&journal, &Batch::new());
    assert_eq!(offset, before);
    subject.settle(&journal, offset);
    assert!(journal.high_watermark() >= offset);
}

fn many_runs_in_one_batch_are_all_appended<S: Subject>(subject: &S) {
    let journal = open(subject);
    let mut authors: Vec<_> = (0..2_000)
        .map(|number| Author::new(&journal, &format!("run-{number}"), number))
        .collect();
    // Each takeover gave its partition a new epoch; the last one holds.
    for index in 0..authors.len() {
        let partition = authors[index].id.partition();
        let newest = authors
            .iter()
            .filter(|author| author.id.partition() == partition)
            .map(|author| author.epoch);
        authors[index].epoch = newest.max().expect("the author itself is among them");
    }
    let mut batch = Batch::new();
    for author in &mut authors {
        let body = [b'x'; 300];
        author.put(&mut batch, &[&body, b"small"], false);
    }
    subject.settle(&journal, accepted(&journal, &batch));
    for author in &authors {
        author.assert_history(&journal);
    }
}

/// Batches for this journal, for any, and for one that needs no checksums.
fn makers<J: Journal>(journal: &J) -> [Box<dyn Fn() -> Batch + '_>; 3] {
    let without_disk = MemoryJournal::new(JournalConfig::default()).expect("the defaults make sense");
    [
        Box::new(|| journal.batch(TURN_BYTES_MAX_DEFAULT)),
        Box::new(Batch::new),
        Box::new(move || without_disk.batch(TURN_BYTES_MAX_DEFAULT)),
    ]
}

fn a_batch_is_taken_whichever_journal_made_it<S: Subject>(subject: &S) {
    let mut journal = open(subject);
    let mut authors = Vec::new();
    for (first, id) in ["a", "b", "c"].into_iter().enumerate() {
        let mut author = Author::new(&journal, id, 1);
        let makers = makers(&journal);
        for turn in 0..6_u8 {
            let mut batch = makers[(first + usize::from(turn)) % makers.len()]();
            author.put(&mut batch, &[&[turn; 9], &[turn]], turn == 5 && first == 0);
            assert_eq!(journal.resolve(&batch), Ok(vec![Resolved::Absent]));
            subject.settle(&journal, accepted(&journal, &batch));
            assert_eq!(journal.resolve(&batch), Ok(vec![Resolved::Appended]));
            author.assert_history(&journal);
        }
        authors.push(author);
    }
    for reopened in [false, true] {
        if reopened {
            journal = subject.reopen(journal, JournalConfig::default());
        }
        for author in &authors {
            let history = author.assert_history(&journal);
            let page = journal.history_page(author.run, Sequence::new(7), usize::MAX);
            assert_eq!(page.expect("it is there").records, history.records[7..]);
        }
        let listed = journal.list_finished(None, 9).expect("the index is readable");
        assert_eq!(listed[0].id, authors[0].id);
        assert_eq!(listed.len(), 1);
        let mut handed = Vec::new();
        let mut lane = |record: RecordView<'_>| handed.push((record.run, record.body.to_vec()));
        let report = journal
            .recover(&mut [&mut lane], &mut |_| {})
            .expect("the log is readable");
        assert_eq!((report.live_runs, report.damaged), (2, Vec::new()));
        for author in &authors[1..] {
            let bodies = handed.iter().filter(|(run, _)| *run == author.run);
            assert!(bodies.map(|(_, body)| body).eq(&author.written));
        }
    }
}

fn a_turn_is_the_same_whichever_journal_made_its_batch<S: Subject>(subject: &S) {
    let journal = open(subject);
    for first in 0..3 {
        for again in 0..3 {
            let mut author = Author::new(&journal, "a", 3 * first + again + 1);
            let makers = makers(&journal);
            let [make, make_again] = [first, again].map(|maker| &makers[usize::try_from(maker).unwrap_or(0)]);
            for bodies in [&[b"begin".as_slice(), b""], &[b"once", b"only"]] {
                let (mut same, mut other) = (author.clone(), author.clone());
                let (mut batch, mut batches) = (make(), [make_again(), make_again(), make_again()]);
                author.put(&mut batch, bodies, false);
                subject.settle(&journal, accepted(&journal, &batch));
                same.put(&mut batches[0], bodies, false);
                assert_eq!(refused(&journal, &batches[0]), TurnRefused::AlreadyAppended);
                // As long, and longer.
                other.clone().put(&mut batches[1], &[b"other", bodies[1]], false);
                other.put(&mut batches[2], &[bodies[0], b"something else"], false);
                for other in &batches[1..] {
                    let expected = TurnRefused::Conflict { head: author.head };
                    assert_eq!(refused(&journal, other), expected);
                    assert_eq!(journal.read_again(author.run, author.epoch), Ok(author.head));
                }
            }
            author.assert_history(&journal);
        }
    }
}

fn threads_race_and_each_run_stays_whole<S: Subject>(subject: &S) {
    const THREADS: u64 = 4;
    const TURNS: u8 = 50;
    let journal = open(subject);
    let author = Author::new(&journal, "contested", 1);
    let attempts = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (journal, mut author) = (&journal, author.clone());
                scope.spawn(move || {
                    let (mut won, mut lost) = (0_u64, 0_u64);
                    for turn in 0..TURNS {
                        let body = [u8::try_from(thread).expect("few threads"), turn];
                        let attempt = author.clone().batch(&[&body], false);
                        let enqueued = journal.enqueue(&attempt).expect("the batch is taken");
                        match enqueued.refused.first().map(|refused| &refused.error) {
                            None => {
                                won += 1;
                                author.head = author.head.next();
                            }
                            Some(TurnRefused::Conflict { .. } | TurnRefused::ReadAgain) => {
                                lost += 1;
                                let head = journal.read_again(author.run, author.epoch);
                                author.head = head.expect("the run is live");
                            }
                            Some(error) => panic!("unexpected refusal: {error}"),
                        }
                    }
                    (won, lost)
                })
            })
            .collect();
        workers
            .into_iter()
            .map(|worker| worker.join().expect("no worker panics"))
            .collect::<Vec<_>>()
    });
    let won: u64 = attempts.iter().map(|(won, _)| won).sum();
    let lost: u64 = attempts.iter().map(|(_, lost)| lost).sum();
    assert_eq!(won + lost, THREADS * u64::from(TURNS));
    let mut last = Author {
        head: Sequence::new(won),
        ..author
    };
    subject.settle(&journal, accepted(&journal, &last.batch(&[b"last"], false)));
    let history = journal.history(last.run).expect("the run has durable records");
    assert_eq!(
        history.head(),
        Sequence::new(won + 1),
        "each accepted turn is there once"
    );
}
