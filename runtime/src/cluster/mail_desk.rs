//! Mail between nodes, as the parts of a runtime see it: what is posted, and what is in hand.
//!
//! ```text
//!   shard ── router ── post ──► journal ──► store ──► unread ──► MailPart ──► door of a shard
//!                                             ▲                                   │ in hand, under an epoch
//!                                             └── the mail goes, in one flush ◄───┘ with what it led to
//! ```
//!
//! Invariants: mail that is in hand is not read again, unless its partition has another epoch by now: then the shard that had
//! it has dropped it, or will. What is in hand is bounded; the rest waits in the store.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use millrun_core::{Bell, Epoch, Host, Offset, Partition};
use millrun_persistence::{Journal, MailAddress, NodeKey, NodeMail, OutgoingMail};
use tokio::sync::oneshot;

use crate::mail::{PartitionMessage, PendingReply, Request};
use crate::ownership::claims::OwnedTable;
use crate::wire;
use crate::wire::calls::{self, AnswerToNode, MailedAnswer};

/// How much mail is in hand at most: pieces, and bytes, which the last piece may exceed.
const IN_HAND_LEN_MAX: usize = 4_096;
const IN_HAND_BYTES_MAX: usize = 64 << 20;

/// How many callers of this process may wait for answers of other nodes.
const ASKED_LEN_MAX: usize = 65_536;

/// How often a shard is given a request that it drops, as one does that fails.
const TRIES_MAX: u32 = 3;

/// The mail of this node.
pub(crate) struct MailDesk {
    journal: Arc<dyn Journal>,
    owned: OwnedTable,
    /// Of the part that reads.
    bell: Bell,
    in_hand: Mutex<HeldMail>,
    set_aside: AtomicU64,
    /// The number of this node.
    node: u64,
    asked: Mutex<AskedElsewhere>,
    host: Arc<dyn Host>,
}

/// What callers of this process have asked of runs of other nodes, by the numbers of their questions.
#[derive(Debug, Default)]
struct AskedElsewhere {
    last: u64,
    pending: BTreeMap<u64, PendingAsk>,
}

#[derive(Debug)]
struct PendingAsk {
    reply: PendingReply,
    partition: Partition,
    /// The request, for what may be asked twice: it is asked again when the partition moves.
    question: Option<Bytes>,
    /// The node that was believed to own the partition when it was asked.
    owner: Option<NodeKey>,
}

impl fmt::Debug for MailDesk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MailDesk").finish_non_exhaustive()
    }
}

/// Mail that was read and is not known to have gone.
#[derive(Debug, Default)]
struct HeldMail {
    mail: BTreeMap<u64, MailInHand>,
    bytes: usize,
    /// How often mail was given back that a shard had in hand.
    given_back: BTreeMap<u64, u32>,
}

#[derive(Clone, Copy, Debug)]
struct MailInHand {
    /// The partition that it is for, and the epoch under which that was owned; `None` if it is for this node.
    owned: Option<(Partition, Epoch)>,
    bytes: usize,
    /// It has gone when this is durable.
    gone_at: Option<Offset>,
}

impl MailDesk {
    /// The desk of a journal over a store that has mail.
    pub(crate) fn of(
        journal: &Arc<dyn Journal>,
        owned: &OwnedTable,
        host: &Arc<dyn Host>,
    ) -> Option<Arc<Self>> {
        let bell = Bell::new();
        journal.nodes()?.mail()?.watch(bell.clone());
        Some(Arc::new(Self {
            journal: Arc::clone(journal),
            owned: owned.clone(),
            bell,
            in_hand: Mutex::default(),
            set_aside: AtomicU64::new(0),
            node: journal.nodes()?.node().number(),
            asked: Mutex::default(),
            host: Arc::clone(host),
        }))
    }

    pub(crate) fn bell(&self) -> &Bell {
        &self.bell
    }

    pub(crate) fn store(&self) -> Option<&dyn NodeMail> {
        self.journal.nodes()?.mail()
    }

    /// How much mail was set aside since the runtime has started.
    pub(crate) fn set_aside_len(&self) -> u64 {
        self.set_aside.load(Ordering::Relaxed)
    }

    /// Whether a partition is owned here: what is for it needs no mail.
    #[inline]
    pub(crate) fn is_here(&self, partition: Partition) -> bool {
        self.owned.has(partition)
    }

