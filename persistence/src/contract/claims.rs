//! Claiming partitions, giving them back, losing them.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use millrun_core::{Bell, Epoch, Partition, RunId, Sequence};

use super::actor::{accepted, refused};
use super::{Author, Subject, suite};
use crate::claim::{ClaimNews, ClaimNumber, ClaimRefused, Claimant, Granted, Owner};
use crate::config::JournalConfig;
use crate::error::TurnRefused;
use crate::fold::Fold;
use crate::journal::Journal;
use crate::record::RecordView;

suite![
    a_claim_is_granted_with_an_epoch_and_a_report_for_each_partition,
    a_claim_hands_out_the_records_of_its_partitions_and_no_others,
    a_claim_hands_out_what_was_queued_before_it,
    a_claim_sends_a_run_to_the_fold_of_its_partition,
    what_another_owner_has_is_not_granted_and_nothing_changes,
    the_same_owner_claims_again_under_a_higher_epoch,
    another_part_of_the_owner_is_told_that_it_has_lost,
    what_is_taken_is_fenced_and_its_owner_is_told_once,
    nothing_is_taken_under_the_epoch_of_a_released_partition,
    a_released_partition_can_be_claimed_by_any_owner,
    a_partition_is_released_by_the_part_that_has_it_only,
    a_claimant_that_is_dropped_owns_nothing,
    each_partition_has_epochs_of_its_own,
    a_run_that_was_to_be_read_again_goes_on_under_a_claim,
    reopening_frees_all_partitions_and_epochs_grow,
    a_closed_journal_refuses_claims,
    partitions_move_between_owners_and_no_record_is_lost,
];

fn open<S: Subject>(subject: &S) -> S::Journal {
    subject.fresh(JournalConfig::default())
}

/// A claimant that waits for its news.
pub(super) struct OwnedPart {
    claimant: Claimant,
    rung: Arc<(Mutex<bool>, Condvar)>,
    /// Heard while something else was waited for.
    lost: Vec<(Partition, Epoch)>,
}

impl OwnedPart {
    pub(super) fn new(owner: u64) -> Self {
        let rung = Arc::new((Mutex::new(false), Condvar::new()));
        let (ring, bell) = (Arc::clone(&rung), Bell::new());
        let answer = bell.clone();
        bell.connect(move || {
            answer.answer();
            *ring.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
            ring.1.notify_all();
        });
        Self {
            claimant: Claimant::new(Owner::new(owner), bell),
            rung,
            lost: Vec::new(),
        }
    }

    /// What was answered to a claim.
    fn answer(&mut self, claim: ClaimNumber) -> Result<Granted, ClaimRefused> {
        loop {
            let mut answer = None;
            for news in self.claimant.take_news() {
                match news {
                    ClaimNews::Granted(granted) if granted.claim == claim => answer = Some(Ok(granted)),
                    ClaimNews::Refused { claim: of, error } if of == claim => answer = Some(Err(error)),
                    ClaimNews::Lost { partition, current } => self.lost.push((partition, current)),
                    other => panic!("nobody asked for {other:?}"),
                }
            }
            if let Some(answer) = answer {
                return answer;
            }
            let mut has_rung = self.rung.0.lock().unwrap_or_else(PoisonError::into_inner);
            while !*has_rung {
                let waited = self.rung.1.wait(has_rung);
                has_rung = waited.unwrap_or_else(PoisonError::into_inner);
            }
            *has_rung = false;
        }
    }

    fn claim(
        &mut self,
        journal: &impl Journal,
        partitions: &[Partition],
        folds: usize,
    ) -> Result<Granted, ClaimRefused> {
        let folds = (0..folds).map(|_| Box::new(Recorder::default()) as Box<dyn Fold>);
        let claim = self.claimant.claim(partitions.to_vec(), folds.collect());
        let number = claim.number();
        journal.claim(claim);
        self.answer(number)
    }

