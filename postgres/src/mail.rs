//! Mail between nodes. Flushes post it; a thread with a connection of its own reads it. On that connection nodes also notify
//! each other that there is mail, and that a node has left.
//!
//! ```text
//!   post, or a batch with a step ──► queue ──► flush ──► rows ──► told, at most once in 2 ms ──► bells of the other nodes
//!   a caller ──► question ──► the mail thread ──► its session ──► unread mail
//! ```
//!
//! A notification is a statement of its own, after the flush, because the server commits statements that notify one after the
//! other. It may be lost, and nothing relies on it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, TryRecvError, bounded, unbounded};
use millrun_core::{Bell, Epoch, Partition};
use millrun_persistence::{JournalFailure, NodeMail, OutgoingMail, ReadError, UnreadMail};
use tokio::sync::Notify;

use crate::reading::unread;
use crate::server::{MailSession, Server, ServerTrouble, WantedMail};
use crate::shared::PostgresShared;

/// The shortest time between two notifications of a node about mail.
const TOLD_EVERY: Duration = Duration::from_millis(2);

/// How long the thread waits for work until it checks whether its session is still valid.
const IDLE_MAX: Duration = Duration::from_secs(1);

/// The pause after a session could not be opened.
const RETRY_PAUSE: Duration = Duration::from_millis(100);

/// A question about mail, with the channel for its answer.
pub(crate) type MailQuestion = Box<dyn FnOnce(&mut MailSeat) + Send>;

/// Wakes the mail thread, and holds the reason.
#[derive(Debug, Default)]
pub(crate) struct MailWake {
    notify: Notify,
    /// Whether something was posted since the last notification.
    has_posted: AtomicBool,
}

impl MailWake {
    /// A flush that posted mail has landed.
    pub(crate) fn posted(&self) {
        self.has_posted.store(true, Ordering::Release);
        self.notify.notify_one();
    }
}

/// The door of the mail thread.
pub(crate) struct MailDoor {
    shared: Arc<PostgresShared>,
    wake: Arc<MailWake>,
    questions: Mutex<Option<Sender<MailQuestion>>>,
    bells: Arc<MailBells>,
}

/// The bells to ring for notifications of other nodes.
#[derive(Debug, Default)]
struct MailBells {
    mail: Mutex<Vec<Bell>>,
    left: Mutex<Vec<Bell>>,
}

impl MailBells {
    fn ring(bells: &Mutex<Vec<Bell>>) {
        let bells = bells.lock().unwrap_or_else(PoisonError::into_inner);
        bells.iter().for_each(Bell::ring);
    }

    fn add(bells: &Mutex<Vec<Bell>>, bell: Bell) {
        bells.lock().unwrap_or_else(PoisonError::into_inner).push(bell);
    }
}

impl MailDoor {
    /// Makes the door, and the seat of its thread.
    pub(crate) fn new(shared: Arc<PostgresShared>, server: Box<dyn Server>) -> (Self, MailSeat) {
        let (questions, asked) = unbounded();
        let (wake, bells) = (Arc::<MailWake>::default(), Arc::<MailBells>::default());
        let seat = MailSeat {
            shared: Arc::clone(&shared),
            server,
            wake: Arc::clone(&wake),
            asked,
            bells: Arc::clone(&bells),
            session: None,
            told_at: None,
        };
        let door = Self {
            shared,
            wake,
            questions: Mutex::new(Some(questions)),
            bells,
        };
        (door, seat)
    }

    /// Rings this bell when another node says that it has left.
    pub(crate) fn watch_nodes(&self, bell: Bell) {
        MailBells::add(&self.bells.left, bell);
    }

    pub(crate) fn wake(&self) -> Arc<MailWake> {
        Arc::clone(&self.wake)
    }

    /// Accepts no more questions; the thread ends.
    pub(crate) fn close(&self) {
        let questions = &self.questions;
        questions.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.wake.notify.notify_one();
    }

    fn ask<T: Send + 'static>(
        &self,
        question: impl Fn(&mut dyn MailSession) -> Result<T, ServerTrouble> + Send + 'static,
    ) -> Result<T, ReadError> {
        let closed = || ReadError::Failed(JournalFailure::closed());
        let questions = self
            .questions
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        let questions = questions.ok_or_else(closed)?;
        let (sender, answer) = bounded(1);
        let question: MailQuestion = Box::new(move |seat| {
            // The caller may have given up.
            drop(sender.send(seat.ask(&question)));
        });
        questions.send(question).map_err(|_| closed())?;
        self.wake.notify.notify_one();
        answer.recv().map_err(|_| closed())?
    }
}

impl NodeMail for MailDoor {
    fn post(&self, mail: OutgoingMail) {
        self.shared.lock().post(mail);
        self.shared.wake();
    }

