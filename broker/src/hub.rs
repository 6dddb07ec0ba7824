//! What all topics of a broker share on the data path: time, ids, losses, waits.
//!
//! It holds no topics or subscriptions, so that a topic can hold it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use millrun_core::Host;

use crate::clock::{Alarm, Clock};
use crate::envelope::AnyEnvelope;
use crate::id::SubscriptionId;
use crate::id::TopicId;
use crate::watch::dead_letter::{DeadLetter, DeadLetterSink, Losses, Undeliverable};
use crate::watch::monitor::{BrokerEvent, Monitor};
use crate::watch::tap::{FlowEvent, TapSlot};
use crate::watch::wait::Waits;

pub(crate) struct Hub {
    clock: Arc<Clock>,
    next_id: AtomicU64,
    dead_letters: OnceLock<Weak<dyn DeadLetterSink>>,
    dead_letter_topic: TopicId,
    losses: Losses,
    dead_letters_lost: AtomicU64,
    waits: Arc<Waits>,
    monitor: Arc<Monitor>,
    tap: Arc<TapSlot>,
    is_closed: AtomicBool,
}

impl Hub {
    /// `dead_letter_topic` is the id that the topic of dead letters will have.
    pub(crate) fn new(
        host: Option<Arc<dyn Host>>,
        dead_letter_topic: TopicId,
        wait_report_after: Duration,
    ) -> Self {
        let monitor = Arc::<Monitor>::default();
        let tap = Arc::<TapSlot>::default();
        // The low 40 bits count; the rest identifies this run of the program.
        let mark = host.as_ref().map_or(0, |host| host.random()) << 40;
        let clock = Clock::new(host);
        let waits = Arc::new(Waits::new(
            wait_report_after,
            Arc::clone(&monitor),
            Arc::clone(&tap),
        ));
        let watched = Arc::downgrade(&waits);
        clock.at_tick(move |clock| {
            if let Some(waits) = watched.upgrade() {
                waits.watch(clock);
            }
        });
        Self {
            clock,
            next_id: AtomicU64::new(mark | 1),
            dead_letters: OnceLock::new(),
            dead_letter_topic,
            losses: Losses::default(),
            dead_letters_lost: AtomicU64::new(0),
            waits,
            monitor,
            tap,
            is_closed: AtomicBool::new(false),
        }
    }

    /// From now on refuses envelopes that no subscription takes. Set before subscriptions are ended, so that a publish that
    /// finds none sees it.
    pub(crate) fn close(&self) {
        self.is_closed.store(true, Ordering::SeqCst);
    }

    /// Checked only for an envelope that no subscription has taken.
    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::SeqCst)
    }

    pub(crate) fn set_dead_letters(&self, topic: Weak<dyn DeadLetterSink>) {
        self.dead_letters.get_or_init(|| topic);
    }

    pub(crate) fn clock(&self) -> &Arc<Clock> {
        &self.clock
    }

    pub(crate) fn alarm(&self, after: Duration) -> Alarm {
        self.clock.alarm(after)
    }

    pub(crate) fn monitor(&self) -> &Monitor {
        &self.monitor
    }

    #[inline]
    pub(crate) fn tap(&self) -> &Arc<TapSlot> {
        &self.tap
    }

    pub(crate) fn waits(&self) -> &Arc<Waits> {
        &self.waits
    }

    /// Takes `count` consecutive ids and returns the first.
    pub(crate) fn take_ids(&self, count: u64) -> u64 {
        self.next_id.fetch_add(count, Ordering::Relaxed)
    }

    /// Counts an envelope that is given up, and reports it to the tap, the monitor and the topic of dead letters.
    #[cold]
    pub(crate) fn give_up(
        &self,
        envelope: Arc<dyn AnyEnvelope>,
        reason: Undeliverable,
        subscription: Option<SubscriptionId>,
    ) {
        self.tap.tell(FlowEvent::GivenUp {
            envelope: &*envelope,
            reason,
            subscription,
        });
        if envelope.topic() == self.dead_letter_topic {
            self.dead_letters_lost.fetch_add(1, Ordering::Relaxed);
            return;
        }
        self.losses.count(reason);
        self.monitor.tell(|| BrokerEvent::GivenUp {
            envelope: envelope.id(),
            reason,
            subscription,
        });
        let Some(topic) = self.dead_letters.get().and_then(Weak::upgrade) else {
            return;
        };
        if topic.is_wanted()
            && !topic.publish_dead_letter(DeadLetter {
                reason,
                subscription,
                envelope,
            })
        {
            self.dead_letters_lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) const fn losses(&self) -> &Losses {
        &self.losses
    }

    pub(crate) fn dead_letters_lost(&self) -> u64 {
        self.dead_letters_lost.load(Ordering::Relaxed)
    }
}
