//! Mail between nodes, as the parts of a runtime see it: what is posted, and what is being handled.
//!
//! ```text
//!   shard ── router ── post ──► journal ──► store ──► unread ──► MailPart ──► door of a shard
//!                                             ▲                                   │ in hand, under an epoch
//!                                             └── the mail goes, in one flush ◄───┘ with what it led to
//! ```
//!
//! Invariants: mail in hand is not read again, unless its partition has another epoch by now; then the shard that had the
//! mail has dropped it, or will. What is in hand is bounded; the rest waits in the store.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use millrun_core::{Bell, Epoch, Host, Offset, Partition, Timestamp};
use millrun_persistence::{Journal, MailAddress, NodeKey, NodeMail, OutgoingMail};
use tokio::sync::oneshot;

use crate::mail::{PartitionMessage, PendingReply, Request, ShardDoors, UpdateRequest};
use crate::ownership::claims::OwnedTable;
use crate::wire;
use crate::wire::calls::{self, AnswerToNode, MailedAnswer};

/// How much mail is in hand at most: pieces, and bytes, which the last piece may exceed. Each shard has its own part of both,
/// so that a shard that is behind holds up no other.
const IN_HAND_LEN_MAX: usize = 4_096;
const IN_HAND_BYTES_MAX: usize = 64 << 20;

/// How many pieces of mail may have been read and not be known to be removed from the store. Once there are more, none is
/// read: those in hand, and as many again that wait for the flush that removes them.
pub(crate) const UNSETTLED_LEN_MAX: usize = 2 * IN_HAND_LEN_MAX;

/// How many callers of this process may wait for answers of other nodes, and the size of their requests in bytes.
const ASKED_LEN_MAX: usize = 65_536;
const ASKED_BYTES_MAX: usize = 256 << 20;

/// How often a shard is given a request that it drops, as a shard does that fails.
const TRIES_MAX: u32 = 3;

/// The period in which a question is asked again at most [`TRIES_MAX`] times. A caller may wait for days for a result, while
/// shards fail now and then for other reasons.
const TRIES_PERIOD: Duration = Duration::from_secs(60);

/// The error of a request that was dropped several times.
pub(crate) const FAILED_SEVERAL_TIMES: &str = "a shard has failed with it several times";

/// The mail of this node.
pub(crate) struct MailDesk {
    journal: Arc<dyn Journal>,
    owned: OwnedTable,
    /// The bell of the part that reads mail.
    bell: Bell,
    in_hand: Mutex<HeldMail>,
    set_aside: AtomicU64,
    /// The number of this node.
    node: u64,
    asked: Mutex<AskedElsewhere>,
    host: Arc<dyn Host>,
}

/// Questions of callers of this process to runs of other nodes, by number.
#[derive(Debug, Default)]
struct AskedElsewhere {
    last: u64,
    pending: BTreeMap<u64, PendingAsk>,
    /// The present numbers of questions that were posted again, by the numbers before.
    renumbered: BTreeMap<u64, u64>,
    /// The bytes of all pending requests.
    bytes: usize,
}

#[derive(Debug)]
struct PendingAsk {
    reply: PendingReply,
    partition: Partition,
    /// The request as it was posted, if it may be repeated: it is posted again when the partition moves.
    question: Option<Bytes>,
    /// The node that was believed to own the partition when it was asked.
    owner: Option<NodeKey>,
    /// The update that was asked together with a start. Once the start has led to a run, the update is asked of that run.
    update: Option<UpdateRequest>,
    /// The number before this one, if it was posted again.
    former: Option<u64>,
    /// Whether the other node has dropped it, and it cannot be posted again yet.
    is_dropped: bool,
    /// How often it had to be asked again, and since when that is counted.
    tries: u32,
    tried_since: Timestamp,
    bytes: usize,
}

impl AskedElsewhere {
    fn remove(&mut self, number: u64) -> Option<PendingAsk> {
        let pending = self.pending.remove(&number)?;
        self.note_removed(&pending);
        Some(pending)
    }

    fn note_removed(&mut self, pending: &PendingAsk) {
        self.bytes -= pending.bytes;
        if let Some(former) = pending.former {
            self.renumbered.remove(&former);
        }
    }

    fn insert(&mut self, number: u64, pending: PendingAsk) {
        self.bytes += pending.bytes;
        self.pending.insert(number, pending);
    }