    /// What a claim with this fold, which must be granted, hands out.
    pub(super) fn fold<F: Fold>(&mut self, journal: &impl Journal, partitions: &[Partition], fold: F) -> F {
        let claim = self.claimant.claim(partitions.to_vec(), vec![Box::new(fold)]);
        let number = claim.number();
        journal.claim(claim);
        let mut granted = self.answer(number).expect("it is granted");
        granted.take_folds::<F>().pop().expect("it had one fold")
    }

    /// Claims one partition, which must be granted.
    fn own(&mut self, journal: &impl Journal, partition: Partition) -> Epoch {
        let granted = self.claim(journal, &[partition], 0).expect("it is granted");
        granted.partitions[0].epoch
    }

    fn take(&mut self, journal: &impl Journal, partitions: &[Partition]) -> Granted {
        let fold = Box::new(Recorder::default());
        let claim = self.claimant.claim(partitions.to_vec(), vec![fold]);
        let number = claim.number();
        journal.take_from(claim);
        self.answer(number).expect("what is taken is granted")
    }

    /// The losses that it was told of.
    fn lost(&mut self) -> Vec<(Partition, Epoch)> {
        for news in self.claimant.take_news() {
            match news {
                ClaimNews::Lost { partition, current } => self.lost.push((partition, current)),
                other => panic!("nobody asked for {other:?}"),
            }
        }
        std::mem::take(&mut self.lost)
    }
}

/// Remembers the bodies of all records of each run.
#[derive(Default)]
struct Recorder {
    runs: BTreeMap<usize, (RunId, Vec<Vec<u8>>)>,
}

impl Fold for Recorder {
    fn record(&mut self, number: usize, record: RecordView<'_>) {
        let (run, bodies) = self.runs.entry(number).or_insert((record.run, Vec::new()));
        assert_eq!(*run, record.run, "the number stands for one run at a time");
        bodies.push(record.body.to_vec());
        assert_eq!(
            record.sequence.get(),
            bodies.len() as u64,
            "records come in order"
        );
    }

    fn forget(&mut self, number: usize) {
        self.runs.remove(&number);
    }
}

/// What the folds of a claim hold, by run, with the number of the fold.
fn folded(granted: &mut Granted) -> BTreeMap<RunId, (usize, Vec<Vec<u8>>)> {
    let folds = granted.take_folds::<Recorder>().into_iter().enumerate();
    let runs = folds.flat_map(|(fold, recorder)| {
        let runs = recorder.runs.into_values();
        runs.map(move |(run, bodies)| (run, (fold, bodies)))
    });
    runs.collect()
}

/// Live runs of as many instances, each with some records.
fn authors<S: Subject>(subject: &S, journal: &S::Journal, len: u64) -> Vec<Author> {
    let mut authors = Vec::new();
    for number in 0..len {
        let mut author = Author::new(journal, &format!("run-{number}"), number);
        author.append(subject, journal, &[b"start", &number.to_le_bytes()], false);
        authors.push(author);
    }
    authors
}

fn partitions(authors: &[Author]) -> Vec<Partition> {
    let mut partitions: Vec<_> = authors.iter().map(|author| author.id.partition()).collect();
    partitions.sort_unstable();
    partitions.dedup();
    partitions
}

fn a_claim_is_granted_with_an_epoch_and_a_report_for_each_partition<S: Subject>(subject: &S) {
    let journal = open(subject);
    let mut authors = authors(subject, &journal, 20);
    authors[3].append(subject, &journal, &[b"end"], true);
    let mut part = OwnedPart::new(1);
    let claimed: Vec<_> = (0..Partition::COUNT).filter_map(Partition::from_index).collect();
    let granted = part.claim(&journal, &claimed, 1).expect("all are free");
    assert_eq!((granted.report.live_runs, granted.report.records), (19, 38));
    assert_eq!(granted.report.damaged, []);
    let owned: Vec<_> = granted.partitions.iter().map(|owned| owned.partition).collect();
    assert_eq!(owned, claimed);
    for owned in &granted.partitions {
        let of = |author: &&Author| author.id.partition() == owned.partition;
        let live = authors
            .iter()
            .filter(|author| author.head.get() == 2)
            .filter(of)
            .count() as u64;
        assert_eq!((owned.report.live_runs, owned.report.records), (live, 2 * live));
        let before = authors.iter().filter(of).map(|author| author.epoch).max();
        assert!(before.is_none_or(|before| owned.epoch > before));
    }
    let epoch = |author: &Author| {
        let index = usize::from(author.id.partition().index());
        granted.partitions[index].epoch
    };
    let mut late = authors[0].clone();
    let error = refused(&journal, &late.batch(&[b"late"], false));
    assert_eq!(
        error,
        TurnRefused::Fenced {
            current: epoch(&authors[0])
        }
    );
    authors[0].epoch = epoch(&authors[0]);
    authors[0].append(subject, &journal, &[b"goes on"], false);
    authors[0].assert_history(&journal);
}

