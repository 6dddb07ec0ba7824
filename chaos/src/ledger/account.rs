//! What the ledger holds of one instance.

use super::Tick;
use crate::programs::{Kind, ProgramResult};
use crate::wire::{Answer, Ask, Ran, Refusal};

/// An instance, as its callers saw it.
#[derive(Clone, Debug)]
pub(crate) struct Account {
    pub(crate) kind: Kind,
    pub(crate) id: String,
    pub(crate) deeds: Vec<Deed>,
    /// What was asked through handles of another workflow.
    pub(crate) strangers: Vec<Deed>,
    pub(crate) marks: Vec<Mark>,
    /// The tokens of its promises, as often as they were told.
    pub(crate) promises: Vec<String>,
    /// Its story is over, and nothing more will be asked.
    pub(crate) is_over: bool,
}

/// A request and its answer.
#[derive(Clone, Debug)]
pub(crate) struct Deed {
    pub(crate) caller: u32,
    /// The life of the worker that it was sent to.
    pub(crate) life: u64,
    pub(crate) ask: Ask,
    pub(crate) asked: Tick,
    pub(crate) answered: Option<(Tick, Answer)>,
}

/// Where a request stands in its account.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestIndex {
    is_stranger: bool,
    index: usize,
}

/// An execution of a step.
#[derive(Clone, Debug)]
pub(crate) struct Mark {
    pub(crate) tick: Tick,
    pub(crate) life: u64,
    pub(crate) ran: Ran,
}

impl Account {
    pub(crate) fn new(kind: Kind, id: &str) -> Self {
        Self {
            kind,
            id: id.to_owned(),
            deeds: Vec::new(),
            strangers: Vec::new(),
            marks: Vec::new(),
            promises: Vec::new(),
            is_over: false,
        }
    }

    /// Enters a request. Gives its index.
    pub(super) fn enter(&mut self, deed: Deed) -> RequestIndex {
        let is_stranger = deed.ask.kind().is_some_and(|kind| kind != self.kind);
        let deeds = if is_stranger {
            &mut self.strangers
        } else {
            &mut self.deeds
        };
        deeds.push(deed);
        RequestIndex {
            is_stranger,
            index: deeds.len() - 1,
        }
    }

    /// The request at this index.
    pub(super) fn deed_mut(&mut self, index: RequestIndex) -> Option<&mut Deed> {
        let deeds = if index.is_stranger {
            &mut self.strangers
        } else {
            &mut self.deeds
        };
        deeds.get_mut(index.index)
    }

    /// The tick at which the first of these was acknowledged.
    pub(crate) fn first_ack(&self, is_meant: impl Fn(&Deed) -> bool) -> Option<Tick> {
        let meant = self.deeds.iter().filter(|deed| is_meant(deed));
        meant.filter_map(Deed::acknowledged).min()
    }

    /// The tick at which the first of these was asked.
    pub(crate) fn first_ask(&self, is_meant: impl Fn(&Ask) -> bool) -> Option<Tick> {
        let meant = self.deeds.iter().filter(|deed| is_meant(&deed.ask));
        meant.map(|deed| deed.asked).min()
    }

    /// What its result was said to be, the first time.
    pub(crate) fn outcome(&self) -> Option<&ProgramResult> {
        self.deeds.iter().find_map(|deed| match deed.answer() {
            Some(Answer::Ended(outcome)) => Some(outcome),
            _ => None,
        })
    }

    /// Whether it was paused at any time.
    pub(crate) fn is_ever_paused(&self) -> bool {
        self.first_ask(|ask| matches!(ask, Ask::Pause { .. })).is_some()
    }

    /// The account in lines, for people.
    pub(crate) fn told(&self) -> String {
        let mut lines = format!("{} ({})\n", self.id, self.kind.name());
        let mut all: Vec<(Tick, String)> = Vec::new();
        for deed in self.deeds.iter().chain(&self.strangers) {
            let Deed {
                caller, life, ask, ..
            } = deed;
            all.push((deed.asked, format!("life {life} caller {caller} asks  {ask:?}")));
            match &deed.answered {
                Some((tick, answer)) => {
                    all.push((
                        *tick,
                        format!(
                            "life {life} caller {caller} hears {answer:?}  [asked at {}]",
                            deed.asked
                        ),
                    ));
                }
                None => all.push((Tick::MAX, format!("caller {caller} never heard of {ask:?}"))),
            }
        }
        for Mark { tick, life, ran } in &self.marks {
            all.push((*tick, format!("life {life} mark {ran:?}")));
        }
        all.sort();
        for (tick, line) in all {
            lines.push_str(&format!("  {tick:>8}  {line}\n"));
        }
        lines
    }
}

impl Deed {
    pub(crate) fn answer(&self) -> Option<&Answer> {
        self.answered.as_ref().map(|(_, answer)| answer)
    }

    /// When it was acknowledged, if it was: done for sure.
    pub(crate) fn acknowledged(&self) -> Option<Tick> {
        match &self.answered {
            Some((tick, answer)) if answer.is_acknowledgement() => Some(*tick),
            _ => None,
        }
    }

    /// Whether it may have been done, and nobody knows.
    pub(crate) fn is_in_doubt(&self) -> bool {
        self.answer().is_none_or(Answer::is_in_doubt)
    }
}

impl Answer {
    /// Whether what was asked has been done.
    pub(crate) fn is_acknowledgement(&self) -> bool {
        matches!(
            self,
            Self::Done
                | Self::Started { .. }
                | Self::Changed { .. }
                | Self::Published { .. }
                | Self::Shown(_)
                | Self::Ended(_)
                | Self::Cancelled
                | Self::Terminated { .. }
                | Self::Described(_)
        )
    }

    /// Whether it leaves open what was done.
    pub(crate) fn is_in_doubt(&self) -> bool {
        matches!(self, Self::Unknown { .. } | Self::Dropped | Self::Lost)
    }

    pub(crate) fn is_refused(&self, because: Refusal) -> bool {
        matches!(self, Self::Refused { why, .. } if *why == because)
    }
}
