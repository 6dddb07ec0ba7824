//! Where callers ask, whichever process answers at the moment.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{oneshot, watch};

use super::life::{Life, Waiting};
use crate::check::{Licence, Rule, Violation};
use crate::ledger::SharedBook;
use crate::wire::{Answer, Ask, Request};

/// How long a process may take to answer one request: far beyond any bound of the runtime's own.
pub(crate) const ANSWER_MAX: Duration = Duration::from_secs(40);

/// The desk of a round.
#[derive(Debug)]
pub(crate) struct Desk {
    pub(crate) ledger: Arc<SharedBook>,
    /// What the faults of the round allow.
    pub(crate) licence: Licence,
    life: watch::Receiver<Option<Arc<Life>>>,
    next: AtomicU64,
    /// No further story begins.
    is_closing: AtomicBool,
    counts: Mutex<BTreeMap<&'static str, Count>>,
}

/// How often something was asked, and what came of it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Count {
    pub(crate) asked: u64,
    pub(crate) acknowledged: u64,
    pub(crate) in_doubt: u64,
    pub(crate) dropped: u64,
}

impl Desk {
    pub(crate) fn new(
        ledger: Arc<SharedBook>,
        licence: Licence,
        life: watch::Receiver<Option<Arc<Life>>>,
    ) -> Self {
        Self {
            ledger,
            licence,
            life,
            next: AtomicU64::new(1),
            is_closing: AtomicBool::new(false),
            counts: Mutex::default(),
        }
    }

    pub(crate) fn close(&self) {
        self.is_closing.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.is_closing.load(Ordering::Relaxed)
    }

    pub(crate) fn counts(&self) -> BTreeMap<&'static str, Count> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether no process will answer any more.
    pub(crate) fn is_deserted(&self) -> bool {
        self.life.has_changed().is_err()
    }

    /// Whether the file has been taken from the process that answers now.
    pub(crate) fn is_file_taken(&self) -> bool {
        let life = self.life.borrow().as_ref().map(|life| life.number);
        life.is_some_and(|life| self.ledger.book().taken.contains_key(&life))
    }

    /// Whether something broke a promise already.
    pub(crate) fn has_found(&self) -> bool {
        !self.ledger.book().violations.is_empty()
    }

    /// Asks once, and waits for the answer or the end of the process. While there is none, waits for one.
    pub(crate) async fn ask(&self, caller: u32, ask: &Ask, drop_after_us: Option<u64>) -> Answer {
        let mut lives = self.life.clone();
        loop {
            let life = match lives.wait_for(Option::is_some).await {
                Ok(life) => life.clone(),
                Err(_) => return Answer::Lost,
            };
            let Some(life) = life else { continue };
            if let Some(answer) = self.ask_in(&life, caller, ask, drop_after_us).await {
                self.count(ask, &answer);
                return answer;
            }
            // It has ended, and nobody has noticed yet.
            if lives.changed().await.is_err() {
                return Answer::Lost;
            }
        }
    }

    /// `None` if the process had ended before.
    async fn ask_in(
        &self,
        life: &Life,
        caller: u32,
        ask: &Ask,
        drop_after_us: Option<u64>,
    ) -> Option<Answer> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let (reply, answer) = oneshot::channel();
        let (place, tick) = self.ledger.book().asked(caller, life.number, ask);
        let waiting = Waiting {
            place: ask.instance().map(str::to_owned).zip(place),
            reply,
            fence: (*ask == Ask::Fence).then_some(tick),
        };
        if !life.expect(number, waiting) {
            if let (Some(id), Some(place)) = (ask.instance(), place) {
                self.ledger.book().answered(id, place, &Answer::Lost);
            }
            return None;
        }
        life.send(&Request {
            number,
            drop_after_us,
            ask: ask.clone(),
        });
        match tokio::time::timeout(ANSWER_MAX, answer).await {
            Ok(answer) => Some(answer.unwrap_or(Answer::Lost)),
            Err(_) => {
                let story = format!(
                    "no answer to {ask:?} for {} s, in life {}",
                    ANSWER_MAX.as_secs(),
                    life.number
                );
                self.blame(Rule::NothingHangs, ask.instance(), story);
                Some(Answer::Lost)
            }
        }
    }

    pub(crate) fn blame(&self, rule: Rule, instance: Option<&str>, story: impl Into<String>) {
        self.ledger.blame(Violation {
            rule,
            instance: instance.map(str::to_owned),
            story: story.into(),
        });
    }

    fn count(&self, ask: &Ask, answer: &Answer) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(ask.label()).or_default();
        count.asked += 1;
        count.acknowledged += u64::from(answer.is_acknowledgement());
        count.in_doubt += u64::from(answer.is_in_doubt());
        count.dropped += u64::from(*answer == Answer::Dropped);
    }
}