fn a_claim_hands_out_the_records_of_its_partitions_and_no_others<S: Subject>(subject: &S) {
    let journal = open(subject);
    let authors = authors(subject, &journal, 12);
    let claimed = partitions(&authors[..5]);
    let mut granted = OwnedPart::new(1)
        .claim(&journal, &claimed, 1)
        .expect("they are free");
    let runs = folded(&mut granted);
    let expected = authors
        .iter()
        .filter(|author| claimed.contains(&author.id.partition()));
    let expected: BTreeMap<_, _> = expected
        .map(|author| (author.run, (0, author.written.clone())))
        .collect();
    assert!(expected.len() >= 5 && expected.len() < authors.len());
    assert_eq!(runs, expected);
}

fn a_claim_hands_out_what_was_queued_before_it<S: Subject>(subject: &S) {
    let journal = open(subject);
    for round in 0..20_u64 {
        let mut author = Author::new(&journal, &format!("run-{round}"), round);
        for turn in 0..5_u8 {
            accepted(&journal, &author.batch(&[&[turn]], false));
        }
        let granted = OwnedPart::new(1).claim(&journal, &[author.id.partition()], 1);
        let runs = folded(&mut granted.expect("it is free"));
        assert_eq!(runs.get(&author.run), Some(&(0, author.written.clone())));
    }
}

fn a_claim_sends_a_run_to_the_fold_of_its_partition<S: Subject>(subject: &S) {
    let journal = open(subject);
    let authors = authors(subject, &journal, 30);
    let claimed = partitions(&authors);
    let mut granted = OwnedPart::new(1)
        .claim(&journal, &claimed, 3)
        .expect("they are free");
    let runs = folded(&mut granted);
    assert_eq!(runs.len(), authors.len());
    for author in &authors {
        let fold = usize::from(author.id.partition().index()) % 3;
        assert_eq!(runs[&author.run], (fold, author.written.clone()));
    }
}

fn what_another_owner_has_is_not_granted_and_nothing_changes<S: Subject>(subject: &S) {
    let journal = open(subject);
    let mut author = Author::new(&journal, "a", 1);
    let (here, free) = (author.id.partition(), Partition::of(b"elsewhere"));
    let (mut one, mut two) = (OwnedPart::new(1), OwnedPart::new(2));
    author.epoch = one.own(&journal, here);
    let refused = two
        .claim(&journal, &[here, free], 1)
        .map(|granted| granted.partitions);
    let partitions = vec![here];
    assert_eq!(refused, Err(ClaimRefused::Owned { partitions }));
    author.append(subject, &journal, &[b"still mine"], false);
    assert_eq!(one.lost(), []);
    one.own(&journal, free);
}

fn the_same_owner_claims_again_under_a_higher_epoch<S: Subject>(subject: &S) {
    let journal = open(subject);
    let mut author = Author::new(&journal, "a", 1);
    let mut part = OwnedPart::new(1);
    let mut last = author.epoch;
    for _ in 0..4 {
        let epoch = part.own(&journal, author.id.partition());
        assert!(epoch > last);
        let mut former = Author {
            epoch: last,
            ..author.clone()
        };
        let error = refused(&journal, &former.batch(&[b"late"], false));
        assert_eq!(error, TurnRefused::Fenced { current: epoch });
        author.epoch = epoch;
        author.append(subject, &journal, &[b"on"], false);
        last = epoch;
    }
    assert_eq!(part.lost(), [], "its own claim is no loss");
}

