//! Whom an envelope of a topic goes to.
//!
//! A route is a snapshot: it is built when a subscription comes or goes, never changed, and shared
//! by all publishers of the topic. A publisher that still holds an older one finds the mailboxes of
//! ended subscriptions closed and passes over them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Context;

use crate::delivery::Delivery;
use crate::envelope::{AnyEnvelope, Envelope};
use crate::mailbox::{Closed, Mailbox, Place, TryPushError};
use crate::stage::{Cast, Staged};
use crate::subscription::{GroupChoice, SubscriptionCore};
use crate::tap::{TappedLine, TappedPlace};

pub(crate) struct Route<T> {
    pub(crate) targets: Box<[Target<T>]>,
    /// Those of the targets that get their envelopes together, if there are such.
    pub(crate) staged: Option<Staged<T>>,
}

pub(crate) enum Target<T> {
    One(Lane<T>),
    Group(Group<T>),
}

/// The members of one queue group that match the topic.
pub(crate) struct Group<T> {
    pub(crate) core: Arc<GroupCore>,
    pub(crate) members: Vec<Lane<T>>,
}

/// What all members of a queue group share, whatever the topic.
pub(crate) struct GroupCore {
    pub(crate) choice: GroupChoice,
    turn: AtomicUsize,
}

/// One subscription, as publishers of `T` see it.
pub(crate) struct Lane<T> {
    pub(crate) core: Arc<SubscriptionCore>,
    pub(crate) group: Option<Arc<GroupCore>>,
    pub(crate) line: Line<T>,
}

/// The boxes that go round between a publisher and the only reader of its topic.
pub(crate) struct Boxes<T> {
    /// One for the next envelope, empty.
    pub(crate) spent: Option<Delivery<Envelope<T>>>,
    /// Whether the reader gives them back.
    pub(crate) are_wanted: bool,
}

/// Its mailbox.
pub(crate) enum Line<T> {
    Typed(Mailbox<Delivery<Envelope<T>>>),
    Any(Mailbox<Delivery<dyn AnyEnvelope>>),
    /// One of the two, in a tapped broker.
    Tapped(Box<TappedLine<T>>),
}

impl<T: Send + Sync + 'static> Boxes<T> {
    /// Drops what the box that came back still carries.
    #[inline]
    pub(crate) fn empty(&mut self) {
        if let Some(Delivery::Own(envelope)) = &mut self.spent {
            envelope.empty();
        }
    }
}

impl<T> Route<T> {
    /// Its mailbox, if all that the topic carries goes to one inbox and that one is typed.
    pub(crate) fn only_mailbox(&self) -> Option<&Mailbox<Delivery<Envelope<T>>>> {
        match &*self.targets {
            [
                Target::One(Lane {
                    line: Line::Typed(mailbox),
                    ..
                }),
            ] => Some(mailbox),
            _ => None,
        }
    }

    pub(crate) fn build(lanes: &[Lane<T>], cast: Option<Cast<'_, T>>) -> Self {
        let mut targets: Vec<Target<T>> = Vec::with_capacity(lanes.len());
        for lane in lanes {
            let Some(core) = &lane.group else {
                targets.push(Target::One(lane.clone()));
                continue;
            };
            let known = targets.iter_mut().find_map(|target| match target {
                Target::Group(group) if Arc::ptr_eq(&group.core, core) => Some(group),
                _ => None,
            });
            match known {
                Some(group) => group.members.push(lane.clone()),
                None => targets.push(Target::Group(Group {
                    core: Arc::clone(core),
                    members: vec![lane.clone()],
                })),
            }
        }
        let staged = cast.map(|cast| {
            let is_staged =
                |target: &Target<T>| matches!(target, Target::One(lane) if cast.has(lane.core.id));
            let others = (0..targets.len()).filter(|index| !is_staged(&targets[*index]));
            let others = others.collect();
            cast.beside(others)
        });
        Self {
            targets: targets.into_boxed_slice(),
            staged,
        }
    }
}

impl<T> Clone for Lane<T> {
    fn clone(&self) -> Self {
        Self {
            core: Arc::clone(&self.core),
            group: self.group.clone(),
            line: self.line.clone(),
        }
    }
}

impl<T> Clone for Line<T> {
    fn clone(&self) -> Self {
        match self {
            Self::Typed(mailbox) => Self::Typed(mailbox.clone()),
            Self::Any(mailbox) => Self::Any(mailbox.clone()),
            Self::Tapped(tapped) => Self::Tapped(tapped.clone()),
        }
    }
}

impl GroupCore {
    pub(crate) const fn new(choice: GroupChoice) -> Self {
        Self {
            choice,
            turn: AtomicUsize::new(0),
        }
    }
}

impl<T: Send + Sync + 'static> Group<T> {
    /// The members, in the order in which they are to be asked.
    pub(crate) fn by_preference(&self) -> impl Iterator<Item = &Lane<T>> {
        let first = match self.core.choice {
            GroupChoice::RoundRobin => self.core.turn.fetch_add(1, Ordering::Relaxed) % self.members.len(),
            GroupChoice::LeastLoaded => self
                .members
                .iter()
                .enumerate()
                .min_by_key(|(_, lane)| lane.line.len())
                .map_or(0, |(index, _)| index),
        };
        self.members[first..].iter().chain(&self.members[..first])
    }
}