    fn discard(&self, numbers: &[u64]) {
        self.shared.lock().discard_mail(numbers);
        self.shared.wake();
    }

    fn set_aside(&self, numbers: &[u64]) {
        self.shared.lock().set_mail_aside(numbers);
        self.shared.wake();
    }

    fn unread(
        &self,
        partitions: &[Partition],
        except: &[u64],
        len_max: usize,
        bytes_max: usize,
    ) -> Result<Vec<UnreadMail>, ReadError> {
        let wanted = WantedMail {
            partitions: partitions.to_vec(),
            except: except.to_vec(),
            len_max,
            bytes_max,
        };
        self.ask(move |session| session.unread(&wanted))
    }

    fn epochs(&self, partitions: &[Partition]) -> Result<Vec<(Partition, Epoch)>, ReadError> {
        let partitions = partitions.to_vec();
        self.ask(move |session| session.epochs(&partitions))
    }

    fn watch(&self, bell: Bell) {
        MailBells::add(&self.bells.mail, bell);
    }
}

/// The mail thread's state, with its connection.
pub(crate) struct MailSeat {
    shared: Arc<PostgresShared>,
    server: Box<dyn Server>,
    wake: Arc<MailWake>,
    asked: Receiver<MailQuestion>,
    bells: Arc<MailBells>,
    session: Option<Box<dyn MailSession>>,
    told_at: Option<Instant>,
}

impl MailSeat {
    /// Answers questions, and sends and receives notifications, until the door is closed.
    pub(crate) fn run(mut self) {
        loop {
            match self.asked.try_recv() {
                Ok(question) => {
                    question(&mut self);
                    continue;
                }
                Err(TryRecvError::Empty) => {}
                Err(TryRecvError::Disconnected) => return,
            }
            let pause = self.tell();
            self.wait(pause);
        }
    }

    /// Notifies the other nodes if mail was posted and the last notification is long enough ago. Returns how long to wait
    /// then.
    fn tell(&mut self) -> Duration {
        if !self.wake.has_posted.load(Ordering::Acquire) {
            return IDLE_MAX;
        }
        let since = self.told_at.map_or(TOLD_EVERY, |told_at| told_at.elapsed());
        if since < TOLD_EVERY {
            return TOLD_EVERY - since;
        }
        self.wake.has_posted.store(false, Ordering::Release);
        match self.ask(&|session| session.tell()) {
            Ok(()) => self.told_at = Some(Instant::now()),
            // The other nodes look for mail by themselves.
            Err(error) => tracing::debug!(%error, "other nodes could not be told that there is mail"),
        }
        IDLE_MAX
    }

    /// Waits for work. A session is kept open while the server is there, so that notifications are received.
    fn wait(&mut self, wait_max: Duration) {
        let is_failed = self.shared.lock().failure.is_some();
        if !is_failed && let Err(error) = self.open() {
            tracing::debug!(%error, "there is no session for mail");
        }
        let Some(session) = &mut self.session else {
            if let Ok(question) = self.asked.recv_timeout(wait_max.min(RETRY_PAUSE)) {
                question(self);
            } else {
                // With no question waiting, the next check notices a closed door.
                thread::yield_now();
            }
            return;
        };
        let told = session.wait(&self.wake.notify, wait_max);
        if told.has_mail {
            MailBells::ring(&self.bells.mail);
        }
        if told.has_left {
            MailBells::ring(&self.bells.left);
        }
    }

    fn open(&mut self) -> Result<&mut Box<dyn MailSession>, ServerTrouble> {
        if self.session.as_ref().is_some_and(|session| session.is_outdated()) {
            self.session = None;
        }
        match &mut self.session {
            Some(session) => Ok(session),
            none => Ok(none.insert(self.server.mail()?)),
        }
    }

    /// Asks the server, once more if the connection was lost.
    fn ask<T>(
        &mut self,
        question: &dyn Fn(&mut dyn MailSession) -> Result<T, ServerTrouble>,
    ) -> Result<T, ReadError> {
        // A node that has failed must not read mail: it may be another's.
        if let Some(failure) = self.shared.lock().failure.clone() {
            return Err(failure.into());
        }
        let had_session = self.session.is_some();
        let mut answer = self.ask_once(question);
        if had_session && matches!(answer, Err(ServerTrouble::Lost(_))) {
            answer = self.ask_once(question);
        }
        answer.map_err(|error| unread(error.to_string()))
    }

    fn ask_once<T>(
        &mut self,
        question: &dyn Fn(&mut dyn MailSession) -> Result<T, ServerTrouble>,
    ) -> Result<T, ServerTrouble> {
        let answer = question(&mut **self.open()?);
        if matches!(answer, Err(ServerTrouble::Lost(_))) {
            self.session = None;
        }
        answer
    }
}