fn another_part_of_the_owner_is_told_that_it_has_lost<S: Subject>(subject: &S) {
    let journal = open(subject);
    let partition = Partition::of(b"a");
    let (mut former, mut successor) = (OwnedPart::new(1), OwnedPart::new(1));
    former.own(&journal, partition);
    let current = successor.own(&journal, partition);
    assert_eq!(former.lost(), [(partition, current)]);
    assert_eq!(successor.lost(), []);
}

fn what_is_taken_is_fenced_and_its_owner_is_told_once<S: Subject>(subject: &S) {
    let journal = open(subject);
    let mut author = Author::new(&journal, "a", 1);
    let (partition, other) = (author.id.partition(), Partition::of(b"other"));
    let (mut one, mut two) = (OwnedPart::new(1), OwnedPart::new(2));
    author.epoch = one.own(&journal, partition);
    one.own(&journal, other);
    author.append(subject, &journal, &[b"mine"], false);
    let mut granted = two.take(&journal, &[partition]);
    let current = granted.partitions[0].epoch;
    assert!(current > author.epoch);
    assert_eq!(folded(&mut granted)[&author.run], (0, author.written.clone()));
    assert_eq!(one.lost(), [(partition, current)]);
    assert_eq!(one.lost(), []);
    let mut late = author.clone();
    let error = refused(&journal, &late.batch(&[b"late"], false));
    assert_eq!(error, TurnRefused::Fenced { current });
    let fenced = Err(TurnRefused::Fenced { current });
    assert_eq!(journal.read_again(author.run, author.epoch), fenced);
    author.epoch = current;
    author.append(subject, &journal, &[b"theirs"], false);
    author.assert_history(&journal);
    // Nor does the former owner get it back by claiming.
    let refused = one
        .claim(&journal, &[partition], 0)
        .map(|granted| granted.partitions);
    assert!(matches!(refused, Err(ClaimRefused::Owned { .. })), "{refused:?}");
}

fn nothing_is_taken_under_the_epoch_of_a_released_partition<S: Subject>(subject: &S) {
    let journal = open(subject);
    let mut author = Author::new(&journal, "a", 1);
    let mut part = OwnedPart::new(1);
    author.epoch = part.own(&journal, author.id.partition());
    author.append(subject, &journal, &[b"mine"], false);
    journal.release(&part.claimant, &[author.id.partition()]);
    for epoch in [author.epoch, author.epoch.next()] {
        let mut late = Author {
            epoch,
            ..author.clone()
        };
        let error = refused(&journal, &late.batch(&[b"late"], false));
        assert_eq!(
            error,
            TurnRefused::Fenced {
                current: author.epoch
            }
        );
    }
    assert_eq!(part.lost(), [], "who gives back knows of it");
    author.assert_history(&journal);
}

fn a_released_partition_can_be_claimed_by_any_owner<S: Subject>(subject: &S) {
    let journal = open(subject);
    let mut author = Author::new(&journal, "a", 1);
    let partition = author.id.partition();
    let mut last = author.epoch;
    for owner in [1, 2, 2, 1] {
        let mut part = OwnedPart::new(owner);
        author.epoch = part.own(&journal, partition);
        assert!(author.epoch > last);
        last = author.epoch;
        author.append(subject, &journal, &[b"on"], false);
        journal.release(&part.claimant, &[partition]);
        journal.release(&part.claimant, &[partition]);
    }
    author.assert_history(&journal);
}

fn a_partition_is_released_by_the_part_that_has_it_only<S: Subject>(subject: &S) {
    let journal = open(subject);
    let mut author = Author::new(&journal, "a", 1);
    let mut part = OwnedPart::new(1);
    author.epoch = part.own(&journal, author.id.partition());
    for stranger in [1, 2] {
        journal.release(&OwnedPart::new(stranger).claimant, &[author.id.partition()]);
    }
    author.append(subject, &journal, &[b"still mine"], false);
}

