//! The part that reads the mail of a node and gives it to the shards. It has a thread of its own, since reading waits for the
//! server.
//!
//! Mail is given out in the order of its numbers. So the mail of one node comes in the order in which it was decided, and
//! after the mail of a partition's former owner, which had landed before the partition was claimed.
//!
//! A list of all calls of some partitions ([`PartitionMessage::Orphans`]) holds while these have the epochs that it names.
//! They are compared with the store after the message was read: a node that claims one of the partitions later also posts its
//! calls later, and these come after.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use millrun_core::{Epoch, Next, Part, Partition, Timestamp};
use millrun_persistence::{
    Batch, HandledMail, MailAddress, MailStep, NodeMail, OutgoingMail, ReadError, UnreadMail,
};

use super::mail_desk::{FAILED_SEVERAL_TIMES, MailDesk, UNSETTLED_LEN_MAX};
use crate::mail::{MailPlace, MailToAnswer, Mailed, PartitionMessage, RepliesToNode, ShardDoors};
use crate::shared::ShardShared;
use crate::wire::calls::{self, AnswerToNode, MailedAnswer, MailedRequest};
use crate::wire::{MailWaiter, MessageError, NodeMessage, decode_mail, waiter_of};

/// How often unread mail is looked for without a notification.
pub(crate) const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The pause before mail is read again that found no room.
const ROOM_PAUSE: Duration = Duration::from_millis(5);

/// How often the part checks whether questions have to be asked of other nodes than before.
const ASK_AGAIN_EVERY: Duration = Duration::from_millis(250);

/// How much mail is read at a time: pieces, and bytes, which the last piece may exceed. After a failed read the page is
/// halved: a page that the server cannot deliver in time would fail the next time too.
const PAGE_LEN: usize = 1_024;
const PAGE_BYTES: usize = 16 << 20;
const HALVINGS_MAX: u32 = 10;

pub(crate) struct MailPart {
    shared: Arc<ShardShared>,
    desk: Arc<MailDesk>,
    doors: ShardDoors,
    /// For each shard the number of questions in its mailbox.
    questions: Vec<Arc<AtomicUsize>>,
    halvings: u32,
    asks_again_at: Timestamp,
}

/// The result of a read.
struct MailRead {
    /// There may be more mail: it found no room, or did not fit the page.
    has_more: bool,
    /// The further mail may contain answers of other nodes.
    has_more_answers: bool,
}

impl MailPart {
    pub(crate) fn new(shared: Arc<ShardShared>, desk: Arc<MailDesk>, doors: ShardDoors) -> Self {
        let questions = doors.all().iter().map(|_| Arc::default()).collect();
        Self {
            shared,
            desk,
            doors,
            questions,
            halvings: 0,
            asks_again_at: Timestamp::from_micros(0),
        }
    }

    /// Gives out a page of mail. Mail for a shard without room stays in the store; only messages to all runs wait behind it.
    fn read(&self, store: &dyn NodeMail) -> Result<MailRead, ReadError> {
        // Looked up before the page is read: mail of a partition that is lost meanwhile, and handled elsewhere, is skipped.
        let owned: BTreeMap<Partition, Epoch> = self.desk.owned().into_iter().collect();
        let (in_hand, mut rooms) = self.desk.settle(&self.doors);
        if in_hand.len() >= UNSETTLED_LEN_MAX {
            // The journal is behind: mail that was read is still in the store.
            return Ok(MailRead {
                has_more: true,
                has_more_answers: true,
            });
        }
        for (room, questions) in rooms.iter_mut().zip(&self.questions) {
            room.len = room.len.saturating_sub(questions.load(Ordering::Relaxed));
        }
        let has_room = |of: &Partition| rooms[self.doors.index_of(*of)].is_left();
        let partitions: Vec<_> = owned.keys().copied().filter(has_room).collect();
        let (len_max, bytes_max) = (PAGE_LEN >> self.halvings, PAGE_BYTES >> self.halvings);
        let page = store.unread(&partitions, &in_hand, len_max, bytes_max)?;
        let bytes: usize = page.iter().map(|mail| mail.body.len()).sum();
        let is_full = page.len() == len_max || bytes >= bytes_max;
        // Whether an earlier message was skipped: a message to all runs must not overtake a message to one of them, nor the
        // reverse.
        let mut leaves_some = partitions.len() < owned.len();
        let mut is_behind_all = false;
        let (mut told, mut unreadable) = (Vec::new(), Vec::new());
        let mut given = Ok(());
        for mail in page {
            let (number, len) = (mail.number, mail.body.len());
            let room = mail.partition.map(|of| self.doors.index_of(of));
            let message = decode_mail(&mail.body);
            let is_of_runs = matches!(message, Ok(NodeMessage::Runs(_)));
            let is_to_all = matches!(message, Ok(NodeMessage::Runs(PartitionMessage::Orphans { .. })));
            if room.is_some_and(|shard| !rooms[shard].is_left()) || is_of_runs && is_behind_all {
                leaves_some = true;
                continue;
            }
            if is_to_all && leaves_some {
                is_behind_all = true;
                continue;
            }
            match self.give(store, &owned, mail, message) {
                Ok(MailFate::InHand) => {
                    if let Some(shard) = room {
                        rooms[shard].take(len);
                    }
                }
                Ok(MailFate::Gone) => {
                    if let Some(shard) = room {
                        rooms[shard].take(0);
                    }
                    told.push(number);
                }
                Ok(MailFate::Unreadable) => unreadable.push(number),
                Ok(MailFate::Closed) => {
                    leaves_some = false;
                    break;
                }
                Err(error) => {
                    given = Err(error);
                    break;
                }
            }
        }
        if !told.is_empty() {
            self.desk.told(&told);
        }
        if !unreadable.is_empty() {
            self.desk.put_aside(&unreadable);
        }
        given.map(|()| MailRead {
            has_more: is_full || leaves_some,
            has_more_answers: is_full,
        })
    }