impl<T: Send + Sync + 'static> Line<T> {
    #[inline]
    pub(crate) fn try_push(&self, envelope: Arc<Envelope<T>>) -> Result<(), TryPushError<Arc<Envelope<T>>>> {
        match self {
            Self::Typed(mailbox) => {
                let weight = envelope.mailbox_weight();
                mailbox
                    .try_push_weighed(Delivery::Shared(envelope), weight, None)
                    .map_err(|refused| refused.map(Delivery::into_shared))
            }
            Self::Any(mailbox) => {
                let any: Arc<dyn AnyEnvelope> = Arc::<Envelope<T>>::clone(&envelope);
                mailbox
                    .try_push(Delivery::Shared(any))
                    .map_err(|error| match error {
                        TryPushError::Full(_) => TryPushError::Full(envelope),
                        TryPushError::Closed(_) => TryPushError::Closed(envelope),
                    })
            }
            Self::Tapped(tapped) => tapped.try_push(envelope),
        }
    }

    /// Pushes as many as fit, in order. Says how many that were, and gives the others back: all of them, if
    /// the inbox is closed.
    pub(crate) fn try_push_batch(&self, envelopes: Vec<Arc<Envelope<T>>>) -> (usize, Vec<Arc<Envelope<T>>>) {
        let all = envelopes.len();
        match self {
            Self::Typed(mailbox) => {
                let shared = envelopes.into_iter().map(Delivery::Shared).collect();
                let rest = match mailbox.try_push_batch(shared) {
                    Ok(()) => Vec::new(),
                    Err(refused) => refused.into_inner(),
                };
                let taken = all - rest.len();
                (taken, rest.into_iter().map(Delivery::into_shared).collect())
            }
            Self::Any(mailbox) => {
                let any: Vec<Delivery<dyn AnyEnvelope>> = envelopes
                    .iter()
                    .map(|envelope| Delivery::Shared(Arc::clone(envelope) as Arc<dyn AnyEnvelope>))
                    .collect();
                let rest = match mailbox.try_push_batch(any) {
                    Ok(()) => 0,
                    Err(refused) => refused.into_inner().len(),
                };
                let taken = all - rest;
                (taken, envelopes.into_iter().skip(taken).collect())
            }
            Self::Tapped(tapped) => tapped.try_push_batch(envelopes),
        }
    }

    /// Pushes at the cost of the oldest, which are handed to `dropped`.
    pub(crate) fn push_displacing(
        &self,
        envelope: Arc<Envelope<T>>,
        dropped: &mut dyn FnMut(Arc<dyn AnyEnvelope>),
    ) -> Result<(), Closed<Arc<Envelope<T>>>> {
        match self {
            Self::Typed(mailbox) => {
                let mut displaced = Vec::new();
                mailbox
                    .push_displacing(Delivery::Shared(envelope), &mut displaced)
                    .map_err(|Closed(back)| Closed(back.into_shared()))?;
                displaced
                    .into_iter()
                    .for_each(|delivery| dropped(delivery.into_shared()));
            }
            Self::Any(mailbox) => {
                let mut displaced = Vec::new();
                let any: Arc<dyn AnyEnvelope> = Arc::<Envelope<T>>::clone(&envelope);
                mailbox
                    .push_displacing(Delivery::Shared(any), &mut displaced)
                    .map_err(|Closed(_)| Closed(envelope))?;
                displaced
                    .into_iter()
                    .for_each(|delivery| dropped(delivery.into_shared()));
            }
            Self::Tapped(tapped) => tapped.push_displacing(envelope, dropped)?,
        }
        Ok(())
    }

    pub(crate) fn place(&self) -> LinePlace<T> {
        match self {
            Self::Typed(mailbox) => LinePlace::Typed(Place::new(mailbox.clone())),
            Self::Any(mailbox) => LinePlace::Any(Place::new(mailbox.clone())),
            Self::Tapped(tapped) => LinePlace::Tapped(Box::new(tapped.place())),
        }
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Typed(mailbox) => mailbox.len(),
            Self::Any(mailbox) => mailbox.len(),
            Self::Tapped(tapped) => tapped.len(),
        }
    }
}

/// A publisher's place in the line before a full inbox.
pub(crate) enum LinePlace<T> {
    Typed(Place<Delivery<Envelope<T>>>),
    Any(Place<Delivery<dyn AnyEnvelope>>),
    Tapped(Box<TappedPlace<T>>),
}

impl<T: Send + Sync + 'static> LinePlace<T> {
    /// Pushes if it is this one's turn; else stays in the line (`Full`).
    pub(crate) fn poll(
        &mut self,
        envelope: &Arc<Envelope<T>>,
        cx: &mut Context<'_>,
    ) -> Result<(), TryPushError<()>> {
        let refused = match self {
            Self::Typed(place) => place
                .poll(Delivery::Shared(Arc::clone(envelope)), cx)
                .map_err(|error| error.is_retryable()),
            Self::Any(place) => {
                let any: Arc<dyn AnyEnvelope> = Arc::<Envelope<T>>::clone(envelope);
                place
                    .poll(Delivery::Shared(any), cx)
                    .map_err(|error| error.is_retryable())
            }
            Self::Tapped(tapped) => return tapped.poll(envelope, cx),
        };
        refused.map_err(|full| {
            if full {
                TryPushError::Full(())
            } else {
                TryPushError::Closed(())
            }
        })
    }
}
