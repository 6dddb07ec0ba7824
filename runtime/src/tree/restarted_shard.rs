//! The part that replaces a failed shard: it claims the shard's partitions again, and then is the shard.

use std::sync::Arc;

use millrun_core::{Epoch, Next, Part, Partition, Timestamp};
use millrun_persistence::{ClaimNumber, ClaimRefused, Granted};

use crate::mail::ShardDoors;
use crate::opening::recovery::{self, Histories};
use crate::ownership::claims::News;
use crate::shard::{EpochTable, Shard};
use crate::shared::ShardShared;

/// A shard that replaces a failed one: it claims the partitions that are still owned, and begins when it has the answer.
#[derive(Debug)]
pub(super) struct RestartedShard {
    shared: Arc<ShardShared>,
    doors: ShardDoors,
    index: usize,
    stage: Stage,
    /// News that came meanwhile, except the answer to its claim.
    news: Vec<News>,
}

#[derive(Debug)]
enum Stage {
    New,
    /// The claim, and its partitions with their epochs before.
    Claiming(ClaimNumber, Vec<(Partition, Epoch)>),
    Running(Box<Shard>),
}

impl RestartedShard {
    pub(super) fn new(shared: Arc<ShardShared>, doors: ShardDoors, index: usize) -> Self {
        Self {
            shared,
            doors,
            index,
            stage: Stage::New,
            news: Vec::new(),
        }
    }

    /// The journal's answer to this claim, if it has come.
    fn answer(&mut self, claimed: ClaimNumber) -> Option<Result<Granted, ClaimRefused>> {
        self.news.extend(self.shared.claims.take_news(self.index));
        let is_answer = |news: &News| news.answered() == Some(claimed);
        let place = self.news.iter().position(is_answer)?;
        match self.news.remove(place) {
            News::Granted(granted) => Some(Ok(granted)),
            News::Refused(_, error) => Some(Err(error)),
            News::Lost(..) | News::Released(..) | News::Resumed(..) => None,
        }
    }

    fn succeed(&mut self, granted: Option<Granted>, now: Timestamp) -> Shard {
        let owned = granted.iter().flat_map(|granted| &granted.partitions);
        let epochs = EpochTable::new(owned.map(|owned| (owned.partition, owned.epoch)));
        let runs = granted.and_then(|mut granted| {
            let (folds, report) = (granted.take_folds(), granted.report);
            recovery::by_shard(folds, 1, report).0.pop()
        });
        let mut shard = Shard::new(Arc::clone(&self.shared), &self.doors, self.index, epochs);
        shard.succeed(runs.unwrap_or_default(), now);
        self.shared.claims.answer_left(self.index, &self.news);
        // News about former epochs is ignored.
        shard.hear(std::mem::take(&mut self.news));
        shard
    }

    /// Without a journal no caller gets an answer: dropping the requests tells them that the runtime stopped.
    fn give_up(&self) -> Next {
        self.doors.all()[self.index].close_discarding();
        Next::Stop
    }

    /// Claims, until it is told what there is.
    fn begin(&mut self, now: Timestamp) -> Next {
        loop {
            let claimed = match self.stage {
                Stage::Running(_) => return Next::Again,
                Stage::Claiming(claimed, _) => claimed,
                Stage::New => {
                    let (journal, fold) = (self.shared.journal.as_ref(), Box::<Histories>::default());
                    let claimed = self.shared.claims.claim_again(journal, fold, self.index);
                    let Some((claimed, former)) = claimed else {
                        self.stage = Stage::Running(Box::new(self.succeed(None, now)));
                        return Next::Again;
                    };
                    self.stage = Stage::Claiming(claimed, former);
                    claimed
                }
            };
            // With the answer, everything that the predecessor queued is durable, and so are the epochs: no other process
            // uses the same attempt numbers.
            match self.answer(claimed) {
                None | Some(Err(_)) if self.shared.journal.failure().is_some() => return self.give_up(),
                None => return Next::Idle,
                Some(Ok(granted)) => {
                    self.stage = Stage::Running(Box::new(self.succeed(Some(granted), now)));
                    return Next::Again;
                }
                // These were lost meanwhile: it continues with the rest.
                Some(Err(ClaimRefused::Owned { partitions })) => {
                    if let Stage::Claiming(_, former) = std::mem::replace(&mut self.stage, Stage::New) {
                        let lost = former
                            .iter()
                            .filter(|(partition, _)| partitions.contains(partition));
                        lost.for_each(|(partition, epoch)| self.shared.claims.note_loss(*partition, *epoch));
                    }
                }
                // Its successor tries again, as after any other failure, or the runtime stops.
                Some(Err(ClaimRefused::Unreadable(error))) => panic!("its runs cannot be read: {error}"),
                Some(Err(error)) => panic!("its partitions cannot be claimed: {error}"),
            }
        }
    }
}

impl Part for RestartedShard {
    fn turn(&mut self, now: Timestamp, budget: usize) -> Next {
        self.shared.watch.note_pulse(self.index);
        match &mut self.stage {
            Stage::Running(shard) => shard.turn(now, budget),
            Stage::New | Stage::Claiming(..) => match self.begin(now) {
                Next::Again => self.turn(now, budget),
                next => next,
            },
        }
    }
}