    fn give(
        &self,
        store: &dyn NodeMail,
        owned: &BTreeMap<Partition, Epoch>,
        mail: UnreadMail,
        message: Result<NodeMessage, MessageError>,
    ) -> Result<MailFate, ReadError> {
        if let Some(partition) = mail.partition
            && self.doors.of(partition).mailbox.is_closed()
        {
            // This node is about to leave: the partition's next owner reads the mail.
            return Ok(MailFate::Closed);
        }
        let message = match message {
            Ok(message) => message,
            Err(error) => return Ok(self.give_unreadable(owned, &mail, &error)),
        };
        let message = match message {
            NodeMessage::Runs(message) => message,
            NodeMessage::Request(request) => return Ok(self.give_request(owned, &mail, *request)),
            NodeMessage::Answer(answer) => {
                self.desk.answer(answer);
                return Ok(MailFate::Gone);
            }
        };
        match message {
            PartitionMessage::Begun { partitions } => {
                for door in self.doors.all() {
                    let partitions = Arc::clone(&partitions);
                    door.push_reserved(PartitionMessage::Begun { partitions });
                }
                Ok(MailFate::Gone)
            }
            PartitionMessage::Orphans {
                parents,
                children,
                awaited,
            } => {
                let partitions: Vec<_> = parents.iter().map(|(partition, _)| *partition).collect();
                let now: BTreeMap<_, _> = store.epochs(&partitions)?.into_iter().collect();
                let still = parents
                    .iter()
                    .filter(|(partition, epoch)| now.get(partition) == Some(epoch));
                let parents: Arc<[_]> = still.copied().collect();
                for door in self.doors.all() {
                    door.push_reserved(Mailed::Orphans {
                        parents: Arc::clone(&parents),
                        children: Arc::clone(&children),
                        awaited: Arc::clone(&awaited),
                    });
                }
                Ok(MailFate::Gone)
            }
            message => {
                let epoch = mail.partition.and_then(|of| Some((of, *owned.get(&of)?)));
                // Mail for a node, rather than a partition, must be a message to all shards.
                let Some((partition, epoch)) = epoch else {
                    return Ok(MailFate::Unreadable);
                };
                let (number, owned) = (mail.number, (partition, epoch));
                self.desk.take(number, owned, mail.body.len());
                self.doors.of(partition).push_reserved(Mailed::Message {
                    number,
                    owned,
                    message,
                });
                Ok(MailFate::InHand)
            }
        }
    }

    /// Handles mail that cannot be read: tells the caller that is known to wait for it, if any, and otherwise sets the mail
    /// aside.
    fn give_unreadable(
        &self,
        owned: &BTreeMap<Partition, Epoch>,
        mail: &UnreadMail,
        error: &MessageError,
    ) -> MailFate {
        let number = mail.number;
        let owned = mail.partition.and_then(|of| Some((of, *owned.get(&of)?)));
        match (waiter_of(&mail.body), owned) {
            (Some(MailWaiter::Asker { node, question }), Some(owned)) => {
                tracing::warn!(number, %error, "a request of another node cannot be read, and is refused");
                let why = format!("it cannot read the request: {error}");
                self.fail((number, owned), (node, question..question + 1), &why)
            }
            (Some(MailWaiter::Asked { question }), _) => {
                tracing::warn!(number, %error, "an answer of another node cannot be read");
                let answer = AnswerToNode::Failed(format!("its answer cannot be read: {error}"));
                self.desk.answer(MailedAnswer { question, answer });
                MailFate::Unreadable
            }
            _ => {
                tracing::warn!(number, %error, "mail from another node cannot be read, and is set aside");
                MailFate::Unreadable
            }
        }
    }