    /// Posts a message to the owner of a partition.
    pub(crate) fn post(&self, to: Partition, message: &PartitionMessage) {
        self.post_to(MailAddress::Partition(to), message);
    }

    /// Posts a message to all other nodes.
    pub(crate) fn post_to_others(&self, message: &PartitionMessage) {
        self.post_to(MailAddress::OtherNodes, message);
    }

    fn post_to(&self, to: MailAddress, message: &PartitionMessage) {
        match wire::encode(message) {
            Ok(body) => self.post_bytes(to, body.into()),
            // Only what is said about all calls of a shard grows so long; its children stay as they are.
            Err(error) => tracing::error!(%error, "a message to another node cannot be sent"),
        }
    }

    fn post_bytes(&self, to: MailAddress, body: Bytes) {
        if let Some(store) = self.store() {
            store.post(OutgoingMail { to, body });
        }
    }

    /// Asks the node that owns a partition, by what is known here `owner`. The request comes back if it cannot be asked of another
    /// node, or if too many callers wait for answers.
    #[expect(clippy::result_large_err, reason = "the request itself comes back")]
    pub(crate) fn ask(
        &self,
        request: Request,
        partition: Partition,
        owner: Option<NodeKey>,
    ) -> Result<(), Request> {
        let mut asked = self.asked();
        let number = asked.last + 1;
        if request.is_of_node() || asked.pending.len() >= ASKED_LEN_MAX {
            return Err(request);
        }
        let Some(body) = calls::encode_request(self.node, number, &request).map(Bytes::from) else {
            return Err(request);
        };
        let question = request.may_be_repeated().then(|| body.clone());
        for (number, reply) in (number..).zip(request.into_replies()?) {
            asked.last = number;
            let pending = PendingAsk {
                reply,
                partition,
                question: question.clone(),
                owner: owner.clone(),
            };
            asked.pending.insert(number, pending);
        }
        drop(asked);
        self.post_bytes(MailAddress::Partition(partition), body);
        Ok(())
    }

    fn asked(&self) -> MutexGuard<'_, AskedElsewhere> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Another node has answered.
    pub(crate) fn answer(&self, MailedAnswer { question, answer }: MailedAnswer) {
        let mut asked = self.asked();
        if matches!(answer, AnswerToNode::AskAgain) {
            let again = asked.pending.get(&question);
            let again = again.and_then(|pending| Some((pending.partition, pending.question.clone()?)));
            drop(asked);
            if let Some((partition, body)) = again {
                self.post_bytes(MailAddress::Partition(partition), body);
            }
            return;
        }
        // It may have given up, or asked twice.
        let Some(mut pending) = asked.pending.remove(&question) else {
            return;
        };
        let answered = match (pending.reply, answer) {
            (PendingReply::Watch(reply), AnswerToNode::Watched(Ok(()))) => {
                let (told, changed) = oneshot::channel();
                pending.reply = PendingReply::Watching(told);
                asked.pending.insert(question, pending);
                drop(asked);
                reply.send(Ok(changed));
                Ok(())
            }
            (reply, answer) => {
                drop(asked);
                reply.answer(answer)
            }
        };
        if let Err(error) = answered {
            tracing::warn!(%error, "the answer of another node cannot be read");
        }
    }

    /// Forgets callers that have given up, and asks again what was asked of nodes that do not own the partition any more.
    pub(crate) fn ask_again(&self, owner_of: impl Fn(Partition) -> Option<NodeKey>) {
        let mut again = Vec::new();
        let mut asked = self.asked();
        let is_over = |_: &u64, pending: &mut PendingAsk| {
            if pending.reply.is_closed() {
                return true;
            }
            let Some(question) = &pending.question else {
                return false;
            };
            let owner = owner_of(pending.partition);
            if owner.is_none() || owner == pending.owner {
                return false;
            }
            pending.owner = owner;
            // One who watches looks again by itself.
            let is_asked = !matches!(pending.reply, PendingReply::Watching(_));
            if is_asked {
                again.push((pending.partition, question.clone()));
            }
            !is_asked
        };
        let over: Vec<PendingAsk> = asked
            .pending
            .extract_if(.., is_over)
            .map(|(_, pending)| pending)
            .collect();
        drop(asked);
        // They wake callers.
        drop(over);
        for (partition, body) in again {
            self.post_bytes(MailAddress::Partition(partition), body);
        }
    }