    /// Gives a question that may be repeated another number. Returns the question, which is to be posted, and its partition.
    ///
    /// When a node drops the question that was posted under the former number, nothing is posted for it: so each caller has one
    /// question on its way, however often the partition moves. An answer under the former number is taken.
    fn renumber(&mut self, number: u64) -> Option<(Partition, Bytes)> {
        let next = self.last + 1;
        let pending = self.pending.get(&number)?;
        let body = Bytes::from(calls::renumbered(pending.question.as_ref()?, next).ok()?);
        let mut pending = self.remove(number)?;
        pending.question = Some(body.clone());
        pending.former = Some(number);
        let partition = pending.partition;
        self.last = next;
        self.renumbered.insert(number, next);
        self.insert(next, pending);
        Some((partition, body))
    }

    /// The present number of a question.
    fn present(&self, number: u64) -> u64 {
        self.renumbered.get(&number).copied().unwrap_or(number)
    }
}

impl fmt::Debug for MailDesk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MailDesk").finish_non_exhaustive()
    }
}

/// How much more mail a shard may have in hand.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ShardRoom {
    pub(crate) len: usize,
    bytes: usize,
}

impl ShardRoom {
    /// Whether there is room for another piece, which may exceed the bytes that are left.
    pub(crate) fn is_left(&self) -> bool {
        self.len > 0 && self.bytes > 0
    }

    pub(crate) fn take(&mut self, bytes: usize) {
        self.len = self.len.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(bytes);
    }
}

/// Mail that was read and is not known to be removed from the store.
#[derive(Debug, Default)]
struct HeldMail {
    mail: BTreeMap<u64, MailInHand>,
    /// How often mail was given back by a shard that had it in hand.
    given_back: BTreeMap<u64, u32>,
}

#[derive(Clone, Copy, Debug)]
struct MailInHand {
    /// The partition that the mail is for, with the epoch under which it was owned; `None` if the mail is for this node.
    owned: Option<(Partition, Epoch)>,
    bytes: usize,
    /// The mail is removed from the store once this offset is durable.
    gone_at: Option<Offset>,
}

impl MailDesk {
    /// The desk of a journal, if its store carries mail.
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

    /// The number of pieces of mail set aside since the runtime has started.
    pub(crate) fn set_aside_len(&self) -> u64 {
        self.set_aside.load(Ordering::Relaxed)
    }

    /// Whether a partition is owned here, so that a message to it needs no mail.
    #[inline]
    pub(crate) fn is_here(&self, partition: Partition) -> bool {
        self.owned.has(partition)
    }