    /// Gives a request of another node's caller to the shard of its partition.
    fn give_request(
        &self,
        owned: &BTreeMap<Partition, Epoch>,
        mail: &UnreadMail,
        request: MailedRequest,
    ) -> MailFate {
        let epoch = mail.partition.and_then(|of| Some((of, *owned.get(&of)?)));
        let Some(owned) = epoch else {
            return MailFate::Unreadable;
        };
        let (number, node) = (mail.number, request.node);
        let questions = request.question..request.question + request.answers() as u64;
        let is_question = request.is_question();
        if !is_question && !self.desk.may_be_tried(number) {
            return self.fail((number, owned), (node, questions), FAILED_SEVERAL_TIMES);
        }
        let goes_with =
            (!is_question).then(|| MailToAnswer::new(number, owned, request.answers(), request.enough()));
        if goes_with.is_some() {
            self.desk.take(number, owned, mail.body.len());
        }
        let replies = RepliesToNode {
            desk: Arc::clone(&self.desk),
            node,
            owned,
            mail: goes_with,
        };
        match request.into_request(&replies) {
            Ok(request) => {
                let shard = self.doors.index_of(owned.0);
                let place = is_question.then(|| MailPlace::new(&self.questions[shard]));
                self.doors.all()[shard].push_reserved(Mailed::Request {
                    owned,
                    request,
                    place,
                });
                if is_question {
                    MailFate::Gone
                } else {
                    MailFate::InHand
                }
            }
            Err(error) => self.fail((number, owned), (node, questions), &error.to_string()),
        }
    }

    /// Tells a caller of another node why its request cannot be handled, once for each of its questions. The mail is removed
    /// with that.
    fn fail(
        &self,
        (number, owned): (u64, (Partition, Epoch)),
        (node, questions): (u64, Range<u64>),
        why: &str,
    ) -> MailFate {
        let mut batch = Batch::new();
        let posts = questions.map(|question| OutgoingMail {
            to: MailAddress::Node(node),
            body: calls::encode_answer(question, AnswerToNode::Failed(why.to_owned())).into(),
        });
        batch.mail(MailStep {
            with: None,
            handled: Some(HandledMail {
                number,
                owned: Some(owned),
            }),
            posts: posts.collect(),
        });
        self.desk.take(number, owned, 0);
        match self.shared.journal.enqueue(&batch) {
            Ok(enqueued) => self.desk.handled([number].into_iter(), enqueued.offset),
            // The mail is read again, with the next page.
            Err(_) => self.desk.let_go(number),
        }
        MailFate::InHand
    }
}

/// What happens to mail that was read.
enum MailFate {
    /// A shard handles it, and the commit of what follows from it removes it from the store.
    InHand,
    /// It is removed now: all shards have it, or the sender asks again if it is lost.
    Gone,
    Unreadable,
    /// The shards take no more messages.
    Closed,
}

impl Part for MailPart {
    fn turn(&mut self, now: Timestamp, _budget: usize) -> Next {
        let journal = Arc::clone(&self.shared.journal);
        let (Some(store), None) = (self.desk.store(), journal.failure()) else {
            // The supervision tree looks at the journal when a part has stopped.
            return Next::Stop;
        };
        let read = match self.read(store) {
            Ok(read) => read,
            Err(error) => {
                tracing::debug!(%error, "the mail of other nodes could not be read");
                self.halvings = HALVINGS_MAX.min(self.halvings + 1);
                return Next::At(now + LOOK_EVERY);
            }
        };
        self.halvings = self.halvings.saturating_sub(1);
        // Not while answers lie unread: a question whose answer is among them must not be asked again.
        if let Some(cluster) = &self.shared.cluster
            && !read.has_more_answers
            && now >= self.asks_again_at
        {
            self.desk.ask_again(|partition| cluster.owner_key(partition));
            self.asks_again_at = now + ASK_AGAIN_EVERY;
        }
        match read.has_more {
            true => Next::At(now + ROOM_PAUSE),
            false => Next::At(now + LOOK_EVERY),
        }
    }
}