    /// Runs this beside.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        drop(self.host.spawn("mail", Box::pin(task)));
    }

    /// Answers a question of another node, outside of a sweep.
    pub(crate) fn post_answer(&self, (node, question): (u64, u64), answer: AnswerToNode) {
        let body = calls::encode_answer(question, answer);
        self.post_bytes(MailAddress::Node(node), body.into());
    }

    /// A request of another node was dropped without an answer: its mail is read again.
    pub(crate) fn give_back(&self, number: u64, owned: (Partition, Epoch)) {
        let mut in_hand = self.lock();
        // It may have been read again since, under another epoch.
        let is_this = |mail: &MailInHand| mail.owned == Some(owned);
        if in_hand.mail.get(&number).is_some_and(is_this) {
            in_hand.mail.remove(&number);
            *in_hand.given_back.entry(number).or_default() += 1;
        }
        drop(in_hand);
        self.bell.ring();
    }

    /// Whether a shard may be given this once more: it was not given back too often.
    pub(crate) fn may_be_tried(&self, number: u64) -> bool {
        let in_hand = self.lock();
        in_hand
            .given_back
            .get(&number)
            .is_none_or(|times| *times < TRIES_MAX)
    }

    fn lock(&self) -> MutexGuard<'_, HeldMail> {
        self.in_hand.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is owned, with the epochs.
    pub(crate) fn owned(&self) -> Vec<(Partition, Epoch)> {
        let owned = self.owned.owned();
        owned
            .filter_map(|partition| Some((partition, self.owned.epoch(partition)?)))
            .collect()
    }

    /// Lets go of what has gone, and of what has another owner by now. Gives the numbers of what is in hand, and how many pieces
    /// and bytes more may be.
    pub(crate) fn settle(&self) -> (Vec<u64>, usize, usize) {
        let watermark = self.journal.high_watermark();
        let mut in_hand = self.lock();
        in_hand.mail.retain(|_, mail| {
            let is_here = |(partition, epoch)| self.owned.is_owned_under(partition, epoch);
            mail.gone_at.is_none_or(|offset| offset > watermark) && mail.owned.is_none_or(is_here)
        });
        if in_hand.given_back.len() > IN_HAND_LEN_MAX {
            // Others have it by now.
            in_hand.given_back.clear();
        }
        in_hand.bytes = in_hand.mail.values().map(|mail| mail.bytes).sum();
        (
            in_hand.mail.keys().copied().collect(),
            IN_HAND_LEN_MAX.saturating_sub(in_hand.mail.len()),
            IN_HAND_BYTES_MAX.saturating_sub(in_hand.bytes),
        )
    }

    /// This was read, and is given to a shard.
    pub(crate) fn take(&self, number: u64, owned: (Partition, Epoch), bytes: usize) {
        let mail = MailInHand {
            owned: Some(owned),
            bytes,
            gone_at: None,
        };
        self.lock().mail.insert(number, mail);
    }

    /// This was handled with the batch of this offset.
    pub(crate) fn handled(&self, numbers: impl Iterator<Item = u64>, offset: Offset) {
        let mut in_hand = self.lock();
        for number in numbers {
            in_hand.given_back.remove(&number);
            if let Some(mail) = in_hand.mail.get_mut(&number) {
                mail.gone_at = Some(offset);
            }
        }
    }

    /// This was told to all shards, which ask again for what they might miss of it.
    pub(crate) fn told(&self, numbers: &[u64]) {
        let Some(store) = self.store() else { return };
        store.discard(numbers);
        self.keep_until_gone(numbers);
    }

    /// Nobody here can read this.
    pub(crate) fn put_aside(&self, numbers: &[u64]) {
        let Some(store) = self.store() else { return };
        self.set_aside.fetch_add(numbers.len() as u64, Ordering::Relaxed);
        store.set_aside(numbers);
        self.keep_until_gone(numbers);
    }

    fn keep_until_gone(&self, numbers: &[u64]) {
        // Of a flush that is not begun yet.
        let gone_at = Some(self.journal.confirm(Offset::ZERO));
        let mail = MailInHand {
            owned: None,
            bytes: 0,
            gone_at,
        };
        self.lock()
            .mail
            .extend(numbers.iter().map(|number| (*number, mail)));
    }
}