    /// Whether this process still owns a partition, under this epoch.
    pub(crate) fn is_owned_under(&self, (partition, epoch): (Partition, Epoch)) -> bool {
        self.owned.is_owned_under(partition, epoch)
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
            // Only a list of all calls of a shard grows that long; without it, orphaned children stay open.
            Err(error) => tracing::error!(%error, "a message to another node cannot be sent"),
        }
    }

    fn post_bytes(&self, to: MailAddress, body: Bytes) {
        if let Some(store) = self.store() {
            store.post(OutgoingMail { to, body });
        }
    }

    /// Asks the node that owns a partition, as far as known here `owner`. Returns the request if it is of a kind that other
    /// nodes are not asked.
    #[expect(clippy::result_large_err, reason = "the request itself comes back")]
    pub(crate) fn ask(
        &self,
        request: Request,
        partition: Partition,
        owner: Option<NodeKey>,
    ) -> Result<(), Request> {
        if request.is_of_node() {
            return Err(request);
        }
        let number = self.next_question(2);
        let body = match calls::encode_request(self.node, number, &request) {
            Ok(Some(body)) => Bytes::from(body),
            Ok(None) => return Err(request),
            Err(error) => {
                request.fail(&error.to_string());
                return Ok(());
            }
        };
        let mut asked = self.asked();
        if asked.pending.len() >= ASKED_LEN_MAX || asked.bytes + body.len() > ASKED_BYTES_MAX {
            drop(asked);
            request.fail(
                "as many callers of this node wait for other nodes as may, or as many bytes; ask again when some have their answers",
            );
            return Ok(());
        }
        let question = request.may_be_repeated().then(|| body.clone());
        let update = request.update_of_start();
        let now = self.host.now();
        for (index, reply) in request.into_replies()?.into_iter().enumerate() {
            let is_first = index == 0;
            let pending = PendingAsk {
                reply,
                partition,
                question: question.clone(),
                owner: owner.clone(),
                update: (!is_first).then(|| update.clone()).flatten(),
                former: None,
                is_dropped: false,
                tries: 0,
                tried_since: now,
                bytes: if is_first { body.len() } else { 0 },
            };
            asked.insert(number + index as u64, pending);
        }
        drop(asked);
        self.post_bytes(MailAddress::Partition(partition), body);
        Ok(())
    }

    /// Reserves `len` consecutive numbers of questions, and returns the first.
    fn next_question(&self, len: u64) -> u64 {
        let mut asked = self.asked();
        let number = asked.last + 1;
        asked.last += len;
        number
    }

    fn asked(&self) -> MutexGuard<'_, AskedElsewhere> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes an answer of another node.
    pub(crate) fn answer(&self, MailedAnswer { question, answer }: MailedAnswer) {
        match answer {
            AnswerToNode::AskAgain => return self.on_ask_again(question, true),
            AnswerToNode::Moved => return self.on_ask_again(question, false),
            _ => {}
        }
        let mut asked = self.asked();
        let question = asked.present(question);
        // The caller may have given up, or this is the second answer to a question that was repeated.
        let Some(mut pending) = asked.remove(question) else {
            return;
        };
        if let AnswerToNode::Start(Ok((run, ..))) = &answer {
            self.on_started(&mut asked, question + 1, *run);
        }
        let answered = match (pending.reply, answer) {
            (PendingReply::Watch(reply), AnswerToNode::Watched(Ok(()))) => {
                let (told, changed) = oneshot::channel();
                pending.reply = PendingReply::Watching(told);
                asked.insert(question, pending);
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

    /// A start has led to a run, and the start's mail is removed. An update that came with the start is from now on repeated
    /// as an update of that run, if it gets lost.
    fn on_started(&self, asked: &mut AskedElsewhere, number: u64, run: u128) {
        let Some(pending) = asked.pending.get_mut(&number) else {
            return;
        };
        let Some(update) = pending.update.take() else {
            return;
        };
        pending.question = calls::encode_update(self.node, number, run, &update)
            .ok()
            .map(Bytes::from);
        if std::mem::take(&mut pending.is_dropped)
            && let Some(body) = &pending.question
        {
            // The update was lost before the run was known.
            self.post_bytes(MailAddress::Partition(pending.partition), body.clone());
        }
    }

    /// The other node has dropped a question without an answer: asks again. Whether that `counts`, as it does unless the
    /// partition has another owner.
    fn on_ask_again(&self, question: u64, counts: bool) {
        let now = self.host.now();
        let mut asked = self.asked();
        let Some(pending) = asked.pending.get_mut(&question) else {
            return;
        };
        if now.saturating_since(pending.tried_since) > TRIES_PERIOD {
            (pending.tries, pending.tried_since) = (0, now);
        }
        pending.tries += u32::from(counts);
        pending.is_dropped = pending.question.is_none();
        if matches!(pending.reply, PendingReply::Watching(_)) {
            // A caller that watches looks again by itself.
            let over = asked.remove(question);
            drop(asked);
            drop(over);
        } else if pending.tries > TRIES_MAX {
            let over = asked.remove(question);
            drop(asked);
            if let Some(pending) = over {
                pending.reply.fail(FAILED_SEVERAL_TIMES.to_owned());
            }
        } else if let Some((partition, body)) = asked.renumber(question) {
            drop(asked);
            self.post_bytes(MailAddress::Partition(partition), body);
        }
    }

    /// Forgets callers that have given up, and repeats the questions whose partitions have another owner by now.
    pub(crate) fn ask_again(&self, owner_of: impl Fn(Partition) -> Option<NodeKey>) {
        let mut again = Vec::new();
        let mut asked = self.asked();
        let is_over = |number: &u64, pending: &mut PendingAsk| {
            if pending.reply.is_closed() {
                return true;
            }
            if pending.question.is_none() {
                return false;
            }
            let owner = owner_of(pending.partition);
            if owner.is_none() || owner == pending.owner {
                return false;
            }
            (pending.owner, pending.tries) = (owner, 0);
            // A caller that watches looks again by itself.
            let is_asked = !matches!(pending.reply, PendingReply::Watching(_));
            if is_asked {
                again.push(*number);
            }
            !is_asked
        };
        let over: Vec<PendingAsk> = asked
            .pending
            .extract_if(.., is_over)
            .map(|(_, pending)| pending)
            .collect();
        over.iter().for_each(|pending| asked.note_removed(pending));
        let again = again.into_iter();
        let again: Vec<_> = again.filter_map(|number| asked.renumber(number)).collect();
        drop(asked);
        // Dropped outside of the lock, since that wakes callers.
        drop(over);
        for (partition, body) in again {
            self.post_bytes(MailAddress::Partition(partition), body);
        }
    }

    /// Runs a task in the background.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        drop(self.host.spawn("mail", Box::pin(task)));
    }

    /// Answers a question of another node, outside of a sweep.
    pub(crate) fn post_answer(&self, (node, question): (u64, u64), answer: AnswerToNode) {
        let body = calls::encode_answer(question, answer);
        self.post_bytes(MailAddress::Node(node), body.into());
    }

    /// A shard has dropped a request of another node without an answer: its mail is read again.
    pub(crate) fn give_back(&self, number: u64, owned: (Partition, Epoch)) {
        let mut in_hand = self.lock();
        // The mail may have been read again since, under another epoch.
        let is_this = |mail: &MailInHand| mail.owned == Some(owned);
        if in_hand.mail.get(&number).is_some_and(is_this) {
            in_hand.mail.remove(&number);
            *in_hand.given_back.entry(number).or_default() += 1;
        }
        drop(in_hand);
        self.bell.ring();
    }

    /// Whether a shard may be given this mail once more: it was not given back too often.
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

    /// The owned partitions, with their epochs.
    pub(crate) fn owned(&self) -> Vec<(Partition, Epoch)> {
        let owned = self.owned.owned();
        owned
            .filter_map(|partition| Some((partition, self.owned.epoch(partition)?)))
            .collect()
    }

    /// Forgets mail that is removed from the store, or whose partition has another owner by now. Returns the numbers of the
    /// mail in hand, and how much more each shard may have.
    pub(crate) fn settle(&self, doors: &ShardDoors) -> (Vec<u64>, Vec<ShardRoom>) {
        let shards_len = doors.all().len();
        let room = ShardRoom {
            len: (IN_HAND_LEN_MAX / shards_len).max(1),
            bytes: (IN_HAND_BYTES_MAX / shards_len).max(1),
        };
        let mut rooms = vec![room; shards_len];
        let watermark = self.journal.high_watermark();
        let mut in_hand = self.lock();
        in_hand.mail.retain(|_, mail| {
            let is_here = |(partition, epoch)| self.owned.is_owned_under(partition, epoch);
            mail.gone_at.is_none_or(|offset| offset > watermark) && mail.owned.is_none_or(is_here)
        });
        if in_hand.given_back.len() > IN_HAND_LEN_MAX {
            // Most of this mail belongs to other owners by now.
            in_hand.given_back.clear();
        }
        for mail in in_hand.mail.values() {
            if let Some((partition, _)) = mail.owned {
                rooms[doors.index_of(partition)].take(mail.bytes);
            }
        }
        (in_hand.mail.keys().copied().collect(), rooms)
    }

    /// Lets this mail be read again, with the next page.
    pub(crate) fn let_go(&self, number: u64) {
        self.lock().mail.remove(&number);
    }

    /// Notes that this mail was read and is given to a shard.
    pub(crate) fn take(&self, number: u64, owned: (Partition, Epoch), bytes: usize) {
        let mail = MailInHand {
            owned: Some(owned),
            bytes,
            gone_at: None,
        };
        self.lock().mail.insert(number, mail);
    }

    /// Notes that this mail was handled with the batch of this offset.
    pub(crate) fn handled(&self, numbers: impl Iterator<Item = u64>, offset: Offset) {
        let mut in_hand = self.lock();
        for number in numbers {
            in_hand.given_back.remove(&number);
            if let Some(mail) = in_hand.mail.get_mut(&number) {
                mail.gone_at = Some(offset);
            }
        }
    }

    /// Removes mail that all shards were told of. If a shard misses some of it, the shard asks again.
    pub(crate) fn told(&self, numbers: &[u64]) {
        let Some(store) = self.store() else { return };
        store.discard(numbers);
        self.keep_until_gone(numbers);
    }

    /// Sets mail aside that nobody here can read.
    pub(crate) fn put_aside(&self, numbers: &[u64]) {
        let Some(store) = self.store() else { return };
        self.set_aside.fetch_add(numbers.len() as u64, Ordering::Relaxed);
        store.set_aside(numbers);
        self.keep_until_gone(numbers);
    }

    fn keep_until_gone(&self, numbers: &[u64]) {
        // The offset of a flush that has not begun yet.
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
