//! The targets of a topic's envelopes.
//!
//! A route is a snapshot: it is built when a subscription begins or ends, never changed, and shared by all publishers of the
//! topic. A publisher with an older route finds the mailboxes of ended subscriptions closed and skips them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::line::{Line, TappedLine};
use crate::delivery::Delivery;
use crate::envelope::Envelope;
use crate::id::SubscriptionId;
use crate::mailbox::Mailbox;
use crate::stage::{self, Cast, Staged};
use crate::subscription::{GroupChoice, Overflow, SubscriptionCore};
use crate::watch::tap::Tap;

pub(crate) struct Route<T> {
    pub(crate) targets: Box<[Target<T>]>,
    /// The targets that get their envelopes together, if there are any.
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

/// The boxes that a publisher and the only reader of its topic reuse.
pub(crate) struct Boxes<T> {
    /// An empty box for the next envelope.
    pub(crate) spent: Option<Delivery<Envelope<T>>>,
    /// Whether the reader gives them back.
    pub(crate) are_wanted: bool,
}

impl<T: Send + Sync + 'static> Boxes<T> {
    /// Drops what the returned box still holds.
    #[inline]
    pub(crate) fn empty(&mut self) {
        if let Some(Delivery::Own(envelope)) = &mut self.spent {
            envelope.empty();
        }
    }
}

impl<T> Route<T> {
    /// Its mailbox, if one inbox gets everything that the topic carries and it is typed.
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

impl<T> Lane<T> {
    /// The lane's inbox, if it may be on a [`stage`].
    pub(crate) fn shareable(&self) -> Option<(SubscriptionId, &Mailbox<Delivery<Envelope<T>>>)> {
        let Line::Typed(inbox) = &self.line else {
            return None;
        };
        // With a wildcard, other topics could reach the inbox too, and their order would be lost.
        let fits = self.group.is_none()
            && self.core.overflow == Overflow::Block
            && self.core.filter.as_name().is_some()
            && inbox.bounds().capacity >= stage::CAPACITY_MIN;
        fits.then_some((self.core.id, inbox))
    }

    /// The lane, with a line that tells the tap of what it takes.
    pub(super) fn tapped(self, tap: &Arc<dyn Tap>) -> Self {
        if let Line::Tapped(_) = self.line {
            return self;
        }
        let line = Line::Tapped(Box::new(TappedLine::new(self.line, self.core.id, tap)));
        Self { line, ..self }
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