fn a_claimant_that_is_dropped_owns_nothing<S: Subject>(subject: &S) {
    let journal = open(subject);
    let partition = Partition::of(b"a");
    let mut one = OwnedPart::new(1);
    let first = one.own(&journal, partition);
    drop(one);
    assert!(OwnedPart::new(2).own(&journal, partition) > first);
}

/// An attempt of an activity is numbered by the epochs that its partition has had: that others move is not its
/// business.
fn each_partition_has_epochs_of_its_own<S: Subject>(subject: &S) {
    let journal = open(subject);
    let (quiet, busy) = (Partition::of(b"quiet"), Partition::of(b"busy"));
    let mut part = OwnedPart::new(1);
    let first = part.own(&journal, quiet);
    for _ in 0..10 {
        part.own(&journal, busy);
    }
    assert_eq!(part.own(&journal, quiet).since(first), 1);
}

fn a_run_that_was_to_be_read_again_goes_on_under_a_claim<S: Subject>(subject: &S) {
    let journal = open(subject);
    let mut author = Author::new(&journal, "a", 1);
    author.append(subject, &journal, &[b"1"], false);
    let head = Sequence::new(7);
    let mut wrong = Author {
        head,
        ..author.clone()
    };
    refused(&journal, &wrong.batch(&[b"wrong"], false));
    author.epoch = OwnedPart::new(1).own(&journal, author.id.partition());
    author.append(subject, &journal, &[b"2"], false);
    author.assert_history(&journal);
}

fn reopening_frees_all_partitions_and_epochs_grow<S: Subject>(subject: &S) {
    let mut journal = open(subject);
    let mut author = Author::new(&journal, "a", 1);
    author.append(subject, &journal, &[b"start"], false);
    let (first, mut latest) = (author.epoch, 0);
    // Held beyond the end of the opening.
    let mut parts = Vec::new();
    for owner in 1..4 {
        let mut part = OwnedPart::new(owner);
        for _ in 0..owner {
            author.epoch = part.own(&journal, author.id.partition());
            assert!(author.epoch.since(first) > latest);
            latest = author.epoch.since(first);
        }
        author.append(subject, &journal, &[b"on"], false);
        parts.push(part);
        journal = subject.reopen(journal, JournalConfig::default());
    }
    author.assert_history(&journal);
}

fn a_closed_journal_refuses_claims<S: Subject>(subject: &S) {
    let journal = open(subject);
    journal.close().expect("a sound journal closes");
    let failure = journal.failure().expect("a closed journal says so");
    let mut part = OwnedPart::new(1);
    let refused = part
        .claim(&journal, &[Partition::of(b"a")], 1)
        .map(|granted| granted.partitions);
    assert_eq!(refused, Err(ClaimRefused::Failed(failure)));
}

fn partitions_move_between_owners_and_no_record_is_lost<S: Subject>(subject: &S) {
    let journal = open(subject);
    let mut authors = authors(subject, &journal, 8);
    let mut parts = [OwnedPart::new(1), OwnedPart::new(2)];
    for round in 0..40_u8 {
        let at = usize::from(round) % authors.len();
        let taker = usize::from(round / 3) % 2;
        let mut granted = parts[taker].take(&journal, &[authors[at].id.partition()]);
        let epoch = granted.partitions[0].epoch;
        let mut runs = folded(&mut granted);
        let partition = authors[at].id.partition();
        for author in authors
            .iter_mut()
            .filter(|author| author.id.partition() == partition)
        {
            assert_eq!(runs.remove(&author.run), Some((0, author.written.clone())));
            let mut late = author.clone();
            let error = refused(&journal, &late.batch(&[b"late"], false));
            assert_eq!(error, TurnRefused::Fenced { current: epoch });
            author.epoch = epoch;
            // Queued, and not waited for.
            accepted(&journal, &author.batch(&[&[round]], false));
        }
        assert_eq!(runs, BTreeMap::new());
    }
    subject.settle(&journal, accepted(&journal, &crate::batch::Batch::new()));
    for author in &authors {
        author.assert_history(&journal);
    }
}
