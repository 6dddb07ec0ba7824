//! Questions to the store about its nodes, on a thread and a connection of their own.
//!
//! ```text
//!   a caller ──► question ──► queue ──► the nodes' thread ──► its session ──► the answer, within a bound
//! ```
//!
//! The thread does not wait for a server that is away: a node that looks must hear soon that the look failed.

use std::sync::{Arc, Mutex, PoisonError};

use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use millrun_core::{Bell, Offset, Timestamp};
use millrun_persistence::{JournalFailure, NodeKey, NodeMail, NodeTerms, NodesSeen, ReadError, SharedStore};

use crate::mail::MailDoor;
use crate::reading::unread;
use crate::server::{NodesSession, Server, ServerTrouble};
use crate::shared::PostgresShared;

/// A question about nodes, with the channel for its answer.
pub(crate) type NodesQuestion = Box<dyn FnOnce(&mut NodesSeat) + Send>;

/// The door of the thread for nodes.
pub(crate) struct NodesDoor {
    node: NodeKey,
    shared: Arc<PostgresShared>,
    mail: MailDoor,
    questions: Mutex<Option<Sender<NodesQuestion>>>,
}

impl NodesDoor {
    pub(crate) fn new(
        node: NodeKey,
        shared: Arc<PostgresShared>,
        mail: MailDoor,
    ) -> (Self, Receiver<NodesQuestion>) {
        let (questions, asked) = unbounded();
        let door = Self {
            node,
            shared,
            mail,
            questions: Mutex::new(Some(questions)),
        };
        (door, asked)
    }

    /// Accepts no more questions; the thread ends.
    pub(crate) fn close(&self) {
        let questions = &self.questions;
        questions.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.mail.close();
    }

    fn ask<T: Send + 'static>(
        &self,
        question: impl Fn(&mut dyn NodesSession) -> Result<T, ServerTrouble> + Send + 'static,
    ) -> Result<T, ReadError> {
        let closed = || ReadError::Failed(JournalFailure::closed());
        // The lock is not held while waiting for the answer: a close takes it.
        let questions = self
            .questions
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        let questions = questions.ok_or_else(closed)?;
        let (sender, answer) = bounded(1);
        let question: NodesQuestion = Box::new(move |seat| {
            // The caller may have given up.
            drop(sender.send(seat.ask(&question)));
        });
        questions.send(question).map_err(|_| closed())?;
        answer.recv().map_err(|_| closed())?
    }
}

impl SharedStore for NodesDoor {
    fn node(&self) -> &NodeKey {
        &self.node
    }

    fn beat(&self) -> Offset {
        self.shared.lock().leave_beats();
        self.shared.confirm(Offset::ZERO)
    }

    fn announce(&self, terms: NodeTerms) -> Result<(), ReadError> {
        self.ask(move |session| session.announce(terms))
    }

    fn look(&self) -> Result<NodesSeen, ReadError> {
        self.ask(|session| session.look())
    }

    fn time(&self) -> Result<Option<Timestamp>, ReadError> {
        self.ask(|session| session.time()).map(Some)
    }

    fn declare_dead(&self, node: &NodeKey) -> Result<(), ReadError> {
        let node = node.clone();
        self.ask(move |session| session.declare_dead(&node))
    }

    fn watch(&self, bell: Bell) {
        self.mail.watch_nodes(bell);
    }

    fn mail(&self) -> Option<&dyn NodeMail> {
        Some(&self.mail)
    }
}

/// The state of the thread for nodes. Its connection is opened when it is needed.
pub(crate) struct NodesSeat {
    shared: Arc<PostgresShared>,
    server: Box<dyn Server>,
    session: Option<Box<dyn NodesSession>>,
}

impl NodesSeat {
    pub(crate) fn new(shared: Arc<PostgresShared>, server: Box<dyn Server>) -> Self {
        Self {
            shared,
            server,
            session: None,
        }
    }

    /// Answers questions until the door is closed.
    pub(crate) fn run(mut self, questions: &Receiver<NodesQuestion>) {
        while let Ok(question) = questions.recv() {
            question(&mut self);
        }
    }

    /// Asks the server, once more if the connection was lost.
    fn ask<T>(
        &mut self,
        question: &dyn Fn(&mut dyn NodesSession) -> Result<T, ServerTrouble>,
    ) -> Result<T, ReadError> {
        // A node that has failed declares no other node dead.
        if let Some(failure) = self.shared.lock().failure.clone() {
            return Err(failure.into());
        }
        if self.session.as_ref().is_some_and(|session| session.is_outdated()) {
            self.session = None;
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
        question: &dyn Fn(&mut dyn NodesSession) -> Result<T, ServerTrouble>,
    ) -> Result<T, ServerTrouble> {
        let session = match &mut self.session {
            Some(session) => session,
            none => none.insert(self.server.nodes()?),
        };
        let answer = question(&mut **session);
        if matches!(answer, Err(ServerTrouble::Lost(_))) {
            self.session = None;
        }
        answer
    }
}
